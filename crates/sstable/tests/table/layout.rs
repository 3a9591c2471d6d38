//! The layout of a table's file: every range of it, and in a corrupt file the corrupt ones.

use trommel_sstable::format::BlockKind;
use trommel_sstable::{BlockInfo, Error, layout};
use trommel_vfs::{Access, Vfs};

use crate::common::*;
use crate::damage::{blocks_of, reseal, small_tables};

fn layout_of(bytes: &[u8]) -> Result<Vec<BlockInfo>, Error> {
    let table = InMemory::of_bytes(bytes);
    layout(&table.vfs.open(&table.path, Access::Buffered).unwrap(), &table.path)
}

/// No gaps from the first byte to the last.
fn assert_covers(blocks: &[BlockInfo], bytes: usize) {
    let mut end = 0;
    for block in blocks {
        assert_eq!(block.offset, end, "{blocks:?}");
        end += block.bytes;
    }
    assert_eq!(end, bytes as u64);
}

#[test]
fn every_block_is_listed_with_what_it_holds() {
    let mut leaves = 0;
    for filter in ["none", "blocked:10"] {
        for (entries, table) in small_tables(filter) {
            let bytes = table.bytes();
            let listed = layout_of(&bytes).unwrap();
            assert_covers(&listed, bytes.len());
            let mut expected = blocks_of(&bytes);
            expected.sort_by_key(|block| block.0);
            leaves += listed.iter().filter(|block| block.kind == BlockKind::IndexLeaf).count();
            let (footer, blocks) = listed.split_last().unwrap();
            assert_eq!(footer.kind, BlockKind::Footer);
            let seen: Vec<_> =
                blocks.iter().map(|b| (b.offset as usize, b.bytes as usize, b.kind)).collect();
            assert_eq!(seen, expected);
            let data = blocks.iter().filter(|block| block.kind == BlockKind::Data);
            let data: Vec<_> = data.map(|block| block.content.as_ref().unwrap()).collect();
            assert_eq!(data.iter().map(|block| block.items).sum::<u64>(), entries.len() as u64);
            let mut at = 0;
            for block in data {
                assert_eq!(block.first_key, entries[at].key);
                let held = &entries[at..at + block.items as usize];
                assert_eq!(block.last_key, held.last().unwrap().key);
                let values: usize = held.iter().map(|entry| entry.value.len()).sum();
                assert_eq!(block.value_bytes, values as u64);
                at += held.len();
            }
        }
    }
    assert!(leaves > 0, "some of the tables have an index of two levels");
}

#[test]
fn a_flipped_byte_is_reported_at_its_block() {
    for (_, table) in small_tables("paired:10") {
        let sound = table.bytes();
        let footer = sound.len() - trommel_sstable::format::FOOTER_BYTES;
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x10;
            let Ok(blocks) = layout_of(&bytes) else {
                assert!(at >= footer, "byte {at}");
                continue;
            };
            assert_covers(&blocks, bytes.len());
            let here =
                blocks.iter().find(|b| (b.offset..b.offset + b.bytes).contains(&(at as u64)));
            let here = here.unwrap();
            assert!(here.content.is_err(), "byte {at}: {here:?}");
            let is_index = matches!(here.kind, BlockKind::IndexLeaf | BlockKind::IndexTop);
            let others = blocks.iter().filter(|b| b.content.is_err() && b.offset != here.offset);
            for other in others {
                // Without its index, the bounds of data and leaves are unknown.
                assert!(
                    is_index && matches!(other.kind, BlockKind::Data | BlockKind::IndexLeaf),
                    "byte {at}: {other:?}"
                );
            }
        }
    }
}

#[test]
fn hostile_bytes_with_right_checksums_are_listed_without_a_panic() {
    let mut random = Random(3);
    for (_, table) in small_tables("blocked:10") {
        let sound = table.bytes();
        let blocks = blocks_of(&sound);
        for _ in 0..4000 {
            let mut bytes = sound.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
            reseal(&mut bytes, &blocks);
            if let Ok(blocks) = layout_of(&bytes) {
                assert_covers(&blocks, bytes.len());
            }
        }
    }
}

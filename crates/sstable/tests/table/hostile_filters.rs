//! Malicious filters of every kind, whole and partitioned, with valid checksums: an error or an
//! answer, never a panic.

use std::sync::Arc;

use trommel_filter::FilterKind;
use trommel_sstable::format::BlockKind;
use trommel_sstable::{BlockCache, Expected, Table, TableConfig, layout};
use trommel_vfs::{Access, Vfs};

use crate::common::*;
use crate::damage::reseal;
use crate::filter_shapes::{Host, SHAPES, plan, query_many, shaped};

/// Mostly recomputes the inner checksum of a changed partition, so that the code after that check
/// is reached.
fn seal_filter(payload: &mut [u8], kind: BlockKind, random: &mut Random) {
    let header = match payload.first_chunk() {
        Some(b"TrFl") => 64,
        Some(b"TrFs") => 48,
        _ => return,
    };
    if kind == BlockKind::Filter && payload.len() >= header && random.below(4) > 0 {
        let sum = trommel_filter::hash(&[&payload[..header - 8], &payload[header..]].concat());
        payload[header - 8..header].copy_from_slice(&sum.to_le_bytes());
    }
}

fn try_open(made: &InMemory, cache: &Arc<BlockCache>, host: Arc<Host>) -> Option<Table> {
    let file = made.vfs.open(&made.path, Access::Buffered).unwrap();
    let expected = Expected { file_bytes: file.bytes(), table_id: TABLE_ID };
    let config =
        TableConfig { cache: Arc::clone(cache), access: Access::Buffered, filter_host: Some(host) };
    Table::open(file, &made.path, expected, &config).ok()
}

/// Any bytes with valid checksums give an error or an answer, the same for single and batched
/// queries, wherever partitions are held; never a panic. A run makes 3,600 times `TROMMEL_SCALE`
/// changes; for a million:
///
/// `TROMMEL_SCALE=278 cargo test -p trommel-sstable --test table hostile_partitions`
#[test]
fn hostile_partitions_and_tops_do_no_harm() {
    let scale = std::env::var("TROMMEL_SCALE").map_or(1, |scale| scale.parse().unwrap());
    let entries: Vec<Entry> =
        (0..120).map(|i| put(format!("key{i:04}"), i, vec![b'v'; 10])).collect();
    let mut random = Random(77);
    for shape in SHAPES {
        for kind in FilterKind::ALL {
            let spec = format!("{kind}:20");
            let plan = plan(&spec, Some((&spec, 6)), shape);
            let table = InMemory::new(shaped(plan, 1 << 16), &entries);
            let reached = attack(&table, &entries, 300 * scale, &mut random);
            println!("{kind}, {shape:?}: {reached} of {} had a filter left to query", 300 * scale);
            assert!(
                reached > 60 * scale,
                "{kind}, {shape:?}: {reached} had a filter left to query"
            );
        }
    }
}

/// Changes the filters of `table` anew in every round, and queries them. Returns the number of
/// rounds that left a filter to query.
fn attack(table: &InMemory, entries: &[Entry], rounds: usize, random: &mut Random) -> usize {
    let bytes = table.bytes();
    let file = table.vfs.open(&table.path, Access::Buffered).unwrap();
    let blocks: Vec<_> = layout(&file, &table.path)
        .unwrap()
        .into_iter()
        .filter(|block| block.kind != BlockKind::Footer)
        .map(|block| (block.offset as usize, block.bytes as usize, block.kind))
        .collect();
    let targets: Vec<_> = blocks
        .iter()
        .filter(|b| matches!(b.2, BlockKind::Filter | BlockKind::FilterTop | BlockKind::Properties))
        .collect();
    let mut reached = 0;
    for round in 0..rounds {
        let (start, length, kind) = targets[round % targets.len()];
        let mut hostile = bytes.clone();
        for _ in 0..1 + random.below(3) {
            let at = start + random.below(length - 4);
            hostile[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)];
        }
        seal_filter(&mut hostile[*start..start + length - 5], *kind, random);
        reseal(&mut hostile, &blocks);
        let made = InMemory::of_bytes(&hostile);
        let (pinned, cache) = [(u64::MAX, 0), (0, 1 << 20), (900, 4 << 10)][random.below(3)];
        let (host, cache) = (Host::new(pinned), BlockCache::new(cache));
        let Some(opened) = try_open(&made, &cache, host) else { continue };
        let filters = opened.filters();
        let (mut keys, mut hashes, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries.iter().step_by(7) {
            let hash = trommel_filter::hash(&entry.key);
            alone.push(filters.query(&entry.key, hash));
            filters.query_prefix(&entry.key[..6], hash, "first");
            keys.push(&*entry.key);
            hashes.push(hash);
        }
        let together = query_many(&opened, &keys, &hashes);
        assert_eq!(together, alone, "round {round}");
        opened.evict();
        reached += usize::from(together.iter().any(|verdict| verdict.expected < 1.0));
        let _ = (filters.facts(), filters.prefix_facts(), filters.check().is_ok());
        let _ = opened.verify();
    }
    reached
}

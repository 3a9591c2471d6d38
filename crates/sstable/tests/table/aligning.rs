//! Data blocks padded to page boundaries.

use trommel_base::Cursor;
use trommel_sstable::format::BlockKind;
use trommel_sstable::{BlockInfo, Compression, ScanOptions, TableOptions, layout};
use trommel_vfs::{Access, Vfs};

use crate::common::*;

const PAGE: u64 = 4096;

/// The data blocks of a table with these values, after reading it back.
fn built(options: TableOptions, values: &[Vec<u8>]) -> Vec<BlockInfo> {
    let entries: Vec<Entry> =
        (0..).zip(values).map(|(i, v)| put(format!("{i:016}"), i, v)).collect();
    let table = InMemory::new(options, &entries);
    let opened = table.open().unwrap();
    opened.verify().unwrap();
    let mut cursor = opened.cursor(ScanOptions::default());
    cursor.seek_to_first().unwrap();
    for entry in &entries {
        assert_eq!(standing(&cursor).as_ref(), Some(entry));
        cursor.next().unwrap();
    }
    let file = table.vfs.open(&table.path, Access::Buffered).unwrap();
    let mut blocks = layout(&file, &table.path).unwrap();
    blocks.retain(|block| block.kind == BlockKind::Data);
    blocks
}

fn aligned(block_bytes: usize, compression: Compression) -> TableOptions {
    TableOptions { block_align: true, ..options(block_bytes, compression, "none") }
}

fn data_bytes(blocks: &[BlockInfo]) -> u64 {
    blocks.iter().map(|block| block.bytes).sum()
}

/// The number of pages that a block spans.
fn pages(block: &BlockInfo) -> u64 {
    (block.offset + block.bytes).div_ceil(PAGE) - block.offset / PAGE
}

#[test]
fn blocks_lie_in_as_few_pages_as_they_fill() {
    let mut random = Random(5);
    for block_bytes in [4096, 8192, 16 << 10] {
        for bytes in [20, 100, 256, 480] {
            let values: Vec<_> = (0..(200 << 10) / bytes).map(|_| random.bytes(bytes)).collect();
            let blocks = built(aligned(block_bytes, Compression::None), &values);
            let (_, full) = blocks.split_last().unwrap();
            assert!(full.len() > 10);
            for block in full {
                let place = (block.offset % PAGE, block.bytes);
                assert_eq!(place, (0, block_bytes as u64), "values of {bytes} bytes");
            }
        }
    }
}

/// For a block of one value and one key, after a large block that ends at a page boundary.
#[test]
fn padding_may_have_any_length_below_half_a_page() {
    let plain = options(4096, Compression::None, "none");
    let overhead = built(plain, &[Vec::new()])[0].bytes;
    let before = vec![b'v'; (10 * PAGE - overhead) as usize];
    for left in 0..PAGE - overhead {
        let value = vec![b'v'; (PAGE - overhead - left) as usize];
        let values = [before.clone(), value, vec![b'v'; 5000]];
        let blocks = built(aligned(4096, Compression::None), &values);
        assert_eq!(blocks[1].offset, 10 * PAGE);
        // One byte has no room for an offset.
        let is_padded = left != 1 && left < PAGE / 2;
        let bytes = if is_padded { PAGE } else { PAGE - left };
        assert_eq!(blocks[1].bytes, bytes, "{left} bytes left");
    }
}

/// Of several blocks in a page, only the last one is padded.
#[test]
fn small_blocks_are_padded_where_no_other_fits() {
    let mut random = Random(8);
    for (block_bytes, most) in [(512, 0.10), (1000, 0.08), (1024, 0.03), (2048, 0.03)] {
        let values: Vec<_> = (0..2000).map(|_| random.bytes(20)).collect();
        let plain = data_bytes(&built(options(block_bytes, Compression::None, "none"), &values));
        let blocks = built(aligned(block_bytes, Compression::None), &values);
        let added = data_bytes(&blocks) as f64 / plain as f64 - 1.0;
        assert!(added > 0.0 && added < most, "{added} with blocks of {block_bytes}");
        assert!(blocks.iter().all(|block| pages(block) == 1), "blocks of {block_bytes}");
    }
}

/// If padding made offsets wide, the block would grow even more.
#[test]
fn padding_makes_no_offset_wide() {
    let alone = |bytes| {
        let plain = options(4096, Compression::None, "none");
        built(plain, &[vec![b'v'; bytes as usize]])[0].bytes
    };
    let overhead = alone(0);
    // Narrow and padded, narrow and not padded, wide and padded.
    let mut seen = [0; 3];
    for start in [200, 3000] {
        for value in (65_000..65_700).step_by(7) {
            let bytes = alone(value);
            let wide = bytes > value + overhead;
            let left = (start + bytes).next_multiple_of(PAGE) - start - bytes;
            let is_refused = !wide && value + 17 + left > 65_535;
            let values = [start - overhead, value, 1].map(|bytes| vec![b'v'; bytes as usize]);
            let blocks = built(aligned(4096, Compression::None), &values);
            assert_eq!(blocks[1].offset, start);
            let padding = if is_refused || left < if wide { 4 } else { 2 } || left >= PAGE / 2 {
                0
            } else {
                left
            };
            assert_eq!(blocks[1].bytes, bytes + padding, "a value of {value} at {start}");
            match (wide, padding > 0) {
                (false, true) => seen[0] += 1,
                (false, false) if is_refused && left < PAGE / 2 => seen[1] += 1,
                (true, true) => seen[2] += 1,
                _ => {}
            }
        }
    }
    assert!(seen.into_iter().all(|blocks| blocks > 10), "{seen:?}");
}

#[test]
fn padding_takes_an_eighth_at_most() {
    let mut random = Random(6);
    for most in [600, 1000, 1500, 3000, 5000] {
        let sizes: Vec<_> = (0..600).map(|_| most / 2 + random.below(most)).collect();
        let values: Vec<_> = sizes.into_iter().map(|bytes| random.bytes(bytes)).collect();
        let plain = built(options(4096, Compression::None, "none"), &values);
        let padded = built(aligned(4096, Compression::None), &values);
        assert_eq!(plain.len(), padded.len(), "the same entries in each block");
        let padding = data_bytes(&padded) - data_bytes(&plain);
        assert!(8 * padding <= data_bytes(&padded), "values of {most}: {padding} bytes");
        let [plain, padded] = [plain, padded].map(|blocks| {
            blocks.iter().filter(|block| pages(block) > block.bytes.div_ceil(PAGE)).count()
        });
        assert!(padded < plain && plain > 50, "values of {most}: {padded} of {plain}");
        assert!(most > 1000 || padded < plain / 4, "values of {most}: {padded} of {plain}");
    }
}

/// A compressed block is never padded; a block stored raw because compression saves nothing is.
#[test]
fn only_uncompressed_blocks_are_padded() {
    let mut random = Random(7);
    let values: Vec<_> = (0..400).map(|_| random.bytes(256)).collect();
    let blocks = built(aligned(4096, Compression::Lz4), &values);
    assert!(blocks.split_last().unwrap().1.iter().all(|block| block.bytes == PAGE));
    let values = vec![vec![b'v'; 256]; 400];
    let blocks = built(aligned(4096, Compression::Lz4), &values);
    assert!(blocks.iter().all(|block| block.bytes < PAGE / 2));
    let plain = built(options(4096, Compression::Lz4, "none"), &values);
    assert_eq!(data_bytes(&blocks), data_bytes(&plain));
}

#[test]
fn corrupt_padding_is_detected() {
    let entries: Vec<Entry> = (0..40).map(|i| put(format!("key{i:02}"), 1, [b'x'; 256])).collect();
    let bytes = InMemory::new(aligned(4096, Compression::None), &entries).bytes();
    let is_padding = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let padding = bytes.windows(50).position(is_padding).unwrap();
    let end = padding + bytes[padding..].iter().take_while(|byte| **byte == 0).count();
    assert!(padding % 256 == 0 && end < 4096, "{padding} to {end}");
    for at in padding..end {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let table = InMemory::of_bytes(&changed).open().unwrap();
        let error = table.verify().expect_err("one bit is wrong");
        assert!(error.to_string().contains("checksum"), "{error}");
    }
}

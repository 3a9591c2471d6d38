//! The largest, the smallest and the rejected entries.

use std::path::Path;

use trommel_base::{Cursor, EntryKind, MAX_KEY_BYTES, MAX_SEQNO};
use trommel_sim::MemoryVfs;
use trommel_sstable::{Compression, Error, ReadStats, ScanOptions, TableBuilder, TableOptions};
use trommel_vfs::Vfs;

use crate::common::*;

fn check(options: TableOptions, entries: &[Entry]) -> InMemory {
    let table = InMemory::new(options, entries);
    let opened = table.open().unwrap();
    let mut stats = ReadStats::default();
    for entry in entries {
        let hash = trommel_filter::hash(&entry.key);
        let found = opened.get(&entry.key, hash, entry.seqno, &mut stats).unwrap().unwrap();
        assert_eq!((found.seqno, found.kind), (entry.seqno, entry.kind));
        assert!(found.value == entry.value);
    }
    let mut cursor = opened.cursor(ScanOptions::default());
    cursor.seek_to_first().unwrap();
    for entry in entries {
        assert!(standing(&cursor).as_ref() == Some(entry));
        cursor.next().unwrap();
    }
    assert!(cursor.entry().is_none());
    assert_eq!(opened.verify().unwrap().entries, entries.len() as u64);
    table
}

#[test]
fn values_of_every_size_around_a_block_come_back() {
    let mut random = Random(21);
    for compression in [Compression::None, Compression::Lz4] {
        let mut entries = Vec::new();
        for (i, length) in [0, 1, 22, 23, 4095, 4096, 4097, 65_534, 65_535, 65_536, 5 << 20]
            .into_iter()
            .enumerate()
        {
            entries.push(put(format!("{i:02}a"), 9, random.bytes(length)));
            entries.push(put(format!("{i:02}b"), 9, vec![b'x'; length]));
            entries.push(put(format!("{i:02}c"), 9, b"small"));
        }
        for block in [64, 4096, 1 << 20] {
            check(options(block, compression, "blocked:10"), &entries);
        }
    }
}

#[test]
fn the_longest_keys_come_back_even_where_they_share_almost_everything() {
    let long = |last: &[u8]| {
        let mut key = vec![b'k'; MAX_KEY_BYTES - last.len()];
        key.extend_from_slice(last);
        key
    };
    let mut entries = vec![put(b"", 3, b"of the empty key"), put(b"", 1, b"older")];
    for i in 0..40u8 {
        entries.push(put(long(&[i]), 7, [i]));
        entries.push(put(vec![b'k'; 1000 + usize::from(i)], 7, [i]));
        entries.push(put(vec![0xff; 200 + 300 * usize::from(i)], 7, [i]));
    }
    let entries = sorted(entries);
    for (block, leaf) in [(64, 64), (4096, 100_000), (1 << 20, 64), (16 << 20, 1 << 20)] {
        let mut options = options(block, Compression::None, "standard:12");
        options.index_leaf_bytes = leaf;
        check(options, &entries);
    }
}

#[test]
fn a_block_holds_at_most_65535_entries_and_at_most_its_limit() {
    let entries: Vec<Entry> =
        (0..150_000u32).map(|i| put(i.to_le_bytes().map(|b| b / 2 + b'@'), 1, b"")).collect();
    let entries = sorted(entries.into_iter().map(|e| Entry { seqno: 0, ..e }).collect());
    let table = check(options(16 << 20, Compression::None, "none"), &entries);
    let blocks = entries.len().div_ceil(65_535) as u64;
    assert_eq!(table.summary.contents.blocks, blocks, "as many as there must be, and no more");

    let mut random = Random(5);
    let entries = random_entries(&mut random, 2000, 150);
    for limit in [512, 1000, 4096, 200_000] {
        let table = InMemory::new(options(limit, Compression::None, "none"), &entries);
        let average = table.summary.data_bytes / table.summary.contents.blocks;
        assert!(average <= limit as u64, "{average} of {limit}");
        let fill = average as f64 / limit as f64;
        assert!(
            limit < 4096 || table.summary.contents.blocks < 20 || fill > 0.9,
            "{fill} of {limit}"
        );
    }
}

#[test]
fn a_key_with_many_versions_is_read_right_at_every_seqno() {
    let mut entries = vec![put(b"j", 1, b"before"), put(b"l", 900, b"behind")];
    entries.extend((1..=700).map(|i| put(b"k", i * 3, format!("version {i}"))));
    let entries = sorted(entries);
    for (block, leaf) in [(64, 64), (128, 1000), (4096, 32 << 10), (1 << 20, 64)] {
        let mut options = options(block, Compression::None, "none");
        options.index_leaf_bytes = leaf;
        let table = check(options, &entries);
        let opened = table.open().unwrap();
        let (hash, mut stats) = (trommel_filter::hash(b"k"), ReadStats::default());
        let mut cursor = opened.cursor(ScanOptions::default());
        for seqno in 0..2110 {
            let found = opened.get(b"k", hash, seqno, &mut stats).unwrap();
            let want = (seqno / 3).min(700);
            assert_eq!(found.map_or(0, |found| found.seqno), want * 3, "at {seqno}");
            cursor.seek(b"k", seqno).unwrap();
            let standing = standing(&cursor).unwrap();
            let want = if want == 0 { (&b"l"[..], 900) } else { (&b"k"[..], want * 3) };
            assert_eq!((&*standing.key, standing.seqno), want, "seek at {seqno}");
        }
        cursor.seek_before(b"k").unwrap();
        assert_eq!(standing(&cursor).unwrap().key, b"j");
        cursor.seek_before(b"l").unwrap();
        assert_eq!(standing(&cursor).unwrap().seqno, 3);
    }
}

#[test]
fn compression_is_used_only_where_it_pays() {
    let mut random = Random(3);
    let noise: Vec<Entry> =
        (0..500).map(|i| put(format!("{i:05}"), 1, random.bytes(200))).collect();
    let text: Vec<Entry> = (0..500).map(|i| put(format!("{i:05}"), 1, [b'x'; 200])).collect();
    let size = |compression, entries: &[Entry]| {
        InMemory::new(options(4096, compression, "none"), entries).summary.data_bytes
    };
    assert_eq!(size(Compression::Lz4, &noise), size(Compression::None, &noise));
    assert!(size(Compression::Lz4, &text) * 3 < size(Compression::None, &text));
}

#[cfg(feature = "zstd")]
#[test]
fn zstd_blocks_come_back() {
    let entries = random_entries(&mut Random(8), 800, 300);
    let entries = sorted([entries, vec![put(b"text", 1, b"text ".repeat(5000))]].concat());
    let packed = check(options(4096, Compression::Zstd(3), "paired:12"), &entries);
    let plain = InMemory::new(options(4096, Compression::None, "paired:12"), &entries);
    assert!(packed.summary.data_bytes < plain.summary.data_bytes);
    assert_eq!(packed.open().unwrap().properties().compression, "zstd");
}

#[test]
fn entries_beyond_the_limits_are_rejected() {
    let vfs = MemoryVfs::new();
    let path = Path::new("/refused.sst");
    let mut builder = TableBuilder::new(vfs.create(path).unwrap(), path, TableOptions::new(1));
    let mut refuse = |key: &[u8], seqno| {
        let error = builder.add(key, seqno, EntryKind::Put, b"v").unwrap_err();
        assert!(matches!(error, Error::Rejected { .. }));
        assert!(error.to_string().contains("refused.sst"), "{error}");
    };
    refuse(&vec![0; MAX_KEY_BYTES + 1], 1);
    refuse(b"a", MAX_SEQNO + 1);
    builder.add(b"b", 5, EntryKind::Put, b"v").unwrap();
    for (key, seqno) in [(b"b", 5), (b"b", 6), (b"a", 1)] {
        assert!(builder.add(key, seqno, EntryKind::Put, b"v").is_err(), "{key:?} {seqno}");
    }
    builder.add(b"b", 4, EntryKind::Delete, b"").unwrap();
    let summary = builder.finish(b"").unwrap();
    assert_eq!(
        (summary.contents.entries, summary.contents.deletions, summary.contents.keys),
        (2, 1, 1)
    );
    assert_eq!((summary.contents.min_seqno, summary.contents.max_seqno), (4, 5));
    assert_eq!((&*summary.contents.smallest, &*summary.contents.largest), (&b"b"[..], &b"b"[..]));
}

#[test]
fn estimates_are_near_what_is_written() {
    let vfs = MemoryVfs::new();
    let path = Path::new("/1.sst");
    let options = options(4096, Compression::None, "paired:16");
    let mut builder = TableBuilder::new(vfs.create(path).unwrap(), path, options);
    for i in 0..50_000 {
        let key = format!("{i:016}");
        builder.add(key.as_bytes(), i, EntryKind::Put, &[7; 100]).unwrap();
    }
    let estimate = builder.estimated_bytes() as f64;
    let summary = builder.finish(b"").unwrap();
    assert!((estimate / summary.file_bytes as f64 - 1.0).abs() < 0.02, "{estimate} {summary:?}");
    let table =
        open(&vfs, path, trommel_vfs::Access::Buffered, &trommel_sstable::BlockCache::new(0));
    let table = table.unwrap();
    for percent in [0, 10, 50, 99] {
        let key = format!("{:016}", percent * 500);
        let offset = table.approximate_offset(key.as_bytes()) as f64;
        let want = summary.data_bytes as f64 * percent as f64 / 100.0;
        assert!((offset - want).abs() < 10_000.0, "{percent}%: {offset} for {want}");
    }
    assert_eq!(table.approximate_offset(b"9"), summary.data_bytes);
}

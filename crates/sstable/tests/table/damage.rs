//! Corruption, accidental or malicious, leads to right answers or a typed error; never to a wrong
//! answer, a panic, a hang or a huge allocation.

use std::sync::Arc;

use trommel_base::{Cursor, CursorHints, MAX_SEQNO};
use trommel_sstable::format::{
    BlockKind, FOOTER_BYTES, FRAME_BYTES, INDEX_HEADER_BYTES, VERSION, block_checksum,
    footer_checksum,
};
use trommel_sstable::{
    BlockCache, Compression, Error, Expected, FilterState, ReadStats, ScanOptions, Table,
    TableConfig,
};
use trommel_vfs::{Access, Vfs};

use crate::common::*;

/// The blocks of an intact table, located in its bytes as the format page says.
pub(crate) fn blocks_of(bytes: &[u8]) -> Vec<(usize, usize, BlockKind)> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let footer = bytes.len() - FOOTER_BYTES;
    let region = |i: usize| word(footer + 8 * i);
    let (data, filter, leaves, index) = (region(1), region(2), region(3), region(4));
    let mut blocks = Vec::new();
    let lengths_at = |index: usize| {
        let count = word(index) & 0xffff_ffff;
        let lengths = index + INDEX_HEADER_BYTES + 8 * count;
        (0..count).map(move |i| word(lengths + 4 * i) & 0xffff_ffff).collect::<Vec<_>>()
    };
    let top = data + filter + leaves;
    let mut indexes = vec![top];
    if leaves > 0 {
        indexes.clear();
        let mut at = data + filter;
        for length in lengths_at(top) {
            indexes.push(at);
            blocks.push((at, length, BlockKind::IndexLeaf));
            at += length;
        }
    }
    let mut at = 0;
    for length in indexes.into_iter().flat_map(lengths_at) {
        blocks.push((at, length, BlockKind::Data));
        at += length;
    }
    assert_eq!(at, data);
    if filter > 0 {
        blocks.push((data, filter, BlockKind::Filter));
    }
    blocks.push((top, index, BlockKind::IndexTop));
    blocks.push((top + index, region(5), BlockKind::Properties));
    assert_eq!(blocks.iter().map(|block| block.1).sum::<usize>(), footer, "no gaps");
    blocks
}

/// Recomputes all checksums.
pub(crate) fn reseal(bytes: &mut [u8], blocks: &[(usize, usize, BlockKind)]) {
    for (start, length, kind) in blocks {
        let content = &bytes[*start..start + length - 4];
        let sum = block_checksum(TABLE_ID, *start as u64, *kind, content);
        bytes[start + length - 4..start + length].copy_from_slice(&sum.to_le_bytes());
    }
    let footer = bytes.len() - FOOTER_BYTES;
    let words = &bytes[footer..footer + 64];
    let sum = footer_checksum(TABLE_ID, footer as u64, VERSION, words);
    bytes[footer + 64..footer + 68].copy_from_slice(&sum.to_le_bytes());
}

pub(crate) fn small_tables(filter: &str) -> Vec<(Vec<Entry>, InMemory)> {
    let mut random = Random(7);
    let mut tables = Vec::new();
    for (compression, leaf) in [(Compression::None, 64), (Compression::Lz4, 1 << 16)] {
        let mut entries = random_entries(&mut random, 12, 40);
        entries.extend((0..12).map(|i| put(format!("zz{:03}", i * 3), 5 + i, vec![b'v'; 30])));
        let entries = sorted(entries);
        let mut options = options(256, compression, filter);
        options.index_leaf_bytes = leaf;
        let table = InMemory::new(options, &entries);
        tables.push((entries, table));
    }
    tables
}

/// Every answer of the table must be right or an error. Returns whether all were right.
fn check_right_or_error(table: &Arc<Table>, entries: &[Entry], context: &str) -> bool {
    let mut sound = true;
    let mut stats = ReadStats::default();
    for (key, want) in model_at(entries, MAX_SEQNO) {
        match table.get(key, trommel_filter::hash(key), MAX_SEQNO, &mut stats) {
            Ok(found) => {
                let found = found.expect(context);
                assert_eq!((found.seqno, &*found.value), (want.seqno, &*want.value), "{context}");
            }
            Err(error) => sound &= names_file(&error),
        }
        let verdict = table.filters().query(key, trommel_filter::hash(key));
        assert!(verdict.maybe, "{context}");
    }
    let mut cursor = table.cursor(ScanOptions::default());
    let mut result = cursor.seek_to_first();
    for entry in entries {
        if let Err(error) = &result {
            assert_eq!(standing(&cursor), None, "off the end after an error");
            return sound & names_file(error);
        }
        assert_eq!(standing(&cursor).as_ref(), Some(entry), "{context}");
        result = cursor.next();
    }
    assert!(result.is_ok() && cursor.entry().is_none());
    sound
}

/// Asserts that the error names its file. Returns false, for the caller's conjunction.
fn names_file(error: &Error) -> bool {
    assert!(error.to_string().contains("1.sst"), "{error}");
    false
}

#[test]
fn every_flipped_bit_gives_right_answers_or_an_error_and_verify_finds_it() {
    for (entries, table) in small_tables("paired:12") {
        let bytes = table.bytes();
        let filter = blocks_of(&bytes).into_iter().find(|block| block.2 == BlockKind::Filter);
        let (filter_start, filter_bytes, _) = filter.unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let context = format!("byte {} bit {}", bit / 8, bit % 8);
            let in_filter = (filter_start..filter_start + filter_bytes).contains(&(bit / 8));
            match InMemory::of_bytes(&flipped).open() {
                Err(error) => {
                    assert!(!names_file(&error) && !in_filter, "{context}: {error}");
                }
                Ok(table) => {
                    let sound = check_right_or_error(&table, &entries, &context);
                    if in_filter {
                        assert!(sound, "{context}: a damaged filter damages nothing else");
                    }
                    let state = table.filters().state().clone();
                    let damaged = matches!(state, FilterState::Damaged(_));
                    assert_eq!(damaged, in_filter, "{context}: {state:?}");
                    assert_eq!(
                        *table.filters().check().unwrap(),
                        state,
                        "{context}: it was queried before"
                    );
                    let error = table.verify().expect_err(&context);
                    let offset = match &error {
                        Error::Corruption(corruption) => corruption.offset as usize,
                        error => panic!("{context}: {error}"),
                    };
                    assert!(offset <= bit / 8, "{context}: {error}");
                }
            }
        }
    }
}

#[test]
fn every_truncation_and_extension_is_an_error() {
    for (_, table) in small_tables("blocked:10") {
        let bytes = table.bytes();
        for length in 0..bytes.len() + 100 {
            if length == bytes.len() {
                continue;
            }
            let mut changed = bytes.clone();
            changed.resize(length, 0);
            let changed = InMemory::of_bytes(&changed);
            names_file(&changed.open().map(|_| ()).expect_err("the footer is not where it was"));
            let file = changed.vfs.open(&changed.path, Access::Buffered).unwrap();
            let expected = Expected { file_bytes: bytes.len() as u64, table_id: TABLE_ID };
            let cache = BlockCache::new(0);
            let config = TableConfig { cache, access: Access::Buffered, filter_host: None };
            let error = Table::open(file, &changed.path, expected, &config).unwrap_err();
            assert!(matches!(error, Error::Corruption(_)), "{error}");
        }
    }
}

#[test]
fn blocks_that_were_swapped_or_come_from_another_table_are_found() {
    let entries: Vec<Entry> =
        (0..200).map(|i| put(format!("key{i:04}"), i, format!("value{i:04}"))).collect();
    let table = InMemory::new(options(256, Compression::None, "none"), &entries);
    let mut other_options = options(256, Compression::None, "none");
    other_options.table_id = TABLE_ID + 1;
    let other = InMemory::new(other_options, &entries).bytes();
    let bytes = table.bytes();
    let blocks = blocks_of(&bytes);
    let (a, length, _) = blocks[0];
    let twin = blocks[1..].iter().find(|block| block.1 == length && block.2 == BlockKind::Data);
    let b = twin.unwrap().0;

    let mut swapped = bytes.clone();
    swapped[a..a + length].copy_from_slice(&bytes[b..b + length]);
    swapped[b..b + length].copy_from_slice(&bytes[a..a + length]);
    let mut stale = bytes.clone();
    assert_ne!(bytes[a..a + length], other[a..a + length], "only the checksum tells them apart");
    stale[a..a + length].copy_from_slice(&other[a..a + length]);
    for damaged in [swapped, stale] {
        let table = InMemory::of_bytes(&damaged).open().unwrap();
        assert!(!check_right_or_error(&table, &entries, "moved blocks"));
        let Error::Corruption(corruption) = table.verify().unwrap_err() else { panic!() };
        assert_eq!(corruption.offset, a as u64);
    }
    let error = InMemory::of_bytes(&other).open().unwrap_err();
    assert!(error.to_string().contains("another table"), "{error}");
}

/// Reads everything in every way. Any result is acceptable except a panic or an endless loop.
fn provoke(bytes: &[u8], random: &mut Random) -> bool {
    let Ok(table) = InMemory::of_bytes(bytes).open() else { return false };
    let mut stats = ReadStats::default();
    for _ in 0..8 {
        let key = random_key(random);
        let hash = trommel_filter::hash(&key);
        let seqno = random.next() >> (8 + random.below(50));
        let _ = table.get(&key, hash, seqno, &mut stats);
        let _ = table.get(&key, hash, 0, &mut stats);
        table.approximate_offset(&key);
    }
    for fill_cache in [true, false] {
        let options = ScanOptions { fill_cache, ..ScanOptions::default() };
        let mut cursor = table.cursor(options);
        let mut steps = 0;
        let mut result = cursor.seek_to_first();
        while result.is_ok() && cursor.entry().is_some() {
            let _ = cursor.value();
            result = cursor.next();
            steps += 1;
            assert!(steps < 1_000_000, "a walk that does not end");
        }
        let mut result = cursor.seek_to_last();
        while result.is_ok() && cursor.entry().is_some() {
            result = cursor.prev();
        }
        for _ in 0..4 {
            let key = random_key(random);
            let _ = cursor.seek(&key, random.next() >> 20);
            let _ = cursor.seek_before(&key);
            let _ = cursor.prev();
        }
    }
    table.verify().is_ok()
}

#[test]
fn hostile_bytes_with_right_checksums_are_survived() {
    let mut random = Random(11);
    let mut tables = small_tables("standard:10");
    tables.extend(small_tables("none"));
    let mut sound = 0;
    let rounds = 8000;
    for (_, table) in &tables {
        let bytes = table.bytes();
        let blocks = blocks_of(&bytes);
        for _ in 0..rounds {
            let mut hostile = bytes.clone();
            for _ in 0..1 + random.below(3) {
                // Mostly structural bytes: the ends of blocks, and all of the meta blocks.
                let (start, length, kind) = blocks[random.below(blocks.len())];
                let near_end = kind == BlockKind::Data && random.below(2) == 0;
                let at = if near_end {
                    length.saturating_sub(5 + random.below(60))
                } else {
                    random.below(length)
                };
                hostile[start + at] = match random.below(4) {
                    0 => 0xff,
                    1 => 0,
                    2 => hostile[start + at] ^ (1 << random.below(8)),
                    _ => random.next() as u8,
                };
            }
            if random.below(10) == 0 {
                let at = hostile.len() - FOOTER_BYTES + 8 + random.below(56);
                hostile[at] ^= 1 << random.below(8);
            }
            reseal(&mut hostile, &blocks);
            sound += usize::from(provoke(&hostile, &mut random));
        }
    }
    // Changed values must pass; most other changes must not.
    assert!(sound > 0 && sound < tables.len() * rounds * 3 / 4, "{sound}");
}

/// An entry that cannot be decoded, with valid checksums: an error when a scan reaches it. All
/// entries before it are returned.
#[test]
fn a_scan_yields_every_entry_before_a_corrupt_one() {
    for keys in [10, 40] {
        let entries: Vec<_> = (0..keys).map(|n| put(format!("key{n:03}"), 1, "value")).collect();
        let table = InMemory::new(options(4096, Compression::None, "none"), &entries);
        let bytes = table.bytes();
        let blocks = blocks_of(&bytes);
        let (start, length, _) = blocks[0];
        let tail = length - FRAME_BYTES - 12;
        let byte = |at: usize| usize::from(bytes[start + at]);
        assert_eq!(byte(tail + 8), keys, "one block");
        let key_offsets = tail - keys * (1 + byte(tail + 10) + 2);
        for damaged in (0..keys).filter(|i| i % 16 != 0) {
            let mut hostile = bytes.clone();
            let offset = key_offsets + 2 * damaged;
            // It shares more than its group's head has.
            hostile[start + byte(offset) + 256 * byte(offset + 1)] = 0x7f;
            reseal(&mut hostile, &blocks);
            let table = InMemory::of_bytes(&hostile).open().unwrap();
            let mut cursor = table.cursor(ScanOptions::default());
            cursor.seek_to_first().unwrap();
            for entry in &entries[..damaged] {
                assert_eq!(cursor.entry().unwrap().key, entry.key);
                let moved = cursor.next();
                assert_eq!(moved.is_err(), entry.key == entries[damaged - 1].key);
            }
            assert!(cursor.entry().is_none());
            cursor.seek_to_last().unwrap_or_else(|_| assert_eq!(damaged, keys - 1));
            for entry in entries[damaged + 1..].iter().rev() {
                assert_eq!(cursor.entry().unwrap().key, entry.key);
                let moved = cursor.prev();
                assert_eq!(moved.is_err(), entry.key == entries[damaged + 1].key);
            }
            assert!(cursor.entry().is_none());
        }
    }
}

/// Entries out of order, with valid checksums: point reads may be wrong, but a scan that copies
/// entries into another table must detect it.
#[test]
fn entries_out_of_order_are_found_by_verify_and_by_ordered_scans() {
    let entries: Vec<Entry> = (0..9).map(|i| put(format!("key{i}"), 1, b"value")).collect();
    let table = InMemory::new(options(4096, Compression::None, "none"), &entries);
    let mut bytes = table.bytes();
    let blocks = blocks_of(&bytes);
    let at = bytes.windows(6).position(|six| six == b"\x034\x035\x036").unwrap();
    bytes[at + 1] = b'5';
    bytes[at + 3] = b'4';
    reseal(&mut bytes, &blocks);
    let opened = InMemory::of_bytes(&bytes).open().unwrap();
    assert!(opened.verify().is_err());
    let mut cursor = opened.cursor(ScanOptions { check_order: true, ..ScanOptions::default() });
    cursor.seek_to_first().unwrap();
    for _ in 0..4 {
        cursor.next().unwrap();
    }
    assert_eq!(cursor.entry().unwrap().key, b"key5");
    assert!(cursor.next().unwrap_err().to_string().contains("out of order"));
    assert!(cursor.entry().is_none());
}

/// An index that sends a search to the wrong block would make a key vanish.
#[test]
fn verify_finds_separators_between_the_wrong_keys() {
    let entries: Vec<Entry> =
        (0..200).map(|i| put(format!("key{:04}", i * 7), i, b"some value")).collect();
    let mut options = options(128, Compression::None, "none");
    options.index_leaf_bytes = 128;
    let table = InMemory::new(options, &entries);
    let bytes = table.bytes();
    let blocks = blocks_of(&bytes);
    let place = |kind| blocks.iter().filter(move |block| block.2 == kind).map(|block| block.0);
    let top = place(BlockKind::IndexTop).next().unwrap() + INDEX_HEADER_BYTES;
    let leaf = place(BlockKind::IndexLeaf).nth(1).unwrap();
    let leaf_count = usize::from(bytes[leaf]);
    let last_of_leaf = leaf + INDEX_HEADER_BYTES + 8 * (leaf_count - 1);
    // Words are little-endian: the first byte that is not padding is the separator's last.
    let grow = |bytes: &mut Vec<u8>, word: usize| {
        let last = (word..word + 8).find(|at| bytes[*at] != 0).unwrap();
        bytes[last] += 1;
    };
    let mut too_small_in_top = bytes.clone();
    too_small_in_top.copy_within(top..top + 8, top + 8);
    let mut too_large_in_leaf = bytes.clone();
    grow(&mut too_large_in_leaf, last_of_leaf);
    let mut too_large_in_both = too_large_in_leaf.clone();
    grow(&mut too_large_in_both, top + 8);
    for mut changed in [too_small_in_top, too_large_in_leaf, too_large_in_both] {
        assert_ne!(changed, bytes);
        reseal(&mut changed, &blocks);
        let table = InMemory::of_bytes(&changed).open().unwrap();
        assert!(table.verify().is_err());
    }
}

/// Must be rejected by the number alone, before memory is allocated for it.
#[test]
fn a_compressed_block_that_declares_too_much_is_refused() {
    let entries: Vec<Entry> = (0..9).map(|i| put(format!("key{i}"), 1, [b'x'; 300])).collect();
    let table = InMemory::new(options(4096, Compression::Lz4, "none"), &entries);
    let bytes = table.bytes();
    let blocks = blocks_of(&bytes);
    let packed = blocks[0].1 as u32 - 9;
    for (declared, what) in [
        (packed * 255 + 1, "impossible length"),
        ((64 << 20) + 1, "impossible length"),
        (u32::MAX, "impossible length"),
        (packed * 255, "does not decompress"),
        (3, "does not decompress"),
    ] {
        let mut changed = bytes.clone();
        changed[..4].copy_from_slice(&declared.to_le_bytes());
        reseal(&mut changed, &blocks);
        let error = InMemory::of_bytes(&changed).open().unwrap().verify().unwrap_err();
        assert!(error.to_string().contains(what), "{declared}: {error}");
    }
}

/// A build without zstd rejects the table when it is opened, not at a later read.
#[cfg(not(feature = "zstd"))]
#[test]
fn a_table_with_zstd_is_refused_by_a_build_without() {
    let mut bytes = InMemory::new(options(4096, Compression::None, "none"), &[]).bytes();
    let blocks = blocks_of(&bytes);
    let features = bytes.len() - FOOTER_BYTES + 56;
    bytes[features] |= trommel_sstable::format::FEATURE_ZSTD as u8;
    reseal(&mut bytes, &blocks);
    let error = InMemory::of_bytes(&bytes).open().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }));
    assert!(error.to_string().contains("zstd"), "{error}");
}

/// Kinds, flags and features of later versions are rejected by name, never guessed at.
#[test]
fn what_a_later_version_may_write_is_unsupported() {
    let entries = [put(b"a", 0, b"")];
    let table = InMemory::new(options(4096, Compression::None, "none"), &entries);
    let bytes = table.bytes();
    let blocks = blocks_of(&bytes);
    let (start, length, _) = blocks[0];
    let tail = start + length - 5 - 12;
    let footer = bytes.len() - FOOTER_BYTES;
    let changes: [(&str, usize, &[u8]); 6] = [
        ("range delete", tail, &[2]),
        ("time mark", tail, &[5]),
        ("block flag", tail + 11, &[4]),
        ("compression", start + length - 5, &[9]),
        ("feature", footer + 63, &[1]),
        ("version", footer + 68, &[2, 0, 0xfd, 0xff]),
    ];
    for (what, at, by) in changes {
        let mut changed = bytes.clone();
        changed[at..at + by.len()].copy_from_slice(by);
        reseal(&mut changed, &blocks);
        let result = InMemory::of_bytes(&changed).open().and_then(|table| {
            let mut stats = ReadStats::default();
            table.get(b"a", trommel_filter::hash(b"a"), MAX_SEQNO, &mut stats)?;
            Ok(())
        });
        let error = result.expect_err(what);
        assert!(matches!(error, Error::Unsupported { .. }), "{what}: {error}");
        names_file(&error);
    }
}

/// With padding, an offset marks the end of the last value. It must be within the values.
#[test]
fn an_end_of_values_outside_the_values_is_corruption() {
    let entries: Vec<Entry> = (0..20).map(|i| put(format!("key{i:02}"), 1, [b'x'; 256])).collect();
    let mut options = options(4096, Compression::None, "none");
    options.block_align = true;
    let bytes = InMemory::new(options, &entries).bytes();
    let blocks = blocks_of(&bytes);
    assert_eq!(blocks[0].1, 4096);
    // Before the key offsets, the tags and the fixed part; no trailer column, as all trailers are
    // equal.
    let at = 4096 - 5 - 12 - 15 * 3 - 2;
    let read = |end: u16| {
        let mut changed = bytes.clone();
        assert_eq!(changed[at..at + 2], (15_u16 * 256).to_le_bytes());
        changed[at..at + 2].copy_from_slice(&end.to_le_bytes());
        reseal(&mut changed, &blocks);
        let table = InMemory::of_bytes(&changed).open().unwrap();
        let mut stats = ReadStats::default();
        let got = table.get(b"key14", trommel_filter::hash(b"key14"), MAX_SEQNO, &mut stats);
        let mut cursor = table.cursor(ScanOptions::default());
        let walked = cursor.seek(b"key14", MAX_SEQNO);
        assert_eq!(got.is_ok(), walked.is_ok(), "{got:?}, {walked:?}");
        got
    };
    assert_eq!(read(15 * 256).unwrap().unwrap().value.len(), 256);
    for end in [0, 14 * 256 - 1, 4096, u16::MAX] {
        let error = read(end).expect_err("no value ends there");
        names_file(&error);
    }
    // An end within the padding is detected when everything is read.
    let (mut longer, end) = (bytes.clone(), 15_u16 * 256 + 1);
    longer[at..at + 2].copy_from_slice(&end.to_le_bytes());
    reseal(&mut longer, &blocks);
    let error = InMemory::of_bytes(&longer).open().unwrap().verify().unwrap_err();
    assert!(error.to_string().contains("not true of the entries"), "{error}");
    let mut other = bytes.clone();
    other[15 * 256] = 1;
    reseal(&mut other, &blocks);
    let error = InMemory::of_bytes(&other).open().unwrap().verify().unwrap_err();
    assert!(error.to_string().contains("padding is not zeros"), "{error}");
}

#[test]
fn random_garbage_is_refused() {
    let mut random = Random(13);
    for _ in 0..3000 {
        let length = random.below(400);
        let mut bytes = random.bytes(length);
        if bytes.len() >= FOOTER_BYTES {
            let footer = bytes.len() - FOOTER_BYTES;
            bytes[footer..footer + 8].copy_from_slice(&TABLE_ID.to_le_bytes());
            bytes[footer + 68..].copy_from_slice(b"\x01\0\xfe\xffTromTbl\xf5");
            reseal(&mut bytes, &[]);
        }
        assert!(InMemory::of_bytes(&bytes).open().is_err());
    }
}

/// Changes a byte of the filter's header and recomputes all checksums.
fn with_header_byte(bytes: &[u8], at: usize, value: u8) -> Vec<u8> {
    let blocks = blocks_of(bytes);
    let (start, length, _) =
        *blocks.iter().find(|block| block.2 == BlockKind::Filter).expect("a filter");
    let mut bytes = bytes.to_vec();
    let filter = &mut bytes[start..start + length - FRAME_BYTES];
    filter[at] = value;
    let sum = trommel_filter::hash(&[&filter[..56], &filter[64..]].concat());
    filter[56..64].copy_from_slice(&sum.to_le_bytes());
    reseal(&mut bytes, &blocks);
    bytes
}

#[test]
fn a_filter_of_a_later_family_is_not_corruption() {
    for (_, table) in small_tables("paired:12") {
        let later = InMemory::of_bytes(&with_header_byte(&table.bytes(), 4, 200)).open().unwrap();
        let verified = later.verify().unwrap();
        assert!(verified.foreign_filter, "its keys were not queried");
        let state = later.filters().check().unwrap();
        assert!(matches!(state, FilterState::Unknown(_)), "{state:?}");
    }
}

#[test]
fn a_filter_of_another_number_of_keys_is_corruption() {
    for (_, table) in small_tables("paired:12") {
        // The low byte of its number of keys.
        let other = with_header_byte(&table.bytes(), 24, 255);
        let error = InMemory::of_bytes(&other).open().unwrap().verify().unwrap_err();
        assert!(error.to_string().contains("another number of keys"), "{error}");
    }
}

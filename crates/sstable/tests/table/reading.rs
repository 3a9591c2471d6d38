//! Reads: their costs, what they share, and the effects of a failure.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use trommel_base::{Cursor, CursorHints, EntryKind, MAX_SEQNO};
use trommel_sstable::{
    BlockCache, Compression, Error, Found, ReadStats, Request, ScanOptions, Table, TableBuilder,
    TableCursor, TableOptions, get_many,
};
use trommel_vfs::{Access, DiskVfs, ReadFile, Vfs, WriteFile};

use crate::common::*;

fn numbered(count: u64) -> Vec<Entry> {
    (0..count).map(|i| put(format!("key{i:06}"), i + 1, format!("value {i:060}"))).collect()
}

/// A table on a disk, with small blocks and index leaves of `leaf_bytes` bytes.
fn on_disk(leaf_bytes: usize, entries: &[Entry]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1.sst");
    let mut options = options(512, Compression::None, "none");
    options.index_leaf_bytes = leaf_bytes;
    build(&DiskVfs, &path, options, entries);
    (dir, path)
}

fn get(table: &Table, entry: &Entry, stats: &mut ReadStats) -> Option<Vec<u8>> {
    let hash = trommel_filter::hash(&entry.key);
    table.get(&entry.key, hash, MAX_SEQNO, stats).unwrap().map(|found| found.value.to_vec())
}

#[test]
fn a_block_is_read_once_and_then_found_in_the_cache() {
    let entries = numbered(2000);
    let table = InMemory::new(options(4096, Compression::None, "none"), &entries);
    let opened = table.open().unwrap();
    let mut stats = ReadStats::default();
    get(&opened, &entries[7], &mut stats);
    assert_eq!((stats.block_reads, stats.cache_hits), (1, 0));
    assert!(stats.block_bytes > 3000 && stats.block_bytes <= 4096);
    get(&opened, &entries[8], &mut stats);
    assert_eq!((stats.block_reads, stats.cache_hits), (1, 1));

    let mut stats = ReadStats::default();
    let requests: Vec<Request<'_>> = entries
        .iter()
        .map(|e| Request {
            table: 0,
            key: &e.key,
            hash: trommel_filter::hash(&e.key),
            seqno: MAX_SEQNO,
        })
        .collect();
    let mut found = Vec::new();
    let opened = table.open().unwrap();
    get_many(|_| Some(&*opened), &requests, &mut stats, |_, answer| found.push(answer)).unwrap();
    assert_eq!(found.len(), entries.len());
    assert!(found.iter().zip(&entries).all(|(f, e)| f.as_ref().unwrap().value == e.value));
    assert_eq!((stats.block_reads, stats.cache_hits), (table.summary.contents.blocks, 0));
}

#[test]
fn values_are_windows_on_one_block_and_outlive_the_cache_and_the_table() {
    let entries = numbered(500);
    let table = InMemory::new(options(4096, Compression::None, "none"), &entries);
    let cache = BlockCache::new(1 << 20);
    let opened = open(&table.vfs, &table.path, Access::Buffered, &cache).unwrap();
    let hash = trommel_filter::hash(&entries[3].key);
    let mut stats = ReadStats::default();
    let mut read = || opened.get(&entries[3].key, hash, MAX_SEQNO, &mut stats).unwrap().unwrap();
    let (one, two) = (read().value, read().value);
    assert_eq!(one.as_ptr(), two.as_ptr(), "not copied");
    assert!(cache.stats().blocks > 0);
    opened.evict();
    assert_eq!(cache.stats().blocks, 0);
    drop((opened, cache, table));
    assert_eq!(one, entries[3].value);
}

#[test]
fn values_of_a_scan_stay_unchanged_while_the_scan_goes_on() {
    let entries = numbered(3000);
    for compression in [Compression::None, Compression::Lz4] {
        let table = InMemory::new(options(4096, compression, "none"), &entries);
        for fill_cache in [true, false] {
            let options =
                ScanOptions { fill_cache, read_ahead_bytes: 20_000, ..ScanOptions::default() };
            let mut cursor = table.open().unwrap().cursor(options);
            let mut values = Vec::new();
            cursor.seek_to_first().unwrap();
            while cursor.entry().is_some() {
                values.push(cursor.value());
                cursor.next().unwrap();
            }
            assert!(values.iter().zip(&entries).all(|(value, entry)| *value == entry.value));
        }
    }
}

/// Two files may have the same id: a copy of a table, corrupted or changed later.
#[test]
fn tables_with_the_same_id_are_never_confused() {
    let (mut entries, cache) = (numbered(100), BlockCache::new(1 << 20));
    let one = InMemory::new(options(4096, Compression::None, "none"), &entries);
    entries.iter_mut().for_each(|entry| entry.value.reverse());
    let other = InMemory::new(options(4096, Compression::None, "none"), &entries);
    let mut stats = ReadStats::default();
    let one = open(&one.vfs, &one.path, Access::Buffered, &cache).unwrap();
    let other = open(&other.vfs, &other.path, Access::Buffered, &cache).unwrap();
    for entry in &entries {
        assert_ne!(get(&one, entry, &mut stats).as_ref(), Some(&entry.value));
        assert_eq!(get(&other, entry, &mut stats).as_ref(), Some(&entry.value));
    }
}

#[test]
fn the_cache_keeps_to_its_capacity() {
    let entries = numbered(20_000);
    let table = InMemory::new(options(4096, Compression::None, "none"), &entries);
    let cache = BlockCache::new(300_000);
    let opened = open(&table.vfs, &table.path, Access::Buffered, &cache).unwrap();
    let mut stats = ReadStats::default();
    for entry in &entries {
        assert!(get(&opened, entry, &mut stats).is_some());
        assert!(cache.stats().used_bytes <= 310_000, "{:?}", cache.stats());
    }
    assert!(cache.stats().used_bytes > 200_000, "{:?}", cache.stats());
    cache.set_capacity(50_000);
    assert!(cache.stats().used_bytes <= 60_000, "{:?}", cache.stats());
    cache.set_capacity(0);
    assert!(get(&opened, &entries[0], &mut stats).is_some());
}

#[test]
fn long_scans_read_ahead_and_leave_the_cache_alone() {
    let entries = numbered(20_000);
    let table = InMemory::new(options(4096, Compression::None, "none"), &entries);
    for fill_cache in [true, false] {
        let (file, calls) = Counted::open(&table, u64::MAX);
        let cache = BlockCache::new(1 << 30);
        let opened = open_file(file, &table.path, Access::Buffered, &cache).unwrap();
        let before = calls.load(Ordering::Relaxed);
        let mut cursor = opened.cursor(ScanOptions { fill_cache, ..ScanOptions::default() });
        for forward in [true, false] {
            let mut count = 0;
            if forward { cursor.seek_to_first() } else { cursor.seek_to_last() }.unwrap();
            while cursor.entry().is_some() {
                count += 1;
                if forward { cursor.next() } else { cursor.prev() }.unwrap();
            }
            assert_eq!(count, entries.len());
        }
        let reads = calls.load(Ordering::Relaxed) - before;
        let blocks = table.summary.contents.blocks;
        assert!(reads < blocks / 8, "{reads} reads for twice {blocks} blocks");
        assert!(cursor.stats().block_reads >= blocks);
        let positioned = if fill_cache { 1..=4 } else { 0..=0 };
        assert!(positioned.contains(&cache.stats().blocks), "{:?}", cache.stats());
    }
}

#[test]
fn a_scan_of_cached_blocks_looks_up_each_once() {
    let entries = numbered(5000);
    let table = InMemory::new(options(4096, Compression::None, "none"), &entries);
    let opened =
        open(&table.vfs, &table.path, Access::Buffered, &BlockCache::new(1 << 30)).unwrap();
    let mut stats = ReadStats::default();
    assert!(entries.iter().all(|entry| get(&opened, entry, &mut stats).is_some()));
    let blocks = table.summary.contents.blocks;
    assert_eq!(stats.block_reads, blocks);
    // Forward and back to the start, from each fifth of the way.
    for fifths in 1..=5 {
        let mut cursor = opened.cursor(ScanOptions::default());
        cursor.seek_to_first().unwrap();
        let last = entries.len() / 5 * fifths - 1;
        for entry in &entries[..last] {
            assert_eq!(cursor.entry().unwrap().key, entry.key);
            cursor.next().unwrap();
        }
        let there = cursor.stats().cache_hits;
        assert!(there.abs_diff(blocks * fifths as u64 / 5) <= 1, "{there} of {blocks}");
        for entry in entries[..=last].iter().rev() {
            assert_eq!(cursor.entry().unwrap().key, entry.key);
            cursor.prev().unwrap();
        }
        assert!(cursor.entry().is_none());
        assert_eq!(cursor.stats().cache_hits, 2 * there - 1);
        assert_eq!(cursor.stats().block_reads, 0);
    }
}

#[test]
fn index_leaves_are_loaded_at_first_use() {
    let entries = numbered(5000);
    let mut options = options(256, Compression::None, "none");
    options.index_leaf_bytes = 1024;
    let table = InMemory::new(options, &entries);
    let opened = table.open().unwrap();
    let before = opened.memory_bytes().index;
    let mut stats = ReadStats::default();
    get(&opened, &entries[2500], &mut stats);
    get(&opened, &entries[2500], &mut stats);
    assert_eq!(stats.index_reads, 1);
    let one = opened.memory_bytes().index - before;
    assert!(one > 500 && one < 4000, "{one}");
    for entry in &entries {
        get(&opened, entry, &mut stats);
    }
    assert!(opened.memory_bytes().index > before + 10 * one);
}

#[test]
fn threads_share_a_table() {
    let entries = numbered(3000);
    let mut options = options(512, Compression::Lz4, "blocked:10");
    options.index_leaf_bytes = 512;
    let table = InMemory::new(options, &entries);
    let cache = BlockCache::new(20_000);
    let opened = open(&table.vfs, &table.path, Access::Buffered, &cache).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (opened, entries) = (&opened, &entries);
            scope.spawn(move || {
                let mut random = Random(thread);
                let mut stats = ReadStats::default();
                let mut cursor = opened.cursor(ScanOptions::default());
                for _ in 0..5000 {
                    let entry = &entries[random.below(entries.len())];
                    assert_eq!(get(opened, entry, &mut stats).as_ref(), Some(&entry.value));
                    cursor.seek(&entry.key, MAX_SEQNO).unwrap();
                    assert_eq!(cursor.entry().unwrap().key, entry.key);
                }
            });
        }
    });
}

/// A file that counts its calls and fails from call `limit` on.
#[derive(Debug)]
struct Counted {
    file: Arc<dyn ReadFile>,
    calls: Arc<AtomicU64>,
    limit: u64,
}

impl Counted {
    fn open(table: &InMemory, limit: u64) -> (Arc<dyn ReadFile>, Arc<AtomicU64>) {
        let calls = Arc::new(AtomicU64::new(0));
        let file = table.vfs.open(&table.path, Access::Buffered).unwrap();
        (Arc::new(Self { file, calls: Arc::clone(&calls), limit }), calls)
    }
}

impl ReadFile for Counted {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.calls.fetch_add(1, Ordering::Relaxed) >= self.limit {
            return Err(io::Error::other("the disk is on fire"));
        }
        self.file.read_at(offset, buffer)
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

/// A call to a file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Note {
    /// An access hint for this offset.
    Advised(u64),
    Read(u64),
}

/// A file that records its calls.
#[derive(Debug)]
struct Noted {
    file: Arc<dyn ReadFile>,
    notes: Arc<Mutex<Vec<Note>>>,
}

impl ReadFile for Noted {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.notes.lock().unwrap().push(Note::Read(offset));
        self.file.read_at(offset, buffer)
    }

    fn will_need(&self, offset: u64, _bytes: usize) {
        self.notes.lock().unwrap().push(Note::Advised(offset));
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

/// Cold multi-gets used to read one block after the other: 64 of them took as long as 64 gets.
#[test]
fn a_multi_get_gives_hints_for_its_blocks_before_the_first_read() {
    let entries = numbered(2000);
    let table = InMemory::new(options(512, Compression::None, "none"), &entries);
    let (file, notes) = (table.vfs.open(&table.path, Access::Buffered).unwrap(), Arc::default());
    let file = Arc::new(Noted { file, notes: Arc::clone(&notes) });
    let cache = BlockCache::new(1 << 20);
    let opened = open_file(file, &table.path, Access::Buffered, &cache).unwrap();
    let look_up = |from: usize| {
        let wanted = entries[from..].iter().step_by(300);
        let requests: Vec<Request<'_>> = wanted
            .map(|e| Request {
                table: 0,
                key: &e.key,
                hash: trommel_filter::hash(&e.key),
                seqno: MAX_SEQNO,
            })
            .collect();
        let (mut stats, mut found) = (ReadStats::default(), 0);
        notes.lock().unwrap().clear();
        let count = |_, answer: Option<_>| found += usize::from(answer.is_some());
        get_many(|_| Some(&*opened), &requests, &mut stats, count).unwrap();
        assert_eq!(found, requests.len());
        (stats, notes.lock().unwrap().clone())
    };
    let (stats, notes) = look_up(0);
    assert_eq!((stats.block_reads, stats.cache_hits), (7, 0));
    // An index leaf may be read first.
    let blocks: Vec<Note> =
        notes.iter().skip_while(|note| matches!(note, Note::Read(_))).copied().collect();
    let advised: Vec<u64> = blocks
        .iter()
        .map_while(|note| if let Note::Advised(offset) = note { Some(*offset) } else { None })
        .collect();
    assert_eq!(advised.len(), 6, "{notes:?}");
    let read: Vec<Note> = advised.iter().map(|offset| Note::Read(*offset)).collect();
    assert_eq!(blocks[blocks.len() - 6..], read[..], "each is read after all were advised");
    assert_eq!(blocks.len(), 6 + 7, "{notes:?}");
    let (stats, notes) = look_up(0);
    assert_eq!(
        (stats.block_reads, stats.cache_hits, notes.len()),
        (0, 7, 0),
        "nothing is advised twice"
    );
}

/// Each table of a level of many small ones holds a key or two of a multi-get. Hints for one table
/// at a time left no reads to overlap.
#[test]
fn a_multi_get_gives_hints_for_all_tables_before_the_first_read() {
    let entries = numbered(900);
    let notes = Arc::default();
    let tables: Vec<InMemory> = entries
        .chunks(300)
        .map(|part| InMemory::new(options(512, Compression::None, "none"), part))
        .collect();
    let cache = BlockCache::new(1 << 20);
    let opened: Vec<Arc<Table>> = tables
        .iter()
        .map(|table| {
            let file = table.vfs.open(&table.path, Access::Buffered).unwrap();
            let file = Arc::new(Noted { file, notes: Arc::clone(&notes) });
            open_file(file, &table.path, Access::Buffered, &cache).unwrap()
        })
        .collect();
    let opened: Vec<&Table> = opened.iter().map(|table| &**table).collect();
    let requests: Vec<Request<'_>> = (entries.iter().enumerate().step_by(100))
        .map(|(nth, e)| Request {
            table: nth / 300,
            key: &e.key,
            hash: trommel_filter::hash(&e.key),
            seqno: MAX_SEQNO,
        })
        .collect();
    let (mut stats, mut values) = (ReadStats::default(), Vec::new());
    notes.lock().unwrap().clear();
    let note = |nth, found: Option<Found>| values.push((nth, found.unwrap().value.to_vec()));
    get_many(|nth| opened.get(nth).copied(), &requests, &mut stats, note).unwrap();
    let wanted = entries.iter().step_by(100).map(|entry| entry.value.clone()).enumerate();
    assert_eq!(values, wanted.collect::<Vec<_>>());
    let notes = notes.lock().unwrap().clone();
    let advised = notes.iter().filter(|note| matches!(note, Note::Advised(_))).count();
    assert_eq!((stats.block_reads, advised), (9, 8), "{notes:?}");
    let last_advised = notes.iter().rposition(|note| matches!(note, Note::Advised(_))).unwrap();
    let reads_behind = notes[last_advised..].iter().filter(|note| matches!(note, Note::Read(_)));
    assert_eq!(reads_behind.count(), 9, "all blocks are read after all were advised: {notes:?}");
}

/// Corruption before the first use of a block is detected in either mode; later corruption only if
/// each use verifies the block, and by a table that is opened anew.
#[test]
fn a_map_is_verified_once_only_if_requested() {
    let entries = numbered(600);
    for leaf_bytes in [1 << 20, 200] {
        let (_dir, path) = on_disk(leaf_bytes, &entries);
        let opened = || {
            let table = open(&DiskVfs, &path, Access::Mapped, &BlockCache::new(0)).unwrap();
            let once = table.without_filters().verifying_once();
            (table, once)
        };
        let look = |table: &Table, i: usize| {
            let hash = trommel_filter::hash(&entries[i].key);
            let mut stats = ReadStats::default();
            let found = table.get(&entries[i].key, hash, MAX_SEQNO, &mut stats);
            found.map(|found| found.map(|found| found.value.to_vec()))
        };
        let (each_use, once) = opened();
        let before = once.memory_bytes().index;
        for (i, entry) in entries.iter().enumerate().take(300) {
            assert_eq!(look(&once, i).unwrap().as_deref(), Some(&*entry.value));
        }
        assert!(once.memory_bytes().index > before, "what was verified is kept, and counted");

        let mut bytes = std::fs::read(&path).unwrap();
        for i in [7, 500] {
            let at = bytes.windows(66).position(|window| *window == *entries[i].value).unwrap();
            bytes[at] ^= 1;
        }
        // Writes to the same file, so that the map changes.
        std::fs::write(&path, &bytes).unwrap();
        let mut changed = entries[7].value.clone();
        changed[0] ^= 1;
        assert_eq!(look(&once, 7).unwrap(), Some(changed), "verified before");
        let fresh = opened().1;
        for error in [look(&once, 500), look(&fresh, 7), look(&each_use, 7), look(&each_use, 500)] {
            assert!(matches!(error, Err(Error::Corruption(_))), "{error:?}");
        }
        assert!(matches!(look(&once, 500), Err(Error::Corruption(_))), "never found intact");
    }
}

/// A scan verifies each block that it enters, unless it trusts an earlier verification by a lookup
/// or another such scan, of a table that verifies once.
#[test]
fn a_scan_verifies_a_map_once_only_if_it_trusts() {
    let entries = numbered(600);
    let trusting = ScanOptions { trust_verified: true, ..ScanOptions::default() };
    for leaf_bytes in [1 << 20, 200] {
        let (_dir, path) = on_disk(leaf_bytes, &entries);
        let opened = || open(&DiskVfs, &path, Access::Mapped, &BlockCache::new(0)).unwrap();
        let once = || opened().without_filters().verifying_once();
        let walk = |table: &Table, scan, is_forward: bool| {
            let mut cursor = table.cursor(scan);
            let step = if is_forward { TableCursor::next } else { TableCursor::prev };
            if is_forward {
                cursor.seek_to_first()?;
            } else {
                cursor.seek_to_last()?;
            }
            let mut values = Vec::new();
            while cursor.is_valid() {
                values.push(cursor.value().to_vec());
                step(&mut cursor)?;
            }
            Ok::<_, Error>(values)
        };
        let looked_up = |table: &Table, i: usize| {
            let (key, mut stats) = (&*entries[i].key, ReadStats::default());
            table.get(key, trommel_filter::hash(key), MAX_SEQNO, &mut stats)
        };
        let [forward, backward, mut one, each_use] =
            [once(), once(), once(), opened().without_filters()];
        let values: Vec<_> = entries.iter().map(|entry| entry.value.to_vec()).collect();
        assert_eq!(walk(&forward, trusting, true).unwrap(), values);
        let reversed: Vec<_> = values.iter().rev().cloned().collect();
        assert_eq!(walk(&backward, trusting, false).unwrap(), reversed);
        assert_eq!(walk(&each_use, trusting, true).unwrap(), values);
        assert!(looked_up(&one, 0).unwrap().is_some());

        // The last byte of the first block's checksum, in the same file, so that the map changes.
        let mut cursor = one.cursor(ScanOptions::default());
        cursor.seek_to_first().unwrap();
        while cursor.block_offset() == 0 {
            cursor.next().unwrap();
        }
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[cursor.block_offset() as usize - 1] ^= 1;
        std::fs::write(&path, &bytes).unwrap();

        for table in [&forward, &backward] {
            for is_forward in [true, false] {
                assert!(walk(table, trusting, is_forward).is_ok(), "found intact by a walk");
                let distrusting = walk(table, ScanOptions::default(), is_forward);
                assert!(matches!(distrusting, Err(Error::Corruption(_))), "{distrusting:?}");
            }
        }
        assert!(looked_up(&forward, 0).is_ok(), "found intact by a walk");
        assert!(walk(&one, trusting, true).is_ok(), "found intact by a lookup");
        one = once();
        for table in [&one, &each_use] {
            for _ in 0..2 {
                let found = walk(table, trusting, true);
                assert!(
                    matches!(found, Err(Error::Corruption(_))),
                    "never found intact: {found:?}"
                );
            }
        }
    }
}

/// Blocks are prefetched before they are verified, and corrupted between two lookups. A corrupt
/// block yields no answer, wherever it is among the others and however many keys share it; answers
/// from earlier blocks are valid.
#[test]
fn a_multi_get_verifies_each_block_of_a_map_again() {
    let entries = numbered(300);
    for block_bytes in [512, 4096, 16384] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.sst");
        build(&DiskVfs, &path, options(block_bytes, Compression::None, "none"), &entries);
        let table = open(&DiskVfs, &path, Access::Mapped, &BlockCache::new(0)).unwrap();
        // Each key, each key twice, and a few keys.
        for (step, times) in [(1, 1), (1, 2), (37, 1)] {
            let wanted: Vec<_> =
                (0..entries.len() * times).step_by(step).map(|i| i / times).collect();
            let look = || {
                let request = |i: &usize| {
                    let key = &*entries[*i].key;
                    Request { table: 0, key, hash: trommel_filter::hash(key), seqno: MAX_SEQNO }
                };
                let requests: Vec<_> = wanted.iter().map(request).collect();
                let (mut stats, mut answered) = (ReadStats::default(), 0);
                let result = get_many(
                    |_| Some(&*table),
                    &requests,
                    &mut stats,
                    |nth, found| {
                        let found = found.expect("it is there");
                        assert_eq!((nth, &*found.value), (answered, &*entries[wanted[nth]].value));
                        answered += 1;
                    },
                );
                (result, answered)
            };
            let bytes = std::fs::read(&path).unwrap();
            for damaged in [0, 1, 17, 40, 150, 299] {
                let value = &*entries[damaged].value;
                let at = bytes.windows(value.len()).position(|window| window == value).unwrap();
                let mut flipped = bytes.clone();
                flipped[at] ^= 1;
                // Writes to the same file, so that the map changes.
                std::fs::write(&path, &flipped).unwrap();
                let (result, answered) = look();
                // A few keys may be in other blocks.
                assert!(step > 1 || matches!(result, Err(Error::Corruption(_))), "{result:?}");
                let before = wanted.iter().filter(|i| **i < damaged).count();
                assert!(
                    answered <= before || result.is_ok(),
                    "{answered} answers, {before} before"
                );
                std::fs::write(&path, &bytes).unwrap();
                let (result, answered) = look();
                assert_eq!((result.unwrap(), answered), ((), wanted.len()));
            }
        }
    }
}

/// A read error is never reported as the end of a scan or as "not found".
#[test]
fn a_failed_read_is_an_error_wherever_it_strikes() {
    let entries = numbered(300);
    let mut options = options(512, Compression::None, "none");
    options.index_leaf_bytes = 200;
    let table = InMemory::new(options, &entries);
    let mut whole_scans = 0;
    for limit in 0..150 {
        let (file, calls) = Counted::open(&table, limit);
        let cache = BlockCache::new(0);
        let opened = match open_file(file, &table.path, Access::Buffered, &cache) {
            Ok(opened) => opened,
            Err(error) => {
                assert!(matches!(error, Error::Io { .. }) && limit < 2, "{error}");
                continue;
            }
        };
        let options = ScanOptions { read_ahead_bytes: 0, ..ScanOptions::default() };
        let mut cursor = opened.cursor(options);
        let mut seen = 0;
        let mut result = cursor.seek_to_first();
        while result.is_ok() && cursor.entry().is_some() {
            seen += 1;
            result = cursor.next();
        }
        assert_eq!(result.is_ok(), seen == entries.len(), "a scan that ends early says so");
        assert!(cursor.entry().is_none());
        whole_scans += usize::from(result.is_ok());
        let (entry, mut stats) = (&entries[150], ReadStats::default());
        let hash = trommel_filter::hash(&entry.key);
        if let Ok(found) = opened.get(&entry.key, hash, MAX_SEQNO, &mut stats) {
            assert_eq!(found.unwrap().value, entry.value);
        }
        assert!(opened.verify().is_err() || calls.load(Ordering::Relaxed) <= limit);
    }
    assert!(whole_scans > 0 && whole_scans < 140);
}

/// A file whose writes fail.
#[derive(Debug)]
struct Failing {
    appends: u64,
    sync: bool,
    bytes: u64,
}

impl WriteFile for Failing {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.appends = self.appends.checked_sub(1).ok_or_else(|| io::Error::other("full"))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.sync { Ok(()) } else { Err(io::Error::other("not synced")) }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[test]
fn a_failed_write_or_sync_fails_the_table() {
    let build = |appends, sync| {
        let file = Box::new(Failing { appends, sync, bytes: 0 });
        let options =
            TableOptions { compression: Compression::None, ..TableOptions::new(TABLE_ID) };
        let mut builder = TableBuilder::new(file, Path::new("/full.sst"), options);
        for i in 0..60_000 {
            builder.add(format!("{i:08}").as_bytes(), i, EntryKind::Put, &[1; 100])?;
        }
        builder.finish(b"")
    };
    let mut errors = 0;
    while let Err(error) = build(errors, true) {
        assert!(matches!(error, Error::Io { .. }) && error.to_string().contains("full.sst"));
        errors += 1;
    }
    assert!((13..16).contains(&errors), "appended in pieces of 512 KiB, not {errors}");
    assert!(build(100, false).unwrap_err().to_string().contains("not synced"));
}

//! What a walk tells its file before it reads.
//!
//! A cold walk over a mapped store took 8.6 us an entry, as the system read one page after the
//! other when it was touched; backward by calls, four times as long as forward.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use trommel_base::Cursor;
use trommel_sstable::{BlockCache, Compression, ScanOptions, Table, TableCursor};
use trommel_vfs::{Access, ReadFile, SharedMap, Vfs};

use crate::common::*;

/// A file that keeps what it was told will be read.
#[derive(Debug)]
struct Confidant {
    file: Arc<dyn ReadFile>,
    told: Arc<Mutex<Vec<Range<u64>>>>,
    /// Whether its map may be kept.
    is_shared: bool,
}

impl ReadFile for Confidant {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn will_need(&self, offset: u64, bytes: usize) {
        self.told.lock().unwrap().push(offset..offset + bytes as u64);
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    fn mapped(&self) -> Option<&[u8]> {
        self.file.mapped()
    }

    fn shared_map(&self) -> Option<SharedMap> {
        if self.is_shared { self.file.shared_map() } else { None }
    }
}

/// Some megabytes of small entries.
fn table() -> InMemory {
    let entries: Vec<Entry> =
        (0..20_000).map(|i| put(format!("key{i:06}"), i + 1, format!("{i:0200}"))).collect();
    InMemory::new(options(4096, Compression::None, "none"), &entries)
}

/// A table that is read this way, whose file keeps what it is told.
fn confiding(
    table: &InMemory,
    access: Access,
    told: &Arc<Mutex<Vec<Range<u64>>>>,
    is_shared: bool,
) -> Arc<Table> {
    let file = table.vfs.open(&table.path, access).unwrap();
    let file = Arc::new(Confidant { file, told: Arc::clone(told), is_shared });
    open_file(file, &table.path, access, &BlockCache::new(0)).unwrap()
}

/// A cursor over a table that is read this way, and what its file is told.
fn cursor(
    table: &InMemory,
    access: Access,
    scan: ScanOptions,
) -> (TableCursor, Arc<Mutex<Vec<Range<u64>>>>) {
    let told = Arc::default();
    let opened = confiding(table, access, &told, true);
    (opened.cursor(scan), told)
}

/// Walks by `step` from where `start` puts the cursor to the end. Returns of each block, in the
/// order in which they are entered, where it lies, and the ranges that were told before.
fn walk(
    table: &InMemory,
    access: Access,
    scan: ScanOptions,
    start: fn(&mut TableCursor),
    step: fn(&mut TableCursor),
) -> Vec<(u64, Vec<Range<u64>>)> {
    let (mut cursor, told) = cursor(table, access, scan);
    start(&mut cursor);
    blocks_of(cursor, &told, step)
}

/// The blocks that a cursor enters on its way by `step` to the end, and what was told before each.
fn blocks_of(
    mut cursor: TableCursor,
    told: &Mutex<Vec<Range<u64>>>,
    step: fn(&mut TableCursor),
) -> Vec<(u64, Vec<Range<u64>>)> {
    let mut blocks: Vec<(u64, Vec<Range<u64>>)> = Vec::new();
    while cursor.is_valid() {
        let offset = cursor.block_offset();
        if blocks.last().is_none_or(|(last, _)| *last != offset) {
            blocks.push((offset, told.lock().unwrap().clone()));
        }
        step(&mut cursor);
    }
    blocks
}

fn first(cursor: &mut TableCursor) {
    cursor.seek_to_first().unwrap();
}

fn last(cursor: &mut TableCursor) {
    cursor.seek_to_last().unwrap();
}

fn next(cursor: &mut TableCursor) {
    cursor.next().unwrap();
}

fn prev(cursor: &mut TableCursor) {
    cursor.prev().unwrap();
}

/// Each block but the first few is within what was told before it was entered; the windows do not
/// overlap, and there are few of them; none reaches behind the data.
fn assert_told_ahead(table: &InMemory, blocks: &[(u64, Vec<Range<u64>>)]) {
    assert!(blocks.len() > 900, "{} blocks", blocks.len());
    for (nth, (offset, told)) in blocks.iter().enumerate().skip(6) {
        assert!(told.iter().any(|range| range.contains(offset)), "block {nth}: {told:?}");
    }
    let mut told = blocks.last().unwrap().1.clone();
    assert!(told.len() < 12, "{told:?}");
    told.sort_by_key(|range| range.start);
    assert!(told.windows(2).all(|pair| pair[0].end <= pair[1].start), "{told:?}");
    assert!(told.last().unwrap().end <= table.summary.data_bytes, "{told:?}");
}

/// A walk over blocks in the map, and one over a file whose map cannot be kept, which copies them.
#[test]
fn a_walk_that_trusts_tells_the_file_what_comes_too() {
    let table = table();
    let trusting = ScanOptions { trust_verified: true, ..ScanOptions::default() };
    for is_shared in [true, false] {
        let told = Arc::default();
        let once = confiding(&table, Access::Mapped, &told, is_shared);
        let once = once.without_filters().verifying_once();
        for (start, step) in
            [(first as fn(&mut _), next as fn(&mut _)), (last, prev), (first, next)]
        {
            told.lock().unwrap().clear();
            let mut cursor = once.cursor(trusting);
            start(&mut cursor);
            assert_told_ahead(&table, &blocks_of(cursor, &told, step));
        }
    }
}

#[test]
fn a_walk_over_a_map_tells_the_file_what_comes() {
    let table = table();
    let merging = ScanOptions { fill_cache: false, check_order: true, ..ScanOptions::default() };
    for scan in [ScanOptions::default(), merging] {
        assert_told_ahead(&table, &walk(&table, Access::Mapped, scan, first, next));
    }
    let scan = ScanOptions::default();
    assert_told_ahead(&table, &walk(&table, Access::Mapped, scan, last, prev));
}

/// Reads forward the system sees for itself.
#[test]
fn a_walk_by_calls_tells_the_file_what_comes_on_its_way_back() {
    let table = table();
    let scan = ScanOptions::default();
    assert_told_ahead(&table, &walk(&table, Access::Buffered, scan, last, prev));
    let blocks = walk(&table, Access::Buffered, scan, first, next);
    assert!(blocks.iter().all(|(_, told)| told.is_empty()));
}

/// A short walk, as behind most seeks, asks for nothing that it may not need.
#[test]
fn a_walk_over_a_few_blocks_tells_the_file_nothing() {
    let table = table();
    for (access, few) in [(Access::Mapped, 4), (Access::Buffered, 2)] {
        let blocks = walk(&table, access, ScanOptions::default(), last, prev);
        assert!(blocks[..few].iter().all(|(_, told)| told.is_empty()), "{:?}", blocks[few - 1]);
        assert!(!blocks[few + 1].1.is_empty());
    }
}

#[test]
fn a_walk_that_turns_round_tells_the_file_what_comes_then() {
    let table = table();
    for access in [Access::Mapped, Access::Buffered] {
        turns_round(&table, access);
    }
}

fn turns_round(table: &InMemory, access: Access) {
    let (mut cursor, told) = cursor(table, access, ScanOptions::default());
    first(&mut cursor);
    while cursor.block_offset() < 2 << 20 {
        next(&mut cursor);
    }
    let (turned_at, told_forward) = (cursor.block_offset(), told.lock().unwrap().len());
    while cursor.block_offset() > 1 << 20 {
        prev(&mut cursor);
    }
    for _ in 0..20 {
        while cursor.block_offset() < 1 << 20 {
            next(&mut cursor);
        }
        while cursor.block_offset() > 1 << 20 {
            prev(&mut cursor);
        }
    }
    let told_back = told.lock().unwrap().split_off(told_forward);
    assert!(told_back.len() < 7, "to and fro over one border: {told_back:?}");
    assert!(told_back.len() > 2 && told_back[0].end <= turned_at, "{told_back:?}");
    assert!(told_back.windows(2).all(|pair| pair[1].end == pair[0].start), "{told_back:?}");
    assert!(told_back.last().unwrap().start <= 1 << 20, "{told_back:?}");

    // A turn that is not the first one is seen as well.
    while cursor.block_offset() < 3 << 20 {
        next(&mut cursor);
    }
    let (again_at, told_before) = (cursor.block_offset(), told.lock().unwrap().len());
    while cursor.block_offset() > 2 << 20 {
        prev(&mut cursor);
    }
    let again = told.lock().unwrap().split_off(told_before);
    assert!(again.iter().any(|range| range.start < again_at && range.end > 5 << 19), "{again:?}");
}

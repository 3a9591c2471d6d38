//! Access hints of scans.
//!
//! A cold scan of a mapped store took 8.6 us per entry, as the system read one page after the other
//! on first access; backward with `pread`, four times as long as forward.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use trommel_base::Cursor;
use trommel_sstable::{BlockCache, Compression, ScanOptions, Table, TableCursor};
use trommel_vfs::{Access, ReadFile, SharedMap, Vfs};

use crate::common::*;

/// A file that records its access hints.
#[derive(Debug)]
struct HintRecorder {
    file: Arc<dyn ReadFile>,
    hints: Arc<Mutex<Vec<Range<u64>>>>,
    /// Whether its map can be held.
    is_shared: bool,
}

impl ReadFile for HintRecorder {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn will_need(&self, offset: u64, bytes: usize) {
        self.hints.lock().unwrap().push(offset..offset + bytes as u64);
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

/// A few megabytes of small entries.
fn table() -> InMemory {
    let entries: Vec<Entry> =
        (0..20_000).map(|i| put(format!("key{i:06}"), i + 1, format!("{i:0200}"))).collect();
    InMemory::new(options(4096, Compression::None, "none"), &entries)
}

/// A table with this access mode, whose file records its hints.
fn recording(
    table: &InMemory,
    access: Access,
    hints: &Arc<Mutex<Vec<Range<u64>>>>,
    is_shared: bool,
) -> Arc<Table> {
    let file = table.vfs.open(&table.path, access).unwrap();
    let file = Arc::new(HintRecorder { file, hints: Arc::clone(hints), is_shared });
    open_file(file, &table.path, access, &BlockCache::new(0)).unwrap()
}

/// A cursor over a table with this access mode, and the recorded hints.
fn cursor(
    table: &InMemory,
    access: Access,
    scan: ScanOptions,
) -> (TableCursor, Arc<Mutex<Vec<Range<u64>>>>) {
    let hints = Arc::default();
    let opened = recording(table, access, &hints, true);
    (opened.cursor(scan), hints)
}

/// Scans by `step` from the position set by `start` to the end. Returns the offset of each block
/// entered, in order, with the hints given before.
fn scan_blocks(
    table: &InMemory,
    access: Access,
    scan: ScanOptions,
    start: fn(&mut TableCursor),
    step: fn(&mut TableCursor),
) -> Vec<(u64, Vec<Range<u64>>)> {
    let (mut cursor, hints) = cursor(table, access, scan);
    start(&mut cursor);
    blocks_of(cursor, &hints, step)
}

/// The blocks that a cursor enters by `step` until the end, and the hints given before each.
fn blocks_of(
    mut cursor: TableCursor,
    hints: &Mutex<Vec<Range<u64>>>,
    step: fn(&mut TableCursor),
) -> Vec<(u64, Vec<Range<u64>>)> {
    let mut blocks: Vec<(u64, Vec<Range<u64>>)> = Vec::new();
    while cursor.is_valid() {
        let offset = cursor.block_offset();
        if blocks.last().is_none_or(|(last, _)| *last != offset) {
            blocks.push((offset, hints.lock().unwrap().clone()));
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

/// Each block but the first few is within a hint given before it was entered. The hints are few, do
/// not overlap, and stay within the data.
fn assert_hinted_ahead(table: &InMemory, blocks: &[(u64, Vec<Range<u64>>)]) {
    assert!(blocks.len() > 900, "{} blocks", blocks.len());
    for (nth, (offset, hints)) in blocks.iter().enumerate().skip(6) {
        assert!(hints.iter().any(|range| range.contains(offset)), "block {nth}: {hints:?}");
    }
    let mut hints = blocks.last().unwrap().1.clone();
    assert!(hints.len() < 12, "{hints:?}");
    hints.sort_by_key(|range| range.start);
    assert!(hints.windows(2).all(|pair| pair[0].end <= pair[1].start), "{hints:?}");
    assert!(hints.last().unwrap().end <= table.summary.data_bytes, "{hints:?}");
}

/// A scan of blocks in the map, and one of a file whose map cannot be held, which copies them.
#[test]
fn a_trusting_scan_gives_hints() {
    let table = table();
    let trusting = ScanOptions { trust_verified: true, ..ScanOptions::default() };
    for is_shared in [true, false] {
        let hints = Arc::default();
        let once = recording(&table, Access::Mapped, &hints, is_shared);
        let once = once.without_filters().verifying_once();
        for (start, step) in
            [(first as fn(&mut _), next as fn(&mut _)), (last, prev), (first, next)]
        {
            hints.lock().unwrap().clear();
            let mut cursor = once.cursor(trusting);
            start(&mut cursor);
            assert_hinted_ahead(&table, &blocks_of(cursor, &hints, step));
        }
    }
}

#[test]
fn a_scan_of_a_map_gives_hints() {
    let table = table();
    let merging = ScanOptions { fill_cache: false, check_order: true, ..ScanOptions::default() };
    for scan in [ScanOptions::default(), merging] {
        assert_hinted_ahead(&table, &scan_blocks(&table, Access::Mapped, scan, first, next));
    }
    let scan = ScanOptions::default();
    assert_hinted_ahead(&table, &scan_blocks(&table, Access::Mapped, scan, last, prev));
}

/// The system detects sequential forward reads itself.
#[test]
fn a_backward_scan_with_pread_gives_hints() {
    let table = table();
    let scan = ScanOptions::default();
    assert_hinted_ahead(&table, &scan_blocks(&table, Access::Buffered, scan, last, prev));
    let blocks = scan_blocks(&table, Access::Buffered, scan, first, next);
    assert!(blocks.iter().all(|(_, hints)| hints.is_empty()));
}

/// A short scan, as after most seeks, gives no hints.
#[test]
fn a_short_scan_gives_no_hints() {
    let table = table();
    for (access, few) in [(Access::Mapped, 4), (Access::Buffered, 2)] {
        let blocks = scan_blocks(&table, access, ScanOptions::default(), last, prev);
        assert!(blocks[..few].iter().all(|(_, hints)| hints.is_empty()), "{:?}", blocks[few - 1]);
        assert!(!blocks[few + 1].1.is_empty());
    }
}

#[test]
fn a_scan_that_turns_round_gives_hints_again() {
    let table = table();
    for access in [Access::Mapped, Access::Buffered] {
        turns_round(&table, access);
    }
}

fn turns_round(table: &InMemory, access: Access) {
    let (mut cursor, hints) = cursor(table, access, ScanOptions::default());
    first(&mut cursor);
    while cursor.block_offset() < 2 << 20 {
        next(&mut cursor);
    }
    let (turned_at, hints_forward) = (cursor.block_offset(), hints.lock().unwrap().len());
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
    let hints_back = hints.lock().unwrap().split_off(hints_forward);
    assert!(hints_back.len() < 7, "to and fro over one border: {hints_back:?}");
    assert!(hints_back.len() > 2 && hints_back[0].end <= turned_at, "{hints_back:?}");
    assert!(hints_back.windows(2).all(|pair| pair[1].end == pair[0].start), "{hints_back:?}");
    assert!(hints_back.last().unwrap().start <= 1 << 20, "{hints_back:?}");

    // A later change of direction is detected too.
    while cursor.block_offset() < 3 << 20 {
        next(&mut cursor);
    }
    let (again_at, hints_before) = (cursor.block_offset(), hints.lock().unwrap().len());
    while cursor.block_offset() > 2 << 20 {
        prev(&mut cursor);
    }
    let again = hints.lock().unwrap().split_off(hints_before);
    assert!(again.iter().any(|range| range.start < again_at && range.end > 5 << 19), "{again:?}");
}

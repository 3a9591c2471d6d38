//! Range filters: a cursor with one yields every entry of its range, in both
//! directions, and reads few blocks if there is none.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use trommel_base::{Cursor, SeqNo};
use trommel_sstable::sidecar::format::HEAD_BYTES;
use trommel_sstable::{
    BlockCache, Compression, FilterPlan, FilterRole, FilterState, ScanOptions, ScanRange, Sidecar,
    Table, TableCursor, TableOptions,
};
use trommel_vfs::{Access, ReadFile, Vfs};

use crate::common::{
    Entry, InMemory, Random, open_file, options, put, random_entries, random_key, standing,
};

/// A range that counts what filters answer.
#[derive(Debug, Default)]
struct Counted {
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    skipped: AtomicU64,
    entered: AtomicU64,
    false_positives: AtomicU64,
}

impl Counted {
    fn new(from: &[u8], to: Option<&[u8]>) -> Arc<Self> {
        Arc::new(Self { from: from.to_vec(), to: to.map(<[u8]>::to_vec), ..Self::default() })
    }

    fn holds(&self, key: &[u8]) -> bool {
        *key >= *self.from && self.to.as_ref().is_none_or(|to| *key < **to)
    }
}

impl ScanRange for Counted {
    fn from(&self) -> &[u8] {
        &self.from
    }

    fn to(&self) -> Option<&[u8]> {
        self.to.as_deref()
    }

    fn skipped(&self, expected: f64) {
        assert!((0.0..1.0).contains(&expected));
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    fn entered(&self, _: f64, is_true: bool) {
        self.entered.fetch_add(1, Ordering::Relaxed);
        self.false_positives.fetch_add(u64::from(!is_true), Ordering::Relaxed);
    }
}

fn within(table: &Table, range: &Arc<Counted>) -> TableCursor {
    let mut cursor = table.cursor(ScanOptions::default());
    table.gate(&mut cursor, Arc::clone(range) as Arc<dyn ScanRange>);
    cursor
}

fn table_options(bits: &str, leaf_bytes: usize) -> TableOptions {
    let filters = FilterPlan { ranges: bits.parse().unwrap(), ..FilterPlan::default() };
    let index_leaf_bytes = leaf_bytes;
    TableOptions { filters, index_leaf_bytes, ..options(300, Compression::None, "none") }
}

/// The entries of a range as a cursor yields them in one direction, from `start` on.
fn scan(cursor: &mut TableCursor, range: &Counted, forward: bool) -> Vec<Entry> {
    let mut found = Vec::new();
    while let Some(entry) = standing(cursor) {
        if !range.holds(&entry.key) {
            break;
        }
        found.push(entry);
        if forward { cursor.next().unwrap() } else { cursor.prev().unwrap() }
    }
    found
}

#[test]
fn every_entry_of_a_range_is_found() {
    let random = &mut Random(11);
    let (mut skipped, mut entered) = (0, 0);
    for round in 0..60 {
        let entries = random_entries(random, 1 + round * 12, 30);
        let made = InMemory::new(table_options("infix:7", [64, 1 << 20][round % 2]), &entries);
        let table = made.open().unwrap();
        assert_eq!(table.filters().check().unwrap(), &FilterState::Loaded);
        table.verify().unwrap();
        for _ in 0..150 {
            let mut bounds = [random_key(random), random_key(random)];
            bounds.sort();
            let [from, to] = bounds;
            let range = match random.below(6) {
                0 => Counted::new(&from, None),
                1 => Counted::new(b"", Some(&to)),
                _ => Counted::new(&from, Some(&to)),
            };
            check_range(&table, &entries, &range, random);
            skipped += range.skipped.load(Ordering::Relaxed);
            entered += range.entered.load(Ordering::Relaxed);
        }
    }
    assert!(skipped > 2000 && entered > 2000, "{skipped} skipped, {entered} entered");
}

fn check_range(table: &Table, entries: &[Entry], range: &Arc<Counted>, random: &mut Random) {
    let held: Vec<Entry> =
        entries.iter().filter(|entry| range.holds(&entry.key)).cloned().collect();
    let mut cursor = within(table, range);
    cursor.seek(&range.from, SeqNo::MAX).unwrap();
    assert_eq!(scan(&mut cursor, range, true), held, "{range:?}");
    // Turned around from beyond the range, or off its end.
    if cursor.is_valid() {
        cursor.prev().unwrap();
    } else {
        cursor.seek_to_last().unwrap();
    }
    let reversed: Vec<Entry> = held.iter().rev().cloned().collect();
    assert_eq!(scan(&mut cursor, range, false), reversed, "{range:?}");
    if cursor.is_valid() {
        cursor.next().unwrap();
    } else {
        cursor.seek_to_first().unwrap();
    }
    assert_eq!(scan(&mut cursor, range, true), held, "{range:?}");

    let mut cursor = within(table, range);
    match &range.to {
        Some(to) => cursor.seek_before(to).unwrap(),
        None => cursor.seek_to_last().unwrap(),
    }
    assert_eq!(scan(&mut cursor, range, false), reversed, "{range:?}");

    // From within the range, and back and forth.
    let key = random_key(random).max(range.from.clone());
    if range.to.as_ref().is_some_and(|to| key >= *to) {
        return;
    }
    let seqno = random.next() >> (8 + random.below(50));
    let is_before = |entry: &Entry| entry.key < key || entry.key == key && entry.seqno > seqno;
    let mut at = held.partition_point(is_before);
    cursor.seek(&key, seqno).unwrap();
    for _ in 0..12 {
        let found = standing(&cursor).filter(|entry| range.holds(&entry.key));
        assert_eq!(found.as_ref(), held.get(at), "{range:?}");
        if found.is_none() {
            break;
        }
        if random.below(2) == 0 {
            at += 1;
            cursor.next().unwrap();
        } else {
            at = at.wrapping_sub(1);
            cursor.prev().unwrap();
        }
    }
    let before = held.iter().rev().find(|entry| entry.key < key);
    cursor.seek_before(&key).unwrap();
    let found = standing(&cursor).filter(|entry| range.holds(&entry.key));
    assert_eq!(found.as_ref(), before, "{range:?} before {key:?}");
}

/// Keys spread evenly, and empty ranges between them: forward and backward, few blocks are read.
#[test]
fn empty_ranges_read_few_blocks() {
    let random = &mut Random(5);
    let mut keys: Vec<Vec<u8>> =
        (0..20_000).map(|_| format!("{:016}", random.next() >> 12).into_bytes()).collect();
    keys.sort();
    keys.dedup();
    let entries: Vec<Entry> = keys.iter().map(|key| put(key, 1, b"some value")).collect();
    let made = InMemory::new(
        TableOptions { block_bytes: 4096, ..table_options("infix:6", 4096) },
        &entries,
    );
    let table = made.open().unwrap();
    let bits = table.filters().range_facts().bytes as f64 * 8.0 / entries.len() as f64;
    assert!(bits < 6.2, "{bits} bits per key");
    let mut reads = [0; 4];
    let (mut queried, mut false_positives) = (0, 0);
    for _ in 0..20_000 {
        let start = random.next() >> 12;
        let [from, to] = [start, start + 20_000_000_000].map(|n| format!("{n:016}").into_bytes());
        let range = Counted::new(&from, Some(&to));
        let first = keys.partition_point(|key| *key < from);
        if keys.get(first).is_none_or(|key| *key < to) {
            continue;
        }
        for (i, is_forward) in [true, false].into_iter().enumerate() {
            for (j, mut cursor) in [within(&table, &range), table.cursor(ScanOptions::default())]
                .into_iter()
                .enumerate()
            {
                match is_forward {
                    true => cursor.seek(&from, SeqNo::MAX).unwrap(),
                    false => cursor.seek_before(&to).unwrap(),
                }
                let stats = cursor.stats();
                reads[2 * i + j] += stats.block_reads + stats.cache_hits;
            }
        }
        false_positives += range.false_positives.load(Ordering::Relaxed);
        queried += range.skipped.load(Ordering::Relaxed) + range.entered.load(Ordering::Relaxed);
    }
    let [forward, all, backward, all_back] = reads;
    assert!(all > 10_000, "{reads:?}");
    assert!(forward * 10 < all && backward * 10 < all_back, "{reads:?}");
    let expected = table.filters().range_facts().expected * queried as f64;
    let off = false_positives as f64 / expected - 1.0;
    assert!(
        off.abs() < 0.08,
        "{false_positives} of {queried} are false positives, {expected} expected"
    );
}

/// A search backward needs no more leaves of the index than one without a filter: it must not fail
/// where a leaf before its range is corrupt.
#[test]
fn a_search_backward_reads_no_leaf_before_its_range() {
    let random = &mut Random(13);
    let entries = random_entries(random, 300, 20);
    let made = InMemory::new(table_options("infix:12", 64), &entries);
    let (mut leaves, mut skipped) = (0, 0);
    for _ in 0..400 {
        let mut bounds = [random_key(random), random_key(random)];
        bounds.sort();
        let range = Counted::new(&bounds[0], Some(&bounds[1]));
        let table = made.open().unwrap();
        let mut gated = within(&table, &range);
        gated.seek_before(&bounds[1]).unwrap();
        let table = made.open().unwrap();
        let mut plain = table.cursor(ScanOptions::default());
        plain.seek_before(&bounds[1]).unwrap();
        let [with, without] = [&gated, &plain].map(|cursor| cursor.stats().index_reads);
        assert!(with <= without, "{with} leaves with a filter, {without} without: {range:?}");
        leaves += without;
        skipped += range.skipped.load(Ordering::Relaxed);
    }
    assert!(leaves > 400 && skipped > 20, "{leaves} leaves, {skipped} skipped");
}

/// A filter that is damaged or cut costs reads, and no entry.
#[test]
fn a_damaged_filter_is_a_maybe() {
    let random = &mut Random(21);
    let entries = random_entries(random, 120, 20);
    for leaf_bytes in [64, 1 << 20] {
        let made = InMemory::new(table_options("infix:9", leaf_bytes), &entries);
        let footer = *made.open().unwrap().footer();
        let whole = made.bytes();
        let mut damaged = 0;
        for at in footer.filter_offset()..footer.leaves_offset() {
            let mut bytes = whole.clone();
            bytes[at as usize] ^= 1 << random.below(8);
            let table = InMemory::of_bytes(&bytes).open().unwrap();
            for _ in 0..3 {
                let mut bounds = [random_key(random), random_key(random)];
                bounds.sort();
                check_range(&table, &entries, &Counted::new(&bounds[0], Some(&bounds[1])), random);
            }
            let state = table.filters().check().unwrap();
            damaged += u64::from(matches!(state, FilterState::Damaged(_)));
            assert!(table.verify().is_err(), "byte {at}");
        }
        assert_eq!(damaged, footer.filter_bytes);
    }
}

/// A sidecar's filter is that of the table's builder, and is queried in its place.
#[test]
fn a_sidecar_has_the_same_filter() {
    let random = &mut Random(31);
    let entries = random_entries(random, 400, 20);
    for leaf_bytes in [64, 1 << 20] {
        let with = InMemory::new(table_options("infix:9", leaf_bytes), &entries).open().unwrap();
        let made = InMemory::new(table_options("none", leaf_bytes), &entries);
        let plain = made.open().unwrap();
        let plan = FilterPlan { ranges: "infix:9".parse().unwrap(), ..FilterPlan::default() };
        let path = Path::new("/1.flt");
        let file = made.vfs.create(path).unwrap();
        let quiet = |_| Ok::<(), trommel_sstable::Error>(());
        plain.write_sidecar(file, path, 7, &plan, None, quiet).unwrap();
        let file = made.vfs.open(path, Access::Buffered).unwrap();
        let sidecar = Sidecar::open(file, path).unwrap();
        plain.verify_sidecar(&sidecar, None).unwrap();
        let mut table = Arc::into_inner(plain).unwrap();
        table.take_sidecar(sidecar).unwrap();
        assert_eq!(table.filters().range_facts(), with.filters().range_facts());
        let (mut skipped, mut in_table) = (0, 0);
        for _ in 0..300 {
            let mut bounds = [random_key(random), random_key(random)];
            bounds.sort();
            let range = Counted::new(&bounds[0], Some(&bounds[1]));
            check_range(&table, &entries, &range, &mut Random(1));
            skipped += range.skipped.load(Ordering::Relaxed);
            let range = Counted::new(&bounds[0], Some(&bounds[1]));
            check_range(&with, &entries, &range, &mut Random(1));
            in_table += range.skipped.load(Ordering::Relaxed);
        }
        assert!(skipped == in_table && skipped > 30, "{skipped} and {in_table} skipped");
    }
}

/// If only the range filter of a sidecar is damaged, the table's own is queried in its place, and
/// the sidecar's filter of keys as before.
#[test]
fn a_damaged_filter_of_a_sidecar_has_a_stand_in() {
    let random = &mut Random(37);
    let entries = random_entries(random, 400, 20);
    let made = InMemory::new(table_options("infix:9", 1 << 20), &entries);
    let plain = made.open().unwrap();
    let keys = "standard:10".parse().unwrap();
    let plan = FilterPlan { keys, ranges: "infix:9".parse().unwrap(), ..FilterPlan::default() };
    let path = Path::new("/1.flt");
    let file = made.vfs.create(path).unwrap();
    let quiet = |_| Ok::<(), trommel_sstable::Error>(());
    let summary = plain.write_sidecar(file, path, 7, &plan, None, quiet).unwrap();
    let mut bytes = made.vfs.read(path, u64::MAX).unwrap();
    // The range filter is the last thing in the region.
    bytes[HEAD_BYTES + summary.filter_bytes as usize - 20] ^= 1;
    let damaged = InMemory::of_bytes(&bytes);
    let file = damaged.vfs.open(&damaged.path, Access::Buffered).unwrap();
    let sidecar = Sidecar::open(file, path).unwrap();
    let mut table = Arc::into_inner(plain).unwrap();
    table.take_sidecar(sidecar).unwrap();
    let state = table.filters().check().unwrap();
    assert!(matches!(state, FilterState::Damaged(_)), "{state:?}");
    assert!(!table.filters().have_stand_in(), "the filter of keys is sound");
    let mut skipped = 0;
    for _ in 0..300 {
        let mut bounds = [random_key(random), random_key(random)];
        bounds.sort();
        let range = Counted::new(&bounds[0], Some(&bounds[1]));
        check_range(&table, &entries, &range, &mut Random(1));
        skipped += range.skipped.load(Ordering::Relaxed);
    }
    assert!(skipped > 30, "{skipped} skipped");
}

/// A scan keeps no filters in memory: once the table is closed, its blocks are read.
#[test]
fn a_scan_outlives_its_filter() {
    let entries: Vec<Entry> = (0..500).map(|n| put(format!("{:04}", n * 2), 1, b"")).collect();
    let table = InMemory::new(table_options("infix:12", 1 << 20), &entries).open().unwrap();
    let range = Counted::new(b"01005", Some(b"01015"));
    let mut cursor = within(&table, &range);
    cursor.seek(b"01005", SeqNo::MAX).unwrap();
    assert!(!cursor.is_valid() && cursor.stats().block_reads == 0);
    drop(table);
    cursor.seek(b"01005", SeqNo::MAX).unwrap();
    assert_eq!(standing(&cursor).unwrap().key, b"0102");
}

/// The range filter of a table whose index has other leaves denies nothing, and is reported.
#[test]
fn a_filter_of_other_leaves_is_noted() {
    let entries = random_entries(&mut Random(41), 400, 20);
    for [of_filter, of_index] in [[64, 1 << 20], [1 << 20, 64], [64, 128]] {
        let made = InMemory::new(table_options("none", of_filter), &entries);
        let path = Path::new("/1.flt");
        let file = made.vfs.create(path).unwrap();
        let quiet = |_| Ok::<(), trommel_sstable::Error>(());
        let plan = FilterPlan { ranges: "infix:9".parse().unwrap(), ..FilterPlan::default() };
        made.open().unwrap().write_sidecar(file, path, 7, &plan, None, quiet).unwrap();
        // The same data with another index.
        let other = InMemory::new(table_options("none", of_index), &entries).open().unwrap();
        let mut table = Arc::into_inner(other).unwrap();
        let file = made.vfs.open(path, Access::Buffered).unwrap();
        table.take_sidecar(Sidecar::open(file, path).unwrap()).unwrap();
        let range = Counted::new(b"a", Some(b"user:000300"));
        check_range(&table, &entries, &range, &mut Random(1));
        assert_eq!(range.skipped.load(Ordering::Relaxed), 0);
        let state = table.filters().state();
        let FilterState::Damaged(why) = state else { panic!("{of_filter}, {of_index}: {state:?}") };
        assert!(why.contains("does not cover the blocks") && why.contains("rebuild"), "{why}");
    }
}

/// Regression: a search at a snapshot that is older than all versions of its key counted a false
/// positive, although the block holds the key.
#[test]
fn versions_that_are_too_new_for_a_search_count_as_true() {
    let all = || (0..600_u32).map(|n| format!("{:04}", n * 7));
    // Some keys have versions in two blocks.
    let versions = |key: String| (10..14).rev().map(move |seqno| put(&key, seqno, [7; 40]));
    let entries: Vec<Entry> = all().flat_map(versions).collect();
    for leaf_bytes in [64, 1 << 20] {
        let table = InMemory::new(table_options("infix:12", leaf_bytes), &entries).open().unwrap();
        let count = |seqno| {
            let (mut entered, mut false_positives) = (0, 0);
            for key in all() {
                let range = Counted::new(key.as_bytes(), Some(format!("{key}!").as_bytes()));
                let mut cursor = within(&table, &range);
                cursor.seek(key.as_bytes(), seqno).unwrap();
                entered += range.entered.load(Ordering::Relaxed);
                false_positives += range.false_positives.load(Ordering::Relaxed);
            }
            (entered, false_positives)
        };
        let (entered, false_positives) = count(SeqNo::MAX);
        assert!(entered >= 600 && false_positives == 0, "{entered} entered, {false_positives}");
        for seqno in [9, 11] {
            let (entered, false_positives) = count(seqno);
            assert!(entered >= 600 && false_positives < 10, "{entered} entered, {false_positives}");
        }
    }
}

/// A file that counts reads.
#[derive(Debug)]
struct CountedFile {
    file: Arc<dyn ReadFile>,
    reads: AtomicU64,
}

impl ReadFile for CountedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.file.read_at(offset, buffer)
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

/// Regression: a trial read a block of every leaf of the index, however many there were.
#[test]
fn a_trial_reads_a_bounded_sample() {
    let random = &mut Random(43);
    let mut keys: Vec<u64> = (0..40_000).map(|_| random.next()).collect();
    keys.sort_unstable();
    let entries: Vec<Entry> =
        keys.iter().map(|key| put(format!("{key:020}"), 1, [7; 20])).collect();
    for (leaf_bytes, most) in [(256, 64 + 16), (8 << 10, 64 + 16), (1 << 20, 64)] {
        let options = TableOptions { block_bytes: 512, ..table_options("none", leaf_bytes) };
        let made = InMemory::new(options, &entries);
        let file = made.vfs.open(&made.path, Access::Buffered).unwrap();
        let file = Arc::new(CountedFile { file, reads: AtomicU64::new(0) });
        let counted = Arc::<CountedFile>::clone(&file);
        let table =
            open_file(counted, &made.path, Access::Buffered, &BlockCache::new(1 << 20)).unwrap();
        file.reads.store(0, Ordering::Relaxed);
        let rate = table.range_rate("infix:6".parse().unwrap()).unwrap();
        let reads = file.reads.load(Ordering::Relaxed);
        assert!((40..=most).contains(&reads), "{reads} reads, leaves of {leaf_bytes}");
        assert!((0.03..0.12).contains(&rate), "a rate of {rate}, leaves of {leaf_bytes}");
    }
}

/// The bytes of the range filter are known when a table is finished, beside those of the others.
#[test]
fn a_summary_has_the_bytes_of_the_range_filter() {
    let entries = random_entries(&mut Random(47), 400, 20);
    for leaf_bytes in [64, 1 << 20] {
        for keys in ["none", "blocked:10"] {
            let mut options = table_options("infix:9", leaf_bytes);
            options.filters.keys = keys.parse().unwrap();
            let made = InMemory::new(options, &entries);
            let table = made.open().unwrap();
            let parts = table.filters().stored_parts();
            let of_ranges = parts.filter(|part| part.role == FilterRole::Ranges);
            let bytes: u64 = of_ranges.map(|part| part.bytes).sum();
            assert_eq!(made.summary.range_bytes, bytes);
            assert_eq!(bytes == made.summary.filter_bytes, keys == "none");
        }
    }
}

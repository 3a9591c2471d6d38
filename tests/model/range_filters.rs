//! Filters for ranges: the blocks that empty scans read with and without them, and their rate
//! against theory. That they never hide an entry is what the sequences of the other modules test,
//! half of which have them.

use std::collections::BTreeSet;
use std::sync::Arc;

use trommel::{Db, FilterPolicy, Options};
use trommel_sim::MemoryVfs;

use crate::rng::Rng;

/// Runs of level 0.
const RUNS: usize = 10;
/// Keys of each.
const KEYS: usize = 4_000;
/// Numbers from which keys are drawn.
const NUMBERS: u64 = 10_000_000_000;

/// Keys of numbers, in decimal digits or in bytes.
type Shape = fn(u64) -> Vec<u8>;

fn digits(number: u64) -> Vec<u8> {
    format!("user{number:012}").into_bytes()
}

fn binary(number: u64) -> Vec<u8> {
    // Spread over all eight bytes.
    number.wrapping_mul(u64::MAX / NUMBERS).swap_bytes().to_le_bytes().to_vec()
}

/// A store of ten runs, with these filters, and the numbers of its keys.
fn store(filters: &str, shape: Shape) -> (Db, BTreeSet<u64>) {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .compaction(|c| c.auto_compaction(false))
        .filters(filters.parse().unwrap());
    let db = Db::open("/store", options).unwrap();
    let (mut rng, mut numbers) = (Rng::new(3), BTreeSet::new());
    for _ in 0..RUNS {
        for _ in 0..KEYS {
            let number = rng.u64() % NUMBERS;
            numbers.insert(number);
            db.put(shape(number), [7; 60]).unwrap();
        }
        db.flush().unwrap();
    }
    db.reset_stats();
    (db, numbers)
}

/// Scans empty ranges of `width` numbers, forward, backward and by cursors; returns the number of
/// blocks that were read.
fn scan_empty(db: &Db, numbers: &BTreeSet<u64>, shape: Shape, width: u64) -> u64 {
    let mut rng = Rng::new(17);
    let reads = || {
        let scans = db.stats().scans;
        scans.block_reads + scans.cache_hits
    };
    let before = reads();
    for round in 0..3_000 {
        let from = rng.u64() % (NUMBERS - width);
        if numbers.range(from..from + width).next().is_some() {
            continue;
        }
        let range = shape(from)..shape(from + width);
        match round % 4 {
            0 => assert_eq!(db.range(range).count(), 0),
            1 => assert_eq!(db.range(range).rev().count(), 0),
            2 => {
                let mut cursor = db.cursor_in(range).unwrap();
                cursor.seek_to_first().unwrap();
                assert!(!cursor.valid());
            }
            _ => {
                let mut cursor = db.cursor_in(range.clone()).unwrap();
                cursor.seek_for_prev(&range.end).unwrap();
                assert!(!cursor.valid());
            }
        }
    }
    reads() - before
}

/// The promise: at six bits a key, empty scans over ten runs read at most a tenth of the blocks.
#[test]
fn empty_scans_read_a_tenth_of_the_blocks() {
    let shapes: [Shape; 2] = [digits, binary];
    for shape in shapes {
        // Ranges of one number in fifty thousand, and of a quarter of the distance of keys.
        for width in [NUMBERS / 50_000_000, NUMBERS / (4 * RUNS * KEYS) as u64] {
            let [without, with] = ["paired:12", "paired:12,ranges=infix:6"].map(|filters| {
                let (db, numbers) = store(filters, shape);
                scan_empty(&db, &numbers, shape, width)
            });
            assert!(without > 20_000, "{without} blocks");
            assert!(with * 10 <= without, "{with} of {without} blocks are read");
        }
    }
}

/// What was measured of each level is within 5% of what theory predicts, and six bits a key are
/// what they take.
#[test]
fn the_report_has_the_rate_of_theory() {
    for shape in [digits as Shape, binary] {
        let (db, numbers) = store("paired:12,ranges=infix:6", shape);
        for width in [1_000, 50_000] {
            scan_empty(&db, &numbers, shape, width);
        }
        let report = db.filter_report();
        let [level] = &report.ranges[..] else { panic!("{report}") };
        assert_eq!((level.level, level.tables, level.keys), (0, 10, 40_000));
        assert!(level.bits_stored < 6.2, "{report}");
        assert!(level.counts.negatives > 40_000 && level.counts.true_positives == 0, "{report}");
        let (measured, expected) = (level.rates.measured.unwrap(), level.rates.expected.unwrap());
        assert!((measured / expected - 1.0).abs() < 0.05, "{measured} and {expected}: {report}");
        assert!(report.to_string().contains("filters for ranges of keys"), "{report}");
        assert_eq!(db.stats().scans.blocks_skipped, level.counts.negatives);
        let bytes: u64 = report.levels.iter().map(|level| level.filter_bytes).sum();
        assert_eq!(report.filter_bytes, bytes + level.filter_bytes);
    }
}

/// A range that holds keys is found whole, and what is counted as true is.
#[test]
fn a_range_with_keys_counts_as_true() {
    let (db, numbers) = store("none,ranges=infix:8", digits);
    let all: Vec<u64> = numbers.iter().copied().collect();
    for keys in all.windows(2).step_by(7) {
        let found = db.range(digits(keys[0])..digits(keys[1] + 1)).map(|entry| entry.unwrap().0);
        let expected = keys.iter().map(|number| digits(*number));
        assert!(found.map(|key| key.to_vec()).eq(expected));
    }
    let level = &db.filter_report().ranges[0];
    assert!(level.counts.true_positives > 5_000, "{level:?}");
}

/// Filters for ranges are added to tables that have none, and taken off again, by rebuilding.
#[test]
fn a_rebuild_adds_and_removes_filters_for_ranges() {
    let (db, numbers) = store("paired:12", digits);
    let without = scan_empty(&db, &numbers, digits, 1_000);
    db.set_filters("paired:12,ranges=infix:6".parse().unwrap()).unwrap();
    let report = db.rebuild_filters(&Default::default()).unwrap();
    assert_eq!(report.rebuilt, RUNS as u64, "{report:?}");
    let with = scan_empty(&db, &numbers, digits, 1_000);
    assert!(with * 10 <= without, "{with} of {without} blocks are read");
    assert_eq!(db.filter_report().ranges[0].tables, RUNS as u64);
    db.verify().unwrap();
    db.set_filters(FilterPolicy::default()).unwrap();
    db.rebuild_filters(&Default::default()).unwrap();
    assert!(db.filter_report().ranges.iter().all(|level| level.tables == 0));
    assert_eq!(scan_empty(&db, &numbers, digits, 1_000), without);
}

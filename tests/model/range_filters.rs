//! Range filters: the blocks that empty scans read with and without them, and their rate
//! against theory. That they never hide an entry is what the sequences of the other modules test,
//! half of which have them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use trommel::vfs::Vfs;
use trommel::{AdviceVerdict, Db, FilterPolicy, KeyspaceOptions, Merge, Options};
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
        assert!(report.to_string().contains("range filters"), "{report}");
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

/// Range filters are added to tables that have none, and taken off again, by rebuilding.
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

/// A budget pays for range filters first, and the filters of keys share the rest.
#[test]
fn a_budget_counts_filters_for_ranges() {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(256 << 10))
        .compaction(|c| c.table_bytes(128 << 10).base_level_bytes(512 << 10).level_ratio(4))
        .filters("budget=14/key,ranges=infix:6".parse().unwrap());
    let db = Db::open("/store", options).unwrap();
    let mut rng = Rng::new(23);
    for _ in 0..80_000 {
        db.put(digits(rng.u64() % NUMBERS), [7; 40]).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    let report = db.filter_report();
    let budget = report.budget.as_ref().unwrap();
    assert!(budget.space.built_bytes <= budget.space.budget_bytes, "{report}");
    assert!(budget.space.built_bytes * 10 > budget.space.budget_bytes * 8, "{report}");
    assert_eq!((budget.space.dropped_tables, budget.queued_rebuilds), (0, 0), "{report}");
    let of_ranges: u64 = report.ranges.iter().map(|level| level.filter_bytes).sum();
    let keys: u64 = report.ranges.iter().map(|level| level.keys).sum();
    let bits = of_ranges as f64 * 8.0 / keys as f64;
    assert!((5.5..7.5).contains(&bits), "{bits} bits: {report}");
    db.rebuild_filters(&Default::default()).unwrap();
    assert_eq!(db.filter_report().budget.unwrap().space.dropped_tables, 0);
}

/// Looks up so many keys, nearly all of which are missing.
fn get_missing(db: &Db, shape: Shape, gets: u64) {
    let mut rng = Rng::new(41);
    for _ in 0..gets {
        db.get(shape(rng.u64() % NUMBERS)).unwrap();
    }
}

/// The advice says what range filters would save, and in its policy keeps those there are.
#[test]
fn the_advice_weighs_ranges_against_keys() {
    let advice = |filters: &str, gets: u64| {
        let (db, numbers) = store(filters, digits);
        scan_empty(&db, &numbers, digits, 1_000);
        get_missing(&db, digits, gets);
        db.filter_advice().unwrap()
    };
    let without = advice("paired:12", 20_000);
    let ranges = without.ranges.as_ref().unwrap();
    assert!(ranges.empty_scans > 1_400 && (9.0..11.0).contains(&ranges.blocks), "{without}");
    assert!(ranges.share < 0.2 && ranges.bytes > 20_000 && ranges.bytes_now == 0, "{without}");
    assert!(ranges.policy.to_string().starts_with("paired:12,ranges.L0-=infix:"), "{without}");
    // With them, the same reads are known from the blocks that were skipped.
    let with = advice("paired:12,ranges=infix:6", 20_000);
    let ranges = with.ranges.as_ref().unwrap();
    assert!((9.0..11.0).contains(&ranges.blocks) && ranges.bytes_now > 20_000, "{with}");
    // Where hardly anything is scanned, a byte is worth more elsewhere.
    let rarely = advice("paired:6", 2_000_000);
    let ranges = rarely.ranges.as_ref().unwrap();
    assert_eq!(ranges.bytes, 0, "{rarely}");
    // Regression: without lookups, whose worth is not known, the most bits were advised.
    for lookups in [0, 9_000] {
        let unknown = advice("paired:12", lookups);
        assert_eq!(unknown.verdict, AdviceVerdict::TooFewLookups);
        assert!(unknown.ranges.is_none(), "{unknown}");
        assert!(unknown.to_string().contains("what a byte of filters is worth"), "{unknown}");
    }
}

/// Regression: a level whose keys could not be read for a trial counted as one whose keys do not
/// crowd, and got the advised filter.
#[test]
fn a_failed_trial_advises_nothing() {
    let vfs = MemoryVfs::new();
    let options = Options::default()
        .vfs(Arc::new(vfs.clone()))
        .background_threads(0)
        .compression(trommel::Compression::None)
        .filters("paired:12".parse().unwrap());
    let db = Db::open("/store", options.clone()).unwrap();
    (0..2_000).for_each(|n| _ = db.put(digits(n * 1_000_000), [7; 60]).unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    let dir = Path::new("/store");
    let names = vfs.list(dir).unwrap().into_iter().map(|entry| entry.name);
    let table =
        names.map(|name| dir.join(name)).find(|path| path.extension().is_some_and(|e| e == "sst"));
    let table = table.unwrap();
    for is_damaged in [false, true] {
        if is_damaged {
            // Of the blocks that are not read by the scans below.
            let mut bytes = vfs.read(&table, u64::MAX).unwrap();
            let half = bytes.len() / 2;
            bytes[half..half + 20_000].iter_mut().for_each(|byte| *byte ^= 0x55);
            vfs.remove(&table).unwrap();
            vfs.create(&table).unwrap().append(&bytes).unwrap();
        }
        let db = Db::open("/store", options.clone()).unwrap();
        for n in 0..12_000 {
            let from = n % 400 * 1_000_000 + 10 + n;
            assert!(db.range(digits(from)..digits(from + 5)).next().is_none());
            db.get(digits(from)).unwrap();
        }
        let advice = db.filter_advice().unwrap();
        let ranges = advice.ranges.as_ref().unwrap();
        assert_eq!(
            (ranges.bytes == 0, ranges.unknown.len()),
            (is_damaged, usize::from(is_damaged))
        );
        assert_eq!(ranges.to_string().contains("verify the store"), is_damaged, "{ranges}");
        db.close().unwrap();
    }
}

/// Keys that differ only far behind the first bytes in which those of a block do.
fn crowded(number: u64) -> Vec<u8> {
    let (directory, file) = (number / 10_000_000, number % 10_000_000);
    format!("{directory:03}/a-directory-with-a-long-name/{file:07}").into_bytes()
}

/// Where range filters would let most blocks pass, the stated rate says so, and the advice is
/// to have none, before one was built and after.
#[test]
fn crowded_keys_get_no_filter_for_ranges() {
    for filters in ["paired:12", "paired:12,ranges=infix:6"] {
        let (db, numbers) = store(filters, crowded);
        let blocks = scan_empty(&db, &numbers, crowded, 1_000);
        assert!(blocks > 20_000, "{blocks} blocks");
        get_missing(&db, crowded, 20_000);
        let advice = db.filter_advice().unwrap();
        let ranges = advice.ranges.as_ref().unwrap();
        assert!(ranges.bytes == 0 && ranges.share == 1.0, "{advice}");
        for level in db.filter_report().ranges {
            let (measured, expected) =
                (level.rates.measured.unwrap(), level.rates.expected.unwrap());
            assert!((measured / expected - 1.0).abs() < 0.05, "{measured} and {expected}");
            assert!(expected > 0.9, "{expected}");
        }
    }
}

/// A key whose versions fill several blocks is in the filter of each, and so is one of a snapshot.
#[test]
fn keys_of_many_versions_are_found() {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .compaction(|c| c.auto_compaction(false))
        .reads(|r| r.block_bytes(256))
        .filters("none,ranges=infix:12".parse().unwrap());
    let db = Db::open("/store", options).unwrap();
    let mut snapshots = Vec::new();
    for version in 0..40_u8 {
        for key in 0..20 {
            db.put(digits(key * 1_000), [version; 50]).unwrap();
        }
        snapshots.push(db.snapshot());
    }
    db.flush().unwrap();
    db.verify().unwrap();
    for (version, snapshot) in snapshots.iter().enumerate() {
        for key in 0..20 {
            let range = || digits(key * 1_000)..digits(key * 1_000 + 1);
            let found = [snapshot.range(range()).next(), snapshot.range(range()).next_back()];
            for entry in found {
                assert_eq!(entry.unwrap().unwrap().1, [version as u8; 50], "key {key}");
            }
        }
    }
}

/// A cursor of a range is moved back and forth over many runs, some of which hold nothing of the
/// range, or nothing before or after its middle.
#[test]
fn a_cursor_turns_at_the_ends_of_its_range() {
    let (db, numbers) = store("none,ranges=infix:10", digits);
    let all: Vec<u64> = numbers.iter().copied().collect();
    let mut rng = Rng::new(29);
    for _ in 0..300 {
        let (at, count) = (rng.below(all.len() - 10), rng.within(2, 8));
        let (from, to) = (all[at] - 1, all[at + count - 1] + 1);
        let mut cursor = db.cursor_in(digits(from)..digits(to)).unwrap();
        let mut here = at + rng.below(count);
        cursor.seek(digits(all[here])).unwrap();
        for _ in 0..40 {
            assert_eq!(cursor.key(), Some(&digits(all[here])[..]));
            if rng.once_in(2) && here + 1 < at + count {
                here += 1;
                cursor.next().unwrap();
            } else if here > at {
                here -= 1;
                cursor.prev().unwrap();
            }
        }
    }
}

/// A cursor over merge operands in a keyspace, whose keys begin with its header, is turned around
/// within its range, at its ends and off them; some runs hold nothing of the range.
#[test]
fn a_cursor_over_operands_in_a_keyspace_turns() {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .compaction(|c| c.auto_compaction(false))
        .filters("none,ranges=infix:10".parse().unwrap());
    let db = Db::open("/store", options).unwrap();
    let append = Merge::associative("append", |_, so_far, next| Ok([so_far, next].concat()));
    let keyspace = db.keyspace("a", KeyspaceOptions::new().merge_operator(append)).unwrap();
    let (mut rng, mut model) = (Rng::new(37), BTreeMap::<Vec<u8>, Vec<u8>>::new());
    for run in 0..6_u8 {
        for _ in 0..2_000 {
            let key = digits(rng.u64() % 6_000 * 1_000_000);
            keyspace.merge(&key, [b'0' + run]).unwrap();
            model.entry(key).or_default().push(b'0' + run);
        }
        db.flush().unwrap();
    }
    let all: Vec<(Vec<u8>, Vec<u8>)> = model.into_iter().collect();
    for _ in 0..400 {
        let (at, count) = (rng.below(all.len() - 10), rng.within(1, 6));
        let held = &all[at..at + count];
        let range = held[0].0.clone()..all[at + count].0.clone();
        let mut cursor = keyspace.cursor_in(range).unwrap();
        // One entry off either end, from which a cursor is turned by a movement to that end.
        let mut here = rng.within(1, count);
        cursor.seek(&held[here - 1].0).unwrap();
        for _ in 0..30 {
            let entry = cursor.entry().map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert_eq!(entry.as_ref(), here.checked_sub(1).and_then(|here| held.get(here)));
            here = match here {
                0 => cursor.seek_to_first().map(|()| 1),
                _ if here > count => cursor.seek_to_last().map(|()| count),
                _ if rng.once_in(2) => cursor.next().map(|()| here + 1),
                _ => cursor.prev().map(|()| here - 1),
            }
            .unwrap();
        }
    }
    assert!(db.stats().scans.blocks_skipped > 1_000, "{}", db.stats().scans.blocks_skipped);
}

/// Regression: a block with newer versions of the first key of a scan at an older snapshot counted
/// as a false positive.
#[test]
fn versions_hidden_from_a_snapshot_are_no_false_positives() {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .filters("none,ranges=infix:10".parse().unwrap());
    let db = Db::open("/store", options).unwrap();
    let before = db.snapshot();
    let mut rng = Rng::new(43);
    let numbers: BTreeSet<u64> = (0..4_000).map(|_| rng.u64() % NUMBERS).collect();
    numbers.iter().for_each(|number| _ = db.put(digits(*number), [7; 60]).unwrap());
    db.flush().unwrap();
    for number in &numbers {
        let range = || digits(*number)..digits(number + 1);
        assert_eq!((before.range(range()).count(), db.range(range()).count()), (0, 1));
    }
    let level = &db.filter_report().ranges[0];
    assert!(level.counts.true_positives >= 2 * numbers.len() as u64, "{level:?}");
    assert!(level.counts.false_positives < 50, "{level:?}");
}

/// A table whose index has several leaves has a filter for each, which knows where its leaf begins.
#[test]
fn ranges_of_a_large_table_are_found() {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .reads(|r| r.block_bytes(256))
        .filters("none,ranges=infix:8".parse().unwrap());
    let db = Db::open("/store", options).unwrap();
    let mut rng = Rng::new(31);
    let numbers: BTreeSet<u64> = (0..30_000).map(|_| rng.u64() % NUMBERS).collect();
    for number in &numbers {
        db.put(digits(*number), [7; 40]).unwrap();
    }
    db.flush().unwrap();
    db.verify().unwrap();
    for number in numbers.iter().step_by(3) {
        let range = || digits(number - 1)..digits(number + 1);
        assert_eq!(db.range(range()).count(), 1, "{number}");
        assert_eq!(db.range(range()).rev().count(), 1, "{number}");
    }
}

/// A scan learns gaps of deleted keys beside range filters; one that has skipped a block teaches
/// later scans nothing, so that a filter which is wrong misleads no scan but its own.
#[test]
fn a_scan_that_skipped_a_block_teaches_no_gap() {
    let passed_again = |filters: &str| {
        let options = Options::default()
            .vfs(Arc::new(MemoryVfs::new()))
            .background_threads(0)
            .compaction(|c| c.auto_compaction(false))
            .filters(filters.parse().unwrap());
        let db = Db::open("/store", options).unwrap();
        for number in 0..20_000 {
            db.put(digits(number * 50), [7; 40]).unwrap();
        }
        db.compact_all().unwrap();
        for number in 2_000..18_000 {
            db.delete(digits(number * 50)).unwrap();
        }
        db.flush().unwrap();
        // A block that holds nothing of the range.
        db.put(digits(1), [7; 40]).unwrap();
        db.put(digits(NUMBERS - 1), [7; 40]).unwrap();
        db.flush().unwrap();
        db.reset_stats();
        let passed = [17_901, 17_900].map(|end| {
            let before = db.stats().scans.entries_skipped;
            assert!(db.range(digits(2_000 * 50)..digits(end * 50)).next().is_none());
            db.stats().scans.entries_skipped - before
        });
        assert!(passed[0] > 10_000, "{passed:?}");
        (passed[1], db.stats().scans.blocks_skipped)
    };
    let (passed, blocks) = passed_again("paired:12,ranges.L0=none,ranges.last=infix:10");
    assert!(passed < 1_000 && blocks == 0, "{passed} passed, {blocks} blocks skipped");
    let (passed, blocks) = passed_again("paired:12,ranges=infix:10");
    assert!(passed > 10_000 && blocks > 1, "{passed} passed, {blocks} blocks skipped");
}

/// A range without an end queries no range filter, in either direction.
#[test]
fn ranges_without_an_end_are_not_queried() {
    let (db, numbers) = store("none,ranges=infix:10", digits);
    let last = *numbers.last().unwrap();
    for from in [0, last / 2, last + 1] {
        let held = numbers.range(from..).next();
        let first = db.range(digits(from)..).next().map(|entry| entry.unwrap().0.to_vec());
        assert_eq!(first, held.map(|number| digits(*number)));
        let held = numbers.range(from..).count();
        assert_eq!(db.range(digits(from)..).rev().count(), held);
    }
    let level = &db.filter_report().ranges[0];
    assert_eq!(level.counts.probes, 0, "{level:?}");
    assert_eq!(db.stats().scans.blocks_skipped, 0);
}

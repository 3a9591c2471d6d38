//! Filters of prefixes: their benefit, by the store's own counters, and that they never hide an
//! entry, whatever extractor tables were built with and whatever range is scanned.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use trommel::{Db, FilterLevel, Options, Prefix, Slice};
use trommel_sim::MemoryVfs;

/// A store in memory that compacts only on request.
fn options(vfs: &Arc<MemoryVfs>) -> Options {
    Options::default()
        .vfs(Arc::<MemoryVfs>::clone(vfs))
        .background_threads(0)
        .compaction(|c| c.auto_compaction(false).table_bytes(4 << 10))
        .reads(|r| r.block_bytes(256))
        .filters("paired:20".parse().unwrap())
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// Even users in level 0, each in one table; all multiples of four in a deeper level as well.
fn fill(db: &Db) {
    let event = |user: u32, number: u32| format!("{user:04}/{number:02}");
    for user in (0..400).step_by(4) {
        for number in 0..10 {
            db.put(event(user, number), [7; 40]).unwrap();
        }
    }
    db.compact_all().unwrap();
    for round in 0..4 {
        for user in (2..400).step_by(4) {
            db.put(event(user, round), [8; 40]).unwrap();
        }
        db.flush().unwrap();
    }
}

type Entries = Vec<(Slice, Slice)>;

fn entries(range: impl Iterator<Item = trommel::Result<(Slice, Slice)>>) -> Entries {
    range.collect::<Result<_, _>>().unwrap()
}

#[test]
fn scans_within_a_prefix_pass_over_tables_without_it() {
    for extractor in ["fixed:5", "until:/"] {
        let vfs = Arc::new(MemoryVfs::new());
        let db =
            Db::open("/store", options(&vfs).filtering(|f| f.prefix_extractor(prefix(extractor))))
                .unwrap();
        fill(&db);
        db.reset_stats();
        // Odd users are absent: four tables of level 0, and at most one of the level below.
        for user in (1..400).step_by(2) {
            assert_eq!(entries(db.prefix(format!("{user:04}/"))), []);
            assert_eq!(entries(db.prefix(format!("{user:04}/")).rev()), []);
        }
        let stats = db.stats();
        assert!(stats.prefixes.checked >= 1500, "{extractor}: {stats:?}");
        assert!(
            stats.prefixes.useful * 100 >= stats.prefixes.checked * 99,
            "{extractor}: {stats:?}"
        );
        assert!(stats.scans.block_reads + stats.scans.cache_hits <= 20, "{extractor}: {stats:?}");

        // The same without the filters: each scan reads a block of each table.
        db.set_options(|options| options.filtering(|f| f.prefix_extractor(prefix("fixed:40"))))
            .unwrap();
        db.reset_stats();
        for user in (1..400).step_by(2) {
            assert_eq!(entries(db.prefix(format!("{user:04}/"))), []);
        }
        let without = db.stats();
        assert_eq!(without.prefixes.checked, 0);
        assert!(without.scans.block_reads + without.scans.cache_hits >= 700, "{without:?}");
    }
}

/// A filled store whose filters have two bits per prefix, so that many positives are false.
fn with_poor_filters() -> Db {
    let options = options(&Arc::new(MemoryVfs::new())).filtering(|f| {
        f.prefix_extractor(Prefix::until("/")).prefix_filters(Some("blocked:2".parse().unwrap()))
    });
    let db = Db::open("/store", options).unwrap();
    fill(&db);
    db.reset_stats();
    db
}

#[test]
fn a_maybe_is_found_true_or_false_by_the_walk() {
    let db = with_poor_filters();
    for user in 0..400 {
        let expected = if user % 4 == 0 { 10 } else { 2 * (1 - user % 2) * 2 };
        assert_eq!(entries(db.prefix(format!("{user:04}/"))).len(), expected);
        let mut cursor = db.prefix_cursor(format!("{user:04}/")).unwrap();
        cursor.seek_to_last().unwrap();
        assert_eq!(cursor.valid(), expected > 0);
    }
    let report = db.filter_report();
    let [top, below] = &report.prefixes[..] else { panic!("{report}") };
    // A hundred users are in each of the four tables, and each is queried twice.
    assert_eq!(top.counts.true_positives, 100 * 4 * 2, "{report}");
    // A user with entries in two tables is in both filters, and an iteration over all of them
    // queries both.
    let parted = below.keys - 100;
    assert_eq!(below.counts.true_positives, 100 * 2 + parted, "{report}");
    // At least 198 absent users are between its keys.
    assert!(top.counts.negatives + top.counts.false_positives >= 198 * 4 * 2, "{report}");
    let (low, high) = top.rates.interval.unwrap();
    // The same prefixes are queried twice, in filters that are alike: the interval is too narrow.
    assert!(low / 2.0 <= top.rates.expected.unwrap(), "{report}");
    assert!(top.rates.expected.unwrap() <= high * 2.0, "{report}");
    assert!(top.counts.false_positives > 100, "{report}");
    assert_eq!(report.unused_prefix_filters, 0);
    db.reset_stats();
    assert_eq!(db.stats().prefixes.checked, 0);
}

/// A scan that begins in the middle of its range cannot determine whether a positive was false; its
/// negatives used to count all the same, so that the measured rate was 0.
#[test]
fn scans_from_the_middle_of_a_range_make_no_rate_too_low() {
    let db = with_poor_filters();
    let absent = || {
        let levels = db.filter_report().prefixes;
        levels
            .iter()
            .map(|level| level.counts.negatives + level.counts.false_positives)
            .sum::<u64>()
    };
    let seek = |user: u32, key: &str| {
        let mut cursor = db.prefix_cursor(format!("{user:04}/")).unwrap();
        cursor.seek(format!("{user:04}/{key}")).unwrap();
        assert!(!cursor.valid());
    };
    (1..400).step_by(2).for_each(|user| seek(user, "05"));
    assert_eq!(absent(), 0, "{}", db.filter_report());
    (1..400).step_by(2).for_each(|user| seek(user, ""));
    assert!(absent() > 199 * 4, "{}", db.filter_report());
    let report = db.filter_report();
    let (low, high) = report.prefixes[0].rates.interval.unwrap();
    let expected = report.prefixes[0].rates.expected.unwrap();
    assert!(low / 2.0 <= expected && expected <= high * 2.0, "{report}");
}

#[test]
fn lookups_query_prefixes_only_where_there_are_no_whole_keys() {
    for whole_keys in [true, false] {
        let vfs = Arc::new(MemoryVfs::new());
        let options = options(&vfs).filtering(|f| {
            f.prefix_extractor(Prefix::until("/"))
                .prefix_filters(Some("standard:20".parse().unwrap()))
                .whole_key_filters(whole_keys)
        });
        let db = Db::open("/store", options).unwrap();
        fill(&db);
        db.reset_stats();
        let absent: Vec<String> = (1..399).step_by(2).map(|i| format!("{i:04}/00")).collect();
        // One with a present prefix, and one without a prefix.
        let others = ["0002/77".to_owned(), "0002".to_owned()];
        for key in absent.iter().chain(&others) {
            assert_eq!(db.get(key).unwrap(), None);
        }
        let by_one = db.filter_report();
        db.reset_stats();
        let keys: Vec<&String> = absent.iter().chain(&others).collect();
        assert!(db.multi_get(&keys).unwrap().iter().all(Option::is_none));
        let at_once = db.filter_report();
        let kind = if whole_keys { "paired" } else { "standard" };
        let row = &by_one.levels[0];
        assert_eq!(row.kind.name(), kind, "{by_one}");
        assert!(row.counts.negatives >= 199 * 4 - 4, "{by_one}");
        assert_eq!(row.counts.false_positives >= 4, !whole_keys, "{by_one}");
        for (one, other) in by_one.levels.iter().zip(&at_once.levels) {
            let counts = |row: &FilterLevel| (row.level, row.counts.probes, row.counts.negatives);
            assert_eq!(counts(one), counts(other), "{by_one}\n{at_once}");
        }
        assert_eq!(db.get("0002/01").unwrap().as_deref(), Some(&[8; 40][..]));
    }
}

#[test]
fn a_changed_extractor_is_not_used_and_counted() {
    let vfs = Arc::new(MemoryVfs::new());
    let first = Prefix::custom("mine", |key| key.iter().position(|b| *b == b'/').map(|at| at + 1));
    let db = Db::open("/store", options(&vfs).filtering(|f| f.prefix_extractor(first))).unwrap();
    fill(&db);
    let all = entries(db.iter());
    let query = |db: &Db| {
        db.reset_stats();
        for user in 0..400 {
            let key = format!("{user:04}/");
            let here = all.iter().filter(|(found, _)| found.starts_with(key.as_bytes()));
            let here: Entries = here.cloned().collect();
            assert_eq!(entries(db.prefix(&key)), here, "user {user}");
            // Within one prefix of "fixed:2", and of "all".
            let two = &key[..2];
            let here = all.iter().filter(|(found, _)| found.starts_with(two.as_bytes()));
            assert_eq!(entries(db.prefix(two)), here.cloned().collect::<Entries>());
        }
        db.stats()
    };
    assert!(query(&db).prefixes.useful > 1000);
    // Tables record "custom:mine": no other extractor may query their filters.
    for other in [prefix("fixed:2"), prefix("until:/"), Prefix::custom("all", |_| Some(0))] {
        db.set_options(|options| options.filtering(|f| f.prefix_extractor(other.clone()))).unwrap();
        let stats = query(&db);
        assert_eq!((stats.prefixes.checked, stats.prefixes.useful), (0, 0), "{other}");
        assert!(stats.prefixes.unused > 1000, "{other}: {stats:?}");
        let tables: u64 = stats.levels.iter().map(|level| level.tables).sum();
        assert_eq!(db.filter_report().unused_prefix_filters, tables, "{other}");
    }
    // None set: a closure cannot be recovered from its name.
    db.set_options(|options| options.filtering(|f| f.prefix_extractor(None))).unwrap();
    assert_eq!(query(&db).prefixes.checked, 0);
    // New tables are built with the new one, next to old ones.
    db.set_options(|options| options.filtering(|f| f.prefix_extractor(prefix("fixed:5")))).unwrap();
    db.put("0001/00", "new").unwrap();
    db.put("0399/00", "new").unwrap();
    db.flush().unwrap();
    db.reset_stats();
    for user in (3..399).step_by(4) {
        assert_eq!(entries(db.prefix(format!("{user:04}/"))), []);
    }
    let stats = db.stats();
    assert!(stats.prefixes.useful >= 98 && stats.prefixes.unused >= 4 * 98, "{stats:?}");
    db.close().unwrap();
    // Reopened without an extractor: a built-in one is recovered from the tables.
    let db = Db::open("/store", options(&vfs)).unwrap();
    for user in (3..399).step_by(4) {
        assert_eq!(entries(db.prefix(format!("{user:04}/"))), []);
    }
    assert!(db.stats().prefixes.useful >= 98, "{:?}", db.stats());
    db.compact_all().unwrap();
    db.reset_stats();
    assert_eq!(db.filter_report().prefixes, [], "it built none");
}

/// Keys at the edges of prefixes: empty, equal to one, right after one, ending in 0xff.
fn edge_keys() -> Vec<Vec<u8>> {
    [
        &b""[..],
        b"\x00",
        b"a",
        b"a\xff",
        b"ab",
        b"ab\x00",
        b"ab\x00\x00",
        b"ab/",
        b"ab/c",
        b"ab\xff",
        b"ab\xff\xff",
        b"ab\xff\xff\x00",
        b"ac",
        b"b",
        b"b\xff\xff",
        b"\xfe\xff",
        b"\xff",
        b"\xff\x00",
        b"\xff\xff",
        b"\xff\xff\x00",
        b"\xff\xff\xff",
        b"\xff\xff\xff\xff",
    ]
    .map(<[u8]>::to_vec)
    .to_vec()
}

#[test]
fn ranges_at_the_edges_of_a_prefix_are_whole() {
    let keys = edge_keys();
    let extractors = [
        prefix("fixed:1"),
        prefix("fixed:2"),
        prefix("fixed:3"),
        prefix("until:/"),
        prefix("until:\\xff"),
        prefix("until:\\xff,2"),
        prefix("until:\\x00"),
        Prefix::custom("all", |_| Some(0)),
    ];
    for extractor in extractors {
        let vfs = Arc::new(MemoryVfs::new());
        let options = options(&vfs).filtering(|f| f.prefix_extractor(extractor.clone()));
        let db = Db::open("/store", options).unwrap();
        // One key in each table, between two that extend its key range to that of all, a third of
        // them deep: each filter holds few prefixes, and nearly every wrong skip loses an entry.
        for (turn, key) in keys.iter().enumerate().filter(|(turn, _)| turn % 3 > 0) {
            db.put(key, [turn as u8]).unwrap();
            db.put("", "").unwrap();
            db.put([0xff; 5], "").unwrap();
            db.flush().unwrap();
            if turn == 8 {
                db.compact_all().unwrap();
            }
        }
        let all: Vec<Vec<u8>> = entries(db.iter()).iter().map(|(key, _)| key.to_vec()).collect();
        db.reset_stats();
        for from in &keys {
            for to in keys.iter().map(Some).chain([None]) {
                for inclusive in [false, true] {
                    let end = match to {
                        None => Bound::Unbounded,
                        Some(to) if inclusive => Bound::Included(to.clone()),
                        Some(to) => Bound::Excluded(to.clone()),
                    };
                    let bounds = (Bound::Included(from.clone()), end);
                    check(&db, &all, &bounds, &extractor);
                }
            }
            let there: Vec<&Vec<u8>> = all.iter().filter(|key| key.starts_with(from)).collect();
            let found = entries(db.prefix(from));
            assert!(found.iter().map(|(key, _)| &**key).eq(there.iter().map(|key| &***key)));
        }
        let useful = db.stats().prefixes.useful;
        assert!(useful > 100 || extractor.name() == "custom:all", "{extractor}: {:?}", db.stats());
        db.verify().unwrap();
    }
}

/// Scans one range forward, backward, and with a cursor that changes direction at each entry.
fn check(db: &Db, all: &[Vec<u8>], bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>), by: &Prefix) {
    use std::ops::RangeBounds as _;
    let there: Vec<&[u8]> =
        all.iter().filter(|key| bounds.contains(*key)).map(|key| &**key).collect();
    let forward = entries(db.range(bounds.clone()));
    assert!(forward.iter().map(|(key, _)| &**key).eq(there.iter().copied()), "{by} {bounds:?}");
    let backward = entries(db.range(bounds.clone()).rev());
    assert!(backward.iter().map(|(key, _)| &**key).eq(there.iter().rev().copied()));
    let mut cursor = db.cursor_in(bounds.clone()).unwrap();
    for (at, key) in there.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| there[before]);
        cursor.seek(key).unwrap();
        assert_eq!(cursor.key(), Some(*key), "{by} {bounds:?}");
        cursor.prev().unwrap();
        assert_eq!(cursor.key(), before, "{by} {bounds:?}");
        cursor.seek_for_prev(key).unwrap();
        cursor.next().unwrap();
        assert_eq!(cursor.key(), there.get(at + 1).copied(), "{by} {bounds:?}");
    }
    cursor.seek_to_first().unwrap();
    assert_eq!(cursor.key(), there.first().copied());
    cursor.seek_to_last().unwrap();
    assert_eq!(cursor.key(), there.last().copied());
}

#[test]
fn a_closure_changed_under_its_name_loses_nothing() {
    let slash = |key: &[u8]| key.iter().position(|byte| *byte == b'/').map(|at| at + 1);
    let first = |key: &[u8]| (key.len() >= 2).then_some(2);
    for whole_keys in [true, false] {
        let vfs = Arc::new(MemoryVfs::new());
        let options = || options(&vfs).filtering(|f| f.whole_key_filters(whole_keys));
        let before = Prefix::custom("mine", slash);
        let db = Db::open("/store", options().filtering(|f| f.prefix_extractor(before.clone())))
            .unwrap();
        fill(&db);
        let all = entries(db.iter());
        db.close().unwrap();
        // Under the same name, every filter is queried for prefixes that no filter holds.
        let changed = Prefix::custom("mine", first);
        let db = Db::open("/store", options().filtering(|f| f.prefix_extractor(changed))).unwrap();
        if whole_keys {
            assert_eq!(entries(db.prefix("00")).len(), all.len() / 4);
        } else {
            assert!(all.iter().all(|(key, _)| db.get(key).unwrap().is_some()));
        }
        let stats = db.stats();
        assert!(stats.prefixes.breach.is_some() && stats.prefixes.unused > 0, "{stats:?}");
        assert_eq!(stats.prefixes.useful, 0);
        // On the live store, too; and findings about one closure do not apply to another.
        db.set_options(|options| options.filtering(|f| f.prefix_extractor(before.clone())))
            .unwrap();
        db.reset_stats();
        assert_eq!(entries(db.prefix("0003/")), []);
        assert!(db.stats().prefixes.useful > 0 && db.stats().prefixes.breach.is_none());
        let changed = Prefix::custom("mine", first);
        db.set_options(|options| options.filtering(|f| f.prefix_extractor(changed))).unwrap();
        assert_eq!(entries(db.prefix("00")).len(), all.len() / 4);
    }
}

#[test]
fn a_closure_that_breaks_its_word_is_dropped_and_named() {
    // The delimiter is excluded, so "ab" alone has no prefix though "ab/1" has the prefix "ab".
    let open = || Prefix::custom("open", |key| key.iter().position(|byte| *byte == b'/'));
    let vfs = Arc::new(MemoryVfs::new());
    let db = Db::open("/store", options(&vfs).filtering(|f| f.prefix_extractor(open()))).unwrap();
    db.put("ab", "1").unwrap();
    db.put("ab/1", "2").unwrap();
    db.flush().unwrap();
    assert!(db.stats().prefixes.breach.is_some());
    assert_eq!(db.filter_report().prefixes, []);
    assert_eq!(entries(db.range("ab".."ab0")).len(), 2);
    // One that panics in a background thread or in a scan stops nothing.
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let panics = Prefix::custom("panics", move |key| {
        counted.fetch_add(1, Ordering::Relaxed);
        assert!(!key.starts_with(b"x"), "it cannot do that");
        Some(0)
    });
    db.set_options(|options| {
        options.filtering(|f| f.prefix_extractor(panics)).background_threads(1)
    })
    .unwrap();
    for key in ["a", "x1", "y"] {
        db.put(key, "3").unwrap();
    }
    db.flush().unwrap();
    assert!(calls.load(Ordering::Relaxed) > 0);
    assert_eq!(db.stats().prefixes.breach, Some("it panicked"));
    assert_eq!(entries(db.iter()).len(), 5);
    assert_eq!(entries(db.prefix("x")).len(), 1);
    db.verify().unwrap();
}

/// Only `verify` can detect that a closure has changed under its name.
#[test]
fn verify_finds_a_closure_that_has_changed_under_its_name() {
    let vfs = Arc::new(MemoryVfs::new());
    let by = |len: usize| Prefix::custom("mine", move |key| (key.len() >= len).then_some(len));
    let db = Db::open("/store", options(&vfs).filtering(|f| f.prefix_extractor(by(2)))).unwrap();
    db.put("abcdef", "1").unwrap();
    db.put("abxyz", "1").unwrap();
    db.flush().unwrap();
    db.verify().unwrap();
    db.close().unwrap();
    let db = Db::open("/store", options(&vfs).filtering(|f| f.prefix_extractor(by(3)))).unwrap();
    let error = db.verify().unwrap_err().to_string();
    assert!(error.contains("prefix"), "{error}");
}

#[test]
fn settings_that_filter_nothing_are_refused() {
    let vfs = Arc::new(MemoryVfs::new());
    let error = Db::open("/store", options(&vfs).filtering(|f| f.whole_key_filters(false)))
        .unwrap_err()
        .to_string();
    assert!(error.contains("prefix_extractor"), "{error}");
    let error =
        Db::open("/store", options(&vfs).filtering(|f| f.prefix_extractor(Prefix::fixed(0))))
            .unwrap_err();
    assert!(error.to_string().contains("fixed:0"), "{error}");
}

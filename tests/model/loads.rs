//! Sorted entries loaded past the log: against a model, beside writers and readers, with a disk
//! that fails at every call, and with input that is refused.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trommel::vfs::Vfs;
use trommel::{Db, Error, Options, Snapshot, WriteBatch};
use trommel_sim::{Failure, Fault, MemoryVfs, Policy, SimDisk, WallClock};

use crate::rng::Rng;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn small(vfs: impl Vfs + 'static) -> Options {
    Options::default()
        .vfs(Arc::new(vfs))
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(8 << 10))
        .compaction(|c| c.table_bytes(8 << 10).base_level_bytes(32 << 10).l0_trigger(2))
}

fn entries(db: &Db) -> State {
    db.iter().map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

fn load(db: &Db, new: &State) -> trommel::Result<trommel::LoadReport> {
    db.load_sorted(new.iter().map(Ok))
}

#[test]
fn loads_match_a_model() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let vfs = MemoryVfs::new();
        let threads = rng.below(3);
        let options = || small(vfs.clone()).background_threads(threads);
        let (mut db, mut model) = (Db::open("db", options()).unwrap(), State::new());
        let follower = Db::open_follower("db", options()).unwrap();
        let mut held: Vec<(Snapshot, State)> = Vec::new();
        for round in 0..120 {
            let key = |rng: &mut Rng| format!("{:03}", rng.below(500)).into_bytes();
            match rng.below(12) {
                0..3 => {
                    let (count, from) = (rng.below(300), rng.below(500));
                    let new = (from..from + count).filter(|_| rng.once_in(2));
                    let new: State = new
                        .map(|n| (format!("{n:03}").into_bytes(), format!("load {round}").into()))
                        .collect();
                    let report = load(&db, &new).unwrap();
                    assert_eq!(report.entries, new.len() as u64);
                    assert!(db.snapshot().seqno() >= report.seqno);
                    model.extend(new);
                }
                3 => {
                    let (from, to) = (key(&mut rng), key(&mut rng));
                    db.delete_range(&from[..]..&to[..]).unwrap();
                    model.retain(|key, _| !(from <= *key && *key < to));
                }
                4 => held.push((db.snapshot(), model.clone())),
                5 => db.flush().unwrap(),
                6 if rng.once_in(3) => db.compact_all().unwrap(),
                7 if rng.once_in(3) => {
                    held.clear();
                    drop(db);
                    db = Db::open("db", options()).unwrap();
                }
                _ => {
                    for _ in 0..rng.below(60) {
                        let (key, value) = (key(&mut rng), format!("put {round}").into_bytes());
                        db.put(&key, &value).unwrap();
                        model.insert(key, value);
                    }
                }
            }
            if rng.once_in(4) {
                follower.catch_up().unwrap();
                assert_eq!(entries(&follower), model, "seed {seed}, round {round}");
            }
            assert_eq!(entries(&db), model, "seed {seed}, round {round}");
            // A lookup stops at the first level that has the key.
            for key in (0..20).map(|_| format!("{:03}", rng.below(500)).into_bytes()) {
                let wanted = model.get(&key).map(Vec::as_slice);
                assert_eq!(db.get(&key).unwrap().as_deref(), wanted, "seed {seed}, round {round}");
            }
            for (snapshot, state) in &held {
                let found = snapshot.iter().map(|entry| entry.unwrap().0.to_vec());
                assert!(found.eq(state.keys().cloned()), "seed {seed}, round {round}");
            }
        }
        db.verify().unwrap();
    }
}

/// Entries that overlap nothing go to the last level, and are written once.
#[test]
fn what_overlaps_nothing_is_written_once() {
    let db = Db::open("db", small(MemoryVfs::new())).unwrap();
    for part in 0..4_u32 {
        let sorted = (0..2_000_u32).map(|n| Ok((format!("{part}{n:04}"), [7; 40])));
        let report = db.load_sorted(sorted).unwrap();
        assert_eq!((report.level, report.entries), (6, 2_000));
        assert!(report.tables > 2, "{report:?}");
    }
    db.wait_idle().unwrap();
    let stats = db.stats();
    assert_eq!(stats.background.compactions.bytes_written, 0, "{stats}");
    assert_eq!((stats.levels.len(), stats.writes.log_bytes), (1, 0), "{stats}");
    assert_eq!(db.iter().count(), 8_000);
    // Above what it overlaps.
    let report = db.load_sorted([Ok(("1", "x")), Ok(("10005", "y"))]).unwrap();
    assert_eq!(report.level, 5);
    assert_eq!(db.get("10005").unwrap().unwrap(), b"y");
    let empty: [trommel::Result<(&str, &str)>; 0] = [];
    assert_eq!(db.load_sorted(empty).unwrap().tables, 0);
}

/// Planted: a lookup found the older entries of the levels above those of the load.
#[test]
fn a_load_replaces_what_is_in_memory_and_in_level_0() {
    let db = Db::open("db", small(MemoryVfs::new())).unwrap();
    let all = ["000", "250", "500"];
    all.iter().for_each(|key| _ = db.put(key, "flushed").unwrap());
    db.flush().unwrap();
    db.put("250", "in memory").unwrap();
    let report = db.load_sorted(all.map(|key| Ok((key, "loaded")))).unwrap();
    assert_eq!(report.level, 0);
    for key in all {
        assert_eq!(db.get(key).unwrap().unwrap(), b"loaded");
    }
    assert!(entries(&db).values().all(|value| value == b"loaded"));
}

#[test]
fn input_that_is_refused_changes_nothing() {
    let disk = SimDisk::new();
    let db = Db::open("db", small(disk.clone())).unwrap();
    db.put("a", "1").unwrap();
    let files = || disk.list(Path::new("db")).unwrap();
    let before = files();
    let sorted = (0..5_000).map(|n| format!("{n:05}"));
    let refused = |last: trommel::Result<(String, String)>| {
        let good = sorted.clone().map(|key| Ok((key, "value".to_owned())));
        db.load_sorted(good.chain([last])).unwrap_err()
    };
    let of = |key: &str| Ok((key.to_owned(), String::new()));
    for key in ["04999", "0", ""] {
        let error = refused(of(key));
        assert!(matches!(error, Error::Unsorted { position: 5_000 }), "{error}");
    }
    assert!(matches!(refused(of(&"x".repeat(70_000))), Error::KeyTooLong { bytes: 70_000 }));
    assert!(matches!(refused(Err(Error::Closed)), Error::Closed));
    assert_eq!((entries(&db).len(), files()), (1, before));
    assert!(matches!(db.load_sorted([Err::<(&str, &str), _>(Error::Closed)]), Err(Error::Closed)));
    db.load_sorted([Ok(("", "an empty key is a key")), Ok(("a", "2"))]).unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), b"2");
    let reader = Db::open_follower("db", small(disk.clone())).unwrap();
    assert!(matches!(reader.load_sorted([Ok(("a", "3"))]), Err(Error::ReadOnly)));
}

/// A load is a write like any other for what was read before.
/// Regression: all tables of a load had the filters of the uppermost level that any of its keys
/// could go to, so that one key in level 0 gave filters to a last level that has none.
#[test]
fn tables_of_a_load_have_the_filters_of_their_levels() {
    let options = small(MemoryVfs::new()).filtering(|f| f.filters_on_last_level(false));
    let db = Db::open("db", options.compaction(|c| c.auto_compaction(false))).unwrap();
    db.put("9", "in level 0").unwrap();
    db.flush().unwrap();
    let new = (0..20_000).map(|nth| (format!("{nth:05}9").into_bytes(), b"value".to_vec()));
    let report = load(&db, &new.chain([(b"9".to_vec(), b"new".to_vec())]).collect()).unwrap();
    assert_eq!(report.level, 0);
    let levels = db.stats().levels;
    let last = levels.last().unwrap();
    assert!(last.level > 0 && last.tables > 3 && last.entries > 10_000, "{levels:?}");
    assert_eq!(last.filter_bytes, 0, "{levels:?}");
    assert!(levels[0].filter_bytes > 0, "{levels:?}");
    assert_eq!(db.get("9").unwrap().unwrap(), b"new");
    db.verify().unwrap();
}

#[test]
fn a_transaction_conflicts_with_a_load() {
    for flush in [false, true] {
        let db = Db::open("db", small(MemoryVfs::new())).unwrap();
        db.put("other", "1").unwrap();
        let late = db.begin();
        assert_eq!(late.get("key").unwrap(), None);
        late.put("seen", "nothing").unwrap();
        db.load_sorted([Ok(("key", "loaded"))]).unwrap();
        if flush {
            db.flush().unwrap();
        }
        assert!(matches!(late.commit(), Err(Error::Conflict(_))), "{flush}");
        assert!(!db.insert_if_absent("key", "again").unwrap());
        assert!(db.compare_and_set("key", Some(b"loaded"), Some(b"2")).unwrap());
        assert_eq!(db.get("key").unwrap().unwrap(), b"2");
    }
}

#[test]
fn a_load_is_seen_whole_or_not_at_all_beside_writers() {
    const KEYS: [&str; 3] = ["a", "m", "z"];
    let db = Db::open("db", small(MemoryVfs::new()).background_threads(2)).unwrap();
    let round_of = |values: Vec<Option<trommel::Slice>>| {
        let rounds = values.into_iter().map(|value| {
            value.map_or(0, |value| String::from_utf8(value.to_vec()).unwrap().parse().unwrap())
        });
        let rounds: Vec<u64> = rounds.collect();
        assert!(rounds.iter().all(|round| *round == rounds[0]), "part of a load: {rounds:?}");
        rounds[0]
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !is_over.load(Ordering::Acquire) {
                    let snapshot = db.snapshot();
                    let round = round_of(snapshot.multi_get(&KEYS).unwrap());
                    assert!(round >= last, "{round} after {last}");
                    last = round_of(db.multi_get(&KEYS).unwrap());
                    assert!(last >= round);
                    assert_eq!(round_of(snapshot.multi_get(&KEYS).unwrap()), round);
                }
            });
        }
        scope.spawn(|| {
            for number in 0_u64.. {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                let mut batch = WriteBatch::new();
                batch.put(format!("k{:03}", number % 700), [1; 60]);
                db.write(batch).unwrap();
            }
        });
        for round in 1..=40_u64 {
            load_round(&db, &KEYS, round);
            assert_eq!(round_of(db.multi_get(&KEYS).unwrap()), round);
        }
        is_over.store(true, Ordering::Release);
    });
    db.verify().unwrap();
}

fn load_round(db: &Db, keys: &[&str], round: u64) {
    db.load_sorted(keys.iter().map(|key| Ok((key, round.to_string())))).unwrap();
}

/// Whichever call to the disk fails, and whatever a power cut then leaves: all of the entries are
/// there, or none, and what was there before.
#[test]
fn a_load_torn_at_any_call_is_whole_or_gone() {
    let before: State =
        (0..200).map(|n| (format!("{n:03}").into_bytes(), b"before".to_vec())).collect();
    let new: State =
        (100..600).map(|n| (format!("{n:03}").into_bytes(), b"loaded".to_vec())).collect();
    let after: State = before.clone().into_iter().chain(new.clone()).collect();
    let mut outcomes = [0; 3];
    for calls in 0.. {
        let disk = SimDisk::new();
        let db = Db::open("db", small(disk.clone())).unwrap();
        before.iter().for_each(|(key, value)| _ = db.put(key, value).unwrap());
        db.sync().unwrap();
        disk.inject(Fault::new(Failure::Io).after(calls).lasting());
        let loaded = load(&db, &new);
        let is_over = disk.faults_fired() == 0;
        for policy in [Policy::EVERYTHING, Policy::SYNCED] {
            let left = disk.crash(policy, calls).disk();
            let again = Db::open("db", small(left.clone())).unwrap();
            let found = entries(&again);
            assert!(found == before || found == after, "call {calls}: {} keys", found.len());
            assert!(
                loaded.is_err() || found == after,
                "call {calls}: an acknowledged load is lost"
            );
            again.verify().unwrap();
            // An open that had to drop bytes leaves all files to the next one.
            drop(again);
            let again = Db::open("db", small(left.clone())).unwrap();
            let tables = again.table_ids().len();
            let files = left.list(Path::new("db")).unwrap();
            let sst = files.iter().filter(|f| f.name.to_string_lossy().ends_with(".sst")).count();
            assert_eq!(sst, tables, "call {calls}: tables that nothing names");
            outcomes[usize::from(found == after) + usize::from(loaded.is_ok())] += 1;
        }
        if is_over {
            break;
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

/// The log of the time of a load may hold time marks only, with lower sequence numbers.
#[test]
fn a_load_is_recovered_in_a_store_whose_entries_expire() {
    let (disk, clock) = (Arc::new(SimDisk::new()), WallClock::default());
    let open = |disk: Arc<SimDisk>| {
        let options = small(MemoryVfs::new()).vfs(clock.over(disk));
        Db::open("db", options.writes(|w| w.ttl(Duration::from_secs(100))))
    };
    let db = open(Arc::clone(&disk)).unwrap();
    for round in 0..4 {
        clock.advance(Duration::from_secs(20));
        db.load_sorted([Ok((format!("load{round}"), "1"))]).unwrap();
        clock.advance(Duration::from_secs(20));
        db.put(format!("put{round}"), "1").unwrap();
        let left = Arc::new(disk.crash(Policy::EVERYTHING, 0).disk());
        let again = open(left).unwrap();
        assert_eq!(entries(&again), entries(&db), "round {round}");
        assert!(again.get(format!("load{round}")).unwrap().is_some());
    }
    assert_eq!(db.get("load0").unwrap(), None, "it has expired");
}

/// Regression: a load had no time mark, so it expired with the last write before it.
#[test]
fn a_load_lasts_as_long_as_a_write_of_its_time() {
    let clock = WallClock::default();
    let ttl = Duration::from_secs(100);
    let options = small(MemoryVfs::new()).vfs(clock.over(Arc::new(SimDisk::new())));
    let db = Db::open("db", options.writes(|w| w.ttl(ttl))).unwrap();
    db.put("old", "1").unwrap();
    clock.advance(3 * ttl);
    db.load_sorted([Ok(("loaded", "1"))]).unwrap();
    clock.advance(Duration::from_secs(98));
    assert!(db.get("loaded").unwrap().is_some());
    assert_eq!(db.get("old").unwrap(), None);
    clock.advance(Duration::from_secs(4));
    assert_eq!(db.get("loaded").unwrap(), None);
}

/// Regression: a load that went on after its store was closed created tables in a directory that
/// was another owner's by then, with file numbers that this one gave out, too: its flush failed.
#[test]
fn a_load_that_outlives_its_store_creates_nothing() {
    let vfs = MemoryVfs::new();
    let files = || vfs.list(Path::new("db")).unwrap().len();
    let (first, mut next) = (Db::open("db", small(vfs.clone())).unwrap(), None);
    let late = (0..5000).map(|nth| {
        let (_, files_before) = next.get_or_insert_with(|| {
            first.clone().close().unwrap();
            let db = Db::open("db", small(vfs.clone())).unwrap();
            (db, files())
        });
        assert_eq!(files(), *files_before, "entry {nth}");
        Ok((format!("{nth:05}"), "late"))
    });
    let failed = first.load_sorted(late);
    let (db, _) = next.expect("it is open");
    for nth in 0..5 {
        db.put("own", [nth]).unwrap();
        db.flush().unwrap();
    }
    assert!(matches!(failed, Err(Error::Closed)), "{failed:?}");
    assert_eq!(entries(&db).len(), 1);
}

//! Bugs that the sequences found, each minimised to a few steps; and bugs of other stores.
//!
//! # Historic bugs, and the tests that would find them here
//!
//! `tests/tidy` checks that each test exists. Bugs that are also planted are in
//! `docs/planted-bugs.md`, each with the test that finds it.
//!
//! **F: the order of versions, and compaction**
//!
//! | seen before in | test |
//! |---|---|
//! | leveldb#320: versions of one key in two tables of a level | 1 |
//! | leveldb#184, rocksdb#2722, badger#2143: deleted keys reappear | 2, 3, 4 |
//! | lsm-tree#315: a table passes an older run | 3, 5 |
//! | lsm-tree#321, pebble#1285: the oldest snapshot's version is dropped | 6, 7 |
//! | rocksdb 6.11: two compactions of the same tables | 8 |
//! | rocksdb 8.7.0: a read error ends a compaction | 9 |
//! | rocksdb 6.6.0: the order within level 0 | 5, 10 |
//! | fjall#112, fjall#230: lost inserts with several workers | 10, 11 |
//! | fjall#241: `clear` is not in the log | there is no `clear` |
//!
//! * 1: `model::regressions::versions_of_one_key_never_lie_in_two_tables_of_a_level`,
//!   `engine::compaction::cut::outputs_end_at_the_target_size_but_never_between_versions_of_a_key`
//! * 2: `model::regressions::deleted_keys_stay_away_though_levels_are_skipped`
//! * 3: `engine::compaction::plan::nothing_passes_older_data_on_its_way_down`
//! * 4: `engine::compaction::older::every_place_that_could_be_older_is_searched`
//! * 5: `engine::compaction::tests::simulator::no_merge_changes_any_answer`
//! * 6: `engine::compaction::merge::the_version_that_the_oldest_snapshot_needs_stays`
//! * 7: `model::regressions::each_snapshot_keeps_its_version_through_flush_and_merge`
//! * 8: `engine::compaction::plan::a_plan_made_from_an_older_state_does_not_start`
//! * 9: `crash::faults::a_disk_that_fails_while_the_store_works`
//! * 10: `model::sequences::in_memory_with_two_threads`
//! * 11: `model::threads::linearizable::all_calls_fit_into_one_order`
//!
//! **G: snapshots and threads**
//!
//! | seen before in | test |
//! |---|---|
//! | rocksdb PR#9648: a snapshot between a flush's choice and its end | 7, 12 |
//! | pebble PR#751: taking a snapshot is not atomic | 11, 12, 13 |
//! | fjall#198, lsm-tree#180: half of a batch is visible | 13, 14 |
//! | rocksdb PR#1813: a get during a flush | 11, 15 |
//! | sled#411: writes of several threads are lost at a restart | 14, 16 |
//! | rocksdb#13429: a partial batch after a failed insert | 13; inserts cannot fail |
//! | rocksdb PR#14830, fjall#257: nobody flushes, all wait | 17, 18 |
//! | fjall PR#319: a panic while locks are held | 19 |
//!
//! * 12: `schedules::flush::takes_snapshots_while_versions_are_dropped`
//! * 13: `model::threads::moments::a_batch_is_seen_whole_or_not_at_all`
//! * 14:
//!   `model::threads::bank::the_sum_of_all_accounts_is_the_same_whoever_looks_and_whenever`
//! * 15: `schedules::flush::flushes_against_readers`
//! * 16: `model::threads::closing::closing_under_load_loses_nothing_and_hangs_nobody`,
//!   `crash::images::two_threads`
//! * 17: `model::liveness::a_flush_waits_for_its_own_memtables_only`
//! * 18: `schedules::ends::stops_and_wakes_writers`
//! * 19: `schedules::ends::tells_stopped_writers_of_poison`
//!
//! **H: filters**
//!
//! | seen before in | test |
//! |---|---|
//! | rocksdb 9.5.0, 6.20, 5.15: keys hidden at the edges of partitions and prefixes | 20, 21, 22 |
//! | lsm-tree 1bcca8b1: no filter if a table ends at a partition boundary | 20, 23 |
//! | cqlite#1398: a flipped bit hides a key | 24 |
//! | rocksdb PR#9342: a filter is corrupted in memory while it is built | 25: `verify` finds it |
//! | fjall 4b4d837: the filter policy is not applied | 26 |
//!
//! * 20: `model::cuts::cut_filters_meet_their_theory_and_deny_no_key`
//! * 21: `model::prefixes::ranges_at_the_edges_of_a_prefix_are_whole`
//! * 22: `filter::conformance::no_key_is_ever_denied`
//! * 23: `sstable::table::filter_shapes::no_key_and_no_prefix_is_denied_in_any_shape_and_place`
//! * 24: `damage::flips::flips_in_a_closed_store_with_paired_filters`
//! * 25: `model::user_filters::a_filter_that_denies_its_keys_is_found_and_drops_no_tombstone`,
//!   with a filter that denies its keys for another reason: only `verify` detects a filter that was
//!   corrupted before its checksum was computed
//! * 26: `model::report::the_report_says_which_filter_each_level_was_given`
//!
//! **L: integers and sizes**
//!
//! | seen before in | test |
//! |---|---|
//! | redb PR#516: offsets above 4 GiB | 27: arithmetic only |
//! | lsm-tree 3171c668: 32 bits in the planner | 28: arithmetic only |
//! | redb: 65,536 entries in one leaf | 29 |
//! | lsm-tree#211: keys without their prefix are compared wrongly | 30 |
//!
//! * 27: `sstable::index::blocks_behind_4_gib_are_found`. No test writes a file of more than
//!   4 GiB: that takes too much space and time. A log's record and a batch are rejected above
//!   4 GiB; no test gets there
//! * 28: the case "sizes beyond 32 bits" of `debt.txt`, which
//!   `engine::compaction::tests::transcripts::the_planner_answers_as_its_transcripts_say` plays,
//!   and `engine::compaction::pressure::senseless_options_do_no_harm`
//! * 29: `sstable::table::limits::a_block_holds_at_most_65535_entries_and_at_most_its_limit`
//! * 30: `memtable::conformance::a_common_prefix_changes_no_order`,
//!   `sstable::index::find_agrees_with_a_search_over_whole_separators`
//!
//! **M: the memtable**
//!
//! | seen before in | test |
//! |---|---|
//! | crossbeam#1023: a key that is overwritten vanishes for a while | 31 |
//!
//! * 31: `memtable::conformance::an_inserted_key_is_found_by_every_thread`,
//!   `memtable::conformance::a_second_entry_of_one_key_and_sequence_number_panics`; over a whole
//!   store, 11

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use trommel::inspect::{Manifest, Table};
use trommel::{Compression, Db, Error, Options, WriteOptions};
use trommel_sim::{Failure, Fault, MemoryVfs, OpKind, SimDisk};

/// Runs `test` in a thread of its own; panics if it does not return.
fn comes_back(what: &str, test: impl FnOnce() + Send + 'static) {
    let (done, outcome) = channel();
    let thread = std::thread::spawn(move || {
        test();
        done.send(()).unwrap();
    });
    if let Err(RecvTimeoutError::Timeout) = outcome.recv_timeout(Duration::from_secs(120)) {
        panic!("{what} does not come back");
    }
    thread.join().unwrap();
}

/// A store that already has some tens of KiB in three levels: the third is created from four times
/// the base level's size on, with a ratio of 2.
fn tiny() -> Options {
    Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(8 << 10))
        .reads(|r| r.block_bytes(256))
        .compaction(|c| {
            c.table_bytes(4 << 10).base_level_bytes(8 << 10).level_ratio(2).l0_trigger(1)
        })
}

/// A memtable with a single key, of 50,000 bytes, used to pass all of it to its successor as the
/// expected prefix; the successor, though empty, was then larger than the write buffer, so it was
/// "full", was not frozen because it was empty, and the writer looped forever.
#[test]
fn one_giant_key_leaves_room_for_the_next_write() {
    comes_back("the write", || {
        let db = Db::open("/store", tiny()).unwrap();
        db.put(vec![7; 50_000], b"").unwrap();
        db.flush().unwrap();
        db.put(b"k", b"v").unwrap();
        db.close().unwrap();
    });
}

/// Without background threads a compaction that found compactions paused used to sleep until
/// another call happened to work; the end of the pause did not wake it.
#[test]
fn a_compaction_goes_on_when_the_pause_is_over() {
    comes_back("compact_all", || {
        let db = Db::open("/store", tiny()).unwrap();
        db.put(b"k", b"v").unwrap();
        db.pause_compaction().unwrap();
        std::thread::scope(|scope| {
            let compacting = scope.spawn(|| db.compact_all().unwrap());
            while db.stats().background.flushes.count == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(50));
            assert!(!compacting.is_finished(), "compaction is paused");
            db.resume_compaction();
        });
    });
}

/// A read-only store whose tree needs compaction used to wait forever for it.
#[test]
fn a_read_only_store_is_idle() {
    comes_back("wait_idle", || {
        let options = tiny();
        let db =
            Db::open("/store", options.clone().compaction(|c| c.auto_compaction(false))).unwrap();
        for round in 0..5 {
            db.put(b"k", [round]).unwrap();
            db.flush().unwrap();
        }
        db.close().unwrap();
        let db = Db::open_read_only("/store", options).unwrap();
        db.wait_idle().unwrap();
    });
}

/// The second of two closers used to end the background work at once, and with it the flush that
/// the first one waited for: without a log, the last memtable was lost.
#[test]
fn two_may_close_at_once() {
    comes_back("closing", || {
        for round in 0..300_u32 {
            let options = tiny().background_threads(1).writes(|w| w.log(false));
            let db = Db::open("/store", options.clone()).unwrap();
            db.put(b"k", round.to_string()).unwrap();
            std::thread::scope(|scope| {
                let second = db.clone();
                scope.spawn(move || second.close().unwrap());
                db.close().unwrap();
            });
            let db = Db::open("/store", options).unwrap();
            assert_eq!(db.get(b"k").unwrap().unwrap(), *round.to_string().as_bytes());
        }
    });
}

/// A synced write to a store without a log flushes once it is visible. If the store was closed in
/// between, the write used to poison it, because it was closed, and the memtable that the close had
/// frozen was lost.
#[test]
fn a_synced_write_without_a_log_does_not_spoil_a_close() {
    comes_back("closing during a synced write", || {
        for round in 0..400_u32 {
            let options = tiny().background_threads(1).writes(|w| w.log(false));
            let db = Db::open("/store", options.clone()).unwrap();
            db.put(b"k", round.to_string()).unwrap();
            std::thread::scope(|scope| {
                let writer = db.clone();
                scope.spawn(move || {
                    let put = writer.put_with(b"other", b"v", WriteOptions::sync());
                    assert!(matches!(put, Ok(_) | Err(Error::Closed)), "{put:?}");
                });
                db.close().unwrap();
            });
            let db = Db::open("/store", options).unwrap();
            assert_eq!(db.get(b"k").unwrap().unwrap(), *round.to_string().as_bytes());
        }
    });
}

/// Writes, or closes the store, when dropped while its thread unwinds.
struct Owner {
    db: Option<Db>,
    writes: bool,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let Some(db) = self.db.take() else { return };
        if self.writes {
            // Each fills a memtable, which this thread flushes itself.
            for n in 0..4 {
                db.put(format!("last words {n}"), vec![7; 8 << 10]).unwrap();
            }
        }
    }
}

/// A write in a destructor while its thread unwound used to poison the store, though nothing of the
/// store's had failed; a flush by that write was counted as ended twice; and a store without a log
/// whose last handle such a thread dropped lost its memtable.
#[test]
fn a_thread_that_unwinds_may_write_and_close() {
    for writes in [true, false] {
        let vfs = Arc::new(MemoryVfs::new());
        let options = || tiny().vfs(Arc::clone(&vfs) as _).writes(|w| w.log(false));
        let db = Db::open("/store", options()).unwrap();
        db.put("before", "v").unwrap();
        let kept = writes.then(|| db.clone());
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _owner = Owner { db: Some(db), writes };
            std::panic::resume_unwind(Box::new("planned"));
        }));
        assert!(caught.is_err());
        if let Some(db) = kept {
            db.put("after", "v").unwrap();
            db.close().unwrap();
        }
        let db = Db::open("/store", options()).unwrap();
        assert!(db.get("before").unwrap().is_some(), "writes: {writes}");
        assert_eq!(db.get("last words 3").unwrap().is_some(), writes);
        assert_eq!(db.get("after").unwrap().is_some(), writes);
    }
}

/// A checkpoint of a closed store used to report that the store was read-only; waiting for it to be
/// idle, or pausing it, succeeded.
#[test]
fn a_closed_store_says_so() {
    let db = Db::open("/store", tiny()).unwrap();
    let clone = db.clone();
    db.close().unwrap();
    for refused in [clone.wait_idle(), clone.pause_compaction(), clone.checkpoint("/copy")] {
        assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    }
}

/// A level that had lost its data used to keep a row of its own in the filter report, under the
/// number of the level that had replaced it: two rows were named "L1".
#[test]
fn the_report_has_one_row_for_each_level_and_kind() {
    let db = Db::open("/store", tiny().filters("paired:10".parse().unwrap())).unwrap();
    for key in 0..1500 {
        let key = key * 7919 % 1500;
        db.put(format!("{key:05}"), [0; 100]).unwrap();
        db.get(format!("{key:05}x")).unwrap();
    }
    assert!(db.stats().levels.len() > 2, "{}", db.stats());
    db.compact_all().unwrap();
    let report = db.filter_report();
    let rows: Vec<_> = report.levels.iter().map(|row| (row.level, row.kind.name())).collect();
    let distinct: BTreeSet<_> = rows.iter().collect();
    assert_eq!(distinct.len(), rows.len(), "{report}");
    assert!(report.levels.iter().all(|row| row.counts.probes > 0), "{report}");
}

/// Without a file handle left a log used to be created whose directory could not be synced. The
/// write failed but the log stayed. The next log named the same predecessor, and at the next open
/// the store was reported as corrupt.
#[test]
fn a_log_that_could_not_be_begun_is_taken_back() {
    comes_back("the store", || {
        let disk = SimDisk::new();
        let options = tiny().vfs(Arc::new(disk.clone()));
        let db = Db::open("/store", options.clone()).unwrap();
        disk.inject(Fault::new(Failure::TooManyOpenFiles).on(OpKind::Create).named(".log"));
        disk.inject(Fault::new(Failure::TooManyOpenFiles).on(OpKind::SyncDir));
        let (mut written, mut refused) = (Vec::new(), 0);
        for number in 0..60_u64 {
            match db.put(number.to_le_bytes(), [7; 500]) {
                Ok(_) => written.push(number),
                Err(_) => refused += 1,
            }
        }
        // A new log is started after the write that filled the memtable; if that fails, the next
        // write retries.
        assert_eq!((refused, written.len(), disk.faults_fired()), (0, 60, 2));
        drop(db);
        let db = Db::open("/store", options).unwrap();
        for number in written {
            assert_eq!(db.get(number.to_le_bytes()).unwrap().unwrap(), [7; 500]);
        }
    });
}

/// Two tables of a level that shared a key were moved apart, and the older version was found first
/// (leveldb 320). Snapshots retain so many versions here that one key is larger than a table.
#[test]
fn versions_of_one_key_never_lie_in_two_tables_of_a_level() {
    let db = Db::open("/store", tiny().compression(Compression::None)).unwrap();
    let mut snapshots = Vec::new();
    for round in 0..60_u64 {
        for key in ["a", "b", "wide", "y", "z"] {
            db.put(key, [round.to_le_bytes().as_slice(), &[7; 400]].concat()).unwrap();
        }
        snapshots.push((round, db.snapshot()));
        if round % 20 == 19 {
            db.compact_all().unwrap();
        }
    }
    for (round, snapshot) in &snapshots {
        let found = snapshot.get("wide").unwrap().unwrap();
        assert_eq!(found[..8], round.to_le_bytes());
    }
    // The snapshots are held during the check, so that nothing is dropped.
    let vfs = db.vfs();
    let tables = Manifest::in_force(vfs.as_ref(), Path::new("/store")).unwrap().info().unwrap();
    let mut homes: BTreeMap<(usize, Vec<u8>), BTreeSet<u64>> = BTreeMap::new();
    let mut versions = 0;
    for table in tables.contents.tables.iter().filter(|table| table.stored_level > 0) {
        let number = table.meta.number;
        let path = format!("/store/{number:06}.sst");
        let file = Table::open(vfs.as_ref(), Path::new(&path)).unwrap();
        for entry in file.scan(Bound::Unbounded, Bound::Unbounded).unwrap() {
            let entry = entry.unwrap();
            homes.entry((table.stored_level, entry.key.to_vec())).or_default().insert(number);
            versions += 1;
        }
    }
    assert!(versions >= 5 * 60, "{versions} versions");
    let apart: BTreeSet<_> = homes.values().flatten().collect();
    assert!(apart.len() >= 5, "all in {} tables: nothing could straddle", apart.len());
    for ((level, key), tables) in &homes {
        assert_eq!(tables.len(), 1, "level {level}: {key:?} lies in {tables:?}");
    }
}

/// Level 0 was compacted into the last level past one that held older data, and tombstones were
/// dropped on the way: deleted keys reappeared (leveldb 184, rocksdb 2722, badger 2143).
#[test]
fn deleted_keys_stay_away_though_levels_are_skipped() {
    let db = Db::open("/store", tiny()).unwrap();
    let key = |number: usize| format!("{number:04}");
    let mut there: BTreeSet<String> = BTreeSet::new();
    for round in 0..24_usize {
        for number in (0..900).step_by(1 + round % 3) {
            db.put(key(number), [round as u8; 60]).unwrap();
            there.insert(key(number));
        }
        // Occasionally everything goes to one level, so that those in between are empty.
        match round % 4 {
            0 => db.compact_all().unwrap(),
            1 => db.compact_range(key(200)..key(400)).unwrap(),
            _ => {}
        }
        let gone: Vec<String> = (round * 31 % 700..).take(150).map(key).collect();
        for key in &gone {
            db.delete(key).unwrap();
            there.remove(key);
        }
        db.flush().unwrap();
        for key in &gone {
            assert_eq!(db.get(key).unwrap(), None, "round {round}: {key} is back");
        }
        db.compact_range(key(round * 40)..key(round * 40 + 90)).unwrap();
        let found: Vec<_> = db.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
        assert!(found.iter().eq(there.iter().map(String::as_bytes)), "round {round}");
    }
    assert!(db.stats().levels.len() > 2, "{}", db.stats());
    db.compact_all().unwrap();
    assert_eq!(db.iter().count(), there.len());
}

/// A snapshot taken while a flush had already chosen what to keep found its versions dropped
/// (rocksdb PR 9648); other stores lost the version of the oldest snapshot (lsm-tree 321, pebble
/// 1285). Here snapshots are taken all the time while flushes and compactions run.
#[test]
fn each_snapshot_keeps_its_version_through_flush_and_merge() {
    comes_back("flushes and snapshots", || {
        let db = Db::open("/store", tiny().background_threads(2)).unwrap();
        std::thread::scope(|scope| {
            let merging = scope.spawn(|| {
                for _ in 0..60 {
                    db.flush().unwrap();
                    db.compact_all().unwrap();
                }
            });
            let mut held = Vec::new();
            for round in 0_u64.. {
                if merging.is_finished() && round > 2_000 {
                    break;
                }
                // A single key, overwritten: each version is hidden at once by the next one.
                db.put("k", [round.to_le_bytes().as_slice(), &[7; 120]].concat()).unwrap();
                held.push((round, db.snapshot()));
                if held.len() > 40 {
                    let at = (round as usize * 7) % held.len();
                    let (round, snapshot) = held.swap_remove(at);
                    let found = snapshot.get("k").unwrap().expect("it was written before");
                    assert_eq!(found[..8], round.to_le_bytes());
                }
            }
        });
        assert!(
            db.stats().background.flushes.count >= 10
                && db.stats().background.compactions.count > 0,
            "{}",
            db.stats()
        );
    });
}

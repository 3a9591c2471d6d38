//! Compactions shared by several threads, compared with a map.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trommel_sim::{Failure, Fault, OpKind, SimDisk};
use trommel_vfs::Vfs;

use super::super::in_progress::InProgress;
use super::super::plan::{Plan, plan};
use super::Rng;
use crate::compaction_job::share::Help;
use crate::compaction_job::{Polling, edit};
use crate::engine::Engine;
use crate::shared_merge::{MergeSlice, SharedMerge};
use crate::{Compression, Db, Error, Options};

pub(super) const KEYS: u64 = 400;

pub(super) type Content = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) fn open(disk: &SimDisk) -> Db {
    Db::open("db", options(Arc::new(disk.clone())).background_threads(0)).unwrap()
}

/// Small tables and blocks; nothing is compacted automatically.
pub(super) fn options(vfs: Arc<dyn Vfs>) -> Options {
    Options::default()
        .vfs(vfs)
        .compaction(|c| {
            c.auto_compaction(false).table_bytes(4 << 10).base_level_bytes(16 << 10).l0_trigger(4)
        })
        .compression(Compression::None)
        .reads(|r| r.block_bytes(256))
        .writes(|w| w.spare_file_bytes(0))
}

/// Four runs of level 0 with new versions of keys, some of which are deleted.
pub(super) fn write(db: &Db, rng: &mut Rng, content: &mut Content) {
    for _ in 0..4 {
        for _ in 0..KEYS / 2 {
            let key = format!("key{:04}", rng.next() % KEYS).into_bytes();
            if rng.next().is_multiple_of(5) {
                db.delete(&key).unwrap();
                content.remove(&key);
            } else {
                let value = rng.next().to_le_bytes().repeat(4);
                db.put(&key, &value).unwrap();
                content.insert(key, value);
            }
        }
        db.flush().unwrap();
    }
}

/// The whole compaction of a plan, whose subranges after the first begin at these keys.
fn merge_of(engine: &Engine, plan: &Plan, bounds: Vec<Box<[u8]>>) -> Arc<SharedMerge> {
    let slice = MergeSlice::whole(plan.clone(), bounds);
    SharedMerge::new(slice, engine.purpose(plan), engine.version())
}

/// The next compaction of the store, in subranges.
fn next_merge(engine: &Engine) -> Option<Arc<SharedMerge>> {
    let options = engine.options.load().planner();
    let plan: Plan =
        plan(&engine.version(), &InProgress::default(), &options, engine.snapshots.oldest())?;
    let bounds = engine.subrange_bounds(&plan).unwrap();
    Some(merge_of(engine, &plan, bounds))
}

pub(super) fn assert_holds(db: &Db, content: &Content) {
    let entries =
        db.range(..).map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
    assert!(entries.map(Result::unwrap).eq(content.clone()));
}

/// Runs the compaction with a thread for each two takings of subranges; returns the number of
/// takings.
fn run_shared(engine: &Engine, merge: &Arc<SharedMerge>) -> crate::Result<usize> {
    let taken: Vec<_> = std::iter::from_fn(|| merge.take()).collect();
    let mut outputs = engine.outputs(merge);
    let outcome = std::thread::scope(|scope| {
        for subranges in taken.chunks(2) {
            scope.spawn(|| {
                subranges.iter().for_each(|subranges| engine.help(merge, subranges.clone()));
            });
        }
        engine.merge_with_helpers(merge, &mut Polling::default(), &mut outputs)
    });
    let tables = outcome?.tables;
    for pair in tables.windows(2) {
        assert!(pair[0].largest < pair[1].smallest, "tables in order, no key in two");
    }
    engine.install(edit(&merge.plan, true, tables), None, None)?;
    outputs.keep();
    Ok(taken.len())
}

#[test]
fn shared_compactions_give_the_same_result_as_one_thread() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let (mut rng, mut content) = (Rng(7), Content::new());
    let (mut merges, mut taken) = ([0; 2], 0);
    for _ in 0..8 {
        let before = (db.snapshot(), content.clone());
        write(&db, &mut rng, &mut content);
        while let Some(merge) = next_merge(db.engine()) {
            if merge.plan.trivial_move {
                let tables = merge.plan.tables().map(|table| table.meta().clone()).collect();
                db.engine().install(edit(&merge.plan, true, tables), None, None).unwrap();
                continue;
            }
            merges[usize::from(merge.plan.lower.is_empty())] += 1;
            taken += run_shared(db.engine(), &merge).unwrap();
        }
        assert_holds(&db, &content);
        let (snapshot, content) = before;
        for number in 0..KEYS {
            let key = format!("key{number:04}").into_bytes();
            let value = snapshot.get(&key).unwrap().map(|value| value.to_vec());
            assert_eq!(value.as_ref(), content.get(&key));
        }
    }
    assert!(merges.into_iter().all(|count| count > 0), "into empty levels and others: {merges:?}");
    assert!(taken > merges.into_iter().sum::<usize>(), "{taken} of {merges:?}");
    db.verify().unwrap();
    drop(db);
    assert_holds(&open(&disk), &content);
}

#[test]
fn a_failure_of_any_thread_leaves_no_table() {
    for calls in 0.. {
        let disk = SimDisk::new();
        let db = open(&disk);
        let mut content = Content::new();
        write(&db, &mut Rng(3), &mut content);
        let merge = next_merge(db.engine()).unwrap();
        disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Create).named(".sst").after(calls));
        let outcome = run_shared(db.engine(), &merge);
        if disk.faults_fired() == 0 {
            assert!(calls > 3 && outcome.is_ok());
            break;
        }
        assert!(outcome.is_err_and(|error| error.is_shortage()), "after {calls} tables");
        let entries = disk.list(&db.engine().files.dir).unwrap();
        let files: BTreeSet<String> = entries
            .iter()
            .filter_map(|entry| Some(entry.name.to_str()?.to_owned()))
            .filter(|name| name.ends_with(".sst"))
            .collect();
        let version = db.engine().version();
        let known = version.tables().map(|(_, table)| format!("{:06}.sst", table.number)).collect();
        assert_eq!(files, known, "after {calls} tables");
        assert_holds(&db, &content);
    }
}

#[test]
fn a_helper_that_panicked_ends_the_merge_early() {
    let disk = SimDisk::new();
    let db = open(&disk);
    write(&db, &mut Rng(5), &mut Content::new());
    let merge = next_merge(db.engine()).unwrap();
    let subranges = merge.take().unwrap();
    assert!(subranges.start > 2, "the owner has more than two tables to write: {subranges:?}");
    drop(Help { merge: &merge, first: subranges.start, outcome: None });
    let before = disk.calls(OpKind::Create);
    let mut outputs = db.engine().outputs(&merge);
    let outcome = db.engine().merge_with_helpers(&merge, &mut Polling::default(), &mut outputs);
    assert!(matches!(outcome, Err(Error::Internal { .. })), "{outcome:?}");
    assert!(disk.calls(OpKind::Create) <= before + 1, "the owner stopped");
}

#[test]
fn subranges_are_about_a_table_each() {
    let disk = SimDisk::new();
    let db = open(&disk);
    let put = |keys: std::ops::Range<u64>| {
        for number in keys {
            db.put(format!("key{number:06}"), [7; 32]).unwrap();
        }
        db.flush().unwrap();
    };
    let subranges = || {
        let merge = next_merge(db.engine()).unwrap();
        (merge.whole().len() as u64, merge.plan.input_bytes() / (4 << 10))
    };
    // Into an empty level.
    (0..4).for_each(|run| put(100 * run..100 * run + 400));
    let (count, tables) = subranges();
    assert!((tables / 2..=tables + 1).contains(&count), "{count} of {tables}");
    // The existing data is at one end of the new data.
    db.compact_range(..).unwrap();
    put(1000..4000);
    (0..4).for_each(|run| put(run..run + 1));
    let (count, tables) = subranges();
    assert!((tables / 3..=tables + 1).contains(&count), "{count} of {tables}");
}

/// End to end: the offer, the wake-up and the search for work.
#[test]
fn idle_workers_take_part_while_a_caller_waits() {
    let disk = SimDisk::new();
    drop(open(&disk));
    let options = Options::default()
        .vfs(Arc::new(disk))
        .background_threads(2)
        .compaction(|c| c.auto_compaction(false).table_bytes(4 << 10))
        .compression(Compression::None)
        .reads(|r| r.block_bytes(256))
        .writes(|w| w.write_buffer_bytes(32 << 10));
    let db = Db::open("db", options).unwrap();
    let mut content = Content::new();
    let mut rng = Rng(11);
    // Repeated if the other thread is too late.
    for _ in 0..100 {
        write(&db, &mut rng, &mut content);
        db.compact_range(..).unwrap();
        assert_holds(&db, &content);
        if db.stats().background.compactions.shared > 0 {
            return;
        }
    }
    panic!("nobody took part in {} merges", db.stats().background.compactions.count);
}

#[test]
fn a_helper_takes_half_of_the_subranges_not_begun() {
    let db = open(&SimDisk::new());
    write(&db, &mut Rng(5), &mut Content::new());
    let plan = next_merge(db.engine()).unwrap().plan.clone();
    let merge = |subranges: u8| {
        merge_of(db.engine(), &plan, (1..subranges).map(|key| Box::from([key])).collect())
    };
    let takings = |merge: &SharedMerge| std::iter::from_fn(|| merge.take()).collect::<Vec<_>>();
    assert!(takings(&merge(1)).is_empty(), "the owner's one subrange");
    assert_eq!(takings(&merge(3)), [2..3, 1..2]);
    assert_eq!(takings(&merge(16)), [12..16, 8..12, 4..8, 2..4, 1..2]);
    let begun = merge(8);
    assert!((0..3).all(|subrange| begun.go_on(subrange)), "the owner is in subrange 3");
    assert_eq!(takings(&begun), [6..8, 5..6, 4..5]);
    assert!(!begun.go_on(3), "subrange 4 is another's");
    assert_eq!(begun.start(4), Some(&[4][..]));
    let over = merge(8);
    let (others, outcome) = over.end(Some(&Error::Closed));
    assert!(others.is_empty() && matches!(outcome, Err(Error::Closed)));
    assert!(takings(&over).is_empty(), "nothing is given away any more");
}

/// With just enough runs for a compaction that adds little to the base level, one more is waited
/// for, but not while a caller waits for an idle store.
#[test]
fn a_wait_for_idle_does_not_wait_for_more_runs() {
    for threads in [0, 2] {
        let options = options(Arc::new(SimDisk::new())).background_threads(threads);
        let db = Db::open(
            "db",
            options.compaction(|c| c.auto_compaction(true).base_level_bytes(1 << 20)),
        )
        .unwrap();
        let runs = |db: &Db| db.engine().version().levels[0].len();
        let mut content = Content::new();
        write(&db, &mut Rng(7), &mut content);
        assert_eq!(runs(&db), 4, "four small runs wait for a fifth");
        db.wait_idle().unwrap();
        assert_eq!(runs(&db), 0, "with {threads} threads");
        assert_holds(&db, &content);
        write(&db, &mut Rng(8), &mut content);
        assert_eq!(runs(&db), 4, "and wait again once nobody waits for them");
    }
}

/// Half the runs that trigger a compaction are compacted while a caller waits for an idle store,
/// unless the base level, which is rewritten, holds more than five times their bytes.
#[test]
fn a_wait_for_idle_compacts_few_runs_if_that_is_cheap() {
    for threads in [0, 2] {
        let options = options(Arc::new(SimDisk::new())).background_threads(threads);
        let db = Db::open(
            "db",
            options.compaction(|c| c.auto_compaction(true).base_level_bytes(1 << 20)),
        )
        .unwrap();
        // `keys` keys, over the same range for any number.
        let put = |keys: usize| {
            let numbers = (0..3000).step_by(3000 / keys);
            numbers.for_each(|number| {
                db.put(format!("key{number:06}"), [7; 32]).unwrap();
            });
            db.flush().unwrap();
        };
        let runs_at_rest = || {
            db.wait_idle().unwrap();
            db.engine().version().levels[0].len()
        };
        put(100);
        assert_eq!(runs_at_rest(), 1, "a single run is left alone, with {threads} threads");
        put(100);
        assert_eq!(db.engine().version().levels[0].len(), 2, "until somebody waits for rest");
        assert_eq!(runs_at_rest(), 0, "nothing lies below");
        (0..2).for_each(|_| put(100));
        assert_eq!(runs_at_rest(), 0, "about half as much lies below");
        put(3000);
        db.compact_all().unwrap();
        (0..2).for_each(|_| put(100));
        assert_eq!(runs_at_rest(), 2, "fifteen times as much lies below");
        put(100);
        assert_eq!(runs_at_rest(), 3, "ten times as much lies below");
        put(100);
        assert_eq!(runs_at_rest(), 0, "as many as the trigger says, with {threads} threads");
    }
}

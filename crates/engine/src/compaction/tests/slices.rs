//! Compactions that are installed in slices.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use trommel_base::{Cursor, MAX_SEQNO};
use trommel_sim::{Failure, Fault, OpKind, SimDisk};
use trommel_sstable::ScanOptions;
use trommel_vfs::{Layer, Vfs, WriteFile};

use super::super::in_progress::InProgress;
use super::super::key_range::total_bytes;
use super::super::plan::{Plan, plan};
use super::share::{Content, KEYS, assert_holds, options, write};
use super::{Rng, tree};
use crate::compaction_job::slices::{divide, even, least_bytes};
use crate::compaction_options::CompactionOptions;
use crate::shared_merge::MergeSlice;
use crate::{Db, DbCursor, Options, Range, Result, Slice, Snapshot};

/// A store whose base level may hold this many bytes.
fn open(disk: &SimDisk, base_level_bytes: u64) -> Db {
    let options = options(Arc::new(disk.clone())).background_threads(0);
    let options = options.writes(|w| w.write_buffer_bytes(32 << 10));
    Db::open("db", options.compaction(|c| c.base_level_bytes(base_level_bytes))).unwrap()
}

/// Fills a store with four runs of level 0 over tables of the last level; returns its contents
/// before these runs.
fn fill(db: &Db, content: &mut Content) -> (Snapshot, Content) {
    let mut rng = Rng(23);
    (0..3).for_each(|_| write(db, &mut rng, content));
    db.compact_all().unwrap();
    let before = (db.snapshot(), content.clone());
    write(db, &mut rng, content);
    before
}

/// The slices of the compaction of four runs over nine tables, each with its tables of the output
/// level.
fn slices(slice_bytes: u64, bounds: &[&str]) -> Vec<MergeSlice> {
    let runs = [(0, 34, "a", "z"), (0, 33, "a", "z"), (0, 32, "b", "y"), (0, 31, "a", "x")];
    let keys = ["b", "d", "f", "h", "j", "l", "n", "p", "r"];
    let tables = keys.iter().zip(1..).map(|(key, number)| (6, number, *key, *key));
    let version = tree(&runs.into_iter().chain(tables).collect::<Vec<_>>());
    let options = CompactionOptions { waits_for_runs: false, ..CompactionOptions::default() };
    let plan: Plan = plan(&version, &InProgress::default(), &options, MAX_SEQNO).unwrap();
    assert_eq!((plan.upper.len(), plan.lower.len(), plan.input_bytes()), (4, 9, 130));
    let bounds: Vec<_> = bounds.iter().map(|key| key.as_bytes().into()).collect();
    divide(plan, &bounds, slice_bytes, 20)
}

#[test]
fn a_merge_is_divided_where_tables_of_its_output_level_begin() {
    let reported = |slice: &MergeSlice| {
        let numbers = slice.plan.lower.iter().map(|table| table.number);
        let key = |key: &Option<Box<[u8]>>| {
            key.as_ref().map_or("-".to_owned(), |key| String::from_utf8_lossy(key).into_owned())
        };
        let bounds: Vec<_> = slice.bounds.iter().map(|bound| bound[0] as char).collect();
        assert_eq!(slice.plan.upper.len(), 4, "all runs belong to each");
        format!(
            "{}..{} {:?} {bounds:?} {:?}",
            key(&slice.from),
            key(&slice.to),
            numbers.collect::<Vec<_>>(),
            slice.table_bytes
        )
    };
    let all =
        |bytes| slices(bytes, &["c", "h", "i", "n", "q"]).iter().map(reported).collect::<Vec<_>>();
    assert_eq!(
        all(43),
        [
            "-..h [1, 2, 3] ['c'] Some(25)",
            "h..n [4, 5, 6] ['i'] Some(25)",
            "n..- [7, 8, 9] ['q'] Some(25)",
        ],
        "a subrange that begins where its slice does begins anyway"
    );
    let whole = ["-..- [1, 2, 3, 4, 5, 6, 7, 8, 9] ['c', 'h', 'i', 'n', 'q'] None"];
    assert_eq!(all(66), whole, "not two slices' worth");
    assert_eq!(all(0).len(), 9, "no slice is less than a table");
}

#[test]
fn tables_of_a_slice_divide_its_output_evenly() {
    let cases =
        [(200, 113), (249, 141), (250, 94), (149, 168), (150, 85), (70, 79), (30, 75), (0, 75)];
    for (bytes, table_bytes) in cases {
        assert_eq!(even(f64::from(bytes), 100), table_bytes, "{bytes} bytes");
    }
}

#[test]
fn many_threads_leave_large_merges_divided() {
    let options =
        |threads| Options::default().compaction(|c| c.table_bytes(100)).background_threads(threads);
    let tables = |threads| least_bytes(&options(threads).writes(|w| w.write_buffer_bytes(0)));
    assert_eq!([0, 1, 2, 3, 4, 64].map(tables), [200, 200, 200, 300, 400, 400]);
    assert_eq!(least_bytes(&options(2).writes(|w| w.write_buffer_bytes(4000))), 1000);
}

/// Another compaction may replace the tables below meanwhile, and their files must then be deleted.
#[test]
fn a_plan_does_not_hold_the_tables_below_its_outputs() {
    let runs = [(0, 34, "a", "z"), (0, 33, "a", "z"), (0, 32, "b", "y"), (0, 31, "a", "x")];
    let keys = ["b", "d", "f", "h", "j", "l", "n", "p", "r"];
    let last = keys.iter().zip(1..).map(|(key, number)| (6, number, *key, *key));
    let version =
        tree(&runs.into_iter().chain([(5, 21, "a", "m")]).chain(last).collect::<Vec<_>>());
    let base = CompactionOptions { base_level_bytes: 60, ..CompactionOptions::default() };
    let options = CompactionOptions { waits_for_runs: false, table_bytes: 10, ..base };
    let plan = plan(&version, &InProgress::default(), &options, MAX_SEQNO).unwrap();
    assert_eq!((plan.output_level, plan.grandparents.len()), (5, 9));
    let holders = |level: usize| version.levels[level].iter().map(Arc::strong_count).max();
    assert_eq!((holders(5), holders(6)), (Some(2), Some(1)));
}

/// Records the most bytes of tables on the disk whenever one is created.
#[derive(Debug, Clone)]
struct Watched {
    disk: SimDisk,
    most: Arc<AtomicU64>,
}

impl Layer for Watched {
    fn below(&self) -> &dyn Vfs {
        &self.disk
    }

    fn create(&self, path: &Path) -> std::io::Result<Box<dyn WriteFile>> {
        if let Some(dir) = path.parent() {
            let entries = self.disk.list(dir)?;
            let tables =
                entries.iter().filter(|entry| entry.name.to_string_lossy().ends_with(".sst"));
            self.most.fetch_max(tables.map(|table| table.bytes).sum(), Ordering::Relaxed);
        }
        self.disk.create(path)
    }
}

/// Files that a compaction replaces are deleted while it continues.
#[test]
fn a_compaction_needs_space_for_part_of_its_output() {
    let disk = SimDisk::new();
    let watched = Watched { disk: disk.clone(), most: Arc::default() };
    let options = options(Arc::new(watched.clone())).background_threads(0);
    let options = options.writes(|w| w.write_buffer_bytes(32 << 10));
    let db = Db::open("db", options.compaction(|c| c.base_level_bytes(1 << 20))).unwrap();
    let put = |step: usize| {
        let numbers = (0..4000).step_by(step);
        numbers.for_each(|number| {
            db.put(format!("key{number:06}"), [7; 32]).unwrap();
        });
        db.flush().unwrap();
    };
    let bytes = || total_bytes(db.engine().version().tables().map(|(_, table)| table));
    put(1);
    db.compact_all().unwrap();
    (0..4).for_each(|_| put(40));
    let before = bytes();
    watched.most.store(0, Ordering::Relaxed);
    db.wait_idle().unwrap();
    db.compact_all().unwrap();
    let most = watched.most.load(Ordering::Relaxed);
    assert!(before > 40 * (4 << 10), "many tables: {before} bytes");
    // The inputs, and a slice, which may begin and end a table late.
    assert!(most > before && most <= before + 4 * (4 << 10), "{most} bytes, {before} before");
    assert!(bytes() <= before);
}

/// An abandoned compaction keeps what it has installed, and exposes nothing else.
#[test]
fn a_merge_that_is_given_up_leaves_all_there_is() {
    // Into the last level, and into one above it and from there into the last.
    for base_level_bytes in [1 << 20, 16 << 10] {
        let steps = 0_u64..;
        let twice = steps.map_while(|tables| give_up_after(tables, base_level_bytes));
        let twice = twice.filter(|twice| *twice > 0).count();
        assert!(twice > 2, "entries in two places in {twice} states, {base_level_bytes}");
    }
}

/// Number of entries that are in two tables.
fn twice(db: &Db) -> usize {
    let engine = db.engine();
    let (mut all, mut count) = (HashSet::new(), 0);
    for (_, table) in engine.version().tables() {
        let reader = engine.files.tables.reader(table).unwrap();
        let mut cursor = reader.cursor(ScanOptions::default());
        cursor.seek_to_first().unwrap();
        while let Some(entry) = cursor.entry() {
            count += 1;
            all.insert((entry.key.to_vec(), entry.seqno));
            cursor.next().unwrap();
        }
    }
    count - all.len()
}

/// Compacts a store until a table cannot be created after `tables`; returns the number of entries
/// in two tables then, `None` if all tables could be created.
fn give_up_after(tables: u64, base_level_bytes: u64) -> Option<usize> {
    let (disk, mut content) = (SimDisk::new(), Content::new());
    let db = open(&disk, base_level_bytes);
    let (snapshot, old) = fill(&db, &mut content);
    disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Create).named(".sst").after(tables));
    let outcome = db.compact_all();
    if disk.faults_fired() == 0 {
        outcome.unwrap();
        return None;
    }
    assert!(outcome.is_err_and(|error| error.is_shortage()), "after {tables} tables");
    let left_twice = twice(&db);
    assert_scans(|| db.range(..), db.cursor().unwrap(), &content);
    assert_scans(|| snapshot.range(..), snapshot.cursor().unwrap(), &old);
    for number in 0..KEYS {
        let key = format!("key{number:04}").into_bytes();
        assert_eq!(db.get(&key).unwrap().as_deref(), content.get(&key).map(Vec::as_slice));
        assert_eq!(snapshot.get(&key).unwrap().as_deref(), old.get(&key).map(Vec::as_slice));
    }
    db.verify().unwrap();
    let db = if tables.is_multiple_of(2) {
        db
    } else {
        drop((db, snapshot));
        open(&disk, base_level_bytes)
    };
    assert_holds(&db, &content);
    // Compacts again, over the installed slices.
    db.compact_all().unwrap();
    assert_scans(|| db.range(..), db.cursor().unwrap(), &content);
    assert_eq!(db.engine().version().levels[0].len(), 0);
    db.verify().unwrap();
    assert_eq!(twice(&db), 0);
    Some(left_twice)
}

/// Scans of all kinds, in both directions and with changes of direction.
fn assert_scans(range: impl Fn() -> Range, mut cursor: DbCursor, content: &Content) {
    let owned = |entry: Result<(Slice, Slice)>| {
        entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()
    };
    assert!(range().map(owned).eq(content.clone()));
    assert!(range().rev().map(owned).eq(content.clone().into_iter().rev()));
    let mut seen = Vec::new();
    let mut see = |key: &[u8], value: &[u8]| {
        seen.push((key.to_vec(), value.to_vec()));
        true
    };
    cursor.seek_to_first().unwrap();
    cursor.visit(&mut see).unwrap();
    cursor.seek_to_last().unwrap();
    cursor.visit_back(&mut see).unwrap();
    let there_and_back = content.iter().chain(content.iter().rev());
    assert!(there_and_back.eq(seen.iter().map(|(key, value)| (key, value))));
    let keys: Vec<&Vec<u8>> = content.keys().collect();
    for (three, mid) in keys.windows(3).zip(1..) {
        let at = |cursor: &DbCursor| cursor.key().map(<[u8]>::to_vec);
        // From a seek, and from a visit that ends there, in both directions.
        for way in 0..3 {
            let ends = |key: &[u8], _: &[u8]| *key != *three[1];
            match way {
                0 => cursor.seek(three[1]).unwrap(),
                1 => {
                    cursor.seek(keys[usize::saturating_sub(mid, 5)]).unwrap();
                    cursor.visit(ends).unwrap();
                }
                _ => {
                    cursor.seek(keys[(mid + 5).min(keys.len() - 1)]).unwrap();
                    cursor.visit_back(ends).unwrap();
                }
            }
            assert_eq!(at(&cursor).as_ref(), Some(three[1]), "way {way}");
            for (movement, to) in [(1, 2), (-1, 1), (-1, 0), (1, 1)] {
                if movement > 0 {
                    cursor.next().unwrap();
                } else {
                    cursor.prev().unwrap();
                }
                assert_eq!(at(&cursor).as_ref(), Some(three[to]), "way {way}");
            }
        }
    }
}

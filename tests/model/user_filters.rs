//! User-defined filter policies: stored with tables, read where they are known, contained where
//! they fail; and filters of the last level that are stored and not used.

mod faults;
mod rebuilds;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use trommel::inspect;
use trommel::vfs::Vfs;
use trommel::{
    Compression, Db, Error, FilterChoice, FilterContext, FilterLabel, FilterReason, FilterReport,
    FilterSpec, Options, UserFilter, UserFilterBuilder, UserFilterPolicy, wilson,
};
use trommel_sim::MemoryVfs;

/// The fault of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    PanicsChoosing,
    PanicsAdding,
    PanicsFinishing,
    PanicsOpening,
    PanicsAnswering,
    PanicsStating,
    PanicsDropped,
    PanicsBuiltAndDropped,
    RefusesToOpen,
    DeniesAll,
    EndsInNothing,
    EndsInHalf,
    StatesNonsense,
    StatesNothing,
}

/// Stores the first sixteen bits of each key's hash: its rate is the fraction of values in use.
#[derive(Debug)]
struct Prints {
    name: &'static str,
    fault: Fault,
    /// Set once filters are built: from then on they deny every key.
    lies: Arc<AtomicBool>,
    requests: Mutex<Vec<FilterContext>>,
}

fn prints(name: &'static str, fault: Fault) -> Arc<Prints> {
    Arc::new(Prints { name, fault, lies: Arc::default(), requests: Mutex::default() })
}

impl UserFilterPolicy for Prints {
    fn name(&self) -> &str {
        self.name
    }

    fn choose(&self, context: &FilterContext) -> FilterChoice {
        self.requests.lock().unwrap().push(context.clone());
        assert!(self.fault != Fault::PanicsChoosing, "as planned");
        FilterChoice::User(Box::new(PrintsBuilder { fault: self.fault, prints: Vec::new() }))
    }

    fn open(&self, bytes: &[u8]) -> Result<Box<dyn UserFilter>, String> {
        assert!(self.fault != Fault::PanicsOpening, "as planned");
        let (prints, rest) = bytes.as_chunks::<2>();
        if self.fault == Fault::RefusesToOpen || !rest.is_empty() {
            return Err("these are not prints".into());
        }
        let prints = prints.iter().map(|print| u16::from_le_bytes(*print)).collect();
        Ok(Box::new(PrintsFilter { fault: self.fault, lies: Arc::clone(&self.lies), prints }))
    }
}

#[derive(Debug)]
struct PrintsBuilder {
    fault: Fault,
    prints: Vec<u16>,
}

impl UserFilterBuilder for PrintsBuilder {
    fn add(&mut self, _key: &[u8], hash: u64) {
        assert!(self.fault != Fault::PanicsAdding || self.prints.len() < 100, "as planned");
        self.prints.push((hash >> 48) as u16);
    }

    fn finish(mut self: Box<Self>) -> Vec<u8> {
        assert!(self.fault != Fault::PanicsFinishing, "as planned");
        self.prints.sort_unstable();
        self.prints.dedup();
        let mut bytes: Vec<u8> = self.prints.iter().flat_map(|print| print.to_le_bytes()).collect();
        match self.fault {
            Fault::EndsInNothing => bytes.clear(),
            Fault::EndsInHalf => drop(bytes.pop()),
            _ => {}
        }
        bytes
    }

    fn memory_bytes(&self) -> usize {
        stated(self.fault, 4 * self.prints.capacity())
    }
}

impl Drop for PrintsBuilder {
    fn drop(&mut self) {
        // A second panic while `finish` unwinds would abort the process.
        assert!(self.fault != Fault::PanicsBuiltAndDropped || thread::panicking(), "as planned");
    }
}

/// The stated bytes in memory.
fn stated(fault: Fault, bytes: usize) -> usize {
    match fault {
        Fault::StatesNonsense => usize::MAX,
        Fault::StatesNothing => 0,
        _ => bytes,
    }
}

#[derive(Debug)]
struct PrintsFilter {
    fault: Fault,
    lies: Arc<AtomicBool>,
    prints: Vec<u16>,
}

impl UserFilter for PrintsFilter {
    fn may_contain(&self, _key: &[u8], hash: u64) -> bool {
        assert!(
            self.fault != Fault::PanicsAnswering || !self.lies.load(Relaxed),
            "as planned, once it is stored"
        );
        let knows = self.prints.binary_search(&((hash >> 48) as u16)).is_ok();
        knows && self.fault != Fault::DeniesAll && !self.lies.load(Relaxed)
    }

    fn expected_fpr(&self) -> f64 {
        match self.fault {
            Fault::PanicsStating => panic!("as planned"),
            Fault::StatesNonsense => f64::NAN,
            Fault::StatesNothing => -1.0,
            _ => self.prints.len() as f64 / f64::from(1 << 16),
        }
    }

    fn memory_bytes(&self) -> usize {
        stated(self.fault, 2 * self.prints.capacity())
    }
}

impl Drop for PrintsFilter {
    fn drop(&mut self) {
        let panics = matches!(self.fault, Fault::PanicsStating | Fault::PanicsDropped);
        assert!(!panics, "as planned, when it is dropped");
    }
}

const DIR: &str = "/store";
const KEYS: u64 = 4_000;

fn options(vfs: &Arc<MemoryVfs>) -> Options {
    let vfs: Arc<dyn Vfs> = Arc::clone(vfs) as _;
    Options::default().vfs(vfs).background_threads(0).filters("blocked:10".parse().unwrap())
}

fn open(vfs: &Arc<MemoryVfs>, policy: &Arc<Prints>) -> Db {
    Db::open(DIR, options(vfs).filtering(|f| f.user_filters(Arc::clone(policy) as _))).unwrap()
}

fn key(number: u64) -> [u8; 8] {
    number.swap_bytes().to_le_bytes()
}

/// Even numbers, so that the odd ones between them are missing.
fn fill(db: &Db) {
    for number in 0..KEYS {
        db.put(key(number * 2), b"value").unwrap();
    }
    db.flush().unwrap();
}

fn check_all(db: &Db) {
    for number in 0..KEYS {
        assert!(db.contains_key(key(number * 2)).unwrap(), "key {number}");
        assert!(!db.contains_key(key(number * 2 + 1)).unwrap(), "no key {number}");
    }
    let keys: Vec<_> = (0..2 * KEYS).map(key).collect();
    for (number, found) in db.multi_get(&keys).unwrap().iter().enumerate() {
        assert_eq!(found.is_some(), number % 2 == 0, "key {number} among many");
    }
    assert_eq!(db.iter().filter(Result::is_ok).count() as u64, KEYS);
}

/// Number of tables by the kind of their filters.
fn tables(report: &FilterReport, name: &str) -> u64 {
    report.levels.iter().filter(|row| row.kind.name() == name).map(|row| row.tables).sum()
}

#[test]
fn a_policy_hears_of_each_table_and_its_filters_are_reported() {
    let vfs = Arc::new(MemoryVfs::new());
    let policy = prints("prints", Fault::Nothing);
    let db = open(&vfs, &policy);
    fill(&db);
    db.compact_all().unwrap();
    let requests = policy.requests.lock().unwrap().clone();
    let configured: FilterSpec = "blocked:10".parse().unwrap();
    for (context, level, is_last, reason) in [
        (&requests[0], 0, false, FilterReason::Flush),
        (&requests[1], 1, true, FilterReason::Compaction),
    ] {
        assert_eq!((context.level, context.is_last, context.reason), (level, is_last, reason));
        assert_eq!((context.expected_keys, context.configured), (Some(KEYS), configured));
    }
    assert_eq!(requests.len(), 2);
    db.reset_stats();
    check_all(&db);
    let report = db.filter_report();
    let [row] = &report.levels[..] else { panic!("{report}") };
    assert_eq!((row.kind, row.tables, row.keys), (FilterLabel::User, 1, KEYS), "{report}");
    assert_eq!((row.bits_requested, row.counts.true_positives), (None, 2 * KEYS), "{report}");
    let (low, high) =
        wilson(row.counts.false_positives, row.counts.negatives + row.counts.false_positives);
    let expected = row.rates.expected.unwrap();
    assert!(low <= expected && expected <= high && expected > 0.05, "{report}");
    assert_eq!(report.policy.as_ref().unwrap().failures, 0);
    assert!(report.to_string().contains("policy \"prints\", 0 failures"), "{report}");
    assert_eq!(db.verify().unwrap().foreign_filters, 0);
}

#[test]
fn where_the_policy_is_unknown_tables_answer_maybe_until_it_is_back() {
    let vfs = Arc::new(MemoryVfs::new());
    let policy = prints("prints", Fault::Nothing);
    fill(&open(&vfs, &policy));
    let other = prints("prints, v2", Fault::Nothing);
    for opened_by in [None, Some(other)] {
        let db = opened_by
            .map_or_else(|| Db::open(DIR, options(&vfs)).unwrap(), |other| open(&vfs, &other));
        check_all(&db);
        let report = db.filter_report();
        assert_eq!((tables(&report, "none"), tables(&report, "user")), (1, 0), "{report}");
        assert_eq!(report.levels[0].counts.negatives, 0, "{report}");
        let unusable = db.stats().filters.unusable;
        assert_eq!(unusable.len(), 1, "once");
        let why = "it was made by the policy \"prints\", which this program does not have";
        assert_eq!(unusable[0].1, why);
        assert_eq!(db.verify().unwrap().foreign_filters, 1);
    }
    let db = open(&vfs, &policy);
    check_all(&db);
    let report = db.filter_report();
    assert_eq!(tables(&report, "user"), 1, "{report}");
    assert!(report.levels[0].counts.negatives > KEYS, "{report}");
    assert!(db.stats().filters.unusable.is_empty());
    assert_eq!(db.verify().unwrap().foreign_filters, 0);
}

#[test]
fn what_a_policy_does_wrong_costs_filters_and_nothing_else() {
    use Fault::*;
    for (fault, kind) in [
        (PanicsChoosing, "blocked"),
        (PanicsAdding, "none"),
        (PanicsFinishing, "none"),
        (PanicsOpening, "none"),
        (PanicsStating, "none"),
        (PanicsDropped, "user"),
        (PanicsBuiltAndDropped, "none"),
        (RefusesToOpen, "none"),
        (DeniesAll, "none"),
        (EndsInNothing, "none"),
        (EndsInHalf, "none"),
        (StatesNonsense, "user"),
        (StatesNothing, "user"),
        (PanicsAnswering, "user"),
    ] {
        let vfs = Arc::new(MemoryVfs::new());
        let policy = prints("wrong", fault);
        let db = open(&vfs, &policy);
        fill(&db);
        policy.lies.store(fault == PanicsAnswering, Relaxed);
        check_all(&db);
        let report = db.filter_report();
        assert_eq!(tables(&report, kind), 1, "{fault:?}: {report}");
        let said = report.policy.as_ref().unwrap();
        // Stated sizes are accepted as far as possible.
        let is_taken = matches!(fault, StatesNonsense | StatesNothing);
        assert_eq!(said.failures == 0, is_taken, "{fault:?}: {report}");
        assert!(report.levels.iter().all(|row| row.rates.expected.unwrap_or(0.0) <= 1.0));
        let first = said.first_failure.clone().unwrap_or_default();
        let panics = format!("{fault:?}").starts_with("Panics");
        assert_eq!(first.contains("panic"), panics, "{fault:?}: {first}");
        db.verify().unwrap();
        drop(db);
        // The stored data is valid: without the policy, and with one that works.
        check_all(&Db::open(DIR, options(&vfs)).unwrap());
        check_all(&open(&vfs, &prints("wrong", Nothing)));
    }
}

/// Under a ceiling a policy gets no more memory by stating a wrong size, or none.
#[test]
fn sizes_that_a_policy_makes_up_keep_to_the_ceiling() {
    for fault in [Fault::StatesNonsense, Fault::StatesNothing] {
        let vfs = Arc::new(MemoryVfs::new());
        let limit = 4 << 20;
        let options =
            options(&vfs).memory_limit(limit).filtering(|f| f.user_filters(prints("wrong", fault)));
        let db = Db::open(DIR, options).unwrap();
        fill(&db);
        check_all(&db);
        db.compact_all().unwrap();
        check_all(&db);
        let stats = db.stats();
        assert!(stats.memory.total() <= limit, "{fault:?}: {stats}");
        assert_eq!(stats.memory.construction, 0, "{fault:?}: {stats}");
        db.verify().unwrap();
    }
}

#[test]
fn filters_that_a_later_policy_does_not_take_are_no_damage() {
    let vfs = Arc::new(MemoryVfs::new());
    fill(&open(&vfs, &prints("prints", Fault::Nothing)));
    for fault in [Fault::RefusesToOpen, Fault::PanicsOpening] {
        let db = open(&vfs, &prints("prints", fault));
        check_all(&db);
        assert_eq!(db.verify().unwrap().foreign_filters, 1, "{fault:?}");
        let unusable = db.stats().filters.unusable;
        assert!(unusable[0].1.contains("\"prints\" does not take it"), "{unusable:?}");
    }
}

#[test]
fn a_filter_that_denies_its_keys_is_found_and_drops_no_tombstone() {
    let vfs = Arc::new(MemoryVfs::new());
    let policy = prints("prints", Fault::Nothing);
    let small = |options: Options| {
        options.compaction(|c| {
            c.table_bytes(2 << 10).base_level_bytes(4 << 10).level_ratio(2).l0_trigger(1)
        })
    };
    let options = small(options(&vfs)).filtering(|f| f.user_filters(Arc::clone(&policy) as _));
    let db = Db::open(DIR, options).unwrap();
    // In an order in which each table covers the whole key range, so that tables are moved down by
    // merging.
    for number in 0..KEYS {
        db.put(key(number * 1_237 % KEYS * 2), b"value").unwrap();
        if number % 200 == 199 {
            db.flush().unwrap();
        }
    }
    db.wait_idle().unwrap();
    check_all(&db);
    assert!(db.stats().levels.len() > 1, "there are levels below the one that is written");
    policy.lies.store(true, Relaxed);
    assert!(!db.contains_key(key(2)).unwrap(), "it lies");
    assert!(db.verify().unwrap_err().to_string().contains("denies a key"));
    for number in 0..KEYS / 4 {
        db.delete(key(number * 8)).unwrap();
        if number % 100 == 0 {
            db.flush().unwrap();
            db.wait_idle().unwrap();
        }
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    policy.lies.store(false, Relaxed);
    for number in 0..KEYS {
        let found = db.contains_key(key(number * 2)).unwrap();
        assert_eq!(found, number % 4 != 0, "key {number}: what was deleted is back, or lost");
    }
}

#[test]
fn unusable_filters_are_those_of_tables_that_are_there() {
    let vfs = Arc::new(MemoryVfs::new());
    fill(&open(&vfs, &prints("prints", Fault::Nothing)));
    let db = Db::open(DIR, options(&vfs)).unwrap();
    check_all(&db);
    assert_eq!(db.stats().filters.unusable.len(), 1);
    db.compact_all().unwrap();
    check_all(&db);
    assert_eq!(db.stats().filters.unusable, [], "the table that had it is gone");
}

/// The only table of a store with few keys and a user-defined filter, and the store's files.
fn small_store(policy: &Arc<Prints>) -> (Arc<MemoryVfs>, PathBuf) {
    let vfs = Arc::new(MemoryVfs::new());
    let db = Db::open(
        DIR,
        options(&vfs)
            .reads(|r| r.block_bytes(256))
            .filtering(|f| f.user_filters(Arc::clone(policy) as _)),
    );
    let db = db.unwrap();
    for number in 0..SMALL_KEYS {
        db.put(key(number * 2), b"value").unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let files = vfs.list(Path::new(DIR)).unwrap();
    let tables = files.iter().map(|file| Path::new(DIR).join(&file.name));
    let mut tables = tables.filter(|path| path.extension().is_some_and(|end| end == "sst"));
    (Arc::clone(&vfs), tables.next().unwrap())
}

const SMALL_KEYS: u64 = 40;

/// The files of `vfs`, with other bytes in one of them.
fn with_file(vfs: &MemoryVfs, changed: &Path, bytes: &[u8]) -> Arc<MemoryVfs> {
    let copy = Arc::new(MemoryVfs::new());
    copy.create_dir(Path::new(DIR)).unwrap();
    for file in vfs.list(Path::new(DIR)).unwrap() {
        let path = Path::new(DIR).join(&file.name);
        let bytes =
            if path == changed { bytes.to_vec() } else { vfs.read(&path, u64::MAX).unwrap() };
        copy.create(&path).unwrap().append(&bytes).unwrap();
    }
    copy
}

#[test]
fn every_flipped_byte_gives_right_answers_or_an_error_and_verify_finds_it() {
    let policy = prints("prints", Fault::Nothing);
    let (vfs, table) = small_store(&policy);
    let blocks = inspect::Table::open(&*vfs, &table).unwrap().layout().unwrap();
    let unusable: Vec<_> = blocks.iter().filter(|block| block.content.is_err()).collect();
    assert!(unusable.is_empty(), "before: {unusable:?}");
    let bytes = vfs.read(&table, u64::MAX).unwrap();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        for known in [true, false] {
            let vfs = with_file(&vfs, &table, &flipped);
            let options = options(&vfs);
            let options = if known {
                options.filtering(|f| f.user_filters(Arc::clone(&policy) as _))
            } else {
                options
            };
            let db = Db::open(DIR, options).unwrap();
            let keys: Vec<_> = (0..2 * SMALL_KEYS).map(key).collect();
            let many = db.multi_get(&keys);
            for (number, key) in keys.iter().enumerate() {
                let is_there = number % 2 == 0;
                for found in [db.get(key).ok(), many.as_ref().ok().map(|many| many[number].clone())]
                    .into_iter()
                    .flatten()
                {
                    assert_eq!(found.is_some(), is_there, "byte {at}, key {number}");
                    assert!(found.is_none_or(|value| *value == *b"value"), "byte {at}");
                }
            }
            let layout = inspect::Table::open(&*vfs, &table).unwrap().layout();
            let is_reported = |blocks: Vec<inspect::BlockInfo>| {
                blocks.iter().any(|b| b.content.is_err() && b.offset <= at as u64)
            };
            assert!(layout.map_or(true, is_reported), "byte {at}");
            let error = db.verify().expect_err(&format!("byte {at}, policy known: {known}"));
            assert!(matches!(error, Error::Corruption(_)), "byte {at}: {error}");
        }
    }
}

#[test]
fn names_of_policies_are_checked() {
    for name in ["", "a\tb"] {
        let vfs = Arc::new(MemoryVfs::new());
        let policy = prints(name, Fault::Nothing);
        let error = Db::open(DIR, options(&vfs).filtering(|f| f.user_filters(policy)))
            .unwrap_err()
            .to_string();
        assert!(error.contains("user_filters"), "{error}");
    }
}

#[test]
fn filters_of_the_last_level_are_held_only_where_they_are_wanted() {
    let vfs = Arc::new(MemoryVfs::new());
    let db = Db::open(DIR, options(&vfs).filtering(|f| f.filters_on_last_level(false))).unwrap();
    let misses = |db: &Db| {
        db.reset_stats();
        check_all(db);
        let report = db.filter_report();
        let negatives: u64 = report.levels.iter().map(|row| row.counts.negatives).sum();
        (negatives, report.spared_tables, db.stats().memory.filters, report)
    };
    fill(&db);
    let (negatives, spared, held, report) = misses(&db);
    assert!(negatives > KEYS && spared == 0 && held > 0, "level 0 is never the last: {report}");

    // A trivial move takes the table, with its filter, to the last level.
    db.set_options(|options| options.compaction(|c| c.l0_trigger(1))).unwrap();
    db.wait_idle().unwrap();
    assert_eq!(
        (db.stats().background.compactions.trivial_moves, db.stats().levels[0].level),
        (1, 1),
        "{}",
        db.stats()
    );
    let (negatives, spared, held, report) = misses(&db);
    assert_eq!((negatives, spared, held), (0, 1, 0), "{report}");
    assert!(report.to_string().contains("last level: the filters of 1 tables"), "{report}");
    assert!(report.expected_wasted_reads_per_miss > 0.99, "{report}");
    db.verify().unwrap();

    db.set_options(|options| options.filtering(|f| f.filters_on_last_level(true))).unwrap();
    let (negatives, spared, held, report) = misses(&db);
    assert!(negatives > KEYS && spared == 0 && held > 0, "it is used again: {report}");
    db.set_options(|options| options.filtering(|f| f.filters_on_last_level(false))).unwrap();
    assert_eq!(misses(&db).0, 0);
    drop(db);
    let db = Db::open(DIR, options(&vfs).filtering(|f| f.filters_on_last_level(false))).unwrap();
    assert_eq!(misses(&db).0, 0, "from the start");

    // New tables of the last level have none.
    db.compact_all().unwrap();
    let (negatives, spared, held, report) = misses(&db);
    assert_eq!((negatives, spared, held), (0, 0, 0), "{report}");
    assert_eq!(db.stats().levels[0].filter_bytes, 0);
}

/// Tables become part of the last level when the levels below them disappear, and leave it when
/// some of them move down: the filter of each is unused exactly as long as it is in the last level,
/// whichever policy made it.
#[test]
fn a_table_that_lies_last_no_more_is_queried_again() {
    let vfs = Arc::new(MemoryVfs::new());
    let policy = prints("prints", Fault::Nothing);
    let open = || {
        let options = options(&vfs)
            .compaction(|c| c.base_level_bytes(16 << 10).level_ratio(100).l0_trigger(1));
        // Tables of a hundred entries are large enough not to be merged with their neighbours.
        let options = options
            .filtering(|f| f.filters_on_last_level(false))
            .compaction(|c| c.auto_compaction(false).table_bytes(8 << 10))
            .compression(Compression::None);
        Db::open(DIR, options.filtering(|f| f.user_filters(Arc::clone(&policy) as _))).unwrap()
    };
    let db = open();
    fill(&db);
    db.compact_all().unwrap();
    let tables = db.stats().levels[0].tables;
    // Three tables after the keys of the last level, in the level above it.
    let start = KEYS * 2;
    db.set_options(|options| options.compaction(|c| c.auto_compaction(true))).unwrap();
    for number in start..start + 300 {
        db.put(key(number * 2), [7; 30]).unwrap();
        if number % 100 == 99 {
            db.flush().unwrap();
        }
    }
    db.wait_idle().unwrap();
    db.set_options(|options| options.compaction(|c| c.auto_compaction(false))).unwrap();
    // The level, the kind of filter and the number of tables in each row of the report, after
    // lookups of keys in the range of the three tables, some of them absent.
    let look = |db: &Db| {
        db.reset_stats();
        for number in start..start + 300 {
            assert!(db.contains_key(key(number * 2)).unwrap(), "key {number}");
            assert!(!db.contains_key(key(number * 2 + 1)).unwrap(), "no key {number}");
        }
        let report = db.filter_report();
        let rows = report.levels.iter().map(|row| {
            assert_eq!(row.kind == FilterLabel::User, row.counts.negatives > 0, "{report}");
            (row.level, row.kind.name(), row.tables)
        });
        (rows.collect::<Vec<_>>(), report.spared_tables)
    };
    // Tables built for the last level have no filter that could be unused.
    assert_eq!(look(&db), (vec![(1, "user", 3), (2, "none", tables)], 0));
    for number in 0..KEYS {
        db.delete(key(number * 2)).unwrap();
    }
    db.compact_range(..key(KEYS * 2)).unwrap();
    assert_eq!(look(&db), (vec![(1, "none", 3)], 3), "they are the last now");
    db.compact_range(..=key((start + 50) * 2)).unwrap();
    let parted = (vec![(1, "user", 2), (2, "none", 1)], 0);
    assert_eq!(look(&db), parted, "one was rewritten as the last: two are so no more");
    drop(db);
    let db = open();
    assert_eq!(look(&db), parted, "opened again");
    db.set_options(|options| {
        options.compaction(|c| c.auto_compaction(true).base_level_bytes(4 << 10))
    })
    .unwrap();
    db.wait_idle().unwrap();
    assert_eq!(
        look(&db),
        (vec![(1, "none", 3)], 2),
        "moved as they are: two have filters to spare"
    );
    db.verify().unwrap();
}

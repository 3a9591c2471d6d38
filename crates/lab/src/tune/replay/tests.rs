use std::path::{Path, PathBuf};

use fastrand::Rng;
use trommel::trace::TraceOptions;
use trommel::{FilterReport, LookupTrace, Options};
use trommel_harness::{ScratchDir, Silent, Stop};

use super::*;
use crate::tune::build::{self, Keys};
use crate::tune::cell::{Cell, Draw};
use crate::tune::lookups::query;
use crate::tune::testing;

const MUCH: u64 = 1 << 30;

/// A store on three levels with overlapping runs, and lookups of some of its keys.
fn cell(filters: &str, draw: Draw) -> Cell {
    let mut cell = testing::cell(filters, 0.0);
    cell.tree.l0 = vec![300, 500];
    cell.tree.levels = vec![2000, 8000];
    cell.tree.table_bytes = 64 << 10;
    cell.misses = 0.7;
    cell.draw = draw;
    cell.lookups = 30_000;
    cell
}

/// A store in a directory of its own, built for its cell.
struct Built {
    cell: Cell,
    keys: Keys,
    scratch: ScratchDir,
}

impl Built {
    fn new(cell: Cell) -> Self {
        let (keys, policy) = (Keys::new(&cell, 0).unwrap(), cell.filters.parse().unwrap());
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let built = Self { cell, keys, scratch };
        with_control(|control| {
            build::build(&built.cell, &policy, &built.keys, &built.dir(), control)
        })
        .unwrap();
        built
    }

    fn dir(&self) -> PathBuf {
        self.scratch.path().join("store")
    }

    fn trace(&self) -> PathBuf {
        self.scratch.path().join("lookups.trace")
    }

    fn open(&self, read_only: bool) -> Db {
        Db::open(self.dir(), build::options(&self.cell).opening(|o| o.read_only(read_only)))
            .unwrap()
    }

    /// Runs the cell's lookups, recorded if `options` are given, and returns the store's counters.
    fn query(&self, options: Option<TraceOptions>) -> FilterReport {
        let db = self.open(false);
        let trace: Option<LookupTrace> =
            options.map(|options| db.trace_lookups(self.trace(), options).unwrap());
        let mut rng = Rng::with_seed(9);
        with_control(|control| {
            query(&db, &self.cell, &self.keys, self.cell.lookups, &mut rng, control)
        })
        .unwrap();
        let report = db.filter_report();
        if let Some(trace) = trace {
            trace.finish().unwrap();
        }
        db.close().unwrap();
        report
    }

    fn replay(&self, specs: &[&str], memory: u64) -> Replay {
        let db = self.open(true);
        let specs: Vec<Candidate> = specs.iter().map(|spec| spec.parse().unwrap()).collect();
        with_control(|control| replay(&db, &self.trace(), &specs, memory, control)).unwrap()
    }
}

fn with_control<T>(act: impl FnOnce(Control<'_>) -> T) -> T {
    act(Control { stop: &Stop::new(), progress: &Silent })
}

/// A store's counters for a level: bytes, probes, true and false positives.
fn counted(report: &FilterReport, level: usize) -> [u64; 4] {
    let rows = report.levels.iter().filter(|row| row.level == level);
    rows.fold([0; 4], |[bytes, probes, there, wasted], row| {
        [
            bytes + row.filter_bytes,
            probes + row.counts.probes,
            there + row.counts.true_positives,
            wasted + row.counts.false_positives,
        ]
    })
}

/// The same from a replay.
fn replayed(level: &ReplayedLevel) -> [u64; 4] {
    [level.filter_bytes, level.probes, level.true_positives, level.false_positives]
}

fn wasted(report: &FilterReport, lookups: u64) -> f64 {
    let wasted: u64 = report.levels.iter().map(|row| row.counts.false_positives).sum();
    wasted as f64 / lookups as f64
}

/// The filters that the replay builds equal the store's, bit by bit: so its counts equal the
/// store's on each level, for any kind and any distribution of keys.
#[test]
fn a_replay_of_the_stores_own_filters_counts_what_the_store_counted() {
    let specs = ["paired:5", "L0=blocked:4,L1=standard:3,last=ribbon:5", "L0=none,L1-=paired:7"];
    for (spec, draw) in specs.into_iter().zip([Draw::Uniform, Draw::Zipfian, Draw::Latest]) {
        let built = Built::new(cell(spec, draw));
        let report = built.query(Some(TraceOptions::default()));
        let replay = built.replay(&[spec], MUCH);
        let lookups = built.cell.lookups;
        assert_eq!(replay.trace.lookups, lookups);
        assert_eq!(replay.trace.elsewhere, 0, "{spec}");
        let found = replay.trace.found as f64 / lookups as f64;
        assert!((found - 0.3).abs() < 0.02, "{found}");
        let result = &replay.specs[0];
        let levels: Vec<_> = result.levels.iter().map(|level| level.level).collect();
        assert_eq!(levels, [Some(0), Some(1), Some(2)]);
        for level in &result.levels {
            let number = level.level.unwrap();
            assert_eq!(replayed(level), counted(&report, number), "L{number} of {spec}");
            assert!(level.false_positives > 20, "enough to tell by: L{number} of {spec}");
        }
        let measured = wasted(&report, lookups);
        assert!((result.all.wasted_reads.mean - measured).abs() < 1e-12, "{spec}");
        assert_eq!(result.all.filter_bytes, report.filter_bytes);
    }
}

/// A store with another spec has other tables, because the size of filters affects where tables
/// end. So its filters have other false positives, but at the predicted rate.
#[test]
fn a_replay_of_other_filters_agrees_with_a_store_that_has_them() {
    let specs = ["paired:6", "L0=blocked:8,L1-=standard:4", "none"];
    let built = Built::new(cell("paired:12", Draw::Uniform));
    built.query(Some(TraceOptions::default()));
    let replay = built.replay(&specs, MUCH);
    for (spec, result) in specs.into_iter().zip(&replay.specs) {
        let other = Built::new(cell(spec, Draw::Uniform));
        let report = other.query(None);
        let measured = wasted(&report, other.cell.lookups);
        let Estimate { mean, standard_error, interval } = result.all.wasted_reads;
        // Both have an error.
        let off = (mean - measured).abs() / (standard_error * 2_f64.sqrt());
        assert!(off < 3.0, "{spec}: {mean} is {off} errors off {measured}");
        assert!(interval.0 < mean && mean < interval.1 && interval.1 < 1.2 * mean, "{interval:?}");
        let off = (result.all.expected - mean).abs() / standard_error;
        assert!(off < 4.0, "{spec}: by theory {}, {off} errors off", result.all.expected);
        let bytes = result.all.filter_bytes as f64 / report.filter_bytes.max(1) as f64;
        assert!((0.98..1.02).contains(&bytes) || report.filter_bytes == 0, "{spec}: {bytes}");
    }
    let none = &replay.specs[2];
    assert!(none.all.expected == none.all.wasted_reads.mean, "no filter, no chance");
    assert_eq!(none.all.filter_bytes, 0);
}

#[test]
fn a_sample_is_scaled_and_as_sure_as_it_is_large() {
    let spec = "paired:5";
    let built = Built::new(cell(spec, Draw::Zipfian));
    let report = built.query(Some(TraceOptions::default().sample(10).seed(5)));
    let replay = built.replay(&[spec], MUCH);
    let (lookups, all) = (built.cell.lookups, &replay.specs[0].all);
    assert_eq!(replay.trace.info.sample, 10);
    let recorded = replay.trace.lookups as f64;
    assert!((recorded / (lookups as f64 / 10.0) - 1.0).abs() < 0.1, "{recorded}");
    let probes: u64 = report.levels.iter().map(|row| row.counts.probes).sum();
    assert!((all.probes as f64 / probes as f64 - 1.0).abs() < 0.1, "{} of {probes}", all.probes);
    let Estimate { mean, standard_error, .. } = all.wasted_reads;
    let off = (mean - wasted(&report, lookups)).abs() / standard_error;
    assert!(off < 4.0, "{off} errors off");
    assert!(standard_error < mean / 10.0);
}

#[test]
fn a_budget_is_solved_for_the_tree_and_the_lookups_at_hand() {
    let mut cell = cell("paired:12", Draw::Uniform);
    // In tables of a few hundred keys, headers and rounding would be much of a filter.
    cell.tree.table_bytes = 1 << 20;
    let built = Built::new(cell);
    built.query(Some(TraceOptions::default()));
    let specs = ["paired:8", "solved=8/key", "solved=0.01/key"];
    let replay = built.replay(&specs, MUCH);
    let [uniform, solved, none] = &replay.specs[..] else { panic!("three") };
    assert_eq!(solved.filters, "solved=8/key");
    assert!(solved.all.filter_bytes <= uniform.all.filter_bytes);
    let [solved, uniform] = [solved, uniform].map(|of| of.all.wasted_reads.mean);
    assert!(solved < 0.8 * uniform, "{solved} {uniform}");
    assert_eq!(none.all.filter_bytes, 0);
    // A third of the lookups hit, most on the last level; so that level has the fewest probes of
    // absent keys in proportion.
    let bits: Vec<f64> = replay.specs[1].levels.iter().map(ReplayedLevel::bits_per_key).collect();
    assert!(bits[0] > bits[1] && bits[1] > bits[2], "{bits:?}");
}

#[test]
fn candidates_are_read_and_what_cannot_be_replayed_is_refused() {
    for text in ["solved=8/key", "solved=0.5/key", "L0=paired:20,last=none"] {
        assert_eq!(text.parse::<Candidate>().unwrap().to_string(), text);
    }
    for text in
        ["solved=8", "solved=x/key", "solved=-1/key", "solved=65/key", "pared:3", "budget=8/key"]
    {
        assert!(text.parse::<Candidate>().is_err(), "{text}");
    }
    // In any notation: a budget has no filter for a level, and used to be replayed as no filters.
    for text in
        ["budget=8/key", "budget = 8/key", "misses=1,budget =64KiB", "kinds=blocked, budget=9/key"]
    {
        let said = text.parse::<Candidate>().unwrap_err();
        assert!(said.contains("write solved=10/key"), "{text}: {said}");
    }
    let (_, scratch) = traced(|db| drop(db.get("fresh")), |_| ());
    let db = Db::open_read_only(scratch.path().join("store"), Options::default()).unwrap();
    let budget = [Candidate::Policy("budget=8/key".parse().unwrap())];
    let trace = scratch.path().join("t");
    let refused = with_control(|control| replay(&db, &trace, &budget, MUCH, control));
    assert!(matches!(refused, Err(Error::Usage(_))), "{refused:?}");
}

#[test]
fn parts_come_to_the_same() {
    let built = Built::new(cell("paired:5", Draw::Zipfian));
    built.query(Some(TraceOptions::default()));
    let specs = ["paired:5", "L0=none,L1-=blocked:6"];
    let whole = built.replay(&specs, MUCH);
    let parted = built.replay(&specs, 200_000);
    assert_eq!(parted.trace, whole.trace);
    for (parted, whole) in parted.specs.iter().zip(&whole.specs) {
        let levels = |of: &Replayed| of.levels.iter().map(replayed).collect::<Vec<_>>();
        assert_eq!(levels(parted), levels(whole));
        let errors = [parted, whole].map(|of| of.all.wasted_reads.standard_error);
        assert!((errors[0] / errors[1] - 1.0).abs() < 1e-9, "{errors:?}");
        assert!((parted.all.expected / whole.all.expected - 1.0).abs() < 1e-9);
    }
}

/// With a byte of memory each lookup used to be a part of its own, and the store was read once for
/// each.
#[test]
fn memory_for_next_to_no_lookups_is_refused_with_what_is_enough() {
    let built = Built::new(cell("paired:5", Draw::Uniform));
    built.query(Some(TraceOptions::default()));
    let db = built.open(true);
    let specs = ["paired:5".parse().unwrap()];
    let replayed =
        |memory| with_control(|control| replay(&db, &built.trace(), &specs, memory, control));
    for memory in [0, 1, 1000] {
        let Err(Error::Usage(what)) = replayed(memory) else { panic!("{memory} bytes are enough") };
        let least = what.split("give ").nth(1).unwrap().split_once("K or more").unwrap().0;
        let least = least.parse::<u64>().unwrap() << 10;
        let survey = Survey::of(&**db.vfs(), &built.trace()).unwrap();
        let parts = survey.parts(least, specs.len()).unwrap();
        assert!((500..=load::MOST_PARTS).contains(&parts), "{least}: {parts} parts, {what}");
    }
}

fn key(n: u32) -> String {
    format!("{n:04}")
}

/// A small store, a trace of its lookups, and a replay.
fn traced(act: impl FnOnce(&Db), later: impl FnOnce(&Db)) -> (Replay, ScratchDir) {
    let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
    let (dir, file) = (scratch.path().join("store"), scratch.path().join("t"));
    let db = Db::open(&dir, Options::default()).unwrap();
    (0..1000).for_each(|n| {
        db.put(key(n), "v").unwrap();
    });
    db.flush().unwrap();
    db.put(b"fresh", "v").unwrap();
    let trace = db.trace_lookups(&file, TraceOptions::default()).unwrap();
    act(&db);
    trace.finish().unwrap();
    later(&db);
    db.close().unwrap();
    (replay_of(&dir, &file).unwrap(), scratch)
}

fn replay_of(dir: &Path, file: &Path) -> Result<Replay, Error> {
    let db = Db::open_read_only(dir, Options::default()).unwrap();
    with_control(|control| replay(&db, file, &["paired:9".parse().unwrap()], MUCH, control))
}

#[test]
fn what_memory_answered_queries_no_table() {
    let lookups = |db: &Db| {
        for _ in 0..3 {
            db.get("fresh").unwrap();
            db.get(key(5)).unwrap();
        }
        db.get("0005 and a bit").unwrap();
    };
    let (replay, _scratch) = traced(lookups, |_| ());
    let TraceRead { lookups, keys, found, in_memory, elsewhere, .. } = replay.trace;
    assert_eq!((lookups, keys, found, in_memory, elsewhere), (7, 3, 6, 3, 0));
    let all = &replay.specs[0].all;
    assert_eq!((all.probes, all.true_positives, all.tables), (4, 3, 1));
    assert!(all.expected > 0.0 && all.wasted_reads.standard_error > 0.0);
}

#[test]
fn a_store_that_has_changed_is_noticed() {
    let lookups = |db: &Db| (0..100).for_each(|n| assert!(db.get(key(n)).is_ok()));
    let (replay, _scratch) = traced(lookups, |db| db.compact_all().unwrap());
    assert_eq!(replay.trace.elsewhere, 100, "level 0 is empty now");
    assert_eq!(replay.specs[0].all.true_positives, 100);
}

#[test]
fn a_trace_that_is_cut_off_is_used_and_a_damaged_one_refused() {
    let (_, scratch) = traced(|db| drop(db.get("fresh")), |_| ());
    let (dir, file) = (scratch.path().join("store"), scratch.path().join("t"));
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let trace = replay_of(&dir, &file).unwrap().trace;
    assert!(trace.is_cut_off && trace.lookups == 1);
    let mut flipped = bytes.clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(&file, &flipped).unwrap();
    assert!(matches!(replay_of(&dir, &file), Err(Error::Store(_))));
    let missing = replay_of(&dir, &scratch.path().join("missing")).unwrap_err().to_string();
    assert!(missing.contains("missing"), "{missing}");
}

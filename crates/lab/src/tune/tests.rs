use std::collections::BTreeSet;
use std::path::Path;

use trommel_harness::record::write_line;
use trommel_harness::{Silent, Stop};

use super::record::read_lines;
use super::testing::{cell, grown, record};
use super::*;
use crate::format_tests::check;

mod accuracy;

const PAGE: &str = include_str!("../../../../docs/format/tune-record.md");

/// A plan that is complete with `text` inserted.
fn plan(text: &str) -> Result<Plan, Error> {
    Plan::parse(Path::new("plan.toml"), text)
}

fn refusal(text: &str) -> String {
    plan(text).unwrap_err().to_string()
}

const TREE: &str = "[[trees]]\nname = \"t\"\nkeys = 4000\nratio = 4\nlevels = [1, 1]\n\
                    table_bytes = \"32KiB\"\n";

fn measured(text: &str) -> Vec<Record> {
    measured_cells(&plan(text).unwrap().cells)
}

fn measured_cells(cells: &[Cell]) -> Vec<Record> {
    let cells: Vec<&Cell> = cells.iter().collect();
    let control = Control { stop: &Stop::new(), progress: &Silent };
    let mut records = Vec::new();
    let mut keep = |record| {
        records.push(record);
        Ok(())
    };
    run(&cells, &std::env::temp_dir(), control, &mut keep).unwrap();
    records
}

#[test]
fn a_grid_is_every_combination() {
    let text = format!(
        "filters = [\"paired:{{budget}}\", \"none\"]\nbudgets = [6, 8.5]\nmisses = [1, 0.5]\n\
         distributions = [\"uniform\", \"zipfian\", \"latest\"]\nread_modes = [\"cached\", \"mapped\"]\n\
         caches = [0, \"1MiB\"]\nlookups = \"10K\"\n{TREE}{TREE}"
    );
    let plan = plan(&text).unwrap();
    // The second tree equals the first.
    assert_eq!((plan.cells.len(), plan.repeated), (3 * 2 * 3 * 2 * 2, 3 * 2 * 3 * 2 * 2));
    let first = &plan.cells[0];
    assert_eq!((&*first.family, &*first.filters), ("paired:{budget}", "paired:6"));
    assert_eq!(
        (first.tree.levels.clone(), first.lookups, first.warmup),
        (vec![1000, 4000], 10_000, 1000)
    );
    assert_eq!(plan.cells[1].filters, "paired:8.5");
    let keys: BTreeSet<String> = plan.cells.iter().map(Cell::key).collect();
    assert_eq!(keys.len(), plan.cells.len());
    let renamed = Cell { family: "x".into(), ..first.clone() };
    assert_eq!(renamed.key(), first.key(), "what it is called does not matter");
}

#[test]
fn shards_are_all_cells_once() {
    let text = format!("filters = [\"paired:{{budget}}\"]\nbudgets = [4, 5, 6, 7, 8]\n{TREE}");
    let cells = plan(&text).unwrap().cells;
    let keys = |shard: Shard| shard.of(&cells).into_iter().map(Cell::key).collect::<Vec<_>>();
    assert_eq!(keys(Shard::WHOLE).len(), 5);
    let parts: Vec<Vec<String>> = (1..=3).map(|nth| keys(Shard { nth, of: 3 })).collect();
    assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
    assert_eq!(parts.concat().into_iter().collect::<BTreeSet<_>>().len(), 5);
    assert!(keys(Shard { nth: 9, of: 9 }).is_empty());
}

#[test]
fn what_is_wrong_with_a_plan_is_said_with_its_line() {
    let with = |line: &str| format!("filters = [\"none\"]\n{line}\n{TREE}");
    for (text, wants) in [
        ("", "plan.toml: there is nothing to measure"),
        ("filters = []\n", "there is nothing to measure"),
        ("filters = [\"none\"\n", "plan.toml:"),
        (&with("filter = 3"), "plan.toml:2: unknown field `filter`, expected one of `title`"),
        (&with("misses = 1"), "plan.toml:2: invalid type"),
        (&with("misses = [2]"), "plan.toml:2: `misses` is 2: it must be a number from 0 to 1"),
        (&with("misses = [nan]"), "it must be a number from 0 to 1"),
        (&with("misses = []"), "there is nothing to measure"),
        (&with("stores = 1"), "`stores` is 1: it must be a count from 2 to 1000"),
        (&with("lookups = \"many\""), "`lookups` is \"many\": it must be a count"),
        (&with("lookups = -5"), "`lookups` is -5"),
        (&with("seed = 1.5"), "`seed` is 1.5"),
        (&with("title = 3"), "`title` is 3: it must be a string in quotes"),
        (
            &with("read_modes = [\"fast\"]"),
            "it must be cached, mapped, mapped-once, mapped-trusted or direct",
        ),
        (&with("distributions = [\"normal\"]"), "it must be uniform, zipfian or latest"),
        (&with("caches = [\"1XB\"]"), "`caches` is \"1XB\": it must be a size"),
        (&with("[[trees]]\nkeys = 5"), "plan.toml:2: a tree has either `levels`"),
        (&with("[[trees]]\nlevels = [1]"), "plan.toml:2: missing field `keys`"),
        (&with("[[trees]]\nkeys = 5\nlevels = [1]\nfill = 2"), "plan.toml:5: unknown field `fill`"),
        (&with("[[trees]]\nkeys = 5\nlevels = [1, 1]"), "fewer than two keys"),
        (&with("[[trees]]\nkeys = 5\nlevels = []"), "a tree needs a level, or runs in `l0`"),
        (&with("[[trees]]\nkeys = 5\nlevels = [1,1,1,1,1,1,1]"), "6 levels below level 0"),
        (&with("[[trees]]\nkeys = 5\nlevels = [1]\nl0 = [1, 7]"), "`l0` is [1, 7]"),
        (
            &with("[[trees]]\nkeys = 5\nlevels = [1]\nl0_trigger = 7"),
            "applies only to a grown tree",
        ),
        (&with("[[trees]]\nkeys = 5\nwrite_buffer = \"1MiB\"\nl0 = 2"), "`l0` does not apply"),
        (&with("[drawn]\ncells = 1\nkeys = 5"), "`keys` is 5: it must be a count from 2000"),
        ("filters = [\"bloom\"]\n", "plan.toml:1: the filter"),
        ("\nfilters = [\"paired:{budget}\"]\n", "plan.toml:2: {budget} stands for each of"),
        ("filters = [\"solved=x/key\"]\n", "write it as solved=10/key"),
    ] {
        let error = refusal(text);
        assert!(error.contains(wants), "{text}\n{error}");
    }
    let grows = "filters = [\"solved=8/key\"]\n[[trees]]\nkeys = 5\nwrite_buffer = \"1MiB\"\n";
    assert!(refusal(grows).contains("plan.toml:1: `solved=8/key` is solved for a tree"));
    let many = "1,".repeat(400);
    let text = format!("filters = [\"none\"]\nmisses = [{many}]\ncaches = [{many}]\n{TREE}");
    assert!(refusal(&text).contains("a plan at most 100000"));
}

/// Random combinations of parts of plans: none may panic, and each error names the file.
#[test]
fn nonsense_is_refused_and_never_panics() {
    let pieces = [
        "filters",
        "=",
        "[",
        "]",
        "\"paired:{budget}\"",
        "\"solved=1/key\"",
        ",",
        "\n",
        "[[trees]]\n",
        "[drawn]\n",
        "keys",
        "levels",
        "l0",
        "1",
        "-1",
        "1e300",
        "nan",
        "inf",
        "\"20K\"",
        "{",
        "}",
        "9223372036854775807",
        "cells",
        "ratio",
        "true",
        "1979-05-27",
        "misses",
        "\"\u{0}\"",
        "budgets",
        "write_buffer",
        "\"4KiB\"",
        ".",
        "'",
        "\u{fffd}",
        "table_bytes",
        "seed",
        "#",
    ];
    let mut rng = fastrand::Rng::with_seed(42);
    for _ in 0..5000 {
        let text: String = (0..rng.usize(..20)).map(|_| *rng.choice(&pieces).unwrap()).collect();
        if let Err(error) = plan(&text) {
            assert!(error.to_string().starts_with("plan.toml:"), "{text}\n{error}");
        }
    }
}

/// The trees have the planned shape (or the run is rejected), and the policy's filters.
#[test]
fn trees_are_as_planned() {
    let records = measured(
        "filters = [\"L0=paired:9,L1=blocked:8,L2-=paired:6,last=none\"]\nstores = 2\nlookups = 200\n\
         [[trees]]\nkeys = 3000\nratio = 2\nlevels = [1, 1, 1, 1, 1]\nl0 = [1, 0.5, 1]\n\
         table_bytes = \"16KiB\"\n\
         [[trees]]\nkeys = 1000\nlevels = []\nl0 = 5\n\
         [[trees]]\nkeys = 2000\nlevels = [0.6, 1]\ntable_bytes = \"16KiB\"\n\
         [[trees]]\nkeys = 5000\nwrite_buffer = \"64KiB\"\ntable_bytes = \"64KiB\"\nratio = 4\n",
    );
    let levels = |nth: usize| {
        let level = |level: &LevelRecord| {
            (level.level, level.runs as u64, level.keys as u64, level.filters.join(" "))
        };
        records[nth].levels.iter().map(level).collect::<Vec<_>>()
    };
    let rows = |rows: &[(u64, u64, u64, &str)]| {
        rows.iter().map(|(a, b, c, d)| (*a, *b, *c, (*d).to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(
        levels(0),
        rows(&[
            (0, 3, 235, "paired:9"),
            (1, 1, 188, "blocked:8"),
            (2, 1, 375, "paired:6"),
            (3, 1, 750, "paired:6"),
            (4, 1, 1500, "paired:6"),
            (5, 1, 3000, "none")
        ])
    );
    assert_eq!(levels(1), rows(&[(0, 5, 5000, "paired:9")]));
    assert_eq!(levels(2), rows(&[(1, 1, 120, "blocked:8"), (2, 1, 2000, "none")]));
    assert!(records[2].levels[1].tables > 5.0, "{:?}", records[2].levels);
    assert!(levels(3).len() > 1 && records[3].keys == 5000.0, "{:?}", levels(3));
    for record in &records[..3] {
        // Without a filter on the last level a missing key costs a read there.
        let last = record.levels.last().unwrap();
        let is_unfiltered = last.filters == ["none"];
        assert_eq!(record.measured.wasted_reads.mean > 0.9, is_unfiltered, "{}", record.in_words());
        let report = record.measured.reported_per_miss;
        assert!((report / record.predicted.wasted_reads - 1.0).abs() < 0.05, "{report}");
    }
}

/// The model, the theory for the actual probes, and the count agree, for any distribution of keys.
#[test]
fn what_is_predicted_is_measured() {
    let records = measured(&format!(
        "filters = [\"paired:4\"]\nstores = 8\nlookups = 4000\nmisses = [1, 0.3]\n\
         distributions = [\"uniform\", \"latest\"]\n{TREE}l0 = 2\n"
    ));
    assert_eq!(records.len(), 4);
    for record in &records {
        let measured = record.measured.wasted_reads;
        // Six standard errors, of eight stores, and 5% for small filters.
        let slack = 6.0 * measured.standard_error + 0.05 * measured.mean;
        for expected in [record.predicted.wasted_reads, record.measured.expected] {
            assert!((measured.mean - expected).abs() < slack, "{}", record.in_words());
        }
        let sum: f64 = record.levels.iter().map(|level| level.predicted).sum();
        assert!((sum / record.predicted.wasted_reads - 1.0).abs() < 1e-9);
        assert!(record.measured.blocks > 0.0 && record.measured.micros.mean > 0.0);
    }
    // The trees are equal, so their levels can be compared. Their rates are not: filters of some
    // 260 keys are rounded to whole pairs of cache lines.
    let share = |nth: usize, level: usize| {
        let [some, all] = [nth, 0].map(|nth| records[nth].levels[level].predicted);
        some / all
    };
    assert!((share(2, 2) - 0.3).abs() < 1e-9, "a hit wastes nothing on the last level");
    assert!(share(2, 0) > 0.9, "nearly every lookup goes through level 0: {}", share(2, 0));
    let newest = share(3, 1) / share(2, 1);
    assert!(newest < 0.9, "the newest keys lie above level 1: {newest}");
}

/// Without the cache, the disk counts as many reads as the store reports; it sees no reads of maps.
#[test]
fn reads_are_counted_below_the_store() {
    let records = measured(&format!(
        "filters = [\"none\"]\nstores = 2\nlookups = 500\nwarmup = 0\ncaches = [0]\n\
         read_modes = [\"direct\", \"mapped\"]\n{TREE}"
    ));
    let (direct, mapped) = (&records[0], &records[1]);
    assert_eq!(direct.measured.file_reads, direct.measured.block_reads);
    // Two runs without filters: a missing key costs a read in both, except at their very ends.
    assert!((1.9..=2.1).contains(&direct.measured.file_reads), "{}", direct.measured.file_reads);
    assert_eq!(
        (mapped.measured.file_reads, mapped.measured.wasted_reads.mean),
        (0.0, direct.measured.wasted_reads.mean)
    );
}

#[test]
fn the_same_cell_makes_the_same_result() {
    let text = format!("filters = [\"paired:5\"]\nstores = 2\nlookups = 3000\n{TREE}");
    let same = |mut record: Record| {
        (record.start, record.seconds, record.measured.micros) = Default::default();
        (record.measured.blocks, record.measured.block_reads, record.measured.file_reads) =
            (0.0, 0.0, 0.0);
        record
    };
    let [first, second] = [measured(&text), measured(&text)].map(|mut r| same(r.remove(0)));
    assert_eq!(first, second);
}

#[test]
fn a_stop_leaves_nothing() {
    let parent = ScratchDir::new(&std::env::temp_dir()).unwrap();
    let stop = Stop::new();
    stop.set();
    let plan = plan(&format!("filters = [\"paired:5\"]\n{TREE}")).unwrap();
    let control = Control { stop: &stop, progress: &Silent };
    let mut keep = |_| panic!("nothing was measured");
    let result = run(&[&plan.cells[0]], parent.path(), control, &mut keep);
    assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}

/// The first of three trees does not get its planned shape; the others are measured nevertheless.
#[test]
fn a_tree_that_cannot_be_costs_no_other() {
    let tree = |keys: u64, levels: &str| format!("[[trees]]\nkeys = {keys}\n{levels}\n");
    let trees = [
        tree(24, "ratio = 2\nlevels = [1, 1, 1, 1]"),
        tree(500, "levels = [1]"),
        tree(600, "levels = [1]"),
    ];
    let head = "filters = [\"paired:5\"]\nstores = 2\nlookups = 50\n";
    let plan = plan(&format!("{head}{}", trees.concat())).unwrap();
    let cells: Vec<&Cell> = plan.cells.iter().collect();
    let control = Control { stop: &Stop::new(), progress: &Silent };
    let mut keys = Vec::new();
    let mut keep = |record: Record| {
        keys.push(record.keys);
        Ok(())
    };
    let parent = ScratchDir::new(&std::env::temp_dir()).unwrap();
    let error = run(&cells, parent.path(), control, &mut keep).unwrap_err().to_string();
    assert_eq!(keys, [500.0, 600.0], "{error}");
    assert!(error.contains("1 of 3 cells cannot be measured:\n  paired:5 on tree 1"), "{error}");
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn an_interval_is_that_between_stores() {
    let found = Estimate::of(&[0.01, 0.03, 0.02, 0.02], 0.0);
    let error = (2e-4_f64 / 3.0 / 4.0).sqrt();
    assert!((found.mean - 0.02).abs() < 1e-12 && (found.standard_error - error).abs() < 1e-12);
    // Student's t of three degrees of freedom.
    assert!((found.interval.1 - 0.02 - 3.182 * error).abs() < 1e-5, "{found:?}");
    let none = Estimate::of(&[0.0, 0.0], 1e-3);
    assert_eq!((none.mean, none.standard_error, none.interval.0), (0.0, 1e-3, 0.0));
}

#[test]
fn of_several_results_the_latest_counts() {
    let later = |mut record: Record, start: &str| {
        record.start = start.into();
        record
    };
    let (a, b) = (record(cell("paired:{budget}", 8.0)), record(cell("paired:{budget}", 10.0)));
    let again = later(a.clone(), "2026-11-22T09:30:00Z");
    let before = later(b.clone(), "2026-11-20T09:30:00Z");
    let (merged, left_out) = merge(vec![a, b.clone(), again.clone(), before]);
    assert_eq!((merged, left_out), (vec![again, b], 2));
}

#[test]
fn records_survive_a_file() {
    let records = [record(cell("paired:{budget}", 8.0)), record(grown("none", 0.0))];
    let mut bytes = Vec::new();
    records.iter().for_each(|record| write_line(record, &mut bytes).unwrap());
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(read_lines(&text).unwrap(), records);
    let newer = text.replacen("\"schema\":1", "\"schema\":2", 1);
    let error = read_lines(&newer).unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains("schema 2"), "{error}");
    assert!(read_lines("{\"schema\":1}").unwrap_err().to_string().contains("an experiment"));
}

#[test]
fn the_page_names_every_field() {
    let records = [cell("paired:{budget}", 8.0), grown("none", 0.0)].map(record);
    check(PAGE, record::SCHEMA, &records);
}

/// The plans that come with the program are valid.
#[test]
fn the_plans_at_hand_are_plans() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/plans");
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let plan = Plan::read(&path).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(plan.repeated, 0, "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 4);
    let accuracy = include_str!("../../../../benches/plans/accuracy.toml");
    let cells = plan(accuracy).unwrap().cells;
    let drawn = cells.iter().filter(|cell| cell.family == "drawn").count();
    assert!(cells.len() >= 20 && drawn >= 10, "{} cells, {drawn} drawn", cells.len());
}

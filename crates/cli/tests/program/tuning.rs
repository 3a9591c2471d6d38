//! `trommel tune run` and `trommel tune report`.

use std::fs;

use crate::support::{Program, check_snapshot};

const PLAN: &str = "\
filters = [\"paired:{budget}\", \"none\"]
budgets = [5, 8]
stores = 2
lookups = 500

[[trees]]
keys = 600
levels = [1, 1]
";

/// A program, and the plan in its directory.
fn planned(text: &str) -> (Program, String) {
    let program = Program::new();
    let file = program.path("plan.toml");
    fs::write(&file, text).unwrap();
    (program, file.display().to_string())
}

fn keys(results: &str) -> Vec<String> {
    let key = |line: &str| line.split("\"key\":\"").nth(1).unwrap()[..16].to_owned();
    let mut keys: Vec<String> = results.lines().map(key).collect();
    keys.sort();
    keys
}

#[test]
fn existing_results_are_not_measured_again() {
    let (program, plan) = planned(PLAN);
    let results = program.path("results.jsonl");
    let line = format!("tune run {plan} -o {}", results.display());
    let ran = program.run(&line);
    assert_eq!((ran.code, &*ran.out), (Some(0), ""), "{}", ran.err);
    assert!(ran.err.starts_with("3 cells to measure, 0 done before; "), "{}", ran.err);
    let first = fs::read_to_string(&results).unwrap();
    assert_eq!(first.lines().count(), 3);
    let listed = program.run(&format!("tune run {plan} --list")).out;
    let mut listed: Vec<&str> = listed.lines().map(|line| &line[..16]).collect();
    listed.sort_unstable();
    assert_eq!(listed, keys(&first));

    let again = program.run(&line);
    assert!(again.err.starts_with("0 cells to measure, 3 done before; "), "{}", again.err);
    assert_eq!(fs::read_to_string(&results).unwrap(), first);

    // A run that was killed while it wrote: its last line is removed, and that cell is measured
    // again.
    fs::write(&results, &first[..first.len() - 20]).unwrap();
    let ran = program.run(&line);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(
        ran.err.contains("was truncated") && ran.err.contains("1 cells to measure, 2"),
        "{}",
        ran.err
    );
    assert_eq!(keys(&fs::read_to_string(&results).unwrap()), keys(&first));

    // A file that holds no results is left unchanged, with an error.
    fs::write(&results, "hello\n").unwrap();
    let ran = program.run(&line);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("results.jsonl: line 1: this is not a record of an experiment"));
    assert_eq!(fs::read_to_string(&results).unwrap(), "hello\n");
    // Also if its last line, or its only one, has no line feed.
    for text in ["hello", "hello\nand goodbye", "\nhello"] {
        fs::write(&results, text).unwrap();
        assert!(matches!(program.run(&line).code, Some(1 | 2)));
        assert_eq!(fs::read_to_string(&results).unwrap(), text);
    }
    assert_eq!(program.left_over().len(), 2, "the plan and its results, and nothing else");
}

/// Two runs with one file would measure each cell twice.
#[test]
fn results_are_one_run_s_at_a_time() {
    let (program, plan) = planned(PLAN);
    let results = program.path("results.jsonl");
    fs::write(&results, "").unwrap();
    #[expect(clippy::disallowed_methods, reason = "it is no store's file")]
    let held = fs::File::open(&results).unwrap();
    held.lock().unwrap();
    let line = format!("tune run {plan} -o {}", results.display());
    let ran = program.run(&line);
    assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{}", ran.err);
    assert!(ran.err.contains("another run writes to ") && ran.err.contains("-o"), "{}", ran.err);
    drop(held);
    assert_eq!(program.run(&line).code, Some(0));
    // Another plan's results are not counted as done.
    fs::write(&plan, PLAN.replace("budgets = [5, 8]", "budgets = [6]")).unwrap();
    let ran = program.run(&line);
    assert!(ran.err.starts_with("1 cells to measure, 1 done before; "), "{}", ran.err);
}

#[test]
fn shards_are_joined_and_duplicates_reported() {
    let (program, plan) = planned(PLAN);
    let mut all = String::new();
    for nth in 1..=2 {
        let file = program.path(&format!("{nth}.jsonl"));
        let ran = program.run(&format!("tune run {plan} --shard {nth}/2 -o {}", file.display()));
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        all += &fs::read_to_string(file).unwrap();
    }
    assert_eq!(all.lines().count(), 3);
    let mut distinct = keys(&all);
    distinct.dedup();
    assert_eq!(distinct.len(), 3);
    let (joined, csv) = (program.path("all.jsonl"), program.path("all.csv"));
    fs::write(&joined, &all).unwrap();
    let one = program.path("1.jsonl");
    let line = format!("tune report {} {}", joined.display(), one.display());
    let charts = program.path("charts");
    let files = format!("--csv {} --plot {}", csv.display(), charts.display());
    let ran = program.run(&format!("{line} {files} --title=Both"));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.starts_with("note: 2 results were dropped: "), "{}", ran.err);
    assert!(ran.out.starts_with("<!DOCTYPE html>") && ran.out.contains("<h1>Both</h1>"));
    assert_eq!(fs::read_to_string(csv).unwrap().lines().count(), 1 + 3 * 3);
    let mut plots: Vec<String> = fs::read_dir(charts)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    plots.sort();
    assert_eq!(plots, ["off.svg", "predicted.svg", "time-1.svg", "waste-1.svg"]);
    let ran = program.run(&format!("{line} -o /nowhere/at/all.html"));
    assert_eq!((ran.code, &*ran.out), (Some(1), ""));
    assert!(ran.err.contains("writing /nowhere/at/all.html failed: "), "{}", ran.err);
}

#[test]
fn errors_in_plans_are_reported_with_their_line() {
    let (program, plan) = planned(PLAN);
    let mut text = String::new();
    for (wrong, right) in [
        ("budgets", "budget"),
        ("[5, 8]", "[5, \"many\"]"),
        ("lookups = 500", "lookups = 0"),
        ("levels = [1, 1]", "levels = [1, 1, 1, 1, 1, 1, 1]"),
        ("levels = [1, 1]", "level = [1, 1]"),
        ("levels = [1, 1]", ""),
        ("keys = 600", "keys = [600"),
        ("paired:{budget}", "pared:{budget}"),
        ("filters = [\"paired:{budget}\", \"none\"]", "filters = []"),
    ] {
        fs::write(&plan, PLAN.replace(wrong, right)).unwrap();
        let ran = program.run(&format!("tune run {plan}"));
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{right}: {ran:?}");
        text += &format!("# {wrong} -> {right}\n{}\n", ran.err.replace(&plan, "plan.toml"));
    }
    for line in
        ["tune", "tune run", "tune run /no/plan.toml", "tune run p --shard 3/2", "tune report"]
    {
        let ran = program.run(line);
        assert!(matches!(ran.code, Some(1 | 2)), "{line}: {ran:?}");
        assert_eq!(ran.out, "", "{line}");
        text += &format!("$ trommel {line}\n{}\n", ran.err);
    }
    check_snapshot("tune_refusals", &text);
    assert_eq!(program.left_over().len(), 1, "nothing is left but the plan");
}

#[test]
fn help_explains_plans() {
    let program = Program::new();
    let mut text = String::new();
    for line in ["tune --help", "tune run --help", "tune report --help"] {
        let ran = program.run(line);
        assert_eq!((ran.code, &*ran.err), (Some(0), ""));
        text += &format!("$ trommel {line}\n{}\n", ran.out);
    }
    check_snapshot("help_tune", &text);
}

//! `trommel filter-bench`: its output, its files, and its errors.

use std::fs;

use serde_json::Value;

use crate::support::{Program, check_snapshot};

/// Flags that make a measurement small.
const SMALL: &str = "--m-queries=0.01 --m-rate-queries=0.2 --m-keys-total-max=0.02 --keys=1000";

#[test]
fn one_filter_is_a_row() {
    let program = Program::new();
    let line = "filter-bench -filters=paired:16 -kernel scalar -vary_key_count_ratio=0 -seed=7";
    let ran = program.run(&format!("{line} --format jsonl {SMALL}"));
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    let row: Value = serde_json::from_str(&ran.out).unwrap();
    for (name, value) in [
        ("filter", "paired:16"),
        ("kernel", "scalar"),
        ("seed", "7"),
        ("filters", "20"),
        ("probes", "12"),
    ] {
        assert_eq!(row[name].to_string().trim_matches('"'), value, "{name}");
    }
    assert!(row["interval_low"].as_f64() < row["measured_rate"].as_f64(), "{row}");
    let quick = program.run(&format!("filter-bench --quick --format json {SMALL}"));
    let row = &serde_json::from_str::<Value>(&quick.out).unwrap()["filters"][0];
    assert!(row["filter"] == "paired:10" && row["outside_random_ns"].is_null(), "{row}");
}

#[test]
fn a_sweep_is_rows_in_every_format_and_its_records_can_be_read_again() {
    let program = Program::new();
    let at = |name: &str| program.path(name).display().to_string();
    let (json, dir) = (at("run.jsonl"), at("plots"));
    let line = format!(
        "filter-bench --filters paired:8..12/4,blocked:10 --keys 100,2K --m-queries=0.01 \
         --m-keys-total-max=0.02 --json {json} --plot {dir} --format json"
    );
    let ran = program.run(&line);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["schema"], "trommel.filter_bench.v1");
    let rows = document["filters"].as_array().unwrap();
    let filters: Vec<&str> = rows.iter().map(|row| row["filter"].as_str().unwrap()).collect();
    let three = ["paired:8", "paired:12", "blocked:10"];
    assert_eq!(filters, [three, three].concat());
    for row in rows {
        for name in ["measured_rate", "expected_rate", "interval_high", "build_bytes"] {
            assert!(row[name].as_f64().is_some_and(|value| value > 0.0), "{name}: {row}");
        }
    }
    let lines = fs::read_to_string(&json).unwrap();
    assert_eq!(lines.lines().count(), 6);
    for line in lines.lines() {
        // Gross and dry time: under load on the machine there may be no difference.
        let record: Value = serde_json::from_str(line).unwrap();
        let timings = record["timings"].as_array().unwrap();
        let is_wanted =
            |timing: &&Value| timing["access"] == "random" && timing["mix"] == "outside";
        let timing = timings.iter().find(is_wanted).unwrap_or_else(|| panic!("{record}"));
        let is_time = |name: &str| timing[name].as_f64().is_some_and(|time| time > 0.0);
        assert!(is_time("gross_ns") && is_time("dry_ns"), "{timing}");
    }
    let mut plots: Vec<String> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    plots.sort_unstable();
    let charts =
        ["absent-keys.svg", "build-memory.svg", "build-time.svg", "present-keys.svg", "rates.svg"];
    assert_eq!(plots, charts);
    let again = program.run(&format!("filter-bench --from {json} --format json --plot {dir}.2"));
    assert_eq!((again.code, &*again.out), (Some(0), &*ran.out), "{again:?}");
    for chart in charts {
        let drawn = |dir: &str| fs::read_to_string(format!("{dir}/{chart}")).unwrap();
        assert_eq!(drawn(&format!("{dir}.2")), drawn(&dir), "{chart}");
    }
    let csv = program.run(&format!("filter-bench --from {json} --format csv")).out;
    assert_eq!(csv.lines().count(), 7);
    assert!(csv.starts_with("filter,kind,bits_requested,"), "{csv}");
    let table = program.run(&format!("filter-bench --from {json}")).out;
    assert!(table.lines().nth(1).unwrap().contains("paired:8"), "{table}");
    fs::write(&json, "{\"schema\":9}").unwrap();
    let newer = program.run(&format!("filter-bench --from {json}"));
    assert!(newer.code == Some(1) && newer.err.contains("schema 9"), "{newer:?}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_its_reason() {
    let program = Program::new();
    let mut text = String::new();
    for line in [
        "--filters paired:0",
        "--filters paired:65",
        "--filters paired:NaN",
        "--filters cuckoo:10",
        "--filters paired",
        "--filters none",
        "--filters paired:40..8",
        "--keys 0",
        "--keys many",
        "--vary-key-count-ratio NaN",
        "--vary-key-count-ratio 1",
        "--key-size 4",
        "--batch-size 0",
        "--m-queries 0",
        "--m-queries NaN",
        "--m-rate-queries -1",
        "--m-keys-total-max -1",
        "--working-mem-size-mb -1",
        "--working-mem-size-mb NaN",
        "--runs 0",
        "--kernel sse9",
        "--from run.jsonl --filters paired:10",
    ] {
        let ran = program.run(&format!("filter-bench {line}"));
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{line}: {ran:?}");
        text += &format!("$ trommel filter-bench {line}\n{}\n", ran.err);
    }
    check_snapshot("filter_bench_refusals", &text);
    if cfg!(target_os = "linux") {
        for line in ["--keys 1000000000G", "--working-mem-size-mb 1e11", "--m-keys-total-max 1e9"] {
            let ran = program.run(&format!("filter-bench {line}"));
            assert!(ran.code == Some(2) && ran.err.contains("this machine has"), "{line}: {ran:?}");
        }
    }
}

/// Flags used to be accepted without effect, silently.
#[test]
fn flags_of_measurements_are_rejected_with_records_to_show() {
    let program = Program::new();
    let help = program.run("filter-bench --help").out;
    let lines = help.lines().filter_map(|line| line.strip_prefix("      --"));
    let has_effect = ["from", "plot", "format", "color", "help", "version"];
    let mut refused = 0;
    for line in lines {
        let (flag, rest) = line.split_at(line.find([' ', '[', '=']).unwrap_or(line.len()));
        if has_effect.contains(&flag) {
            continue;
        }
        let value = match flag {
            "filters" => "paired:10",
            "kernel" => "scalar",
            _ => "1",
        };
        let given = match rest.starts_with(" <") {
            true => format!("--{flag} {value}"),
            false => format!("--{flag}"),
        };
        let ran = program.run(&format!("filter-bench {given} --from run.jsonl"));
        let is_reported = ran.err.contains("cannot be used with") && ran.err.contains("--from");
        assert!(ran.code == Some(2) && is_reported, "{given}: {ran:?}");
        refused += 1;
    }
    assert!(refused >= 14, "{help}");
}

#[test]
fn a_flag_without_effect_says_so() {
    let program = Program::new();
    let small = format!("{SMALL} --quick");
    for (line, wants) in [
        ("", ""),
        ("--filters blocked:10 --kernel scalar", ""),
        ("--filters ribbon:8 --kernel scalar", "--kernel does nothing for ribbon"),
        ("--filters all:10 --kernel scalar", "--kernel does nothing for standard and ribbon"),
        ("--working-mem-size-mb 1", "--working-mem-size-mb does nothing"),
        ("--batch-size 4", "--batch-size does nothing"),
    ] {
        let ran = program.run(&format!("filter-bench {line} {small}"));
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        assert_eq!(ran.err.lines().count(), usize::from(!wants.is_empty()), "{line}: {ran:?}");
        assert!(ran.err.contains(wants), "{line}: {ran:?}");
        assert!(wants.is_empty() || ran.err.starts_with("note: "), "{line}: {ran:?}");
    }
}

/// The first filters used to be measured, perhaps for hours, before the rest was checked.
#[test]
fn all_of_a_sweep_is_checked_before_any_is_measured() {
    let program = Program::new();
    for (line, wants) in [
        ("--keys 100,0", "at least one key"),
        ("--filters paired:10 --filters none", "nothing to measure"),
        ("--runs 1000000G", "at most"),
    ] {
        let ran = program.run(&format!("filter-bench {line} --m-queries 0.01 --quick"));
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{line}: {ran:?}");
        assert!(ran.err.contains(wants), "{line}: {ran:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_and_keeps_the_results() {
    use std::process::Stdio;

    use crate::support::Ran;

    let program = Program::new();
    let line = "filter-bench --filters paired:10 --keys 1K --m-keys-total-max=0.01 \
                --m-rate-queries=0.01 --m-queries=1000000";
    // Its filters are built within milliseconds; its queries would take hours.
    let interrupted_after = |seconds| {
        let mut command = program.command(line);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_secs(seconds));
        let pid = child.id().to_string();
        let kill = std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(kill.success());
        Ran::from(child.wait_with_output().unwrap())
    };
    let mut ran = interrupted_after(3);
    if !ran.out.contains("paired:10") {
        // A machine on which the filters were not built yet.
        ran = interrupted_after(30);
    }
    assert!(ran.out.contains("paired:10"), "{ran:?}");
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.err.contains("the measurements so far are printed above"), "{ran:?}");
}

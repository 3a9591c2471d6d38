//! `trommel filter-bench`: its output, its files, and what it rejects.

use std::fs;

use serde_json::Value;

use crate::support::{Program, check_snapshot};

/// Flags that make a measurement small.
const SMALL: &str = "--m-queries=0.01 --m-rate-queries=0.2 --m-keys-total-max=0.02 --keys=1000";

#[test]
fn one_filter_is_printed_in_the_format_of_filter_bench() {
    let program = Program::new();
    let ran = program.run(&format!("filter-bench --filters paired:16 --kernel scalar {SMALL}"));
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    for line in [
        "Filter: paired:16, asked with scalar code",
        "Number of filters: ",
        "Bits/key stored: 16.",
        "Probes (k): 10",
        "Tolerable FP rate %: ",
        " No FNs :)",
        " Expected FP rate %: 0.0",
        " 95% interval %: ",
        "Mixed inside/outside queries...",
        "  Single filter net ns/op: ",
        "Inside queries (mostly)...",
        "  Skewed 80% in 20% net ns/op: ",
        "Outside queries (mostly)...",
        "  Batched, unprepared net ns/op: ",
        "    Average FP rate %: ",
        "    Best possible bits/key: ",
    ] {
        assert!(ran.out.contains(line), "{line:?} is missing in\n{}", ran.out);
    }
    assert_eq!(ran.out.matches(" net ns/op: ").count(), 18);
    let quick = program.run(&format!("filter-bench --filters ribbon:8 --quick {SMALL}"));
    assert_eq!(quick.out.matches(" net ns/op: ").count(), 2, "{}", quick.out);
    let best = program.run(&format!("filter-bench -best_case {SMALL}"));
    assert_eq!(best.out.matches("  Single filter net ns/op: ").count(), 3, "{}", best.out);
    assert!(program.run("filter-bench -legend").out.contains("\"Dry run\""));
}

#[test]
fn command_lines_of_filter_bench_are_understood() {
    let program = Program::new();
    let ran = program.run(
        "filter-bench -impl=2 -bits_per_key=10 -average_keys_per_filter 1000 -m_queries=0.01 \
         -m_keys_total_max=0.01 -vary_key_size_log2_interval=30 -novary_key_alignment -key_size 12 \
         -new_builder -quick -batch_size=4 -seed=7 -block_cache_capacity_MB=8 -allow_bad_fp_rate",
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.starts_with("Filter: ribbon:fpr=9.66e-3\n"), "{}", ran.out);
    let notes: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("note: ")).collect();
    assert_eq!(notes.len(), 3, "{}", ran.err);
    assert!(notes[2].contains("--batch-size does nothing"), "{}", ran.err);
}

#[test]
fn a_sweep_is_rows_in_every_format_and_its_records_can_be_read_again() {
    let program = Program::new();
    let at = |name: &str| program.path(name).display().to_string();
    let (json, page, dir) = (at("run.jsonl"), at("page.html"), at("plots"));
    let line = format!(
        "filter-bench --filters paired:8..12/4,blocked:10 --keys 100,2K --m-queries=0.01 \
         --m-keys-total-max=0.02 --json {json} --report {page} --plot {dir} --format json"
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
        assert!(row["mixed_random_ns"].is_null(), "{row}");
    }
    let lines = fs::read_to_string(&json).unwrap();
    assert_eq!(lines.lines().count(), 6);
    for line in lines.lines() {
        // Gross and dry time: under load on the machine there may be no difference.
        let record: Value = serde_json::from_str(line).unwrap();
        let timings = record["timings"].as_array().unwrap();
        let is_asked = |timing: &&Value| timing["access"] == "random" && timing["mix"] == "outside";
        let timing = timings.iter().find(is_asked).unwrap_or_else(|| panic!("{record}"));
        let is_time = |name: &str| timing[name].as_f64().is_some_and(|time| time > 0.0);
        assert!(is_time("gross_ns") && is_time("dry_ns"), "{timing}");
    }
    let written = fs::read_to_string(&page).unwrap();
    assert!(written.contains("<h1>Trommel filter-bench</h1>"), "{written}");
    let mut plots: Vec<String> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    plots.sort_unstable();
    let charts =
        ["absent-keys.svg", "build-memory.svg", "build-time.svg", "present-keys.svg", "rates.svg"];
    assert_eq!(plots, charts);
    let again = program.run(&format!("filter-bench --from {json} --format json --report {page}.2"));
    assert_eq!((again.code, &*again.out), (Some(0), &*ran.out), "{again:?}");
    assert_eq!(fs::read_to_string(format!("{page}.2")).unwrap(), written);
    let csv = program.run(&format!("filter-bench --from {json} --format csv")).out;
    assert_eq!(csv.lines().count(), 7);
    assert!(csv.starts_with("filter,kind,bits_asked,"), "{csv}");
    let table = program.run(&format!("filter-bench --from {json}")).out;
    assert!(table.lines().nth(1).unwrap().contains("paired:8"), "{table}");
    fs::write(&json, lines.replace("\"schema\":2", "\"schema\":1")).unwrap();
    let older = program.run(&format!("filter-bench --from {json} --format json"));
    assert!(older.code == Some(0) && older.err.contains("schema 1"), "{older:?}");
    assert!(older.out.contains("\"build_bytes\":null"), "{older:?}");
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
        "--impl 0",
        "--impl 7",
        "--bits-per-key -3",
        "--bits-per-key ten",
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
        "--use_plain_table_bloom --use_full_block_reader=1",
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
    let has_effect = ["from", "report", "plot", "format", "color", "legend", "help", "version"];
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
        let is_told = ran.err.contains("cannot be used with") && ran.err.contains("--from");
        assert!(ran.code == Some(2) && is_told, "{given}: {ran:?}");
        refused += 1;
    }
    assert!(refused >= 20, "{help}");
}

#[test]
fn a_flag_without_effect_says_so() {
    let program = Program::new();
    for (line, wants) in [
        ("--filters paired:16 --impl ribbon", "cannot be used with"),
        ("--filters paired:16 --bits-per-key 40", "cannot be used with"),
        ("--impl paired:23.4 --bits-per-key 10,12", "leave --bits-per-key out"),
    ] {
        let ran = program.run(&format!("filter-bench {line} {SMALL}"));
        assert!(ran.code == Some(2) && ran.out.is_empty(), "{line}: {ran:?}");
        assert!(ran.err.contains(wants), "{line}: {ran:?}");
    }
    let small = format!("{SMALL} --quick");
    for (line, wants) in [
        ("", ""),
        ("--impl paired:23.4,blocked --bits-per-key 10", ""),
        ("--filters blocked:10 --kernel scalar", ""),
        ("--filters ribbon:8 --kernel scalar", "--kernel does nothing for ribbon"),
        ("--filters all:10 --kernel scalar", "--kernel does nothing for standard and ribbon"),
        ("--best-case", "--best-case does nothing with --quick"),
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
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::process::Stdio;

    let program = Program::new();
    let line = "filter-bench --filters paired:10 --keys 1K --m-keys-total-max=0.01 \
                --m-rate-queries=0.01 --m-queries=1000000";
    let mut child =
        program.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines.by_ref().any(|line| line.unwrap().contains("95% interval"));
    assert!(told, "it ended by itself");
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert!(lines.all(|line| !line.unwrap().contains("net ns/op")), "it went on");
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(error.contains("measured until then is printed above"), "{error}");
}

//! `trommel compare`.

use std::fs;
use std::time::{Duration, SystemTime};

use trommel_harness::record::{Product, Record, Run, write_line};
use trommel_harness::{Latencies, Measured, MeasuredTime};

use crate::support::{Program, check_snapshot};

/// Records of repeats of `readrandom` with these nanoseconds per operation.
fn records(filters: &str, nanos: &[u64]) -> Vec<Record> {
    let run = Run {
        id: format!("run of {filters}"),
        store: Product { name: "trommel".into(), version: "0.1.0".into() },
        settings: [("num", "1000"), ("filters", filters)]
            .map(|(name, value)| (name.to_owned(), value.into()))
            .into_iter()
            .collect(),
        ..Run::default()
    };
    let record = |(repeat, nanos): (u32, &u64)| {
        let mut latencies = Latencies::new();
        for _ in 0..100 {
            latencies.record(Duration::from_nanos(*nanos));
        }
        let time = Duration::from_nanos(1000 * nanos);
        let measured = Measured {
            operations: 1000,
            time: MeasuredTime::of_one_thread(time),
            latencies: Some(latencies),
            ..Measured::default()
        };
        Record::new(&run, "readrandom", repeat, 1, SystemTime::UNIX_EPOCH, &measured)
    };
    (1..).zip(nanos).map(record).collect()
}

fn write(program: &Program, name: &str, records: &[Record]) {
    let mut bytes = Vec::new();
    for record in records {
        write_line(record, &mut bytes).unwrap();
    }
    fs::write(program.path(name), bytes).unwrap();
}

/// A program with the records of a base, of a slower and of a noisy run next to its store.
fn program() -> Program {
    let program = Program::new();
    let base = records("paired:16", &[2000, 2020, 1980, 2010, 1990]);
    write(&program, "base", &base);
    write(&program, "slower", &records("paired:16", &[2300, 2310, 2290, 2305, 2295]));
    write(&program, "noisy", &records("paired:16", &[1700, 2700, 1800, 2800, 2000]));
    write(&program, "single", &records("paired:16", &[2300]));
    write(&program, "other", &records("blocked:16", &[2000, 2020]));
    program
}

fn compare(program: &Program, base: &str, new: &str, flags: &str) -> crate::support::Ran {
    let path = |name| program.path(name).display().to_string();
    program.run(&format!("compare {} {} {flags}", path(base), path(new)))
}

#[test]
fn changes_are_shown_in_a_table() {
    let program = program();
    let mut text = String::new();
    for new in ["slower", "noisy", "single"] {
        let ran = compare(&program, "base", new, "");
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(ran.err.contains("'unknown'"), new == "single", "{}", ran.err);
        assert!(ran.out.lines().all(|line| line.len() <= 100), "{}", ran.out);
        text += &format!("$ trommel compare base.jsonl {new}.jsonl\n{}\n", ran.out);
    }
    check_snapshot("compare", &text);
    let ran = compare(&program, "base", "slower", "--format=json");
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["schema"], "trommel.compare.v1");
    assert_eq!(json["changes"][0]["metric"], "throughput");
    assert_eq!(json["changes"][0]["verdict"], "slower");
    let csv = compare(&program, "base", "slower", "--format=csv").out;
    assert!(csv.starts_with("workload,metric,unit,base,new,change_percent,"), "{csv}");
}

#[test]
fn a_slowdown_that_is_not_chance_fails_the_check() {
    let program = program();
    for (new, flags, code) in [
        ("slower", "--fail-on=5%", 7),
        ("slower", "--fail-on=20%", 0),
        ("slower", "--fail-on=5% --watch=p50,p99", 7),
        ("base", "--fail-on=0", 0),
        ("noisy", "--fail-on=1%", 0),
        ("single", "--fail-on=5%", 7),
        ("single", "--fail-on=30%", 0),
    ] {
        let ran = compare(&program, "base", new, flags);
        assert_eq!(ran.code, Some(code), "{new} {flags}: {ran:?}");
        assert!(!ran.out.is_empty(), "the table is printed in any case");
    }
    let ran = compare(&program, "base", "slower", "--fail-on=5%");
    assert!(
        ran.err.contains("readrandom throughput: -13.0% (p = 0.0000 within one run)"),
        "{}",
        ran.err
    );
    let ran = compare(&program, "base", "single", "--fail-on=5%");
    assert!(ran.err.contains("too few runs: significance unknown"), "{}", ran.err);
}

#[test]
fn a_workload_that_vanished_fails_the_check() {
    let program = program();
    let read = records("paired:16", &[2000, 2020]);
    let mut fill = read[0].clone();
    fill.workload = "fillrandom".into();
    write(&program, "both", &[fill.clone(), read[0].clone(), read[1].clone()]);
    write(&program, "fill", &[fill.clone()]);
    let mut stopped = read[0].clone();
    stopped.results.interrupted = true;
    write(&program, "stopped", &[fill, stopped]);
    for (new, wants) in [("fill", "missing"), ("stopped", "interrupted")] {
        let wants = format!("readrandom is {wants} in the new records");
        let ran = compare(&program, "both", new, "--fail-on=5%");
        assert_eq!(ran.code, Some(7), "{ran:?}");
        assert!(ran.err.contains(&format!("error: {wants}")), "{}", ran.err);
        let ran = compare(&program, "both", new, "");
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.err.contains(&format!("note: {wants}")), "{}", ran.err);
    }
    let ran = compare(&program, "fill", "both", "--fail-on=5%");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("readrandom is only in the new records"), "{}", ran.err);
}

#[test]
fn machines_must_be_alike_but_compilers_may_be_compared() {
    let program = program();
    let mut new = records("paired:16", &[2000, 2020]);
    new.iter_mut().for_each(|record| record.environment.build.rustc = "rustc 2".into());
    write(&program, "rustc", &new);
    let ran = compare(&program, "base", "rustc", "");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("note: environment.rustc differs: "), "{}", ran.err);
    new.iter_mut().for_each(|record| record.environment.memory_bytes = Some(1));
    write(&program, "memory", &new);
    let ran = compare(&program, "base", "memory", "");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("environment.memory_bytes: not known | 1"), "{}", ran.err);
}

#[test]
fn runs_are_appended_to_a_file_and_compared_as_runs() {
    let program = Program::new();
    let json = program.path("runs.jsonl").display().to_string();
    for _ in 0..2 {
        let ran = program.run(&format!("bench --num=500 --benchmarks=fillseq[X2] --json={json}"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let ran = program.run(&format!("compare {json} {json} --format=json"));
    let changes: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(changes["changes"][0]["base_samples"], 2);
    assert_eq!(changes["changes"][0]["samples_are"], "runs");
}

#[test]
fn only_like_is_compared_with_like() {
    let program = program();
    let ran = compare(&program, "base", "other", "");
    assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{ran:?}");
    assert!(ran.err.contains("\n  filters: paired:16 | blocked:16\n"), "{}", ran.err);
    assert!(ran.err.contains("--force"), "{}", ran.err);
    let ran = compare(&program, "base", "other", "--force");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.starts_with("note: ") && ran.err.contains("filters: "), "{}", ran.err);

    let mut fills = records("paired:16", &[500]);
    fills[0].workload = "fillseq".into();
    write(&program, "fills", &fills);
    let ran = compare(&program, "base", "fills", "--force");
    assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{ran:?}");
    assert!(ran.err.contains("has readrandom,") && ran.err.contains("has fillseq"), "{}", ran.err);
}

#[test]
fn an_unmeasured_metric_is_a_failure() {
    let program = program();
    let mut untimed = records("paired:16", &[2000, 2020]);
    for record in &mut untimed {
        record.results.latency_ns = None;
    }
    write(&program, "untimed", &untimed);
    let ran = compare(&program, "base", "untimed", "--fail-on=5% --watch=p99");
    assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{ran:?}");
    assert!(ran.err.contains("--watch=p99") && ran.err.contains("--histogram"), "{}", ran.err);
    assert_eq!(compare(&program, "base", "untimed", "--fail-on=5%").code, Some(0));
    assert_eq!(compare(&program, "base", "base", "--fail-on=little").code, Some(2));
    assert_eq!(compare(&program, "base", "base", "--watch=speed").code, Some(2));
}

#[test]
fn files_that_hold_no_records_are_named_with_the_line() {
    let program = program();
    let good = fs::read_to_string(program.path("single")).unwrap();
    for (name, text, wants) in [
        ("cut", format!("{good}{}", &good[..100]), "cut: line 2: this is not a record"),
        ("newer", good.replacen("\"schema\":1", "\"schema\":7", 1), "newer: line 1: the record"),
        ("empty", String::new(), "empty: it holds no records"),
        ("text", "hello\n".into(), "text: line 1: this is not a record"),
    ] {
        fs::write(program.path(name), text).unwrap();
        let ran = compare(&program, "base", name, "");
        assert_eq!((ran.code, &*ran.out), (Some(1), ""), "{name}: {ran:?}");
        assert!(ran.err.contains(wants), "{name}: {}", ran.err);
    }
    let ran = compare(&program, "base", "nowhere", "");
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("nowhere failed: "), "{}", ran.err);
}

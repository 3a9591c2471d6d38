//! `trommel compare`.

use std::fs;
use std::time::{Duration, SystemTime};

use trommel_harness::record::{Product, Record, Run, write_line};
use trommel_harness::{Latencies, Measured};

use crate::support::{Program, check_snapshot};

/// Records of repeats of `readrandom` that took so many nanoseconds an operation.
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
            wall_time: time,
            thread_time: time,
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

/// A program beside whose store lie records of a base, of a slower and of a noisy run.
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
fn what_changed_is_shown_in_a_table() {
    let program = program();
    let mut text = String::new();
    for new in ["slower", "noisy", "single"] {
        let ran = compare(&program, "base", new, "");
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(ran.err.contains("'unknown'"), new == "single", "{}", ran.err);
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
    assert!(ran.err.contains("readrandom throughput: -13.0% (p = 0.008)"), "{}", ran.err);
    let ran = compare(&program, "base", "single", "--fail-on=5%");
    assert!(ran.err.contains("no repeats: significance unknown"), "{}", ran.err);
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
fn what_cannot_be_watched_is_no_success() {
    let program = program();
    let mut untimed = records("paired:16", &[2000, 2020]);
    for record in &mut untimed {
        record.latency_ns = None;
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
        ("cut", format!("{good}{}", &good[..100]), "cut: line 2: this is no record"),
        ("newer", good.replacen("\"schema\":1", "\"schema\":7", 1), "newer: line 1: the record"),
        ("empty", String::new(), "empty: it holds no records"),
        ("text", "hello\n".into(), "text: line 1: this is no record"),
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

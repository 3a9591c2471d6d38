//! `trommel bench --trace` and `trommel tune replay`.

use std::fs;

use crate::support::{Program, check_snapshot};

/// A program, its store, and a trace of lookups that hit and miss.
fn traced(flags: &str) -> Program {
    let program = Program::new();
    let file = program.path("lookups.trace").display().to_string();
    let ran = program.run_on(&format!(
        "bench --benchmarks=fillrandom,compact,readrandom,readmissing --num=20000 --value-size=20 \
         --filters=paired:6 --write-buffer-size=256K --trace={file} {flags}"
    ));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.err.contains(" lookups are recorded in "), "{}", ran.err);
    program
}

fn replay(program: &Program, rest: &str) -> crate::support::Ran {
    let file = program.path("lookups.trace").display().to_string();
    program.run_on(&format!("tune replay --trace {file} {rest}"))
}

#[test]
fn the_trace_of_a_bench_is_replayed() {
    let program = traced("");
    let ran = replay(&program, "paired:6 L0=paired:10,L1-=blocked:9 none --format=json");
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    let found: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(found["schema"], "trommel.tune-replay.v1");
    let trace = &found["trace"];
    assert_eq!((trace["lookups"].as_u64(), trace["sample"].as_u64()), (Some(40_000), Some(1)));
    // fillrandom leaves out 37% of the keys, and readrandom looks up all of them with equal
    // probability.
    let misses = trace["misses"].as_f64().unwrap();
    assert!((misses - (1.0 + 0.368) / 2.0).abs() < 0.02, "{misses}");
    let rows = found["filters"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "all and one level, three times: {}", ran.out);
    let of = |row: usize, name: &str| rows[row][name].as_f64().unwrap();
    assert_eq!((&rows[0]["filters"], &rows[0]["level"]), (&"paired:6".into(), &"all".into()));
    // Without filters each miss reads the one level, except for keys beyond its last.
    assert_eq!((of(4, "filter_bytes"), of(4, "expected")), (0.0, of(4, "wasted_reads")));
    assert!((misses - of(4, "expected")).abs() < 0.001, "{}", ran.out);
    assert!((of(0, "wasted_reads") / of(0, "expected") - 1.0).abs() < 0.1, "{}", ran.out);
    assert!(of(2, "wasted_reads") < of(0, "wasted_reads") / 2.0);
    for format in ["table", "csv", "jsonl"] {
        let ran = replay(&program, &format!("paired:6 --memory=100K --format={format}"));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{format}");
        let out = ran.out.replace('_', " ");
        assert!(out.contains("paired:6") && out.contains("wasted reads"), "{out}");
    }
}

#[test]
fn changes_since_the_trace_are_reported() {
    let program = traced("--trace-sample=1/20");
    let first = replay(&program, "paired:8 --format=csv");
    assert_eq!((first.code, &*first.err), (Some(0), ""));
    let (file, whole) = (program.path("lookups.trace"), program.path("whole"));
    fs::copy(&file, &whole).unwrap();
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let cut = replay(&program, "paired:8 --format=csv");
    assert_eq!((cut.code, cut.out), (Some(0), first.out), "all but the end is there");
    assert!(cut.err.contains("note: the trace is truncated"), "{}", cut.err);
    let mut flipped = bytes;
    flipped[100] ^= 1;
    fs::write(&file, &flipped).unwrap();
    let damaged = replay(&program, "paired:8");
    assert_eq!((damaged.code, &*damaged.out), (Some(4), ""), "{}", damaged.err);
    fs::copy(&whole, &file).unwrap();
    let other = Program::new();
    assert_eq!(other.run_on("put --create k v").code, Some(0));
    let ran = other.run_on(&format!("tune replay --trace {} paired:8", file.display()));
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.contains("recorded on another store"), "{}", ran.err);
    assert!(ran.err.contains("end on another level"), "{}", ran.err);
}

#[test]
fn impossible_traces_and_replays_are_rejected() {
    let program = traced("");
    let home = program.path("").display().to_string();
    let mut text = String::new();
    for line in [
        "bench --benchmarks=readmissing --num=10 --trace=HOME/x.trace",
        "bench --db=HOME/db --use-existing-db --num=10 --trace=HOME/lookups.trace",
        "bench --db=HOME/db --use-existing-db --num=10 --trace=HOME/db/x.trace",
        "bench --db=HOME/db --trace-sample=1/10",
        "bench --db=HOME/db --trace=HOME/x.trace --trace-sample=0.1",
        "tune replay --db=HOME/db --trace=HOME/lookups.trace",
        "tune replay --db=HOME/db --trace=HOME/lookups.trace pared:10",
        "tune replay --db=HOME/db --trace=HOME/lookups.trace budget=10/key",
        "tune replay --db=HOME/db --trace=HOME/lookups.trace --memory=1 paired:10",
        "tune replay --db=HOME/db paired:10",
        "tune replay --db=HOME/db --trace=HOME/none.trace paired:10",
        "tune replay --db=HOME/db --trace=HOME/db/CURRENT paired:10",
        "tune replay --trace=HOME/lookups.trace paired:10",
        "tune replay --db=HOME/nothing --trace=HOME/lookups.trace paired:10",
    ] {
        let ran = program.run(&line.replace("HOME/", &home));
        assert!(ran.code != Some(0) && ran.out.is_empty(), "{line}: {ran:?}");
        let said = ran.err.replace(&home, "HOME/");
        text += &format!("$ trommel {line}\n{said}[exit code {}]\n\n", ran.code.unwrap());
    }
    check_snapshot("replay_refusals", &text);
    check_snapshot("help_replay", &program.run("tune replay --help").out);
}

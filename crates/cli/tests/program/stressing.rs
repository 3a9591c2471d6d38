//! `trommel stress`: it reports nothing on a correct store, and finds injected faults.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use trommel::{Db, Options};

use crate::support::{Program, Ran};

/// The counters that a run printed.
fn counters(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

fn count(report: &Value, name: &str) -> u64 {
    report["counters"][name].as_u64().unwrap_or(0)
}

/// A parameter of the lane from the environment.
fn number_in(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Writes the counters of a lane to the file that the environment names, as all lanes do.
fn record(lane: &str, report: &Value) {
    let Some(file) = std::env::var_os("TROMMEL_LANES_JSON") else { return };
    let counters = serde_json::to_string(&report["counters"]).unwrap();
    let seconds = report["seconds"].as_f64().unwrap();
    let line =
        format!("{{\"lane\": \"{lane}\", \"seconds\": {seconds:.1}, \"counters\": {counters}}}\n");
    #[expect(clippy::disallowed_methods, reason = "it is no file of a store")]
    let file = fs::OpenOptions::new().create(true).append(true).open(file);
    file.unwrap().write_all(line.as_bytes()).unwrap();
}

fn lane(name: &str, more: &str, must_have_counted: &[&str]) {
    let program = Program::new();
    let seconds = 5 * number_in("TROMMEL_SCALE").unwrap_or(1);
    let seed = number_in("TROMMEL_FIRST_SEED").unwrap_or(1);
    let json = program.path("counters.jsonl");
    let line = format!(
        "stress --profile=tiny --duration={seconds}s --reopen-every=300ms --seed={seed} {more}"
    );
    let ran = Ran::from(program.command(&line).arg("--json").arg(&json).output().unwrap());
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{line}: {ran:?}");
    assert_eq!(fs::read_to_string(&json).unwrap(), ran.out);
    let report = counters(&ran);
    assert_eq!(report["mismatches"], 0);
    for name in must_have_counted {
        assert!(count(&report, name) > 0, "{name} is missing in {}", ran.out);
    }
    assert_eq!(program.left_over(), [json]);
    record(&format!("stress/{name}"), &report);
}

#[test]
fn killed_workers_lose_nothing() {
    let names = ["kills", "acknowledged_writes", "opens_after_a_crash", "keys_checked_at_the_end"];
    lane("kills", "--kill-every=300ms", &names);
}

#[test]
fn a_disk_that_fails_loses_nothing() {
    let names = ["tolerated_errors", "acknowledged_writes", "closes"];
    lane("faults", "--kill-every=2s --faults=0.003", &names);
}

/// A run in a directory that is kept.
fn kept_run(program: &Program, dir: &Path, more: &str) -> Ran {
    // On a slow machine the store opens late, and must be written to all the same.
    let line = format!("stress --profile=tiny --duration=2s --kill-every=500ms {more}");
    Ran::from(program.command(&line).arg("--keep").arg("--dir").arg(dir).output().unwrap())
}

#[test]
fn a_key_that_is_gone_is_found() {
    let program = Program::new();
    let dir = program.path("kept here");
    let ran = kept_run(&program, &dir, "");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.starts_with("kept: the store in "), "{ran:?}");
    let again = kept_run(&program, &dir, "");
    assert_eq!(again.code, Some(0), "a run goes on where another was kept: {again:?}");

    let db = Db::open(dir.join("store"), Options::default()).unwrap();
    let (key, _) = db.iter().next().unwrap().unwrap();
    db.delete(&key).unwrap();
    db.close().unwrap();
    let ran = kept_run(&program, &dir, "--seed 7");
    assert_eq!(ran.code, Some(7), "{ran:?}");
    let key = String::from_utf8(key.to_vec()).unwrap();
    for part in ["mismatch: ", &key, "holds nothing; expected is write", "none of which deletes it"]
    {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert!(ran.err.contains("\nrun again: trommel stress --seed=7 --profile=tiny"), "{}", ran.err);
    assert!(ran.err.contains(&format!(" --keep --dir '{}'\n", dir.display())), "{}", ran.err);
    let report = counters(&ran);
    assert_eq!(
        (&report["mismatches"], &report["finding"]["kind"]),
        (&1.into(), &"mismatch".into())
    );
    assert!(dir.join("store/CURRENT").exists() && dir.join("expected/expected-state").exists());
}

#[test]
fn a_value_that_is_older_or_strange_is_found() {
    // In the older state the key may have been absent, or present.
    for (value, part) in [(None, "was never written"), (Some(()), "; expected is ")] {
        let program = Program::new();
        let dir = program.path("kept");
        assert_eq!(kept_run(&program, &dir, "").code, Some(0));
        let open = || Db::open(dir.join("store"), Options::default()).unwrap();
        let db = open();
        let (key, before) = db.iter().next().unwrap().unwrap();
        match value {
            // The expected state from before the second run, whatever that wrote.
            Some(()) => {
                db.close().unwrap();
                let state = fs::read(dir.join("expected/expected-state")).unwrap();
                assert_eq!(kept_run(&program, &dir, "--seed=3").code, Some(0));
                fs::write(dir.join("expected/expected-state"), state).unwrap();
            }
            None => {
                let mut flipped = before.to_vec();
                flipped[0] ^= 1;
                db.put(&key, &flipped).unwrap();
                db.close().unwrap();
            }
        }
        let ran = kept_run(&program, &dir, "");
        assert_eq!(ran.code, Some(7), "{ran:?}");
        assert!(ran.err.starts_with("error: mismatch: ") && ran.err.contains(part), "{}", ran.err);
    }
}

#[test]
fn a_limit_that_is_broken_ends_the_run() {
    for (flag, kind) in [("--max-memory=1K", "memory"), ("--max-handles=1", "handles")] {
        let program = Program::new();
        let ran = program.run(&format!("stress --profile=tiny --duration=20s {flag}"));
        assert_eq!(ran.code, Some(7), "{ran:?}");
        assert!(ran.err.starts_with(&format!("error: {kind}: the worker ")), "{}", ran.err);
        assert_eq!(counters(&ran)["finding"]["kind"], kind);
        assert_eq!(program.left_over().len(), 1, "what was found can be looked at");
    }
}

#[test]
fn a_store_of_which_nothing_is_known_is_left_alone() {
    let program = Program::new();
    fs::create_dir_all(program.path("mine/store")).unwrap();
    let ran = kept_run(&program, &program.path("mine"), "");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("has no expected-state"), "{ran:?}");
    let dir = program.path("cut");
    assert_eq!(kept_run(&program, &dir, "").code, Some(0));
    fs::write(dir.join("expected/expected-state"), "short").unwrap();
    let ran = kept_run(&program, &dir, "");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("its head is truncated"), "{ran:?}");
    assert!(dir.join("store/CURRENT").exists());
}

#[test]
fn an_interrupted_run_prints_its_counters_and_leaves_nothing() {
    let program = Program::new();
    let child = program
        .command("stress --profile=tiny --duration=10m")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while program.left_over().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(500));
    let since = Instant::now();
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    assert_eq!((ran.code, &*ran.err), (Some(130), "error: interrupted\n"), "{ran:?}");
    let report = counters(&ran);
    assert_eq!((&report["interrupted"], &report["mismatches"]), (&true.into(), &0.into()));
    assert!(count(&report, "keys_checked_at_the_end") > 0, "{}", ran.out);
    assert_eq!(program.left_over(), [] as [PathBuf; 0]);
}

/// The run used to go to its end, and only then fail.
#[test]
fn an_unwritable_file_for_the_counters_is_reported_first() {
    let program = Program::new();
    let begun = Instant::now();
    let ran = program.run("stress --duration=1h --json=absent/counters.jsonl");
    assert!(ran.code == Some(1) && ran.out.is_empty(), "{ran:?}");
    assert!(ran.err.contains("absent/counters.jsonl"), "{}", ran.err);
    assert!(begun.elapsed() < Duration::from_secs(1800), "it ran");
}

#[test]
fn flags_that_db_stress_has_too_are_understood() {
    let program = Program::new();
    let line = format!(
        "stress -db={} -max_key=500 -threads=2 -seed=5 -filter_uri=speedb.PairedBloomFilter:23.4 \
         -profile=tiny -duration=1s -kill_every=0",
        program.path("stress").display()
    );
    let ran = program.run(&line);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    assert_eq!(counters(&ran)["mismatches"], 0);
}

//! The program as a whole, with few keys.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use trommel_harness::ScratchDir;
use trommel_harness::record::read_lines;

fn run(arguments: &[&str], stores: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trommel-compare"))
        .args(arguments)
        .arg("--dir")
        .arg(stores)
        .output()
        .expect("the program of this package")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("words")
}

#[test]
fn every_store_has_its_figures_and_nothing_is_left() {
    let (scratch, stores) = (
        ScratchDir::new(&std::env::temp_dir()).unwrap(),
        ScratchDir::new(&std::env::temp_dir()).unwrap(),
    );
    let out = scratch.path().display().to_string();
    let arguments = ["--num", "3000", "--reads", "1000", "--out", &out];
    let output = run(&arguments, stores.path());
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    for heading in ["3,000 keys", "Files, memory, opening", "Settings:", "What is not equal"] {
        assert!(stdout.contains(heading), "{heading} is missing in\n{stdout}");
    }
    assert_eq!(stderr.lines().filter(|line| line.contains(": done after ")).count(), 17);
    let records = read_lines(&fs::read_to_string(format!("{out}/results.jsonl")).unwrap()).unwrap();
    let found = |name: &str| {
        let record = records.iter().find(|record| {
            (&*record.store.name, &*record.workload, record.threads) == (name, "readrandom", 1)
        });
        record.and_then(|record| record.results.found)
    };
    assert!(found("trommel").is_some_and(|found| (550..700).contains(&found)));
    for other in [
        "trommel-mapped-trusted",
        "rocksdb",
        "rocksdb-best",
        "rocksdb-mmap",
        "fjall-best",
        "lmdb",
        "lmdb-best",
        "redb-best",
    ] {
        assert_eq!(found(other), found("trommel"), "{other}");
    }
    assert_eq!(fs::read_dir(stores.path()).unwrap().count(), 0);

    let results = format!("{out}/results.jsonl");
    let output = run(&["--from", &results], stores.path());
    assert_eq!(text(&output.stdout), stdout);
    assert_eq!(fs::read_to_string(format!("{out}/report.md")).unwrap(), stdout);
}

#[test]
fn studies_have_their_figures_and_settings() {
    let (scratch, stores) = (
        ScratchDir::new(&std::env::temp_dir()).unwrap(),
        ScratchDir::new(&std::env::temp_dir()).unwrap(),
    );
    let out = scratch.path().display().to_string();
    let arguments = ["--quick", "--studies", "all", "--out", &out];
    let output = run(&arguments, stores.path());
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert_eq!(fs::read_dir(stores.path()).unwrap().count(), 0);
    let records = read_lines(&fs::read_to_string(format!("{out}/results.jsonl")).unwrap()).unwrap();
    let has = |name: &str, workload: &str| {
        let same = |record: &&trommel_harness::record::Record| {
            (&*record.store.name, &*record.workload) == (name, workload)
        };
        records.iter().any(|record| same(&record))
    };
    for workload in [
        "fillsync",
        "fillsync (64 threads)",
        "first get (cold)",
        "recovery",
        "multi-get (cold)",
        "ycsbf",
        "reads, paced",
    ] {
        for name in ["trommel", "rocksdb-best"] {
            assert!(has(name, workload), "{name}: {workload}\n{stdout}");
        }
    }
    assert!(has("trommel-direct", "get (cold)") && has("rocksdb-direct", "get (cold)"));

    for words in [
        "## Synced writes\n",
        "Entries lost",
        "Rounds: 1; of each figure",
        "The best Trommel compared with the fastest rival:\n\n* 1: trommel",
        "on, synced at each write",
        "fjall, LMDB and redb commit one write at a time",
    ] {
        assert!(stdout.contains(words), "{words} is missing in\n{stdout}");
    }
    let lost = records.iter().filter(|record| record.workload == "recovery");
    assert!(
        lost.clone().count() >= 6
            && lost.clone().all(|record| record.results.found == record.results.lookups)
    );
}

#[test]
fn an_unfinished_store_is_reported_and_the_rest_continues() {
    let stores = ScratchDir::new(&std::env::temp_dir()).unwrap();
    let arguments = ["--num", "20M", "--patience", "1", "--rows", "read"];
    let arguments = [&arguments[..], &["--stores", "lmdb*,redb"]].concat();
    let output = run(&arguments, stores.path());
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    for name in ["lmdb", "lmdb-best", "redb"] {
        let line = format!("* **{name}, round 1: fillrandom was not done after 1 s**\n");
        assert!(stdout.contains(&line), "{line} is missing in\n{stdout}");
    }
    assert_eq!(fs::read_dir(stores.path()).unwrap().count(), 0);
}

//! `trommel demo` and `trommel bench`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Program, Ran};

#[test]
fn a_wrong_filter_is_explained_in_the_engine_s_words() {
    let program = Program::new();
    for (spec, part) in
        [("paird:10", "did you mean `paired`"), ("L9=paired:10", "L6"), ("paired", "paired:10")]
    {
        for command in ["bench", "demo"] {
            let ran = program.run(&format!("{command} --filters={spec}"));
            assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{spec}: {ran:?}");
            assert!(ran.err.contains(spec) && ran.err.contains(part), "{spec}: {}", ran.err);
        }
    }
}

#[test]
fn a_bench_prints_lines_of_db_bench_and_leaves_nothing() {
    let program = Program::new();
    let ran = program.run(
        "bench --benchmarks=fillseq,fillrandom,flush,waitforcompaction,levelstats,readrandom,\
         readmissing,readseq,readreverse,multireadrandom,seekrandom,filterstats,stats,overwrite,\
         deleterandom,compact,verify --num=2000 --threads=2 --filters=paired:10",
    );
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{}", ran.out);
    let found = |name: &str| {
        let line = ran.out.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("{name} is missing in {}", ran.out)).to_owned()
    };
    for name in ["fillrandom", "overwrite"] {
        let line = found(&format!("{name:<12} : "));
        assert!(line.contains(" micros/op ") && line.contains(" seconds 4000 operations; "));
        assert!(line.ends_with(" MB/s"), "{line}");
    }
    assert!(found("readmissing  : ").ends_with(" 4000 operations; (0 of 4000 found)"));
    // Two threads draw 4,000 of 2,000 keys, and hit 1 - 1/e^2 of them: 86.5%.
    let line = found("readrandom   : ");
    let hits: u64 = line.split(['(', ' ']).rev().nth(3).unwrap().parse().unwrap();
    assert!((3300..3600).contains(&hits), "{line}");
    assert!(line.ends_with("of 4000 found)"), "{line}");
    for start in
        ["Seed:       42", "Filters:    paired:10", "Level Files Size(MB)", "verify       : OK, "]
    {
        found(start);
    }
    assert_eq!(program.left_over(), [] as [PathBuf; 0]);
}

#[test]
fn a_given_directory_is_kept_and_used_again() {
    let program = Program::new();
    let db = program.path("db");
    let db = db.display();
    let fill = program.run(&format!("bench --db={db} --num=1000 --benchmarks=fillseq"));
    assert_eq!(fill.code, Some(0), "{fill:?}");
    let again = program.run(&format!("bench --db={db} --num=1000 --benchmarks=fillseq"));
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.err.contains("is not empty") && again.err.contains("--use-existing-db"));
    let read = program.run(&format!(
        "bench --db={db} --use_existing_db=1 --num=1000 --histogram --benchmarks=fillseq,readrandom"
    ));
    assert_eq!(read.code, Some(0), "{read:?}");
    assert!(read.out.contains("\nfillseq      : skipped (--use_existing_db is true)\n"));
    assert!(read.out.contains("(1000 of 1000 found)\nMicroseconds per read:\nCount: 1000 "));
    assert!(program.path("db").is_dir());
}

#[test]
fn a_directory_that_is_no_store_has_its_own_exit_code() {
    let program = Program::new();
    fs::create_dir(program.path("photos")).unwrap();
    fs::write(program.path("photos/cat.jpg"), b"a cat").unwrap();
    let photos = program.path("photos");
    let ran = program.run(&format!(
        "bench --db={} --use-existing-db --benchmarks=readrandom --num=10",
        photos.display()
    ));
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(ran.err.contains("is not a store"), "{ran:?}");
    let missing = program.path("absent");
    let ran = program.run(&format!(
        "bench --db={} --use-existing-db --benchmarks=readrandom --num=10",
        missing.display()
    ));
    assert_eq!(ran.code, Some(6), "{ran:?}");
    let ran = program.run(&format!("bench --db={} --num=10", photos.display()));
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert_eq!(fs::read(photos.join("cat.jpg")).unwrap(), b"a cat");
}

#[test]
fn keys_come_from_a_file() {
    let program = Program::new();
    let words = program.path("words");
    fs::write(&words, "pear\napple\nfig\n\napple\n").unwrap();
    let ran = program.run(&format!(
        "bench --keys_file={} --benchmarks=fillseq,readrandom,readmissing --reads=500",
        words.display()
    ));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("Entries:    3\n"), "{}", ran.out);
    assert!(ran.out.contains("(500 of 500 found)") && ran.out.contains("(0 of 500 found)"));
    let ran = program.run("bench --keys-file=/no/such/words");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.starts_with("error: reading /no/such/words failed"), "{ran:?}");
}

#[test]
fn the_main_job_ends_in_one_table() {
    let program = Program::new();
    let ran = program.run("demo --num=20K --missing=200K");
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{}", ran.out);
    let table: Vec<&str> = ran.out.lines().filter(|line| line.starts_with('|')).collect();
    for name in ["paired:23.4", "blocked:23.4", "standard:23.4"] {
        assert!(table[0].contains(name), "{}", ran.out);
    }
    for row in [
        "measured",
        "95% interval",
        "expected in theory",
        "per false positive",
        "filter memory",
        "per write",
    ] {
        assert!(table.iter().any(|line| line.contains(row)), "{row}: {}", ran.out);
    }
    assert_eq!(program.left_over(), [] as [PathBuf; 0]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let program = Program::new();
    let mut child = program
        .command("bench --num=20000 --benchmarks=fillseq,readseq,readseq")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::with_capacity(1, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), &*err), (Some(0), ""));
    assert_eq!(program.left_over(), [] as [PathBuf; 0]);
}

#[test]
fn an_interrupted_bench_prints_what_it_has_and_cleans_up() {
    let program = Program::new();
    let child = program
        .command("bench --num=500M --benchmarks=fillrandom,readrandom")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while program.left_over().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    let since = Instant::now();
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(
        ran.out.contains("\nfillrandom   : ") && ran.out.contains("(interrupted)\n"),
        "{ran:?}"
    );
    assert!(!ran.out.contains("readrandom"), "{ran:?}");
    assert!(ran.err.starts_with("error: interrupted; the measurements so far"), "{ran:?}");
    assert_eq!(program.left_over(), [] as [PathBuf; 0]);
}

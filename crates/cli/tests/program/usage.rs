//! Help, and the errors for wrong usage.

use std::path::PathBuf;

use crate::support::{Program, check_snapshot};

#[test]
fn help_explains_everything() {
    let program = Program::new();
    for (name, line) in [
        ("help", "--help"),
        ("help_bench", "help bench"),
        ("help_demo", "help demo"),
        ("help_stress", "help stress"),
    ] {
        let ran = program.run(line);
        assert_eq!((ran.code, &*ran.err), (Some(0), ""));
        check_snapshot(name, &ran.out);
    }
    assert!(program.run("--version").out.starts_with("trommel 0."));
}

#[test]
fn wrong_usage_says_what_is_right() {
    let program = Program::new();
    let mut text = String::new();
    for line in [
        "bnch",
        "bench --benchmarks=fillseq,fillrndom",
        "bench --cache_size=64X",
        "bench --num=many",
        "bench --num=1,5M",
        "bench --num=1.5",
        "bench --num=0",
        "bench --value-size=16777215T",
        "demo --value-size=16777215T",
        "bench --threads=0",
        "bench --key-size=1 --num=1000",
        "bench --use-existing-db",
        "bench --compression-ratio=2",
        "bench --keys-file=words --key-size=10",
        "demo --read-mode=fast",
        "stress --keys=5",
        "stress --value-size=1K-16",
        "stress --faults=2",
        "stress --duration=soon",
        "stress --reopen-every=0",
        "stress -use_txn=1",
        "stress -bloom_bits=many",
        "stress -filter_uri=speedb.PairedBloomFilter",
        "bench -filter_uri=speedb.PairedBloomFilter",
        "bench -filter_uri=bloomfilter:10:true",
        "bench --max_bytes_for_level_multiplier=8.5",
        "bench --use_blob_db=1",
        "filter-bench -impl=speedb.pairedbloomfilter",
        "tune simulate --keys=1M --misses=ninety",
        "stress-worker a b",
    ] {
        let ran = program.run(line);
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{line}: {ran:?}");
        text += &format!("$ trommel {line}\n{}\n", ran.err);
    }
    check_snapshot("usage_errors", &text);
    assert_eq!(program.left_over(), [] as [PathBuf; 0]);
}

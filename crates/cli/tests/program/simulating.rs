//! `trommel tune simulate`.

use crate::support::{Program, check_snapshot};

#[test]
fn a_thousand_million_keys_are_told_of_at_once() {
    let program = Program::new();
    let line = "tune simulate --keys 1e9 --value-size 256";
    let ran = program.run(line);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    check_snapshot("tune_simulate", &ran.out);
    for format in ["json", "csv", "jsonl"] {
        let ran = program.run(&format!("{line} --format {format} --filters budget=10/key"));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{format}");
        assert!(ran.out.contains("wasted_reads_per_lookup"), "{}", ran.out);
    }
    let json = program.run(&format!("{line} --format json --filters paired:10 --misses 0"));
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let keys = json["tree"].as_array().unwrap().iter().map(|level| level["keys"].as_u64().unwrap());
    assert_eq!(keys.sum::<u64>(), 1_000_000_000);
    assert!(json["assumptions"].as_array().unwrap().len() > 3);
    assert_eq!(json["levels"].as_array().unwrap().last().unwrap()["wasted_reads_per_lookup"], 0.0);
}

#[test]
fn what_cannot_be_simulated_is_refused_with_what_can() {
    let program = Program::new();
    let mut text = String::new();
    for line in [
        "tune",
        "tune simulate",
        "tune simulate --keys=lots",
        "tune simulate --keys=1M --misses=2",
        "tune simulate --keys=1M --compressed=0",
        "tune simulate --keys=1M --level-ratio=1",
        "tune simulate --keys=1M --filters=paired",
        "tune simulate --keys=1M --filters=budget=much",
        "tune simulate --keys=1M --filters=budget=10/key,misses=1",
    ] {
        let ran = program.run(line);
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{line}: {ran:?}");
        text += &format!("$ trommel {line}\n{}\n", ran.err);
    }
    check_snapshot("tune_simulate_errors", &text);
}

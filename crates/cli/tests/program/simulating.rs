//! `trommel tune simulate` and `trommel tune advise`.

use crate::support::{Program, check_snapshot};

#[test]
fn a_billion_keys_are_simulated_at_once() {
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
    let costs = program.run(&format!("{line} --format csv --read-cost L0=0.5 --read-cost L3=0"));
    assert_eq!((costs.code, &*costs.err), (Some(0), ""));
    assert!(costs.out.contains(",cache_lines,wasted_cost_per_lookup"), "{}", costs.out);
    assert!(costs.out.contains("costs 0.5 on L0, 0 on L3, and 1 on other levels"), "{}", costs.out);
}

#[test]
fn impossible_simulations_are_rejected_with_a_valid_example() {
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
        "tune simulate --keys=1M --read-cost=L0",
        "tune simulate --keys=1M --read-cost=0.1",
        "tune simulate --keys=1M --read-cost=L0=-1",
        "tune simulate --keys=1M --read-cost=L0=nan",
        "tune advise",
        "tune advise --db=none --probe=9999",
        "tune advise --db=none --budget=much",
    ] {
        let ran = program.run(line);
        assert_eq!((ran.code, &*ran.out), (Some(2), ""), "{line}: {ran:?}");
        text += &format!("$ trommel {line}\n{}\n", ran.err);
    }
    check_snapshot("tune_simulate_errors", &text);
}

#[test]
fn advice_has_its_reasons() {
    let program = Program::new();
    // Enough keys that two deeper levels remain when level 0 has been compacted, and the last flush
    // is a third. Without background threads the tree is always the same, and so is the advice.
    let fill = "bench --benchmarks=fillrandom,waitforcompaction,flush --num=40K --filters=paired:10 \
                --write-buffer-size=64K --table-size=64K --base-level-size=128K \
                --max-background-jobs=0";
    assert_eq!(program.run_on(fill).code, Some(0));
    let advise = |flags: &str| {
        let ran = program.run_on(&format!("tune advise --probe=20K --format=json {flags}"));
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{flags}");
        serde_json::from_str::<serde_json::Value>(&ran.out).unwrap()
    };
    let advice = advise("");
    let levels = advice["levels"].as_array().unwrap();
    assert!(levels.len() > 2, "{advice}");
    assert_eq!(advice["all"]["verdict"], "change");
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let (now, then) = ("wasted_reads_per_lookup", "advised_wasted_reads_per_lookup");
    assert!(number(&advice["all"][then]) < number(&advice["all"][now]), "{advice}");
    let all_hit = advise("--misses=0");
    let reasons = all_hit["reasons"].as_array().unwrap();
    let last = reasons.last().unwrap()["reason"].as_str().unwrap();
    assert!(last.starts_with("no filter") && last.contains("missing keys"), "{last}");
    assert!(all_hit["all"]["policy"].as_str().unwrap().ends_with("last=none"), "{all_hit}");
    assert!(number(&advise("--budget=5/key")["all"]["budget_bytes"]) < 20_000.0);
    // The assumptions about what was not observed are listed.
    let assumed = advice["assumptions"].to_string();
    assert!(assumed.contains("20,000 lookups made for this (--probe)"), "{assumed}");
    assert!(assumed.contains("100% of lookups find nothing (--misses)"), "{assumed}");
    assert!(assumed.contains("the same on every level"), "{assumed}");
    let summary = advice["all"]["summary"].as_str().unwrap();
    assert!(summary.contains("(100.0% find nothing, as given)"), "{summary}");
    // Upper levels that the cache holds need fewer bits, and the last more.
    let [first, second] = [0, 1].map(|i| levels[i]["level"].as_str().unwrap());
    let costs = format!("--read-cost={first}=0 --read-cost={second}=0.1");
    let cached = advise(&format!("{costs} --misses=0.9"));
    assert_eq!(cached["levels"][0]["advised"], "none", "{cached}");
    let (cost, reads) = ("wasted_cost_per_lookup", "wasted_reads_per_lookup");
    assert!(number(&cached["all"][cost]) < number(&cached["all"][reads]), "{cached}");
    let assumed = cached["assumptions"].to_string();
    let costs = format!("costs 0 on {first}, 0.1 on {second} (--read-cost)");
    assert!(assumed.contains(&costs), "{assumed}");
    assert!(assumed.contains("90% of lookups"), "{assumed}");
    let refused = program.run_on("tune advise --misses=1.5");
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("is not a fraction from 0 to 1"), "{}", refused.err);
    // An empty store has nothing to filter.
    let empty = program.path("empty");
    assert_eq!(program.run(&format!("put a b --create --db {}", empty.display())).code, Some(0));
    let ran = program.run(&format!("tune advise --db {}", empty.display()));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("no_tables"), "{}", ran.out);
}

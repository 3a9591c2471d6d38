use super::*;
use crate::control::{Silent, Stop};
use crate::map_store::MapOpener;

fn plan(steps: &str) -> Plan {
    let keys = KeySpace::integers(1000, 16).unwrap();
    Plan {
        steps: steps.split(',').map(|step| step.parse().unwrap()).collect(),
        threads: 2,
        operations: Operations { writes: 1000, reads: 500, deletes: 1000, both: 1000 },
        options: WorkloadOptions { seek_nexts: 10, ..WorkloadOptions::default() },
        ..Plan::new(keys, Values::new(100, 0.5, 42))
    }
}

fn output(plan: &Plan, stop: &Stop) -> (String, Result<(), Error>) {
    let mut out = Vec::new();
    let result =
        bench(plan, &MapOpener::default(), Control { stop, progress: &Silent }, &mut out, None);
    (String::from_utf8(out).unwrap(), result)
}

/// The text with every measured time masked.
fn without_times(text: &str) -> String {
    text.lines().map(without_time).fold(String::new(), |text, line| text + &line + "\n")
}

fn without_time(line: &str) -> String {
    let Some((name, rest)) = line.split_once(" : ") else { return line.into() };
    let Some((_, rest)) = rest.split_once(" seconds ") else { return line.into() };
    let after = rest.split_once(" MB/s").map_or(String::new(), |(_, end)| format!(" B/s{end}"));
    let operations = rest.split_once(';').unwrap().0;
    let end = if rest.contains("MB/s") { after } else { rest.split_once(';').unwrap().1.into() };
    format!("{name} : {operations};{end}")
}

#[test]
fn a_run_prints_its_setup_and_a_line_for_each_workload() {
    let plan = plan(
        "fillseq,readseq,fillrandom,overwrite,fillseq,readrandom,readmissing,flush,\
         waitforcompaction,levelstats,resetstats,verify",
    );
    let (text, result) = output(&plan, &Stop::new());
    result.unwrap();
    let verify = text.lines().last().unwrap();
    assert!(verify.starts_with("verify       : OK, 1000 entries in memory ("), "{verify}");
    let expected = "\
Keys:       16 bytes each (+ 0 bytes user-defined timestamp)
Values:     100 bytes each (50 bytes after compression)
Entries:    1000
RawSize:    0.1 MB (estimated)
Threads:    2
Seed:       42
Store:      a map in memory
------------------------------------------------
fillseq      : 2000 operations; B/s
readseq      : 1000 operations; B/s
fillrandom   : 2000 operations; B/s
overwrite    : 2000 operations; B/s
fillseq      : 2000 operations; B/s
readrandom   : 1000 operations; B/s (1000 of 1000 found)
readmissing  : 1000 operations; (0 of 1000 found)
flush        : 1 operations;
waitforcompaction(memory): started
waitforcompaction(memory): finished with status (OK)

Level Files Size(MB)
--------------------
";
    assert_eq!(without_times(text.trim_end().trim_end_matches(verify)), expected);
}

/// A limit in bytes per second used to be converted with the size of the plan's values, even for
/// workloads that write others.
#[test]
fn a_limit_in_bytes_counts_the_bytes_of_each_workload() {
    let mut plan = plan("fillseq");
    plan.rates.write_bytes = Some(1_160_000.0);
    plan.rates.read = Some(7.0);
    let records = Records::new(1);
    let rates = |plan: &Plan, workload| {
        let own_values = load::own_values(plan, workload);
        let load = load::of(plan, workload, own_values.as_ref(), &records, 0);
        (load.rate, load.beside_rate)
    };
    let large = 1_160_000.0 / 100_016.0;
    for (workload, rate, beside) in [
        (Workload::Overwrite, Some(10_000.0), 10_000.0),
        (Workload::FillSync, Some(10_000.0), 10_000.0),
        (Workload::YcsbLoad, Some(10_000.0), 10_000.0),
        (Workload::Fill100K, Some(large), large),
        (Workload::DeleteRandom, Some(72_500.0), 10_000.0),
        (Workload::ReadWhileWriting, Some(7.0), 10_000.0),
        (Workload::YcsbC, Some(7.0), 10_000.0),
        (Workload::YcsbA, None, 10_000.0),
        (Workload::Compact, None, 10_000.0),
    ] {
        assert_eq!(rates(&plan, workload), (rate, Some(beside)), "{workload}");
    }
}

#[test]
fn fills_leave_an_existing_store_alone() {
    let mut plan = plan("fillrandom,readrandom");
    plan.existing = true;
    let (text, result) = output(&plan, &Stop::new());
    assert!(text.contains("\nfillrandom   : skipped (--use_existing_db is true)\n"), "{text}");
    let error = result.unwrap_err().to_string();
    assert!(error.contains("readrandom found none of 1000 keys"), "{error}");
}

#[test]
fn histograms_are_printed_on_request() {
    let mut plan = plan("fillseq,readrandom");
    plan.options.latencies = true;
    let (text, result) = output(&plan, &Stop::new());
    result.unwrap();
    assert!(text.contains("\nMicroseconds per write:\nCount: 2000 Average: "), "{text}");
    assert!(text.contains("\nMicroseconds per read:\nCount: 1000 Average: "), "{text}");
}

#[test]
fn a_stopped_run_prints_its_results_and_ends() {
    let stop = Stop::new();
    stop.set();
    let (text, result) = output(&plan("fillrandom,readrandom"), &stop);
    assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
    assert!(text.ends_with("0 operations; (interrupted)\n"), "{text}");
}

#[test]
fn every_workload_runs_in_a_bench() {
    let names: Vec<&str> = Workload::all().map(Workload::name).collect();
    let (before, after) = names.split_at(names.iter().position(|name| *name == "ycsba").unwrap());
    assert_eq!(before.last(), Some(&"ycsbload"));
    let mut plan = plan(&[before, after].concat().join(","));
    plan.options.latencies = true;
    let (text, result) = output(&plan, &Stop::new());
    result.unwrap();
    for workload in Workload::all().filter(|workload| workload.is_counted()) {
        let start = format!("{workload:<12} : ");
        let line = text.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("{workload} is missing in {text}"));
        assert!(!line.contains(" 0 operations"), "{line}");
        assert!(!line.contains("interrupted"), "{line}");
    }
    let operations = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{name:<12} : "))).unwrap();
        let (_, rest) = line.split_once(" seconds ").unwrap();
        rest.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(operations("fillsync"), 2, "two threads, a thousandth each");
    assert_eq!(operations("filluniquerandom"), 1000, "the threads share them");
    assert_eq!(operations("ycsbload"), 1000);
    assert_eq!(operations("open"), 1);
    assert_eq!(operations("readwhilewriting"), 1000);
    assert!(text.contains("checkpoint   : skipped"), "a map lies in no directory");
}

#[test]
fn repeated_steps_print_each_run_and_all_together() {
    let plan = plan("fillseq[X2],readrandom[W1-X3]");
    let (text, result) = output(&plan, &Stop::new());
    result.unwrap();
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("---")).collect();
    let starts = [
        "---",
        "Running benchmark for 2 times",
        "fillseq      : ",
        "fillseq      : ",
        "fillseq [AVG    2 runs] : ",
        "fillseq [MEDIAN 2 runs] : ",
        "Warming up benchmark by running 1 times",
        "readrandom   : ",
        "Running benchmark for 3 times",
        "readrandom   : ",
        "readrandom   : ",
        "readrandom   : ",
        "readrandom [AVG    3 runs] : ",
        "readrandom [MEDIAN 3 runs] : ",
    ];
    assert_eq!(lines.len(), starts.len(), "{text}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn an_impossible_plan_is_rejected_before_it_begins() {
    let refused = |plan: &Plan| {
        let (text, result) = output(plan, &Stop::new());
        assert_eq!(text, "");
        result.unwrap_err().to_string()
    };
    for steps in ["fillseq,ycsba", "ycsbc", "ycsbload,fillrandom,ycsba"] {
        assert!(refused(&plan(steps)).contains("put ycsbload before it"), "{steps}");
    }
    let mut plan = plan("ycsbload,ycsbd");
    plan.keys = KeySpace::lines(b"a\nb".to_vec(), None).unwrap();
    assert!(refused(&plan).contains("not from a file"));
    plan.steps.pop();
    output(&plan, &Stop::new()).1.unwrap();
}

#[test]
fn a_cold_store_is_reopened_with_its_entries() {
    let mut plan = plan("fillseq,readrandom,overwrite,readmissing");
    plan.cold = true;
    let (text, result) = output(&plan, &Stop::new());
    result.unwrap();
    assert!(text.contains("(1000 of 1000 found)"), "{text}");
    let scratch = crate::ScratchDir::new(&std::env::temp_dir()).unwrap();
    let opener = crate::EngineOpener::new(
        scratch.path().join("db"),
        trommel::Options::default(),
        Vec::new(),
    );
    let mut out = Vec::new();
    let steps = "fillseq,flush,readrandom,open,checkpoint,verify";
    plan.steps = steps.split(',').map(|step| step.parse().unwrap()).collect();
    let control = Control { stop: &Stop::new(), progress: &Silent };
    bench(&plan, &opener, control, &mut out, None).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("(1000 of 1000 found)"), "{text}");
    assert!(text.contains("\ncheckpoint   : ") && text.contains(" 1 operations;"), "{text}");
    assert!(!checkpoint_dir(&scratch.path().join("db")).exists(), "it is removed");
}

#[test]
fn each_run_that_counts_is_recorded() {
    let scratch = crate::ScratchDir::new(&std::env::temp_dir()).unwrap();
    let dir = scratch.path().join("db");
    let opener = crate::EngineOpener::new(dir, trommel::Options::default(), Vec::new());
    let mut plan = plan("fillseq,flush,levelstats,readmissing[W1-X2],waitforcompaction");
    plan.options.latencies = true;
    let mut records = Vec::new();
    let mut write = |record| {
        records.push(record);
        Ok(())
    };
    let run = record::Run { id: "run".into(), ..record::Run::default() };
    let mut journal = Journal { run, write: &mut write };
    let control = Control { stop: &Stop::new(), progress: &Silent };
    bench(&plan, &opener, control, &mut Vec::new(), Some(&mut journal)).unwrap();
    let of: Vec<_> = records.iter().map(|record| (&*record.workload, record.repeat)).collect();
    let expected = [
        ("fillseq", 1),
        ("flush", 1),
        ("readmissing", 1),
        ("readmissing", 2),
        ("waitforcompaction", 1),
    ];
    assert_eq!(of, expected);
    let (fill, read) = (&records[0], &records[2]);
    assert_eq!(
        (fill.results.operations, fill.threads, read.results.lookups),
        (2000, 2, Some(1000))
    );
    assert_eq!(fill.state.io.as_ref().unwrap().user_bytes, Some(2000 * 116));
    let (io, filters) = (read.state.io.as_ref().unwrap(), read.state.filters.as_ref().unwrap());
    assert_eq!((io.lookups.gets, io.user_bytes), (Some(1000), Some(0)), "its own gets alone");
    assert_eq!(filters.iter().map(|level| level.counts.probes).sum::<u64>(), 1000);
    assert_eq!(read.results.series.iter().map(|point| point.1).sum::<u64>(), 1000);
    assert!(
        read.results.latency_ns.is_some()
            && read.results.user_seconds.is_some()
            && read.state.memory.is_some()
    );
}

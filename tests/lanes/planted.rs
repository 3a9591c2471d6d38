//! `lanes planted`: shows that the lanes find bugs, by planting some.
//!
//! 1. The test binaries are built once, with all bugs in them, none of them active; those of the
//!    engine's unit tests and those of the Raft crate too, for bugs that name one.
//! 2. For each bug the tests run with it: first the one written for it, if there is one, or the one
//!    that found it the last time, then the others, the quickest first if their times are known.
//!    The first that fails has found the bug. A test that has to be killed has not: it must detect
//!    a hang itself.
//! 3. The control: every test that found a bug runs once more without one, and must pass.
//!
//! A bug that no test finds means that a lane is too weak, or that it is not a bug.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use trommel_tests::planted::{Bug, Catalogue};

use crate::binaries::{Build, Outcome, Test, build, root, tests_of};
use crate::job::{End, command_of, run as run_job, scratch, words_of};
use crate::{copy, page, record};

/// The file of the record, below the root.
const RECORD: &str = "benches/records/planted.json";

/// The arguments of `lanes planted`.
#[derive(Debug, Args)]
pub(crate) struct PlantedArgs {
    /// Only this bug (see `lanes list`); may be given several times. Records nothing without
    /// `--keep`.
    #[arg(long, value_name = "NAME")]
    bug: Vec<String>,
    /// Records the results for these bugs, and keeps the record of the others.
    #[arg(long, requires = "bug")]
    keep: bool,
    /// Only this many bugs, selected by the commit: each commit selects others. Records nothing.
    #[arg(long, value_name = "COUNT", conflicts_with = "bug")]
    some: Option<usize>,
    /// Only the tests whose name contains this.
    #[arg(long, value_name = "TEXT")]
    test: Option<String>,
    /// Number of parallel processes.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    jobs: usize,
    /// Time limit of one test, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
}

/// The test that found a bug.
#[derive(Debug, Clone)]
pub(crate) struct Caught {
    /// The test that failed.
    pub(crate) test: String,
    /// Seconds until it failed, without the tests that passed before.
    pub(crate) seconds: f64,
    /// Seconds for all tests up to and including it.
    pub(crate) searched: f64,
    /// Its output.
    pub(crate) said: String,
}

/// Bugs, and the tests that found them.
type Finds<'a> = Vec<(&'a Bug, Option<Caught>)>;
/// Tests, and their seconds without a bug.
type Times = Vec<(String, f64)>;

/// Prints the lanes' tests and the bugs.
pub(crate) fn list() -> Outcome<bool> {
    for binary in build(Build::Plain)? {
        for test in tests_of(&binary)? {
            println!("lane {}", test.id());
        }
    }
    for bug in Catalogue::load(&root())?.bugs() {
        println!("bug {}: {} ({})", bug.name, bug.what, bug.seen);
    }
    Ok(true)
}

/// Runs the requested bugs. Returns whether all were found.
pub(crate) fn run(args: &PlantedArgs) -> Outcome<bool> {
    let catalogue = Catalogue::load(&root())?;
    let bugs = chosen(args, &catalogue)?;
    let mut tests = Vec::new();
    for binary in build(Build::Planted(&copy::update(&catalogue)?))? {
        tests.extend(tests_of(&binary)?);
    }
    let mut written = catalogue.bugs().iter().filter_map(|bug| bug.test.as_ref());
    if let Some(id) = written.find(|id| tests.iter().all(|test| test.id() != **id)) {
        return Err(format!("{id}, which was written for a bug, is no test any more"));
    }
    let wanted = |test: &Test| args.test.as_ref().is_none_or(|text| test.id().contains(text));
    tests.retain(wanted);
    if tests.is_empty() {
        return Err("there is no such test".to_owned());
    }
    let whole = args.bug.is_empty() && args.some.is_none() && args.test.is_none();
    let kept = record::read(RECORD)?;
    let times = times(&kept);
    let order = |test: &Test| times.get(&test.id()).copied().unwrap_or(f64::MAX);
    tests.sort_by(|a, b| order(a).total_cmp(&order(b)));
    let before = finders(&kept);
    let found = in_parallel(args.jobs, &bugs, |bug| {
        let found = search(bug, &tests, before.get(&bug.name), args)?;
        match &found {
            Some(caught) => eprintln!("{}: {} in {:.1} s", bug.name, caught.test, caught.seconds),
            None => eprintln!("{}: NOT FOUND by any test", bug.name),
        }
        Ok(found)
    })?;
    let all: Vec<_> = bugs.iter().copied().zip(found).collect();
    let found_one = |test: &&Test| all.iter().flat_map(|(_, c)| c).any(|c| c.test == test.id());
    let control = control(&tests.iter().filter(found_one).cloned().collect::<Vec<_>>(), args)?;
    if whole {
        write(&catalogue, &all, &control)?;
    } else if args.keep {
        let (all, control) = beside_what_is_known(&catalogue, &kept, &all, control);
        write(&catalogue, &all, &control)?;
    }
    let missed = all.iter().filter(|(_, caught)| caught.is_none()).count();
    eprintln!("{} bugs planted, {missed} not found", all.len());
    Ok(missed == 0)
}

/// The bugs to plant.
fn chosen<'a>(args: &PlantedArgs, catalogue: &'a Catalogue) -> Outcome<Vec<&'a Bug>> {
    let bugs = catalogue.bugs();
    if let Some(count) = args.some {
        let commit = record::commit();
        let digits = commit.get(..8).and_then(|start| usize::from_str_radix(start, 16).ok());
        let first = digits.unwrap_or(0);
        let nth = |i| &bugs[(first + i * 7) % bugs.len()];
        return Ok((0..count.min(bugs.len())).map(nth).collect());
    }
    if args.bug.is_empty() {
        return Ok(bugs.iter().collect());
    }
    let find = |name: &String| {
        let bug = catalogue.bug(name);
        bug.ok_or_else(|| format!("there is no bug {name}: see `lanes list`"))
    };
    args.bug.iter().map(find).collect()
}

/// Runs the tests that found a bug, without one. Returns the seconds of each.
fn control(tests: &[Test], args: &PlantedArgs) -> Outcome<Vec<(String, f64)>> {
    eprintln!("control: {} tests without a bug", tests.len());
    in_parallel(args.jobs, tests, |test| {
        let log = scratch("planted")?.join(format!("{}.log", test.id().replace("::", ".")));
        let ended = run_job(&mut command_of(test), &log, Duration::from_secs(args.limit * 10))?;
        if ended.end != End::Succeeded {
            let said = words_of(&ended.output);
            return Err(format!("{} fails without any bug:\n{said}", test.id()));
        }
        Ok((test.id(), ended.seconds))
    })
}

/// The seconds of tests, from the control in the record.
fn times(kept: &Value) -> HashMap<String, f64> {
    let tests = kept.pointer("/control").and_then(Value::as_object);
    let tests = tests.into_iter().flatten();
    tests.map(|(id, time)| (id.clone(), time.as_f64().unwrap_or(0.0))).collect()
}

/// Runs the tests with `bug` until one fails.
fn search(
    bug: &Bug,
    tests: &[Test],
    before: Option<&String>,
    args: &PlantedArgs,
) -> Outcome<Option<Caught>> {
    let start = Instant::now();
    let finder = bug.test.as_ref().or(before);
    let is_first = |test: &&Test| finder.is_some_and(|id| *id == test.id());
    let first = tests.iter().filter(is_first);
    let others = tests.iter().filter(|test| !is_first(test) && !test.is_of_one_bug());
    for test in first.chain(others) {
        let log = scratch("planted")?.join(format!("{}.log", bug.name));
        let mut command = command_of(test);
        command.env("TROMMEL_PLANTED", &bug.name);
        let ended = run_job(&mut command, &log, Duration::from_secs(args.limit))?;
        match ended.end {
            End::Succeeded => {}
            End::TimedOut => {
                eprintln!("{}: {} had to be killed, and did not say why", bug.name, test.id());
            }
            End::Failed => {
                let said = words_of(&ended.output);
                let searched = start.elapsed().as_secs_f64();
                let (test, seconds) = (test.id(), ended.seconds);
                return Ok(Some(Caught { test, seconds, searched, said }));
            }
        }
    }
    Ok(None)
}

/// Calls `work` on each of `items`, `jobs` at a time; returns the results in their order.
fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    work: impl Fn(&T) -> Outcome<R> + Sync,
) -> Outcome<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while let Some((at, item)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    items.get(at).map(|item| (at, item))
                } {
                    let result = work(item);
                    let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    done.push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The test that found each bug, from the record.
fn finders(kept: &Value) -> HashMap<String, String> {
    let text = |bug: &Value, key: &str| Some(bug.get(key)?.as_str()?.to_owned());
    let bugs = kept.get("bugs").and_then(Value::as_array).into_iter().flatten();
    bugs.filter_map(|bug| Some((text(bug, "bug")?, text(bug, "caught_by")?))).collect()
}

fn write(
    catalogue: &Catalogue,
    all: &[(&Bug, Option<Caught>)],
    control: &[(String, f64)],
) -> Outcome<()> {
    record::write(RECORD, &as_json(catalogue, all, control)?)?;
    page::write_planted(catalogue, all)
}

/// Merges new results with those in the record: of all bugs, and of all tests' times.
fn beside_what_is_known<'a>(
    catalogue: &'a Catalogue,
    kept: &Value,
    found: &[(&Bug, Option<Caught>)],
    control: Times,
) -> (Finds<'a>, Times) {
    let now = |bug: &Bug| found.iter().find(|(other, _)| other.name == bug.name);
    let all = catalogue.bugs().iter().map(|bug| {
        let caught = now(bug).map_or_else(|| known(kept, bug), |(_, caught)| caught.clone());
        (bug, caught)
    });
    let mut times = times(kept);
    times.extend(control);
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_by(|a, b| a.0.cmp(&b.0));
    (all.collect(), times)
}

/// The test that found this bug, from the record.
fn known(kept: &Value, bug: &Bug) -> Option<Caught> {
    let bugs = kept.get("bugs")?.as_array()?;
    let line = bugs.iter().find(|line| line["bug"] == *bug.name)?;
    let number = |key: &str| line[key].as_f64().unwrap_or(0.0);
    Some(Caught {
        test: line["caught_by"].as_str()?.to_owned(),
        seconds: number("seconds"),
        searched: number("seconds_searched"),
        said: line["said"].as_str().unwrap_or_default().to_owned(),
    })
}

fn as_json(
    catalogue: &Catalogue,
    all: &[(&Bug, Option<Caught>)],
    control: &[(String, f64)],
) -> Outcome<Value> {
    let bug = |(bug, caught): &(&Bug, Option<Caught>)| {
        let mut line = json!({
            "bug": bug.name,
            "seen_before": bug.seen,
            "what": bug.what,
            "where": catalogue.sites(bug),
        });
        if let Some(caught) = caught {
            line["caught_by"] = json!(caught.test);
            line["seconds"] = record::rounded(caught.seconds);
            line["seconds_searched"] = record::rounded(caught.searched);
            line["said"] = json!(caught.said);
        }
        line
    };
    let caught = all.iter().filter(|(_, caught)| caught.is_some()).count();
    let mut record = record::head("planted")?;
    record["planted"] = json!(all.len());
    record["caught"] = json!(caught);
    let control = control.iter().map(|(id, time)| (id.clone(), record::rounded(*time)));
    record["control"] = Value::Object(control.collect());
    record["bugs"] = all.iter().map(bug).collect();
    Ok(record)
}

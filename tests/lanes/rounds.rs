//! `lanes ci` and `lanes soak`: all lanes, once or until the time is over.
//!
//! 1. The test binaries are built, and the scripts build what they need. A *task* is one test of a
//!    binary, or a script.
//! 2. Several tasks run in parallel. Each writes its counters to one file; each has a log.
//! 3. A soak starts over when all tasks have run, each round with seeds of its own. When the time
//!    is over no new task starts, and running ones are waited for.
//! 4. A failure is recorded with its output, the line that reproduces it first.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use crate::binaries::{Build, Outcome, Test, build, lanes_of, root, tests_of};
use crate::job::{End, command_of, run, scratch, words_of};
use crate::sums::{Floor, Sums};
use crate::{page, record};

/// Scripts that run lanes with a build of their own; `--build` only makes that build. The last are
/// their additional arguments in a soak: how long to fuzz each target.
const SCRIPTS: [(&str, &str, &[&str]); 2] = [
    ("schedules", "tests/schedules/run.sh", &[]),
    ("fuzz", "tests/fuzz/run.sh", &["--seconds", "10"]),
];

/// Time limit of all lanes together for a change, on two cores, with the dependencies already
/// built.
const LONGEST_CI: Duration = Duration::from_secs(15 * 60);

/// Distance between the first seeds of successive rounds: no lane uses as many.
const SEEDS_A_ROUND: u64 = 1 << 24;

/// The arguments of `lanes ci`.
#[derive(Debug, Args)]
pub(crate) struct CiArgs {
    /// Only the lanes whose name contains this. Records nothing.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Number of parallel lanes.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    jobs: usize,
}

/// The arguments of `lanes soak`.
#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// Time during which new runs start, in minutes.
    #[arg(long, value_name = "MINUTES", default_value_t = 60.0)]
    minutes: f64,
    /// The first seed of the first round; each round starts 2^24 seeds later.
    #[arg(long, value_name = "SEED", default_value_t = 1 + SEEDS_A_ROUND)]
    first_seed: u64,
    /// Only the lanes whose name contains this. Records nothing.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Number of parallel lanes.
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    jobs: usize,
}

/// Time limit of one task; a lane has watchdogs of its own, with better reports.
const LONGEST: Duration = Duration::from_secs(3600);

/// Minimum counts of a complete run for a change.
const FLOORS: [Floor; 17] = [
    Floor { lanes: "model/", noun: "operations", least: 20_000_000 },
    Floor { lanes: "crash/", noun: "images", least: 200_000 },
    Floor { lanes: "crash/", noun: "distinct", least: 200_000 },
    Floor { lanes: "crash/", noun: "faults", least: 1_000 },
    Floor { lanes: "crash/", noun: "kills", least: 1_000 },
    Floor { lanes: "damage/", noun: "flips", least: 10_000 },
    Floor { lanes: "damage/", noun: "cuts", least: 10_000 },
    Floor { lanes: "schedules/", noun: "schedules", least: 1_000 },
    Floor { lanes: "damage/", noun: "hostile", least: 10_000 },
    Floor { lanes: "model/metamorphic", noun: "operations", least: 1_000_000 },
    Floor { lanes: "model/linearizable", noun: "calls", least: 10_000 },
    Floor { lanes: "model/bank", noun: "audits", least: 1_000 },
    Floor { lanes: "rescue/", noun: "stores", least: 1_000 },
    Floor { lanes: "limits/", noun: "scenarios", least: 25 },
    Floor { lanes: "loom/", noun: "orders", least: 1_000 },
    Floor { lanes: "fuzz/", noun: "executions", least: 100_000 },
    Floor { lanes: "stress/", noun: "kills", least: 1 },
];

/// A task, run as one process.
#[derive(Debug, Clone)]
enum Task {
    Test(Test),
    /// Its name, the script below the root, and its arguments.
    Script(&'static str, &'static str, &'static [&'static str]),
}

impl Task {
    fn name(&self) -> String {
        match self {
            Self::Test(test) => test.id(),
            Self::Script(name, ..) => (*name).to_owned(),
        }
    }

    fn command(&self) -> Command {
        match self {
            Self::Test(test) => command_of(test),
            Self::Script(_, path, args) => script(path, args),
        }
    }
}

/// The progress of the rounds, and their failures.
#[derive(Debug, Default)]
struct Progress {
    /// Number of tasks started.
    begun: usize,
    /// Number of tasks that succeeded.
    passed: usize,
    failures: Vec<Value>,
    /// The first error of the runner itself.
    broken: Option<String>,
}

/// The command that runs a script with these arguments.
fn script(path: &str, args: &[&str]) -> Command {
    let mut command = Command::new(root().join(path));
    command.args(args).current_dir(root());
    command
}

/// The tasks whose name contains `only`, all built.
fn tasks(only: Option<&str>, is_soak: bool) -> Outcome<Vec<Task>> {
    let mut all = Vec::new();
    for (name, path, more) in SCRIPTS {
        all.push(Task::Script(name, path, if is_soak { more } else { &[] }));
    }
    for binary in build(Build::Plain)? {
        all.extend(tests_of(&binary)?.into_iter().map(Task::Test));
    }
    all.retain(|task| only.is_none_or(|text| task.name().contains(text)));
    for task in &all {
        let Task::Script(_, path, _) = task else { continue };
        let built = script(path, &["--build"]).status();
        if !built.map_err(|error| format!("{path}: {error}"))?.success() {
            return Err(format!("{path} cannot build what it runs: see above"));
        }
    }
    if all.is_empty() {
        return Err("there is no such lane: see `lanes list`".to_owned());
    }
    Ok(all)
}

/// Runs every lane once.
pub(crate) fn ci(args: &CiArgs) -> Outcome<bool> {
    let rounds = Rounds::new("ci", tasks(args.only.as_deref(), false)?, 1, None)?;
    rounds.run(args.jobs);
    let took = rounds.start.elapsed();
    let whole = args.only.is_none();
    let passed = rounds.keep("ci", whole.then_some("benches/records/lanes-ci.json"))?;
    if !whole {
        return Ok(passed);
    }
    let short = rounds.sums().below(&FLOORS);
    for what in &short {
        eprintln!("too little: {what}");
    }
    let is_long = took > LONGEST_CI;
    if is_long {
        eprintln!("too long: {took:.0?}, not {LONGEST_CI:?}");
    }
    Ok(passed && short.is_empty() && !is_long)
}

/// Runs the lanes until the time is over.
pub(crate) fn soak(args: &SoakArgs) -> Outcome<bool> {
    let tasks = tasks(args.only.as_deref(), true)?;
    let time = Duration::try_from_secs_f64(args.minutes * 60.0);
    let time = time.map_err(|error| format!("--minutes {}: {error}", args.minutes))?;
    let rounds = Rounds::new("soak", tasks, args.first_seed, Some(time))?;
    rounds.run(args.jobs);
    let command = format!("soak --minutes {}", args.minutes);
    rounds.keep(&command, args.only.is_none().then_some("benches/records/lanes-soak.json"))
}

/// Repeated runs of all tasks.
struct Rounds {
    tasks: Vec<Task>,
    first_seed: u64,
    /// When to stop starting tasks; none for one round.
    time: Option<Duration>,
    start: Instant,
    /// The directory of logs and counters.
    dir: PathBuf,
    progress: Mutex<Progress>,
}

impl Rounds {
    fn new(name: &str, tasks: Vec<Task>, first_seed: u64, time: Option<Duration>) -> Outcome<Self> {
        let dir = scratch(name)?;
        // Files of an earlier run would be counted, or mistaken for a failure of this one.
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
        let start = Instant::now();
        Ok(Self { tasks, first_seed, time, start, dir, progress: Mutex::default() })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, jobs: usize) {
        std::thread::scope(|scope| {
            for worker in 0..jobs.max(1) {
                scope.spawn(move || self.work(worker));
            }
        });
    }

    /// Runs one task after another, until there is none to start.
    fn work(&self, worker: usize) {
        loop {
            let nth = {
                let mut progress = self.progress();
                let over = match self.time {
                    None => progress.begun == self.tasks.len(),
                    Some(time) => self.start.elapsed() >= time,
                };
                if over || progress.broken.is_some() {
                    return;
                }
                progress.begun += 1;
                progress.begun - 1
            };
            let (round, task) = (nth / self.tasks.len(), &self.tasks[nth % self.tasks.len()]);
            let seed = self.first_seed + round as u64 * SEEDS_A_ROUND;
            if let Err(what) = self.one(task, seed, worker) {
                self.progress().broken.get_or_insert(what);
            }
        }
    }

    fn one(&self, task: &Task, seed: u64, worker: usize) -> Outcome<()> {
        let mut command = task.command();
        command.env("TROMMEL_LANES_JSON", self.dir.join("counts.jsonl"));
        command.env("TROMMEL_FIRST_SEED", seed.to_string());
        let log = self.dir.join(format!("worker-{worker}.log"));
        let ended = run(&mut command, &log, LONGEST)?;
        let minutes = self.start.elapsed().as_secs_f64() / 60.0;
        let name = task.name();
        let mut progress = self.progress();
        if ended.end == End::Succeeded {
            progress.passed += 1;
            if ended.seconds > 1.0 {
                eprintln!("[{minutes:6.1} min] {name}: passed in {:.1} s", ended.seconds);
            }
            return Ok(());
        }
        let said = words_of(&ended.output);
        eprintln!("[{minutes:6.1} min] {name}: {:?} with seed {seed}\n{said}", ended.end);
        let kept = self.dir.join(format!("failure-{}.log", progress.failures.len()));
        std::fs::copy(&log, &kept).map_err(|error| format!("{}: {error}", kept.display()))?;
        let again = again(task, seed, &ended.output);
        progress.failures.push(json!({ "lane": name, "seed": seed, "again": again, "said": said }));
        Ok(())
    }

    /// The sum of all runs' counters so far.
    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        sums.add_file(&self.dir.join("counts.jsonl"));
        sums
    }

    /// Writes the record to `path`, if given, and the page. Returns whether nothing failed.
    fn keep(&self, command: &str, path: Option<&str>) -> Outcome<bool> {
        let mut progress = self.progress();
        if let Some(what) = progress.broken.take() {
            return Err(what);
        }
        let sums = self.sums();
        let seconds = self.start.elapsed().as_secs_f64();
        eprintln!(
            "{} runs passed, {} failed, in {:.1} minutes",
            progress.passed,
            progress.failures.len(),
            seconds / 60.0
        );
        let Some(path) = path else { return Ok(progress.failures.is_empty()) };
        let rounds = progress.begun.div_ceil(self.tasks.len());
        let last_seed = self.first_seed + rounds.saturating_sub(1) as u64 * SEEDS_A_ROUND;
        let mut record = record::head(command)?;
        record["seconds"] = record::rounded(seconds);
        record["rounds"] = json!(rounds);
        record["first_seeds"] = json!([self.first_seed, last_seed]);
        record["runs"] = json!({ "passed": progress.passed, "failed": progress.failures.len() });
        record["failures"] = json!(progress.failures);
        record["totals"] = json!(sums.totals());
        record["lanes"] = sums.as_json();
        record::write(path, &record)?;
        page::write_lanes()?;
        Ok(progress.failures.is_empty())
    }
}

/// The command that reruns a task by hand. A script prints how to reproduce its findings itself; a
/// failed build of its own shows when it is run again.
fn again(task: &Task, seed: u64, output: &str) -> String {
    match task {
        Task::Script(_, path, _) => {
            let said = |line: &str| {
                let after = |word| line.split_once(word).map(|(_, rest)| rest.trim().to_owned());
                after("replay: ").or_else(|| after("again: "))
            };
            output.lines().find_map(said).unwrap_or_else(|| (*path).to_owned())
        }
        Task::Test(Test { binary, name, .. }) => {
            let package = if lanes_of(binary).is_some() { "trommel-cli" } else { "trommel-tests" };
            let test = format!("cargo test -p {package} --test {binary} -- --exact {name}");
            format!("TROMMEL_FIRST_SEED={seed} {test}")
        }
    }
}

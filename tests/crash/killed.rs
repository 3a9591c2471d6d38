//! Processes that die: a child writes to a store on the real disk, reports its acknowledged writes
//! over a pipe, and is killed at random. The parent opens the store afterwards.
//!
//! 1. The child is this program, made to run only [`child`] by its environment. Each of its threads
//!    writes batches to keys of its own, one after another, some of them synced, and prints a line
//!    for each as soon as it is acknowledged.
//! 2. The parent kills it after a random time, while it opens, writes, flushes, compacts or
//!    recovers from the last kill. Then it opens the store: a prefix of each thread's batches is
//!    present, with all acknowledged ones, and at most one more. On a machine on which children do
//!    not live long enough to write, later ones live longer.
//! 3. The same directory is used through all kills of a run, until it holds many batches, and is
//!    verified occasionally.
//!
//! A kill before the child's first acknowledgement, most often while it opens the store, is counted
//! separately as `kills.before_opening`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fastrand::Rng;
use trommel::{Db, Options};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, rounds};

use crate::inspect::{Verdict, compare_reads, failed, scan};
use crate::oracle::{History, Operation, State};
use crate::workload::{FILTERS, options_of, write};
use trommel_tests::watchdog;

/// The environment variable of the child: directory, seed, and the number of batches of each
/// thread.
pub(crate) const CHILD: &str = "TROMMEL_CRASH_CHILD";
/// The prefix of its lines, to distinguish them from the test harness's.
pub(crate) const ACKNOWLEDGED: &str = "acknowledged";
/// Maximum batches of a run before a fresh directory is used, to bound the cost of comparisons.
const BATCHES: usize = 20_000;

pub(crate) fn store_options(seed: u64) -> Options {
    let vfs = std::sync::Arc::new(trommel::vfs::DiskVfs);
    // Otherwise each child would recompute the theory of paired filters, for a tenth of a second.
    let filters = FILTERS.map(|filters| match filters {
        "budget=6/key" => "budget=6/key,kinds=blocked|standard",
        "budget=400" => "budget=400,kinds=blocked|standard",
        other => other,
    });
    let options = options_of(seed, vfs, &filters).background_threads(2);
    options.compaction(|c| c.base_level_bytes(32 << 10).l0_slowdown(20).l0_stop(30))
}

/// Batch `number` of `thread`: several keys of that thread's own, some of them deleted, also by
/// ranges.
pub(crate) fn batch(seed: u64, thread: usize, number: usize) -> (Vec<Operation>, bool) {
    let mut rng = Rng::with_seed(seed ^ (thread as u64) << 48 ^ number as u64);
    let length = [1, 1, 2, 7][rng.usize(..4)];
    let operation = |rng: &mut Rng| {
        let place = rng.u32(..100);
        let key = format!("{thread}/{place:03}").into_bytes();
        if rng.u8(..20) == 0 {
            let end = format!("{thread}/{:03}", place + rng.u32(..30)).into_bytes();
            return Operation::DeleteRange(key, Some(end));
        }
        let value = format!("{number}.{}", "x".repeat(rng.usize(..300))).into_bytes();
        Operation::set(key, (rng.u8(..6) > 0).then_some(value))
    };
    // The counter makes each state unique.
    let counter =
        Operation::Put(format!("{thread}/count").into_bytes(), number.to_string().into_bytes());
    let operations = (0..length).map(|_| operation(&mut rng)).chain([counter]).collect();
    (operations, rng.u8(..8) == 0)
}

/// Not a test of its own: the child of the others runs this.
#[test]
fn child() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let mut words = order.split('|');
    let dir = words.next().expect("a directory");
    let mut number = || words.next().and_then(|word| word.parse().ok());
    let seed: usize = number().expect("a seed");
    let started: Vec<usize> = std::iter::from_fn(number).collect();
    let db = Db::open(dir, store_options(seed as u64)).expect("opening");
    std::thread::scope(|scope| {
        for (thread, &first) in started.iter().enumerate() {
            let db = &db;
            scope.spawn(move || {
                for number in first.. {
                    let (operations, sync) = batch(seed as u64, thread, number);
                    write(db, &operations, sync).expect("writing");
                    // One call, so that no line is partial.
                    let line = format!("{ACKNOWLEDGED} {thread} {number}\n");
                    let mut out = std::io::stdout().lock();
                    out.write_all(line.as_bytes()).expect("a parent that listens");
                }
            });
        }
    });
}

/// Starts the child that runs this test, with its parameters and each thread's number of batches in
/// its environment.
pub(crate) fn spawn(test: &str, name: &str, mut order: String, started: &[usize]) -> Child {
    started.iter().for_each(|count| order.push_str(&format!("|{count}")));
    Command::new(std::env::current_exe().expect("this program"))
        .args([test, "--exact", "--nocapture"])
        .env(name, order)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child")
}

/// Reads a child's output until it ends; returns the number of acknowledged batches of each thread,
/// starting from the given ones.
fn read_acknowledged(out: impl Read, mut acknowledged: Vec<usize>) -> Vec<usize> {
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        let Some(rest) = line.strip_prefix(ACKNOWLEDGED) else { continue };
        let numbers: Vec<usize> =
            rest.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [thread, number] = numbers[..] else { continue };
        acknowledged[thread] = number + 1;
    }
    acknowledged
}

/// The batches that the threads of a run have written so far.
pub(crate) struct Threads {
    seed: u64,
    histories: Vec<History>,
}

impl Threads {
    /// Threads without batches.
    pub(crate) fn new(seed: u64, threads: usize) -> Self {
        Self { seed, histories: vec![History::default(); threads] }
    }

    /// Follows a child until it has ended; returns the number of acknowledged batches of each
    /// thread, starting from the given ones, and whether it was killed.
    pub(crate) fn listen(
        &self,
        mut child: Child,
        before: Vec<usize>,
    ) -> Verdict<(Vec<usize>, bool)> {
        let out = child.stdout.take().ok_or("no pipe")?;
        let acknowledged = read_acknowledged(out, before);
        let status = child.wait().map_err(|error| error.to_string())?;
        if status.success() || status.signal() == Some(9) {
            return Ok((acknowledged, !status.success()));
        }
        let mut said = String::new();
        let _ = child.stderr.take().ok_or("no pipe")?.read_to_string(&mut said);
        Err(format!("the child ended by itself ({status}): {said}"))
    }

    /// Number of batches of each thread.
    pub(crate) fn counts(&self) -> Vec<usize> {
        self.histories.iter().map(History::len).collect()
    }

    pub(crate) fn batches(&self) -> usize {
        self.counts().iter().sum()
    }

    /// Lets a child run and kills it; returns the number of acknowledged batches of each thread.
    fn run_and_kill(&self, dir: &Path, lifetime: Duration) -> Vec<usize> {
        let order = format!("{}|{}", dir.display(), self.seed);
        let mut child = spawn("killed::child", CHILD, order, &self.counts());
        let out = child.stdout.take().expect("a pipe");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| read_acknowledged(out, self.counts()));
            std::thread::sleep(lifetime);
            if child.try_wait().expect("a child to check").is_some() {
                let mut said = String::new();
                let errors = child.stderr.as_mut().expect("a pipe");
                errors.read_to_string(&mut said).expect("reading the pipe");
                panic!("the child ended by itself: {said}");
            }
            child.kill().expect("a child to kill");
            child.wait().expect("a killed child");
            reader.join().expect("reading the pipe")
        })
    }

    /// Compares the store with the acknowledged batches, and adopts those that are present.
    pub(crate) fn settle(&mut self, state: &State, acknowledged: &[usize]) -> Verdict<()> {
        let mut known = 0;
        for (thread, history) in self.histories.iter_mut().enumerate() {
            let prefix = format!("{thread}/").into_bytes();
            let own: State = state
                .iter()
                .filter(|(key, _)| key.starts_with(&prefix))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            known += own.len();
            let low = acknowledged[thread];
            for number in history.len()..=low {
                history.push(batch(self.seed, thread, number).0);
            }
            let found = crate::oracle::digest(&own);
            let count = history.prefix(found, low, low + 1).ok_or_else(|| {
                format!("thread {thread}: {}", history.explain(&own, low, low + 1))
            })?;
            history.truncate(count);
        }
        if known == state.len() { Ok(()) } else { Err("there are keys that nobody wrote".into()) }
    }
}

/// How long a child may live, in microseconds: one of `longest`, doubled for each three children in
/// a row that were killed before they wrote anything (`early` in all), up to 64 times.
pub(crate) fn longest_life(rng: &mut Rng, longest: [u64; 2], early: u32) -> u64 {
    longest[rng.usize(..2)] << (early / 3).min(6)
}

/// A fresh directory on the disk of the build: the temporary directory may be in memory.
pub(crate) fn home_on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory")
}

/// Kills `kills` children with this many threads, all on one directory.
fn kill_often(threads: usize, seed: u64, kills: u64, counters: &mut Counters) -> Verdict<usize> {
    let home = home_on_disk();
    let mut rng = Rng::with_seed(seed);
    let fresh = || Threads::new(seed, threads);
    let (mut run, mut dir, mut done) = (fresh(), home.path().join("db"), 0);
    let mut early = 0;
    for kill in 0..kills {
        watchdog::note([seed, kill, 0, 0, 0]);
        let longest = longest_life(&mut rng, [30_000, 250_000], early);
        let lifetime = Duration::from_micros(rng.u64(3_000..longest));
        let before = run.counts();
        let acknowledged = run.run_and_kill(&dir, lifetime);
        early = if acknowledged == before { early + 1 } else { 0 };
        counters.add("kills", 1);
        counters.add("kills.before_opening", u64::from(acknowledged == before));
        // Sometimes the next child recovers what the last one left, and is killed while recovering.
        if rng.u8(..4) == 0 && acknowledged == run.counts() {
            continue;
        }
        let at = |what| format!("after kill {kill}: {what}");
        let read_only = rng.u8(..4) == 0 && dir.join("CURRENT").exists();
        let options = store_options(seed).opening(|o| o.read_only(read_only));
        let db = Db::open(&dir, options).map_err(failed("opening")).map_err(at)?;
        let state = scan(&db).map_err(at)?;
        run.settle(&state, &acknowledged).map_err(at)?;
        if kill % 8 == 0 {
            compare_reads(&db, &state).map_err(at)?;
            db.verify().map_err(failed("verifying")).map_err(at)?;
        }
        if run.batches() > BATCHES {
            done += run.batches();
            (run, dir) = (fresh(), home.path().join(format!("db{kill}")));
        }
    }
    Ok(done + run.batches())
}

fn kill_in_runs(test: &str, threads: usize, kills: u64) {
    let mut counters = Counters::new(format!("crash/{test}"));
    let runs = rounds(4);
    for seed in first_seed()..first_seed() + runs {
        let batches = kill_often(threads, seed, kills / 4, &mut counters).unwrap_or_else(|what| {
            panic!(
                "{what}\n  run it again: TROMMEL_FIRST_SEED={seed} cargo test -p trommel-tests \
                 --test crash {test} -- --nocapture (the moments of the kills differ)"
            )
        });
        assert!(batches > 0, "seed {seed}: all children were killed before they wrote anything");
        counters.add("batches", batches as u64);
    }
    assert!(counters.get("kills") >= rounds(kills), "fewer kills than promised");
    let early = counters.get("kills.before_opening");
    assert!(early < counters.get("kills"), "no child was killed at work");
    counters.finish();
}

#[test]
fn one_writer_killed() {
    kill_in_runs("one_writer_killed", 1, 120);
}

#[test]
fn three_writers_killed() {
    kill_in_runs("three_writers_killed", 3, 100);
}

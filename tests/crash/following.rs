//! A follower in this process beside a writer in another, which is killed again and again.
//!
//! 1. The child is that of [`killed`](crate::killed): it writes batches, prints a line for each
//!    that is acknowledged, flushes, compacts and rotates its logs meanwhile, and is killed at a
//!    random moment.
//! 2. Meanwhile the follower catches up without a break. Each time it must show, for every thread
//!    of the child, the state after some number of its batches: at least as many as were
//!    acknowledged when the call was made.
//! 3. After the kill, and before the next child recovers, it catches up once more. It must then
//!    show exactly what an open for reading recovers.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use trommel::{Db, Error, Follower};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, rounds};

use crate::inspect::{Verdict, failed, scan};
use crate::killed::{ACKNOWLEDGED, CHILD, batch, home_on_disk, longest_life, spawn, store_options};
use crate::oracle::{History, State, digest};

/// What the child's threads have written, as far as the follower has shown it.
struct Shown {
    seed: u64,
    histories: Vec<History>,
    /// Batches of each thread that the follower has shown.
    counts: Vec<usize>,
}

impl Shown {
    /// Checks a state in which at least `low` batches of each thread must be.
    fn check(&mut self, state: &State, low: &[usize]) -> Verdict<()> {
        let mut known = 0;
        for (thread, history) in self.histories.iter_mut().enumerate() {
            let prefix = format!("{thread}/").into_bytes();
            let own = state.iter().filter(|(key, _)| key.starts_with(&prefix));
            let own: State = own.map(|(key, value)| (key.clone(), value.clone())).collect();
            known += own.len();
            let number = own.get(format!("{thread}/count").as_bytes());
            let number = number.and_then(|number| std::str::from_utf8(number).ok()?.parse().ok());
            let count = number.map_or(0, |number: usize| number + 1);
            let least = low[thread].max(self.counts[thread]);
            for number in history.len()..count.max(least) {
                history.push(batch(self.seed, thread, number).0);
            }
            let found = history.prefix(digest(&own), least, count);
            self.counts[thread] = found.ok_or_else(|| {
                format!("thread {thread}: {}", history.explain(&own, least, count.max(least)))
            })?;
        }
        if known == state.len() { Ok(()) } else { Err("there are keys that nobody wrote".into()) }
    }
}

/// Opens a follower, once there is a store.
fn open(dir: &Path, seed: u64) -> Verdict<Option<Follower>> {
    match Db::open_follower(dir, store_options(seed)) {
        Ok(follower) => Ok(Some(follower)),
        Err(Error::NotAStore { .. }) => Ok(None),
        Err(error) => Err(format!("opening a follower: {error}")),
    }
}

/// Lets a child run for this long beside `follower`, and kills it.
fn follow_one(
    dir: &Path,
    lifetime: Duration,
    shown: &mut Shown,
    follower: &mut Option<Follower>,
    counters: &mut Counters,
) -> Verdict<()> {
    let seed = shown.seed;
    let order = format!("{}|{seed}", dir.display());
    let mut child = spawn("killed::child", CHILD, order, &shown.counts);
    let out = child.stdout.take().expect("a pipe");
    let acknowledged: Vec<_> = shown.counts.iter().map(|count| AtomicUsize::new(*count)).collect();
    let low = || acknowledged.iter().map(|count| count.load(Ordering::Acquire)).collect::<Vec<_>>();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let Some(rest) = line.strip_prefix(ACKNOWLEDGED) else { continue };
                let mut numbers = rest.split_whitespace().filter_map(|word| word.parse().ok());
                let (Some(thread), Some(number)) = (numbers.next(), numbers.next()) else {
                    continue;
                };
                let thread: usize = thread;
                acknowledged[thread].store(number + 1, Ordering::Release);
            }
        });
        let (start, mut check) = (Instant::now(), || {
            let low = low();
            match follower {
                Some(follower) => _ = follower.catch_up().map_err(failed("catching up"))?,
                None => *follower = open(dir, seed)?,
            }
            let Some(follower) = follower else { return Ok(()) };
            counters.add("catch_ups", 1);
            shown.check(&scan(follower)?, &low)
        });
        let mut outcome = Ok(());
        while start.elapsed() < lifetime && outcome.is_ok() {
            outcome = check();
        }
        child.kill().expect("a child to kill");
        child.wait().expect("a killed child");
        outcome.and_then(|()| check())
    });
    outcome?;
    let Some(follower) = follower else { return Ok(()) };
    // All lines of the child have been read by now.
    follower.catch_up().map_err(failed("catching up after the kill"))?;
    let state = scan(follower)?;
    shown.check(&state, &low())?;
    let options = store_options(seed).opening(|o| o.read_only(true));
    let db = Db::open(dir, options).map_err(failed("opening"))?;
    match scan(&db)? == state {
        true => Ok(()),
        false => Err("the follower shows another state than an open recovers".into()),
    }
}

fn follow_and_kill(test: &str, threads: usize, kills: u64) {
    let mut counters = Counters::new(format!("crash/{test}"));
    for seed in first_seed()..first_seed() + rounds(4) {
        let home = home_on_disk();
        let dir = home.path().join("db");
        let mut rng = Rng::with_seed(seed);
        let histories = vec![History::default(); threads];
        let mut shown = Shown { seed, histories, counts: vec![0; threads] };
        let (mut follower, mut early) = (None, 0);
        for kill in 0..kills / 4 {
            let longest = longest_life(&mut rng, [60_000, 400_000], early);
            let lifetime = Duration::from_micros(rng.u64(10_000..longest));
            if rng.u8(..4) == 0 {
                follower = None;
            }
            let before = shown.counts.clone();
            let outcome = follow_one(&dir, lifetime, &mut shown, &mut follower, &mut counters);
            outcome.unwrap_or_else(|what| {
                panic!(
                    "kill {kill}: {what}\n  run it again: TROMMEL_FIRST_SEED={seed} cargo test -p \
                     trommel-tests --test crash {test} -- --nocapture (the moments of the kills \
                     differ)"
                )
            });
            early = if shown.counts == before { early + 1 } else { 0 };
            counters.add("kills", 1);
        }
        let batches = shown.counts.iter().sum::<usize>();
        assert!(batches > 0, "seed {seed}: all children were killed before they wrote anything");
        counters.add("batches", batches as u64);
        let retries = follower.map_or(0, |f: Follower| f.follower_stats().map_or(0, |s| s.retries));
        counters.add("retries", retries);
    }
    assert!(counters.get("catch_ups") > 2 * counters.get("kills"), "the follower hardly ran");
    counters.finish();
}

#[test]
fn a_follower_of_one_writer_that_is_killed() {
    follow_and_kill("a_follower_of_one_writer_that_is_killed", 1, 60);
}

#[test]
fn a_follower_of_three_writers_that_are_killed() {
    follow_and_kill("a_follower_of_three_writers_that_are_killed", 3, 60);
}

//! Processes that are killed at every call to their disk: the first, the second, and so on, until
//! one survives to the end of its work.
//!
//! 1. The child is this program. It opens the store through a file system that counts its calls and
//!    kills the process in place of the call after the given number: nothing is closed, flushed or
//!    unwound. It writes, syncs, flushes, compacts, makes a checkpoint, closes and reopens; each
//!    acknowledged batch is reported over a pipe.
//! 2. The parent opens the store, after some kills only after the next one. A prefix of each
//!    thread's batches is present, with all acknowledged ones, and at most one more.
//! 3. The same directory is used through all kills of a run: each child first recovers from the
//!    last, and is killed one call later than it.
//!
//! Directories are in memory (`/dev/shm`) where possible, and in one run on the disk.

use std::io::Write;
use std::path::PathBuf;

use fastrand::Rng;
use trommel::Db;
use trommel::vfs::DiskVfs;
use trommel_tests::counters::Counters;
use trommel_tests::scratch::scratch;
use trommel_tests::settings::{cases, first_seed, stride};

use crate::inspect::{Verdict, compare_reads, failed, scan};
use crate::killed::{ACKNOWLEDGED, Threads, batch, home_on_disk, spawn, store_options};
use crate::process::Process;
use crate::settings::only;
use crate::workload::write;
use trommel_tests::watchdog;

/// Batches that each thread of a child writes.
const BATCHES: usize = 16;

/// The environment variable of the child: directory, seed, calls, and the number of batches of each
/// thread.
const CHILD: &str = "TROMMEL_CRASH_CHILD_AT";

/// Not a test of its own: the child of the others runs this.
#[test]
fn child() {
    let Ok(order) = std::env::var(CHILD) else { return };
    let mut words = order.split('|');
    let dir = PathBuf::from(words.next().expect("a directory"));
    let mut number = || words.next().and_then(|word| word.parse::<usize>().ok());
    let (seed, calls) = (number().expect("a seed") as u64, number().expect("calls") as u64);
    let started: Vec<usize> = std::iter::from_fn(number).collect();
    let process = Process::that_kills_itself(DiskVfs, calls);
    let threads = if started.len() > 1 { 2 } else { 0 };
    let open = || {
        let vfs = std::sync::Arc::new(process.clone());
        let options = store_options(seed).vfs(vfs).background_threads(threads);
        Db::open(&dir, options).expect("opening")
    };
    let mut db = open();
    for half in 0..2 {
        std::thread::scope(|scope| {
            for (thread, &first) in started.iter().enumerate() {
                let (db, first) = (&db, first + half * BATCHES / 2);
                scope.spawn(move || work(db, seed, thread, first..first + BATCHES / 2));
            }
        });
        let copy = dir.with_extension(format!("copy-{half}-{calls}"));
        db.checkpoint(&copy).expect("a checkpoint");
        db.close().expect("closing");
        db = open();
    }
}

/// Writes these batches of a thread, with occasional flushes and compactions.
fn work(db: &Db, seed: u64, thread: usize, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let (operations, sync) = batch(seed, thread, number);
        write(db, &operations, sync).expect("writing");
        // One call, so that no line is partial.
        let line = format!("{ACKNOWLEDGED} {thread} {number}\n");
        std::io::stdout().lock().write_all(line.as_bytes()).expect("a parent that listens");
        match number % 8 {
            2 => db.flush().expect("flushing"),
            4 => db.sync().expect("syncing"),
            6 => db.compact_all().expect("compacting"),
            _ => {}
        }
    }
}

/// Kills children at every `step`th call in turn.
fn kill_at_every_call(
    seed: u64,
    threads: usize,
    in_memory: bool,
    step: usize,
    counters: &mut Counters,
) -> Verdict<()> {
    let home = if in_memory { scratch() } else { home_on_disk() };
    let dir = home.path().join("above/db");
    let mut rng = Rng::with_seed(seed);
    let mut run = Threads::new(seed, threads);
    let mut low = run.counts();
    for calls in (0..).step_by(step) {
        watchdog::note([seed, calls as u64, 0, 0, 0]);
        let order = format!("{}|{seed}|{calls}", dir.display());
        let child = spawn("killed_at::child", CHILD, order, &low);
        let (acknowledged, killed) = run.listen(child, low.clone())?;
        let more = sum(&acknowledged) - sum(&low);
        counters.add("acknowledged", more);
        counters.add("kills.before_opening", u64::from(killed && more == 0));
        low = acknowledged;
        let at = |what| format!("killed in place of call {calls}: {what}");
        if killed {
            counters.add("kills", 1);
            // Sometimes the next child recovers what the last one left, and is killed while
            // recovering.
            if rng.u8(..4) == 0 && low == run.counts() {
                continue;
            }
        }
        let db = Db::open(&dir, store_options(seed)).map_err(failed("opening")).map_err(at)?;
        let state = scan(&db).map_err(at)?;
        run.settle(&state, &low).map_err(at)?;
        low = run.counts();
        db.verify().map_err(failed("verifying")).map_err(at)?;
        counters.add("recoveries", 1);
        if rng.u8(..8) == 0 {
            compare_reads(&db, &state).map_err(at)?;
        }
        drop(db);
        if run.batches() > 3000 {
            std::fs::remove_dir_all(home.path().join("above")).map_err(|e| e.to_string())?;
            run = Threads::new(seed, threads);
            low = run.counts();
        }
        if !killed {
            return Ok(());
        }
    }
    Ok(())
}

fn sum(counts: &[usize]) -> u64 {
    counts.iter().sum::<usize>() as u64
}

/// The work of every seed has at least this many calls; fewer would mean that no child was killed.
const FEWEST: u64 = 180;

/// Kills children at every `step`th call, or in plain `cargo test` at one in nine of these, for one
/// seed after another until the scaled `floor` of calls is reached: some seeds make three times as
/// many calls as others.
fn lane(test: &str, threads: usize, in_memory: bool, step: usize, floor: u64) {
    let mut counters = Counters::new(format!("crash/{test}"));
    let chosen = only().map(|[seed]| seed);
    let step = step * stride();
    for seed in chosen.unwrap_or(first_seed()).. {
        let before = counters.get("kills");
        kill_at_every_call(seed, threads, in_memory, step, &mut counters).unwrap_or_else(|what| {
            panic!(
                "{what}\n  run it again: TROMMEL_CRASH_ONLY={seed} cargo test -p trommel-tests \
                 --test crash {test} -- --nocapture"
            )
        });
        let kills = counters.get("kills") - before;
        assert!(kills * step as u64 >= FEWEST, "seed {seed}: killed at {kills} calls only");
        if chosen.is_some() || counters.get("kills") >= cases(floor) {
            break;
        }
    }
    counters.finish();
}

#[test]
fn one_writer_killed_at_every_call() {
    lane("one_writer_killed_at_every_call", 1, true, 1, 600);
}

#[test]
fn three_writers_killed_at_every_call() {
    lane("three_writers_killed_at_every_call", 3, true, 2, 400);
}

#[test]
fn one_writer_killed_on_the_real_disk() {
    lane("one_writer_killed_on_the_real_disk", 1, false, 9, 65);
}

//! Processes that are killed at every call to their disk: the first, the second, and so on, until
//! one lives to the end of its work.
//!
//! 1. The child is this very program. It opens the store through a file system that counts its
//!    calls and, in place of one call more than it was told, kills its own process: nothing is
//!    closed, flushed or unwound. It writes, syncs, flushes, compacts, makes a checkpoint, closes
//!    and opens again; each acknowledged batch is told over a pipe.
//! 2. The parent opens what is left, after some kills only after the next one. Of each thread's
//!    batches a prefix is there, with all that were acknowledged, and at most the one behind them.
//! 3. The same directory goes on through all kills of a run: each child first recovers from the
//!    last, and is killed one call later than that one.
//!
//! Directories lie in memory (`/dev/shm`) where that is to be had, and in one run on the disk.

use std::io::Write;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use trommel::Db;
use trommel::vfs::DiskVfs;
use trommel_tests::counters::Counters;
use trommel_tests::settings::{cases, first_seed};

use crate::inspect::{Verdict, compare_reads, failed, scan};
use crate::killed::{ACKNOWLEDGED, Threads, batch, home_on_disk, spawn, store_options};
use crate::process::Process;
use crate::settings::only;
use crate::workload::write;
use trommel_tests::watchdog;

/// Batches that each thread of a child writes.
const BATCHES: usize = 16;

/// What tells the child that it is one: directory, seed, calls, and the batches of each thread.
const CHILD: &str = "TROMMEL_CRASH_CHILD_AT";

/// Not a test of its own: what the child of the others runs.
#[test]
fn child() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let mut words = told.split('|');
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

/// Writes these batches of a thread, and now and then makes the store tidy up.
fn work(db: &Db, seed: u64, thread: usize, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let (operations, sync) = batch(seed, thread, number);
        write(db, &operations, sync).expect("writing");
        // One call, so that no line is half there.
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

/// Where the stores of a run lie.
fn home(in_memory: bool) -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if in_memory && memory.is_dir() {
        return tempfile::tempdir_in(memory).expect("room in memory");
    }
    home_on_disk()
}

/// Kills children at each call in turn, every `step`th.
fn kill_at_every_call(
    seed: u64,
    threads: usize,
    in_memory: bool,
    step: usize,
    counters: &mut Counters,
) -> Verdict<()> {
    let home = home(in_memory);
    let dir = home.path().join("above/db");
    let mut rng = Rng::with_seed(seed);
    let mut run = Threads::new(seed, threads);
    let mut low = run.counts();
    for calls in (0..).step_by(step) {
        watchdog::note([seed, calls as u64, 0, 0, 0]);
        let told = format!("{}|{seed}|{calls}", dir.display());
        let child = spawn("killed_at::child", CHILD, told, &low);
        let (acknowledged, killed) = run.listen(child, low.clone())?;
        let more = sum(&acknowledged) - sum(&low);
        counters.add("acknowledged", more);
        counters.add("kills.before_opening", u64::from(killed && more == 0));
        low = acknowledged;
        let at = |what| format!("killed in place of call {calls}: {what}");
        if killed {
            counters.add("kills", 1);
            // Now and then the next child finds what the last one left, and is killed recovering.
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

/// No seed's work has fewer calls at which it is killed: less would be none.
const FEWEST: u64 = 20;

/// Kills children at every `step`th call, with one seed after the other until `floor` calls were
/// killed at, so many times as a lane is to be large: some seeds' stores have three times as much
/// to do as others.
fn lane(test: &str, threads: usize, in_memory: bool, step: usize, floor: u64) {
    let mut counters = Counters::new(format!("crash/{test}"));
    let chosen = only().map(|[seed]| seed);
    for seed in chosen.unwrap_or(first_seed()).. {
        let before = counters.get("kills");
        kill_at_every_call(seed, threads, in_memory, step, &mut counters).unwrap_or_else(|what| {
            panic!(
                "{what}\n  run it again: TROMMEL_CRASH_ONLY={seed} cargo test -p trommel-tests \
                 --test crash {test} -- --nocapture"
            )
        });
        let kills = counters.get("kills") - before;
        assert!(kills >= FEWEST, "seed {seed}: killed at {kills} calls only");
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

//! Isolation of transactions, judged by their history.
//!
//! 1. Threads run transactions on a store ([`workload`]). Each holds several open and advances one
//!    of them at a time, so that many overlap. Every value names the writes that it is made of.
//! 2. What each transaction has read and written is its history ([`history`]). At the end, or after
//!    a crash, the whole store is read once more.
//! 3. The order of the versions of each key follows from what was read. With it, the dependencies
//!    between transactions are a graph ([`checker`]), and each anomaly is a cycle of it
//!    ([`cycles`]; Adya, 1999; in the way of Elle: Kingsbury and Alvaro, 2020). All of it takes
//!    linear time.
//! 4. Histories written by hand, each with one anomaly, show that each is found ([`known`]).

mod checker;
mod cycles;
mod history;
mod known;
mod workload;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel::Db;
use trommel::vfs::Vfs;
use trommel_sim::{Policy, SimDisk};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{cases, first_seed};

use self::checker::check;
use self::history::{Execution, Outcome};
use self::workload::{DIR, Load, Shared, mark_lost, options, read_all, run};
use crate::rng::Rng;
use crate::threads::{in_time, memory};

/// Transactions of the lane without crashes: a quarter of them, a million, in the project's CI.
const TRANSACTIONS: u64 = 4_000_000;
/// Transactions of one store.
const ROUND: u64 = 10_000;
/// Number of stores that are crashed, each twice; and of transactions before each crash.
const CRASHED: u64 = 1200;
const CRASHED_ROUND: u64 = 300;

/// Checks the history of one store and adds its counts.
fn judge(seed: u64, history: &[Execution], counters: &mut Counters) {
    let found = check(history);
    let explained: Vec<String> = found.iter().map(|one| one.explain(history)).collect();
    assert!(
        found.is_empty(),
        "seed {seed}: {}\nTROMMEL_FIRST_SEED={seed} begins there (threads ran in parallel, and it \
         may not fail again)",
        explained.join("\n")
    );
    let of = |outcome| history.iter().filter(|one| one.outcome == outcome).count() as u64;
    counters.add("transactions", history.len() as u64);
    counters.add("transactions.committed", of(Outcome::Committed));
    counters.add("transactions.aborted", of(Outcome::Aborted));
}

#[test]
fn no_history_has_an_anomaly() {
    let mut counters = Counters::new("model/isolation");
    let rounds = cases(TRANSACTIONS).div_ceil(ROUND);
    for seed in first_seed()..first_seed() + rounds {
        let history = in_time(move || {
            let db = Db::open(DIR, options(seed, memory())).unwrap();
            let load = Load { seed, threads: 3, transactions: ROUND, first_write: 1 };
            let mut history = run(&Shared::new(&db, &load), &load, || ());
            history.push(read_all(&db));
            db.close().unwrap();
            history
        });
        judge(seed, &history, &mut counters);
    }
    let (all, committed) = (counters.get("transactions"), counters.get("transactions.committed"));
    assert!(committed > all / 4 && committed < all / 20 * 19, "{committed} of {all} committed");
    counters.finish();
}

/// After a crash, each transaction is there completely or not at all, those that were acknowledged
/// as durable are there, and what is left has no anomaly: nothing that is left has read what is
/// lost.
#[test]
fn after_a_crash_each_transaction_is_whole_or_gone() {
    let mut counters = Counters::new("model/isolation_crashes");
    for seed in first_seed()..first_seed() + cases(CRASHED) {
        let (history, lost) = in_time(move || crash_twice(seed));
        counters.add("crashes", 2);
        counters.add("transactions.lost", lost as u64);
        judge(seed, &history, &mut counters);
    }
    assert!(counters.get("transactions.lost") > 0, "no crash lost anything");
    counters.finish();
}

/// The history of a store that is crashed twice while transactions run, and how many are lost.
fn crash_twice(seed: u64) -> (Vec<Execution>, usize) {
    let rng = &mut Rng::new(seed);
    let (mut disk, mut history, mut lost) = (SimDisk::new(), Vec::new(), 0);
    for round in 0..2 {
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        let db = Db::open(DIR, options(seed, vfs)).unwrap();
        let load = Load {
            seed: seed * 2 + round,
            threads: 2,
            transactions: CRASHED_ROUND,
            first_write: 1 + round as u32 * (1 << 20),
        };
        let shared = Shared::new(&db, &load);
        let policy = if rng.once_in(3) { Policy::EVERYTHING } else { Policy::SYNCED };
        let at = rng.below(CRASHED_ROUND as usize) as u64;
        let mut image = None;
        let mut executions = run(&shared, &load, || {
            while !shared.has_left_below(at + 1) {
                std::thread::yield_now();
            }
            shared.is_crashed.store(true, Ordering::SeqCst);
            image = Some(disk.crash(policy, seed).disk());
        });
        history.append(&mut executions);
        drop(db);
        disk = image.expect("it was made");
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        let db = Db::open(DIR, options(seed, vfs)).unwrap();
        let committed = |history: &[Execution]| {
            history.iter().filter(|one| one.outcome == Outcome::Committed).count()
        };
        let before = committed(&history);
        let left = read_all(&db);
        mark_lost(&mut history, &left);
        lost += before - committed(&history);
        history.push(left);
        db.close().unwrap();
    }
    (history, lost)
}

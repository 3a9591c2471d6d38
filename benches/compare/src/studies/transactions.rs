//! Serializable transactions by several threads.
//!
//! Each transaction reads two accounts, moves 1 from one to the other, and writes both; it is tried
//! again until it commits. Apart: the two are drawn from all accounts. Contended: from a few.
//! Afterwards the sum of all balances must be what it was.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use trommel_harness::{Measured, MeasuredTime, StoreError, mix};

use super::{Sizes, Study};
use crate::figures::{Figure, Group};
use crate::settings::Settings;
use crate::stores::{Accounts, account};
use crate::trial::{Trial, write};

const THREADS: [usize; 3] = [1, 2, 4];
const ACCOUNTS: u64 = 500_000;
/// Accounts of contended transactions.
const CONTENDED: u64 = 8;
const BALANCE: u64 = 1_000_000;

pub(super) static STUDY: Study = Study {
    name: "transactions",
    title: "Transactions",
    about: "Threads read two accounts of 16 + 256 bytes, move 1 from one to the other, and write \
            both, in a serializable transaction that is tried again until it commits, for \
            `--transactions-seconds` with each number of threads. Apart: two of half a million \
            accounts; contended: two of eight. Nothing is synced. Afterwards the sum of all \
            balances is checked.",
    stores: &["trommel", "rocksdb-best", "rocksdb", "fjall-best"],
    sizes: &["transactions-seconds"],
    tables: &[
        ("Apart, microseconds a transaction, by threads", &APART),
        ("Contended, microseconds a transaction, by threads", &TOGETHER),
        ("Contended, conflicts per transaction, by threads", &CONFLICTS),
    ],
    raced: &[
        "Apart, microseconds a transaction, by threads",
        "Contended, microseconds a transaction, by threads",
    ],
    unequal: &[
        "Transactions: those of RocksDB (OptimisticTransactionDB) read with GetForUpdate at \
                a snapshot, as they must to be serializable for these reads; a range that was read \
                would not be protected. Those of Trommel and fjall protect ranges too. RocksDB is \
                without its pipelined writes, which transactions do not allow.",
    ],
    settings,
    run,
};

const APART: [Figure; 3] = [
    Figure { title: "1", of: |group| group.per_operation(&title(false, 1)) },
    Figure { title: "2", of: |group| group.per_operation(&title(false, 2)) },
    Figure { title: "4", of: |group| group.per_operation(&title(false, 4)) },
];

const TOGETHER: [Figure; 3] = [
    Figure { title: "1", of: |group| group.per_operation(&title(true, 1)) },
    Figure { title: "2", of: |group| group.per_operation(&title(true, 2)) },
    Figure { title: "4", of: |group| group.per_operation(&title(true, 4)) },
];

const CONFLICTS: [Figure; 3] = [
    Figure { title: "1", of: |group| conflicts(group, 1) },
    Figure { title: "2", of: |group| conflicts(group, 2) },
    Figure { title: "4", of: |group| conflicts(group, 4) },
];

fn title(is_contended: bool, threads: usize) -> String {
    let name = if is_contended { "transactions, contended" } else { "transactions, apart" };
    format!("{name} ({threads} threads)")
}

fn conflicts(group: &Group<'_>, threads: usize) -> Option<f64> {
    let results = &group.find(&title(true, threads))?.results;
    Some(results.bytes as f64 / results.operations.max(1) as f64)
}

fn settings(_sizes: &Sizes) -> Settings {
    Settings::new(ACCOUNTS, 0)
}

fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
    let settings = &trial.spec.settings;
    let store = trial.contender.open_accounts(&trial.spec.dir, settings)?;
    let load = trial.load(0);
    let mut maker = load.keys.maker();
    let value = account(BALANCE, settings.value_bytes);
    for index in 0..ACCOUNTS {
        store.put(maker.key(index), &value)?;
    }
    let duration = Duration::from_secs_f64(trial.spec.sizes.transactions_seconds);
    for is_contended in [false, true] {
        for threads in THREADS {
            let start = SystemTime::now();
            let accounts = if is_contended { CONTENDED } else { ACCOUNTS };
            let measured = transfers(trial, &*store, accounts, threads, duration)?;
            let title = title(is_contended, threads);
            write(&trial.record(&title, start, threads, &measured))?;
        }
    }
    let mut sum = 0_u64;
    for index in 0..ACCOUNTS {
        sum = sum.wrapping_add(store.balance(maker.key(index))?);
    }
    if sum != ACCOUNTS * BALANCE {
        return Err(format!("the balances add up to {sum}, not {}", ACCOUNTS * BALANCE).into());
    }
    Ok(())
}

/// Transfers by some threads. The number of conflicts is in the place of bytes.
fn transfers(
    trial: &Trial<'_>,
    store: &dyn Accounts,
    accounts: u64,
    threads: usize,
    duration: Duration,
) -> Result<Measured, StoreError> {
    let (clock, done, conflicts) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    let one = |thread: u64| -> Result<(), StoreError> {
        let load = trial.load(0);
        let (mut from, mut to) = (load.keys.maker(), load.keys.maker());
        let (mut count, mut met, mut draw) = (0, 0, mix(thread));
        while clock.elapsed() < duration {
            draw = mix(draw);
            let first = draw % accounts;
            let second = (first + 1 + (draw >> 32) % (accounts - 1)) % accounts;
            met += store.transfer(from.key(first), to.key(second))?;
            count += 1;
        }
        done.fetch_add(count, Ordering::Relaxed);
        conflicts.fetch_add(met, Ordering::Relaxed);
        Ok(())
    };
    std::thread::scope(|scope| -> Result<(), StoreError> {
        let one = &one;
        let all: Vec<_> =
            (0..threads as u64).map(|thread| scope.spawn(move || one(thread))).collect();
        all.into_iter().try_for_each(|one| one.join().map_err(|_| "a thread panicked")?)
    })?;
    let (wall, operations) = (clock.elapsed(), done.into_inner());
    let time = MeasuredTime { threads: wall * threads as u32, wall, processor: None };
    Ok(Measured { operations, bytes: conflicts.into_inner(), time, ..Measured::default() })
}

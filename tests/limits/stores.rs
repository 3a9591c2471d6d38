//! Many stores in one process: the threads and file handles that they use, with and without a
//! shared environment.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use trommel::{Db, Environment, Options};

use crate::stage::counted;
use crate::store::{Known, tiny};

/// Longer than an idle thread lives.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of threads in the process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Number of the process's file handles, without the one that counts them.
fn handles() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Number of threads once there are at most `least`, or after the time limit.
fn threads_at_rest(least: usize) -> usize {
    let end = Instant::now() + PATIENCE;
    while threads() > least && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    threads()
}

fn open(dir: &Path, number: usize, options: &Options) -> Db {
    Db::open(dir.join(format!("{number}")), options.clone()).unwrap()
}

/// Each store has threads while it has work, and none while idle: neither after opening, nor after
/// writes.
fn stores_of_their_own(dir: &Path) {
    let before = threads();
    let options = tiny();
    let stores: Vec<Db> = (0..50).map(|number| open(dir, number, &options)).collect();
    assert_eq!(threads(), before, "threads of stores in which there is nothing to do");
    let mut known = vec![Known::default(); stores.len()];
    for (db, known) in stores.iter().zip(&mut known) {
        assert!(known.fill(db, 200).is_none());
        db.flush().unwrap();
    }
    assert!(threads() > before, "nothing was done in the background");
    for db in &stores {
        db.wait_idle().unwrap();
    }
    assert_eq!(threads_at_rest(before), before, "threads of stores at rest");
    // They are started again for more work.
    for (db, known) in stores.iter().zip(&mut known) {
        assert!(known.fill(db, 300).is_none());
        db.wait_idle().unwrap();
        known.check(db);
    }
    drop(stores);
    assert_eq!(threads_at_rest(before), before, "threads of closed stores");
    counted("threads_counted", 1);
}

/// Open files of each store in addition to its tables: lock, log and manifest.
const FILES_OF_A_STORE: usize = 3;

/// Five hundred stores share the threads and the open tables of one environment, whose number does
/// not depend on that of the stores.
fn stores_of_an_environment(dir: &Path) {
    const STORES: usize = 500;
    const THREADS: usize = 3;
    const TABLES: usize = 100;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let environment = Environment::builder()
        .threads(THREADS)
        .cache_bytes(8 << 20)
        .memory_limit(64 << 20)
        .max_open_files(TABLES)
        .build()
        .unwrap();
    let (threads_before, handles_before) = (threads(), handles());
    let options = tiny().environment(&environment);
    let stores: Vec<Db> = (0..STORES).map(|number| open(dir, number, &options)).collect();
    assert_eq!(threads(), threads_before, "threads of stores in which there is nothing to do");
    assert_eq!(handles(), handles_before + STORES * FILES_OF_A_STORE, "handles of new stores");

    let mut known = vec![Known::default(); STORES];
    let mut most = (0, 0);
    for (db, known) in stores.iter().zip(&mut known) {
        assert!(known.fill(db, 10).is_none());
        db.flush().unwrap();
        known.check(db);
        most = (most.0.max(threads()), most.1.max(handles()));
    }
    assert!((threads_before + 1..=threads_before + THREADS).contains(&most.0), "{most:?} threads");
    // A job has its outputs open, and a file that it replaces.
    let least = handles_before + STORES * FILES_OF_A_STORE + TABLES;
    assert!(most.1 <= least + THREADS * 4, "{} handles, at least {least}", most.1);
    let stats = environment.stats();
    assert_eq!(stats.stores, STORES);
    let open = TABLES / 2..=TABLES + THREADS;
    assert!(open.contains(&stats.open_tables), "{stats:?}");

    for db in &stores {
        db.wait_idle().unwrap();
    }
    assert_eq!(threads_at_rest(threads_before), threads_before, "threads of stores at rest");
    assert!(handles() <= least, "{} handles at rest, at least {least}", handles());
    counted("threads_counted", most.0 as u64);
    drop(stores);
    assert_eq!(environment.stats().stores, 0);
    assert_eq!(environment.stats().memtables, 0, "memtables of closed stores");
    assert_eq!(handles(), handles_before, "handles of closed stores");
}

scenarios! {
    five_hundred_stores_share_threads_and_handles in Directory: stores_of_an_environment;
    stores_at_rest_have_no_thread in Directory: stores_of_their_own;
}

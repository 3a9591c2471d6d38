//! Opening a store whose process was killed.
//!
//! 1. Another process fills a store, which keeps everything in its log and its memtable, and kills
//!    itself (SIGKILL): nothing is closed or flushed.
//! 2. The store is opened, which is timed. Its entries are counted.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime};

use rustix::process::{Signal, getpid, kill_process};
use trommel_harness::record::{Record, read_lines};
use trommel_harness::{Load, Store, StoreError, Workload};

use super::open::Times;
use super::{Sizes, Study};
use crate::figures::{Figure, Group};
use crate::settings::Settings;
use crate::trial::{Spec, Trial, WHY, write};

/// Size of the write buffer as a multiple of the log, so that it never fills.
const BUFFERS: u64 = 4;
const KILLS: u32 = 3;

const RECOVERY: &str = "recovery";

pub(super) static STUDY: Study = Study {
    name: "recovery",
    title: "Opening a store whose process was killed",
    about: "A process fills a store in random order with distinct keys of 16 bytes and values of \
            256, `--recovery-mib` MiB of both in total, with a write buffer that holds all of \
            them, and kills itself with SIGKILL. Then the store is opened, and its entries are \
            counted. This is done three times; the time is the median.",
    stores: &["trommel", "rocksdb-best", "rocksdb", "fjall", "lmdb", "redb"],
    sizes: &["recovery-mib"],
    tables: &[
        ("Milliseconds of opening after the kill", &[Figure { title: "ms", of: millis }]),
        ("Entries lost", &[Figure { title: "entries", of: lost }]),
    ],
    raced: &["Milliseconds of opening after the kill"],
    unequal: &[
        "Recovery: LMDB has nothing to recover. redb loses commits without durability, so it \
         makes all of them durable before it is killed, and then checks its whole file.",
        "Recovery: RocksDB and Trommel flush what they recover to tables before they are open.",
    ],
    settings,
    run,
};

fn millis(group: &Group<'_>) -> Option<f64> {
    Some(group.find(RECOVERY)?.results.latency_ns.as_ref()?.p50 as f64 / 1e6)
}

fn lost(group: &Group<'_>) -> Option<f64> {
    let record = group.find(RECOVERY)?;
    Some(record.results.lookups?.saturating_sub(record.results.found?) as f64)
}

fn settings(sizes: &Sizes) -> Settings {
    let bytes = sizes.recovery_mib << 20;
    let base = Settings::new(0, 0);
    let entry_bytes = (base.key_bytes + base.value_bytes) as u64;
    Settings { num: bytes / entry_bytes, write_buffer_bytes: bytes * BUFFERS, ..base }
}

fn run(trial: &Trial<'_>) -> Result<(), StoreError> {
    if trial.spec.is_killed {
        return fill_and_die(trial);
    }
    let start = SystemTime::now();
    let (mut times, mut found) = (Times::default(), (0, 0));
    for _ in 0..KILLS {
        crate::run::remove(&trial.spec.dir)?;
        have_killed(trial)?;
        let clock = Instant::now();
        let store = trial.open(false)?;
        times.add(clock.elapsed());
        let all = Load { operations: u64::MAX, ..trial.load(1) };
        let read = trial.measure(&*store, Workload::ReadSeq, &all)?;
        found = (found.0 + read.operations, found.1 + trial.spec.settings.num);
        store.close()?;
    }
    let measured = trommel_harness::Measured { found: Some(found), ..times.measured() };
    write(&trial.record(RECOVERY, start, 1, &measured))
}

fn fill_and_die(trial: &Trial<'_>) -> Result<(), StoreError> {
    let store = trial.open(true)?;
    let load = trial.filling();
    trial.measure(&*store, Workload::FillUniqueRandom, &load)?;
    if trial.contender.batches {
        store.flush()?;
    }
    Ok(kill_process(getpid(), Signal::KILL)?)
}

/// Runs [`fill_and_die`] in a process, and waits for its end.
fn have_killed(trial: &Trial<'_>) -> Result<(), StoreError> {
    let spec = Spec { is_killed: true, ..trial.spec.clone() };
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--trial")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("a process without standard input")?;
    stdin.write_all((serde_json::to_string(&spec)? + "\n").as_bytes())?;
    let mut said = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut said)?;
    }
    let status = child.wait()?;
    drop(stdin);
    let why = |record: &Record| Some(record.settings.get(WHY)?.as_str()?.to_owned());
    match read_lines(&said).unwrap_or_default().iter().find_map(why) {
        Some(why) => Err(format!("the process to be killed failed: {why}").into()),
        None if status.code().is_some() => {
            Err(format!("the process to be killed ended with {status}").into())
        }
        None => Ok(()),
    }
}

//! Runs one workload on a number of threads.
//!
//! 1. Every thread has its own random stream, derived from the load's seed and stream number.
//! 2. All start together at a gate; each runs its operations until done, stopped or failed.
//!    Workloads such as `readwhilewriting` have an additional background thread, which runs until
//!    the others are done and whose operations are not counted with theirs.
//! 3. A monitoring thread samples the counters ten times a second: it reports the progress, records
//!    the throughput over time, and ends the workload when its duration is over.
//! 4. The threads' results are added up; the first error wins.
//!
//! The loops read a clock per operation only if latencies or a rate are requested; otherwise once
//! before and once after. Besides the store, an operation costs: a random draw, eight bytes of a
//! key, a pointer, and a store to a cache line that no other thread writes. A put of a fill also
//! copies its key, and the mark that the store requests for its values
//! ([`Store::mark`](crate::Store::mark)).

mod background;
mod gate;
mod loops;
mod meter;
mod mixed;
mod worker;
mod ycsb;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::error::{Error, StoreError};
use crate::keys::{KeySpace, mix};
use crate::machine::CpuSeconds;
use crate::measured::Measured;
use crate::store::Store;
use crate::values::Values;
use crate::workload::Workload;

use gate::Gate;
use meter::Meter;
use worker::Worker;
pub use ycsb::Records;

/// The load of a workload.
#[derive(Debug, Clone)]
pub struct Load<'a> {
    /// The keys written and looked up.
    pub keys: &'a KeySpace,
    /// The values written.
    pub values: &'a Values,
    /// Number of threads, at least 1.
    pub threads: usize,
    /// Operations of each thread. A scan ends early at the end of the store.
    pub operations: u64,
    /// Keys are drawn from the numbers below this; at most the number of keys.
    pub range: u64,
    /// Ends the workload after this time, finished or not.
    pub duration: Option<Duration>,
    /// Operations per second that all threads together start. Without a rate, each operation starts
    /// when the previous one has ended.
    pub rate: Option<f64>,
    /// Seed of everything random, together with `stream`.
    pub seed: u64,
    /// Number of this workload in the run, so that no two draw the same.
    pub stream: u64,
    /// Maximum writes per second of the thread that writes while others read.
    pub beside_rate: Option<f64>,
    /// The records of YCSB's workloads; without, as many as there are keys.
    pub records: Option<&'a Records>,
    /// How the operations are done.
    pub options: WorkloadOptions,
}

/// How the operations of a workload are done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkloadOptions {
    /// Operations in one write, and keys in one multi-get; at least 1.
    pub batch: usize,
    /// Entries that a seek reads from its position.
    pub seek_nexts: u64,
    /// Whether a seek reads backwards.
    pub backward: bool,
    /// How seeks use prefixes, if they do.
    pub prefixes: Option<PrefixSeeks>,
    /// Random bytes at the end of a missing key, 1 to 8. One matches db_bench's key sizes; eight
    /// make missing keys distinct, so that every lookup is an independent draw.
    pub tail_bytes: usize,
    /// Percentage of reads in `readrandomwriterandom`.
    pub read_percent: u64,
    /// Fraction of the gets of `getthenput` that look up keys of the space, 0 to 1.
    pub hit_rate: f64,
    /// Whether to keep the time of each operation.
    pub latencies: bool,
}

impl Default for WorkloadOptions {
    /// The defaults of db_bench.
    fn default() -> Self {
        Self {
            batch: 1,
            seek_nexts: 0,
            backward: false,
            prefixes: None,
            tail_bytes: 1,
            read_percent: 90,
            hit_rate: 0.001,
            latencies: false,
        }
    }
}

/// Seeks that read no further than the prefix of the key that they begin at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixSeeks {
    /// Bytes of a prefix.
    pub bytes: usize,
    /// Whether to seek prefixes that no key has: for integers, those that differ after their eight
    /// bytes.
    pub missing: bool,
}

impl<'a> Load<'a> {
    /// One thread, one operation for each key, and the defaults of db_bench.
    pub fn new(keys: &'a KeySpace, values: &'a Values) -> Self {
        Self {
            keys,
            values,
            threads: 1,
            operations: keys.len(),
            range: keys.len(),
            duration: None,
            rate: None,
            seed: 42,
            stream: 0,
            beside_rate: None,
            records: None,
            options: WorkloadOptions::default(),
        }
    }
}

/// Runs `workload` on `store`. Only workloads that do operations on an open store run here; others
/// do nothing.
///
/// # Errors
/// The first error of a thread. A stop is not an error: the result is marked as partial.
pub fn measure(
    store: &dyn Store,
    workload: Workload,
    load: &Load<'_>,
    control: Control<'_>,
) -> Result<Measured, Error> {
    let records = Records::new(load.keys.len());
    let load = Load {
        threads: load.threads.max(1),
        range: load.range.clamp(1, load.keys.len()),
        records: load.records.or(Some(&records)),
        ..load.clone()
    };
    let team = Team::new(store, workload, &load, control);
    let cpu_before = CpuSeconds::now();
    let (results, series) = std::thread::scope(|scope| team.run(scope))?;
    for result in results {
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    let cpu_after = CpuSeconds::now();
    let mut measured = team.into_measured();
    measured.series = series;
    measured.time.processor = cpu_before.zip(cpu_after).map(|(before, after)| after.since(before));
    Ok(measured)
}

/// The state that the threads of one workload share.
struct Team<'a> {
    store: &'a dyn Store,
    workload: Workload,
    load: &'a Load<'a>,
    control: Control<'a>,
    /// Where all threads start.
    gate: Gate,
    meter: Meter,
    /// Set when a thread has failed or the duration is over.
    halt: AtomicBool,
    /// Number of counted threads that are still running.
    working: AtomicUsize,
    total: Mutex<Total>,
}

/// The sum of the finished threads' results.
#[derive(Default)]
struct Total {
    measured: Measured,
    span: Option<(Instant, Instant)>,
}

/// The end of each interval, in seconds since the start, and the number of operations in it.
type OverTime = Vec<(f64, u64)>;

/// The workers, and the thread that monitors them.
type Started<'s> =
    (Vec<ScopedJoinHandle<'s, Result<(), StoreError>>>, ScopedJoinHandle<'s, OverTime>);

type Joined = std::thread::Result<Result<(), StoreError>>;

impl<'a> Team<'a> {
    fn new(
        store: &'a dyn Store,
        workload: Workload,
        load: &'a Load<'a>,
        control: Control<'a>,
    ) -> Self {
        Self {
            store,
            workload,
            load,
            control,
            gate: Gate::default(),
            meter: Meter::new(load.threads),
            halt: AtomicBool::new(false),
            working: AtomicUsize::new(load.threads),
            total: Mutex::default(),
        }
    }

    /// Returns all threads' results, and the throughput over time.
    fn run<'s>(&'s self, scope: &'s Scope<'s, '_>) -> Result<(Vec<Joined>, OverTime), Error> {
        let (handles, sampler) = self.start(scope).inspect_err(|_| self.gate.release())?;
        self.gate.open(handles.len() + 1);
        let results = handles.into_iter().map(ScopedJoinHandle::join).collect();
        self.meter.finish();
        let series = sampler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((results, series))
    }

    /// Starts all threads, which wait at the gate.
    fn start<'s>(&'s self, scope: &'s Scope<'s, '_>) -> Result<Started<'s>, Error> {
        let threads = self.load.threads;
        let refused = |error| {
            Error::Usage(format!("{threads} threads cannot be started ({error}): give fewer"))
        };
        let mut handles = Vec::new();
        for thread in 0..threads {
            let work = move || self.work(thread);
            handles.push(Builder::new().spawn_scoped(scope, work).map_err(refused)?);
        }
        if background::has_one(self.workload) {
            let work = || self.work_in_background();
            handles.push(Builder::new().spawn_scoped(scope, work).map_err(refused)?);
        }
        let sample = || match self.gate.wait() {
            true => self.meter.sample(self.control.progress, self.load.duration, &self.halt),
            false => Vec::new(),
        };
        let sampler = Builder::new().spawn_scoped(scope, sample).map_err(refused)?;
        Ok((handles, sampler))
    }

    fn work(&self, thread: usize) -> Result<(), StoreError> {
        let _done = WhenDone(&self.working);
        let mut worker = Worker::new(self, thread, self.load.rate, self.meter.slot(thread));
        if !self.gate.wait() {
            return Ok(());
        }
        worker.begin();
        let result = worker.run(self.workload);
        if result.is_err() {
            self.halt.store(true, Relaxed);
        }
        let (part, start, end) = worker.finish();
        let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
        total.measured.merge(&part);
        let (first, last) = total.span.unwrap_or((start, end));
        total.span = Some((first.min(start), last.max(end)));
        result
    }

    fn work_in_background(&self) -> Result<(), StoreError> {
        let count = Meter::new(1);
        let mut worker = Worker::new(self, self.load.threads, self.load.beside_rate, count.slot(0));
        if !self.gate.wait() {
            return Ok(());
        }
        worker.begin();
        let result = background::run(&mut worker, self.workload);
        if result.is_err() {
            self.halt.store(true, Relaxed);
        }
        let note = background::note(&worker, self.workload);
        self.total.lock().unwrap_or_else(PoisonError::into_inner).measured.beside = Some(note);
        result
    }

    fn into_measured(self) -> Measured {
        let Total { mut measured, span } =
            self.total.into_inner().unwrap_or_else(PoisonError::into_inner);
        measured.time.wall = span.map_or_else(Default::default, |(first, last)| last - first);
        measured.note = mixed::note(self.workload, &measured);
        measured
    }
}

/// Decrements the number of running threads when dropped, even in a panic, because other threads
/// may wait for that.
struct WhenDone<'a>(&'a AtomicUsize);

impl Drop for WhenDone<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A seed that differs in about half its bits from that of any other seed, stream or thread
/// ([`mix`] applied to each in turn).
fn stream_seed(seed: u64, stream: u64, thread: u64) -> u64 {
    [stream, thread].into_iter().fold(mix(seed), |mixed, part| mix(mixed ^ part))
}

#[cfg(test)]
mod tests;

//! Runs workloads one after another on one store and prints a line for each, as db_bench does.
//!
//! 1. The header states how the run is set up, so that it can be repeated.
//! 2. A workload that needs a fresh store gets one each time it runs. On an existing store it is
//!    skipped.
//! 3. A repeated step prints a line for each run, and two that summarise them.
//! 4. The keys that a workload found are compared with those that it should have found
//!    (`expectation`).
//! 5. After a stop, the line of the interrupted workload is still printed, marked as partial.

mod expectation;
mod lines;
mod load;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::cold;
use crate::control::{Control, Unit};
use crate::error::{Error, StoreError};
use crate::keys::KeySpace;
use crate::map_store::MapStore;
use crate::measure::{Records, WorkloadOptions, measure};
use crate::measured::{Kind, Measured, MeasuredTime};
use crate::record::{self, Record, State};
use crate::repeat::{Runs, Step};
use crate::store::{Opener, Store};
use crate::values::Values;
use crate::workload::Workload;

use expectation::Verdict;

/// Additional output of a bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrintOptions {
    /// Whether to print all of the store's statistics at the end.
    pub statistics: bool,
    /// Whether to print only the interval of the mean of repeated steps.
    pub interval_only: bool,
}

/// The plan of a bench.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The workloads, in order.
    pub steps: Vec<Step>,
    /// The keys written and looked up.
    pub keys: KeySpace,
    /// The values written.
    pub values: Values,
    /// Operations of each thread.
    pub operations: Operations,
    /// Threads of each workload.
    pub threads: usize,
    /// If set, a workload that draws its keys runs for this long, whatever its number of
    /// operations.
    pub duration: Option<Duration>,
    /// How fast operations begin.
    pub rates: Rates,
    /// Determines all random draws.
    pub seed: u64,
    /// How the operations are done.
    pub options: WorkloadOptions,
    /// Whether the store was there before: it is used as it is, and fills are skipped.
    pub existing: bool,
    /// Whether to evict the store's files from the page cache, and reopen it, before each workload
    /// that reads.
    pub cold: bool,
    /// Additional output.
    pub print: PrintOptions,
}

/// Operations of each thread, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations {
    /// Of workloads that write.
    pub writes: u64,
    /// Of workloads that read.
    pub reads: u64,
    /// Of workloads that delete.
    pub deletes: u64,
    /// Of workloads that read and write.
    pub both: u64,
}

/// Operations per second to start, over all threads, whether or not the store keeps up; none: each
/// starts when the previous one has ended.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    /// Of any workload.
    pub all: Option<f64>,
    /// Bytes of keys and values a second, of workloads that only write, and of the thread that
    /// writes while others read.
    pub write_bytes: Option<f64>,
    /// Of workloads that only read.
    pub read: Option<f64>,
}

impl Plan {
    /// No steps yet, one thread, one operation for each key, and the defaults of db_bench.
    pub fn new(keys: KeySpace, values: Values) -> Self {
        let num = keys.len();
        Self {
            steps: Vec::new(),
            keys,
            values,
            operations: Operations { writes: num, reads: num, deletes: num, both: num },
            threads: 1,
            duration: None,
            rates: Rates::default(),
            seed: 42,
            options: WorkloadOptions::default(),
            existing: false,
            cold: false,
            print: PrintOptions::default(),
        }
    }

    /// Checks that the steps can run in this order on these keys.
    fn check(&self) -> Result<(), Error> {
        let mut are_records_there = self.existing;
        for Step { workload, .. } in &self.steps {
            if workload.wants_fresh_store() && !self.existing {
                are_records_there = *workload == Workload::YcsbLoad;
            }
            if !workload.is_ycsb() {
                continue;
            }
            if !are_records_there {
                return Err(Error::Usage(format!(
                    "{workload} works on the records that ycsbload writes: put ycsbload before it"
                )));
            }
            if matches!(workload, Workload::YcsbD | Workload::YcsbE) && !self.keys.can_grow() {
                return Err(Error::Usage(format!(
                    "{workload} inserts new keys, and there are none beyond those given: it needs \
                     keys of 8 bytes and more that are not from a file"
                )));
            }
        }
        Ok(())
    }
}

/// Where the records of a bench are written.
pub struct Journal<'a> {
    /// The fields that all records share.
    pub run: record::Run,
    /// Receives each record as soon as its workload is done. Warm-ups, and workloads that only
    /// print something, have none.
    pub write: &'a mut dyn FnMut(Record) -> Result<(), Error>,
}

/// Runs the plan, writes the results to `out`, and writes their records to the journal.
///
/// # Errors
/// The first that the store or `out` reports; [`Error::Usage`] if the plan cannot be run, or if a
/// workload found none of its keys in an existing store; [`Error::Interrupted`] if stopped.
pub fn bench(
    plan: &Plan,
    opener: &dyn Opener,
    control: Control<'_>,
    out: &mut dyn Write,
    journal: Option<&mut Journal<'_>>,
) -> Result<(), Error> {
    plan.check()?;
    let store = opener.open(!plan.existing)?;
    lines::write_header(plan, opener, out)?;
    let mut run = BenchRun {
        plan,
        opener,
        control,
        out,
        journal,
        store,
        untouched: true,
        records: Records::new(plan.keys.len()),
        nth: 0,
    };
    let result = run.steps();
    let closed = control.close(run.store);
    result.and(closed)
}

/// A bench in progress.
struct BenchRun<'a, 'j> {
    plan: &'a Plan,
    opener: &'a dyn Opener,
    control: Control<'a>,
    out: &'a mut dyn Write,
    journal: Option<&'a mut Journal<'j>>,
    store: Arc<dyn Store>,
    /// Whether the store is fresh and still unused.
    untouched: bool,
    /// The records of YCSB's workloads, including those inserted.
    records: Records,
    /// Number of workload runs so far; it varies the seed of each.
    nth: u64,
}

impl BenchRun<'_, '_> {
    fn steps(&mut self) -> Result<(), Error> {
        for step in &self.plan.steps {
            self.step(*step)?;
        }
        if self.plan.print.statistics {
            let stats = self.store.stats();
            writeln!(self.out, "STATISTICS:\n{}", stats.trim_end())?;
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), Error> {
        let Step { workload, warmups, repeats } = step;
        if workload.wants_fresh_store() && self.plan.existing {
            writeln!(self.out, "{workload:<12} : skipped (--use_existing_db is true)")?;
            return Ok(self.out.flush()?);
        }
        if warmups > 0 {
            writeln!(self.out, "Warming up benchmark by running {warmups} times")?;
        }
        for _ in 0..warmups {
            self.run_once(workload, None)?;
        }
        if repeats > 1 {
            writeln!(self.out, "Running benchmark for {repeats} times")?;
        }
        let mut runs = Runs::default();
        for repeat in 1..=repeats {
            if let Some(measured) = self.run_once(workload, Some(repeat))? {
                runs.add(&measured);
            }
        }
        if repeats > 1 && workload.is_counted() {
            let lines = runs.lines(workload.name(), self.plan.print.interval_only);
            writeln!(self.out, "{lines}")?;
        }
        Ok(self.out.flush()?)
    }

    /// Runs a workload once, and records it if it has a repeat number.
    fn run_once(
        &mut self,
        workload: Workload,
        repeat: Option<u32>,
    ) -> Result<Option<Measured>, Error> {
        if workload.wants_fresh_store() {
            self.make_fresh()?;
        }
        if self.plan.cold && workload.is_read() {
            self.make_cold()?;
        }
        self.untouched = false;
        let (start, before) = (SystemTime::now(), self.state());
        let measured = self.workload(workload)?;
        self.nth += 1;
        self.out.flush()?;
        if let (Some(measured), Some(repeat)) = (&measured, repeat) {
            self.record(workload, repeat, start, measured, before.as_ref())?;
        }
        if self.control.stop.is_set() {
            return Err(Error::Interrupted);
        }
        Ok(measured)
    }

    /// The store's report on its state, if it will be used.
    fn state(&self) -> Option<State> {
        self.journal.is_some().then(|| self.store.state())
    }

    fn record(
        &mut self,
        workload: Workload,
        repeat: u32,
        start: SystemTime,
        measured: &Measured,
        before: Option<&State>,
    ) -> Result<(), Error> {
        let after = self.state();
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let threads = if workload.has_threads() { self.plan.threads } else { 1 };
        let mut record =
            Record::new(&journal.run, workload.name(), repeat, threads, start, measured);
        record.state = match (after, before) {
            (Some(after), Some(before)) => after.since(before),
            (after, _) => after.unwrap_or_default(),
        };
        (journal.write)(record)
    }

    fn workload(&mut self, workload: Workload) -> Result<Option<Measured>, Error> {
        match workload {
            Workload::WaitForCompaction => return self.wait().map(Some),
            Workload::Flush => return self.once(workload, Store::flush).map(Some),
            Workload::Compact => return self.once(workload, Store::compact).map(Some),
            Workload::Checkpoint => return self.checkpoint(),
            Workload::Verify => return self.verify().map(Some),
            Workload::LevelStats => self.print(&lines::level_stats(&self.store.levels()))?,
            Workload::FilterStats => self.print(&self.store.filter_stats())?,
            Workload::MemStats => self.print(&self.store.memory_stats())?,
            Workload::SsTables => self.print(&self.store.table_stats())?,
            Workload::Stats => self.print(&self.store.stats())?,
            Workload::ResetStats => self.store.reset_stats(),
            Workload::Open => return self.open_again().map(Some),
            _ => return self.operations(workload).map(Some),
        }
        Ok(None)
    }

    /// Closes the store, runs `between`, and opens a store in the same directory.
    fn reopen(
        &mut self,
        fresh: bool,
        between: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        // The old store must be closed before its directory can be opened again.
        let placeholder: Arc<dyn Store> = Arc::new(MapStore::default());
        self.control.close(std::mem::replace(&mut self.store, placeholder))?;
        between()?;
        self.store = self.opener.open(fresh)?;
        Ok(())
    }

    /// Replaces the store with an empty one, unless it is fresh already.
    fn make_fresh(&mut self) -> Result<(), Error> {
        if !self.untouched {
            self.reopen(true, || Ok(()))?;
        }
        self.records = Records::new(self.plan.keys.len());
        Ok(())
    }

    fn make_cold(&mut self) -> Result<(), Error> {
        let Some(dir) = self.opener.dir().map(Path::to_path_buf) else {
            self.control.progress.say("--cold does nothing: this store is not in a directory");
            return Ok(());
        };
        let progress = self.control.progress;
        self.reopen(false, || {
            if cold::drop_files(&dir)? == cold::Eviction::InMemory {
                progress.say(&format!(
                    "--cold does nothing: the file system of {} is in memory",
                    dir.display()
                ));
            }
            Ok(())
        })
    }

    fn operations(&mut self, workload: Workload) -> Result<Measured, Error> {
        if let Some(warning) = expectation::warning(self.plan, workload, &*self.store) {
            self.control.progress.say(&format!("warning: {warning}"));
        }
        let values = load::own_values(self.plan, workload);
        let load = load::of(self.plan, workload, values.as_ref(), &self.records, self.nth);
        self.control.progress.begin(
            workload.name(),
            load::expected(&load, workload),
            Unit::Operations,
        );
        let measured = measure(&*self.store, workload, &load, self.control);
        self.control.progress.end();
        let measured = measured?;
        self.report(workload, &measured)?;
        match expectation::judge(self.plan, workload, &measured) {
            Verdict::Fine => {}
            Verdict::Odd(text) => self.control.progress.say(&format!("warning: {text}")),
            Verdict::Worthless(text) => {
                self.out.flush()?;
                return Err(Error::Usage(text));
            }
        }
        Ok(measured)
    }

    fn report(&mut self, workload: Workload, measured: &Measured) -> Result<(), Error> {
        writeln!(self.out, "{}", measured.line(workload.name()))?;
        for (kind, latencies) in &measured.latencies_by_kind {
            writeln!(self.out, "Microseconds per {}:\n{latencies}", kind.name())?;
        }
        Ok(())
    }

    fn once(
        &mut self,
        workload: Workload,
        task: impl FnOnce(&(dyn Store + 'static)) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<Measured, Error> {
        let (done, time) = self.control.call(&self.store, workload.name(), task)?;
        let measured = one_operation(done.is_some(), time);
        self.report(workload, &measured)?;
        Ok(measured)
    }

    /// Closes and reopens the store several times.
    fn open_again(&mut self) -> Result<Measured, Error> {
        let mut measured = Measured::default();
        let mut latencies = self.plan.options.latencies.then(crate::Latencies::new);
        let times = load::opens(self.plan);
        while measured.operations < times && !self.control.stop.is_set() {
            let start = Instant::now();
            self.reopen(false, || Ok(()))?;
            let time = start.elapsed();
            if let Some(latencies) = &mut latencies {
                latencies.record(time);
            }
            measured.time.wall += time;
            measured.time.threads += time;
            measured.operations += 1;
        }
        measured.interrupted = measured.operations < times;
        measured.latencies_by_kind =
            latencies.iter().map(|all| (Kind::Other, all.clone())).collect();
        measured.latencies = latencies;
        self.report(Workload::Open, &measured)?;
        Ok(measured)
    }

    /// Makes a checkpoint next to the store, and removes it.
    fn checkpoint(&mut self) -> Result<Option<Measured>, Error> {
        let Some(dir) = self.opener.dir().map(checkpoint_dir) else {
            writeln!(self.out, "checkpoint   : skipped (the store is not in a directory)")?;
            return Ok(None);
        };
        if dir.exists() {
            writeln!(self.out, "checkpoint   : skipped ({} already exists)", dir.display())?;
            return Ok(None);
        }
        let to = dir.clone();
        let measured = self.once(Workload::Checkpoint, move |store| store.checkpoint(&to))?;
        if self.control.stop.is_set() && !dir.exists() {
            return Ok(Some(measured));
        }
        std::fs::remove_dir_all(&dir).map_err(|error| Error::io(dir, "removing", error))?;
        Ok(Some(measured))
    }

    fn wait(&mut self) -> Result<Measured, Error> {
        let name = self.opener.name();
        writeln!(self.out, "waitforcompaction({name}): started")?;
        self.out.flush()?;
        let (done, time) = self.control.call(&self.store, "waitforcompaction", Store::settle)?;
        let status = if done.is_some() { "OK" } else { "interrupted" };
        writeln!(self.out, "waitforcompaction({name}): finished with status ({status})")?;
        Ok(one_operation(done.is_some(), time))
    }

    fn verify(&mut self) -> Result<Measured, Error> {
        let (checked, time) = self.control.call(&self.store, "verify", Store::verify)?;
        let (seconds, measured) = (time.as_secs_f64(), one_operation(checked.is_some(), time));
        match checked {
            Some(checked) => writeln!(self.out, "verify       : OK, {checked} ({seconds:.3} s)")?,
            None => writeln!(self.out, "verify       : interrupted after {seconds:.3} s")?,
        }
        Ok(measured)
    }

    fn print(&mut self, text: &str) -> Result<(), Error> {
        Ok(writeln!(self.out, "\n{}", text.trim_end())?)
    }
}

/// The measurement of one call into the store that took `time`; empty if the call was abandoned.
fn one_operation(is_done: bool, time: Duration) -> Measured {
    Measured {
        operations: u64::from(is_done),
        time: MeasuredTime::of_one_thread(time),
        interrupted: !is_done,
        ..Measured::default()
    }
}

/// Where the checkpoint of the store in `dir` is made.
fn checkpoint_dir(dir: &Path) -> PathBuf {
    let mut path = dir.as_os_str().to_owned();
    path.push(".checkpoint");
    path.into()
}

#[cfg(test)]
mod tests;

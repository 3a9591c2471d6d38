//! One store, filled and read in a process of its own.
//!
//! 1. Fill a new store with random keys; wait until its background work is done.
//! 2. Flush, wait again, close.
//! 3. Bring the files into the state in which every store's files are read ([`warm_page_cache`]),
//!    and reopen the store.
//! 4. Read at random for a while without a clock, so that no store is timed with an empty cache.
//! 5. Measure the rows.
//!
//! A contender that reads another's files begins with step 3. Each record goes to standard output
//! as soon as it is complete, so a trial that dies leaves its earlier ones. Called by the run,
//! which re-executes the program for it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trommel_harness::machine::Environment;
use trommel_harness::record::{self, Amplification, Io, LevelRecord, Product, Record, Run, State};
use trommel_harness::{
    Control, KeySpace, Load, Measured, MeasuredTime, Silent, Stop, Store, StoreError, Values,
    Workload, WorkloadOptions, measure,
};

use crate::checked::Checked;
use crate::process::{self, Memory, warm_page_cache};
use crate::rows::{self, Row};
use crate::settings::Settings;
use crate::stores::{Contender, FACTS, SortedEntries};
use crate::studies::{SETTING, Sizes, Study};

/// Names of a trial's steps other than the harness's workloads.
pub(crate) const SETTLE: &str = "waitforcompaction";
pub(crate) const DISK: &str = "disk";
/// Peak disk usage while the store was filled and settled.
pub(crate) const DISK_PEAK: &str = "disk at most";
pub(crate) const OPEN: &str = "open";
pub(crate) const FAILED: &str = "failed";
/// The setting with the text of a failure.
pub(crate) const WHY: &str = "error";

/// Parts of a process's memory in records: resident anonymous memory; resident memory of mapped
/// files; the rest of the peak.
pub(crate) const OWN: &str = "own";
const MAPPED: &str = "mapped files";
const BEFORE: &str = "more at the peak";

/// Compressed size of values, as a fraction, for stores that compress.
const COMPRESSION_RATIO: f64 = 0.5;
/// Random bytes at the end of a missing key: each lookup has a key of its own.
const TAIL_BYTES: usize = 8;
/// Time for a call that does not end to notice that the time is over.
const GRACE: Duration = Duration::from_secs(5);

/// How operations are done, unless a row or a study says otherwise.
pub(crate) fn options() -> WorkloadOptions {
    WorkloadOptions { tail_bytes: TAIL_BYTES, ..WorkloadOptions::default() }
}

/// What a trial is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// The id of the run.
    pub(crate) id: String,
    pub(crate) contender: String,
    pub(crate) settings: Settings,
    pub(crate) round: u32,
    /// The store's directory.
    pub(crate) dir: PathBuf,
    /// Whether to fill a new store; otherwise the one in `dir` is read.
    pub(crate) fill: bool,
    pub(crate) rows: Vec<String>,
    /// The study to run instead of the main measurement.
    pub(crate) study: Option<String>,
    pub(crate) sizes: Sizes,
    /// Whether it is the process that a study of recovery kills.
    pub(crate) is_killed: bool,
    /// Seconds after which it ends, finished or not.
    pub(crate) seconds: u64,
}

impl Spec {
    fn study(&self) -> Result<Option<&'static Study>, StoreError> {
        Ok(self.study.as_deref().map(str::parse).transpose()?)
    }
}

/// Runs the trial that standard input describes.
pub(crate) fn main() -> Result<(), StoreError> {
    let mut text = String::new();
    io::stdin().read_line(&mut text)?;
    let spec: Spec = serde_json::from_str(&text)?;
    end_with_parent();
    let contender = Contender::named(&spec.contender).ok_or("no such contender")?;
    let stop = Stop::new();
    watch(&stop, Duration::from_secs(spec.seconds));
    let trial = Trial::new(&spec, contender, stop)?;
    match trial.run() {
        Ok(()) => Ok(()),
        Err(error) => write(&failure(&trial.run, spec.round, error.to_string())),
    }
}

/// Ends the process when standard input is closed: the parent holds it open.
fn end_with_parent() {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(1);
    });
}

/// Sets `stop` when the time is over, and ends the process if that has no effect.
fn watch(stop: &Stop, limit: Duration) {
    let stop = stop.clone();
    thread::spawn(move || {
        thread::sleep(limit);
        stop.set();
        thread::sleep(GRACE);
        std::process::exit(1);
    });
}

/// The record of a trial that did not finish.
pub(crate) fn failure(run: &Run, round: u32, why: String) -> Record {
    let mut run = run.clone();
    run.settings.insert(WHY.into(), why.into());
    let measured = Measured { interrupted: true, ..Measured::default() };
    Record::new(&run, FAILED, round, 0, SystemTime::now(), &measured)
}

/// The run of a trial: its store, and the settings that identify it. Readers of records need no
/// directory, only its file system.
pub(crate) fn run_of(spec: &Spec, contender: &Contender) -> Result<Run, StoreError> {
    let settings = &spec.settings;
    let facts = contender.facts(settings);
    let version = facts.get("version").cloned().unwrap_or_default();
    let store = Product { name: contender.name.into(), version };
    let mut environment = Environment::of(spec.dir.parent());
    environment.storage.directory = None;
    let mut run = Run { id: spec.id.clone(), store, environment, ..Run::default() };
    let named = [
        ("num", settings.num.into()),
        ("reads", settings.reads.into()),
        ("key bytes", settings.key_bytes.into()),
        ("value bytes", settings.value_bytes.into()),
        ("seed", settings.seed.into()),
    ];
    run.settings.extend(named.map(|(name, value): (_, Value)| (name.to_owned(), value)));
    if let Some(study) = spec.study()? {
        run.settings.insert(SETTING.into(), study.name.into());
        run.settings.extend(spec.sizes.of(study));
    }
    for name in FACTS {
        if let Some(value) = facts.get(name) {
            run.settings.insert(name.to_owned(), Value::from(value.as_str()));
        }
    }
    Ok(run)
}

/// Prints a record to the run.
pub(crate) fn write(record: &Record) -> Result<(), StoreError> {
    let mut out = io::stdout().lock();
    record::write_line(record, &mut out)?;
    Ok(out.flush()?)
}

/// A contender in a trial.
pub(crate) struct Trial<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) contender: &'a Contender,
    stop: Stop,
    run: Run,
    keys: KeySpace,
    values: Values,
}

impl<'a> Trial<'a> {
    fn new(spec: &'a Spec, contender: &'a Contender, stop: Stop) -> Result<Self, StoreError> {
        let settings = &spec.settings;
        Ok(Self {
            spec,
            contender,
            stop,
            run: run_of(spec, contender)?,
            keys: KeySpace::integers(settings.num, settings.key_bytes)?,
            values: Values::new(settings.value_bytes, COMPRESSION_RATIO, settings.seed),
        })
    }

    fn run(&self) -> Result<(), StoreError> {
        if let Some(study) = self.spec.study()? {
            return (study.run)(self);
        }
        if self.spec.fill {
            self.fill()?;
        }
        if self.contender.writes_only {
            return Ok(());
        }
        warm_page_cache(&self.spec.dir)?;
        self.read()
    }

    /// Opens the store; with `fresh`, a new one.
    pub(crate) fn open(&self, fresh: bool) -> Result<Arc<Checked>, StoreError> {
        self.open_with(&self.spec.settings, fresh)
    }

    /// As `open`, for keys and values of the sizes in `settings`.
    pub(crate) fn open_with(
        &self,
        settings: &Settings,
        fresh: bool,
    ) -> Result<Arc<Checked>, StoreError> {
        let store = self.contender.open(&self.spec.dir, settings, fresh)?;
        Ok(Arc::new(Checked::new(store, settings.key_bytes, settings.value_bytes)))
    }

    /// Values of this many bytes.
    pub(crate) fn values_of(&self, bytes: usize) -> Values {
        Values::new(bytes, COMPRESSION_RATIO, self.spec.settings.seed)
    }

    fn fill(&self) -> Result<(), StoreError> {
        let written = process::written_bytes();
        let store = self.open(true)?;
        process::reset_peak();
        let load = self.filling();
        let (filled, peak) = process::peak_of_disk(&self.spec.dir, || -> Result<(), StoreError> {
            let start = SystemTime::now();
            let filled = self.measure(&*store, Workload::FillRandom, &load)?;
            let record = self.record(Workload::FillRandom.name(), start, 1, &filled);
            write(&Record { state: memory_state(), ..record })?;

            let (start, clock) = (SystemTime::now(), Instant::now());
            store.settle()?;
            let settled = taken(clock.elapsed());
            store.flush()?;
            store.settle()?;
            let record = self.record(SETTLE, start, 1, &settled);
            write(&Record { state: self.state(&*store, written), ..record })
        });
        filled?;
        self.disk(DISK_PEAK, 0, peak)?;

        store.close()?;
        let files = process::files(&self.spec.dir)?;
        self.disk(DISK, files.len() as u64, files.iter().map(|(_, bytes)| bytes).sum())
    }

    /// Writes the number of files, if known, and their size.
    pub(crate) fn disk(&self, name: &str, files: u64, bytes: u64) -> Result<(), StoreError> {
        let measured = Measured { operations: files, bytes, ..Measured::default() };
        write(&self.record(name, SystemTime::now(), 0, &measured))
    }

    /// Fills a new store with every key once, in random order; settles, flushes, settles again, and
    /// closes it. Its levels are in the record of this name.
    pub(crate) fn fill_distinct(&self, title: &str) -> Result<(), StoreError> {
        let store = self.open(true)?;
        let load = self.filling();
        let start = SystemTime::now();
        let filled = self.measure(&*store, Workload::FillUniqueRandom, &load)?;
        store.settle()?;
        store.flush()?;
        store.settle()?;
        let state = State { levels: self.state(&*store, None).levels, ..State::default() };
        write(&Record { state, ..self.record(title, start, 1, &filled) })?;
        store.close()
    }

    fn read(&self) -> Result<(), StoreError> {
        let (start, clock) = (SystemTime::now(), Instant::now());
        let store = self.open(false)?;
        write(&self.record(OPEN, start, 1, &taken(clock.elapsed())))?;
        let load = Load { operations: warming(&self.spec.settings), ..self.load(1) };
        self.measure(&*store, Workload::ReadRandom, &load)?;
        process::reset_peak();
        for (nth, row) in rows::ALL.iter().enumerate() {
            let is_wanted = self.spec.rows.iter().any(|name| name == row.name);
            if is_wanted && (row.workload != Workload::MultiReadRandom || self.contender.multi_get)
            {
                self.row(&store, row, 2 + nth as u64)?;
            }
        }
        store.close()
    }

    fn row(&self, store: &Checked, row: &Row, stream: u64) -> Result<(), StoreError> {
        let settings = &self.spec.settings;
        let load = Load {
            operations: row.operations(settings.reads),
            threads: row.threads,
            options: WorkloadOptions {
                batch: settings.multi_get,
                seek_nexts: row.seek_nexts,
                ..options()
            },
            ..self.load(stream)
        };
        let start = SystemTime::now();
        let measured = self.measure(store, row.workload, &load)?;
        let record = self.record(row.title, start, row.threads, &measured);
        write(&Record { state: memory_state(), ..record })
    }

    /// What a fill at random works with.
    pub(crate) fn filling(&self) -> Load<'_> {
        let settings = &self.spec.settings;
        let batch = if self.contender.batches { settings.batch } else { 1 };
        let options = WorkloadOptions { batch, ..options() };
        Load { operations: settings.num, options, ..self.load(0) }
    }

    /// All entries, in the order of their keys.
    pub(crate) fn sorted_entries(&self) -> SortedEntries<'_> {
        SortedEntries { keys: &self.keys, values: &self.values }
    }

    /// One thread's work, with draws of its own for each `stream`.
    pub(crate) fn load(&self, stream: u64) -> Load<'_> {
        Load {
            seed: self.spec.settings.seed,
            stream,
            options: options(),
            ..Load::new(&self.keys, &self.values)
        }
    }

    /// Runs `workload`; an error if there was no time for it.
    pub(crate) fn measure(
        &self,
        store: &dyn Store,
        workload: Workload,
        load: &Load<'_>,
    ) -> Result<Measured, StoreError> {
        let control = Control { stop: &self.stop, progress: &Silent };
        let measured = measure(store, workload, load, control)?;
        if measured.interrupted || self.stop.is_set() {
            let seconds = self.spec.seconds;
            return Err(format!("{} was not done after {seconds} s", workload.name()).into());
        }
        Ok(measured)
    }

    /// The record of a measurement under this name.
    pub(crate) fn record(
        &self,
        name: &str,
        start: SystemTime,
        threads: usize,
        measured: &Measured,
    ) -> Record {
        Record::new(&self.run, name, self.spec.round, threads, start, measured)
    }

    /// The state of the store and the system after the fill, with writes counted since `written`.
    fn state(&self, store: &dyn Store, written: Option<u64>) -> State {
        let user_bytes = self.spec.settings.user_bytes();
        let now = process::written_bytes();
        let bytes_written = now.zip(written).map(|(now, before)| now - before);
        let levels = store.levels();
        let level = |level: &trommel_harness::Level| LevelRecord {
            level: level.level as u64,
            tables: level.files,
            bytes: level.bytes,
            ..LevelRecord::default()
        };
        State {
            io: Some(Io { bytes_written, user_bytes: Some(user_bytes), ..Io::default() }),
            levels: (!levels.is_empty()).then(|| levels.iter().map(level).collect()),
            amplification: bytes_written.map(|bytes| Amplification {
                write: Some(bytes as f64 / user_bytes as f64),
                ..Amplification::default()
            }),
            ..State::default()
        }
    }
}

/// Number of untimed reads, so that nearly every block is read: `n` keys are in some `n / 24`
/// blocks of 4 KiB, and a third of `n` draws, two thirds of them found, miss one in a hundred.
fn warming(settings: &Settings) -> u64 {
    (settings.reads / 2).max(settings.num / 3)
}

fn taken(time: Duration) -> Measured {
    Measured { operations: 1, time: MeasuredTime::of_one_thread(time), ..Measured::default() }
}

fn memory_state() -> State {
    let memory = Memory::now().map(|memory| {
        let now = memory.anonymous + memory.mapped;
        // Parts of a whole: their sum is the peak.
        [
            (OWN, memory.anonymous),
            (MAPPED, memory.mapped),
            (BEFORE, memory.peak.saturating_sub(now)),
        ]
        .map(|(part, bytes)| (part.to_owned(), bytes))
        .into_iter()
        .collect()
    });
    State { memory, ..State::default() }
}

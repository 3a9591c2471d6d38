//! The worker: a process that may be killed at any moment.
//!
//! 1. It opens the store with random options, checks the state that the last process left and
//!    settles the pending writes (see [`super::check`]).
//! 2. Threads read and write for a random time (see [`super::client`]), and one runs maintenance
//!    operations (see [`super::upkeep`]).
//! 3. The store is closed, or just dropped; then, now and then, opened read-only and checked. All
//!    of this repeats until standard input ends.
//! 4. If it ends in order, everything is checked once more.
//!
//! An error is sent to the parent, and its thread then blocks: the parent kills the process before
//! it changes more.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use trommel::{Db, Options};

use super::check::{Checked, Trouble, recovered};
use super::client::Client;
use super::counts::{Activity, Counts, lock};
use super::draw::Draw;
use super::expected::Expected;
use super::faulty_disk::FaultyDisk;
use super::upkeep::Upkeep;
use super::wire::{Line, Task, Tick, WorkerPhase};
use crate::control::Stop;
use crate::error::Error;

/// Time between two status lines.
const TICK: Duration = Duration::from_millis(50);
/// Attempts to open a store on a faulty disk before the faults are turned off.
const FAULTY_OPENS: usize = 3;
/// Number of blocks of keys to read when not all are read.
const SAMPLED_BLOCKS: usize = 200;

/// The state that all threads of a worker share.
pub(super) struct Shared {
    pub(super) task: Task,
    pub(super) draw: Draw,
    pub(super) expected: Expected,
    pub(super) counts: Arc<Counts>,
    pub(super) disk: FaultyDisk,
    /// The directory of checkpoints.
    pub(super) checkpoints: PathBuf,
    /// Set when the worker is to end.
    pub(super) stop: Stop,
    /// Set when the store is to be closed.
    pub(super) is_closing: AtomicBool,
    activities: Vec<Activity>,
    phase: Mutex<WorkerPhase>,
    output: Mutex<Box<dyn Write + Send>>,
    sessions: AtomicU64,
}

/// Runs the task in the first line of `input` on the store in `store`, until the input ends.
///
/// It expects a process of its own: a panic in any thread is reported as an error of the process.
///
/// # Errors
/// If the task or the expected state cannot be read. Faults of the store go to `output`.
pub fn work(
    store: &Path,
    expected: &Path,
    mut input: impl BufRead + Send + 'static,
    output: impl Write + Send + 'static,
) -> Result<(), Error> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(|error| Error::io("standard input", "reading", error))?;
    let task: Task = serde_json::from_str(&line).map_err(|error| {
        Error::Usage(format!("this command is internal to `trommel stress`: {error}"))
    })?;
    let born = Instant::now();
    let counts = Arc::new(Counts::default());
    let shared = Arc::new(Shared {
        expected: Expected::open(expected, task.records)?,
        disk: FaultyDisk::new(task.faults, task.die_at, Arc::clone(&counts)),
        checkpoints: expected.join("checkpoints"),
        stop: Stop::new(),
        is_closing: AtomicBool::new(false),
        // The last two belong to the maintenance thread and to this one.
        activities: (0..task.threads + 2).map(|_| Activity::new(born)).collect(),
        phase: Mutex::default(),
        output: Mutex::new(Box::new(output)),
        sessions: AtomicU64::new(0),
        counts,
        draw: task.draw()?,
        task,
    });
    let stop_at_end = shared.stop.clone();
    thread::spawn(move || {
        // No more input is expected: this returns at the end of the input.
        let _ = std::io::copy(&mut input, &mut std::io::sink());
        stop_at_end.set();
    });
    report_panics(&shared);
    let ticking = Arc::clone(&shared);
    thread::spawn(move || {
        loop {
            ticking.say(&Line::Tick(ticking.tick()));
            thread::sleep(TICK);
        }
    });
    shared.run(store);
    shared.say(&Line::Done(shared.tick()));
    Ok(())
}

/// Reports a panic in any thread as a failure of the run.
fn report_panics(shared: &Arc<Shared>) {
    let shared = Arc::downgrade(shared);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        if let Some(shared) = shared.upgrade() {
            shared.say(&Line::Error(format!("a thread panicked: {panic}")));
        }
    }));
}

impl Shared {
    fn tick(&self) -> Tick {
        let own = &self.activities[..=self.task.threads];
        let current = self.activities.iter().map(Activity::current).max().unwrap_or_default();
        Tick {
            phase: *lock(&self.phase),
            counts: self.counts.all().into_iter().collect(),
            // Without this thread, whose checks of all keys may take long.
            longest: own.iter().map(Activity::longest).max().unwrap_or_default(),
            current: (current.0, current.1.to_owned()),
            live_bytes: self.expected.live_bytes(),
        }
    }

    fn say(&self, line: &Line) {
        let Ok(mut text) = serde_json::to_string(line) else { return };
        text.push('\n');
        // If the parent is gone, the input has ended too, and that ends the worker.
        let mut output = lock(&self.output);
        let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    }

    /// Reports to the parent, which kills this process, and blocks forever.
    pub(super) fn give_up(&self, trouble: &Trouble) -> ! {
        self.say(&match trouble {
            Trouble::WrongAnswer(what) => Line::Mismatch(what.clone()),
            other => Line::Error(other.to_string()),
        });
        loop {
            thread::park();
        }
    }

    /// The result, or none if the store failed as it may while faults are injected; the store is
    /// then reopened soon.
    pub(super) fn tolerate<T>(&self, result: Checked<T>) -> Option<T> {
        match result {
            Ok(done) => Some(done),
            Err(Trouble::Store(error)) if self.is_tolerable(&error) => {
                self.counts.add("tolerated_errors", 1);
                self.is_closing.store(true, Relaxed);
                None
            }
            Err(trouble) => self.give_up(&trouble),
        }
    }

    fn is_tolerable(&self, error: &trommel::Error) -> bool {
        let is_of_faults =
            matches!(error, trommel::Error::Io { .. } | trommel::Error::Poisoned { .. });
        self.task.faults > 0.0 && is_of_faults
    }

    fn enter(&self, phase: WorkerPhase) {
        *lock(&self.phase) = phase;
    }

    fn activity(&self) -> &Activity {
        &self.activities[self.task.threads + 1]
    }

    fn run(&self, store: &Path) {
        let mut rng = Rng::with_seed(self.task.seed);
        while !self.stop.is_set() {
            self.session(store, &mut rng);
        }
        self.enter(WorkerPhase::Closing);
        let end = self.activity().work("the last check", || self.last_check(store, &mut rng));
        self.must(end);
    }

    fn must<T>(&self, result: Checked<T>) -> T {
        result.unwrap_or_else(|trouble| self.give_up(&trouble))
    }

    /// Opens the store, uses it and closes it.
    fn session(&self, store: &Path, rng: &mut Rng) {
        self.enter(WorkerPhase::Opening);
        let db = self.activity().work("opening", || self.open(store, rng));
        self.enter(WorkerPhase::Checking);
        let is_first = self.sessions.fetch_add(1, Relaxed) == 0;
        let checked = self.activity().work("the check after opening", || {
            let how = if is_first { "after a restart" } else { "after opening again" };
            self.check(&db, is_first, how, rng)
        });
        self.must(checked);
        if self.stop.is_set() {
            return;
        }
        self.enter(WorkerPhase::Running);
        self.is_closing.store(false, Relaxed);
        self.disk.set_faults(true);
        self.use_store(&db, rng);
        self.enter(WorkerPhase::Closing);
        if rng.u8(..4) > 0 {
            let closed = self.activity().work("closing", || db.close());
            self.tolerate(closed.map_err(Trouble::Store));
            self.counts.add("closes", 1);
        } else {
            self.activity().work("dropping the store", || drop(db));
            self.counts.add("drops", 1);
        }
        self.disk.set_faults(false);
        if rng.u8(..4) == 0 && !self.stop.is_set() {
            let read = self.activity().work("a read-only open", || self.read_only(store, rng));
            self.must(read);
        }
    }

    fn options(&self, rng: &mut Rng) -> Options {
        self.draw.options(rng).vfs(Arc::new(self.disk.clone()))
    }

    fn open(&self, store: &Path, rng: &mut Rng) -> Db {
        for _ in 0..FAULTY_OPENS {
            self.disk.set_faults(rng.bool());
            let opened = Db::open(store, self.options(rng));
            self.disk.set_faults(false);
            if let Some(db) = self.tolerate(opened.map_err(Trouble::Store)) {
                return self.opened(db);
            }
        }
        self.opened(self.must(Db::open(store, self.options(rng)).map_err(Trouble::Store)))
    }

    fn opened(&self, db: Db) -> Db {
        let report = db.recovery_report();
        self.counts.add("opens", 1);
        self.counts.add("opens_after_a_crash", u64::from(!report.created && !report.was_closed));
        self.counts.add("replayed_batches", report.replayed_batches);
        self.counts.add("torn_tails_dropped", report.dropped.len() as u64);
        db
    }

    /// Checks the store while nobody writes.
    fn check(&self, db: &Db, is_first: bool, how: &str, rng: &mut Rng) -> Checked {
        let records = &self.expected.records;
        let blocks: Vec<u32> = (0..SAMPLED_BLOCKS).map(|_| rng.u32(..records.blocks())).collect();
        let is_whole = self.task.check_all && is_first;
        let acknowledged = self.expected.pending().len() as u64;
        self.counts.add("pending_writes_settled", acknowledged);
        let blocks = (!is_whole).then_some(&*blocks);
        let read = recovered(db, &self.expected, blocks, rng.bool(), how)?;
        self.counts.add("keys_checked_after_opening", read);
        self.counts.add("whole_checks", u64::from(is_whole));
        if rng.u8(..4) == 0 {
            db.verify()?;
            self.counts.add("verifies", 1);
        }
        Ok(())
    }

    fn use_store(&self, db: &Db, rng: &mut Rng) {
        let time = Duration::from_secs_f64(exponential(rng, self.task.reopen_every));
        let end = Instant::now() + time;
        thread::scope(|scope| {
            let clients = self.task.threads;
            let upkeep_activity = &self.activities[clients];
            for activity in &self.activities[..clients] {
                let mut client = Client::new(self, db, rng.fork());
                scope.spawn(move || client.serve(activity));
            }
            let mut upkeep = Upkeep::new(self, db, rng.fork());
            scope.spawn(move || upkeep.serve(upkeep_activity));
            while Instant::now() < end && !self.stop.is_set() && !self.is_closing.load(Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            // Reads must still work after a failed write, so they continue for a while.
            if self.is_closing.swap(false, Relaxed) {
                thread::sleep(Duration::from_millis(rng.u64(..50)));
            }
            self.is_closing.store(true, Relaxed);
        });
    }

    fn read_only(&self, store: &Path, rng: &mut Rng) -> Checked {
        let db = Db::open_read_only(store, self.options(rng))?;
        self.check(&db, false, "in a read-only open", rng)?;
        self.counts.add("read_only_opens", 1);
        Ok(db.close()?)
    }

    /// Checks all keys, and all bytes, of the store in its final state.
    fn last_check(&self, store: &Path, rng: &mut Rng) -> Checked {
        self.disk.set_faults(false);
        let db = Db::open(store, self.options(rng))?;
        let read = recovered(&db, &self.expected, None, rng.bool(), "at the end")?;
        self.counts.add("keys_checked_at_the_end", read);
        db.verify()?;
        db.close()?;
        let db = Db::open_read_only(store, self.options(rng))?;
        let read = recovered(&db, &self.expected, None, rng.bool(), "read-only at the end")?;
        self.counts.add("keys_checked_at_the_end", read);
        Ok(db.close()?)
    }
}

/// A random time from an exponential distribution, as between independent events.
pub(super) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * (1.0 - rng.f64()).ln()
}

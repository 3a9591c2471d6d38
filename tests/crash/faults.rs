//! A failing disk: each call of a workload, or of an open, fails in turn, once or from then on, in
//! every way that a disk can fail.
//!
//! 1. The workload runs on a healthy disk, and its calls are counted.
//! 2. It runs again with a fault planned for one of them. Failed operations return an error;
//!    nothing panics or hangs; a failed write is not visible, and reads of acknowledged writes
//!    still work.
//! 3. The disk is repaired, and the store reopened in two ways: as the process would find it, and
//!    after a power failure. No acknowledged write is missing; a failed write is complete or
//!    absent.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use trommel::vfs::Vfs;
use trommel::{Db, Error};
use trommel_sim::{Failure, Fault, Image, OpKind, Policy, SimDisk};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, rounds};

use crate::inspect::{Verdict, budget_fits, compare_reads, failed, same, scan};
use crate::oracle::{Bounds, History, Mark, Operation, State, digest};
use crate::settings::{only, only_these};
use crate::trouble::{CutDown, Trouble};
use crate::workload::{Action, DIR, Profile, Run, checkpoint_dir, rebuild, write};
use trommel_tests::watchdog;

/// Number of workload runs with a fault.
const RUNS: u64 = 4000;
/// Number of opens with a fault.
const OPENS: u64 = 4000;
/// Number of distinct workloads among the runs.
const WORKLOADS: u64 = 40;

/// The ways in which a call can fail.
const WAYS: u64 = 22;

fn fault(way: u64, call: u64) -> Fault {
    let fault = match way {
        0 => Fault::new(Failure::Io),
        1 => Fault::new(Failure::Io).lasting(),
        2 => Fault::new(Failure::NoSpace),
        3 => Fault::new(Failure::NoSpace).lasting(),
        4 => Fault::new(Failure::TooManyOpenFiles),
        5 => Fault::new(Failure::TooManyOpenFiles).lasting(),
        6 => Fault::new(Failure::NoSpace).on(OpKind::Append).writing_part(call as usize % 700),
        7 => Fault::new(Failure::Io).on(OpKind::Append).writing_part(1),
        8 => Fault::new(Failure::Io).on(OpKind::Sync),
        9 => Fault::new(Failure::NoSpace).on(OpKind::Sync).on(OpKind::SyncDir),
        10 => Fault::new(Failure::Io).on(OpKind::SyncDir),
        11 => Fault::new(Failure::NoSpace).on(OpKind::Append).writing_all_but(1),
        12 => Fault::end_of_file(0),
        13 => Fault::end_of_file(call as usize % 300),
        14 => Fault::new(Failure::Io).after_the_fact(),
        15 => Fault::short_read(call as usize % 300),
        16 => Fault::short_read(call as usize % 300).lasting(),
        17 => Fault::new(Failure::NotFound).on(OpKind::Open),
        18 => Fault::new(Failure::NotFound).on(OpKind::Remove).on(OpKind::Rename),
        19 => Fault::new(Failure::PermissionDenied),
        20 => Fault::new(Failure::PermissionDenied).lasting(),
        _ => Fault::new(Failure::Interrupted),
    };
    // These kinds of calls are rarer, so fewer are skipped.
    match way {
        6 | 7 | 11..=13 | 15 | 16 => fault.after(call / 4),
        8..=10 | 17 | 18 => fault.after(call / 12),
        _ => fault.after(call),
    }
}

/// A disk with an empty directory for the store. (If the store created it, and failed to sync it,
/// no later call could make up for that, because a failed sync is never retried.)
fn prepared_disk() -> SimDisk {
    let disk = SimDisk::new();
    for dir in ["above", DIR] {
        let dir = Path::new(dir);
        disk.create_dir(dir).expect("a healthy disk");
        disk.sync_dir(dir.parent().expect("it has one")).expect("a healthy disk");
    }
    disk
}

/// Counts the failures of a disk by site: the kind of call, the kind of file, and the failure.
pub(crate) fn count_faults(disk: &SimDisk, counters: &mut Counters) {
    for ((kind, path, failure), count) in disk.faults_by_path() {
        let (kind, file) = (format!("{kind:?}").to_lowercase(), file_kind(&path));
        counters.add(format!("faults.{kind}.{file}.{failure}"), count);
        counters.add("faults_fired", count);
    }
}

/// The kind of the file at `path`, which need not exist.
pub(crate) fn file_kind(path: &Path) -> &'static str {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match &*name {
        "LOCK" => "lock",
        name if name.starts_with("CURRENT") => "current",
        name if name.starts_with("OPTIONS") => "options",
        name if name.starts_with("MANIFEST-") => "manifest",
        name if name.ends_with(".log") => "log",
        name if name.ends_with(".sst") => "table",
        name if name.ends_with(".flt") => "sidecar",
        name if name.ends_with(".spare") => "spare",
        _ => "directory",
    }
}

/// Whether a failure of this disk looks like corruption to a reader: a file ends early, or is
/// missing.
fn looks_damaged(disk: &SimDisk) -> bool {
    disk.faults_by_path().keys().any(|(kind, _, failure)| match failure {
        Failure::EndOfFile => true,
        Failure::NotFound => *kind == OpKind::Open,
        _ => false,
    })
}

/// A program that continues as well as it can while its disk fails.
struct Program<'a> {
    profile: &'a Profile,
    disk: SimDisk,
    /// The acknowledged writes.
    history: History,
    /// Writes that failed since the last acknowledged one. At most one of them is present.
    doubtful: Vec<Vec<Operation>>,
    bounds: Bounds,
    checkpoints: usize,
    errors: u64,
    /// Number of power failures after an error.
    cuts: u64,
    rng: Rng,
}

impl Program<'_> {
    fn open(&self) -> trommel::Result<Db> {
        Db::open(DIR, self.profile.options(Arc::new(self.disk.clone())))
    }

    /// Opens the store; if that fails, repairs the disk and must then succeed.
    fn open_or_repair(&mut self) -> Verdict<Db> {
        match self.open() {
            Ok(db) => return Ok(db),
            Err(error) => self.accept(&error)?,
        }
        self.repair();
        self.open().map_err(failed("opening on a mended disk"))
    }

    fn repair(&self) {
        self.disk.clear_faults();
        self.disk.set_capacity(None);
    }

    /// Checks that the error is one that a failing disk may cause.
    fn accept(&mut self, error: &Error) -> Verdict<()> {
        self.errors += 1;
        let first = match error {
            Error::Poisoned { first } => &**first,
            // A stalled write waits for a flush or compaction that failed.
            Error::Stalled { source, .. } => &**source,
            error => error,
        };
        let honest = match first {
            Error::Io { .. } => true,
            Error::Corruption(_) => looks_damaged(&self.disk),
            _ => false,
        };
        if honest { Ok(()) } else { Err(format!("a failing disk is reported as: {error}")) }
    }

    fn all(&mut self, actions: &[Action]) -> Verdict<()> {
        let mut db = self.open_or_repair()?;
        for action in actions {
            match action {
                Action::Write { batch, sync } => self.write(&db, batch, *sync)?,
                Action::WriteIf { key, value } => {
                    let operation = Operation::set(key.clone(), value.clone());
                    self.write(&db, &[operation], false)?;
                }
                Action::Hold | Action::Release | Action::Pause => {}
                Action::SetFilters(filters) => {
                    if let Err(error) = set_filters(&db, filters) {
                        self.accept(&error)?;
                    }
                }
                Action::Reopen { close } => db = self.reopen(db, *close)?,
                Action::Die { .. } => db = self.reopen(db, false)?,
                _ => {
                    if let Err(error) = self.maintain(&db, action) {
                        self.accept(&error)?;
                    } else {
                        self.acknowledge(true);
                    }
                }
            }
            // After an error the power may fail at any time.
            if self.errors > 0 && self.rng.u8(..8) == 0 {
                let policy = Policy::ALL[self.rng.usize(..Policy::ALL.len())];
                let image = self.disk.crash(policy, self.rng.u64(..));
                self.survives(&image)
                    .map_err(|what| format!("{what} (cut off at once: {policy})"))?;
                self.cuts += 1;
            }
        }
        // Reads of acknowledged writes still work: they are right, or an error while the disk
        // fails.
        match scan(&db) {
            Ok(state) => self.is_visible(&state)?,
            Err(_) => self.errors += 1,
        }
        self.repair();
        let state = scan(&db)?;
        self.is_visible(&state)?;
        compare_reads(&db, &state)?;
        self.survives(&self.disk.crash(Policy::SYNCED, 0))?;
        self.survives(&self.disk.crash(Policy::RANDOM, self.errors))?;
        let db = self.reopen(db, true)?;
        db.wait_idle().map_err(failed("waiting on a mended disk"))?;
        budget_fits(&db)
    }

    /// Checks that the open store shows the acknowledged writes, and nothing else.
    fn is_visible(&self, state: &State) -> Verdict<()> {
        // Without a log a write is visible before it fails to become durable.
        let doubtful = if self.profile.log { &[] } else { self.doubtful.as_slice() };
        let all = self.history.len();
        self.find(state, doubtful, all).map(drop).map_err(|what| format!("still open: {what}"))
    }

    /// The history, perhaps followed by one of the `doubtful` writes, if `state` is a prefix of it
    /// of at least `low` batches; and the length of the prefix.
    fn find(
        &self,
        state: &State,
        doubtful: &[Vec<Operation>],
        low: usize,
    ) -> Verdict<(History, usize)> {
        let found = digest(state);
        let candidates = std::iter::once(None).chain(doubtful.iter().map(Some));
        for candidate in candidates {
            let mut history = self.history.clone();
            history.extend(candidate.cloned());
            if let Some(count) = history.prefix(found, low, history.len()) {
                return Ok((history, count));
            }
        }
        Err(self.history.explain(state, low, self.history.len()))
    }

    fn write(&mut self, db: &Db, batch: &[Operation], sync: bool) -> Verdict<()> {
        match write(db, batch, sync) {
            Ok(()) => {
                self.doubtful.clear();
                self.history.push(batch.to_vec());
                self.acknowledge(sync);
            }
            Err(error) => {
                self.accept(&error)?;
                // Rejected because of an earlier failure, it was not written. (Without a log,
                // though, it may have been waiting for its table at the time of that failure.)
                if !self.profile.log || !matches!(error, Error::Poisoned { .. }) {
                    self.doubtful.push(batch.to_vec());
                }
            }
        }
        Ok(())
    }

    fn acknowledge(&mut self, durable: bool) {
        let count = self.history.len();
        if durable {
            self.bounds.pass(Mark::Durable(count).encode());
        }
        self.bounds.pass(Mark::Issued(count).encode());
    }

    fn maintain(&mut self, db: &Db, action: &Action) -> trommel::Result<()> {
        match action {
            Action::Sync => db.sync(),
            Action::Flush => db.flush(),
            Action::CompactAll => db.compact_all(),
            Action::CompactRange(from, to) => db.compact_range(from..=to),
            Action::RebuildFilters(filters) => {
                rebuild(db, filters)?;
                // So that sidecars in a checkpoint fail as often as the rest.
                self.checkpoint(db)
            }
            Action::Checkpoint => self.checkpoint(db),
            _ => Ok(()),
        }
    }

    fn checkpoint(&mut self, db: &Db) -> trommel::Result<()> {
        self.checkpoints += 1;
        db.checkpoint(checkpoint_dir(self.checkpoints))
    }

    /// The process ends, in order or not, and restarts.
    fn reopen(&mut self, db: Db, close: bool) -> Verdict<Db> {
        if close {
            match db.close() {
                Ok(()) => self.acknowledge(true),
                Err(error) => self.accept(&error)?,
            }
        } else {
            drop(db);
        }
        let db = self.open_or_repair()?;
        let state = match scan(&db) {
            Ok(state) => state,
            Err(_) => {
                self.repair();
                scan(&db)?
            }
        };
        self.settle(&state)?;
        Ok(db)
    }

    /// After an open: all acknowledged writes are present, and perhaps the failed one.
    fn settle(&mut self, state: &State) -> Verdict<()> {
        // Without a log, writes that were not flushed may be lost with the process.
        let low = if self.profile.log { self.history.len() } else { self.bounds.durable };
        let (history, count) = self.find(state, &self.doubtful, low)?;
        self.history = history;
        self.history.truncate(count);
        self.doubtful.clear();
        self.acknowledge(true);
        Ok(())
    }

    /// Checks that nothing is missing after a power failure that left this image.
    fn survives(&self, image: &Image) -> Verdict<()> {
        let db = Db::open(DIR, self.profile.options(Arc::new(image.disk())));
        let db = db.map_err(failed("opening after faults and a power cut"))?;
        let state = scan(&db)?;
        self.find(&state, &self.doubtful, self.bounds.durable)?;
        db.verify().map_err(failed("verifying after faults and a power cut"))?;
        Ok(())
    }
}

/// Changes the filters, and waits for the consequences of a budget, such as automatic rebuilds.
fn set_filters(db: &Db, filters: &str) -> trommel::Result<()> {
    db.set_filters(filters.parse().expect("a filter policy"))?;
    db.wait_idle()
}

pub(crate) fn profile(seed: u64, threads: usize) -> Profile {
    Profile { actions: 40, threads, log: !seed.is_multiple_of(8), ..Profile::new(seed) }
}

/// Runs the workload of `seed` on a disk with `trouble`, and returns the disk; without trouble the
/// run must succeed. A failure is minimised.
pub(crate) fn run(
    seed: u64,
    threads: usize,
    trouble: Trouble,
    counters: &mut Counters,
) -> Result<SimDisk, CutDown> {
    let profile = profile(seed, threads);
    let trouble = trouble.at_what_was_chosen();
    let actions = only_these(1, &profile.actions());
    once(&profile, &actions, &trouble, counters).map_err(|what| {
        if threads > 0 {
            return CutDown::not(what);
        }
        trouble.cut_down(what, &actions, |actions, trouble| {
            once(&profile, actions, trouble, &mut Counters::new("cutting down")).map(drop)
        })
    })
}

/// As [`run`], with exactly these actions.
fn once(
    profile: &Profile,
    actions: &[Action],
    trouble: &Trouble,
    counters: &mut Counters,
) -> Verdict<SimDisk> {
    let mut program = Program {
        profile,
        disk: prepared_disk(),
        history: History::default(),
        doubtful: Vec::new(),
        bounds: Bounds::default(),
        checkpoints: 0,
        errors: 0,
        cuts: 0,
        rng: Rng::with_seed(profile.seed),
    };
    match trouble {
        Trouble::None => program.disk.count_by_path(),
        Trouble::Fault(fault) => program.disk.inject(fault.clone()),
        Trouble::Capacity(bytes) => program.disk.set_capacity(Some(*bytes)),
    }
    program.all(actions)?;
    if matches!(trouble, Trouble::None) && program.errors > 0 {
        return Err("errors without a fault".to_owned());
    }
    counters.add("runs", 1);
    counters.add("errors_reported", program.errors);
    counters.add("errors_then_power_cuts", program.cuts);
    count_faults(&program.disk, counters);
    Ok(program.disk)
}

/// Spreads `runs` faults over the calls of the workloads, or runs the requested one. With
/// background `threads` the system determines the order of calls.
fn spread(
    test: &str,
    runs: u64,
    threads: usize,
    calls: impl Fn(u64) -> u64,
    one: impl Fn([u64; 3], &mut Counters) -> Result<(), CutDown>,
) {
    let mut counters = Counters::new(format!("crash/{test}"));
    let fail = |[seed, way, call]: [u64; 3], CutDown { what, takes }: CutDown| -> ! {
        panic!(
            "{what}\n  fault: {:?}\n  run it again: TROMMEL_CRASH_ONLY={seed},{way},{call}{takes} \
             cargo test -p trommel-tests --test crash {test} -- --nocapture{}",
            fault(way, call),
            if threads > 0 { " (other threads ran: it may not fail again)" } else { "" },
        )
    };
    if let Some(case) = only() {
        one(case, &mut counters).unwrap_or_else(|what| fail(case, what));
        return;
    }
    let runs = rounds(runs);
    let each = runs / WORKLOADS;
    for seed in first_seed()..first_seed() + WORKLOADS {
        let calls = calls(seed);
        let mut rng = Rng::with_seed(seed);
        for number in 0..each {
            // Evenly over all calls, in all ways.
            let call = (number * calls / each + rng.u64(..1 + calls / each)).min(calls);
            let case = [seed, rng.u64(..WAYS), call];
            watchdog::note([seed, case[1], call, 0, 0]);
            one(case, &mut counters).unwrap_or_else(|what| fail(case, what));
        }
    }
    assert!(counters.get("faults_fired") > runs / 2, "most faults were never met");
    counters.finish();
}

/// Number of calls of a healthy run.
fn calls(seed: u64) -> u64 {
    let disk = run(seed, 0, Trouble::None, &mut Counters::new("healthy")).expect("healthy");
    disk.all_calls()
}

#[test]
fn a_disk_that_fails_while_the_store_works() {
    spread(
        "a_disk_that_fails_while_the_store_works",
        RUNS,
        0,
        calls,
        |[seed, way, call], counters| {
            run(seed, 0, Trouble::Fault(fault(way, call)), counters).map(drop)
        },
    );
}

#[test]
fn a_disk_that_fails_beside_background_threads() {
    let test = "a_disk_that_fails_beside_background_threads";
    spread(test, RUNS / 10, 2, calls, |[seed, way, call], counters| {
        run(seed, 2, Trouble::Fault(fault(way, call)), counters).map(drop)
    });
}

/// A crashed store, and the digest of its state.
pub(crate) fn crashed(seed: u64) -> Verdict<(Profile, Image, u64)> {
    let profile = Profile { log: true, ..profile(seed, 0) };
    let mut run = Run::on(SimDisk::new(), History::default(), 0);
    run.all(&profile, &profile.actions())?;
    let mut replay = run.disk.replay();
    let mut rng = Rng::with_seed(seed);
    let ops = replay.ops().len();
    replay.seek(rng.usize(ops / 2..=ops));
    let image = replay.image(Policy::ALL[rng.usize(..Policy::ALL.len())], seed);
    let db = Db::open(DIR, profile.options(Arc::new(image.disk()))).map_err(failed("opening"))?;
    let found = digest(&scan(&db)?);
    Ok((profile, image, found))
}

#[test]
fn a_disk_that_fails_while_the_store_opens() {
    let calls = |seed| {
        let (profile, image, _) = crashed(seed).expect("healthy");
        let disk = image.disk();
        drop(Db::open(DIR, profile.options(Arc::new(disk.clone()))).expect("healthy"));
        disk.all_calls()
    };
    let test = "a_disk_that_fails_while_the_store_opens";
    spread(test, OPENS, 0, calls, |[seed, way, call], counters| {
        let (profile, image, wanted) = crashed(seed)?;
        let disk = image.disk();
        disk.inject(fault(way, call));
        let open = || Db::open(DIR, profile.options(Arc::new(disk.clone())));
        match open() {
            Ok(db) => {
                // Reads are right or fail; an open that succeeds has the whole state.
                if let Ok(state) = scan(&db)
                    && digest(&state) != wanted
                {
                    return Err("opened on a failing disk, it holds something else"
                        .to_owned()
                        .into());
                }
            }
            Err(Error::Io { .. }) => {}
            Err(Error::Corruption(_)) if looks_damaged(&disk) => {}
            Err(error) => return Err(format!("a failing disk is reported as: {error}").into()),
        }
        counters.add("runs", 1);
        count_faults(&disk, counters);
        let policy = Policy::ALL[call as usize % Policy::ALL.len()];
        let cut = disk.crash(policy, call).disk();
        disk.clear_faults();
        let db = open().map_err(failed("opening on a mended disk"))?;
        same(&db, wanted)?;
        db.verify().map_err(failed("verifying"))?;
        let cut = Db::open(DIR, profile.options(Arc::new(cut)));
        Ok(same(&cut.map_err(failed("opening after a power cut"))?, wanted)?)
    });
}

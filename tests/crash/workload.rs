//! Seeded histories: the operations of a program on a store, from its first open to the end of the
//! disk's operation log.
//!
//! The same seed gives the same actions. Without background threads it also gives the same
//! operations on the disk, except for the random salts and ids within the files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;
use trommel::vfs::Vfs;
use trommel::{
    Compression, Db, FilterShape, MemtableKind, Merge, MergeOperator, Options, Prefix, ReadMode,
    RebuildOptions, Snapshot, WriteBatch, WriteOptions,
};
use trommel_sim::SimDisk;

use crate::inspect::{Verdict, budget_fits, collect, failed, scan};
use crate::oracle::{History, Mark, Operation, appended, digest};
use crate::process::{Gate, Process};

/// The store's directory on a simulated disk.
pub(crate) const DIR: &str = "above/db";

/// An action of the program.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Write {
        batch: Vec<Operation>,
        sync: bool,
    },
    /// A conditional write; without effect if the condition is false.
    WriteIf {
        key: Vec<u8>,
        value: Option<Vec<u8>>,
    },
    Sync,
    Flush,
    /// Takes a snapshot and holds it.
    Hold,
    /// Reads the oldest held snapshot, and drops it.
    Release,
    /// Disables compactions until the next action of this kind: flushes accumulate in level 0.
    Pause,
    SetFilters(&'static str),
    /// Changes the filters, and rebuilds those of the existing tables.
    RebuildFilters(&'static str),
    CompactAll,
    CompactRange(Vec<u8>, Vec<u8>),
    Checkpoint,
    Reopen {
        close: bool,
    },
    /// The process is killed after this many more calls to the disk, and restarts.
    Die {
        calls: u64,
    },
}

impl Action {
    /// A short form in one line.
    pub(crate) fn short(&self) -> String {
        let name = |key: &[u8]| String::from_utf8_lossy(&key[..key.len().min(24)]).into_owned();
        let operation = |operation: &Operation| match operation {
            Operation::Put(key, value) => format!("{:?}: {} bytes", name(key), value.len()),
            Operation::Delete(key) => format!("{:?}: deleted", name(key)),
            Operation::Merge(key, by) => format!("{:?}: {} bytes merged", name(key), by.len()),
            Operation::DeleteRange(from, to) => {
                format!("{:?} to {:?}: deleted", name(from), to.as_ref().map(|to| name(to)))
            }
        };
        match self {
            Self::Write { batch, sync } => {
                let batch: Vec<_> = batch.iter().map(operation).collect();
                format!("Write {} (sync: {sync})", batch.join(", "))
            }
            Self::WriteIf { key, value } => {
                format!("WriteIf {}", operation(&Operation::set(key.clone(), value.clone())))
            }
            Self::CompactRange(from, to) => {
                format!("CompactRange {:?} to {:?}", name(from), name(to))
            }
            other => format!("{other:?}"),
        }
    }
}

/// The options of a store, and the shape of its workload.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) seed: u64,
    /// Number of earlier crashes of the store.
    pub(crate) life: u64,
    pub(crate) actions: usize,
    pub(crate) threads: usize,
    pub(crate) log: bool,
    /// Whether keys are so long that a few tables fill a manifest.
    pub(crate) long_keys: bool,
    /// Whether a background thread works only when the seed says so.
    pub(crate) stepped: bool,
}

impl Profile {
    /// A short life, without threads, with a log.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            life: 0,
            actions: 100,
            threads: 0,
            log: true,
            long_keys: false,
            stepped: false,
        }
    }

    fn life_seed(&self) -> u64 {
        self.seed.wrapping_add(self.life << 32)
    }

    pub(crate) fn options(&self, vfs: Arc<dyn Vfs>) -> Options {
        let options = options(self.life_seed(), vfs)
            .background_threads(self.threads)
            .writes(|w| w.log(self.log));
        let options = match self.merges() {
            true => options.writes(|w| w.merge_operator(append())),
            false => options,
        };
        // A memtable with space for some keys.
        let options = if self.long_keys {
            options.writes(|w| w.write_buffer_bytes(256 << 10))
        } else {
            options
        };
        if !self.stepped {
            return options;
        }
        // Nobody may wait for a thread that is blocked. More runs would be compacted only while
        // somebody waits, so that timing would decide between a compaction and a filter rebuild.
        options
            .writes(|w| w.max_frozen_memtables(64))
            .compaction(|c| c.l0_trigger(1 + self.seed as usize % 2))
    }

    pub(crate) fn actions(&self) -> Vec<Action> {
        let mut rng = Rng::with_seed(self.life_seed());
        let mut keys = keys(&mut rng);
        if self.long_keys {
            keys.retain(|key| !key.is_empty());
            keys.iter_mut().for_each(|key| key.resize(60_000, b'.'));
        }
        // The frequency of synced writes depends on the seed too: never, sometimes, always.
        let sync = [0.0, 0.05, 0.3, 1.0][rng.usize(..4)];
        let actions = (0..self.actions).map(|number| action(&mut rng, &keys, sync, number));
        if self.merges() { actions.map(with_merges).collect() } else { actions.collect() }
    }

    /// Whether some of its puts are merges. A part of the seeds, so that others keep their crashes.
    fn merges(&self) -> bool {
        self.seed % 4 == 2
    }
}

/// The operator of a store with merges.
fn append() -> Arc<dyn MergeOperator> {
    Merge::associative("crash: append", |_, so_far, operand| Ok(appended(so_far, operand)))
}

/// The same action, with merges in place of some puts.
fn with_merges(action: Action) -> Action {
    let Action::Write { batch, sync } = action else { return action };
    let merged = |operation| match operation {
        Operation::Put(key, value) if value.len() % 5 < 3 => Operation::Merge(key, value),
        operation => operation,
    };
    Action::Write { batch: batch.into_iter().map(merged).collect(), sync }
}

/// Options for the store of a seed: everything tiny, so that flushes, compactions and rotations are
/// frequent; no stalls.
pub(crate) fn options(seed: u64, vfs: Arc<dyn Vfs>) -> Options {
    options_of(seed, vfs, &FILTERS)
}

/// [`options`], with one of these filter policies.
pub(crate) fn options_of(seed: u64, vfs: Arc<dyn Vfs>, filters: &[&str]) -> Options {
    let mut rng = Rng::with_seed(seed ^ 0x0b7_1045);
    // Short keys have no such prefix.
    let prefix = (rng.u8(..3) == 0).then(|| Prefix::fixed(4));
    Options::default()
        .vfs(vfs)
        .writes(|w| w.write_buffer_bytes([4 << 10, 6 << 10, 8 << 10, 16 << 10][rng.usize(..4)]))
        .reads(|r| r.block_bytes([64, 256, 1024][rng.usize(..3)]))
        .compaction(|c| {
            c.table_bytes([1 << 10, 3 << 10, 16 << 10][rng.usize(..3)])
                .base_level_bytes([1 << 10, 4 << 10, 32 << 10][rng.usize(..3)])
                .level_ratio([2, 4, 10][rng.usize(..3)])
                .l0_trigger(rng.usize(1..5))
                .l0_slowdown(1000)
                .l0_stop(1001)
        })
        .reads(|r| r.block_align(rng.bool()).sorted_view(!seed.is_multiple_of(4)))
        .compression([Compression::None, Compression::Lz4][rng.usize(..2)])
        .filters(filters[rng.usize(..filters.len())].parse().expect("a filter policy"))
        .filtering(|f| {
            // Of three, so that the seeds that tests name keep their crashes.
            f.filter_shape([FilterShape::Whole, FilterShape::Partitioned][rng.usize(..3) % 2])
                .filter_partition_bytes(256)
                .filters_on_last_level(rng.u8(..4) > 0)
                .prefix_extractor(prefix)
        })
        .reads(|r| {
            r.read_mode(ReadMode::ALL[rng.usize(..ReadMode::ALL.len())])
                .cache_bytes(64 << 10)
                .max_open_files([16, 1000][rng.usize(..2)])
        })
        .writes(|w| w.memtable(MemtableKind::ALL[rng.usize(..4) / 3]))
}

/// Under a budget tables get new filters, and lose theirs, automatically: after flushes,
/// compactions, policy changes and opens.
pub(crate) const FILTERS: [&str; 9] = [
    "paired:16",
    "standard:10",
    "L0=none,L1-=blocked:12",
    "none",
    "ribbon:12",
    "L0=ribbon:9,L1-=paired:20",
    "budget=6/key",
    "budget=400",
    "budget=100,kinds=blocked|standard,misses=1",
];

fn keys(rng: &mut Rng) -> Vec<Vec<u8>> {
    let count = [4, 12, 40][rng.usize(..3)];
    let mut keys: Vec<Vec<u8>> = (0..count)
        .map(|number| match rng.u8(..10) {
            0 => vec![b'k'; number + 1],
            1 => vec![0xff; number % 5 + 1],
            2 => format!("{}{number}", "long/".repeat(number % 40)).into_bytes(),
            _ => format!("key{number:03}").into_bytes(),
        })
        .collect();
    keys.push(Vec::new());
    keys
}

fn action(rng: &mut Rng, keys: &[Vec<u8>], sync: f64, number: usize) -> Action {
    match rng.u32(..1000) {
        0..825 => {
            let length = if rng.u8(..3) == 0 { rng.usize(2..9) } else { 1 };
            let batch = (0..length).map(|at| operation(rng, keys, number, at)).collect();
            Action::Write { batch, sync: rng.f64() < sync }
        }
        825..840 => Action::RebuildFilters(FILTERS[rng.usize(..FILTERS.len())]),
        840..870 => {
            let (key, value) = entry(rng, keys, number, 0);
            Action::WriteIf { key, value }
        }
        870..885 => Action::Hold,
        885..895 => Action::Release,
        895..900 => Action::Pause,
        900..905 => Action::SetFilters(FILTERS[rng.usize(..FILTERS.len())]),
        905..922 => Action::Sync,
        922..940 => Action::Flush,
        940..950 => Action::CompactAll,
        950..965 => {
            let mut ends = [rng.choice(keys), rng.choice(keys)].map(|key| key.cloned().unwrap());
            ends.sort();
            let [from, to] = ends;
            Action::CompactRange(from, to)
        }
        965..970 => Action::Checkpoint,
        970..985 => Action::Die { calls: rng.u64(..40) },
        _ => Action::Reopen { close: rng.bool() },
    }
}

fn operation(rng: &mut Rng, keys: &[Vec<u8>], number: usize, at: usize) -> Operation {
    // Narrow, so that not much of the store is gone.
    if rng.u8(..32) == 0 {
        let mut sorted: Vec<&Vec<u8>> = keys.iter().collect();
        sorted.sort();
        let from = rng.usize(..sorted.len());
        let to = sorted.get(from + rng.usize(..4)).filter(|_| rng.u8(..16) > 0);
        return Operation::DeleteRange(sorted[from].clone(), to.map(|to| (*to).clone()));
    }
    let (key, value) = entry(rng, keys, number, at);
    Operation::set(key, value)
}

/// A key and its new value, if it is to have one. A value names its batch, so that no two states
/// are equal by chance.
fn entry(rng: &mut Rng, keys: &[Vec<u8>], number: usize, at: usize) -> (Vec<u8>, Option<Vec<u8>>) {
    let key = rng.choice(keys).cloned().unwrap();
    if rng.u8(..5) == 0 {
        return (key, None);
    }
    let mut value = format!("{number}.{at}.").into_bytes();
    match rng.u8(..40) {
        // Zeros, which a log must not mistake for sectors lost in a power failure.
        0 => value.resize(rng.usize(600..3000), 0),
        1..4 => value.extend((0..rng.usize(500..2500)).map(|_| rng.u8(..))),
        4..8 => value.clear(),
        _ => value.extend((0..rng.usize(..120)).map(|_| rng.u8(b'a'..=b'z'))),
    }
    (key, Some(value))
}

/// A disk on which a program has run, and its history.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) disk: SimDisk,
    pub(crate) history: History,
    /// The process that has the store open.
    process: Process,
    /// Number of batches that survive the death of the process.
    written: usize,
    /// The number of the next checkpoint.
    next_checkpoint: usize,
    /// Snapshots, and the digest of the state of each.
    held: Vec<(Snapshot, u64)>,
    /// Whether compactions are disabled.
    paused: bool,
    /// Blocks and releases the background thread.
    gate: Option<Arc<Gate>>,
    steps: Rng,
    /// Whether the last action may have left work for the background thread.
    waited: bool,
}

impl Run {
    /// Before any action in this life of the store.
    pub(crate) fn on(disk: SimDisk, history: History, life: u64) -> Self {
        let next_checkpoint = life as usize * 1000;
        Self {
            process: Process::new(disk.clone()),
            disk,
            written: history.len(),
            history,
            next_checkpoint,
            held: Vec::new(),
            paused: false,
            gate: None,
            steps: Rng::with_seed(0),
            waited: true,
        }
    }

    fn open(&mut self, profile: &Profile) -> trommel::Result<Db> {
        self.paused = false;
        self.process = Process::new(self.disk.clone()).with_gate(self.gate.clone());
        self.gate.iter().for_each(|gate| gate.set_opening(true));
        let db = Db::open(DIR, profile.options(Arc::new(self.process.clone())));
        self.gate.iter().for_each(|gate| gate.set_opening(false));
        db
    }

    /// Runs all `actions` on a store of this profile, and drops it.
    pub(crate) fn all(&mut self, profile: &Profile, actions: &[Action]) -> Verdict<()> {
        self.gate = profile.stepped.then(Gate::new);
        self.steps = Rng::with_seed(profile.life_seed());
        let mut db = self.open(profile).map_err(failed("opening"))?;
        let _opened_in_the_end = OpenInTheEnd(self.gate.clone());
        for action in actions {
            self.step(profile, &db, action)?;
            if self.process.is_dead() {
                self.discard(db);
                db = self.start_again(profile)?;
            }
            match action {
                Action::Die { calls } => self.process.die_after(*calls),
                Action::Reopen { close } => {
                    self.held.clear();
                    // Versions that only they retained are compacted.
                    let mut closed = self.settle(profile, &db);
                    if *close {
                        closed = closed.and(db.close());
                    } else {
                        drop(db);
                    }
                    // A drop does not report that it failed because the process died.
                    if self.process.is_dead() {
                        db = self.start_again(profile)?;
                        continue;
                    }
                    closed.map_err(failed("closing"))?;
                    self.durable();
                    db = self.open(profile).map_err(failed("opening again"))?;
                }
                _ => {
                    let outcome =
                        self.one_by_one(profile, &db, action).map_err(failed("an action"));
                    let outcome = outcome.and_then(|()| self.look_back(action));
                    // Perhaps only while the snapshot was read, which opened a table.
                    if self.process.is_dead() {
                        self.discard(db);
                        db = self.start_again(profile)?;
                    } else {
                        outcome?;
                    }
                }
            }
        }
        self.held.clear();
        self.gate.iter().for_each(|gate| gate.set_open(true));
        self.set_paused(&db, false).map_err(failed("going on with compactions"))?;
        if profile.threads > 0 && !self.process.is_dead() {
            let idle = db.wait_idle();
            if !self.process.is_dead() {
                idle.map_err(failed("waiting"))?;
                budget_fits(&db)?;
            }
        }
        Ok(())
    }

    /// Drops the handles of a dead process.
    fn discard(&mut self, db: Db) {
        self.gate.iter().for_each(|gate| gate.set_open(true));
        self.waited = true;
        self.held.clear();
        drop(db);
    }

    /// Decides whether the background thread now does all pending work. It must do so before an
    /// action that waits for it, or that closes files at the same time; otherwise the thread may be
    /// released, and finishes before the next action that does not wait.
    fn step(&mut self, profile: &Profile, db: &Db, action: &Action) -> Verdict<()> {
        let Some(gate) = &self.gate else { return Ok(()) };
        // Versions that only a dropped snapshot retained are compacted, so a drop is waited for,
        // too.
        let waits = !matches!(action, Action::Write { .. } | Action::WriteIf { .. } | Action::Hold)
            || !profile.log;
        if !self.process.is_dead() {
            gate.meet();
        }
        if waits || self.waited || self.steps.u8(..10) == 0 {
            gate.set_open(true);
            let mut idle = db.wait_idle();
            // These flush, and then allocate file numbers while compactions caused by the flush may
            // run: so nothing may be left to flush.
            let numbers_files = matches!(
                action,
                Action::CompactAll
                    | Action::CompactRange(..)
                    | Action::Checkpoint
                    | Action::RebuildFilters(_)
            );
            if numbers_files {
                idle = idle.and_then(|()| db.flush()).and_then(|()| db.wait_idle());
            }
            if !self.process.is_dead() {
                idle.map_err(failed("waiting"))?;
            }
        }
        gate.set_open(waits);
        self.waited = waits;
        Ok(())
    }

    fn durable(&mut self) {
        self.written = self.history.len();
        self.disk.mark(Mark::Durable(self.written).encode());
    }

    /// The process was killed, but not the system: all acknowledged batches are present. Batches
    /// that are missing are removed from the history, which continues from the state found.
    fn start_again(&mut self, profile: &Profile) -> Verdict<Db> {
        // Compactions after an open start after the marks, or would race with them.
        self.gate.iter().for_each(|gate| gate.set_open(false));
        let db = self.open(profile).map_err(failed("opening after a kill"));
        let found = db.as_ref().map_err(Clone::clone).and_then(|db| self.find_what_is_left(db));
        self.gate.iter().for_each(|gate| gate.set_open(true));
        found.and(db)
    }

    fn find_what_is_left(&mut self, db: &Db) -> Verdict<()> {
        let found = scan(db)?;
        let (low, high) = (self.written, self.history.len());
        if self.history.prefix(digest(&found), low, high).is_none() {
            let what = self.history.explain(&found, low, high);
            return Err(format!("after a kill: {what}"));
        }
        let taken_back = self.history.difference(&found);
        if !taken_back.is_empty() {
            self.history.push(taken_back);
            self.disk.mark(Mark::Issued(self.history.len()).encode());
        }
        self.durable();
        Ok(())
    }

    fn one(&mut self, profile: &Profile, db: &Db, action: &Action) -> trommel::Result<()> {
        let all = self.history.len();
        match action {
            Action::Write { batch, sync } => {
                self.history.push(batch.clone());
                self.disk.mark(Mark::Issued(all + 1).encode());
                write(db, batch, *sync)?;
                match (profile.log, *sync) {
                    (_, true) => self.durable(),
                    (true, false) => {
                        self.written = all + 1;
                        self.disk.mark(Mark::Written(all + 1).encode());
                    }
                    // Without a log only flushed batches survive.
                    (false, false) => {}
                }
                return Ok(());
            }
            Action::WriteIf { key, value } => return self.write_if(profile, db, key, value),
            Action::Hold => {
                self.held.push((db.snapshot(), self.history.digest()));
                return Ok(());
            }
            Action::Release => return Ok(()),
            Action::Pause => return self.set_paused(db, !self.paused),
            Action::SetFilters(filters) => {
                return db.set_filters(filters.parse().expect("a filter policy"));
            }
            Action::RebuildFilters(filters) => return rebuild(db, filters),
            Action::Sync => db.sync()?,
            Action::Flush => {
                db.flush()?;
                self.settle(profile, db)?;
            }
            Action::CompactAll => {
                self.set_paused(db, false)?;
                self.settle(profile, db)?;
                db.compact_all()?;
                self.settle(profile, db)?;
            }
            Action::CompactRange(from, to) => {
                self.set_paused(db, false)?;
                self.settle(profile, db)?;
                db.compact_range(from..=to)?;
                self.settle(profile, db)?;
            }
            Action::Checkpoint => return self.checkpoint(db),
            Action::Reopen { .. } | Action::Die { .. } => {}
        }
        self.durable();
        Ok(())
    }

    /// Runs an action; compactions caused by it start after its mark, or would race with it.
    fn one_by_one(&mut self, profile: &Profile, db: &Db, action: &Action) -> trommel::Result<()> {
        let beside_compactions = matches!(
            action,
            Action::SetFilters(_)
                | Action::RebuildFilters(_)
                | Action::Sync
                | Action::Flush
                | Action::Checkpoint
        );
        if !profile.stepped || !beside_compactions {
            return self.one(profile, db, action);
        }
        db.pause_compaction()?;
        let done = self.one(profile, db, action);
        db.resume_compaction();
        done
    }

    /// Waits for automatic background work that would race with the next action.
    fn settle(&self, profile: &Profile, db: &Db) -> trommel::Result<()> {
        if profile.stepped { db.wait_idle() } else { Ok(()) }
    }

    fn set_paused(&mut self, db: &Db, paused: bool) -> trommel::Result<()> {
        if self.paused != paused {
            self.paused = paused;
            if paused {
                db.pause_compaction()?;
            } else {
                db.resume_compaction();
            }
        }
        Ok(())
    }

    /// Inserts a value if the key is absent, or replaces the present one.
    fn write_if(
        &mut self,
        profile: &Profile,
        db: &Db,
        key: &[u8],
        value: &Option<Vec<u8>>,
    ) -> trommel::Result<()> {
        let all = self.history.len();
        let old = self.history.get(key).cloned();
        let mut done = Ok(true);
        if old.is_some() {
            done = db.insert_if_absent(key, "not this");
            assert!(!matches!(done, Ok(true)), "it was there");
        }
        if matches!(done, Ok(false)) || old.is_none() {
            self.history.push(vec![Operation::set(key.to_vec(), value.clone())]);
            self.disk.mark(Mark::Issued(all + 1).encode());
            done = match value {
                Some(value) if old.is_none() => db.insert_if_absent(key, value),
                value => db.compare_and_set(key, old.as_deref(), value.as_deref()),
            };
        }
        let done = done?;
        assert!(done, "nobody else writes");
        if profile.log {
            self.written = all + 1;
            self.disk.mark(Mark::Written(all + 1).encode());
        }
        Ok(())
    }

    /// Compares the oldest snapshot with its expected state, and drops it.
    fn look_back(&mut self, action: &Action) -> Verdict<()> {
        if !matches!(action, Action::Release) || self.held.is_empty() {
            return Ok(());
        }
        let (snapshot, wanted) = self.held.remove(0);
        if digest(&collect(snapshot.iter())?.into_iter().collect()) == wanted {
            return Ok(());
        }
        Err("a snapshot shows something else than what was there when it was taken".to_owned())
    }

    fn checkpoint(&mut self, db: &Db) -> trommel::Result<()> {
        let (id, all) = (self.next_checkpoint, self.history.len());
        self.next_checkpoint += 1;
        self.disk.mark(Mark::CheckpointBegun(id, all).encode());
        db.checkpoint(checkpoint_dir(id))?;
        self.disk.mark(Mark::CheckpointDone(id).encode());
        self.durable();
        Ok(())
    }
}

/// A dropped store waits for its threads, so none may be blocked then.
struct OpenInTheEnd(Option<Arc<Gate>>);

impl Drop for OpenInTheEnd {
    fn drop(&mut self) {
        self.0.iter().for_each(|gate| gate.set_open(true));
    }
}

/// The directory of checkpoint `id`.
pub(crate) fn checkpoint_dir(id: usize) -> PathBuf {
    Path::new("checkpoints").with_extension(id.to_string())
}

/// Changes the filters of the existing tables.
pub(crate) fn rebuild(db: &Db, filters: &str) -> trommel::Result<()> {
    db.set_filters(filters.parse().expect("a filter policy"))?;
    db.rebuild_filters(&RebuildOptions::default()).map(drop)
}

/// Writes a batch, with a simpler call if it is a single operation.
pub(crate) fn write(db: &Db, batch: &[Operation], sync: bool) -> trommel::Result<()> {
    let options = if sync { WriteOptions::sync() } else { WriteOptions::os() };
    match batch {
        [Operation::Put(key, value)] => db.put_with(key, value, options).map(drop),
        [Operation::Delete(key)] => db.delete_with(key, options).map(drop),
        [Operation::Merge(key, operand)] => db.merge_with(key, operand, options).map(drop),
        operations => {
            let mut batch = WriteBatch::new();
            for operation in operations {
                match operation {
                    Operation::Put(key, value) => batch.put(key, value),
                    Operation::Delete(key) => batch.delete(key),
                    Operation::Merge(key, operand) => batch.merge(key, operand),
                    Operation::DeleteRange(from, None) => batch.delete_range(from..),
                    Operation::DeleteRange(from, Some(to)) => batch.delete_range(from..to),
                };
            }
            db.write_with(batch, options).map(drop)
        }
    }
}

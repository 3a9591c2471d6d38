//! A store and its lean model; every step is applied to both.

use std::hash::{DefaultHasher, Hasher};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use trommel::vfs::Vfs;
use trommel::{Db, Options, Snapshot, WriteBatch};
use trommel_sim::SimDisk;

use super::held::{Alphabet, LeanCursor, LeanRange, State};
use crate::budget;
use crate::config::{Files, Home, live_options, options};
use crate::iterators::{Check, Reader, ok};
use crate::keys::show;
use crate::rebuilds::rebuild_filters;
use crate::rng::Rng;
use crate::world::Work;

/// The kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Delete,
    DeleteRange,
    /// Deletes of many adjacent keys, one by one.
    DeleteRun,
    Batch,
    InsertIfAbsent,
    CompareAndSet,
    Get,
    ContainsKey,
    MultiGet,
    OpenRange,
    StepRange,
    OpenCursor,
    SeekCursor,
    StepCursor,
    DropHeld,
    TakeSnapshot,
    DropSnapshot,
    Flush,
    Sync,
    CompactRange,
    WaitIdle,
    SetOptions,
    RebuildFilters,
    CompareAll,
    Reopen,
    Kill,
    PowerCut,
}

impl Kind {
    /// Whether it certainly causes a flush, a compaction or a change of options; any write may.
    fn may_change_the_tree(self) -> bool {
        use Kind::*;
        matches!(self, Flush | CompactRange | WaitIdle | SetOptions | CompareAll | Reopen | Kill)
    }
}

/// Chooses the options of an open.
pub(super) type Choose = Box<dyn Fn(&mut Rng, Home, &Arc<dyn Vfs>) -> Options>;

/// A store and its model.
pub(crate) struct Lean {
    pub(super) db: Option<Db>,
    pub(super) home: Home,
    pub(super) vfs: Arc<dyn Vfs>,
    /// The same file system, if it is simulated.
    pub(super) disk: Option<SimDisk>,
    pub(super) dir: PathBuf,
    pub(super) choose: Choose,
    /// Whether the open store has a log.
    pub(super) log: bool,
    /// Whether it syncs every write.
    pub(super) syncs: bool,
    pub(super) alphabet: Rc<Alphabet>,
    pub(super) state: Rc<State>,
    /// The number of the last write.
    pub(super) stamp: u32,
    /// The lower bound of the state after a power failure, and the writes after it.
    pub(super) durable: Rc<State>,
    pub(super) since: Vec<Vec<(usize, u32)>>,
    pub(super) snapshots: Vec<(Snapshot, Rc<State>)>,
    pub(super) ranges: Vec<LeanRange>,
    pub(super) cursors: Vec<LeanCursor>,
    buffer: Vec<u8>,
    /// Digest of all results so far.
    pub(crate) history: DefaultHasher,
    pub(crate) work: Work,
    _temporary: Option<tempfile::TempDir>,
}

/// The model is the same for every file system; only power failures depend on it.
impl Lean {
    pub(crate) fn new(seed: u64, home: Home) -> Check<Self> {
        Self::with(seed, home, Box::new(options))
    }

    /// A store opened with options from `choose` each time.
    pub(crate) fn with(seed: u64, home: Home, choose: Choose) -> Check<Self> {
        let mut rng = Rng::new(seed);
        let alphabet = Rc::new(Alphabet::new(&mut rng));
        let disk = (home.files == Files::Simulated).then(SimDisk::new);
        let temporary = home.directory();
        let root = temporary.as_ref().map_or(PathBuf::from("/"), |dir| dir.path().to_path_buf());
        let state = Rc::new(vec![0; alphabet.keys.len()]);
        let mut lean = Self {
            db: None,
            home,
            vfs: disk.clone().map_or_else(|| home.vfs(), |disk| Arc::new(disk)),
            disk,
            dir: root.join("store"),
            choose,
            log: true,
            syncs: false,
            alphabet,
            durable: Rc::clone(&state),
            state,
            stamp: 0,
            since: Vec::new(),
            snapshots: Vec::new(),
            ranges: Vec::new(),
            cursors: Vec::new(),
            buffer: Vec::new(),
            history: DefaultHasher::new(),
            work: Work::default(),
            _temporary: temporary,
        };
        lean.open(&mut rng)?;
        Ok(lean)
    }

    pub(super) fn db(&self) -> &Db {
        self.db.as_ref().expect("the store is open between steps")
    }

    fn key(&self, at: usize) -> &[u8] {
        &self.alphabet.keys[at]
    }

    pub(crate) fn step(&mut self, kind: Kind, seed: u64) -> Check {
        self.act(kind, &mut Rng::new(seed))?;
        self.work.operations += 1;
        // After each step that may change the tree, and occasionally.
        if kind.may_change_the_tree() || seed.is_multiple_of(64) {
            self.work.budget_checks += u64::from(budget::holds(self.db())?);
        }
        Ok(())
    }

    fn act(&mut self, kind: Kind, rng: &mut Rng) -> Check {
        match kind {
            Kind::Put | Kind::Delete => self.put_or_delete(kind == Kind::Put, rng),
            Kind::DeleteRange => self.delete_range(rng),
            Kind::DeleteRun => self.delete_run(rng),
            Kind::Batch => self.batch(rng),
            Kind::InsertIfAbsent => self.set_if(rng, true),
            Kind::CompareAndSet => self.set_if(rng, false),
            Kind::Get | Kind::ContainsKey => self.get(kind, rng),
            Kind::MultiGet => self.multi_get(rng),
            Kind::OpenRange | Kind::OpenCursor => self.hold(kind, rng),
            Kind::StepRange | Kind::SeekCursor | Kind::StepCursor => self.advance_held(kind, rng),
            Kind::DropHeld => {
                self.ranges.truncate(rng.below(self.ranges.len() + 1));
                self.cursors.truncate(rng.below(self.cursors.len() + 1));
                Ok(())
            }
            Kind::TakeSnapshot => {
                if self.snapshots.len() < 4 {
                    self.snapshots.push((self.db().snapshot(), Rc::clone(&self.state)));
                }
                Ok(())
            }
            Kind::DropSnapshot => {
                if !self.snapshots.is_empty() {
                    drop(self.snapshots.swap_remove(rng.below(self.snapshots.len())));
                }
                Ok(())
            }
            Kind::Flush | Kind::Sync => self.make_durable(kind == Kind::Sync),
            Kind::CompactRange => self.compact_range(rng),
            Kind::WaitIdle => {
                ok("wait_idle", self.db().wait_idle())?;
                budget::fits(self.db()).map(drop)
            }
            Kind::SetOptions => {
                ok("set_options", self.db().set_options(|options| live_options(rng, options)))
            }
            Kind::RebuildFilters => rebuild_filters(self.db()),
            Kind::CompareAll => self.compare_all(),
            Kind::Reopen => self.reopen(rng),
            Kind::Kill => self.kill(rng),
            Kind::PowerCut => self.power_cut(rng),
        }
    }

    /// Records an acknowledged batch.
    fn wrote(&mut self, batch: Vec<(usize, u32)>) {
        let state = Rc::make_mut(&mut self.state);
        for (at, stamp) in &batch {
            state[*at] = *stamp;
        }
        if self.syncs {
            self.all_durable();
        } else if self.disk.is_some() {
            self.since.push(batch);
        }
    }

    fn next_stamp(&mut self) -> u32 {
        self.stamp += 1;
        self.stamp
    }

    fn put_or_delete(&mut self, put: bool, rng: &mut Rng) -> Check {
        let at = self.alphabet.own(rng);
        let mut buffer = std::mem::take(&mut self.buffer);
        let stamp = if put { self.next_stamp() } else { 0 };
        let wrote = if put {
            self.db().put(self.key(at), self.alphabet.value(stamp, &mut buffer))
        } else {
            self.db().delete(self.key(at))
        };
        self.buffer = buffer;
        ok("put or delete", wrote)?;
        self.wrote(vec![(at, stamp)]);
        Ok(())
    }

    fn batch(&mut self, rng: &mut Rng) -> Check {
        let (mut batch, mut model) = (WriteBatch::new(), Vec::new());
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..rng.within(1, 12) {
            if rng.once_in(24) {
                let keys = self.alphabet.some_range(rng);
                batch.delete_range(self.alphabet.bounds(&keys, rng));
                model.extend(keys.map(|at| (at, 0)));
                continue;
            }
            let at = self.alphabet.own(rng);
            let stamp = if rng.once_in(4) { 0 } else { self.next_stamp() };
            if stamp == 0 {
                batch.delete(self.key(at));
            } else {
                batch.put(self.key(at), self.alphabet.value(stamp, &mut buffer));
            }
            model.push((at, stamp));
        }
        self.buffer = buffer;
        ok("write", self.db().write(batch))?;
        self.wrote(model);
        Ok(())
    }

    fn delete_range(&mut self, rng: &mut Rng) -> Check {
        let keys = self.alphabet.some_range(rng);
        let bounds = self.alphabet.bounds(&keys, rng);
        ok("delete_range", self.db().delete_range(bounds))?;
        self.wrote(keys.map(|at| (at, 0)).collect());
        Ok(())
    }

    fn delete_run(&mut self, rng: &mut Rng) -> Check {
        let first = rng.below(self.alphabet.keys.len());
        let last = self.alphabet.keys.len().min(first + rng.within(20, 300));
        for at in first..last {
            ok("delete", self.db().delete(self.key(at)))?;
            self.wrote(vec![(at, 0)]);
        }
        // A scan of a part of them learns a gap, which ends within its bounds.
        let low = first + rng.below(last - first);
        let bounds = self.alphabet.bounds(&(low..rng.within(low, last)), rng);
        let mut range = self.db().range(bounds);
        let found = if rng.once_in(2) { range.next() } else { range.next_back() };
        match ok("a scan of deleted keys", found.transpose())? {
            None => Ok(()),
            Some((key, _)) => Err(format!("{} was deleted", show(&key))),
        }
    }

    /// `compare_and_set`, or `insert_if_absent`.
    fn set_if(&mut self, rng: &mut Rng, insert: bool) -> Check {
        let at = self.alphabet.own(rng);
        let current = self.state[at];
        let stamp = if insert || !rng.once_in(4) { self.next_stamp() } else { 0 };
        // The expected value is the current one, none, or one that never was.
        let expected = match rng.below(4) {
            _ if insert => 0,
            0 => 0,
            1 => u32::MAX,
            _ => current,
        };
        let (mut old, mut new) = (Vec::new(), Vec::new());
        let old = (expected != 0).then(|| self.alphabet.value(expected, &mut old));
        let new = (stamp != 0).then(|| self.alphabet.value(stamp, &mut new));
        let set = match new {
            Some(new) if insert => self.db().insert_if_absent(self.key(at), new),
            new => self.db().compare_and_set(self.key(at), old, new),
        };
        let set = ok("compare_and_set", set)?;
        self.history.write_u8(u8::from(set));
        if set != (expected == current) {
            return Err(format!("compare_and_set of key {at} from {expected}: {set}"));
        }
        if set {
            self.wrote(vec![(at, stamp)]);
        }
        Ok(())
    }

    /// Usually the live store, else a snapshot; with its model.
    fn reader(&self, rng: &mut Rng) -> (Reader<'_>, &Rc<State>) {
        if self.snapshots.is_empty() || !rng.once_in(5) {
            return (Reader::Live(self.db()), &self.state);
        }
        let (snapshot, state) = rng.pick(&self.snapshots);
        (Reader::Past(snapshot), state)
    }

    fn get(&mut self, kind: Kind, rng: &mut Rng) -> Check {
        let at = self.alphabet.any(rng);
        let (reader, state) = self.reader(rng);
        if kind == Kind::ContainsKey {
            let found = ok("contains_key", reader.contains_key(self.key(at)))?;
            if found != (state[at] != 0) {
                return Err(format!("contains_key of key {at}: {found}"));
            }
            self.history.write_u8(u8::from(found));
            return Ok(());
        }
        let found = ok("get", reader.get(self.key(at)))?;
        self.alphabet.check("get", at, found.as_deref(), state[at])?;
        self.history.write(found.as_deref().unwrap_or(b"-"));
        Ok(())
    }

    fn multi_get(&mut self, rng: &mut Rng) -> Check {
        let places: Vec<usize> = (0..rng.within(1, 16)).map(|_| self.alphabet.any(rng)).collect();
        let (reader, state) = self.reader(rng);
        let keys: Vec<_> = places.iter().map(|at| Rc::clone(&self.alphabet.keys[*at])).collect();
        let found = ok("multi_get", reader.multi_get(&keys))?;
        if found.len() != places.len() {
            return Err(format!("multi_get gave {} answers, not {}", found.len(), places.len()));
        }
        for (at, found) in places.iter().zip(&found) {
            self.alphabet.check("multi_get", *at, found.as_deref(), state[*at])?;
        }
        found.iter().for_each(|found| self.history.write(found.as_deref().unwrap_or(b"-")));
        Ok(())
    }

    fn hold(&mut self, kind: Kind, rng: &mut Rng) -> Check {
        let alphabet = Rc::clone(&self.alphabet);
        if kind == Kind::OpenCursor {
            self.cursors.truncate(2);
            let (reader, state) = self.reader(rng);
            let cursor = ok("cursor", reader.cursor())?;
            let checked = LeanCursor { cursor, state: Rc::clone(state), at: None };
            self.cursors.push(checked);
            return Ok(());
        }
        self.ranges.truncate(3);
        let (reader, state) = self.reader(rng);
        let state = Rc::clone(state);
        let (a, b) = (alphabet.any(rng), alphabet.any(rng));
        let (low, high) = (a.min(b), a.max(b));
        let (range, low, high) = match rng.below(4) {
            0 => (reader.iter(), 0, alphabet.keys.len()),
            1 => {
                let prefix = &alphabet.keys[low];
                let prefix = &prefix[..rng.below(prefix.len() + 1)];
                let inside = |key: &&crate::keys::Bytes| key.starts_with(prefix);
                let low = alphabet.place(prefix);
                let count = alphabet.keys[low..].iter().take_while(inside).count();
                (reader.prefix(prefix), low, low + count)
            }
            _ => {
                use std::ops::Bound::{Excluded, Included};
                let key = |at: usize| Rc::clone(&alphabet.keys[at]);
                (reader.range((Included(key(low)), Excluded(key(high)))), low, high)
            }
        };
        self.ranges.push(LeanRange { range, state, low, high });
        Ok(())
    }

    /// A few steps of a held iterator.
    fn advance_held(&mut self, kind: Kind, rng: &mut Rng) -> Check {
        let alphabet = Rc::clone(&self.alphabet);
        if kind == Kind::StepRange {
            if self.ranges.is_empty() {
                self.hold(Kind::OpenRange, rng)?;
            }
            let place = rng.below(self.ranges.len());
            let from_back = rng.once_in(3);
            for _ in 0..rng.within(1, 6) {
                let more = self.ranges[place].step(&alphabet, from_back)?;
                self.history.write_u8(u8::from(more));
            }
            return Ok(());
        }
        if self.cursors.is_empty() {
            self.hold(Kind::OpenCursor, rng)?;
        }
        let place = rng.below(self.cursors.len());
        let cursor = &mut self.cursors[place];
        if kind == Kind::SeekCursor {
            cursor.seek(&alphabet, rng)?;
        } else {
            let forward = rng.once_in(2);
            for _ in 0..rng.within(1, 6) {
                cursor.step(&alphabet, forward)?;
            }
        }
        self.history.write(cursor.cursor.key().unwrap_or(b"-"));
        Ok(())
    }

    pub(super) fn make_durable(&mut self, sync: bool) -> Check {
        ok("flush or sync", if sync { self.db().sync() } else { self.db().flush() })?;
        self.all_durable();
        Ok(())
    }

    pub(super) fn all_durable(&mut self) {
        self.durable = Rc::clone(&self.state);
        self.since.clear();
    }

    fn compact_range(&mut self, rng: &mut Rng) -> Check {
        let (a, b) = (self.alphabet.any(rng), self.alphabet.any(rng));
        let (low, high) = (a.min(b), a.max(b));
        if rng.once_in(4) {
            return ok("compact_all", self.db().compact_all());
        }
        ok("compact_range", self.db().compact_range(self.key(low)..=self.key(high)))
    }

    /// Compares all keys, in both directions.
    pub(super) fn compare_all(&self) -> Check {
        self.alphabet.check_all(self.db().iter(), &self.state)?;
        self.alphabet.check_all_backward(self.db().iter(), &self.state)
    }
}

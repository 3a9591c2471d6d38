//! A store and its model; every operation is applied to both.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use trommel::vfs::Vfs;
use trommel::{Db, Error, ErrorKind, Options, Snapshot, Stats, WriteBatch};
use trommel_tests::counters::Counters;

use crate::budget;
use crate::config::{Home, live_options, options, policy};
use crate::iterators::{Check, CheckedCursor, CheckedRange, Model, Reader, compare_all, ok};
use crate::keys::{Bytes, KeyBounds, KeySpace, is_empty, show};
use crate::merges;
use crate::rebuilds::rebuild_filters;
use crate::rng::Rng;

/// The kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Put,
    Merge,
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
    IterateRange,
    MoveCursor,
    HoldRange,
    HoldCursor,
    AdvanceHeld,
    DropHeld,
    TakeSnapshot,
    DropSnapshot,
    Flush,
    Sync,
    CompactRange,
    WaitIdle,
    SetOptions,
    SetFilters,
    RebuildFilters,
    Pause,
    Resume,
    Checkpoint,
    Verify,
    Stats,
    BadInput,
    ApproximateBytes,
    CompareAll,
    Reopen,
}

/// The store's work in a sequence, over all its opens.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    pub(crate) operations: u64,
    pub(crate) flushes: u64,
    pub(crate) compactions: u64,
    pub(crate) moves: u64,
    pub(crate) reopens: u64,
    /// Reopens after a kill, with everything written.
    pub(crate) kills: u64,
    /// Reopens after a power failure.
    pub(crate) power_cuts: u64,
    pub(crate) deepest: usize,
    /// Tables that scans skipped, by the counters that were not reset.
    pub(crate) passed_over: u64,
    /// Data blocks that scans skipped, by range filters.
    pub(crate) blocks_skipped: u64,
    /// Number of comparisons of the filters in memory with their budget.
    pub(crate) budget_checks: u64,
    /// Tables whose filters were rebuilt.
    pub(crate) rebuilt: u64,
}

impl Work {
    pub(crate) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.flushes += other.flushes;
        self.compactions += other.compactions;
        self.moves += other.moves;
        self.reopens += other.reopens;
        self.kills += other.kills;
        self.power_cuts += other.power_cuts;
        self.deepest = self.deepest.max(other.deepest);
        self.passed_over += other.passed_over;
        self.blocks_skipped += other.blocks_skipped;
        self.budget_checks += other.budget_checks;
        self.rebuilt += other.rebuilt;
    }

    /// Adds a store's counters since its open.
    pub(crate) fn note(&mut self, stats: &Stats) {
        self.flushes += stats.background.flushes.count;
        self.compactions += stats.background.compactions.count;
        self.moves += stats.background.compactions.trivial_moves;
        self.passed_over += stats.prefixes.useful;
        self.blocks_skipped += stats.scans.blocks_skipped;
        self.rebuilt += stats.background.filter_rebuilds.tables;
        let deepest = stats.levels.last().map_or(0, |level| level.level);
        self.deepest = self.deepest.max(deepest);
    }

    pub(crate) fn count(&self, counters: &mut Counters) {
        counters.add("operations", self.operations);
        counters.add("flushes", self.flushes);
        counters.add("compactions", self.compactions);
        counters.add("moves", self.moves);
        counters.add("reopens", self.reopens);
        counters.add("simulated_kills", self.kills);
        counters.add("power_cuts", self.power_cuts);
        counters.add("levels", self.deepest as u64);
        counters.add("tables_passed_over", self.passed_over);
        counters.add("blocks_skipped", self.blocks_skipped);
        counters.add("budget_checks", self.budget_checks);
        counters.add("filters_rebuilt", self.rebuilt);
    }
}

enum Held {
    Range(Box<CheckedRange>),
    Cursor(Box<CheckedCursor>),
}

/// A store, its model, and the snapshots and iterators of both.
pub(crate) struct World {
    db: Option<Db>,
    model: Rc<Model>,
    keys: KeySpace,
    home: Home,
    /// Whether the store has a merge operator; without one, operands are put instead.
    merges: bool,
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    snapshots: Vec<(Snapshot, Rc<Model>)>,
    held: Vec<Held>,
    pauses: usize,
    /// Lookups since the store was opened or its counters were reset, and the number of hits.
    gets: u64,
    found: u64,
    /// Conditional writes among them that were made: they look their key up once more if a version
    /// was installed while they were in the queue.
    conditional: u64,
    checkpoints: u64,
    pub(crate) work: Work,
    _temporary: Option<tempfile::TempDir>,
}

impl World {
    pub(crate) fn new(seed: u64, home: Home) -> Check<Self> {
        let mut rng = Rng::new(seed);
        let temporary = home.directory();
        let vfs = home.vfs();
        let root = temporary.as_ref().map_or(PathBuf::from("/"), |dir| dir.path().to_path_buf());
        let block_bytes = rng.within(64, 512);
        let mut world = Self {
            db: None,
            model: Rc::default(),
            keys: KeySpace::new(&mut rng, block_bytes),
            home,
            merges: rng.once_in(2),
            vfs,
            dir: root.join("store"),
            snapshots: Vec::new(),
            held: Vec::new(),
            pauses: 0,
            gets: 0,
            found: 0,
            conditional: 0,
            checkpoints: 0,
            work: Work::default(),
            _temporary: temporary,
        };
        world.open(&mut rng)?;
        Ok(world)
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("the store is open between operations")
    }

    fn model(&mut self) -> &mut Model {
        Rc::make_mut(&mut self.model)
    }

    pub(crate) fn do_one(&mut self, kind: Kind, seed: u64) -> Check {
        let rng = &mut Rng::new(seed);
        self.work.operations += 1;
        match kind {
            Kind::Put => self.put(rng),
            Kind::Merge => self.merge(rng),
            Kind::Delete => self.delete(rng),
            Kind::DeleteRange => self.delete_range(rng),
            Kind::DeleteRun => self.delete_run(rng),
            Kind::Batch => self.batch(rng),
            Kind::InsertIfAbsent => self.insert_if_absent(rng),
            Kind::CompareAndSet => self.compare_and_set(rng),
            Kind::Get => self.get(rng),
            Kind::ContainsKey => self.contains_key(rng),
            Kind::MultiGet => self.multi_get(rng),
            Kind::IterateRange => {
                let (reader, model) = self.reader(rng);
                let steps = *rng.pick(&[3, 20, 100, 5000]);
                CheckedRange::begin(reader, model, &self.keys, rng).advance(steps, rng)
            }
            Kind::MoveCursor => {
                let (reader, model) = self.reader(rng);
                CheckedCursor::begin(reader, model, &self.keys, rng)?.advance(30, &self.keys, rng)
            }
            Kind::HoldRange | Kind::HoldCursor => self.hold(kind, rng),
            Kind::AdvanceHeld => self.walk_held(rng),
            Kind::DropHeld => {
                if !self.held.is_empty() {
                    self.held.swap_remove(rng.below(self.held.len()));
                }
                Ok(())
            }
            Kind::TakeSnapshot => {
                if self.snapshots.len() < 5 {
                    self.snapshots.push((self.db().snapshot(), Rc::clone(&self.model)));
                }
                Ok(())
            }
            Kind::DropSnapshot => self.drop_snapshot(rng),
            _ => self.maintain(kind, rng),
        }?;
        self.check_budget()
    }

    fn check_budget(&mut self) -> Check {
        let Some(db) = &self.db else { return Ok(()) };
        self.work.budget_checks += u64::from(budget::holds(db)?);
        Ok(())
    }

    fn maintain(&mut self, kind: Kind, rng: &mut Rng) -> Check {
        match kind {
            Kind::Flush => ok("flush", self.db().flush()),
            Kind::Sync => ok("sync", self.db().sync()),
            Kind::CompactRange => self.compact_range(rng),
            Kind::WaitIdle => {
                ok("wait_idle", self.db().wait_idle())?;
                budget::fits(self.db()).map(drop)
            }
            Kind::SetOptions => {
                ok("set_options", self.db().set_options(|options| live_options(rng, options)))
            }
            Kind::SetFilters => ok("set_filters", self.db().set_filters(policy(rng))),
            Kind::RebuildFilters => rebuild_filters(self.db()),
            Kind::Pause => {
                if self.pauses < 2 {
                    ok("pause_compaction", self.db().pause_compaction())?;
                    self.pauses += 1;
                }
                Ok(())
            }
            Kind::Resume => {
                self.resume_all();
                Ok(())
            }
            Kind::Checkpoint => self.checkpoint(rng),
            Kind::Verify => ok("verify", self.db().verify()).map(|_| ()),
            Kind::Stats => self.check_stats(rng),
            Kind::BadInput => self.bad_input(rng),
            Kind::ApproximateBytes => {
                let bounds = self.keys.bounds(rng);
                let all = ok("approximate_bytes", self.db().approximate_bytes(..))?;
                let part = ok("approximate_bytes", self.db().approximate_bytes(bounds))?;
                // A compaction in between may shrink the whole, but not its order of magnitude.
                let sane = part <= all * 8 + (1 << 20);
                if sane { Ok(()) } else { Err(format!("a part has {part} bytes, all have {all}")) }
            }
            Kind::CompareAll => {
                let (reader, model) = self.reader(rng);
                compare_all(reader, model)
            }
            Kind::Reopen => self.reopen(rng),
            _ => unreachable!("{kind:?} is no maintenance"),
        }
    }

    /// Three times in four the live store, else a snapshot; with its model.
    fn reader(&self, rng: &mut Rng) -> (Reader<'_>, &Rc<Model>) {
        if self.snapshots.is_empty() || !rng.once_in(4) {
            return (Reader::Live(self.db()), &self.model);
        }
        let (snapshot, model) = rng.pick(&self.snapshots);
        (Reader::Past(snapshot), model)
    }

    fn put(&mut self, rng: &mut Rng) -> Check {
        let (key, value) = (self.keys.own(rng), self.keys.value(rng));
        ok("put", self.db().put(&key, &value))?;
        self.model().insert(key, value);
        Ok(())
    }

    fn merge(&mut self, rng: &mut Rng) -> Check {
        if !self.merges {
            return self.put(rng);
        }
        let (key, operand) = (self.keys.own(rng), merges::operand(rng));
        ok("merge", self.db().merge(&key, &operand))?;
        merges::apply(self.model(), key, &operand);
        Ok(())
    }

    fn delete(&mut self, rng: &mut Rng) -> Check {
        let key = self.keys.any(rng);
        ok("delete", self.db().delete(&key))?;
        self.model().remove(&key);
        Ok(())
    }

    /// Bounds of a range to delete: usually of a few keys, sometimes any, empty or reversed.
    fn doomed(&self, rng: &mut Rng) -> KeyBounds {
        let bounds = self.keys.bounds(rng);
        if rng.once_in(40) {
            return bounds;
        }
        let from = self.keys.any(rng);
        let later = self.model.range((Included(Rc::clone(&from)), Unbounded));
        let last = later.map(|(key, _)| key).nth(*rng.pick(&[0, 2, 10, 40]));
        match (last.map(Rc::clone), rng.below(3)) {
            (None, 0) => (Included(from), Unbounded),
            (None, _) => (Included(Rc::clone(&from)), Included(from)),
            (Some(last), 0) => (Excluded(from), Included(last)),
            (Some(last), 1) => (Included(from), Included(last)),
            (Some(last), _) => (Included(from), Excluded(last)),
        }
    }

    fn delete_range(&mut self, rng: &mut Rng) -> Check {
        let mut bounds = self.doomed(rng);
        let before = ok("the newest number", self.db().write(WriteBatch::new()))?;
        let written = match (bounds.clone(), rng.below(80)) {
            (_, 0) => {
                bounds = (Unbounded, Unbounded);
                self.db().delete_range(..)
            }
            ((_, Included(to)), 1..3) => {
                bounds.0 = Unbounded;
                self.db().delete_range(..=to)
            }
            ((_, Excluded(to)), 1..3) => {
                bounds.0 = Unbounded;
                self.db().delete_range(..to)
            }
            ((Included(from), Unbounded), _) => self.db().delete_range(from..),
            ((Included(from), Excluded(to)), _) => self.db().delete_range(from..to),
            ((Included(from), Included(to)), _) => self.db().delete_range(from..=to),
            (bounds, _) => self.db().delete_range(bounds),
        };
        let written = ok("delete_range", written)?;
        if written > before + u64::from(!is_empty(&bounds)) {
            return Err(format!("delete_range of {bounds:?} has number {written} after {before}"));
        }
        delete_within(self.model(), &bounds);
        Ok(())
    }

    fn delete_run(&mut self, rng: &mut Rng) -> Check {
        let from = self.keys.any(rng);
        let count = rng.within(20, 300);
        let later = self.model.range((Included(from), Unbounded)).take(count);
        let keys: Vec<Bytes> = later.map(|(key, _)| Rc::clone(key)).collect();
        for key in &keys {
            ok("delete", self.db().delete(key))?;
            self.model().remove(key);
        }
        let Some((first, last)) = keys.first().zip(keys.last()) else { return Ok(()) };
        // A scan of them learns a gap, which ends within its bounds.
        let mut range = self.db().range((Included(first), Included(last)));
        let found = if rng.once_in(2) { range.next() } else { range.next_back() };
        match ok("a scan of deleted keys", found.transpose())? {
            None => Ok(()),
            Some((key, _)) => Err(format!("{} was deleted", show(&key))),
        }
    }

    fn batch(&mut self, rng: &mut Rng) -> Check {
        let mut batch = WriteBatch::new();
        for _ in 0..*rng.pick(&[0, 1, 2, 10, 10, 60]) {
            if rng.once_in(200) {
                let bounds = self.doomed(rng);
                delete_within(self.model(), &bounds);
                batch.delete_range(bounds);
                continue;
            }
            let key = self.keys.own(rng);
            if rng.once_in(3) {
                batch.delete(&key);
                self.model().remove(&key);
            } else if self.merges && rng.once_in(3) {
                let operand = merges::operand(rng);
                batch.merge(&key, &operand);
                merges::apply(self.model(), key, &operand);
            } else {
                let value = self.keys.value(rng);
                batch.put(&key, &value);
                self.model().insert(key, value);
            }
        }
        ok("write", self.db().write(batch).map(drop))
    }

    fn insert_if_absent(&mut self, rng: &mut Rng) -> Check {
        let (key, value) = (self.keys.own(rng), self.keys.value(rng));
        let inserted = ok("insert_if_absent", self.db().insert_if_absent(&key, &value))?;
        let absent = !self.model.contains_key(&key);
        self.count_gets([!absent]);
        if inserted != absent {
            return Err(format!("insert_if_absent({}) said {inserted}", show(&key)));
        }
        if absent {
            self.conditional += 1;
            self.model().insert(key, value);
        }
        Ok(())
    }

    fn compare_and_set(&mut self, rng: &mut Rng) -> Check {
        let key = self.keys.own(rng);
        let current = self.model.get(&key).cloned();
        let expected = match rng.below(4) {
            0 => None,
            1 => Some(self.keys.value(rng)),
            _ => current.clone(),
        };
        let new = (!rng.once_in(3)).then(|| self.keys.value(rng));
        let set = self.db().compare_and_set(&key, expected.as_deref(), new.as_deref());
        let set = ok("compare_and_set", set)?;
        self.count_gets([current.is_some()]);
        if set != (expected == current) {
            return Err(format!("compare_and_set({}) said {set}", show(&key)));
        }
        self.conditional += u64::from(set);
        match (set, new) {
            (true, Some(value)) => drop(self.model().insert(key, value)),
            (true, None) => drop(self.model().remove(&key)),
            (false, _) => {}
        }
        Ok(())
    }

    fn count_gets(&mut self, found: impl IntoIterator<Item = bool>) {
        for found in found {
            self.gets += 1;
            self.found += u64::from(found);
        }
    }

    fn get(&mut self, rng: &mut Rng) -> Check {
        let key = self.keys.any(rng);
        let (reader, model) = self.reader(rng);
        let (real, expected) = (ok("get", reader.get(&key))?, model.get(&key).cloned());
        self.count_gets([expected.is_some()]);
        same_value(&key, real.as_deref(), expected.as_deref())
    }

    fn contains_key(&mut self, rng: &mut Rng) -> Check {
        let key = self.keys.any(rng);
        let (reader, model) = self.reader(rng);
        let real = ok("contains_key", reader.contains_key(&key))?;
        let expected = model.contains_key(&key);
        self.count_gets([expected]);
        if real == expected { Ok(()) } else { Err(format!("contains_key({}): {real}", show(&key))) }
    }

    fn multi_get(&mut self, rng: &mut Rng) -> Check {
        let count = *rng.pick(&[0, 1, 3, 20, 80]);
        let keys: Vec<Bytes> = (0..count).map(|_| self.keys.any(rng)).collect();
        let (reader, model) = self.reader(rng);
        let real = ok("multi_get", reader.multi_get(&keys))?;
        let expected: Vec<Option<Bytes>> = keys.iter().map(|key| model.get(key).cloned()).collect();
        self.count_gets(expected.iter().map(Option::is_some));
        if real.len() != count {
            return Err(format!("multi_get of {count} keys gave {} answers", real.len()));
        }
        for ((key, real), expected) in keys.iter().zip(&real).zip(&expected) {
            same_value(key, real.as_deref(), expected.as_deref())
                .map_err(|fault| format!("multi_get of {count} keys: {fault}"))?;
        }
        Ok(())
    }

    fn hold(&mut self, kind: Kind, rng: &mut Rng) -> Check {
        if self.held.len() >= 4 {
            return Ok(());
        }
        let (reader, model) = self.reader(rng);
        let held = if kind == Kind::HoldRange {
            let mut checked = CheckedRange::begin(reader, model, &self.keys, rng);
            let steps = rng.below(10);
            checked.advance(steps, rng)?;
            Held::Range(Box::new(checked))
        } else {
            let mut checked = CheckedCursor::begin(reader, model, &self.keys, rng)?;
            let moves = rng.below(4);
            checked.advance(moves, &self.keys, rng)?;
            Held::Cursor(Box::new(checked))
        };
        self.held.push(held);
        Ok(())
    }

    fn walk_held(&mut self, rng: &mut Rng) -> Check {
        let count = self.held.len();
        if count == 0 {
            return Ok(());
        }
        let moved = match &mut self.held[rng.below(count)] {
            Held::Range(checked) => checked.advance(rng.within(1, 30), rng),
            Held::Cursor(checked) => checked.advance(rng.within(1, 20), &self.keys, rng),
        };
        moved.map_err(|fault| format!("held: {fault}"))
    }

    fn drop_snapshot(&mut self, rng: &mut Rng) -> Check {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let (snapshot, model) = self.snapshots.swap_remove(rng.below(self.snapshots.len()));
        // A clone still holds what the first handle releases.
        let second = snapshot.clone();
        drop(snapshot);
        compare_all(Reader::Past(&second), &model).map_err(|fault| format!("a snapshot: {fault}"))
    }

    fn resume_all(&mut self) {
        for _ in 0..std::mem::take(&mut self.pauses) {
            self.db().resume_compaction();
        }
    }

    fn compact_range(&mut self, rng: &mut Rng) -> Check {
        // While compactions are paused it would wait forever.
        self.resume_all();
        let bounds = self.keys.bounds(rng);
        if rng.once_in(4) {
            ok("compact_all", self.db().compact_all())
        } else {
            ok("compact_range", self.db().compact_range(bounds))
        }
    }

    fn checkpoint(&mut self, rng: &mut Rng) -> Check {
        self.checkpoints += 1;
        let dir = self.dir.with_file_name(format!("checkpoint-{}", self.checkpoints));
        ok("checkpoint", self.db().checkpoint(&dir))?;
        let options = self.options(rng);
        let copy = if rng.once_in(2) {
            let copy = ok("opening a checkpoint", Db::open(&dir, options))?;
            // Writes to the checkpoint must not affect the original.
            ok("put into a checkpoint", copy.put(b"only in the copy", b"1"))?;
            ok("delete in a checkpoint", copy.delete(b"only in the copy"))?;
            ok("flush of a checkpoint", copy.flush())?;
            copy
        } else {
            ok("opening a checkpoint", Db::open_read_only(&dir, options))?
        };
        compare_all(Reader::Live(&copy), &self.model)
            .map_err(|fault| format!("a checkpoint: {fault}"))?;
        ok("verify of a checkpoint", copy.verify())?;
        ok("closing a checkpoint", copy.close())?;
        for entry in self.vfs.list(&dir).map_err(|error| error.to_string())? {
            self.vfs.remove(&dir.join(&entry.name)).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn check_stats(&mut self, rng: &mut Rng) -> Check {
        let stats = self.db().stats();
        let again = stats.lookups.gets.wrapping_sub(self.gets);
        let found_again = stats.lookups.found.wrapping_sub(self.found);
        if again > self.conditional || found_again > again {
            return Err(format!(
                "stats: {} gets and {} found, but {} were made and {} found, {} for writes",
                stats.lookups.gets, stats.lookups.found, self.gets, self.found, self.conditional
            ));
        }
        let levels: Vec<usize> = stats.levels.iter().map(|level| level.level).collect();
        if !levels.windows(2).all(|pair| pair[0] < pair[1]) {
            return Err(format!("stats: the levels are {levels:?}"));
        }
        if !stats.filters.unusable.is_empty() {
            return Err(format!("unusable filters: {:?}", stats.filters.unusable));
        }
        if let Some(breach) = stats.prefixes.breach {
            return Err(format!("a good prefix extractor is distrusted: {breach}"));
        }
        if stats.to_string().is_empty() {
            return Err("stats print nothing".into());
        }
        self.check_report()?;
        if rng.once_in(3) {
            self.db().reset_stats();
            (self.gets, self.found, self.conditional) = (0, 0, 0);
        }
        Ok(())
    }

    fn check_report(&self) -> Check {
        let report = self.db().filter_report();
        let order: Vec<(usize, String)> =
            report.levels.iter().map(|level| (level.level, format!("{:?}", level.kind))).collect();
        if !order.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0] != pair[1]) {
            return Err(format!("the report's rows are {order:?}"));
        }
        for row in &report.levels {
            let sum = row.counts.negatives + row.counts.false_positives + row.counts.true_positives;
            if row.counts.probes != sum {
                return Err(format!("the report does not add up: {row:?}"));
            }
        }
        let wasted = report.expected_wasted_reads_per_miss;
        if !wasted.is_finite() || wasted < 0.0 {
            return Err(format!("a missing key is said to waste {wasted} reads"));
        }
        Ok(())
    }

    /// Rejected input must not change anything.
    fn bad_input(&mut self, rng: &mut Rng) -> Check {
        let (key, value) = (self.keys.own(rng), self.keys.value(rng));
        let too_long = vec![7; 65_536];
        let mut batch = WriteBatch::new();
        batch.put(&key, &value).delete(&too_long);
        let refused = [
            self.db().put(&too_long, &value).map(drop),
            self.db().write(batch).map(drop),
            self.db().insert_if_absent(&too_long, &value).map(|_| ()),
            self.db().set_options(|options| options.reads(|r| r.block_bytes(0))),
            self.db().checkpoint(&self.dir),
            Db::open(&self.dir, self.options(rng)).map(|_| ()),
        ];
        let expected = [
            ErrorKind::Usage,
            ErrorKind::Usage,
            ErrorKind::Usage,
            ErrorKind::Usage,
            ErrorKind::Usage,
            ErrorKind::Retry,
        ];
        for (at, (outcome, expected)) in refused.into_iter().zip(expected).enumerate() {
            match outcome {
                Err(error) if error.kind() == expected => {}
                other => return Err(format!("bad input {at}: {other:?}")),
            }
        }
        Ok(())
    }

    /// Options for an open, with the merge operator if the store has one.
    fn options(&self, rng: &mut Rng) -> Options {
        let options = options(rng, self.home, &self.vfs);
        if self.merges { merges::with_operator(rng, options) } else { options }
    }

    fn open(&mut self, rng: &mut Rng) -> Check {
        let options: Options = self.options(rng);
        let shown = format!("{options:?}");
        let db =
            Db::open(&self.dir, options).map_err(|error| format!("open: {error} ({shown})"))?;
        self.db = Some(db);
        (self.gets, self.found, self.conditional, self.pauses) = (0, 0, 0, 0);
        Ok(())
    }

    /// Closes the store, or only drops it, and opens it with other options. Snapshots and iterators
    /// are used once more in between, and dropped before the next open.
    fn reopen(&mut self, rng: &mut Rng) -> Check {
        self.shut(rng.once_in(3))?;
        if rng.once_in(3) {
            self.read_only(rng)?;
        }
        // Objects of a closed store do not prevent a reopen.
        if !rng.once_in(8) {
            self.snapshots.clear();
        }
        self.open(rng)?;
        self.work.reopens += 1;
        self.snapshots.clear();
        match rng.below(4) {
            0 => compare_all(Reader::Live(self.db()), &self.model),
            1 => ok("verify after opening", self.db().verify()).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn shut(&mut self, only_drop: bool) -> Check {
        self.note_work();
        let db = self.db.take().expect("the store is open between operations");
        let mut rng = Rng::new(self.work.operations);
        if only_drop {
            drop(db);
            // As long as any of them is held the store is open.
            for (snapshot, model) in &self.snapshots {
                compare_all(Reader::Past(snapshot), model)
                    .map_err(|fault| format!("a snapshot without a handle: {fault}"))?;
            }
            while !self.held.is_empty() {
                self.walk_held(&mut rng).map_err(|fault| format!("without a handle: {fault}"))?;
                self.held.pop();
            }
            self.snapshots.clear();
        } else {
            let clone = db.clone();
            ok("close", db.close())?;
            for refused in
                [clone.get(b"k").map(|_| ()), clone.put(b"k", b"").map(drop), clone.flush()]
            {
                if !matches!(refused, Err(Error::Closed)) {
                    return Err(format!("a closed store answers {refused:?}"));
                }
            }
            for (snapshot, _) in &self.snapshots {
                match snapshot.get(b"k") {
                    Err(Error::Closed) => {}
                    other => return Err(format!("a snapshot of a closed store answers {other:?}")),
                }
            }
            for held in self.held.drain(..) {
                match held {
                    Held::Range(checked) => checked.says_closed(&mut rng)?,
                    Held::Cursor(checked) => checked.says_closed(&mut rng)?,
                }
            }
        }
        Ok(())
    }

    fn read_only(&mut self, rng: &mut Rng) -> Check {
        let list = |world: &Self| world.vfs.list(&world.dir).map_err(|error| error.to_string());
        let before = list(self)?;
        let options = self.options(rng);
        let db = ok("read-only open", Db::open_read_only(&self.dir, options))?;
        compare_all(Reader::Live(&db), &self.model)
            .map_err(|fault| format!("opened read-only: {fault}"))?;
        ok("verify of a read-only store", db.verify())?;
        for refused in [db.put(b"k", b"v").map(drop), db.flush(), db.delete(b"k").map(drop)] {
            if !matches!(refused, Err(Error::ReadOnly)) {
                return Err(format!("a read-only store answers {refused:?}"));
            }
        }
        ok("wait_idle of a read-only store", db.wait_idle())?;
        ok("closing a read-only store", db.close())?;
        if list(self)? != before {
            return Err("a read-only open changed the directory".into());
        }
        Ok(())
    }

    fn note_work(&mut self) {
        let stats = self.db().stats();
        self.work.note(&stats);
    }

    /// Compares everything, live and held, then closes, reopens and compares once more.
    pub(crate) fn compare_at_the_end(&mut self) -> Check {
        compare_all(Reader::Live(self.db()), &self.model)?;
        ok("verify at the end", self.db().verify())?;
        let rng = &mut Rng::new(self.work.operations);
        while !self.snapshots.is_empty() {
            self.drop_snapshot(rng)?;
        }
        self.shut(false)?;
        self.open(rng)?;
        compare_all(Reader::Live(self.db()), &self.model)
            .map_err(|fault| format!("after the last opening: {fault}"))?;
        let db = self.db.take().expect("it was just opened");
        ok("the last close", db.close())
    }
}

fn delete_within(model: &mut Model, bounds: &KeyBounds) {
    if is_empty(bounds) {
        return;
    }
    let keys: Vec<Bytes> = model.range(bounds.clone()).map(|(key, _)| Rc::clone(key)).collect();
    for key in keys {
        model.remove(&key);
    }
}

fn same_value(key: &[u8], real: Option<&[u8]>, expected: Option<&[u8]>) -> Check {
    if real == expected {
        return Ok(());
    }
    let show = |value: Option<&[u8]>| value.map_or("nothing".to_owned(), show);
    Err(format!(
        "get({}): got {}, should be {}",
        crate::keys::show(key),
        show(real),
        show(expected)
    ))
}

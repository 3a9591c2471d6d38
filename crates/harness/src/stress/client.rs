//! A thread that reads and writes at random, and checks every answer.

use std::sync::atomic::Ordering::Relaxed;

use fastrand::Rng;
use trommel::{Db, Slice, Snapshot, WriteBatch, WriteOptions};

use super::check::{Checked, Frame, Trouble, View, judge, judge_member, scan, scan_range};
use super::counts::Activity;
use super::records::{Found, MAX_MEMBERS, Member, RecordSpec};
use super::worker::Shared;

/// Maximum number of snapshots that one thread holds.
const HELD: usize = 4;
/// Maximum number of keys in a scan during which other threads write.
const WIDE_KEYS: u32 = 2_000;
/// A value that no key ever has.
const NEVER: &[u8] = b"never to be stored";

/// A thread's client of a store.
pub(super) struct Client<'a> {
    shared: &'a Shared,
    db: &'a Db,
    rng: Rng,
    held: Vec<(Snapshot, Frame)>,
}

type Act<'a> = fn(&mut Client<'a>) -> Checked;

impl<'a> Client<'a> {
    pub(super) fn new(shared: &'a Shared, db: &'a Db, rng: Rng) -> Self {
        Self { shared, db, rng, held: Vec::new() }
    }

    /// The operations, with their weights and names.
    const ACTS: [(u32, &'static str, Act<'a>); 12] = [
        (3000, "write", Self::write),
        (1000, "write_batch", Self::write_batch),
        (300, "conditional_write_that_must_fail", Self::write_on_false_condition),
        (2000, "get", Self::get),
        (500, "contains_key", Self::contains_key),
        (500, "multi_get", Self::multi_get),
        (200, "scan_exactly", Self::scan_exactly),
        (30, "scan_beside_writers", Self::scan_beside_writers),
        (100, "cursor", Self::cursor),
        (60, "snapshot", Self::take_snapshot),
        (120, "snapshot_check", Self::check_snapshot),
        (3, "flush", |own| Ok(own.db.flush()?)),
    ];

    /// Runs one operation after another until the store is to be closed.
    pub(super) fn serve(&mut self, activity: &Activity) {
        let total: u32 = Self::ACTS.iter().map(|(weight, ..)| weight).sum();
        while !self.shared.is_closing.load(Relaxed) {
            let mut draw = self.rng.u32(..total);
            let act = Self::ACTS.iter().find(|(weight, ..)| {
                let is_here = draw < *weight;
                draw = draw.wrapping_sub(*weight);
                is_here
            });
            let Some((_, what, act)) = act else { continue };
            let done = activity.work(what, || act(self));
            if self.shared.tolerate(done).is_some() {
                self.count(what, 1);
            }
        }
        while !self.held.is_empty() {
            let checked = activity.work("snapshot_check", || self.check_snapshot());
            self.shared.tolerate(checked);
            self.held.pop();
        }
    }

    fn count(&self, what: &'static str, count: u64) {
        self.shared.counts.add(what, count);
    }

    fn records(&self) -> &'a RecordSpec {
        &self.shared.expected.records
    }

    /// A random key; some are drawn far more often than others.
    fn key(&mut self) -> u32 {
        let part = if self.rng.bool() { self.rng.f64() } else { self.rng.f64().powi(4) };
        ((part * f64::from(self.records().keys)) as u32).min(self.records().keys - 1)
    }

    fn write_options(&mut self) -> WriteOptions {
        match self.rng.u8(..64) {
            0 => WriteOptions::sync(),
            1..8 => WriteOptions::os(),
            _ => WriteOptions::new(),
        }
    }

    /// The key's next write, unless one is pending.
    fn next(&self, key: u32) -> Option<u32> {
        let state = self.shared.expected.state(key);
        if state.pending == 0 { state.begun.checked_add(1) } else { None }
    }

    fn is_there(&self, key: u32) -> bool {
        !self.records().is_delete(key, self.shared.expected.state(key).settled)
    }

    fn write(&mut self) -> Checked {
        let (expected, records) = (&self.shared.expected, self.records());
        let number = self.key();
        let _lock = expected.lock_all(&[number]);
        let Some(generation) = self.next(number) else { return Ok(()) };
        let (key, db) = (records.key(number), self.db);
        let is_delete = records.is_delete(number, generation);
        let value = (!is_delete).then(|| records.value(number, generation, &[]));
        let how = self.rng.u8(..8);
        let current = match how {
            0 => self.get_exactly(number)?,
            _ => None,
        };
        let is_there = self.is_there(number);
        let options = self.write_options();
        expected.begin(number, generation, 0)?;
        let (name, is_done) = match (how, &value) {
            (0, value) => {
                let done = db.compare_and_set(&key, current.as_deref(), value.as_deref())?;
                ("writes.compare_and_set", done)
            }
            (1..3, Some(value)) if !is_there => {
                ("writes.insert_if_absent", db.insert_if_absent(&key, value)?)
            }
            (_, Some(value)) => {
                db.put_with(&key, value, options)?;
                ("writes.put", true)
            }
            (_, None) => {
                db.delete_with(&key, options)?;
                ("writes.delete", true)
            }
        };
        if !is_done {
            return Err(Trouble::WrongAnswer(format!(
                "{name} of key {number} failed, although its condition holds: {:?}",
                expected.state(number)
            )));
        }
        expected.settle(number, generation)?;
        self.count(name, 1);
        self.count("acknowledged_writes", 1);
        Ok(())
    }

    /// Gets the key's value and checks it; the caller holds the key's lock.
    fn get_exactly(&self, key: u32) -> Checked<Option<Slice>> {
        let expected = &self.shared.expected;
        let value = self.db.get(self.records().key(key))?;
        judge(expected, key, value.as_deref(), expected.state(key).window(), "get")?;
        Ok(value)
    }

    /// Distinct keys in order, close together or anywhere.
    fn some_keys(&mut self) -> Vec<u32> {
        let count = self.rng.usize(2..=MAX_MEMBERS);
        let first = self.key();
        let is_near = self.rng.bool();
        let end = first.saturating_add(100).min(self.records().keys);
        let mut keys: Vec<u32> = (0..count)
            .map(|_| if is_near { self.rng.u32(first..end) } else { self.key() })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn write_batch(&mut self) -> Checked {
        let (expected, records) = (&self.shared.expected, self.records());
        let keys = self.some_keys();
        let _locks = expected.lock_all(&keys);
        let next = |key: &u32| Some((*key, self.next(*key)?));
        let mut members: Vec<Member> = keys.iter().filter_map(next).collect();
        let id = self.rng.u32(1..);
        self.rng.shuffle(&mut members);
        let mut batch = WriteBatch::new();
        for (number, generation) in &members {
            let key = records.key(*number);
            // Only the last write of a key in a batch counts.
            match self.rng.u8(..16) {
                0 => _ = batch.put(&key, NEVER),
                1 => _ = batch.delete(&key),
                _ => {}
            }
            match records.is_delete(*number, *generation) {
                true => batch.delete(&key),
                false => batch.put(&key, records.value(*number, *generation, &members)),
            };
        }
        let options = self.write_options();
        for (key, generation) in &members {
            expected.begin(*key, *generation, id)?;
        }
        self.db.write_with(batch, options)?;
        for (key, generation) in &members {
            expected.settle(*key, *generation)?;
        }
        self.count("writes.in_batches", members.len() as u64);
        self.count("acknowledged_writes", members.len() as u64);
        Ok(())
    }

    /// Conditional writes whose condition is false: they must report it, and change nothing.
    fn write_on_false_condition(&mut self) -> Checked {
        let number = self.key();
        let _lock = self.shared.expected.lock_all(&[number]);
        if self.next(number).is_none() {
            return Ok(());
        }
        let key = self.records().key(number);
        let is_done = match (self.is_there(number), self.rng.bool()) {
            (true, true) => self.db.insert_if_absent(&key, NEVER)?,
            (true, false) => self.db.compare_and_set(&key, None, Some(NEVER))?,
            (false, true) => self.db.compare_and_set(&key, Some(NEVER), Some(NEVER))?,
            (false, false) => self.db.compare_and_set(&key, Some(b""), None)?,
        };
        if is_done {
            let state = self.shared.expected.state(number);
            let what = format!(
                "a conditional write of key {number} succeeded, although its \
                                condition is false: {state:?}"
            );
            return Err(Trouble::WrongAnswer(what));
        }
        self.get_exactly(number).map(drop)
    }

    fn get(&mut self) -> Checked {
        let expected = &self.shared.expected;
        let number = self.key();
        if self.rng.u8(..4) == 0 {
            let _lock = expected.lock_all(&[number]);
            return self.get_exactly(number).map(drop);
        }
        let frame = Frame::open(expected, number..number + 1);
        let value = self.db.get(self.records().key(number))?;
        judge(expected, number, value.as_deref(), frame.window(expected, number), "get").map(drop)
    }

    fn contains_key(&mut self) -> Checked {
        let number = self.key();
        let _lock = self.shared.expected.lock_all(&[number]);
        let is_there = self.db.contains_key(self.records().key(number))?;
        if self.next(number).is_some() && is_there != self.is_there(number) {
            let state = self.shared.expected.state(number);
            let what = format!("contains_key returns {is_there} for key {number}: {state:?}");
            return Err(Trouble::WrongAnswer(what));
        }
        // A key outside the set, right after one that is in it.
        let mut beside = self.records().key(number);
        beside.push(b'!');
        if self.db.contains_key(&beside)? {
            let beside = beside.escape_ascii();
            return Err(Trouble::WrongAnswer(format!("{beside} is present and was never written")));
        }
        Ok(())
    }

    fn multi_get(&mut self) -> Checked {
        let keys = self.some_keys();
        let lows: Vec<Frame> =
            keys.iter().map(|key| Frame::open(&self.shared.expected, *key..*key + 1)).collect();
        let found = self.read_all(self.db, &keys, "multi_get", |at| lows[at].clone())?;
        self.judge_batches(&keys, &found, "multi_get")
    }

    /// Reads all keys at one point in time and checks each against its frame.
    fn read_all(
        &self,
        view: &dyn View,
        keys: &[u32],
        how: &str,
        frame: impl Fn(usize) -> Frame,
    ) -> Checked<Vec<Option<Found>>> {
        let expected = &self.shared.expected;
        let stored: Vec<Vec<u8>> = keys.iter().map(|key| self.records().key(*key)).collect();
        let values = view.multi_get(&stored)?;
        let each = keys.iter().zip(&values).enumerate();
        let judged = each.map(|(at, (key, value))| {
            let window = frame(at).window(expected, *key);
            judge(expected, *key, value.as_deref(), window, how)
        });
        judged.collect()
    }

    /// Checks that batches are complete in a read at one point in time.
    fn judge_batches(&self, keys: &[u32], found: &[Option<Found>], how: &str) -> Checked {
        for read in found.iter().flatten() {
            for member in &read.members {
                let Ok(at) = keys.binary_search(&member.0) else { continue };
                let generation = found[at].as_ref().map(|found| found.generation);
                let high = self.shared.expected.state(member.0).window().high;
                judge_member(self.records(), read.key, *member, generation, high, how)?;
            }
        }
        Ok(())
    }

    /// Scans a block under its lock, as a range or by its prefix, in both directions.
    fn scan_exactly(&mut self) -> Checked {
        let expected = &self.shared.expected;
        let block = self.rng.u32(..self.records().blocks());
        let _lock = expected.lock(block);
        let frame = Frame::closed(expected, self.records().block(block));
        let backward = self.rng.bool();
        if self.rng.bool() {
            return scan(self.db, expected, &frame, backward, "range").map(drop);
        }
        let range = View::prefix(self.db, self.records().prefix(block));
        scan_range(range, expected, &frame, backward, "prefix").map(drop)
    }

    fn wide(&mut self) -> std::ops::Range<u32> {
        let keys = self.records().keys;
        let start = self.rng.u32(..keys);
        start..start.saturating_add(self.rng.u32(1..=WIDE_KEYS)).min(keys)
    }

    fn scan_beside_writers(&mut self) -> Checked {
        let expected = &self.shared.expected;
        let frame = Frame::open(expected, self.wide());
        let backward = self.rng.bool();
        scan(self.db, expected, &frame, backward, "scan during writes").map(drop)
    }

    /// Moves an iterator back and forth within a block under its lock.
    fn cursor(&mut self) -> Checked {
        let (expected, records) = (&self.shared.expected, self.records());
        let block = self.rng.u32(..records.blocks());
        let _lock = expected.lock(block);
        let keys = records.block(block);
        if keys.clone().any(|key| expected.state(key).pending != 0) {
            return Ok(());
        }
        let there: Vec<u32> = keys.clone().filter(|key| self.is_there(*key)).collect();
        let mut cursor = match self.rng.bool() {
            true => self.db.prefix_cursor(records.prefix(block))?,
            false => self.db.cursor_in(records.key(keys.start)..=records.key(keys.end - 1))?,
        };
        // Its expected position among the present keys.
        let mut at = None;
        for _ in 0..20 {
            let number = self.rng.u32(keys.clone());
            match (self.rng.u8(..6), at) {
                (0, _) => {
                    cursor.seek_to_first()?;
                    at = Some(0);
                }
                (1, _) => {
                    cursor.seek_to_last()?;
                    at = there.len().checked_sub(1);
                }
                (2, _) | (_, None) => {
                    cursor.seek(records.key(number))?;
                    at = Some(there.partition_point(|key| *key < number));
                }
                (3, _) => {
                    cursor.seek_for_prev(records.key(number))?;
                    at = there.partition_point(|key| *key <= number).checked_sub(1);
                }
                (4, Some(from)) => {
                    cursor.next()?;
                    at = Some(from + 1);
                }
                (_, Some(from)) => {
                    cursor.prev()?;
                    at = from.checked_sub(1);
                }
            }
            at = at.filter(|at| *at < there.len());
            let found = cursor.key().map(|key| records.number(key));
            let must = at.map(|at| Some(there[at]));
            if found != must {
                let what = format!("a cursor in block {block} is at {found:?}, not at {must:?}");
                return Err(Trouble::WrongAnswer(what));
            }
            if let (Some(key), Some(value)) = (found.flatten(), cursor.value()) {
                judge(expected, key, Some(&value), expected.state(key).window(), "cursor")?;
            }
        }
        Ok(())
    }

    /// Takes a snapshot with exactly known contents: of a block, or of a few keys.
    fn take_snapshot(&mut self) -> Checked {
        let expected = &self.shared.expected;
        let block = self.rng.u32(..self.records().blocks());
        let keys = self.records().block(block);
        let held = {
            let _lock = expected.lock(block);
            (self.db.snapshot(), Frame::closed(expected, keys))
        };
        if self.held.len() == HELD {
            drop(self.held.swap_remove(self.rng.usize(..HELD)));
        }
        self.held.push(held);
        Ok(())
    }

    /// Checks a held snapshot: it must return the same as when it was taken.
    fn check_snapshot(&mut self) -> Checked {
        let expected = &self.shared.expected;
        let Some((snapshot, frame)) = self.held.last() else { return Ok(()) };
        let keys = frame.keys();
        match self.rng.u8(..3) {
            0 => {
                let numbers: Vec<u32> = keys.clone().collect();
                let found =
                    self.read_all(snapshot, &numbers, "snapshot multi_get", |_| frame.clone())?;
                self.judge_members_in(snapshot, &found)?;
            }
            1 => {
                for _ in 0..4 {
                    let key = self.rng.u32(keys.clone());
                    let value = View::get(snapshot, &self.records().key(key))?;
                    let window = frame.window(expected, key);
                    judge(expected, key, value.as_deref(), window, "snapshot get")?;
                }
            }
            _ => {
                let backward = self.rng.bool();
                scan(snapshot, expected, frame, backward, "snapshot range")?;
            }
        }
        let others = self.held.len();
        self.rng.shuffle(&mut self.held[..others]);
        self.count("snapshots_checked", 1);
        Ok(())
    }

    /// The batch of one value must be complete in the snapshot, wherever its other keys are.
    fn judge_members_in(&self, snapshot: &Snapshot, found: &[Option<Found>]) -> Checked {
        let Some(read) = found.iter().flatten().find(|found| !found.members.is_empty()) else {
            return Ok(());
        };
        for member in &read.members {
            let value = View::get(snapshot, &self.records().key(member.0))?;
            let high = self.shared.expected.state(member.0).window().high;
            let parsed = value.as_deref().and_then(|value| self.records().parse(value));
            let generation = parsed.map(|found| found.generation);
            judge_member(self.records(), read.key, *member, generation, high, "snapshot")?;
        }
        Ok(())
    }
}

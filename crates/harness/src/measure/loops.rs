//! The loops that repeat a single operation: fills, reads, scans, deletes.

use std::ops::Range;

use super::PrefixSeeks;
use super::worker::Worker;
use crate::distribution::Permutation;
use crate::error::StoreError;
use crate::keys::TAIL_BYTES_MAX;
use crate::measured::Kind;
use crate::store::{Direction, Operation};
use crate::workload::Workload;

/// The order of keys.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    Sequential,
    Random,
    /// Each key once; the threads take turns.
    Shuffled(Permutation),
    /// As `Shuffled`, over the keys of YCSB's records.
    Records,
}

/// Keys in a range that `deleterange` deletes.
const DELETED_KEYS: u64 = 100;

/// The kind of a write.
#[derive(Debug, Clone, Copy)]
struct Change {
    order: Order,
    /// Whether it puts; otherwise it deletes.
    puts: bool,
    /// Whether it syncs.
    durable: bool,
}

impl Change {
    const fn puts(order: Order) -> Self {
        Self { order, puts: true, durable: false }
    }
}

/// A put prepared in advance.
#[derive(Debug, Default)]
struct Prepared {
    key: Vec<u8>,
    /// Range of its value.
    value: Range<usize>,
}

impl Worker<'_> {
    pub(super) fn run(&mut self, workload: Workload) -> Result<(), StoreError> {
        match workload {
            Workload::FillSeq | Workload::FillBatch => self.change(Change::puts(Order::Sequential)),
            Workload::FillRandom | Workload::Overwrite | Workload::Fill100K => {
                self.change(Change::puts(Order::Random))
            }
            Workload::FillSync => {
                self.change(Change { durable: true, ..Change::puts(Order::Random) })
            }
            Workload::FillUniqueRandom => {
                let order = Permutation::new(self.load.range, self.load.seed);
                self.change(Change::puts(Order::Shuffled(order)))
            }
            Workload::YcsbLoad => self.change(Change::puts(Order::Records)),
            Workload::DeleteSeq => {
                self.change(Change { puts: false, ..Change::puts(Order::Sequential) })
            }
            Workload::DeleteRandom => {
                self.change(Change { puts: false, ..Change::puts(Order::Random) })
            }
            Workload::DeleteRange => self.delete_ranges(),
            Workload::Queue => self.queue(),
            Workload::ReadRandom
            | Workload::ReadHot
            | Workload::ReadWhileWriting
            | Workload::ReadWhileScanning => self.read_random(),
            Workload::ReadMissing => self.read_missing(),
            Workload::MultiReadRandom => self.multi_read(),
            Workload::SeekRandom
            | Workload::SeekRandomWhileWriting
            | Workload::SeekRandomWhileDeleting => self.seek_random(),
            Workload::ReadSeq => self.scan(Direction::Forward),
            Workload::ReadReverse => self.scan(Direction::Backward),
            Workload::NewIterator => self.make_iterators(),
            _ => self.run_mixed(workload),
        }
    }

    /// The key of the thread's write number `nth`, or none after the last.
    #[inline]
    fn index(&mut self, order: Order, nth: u64) -> Option<u64> {
        let range = self.load.range;
        let turn = || {
            let position = nth * self.load.threads as u64 + self.thread as u64;
            (position < range).then_some(position)
        };
        match order {
            Order::Sequential => Some(nth % range),
            Order::Random => Some(self.draw()),
            Order::Shuffled(order) => turn().map(|position| order.at(position)),
            Order::Records => turn().map(|record| self.load.keys.scattered(record)),
        }
    }

    fn change(&mut self, change: Change) -> Result<(), StoreError> {
        if self.load.options.batch > 1 || change.durable {
            return self.change_batches(change);
        }
        if change.puts {
            return self.puts(change.order);
        }
        while self.next() {
            let Some(index) = self.index(change.order, self.done) else { break };
            self.store.delete(self.keys.key(index))?;
            self.count(Kind::Delete, 1);
        }
        Ok(())
    }

    /// Puts all keys. Each put is prepared before the previous one is applied (see
    /// [`Store::mark`](crate::Store::mark)).
    fn puts(&mut self, order: Order) -> Result<(), StoreError> {
        let (mut this, mut next) = (Prepared::default(), Prepared::default());
        let mut is_there = self.prepare(order, self.done, &mut this);
        while is_there && self.next() {
            is_there = self.prepare(order, self.done + 1, &mut next);
            self.bytes += (this.key.len() + this.value.len()) as u64;
            self.store.put(&this.key, self.values().at(this.value.clone()))?;
            self.count(Kind::Write, 1);
            std::mem::swap(&mut this, &mut next);
        }
        Ok(())
    }

    /// Prepares the thread's put number `nth` in `put`; returns false after the last.
    #[inline]
    fn prepare(&mut self, order: Order, nth: u64, put: &mut Prepared) -> bool {
        let Some(index) = self.index(order, nth) else { return false };
        put.key.clear();
        put.key.extend_from_slice(self.keys.key(index));
        put.value = self.place_value(&put.key);
        true
    }

    /// The range of the next value, which will be the value of `key`.
    #[inline]
    fn place_value(&mut self, key: &[u8]) -> Range<usize> {
        let place = self.load.values.next_place(&mut self.value_position);
        if let Some((mark, values)) = &mut self.marked {
            mark(key, values.at_mut(place.clone()));
        }
        place
    }

    /// Puts the next value, without counting it.
    #[inline]
    pub(super) fn put(&mut self, index: u64) -> Result<(), StoreError> {
        let value = self.value();
        let key = self.keys.key(index);
        self.bytes += (key.len() + value.len()) as u64;
        self.store.put(key, value)
    }

    fn change_batches(&mut self, change: Change) -> Result<(), StoreError> {
        let kind = if change.puts { Kind::Write } else { Kind::Delete };
        let (mut batch, mut places) = (KeyBatch::default(), Vec::new());
        while self.next() {
            self.fill_batch(&mut batch, change.order);
            if batch.is_empty() {
                break;
            }
            places.clear();
            for key in batch.keys().filter(|_| change.puts) {
                let place = self.place_value(key);
                self.bytes += (key.len() + place.len()) as u64;
                places.push(place);
            }
            let values = self.values();
            let value_of = |place: &Range<usize>| values.at(place.clone());
            let puts = batch.keys().zip(&places);
            let operations: Vec<_> = match change.puts {
                true => puts
                    .map(|(key, place)| Operation::Put { key, value: value_of(place) })
                    .collect(),
                false => batch.keys().map(|key| Operation::Delete { key }).collect(),
            };
            let count = operations.len() as u64;
            if change.durable {
                self.store.write_durably(&operations)?;
            } else {
                self.store.write(&operations)?;
            }
            self.count(kind, count);
        }
        Ok(())
    }

    /// Deletes a key, without counting it.
    #[inline]
    pub(super) fn delete(&mut self, index: u64) -> Result<(), StoreError> {
        self.store.delete(self.keys.key(index))
    }

    fn delete_ranges(&mut self) -> Result<(), StoreError> {
        while self.next() {
            let from = self.draw();
            let to = (from + DELETED_KEYS).min(self.load.range - 1);
            let from = self.keys.key(from).to_vec();
            self.store.delete_range(&from, self.keys.key(to))?;
            self.count(Kind::Delete, 1);
        }
        Ok(())
    }

    /// Appends at the tail, looks at the head, and deletes that.
    fn queue(&mut self) -> Result<(), StoreError> {
        let mut head = Vec::new();
        while self.next() {
            let tail = self.done % self.load.range;
            self.put(tail)?;
            head.clear();
            self.store.scan(None, Direction::Forward, &mut |key, _| {
                head.extend_from_slice(key);
                false
            })?;
            self.store.delete(&head)?;
            self.count(Kind::Update, 1);
        }
        Ok(())
    }

    /// Fills the batch with the next keys: as many as fit and as operations are left.
    fn fill_batch(&mut self, batch: &mut KeyBatch, order: Order) {
        batch.clear();
        let len = (self.load.options.batch as u64).min(self.load.operations - self.done);
        for nth in 0..len {
            let Some(index) = self.index(order, self.done + nth) else { break };
            batch.push(self.keys.key(index));
        }
    }

    fn read_random(&mut self) -> Result<(), StoreError> {
        while self.next() {
            let index = self.draw();
            self.get(index, None)?;
            self.count(Kind::Read, 1);
        }
        Ok(())
    }

    fn read_missing(&mut self) -> Result<(), StoreError> {
        let tail_bytes = self.load.options.tail_bytes.clamp(1, TAIL_BYTES_MAX);
        while self.next() {
            let index = self.draw();
            let tail = self.rng.u64(..).to_le_bytes();
            self.get(index, Some(&tail[..tail_bytes]))?;
            self.count(Kind::Read, 1);
        }
        Ok(())
    }

    /// Looks up a key, or its missing counterpart with this tail, without counting it; returns
    /// whether it is present.
    #[inline]
    pub(super) fn get(&mut self, index: u64, missing: Option<&[u8]>) -> Result<bool, StoreError> {
        let key = match missing {
            None => self.keys.key(index),
            Some(tail) => self.keys.missing(index, tail),
        };
        let mut value_bytes = 0;
        let is_there = self.store.get(key, &mut |value| value_bytes = value.len())?;
        if is_there {
            self.found += 1;
            self.bytes += (key.len() + value_bytes) as u64;
        }
        self.lookups += 1;
        Ok(is_there)
    }

    fn multi_read(&mut self) -> Result<(), StoreError> {
        let mut batch = KeyBatch::default();
        while self.next() {
            self.fill_batch(&mut batch, Order::Random);
            let keys: Vec<&[u8]> = batch.keys().collect();
            let (mut found, mut bytes) = (0, 0);
            self.store.multi_get(&keys, &mut |at, value| {
                found += 1;
                bytes += (keys[at].len() + value.len()) as u64;
            })?;
            self.found += found;
            self.bytes += bytes;
            self.lookups += keys.len() as u64;
            self.count(Kind::Read, keys.len() as u64);
        }
        Ok(())
    }

    fn seek_random(&mut self) -> Result<(), StoreError> {
        let direction =
            if self.load.options.backward { Direction::Backward } else { Direction::Forward };
        while self.next() {
            let index = self.draw();
            // The target of the seek is read in any case.
            let limit = self.load.options.seek_nexts + 1;
            self.scan_from(index, self.load.options.prefixes, direction, limit)?;
            self.count(Kind::Seek, 1);
        }
        Ok(())
    }

    /// Scans at most `limit` entries from a key on, without counting them. The result is found if
    /// the key itself is present. With `prefixes`, the scan stays within the key's prefix, or
    /// within a neighbouring prefix that no key has.
    #[inline]
    pub(super) fn scan_from(
        &mut self,
        index: u64,
        prefixes: Option<PrefixSeeks>,
        direction: Direction,
        limit: u64,
    ) -> Result<(), StoreError> {
        let key = match prefixes {
            Some(PrefixSeeks { missing: true, bytes }) => self.keys.missing_prefix(index, bytes),
            _ => self.keys.key(index),
        };
        let (mut entries, mut bytes, mut exact) = (0, 0, false);
        let mut visit = |found: &[u8], value: &[u8]| {
            exact |= found == key;
            bytes += (found.len() + value.len()) as u64;
            entries += 1;
            entries < limit
        };
        match prefixes {
            Some(prefixes) => self.store.scan_prefix(key, prefixes.bytes, direction, &mut visit)?,
            None => self.store.scan(Some(key), direction, &mut visit)?,
        }
        self.found += u64::from(exact);
        self.bytes += bytes;
        self.lookups += 1;
        Ok(())
    }

    /// Every entry counts as one operation, as in db_bench.
    fn scan(&mut self, direction: Direction) -> Result<(), StoreError> {
        if !self.next() {
            return Ok(());
        }
        let store = self.store;
        let (mut entries, mut bytes, mut together) = (0, 0, self.counted_together());
        let scanned = store.scan(None, direction, &mut |key, value| {
            bytes += (key.len() + value.len()) as u64;
            entries += 1;
            if entries < together {
                return true;
            }
            self.count(Kind::Read, entries);
            (entries, together) = (0, self.counted_together());
            self.next()
        });
        if entries > 0 {
            self.count(Kind::Read, entries);
        }
        self.bytes += bytes;
        scanned
    }

    fn make_iterators(&mut self) -> Result<(), StoreError> {
        while self.next() {
            self.store.make_iterator()?;
            self.count(Kind::Other, 1);
        }
        Ok(())
    }
}

/// The keys of one batch.
#[derive(Debug, Default)]
struct KeyBatch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl KeyBatch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

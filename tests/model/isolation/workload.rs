//! Transactions that read and write lists and registers, and report what they have seen.
//!
//! * A list is the numbers of all writes to it, and a register that of the last one. Each is read
//!   before it is written, except the first list of a group: appends to it are merges, and half of
//!   them read nothing.
//! * Every other list is at one of two keys, and an append may move it to the other: so it also
//!   deletes, by key or by range. A reader that finds it at the first does not look at the second.
//! * The registers are in a keyspace of their own, so that transactions span two.
//! * The keys of a group are adjacent. Its lists are read one by one, several at once, or by
//!   iterating over the whole group or a part of it, in either direction: then absent ones count as
//!   read, too. When a group's lists are long, a next one begins.
//! * Some appends are undone by a savepoint, some transactions are dropped, some run in the closure
//!   that retries, and some are batches with conditions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use trommel::vfs::Vfs;
use trommel::{Db, Error, Keyspace, Merge, Options, Slice, Transaction, WriteBatch, WriteOptions};

use super::history::{Execution, FIRST_REGISTER, Key, Outcome, Write, is_register};
use crate::rng::Rng;

pub(crate) const DIR: &str = "/isolation";
/// Lists, and registers, of a group.
const KEYS: Key = 6;
/// Groups that transactions choose from.
const GROUPS: u32 = 3;
/// Length of a list at which a next group begins.
const LONGEST: usize = 16;
/// Transactions that a thread holds open.
const OPEN: usize = 4;

/// What one store is put through.
pub(crate) struct Load {
    pub(crate) seed: u64,
    pub(crate) threads: u64,
    pub(crate) transactions: u64,
    /// The number of the first write.
    pub(crate) first_write: Write,
}

/// Every fourth store flushes and compacts all the time, so that what a transaction has read is in
/// tables when it commits.
pub(crate) fn options(seed: u64, vfs: Arc<dyn Vfs>) -> Options {
    let options = match seed.is_multiple_of(4) {
        true => crate::threads::tiny(vfs),
        false => Options::default()
            .vfs(vfs)
            .writes(|w| w.write_buffer_bytes(1 << 20))
            .background_threads(1),
    };
    let append =
        Merge::associative("isolation: append", |_, so_far, next| Ok([so_far, next].concat()));
    options.writes(|w| w.merge_operator(append))
}

/// Shared by the threads of a store.
pub(crate) struct Shared<'a> {
    db: &'a Db,
    registers: Keyspace,
    next_write: AtomicU32,
    /// The newest group.
    front: AtomicU32,
    /// Transactions to begin.
    left: AtomicU64,
    /// Set before the image of a crash is made: what is acknowledged later may not be in it.
    pub(crate) is_crashed: AtomicBool,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(db: &'a Db, load: &Load) -> Self {
        Self {
            db,
            registers: registers(db),
            next_write: AtomicU32::new(load.first_write),
            front: AtomicU32::new(0),
            left: AtomicU64::new(load.transactions),
            is_crashed: AtomicBool::new(false),
        }
    }

    /// Whether fewer than this many transactions are still to begin.
    pub(crate) fn has_left_below(&self, transactions: u64) -> bool {
        self.left.load(Ordering::Relaxed) < transactions
    }
}

/// Runs all threads of a store, and `meanwhile` concurrently. Returns the history.
pub(crate) fn run(shared: &Shared<'_>, load: &Load, meanwhile: impl FnOnce()) -> Vec<Execution> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.threads)
            .map(|thread| scope.spawn(move || Thread::new(shared, load.seed << 8 | thread).run()))
            .collect();
        meanwhile();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

fn registers(db: &Db) -> Keyspace {
    db.keyspace("registers", Default::default()).unwrap()
}

fn list_key(key: Key, place: u32) -> String {
    format!("{:06}/{}/{place}", key / KEYS, key % KEYS)
}

fn register_key(key: Key) -> String {
    let key = key - FIRST_REGISTER;
    format!("r{:06}/{}", key / KEYS, key % KEYS)
}

/// The list of a stored key, and its place.
fn list_of(key: &[u8]) -> Option<(Key, u32)> {
    let parts = std::str::from_utf8(key).ok()?.split('/').map(|part| part.parse().ok());
    match *parts.collect::<Option<Vec<u32>>>()? {
        [group, list, place] => Some((group * KEYS + list, place)),
        _ => None,
    }
}

fn encode(writes: &[Write]) -> Vec<u8> {
    writes.iter().flat_map(|write| write.to_le_bytes()).collect()
}

fn decode(value: &[u8]) -> Vec<Write> {
    let numbers = value.chunks_exact(4).map(|bytes| bytes.try_into().expect("four bytes"));
    numbers.map(Write::from_le_bytes).collect()
}

/// A transaction that reads the whole store.
pub(crate) fn read_all(db: &Db) -> Execution {
    let mut all = Execution::new(Outcome::Committed);
    for entry in db.iter().chain(registers(db).iter()) {
        let (key, value) = entry.unwrap();
        let list = list_of(&key).map(|(list, _)| list);
        all.reads.push((list.unwrap_or_else(|| register_of(&key)), decode(&value)));
    }
    all
}

fn register_of(key: &[u8]) -> Key {
    let text = std::str::from_utf8(key).expect("a register");
    let (group, register) = text[1..].split_once('/').expect("a register");
    let [group, register] = [group, register].map(|part| part.parse::<Key>().expect("a number"));
    FIRST_REGISTER + group * KEYS + register
}

/// A transaction in progress.
struct Running {
    done: Execution,
    own: Own,
}

/// What a transaction has written.
#[derive(Clone, Default)]
struct Own {
    /// The current value of each key that it has written, and read.
    values: BTreeMap<Key, Vec<Write>>,
    /// What it has appended to keys that it has not read since.
    appended: BTreeMap<Key, Vec<Write>>,
}

impl Running {
    fn new() -> Self {
        Self { done: Execution::new(Outcome::Aborted), own: Own::default() }
    }

    /// Notes what was read of a key.
    fn saw(&mut self, key: Key, mut value: Vec<Write>) {
        if let Some(own) = self.own.values.get(&key) {
            if *own != value {
                self.done.without_own.push((key, value));
            }
            return;
        }
        if let Some(appended) = self.own.appended.remove(&key) {
            if !value.ends_with(&appended) {
                self.done.without_own.push((key, value));
                return;
            }
            self.own.values.insert(key, value.clone());
            value.truncate(value.len() - appended.len());
        }
        self.done.reads.push((key, value));
    }

    /// Notes that a write was merged into a key.
    fn merged(&mut self, key: Key, write: Write) {
        self.done.writes.push((key, write));
        match self.own.values.get_mut(&key) {
            Some(value) => value.push(write),
            None => self.own.appended.entry(key).or_default().push(write),
        }
    }
}

impl Drop for Thread<'_> {
    /// After a failure nobody waits for the rest.
    fn drop(&mut self) {
        self.shared.left.store(0, Ordering::Relaxed);
    }
}

struct Thread<'a> {
    shared: &'a Shared<'a>,
    rng: Rng,
    history: Vec<Execution>,
}

impl<'a> Thread<'a> {
    fn new(shared: &'a Shared<'a>, seed: u64) -> Self {
        Self { shared, rng: Rng::new(seed), history: Vec::new() }
    }

    fn run(mut self) -> Vec<Execution> {
        let mut open: Vec<(Transaction, Running, usize)> = Vec::new();
        loop {
            let is_over = self.shared.is_crashed.load(Ordering::Relaxed)
                || self.shared.left.load(Ordering::Relaxed) == 0;
            if open.is_empty() && is_over {
                return std::mem::take(&mut self.history);
            }
            if open.len() < OPEN && !is_over {
                let _ =
                    self.shared.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                        left.checked_sub(1)
                    });
                match self.rng.below(12) {
                    0 => self.replace_registers(),
                    1 => self.run_closure(),
                    _ => {
                        let steps = self.rng.within(1, 4);
                        open.push((self.shared.db.begin(), Running::new(), steps));
                    }
                }
                continue;
            }
            let at = self.rng.below(open.len());
            let (transaction, running, steps) = &mut open[at];
            if *steps > 0 {
                *steps -= 1;
                self.step(transaction, running);
                continue;
            }
            let (transaction, running, _) = open.swap_remove(at);
            self.finish(transaction, running);
        }
    }

    /// Write options, and whether they require a sync.
    fn options(&mut self) -> (WriteOptions, bool) {
        let syncs = self.rng.once_in(8);
        (if syncs { WriteOptions::sync() } else { WriteOptions::os() }, syncs)
    }

    fn finish(&mut self, transaction: Transaction, running: Running) {
        let mut done = running.done;
        if !self.rng.once_in(16) {
            let (options, syncs) = self.options();
            match transaction.commit_with(options) {
                Ok(_) => self.committed(&mut done, syncs),
                Err(Error::Conflict(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        self.history.push(done);
    }

    fn committed(&self, done: &mut Execution, syncs: bool) {
        done.outcome = Outcome::Committed;
        let is_crashed = self.shared.is_crashed.load(Ordering::SeqCst);
        done.is_durable = syncs && !is_crashed;
    }

    /// The same in the closure that retries.
    fn run_closure(&mut self) {
        let (steps, (options, syncs)) = (self.rng.within(1, 3), self.options());
        let mut attempts = Vec::new();
        let db = self.shared.db;
        db.transaction_with(options, |transaction| {
            let mut running = Running::new();
            (0..steps).for_each(|_| self.step(transaction, &mut running));
            attempts.push(running.done);
            Ok(())
        })
        .unwrap();
        let last = attempts.last_mut().expect("it ran");
        self.committed(last, syncs);
        self.history.append(&mut attempts);
    }

    /// A batch that replaces two registers if they are as expected.
    fn replace_registers(&mut self) {
        let (one, other) = (self.register(), self.register());
        let (mut batch, mut done) = (WriteBatch::new(), Execution::new(Outcome::Aborted));
        for key in if one == other { vec![one] } else { vec![one, other] } {
            let name = register_key(key);
            let value = self.shared.registers.get(&name).unwrap();
            let mut registers = batch.keyspace(&self.shared.registers);
            match &value {
                Some(value) => registers.expect_value(&name, value),
                None => registers.expect_absent(&name),
            };
            let write = self.write();
            registers.put(&name, encode(&[write]));
            done.reads.push((key, value.map(|value| decode(&value)).unwrap_or_default()));
            done.writes.push((key, write));
        }
        let (options, syncs) = self.options();
        match self.shared.db.write_with(&batch, options) {
            Ok(_) => self.committed(&mut done, syncs),
            Err(Error::Conflict(_)) => {}
            Err(error) => panic!("{error}"),
        }
        self.history.push(done);
    }

    fn write(&self) -> Write {
        self.shared.next_write.fetch_add(1, Ordering::Relaxed)
    }

    fn group(&mut self) -> u32 {
        self.shared.front.load(Ordering::Relaxed) + self.rng.below(GROUPS as usize) as u32
    }

    fn list(&mut self) -> Key {
        self.group() * KEYS + self.rng.below(KEYS as usize) as Key
    }

    fn register(&mut self) -> Key {
        FIRST_REGISTER + self.list()
    }

    /// One read, or one read and one write.
    fn step(&mut self, transaction: &Transaction, running: &mut Running) {
        match self.rng.below(12) {
            0..3 => {
                let key = self.list();
                _ = self.read_list(transaction, running, key);
            }
            3..6 => {
                let key = self.list();
                self.append(transaction, running, key);
            }
            6..8 => self.read_group(transaction, running),
            8 => {
                // An append to what a scan of its group has found.
                self.read_group(transaction, running);
                let key = self.list();
                self.append(transaction, running, key);
            }
            9 => self.read_several(transaction, running),
            10 => {
                let key = self.register();
                let registers = transaction.keyspace(&self.shared.registers).unwrap();
                let value = registers.get(register_key(key)).unwrap();
                running.saw(key, value.map(|value| decode(&value)).unwrap_or_default());
                if self.rng.once_in(2) {
                    let write = self.write();
                    registers.put(register_key(key), encode(&[write])).unwrap();
                    running.done.writes.push((key, write));
                    running.own.values.insert(key, vec![write]);
                }
            }
            _ => self.undo_append(transaction, running),
        }
    }

    /// The value of a list, and its place if it has one.
    fn read_list(
        &mut self,
        transaction: &Transaction,
        running: &mut Running,
        key: Key,
    ) -> (Vec<Write>, Option<u32>) {
        let first = self.rng.below(2) as u32;
        for place in [first, 1 - first] {
            let name = list_key(key, place);
            let value = match self.rng.once_in(8) {
                true => transaction.get_for_update(name).unwrap(),
                false => transaction.get(name).unwrap(),
            };
            if let Some(value) = value {
                let value = decode(&value);
                running.saw(key, value.clone());
                return (value, Some(place));
            }
        }
        running.saw(key, Vec::new());
        (Vec::new(), None)
    }

    fn append(&mut self, transaction: &Transaction, running: &mut Running, key: Key) {
        if key.is_multiple_of(KEYS) {
            return self.append_by_merge(transaction, running, key);
        }
        let (mut value, place) = self.read_list(transaction, running, key);
        if value.len() >= LONGEST {
            self.shared.front.fetch_max(key / KEYS + 1, Ordering::Relaxed);
            return;
        }
        let write = self.write();
        value.push(write);
        let to = self.rng.below(2) as u32;
        match place.filter(|place| *place != to) {
            Some(from) if self.rng.once_in(2) => {
                let name = list_key(key, from);
                transaction.delete_range(&name..=&name).unwrap();
            }
            Some(from) => transaction.delete(list_key(key, from)).unwrap(),
            None => {}
        }
        transaction.put(list_key(key, to), encode(&value)).unwrap();
        running.done.writes.push((key, write));
        running.own.values.insert(key, value);
    }

    fn append_by_merge(&mut self, transaction: &Transaction, running: &mut Running, key: Key) {
        if self.rng.once_in(2) {
            _ = self.read_list(transaction, running, key);
        }
        let write = self.write();
        transaction.merge(list_key(key, 0), encode(&[write])).unwrap();
        running.merged(key, write);
    }

    /// An append that a savepoint undoes.
    fn undo_append(&mut self, transaction: &Transaction, running: &mut Running) {
        let key = self.list();
        let (own, writes) = (running.own.clone(), running.done.writes.len());
        transaction.set_savepoint();
        self.append(transaction, running, key);
        transaction.rollback_to_savepoint().unwrap();
        let mut undone = Execution::new(Outcome::Aborted);
        undone.writes = running.done.writes.split_off(writes);
        self.history.push(undone);
        running.own = own;
    }

    fn read_several(&mut self, transaction: &Transaction, running: &mut Running) {
        let keys: Vec<Key> = (0..3).map(|_| self.register()).collect();
        let names: Vec<String> = keys.iter().map(|key| register_key(*key)).collect();
        let registers = transaction.keyspace(&self.shared.registers).unwrap();
        for (key, value) in keys.into_iter().zip(registers.multi_get(&names).unwrap()) {
            running.saw(key, value.map(|value| decode(&value)).unwrap_or_default());
        }
    }

    /// Iterates over a group's lists, to the end or not.
    fn read_group(&mut self, transaction: &Transaction, running: &mut Running) {
        let group = self.group();
        let most = if self.rng.once_in(2) { usize::MAX } else { self.rng.within(1, 3) };
        let entries = transaction.prefix(format!("{group:06}/"));
        let backward = self.rng.once_in(3);
        let found: Vec<(Slice, Slice)> = match backward {
            true => entries.rev().take(most).map(Result::unwrap).collect(),
            false => entries.take(most).map(Result::unwrap).collect(),
        };
        let mut lists: BTreeMap<Key, Vec<Write>> = BTreeMap::new();
        for (key, value) in &found {
            let (list, _) = list_of(key).expect("a list");
            if let Some(other) = lists.insert(list, decode(value)) {
                // It is in two places: read twice, for the checker to explain.
                running.saw(list, other);
            }
        }
        let (first, last) = (group * KEYS, (group + 1) * KEYS - 1);
        let (first, last) = match (found.len() == most, backward) {
            (false, _) => (first, last),
            (true, false) => (first, *lists.keys().next_back().expect("it was found")),
            (true, true) => (*lists.keys().next().expect("it was found"), last),
        };
        for key in first..=last {
            running.saw(key, lists.remove(&key).unwrap_or_default());
        }
    }
}

/// Marks the transactions that a crash has lost, by what the reopened store holds. One that has
/// read what is lost, and written nothing, counts as lost, too.
pub(crate) fn mark_lost(history: &mut [Execution], left: &Execution) {
    let mut replaced = BTreeMap::new();
    for one in history.iter().filter(|one| one.outcome == Outcome::Committed) {
        let mut before: BTreeMap<Key, Option<Write>> =
            one.reads.iter().map(|(key, seen)| (*key, seen.last().copied())).collect();
        for (key, write) in one.writes.iter().filter(|(key, _)| is_register(*key)) {
            replaced.insert(*write, before.insert(*key, Some(*write)).flatten());
        }
    }
    let mut kept: std::collections::BTreeSet<Write> = std::collections::BTreeSet::new();
    for (key, seen) in &left.reads {
        kept.extend(seen);
        let mut write = seen.last().copied().filter(|_| is_register(*key));
        while let Some(last) = write {
            kept.insert(last);
            write = replaced.get(&last).copied().flatten();
        }
    }
    for one in history.iter_mut().filter(|one| one.outcome == Outcome::Committed) {
        let is_kept = match one.writes.is_empty() {
            true => one.reads.iter().flat_map(|(_, seen)| seen).all(|write| kept.contains(write)),
            false => one.writes.iter().any(|(_, write)| kept.contains(write)),
        };
        assert!(is_kept || !one.is_durable || one.writes.is_empty(), "durable, and lost: {one:?}");
        if !is_kept {
            one.outcome = Outcome::Aborted;
        }
    }
}

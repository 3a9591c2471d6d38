//! A bank: several threads move money between accounts that all of them share, in batches, and
//! every reader, in any way and at any time, finds the same sum.
//!
//! A partial batch, a batch that becomes visible in two steps, two transfers that read the same
//! balance, and a batch that an open or a checkpoint loses or takes in part: each changes the sum.
//!
//! Transfers lock their accounts by mutexes outside the store in one store, and in the next by
//! locks inside it: keys that a `compare_and_set` creates, and that the transfer's own batch
//! deletes. If a batch is not atomic, a lock is left over or released early.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use trommel::vfs::Vfs;
use trommel::{Db, Range, Slice, Snapshot, WriteBatch};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, rounds};

use super::linearizable::callers;
use super::moments::{by_cursor, entries, upkeep};
use super::{memory, number, seeded, tiny, value};
use crate::rng::Rng;

const ACCOUNTS: usize = 96;
const BALANCE: u64 = 1_000;
const STRIPES: usize = 12;
/// Minimum number of transfers between two opens of a store.
const TRANSFERS: u64 = 10_000;
const AUDITS: u64 = 40;
const CHECKPOINTS: u64 = 6;
/// Number of opens of one store.
const LIVES: u64 = 4;

fn account(at: usize) -> String {
    format!("account/{at:04}")
}

/// A transfer: accounts with their balances before and after it.
type Transfer = Vec<(usize, u64, u64)>;

struct Bank {
    db: Db,
    vfs: Arc<dyn Vfs>,
    /// Whether locks are in the store.
    locks_inside: bool,
    stripes: [Mutex<()>; STRIPES],
    /// The last transfers, including unacknowledged ones, for the report of a fault.
    recent: Mutex<VecDeque<Transfer>>,
    transfers: AtomicU64,
    audits: AtomicU64,
    checkpoints: AtomicU64,
    sums: AtomicU64,
    /// Whether a thread has failed, so that the others do not wait for it.
    failed: AtomicBool,
}

/// Notifies the others of a panic.
struct Watch<'a>(&'a Bank);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
        }
    }
}

impl Bank {
    fn enough(&self) -> bool {
        let reached = |count: &AtomicU64, goal| count.load(Ordering::Relaxed) >= goal;
        if self.failed.load(Ordering::Relaxed) {
            return true;
        }
        reached(&self.transfers, TRANSFERS)
            && reached(&self.audits, AUDITS)
            && reached(&self.checkpoints, CHECKPOINTS)
    }

    /// Moves money between a few accounts that are locked meanwhile.
    fn transfer(&self, rng: &mut Rng) {
        let mut accounts: Vec<usize> = (0..rng.within(2, 5)).map(|_| rng.below(ACCOUNTS)).collect();
        accounts.sort_unstable();
        accounts.dedup();
        let mut stripes: Vec<usize> = accounts.iter().map(|at| at % STRIPES).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let mut batch = WriteBatch::new();
        let mut guards = Vec::new();
        for stripe in stripes {
            if self.locks_inside {
                let lock = format!("lock/{stripe:02}");
                while !self.db.compare_and_set(&lock, None, Some(b"held")).unwrap() {
                    assert!(!self.failed.load(Ordering::Relaxed), "another thread has failed");
                    std::thread::yield_now();
                }
                batch.delete(lock);
            } else {
                guards.push(self.stripes[stripe].lock().expect("nobody fails with a stripe"));
            }
        }
        let held = |at: &usize| self.db.get(account(*at)).unwrap().map_or(0, |of| number(&of));
        let mut moved: Transfer = accounts.iter().map(|at| (*at, held(at), held(at))).collect();
        for (at, before, after) in &moved {
            assert_eq!(before, after, "account {at} changes under its lock");
        }
        for _ in 0..3 {
            let (from, to) = (rng.below(moved.len()), rng.below(moved.len()));
            let all = rng.once_in(4);
            let amount = if all { moved[from].2 } else { rng.u64() % (moved[from].2 + 1) };
            moved[from].2 -= amount;
            moved[to].2 += amount;
        }
        for (at, _, balance) in &moved {
            match balance {
                0 => batch.delete(account(*at)),
                balance => batch.put(account(*at), value(*balance)),
            };
        }
        {
            let mut recent = self.recent.lock().expect("notes are whole");
            recent.push_back(moved);
            if recent.len() > 24 {
                recent.pop_front();
            }
        }
        self.db.write(batch).unwrap();
        self.transfers.fetch_add(1, Ordering::Relaxed);
    }

    /// Checks that these entries, read as `what` says, are all the money there is.
    fn check(&self, what: &str, found: &[(Slice, Slice)]) {
        assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "{what}: the order of keys");
        let sum: u64 = found.iter().map(|(_, balance)| number(balance)).sum();
        self.sums.fetch_add(1, Ordering::Relaxed);
        if sum == ACCOUNTS as u64 * BALANCE {
            return;
        }
        let mut text = format!("{what}: {sum} and not {}; found\n", ACCOUNTS as u64 * BALANCE);
        for (key, balance) in found {
            let _ = write!(text, " {}={}", String::from_utf8_lossy(&key[8..]), number(balance));
        }
        text.push_str("\nthe last transfers (account, before, after), newest last\n");
        for transfer in self.recent.lock().expect("notes are whole").iter() {
            let _ = writeln!(text, "  {transfer:?}");
        }
        panic!("{text}");
    }

    /// Reads all accounts in one of the possible ways.
    fn look(&self, rng: &mut Rng, keys: &[String]) {
        let db = &self.db;
        match rng.below(8) {
            0 => self.check("iter", &accounts(db.iter())),
            1 => self.check("prefix", &entries(db.prefix("account/"))),
            2 => self.check("range backward", &backward(db.range("account/".."account0"))),
            3 => self.check("both ends", &from_both_ends(db.prefix("account/"), rng)),
            4 => self.check("multi_get", &with_keys(keys, db.multi_get(keys).unwrap())),
            5 => self.check("cursor", &by_cursor(db.prefix_cursor("account/").unwrap())),
            6 => {
                // The scan's snapshot is that of the call, however late it begins.
                let range = db.prefix("account/");
                std::thread::yield_now();
                self.check("a late scan", &entries(range));
            }
            _ => drop(self.snapshot(rng, keys)),
        }
    }

    /// Takes a snapshot and reads it in several ways, which agree.
    fn snapshot(&self, rng: &mut Rng, keys: &[String]) -> (Snapshot, Vec<(Slice, Slice)>) {
        let snapshot = self.db.snapshot();
        let found = with_keys(keys, snapshot.multi_get(keys).unwrap());
        self.check("a snapshot's multi_get", &found);
        assert_eq!(accounts(snapshot.iter()), found, "a snapshot's iter");
        assert_eq!(backward(snapshot.prefix("account/")), found, "a snapshot's prefix backward");
        assert_eq!(by_cursor(snapshot.prefix_cursor("account/").unwrap()), found);
        for (key, balance) in &found[..rng.below(found.len())] {
            assert_eq!(snapshot.get(key).unwrap().as_ref(), Some(balance), "a snapshot's get");
        }
        (snapshot, found)
    }

    fn audit(&self, seed: u64) {
        let _watch = Watch(self);
        let rng = &mut Rng::new(seed);
        let keys: Vec<String> = (0..ACCOUNTS).map(account).collect();
        let mut old = self.snapshot(rng, &keys);
        while !self.enough() {
            for _ in 0..6 {
                self.look(rng, &keys);
            }
            assert_eq!(accounts(old.0.iter()), old.1, "an old snapshot changes");
            if rng.once_in(5) {
                old = self.snapshot(rng, &keys);
            }
            self.audits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes checkpoints, and reads them as stores of their own.
    fn copy(&self, seed: u64) {
        let _watch = Watch(self);
        let rng = &mut Rng::new(seed);
        let options = tiny(Arc::clone(&self.vfs));
        for copy in 0.. {
            if self.enough() {
                return;
            }
            let dir = format!("/copy-{seed}-{copy}");
            self.db.checkpoint(&dir).unwrap();
            for _ in 0..rng.below(3) {
                upkeep(&self.db, rng);
            }
            let db = Db::open_read_only(&dir, options.clone()).unwrap();
            assert!(db.recovery_report().dropped.is_empty(), "{:?}", db.recovery_report());
            self.check("a checkpoint", &accounts(db.iter()));
            self.check("a checkpoint backward", &backward(db.prefix("account/")));
            db.close().unwrap();
            Db::destroy(&dir, &options).unwrap();
            self.checkpoints.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The entries that are accounts: there may be locks among them.
fn accounts(range: Range) -> Vec<(Slice, Slice)> {
    let mut found = entries(range);
    found.retain(|(key, _)| key.starts_with(b"account/"));
    found
}

fn backward(range: Range) -> Vec<(Slice, Slice)> {
    let mut found = entries(range.rev());
    found.reverse();
    found
}

fn from_both_ends(mut range: Range, rng: &mut Rng) -> Vec<(Slice, Slice)> {
    let (mut low, mut high) = (Vec::new(), Vec::new());
    loop {
        let from_front = rng.once_in(2);
        let entry = if from_front { range.next() } else { range.next_back() };
        let Some(entry) = entry else { break };
        if from_front { &mut low } else { &mut high }.push(entry.expect("a scan reads on"));
    }
    low.extend(high.into_iter().rev());
    low
}

/// The entries of keys that were looked up one by one; an account without money is absent.
fn with_keys(keys: &[String], found: Vec<Option<Slice>>) -> Vec<(Slice, Slice)> {
    let pair = |(key, found): (&String, Option<Slice>)| Some((Slice::from(key.as_bytes()), found?));
    keys.iter().zip(found).filter_map(pair).collect()
}

/// One life of the store: all threads work until enough is done, then it is closed, or dropped.
fn one_life(seed: u64, life: u64, vfs: &Arc<dyn Vfs>, callers: usize) -> [(&'static str, u64); 4] {
    let options = tiny(Arc::clone(vfs)).background_threads((1 + seed + life) as usize % 3);
    let db = Db::open("/bank", options).unwrap();
    if life == 0 {
        let mut batch = WriteBatch::new();
        for at in 0..ACCOUNTS {
            batch.put(account(at), value(BALANCE));
        }
        db.write(batch).unwrap();
    }
    assert!(db.recovery_report().dropped.is_empty(), "{:?}", db.recovery_report());
    let bank = Bank {
        db,
        vfs: Arc::clone(vfs),
        locks_inside: seed.is_multiple_of(2),
        stripes: Default::default(),
        recent: Mutex::default(),
        transfers: AtomicU64::new(0),
        audits: AtomicU64::new(0),
        checkpoints: AtomicU64::new(0),
        sums: AtomicU64::new(0),
        failed: AtomicBool::new(false),
    };
    bank.check("after opening", &accounts(bank.db.iter()));
    let begin = seed << 16 | life << 8;
    std::thread::scope(|scope| {
        let bank = &bank;
        for thread in 0..callers as u64 {
            scope.spawn(move || {
                let _watch = Watch(bank);
                let rng = &mut Rng::new(begin | thread);
                while !bank.enough() {
                    bank.transfer(rng);
                }
            });
        }
        scope.spawn(move || bank.audit(begin | 0x80));
        scope.spawn(move || bank.audit(begin | 0x81));
        scope.spawn(move || bank.copy(begin | 0x82));
    });
    bank.check("at the end", &accounts(bank.db.iter()));
    assert_eq!(bank.db.prefix("lock/").count(), 0, "a lock outlives the batch that removes it");
    let counts = [
        ("transfers", bank.transfers.into_inner()),
        ("audits", bank.audits.into_inner()),
        ("checkpoints", bank.checkpoints.into_inner()),
        ("sums", bank.sums.into_inner()),
    ];
    match life.is_multiple_of(2) {
        true => bank.db.close().unwrap(),
        false => drop(bank.db),
    }
    counts
}

#[test]
fn the_sum_of_all_accounts_is_the_same_whoever_looks_and_whenever() {
    let mut counters = Counters::new("model/bank");
    let callers = callers() - 1;
    for seed in first_seed()..first_seed() + rounds(4) {
        let vfs = memory();
        for life in 0..LIVES {
            let vfs = Arc::clone(&vfs);
            let counts = seeded(seed, move || one_life(seed, life, &vfs, callers));
            counters.add("openings", 1);
            for (name, count) in counts {
                counters.add(name, count);
            }
        }
    }
    counters.finish();
}

//! The cost of compaction: a tree of keys only, filled at a thousandth of the default sizes, and
//! the bytes that compactions write per byte written by the user.
//!
//! `cargo test -p trommel write_cost -- --nocapture` shows the figures.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use trommel_base::MAX_SEQNO;

use crate::levels::LEVELS;
use crate::version::{TableFile, Version};

use super::super::cut::OutputCutter;
use super::super::in_progress::InProgress;
use super::super::key_range::total_bytes;
use super::super::plan::{Plan, plan};
use super::super::shape::debt;
use super::{Rng, install, is_ci, table};
use crate::compaction_options::CompactionOptions;

const ENTRY_BYTES: u64 = 100;
/// Entries of a full table, and of a memtable by default.
const RUN: usize = 640;

struct Store {
    /// Entries of a memtable.
    run: usize,
    options: CompactionOptions,
    version: Version,
    contents: HashMap<u64, Vec<u32>>,
    next_number: u64,
    user_bytes: u64,
    written: u64,
    moved: u64,
    merges: u64,
    widest_merge: u64,
}

/// The figures of a filled store.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Bytes written by flushes and compactions per byte written by the user.
    write: f64,
    /// Bytes in the tree per byte of distinct keys.
    space: f64,
    /// Mean size of a table below level 0, in target sizes.
    table: f64,
    /// Bytes moved unread per byte written by the user.
    moved: f64,
    /// Bytes read by the largest compaction, in target sizes.
    widest: f64,
    /// Levels with tables, except level 0.
    levels: usize,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "write {:.2}, space {:.2}, mean table {:.2}, moved {:.2}, widest merge {:.0} tables, {} levels",
            self.write, self.space, self.table, self.moved, self.widest, self.levels
        )
    }
}

fn bytes_of(key: u32) -> [u8; 4] {
    key.swap_bytes().to_le_bytes()
}

impl Store {
    fn new() -> Self {
        let run_bytes = RUN as u64 * ENTRY_BYTES;
        let options = CompactionOptions {
            table_bytes: run_bytes,
            base_level_bytes: 4 * run_bytes,
            ..CompactionOptions::default()
        };
        Self {
            run: RUN,
            options,
            version: Version::default(),
            contents: HashMap::new(),
            next_number: 1,
            user_bytes: 0,
            written: 0,
            moved: 0,
            merges: 0,
            widest_merge: 0,
        }
    }

    fn build(&mut self, keys: Vec<u32>) -> Arc<TableFile> {
        let number = self.next_number;
        self.next_number += 1;
        let (first, last) = (keys[0], keys[keys.len() - 1]);
        let file_bytes = keys.len() as u64 * ENTRY_BYTES;
        self.written += file_bytes;
        self.contents.insert(number, keys);
        Arc::new(TableFile::new(table(number, &bytes_of(first), &bytes_of(last), file_bytes)))
    }

    fn merge(&mut self, plan: &Plan) -> Vec<Arc<TableFile>> {
        let mut keys: Vec<u32> = Vec::new();
        for table in plan.tables() {
            keys.extend(self.contents.remove(&table.number).unwrap());
        }
        keys.sort_unstable();
        keys.dedup();
        let mut cutter = OutputCutter::new(plan.grandparents.clone(), &self.options, None);
        let mut outputs = Vec::new();
        let mut open: Vec<u32> = Vec::new();
        for key in keys {
            let last = open.last().map(|last| bytes_of(*last));
            let bytes = open.len() as u64 * ENTRY_BYTES;
            if cutter.cut_before(&bytes_of(key), last.as_ref().map(|key| &key[..]), bytes) {
                outputs.push(self.build(std::mem::take(&mut open)));
            }
            open.push(key);
        }
        outputs.push(self.build(open));
        outputs
    }

    fn settle(&mut self) {
        while let Some(plan) = plan(&self.version, &InProgress::default(), &self.options, MAX_SEQNO)
        {
            let outputs = if plan.trivial_move {
                self.moved += plan.input_bytes();
                plan.upper.clone()
            } else {
                self.merges += 1;
                self.widest_merge = self.widest_merge.max(plan.input_bytes());
                self.merge(&plan)
            };
            self.version = install(&self.version, &plan, true, outputs);
        }
    }

    fn fill(mut self, runs: usize, mut next_key: impl FnMut() -> u32) -> Cost {
        let mut distinct: HashSet<u32> = HashSet::new();
        for _ in 0..runs {
            let mut keys: Vec<u32> = (0..self.run).map(|_| next_key()).collect();
            self.user_bytes += self.run as u64 * ENTRY_BYTES;
            distinct.extend(&keys);
            keys.sort_unstable();
            keys.dedup();
            let table = self.build(keys);
            self.version.levels[0].insert(0, table);
            self.settle();
            assert!(debt(&self.version, &self.options) <= self.options.table_bytes * 4, "it lags");
        }
        let below = || self.version.tables().filter(|(level, _)| *level > 0).map(|(_, t)| t);
        let user = self.user_bytes as f64;
        let table_bytes = self.options.table_bytes as f64;
        Cost {
            write: self.written as f64 / user,
            space: total_bytes(below()) as f64 / (distinct.len() as u64 * ENTRY_BYTES) as f64,
            table: total_bytes(below()) as f64 / below().count() as f64 / table_bytes,
            moved: self.moved as f64 / user,
            widest: self.widest_merge as f64 / table_bytes,
            levels: (1..LEVELS).filter(|level| !self.version.levels[*level].is_empty()).count(),
        }
    }
}

/// Prints `cost` and compares it with the measured figures plus a margin.
fn hold(what: &str, cost: Cost, write: f64, space: f64) {
    println!("{what:40} {cost}");
    assert!(cost.write <= write, "{what}: {cost}");
    assert!(cost.space <= space, "{what}: {cost}");
    assert!((0.7..1.1).contains(&cost.table), "{what}: {cost}");
    assert!(cost.widest <= 16.0, "{what}: {cost}");
}

/// The largest stores are simulated in the project's CI only: most of this test's time.
#[test]
fn merges_write_no_more_than_was_measured() {
    let mut rng = Rng(1);
    let mut next = 0;
    let in_order = Store::new().fill(2000, || {
        next += 1;
        next
    });
    hold("2000 runs in order", in_order, 1.0, 1.0);
    let mut random = |runs| Store::new().fill(runs, || rng.next() as u32);
    hold("40 runs at random, all keys new", random(40), 4.8, 1.01);
    hold("200 runs at random, all keys new", random(200), 7.8, 1.01);
    let mut drawn = |runs: usize| {
        let keys = (runs * RUN) as u64;
        Store::new().fill(runs, || (rng.next() % keys) as u32 * 9973)
    };
    hold("25 runs over as many keys", drawn(25), 2.85, 1.1);
    hold("100 runs over as many keys", drawn(100), 5.5, 1.1);
    let mut drawn_in = |run: usize, runs: usize| {
        let keys = (runs * run) as u64;
        Store { run, ..Store::new() }.fill(runs, || (rng.next() % keys) as u32 * 9973)
    };
    hold("26 runs of four fifths of a table", drawn_in(512, 26), 2.5, 1.2);
    hold("27 runs of four fifths of a table", drawn_in(512, 27), 2.5, 1.2);
    if !is_ci() {
        return;
    }
    let at_random = Store::new().fill(2000, || rng.next() as u32);
    hold("2000 runs at random, all keys new", at_random, 13.5, 1.01);
    let again = Store::new().fill(4000, || (rng.next() % 300_000) as u32 * 9973);
    hold("4000 runs at random over 470 runs' keys", again, 11.3, 1.2);
    let skewed = Store::new().fill(4000, || {
        let range = 1 << rng.below(20);
        (rng.next() % range) as u32 * 4093
    });
    hold("4000 runs, half of each over half the keys", skewed, 5.8, 1.15);
}

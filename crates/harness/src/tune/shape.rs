//! How the tree of a store comes to be.
//!
//! A tree is either *filled*, each run with so many keys, or *grown*, as a store's own merges leave
//! it. Filled trees have the shape that was asked for to the key; grown ones are what users have.

use serde::{Deserialize, Serialize};

/// The deepest level that a store has.
pub(super) const DEEPEST: usize = 6;
/// Fewest keys of a run below level 0: two tables must be merged to make it, for a single one is
/// moved as it is, with the filter of level 0.
const FEWEST_IN_A_LEVEL: u64 = 2;
/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 16;
/// Bytes that an entry takes in memory beside its key and value, roughly.
const ENTRY_BYTES: u64 = 128;

/// A tree to measure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// What it is called.
    pub name: String,
    /// Keys of the runs of level 0, newest first.
    pub l0: Vec<u64>,
    /// Keys of the levels below, from the top.
    pub levels: Vec<u64>,
    /// If it is left to grow instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grown: Option<Grown>,
    /// Bytes at which a merge begins a new table.
    pub table_bytes: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Bytes of a data block.
    pub block_bytes: u64,
}

/// How a tree is left to grow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grown {
    /// Keys, each written once.
    pub keys: u64,
    /// Bytes of a memtable.
    pub write_buffer_bytes: u64,
    /// Bytes of the smallest level below level 0.
    pub base_level_bytes: u64,
    /// How many times larger each level is than the one above.
    pub ratio: u32,
    /// Runs in level 0 that start a merge.
    pub l0_trigger: u64,
}

impl Shape {
    /// A tree whose levels are filled so far: `fills` are shares of full levels, from the top, of
    /// which the last has `full` keys and each other `ratio` times fewer than the next; `l0` are
    /// shares of what a full level above them would have. None if a run would have too few keys.
    pub(super) fn filled(
        full: u64,
        ratio: f64,
        fills: &[f64],
        l0: &[f64],
    ) -> Option<(Vec<u64>, Vec<u64>)> {
        let keys = |fill: f64, height: usize| {
            (full as f64 * fill / ratio.powi(height.min(1000) as i32)).round() as u64
        };
        let height = |nth: usize| fills.len() - 1 - nth;
        let levels: Vec<u64> =
            fills.iter().enumerate().map(|(nth, fill)| keys(*fill, height(nth))).collect();
        let l0: Vec<u64> = l0.iter().map(|fill| keys(*fill, fills.len())).collect();
        let are_enough =
            levels.iter().all(|keys| *keys >= FEWEST_IN_A_LEVEL) && l0.iter().all(|keys| *keys > 0);
        are_enough.then_some((l0, levels))
    }

    /// Keys of all runs.
    pub fn keys(&self) -> u64 {
        match &self.grown {
            Some(grown) => grown.keys,
            None => self.l0.iter().chain(&self.levels).fold(0, |all, n| all.saturating_add(*n)),
        }
    }

    /// Bytes that so many keys take in a memtable, at most.
    pub(super) fn memory_of(&self, keys: u64) -> u64 {
        keys.saturating_mul(KEY_BYTES as u64 + ENTRY_BYTES + self.value_bytes)
    }
}

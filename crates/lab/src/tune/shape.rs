//! The shape of a store's tree.
//!
//! A tree is either *filled*, each run with a given number of keys, or *grown*, as a store's own
//! compactions leave it. Filled trees have exactly the requested shape; grown ones are like those
//! of users.

use serde::{Deserialize, Serialize};

/// The deepest level of a store.
pub(super) const DEEPEST: usize = 6;
/// Fewest keys in a run below level 0: it must be merged from two tables, because a single one is
/// moved without a rewrite, with the filter of level 0.
const FEWEST_IN_A_LEVEL: u64 = 2;
/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 16;
/// Approximate bytes of an entry in memory besides its key and value.
const ENTRY_BYTES: u64 = 128;

/// A tree to measure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Its name.
    pub name: String,
    /// Number of keys in each run of level 0, newest first.
    pub l0: Vec<u64>,
    /// Number of keys in each level below, from the top.
    pub levels: Vec<u64>,
    /// Set if the tree is grown instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grown: Option<Grown>,
    /// Size at which a compaction starts a new table.
    pub table_bytes: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Bytes of a data block.
    pub block_bytes: u64,
}

/// The parameters of a grown tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grown {
    /// Number of keys, each written once.
    pub keys: u64,
    /// Bytes of a memtable.
    pub write_buffer_bytes: u64,
    /// Bytes of the smallest level after level 0.
    pub base_level_bytes: u64,
    /// Size ratio of each level to the one above.
    pub ratio: u32,
    /// Number of runs in level 0 that start a compaction.
    pub l0_trigger: u64,
}

impl Shape {
    /// A partially filled tree: `fills` are fractions of full levels, from the top. The last full
    /// level has `full` keys, and each other `ratio` times fewer than the next; `l0` are fractions
    /// of a full level above them. None if a run would have too few keys.
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

    /// Number of keys in all runs.
    pub fn keys(&self) -> u64 {
        match &self.grown {
            Some(grown) => grown.keys,
            None => self.l0.iter().chain(&self.levels).fold(0, |all, n| all.saturating_add(*n)),
        }
    }

    /// Upper bound of the bytes of `keys` keys in a memtable.
    pub(super) fn memory_of(&self, keys: u64) -> u64 {
        keys.saturating_mul(KEY_BYTES as u64 + ENTRY_BYTES + self.value_bytes)
    }
}

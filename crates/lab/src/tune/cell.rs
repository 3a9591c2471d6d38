//! One point of the grid.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use trommel::ReadMode;

use super::shape::Shape;

/// The distribution of the keys looked up; a missing key is next to one drawn from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draw {
    /// All keys are equally likely.
    Uniform,
    /// Mostly a few keys, scattered over the tree: YCSB's scrambled Zipfian distribution.
    Zipfian,
    /// Mostly the keys written last: YCSB's latest distribution.
    Latest,
}

impl Draw {
    /// All distributions, with their names.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Uniform, "uniform"), (Self::Zipfian, "zipfian"), (Self::Latest, "latest")];
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(draw, _)| draw == self);
        f.write_str(named.map_or("", |(_, name)| name))
    }
}

impl FromStr for Draw {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.iter().find(|(_, name)| *name == text).map(|(draw, _)| *draw).ok_or(())
    }
}

/// The read mode of this name.
pub(super) fn read_mode(name: &str) -> Option<ReadMode> {
    ReadMode::ALL.into_iter().find(|mode| mode.to_string() == name)
}

/// One filter policy on one tree under one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The filters as in the plan, before a budget is substituted: the cells that a line in a chart
    /// joins.
    pub family: String,
    /// The filter policy.
    pub filters: String,
    /// The budget substituted into the filters, usually in bits per key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// The tree.
    pub tree: Shape,
    /// Fraction of lookups whose key is absent.
    pub misses: f64,
    /// The distribution of the keys looked up.
    pub draw: Draw,
    /// Name of a [`ReadMode`].
    pub read_mode: String,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Number of stores to build, each with different keys.
    pub stores: u64,
    /// Number of lookups in each store.
    pub lookups: u64,
    /// Number of uncounted lookups in each store before those.
    pub warmup: u64,
    /// Seed of all keys.
    pub seed: u64,
}

impl Cell {
    /// A hash in 16 hexadecimal digits: equal exactly for cells whose results differ only by
    /// chance. Names do not count.
    pub fn key(&self) -> String {
        let mut nameless = self.clone();
        nameless.family.clear();
        nameless.tree.name.clear();
        let text = serde_json::to_string(&nameless).unwrap_or_default();
        format!("{:016x}", trommel::filter::hash(text.as_bytes()))
    }

    /// Equal exactly for cells that differ only in their filters.
    pub fn setting(&self) -> String {
        let mut bare = self.clone();
        bare.filters.clear();
        bare.budget = None;
        bare.key()
    }

    /// A name to distinguish it from other cells.
    pub fn name(&self) -> String {
        format!("{} on {}", self.filters, self.place())
    }

    /// A description of everything except its filters.
    pub fn place(&self) -> String {
        let cache = trommel_harness::units::bytes(self.cache_bytes);
        let Self { tree, misses, draw, read_mode, .. } = self;
        let misses = misses * 100.0;
        format!("{}, {misses}% misses, {draw}, {read_mode} {cache}", tree.name)
    }

    /// A description of the settings that [`Cell::place`] leaves out.
    pub fn details(&self) -> String {
        let Self { tree, stores, lookups, seed, .. } = self;
        let keys = tree.keys();
        format!("{keys} keys, {lookups} lookups in each of {stores} stores, seed {seed}")
    }

    /// Number of writes and lookups, over all stores.
    pub(super) fn operations(&self) -> u64 {
        let one = self.tree.keys().saturating_add(self.lookups).saturating_add(self.warmup);
        one.saturating_mul(self.stores)
    }
}

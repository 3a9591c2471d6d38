//! One point of the grid.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use trommel::ReadMode;

use super::shape::Shape;

/// Which keys are looked up; of those that are missing, beside which keys they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draw {
    /// All alike.
    Uniform,
    /// A few, all over the tree, most of the time: YCSB's scrambled Zipfian distribution.
    Zipfian,
    /// Those written last, most of the time: YCSB's latest.
    Latest,
}

impl Draw {
    /// Every distribution, with its name.
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

/// The mode of this name.
pub(super) fn read_mode(name: &str) -> Option<ReadMode> {
    ReadMode::ALL.into_iter().find(|mode| mode.to_string() == name)
}

/// One filter policy on one tree under one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The filters as the plan has them, before a budget is put in: what a line of a chart joins.
    pub family: String,
    /// The filters, as a policy.
    pub filters: String,
    /// The budget that was put in: bits per key, or whatever its filters have in that place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// The tree.
    pub tree: Shape,
    /// Share of the lookups whose key is not there.
    pub misses: f64,
    /// Which keys are looked up.
    pub draw: Draw,
    /// Name of a [`ReadMode`].
    pub read_mode: String,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Stores that are built, each with keys of its own.
    pub stores: u64,
    /// Lookups in each.
    pub lookups: u64,
    /// Lookups in each before those that count.
    pub warmup: u64,
    /// Decides all keys.
    pub seed: u64,
}

impl Cell {
    /// The same for cells whose results are the same but for chance, and for no others: 16
    /// hexadecimal digits. What things are called does not matter.
    pub fn key(&self) -> String {
        let mut nameless = self.clone();
        nameless.family.clear();
        nameless.tree.name.clear();
        let text = serde_json::to_string(&nameless).unwrap_or_default();
        format!("{:016x}", trommel::filter::hash(text.as_bytes()))
    }

    /// The same for cells that differ in their filters alone, and for no others.
    pub fn setting(&self) -> String {
        let mut bare = self.clone();
        bare.filters.clear();
        bare.budget = None;
        bare.key()
    }

    /// What to call it where it stands among others.
    pub fn name(&self) -> String {
        format!("{} on {}", self.filters, self.place())
    }

    /// All but its filters, in words.
    pub fn place(&self) -> String {
        let cache = crate::units::bytes(self.cache_bytes);
        let Self { tree, misses, draw, read_mode, .. } = self;
        let misses = misses * 100.0;
        format!("{}, {misses}% misses, {draw}, {read_mode} {cache}", tree.name)
    }

    /// What [`Cell::place`] leaves out, in words.
    pub fn details(&self) -> String {
        let Self { tree, stores, lookups, seed, .. } = self;
        let keys = tree.keys();
        format!("{keys} keys, {lookups} lookups in each of {stores} stores, seed {seed}")
    }

    /// Writes and lookups, of all stores.
    pub(super) fn operations(&self) -> u64 {
        let one = self.tree.keys().saturating_add(self.lookups).saturating_add(self.warmup);
        one.saturating_mul(self.stores)
    }
}

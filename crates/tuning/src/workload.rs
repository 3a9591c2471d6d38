//! The distribution of lookups, and the cost of a wasted read.
//!
//! A share `z` of all lookups finds nothing, and searches every run. The others stop at the run
//! that has their key, and waste reads only on newer runs. So the share of all lookups that reach a
//! table of run `i` and do not find their key there is
//!
//! ```text
//! reach * (z + (1 - z) * P(the key is in a run older than i))
//! ```
//!
//! where `reach` is the probability that a key falls into the table's key range, for hits and
//! misses alike. This share, times the cost of a wasted read on its level, is the table's *weight*:
//! with a filter of rate `f` its expected waste is `weight * f`.

use crate::error::{TuningError, within};
use crate::tree::Tree;

/// The distribution of lookups.
///
/// ```
/// use trommel_tuning::Workload;
/// // Half of all lookups miss; a read of level 0 is mostly served by the cache.
/// let workload = Workload::new(0.5)?.with_read_cost(0, 0.1)?;
/// assert_eq!(workload.misses(), 0.5);
/// assert!(Workload::new(f64::NAN).is_err());
/// # Ok::<(), trommel_tuning::TuningError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    misses: f64,
    /// Share of the hits that each level answers; empty if hits are distributed like keys.
    hits: Vec<f64>,
    /// The cost of a wasted read on each level; 1 on levels not named.
    read_costs: Vec<f64>,
}

/// The most that a wasted read can cost, and the most hits of a level.
const MOST: f64 = 1e12;
/// The deepest level that can have a cost of its own.
const DEEPEST: usize = 1000;

impl Workload {
    /// Lookups: the share `misses` of them finds nothing, and the others find every key equally
    /// often. A wasted read costs 1 on every level.
    ///
    /// # Errors
    /// `misses` is not from 0 to 1.
    pub fn new(misses: f64) -> Result<Self, TuningError> {
        let misses = within("the share of lookups that miss", misses, (0.0, 1.0), "0 to 1")?;
        Ok(Self { misses, hits: Vec::new(), read_costs: Vec::new() })
    }

    /// Sets a measured distribution of hits: entry `i` is the number of hits on level `i`, in any
    /// unit. Runs of one level share them in proportion to their keys. Levels that the tree does
    /// not have are ignored.
    ///
    /// # Errors
    /// An entry is not from 0 to 1e12.
    pub fn with_hits(mut self, by_level: &[f64]) -> Result<Self, TuningError> {
        for &hits in by_level {
            within("the hits of a level", hits, (0.0, MOST), "0 to 1e12")?;
        }
        self.hits = by_level.to_vec();
        Ok(self)
    }

    /// Sets the cost of a wasted read on `level`, in any unit that all levels share: for example
    /// the share of reads that miss the block cache, or microseconds.
    ///
    /// # Errors
    /// `cost` is not from 0 to 1e12, or `level` beyond 1000.
    pub fn with_read_cost(mut self, level: usize, cost: f64) -> Result<Self, TuningError> {
        let cost = within("the cost of a wasted read", cost, (0.0, MOST), "0 to 1e12")?;
        within("the level of a cost", level as f64, (0.0, DEEPEST as f64), "0 to 1000")?;
        if self.read_costs.len() <= level {
            self.read_costs.resize(level + 1, 1.0);
        }
        self.read_costs[level] = cost;
        Ok(self)
    }

    /// The share of lookups that find nothing.
    #[must_use]
    pub fn misses(&self) -> f64 {
        self.misses
    }

    /// The cost of a wasted read on `level`.
    #[must_use]
    pub fn read_cost(&self, level: usize) -> f64 {
        self.read_costs.get(level).copied().unwrap_or(1.0)
    }

    /// The visits of each table of `tree`, in its order.
    #[must_use]
    pub fn visits(&self, tree: &Tree) -> Vec<Visits> {
        let shares = self.shares(tree);
        let mut visits = Vec::new();
        for ((run, &share), &deeper) in tree.runs().iter().zip(&shares.of).zip(&shares.behind) {
            let keys = run.keys().max(1) as f64;
            for table in &run.tables {
                let alike = table.alike as f64;
                let in_vain = table.reach * (self.misses + (1.0 - self.misses) * deeper);
                let hits = (1.0 - self.misses) * share * table.keys as f64 / keys;
                let read_cost = self.read_cost(run.level);
                visits.push(Visits { in_vain: alike * in_vain, hits: alike * hits, read_cost });
            }
        }
        visits
    }

    /// The distribution of the hits over the runs.
    fn shares(&self, tree: &Tree) -> Shares {
        let keys = |level: usize| {
            let runs = tree.runs().iter().filter(move |run| run.level == level);
            runs.map(|run| run.keys() as f64).sum::<f64>()
        };
        let measured = |level: usize| self.hits.get(level).copied().unwrap_or(0.0);
        let share = |level: usize, part: u64| {
            let part = part as f64;
            if self.hits.is_empty() {
                part
            } else if part > 0.0 {
                measured(level) * part / keys(level)
            } else {
                0.0
            }
        };
        let of: Vec<f64> = tree.runs().iter().map(|run| share(run.level, run.keys())).collect();
        Shares::new(of)
    }
}

/// The share of the hits that each run answers.
struct Shares {
    of: Vec<f64>,
    /// The sum of the shares of all older runs.
    behind: Vec<f64>,
}

impl Shares {
    fn new(mut of: Vec<f64>) -> Self {
        let all: f64 = of.iter().sum();
        if all > 0.0 {
            of.iter_mut().for_each(|share| *share /= all);
        }
        let mut behind = vec![0.0; of.len()];
        for run in (1..of.len()).rev() {
            behind[run - 1] = behind[run] + of[run];
        }
        Self { of, behind }
    }
}

/// The mean visits per lookup of a table (or of a group of equal tables).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Visits {
    /// Lookups that reach the table for a key that it does not have.
    pub in_vain: f64,
    /// Lookups that find their key in it.
    pub hits: f64,
    /// The cost of a read that finds nothing.
    pub read_cost: f64,
}

impl Visits {
    /// The cost of its wasted reads without a filter.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.in_vain * self.read_cost
    }
}

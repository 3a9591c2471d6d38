//! The cost of a wasted read on each level.

use std::str::FromStr;

use clap::Args;

use crate::failure::Failure;

/// What a wasted read costs on each level.
#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// Cost of a wasted read on a level, relative to the other levels: L0=0.1 if nine of ten are
    /// served by the block cache; may be given several times
    #[arg(long, value_name = "LEVEL=COST")]
    read_cost: Vec<ReadCost>,
}

impl CostArgs {
    /// The given levels and costs.
    pub(crate) fn levels(&self) -> impl Iterator<Item = (usize, f64)> {
        self.read_cost.iter().map(|given| (given.level, given.cost))
    }

    /// Checks that all given levels exist in a tree with this deepest level.
    ///
    /// # Errors
    /// If one does not: its cost would have no effect.
    pub(crate) fn check(&self, deepest: usize) -> Result<(), Failure> {
        match self.levels().find(|(level, _)| *level > deepest) {
            None => Ok(()),
            Some((level, _)) => Err(Failure::Usage(format!(
                "--read-cost L{level}: the deepest level of the store is L{deepest}"
            ))),
        }
    }

    /// Whether any are given.
    pub(crate) fn are_given(&self) -> bool {
        !self.read_cost.is_empty()
    }
}

/// A level, and the cost of a wasted read there.
#[derive(Debug, Clone, Copy)]
struct ReadCost {
    level: usize,
    cost: f64,
}

impl FromStr for ReadCost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level_and_cost = text.split_once('=').and_then(|(level, cost)| {
            let level = level.trim().strip_prefix(['L', 'l'])?.parse().ok()?;
            Some(Self { level, cost: cost.trim().parse().ok()? })
        });
        level_and_cost
            .ok_or_else(|| "write a level and what a read costs there, as in L0=0.1".into())
    }
}

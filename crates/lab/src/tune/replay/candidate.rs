//! Candidate filters of a replay.

use std::fmt;
use std::str::FromStr;

use trommel::inspect::ListedTable;
use trommel::tuning::{Run, Solver, Table, Tree, TuningError, Workload};
use trommel::{FilterPolicy, FilterSpec};
use trommel_harness::Error;

use super::load::{Survey, TracePart};

/// Maximum bits per key of a filter.
const MOST_BITS: f64 = 64.0;

/// A set of filters for a tree.
#[derive(Debug, Clone, PartialEq)]
pub enum Candidate {
    /// The filters of a policy.
    Policy(FilterPolicy),
    /// `solved=10/key`: the filters of this many bits per key on average that waste the fewest
    /// reads on the tree, for lookups that miss and hit as in the trace. Headers and rounding count
    /// as bits.
    Solved(f64),
}

impl FromStr for Candidate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(budget) = text.strip_prefix("solved=") {
            let bits = budget.strip_suffix("/key").and_then(|bits| bits.parse::<f64>().ok());
            let bits = bits.filter(|bits| (0.0..=MOST_BITS).contains(bits));
            let wrong = || "write it as solved=10/key, with 0 to 64 bits per key".to_owned();
            return bits.map(Self::Solved).ok_or_else(wrong);
        }
        let policy = text.parse().map_err(|error: trommel::Error| error.to_string())?;
        refuse_budget(&policy)?;
        Ok(Self::Policy(policy))
    }
}

/// A budget has no filter for a level, so it would be replayed as no filters at all.
fn refuse_budget(policy: &FilterPolicy) -> Result<(), String> {
    match policy.budget_bytes(0) {
        None => Ok(()),
        Some(_) => Err(format!(
            "{policy}: a budget is spent on tables as they are written, but a replay is on an \
             existing tree: write solved=10/key for the best filters of that many bits per key on \
             it"
        )),
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(policy) => policy.fmt(f),
            Self::Solved(bits) => write!(f, "solved={bits}/key"),
        }
    }
}

impl Candidate {
    /// The candidate's filter for each table, on its current level.
    pub(super) fn filters(
        &self,
        tables: &[ListedTable],
        survey: &Survey,
        part: &TracePart,
    ) -> Result<Vec<FilterSpec>, Error> {
        let last = tables.iter().map(|table| table.level).max().filter(|level| *level > 0);
        let is_last = |table: &ListedTable| Some(table.level) == last;
        match self {
            Self::Policy(policy) => {
                refuse_budget(policy).map_err(Error::Usage)?;
                let of = |table: &ListedTable| policy.for_level(table.level, is_last(table));
                Ok(tables.iter().map(of).collect())
            }
            Self::Solved(bits) => {
                let solved = solve(tables, survey, part, *bits);
                solved.map_err(|error| Error::Usage(format!("{self}: {error}")))
            }
        }
    }
}

/// The solver's result for the tables at `bits` per key. The probability that a lookup reaches a
/// table is estimated from the current part of the trace, which is a random sample like any other.
fn solve(
    tables: &[ListedTable],
    survey: &Survey,
    part: &TracePart,
    bits: f64,
) -> Result<Vec<FilterSpec>, TuningError> {
    let mut runs: Vec<Run> = Vec::new();
    for ListedTable { level, meta, .. } in tables {
        // Each table of level 0 is a run of its own; those of any other level form one run.
        if *level == 0 || runs.last().is_none_or(|run| run.level != *level) {
            runs.push(Run { level: *level, tables: Vec::new() });
        }
        let reach = part.reach(&meta.smallest, &meta.largest);
        let table = Table { keys: meta.keys, bytes: meta.file_bytes, reach, alike: 1 };
        if let Some(run) = runs.last_mut() {
            run.tables.push(table);
        }
    }
    let tree = Tree::new(runs)?;
    let workload = Workload::new(survey.misses())?;
    let all = survey.ended.iter().sum::<u64>() as f64;
    let workload = match all > 0.0 {
        true => workload.with_hits(&survey.ended.map(|count| count as f64 / all))?,
        false => workload,
    };
    let budget = (tree.keys() as f64 * bits / 8.0) as u64;
    Ok(Solver::default().solve(&tree, &workload, budget)?.filters)
}

//! The read path: pin a view, search its sources newest first, with a filter in front of every
//! table.

mod changes;
mod explain;
mod get;
mod many;
mod operands;
mod part;
mod probe;
mod scan;
#[cfg(test)]
mod seed_tests;

pub(crate) use changes::Change;
pub use explain::{ExplainedFilter, ExplainedOutcome, ExplainedPlace, ExplainedStep, Explanation};

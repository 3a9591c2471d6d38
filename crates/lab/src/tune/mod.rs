//! Experiments with filters: a grid of stores is built and queried, and compared with predictions.
//!
//! 1. [`Plan::read`] turns a file into a list of [`Cell`]s: one filter policy on one tree under one
//!    workload. Each has a key derived from everything that determines its result, so that no cell
//!    is run twice.
//! 2. [`run`] runs the cells that have no result yet. For each it builds several stores (`build`)
//!    with different keys and equal trees, reopens each, runs its lookups (`lookups`), and records
//!    the false positives of its filters.
//! 3. A [`Record`] is a cell with its result: the actual tree, the model's prediction for it
//!    ([`trommel::tuning::Cost`]), and the measurement with its error.
//! 4. [`merge`] joins the records of several machines.
//!
//! The error of a mean comes from the variance *between* stores: filters of one kind and size
//! differ, and one of few keys has a rate some percent off the mean of all, however many queries it
//! gets. Missing keys are all distinct.
//!
//! Invariants: the cell alone determines all writes and lookups; a result is reported only when its
//! cell is complete. Called by `trommel tune`.

mod build;
mod cell;
mod counted;
mod drawn;
mod lookups;
mod measure;
mod plan;
pub mod record;
pub mod replay;
mod shape;
mod solved;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod toml_file;

use std::path::Path;

use trommel_harness::machine::Environment;
use trommel_harness::{Control, Error, Progress, ScratchDir, Unit};

pub use cell::{Cell, Draw};
pub use plan::Plan;
pub use record::{Estimate, LevelRecord, LookupCosts, Record, merge};
pub use shape::{Grown, Shape};

/// A share of the cells, for one of several machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Its number, from 1.
    pub nth: u64,
    /// Number of shares.
    pub of: u64,
}

impl Shard {
    /// All cells.
    pub const WHOLE: Self = Self { nth: 1, of: 1 };

    /// The cells in this share: every `of`th, because neighbours take about the same time.
    pub fn of(self, cells: &[Cell]) -> Vec<&Cell> {
        let is_in = |nth: usize| nth as u64 % self.of.max(1) + 1 == self.nth;
        cells.iter().enumerate().filter(|(nth, _)| is_in(*nth)).map(|(_, cell)| cell).collect()
    }
}

/// Runs `cells`, each on stores of its own below `parent`, and passes each result to `keep` as soon
/// as it is complete. Stores are removed when their cell is done, even after an error or a stop. A
/// cell that cannot be built does not prevent the others from being measured.
///
/// # Errors
/// The first that a store or `keep` reports; [`Error::Interrupted`] if stopped; after all other
/// cells are measured, [`Error::Usage`] with the reason for each cell that could not be built.
pub fn run(
    cells: &[&Cell],
    parent: &Path,
    control: Control<'_>,
    keep: &mut dyn FnMut(Record) -> Result<(), Error>,
) -> Result<(), Error> {
    if cells.is_empty() {
        return Ok(());
    }
    let scratch = ScratchDir::new(parent)?;
    let environment = Environment::of(Some(parent));
    let operations = cells.iter().map(|cell| cell.operations()).fold(0, u64::saturating_add);
    control.progress.begin("experiments", operations, Unit::Operations);
    let within = Control { stop: control.stop, progress: &Within(control.progress) };
    let mut impossible = Vec::new();
    let result = cells.iter().enumerate().try_for_each(|(nth, cell)| {
        let say =
            |words: &str| control.progress.say(&format!("{}/{} {words}", nth + 1, cells.len()));
        match measure::measure(cell, scratch.path(), &environment, within) {
            Ok(record) => {
                say(&record.in_words());
                keep(record)
            }
            Err(Error::Usage(what)) => {
                let words = format!("{}: {what}", cell.name());
                say(&words);
                impossible.push(words);
                Ok(())
            }
            Err(error) => Err(error),
        }
    });
    control.progress.end();
    result?;
    scratch.remove()?;
    if impossible.is_empty() {
        return Ok(());
    }
    let (count, of) = (impossible.len(), cells.len());
    let each = impossible.join("\n  ");
    Err(Error::Usage(format!("{count} of {of} cells cannot be measured:\n  {each}")))
}

/// The progress of a part; the whole is begun and ended elsewhere.
struct Within<'a>(&'a dyn Progress);

impl Progress for Within<'_> {
    fn begin(&self, _what: &str, _all: u64, _unit: Unit) {}

    fn advance(&self, done: u64) {
        self.0.advance(done);
    }

    fn end(&self) {}

    fn say(&self, what: &str) {
        self.0.say(what);
    }
}

//! A page about experiments with filters on stores.
//!
//! 1. `groups` sorts the records into groups of cells that differ only in their filters, and
//!    filters into families that differ only in their budget.
//! 2. `charts` draws Pareto fronts of filter bytes and savings, and measured against predicted
//!    values; `tables` has every figure, and the bits of each level as bars.
//! 3. [`page`] assembles them; [`plots`] returns each chart as a file of its own, [`write_csv`]
//!    writes the figures for other programs.
//!
//! A family has the same colour everywhere. Called by `trommel tune report`.

mod charts;
mod csv;
mod groups;
mod tables;

use super::bars::key;
use super::facts;
use super::html::section;
use super::page::document;
use super::svg::{Role, standalone};
use super::workloads::card;
use crate::tune::Record;
use charts::TuningChart;
pub use csv::write_csv;
use groups::Groups;

const ABOUT_WASTE: &str = "Reads of a table that does not have the key, per lookup on average, \
                           against the bytes of all filters; lower and further left is better. \
                           Vertical lines are 95% intervals. The black (or white) line joins the \
                           filters that no others beat in both.";
const ABOUT_TIMES: &str = "Microseconds per lookup against the bytes of all filters. Times are \
                           those of one thread, on a machine that may have had other work.";
const ABOUT_PREDICTION: &str = "The model's prediction for the tree, and the measurement, with 95% \
                                intervals from the variance between stores. Missing keys are all \
                                distinct. The black (or white) lines mark equality, and 5% on \
                                either side.";
const ABOUT_BITS: &str = "Filter bits per key of each level, as stored in memory.";
const ABOUT_CELLS: &str = "Off: the measurement minus the prediction, relative to the prediction. \
                           Blocks are data blocks searched; read are those read from files.";

/// The charts as SVG files, each with its name, for light and dark backgrounds.
pub fn plots(records: &[Record]) -> Vec<(String, String)> {
    let groups = Groups::new(records);
    let families: Vec<(Role, &str)> = groups.families().collect();
    let charts = [charts::waste(&groups), charts::times(&groups), charts::prediction(&groups)];
    let file = |chart: TuningChart| {
        let svg = standalone(&chart.title, &chart.what, &families, &chart.svg);
        (chart.name, svg)
    };
    charts.into_iter().flatten().map(file).collect()
}

/// The page about `records`. It needs no other file, no network and no script.
pub fn page(title: &str, records: &[Record]) -> String {
    let groups = Groups::new(records);
    let families = key(groups.families());
    let grid = |charts: Vec<TuningChart>| {
        let alone = charts.len() == 1;
        let cards: String =
            charts.iter().map(|chart| card(&chart.title, &chart.what, &chart.svg, "")).collect();
        match (cards.is_empty(), alone) {
            (true, _) => cards,
            // A single chart is narrower than the page, or its text would be too large.
            (_, true) => {
                format!("{families}<div class=\"grid\" style=\"max-width:42rem\">\n{cards}</div>\n")
            }
            _ => format!("{families}<div class=\"grid\">\n{cards}</div>\n"),
        }
    };
    let sections = [
        ("waste", "Wasted reads for filter bytes", ABOUT_WASTE, grid(charts::waste(&groups))),
        ("times", "Time for filter bytes", ABOUT_TIMES, grid(charts::times(&groups))),
        (
            "prediction",
            "Predicted and measured",
            ABOUT_PREDICTION,
            grid(charts::prediction(&groups)) + &tables::verdict(records),
        ),
        ("bits", "Bits per level", ABOUT_BITS, tables::bits(&groups)),
        ("cells", "Every cell", ABOUT_CELLS, tables::cells(&groups)),
        ("levels", "Every level", "", tables::levels(&groups)),
        ("environment", "Machine and build", "", tables::machines(records)),
    ]
    .map(|(id, heading, lead, content)| section(id, heading, lead, &content))
    .concat();
    let is_debug = records.iter().any(|record| record.environment.build.debug_assertions);
    let warnings = facts::words_of_warning(is_debug, false) + &tables::mixture(records);
    document(title, &tables::subtitle(&groups), &tables::headline(records), &(warnings + &sections))
}

#[cfg(test)]
mod tests;

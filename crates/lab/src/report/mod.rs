//! A page of benchmark results: one self-contained HTML file, without network or script.
//!
//! 1. `data` sorts the records into repeats and variants.
//! 2. `charts` draws, on `svg`; `html` and `bars` make tables and bars.
//! 3. [`page()`] assembles the page. It contains every figure of every record, the details
//!    collapsed.
//!
//! Invariants: nothing in a record is interpreted as markup; colours are variables of the style, so
//! one page serves light and dark; every figure in a chart is also in a table. [`filters`] draws
//! the results of `trommel filter-bench`, [`tuning`] makes a page of those of `trommel tune run`,
//! and [`live`] one of a store at work. Called by `trommel report` and `trommel top`.

mod axis;
mod bars;
mod charts;
mod data;
mod facts;
pub mod filters;
mod html;
mod lines;
pub mod live;
mod page;
mod svg;
#[cfg(test)]
mod tests;
pub mod tuning;
mod workloads;

pub use data::Source;
pub use page::page;

//! A page about benches: one HTML file that needs nothing else, no network and no script.
//!
//! 1. `data` sorts the records: which are repeats, which stand side by side.
//! 2. `charts` draws, on `svg`; `html` and `bars` make tables and bars.
//! 3. [`page()`] puts it together. Every figure of every record is in it, the last ones folded
//!    away.
//!
//! Invariants: nothing in a record is taken for markup; colours are variables of the style, so
//! light and dark are one page; what a chart shows is in a table too. [`filters`] makes a page of
//! what `trommel filter-bench` measured, [`tuning`] one of what `trommel tune run` did. Called by
//! `trommel report`, `trommel bench --report` and the comparison with other stores.

mod axis;
mod bars;
mod charts;
mod data;
mod facts;
pub mod filters;
mod html;
mod page;
mod svg;
#[cfg(test)]
mod tests;
pub mod tuning;
mod workloads;

pub use data::Source;
pub use page::page;

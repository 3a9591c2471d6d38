//! The promises of a table: every way of reading returns the entries that were added, and
//! corruption is reported.

#![allow(clippy::unwrap_used, reason = "a test's helpers may, as its tests do")]

mod aligning;
#[path = "../../../filter/tests/bounds/allocator.rs"]
mod allocator;
mod block_slots;
mod building;
mod common;
mod damage;
mod direct;
mod filter_shapes;
mod format_page;
mod golden;
mod hints;
mod hostile_filters;
mod layout;
mod limits;
mod loading;
mod prefixes;
mod ranges;
mod reading;
mod round_trip;
mod seeds;
mod sidecars;

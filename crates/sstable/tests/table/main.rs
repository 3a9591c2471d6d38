//! What a table promises: what went in comes out, by every way of reading, and damage is said.

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
mod hostile_filters;
mod layout;
mod limits;
mod loading;
mod prefixes;
mod reading;
mod round_trip;
mod sidecars;
mod walks;

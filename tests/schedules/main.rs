//! Schedules: the interactions of threads in a store, with the order of their steps chosen by the
//! test, hundreds of thousands of times.
//!
//! The engine is built with `--cfg shuttle`: its locks, condition variables, atomics and threads
//! are then those of the crate shuttle, and all threads of a scenario run on one, with a possible
//! switch at each of them. A scenario opens a small store on a simulated disk, runs a few threads
//! on it, and checks the results and the final state. A schedule consists of all random choices;
//! the same number gives the same schedule. A deadlock, such as after a lost wake-up, is a failure.
//!
//! Run by `tests/schedules/run.sh`; without the flag this is empty. docs/concurrency.md describes
//! what is covered like this, and what is not.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a failure is the point")]

mod lane;
mod scheduler;
mod store;

mod budget;
mod commit;
mod ends;
mod environments;
mod flush;
mod panics;
mod ranges;
mod tables;
mod toys;
mod transactions;

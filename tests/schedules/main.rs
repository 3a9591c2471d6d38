//! Schedules: what threads do to each other in a store, with the order of their steps chosen by the
//! test, hundreds of thousands of times.
//!
//! The engine is built with `--cfg shuttle`: its locks, condition variables, atomics and threads
//! are then those of the crate shuttle, and all threads of a scenario run on one, switched at each
//! of them. A scenario opens a small store on a simulated disk, lets a few threads work on it, and
//! checks the answers and what is left. A schedule is all that chance decides about it; the same
//! number gives the same schedule. A deadlock, which a lost wake-up becomes here, is a failure.
//!
//! Run by `tests/schedules/run.sh`; without the flag nothing is here. What is covered so, and what
//! is not, is in docs/concurrency.md.

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
mod tables;
mod toys;

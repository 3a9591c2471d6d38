//! Drives a key-value store and reports measurements.
//!
//! 1. [`Store`] is the interface to a store; any implementation can be driven. [`MapStore`] (a map
//!    in memory) is the baseline.
//! 2. A [`KeySpace`] and [`Values`] define the keys and values; both cost the measured loop next to
//!    nothing.
//! 3. [`measure`] runs one [`Workload`] on a number of threads and returns a [`Measured`], the sum
//!    over all threads.
//! 4. [`record`] writes the results of a workload as a line of JSON; [`machine`] describes the
//!    machine.
//! 5. [`bench`](bench::bench) runs a series of workloads and prints db_bench's lines.
//!
//! Invariants: nothing here writes to the standard streams (callers pass a writer), all draws
//! derive from the caller's seed, and every loop ends soon after [`Stop`] is set. Called by the
//! `trommel` program, by crate `lab` and by tests.
#![forbid(unsafe_code)]

pub mod bench;
mod cold;
pub mod conformance;
mod control;
pub mod demo;
mod distribution;
mod engine_store;
mod error;
mod histogram;
mod keys;
pub mod machine;
mod map_store;
mod measure;
mod measured;
mod rate;
pub mod record;
mod repeat;
mod repeatable_disk;
mod scratch;
mod store;
pub mod stress;
pub mod table;
pub mod units;
mod values;
mod workload;

pub use control::{Control, Progress, Silent, Stop, Unit};
pub use distribution::{Latest, ScrambledZipfian};
pub use engine_store::{EngineOpener, EngineStore};
pub use error::{Error, StoreError};
pub use histogram::Latencies;
pub use keys::{KeyMaker, KeySpace, mix};
pub use map_store::{MapOpener, MapStore};
pub use measure::{Load, PrefixSeeks, Records, WorkloadOptions, measure};
pub use measured::{Kind, Measured, MeasuredTime, Tally};
pub use repeat::{ParseStepError, Step};
pub use repeatable_disk::RepeatableDisk;
pub use scratch::ScratchDir;
pub use store::{Direction, Level, Lookups, Mark, Opener, Operation, Store, Visit};
pub use values::Values;
pub use workload::{UnknownWorkload, Workload};

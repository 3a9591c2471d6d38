//! Whether the store keeps its promise on this machine: a run of any length that reads, writes,
//! kills and checks. The idea is RocksDB's `db_stress`.
//!
//! 1. [`stress`] is the parent. It starts a worker, a process of its own, kills it at a random
//!    time or at a random call to the disk, and starts the next on the same store, until the time
//!    is over. It holds the worker to limits of memory, file handles, space and time.
//! 2. [`work`] is the worker: many threads that write, read and check (see `worker`).
//! 3. What the store must hold is in a file beside it (see `expected`), which a killed process
//!    cannot take along. Every acknowledged write must be there after a kill, those under way may
//!    be, each batch whole or not at all, and nothing else.
//! 4. Keys and values are functions of a seed and of how often a key was written (see `records`),
//!    so every byte is checked and no history is kept.
//! 5. Options are drawn anew at each open (see `draw`), and the disk may be told to fail (see
//!    `upset`).
//!
//! A killed process loses nothing that it gave to the system, so this shows nothing about power
//! cuts: those are simulated elsewhere.
//!
//! Invariants: a key has one writer at a time; what is wrong stops the run at once, and store and
//! expected state stay as they are. Called by `trommel stress`.

mod check;
mod counts;
mod customer;
mod draw;
mod expected;
mod place;
mod records;
mod report;
mod supervise;
mod upkeep;
mod upset;
mod watch;
mod wire;
mod worker;

pub use draw::{Profile, Sizes};
pub use place::Place;
pub use report::{Finding, Report};
pub use supervise::{Plan, stress};
pub use watch::Limits;
pub use worker::work;

//! A stress test of the store on this machine: a run of any length that reads, writes, kills and
//! checks. Modelled on RocksDB's `db_stress`.
//!
//! 1. [`stress`] is the parent. It starts a worker process, kills it at a random time or at a
//!    random call to the disk, and starts the next on the same store, until the time is over. It
//!    enforces limits of memory, file handles, disk space and time on the worker.
//! 2. [`work`] is the worker: many threads that write, read and check (see `worker`).
//! 3. The expected state is in a file outside the store (see `expected`), which survives a killed
//!    process. After a kill, every acknowledged write must be present, each write in flight may be
//!    present, each batch must be complete or absent, and nothing else may be there.
//! 4. Keys and values are functions of a seed and of the number of writes to a key (see `records`),
//!    so every byte is checked without keeping a history.
//! 5. Options are drawn anew at each open (see `draw`), and the disk can inject faults (see
//!    `faulty_disk`).
//!
//! A killed process loses nothing that it has passed to the system, so this does not test power
//! failures: other tests simulate those.
//!
//! Invariants: a key has one writer at a time; an error stops the run at once, and preserves the
//! store and the expected state. Called by `trommel stress`.

mod check;
mod client;
mod counts;
mod draw;
mod expected;
mod faulty_disk;
mod place;
mod records;
mod report;
mod supervise;
mod upkeep;
mod watch;
mod wire;
mod worker;

pub use draw::{Profile, Sizes};
pub use place::Place;
pub use report::{Finding, Report, StressPeaks, StressSetup};
pub use supervise::{StressPlan, StressSchedule, stress};
pub use watch::Limits;
pub use worker::work;

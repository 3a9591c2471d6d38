//! File systems for tests: of the engine, and of programs that use it.
//!
//! * [`MemoryVfs`]: files in memory, which behave like those on disk.
//! * [`WallClock`]: the clock of a file system, which a test moves.
//! * [`SimDisk`]: a disk whose power can be cut at any moment, and whose calls can be made to fail.
//! * [`conformance`]: the suite that every [`Vfs`](trommel_vfs::Vfs) passes.

mod clock;
pub mod conformance;
mod content;
mod memory;
mod sim;
mod tree;

/// The random word of all file systems here, so that a test runs alike each time.
pub const RANDOM_WORD: u64 = 0x9d3c_5b17_e2a8_4f61;

pub use clock::WallClock;
pub use memory::MemoryVfs;
pub use sim::{
    Data, Entries, Failure, Fault, Image, Loss, Op, OpKind, Policy, Replay, SECTOR_BYTES, SimDisk,
};

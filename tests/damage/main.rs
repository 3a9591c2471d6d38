//! Damaged files. One flipped bit, in any byte of any file, yields either every answer correct or
//! a typed error: never a lost key, a wrong value, a panic, a hang.
//!
//! * [`stores`]: the small stores that are damaged, with what they held after every batch.
//! * [`gate`]: a file system in memory that can refuse new tables, so that logs pile up.
//! * [`injury`]: what is done to a file.
//! * [`exam`]: a damaged store is opened, read, verified, and compared with the states it may be
//!   in.
//! * [`lane`]: one store through many injuries, its counts, and its failures.
//! * [`flips`], [`cuts`], [`files`], [`blocks`], [`orphans`], [`salvage`]: the promises, by kind of
//!   injury.
//! * [`hostile`]: contents that nobody wrote, behind checksums that [`fix`] makes right.
//! * [`trusted`]: tables that are damaged while they are read through maps.
//! * [`wrong_input`]: the wrong directory, the wrong file, too few handles.
//! * [`format`](crate::format): whole stores of earlier versions.
//!
//! All injuries are enumerated, but for two at once, which are sampled. A failure names store, file
//! and injury, and leaves the damaged directory in the target directory's `tmp`, to be opened
//! again. The soak flips every bit of every byte, and keeps the counts:
//!
//! ```text
//! TROMMEL_SCALE=8 TROMMEL_LANES_JSON=$PWD/damage.jsonl cargo test -p trommel-tests --test damage
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the lanes print their counts")]

#[cfg(test)]
#[path = "../../crates/filter/tests/bounds/allocator.rs"]
mod allocator;
#[cfg(test)]
mod blocks;
#[cfg(test)]
mod cuts;
#[cfg(test)]
mod exam;
#[cfg(test)]
mod files;
#[cfg(test)]
#[path = "../fuzz/src/fix/mod.rs"]
mod fix;
#[cfg(test)]
mod flips;
#[cfg(test)]
mod gate;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod injury;
#[cfg(test)]
mod lane;
#[cfg(test)]
mod orphans;
#[cfg(test)]
mod salvage;
#[cfg(test)]
mod stores;
#[cfg(test)]
mod trusted;
#[cfg(test)]
mod wrong_input;

#[cfg(test)]
#[path = "../format/mod.rs"]
mod format;

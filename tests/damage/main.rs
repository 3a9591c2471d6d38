//! Corrupt files. One flipped bit, in any byte of any file, yields either every answer correct or a
//! typed error: never a lost key, a wrong value, a panic, a hang.
//!
//! * [`stores`]: the small stores under test, with their contents after every batch.
//! * [`gate`]: a file system in memory that can fail to create tables, so that logs accumulate.
//! * [`injury`]: the changes to a file.
//! * [`exam`]: opens a corrupt store, reads and verifies it, and compares it with its possible
//!   states.
//! * [`lane`]: runs one store through many changes, and counts results and failures.
//! * [`flips`], [`cuts`], [`files`], [`blocks`], [`orphans`], [`salvage`]: the promises, by kind of
//!   change.
//! * [`hostile`]: forged contents, with checksums recomputed by [`fix`].
//! * [`trusted`]: tables that become corrupt while they are read through maps.
//! * [`wrong_input`]: the wrong directory, the wrong file, too few handles.
//! * [`format`](crate::format): whole stores of earlier versions.
//!
//! All changes are enumerated, except pairs, which are sampled; but plain `cargo test` changes one
//! byte in five, and truncates at one length in five. A failure names store, file and change, and
//! leaves the corrupt directory in the target directory's `tmp` for inspection. The soak flips
//! every bit of every byte, and writes its counters:
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

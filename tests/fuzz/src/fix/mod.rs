//! Recomputes every checksum of a file according to `docs/format/`, whatever its other bytes are.
//! With valid checksums a mutation reaches code that an invalid one would protect.
//!
//! Everything here follows lengths in the bytes as far as they lead and leaves the rest unchanged:
//! any bytes are accepted, and nothing here may panic, since that would look like a finding. The
//! damage lanes (`tests/damage`) include this directory too.
#![allow(dead_code, unused_imports, reason = "each of these programs uses a part")]

mod filter;
mod log;
mod sidecar;
mod table;
mod text;

pub(crate) use filter::filter;
pub(crate) use log::framed;
pub(crate) use sidecar::{sidecar, sidecar_of};
pub(crate) use table::table;
pub(crate) use text::{current, dump};

/// The `N` bytes at `at`, if they are within bounds.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// Overwrites the bytes at `at` with all of `with`, if they fit.
fn set(bytes: &mut [u8], at: usize, with: &[u8]) {
    if let Some(room) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..with.len())) {
        room.copy_from_slice(with);
    }
}

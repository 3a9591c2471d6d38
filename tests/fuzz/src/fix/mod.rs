//! Recomputes every checksum of a file, after the pages in `docs/format/`, whatever its other bytes
//! say. Behind right checksums a mutation reaches the code that a wrong one would keep it from.
//!
//! Everything here follows lengths in the bytes as far as they lead and leaves the rest as it is:
//! any bytes are taken, and nothing here may panic, since that would look like a find. The lanes of
//! damage (`tests/damage`) include this folder as well.
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

/// The `N` bytes at `at`, if they are all there.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// Overwrites what is at `at`, if there is room for all of `with`.
fn set(bytes: &mut [u8], at: usize, with: &[u8]) {
    if let Some(room) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..with.len())) {
        room.copy_from_slice(with);
    }
}

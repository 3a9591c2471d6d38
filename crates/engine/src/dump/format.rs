//! The constants of dumps, which are [framed](crate::framed), specified in docs/format/dump.md.

use trommel_base::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use crate::framed::Form;

/// The first bytes of a dump. (High bit, name and line ends detect transfers that change bytes.)
pub const MAGIC: [u8; 8] = [0x89, b'T', b'R', b'D', b'M', b'P', 0x0d, 0x0a];
/// The version that is written.
pub(super) const VERSION: u32 = 1;
/// The stream form of a dump.
pub(super) const FORM: Form = Form { magic: MAGIC, version: VERSION, features: 0, name: "dump" };
/// The feature of a dump with named keyspaces.
pub(super) const KEYSPACES: u64 = 1;
/// A block.
pub(super) const KIND_BLOCK: u32 = 1;
/// The beginning of a named keyspace.
pub(super) const KIND_KEYSPACE: u32 = 3;
/// Longest payload of that: a name and its options.
pub(super) const MAX_KEYSPACE_BYTES: u64 = 64 << 10;
/// A block is closed once its payload has this many bytes.
pub(super) const BLOCK_BYTES: usize = 64 << 10;
/// Longest payload: a nearly full block, and the longest entry.
pub(super) const MAX_PAYLOAD_BYTES: u64 =
    (BLOCK_BYTES + MAX_KEY_BYTES + MAX_VALUE_BYTES + 16) as u64;

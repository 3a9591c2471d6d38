//! The vocabulary that all Trommel crates share: entries and their order, integer encoding,
//! checksums, and cursors.
//!
//! This crate does no I/O, starts no thread and knows no file format. It is a closed list:
//!
//! * [`SeqNo`], [`EntryKind`] and [`EntryRef`]: one version of one key ([`entry`]);
//! * [`compare_internal`]: the order of all entries ([`entry`]);
//! * [`Cursor`]: iteration over entries ([`cursor`]);
//! * [`Decoder`] and the `put_*` functions: little-endian integers and varints ([`codec`]);
//! * [`Checksum`]: the checksum of stored bytes ([`checksum`]);
//! * [`Corruption`]: the error of a failed check;
//! * [`Slice`]: bytes that are cheap to clone, and [`SliceBuffer`], which builds one after another;
//! * [`sync`]: the locks and atomics that tests replace.

#![forbid(unsafe_code)]

pub mod checksum;
pub mod codec;
pub mod cursor;
pub mod cursor_hints;
pub mod entry;
mod slice;
pub mod sync;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

pub use checksum::Checksum;
pub use codec::Decoder;
pub use cursor::Cursor;
pub use cursor_hints::{Aim, CursorHints, Stage};
pub use entry::{
    EntryKind, EntryRef, InternalKey, KeyHead, MAX_SEQNO, RANGE_DELETE, RANGE_DELETE_FROM, SeqNo,
    TIME_MARK, compare_internal, compare_keys, first_word, first_words, key_behind, same_bytes,
};
pub use slice::{Slice, SliceBuffer};

/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 65_535;
/// Longest value, in bytes (1 GiB).
pub const MAX_VALUE_BYTES: usize = 1 << 30;

/// Corruption found in a file: bytes that fail their checksum, or that no writer could have
/// written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The corrupt file.
    pub file: PathBuf,
    /// Where the corrupt structure starts, in bytes from the beginning of the file.
    pub offset: u64,
    /// What was expected there and not found.
    pub what: Cow<'static, str>,
}

impl Corruption {
    /// Corruption in `file` at `offset`; `what` completes the sentence "`file` is damaged at byte
    /// `offset`: ...".
    pub fn new(file: &Path, offset: u64, what: impl Into<Cow<'static, str>>) -> Self {
        Self { file: file.to_path_buf(), offset, what: what.into() }
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged at byte {}: {}", self.file.display(), self.offset, self.what)
    }
}

impl std::error::Error for Corruption {}

//! Dumps: all entries of a range as one stream of bytes, to be transferred to another store,
//! another version or another machine. Every byte is covered by a checksum, and a stream that was
//! truncated or assembled wrongly is detected. The format is docs/format/dump.md.
//!
//! 1. A [`DumpWriter`] takes entries in key order, closes a block when it is large enough, and ends
//!    the stream with the totals.
//! 2. A [`DumpReader`] returns a block's entries after verifying the block's checksum, and reports
//!    the end only after it has read the end of the stream and found that nothing follows.
//!
//! ```
//! use trommel::dump::{DumpReader, DumpWriter};
//! # let dir = tempfile::tempdir().unwrap();
//! # let (old, new) = (dir.path().join("old"), dir.path().join("new"));
//! # let db = trommel::Db::open(&old, Default::default())?;
//! # let other = trommel::Db::open(&new, Default::default())?;
//! # db.put("k", "v")?;
//! let mut writer = DumpWriter::new(Vec::new()).unwrap();
//! for entry in db.iter() {
//!     let (key, value) = entry?;
//!     writer.append(&key, &value).unwrap();
//! }
//! let (stream, totals) = writer.finish().unwrap();
//! let mut reader = DumpReader::new(&*stream, "the dump")?;
//! while let Some((key, value)) = reader.next_entry()? {
//!     other.put(key, value)?;
//! }
//! assert_eq!(reader.totals(), totals);
//! # Ok::<(), trommel::Error>(())
//! ```

mod format;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use format::MAGIC;
pub use reader::{DumpItem, DumpReader};
pub use writer::DumpWriter;

/// The totals of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DumpTotals {
    /// Entries.
    pub entries: u64,
    /// Bytes of all blocks: keys, values, and the lengths before them.
    pub bytes: u64,
}

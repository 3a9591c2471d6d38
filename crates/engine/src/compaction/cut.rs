//! Where one output table of a merge ends and the next begins.
//!
//! An output is closed
//! 1. when it has reached the target size;
//! 2. a little earlier, where the key passes the end of a grandparent (a table of the level below
//!    the output level): outputs that end where grandparents end overlap fewer of them, and cost
//!    less in their next merge;
//! 3. when it overlaps so much of the grandparents that its own next merge would be too large.
//!
//! Invariant: never between two versions of one user key. Two tables of a level that share a key
//! could be moved apart, the newer version below the older (leveldb 320).
//!
//! Called by the worker before each entry it writes.

use std::sync::Arc;

use crate::version::TableFile;

use super::options::CompactionOptions;

/// Decides when an output table is closed.
#[derive(Debug)]
pub(crate) struct OutputCutter {
    grandparents: Vec<Arc<TableFile>>,
    /// Grandparents before this one end before the last key.
    at: usize,
    /// Bytes of the grandparents that the open output has passed.
    overlapped: u64,
    table_bytes: u64,
    max_overlap: u64,
}

impl OutputCutter {
    /// A cutter for a merge with these grandparents, in key order.
    pub(crate) fn new(grandparents: Vec<Arc<TableFile>>, options: &CompactionOptions) -> Self {
        let (table_bytes, max_overlap) = (options.table_bytes, options.max_grandparent_bytes());
        Self { grandparents, at: 0, overlapped: 0, table_bytes, max_overlap }
    }

    /// Whether the open output must be closed before an entry of `key` is written.
    ///
    /// `last_key` is the last key of the open output, `None` where it is empty; `output_bytes` its
    /// size so far. Keys ascend from call to call.
    pub(crate) fn cut_before(
        &mut self,
        key: &[u8],
        last_key: Option<&[u8]>,
        output_bytes: u64,
    ) -> bool {
        if last_key == Some(key) {
            return false;
        }
        let mut passed_one = false;
        while self.grandparents.get(self.at).is_some_and(|table| *table.largest < *key) {
            if last_key.is_some() {
                self.overlapped =
                    self.overlapped.saturating_add(self.grandparents[self.at].file_bytes);
            }
            self.at += 1;
            passed_one = true;
        }
        let is_large = output_bytes >= self.table_bytes;
        let is_aligned = passed_one && output_bytes >= self.table_bytes / 4 * 3;
        let cut =
            last_key.is_some() && (is_large || is_aligned || self.overlapped > self.max_overlap);
        if cut {
            self.overlapped = 0;
        }
        cut
    }
}

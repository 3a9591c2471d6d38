//! Iteration over all keys of a table, block by block, bypassing every cache. Used to build and
//! verify filters.
//!
//! 1. Read the index leaves in order, and the data blocks that they list, many at a time.
//! 2. Pass each distinct key to the caller once. After each block, pass the separator to the next
//!    block.
//! 3. Finally compare the counts with the properties: a filter built from a scan that missed a key
//!    would deny that key.

use std::sync::Arc;

use crate::compression::zeroed;
use crate::format::{Fault, Handle};
use crate::index::{At, Index};
use crate::source::Source;
use crate::{Error, Table};

/// Data blocks are read this many bytes at a time.
const READ_BYTES: usize = 1 << 20;

/// An event of the scan.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// A user key that differs from the previous one, and the leaf and position of its block.
    Key(&'a [u8], &'a Index, At),
    /// The last key of the previous block, whose versions continue in this one.
    KeyAgain(&'a [u8], &'a Index, At),
    /// The end of a data block, the separator between it and the next one, and whether it is the
    /// last of its leaf of the index.
    BlockEnd { separator: &'a [u8], ends_leaf: bool },
}

/// Reads the blocks that `leaf` lists, many at a time. Passes each stored block to `take`: its
/// slot, its location, and a buffer with the offset in it where the block starts.
pub(crate) fn each_stored<E: From<Error>>(
    source: &Source,
    leaf: &Index,
    mut take: impl FnMut(usize, Handle, &Arc<[u8]>, usize) -> Result<(), E>,
) -> Result<(), E> {
    let mut slot = 0;
    while let Some(first) = leaf.handle(slot) {
        let mut end = first.end();
        let mut end_slot = slot + 1;
        while let Some(next) = leaf.handle(end_slot) {
            if next.end() - first.offset > READ_BYTES as u64 {
                break;
            }
            (end, end_slot) = (next.end(), end_slot + 1);
        }
        let mut buffer = zeroed((end - first.offset) as usize);
        if let Some(room) = Arc::get_mut(&mut buffer) {
            source.read_into(first.offset, room)?;
        }
        for slot in slot..end_slot {
            let Some(handle) = leaf.handle(slot) else { continue };
            take(slot, handle, &buffer, (handle.offset - first.offset) as usize)?;
        }
        slot = end_slot;
    }
    Ok(())
}

impl Table {
    /// Passes all keys of the table to `take`, in order. Returns the number of bytes read.
    ///
    /// # Errors
    /// The first corruption found. An error of `take` ends the scan and is returned.
    pub(crate) fn each_key<E: From<Error>>(
        &self,
        mut take: impl FnMut(Step<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let source = &self.source;
        let (mut entries, mut keys, mut end) = (0, 0, 0);
        let mut last: Vec<u8> = Vec::new();
        self.index.each_leaf(source, |leaf_number, leaf| {
            if leaf.range().0 != end {
                return Err(self.disagrees("the index leaves do not lie side by side").into());
            }
            end = leaf.range().1;
            each_stored(source, leaf, |slot, handle, buffer, start| {
                let at = |fault: Fault| fault.at(&source.path, handle.offset);
                let shared = source.open_block(buffer, start, handle)?;
                let block = shared.view();
                let place = At { leaf: leaf_number, slot };
                for i in 0..block.count() {
                    let (prefix, suffix) = block.key(i).map_err(at)?;
                    entries += 1;
                    let is_old = keys > 0
                        && last.len() == prefix.len() + suffix.len()
                        && last.starts_with(prefix)
                        && last.ends_with(suffix);
                    if is_old {
                        if i == 0 {
                            take(Step::KeyAgain(&last, leaf, place))?;
                        }
                        continue;
                    }
                    last.clear();
                    last.extend_from_slice(prefix);
                    last.extend_from_slice(suffix);
                    keys += 1;
                    take(Step::Key(&last, leaf, place))?;
                }
                let ends_leaf = slot + 1 == leaf.len();
                take(Step::BlockEnd { separator: &leaf.separator(slot), ends_leaf })
            })
        })?;
        let stored = self.properties();
        if end != self.footer.data_bytes
            || entries != stored.contents.entries
            || keys != stored.contents.keys
        {
            return Err(self.disagrees("the properties are not true of the entries").into());
        }
        Ok(end + self.footer.leaves_bytes)
    }

    fn disagrees(&self, what: &'static str) -> Error {
        Fault::Damaged(what).at(&self.source.path, self.footer.properties_offset())
    }
}

//! Walks over all keys of a table, block by block, past every cache: for who builds or checks
//! filters.
//!
//! 1. The index leaves are read in order, and the data blocks that they list, many at a time.
//! 2. Each distinct key is handed over once; then, at the end of each block, where it ends and what
//!    parts it from the next one.
//! 3. At the end the counts must be those of the properties: a walk that missed a key would make a
//!    filter that denies it.

use std::sync::Arc;

use crate::compression::zeroed;
use crate::format::{Fault, Handle};
use crate::index::Index;
use crate::source::Source;
use crate::{Error, Table};

/// Data blocks are read this many bytes at a time.
const READ_BYTES: usize = 1 << 20;

/// What a walk comes to.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    /// A user key that is not the one before it.
    Key(&'a [u8]),
    /// The end of the data block at `offset`; where the next one begins, and what parts the two.
    BlockEnd { offset: u64, next: u64, separator: &'a [u8] },
}

/// Reads the blocks that `leaf` lists, many at a time, and hands over each as it is stored: its
/// slot, its place, and a buffer in which it starts at a byte.
pub(crate) fn each_stored<E: From<Error>>(
    source: &Source,
    leaf: &Index,
    mut take: impl FnMut(usize, Handle, &Arc<[u8]>, usize) -> Result<(), E>,
) -> Result<(), E> {
    let mut slot = 0;
    while let Some(first) = leaf.handle(slot) {
        let mut end = first.end();
        let mut behind = slot + 1;
        while let Some(next) = leaf.handle(behind) {
            if next.end() - first.offset > READ_BYTES as u64 {
                break;
            }
            (end, behind) = (next.end(), behind + 1);
        }
        let mut buffer = zeroed((end - first.offset) as usize);
        if let Some(room) = Arc::get_mut(&mut buffer) {
            source.read_into(first.offset, room)?;
        }
        for slot in slot..behind {
            let Some(handle) = leaf.handle(slot) else { continue };
            take(slot, handle, &buffer, (handle.offset - first.offset) as usize)?;
        }
        slot = behind;
    }
    Ok(())
}

impl Table {
    /// Hands all keys of the table to `take`, in order; the bytes that were read.
    ///
    /// # Errors
    /// The first damage met; that of `take`, which ends the walk.
    pub(crate) fn each_key<E: From<Error>>(
        &self,
        mut take: impl FnMut(Step<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let source = &self.source;
        let (mut entries, mut keys, mut end) = (0, 0, 0);
        let mut last: Vec<u8> = Vec::new();
        for i in 0..self.index.leaf_count() {
            let leaf;
            let leaf = match self.footer.has_two_levels() {
                true => {
                    leaf = self.index.read_leaf(i, source)?;
                    &leaf
                }
                false => self.index.top(),
            };
            if leaf.range().0 != end {
                return Err(self.disagrees("the index leaves do not lie side by side").into());
            }
            end = leaf.range().1;
            each_stored(source, leaf, |slot, handle, buffer, start| {
                let at = |fault: Fault| fault.at(&source.path, handle.offset);
                let shared = source.open_block(buffer, start, handle)?;
                let block = shared.view();
                for i in 0..block.count() {
                    let (prefix, suffix) = block.key(i).map_err(at)?;
                    entries += 1;
                    let is_old = keys > 0
                        && last.len() == prefix.len() + suffix.len()
                        && last.starts_with(prefix)
                        && last.ends_with(suffix);
                    if is_old {
                        continue;
                    }
                    last.clear();
                    last.extend_from_slice(prefix);
                    last.extend_from_slice(suffix);
                    keys += 1;
                    take(Step::Key(&last))?;
                }
                let separator = leaf.separator(slot);
                let (offset, next) = (handle.offset, handle.end());
                take(Step::BlockEnd { offset, next, separator: &separator })
            })?;
        }
        let said = self.properties();
        if end != self.footer.data_bytes || entries != said.entries || keys != said.keys {
            return Err(self.disagrees("the properties are not true of the entries").into());
        }
        Ok(end + self.footer.leaves_bytes)
    }

    fn disagrees(&self, what: &'static str) -> Error {
        Fault::Damaged(what).at(&self.source.path, self.footer.properties_offset())
    }
}

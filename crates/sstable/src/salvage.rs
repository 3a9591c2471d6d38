//! Salvages the entries of a table's good data blocks, in order, whatever else is corrupt.
//!
//! [`layout`](crate::layout()) finds the good blocks; they are read again here, one at a time,
//! bypassing every cache. For repairs only: use a cursor to detect missing entries.

use std::path::Path;
use std::sync::Arc;

use trommel_base::EntryRef;
use trommel_vfs::ReadFile;

use crate::block::SharedBlock;
use crate::compression::zeroed;
use crate::format::{BlockKind, Handle};
use crate::source::Source;
use crate::table::read_footer;
use crate::{BlockInfo, Error};

/// An iterator over the entries of a table's good data blocks.
#[derive(Debug)]
pub struct Salvage {
    source: Source,
    /// The remaining good blocks, the next one last.
    blocks: Vec<Handle>,
    block: Option<(Handle, SharedBlock)>,
    /// Position of the current entry in `block`.
    at: usize,
    key: Vec<u8>,
}

impl Salvage {
    /// An iterator over the good ones of `blocks`, the [`layout`](crate::layout()) of `file`,
    /// positioned before the first entry.
    ///
    /// # Errors
    /// As [`layout`](crate::layout()).
    pub fn new(file: Arc<dyn ReadFile>, path: &Path, blocks: &[BlockInfo]) -> Result<Self, Error> {
        let footer = read_footer(&*file, path)?;
        let source = Source::uncached(file, path, footer.table_id, footer.data_bytes);
        let is_good = |block: &&BlockInfo| block.kind == BlockKind::Data && block.content.is_ok();
        let handle =
            |block: &BlockInfo| Handle { offset: block.offset, bytes: block.bytes as usize };
        let blocks = blocks.iter().filter(is_good).map(handle).rev().collect();
        Ok(Self { source, blocks, block: None, at: 0, key: Vec::new() })
    }

    /// Advances to the next entry. Returns whether there is one.
    ///
    /// # Errors
    /// If a block that `layout` found good can no longer be read.
    pub fn advance(&mut self) -> Result<bool, Error> {
        self.at += 1;
        while self.block.as_ref().is_none_or(|(_, block)| self.at >= block.view().count()) {
            let Some(handle) = self.blocks.pop() else {
                self.block = None;
                return Ok(false);
            };
            let mut stored = zeroed(handle.bytes);
            if let Some(room) = Arc::get_mut(&mut stored) {
                self.source.read_into(handle.offset, room)?;
            }
            self.block = Some((handle, self.source.open_block(&stored, 0, handle)?));
            self.at = 0;
        }
        let Some((handle, block)) = &self.block else { return Ok(false) };
        let (prefix, suffix) = block
            .view()
            .key(self.at)
            .map_err(|fault| fault.at(&self.source.path, handle.offset))?;
        self.key.clear();
        self.key.extend_from_slice(prefix);
        self.key.extend_from_slice(suffix);
        Ok(true)
    }

    /// The current entry.
    ///
    /// # Errors
    /// If the entry is corrupt.
    pub fn entry(&self) -> Result<Option<EntryRef<'_>>, Error> {
        let Some((handle, block)) = &self.block else { return Ok(None) };
        let view = block.view();
        let read = || {
            let (seqno, kind) = view.trailer(self.at)?;
            Ok((seqno, kind, view.value(self.at)?))
        };
        let (seqno, kind, value) = read()
            .map_err(|fault: crate::format::Fault| fault.at(&self.source.path, handle.offset))?;
        let value = view.payload.get(value).unwrap_or_default();
        Ok(Some(EntryRef { key: &self.key, seqno, kind, value }))
    }
}

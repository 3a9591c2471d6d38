//! The layout of a table's file, block by block, for tools that inspect files, including corrupt
//! ones.
//!
//! 1. The footer gives the bounds of the regions; without a valid footer nothing is known.
//! 2. Read the top index, its leaves if there are any, and each data block they list.
//! 3. List an unusable or unreadable block with the reason, and continue. If an index block is
//!    unusable, its data blocks are listed as one range with unknown inner bounds.
//!
//! The file is read front to back, one block at a time, bypassing every cache. Blocks are checked
//! one by one; [`Table::verify`](crate::Table::verify) checks how they fit together.

use std::path::Path;
use std::sync::Arc;

use trommel_filter::{DecodeError, Filter, RangeFilter};
use trommel_vfs::ReadFile;

use crate::block::Block;
use crate::compression::{self, zeroed};
use crate::filters::{Listed, parts_of};
use crate::format::{BlockKind, FOOTER_BYTES, FRAME_BYTES, Fault, Footer, Handle};
use crate::index::Index;
use crate::index_tree::IndexTree;
use crate::source::Source;
use crate::table::read_footer;
use crate::{Error, FilterPart, FilterRole, FilterShape, Properties};

/// One range of a table's file: a block with its frame, or the footer.
#[derive(Debug, Clone)]
pub struct BlockInfo {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes, frame included.
    pub bytes: u64,
    /// Its kind.
    pub kind: BlockKind,
    /// The content, or the reason why the block cannot be used.
    pub content: Result<BlockContent, String>,
}

/// The content of a valid block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockContent {
    /// How it is compressed; `none` if it is not.
    pub compression: &'static str,
    /// Bytes of its payload, decompressed.
    pub raw_bytes: u64,
    /// Entries of a data block, separators of an index block, keys of a filter of a known kind;
    /// otherwise 0.
    pub items: u64,
    /// First key of a data block, first separator of an index block; otherwise empty.
    pub first_key: Vec<u8>,
    /// Last key of a data block, last separator of an index block; otherwise empty.
    pub last_key: Vec<u8>,
    /// Bytes of the keys of a data block as stored, without shared prefixes.
    pub key_bytes: u64,
    /// Bytes of the values of a data block.
    pub value_bytes: u64,
}

/// All blocks of the table in `file`, in file order, without gaps. `path` names it in errors.
///
/// # Errors
/// [`Error::Corruption`], [`Error::Unsupported`] or [`Error::Io`] if the footer cannot be used or
/// read. An error in any other block, a failed read included, is returned in its
/// [`BlockInfo::content`].
pub fn layout(file: &Arc<dyn ReadFile>, path: &Path) -> Result<Vec<BlockInfo>, Error> {
    let footer = read_footer(&**file, path)?;
    let source = Source::uncached(Arc::clone(file), path, footer.table_id, footer.data_bytes);
    let mut scan = LayoutScan { source, footer, data: Vec::new(), leaves: Vec::new(), reached: 0 };
    let index = scan.index();
    match &index {
        Ok((tree, _)) => scan.leaves(tree),
        Err(_) if footer.leaves_bytes > 0 => {
            let (offset, bytes) = (footer.leaves_offset(), footer.leaves_bytes);
            let content = Err(unlisted());
            scan.leaves.push(BlockInfo { offset, bytes, kind: BlockKind::IndexLeaf, content });
        }
        Err(_) => {}
    }
    scan.skip_to(footer.data_bytes);
    let (properties, stored) = scan.properties();
    let filters = scan.filters(&stored.unwrap_or_default());
    let LayoutScan { mut data, leaves, .. } = scan;
    data.extend(filters);
    data.extend(leaves);
    let (offset, bytes) = (footer.index_offset(), footer.index_bytes);
    let content = index.map(|(_, content)| content);
    data.push(BlockInfo { offset, bytes, kind: BlockKind::IndexTop, content });
    data.push(properties);
    data.push(BlockInfo {
        offset: file.bytes() - FOOTER_BYTES as u64,
        bytes: FOOTER_BYTES as u64,
        kind: BlockKind::Footer,
        content: Ok(plain(FOOTER_BYTES as u64)),
    });
    Ok(data)
}

/// The content of an uncompressed block with only its length known.
pub(crate) fn plain(raw_bytes: u64) -> BlockContent {
    BlockContent { compression: "none", raw_bytes, ..BlockContent::default() }
}

/// The reason why a block cannot be used, as text. A failed read concerns this block only.
pub(crate) fn in_words<T>(result: Result<T, Error>) -> Result<T, String> {
    result.map_err(|error| match error {
        Error::Corruption(damage) => damage.what.into_owned(),
        Error::Unsupported { what, .. } => what.into_owned(),
        Error::Io { source, .. } => source.to_string(),
        other => other.to_string(),
    })
}

/// The reason given for a range that no valid index block lists.
const UNLISTED: &str = "the index block that says where its blocks begin cannot be used";

fn unlisted() -> String {
    UNLISTED.into()
}

struct LayoutScan {
    source: Source,
    footer: Footer,
    data: Vec<BlockInfo>,
    leaves: Vec<BlockInfo>,
    /// End of the data blocks listed so far.
    reached: u64,
}

impl LayoutScan {
    /// The top index and its description.
    fn index(&self) -> Result<(IndexTree, BlockContent), String> {
        let offset = self.footer.index_offset();
        let handle = Handle { offset, bytes: self.footer.index_bytes as usize };
        let tree = self.source.read_plain(handle, BlockKind::IndexTop).and_then(|payload| {
            IndexTree::decode(&payload, &self.footer)
                .map_err(|fault| fault.at(&self.source.path, offset))
        });
        in_words(tree.map(|tree| {
            let content = content_of(tree.top(), handle);
            (tree, content)
        }))
    }

    /// Lists every leaf and every block in it.
    fn leaves(&mut self, tree: &IndexTree) {
        if !self.footer.has_two_levels() {
            return self.blocks(tree.top());
        }
        for i in 0..tree.leaf_count() {
            let Some(handle) = tree.top().handle(i) else { continue };
            let leaf = in_words(tree.read_leaf(i, &self.source));
            if let Ok(leaf) = &leaf {
                self.blocks(leaf);
            }
            self.leaves.push(BlockInfo {
                offset: handle.offset,
                bytes: handle.bytes as u64,
                kind: BlockKind::IndexLeaf,
                content: leaf.map(|leaf| content_of(&leaf, handle)),
            });
        }
    }

    /// Lists a range of data that no valid index block covers.
    fn skip_to(&mut self, offset: u64) {
        if offset > self.reached {
            self.data.push(BlockInfo {
                offset: self.reached,
                bytes: offset - self.reached,
                kind: BlockKind::Data,
                content: Err(unlisted()),
            });
            self.reached = offset;
        }
    }

    /// Lists the blocks of one index block.
    fn blocks(&mut self, leaf: &Index) {
        for handle in (0..leaf.len()).map_while(|slot| leaf.handle(slot)) {
            // Leaves that contradict each other might list a block twice.
            if handle.offset < self.reached {
                continue;
            }
            self.skip_to(handle.offset);
            self.data.push(BlockInfo {
                offset: handle.offset,
                bytes: handle.bytes as u64,
                kind: BlockKind::Data,
                content: in_words(self.block(handle)),
            });
            self.reached = handle.end();
        }
    }

    fn block(&self, handle: Handle) -> Result<BlockContent, Error> {
        let mut stored = zeroed(handle.bytes);
        if let Some(room) = Arc::get_mut(&mut stored) {
            self.source.read_into(handle.offset, room)?;
        }
        let block = self.source.open_block(&stored, 0, handle)?;
        let number = handle.bytes.checked_sub(FRAME_BYTES).and_then(|at| stored.get(at));
        let compression = compression::name_of(number.copied().unwrap_or_default());
        let summed = sum(&block.view(), compression);
        summed.map_err(|fault| fault.at(&self.source.path, handle.offset))
    }

    /// One block for a whole part, several for a partitioned one. `properties` are empty if they
    /// cannot be read.
    fn filters(&self, properties: &Properties) -> Vec<BlockInfo> {
        let region = (self.footer.filter_offset(), self.footer.filter_bytes);
        let parts = match parts_of(&self.footer, properties) {
            Ok(parts) => parts,
            Err(why) => {
                let (offset, bytes) = region;
                let kind = BlockKind::Filter;
                return vec![BlockInfo { offset, bytes, kind, content: Err(why.into()) }];
            }
        };
        let mut blocks = Vec::new();
        // The callback returns no error, so this call returns none.
        let _ = blocks_of_parts(&self.source, &parts, region.0, &mut list_in(&mut blocks));
        blocks
    }

    fn properties(&self) -> (BlockInfo, Option<Properties>) {
        let (offset, bytes) = (self.footer.properties_offset(), self.footer.properties_bytes);
        let handle = Handle { offset, bytes: bytes as usize };
        let read = self.source.read_plain(handle, BlockKind::Properties).and_then(|payload| {
            let properties = Properties::decode(&payload)
                .map_err(|fault| fault.at(&self.source.path, offset))?;
            Ok((plain(payload.len() as u64), properties))
        });
        let (content, properties) = in_words(read).map_or_else(
            |why| (Err(why), None),
            |(content, properties)| (Ok(content), Some(properties)),
        );
        (BlockInfo { offset, bytes, kind: BlockKind::Properties, content }, properties)
    }
}

/// Callback for a block: its location, its kind, and its content or error. An error that it returns
/// ends the iteration.
pub(crate) type TakeBlock<'a> =
    dyn FnMut(Handle, BlockKind, Result<BlockContent, Error>) -> Result<(), Error> + 'a;

/// A callback that adds each block to `blocks`.
pub(crate) fn list_in(
    blocks: &mut Vec<BlockInfo>,
) -> impl FnMut(Handle, BlockKind, Result<BlockContent, Error>) -> Result<(), Error> {
    |handle, kind, content| {
        let (offset, bytes) = (handle.offset, handle.bytes as u64);
        blocks.push(BlockInfo { offset, bytes, kind, content: in_words(content) });
        Ok(())
    }
}

/// Passes the blocks of all parts of the filter region at `offset` of `source` to `take`.
pub(crate) fn blocks_of_parts(
    source: &Source,
    parts: &[Listed],
    mut offset: u64,
    take: &mut TakeBlock<'_>,
) -> Result<(), Error> {
    for listed in parts {
        let bytes = listed.bytes();
        match listed {
            Listed::Part(part) => blocks_of(source, part, offset, take)?,
            // A newer build wrote it. Its blocks cannot be located, and that is not corruption.
            Listed::Later { .. } => {
                let handle = Handle { offset, bytes: bytes as usize };
                take(handle, BlockKind::Filter, Ok(plain(bytes)))?;
            }
        }
        offset += bytes;
    }
    Ok(())
}

/// Passes the blocks of the part that starts at `offset` of `source` to `take`: one for a whole
/// part, the partitions and their top index for a partitioned one.
fn blocks_of(
    source: &Source,
    part: &FilterPart,
    offset: u64,
    take: &mut TakeBlock<'_>,
) -> Result<(), Error> {
    if part.shape == FilterShape::Whole {
        let handle = Handle { offset, bytes: part.bytes as usize };
        return take(handle, BlockKind::Filter, read_filter(source, handle, part));
    }
    let before = part.bytes - part.top_bytes;
    let handle = Handle { offset: offset + before, bytes: part.top_bytes as usize };
    let top = read_top(source, handle, offset);
    match &top {
        Ok(top) => {
            for partition in (0..top.len()).map_while(|i| top.handle(i)) {
                take(partition, BlockKind::Filter, read_filter(source, partition, part))?;
            }
        }
        Err(error) => {
            let partitions = Handle { offset, bytes: before as usize };
            let error = match error {
                Error::Io { .. } => error.clone(),
                _ => Fault::Damaged(UNLISTED).at(&source.path, offset),
            };
            take(partitions, BlockKind::Filter, Err(error))?;
        }
    }
    let content = top.map(|top| content_of(&top, handle));
    take(handle, BlockKind::FilterTop, content)
}

/// The top index of the partitions between `first` and the top itself.
fn read_top(source: &Source, handle: Handle, first: u64) -> Result<Index, Error> {
    let payload = source.read_plain(handle, BlockKind::FilterTop)?;
    Index::decode(&payload, handle.offset)
        .and_then(|top| match top.range() == (first, handle.offset) {
            true => Ok(top),
            false => Err(Fault::Damaged("the top does not cover its partitions")),
        })
        .map_err(|fault| fault.at(&source.path, handle.offset))
}

/// One block of the filter region, from `part`.
fn read_filter(source: &Source, handle: Handle, part: &FilterPart) -> Result<BlockContent, Error> {
    let payload = source.read_plain(handle, BlockKind::Filter)?;
    let keys = match part.shape {
        // A user-defined filter cannot be checked here; only the directory has its key count.
        FilterShape::Whole if !part.policy.is_empty() => Ok(part.keys),
        _ if !part.policy.is_empty() => Ok(0),
        _ if part.role == FilterRole::Ranges => {
            RangeFilter::decode(&payload).map(|filter| filter.keys())
        }
        _ => Filter::decode(&payload).map(|filter| filter.keys()),
    };
    let items = match keys {
        Ok(items) => items,
        Err(DecodeError::Unknown { .. }) => 0,
        Err(error) => {
            let what = format!("the filter cannot be used: {error}");
            let damage = trommel_base::Corruption::new(&source.path, handle.offset, what);
            return Err(Error::Corruption(damage));
        }
    };
    Ok(BlockContent { items, ..plain(payload.len() as u64) })
}

fn content_of(index: &Index, handle: Handle) -> BlockContent {
    let separator = |i: Option<usize>| {
        i.filter(|i| *i < index.len()).map(|i| index.separator(i)).unwrap_or_default()
    };
    BlockContent {
        items: index.len() as u64,
        first_key: separator(Some(0)),
        last_key: separator(index.len().checked_sub(1)),
        ..plain(handle.bytes.saturating_sub(FRAME_BYTES) as u64)
    }
}

fn sum(block: &Block<'_>, compression: &'static str) -> Result<BlockContent, Fault> {
    let key = |i| block.key(i).map(|(prefix, suffix)| [prefix, suffix].concat());
    let (mut key_bytes, mut value_bytes) = (0, 0);
    for i in 0..block.count() {
        block.trailer(i)?;
        key_bytes += block.stored_key(i)?.suffix.len() as u64;
        value_bytes += block.value(i)?.len() as u64;
    }
    Ok(BlockContent {
        compression,
        raw_bytes: block.payload.len() as u64,
        items: block.count() as u64,
        first_key: key(0)?,
        last_key: key(block.count() - 1)?,
        key_bytes,
        value_bytes,
    })
}

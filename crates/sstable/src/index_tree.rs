//! The index of a table: one level, or a top index and leaves that are loaded on first use.
//!
//! 1. A search reads the top index, then one leaf, which is read from the file, bypassing the block
//!    cache, if it is not in memory. A leaf stays in memory as long as the table is open, and is
//!    reported to the table's host.
//! 2. The tree also holds the slots of the table's blocks, so a location that it returns includes
//!    the block's slot.

use std::sync::{Arc, OnceLock};

use crate::Error;
use crate::block_slots::{BlockLocation, BlockSlots};
use crate::filter_host::{FilterHost, LoadedMemory};
use crate::format::{BlockKind, Fault, Footer, Handle};
use crate::index::{At, DAMAGED, Index};
use crate::source::{ReadStats, Source};

/// The index of one table.
#[derive(Debug)]
pub(crate) struct IndexTree {
    top: Index,
    /// One cell per leaf; empty if the index has one level and the top is the only leaf.
    leaves: Box<[OnceLock<Index>]>,
    leaves_memory: LoadedMemory,
    /// Slots of the cached blocks.
    slots: BlockSlots,
}

impl IndexTree {
    /// Decodes the top index and checks it against the footer.
    pub(crate) fn decode(payload: &[u8], footer: &Footer) -> Result<Self, Fault> {
        let (region, leaves) = if footer.has_two_levels() {
            ((footer.leaves_offset(), footer.index_offset()), true)
        } else {
            ((0, footer.data_bytes), false)
        };
        let top = Index::decode(payload, region.1)?;
        if top.range() != region {
            return Err(Fault::Damaged("the index does not cover its region of the file"));
        }
        let cells = if leaves { top.len() } else { 0 };
        Ok(Self {
            top,
            leaves: std::iter::repeat_with(OnceLock::new).take(cells).collect(),
            leaves_memory: LoadedMemory::default(),
            slots: BlockSlots::new(cells.max(1)),
        })
    }

    /// Sets the host that accounts for the memory of the leaves.
    pub(crate) fn held_by(self, host: Option<Arc<dyn FilterHost>>) -> Self {
        Self { leaves_memory: LoadedMemory::new(host), ..self }
    }

    /// The host that accounts for the memory.
    pub(crate) fn host(&self) -> Option<Arc<dyn FilterHost>> {
        self.leaves_memory.host()
    }

    /// The number of leaves: at least one.
    pub(crate) fn leaf_count(&self) -> usize {
        self.leaves.len().max(1)
    }

    /// The separators of the leaves, or of the blocks if there is one level.
    pub(crate) fn top(&self) -> &Index {
        &self.top
    }

    /// Replaces the contents of `out` by the separator before the block at `at` of `leaf`. Returns
    /// false, and leaves it, if that is the first block of the table.
    #[inline]
    pub(crate) fn separator_before(&self, leaf: &Index, at: At, out: &mut Vec<u8>) -> bool {
        match (at.slot.checked_sub(1), at.leaf.checked_sub(1)) {
            (Some(before), _) => leaf.separator_into(before, out),
            (None, Some(before)) => self.top.separator_into(before, out),
            (None, None) => return false,
        }
        true
    }

    /// Leaf `i`, from memory or from the file.
    #[inline]
    pub(crate) fn leaf(
        &self,
        i: usize,
        source: &Source,
        stats: &mut ReadStats,
    ) -> Result<&Index, Error> {
        let Some(cell) = self.leaves.get(i) else { return Ok(&self.top) };
        match cell.get() {
            Some(leaf) => Ok(leaf),
            None => self.load(i, cell, source, stats),
        }
    }

    /// Leaf `i`, if it is in memory.
    #[inline]
    pub(crate) fn loaded_leaf(&self, i: usize) -> Option<&Index> {
        if self.leaves.is_empty() { Some(&self.top) } else { self.leaves.get(i)?.get() }
    }

    /// The leaves that are in memory.
    pub(crate) fn loaded_leaves(&self) -> impl Iterator<Item = &Index> {
        let only = self.leaves.is_empty().then_some(&self.top);
        only.into_iter().chain(self.leaves.iter().filter_map(OnceLock::get))
    }

    #[cold]
    fn load<'a>(
        &'a self,
        i: usize,
        cell: &'a OnceLock<Index>,
        source: &Source,
        stats: &mut ReadStats,
    ) -> Result<&'a Index, Error> {
        stats.index_reads += 1;
        let leaf = self.read_leaf(i, source)?;
        let memory = leaf.heap_bytes();
        self.leaves_memory.add(memory);
        // Two readers may load the same leaf; one copy is kept.
        if cell.set(leaf).is_err() {
            self.leaves_memory.take_back(memory);
        }
        Ok(cell.get().unwrap_or(&self.top))
    }

    /// Reads leaf `i` from the file, whether or not it is in memory.
    pub(crate) fn read_leaf(&self, i: usize, source: &Source) -> Result<Index, Error> {
        let handle = self.top.handle(i).unwrap_or(Handle { offset: 0, bytes: 0 });
        let payload = source.read_plain(handle, BlockKind::IndexLeaf)?;
        let leaf = Index::decode(&payload, source.data_bytes)
            .and_then(|leaf| if leaf.len() == 0 { Err(DAMAGED) } else { Ok(leaf) });
        leaf.map_err(|fault| fault.at(&source.path, handle.offset))
    }

    /// Passes every leaf to `take`, read from the file, with its number.
    pub(crate) fn each_leaf<E: From<Error>>(
        &self,
        source: &Source,
        mut take: impl FnMut(usize, &Index) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.leaves.is_empty() {
            return take(0, &self.top);
        }
        (0..self.leaf_count()).try_for_each(|i| take(i, &self.read_leaf(i, source)?))
    }

    /// The first block whose separator is not smaller than `key`, with its leaf. Always inlined:
    /// otherwise a seek takes 30 instructions more in each table.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        key: &[u8],
        source: &Source,
        stats: &mut ReadStats,
    ) -> Result<Option<(&Index, At)>, Error> {
        let mut at = At { leaf: 0, slot: 0 };
        if !self.leaves.is_empty() {
            at.leaf = self.top.find(key);
            if at.leaf == self.top.len() {
                return Ok(None);
            }
        }
        let leaf = self.leaf(at.leaf, source, stats)?;
        at.slot = leaf.find(key);
        if at.slot < leaf.len() {
            return Ok(Some((leaf, at)));
        }
        // Reached only if a leaf disagrees with the top index, according to which the key is not
        // after the leaf.
        self.next(at, source, stats)
    }

    /// The block after `at`, with its leaf.
    #[inline]
    pub(crate) fn next(
        &self,
        at: At,
        source: &Source,
        stats: &mut ReadStats,
    ) -> Result<Option<(&Index, At)>, Error> {
        let leaf = self.leaf(at.leaf, source, stats)?;
        if at.slot + 1 < leaf.len() {
            return Ok(Some((leaf, At { slot: at.slot + 1, ..at })));
        }
        if at.leaf + 1 >= self.leaf_count() {
            return Ok(None);
        }
        let leaf = self.leaf(at.leaf + 1, source, stats)?;
        Ok((leaf.len() > 0).then_some((leaf, At { leaf: at.leaf + 1, slot: 0 })))
    }

    /// The block before `at`, with its leaf.
    pub(crate) fn previous(
        &self,
        at: At,
        source: &Source,
        stats: &mut ReadStats,
    ) -> Result<Option<(&Index, At)>, Error> {
        if let Some(slot) = at.slot.checked_sub(1) {
            return Ok(Some((self.leaf(at.leaf, source, stats)?, At { slot, ..at })));
        }
        match at.leaf.checked_sub(1) {
            None => Ok(None),
            Some(leaf) => self.last_of(leaf, source, stats),
        }
    }

    /// The first block of the table.
    pub(crate) fn first(
        &self,
        source: &Source,
        stats: &mut ReadStats,
    ) -> Result<Option<(&Index, At)>, Error> {
        let leaf = self.leaf(0, source, stats)?;
        Ok((leaf.len() > 0).then_some((leaf, At { leaf: 0, slot: 0 })))
    }

    /// The last block of the table.
    pub(crate) fn last(
        &self,
        source: &Source,
        stats: &mut ReadStats,
    ) -> Result<Option<(&Index, At)>, Error> {
        self.last_of(self.leaf_count() - 1, source, stats)
    }

    fn last_of(
        &self,
        leaf: usize,
        source: &Source,
        stats: &mut ReadStats,
    ) -> Result<Option<(&Index, At)>, Error> {
        let index = self.leaf(leaf, source, stats)?;
        Ok(index.len().checked_sub(1).map(|slot| (index, At { leaf, slot })))
    }

    /// Prefetches the slot of the block at `at`.
    #[inline]
    pub(crate) fn prefetch_slot(&self, at: At) {
        self.slots.prefetch(at);
    }

    /// Prefetches the memory that taking the block at `at` out of its slot reads, and the first
    /// that a search reads.
    #[inline]
    pub(crate) fn prefetch_block(&self, at: At) {
        self.slots.prefetch_block(at);
    }

    /// The location of the block at `at` in `leaf`; an invalid one if the leaf has no such block.
    #[inline]
    pub(crate) fn locate<'a>(&'a self, leaf: &'a Index, at: At) -> BlockLocation<'a> {
        let handle = leaf.handle(at.slot).unwrap_or(Handle { offset: 0, bytes: 0 });
        BlockLocation::new(&self.slots, leaf, at, handle)
    }

    /// Memory in use, in bytes, without slots, which are charged to the cache.
    pub(crate) fn memory_bytes(&self) -> usize {
        let cells = size_of_val(&*self.leaves) + self.slots.memory_bytes();
        let of_leaves = self.leaves_memory.bytes();
        size_of::<Self>() + self.top.heap_bytes() + cells + of_leaves
    }
}

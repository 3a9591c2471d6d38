//! Residency of filter blocks: in the table, or in the block cache.
//!
//! 1. A block is read when it is first queried, never when the table is opened.
//! 2. The table's [`FilterHost`](crate::FilterHost) decides whether its bytes may be *pinned*, in a
//!    [`FilterCell`]. They are charged before they are allocated, first by their upper bound, then
//!    by their actual size, and released after they are freed.
//! 3. Otherwise the block goes to the block cache like any other, and is evicted like one. A block
//!    that the cache cannot keep, or that would exceed the limit on memory for filters
//!    ([`FilterMemory`](crate::FilterMemory)), is not read at all: reading it again for each query
//!    would cost more than the data block that it might save.
//! 4. An unusable block is remembered as such: it answers "maybe", and the host is notified once
//!    per table. A block that the file system failed to read answers "maybe" this time, and is read
//!    again for the next query: a failed read is no evidence of corruption.

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;

use trommel_filter::RangeFilter;

use super::loader::{BlockForm, BlockLoader, Unread};
use crate::cache::CachedFilter;
use crate::filter_block::{
    FILTER_OVERHEAD_BYTES, FilterBlock, FilterCell, PartitionIndex, PinnedFilter,
};
use crate::filter_host::{FilterState, PinCharge};
use crate::format::Handle;
use crate::index::Index;
use crate::source::Source;

/// A filter block to query.
pub(super) enum Resident<'a> {
    Pinned(&'a FilterBlock),
    Cached(Arc<CachedFilter>),
}

impl Deref for Resident<'_> {
    type Target = FilterBlock;

    #[inline]
    fn deref(&self) -> &FilterBlock {
        match self {
            Self::Pinned(block) => block,
            Self::Cached(cached) => cached.block(),
        }
    }
}

impl Resident<'_> {
    /// The partitions, if this is their index.
    #[inline]
    pub(super) fn partitions(&self) -> Option<Partitions<'_>> {
        let FilterBlock::Partitions(top) = &**self else { return None };
        Some(Partitions { top, are_pinned: matches!(self, Self::Pinned(_)) })
    }
}

/// The partitions of a part, while their index is held.
#[derive(Clone, Copy)]
pub(super) struct Partitions<'a> {
    top: &'a PartitionIndex,
    /// Whether they may be pinned, that is, whether their index is.
    are_pinned: bool,
}

impl<'a> Partitions<'a> {
    /// Partition `i`, from memory or from the file; `None` if it is unusable or cannot be held.
    #[inline]
    pub(super) fn get(
        self,
        i: usize,
        loader: &BlockLoader,
        form: BlockForm,
    ) -> Option<Resident<'a>> {
        let cell = self.top.cell(i)?;
        match cell.pinned() {
            Some(block) => Some(Resident::Pinned(block)),
            None => loader.fetch(cell, form, self.index().handle(i)?, self.are_pinned),
        }
    }

    /// The separators of the partitions.
    #[inline]
    pub(super) fn index(self) -> &'a Index {
        self.top.index()
    }

    /// The partition that a search for `key` reaches.
    #[inline]
    pub(super) fn find(self, key: &[u8]) -> usize {
        self.top.find(key)
    }
}

impl BlockLoader {
    /// The block of `cell`, from memory or from the file; `None` if it is unusable or cannot be
    /// held.
    #[inline]
    pub(super) fn get<'a>(
        &self,
        cell: &'a FilterCell<PinnedFilter>,
        form: BlockForm,
        handle: impl FnOnce() -> Handle,
    ) -> Option<Resident<'a>> {
        match cell.pinned() {
            Some(block) => Some(Resident::Pinned(block)),
            None => self.fetch(cell, form, handle(), true),
        }
    }

    /// Like `get`, for a block that is not pinned. May pin it only if `may_pin`.
    #[cold]
    fn fetch<'a, P: Borrow<PinnedFilter> + From<PinnedFilter>>(
        &self,
        cell: &'a FilterCell<P>,
        form: BlockForm,
        handle: Handle,
        may_pin: bool,
    ) -> Option<Resident<'a>> {
        if cell.is_unusable() {
            return None;
        }
        let bytes = most_memory(handle, form);
        // A granted charge is released at once: the thread that gets the lock takes it again.
        if !may_pin || self.charge(bytes).is_none() {
            let Source { cache, number, .. } = &*self.source;
            if let Some(cached) = cache.filter(*number, handle.offset) {
                return Some(Resident::Cached(cached));
            }
            if !cache.can_keep(bytes) || cache.charge_filter(bytes).is_none() {
                if cell.report_once() {
                    self.report_not_held();
                }
                return None;
            }
        }
        let _guard = (!matches!(form, BlockForm::User)).then(|| self.lock_block(handle.offset));
        self.load(cell, form, handle, may_pin)
    }

    /// Reads the block into memory, unless another thread has just done so.
    fn load<'a, P: Borrow<PinnedFilter> + From<PinnedFilter>>(
        &self,
        cell: &'a FilterCell<P>,
        form: BlockForm,
        handle: Handle,
        may_pin: bool,
    ) -> Option<Resident<'a>> {
        if let Some(block) = cell.pinned() {
            return Some(Resident::Pinned(block));
        }
        let Source { cache, number, .. } = &*self.source;
        let most = most_memory(handle, form);
        if let Some(charge) = may_pin.then(|| self.charge(most)).flatten() {
            let block = self.read_or_mark(cell, form, handle)?;
            let charge = self.charge_all(cell, charge, block.memory_bytes(handle.bytes))?;
            cache.remove(*number, handle.offset);
            return cell.pin(block, charge).map(Resident::Pinned);
        }
        if let Some(cached) = cache.filter(*number, handle.offset) {
            return Some(Resident::Cached(cached));
        }
        let mut charge = cache.can_keep(most).then(|| cache.charge_filter(most)).flatten()?;
        let block = self.read_or_mark(cell, form, handle)?;
        let bytes = block.memory_bytes(handle.bytes);
        if !cache.can_keep(bytes) {
            self.refuse(cell, bytes);
            return None;
        }
        if !charge.resize(bytes) {
            return None;
        }
        Some(Resident::Cached(cache.insert_filter(*number, handle.offset, block, charge)))
    }

    /// Reads the block; marks it if it is unusable.
    fn read_or_mark<P: Borrow<PinnedFilter> + From<PinnedFilter>>(
        &self,
        cell: &FilterCell<P>,
        form: BlockForm,
        handle: Handle,
    ) -> Option<FilterBlock> {
        match self.read(handle, form) {
            Ok(block) => Some(block),
            Err(Unread::Failed(_)) => None,
            Err(Unread::Useless(state)) => {
                cell.mark_unusable();
                self.note(state);
                None
            }
        }
    }

    /// Adjusts the charge to the actual size of the block, `bytes`.
    fn charge_all<P: Borrow<PinnedFilter> + From<PinnedFilter>>(
        &self,
        cell: &FilterCell<P>,
        mut charge: PinCharge,
        bytes: u64,
    ) -> Option<PinCharge> {
        if bytes <= charge.bytes() {
            charge.shrink_to(bytes);
            return Some(charge);
        }
        drop(charge);
        let charge = self.charge(bytes);
        if charge.is_none() {
            self.refuse(cell, bytes);
        }
        charge
    }

    /// Marks a user-defined filter as unusable because it exceeds the memory available.
    fn refuse<P: Borrow<PinnedFilter> + From<PinnedFilter>>(
        &self,
        cell: &FilterCell<P>,
        bytes: u64,
    ) {
        cell.mark_unusable();
        let why = format!("it takes {bytes} bytes of memory, more than it may have");
        self.note(FilterState::Foreign(why));
    }
}

/// Most bytes of memory of a built-in block: a filter of hashes takes no more than in the file; a
/// partition index, with the cells counted with it, takes less than four times as much.
fn most_memory(handle: Handle, form: BlockForm) -> u64 {
    let bytes = match form {
        BlockForm::Partitions { .. } => 4 * handle.bytes,
        BlockForm::Ranges => RangeFilter::most_memory_bytes(handle.bytes),
        BlockForm::Filter | BlockForm::User | BlockForm::Foreign => handle.bytes,
    };
    bytes as u64 + FILTER_OVERHEAD_BYTES
}

//! Decoded blocks of a filter region, and the cells in which a table pins them.
//!
//! 1. A cell is read without a lock, with one load. It is filled once; its memory is charged to the
//!    table's host as long as the table is open.
//! 2. The cells of a part's partitions belong to the partition index and are counted with it.
//!    Partitions are pinned only if their index is, so evicting an index drops no pinned bytes.
//!
//! `filters/resident.rs` decides which blocks are read, and where each is held.

use std::borrow::Borrow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use trommel_filter::{Filter, RangeFilter};

use crate::filter_host::PinCharge;
use crate::format::Handle;
use crate::index::Index;
use crate::user_filter::OpenUserFilter;
use crate::verdict::{Answers, Verdict};

/// A block of the filter region, decoded.
#[derive(Debug)]
pub(crate) enum FilterBlock {
    /// A filter, of the whole table or of a range of its keys.
    Filter(Filter),
    /// The index of the partitions of a part.
    Partitions(PartitionIndex),
    /// A user-defined filter.
    User(OpenUserFilter),
    /// A range filter, of the data blocks of one leaf of the index.
    Ranges(Box<RangeFilter>),
}

impl FilterBlock {
    /// The filter's verdict on `key`, whose hash is `hash`.
    #[inline]
    pub(crate) fn verdict(&self, key: &[u8], hash: u64) -> Verdict {
        match self {
            Self::Filter(filter) => Verdict::of(filter, hash),
            Self::User(filter) => filter.verdict(key, hash),
            Self::Partitions(_) | Self::Ranges(_) => Verdict::UNFILTERED,
        }
    }

    /// The filter's verdicts on many keys.
    pub(crate) fn answer(&self, keys: &[&[u8]], hashes: &[u64], answers: &mut Answers) {
        if let Self::Filter(filter) = self {
            let (kind, expected) = (filter.kind().into(), filter.expected_fpr());
            let verdict = Verdict { maybe: true, kind, expected };
            filter.may_contain_many(hashes, answers.add(hashes.len(), verdict));
            return;
        }
        for (key, hash) in keys.iter().zip(hashes) {
            answers.add_one(self.verdict(key, *hash));
        }
    }

    /// Memory in bytes. `stored` is the length in the file, the minimum for a user-defined filter
    /// whatever it reports.
    pub(crate) fn memory_bytes(&self, stored: usize) -> u64 {
        let heap = match self {
            Self::Filter(filter) => filter.memory_bytes() - size_of::<Filter>(),
            Self::Partitions(top) => top.index.heap_bytes() + size_of_val(&*top.cells),
            Self::User(filter) => filter.memory_bytes().max(stored),
            Self::Ranges(filter) => filter.memory_bytes(),
        };
        FILTER_OVERHEAD_BYTES + heap as u64
    }
}

/// The index of a part's partitions, with a cell for each.
#[derive(Debug)]
pub(crate) struct PartitionIndex {
    index: Index,
    cells: Box<[FilterCell<Box<PinnedFilter>>]>,
}

impl PartitionIndex {
    pub(crate) fn new(index: Index) -> Self {
        let cells = std::iter::repeat_with(FilterCell::default).take(index.len()).collect();
        Self { index, cells }
    }

    /// The index of the partitions: separators and locations.
    #[inline]
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// The cell of partition `i`.
    #[inline]
    pub(crate) fn cell(&self, i: usize) -> Option<&FilterCell<Box<PinnedFilter>>> {
        self.cells.get(i)
    }

    /// The partition that a search for `key` reaches.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> usize {
        self.index.find(key).min(self.index.len() - 1)
    }

    /// The locations of the partitions.
    pub(crate) fn handles(&self) -> impl Iterator<Item = Handle> {
        (0..self.index.len()).map_while(|i| self.index.handle(i))
    }

    /// Bytes of pinned partitions.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.cells.iter().map(FilterCell::pinned_bytes).sum()
    }
}

/// A block that stays in memory as long as its table is open. (Fields drop in order: the block
/// before its charge.)
#[derive(Debug)]
pub(crate) struct PinnedFilter {
    block: FilterBlock,
    charge: PinCharge,
}

/// Most bytes that a whole filter takes in memory in addition to those in the file.
pub const FILTER_OVERHEAD_BYTES: u64 = size_of::<PinnedFilter>() as u64;

/// The cell in which a table pins one block. `P` is [`PinnedFilter`] itself for a single cell, and
/// a box of it where there are many cells.
#[derive(Debug)]
pub(crate) struct FilterCell<P> {
    pinned: OnceLock<P>,
    is_unusable: AtomicBool,
    /// Whether the host was notified that the block can be held nowhere.
    is_reported: AtomicBool,
}

impl<P> Default for FilterCell<P> {
    fn default() -> Self {
        Self {
            pinned: OnceLock::new(),
            is_unusable: AtomicBool::new(false),
            is_reported: AtomicBool::new(false),
        }
    }
}

impl<P: Borrow<PinnedFilter> + From<PinnedFilter>> FilterCell<P> {
    /// The block, if it is pinned.
    #[inline]
    pub(crate) fn pinned(&self) -> Option<&FilterBlock> {
        self.pinned.get().map(|pinned| &pinned.borrow().block)
    }

    /// Pins a block, unless one is pinned already. Returns the pinned block.
    pub(crate) fn pin(&self, block: FilterBlock, charge: PinCharge) -> Option<&FilterBlock> {
        let _ = self.pinned.set(PinnedFilter { block, charge }.into());
        self.pinned()
    }

    /// Bytes pinned.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned.get().map_or(0, |pinned| pinned.borrow().charge.bytes())
    }

    /// Whether the block was found unusable.
    pub(crate) fn is_unusable(&self) -> bool {
        self.is_unusable.load(Ordering::Relaxed)
    }

    /// Marks the block as unusable.
    pub(crate) fn mark_unusable(&self) {
        self.is_unusable.store(true, Ordering::Relaxed);
    }

    /// Whether this call is the first to report that the block can be held nowhere.
    pub(crate) fn report_once(&self) -> bool {
        !self.is_reported.load(Ordering::Relaxed) && !self.is_reported.swap(true, Ordering::Relaxed)
    }
}

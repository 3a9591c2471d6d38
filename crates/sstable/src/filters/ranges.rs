//! The part for ranges of keys: lets a bounded scan skip data blocks that hold nothing in its
//! range.
//!
//! 1. A [range filter](trommel_filter::RangeFilter) records where in each data block the keys are,
//!    relative to the separators of the index. It covers the blocks of one leaf of the index, so
//!    that a position in the index is one in the filter. With one leaf the part is whole; otherwise
//!    it has a partition for each leaf, and separators in its top are the numbers of the leaves.
//! 2. Every user key that has an entry in a block is in its filter: a tombstone, a merge operand
//!    and an old version as well as the newest value. So a block that is skipped holds nothing that
//!    any reader could need of the range.
//! 3. A cursor refers to the part without keeping it in memory. If the table was closed, or the
//!    filter cannot be used, the answer is "maybe".

use std::fmt;

use trommel_filter::{BlockEnds, RangeFilter, RangeFilterBuilder, RangeSpec};

use super::directory::{FilterPart, FilterRole, FilterShape};
use super::loader::BlockLoader;
use super::part::{MISFIT, Part};
use super::part_builder::BuiltPart;
use crate::Error;
use crate::filter_host::FilterState;
use crate::format::FRAME_BYTES;
use crate::index::{At, Index, IndexBuilder};
use crate::index_tree::IndexTree;

/// The range of a scan, and its counters of the answers of range filters.
pub trait ScanRange: Send + Sync + fmt::Debug {
    /// The first key of the range.
    fn from(&self) -> &[u8];

    /// The first key after the range, if it has an end.
    fn to(&self) -> Option<&[u8]>;

    /// A filter with the expected rate `expected` denied that a block holds a key of the range, and
    /// the block was not read.
    fn skipped(&self, expected: f64);

    /// A filter with this rate answered "maybe", and the block was read. `is_true` if it has such a
    /// key.
    fn entered(&self, expected: f64, is_true: bool);
}

/// An answer of a range filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeAnswer {
    pub(crate) maybe: bool,
    /// The expected rate of the filter.
    pub(crate) expected: f64,
}

/// The part of an open table.
#[derive(Debug)]
pub(crate) struct RangePart {
    part: Part,
    /// A loader of its own, so that a cursor may outlive the table's.
    loader: BlockLoader,
    /// The smallest key of the table.
    smallest: Box<[u8]>,
}

impl RangePart {
    pub(super) fn new(part: Part, loader: BlockLoader, smallest: &[u8]) -> Self {
        Self { part, loader, smallest: smallest.into() }
    }

    pub(super) fn part(&self) -> &Part {
        &self.part
    }

    /// Reads all of it; what cannot be used is noted in [`fault`](Self::fault).
    pub(super) fn check(&self) -> Result<(), Error> {
        self.part.check(&self.loader)
    }

    /// Why it cannot be used, as far as it was read.
    pub(super) fn fault(&self) -> Option<&FilterState> {
        self.loader.fault()
    }

    /// Whether the block at `at` may hold a key from `from` to before `to`. `None` if no filter
    /// answers, or the leaf of the block is not in memory. `buffers` are overwritten.
    pub(crate) fn query(
        &self,
        index: &IndexTree,
        at: At,
        from: &[u8],
        to: Option<&[u8]>,
        buffers: &mut [Vec<u8>; 2],
    ) -> Option<RangeAnswer> {
        let leaf = index.loaded_leaf(at.leaf)?;
        self.query_in(index, leaf, at, from, to, buffers)
    }

    /// As `query`, for a block of `leaf`.
    pub(crate) fn query_in(
        &self,
        index: &IndexTree,
        leaf: &Index,
        at: At,
        from: &[u8],
        to: Option<&[u8]>,
        buffers: &mut [Vec<u8>; 2],
    ) -> Option<RangeAnswer> {
        let [first, last] = buffers;
        if !index.separator_before(leaf, at, first) {
            first.clear();
            first.extend_from_slice(&self.smallest);
        }
        leaf.separator_into(at.slot, last);
        let ends = BlockEnds { first, last };
        let query = |filter: &RangeFilter| {
            let fits = filter.blocks() == leaf.len();
            let maybe = !fits || filter.may_hold(at.slot, ends, from, to);
            fits.then(|| RangeAnswer { maybe, expected: filter.expected_fpr() })
        };
        let answer = self.part.with_ranges_of(at.leaf, index.leaf_count(), &self.loader, query)?;
        if answer.is_none() {
            self.loader.note(FilterState::Damaged(MISFIT.into()));
        }
        answer
    }
}

/// Builds the part. A leaf's filter is built when the leaf ends, so that memory holds only the keys
/// of one leaf, and the finished filters.
#[derive(Debug)]
pub(crate) struct RangesBuilder {
    /// The filter of the open leaf.
    open: RangeFilterBuilder,
    /// The separator before the open block, or the first key.
    first: Vec<u8>,
    has_key: bool,
    /// The finished filters, and their index.
    partitions: Vec<Vec<u8>>,
    top: IndexBuilder,
    /// Their keys, blocks and bytes, and the sum of their rates, weighted by blocks.
    keys: u64,
    blocks: usize,
    bytes: u64,
    expected_passes: f64,
    /// Estimated bytes of the part if it had been finished after the last block.
    estimated: u64,
}

impl RangesBuilder {
    /// A builder of filters as `spec` has them; `None` if it has none.
    pub(super) fn new(spec: RangeSpec) -> Option<Self> {
        let is_wanted = spec != RangeSpec::NONE;
        is_wanted.then(|| Self {
            open: spec.builder(),
            first: Vec::new(),
            has_key: false,
            partitions: Vec::new(),
            top: IndexBuilder::default(),
            keys: 0,
            blocks: 0,
            bytes: 0,
            expected_passes: 0.0,
            estimated: 0,
        })
    }

    /// Adds a key of the open block.
    #[inline]
    pub(super) fn add(&mut self, key: &[u8]) {
        if !self.has_key {
            self.has_key = true;
            self.first.extend_from_slice(key);
        }
        self.open.add(key);
    }

    /// Ends a data block.
    pub(super) fn end_block(&mut self, separator: &[u8]) {
        self.open.end_block(BlockEnds { first: &self.first, last: separator });
        self.first.clear();
        self.first.extend_from_slice(separator);
        self.estimated = self.bytes + self.open.spec().expected_bytes(self.open.len());
    }

    /// Ends a leaf of the index, after the last block that was ended.
    pub(super) fn end_leaf(&mut self) {
        let (keys, blocks) = (self.open.len(), self.open.blocks());
        let payload = self.open.take_blocks();
        self.keys += keys;
        self.blocks += blocks;
        self.expected_passes += blocks as f64 * RangeFilter::peek_expected_fpr(&payload);
        let stored = (payload.len() + FRAME_BYTES) as u32;
        self.bytes += u64::from(stored);
        let leaf = self.partitions.len() as u32;
        self.top.push(&leaf.swap_bytes().to_le_bytes(), stored);
        self.partitions.push(payload);
    }

    /// Estimated bytes of the part if it were finished now.
    #[inline]
    pub(super) fn estimated_bytes(&self) -> u64 {
        self.estimated
    }

    /// Most bytes of memory that the build takes from now to its end, if few keys follow.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes + self.open.peak_bytes()
    }

    /// Builds the rest of the part.
    pub(super) fn finish(mut self) -> BuiltPart {
        if self.open.blocks() > 0 || self.partitions.is_empty() {
            self.end_leaf();
        }
        let is_whole = self.partitions.len() == 1;
        let part = FilterPart {
            role: FilterRole::Ranges,
            shape: if is_whole { FilterShape::Whole } else { FilterShape::Partitioned },
            expected_fpr: (self.expected_passes / self.blocks.max(1) as f64).min(1.0),
            keys: self.keys,
            bytes: 0,
            top_bytes: 0,
            spec: self.open.spec().to_string(),
            policy: String::new(),
            extractor: String::new(),
        };
        let top = (!is_whole).then_some(self.top);
        BuiltPart { part, partitions: self.partitions, top, fallbacks: 0 }
    }
}

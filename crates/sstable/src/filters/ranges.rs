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
use super::part::Part;
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
        match at.slot.checked_sub(1) {
            Some(before) => leaf.separator_into(before, first),
            None => match at.leaf.checked_sub(1) {
                Some(before) => index.top().separator_into(before, first),
                None => {
                    first.clear();
                    first.extend_from_slice(&self.smallest);
                }
            },
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
            let why = "a filter for ranges does not cover the blocks of its table";
            self.loader.note(FilterState::Damaged(why.into()));
        }
        answer
    }
}

/// Builds the part.
#[derive(Debug)]
pub(crate) struct RangesBuilder {
    filter: RangeFilterBuilder,
    /// The separator before the open block, or the first key.
    first: Vec<u8>,
    has_key: bool,
}

impl RangesBuilder {
    /// A builder of filters as `spec` has them; `None` if it has none.
    pub(super) fn new(spec: RangeSpec) -> Option<Self> {
        let is_wanted = spec != RangeSpec::NONE;
        is_wanted.then(|| Self { filter: spec.builder(), first: Vec::new(), has_key: false })
    }

    /// Adds a key of the open block.
    #[inline]
    pub(super) fn add(&mut self, key: &[u8]) {
        if !self.has_key {
            self.has_key = true;
            self.first.extend_from_slice(key);
        }
        self.filter.add(key);
    }

    /// Ends a data block.
    pub(super) fn end_block(&mut self, separator: &[u8]) {
        self.filter.end_block(BlockEnds { first: &self.first, last: separator });
        self.first.clear();
        self.first.extend_from_slice(separator);
    }

    /// Estimated bytes of the part if it were finished now.
    #[inline]
    pub(super) fn estimated_bytes(&self) -> u64 {
        self.filter.spec().expected_bytes(self.filter.len())
    }

    /// Most bytes of memory that the build takes from now to its end.
    pub(super) fn memory_bytes(&self) -> u64 {
        // Beside the infixes and the finished filters, the cells of one leaf's keys.
        2 * self.filter.memory_bytes() as u64 + self.estimated_bytes()
    }

    /// Builds the part. `leaf_ends` are the numbers of blocks up to the end of each leaf.
    pub(super) fn finish(self, leaf_ends: &[usize]) -> BuiltPart {
        let mut partitions = Vec::new();
        let (mut top, mut start, mut passes) = (IndexBuilder::default(), 0, 0.0);
        for (leaf, end) in (0_u32..).zip(leaf_ends) {
            let end = (*end).min(self.filter.blocks()).max(start);
            let payload = self.filter.finish_blocks(start..end);
            passes += (end - start) as f64 * RangeFilter::peek_expected_fpr(&payload);
            top.push(&leaf.swap_bytes().to_le_bytes(), (payload.len() + FRAME_BYTES) as u32);
            partitions.push(payload);
            start = end;
        }
        let is_whole = partitions.len() <= 1;
        let part = FilterPart {
            role: FilterRole::Ranges,
            shape: if is_whole { FilterShape::Whole } else { FilterShape::Partitioned },
            expected_fpr: (passes / start.max(1) as f64).min(1.0),
            keys: self.filter.len(),
            bytes: 0,
            top_bytes: 0,
            spec: self.filter.spec().to_string(),
            policy: String::new(),
            extractor: String::new(),
        };
        BuiltPart { part, partitions, top: (!is_whole).then_some(top), fallbacks: 0 }
    }
}

//! Builds one part of the filter region, whole or partitioned.
//!
//! 1. Keys (or prefixes) are added in order, with the end of each data block.
//! 2. *Partitioned*: when the keys since the last partition make a filter of about the target size,
//!    the filter is built, with the separator of the data block that just ended. So memory holds
//!    only the hashes of one partition, and the finished filters.
//! 3. A prefix that continues in the next partition is added to that one again, since a builder
//!    drops a hash only if it equals the last one.

use trommel_filter::{Filter, FilterBuilder, FilterSpec};

use super::directory::{FilterPart, FilterRole, FilterShape};
use crate::format::FRAME_BYTES;
use crate::index::IndexBuilder;

/// Most bytes that a list of hashes grows by between two queries of its size.
const GROWTH_BYTES: u64 = 32 << 10;

/// A part and its blocks, not framed yet.
pub(crate) struct BuiltPart {
    /// Complete except for the lengths in bytes.
    pub(crate) part: FilterPart,
    pub(crate) partitions: Vec<Vec<u8>>,
    /// The index of the partitions; none for a whole filter.
    pub(crate) top: Option<IndexBuilder>,
    /// Partitions of a fallback kind, as their keys did not fit the requested kind.
    pub(crate) fallbacks: u64,
}

#[derive(Debug)]
pub(super) struct PartBuilder {
    spec: FilterSpec,
    shape: FilterShape,
    partition_bytes: usize,
    /// The partition under construction.
    open: FilterBuilder,
    /// Finished partitions, and their index.
    partitions: Vec<Vec<u8>>,
    top: IndexBuilder,
    /// Keys in the finished partitions, and the sum of the partitions' rates, weighted by keys.
    keys: u64,
    expected_passes: f64,
    bytes: u64,
    /// The separator of the last data block.
    separator: Vec<u8>,
}

impl PartBuilder {
    pub(super) fn new(spec: FilterSpec, shape: FilterShape, partition_bytes: usize) -> Self {
        Self {
            spec,
            shape,
            partition_bytes,
            open: spec.builder(),
            partitions: Vec::new(),
            top: IndexBuilder::default(),
            keys: 0,
            expected_passes: 0.0,
            bytes: 0,
            separator: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn add_hash(&mut self, hash: u64) {
        self.open.add_hash(hash);
    }

    /// Changes the size of a whole filter; partitions keep theirs, as some are finished.
    pub(super) fn resize(&mut self, spec: FilterSpec) {
        if self.shape == FilterShape::Whole {
            self.open.resize(spec);
            self.spec = self.open.spec();
        }
    }

    /// The spec of the filters.
    pub(super) fn spec(&self) -> FilterSpec {
        self.spec
    }

    /// Ends a data block, which `separator` separates from the next.
    pub(super) fn end_block(&mut self, separator: &[u8]) {
        if self.shape == FilterShape::Whole || self.spec == FilterSpec::NONE {
            return;
        }
        self.separator.clear();
        self.separator.extend_from_slice(separator);
        if self.open_bytes() >= self.partition_bytes as u64 {
            self.end_partition();
        }
    }

    /// Estimated bytes of the open partition.
    #[inline]
    fn open_bytes(&self) -> u64 {
        self.spec.bits_bytes(self.open.len())
    }

    /// Estimated bytes of the part if it were finished now.
    #[inline]
    pub(super) fn estimated_bytes(&self) -> u64 {
        self.bytes + self.open_bytes()
    }

    /// Most bytes of memory that the build takes from now to its end, if few keys follow:
    ///
    /// 1. the finished partitions;
    /// 2. the hashes and the filter of the open builder, at their peak;
    /// 3. the growth of the list of hashes that may be about to happen.
    pub(super) fn memory_bytes(&self) -> u64 {
        if self.spec == FilterSpec::NONE {
            return 0;
        }
        let hashes = self.open.memory_bytes() as u64;
        self.bytes + self.open.peak_bytes() + hashes.min(GROWTH_BYTES)
    }

    /// Finishes the open partition with the separator of its last block.
    fn end_partition(&mut self) {
        let full = std::mem::replace(&mut self.open, self.spec.builder());
        let keys = full.len();
        let payload = full.finish();
        self.keys += keys;
        self.expected_passes += keys as f64 * Filter::peek_expected_fpr(&payload);
        self.bytes += payload.len() as u64;
        // A block is bounded by one large entry, a partition by its target size and a few keys:
        // both are far below 4 GiB.
        self.top.push(&self.separator, (payload.len() + FRAME_BYTES) as u32);
        self.partitions.push(payload);
    }

    /// Builds the rest of the part; `None` if no filter was requested.
    pub(super) fn finish(mut self, role: FilterRole, extractor: String) -> Option<BuiltPart> {
        if self.spec == FilterSpec::NONE {
            return None;
        }
        if !self.open.is_empty() || self.partitions.is_empty() {
            self.end_partition();
        }
        let shape = self.shape;
        let expected_fpr =
            if self.keys == 0 { 0.0 } else { self.expected_passes / self.keys as f64 };
        let part = FilterPart {
            role,
            shape,
            expected_fpr: expected_fpr.min(1.0),
            keys: self.keys,
            bytes: 0,
            top_bytes: 0,
            spec: self.spec.to_string(),
            policy: String::new(),
            extractor,
        };
        let top = (shape != FilterShape::Whole).then_some(self.top);
        let is_other = |partition: &&Vec<u8>| Filter::peek_kind(partition) != self.spec.kind();
        let fallbacks = self.partitions.iter().filter(is_other).count() as u64;
        Some(BuiltPart { part, partitions: self.partitions, top, fallbacks })
    }
}

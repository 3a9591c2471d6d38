//! Builds one part of the filter region, whole or partitioned.
//!
//! 1. Keys (or prefixes) are added in order, with the end of each data block.
//! 2. *Partitioned*: when the keys since the last partition make a filter of about the target size,
//!    the filter is built, with the separator of the data block that just ended. So memory holds
//!    only the hashes of one partition, and the finished filters.
//! 3. *Per block*: a small filter is built at the end of each block; a group of about the target
//!    size is a partition.
//! 4. A prefix that continues in the next partition is added to that one again, since a builder
//!    drops a hash only if it equals the last one.

use trommel_filter::{Filter, FilterBuilder, FilterKind, FilterSpec, SmallFiltersBuilder};

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
    open: Open,
    /// Finished partitions, and their index.
    partitions: Vec<Vec<u8>>,
    top: IndexBuilder,
    /// Keys in them, and the sum of their rates, weighted by keys.
    keys: u64,
    expected_passes: f64,
    bytes: u64,
    /// The separator of the last data block.
    separator: Vec<u8>,
}

/// The partition under construction.
#[derive(Debug)]
enum Open {
    Filter(FilterBuilder),
    Small(SmallFiltersBuilder),
}

impl PartBuilder {
    pub(super) fn new(spec: FilterSpec, shape: FilterShape, partition_bytes: usize) -> Self {
        let open = match shape {
            FilterShape::PerBlock if spec != FilterSpec::NONE => {
                Open::Small(SmallFiltersBuilder::new(spec))
            }
            _ => Open::Filter(spec.builder()),
        };
        Self {
            spec,
            shape,
            partition_bytes,
            open,
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
        match &mut self.open {
            Open::Filter(filter) => filter.add_hash(hash),
            Open::Small(filters) => filters.add_hash(hash),
        }
    }

    /// Ends the data block at `offset`; the next one starts at `next`, and `separator` separates
    /// the two.
    pub(super) fn end_block(&mut self, offset: u64, next: u64, separator: &[u8]) {
        if self.shape == FilterShape::Whole || self.spec == FilterSpec::NONE {
            return;
        }
        if let Open::Small(filters) = &mut self.open {
            filters.end(offset);
        }
        self.separator.clear();
        self.separator.extend_from_slice(separator);
        let full = self.open_bytes() >= self.partition_bytes as u64;
        let far = match &self.open {
            Open::Small(filters) => !filters.has_room(next),
            Open::Filter(_) => false,
        };
        if full || far {
            self.end_partition();
        }
    }

    /// Estimated bytes of the open partition.
    #[inline]
    fn open_bytes(&self) -> u64 {
        match &self.open {
            Open::Filter(filter) => self.spec.bits_bytes(filter.len()),
            Open::Small(filters) => filters.bytes() as u64,
        }
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
        let filter = match &self.open {
            Open::Filter(filter) => filter,
            // The group's bits and its copy; the hashes of one block are few.
            Open::Small(filters) => return self.bytes + 4 * filters.bytes() as u64 + (4 << 10),
        };
        let hashes = filter.memory_bytes() as u64;
        self.bytes + filter.peak_bytes() + hashes.min(GROWTH_BYTES)
    }

    /// Finishes the open partition with the separator of its last block.
    fn end_partition(&mut self) {
        let (keys, rate, payload) = match &mut self.open {
            Open::Filter(filter) => {
                let full = std::mem::replace(filter, self.spec.builder());
                let keys = full.len();
                let payload = full.finish();
                (keys, Filter::peek_expected_fpr(&payload), payload)
            }
            Open::Small(filters) => {
                let full = std::mem::replace(filters, SmallFiltersBuilder::new(self.spec));
                (full.keys(), full.expected_fpr(), full.finish())
            }
        };
        self.keys += keys;
        self.expected_passes += keys as f64 * rate;
        self.bytes += payload.len() as u64;
        // A block is bounded by one large entry, a partition by its target size and a few keys:
        // both are far below 4 GiB.
        self.top.push(&self.separator, (payload.len() + FRAME_BYTES) as u32);
        self.partitions.push(payload);
    }

    /// The spec that the directory records for a part built by this spec and shape.
    pub(super) fn stored_spec(spec: FilterSpec, shape: FilterShape) -> String {
        match shape {
            // Small filters are always of one kind.
            FilterShape::PerBlock => {
                let small = FilterSpec::new(FilterKind::Standard, spec.bits_per_key());
                small.unwrap_or(spec).to_string()
            }
            _ => spec.to_string(),
        }
    }

    /// Builds the rest of the part; `None` if no filter was requested.
    pub(super) fn finish(mut self, role: FilterRole, extractor: String) -> Option<BuiltPart> {
        if self.spec == FilterSpec::NONE {
            return None;
        }
        let open = match &self.open {
            Open::Filter(filter) => !filter.is_empty(),
            Open::Small(filters) => !filters.is_empty(),
        };
        if open || self.partitions.is_empty() {
            self.end_partition();
        }
        let shape = self.shape;
        let spec = Self::stored_spec(self.spec, shape);
        let expected_fpr =
            if self.keys == 0 { 0.0 } else { self.expected_passes / self.keys as f64 };
        let part = FilterPart {
            role,
            shape,
            expected_fpr: expected_fpr.min(1.0),
            keys: self.keys,
            bytes: 0,
            top_bytes: 0,
            spec,
            policy: String::new(),
            extractor,
        };
        let top = (shape != FilterShape::Whole).then_some(self.top);
        let is_other = |partition: &&Vec<u8>| Filter::peek_kind(partition) != self.spec.kind();
        let fallbacks = match shape {
            FilterShape::PerBlock => 0,
            _ => self.partitions.iter().filter(is_other).count() as u64,
        };
        Some(BuiltPart { part, partitions: self.partitions, top, fallbacks })
    }
}

//! Builds the filters of a table, from the keys as they are added; each part is completed at the
//! end.

use std::sync::Arc;

use trommel_filter::{FilterSpec, HashSeed, RangeSpec};

use super::directory::{FilterPart, FilterRole, FilterShape};
use super::part_builder::{BuiltPart, PartBuilder};
use super::prefix::{PrefixExtractor, Watch};
use super::ranges::RangesBuilder;

/// Bounds of [`FilterPlan::partition_bytes`].
const PARTITION_BYTES: (usize, usize) = (256, 16 << 20);

/// The filters of a table.
#[derive(Debug, Clone)]
pub struct FilterPlan {
    /// The filter of whole keys (default none).
    pub keys: FilterSpec,
    /// The filter of prefixes and their extractor (default none).
    pub prefixes: Option<(FilterSpec, Arc<dyn PrefixExtractor>)>,
    /// The range filter (default none), whose partitioning is that of the index.
    pub ranges: RangeSpec,
    /// The partitioning of the other filters (default: each whole).
    pub shape: FilterShape,
    /// Target size of a partition in bytes (256 B to 16 MiB; default 32 KiB). A partition ends with
    /// a data block, so it may be larger by the filter of one block.
    pub partition_bytes: usize,
}

impl Default for FilterPlan {
    fn default() -> Self {
        Self {
            keys: FilterSpec::NONE,
            prefixes: None,
            ranges: RangeSpec::NONE,
            shape: FilterShape::Whole,
            partition_bytes: 32 << 10,
        }
    }
}

impl FilterPlan {
    /// Whether the plan has any filter.
    pub fn has_any(&self) -> bool {
        self.wanted().next().is_some()
    }

    /// The spec of each filter of hashes, and the name of the extractor for a filter of prefixes.
    pub fn parts(&self) -> impl Iterator<Item = (FilterSpec, Option<&str>)> {
        let keys = (self.keys, None);
        let prefixes = self.prefixes.as_ref().map(|(spec, maker)| (*spec, Some(maker.name())));
        std::iter::once(keys).chain(prefixes).filter(|part| part.0 != FilterSpec::NONE)
    }

    /// Role, spec and extractor of each part in the directory of a table built by this plan.
    fn wanted(&self) -> impl Iterator<Item = (FilterRole, String, &str)> {
        let ranges = (self.ranges != RangeSpec::NONE)
            .then(|| (FilterRole::Ranges, self.ranges.to_string(), ""));
        let of_hashes = self.parts().map(|(spec, maker)| {
            let role = if maker.is_some() { FilterRole::Prefixes } else { FilterRole::Keys };
            (role, spec.to_string(), maker.unwrap_or_default())
        });
        of_hashes.chain(ranges)
    }

    /// Whether the plan would build parts like these, except for properties that depend on the
    /// keys, and for the size of partitions.
    pub fn would_build<'a>(&self, parts: impl Iterator<Item = &'a FilterPart>) -> bool {
        let is_like = |(wanted, part): ((FilterRole, String, &str), &FilterPart)| {
            (part.role, &*part.spec, &*part.extractor) == (wanted.0, &*wanted.1, wanted.2)
                && (part.shape == self.shape || part.role == FilterRole::Ranges)
                && part.policy.is_empty()
        };
        let mut parts = parts.peekable();
        let all_are =
            self.wanted().all(|wanted| parts.next().is_some_and(|p| is_like((wanted, p))));
        all_are && parts.next().is_none()
    }

    /// Expected bytes of the filters of a table with `keys` keys, assuming a prefix of its own for
    /// each key.
    pub fn expected_bytes(&self, keys: u64) -> u64 {
        let prefixes = self.prefixes.as_ref().map_or(FilterSpec::NONE, |(spec, _)| *spec);
        self.keys.expected_bytes(keys)
            + prefixes.expected_bytes(keys)
            + self.ranges.expected_bytes(keys)
    }
}

impl From<FilterSpec> for FilterPlan {
    fn from(keys: FilterSpec) -> Self {
        Self { keys, ..Self::default() }
    }
}

/// Takes the keys of a table, in order, and builds its filters.
#[derive(Debug)]
pub(crate) struct FiltersBuilder {
    keys: PartBuilder,
    prefixes: Option<Prefixes>,
    ranges: Option<RangesBuilder>,
    hash_seed: HashSeed,
}

#[derive(Debug)]
struct Prefixes {
    extractor: Arc<dyn PrefixExtractor>,
    watch: Watch,
    filter: PartBuilder,
}

impl FiltersBuilder {
    pub(crate) fn new(plan: &FilterPlan, hash_seed: HashSeed) -> Self {
        let part = |spec| {
            let bytes = plan.partition_bytes.clamp(PARTITION_BYTES.0, PARTITION_BYTES.1);
            PartBuilder::new(spec, plan.shape, bytes)
        };
        let prefixes = plan.prefixes.as_ref().map(|(spec, extractor)| Prefixes {
            extractor: Arc::clone(extractor),
            watch: Watch::default(),
            filter: part(*spec),
        });
        let ranges = RangesBuilder::new(plan.ranges);
        Self { keys: part(plan.keys), prefixes, ranges, hash_seed }
    }

    /// Adds a key, which differs from the last one, with its hash.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], hash: u64) {
        self.keys.add_hash(hash);
        self.add_again(key);
        let Some(Prefixes { extractor, watch, filter }) = &mut self.prefixes else { return };
        match watch.next(&**extractor, key) {
            // Keys of one prefix are adjacent, and a hash equal to the last is dropped.
            Ok(Some(prefix)) => filter.add_hash(self.hash_seed.hash(prefix)),
            Ok(None) => {}
            Err(breach) => {
                extractor.distrust(breach);
                self.prefixes = None;
            }
        }
    }

    /// Adds the last key of the previous block, whose versions continue in the open one.
    #[inline]
    pub(crate) fn add_again(&mut self, key: &[u8]) {
        if let Some(ranges) = &mut self.ranges {
            ranges.add(key);
        }
    }

    /// Changes the size of the filter of whole keys, and returns its spec.
    pub(crate) fn resize(&mut self, spec: FilterSpec) -> FilterSpec {
        self.keys.resize(spec);
        self.keys.spec()
    }

    /// Ends a data block. `separator` is not smaller than its last key and smaller than the first
    /// key of the next one.
    pub(crate) fn end_block(&mut self, separator: &[u8]) {
        self.keys.end_block(separator);
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.filter.end_block(separator);
        }
        if let Some(ranges) = &mut self.ranges {
            ranges.end_block(separator);
        }
    }

    /// Ends a leaf of the index, after the last block that was ended.
    pub(crate) fn end_leaf(&mut self) {
        if let Some(ranges) = &mut self.ranges {
            ranges.end_leaf();
        }
    }

    /// Estimated bytes of the parts if they were finished now.
    #[inline]
    pub(crate) fn estimated_bytes(&self) -> u64 {
        let prefixes = self.prefixes.as_ref();
        self.keys.estimated_bytes()
            + prefixes.map_or(0, |p| p.filter.estimated_bytes())
            + self.ranges.as_ref().map_or(0, RangesBuilder::estimated_bytes)
    }

    /// Most bytes of memory that the build takes from now to its end, if few keys follow.
    pub(crate) fn memory_bytes(&self) -> u64 {
        // Parts are finished one after the other, but their hashes are in memory together.
        let prefixes = self.prefixes.as_ref();
        self.keys.memory_bytes()
            + prefixes.map_or(0, |p| p.filter.memory_bytes())
            + self.ranges.as_ref().map_or(0, RangesBuilder::memory_bytes)
    }

    /// Builds the parts one after the other and passes each to `write`. Ends the last leaf of the
    /// index, if that was not ended.
    pub(crate) fn finish<E>(
        self,
        mut write: impl FnMut(BuiltPart) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { keys, prefixes, ranges, hash_seed: _ } = self;
        if let Some(part) = keys.finish(FilterRole::Keys, String::new()) {
            write(part)?;
        }
        if let Some(Prefixes { extractor, filter, .. }) = prefixes
            && let Some(part) = filter.finish(FilterRole::Prefixes, extractor.name().to_owned())
        {
            write(part)?;
        }
        match ranges {
            Some(ranges) => write(ranges.finish()),
            None => Ok(()),
        }
    }
}

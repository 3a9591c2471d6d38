//! One part of the filter region: selects the block that answers for a key.
//!
//! * A *whole* part is one block.
//! * A *partitioned* part has several blocks, each for a range of keys that ends with a data block.
//!   They are followed by their *top*, an index of separators like that of the data blocks. The
//!   partition of a key is the first whose separator is not smaller.
//!
//! A key whose versions straddle two partitions is in the first of them, which a search for it
//! reaches. A prefix is in every partition that holds a key with it; see [`Part::query_prefix`].

use trommel_filter::{Filter, FilterKind, FilterSpec, RangeFilter, RangeSpec, theory};

use super::directory::{FilterPart, FilterRole, FilterShape};
use super::facts::FilterFacts;
use super::loader::{BlockForm, BlockLoader, Unread};
use super::resident::Partitions;
use crate::Error;
use crate::cache::CachedFilter;
use crate::filter_block::{FilterBlock, FilterCell, PinnedFilter};
use crate::filter_host::FilterState;
use crate::format::Handle;
use crate::user_filter::OpenUserFilter;
use crate::verdict::{Answers, FilterLabel, Verdict};

/// Most partitions that a query for a prefix reads before it answers "maybe". In an intact table
/// the second one is decisive.
const MOST_PARTITIONS: usize = 4;

/// Why a part for ranges that has other leaves or blocks than the index cannot be used.
pub(super) const MISFIT: &str =
    "a range filter does not cover the blocks of its table: rebuild the filters";

#[derive(Debug)]
pub(super) struct Part {
    pub(super) entry: FilterPart,
    /// Kind of its filters.
    kind: FilterLabel,
    /// How its blocks are decoded.
    form: BlockForm,
    /// Its first byte in the file.
    offset: u64,
    blocks: PartBlocks,
}

/// The cells of a part's blocks: the filter's, or that of the partition index.
#[derive(Debug)]
enum PartBlocks {
    Whole(FilterCell<PinnedFilter>),
    Partitioned { top: FilterCell<PinnedFilter> },
}

impl Part {
    /// The part described by `entry`, which starts at `offset`. A foreign part cannot be queried
    /// here and can only be checked.
    pub(super) fn new(entry: FilterPart, offset: u64, is_foreign: bool) -> Self {
        let blocks = match entry.shape {
            FilterShape::Whole => PartBlocks::Whole(FilterCell::default()),
            FilterShape::Partitioned => PartBlocks::Partitioned { top: FilterCell::default() },
        };
        let (kind, form) = if is_foreign {
            (FilterKind::None.into(), BlockForm::Foreign)
        } else if !entry.policy.is_empty() {
            (FilterLabel::User, BlockForm::User)
        } else if entry.role == FilterRole::Ranges {
            (FilterLabel::Ranges, BlockForm::Ranges)
        } else {
            let kind = entry.spec.parse().map_or(FilterKind::None, |spec: FilterSpec| spec.kind());
            (kind.into(), BlockForm::Filter)
        };
        Self { entry, kind, form, offset, blocks }
    }

    /// Why the part described by `entry` cannot be queried; `None` if it can.
    pub(super) fn why_foreign(entry: &FilterPart, loader: &BlockLoader) -> Option<FilterState> {
        if entry.policy.is_empty() {
            return None;
        }
        if loader.reader.as_ref().is_none_or(|reader| reader.name() != entry.policy) {
            let why = format!(
                "it was made by the policy {:?}, which this program does not have",
                entry.policy
            );
            return Some(FilterState::Foreign(why));
        }
        let is_known = (entry.shape, entry.role) == (FilterShape::Whole, FilterRole::Keys);
        let why = "a user's filter is cut in a way this version cannot read";
        (!is_known).then(|| FilterState::Unknown(why.into()))
    }

    /// The verdict on `key`, whose hash is `hash`.
    #[inline]
    pub(super) fn query(&self, key: &[u8], hash: u64, loader: &BlockLoader) -> Verdict {
        match self.pinned_filter() {
            Some(filter) => Verdict::of(filter, hash),
            None => self.query_elsewhere(key, hash, loader),
        }
    }

    /// The filter of a whole part, if it is pinned: three loads, without a lock.
    #[inline]
    pub(super) fn pinned_filter(&self) -> Option<&Filter> {
        let PartBlocks::Whole(cell) = &self.blocks else { return None };
        let FilterBlock::Filter(filter) = cell.pinned()? else { return None };
        Some(filter)
    }

    /// Like [`query`](Self::query), if the filter is not whole and pinned.
    #[inline(never)]
    fn query_elsewhere(&self, key: &[u8], hash: u64, loader: &BlockLoader) -> Verdict {
        let answer = match &self.blocks {
            PartBlocks::Whole(cell) => {
                let block = loader.get(cell, self.form, || self.whole());
                block.map(|block| block.verdict(key, hash))
            }
            PartBlocks::Partitioned { top } => self.with_partitions(top, loader, |partitions| {
                let partition = partitions.get(partitions.find(key), loader, self.form)?;
                Some(partition.verdict(key, hash))
            }),
        };
        answer.unwrap_or(Verdict::UNFILTERED)
    }

    /// Prefetches the first cache line that [`query`](Self::query) reads, if it is known without a
    /// search; not for a partitioned part.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(filter) = self.pinned_filter() {
            filter.prefetch(hash);
        }
    }

    /// Whether the table may hold a key with this prefix, whose hash is `hash`.
    ///
    /// A search for the prefix itself reaches the first partition that may hold such a key. If its
    /// separator starts with the prefix, the next one may hold the first such key as well.
    pub(super) fn query_prefix(&self, prefix: &[u8], hash: u64, loader: &BlockLoader) -> Verdict {
        let answer = match &self.blocks {
            PartBlocks::Whole(_) => return self.query(prefix, hash, loader),
            PartBlocks::Partitioned { top } => self.with_partitions(top, loader, |partitions| {
                self.query_prefix_of_partitions(partitions, prefix, hash, loader)
            }),
        };
        answer.unwrap_or(Verdict::UNFILTERED)
    }

    fn query_prefix_of_partitions(
        &self,
        partitions: Partitions<'_>,
        prefix: &[u8],
        hash: u64,
        loader: &BlockLoader,
    ) -> Option<Verdict> {
        let first = partitions.find(prefix);
        for i in first..first + MOST_PARTITIONS {
            let verdict = partitions.get(i, loader, self.form)?.verdict(prefix, hash);
            let is_last = i + 1 == partitions.index().len();
            if verdict.maybe || is_last || !partitions.index().separator_starts_with(i, prefix) {
                return Some(verdict);
            }
        }
        None
    }

    /// Like [`query`](Self::query) for many keys, with an answer for each.
    pub(super) fn query_many(
        &self,
        keys: &[&[u8]],
        hashes: &[u64],
        answers: &mut Answers,
        loader: &BlockLoader,
    ) {
        let answer = match &self.blocks {
            PartBlocks::Whole(cell) => {
                let block = loader.get(cell, self.form, || self.whole());
                block.map(|block| block.answer(keys, hashes, answers))
            }
            PartBlocks::Partitioned { top } => self.with_partitions(top, loader, |partitions| {
                self.query_many_of_partitions(partitions, keys, hashes, answers, loader);
                Some(())
            }),
        };
        if answer.is_none() {
            answers.add_unfiltered(keys.len());
        }
    }

    /// Queries neighbouring keys of one partition together.
    fn query_many_of_partitions(
        &self,
        partitions: Partitions<'_>,
        mut keys: &[&[u8]],
        mut hashes: &[u64],
        answers: &mut Answers,
        loader: &BlockLoader,
    ) {
        while let Some(first) = keys.first() {
            let i = partitions.find(first);
            let count = keys.iter().take_while(|key| partitions.find(key) == i).count();
            let (those, later) = keys.split_at(count);
            let (hashes_of_those, later_hashes) = hashes.split_at(count);
            match partitions.get(i, loader, self.form) {
                Some(partition) => partition.answer(those, hashes_of_those, answers),
                None => answers.add_unfiltered(count),
            }
            (keys, hashes) = (later, later_hashes);
        }
    }

    /// Applies `query` to the filter of leaf `leaf` of `leaves`, if this is a part for ranges.
    /// Notes one that has filters of other leaves.
    pub(super) fn with_ranges_of<T>(
        &self,
        leaf: usize,
        leaves: usize,
        loader: &BlockLoader,
        query: impl FnOnce(&RangeFilter) -> T,
    ) -> Option<T> {
        let apply = |block: &FilterBlock| match block {
            FilterBlock::Ranges(filter) => Some(query(filter)),
            _ => None,
        };
        let misfit = || {
            loader.note(FilterState::Damaged(MISFIT.into()));
            None
        };
        match &self.blocks {
            PartBlocks::Whole(cell) if leaves == 1 => {
                apply(&*loader.get(cell, self.form, || self.whole())?)
            }
            PartBlocks::Whole(_) => misfit(),
            PartBlocks::Partitioned { top } => self.with_partitions(top, loader, |partitions| {
                if partitions.index().len() != leaves {
                    return misfit();
                }
                apply(&*partitions.get(leaf, loader, self.form)?)
            }),
        }
    }

    /// The facts of a part for ranges, as recorded in the directory.
    pub(super) fn range_facts(&self) -> FilterFacts {
        let FilterPart { keys, bytes, top_bytes, expected_fpr, .. } = self.entry;
        let spec = self.entry.spec.parse().unwrap_or(RangeSpec::NONE);
        let bytes = bytes - top_bytes;
        FilterFacts {
            kind: FilterLabel::Ranges,
            bits_requested: spec.bits_per_key(),
            bits_stored: if keys == 0 { 0.0 } else { bytes as f64 * 8.0 / keys as f64 },
            keys,
            expected: expected_fpr,
            bytes,
            is_held: true,
            ..FilterFacts::NONE
        }
    }

    /// The facts of the part; `None` if it is unusable. Reads a whole filter, but only the top of a
    /// partitioned one, as the directory has the rest.
    pub(super) fn facts(&self, loader: &BlockLoader) -> Option<FilterFacts> {
        match &self.blocks {
            PartBlocks::Whole(cell) => {
                let read;
                let held = loader.get(cell, self.form, || self.whole());
                let is_held = held.is_some();
                let block = match held.as_deref() {
                    Some(block) => block,
                    None => {
                        read = loader.read(self.whole(), self.form).ok()?;
                        &read
                    }
                };
                let filter = match block {
                    FilterBlock::Filter(filter) => filter,
                    FilterBlock::User(filter) => {
                        return Some(FilterFacts { is_held, ..self.user_facts(filter) });
                    }
                    FilterBlock::Partitions(_) | FilterBlock::Ranges(_) => return None,
                };
                Some(FilterFacts {
                    kind: filter.kind().into(),
                    bits_requested: filter.requested_bits_per_key(),
                    bits_stored: filter.bits_per_key(),
                    keys: filter.keys(),
                    is_of_prefixes: self.entry.role == FilterRole::Prefixes,
                    is_fallback: self.kind != filter.kind(),
                    probes: filter.probes(),
                    expected: filter.expected_fpr(),
                    bytes: filter.memory_bytes() as u64,
                    is_held,
                })
            }
            PartBlocks::Partitioned { .. } => {
                loader.read(self.top_place(), self.top_form()).ok()?;
                let bits_requested = self.entry.spec.parse::<FilterSpec>().ok()?.bits_per_key();
                let bytes = self.entry.bytes - self.entry.top_bytes;
                let keys = self.entry.keys;
                let bits_stored = if keys == 0 { 0.0 } else { bytes as f64 * 8.0 / keys as f64 };
                let probes = match self.kind {
                    FilterLabel::BuiltIn(kind) => theory::best_probes(kind, bits_requested),
                    FilterLabel::User | FilterLabel::Ranges => 0,
                };
                Some(FilterFacts {
                    kind: self.kind,
                    bits_requested,
                    bits_stored,
                    keys,
                    is_of_prefixes: self.entry.role == FilterRole::Prefixes,
                    is_fallback: false,
                    probes,
                    expected: self.entry.expected_fpr,
                    bytes,
                    is_held: true,
                })
            }
        }
    }

    /// The facts of a user-defined filter, as reported by itself and by the directory.
    fn user_facts(&self, filter: &OpenUserFilter) -> FilterFacts {
        let FilterPart { keys, bytes, .. } = self.entry;
        FilterFacts {
            kind: FilterLabel::User,
            bits_stored: if keys == 0 { 0.0 } else { bytes as f64 * 8.0 / keys as f64 },
            keys,
            expected: filter.expected_fpr(),
            bytes: filter.memory_bytes() as u64,
            is_held: true,
            ..FilterFacts::NONE
        }
    }

    /// Reads every block, so that corruption in any is recorded.
    ///
    /// # Errors
    /// [`Error::Io`] if a block could not be read.
    pub(super) fn check(&self, loader: &BlockLoader) -> Result<(), Error> {
        let read = |handle, form| match loader.read(handle, form) {
            Ok(block) => Ok(Some(block)),
            Err(Unread::Failed(error)) => Err(error),
            Err(Unread::Useless(state)) => {
                loader.note(state);
                Ok(None)
            }
        };
        if let PartBlocks::Whole(_) = &self.blocks {
            read(self.whole(), self.form)?;
        } else if let Some(FilterBlock::Partitions(top)) = read(self.top_place(), self.top_form())?
        {
            for handle in top.handles() {
                read(handle, self.form)?;
            }
        }
        Ok(())
    }

    /// Removes its blocks from the cache.
    pub(super) fn evict(&self, loader: &BlockLoader) {
        let forget = |offset| loader.source.cache.remove(loader.source.number, offset);
        match &self.blocks {
            PartBlocks::Whole(_) => forget(self.offset),
            PartBlocks::Partitioned { top } => {
                // If the top was evicted, most partitions were as well.
                let offset = self.top_place().offset;
                let source = &loader.source;
                let cached = source.cache.filter(source.number, offset);
                let held = top.pinned().or(cached.as_deref().map(CachedFilter::block));
                if let Some(FilterBlock::Partitions(top)) = held {
                    top.handles().for_each(|handle| forget(handle.offset));
                }
                forget(offset);
            }
        }
    }

    /// Bytes pinned.
    pub(super) fn pinned_bytes(&self) -> u64 {
        match &self.blocks {
            PartBlocks::Whole(cell) => cell.pinned_bytes(),
            PartBlocks::Partitioned { top } => {
                let of_partitions = match top.pinned() {
                    Some(FilterBlock::Partitions(partitions)) => partitions.pinned_bytes(),
                    _ => 0,
                };
                top.pinned_bytes() + of_partitions
            }
        }
    }

    fn whole(&self) -> Handle {
        Handle { offset: self.offset, bytes: self.entry.bytes as usize }
    }

    fn top_place(&self) -> Handle {
        let before = self.entry.bytes - self.entry.top_bytes;
        Handle { offset: self.offset + before, bytes: self.entry.top_bytes as usize }
    }

    fn top_form(&self) -> BlockForm {
        BlockForm::Partitions { first: self.offset }
    }

    /// Applies `query` to the partitions of the part; `None` if its top is unusable.
    fn with_partitions<T>(
        &self,
        top: &FilterCell<PinnedFilter>,
        loader: &BlockLoader,
        query: impl FnOnce(Partitions<'_>) -> Option<T>,
    ) -> Option<T> {
        let top = loader.get(top, self.top_form(), || self.top_place())?;
        query(top.partitions()?)
    }
}

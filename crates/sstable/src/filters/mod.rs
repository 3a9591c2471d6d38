//! The filters of a table.
//!
//! 1. The filter region holds up to three parts: a filter of whole keys, a filter of prefixes, and
//!    one for ranges of keys ([`directory`]).
//! 2. A point lookup queries the filter of whole keys ([`Filters::query`]); if the table has none,
//!    the filter of prefixes, if the key has a prefix. A scan within one prefix queries the filter
//!    of prefixes ([`Filters::query_prefix`]).
//!    A part for ranges is queried by the cursors of bounded scans ([`ranges`]).
//! 3. A part is one filter or is partitioned ([`part`]). A block of it is read when it is first
//!    queried ([`loader`]), and held in the table or in the block cache ([`resident`]).
//! 4. If the table has a sidecar, its filters are queried instead of the table's own, which are the
//!    fallback if any part of the sidecar is unusable.
//! 5. An unusable filter answers "maybe": one that is corrupt, of an unknown kind, built with
//!    another extractor, or of a user-defined policy that is missing ([`crate::user_filter`]).
//!
//! Called by the engine before it reads a table's blocks, so that it can count the results.

mod build;
mod directory;
mod facts;
mod loader;
mod part;
mod part_builder;
mod prefix;
pub(crate) mod ranges;
mod resident;
mod user_build;

use std::sync::Arc;

use trommel_filter::{FilterKind, FilterLines, HashSeed};

pub use build::FilterPlan;
pub(crate) use build::FiltersBuilder;
pub use directory::{FilterPart, FilterRole, FilterShape};
pub(crate) use directory::{
    Listed, decode as decode_directory, encode as encode_directory,
    encode_whole as encode_whole_directory,
};
pub use facts::FilterFacts;
use loader::BlockLoader;
use part::Part;
pub(crate) use part_builder::BuiltPart;
pub(crate) use prefix::Watch;
pub use prefix::{PrefixExtractor, prefix_of};
pub use ranges::ScanRange;
pub(crate) use ranges::{RangeAnswer, RangePart};
pub(crate) use user_build::UserBuild;

use crate::filter_host::{FilterHost, FilterState};
use crate::format::Footer;
use crate::index::{At, Index};
use crate::index_tree::IndexTree;
use crate::source::Source;
use crate::user_filter::UserFilterReader;
use crate::verdict::{Answers, Verdict};
use crate::{Error, Properties};

/// The filters of one open table.
#[derive(Debug)]
pub struct Filters {
    loader: BlockLoader,
    keys: Option<Part>,
    prefixes: Option<Part>,
    /// In memory of its own, as cursors refer to it.
    ranges: Option<Arc<RangePart>>,
    /// Parts that cannot be queried here.
    foreign: Vec<Part>,
    /// The table's own filters, if these filters are from its sidecar.
    own: Option<Box<Filters>>,
    hash_seed: HashSeed,
}

impl Filters {
    /// Reads the directory of the filter region from the properties; reads nothing of the region
    /// itself. Without a host, all blocks read stay in memory. `reader` is the reader of the
    /// user-defined policy, if there is one.
    pub(crate) fn open(
        source: &Arc<Source>,
        footer: &Footer,
        properties: &Properties,
        host: Option<Arc<dyn FilterHost>>,
        reader: Option<Arc<dyn UserFilterReader>>,
    ) -> Self {
        let is_wanted = host.as_ref().is_none_or(|host| host.wants_filters());
        let loader = BlockLoader::new(Arc::clone(source), host, reader);
        if !is_wanted && footer.filter_bytes > 0 {
            loader.note(FilterState::Spared);
            return Self::of_parts(loader, Vec::new(), 0, properties.hash_seed, &[]);
        }
        let parts = parts_of(footer, properties).unwrap_or_else(|why| {
            loader.note(FilterState::Damaged(why.into()));
            Vec::new()
        });
        let smallest = &properties.contents.smallest;
        Self::of_parts(loader, parts, footer.filter_offset(), properties.hash_seed, smallest)
    }

    /// Only the filters of a sidecar of this table, adjacent from `offset` of `sidecar`. They have
    /// no host: all blocks read stay in memory. `smallest` is the table's smallest key.
    pub(crate) fn of_sidecar(
        &self,
        sidecar: Arc<Source>,
        parts: Vec<Listed>,
        offset: u64,
        smallest: &[u8],
    ) -> Self {
        let reader = self.loader.reader.clone();
        let loader = BlockLoader::new(sidecar, None, reader);
        Self::of_parts(loader, parts, offset, self.hash_seed, smallest)
    }

    /// Replaces these filters by those of a sidecar, adjacent from `offset` of `source`, and
    /// becomes their fallback. `smallest` is the table's smallest key.
    pub(crate) fn use_sidecar(
        &mut self,
        source: Arc<Source>,
        parts: Vec<Listed>,
        offset: u64,
        smallest: &[u8],
    ) {
        let BlockLoader { host, reader, .. } = &self.loader;
        let loader = BlockLoader::new(source, host.clone(), reader.clone());
        let besides = Self::of_parts(loader, parts, offset, self.hash_seed, smallest);
        let own = std::mem::replace(self, besides);
        self.own = Some(Box::new(own));
    }

    /// No filters, with the same reader of a user-defined policy.
    pub(crate) fn without_filters(&self) -> Self {
        let BlockLoader { source, reader, .. } = &self.loader;
        let loader = BlockLoader::new(Arc::clone(source), None, reader.clone());
        Self::of_parts(loader, Vec::new(), 0, self.hash_seed, &[])
    }

    fn of_parts(
        loader: BlockLoader,
        parts: Vec<Listed>,
        mut offset: u64,
        hash_seed: HashSeed,
        smallest: &[u8],
    ) -> Self {
        let (keys, prefixes, ranges, foreign, own) = (None, None, None, Vec::new(), None);
        let mut filters = Self { loader, keys, prefixes, ranges, foreign, own, hash_seed };
        for listed in parts {
            let bytes = listed.bytes();
            match listed {
                Listed::Part(entry) => filters.add(entry, offset, smallest),
                Listed::Later { .. } => {
                    let why = "one is of a role or a shape that this version does not know";
                    filters.loader.note(FilterState::Unknown(why.into()));
                }
            }
            offset += bytes;
        }
        filters
    }

    /// The seed with which the keys of the table are hashed.
    #[inline]
    pub fn hash_seed(&self) -> HashSeed {
        self.hash_seed
    }

    /// The table's own filters, even if a sidecar's are queried.
    pub fn own(&self) -> &Self {
        self.own.as_deref().unwrap_or(self)
    }

    /// Whether these filters are in a sidecar.
    pub fn are_beside(&self) -> bool {
        self.own.is_some()
    }

    /// The fallback: the table's own filters, if any part of the sidecar but that for ranges is
    /// unusable. (A sidecar that was built without a filter is used and has no fallback.)
    fn stand_in(&self) -> Option<&Self> {
        self.own.as_deref().filter(|_| self.loader.fault().is_some())
    }

    /// The first reason why something of them cannot be used, as far as they were read.
    #[inline]
    fn fault(&self) -> Option<&FilterState> {
        let of_ranges = || self.ranges.as_ref()?.fault();
        self.loader.fault().or_else(of_ranges)
    }

    /// Whether the table's own filters are queried as a fallback, because the sidecar is missing,
    /// or a part of it, as far as it was read, is unusable. Not if that is only the part for
    /// ranges: scans then query that of the table, and lookups these filters as before.
    pub fn have_stand_in(&self) -> bool {
        self.stand_in().is_some()
    }

    /// Records that a part of these filters is corrupt.
    pub(crate) fn note_damage(&self, why: String) {
        self.loader.note(FilterState::Damaged(why));
    }

    /// Whether there is a filter that this version does not know, or that cannot be queried here.
    pub(crate) fn has_unused(&self) -> bool {
        matches!(self.state(), FilterState::Foreign(_) | FilterState::Unknown(_))
    }

    /// Adds the part described by `entry`, which starts at `offset`. `smallest` is the table's
    /// smallest key.
    fn add(&mut self, entry: FilterPart, offset: u64, smallest: &[u8]) {
        let role = entry.role;
        let why_foreign = Part::why_foreign(&entry, &self.loader);
        let part = Part::new(entry, offset, why_foreign.is_some());
        match (why_foreign, role) {
            (Some(state), _) => {
                self.loader.note(state);
                self.foreign.push(part);
            }
            (None, FilterRole::Keys) => self.keys = Some(part),
            (None, FilterRole::Prefixes) => self.prefixes = Some(part),
            (None, FilterRole::Ranges) => {
                let BlockLoader { source, host, reader, .. } = &self.loader;
                let loader = BlockLoader::new(Arc::clone(source), host.clone(), reader.clone());
                self.ranges = Some(Arc::new(RangePart::new(part, loader, smallest)));
            }
        }
    }

    /// Whether the filters can be queried, or why not, as far as they were read so far: each is
    /// read when it is first queried. See [`check`](Self::check).
    pub fn state(&self) -> &FilterState {
        const READY: &FilterState = &FilterState::Loaded;
        const ABSENT: &FilterState = &FilterState::Absent;
        let has_parts = self.parts().next().is_some();
        self.fault().unwrap_or(if has_parts { READY } else { ABSENT })
    }

    /// [`state`](Self::state), after reading everything, including filters that cannot be queried
    /// here. Keeps none of it in memory.
    ///
    /// # Errors
    /// [`Error::Io`] if a part could not be read.
    pub fn check(&self) -> Result<&FilterState, Error> {
        for part in self.keys.iter().chain(&self.prefixes).chain(&self.foreign) {
            part.check(&self.loader)?;
        }
        if let Some(ranges) = &self.ranges {
            ranges.check()?;
        }
        Ok(self.state())
    }

    /// The verdict of the filter of whole keys on `key`. Here and below, `hash` is the hash of the
    /// key with the table's [seed](Self::hash_seed).
    #[inline]
    pub fn query(&self, key: &[u8], hash: u64) -> Verdict {
        match self.keys.as_ref().and_then(Part::pinned_filter) {
            Some(filter) => Verdict::of(filter, hash),
            None => self.query_elsewhere(key, hash),
        }
    }

    /// Like [`query`](Self::query), if the filter is not whole and pinned. Queries the table's own
    /// filters if the sidecar's cannot answer.
    #[inline(never)]
    fn query_elsewhere(&self, key: &[u8], hash: u64) -> Verdict {
        let keys = self.keys.as_ref();
        let verdict = keys.map_or(Verdict::UNFILTERED, |part| part.query(key, hash, &self.loader));
        match self.own {
            Some(_) if verdict == Verdict::UNFILTERED => {
                self.stand_in().map_or(Verdict::UNFILTERED, |own| own.query(key, hash))
            }
            _ => verdict,
        }
    }

    /// Passes the cache lines of the filter of whole keys to `lines`, if it is whole and pinned.
    #[inline]
    pub fn note_lines(&self, lines: &FilterLines) {
        if let Some(filter) = self.keys.as_ref().and_then(Part::pinned_filter) {
            lines.note(filter);
        }
    }

    /// Prefetches the cache line that [`query`](Self::query) reads first, if the filter of whole
    /// keys is whole and pinned. Never reads the file.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(part) = &self.keys {
            part.prefetch(hash);
        }
    }

    /// [`query`](Self::query) for many keys with these `hashes`, cheapest if sorted. Replaces the
    /// contents of `answers`.
    pub fn query_many(&self, keys: &[&[u8]], hashes: &[u64], answers: &mut Answers) {
        answers.clear();
        if self.stand_in().is_some() {
            for (key, hash) in keys.iter().zip(hashes) {
                answers.add_one(self.query(key, *hash));
            }
            return;
        }
        match &self.keys {
            Some(part) => part.query_many(keys, hashes, answers, &self.loader),
            None => answers.add_unfiltered(keys.len()),
        }
    }

    /// Whether the table may hold a key with this prefix, extracted by the extractor of this name.
    pub fn query_prefix(&self, prefix: &[u8], hash: u64, extractor: &str) -> Verdict {
        let verdict = match &self.prefixes {
            Some(part) if part.entry.extractor == extractor => {
                part.query_prefix(prefix, hash, &self.loader)
            }
            _ => Verdict::UNFILTERED,
        };
        match self.stand_in() {
            Some(own) if verdict == Verdict::UNFILTERED => {
                own.query_prefix(prefix, hash, extractor)
            }
            _ => verdict,
        }
    }

    /// The reader of the user-defined policy, if there is one.
    pub(crate) fn reader(&self) -> Option<&Arc<dyn UserFilterReader>> {
        self.loader.reader.as_ref()
    }

    /// The directory's entry for the filter of whole keys.
    pub fn keys_part(&self) -> Option<&FilterPart> {
        let own = || self.stand_in()?.keys_part();
        self.keys.as_ref().map(|part| &part.entry).or_else(own)
    }

    /// The directory's entry for the filter of prefixes.
    pub fn prefixes_part(&self) -> Option<&FilterPart> {
        let own = || self.stand_in()?.prefixes_part();
        self.prefixes.as_ref().map(|part| &part.entry).or_else(own)
    }

    /// The part for ranges of keys.
    #[inline]
    pub(crate) fn ranges(&self) -> Option<&Arc<RangePart>> {
        match &self.ranges {
            Some(ranges) if self.own.is_none() || ranges.fault().is_none() => Some(ranges),
            // The table's own are the fallback, also if only this part of a sidecar is damaged.
            Some(_) => self.own.as_deref()?.ranges(),
            None => self.stand_in()?.ranges(),
        }
    }

    /// Whether the range filter, if there is one, admits `key` in the block at `at` of `leaf`:
    /// always, if that holds it.
    pub(crate) fn may_hold_at(&self, index: &IndexTree, leaf: &Index, at: At, key: &[u8]) -> bool {
        let Some(ranges) = self.ranges() else { return true };
        let end = [key, b"\0"].concat();
        let answer = ranges.query_in(index, leaf, at, key, Some(&end), &mut Default::default());
        answer.is_none_or(|answer| answer.maybe)
    }

    /// Whether scans can query a range filter.
    #[inline]
    pub fn have_ranges(&self) -> bool {
        self.ranges().is_some()
    }

    /// Stored bytes of the range filter: the sidecar's, unless the table's own filters are the
    /// fallback.
    pub fn range_bytes(&self) -> u64 {
        let ranges = self.stand_in().unwrap_or(self).ranges.as_ref();
        ranges.map_or(0, |ranges| ranges.part().entry.bytes)
    }

    /// The facts of the range filter, as recorded when it was built.
    pub fn range_facts(&self) -> FilterFacts {
        self.ranges().map_or(FilterFacts::NONE, |ranges| ranges.part().range_facts())
    }

    /// The stored parts, in order, whether or not they can be queried.
    pub fn stored_parts(&self) -> impl Iterator<Item = &FilterPart> {
        self.parts().chain(&self.foreign).map(|part| &part.entry)
    }

    /// The facts of the filter that point lookups query. Reads the filter if the directory lacks
    /// them.
    pub fn facts(&self) -> FilterFacts {
        let facts = self.facts_of(self.keys.as_ref().or(self.prefixes.as_ref()));
        self.or_own(facts, Self::facts)
    }

    /// The facts of the filter of prefixes; its `keys` are prefixes.
    pub fn prefix_facts(&self) -> FilterFacts {
        self.or_own(self.facts_of(self.prefixes.as_ref()), Self::prefix_facts)
    }

    /// `facts`, or those of the table's own filters if they are the fallback and `facts` has none.
    fn or_own(&self, facts: FilterFacts, of_own: fn(&Self) -> FilterFacts) -> FilterFacts {
        match self.stand_in() {
            Some(own) if facts.kind == FilterKind::None => of_own(own),
            _ => facts,
        }
    }

    fn facts_of(&self, part: Option<&Part>) -> FilterFacts {
        part.and_then(|part| part.facts(&self.loader)).unwrap_or(FilterFacts::NONE)
    }

    /// Bytes of memory that the filters have pinned. Those in the block cache count there.
    pub fn pinned_bytes(&self) -> u64 {
        let own = self.own.as_ref().map_or(0, |own| own.pinned_bytes());
        own + self.parts().map(Part::pinned_bytes).sum::<u64>()
    }

    /// Evicts the filters from the block cache. If the top index of a partitioned filter is no
    /// longer in memory, partitions may stay until the cache evicts them.
    pub fn evict(&self) {
        for part in self.parts() {
            part.evict(&self.loader);
        }
        if let Some(own) = &self.own {
            own.evict();
        }
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        let ranges = self.ranges.as_ref().map(|ranges| ranges.part());
        self.keys.iter().chain(&self.prefixes).chain(ranges)
    }
}

/// The parts of the filter region.
///
/// # Errors
/// Why the directory is corrupt.
pub(crate) fn parts_of(
    footer: &Footer,
    properties: &Properties,
) -> Result<Vec<Listed>, &'static str> {
    if footer.filter_bytes == 0 {
        return Ok(Vec::new());
    }
    if !properties.filters.is_empty() {
        return directory::decode(&properties.filters, footer.filter_bytes);
    }
    Ok(vec![Listed::Part(FilterPart {
        role: FilterRole::Keys,
        shape: FilterShape::Whole,
        expected_fpr: 1.0,
        keys: properties.contents.keys,
        bytes: footer.filter_bytes,
        top_bytes: 0,
        spec: properties.filter.clone(),
        policy: String::new(),
        extractor: String::new(),
    })])
}

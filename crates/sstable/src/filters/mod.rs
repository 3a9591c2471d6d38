//! The filters of a table.
//!
//! 1. The filter region holds up to two parts: a filter of whole keys, and one of prefixes
//!    ([`directory`]).
//! 2. A point lookup queries the filter of whole keys ([`Filters::ask`]); where a table has none,
//!    that of the prefixes, if the key has one. A scan within one prefix queries that of the
//!    prefixes ([`Filters::ask_prefix`]).
//! 3. A part is one filter or is partitioned ([`part`]); a block of it is read when it is first
//!    queried ([`loader`]), and held in the table or in the block cache ([`resident`]).
//! 4. Where the table has a sidecar, its filters are queried instead of the table's own. These
//!    stand in where anything of the sidecar cannot be used.
//! 5. Whatever cannot be used answers "maybe": a filter that is damaged, of an unknown kind, or
//!    made by another extractor, or by a user's policy that is not here ([`crate::user_filter`]).
//!
//! Called by the engine before it reads a table's blocks, so that it can count.

mod build;
mod directory;
mod facts;
mod loader;
mod part;
mod pieces;
mod prefix;
mod resident;
mod user_build;

use std::sync::Arc;

use trommel_filter::{FilterKind, FilterLines};

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
pub(crate) use pieces::BuiltPart;
pub(crate) use prefix::Watch;
pub use prefix::{PrefixExtractor, prefix_of};
pub(crate) use user_build::UserBuild;

use crate::filter_host::{FilterHost, FilterState};
use crate::format::Footer;
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
    /// Those that cannot be queried here.
    foreign: Vec<Part>,
    /// The table's own, where these are those of its sidecar.
    own: Option<Box<Filters>>,
}

impl Filters {
    /// Reads from the properties what the filter region holds; of the region itself, nothing yet.
    /// Without a host, whatever is read stays. `reader` is that of the user's policy, if there is
    /// one.
    pub(crate) fn open(
        source: &Arc<Source>,
        index: &Arc<IndexTree>,
        footer: &Footer,
        properties: &Properties,
        host: Option<Arc<dyn FilterHost>>,
        reader: Option<Arc<dyn UserFilterReader>>,
    ) -> Self {
        let is_wanted = host.as_ref().is_none_or(|host| host.wants_filters());
        let (source, table) = (Arc::clone(source), Arc::clone(source));
        let loader = BlockLoader::new(source, table, Arc::clone(index), host, reader);
        if !is_wanted && footer.filter_bytes > 0 {
            loader.note(FilterState::Spared);
            return Self::of_parts(loader, Vec::new(), 0);
        }
        let parts = parts_of(footer, properties).unwrap_or_else(|why| {
            loader.note(FilterState::Damaged(why.into()));
            Vec::new()
        });
        Self::of_parts(loader, parts, footer.filter_offset())
    }

    /// The filters of a sidecar of this table alone, side by side from `offset` of `sidecar`. They
    /// have no host: whatever is read stays in memory.
    pub(crate) fn of_sidecar(&self, sidecar: Arc<Source>, parts: Vec<Listed>, offset: u64) -> Self {
        let BlockLoader { table, index, reader, .. } = &self.loader;
        let (table, index) = (Arc::clone(table), Arc::clone(index));
        Self::of_parts(BlockLoader::new(sidecar, table, index, None, reader.clone()), parts, offset)
    }

    /// Replaces these filters by those of a sidecar, side by side from `offset` of `source`. They
    /// stand in for the sidecar's.
    pub(crate) fn stand_behind(&mut self, source: Arc<Source>, parts: Vec<Listed>, offset: u64) {
        let BlockLoader { table, index, host, reader, .. } = &self.loader;
        let (table, index) = (Arc::clone(table), Arc::clone(index));
        let loader = BlockLoader::new(source, table, index, host.clone(), reader.clone());
        let own = std::mem::replace(self, Self::of_parts(loader, parts, offset));
        self.own = Some(Box::new(own));
    }

    /// No filters at all, with the same reader of a user's policy.
    pub(crate) fn left_out(&self) -> Self {
        let BlockLoader { table, index, reader, .. } = &self.loader;
        let (table, index) = (Arc::clone(table), Arc::clone(index));
        let loader = BlockLoader::new(Arc::clone(&table), table, index, None, reader.clone());
        Self::of_parts(loader, Vec::new(), 0)
    }

    fn of_parts(loader: BlockLoader, parts: Vec<Listed>, mut offset: u64) -> Self {
        let mut filters =
            Self { loader, keys: None, prefixes: None, foreign: Vec::new(), own: None };
        for listed in parts {
            let bytes = listed.bytes();
            match listed {
                Listed::Part(said) => filters.add(said, offset),
                Listed::Later { .. } => {
                    let why = "one is of a role or a shape that this version does not know";
                    filters.loader.note(FilterState::Unknown(why.into()));
                }
            }
            offset += bytes;
        }
        filters
    }

    /// The table's own, whether or not they are those that are queried.
    pub fn own(&self) -> &Self {
        self.own.as_deref().unwrap_or(self)
    }

    /// Whether they lie in a sidecar.
    pub fn are_beside(&self) -> bool {
        self.own.is_some()
    }

    /// What is queried in place of these: the table's own, where something of the sidecar cannot be
    /// used. (A sidecar that was built without a filter is used, and has no stand-in.)
    fn stand_in(&self) -> Option<&Self> {
        self.own.as_deref().filter(|_| self.loader.fault().is_some())
    }

    /// Whether the table's own filters answer, as far as they were read, because something of the
    /// sidecar cannot be used or the sidecar is missing.
    pub fn have_stand_in(&self) -> bool {
        self.stand_in().is_some()
    }

    /// Notes that something of them is damaged.
    pub(crate) fn note_damage(&self, why: String) {
        self.loader.note(FilterState::Damaged(why));
    }

    /// Whether there is one that this version does not know, or that cannot be queried here.
    pub(crate) fn has_unused(&self) -> bool {
        matches!(self.state(), FilterState::Foreign(_) | FilterState::Unknown(_))
    }

    /// Adds the part that is said to start at `offset`.
    fn add(&mut self, said: FilterPart, offset: u64) {
        let role = said.role;
        let why_foreign = Part::why_foreign(&said, &self.loader);
        let part = Part::new(said, offset, why_foreign.is_some());
        match (why_foreign, role) {
            (Some(state), _) => {
                self.loader.note(state);
                self.foreign.push(part);
            }
            (None, FilterRole::Keys) => self.keys = Some(part),
            (None, FilterRole::Prefixes) => self.prefixes = Some(part),
        }
    }

    /// Whether there are filters, and why not, as far as they were read so far: each is read when
    /// it is first queried. See [`check`](Self::check).
    pub fn state(&self) -> &FilterState {
        const READY: &FilterState = &FilterState::Loaded;
        const ABSENT: &FilterState = &FilterState::Absent;
        let parts = self.keys.is_some() || self.prefixes.is_some();
        self.loader.fault().unwrap_or(if parts { READY } else { ABSENT })
    }

    /// [`state`](Self::state), once everything has been read, also what cannot be queried here.
    /// Keeps nothing of that in memory.
    ///
    /// # Errors
    /// [`Error::Io`] where a part could not be read.
    pub fn check(&self) -> Result<&FilterState, Error> {
        for part in self.parts().chain(&self.foreign) {
            part.check(&self.loader)?;
        }
        Ok(self.state())
    }

    /// What the table's filter of whole keys answers for the key whose [`trommel_filter::hash`]
    /// this is.
    #[inline]
    pub fn ask(&self, key: &[u8], hash: u64) -> Verdict {
        match self.keys.as_ref().and_then(Part::pinned_filter) {
            Some(filter) => Verdict::of(filter, hash),
            None => self.ask_elsewhere(key, hash),
        }
    }

    /// As [`ask`](Self::ask), where the filter is not whole and pinned. Where the sidecar's cannot
    /// answer, the table's own are queried.
    #[inline(never)]
    fn ask_elsewhere(&self, key: &[u8], hash: u64) -> Verdict {
        let asked = self.keys.as_ref();
        let verdict = asked.map_or(Verdict::UNFILTERED, |part| part.ask(key, hash, &self.loader));
        match self.own {
            Some(_) if verdict == Verdict::UNFILTERED => {
                self.stand_in().map_or(Verdict::UNFILTERED, |own| own.ask(key, hash))
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

    /// Prefetches the cache line that [`ask`](Self::ask) reads first, if a whole filter of keys is
    /// pinned. Never reads the file.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Some(part) = &self.keys {
            part.prefetch(hash);
        }
    }

    /// [`ask`](Self::ask) for many keys, whose hashes are `hashes`, cheapest if they are sorted.
    /// Their answers replace what `answers` held.
    pub fn ask_many(&self, keys: &[&[u8]], hashes: &[u64], answers: &mut Answers) {
        answers.clear();
        if self.stand_in().is_some() {
            for (key, hash) in keys.iter().zip(hashes) {
                answers.add_one(self.ask(key, *hash));
            }
            return;
        }
        match &self.keys {
            Some(part) => part.ask_many(keys, hashes, answers, &self.loader),
            None => answers.add_unfiltered(keys.len()),
        }
    }

    /// Whether the table may hold a key with this prefix, which the extractor of this name made.
    pub fn ask_prefix(&self, prefix: &[u8], hash: u64, extractor: &str) -> Verdict {
        let verdict = match &self.prefixes {
            Some(part) if part.said.extractor == extractor => {
                part.ask_prefix(prefix, hash, &self.loader)
            }
            _ => Verdict::UNFILTERED,
        };
        match self.stand_in() {
            Some(own) if verdict == Verdict::UNFILTERED => own.ask_prefix(prefix, hash, extractor),
            _ => verdict,
        }
    }

    /// The reader of a user's policy, if there is one.
    pub(crate) fn reader(&self) -> Option<&Arc<dyn UserFilterReader>> {
        self.loader.reader.as_ref()
    }

    /// The part that was built of whole keys, as the table describes it.
    pub fn keys_part(&self) -> Option<&FilterPart> {
        let own = || self.stand_in()?.keys_part();
        self.keys.as_ref().map(|part| &part.said).or_else(own)
    }

    /// The part that was built of prefixes, as the table describes it.
    pub fn prefixes_part(&self) -> Option<&FilterPart> {
        let own = || self.stand_in()?.prefixes_part();
        self.prefixes.as_ref().map(|part| &part.said).or_else(own)
    }

    /// The stored parts, in their order, whether or not they can be queried.
    pub fn stored_parts(&self) -> impl Iterator<Item = &FilterPart> {
        self.parts().chain(&self.foreign).map(|part| &part.said)
    }

    /// The facts of the filter that point lookups query. Reads it where the table's directory does
    /// not have them.
    pub fn facts(&self) -> FilterFacts {
        let facts = self.facts_of(self.keys.as_ref().or(self.prefixes.as_ref()));
        self.or_own(facts, Self::facts)
    }

    /// The facts of the filter of prefixes; its `keys` are prefixes.
    pub fn prefix_facts(&self) -> FilterFacts {
        self.or_own(self.facts_of(self.prefixes.as_ref()), Self::prefix_facts)
    }

    /// `facts`, or those of the table's own filters where these stand in and there are no others.
    fn or_own(&self, facts: FilterFacts, of_own: fn(&Self) -> FilterFacts) -> FilterFacts {
        match self.stand_in() {
            Some(own) if facts.kind == FilterKind::None => of_own(own),
            _ => facts,
        }
    }

    fn facts_of(&self, part: Option<&Part>) -> FilterFacts {
        part.and_then(|part| part.facts(&self.loader)).unwrap_or(FilterFacts::NONE)
    }

    /// Bytes of memory that the filters have pinned; those in the block cache count there.
    pub fn pinned_bytes(&self) -> u64 {
        let own = self.own.as_ref().map_or(0, |own| own.pinned_bytes());
        own + self.parts().map(Part::pinned_bytes).sum::<u64>()
    }

    /// Evicts the filters from the block cache. Where the top of a partitioned one is no longer in
    /// memory, partitions may stay until they are the least used.
    pub fn evict(&self) {
        for part in self.parts() {
            part.evict(&self.loader);
        }
        if let Some(own) = &self.own {
            own.evict();
        }
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.keys.iter().chain(&self.prefixes)
    }
}

/// The parts of the filter region.
///
/// # Errors
/// What is wrong with its directory.
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
        keys: properties.keys,
        bytes: footer.filter_bytes,
        top_bytes: 0,
        spec: properties.filter.clone(),
        policy: String::new(),
        extractor: String::new(),
    })])
}

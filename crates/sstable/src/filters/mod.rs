//! The filters of a table, as its reader asks them.
//!
//! 1. The filter region holds up to two parts: a filter of whole keys, and one of prefixes
//!    ([`directory`]).
//! 2. A point lookup asks the whole keys' filter ([`Filters::ask`]); where a table has none, that
//!    of the prefixes, if the key has one. A scan within one prefix asks that of the prefixes
//!    ([`Filters::ask_prefix`]).
//! 3. Whatever cannot be used answers "maybe": a filter that is damaged, of an unknown kind, or
//!    made by another extractor.
//!
//! Called by the engine before it touches a table's blocks, so that it can count.

mod build;
mod directory;
mod prefix;

use std::sync::Arc;

use trommel_filter::{DecodeError, Filter, FilterKind};
use trommel_vfs::advise_huge_pages;

pub use build::FilterPlan;
pub(crate) use build::{BuiltPart, FiltersBuilder};
pub(crate) use directory::encode as encode_directory;
pub use directory::{FilterPart, FilterRole, FilterShape};
pub(crate) use prefix::Watch;
pub use prefix::{PrefixExtractor, prefix_of};

use crate::format::{BlockKind, Footer};
use crate::source::Source;
use crate::table::Tail;
use crate::{Error, Properties};

/// Whether the table's filters can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterState {
    /// They can.
    Loaded,
    /// The table was built without any.
    Absent,
    /// One is damaged or could not be read; the text says how. It answers "maybe".
    Damaged(String),
    /// One is of a kind this version does not know. It answers "maybe".
    Unknown(String),
}

/// What a table's filters say of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// Whether the table may hold it.
    pub maybe: bool,
    /// Kind of the filter that said so; [`FilterKind::None`] where none could be asked.
    pub kind: FilterKind,
    /// How often a filter like that says "maybe" of an absent key: its exact expected rate. 1
    /// where none could be asked.
    pub expected: f64,
}

impl Verdict {
    /// That of a table without a usable filter.
    pub const UNFILTERED: Self = Self { maybe: true, kind: FilterKind::None, expected: 1.0 };
}

/// What a table's filter of whole keys is; of prefixes, where it has no other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterFacts {
    /// Its kind; [`FilterKind::None`] where there is none to ask.
    pub kind: FilterKind,
    /// Bits per key asked for.
    pub bits_asked: f64,
    /// Bits per key stored.
    pub bits_stored: f64,
    /// Distinct keys in it.
    pub keys: u64,
    /// Bits that a positive answer looks at.
    pub probes: u32,
    /// Its exact expected rate.
    pub expected: f64,
    /// Bytes of memory, were it loaded whole.
    pub bytes: u64,
}

impl FilterFacts {
    /// Those of no filter.
    pub const NONE: Self = Self {
        kind: FilterKind::None,
        bits_asked: 0.0,
        bits_stored: 0.0,
        keys: 0,
        probes: 0,
        expected: 1.0,
        bytes: 0,
    };
}

/// One part that can be asked.
#[derive(Debug)]
struct Usable {
    part: FilterPart,
    filter: Filter,
}

/// The filters of one open table.
#[derive(Debug)]
pub struct Filters {
    keys: Option<Usable>,
    prefixes: Option<Usable>,
    state: FilterState,
}

impl Filters {
    /// Reads what the filter region holds. What cannot be used is no error: see
    /// [`Filters::state`].
    pub(crate) fn open(
        source: &Source,
        footer: &Footer,
        properties: &Properties,
        tail: &Tail,
    ) -> Self {
        let mut filters = Self { keys: None, prefixes: None, state: FilterState::Absent };
        let parts = match parts_of(footer, properties) {
            Ok(parts) => parts,
            Err(why) => return Self { state: FilterState::Damaged(why), ..filters },
        };
        let mut offset = footer.filter_offset();
        for part in parts {
            let bytes = part.bytes;
            let role = part.role;
            match load(source, tail, offset, part) {
                Ok(usable) if role == FilterRole::Keys => filters.keys = Some(usable),
                Ok(usable) => filters.prefixes = Some(usable),
                Err(why) => filters.state = why,
            }
            if filters.state == FilterState::Absent {
                filters.state = FilterState::Loaded;
            }
            offset += bytes;
        }
        filters
    }

    /// Whether there are filters, and why not.
    pub fn state(&self) -> &FilterState {
        &self.state
    }

    /// What the table says of the key whose [`trommel_filter::hash`] this is. `extractor` is the
    /// one in use now, if there is one.
    #[inline]
    pub fn ask(
        &self,
        key: &[u8],
        hash: u64,
        extractor: Option<&Arc<dyn PrefixExtractor>>,
    ) -> Verdict {
        if let Some(Usable { filter, .. }) = &self.keys {
            return verdict(filter, hash);
        }
        let Some(extractor) = extractor else { return Verdict::UNFILTERED };
        match prefix_of(&**extractor, key) {
            Some(prefix) => self.ask_prefix(prefix, trommel_filter::hash(prefix), extractor.name()),
            None => Verdict::UNFILTERED,
        }
    }

    /// [`ask`](Self::ask) for many keys: `answers[i]` becomes whether the table may hold the key
    /// of `hashes[i]`. `None`, and no answer, if there is no filter of whole keys.
    pub fn ask_many(&self, hashes: &[u64], answers: &mut [bool]) -> Option<Verdict> {
        let Usable { filter, .. } = self.keys.as_ref()?;
        filter.may_contain_many(hashes, answers);
        Some(Verdict { maybe: true, kind: filter.kind(), expected: filter.expected_fpr() })
    }

    /// Whether the table may hold a key with this prefix, which the extractor of this name made.
    pub fn ask_prefix(&self, _prefix: &[u8], hash: u64, extractor: &str) -> Verdict {
        match &self.prefixes {
            Some(Usable { filter, part }) if part.extractor == extractor => verdict(filter, hash),
            _ => Verdict::UNFILTERED,
        }
    }

    /// The part that was built of whole keys.
    pub fn keys_part(&self) -> Option<&FilterPart> {
        self.keys.as_ref().map(|usable| &usable.part)
    }

    /// The part that was built of prefixes.
    pub fn prefixes_part(&self) -> Option<&FilterPart> {
        self.prefixes.as_ref().map(|usable| &usable.part)
    }

    /// What the filter that point lookups ask is.
    pub fn facts(&self) -> FilterFacts {
        Self::facts_of(self.keys.as_ref().or(self.prefixes.as_ref()))
    }

    /// What the filter of prefixes is; its `keys` are prefixes.
    pub fn prefix_facts(&self) -> FilterFacts {
        Self::facts_of(self.prefixes.as_ref())
    }

    fn facts_of(usable: Option<&Usable>) -> FilterFacts {
        let Some(Usable { filter, .. }) = usable else { return FilterFacts::NONE };
        FilterFacts {
            kind: filter.kind(),
            bits_asked: filter.requested_bits_per_key(),
            bits_stored: filter.bits_per_key(),
            keys: filter.keys(),
            probes: filter.probes(),
            expected: filter.expected_fpr(),
            bytes: filter.memory_bytes() as u64,
        }
    }

    /// Bytes of memory that all filters take now.
    pub fn memory_bytes(&self) -> usize {
        let of = |usable: &Usable| usable.filter.memory_bytes();
        self.keys.as_ref().map_or(0, of) + self.prefixes.as_ref().map_or(0, of)
    }
}

#[inline]
fn verdict(filter: &Filter, hash: u64) -> Verdict {
    Verdict {
        maybe: filter.may_contain_hash(hash),
        kind: filter.kind(),
        expected: filter.expected_fpr(),
    }
}

/// The parts of the filter region; the text says what is wrong with its directory.
pub(crate) fn parts_of(
    footer: &Footer,
    properties: &Properties,
) -> Result<Vec<FilterPart>, String> {
    if footer.filter_bytes == 0 {
        return Ok(Vec::new());
    }
    if !properties.filters.is_empty() {
        let parts = directory::decode(&properties.filters, footer.filter_bytes);
        return parts.map_err(|_| "the directory of filters makes no sense".into());
    }
    Ok(vec![FilterPart {
        role: FilterRole::Keys,
        shape: FilterShape::Whole,
        expected_fpr: 1.0,
        keys: properties.keys,
        bytes: footer.filter_bytes,
        top_bytes: 0,
        spec: properties.filter.clone(),
        policy: String::new(),
        extractor: String::new(),
    }])
}

fn load(
    source: &Source,
    tail: &Tail,
    offset: u64,
    part: FilterPart,
) -> Result<Usable, FilterState> {
    if part.shape != FilterShape::Whole {
        return Err(FilterState::Unknown("it is cut in a way this version cannot read".into()));
    }
    if !part.policy.is_empty() {
        let why = format!("it was made by the policy \"{}\", which is not here", part.policy);
        return Err(FilterState::Unknown(why));
    }
    let stored = tail.block(source, offset, part.bytes);
    let payload = stored
        .as_ref()
        .map_err(Error::clone)
        .and_then(|stored| source.open_plain(stored, offset, BlockKind::Filter));
    match payload.map(|payload| Filter::decode_into(payload, advise_huge_pages)) {
        Ok(Ok(filter)) => Ok(Usable { part, filter }),
        Ok(Err(error @ DecodeError::Unknown { .. })) => {
            Err(FilterState::Unknown(error.to_string()))
        }
        Ok(Err(error)) => Err(FilterState::Damaged(error.to_string())),
        Err(error @ Error::Unsupported { .. }) => Err(FilterState::Unknown(error.to_string())),
        Err(error) => Err(FilterState::Damaged(error.to_string())),
    }
}

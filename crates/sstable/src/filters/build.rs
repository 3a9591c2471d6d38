//! Builds the filter region of a table: from the keys as they come, part after part at the end.

use std::sync::Arc;

use trommel_filter::{Filter, FilterBuilder, FilterKind, FilterSpec};

use super::directory::{FilterPart, FilterRole, FilterShape};
use super::prefix::{PrefixExtractor, Watch};

/// The filters of a table.
#[derive(Debug, Clone, Default)]
pub struct FilterPlan {
    /// The filter of whole keys (default none).
    pub keys: FilterSpec,
    /// The filter of prefixes, and who makes them (default none).
    pub prefixes: Option<(FilterSpec, Arc<dyn PrefixExtractor>)>,
    /// How they are cut (default: each whole).
    pub shape: FilterShape,
}

impl From<FilterSpec> for FilterPlan {
    fn from(keys: FilterSpec) -> Self {
        Self { keys, ..Self::default() }
    }
}

/// Takes the keys of a table, in order, and builds its filters.
#[derive(Debug)]
pub(crate) struct FiltersBuilder {
    keys: FilterBuilder,
    prefixes: Option<Prefixes>,
}

#[derive(Debug)]
struct Prefixes {
    extractor: Arc<dyn PrefixExtractor>,
    watch: Watch,
    filter: FilterBuilder,
}

/// A part and its bytes, still without frames.
pub(crate) struct BuiltPart {
    pub(crate) part: FilterPart,
    pub(crate) payload: Vec<u8>,
}

impl FiltersBuilder {
    pub(crate) fn new(plan: &FilterPlan) -> Self {
        let prefixes = plan.prefixes.as_ref().map(|(spec, extractor)| Prefixes {
            extractor: Arc::clone(extractor),
            watch: Watch::default(),
            filter: spec.builder(),
        });
        Self { keys: plan.keys.builder(), prefixes }
    }

    /// Adds a key that is not the one before it.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], hash: u64) {
        self.keys.add_hash(hash);
        let Some(Prefixes { extractor, watch, filter }) = &mut self.prefixes else { return };
        match watch.next(&**extractor, key) {
            // Keys of one prefix follow each other, and a hash equal to the last is dropped.
            Ok(Some(prefix)) => filter.add(prefix),
            Ok(None) => {}
            Err(breach) => {
                extractor.distrust(breach);
                self.prefixes = None;
            }
        }
    }

    /// About how many bytes the parts would take if they were finished now.
    pub(crate) fn estimated_bytes(&self) -> u64 {
        finished_bytes(&self.keys)
            + self.prefixes.as_ref().map_or(0, |prefixes| finished_bytes(&prefixes.filter))
    }

    /// Bytes of memory that building takes from here to its end, at most, were few keys to follow.
    pub(crate) fn memory_bytes(&self) -> u64 {
        // Parts are finished one after the other, but hold their hashes together.
        building_bytes(&self.keys)
            + self.prefixes.as_ref().map_or(0, |prefixes| building_bytes(&prefixes.filter))
    }

    /// Builds the parts one after the other and hands each to `write`.
    pub(crate) fn finish<E>(
        self,
        mut write: impl FnMut(BuiltPart) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { keys, prefixes } = self;
        if let Some(part) = whole(keys, FilterRole::Keys, String::new()) {
            write(part)?;
        }
        if let Some(Prefixes { extractor, filter, .. }) = prefixes
            && let Some(part) = whole(filter, FilterRole::Prefixes, extractor.name().to_owned())
        {
            write(part)?;
        }
        Ok(())
    }
}

/// Most bytes that a list of hashes grows by, and that dealing them out holds twice.
const GROWTH_BYTES: u64 = 256 << 10;
/// Keys of the largest shard of a ribbon, and what solving takes for each.
const SHARD_KEYS: u64 = 1 << 16;
const SHARD_KEY_BYTES: u64 = 26;

/// Bytes of memory that `filter` takes while it is built.
///
/// 1. Its hashes, and by how much their list may be about to grow. While they are dealt out, each
///    list has one chunk that is not full: a sixteenth of them, at most.
/// 2. The finished filter beside them; and beside itself, once they are gone and it is written out.
/// 3. For a ribbon, the equations of one shard.
fn building_bytes(filter: &FilterBuilder) -> u64 {
    if filter.spec() == FilterSpec::NONE {
        return 0;
    }
    let hashes = filter.memory_bytes() as u64;
    let dealt = hashes + hashes.min(GROWTH_BYTES) + hashes / 16;
    let finished = finished_bytes(filter) + (1 << 10);
    let shard = match filter.spec().kind() {
        FilterKind::Ribbon => filter.len().min(SHARD_KEYS) * SHARD_KEY_BYTES,
        _ => 0,
    };
    dealt.max(finished) + finished + shard
}

/// About how many bytes the filter would take if it were finished now.
fn finished_bytes(filter: &FilterBuilder) -> u64 {
    (filter.len() as f64 * filter.spec().bits_per_key() / 8.0) as u64
}

/// One filter for the whole table; none where none was asked for.
fn whole(filter: FilterBuilder, role: FilterRole, extractor: String) -> Option<BuiltPart> {
    let (spec, keys) = (filter.spec(), filter.len());
    if spec == FilterSpec::NONE {
        return None;
    }
    let payload = filter.finish();
    let expected_fpr = Filter::peek_expected_fpr(&payload);
    let part = FilterPart {
        role,
        shape: FilterShape::Whole,
        expected_fpr,
        keys,
        bytes: 0,
        top_bytes: 0,
        spec: spec.to_string(),
        policy: String::new(),
        extractor,
    };
    Some(BuiltPart { part, payload })
}

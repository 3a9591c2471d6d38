//! Builds the filter region of a table: from the keys as they come, part after part at the end.

use std::sync::Arc;

use trommel_filter::{Filter, FilterBuilder, FilterSpec};

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
        let of = |filter: &FilterBuilder| {
            (filter.len() as f64 * filter.spec().bits_per_key() / 8.0) as u64
        };
        of(&self.keys) + self.prefixes.as_ref().map_or(0, |prefixes| of(&prefixes.filter))
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

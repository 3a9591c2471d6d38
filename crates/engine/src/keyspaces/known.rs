//! The known named keyspaces of an open store, by id.
//!
//! Reads, flushes and compactions take the id from the header of a physical key. They look up the
//! options of a table, and the merge operator of a key, under a shared lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::options::RecordedOperator;
use super::{KeyspaceOptions, KeyspaceState, Keyspaces, PLAIN};
use crate::merge_operator::UserMergeOperator;
use crate::options::Options;
use crate::space::{CATALOG_ID, id_of};
use crate::sync::{read_lock, write_lock};

/// The named keyspaces by id, and the options of their tables.
#[derive(Debug, Default)]
pub(super) struct KnownKeyspaces {
    by_id: BTreeMap<u32, KnownKeyspace>,
    /// Whether the catalog was read in its visible state.
    are_all: bool,
    /// Whether an entry of the catalog was read from a log that is not visible yet.
    are_changing: bool,
    /// The store's options that those below were derived from.
    base: Option<Arc<Options>>,
    /// The options of tables, by the text that stands for those of a keyspace.
    derived: HashMap<Arc<str>, Arc<Options>>,
}

#[derive(Debug)]
struct KnownKeyspace {
    state: Arc<KeyspaceState>,
    /// The options that differ from the store's, if any do.
    own: Option<Box<OwnOptions>>,
}

#[derive(Debug)]
struct OwnOptions {
    /// The text that stands for the options of tables; empty if these are the store's.
    of_tables: Arc<str>,
    options: KeyspaceOptions,
}

/// The merge operator that a keyspace has of its own.
#[derive(Debug)]
pub(crate) enum OwnOperator {
    /// It was given, or is a built-in one.
    Given(UserMergeOperator),
    /// The keyspace was not opened with it.
    Missing {
        /// Its recorded name.
        name: String,
        /// The name of the keyspace.
        keyspace: String,
    },
    /// The catalog has not been read, or not since it changed.
    Unknown,
}

impl KnownKeyspace {
    fn operator(&self) -> Option<&RecordedOperator> {
        self.own.as_ref().and_then(|own| own.options.operator())
    }
}

impl KnownKeyspaces {
    fn text_of_tables(&self, id: u32) -> Option<&Arc<str>> {
        let own = self.by_id.get(&id).and_then(|known| known.own.as_ref());
        own.map(|own| &own.of_tables).filter(|text| !text.is_empty())
    }

    fn is_derived_from(&self, base: &Arc<Options>) -> bool {
        self.base.as_ref().is_some_and(|of| Arc::ptr_eq(of, base))
    }
}

impl Keyspaces {
    /// Whether tables of a keyspace have had options of their own.
    pub(crate) fn has_tables_of_own(&self) -> bool {
        self.has_tables_of_own.load(Ordering::Acquire)
    }

    /// Records a keyspace and its options. A merge operator that was given is kept.
    pub(crate) fn note(&self, state: &Arc<KeyspaceState>, mut options: KeyspaceOptions) {
        let mut known = write_lock(&self.known);
        if let Some(before) = known.by_id.get(&state.id).and_then(KnownKeyspace::operator) {
            options.keep_operator(before);
        }
        let of_tables: Arc<str> = options.key_of_tables().into();
        if !of_tables.is_empty() {
            self.has_tables_of_own.store(true, Ordering::Release);
        }
        if options.operator().is_some() {
            self.has_operators.store(true, Ordering::Release);
        }
        let is_own = !options.key().is_empty();
        let own = is_own.then(|| Box::new(OwnOptions { of_tables, options }));
        known.by_id.insert(state.id, KnownKeyspace { state: Arc::clone(state), own });
    }

    /// Records that all keyspaces of the catalog are known.
    pub(crate) fn noted_all(&self) {
        write_lock(&self.known).are_all = true;
    }

    /// Records that the catalog is about to change.
    pub(crate) fn note_changing(&self) {
        write_lock(&self.known).are_changing = true;
    }

    /// Records that keyspaces may have merge operators of their own. If the catalog has changed
    /// since it was read (`has_changed`, or by [`note_changing`](Self::note_changing)), new
    /// operators are unknown until it is read again.
    pub(crate) fn expect_operators(&self, has_changed: bool) {
        let mut known = write_lock(&self.known);
        if std::mem::take(&mut known.are_changing) || has_changed {
            known.are_all = false;
        }
        self.has_operators.store(true, Ordering::Release);
    }

    /// Forgets a keyspace that was dropped, except for its merge operator, which snapshots need.
    pub(crate) fn forget(&self, id: u32) {
        let mut known = write_lock(&self.known);
        if known.by_id.get(&id).is_some_and(|known| known.operator().is_none()) {
            known.by_id.remove(&id);
        }
    }

    /// The options of keyspace `id` that differ from the store's.
    pub(crate) fn own_options(&self, id: u32) -> KeyspaceOptions {
        let known = read_lock(&self.known);
        let own = known.by_id.get(&id).and_then(|known| known.own.as_ref());
        own.map(|own| own.options.clone()).unwrap_or_default()
    }

    /// The name of keyspace `id`, unless it was dropped.
    pub(crate) fn name_of(&self, id: u32) -> Option<String> {
        let known = read_lock(&self.known);
        let live = known.by_id.get(&id).filter(|known| known.state.check_live().is_ok());
        live.map(|known| known.state.name.clone())
    }

    /// The options of the table that holds this physical key, if `base` are the store's. Tables
    /// with the same options get the same result.
    pub(crate) fn options_for(&self, physical: &[u8], base: Arc<Options>) -> Arc<Options> {
        let has_prefix = base.filtering.prefix_extractor.is_some();
        if !has_prefix && !self.has_tables_of_own() {
            return base;
        }
        let Some(id) = id_of(physical).filter(|id| *id > CATALOG_ID) else { return base };
        if self.mapped_from.load(Ordering::Acquire) == PLAIN {
            return base;
        }
        let known = read_lock(&self.known);
        let own = known.text_of_tables(id);
        if own.is_none() && !has_prefix {
            // Nothing differs, not even the part of the key that has a prefix.
            return base;
        }
        if known.is_derived_from(&base)
            && let Some(options) = known.derived.get(own.map_or("", |own| own))
        {
            return Arc::clone(options);
        }
        drop(known);
        self.derive(id, &base)
    }

    #[cold]
    fn derive(&self, id: u32, base: &Arc<Options>) -> Arc<Options> {
        let mut known = write_lock(&self.known);
        if !known.is_derived_from(base) {
            known.derived.clear();
            known.base = Some(Arc::clone(base));
        }
        let text = known.text_of_tables(id).map_or_else(|| "".into(), Arc::clone);
        let KnownKeyspaces { by_id, derived, .. } = &mut *known;
        let own = by_id.get(&id).and_then(|known| known.own.as_ref());
        let derive = || match own {
            Some(own) => Arc::new(own.options.over(base)),
            None => Arc::new(KeyspaceOptions::default().over(base)),
        };
        Arc::clone(derived.entry(text).or_insert_with(derive))
    }

    /// Whether a keyspace has a merge operator of its own.
    #[inline]
    pub(crate) fn have_operators(&self) -> bool {
        self.has_operators.load(Ordering::Acquire)
    }

    /// The merge operator that the keyspace with this id has of its own; `None` if it has that of
    /// the store.
    pub(crate) fn own_operator(&self, id: Option<u32>) -> Option<OwnOperator> {
        let id = id.filter(|id| *id > CATALOG_ID)?;
        let known = read_lock(&self.known);
        let keyspace = known.by_id.get(&id).filter(|known| known.operator().is_some());
        // A known operator does not change.
        let Some(keyspace) = keyspace else {
            return (!known.are_all).then_some(OwnOperator::Unknown);
        };
        let RecordedOperator { name, operator } = keyspace.operator()?;
        Some(match operator {
            Some(operator) => OwnOperator::Given(operator.clone()),
            None => {
                let (name, keyspace) = (name.to_string(), keyspace.state.name.clone());
                OwnOperator::Missing { name, keyspace }
            }
        })
    }
}

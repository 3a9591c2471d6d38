//! The keyspaces that a repair finds, and the catalog of the repaired store.
//!
//! The entries of keyspaces are copied by their physical keys. They are keyspaces of the new store
//! once its manifest has the salt of its catalog.
//!
//! 1. The catalog's first entry counts if the manifest has its salt. If a manifest is missing or
//!    may not be the last one, the entry itself is evidence enough.
//! 2. If the manifest has a salt, and the entry is missing though nothing is lost, there is no
//!    catalog yet: keys are stored plain. If something is lost, the entry may be lost, too: a new
//!    one is written.
//! 3. A keyspace without its entry in the catalog gets one, with a name made of its number. If it
//!    has merge operands, and keyspaces may have operators of their own, it also gets the name of
//!    an operator, because the operands may not be those of the store's operator.

use std::collections::{BTreeMap, BTreeSet};

use crate::keyspaces::{CatalogHeader, KeyspaceOptions, KeyspaceRecord};
use crate::space::{CATALOG_ID, Space, id_of};

/// The name of the merge operator of a keyspace whose own operator is unknown. An operator of this
/// name can then read its operands.
const UNKNOWN_OPERATOR: &str = "unknown";

/// The known keyspaces of the entries that were copied.
#[derive(Debug, Default)]
pub(crate) struct KeyspacesLeft {
    header: Option<CatalogHeader>,
    /// The names of keyspaces, by their ids.
    names: BTreeMap<u32, Vec<u8>>,
    /// The ids of keyspaces that have entries.
    filled: BTreeSet<u32>,
    /// Whether the old store's keyspaces may have merge operators of their own.
    may_have_operators: bool,
    /// The ids of keyspaces that have one, or may have.
    with_operators: BTreeSet<u32>,
}

/// Other evidence about the catalog from the old store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CatalogEvidence {
    /// The salt in the manifest.
    pub(crate) salt: Option<u64>,
    /// Whether the manifest may not be the last one.
    pub(crate) is_doubtful: bool,
    /// Whether entries are lost.
    pub(crate) is_incomplete: bool,
}

/// A catalog to be written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CatalogLeft {
    pub(crate) salt: u64,
    /// Its entries that are missing or differ: physical keys and values.
    pub(crate) entries: Vec<(Vec<u8>, String)>,
    /// Whether keyspaces have merge operators of their own.
    pub(crate) has_operators: bool,
}

impl KeyspacesLeft {
    /// Nothing is known yet.
    pub(crate) fn new(may_have_operators: bool) -> Self {
        Self { may_have_operators, ..Self::default() }
    }

    /// Records an entry that was copied.
    pub(crate) fn note(&mut self, physical: &[u8], value: &[u8]) {
        let Some(id) = id_of(physical) else { return };
        if id > CATALOG_ID {
            self.filled.insert(id);
        } else if id == CATALOG_ID {
            match Space::Named(CATALOG_ID).strip(physical) {
                b"" => self.header = CatalogHeader::decode(value),
                name => {
                    let Some(KeyspaceRecord { id, options }) = KeyspaceRecord::decode(value) else {
                        return;
                    };
                    self.names.insert(id, name.to_vec());
                    if options.operator().is_some() {
                        self.with_operators.insert(id);
                    }
                }
            }
        }
    }

    /// Records merge operands that were copied, after the catalog. Returns whether they belong, or
    /// may belong, to an operator of their keyspace's own.
    pub(crate) fn note_operands(&mut self, physical: &[u8]) -> bool {
        let Some(id) = id_of(physical).filter(|id| *id > CATALOG_ID) else { return false };
        self.filled.insert(id);
        if self.may_have_operators && !self.names.contains_key(&id) {
            self.with_operators.insert(id);
        }
        self.with_operators.contains(&id)
    }

    /// The catalog of the new store, if the old one had keyspaces.
    pub(crate) fn catalog(self, evidence: CatalogEvidence) -> Option<CatalogLeft> {
        let CatalogEvidence { salt, is_doubtful, is_incomplete } = evidence;
        let header = self.header.filter(|header| is_doubtful || salt == Some(header.salt));
        let salt = header.map(|header| header.salt).or(salt.filter(|_| is_incomplete))?;
        let ids = self.filled.iter().chain(self.names.keys());
        let largest = ids.max().copied().unwrap_or(CATALOG_ID);
        let last_id = header.map_or(CATALOG_ID, |header| header.last_id).max(largest);
        let catalog = Space::Named(CATALOG_ID);
        let first = CatalogHeader { salt, last_id, plain_to: 0 }.encode();
        let mut entries = vec![(catalog.key(b"").into_owned(), first)];
        for id in self.filled.iter().filter(|id| !self.names.contains_key(id)) {
            let mut name = format!("found-{id}");
            while self.names.values().any(|other| *other == name.as_bytes()) {
                name.push('\'');
            }
            let mut options = KeyspaceOptions::new();
            if self.with_operators.contains(id) {
                options = options.with_operator_named(UNKNOWN_OPERATOR);
            }
            let record = KeyspaceRecord { id: *id, options };
            entries.push((catalog.key(name.as_bytes()).into_owned(), record.encode()));
        }
        let has_operators = !self.with_operators.is_empty();
        Some(CatalogLeft { salt, entries, has_operators })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CATALOG: Space = Space::Named(CATALOG_ID);

    fn evidence(salt: Option<u64>, is_doubtful: bool, is_incomplete: bool) -> CatalogEvidence {
        CatalogEvidence { salt, is_doubtful, is_incomplete }
    }

    fn left(has_header: bool, is_named: bool) -> KeyspacesLeft {
        let mut left = KeyspacesLeft::default();
        if has_header {
            let header = CatalogHeader { salt: 7, last_id: 5, plain_to: 0 };
            left.note(&CATALOG.key(b""), header.encode().as_bytes());
        }
        if is_named {
            let record = KeyspaceRecord { id: 4, options: KeyspaceOptions::new() };
            left.note(&CATALOG.key(b"users"), record.encode().as_bytes());
        }
        left.note(b"a", b"1");
        left.note(&Space::Named(4).key(b"a"), b"1");
        left
    }

    #[test]
    fn a_catalog_counts_if_the_manifest_knows_it_or_is_lost() {
        let is_there = |salt, is_doubtful, is_incomplete| {
            left(true, true).catalog(evidence(salt, is_doubtful, is_incomplete)).is_some()
        };
        assert!(is_there(Some(7), false, false) && is_there(None, true, true));
        assert!(!is_there(Some(8), false, false) && !is_there(None, false, true));
    }

    #[test]
    fn what_is_lost_of_a_catalog_is_made_anew() {
        let whole = left(true, true).catalog(evidence(Some(7), false, false)).unwrap();
        assert_eq!((whole.salt, whole.entries.len()), (7, 1));
        let left_over = left(false, false);
        assert_eq!(left_over.catalog(evidence(Some(9), false, false)), None, "not begun");
        let made = left(false, false).catalog(evidence(Some(9), false, true)).unwrap();
        let header = CatalogHeader::decode(made.entries[0].1.as_bytes()).unwrap();
        assert_eq!((made.salt, header.salt, header.last_id), (9, 9, 4));
        assert_eq!(made.entries[1].0, *CATALOG.key(b"found-4"));
        let record = KeyspaceRecord::decode(made.entries[1].1.as_bytes()).unwrap();
        assert!(record.id == 4 && record.options.operator().is_none() && !made.has_operators);
    }

    #[test]
    fn operands_of_a_keyspace_whose_operator_is_lost_are_not_the_stores() {
        let key = Space::Named(4).key(b"a").into_owned();
        for may_have in [false, true] {
            let mut known = KeyspacesLeft::new(may_have);
            let options = KeyspaceOptions::new().merge_operator(crate::Merge::max());
            let record = KeyspaceRecord { id: 4, options };
            known.note(&CATALOG.key(b"users"), record.encode().as_bytes());
            assert!(known.note_operands(&key) && !known.note_operands(b"a"));
            let mut lost = KeyspacesLeft::new(may_have);
            assert_eq!(lost.note_operands(&key), may_have);
            let made = lost.catalog(evidence(Some(9), false, true)).unwrap();
            let record = KeyspaceRecord::decode(made.entries[1].1.as_bytes()).unwrap();
            let name = record.options.operator().map(|operator| operator.name.to_string());
            assert_eq!(
                (name.as_deref(), made.has_operators),
                (may_have.then_some("unknown"), may_have)
            );
        }
    }
}

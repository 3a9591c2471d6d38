//! The writes of a transaction that has not committed.
//!
//! 1. The last put or delete of each key is kept, and the operands merged into it since; and the
//!    ranges that were deleted. A deletion of a range removes the operations on its keys, so those
//!    that are left are newer.
//! 2. From the first savepoint on, each change records how to undo it.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::batch::{OpKind, WriteBatch};
use crate::bounds::Bounds;
use crate::ranges::{RangeSet, RangeTombstone};

/// The value that a key is set to; `None` deletes it.
type NewValue = Option<Vec<u8>>;

/// The operations on a key.
#[derive(Debug, Clone, Default)]
struct KeyWrites {
    /// The last put or delete, if there is one.
    set: Option<NewValue>,
    /// The operands merged since, oldest first.
    operands: Vec<Vec<u8>>,
}

/// The state of a key that a transaction has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnValue<'a> {
    /// It has this value, or none.
    Set(Option<&'a [u8]>),
    /// Operands were merged into it.
    Merged {
        /// The value before them, or none, if the transaction has set or deleted the key; `None` if
        /// they apply to the store's value.
        base: Option<Option<&'a [u8]>>,
        /// Oldest first.
        operands: &'a [Vec<u8>],
    },
}

/// Undoes one change.
#[derive(Debug)]
enum Undo {
    /// Restores the operations on a key.
    Key(Vec<u8>, Option<KeyWrites>),
    /// Removes the last operand of a key.
    Operand(Vec<u8>),
    /// Restores the deleted ranges, and the operations that the last one removed.
    Range(RangeSet, Vec<(Vec<u8>, KeyWrites)>),
}

/// The writes of a transaction.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    keys: BTreeMap<Vec<u8>, KeyWrites>,
    deleted: RangeSet,
    undo: Vec<Undo>,
    /// For each savepoint, the number of changes before it.
    savepoints: Vec<usize>,
}

impl OwnWrites {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.deleted.is_empty()
    }

    /// Sets `key` to a value, or deletes it.
    pub(super) fn set(&mut self, key: &[u8], value: NewValue) {
        let writes = KeyWrites { set: Some(value), operands: Vec::new() };
        let before = self.keys.insert(key.to_vec(), writes);
        if !self.savepoints.is_empty() {
            self.undo.push(Undo::Key(key.to_vec(), before));
        }
    }

    /// Merges an operand into `key`.
    pub(super) fn merge(&mut self, key: &[u8], operand: &[u8]) {
        if !self.savepoints.is_empty() {
            let undo = if self.keys.contains_key(key) {
                Undo::Operand(key.to_vec())
            } else {
                Undo::Key(key.to_vec(), None)
            };
            self.undo.push(undo);
        }
        self.keys.entry(key.to_vec()).or_default().operands.push(operand.to_vec());
    }

    pub(super) fn delete_range(&mut self, bounds: &Bounds) {
        if bounds.ends_before(&bounds.from) {
            return;
        }
        // Removed key by key: splitting the map would take time proportional to its size.
        let to = bounds.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let within = self.keys.range::<[u8], _>((Bound::Included(&*bounds.from), to));
        let within: Vec<_> = within.map(|(key, _)| key.clone()).collect();
        let removed = within.iter().filter_map(|key| self.keys.remove_entry(key)).collect();
        let tombstone = RangeTombstone::new(&bounds.from, bounds.to.as_deref(), 1);
        let deleted = self.deleted.with_all(vec![tombstone]);
        let before = std::mem::replace(&mut self.deleted, deleted);
        if !self.savepoints.is_empty() {
            self.undo.push(Undo::Range(before, removed));
        }
    }

    /// The state of `key` in the transaction; `None` if the transaction has not written it.
    pub(super) fn get(&self, key: &[u8]) -> Option<OwnValue<'_>> {
        let is_deleted = || self.deleted.covering(key, 1) > 0;
        let Some(writes) = self.keys.get(key) else {
            return is_deleted().then_some(OwnValue::Set(None));
        };
        let set = writes.set.as_ref().map(Option::as_deref);
        Some(match set {
            Some(set) if writes.operands.is_empty() => OwnValue::Set(set),
            // The range was deleted before.
            None if is_deleted() => {
                OwnValue::Merged { base: Some(None), operands: &writes.operands }
            }
            base => OwnValue::Merged { base, operands: &writes.operands },
        })
    }

    /// The first key within the bounds that the transaction sets or merges into.
    pub(super) fn first_in(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Option<&[u8]> {
        self.within(from, to)?.next()
    }

    /// The last key within the bounds that the transaction sets or merges into.
    pub(super) fn last_in(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Option<&[u8]> {
        self.within(from, to)?.next_back()
    }

    fn within(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Option<impl DoubleEndedIterator<Item = &[u8]>> {
        // A map panics for a range that ends before it begins.
        if let (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to)) = (from, to)
            && from >= to
        {
            return None;
        }
        let keys = self.keys.range::<[u8], _>((from, to));
        let may_have_value =
            |writes: &KeyWrites| writes.set != Some(None) || !writes.operands.is_empty();
        Some(keys.filter_map(move |(key, writes)| may_have_value(writes).then_some(&**key)))
    }

    pub(super) fn set_savepoint(&mut self) {
        self.savepoints.push(self.undo.len());
    }

    /// Undoes the changes since the last savepoint, and removes it; false if there is none.
    pub(super) fn roll_back(&mut self) -> bool {
        let Some(savepoint) = self.savepoints.pop() else { return false };
        for undo in self.undo.drain(savepoint..).rev() {
            match undo {
                Undo::Key(key, Some(value)) => _ = self.keys.insert(key, value),
                Undo::Key(key, None) => _ = self.keys.remove(&key),
                Undo::Operand(key) => {
                    self.keys.get_mut(&key).map(|writes| writes.operands.pop());
                }
                Undo::Range(deleted, keys) => {
                    self.deleted = deleted;
                    self.keys.extend(keys);
                }
            }
        }
        true
    }

    /// All writes, as a batch of physical keys. Deleted ranges come first.
    pub(super) fn into_batch(self) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for RangeTombstone { from, to, .. } in self.deleted.tombstones() {
            batch
                .push_physical_range(&Bounds { from: from.to_vec(), to: to.map(|to| to.to_vec()) });
        }
        for (key, KeyWrites { set, operands }) in &self.keys {
            match set {
                Some(Some(value)) => batch.push_physical(OpKind::Put, key, value),
                Some(None) => batch.push_physical(OpKind::Delete, key, &[]),
                None => {}
            }
            for operand in operands {
                batch.push_physical(OpKind::Merge, key, operand);
            }
        }
        batch
    }
}

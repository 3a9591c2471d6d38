//! Batches over keyspaces.
//!
//! A batch belongs to no store, and does not know how the store that it is written to keeps the
//! default keyspace: as [`Space::Plain`] or as [`Space::Default`]. So it is encoded as follows, and
//! encoded again when it is written if the store differs:
//!
//! 1. A key of the default keyspace that begins with the marker gets the header that it has in a
//!    store with keyspaces. Otherwise it could not be distinguished from a key of a keyspace.
//! 2. A range of the default keyspace without an end is encoded without one, as in a store without
//!    keyspaces. Ranges of named keyspaces always have an end.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Batch, COUNT_BYTES, Condition, MAX_BATCH_BYTES, OpKind, Operation, WriteBatch};
use crate::bounds::{Bounds, KeyRange};
use crate::error::Result;
use crate::keyspaces::KeyspaceState;
use crate::space::{DEFAULT_ID, Space, id_of, is_marked};

/// The key without the header, if it is one of the default keyspace that is encoded with it.
pub(super) fn without_header(key: &[u8]) -> &[u8] {
    if id_of(key) == Some(DEFAULT_ID) { Space::Default.strip(key) } else { key }
}

/// The properties of a batch that depend on the store that it is written to.
#[derive(Debug, Clone, Default)]
pub(super) struct BatchMapping {
    /// The named keyspaces that it writes to or has conditions on.
    keyspaces: Vec<Arc<KeyspaceState>>,
    /// Whether it has keys of the default keyspace that are encoded with a header.
    has_headers: bool,
    /// Whether it deletes a range of the default keyspace that has no end.
    has_open_end: bool,
}

impl WriteBatch {
    /// Deletes all keys in `range`, whether or not there are any; keys that later operations of the
    /// batch put stay. An empty range, or one whose end is before its start, adds no operation.
    ///
    /// ```
    /// let mut batch = trommel::WriteBatch::new();
    /// batch.delete_range("log/000".."log/417").put("log/first", "417");
    /// assert_eq!(batch.len(), 2);
    /// ```
    pub fn delete_range(&mut self, range: impl KeyRange) -> &mut Self {
        let Bounds { from, to } = Bounds::of(range);
        self.mapping.has_open_end |= to.is_none();
        let (from, to) = (self.default_key(&from), to.map(|to| self.default_key(&to).into_owned()));
        self.push_range(&from, to.as_deref())
    }

    /// Deletes the keys from `from` on, up to `to`, as they are encoded.
    pub(super) fn push_range(&mut self, from: &[u8], to: Option<&[u8]>) -> &mut Self {
        match to {
            Some(to) if *to <= *from => self,
            Some(to) => self.push_rare(OpKind::RangeDelete, from, to),
            None => self.push_rare(OpKind::RangeDeleteFrom, from, &[]),
        }
    }

    /// Adds an operation on a key of the default keyspace.
    #[inline(always)]
    pub(super) fn push_default(&mut self, kind: OpKind, key: &[u8], value: &[u8]) -> &mut Self {
        if is_marked(key) {
            return self.push_marked(kind, key, value);
        }
        self.push(kind, key, value)
    }

    /// Appends all operations of `other`, refused ones included, and its conditions.
    ///
    /// ```
    /// let (mut first, mut second) = (trommel::WriteBatch::new(), trommel::WriteBatch::new());
    /// first.put("a", "1");
    /// second.put("b", "2").delete("c");
    /// assert_eq!(first.append(&second).len(), 3);
    /// ```
    pub fn append(&mut self, other: &Self) -> &mut Self {
        let added = other.encoded.get(COUNT_BYTES..).unwrap_or_default();
        match self.count.checked_add(other.count) {
            Some(count)
                if self.encoded.len() + added.len() <= MAX_BATCH_BYTES
                    && other.refused.is_empty() =>
            {
                self.encoded.extend_from_slice(added);
                self.set_count(count);
                self.user_bytes += other.user_bytes;
            }
            _ => other.iter().for_each_encoded(|operation| self.push_again(operation)),
        }
        self.conditions.extend_from_slice(&other.conditions);
        self.join_keyspaces(other);
        self.has_operands |= other.has_operands;
        self
    }

    /// The encoded form of a key of the default keyspace, or of a bound.
    pub(super) fn default_key<'k>(&mut self, key: &'k [u8]) -> Cow<'k, [u8]> {
        self.mapping.has_headers |= is_marked(key);
        Space::Default.key(key)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn push_marked(&mut self, kind: OpKind, key: &[u8], value: &[u8]) -> &mut Self {
        let key = self.default_key(key);
        self.push(kind, &key, value)
    }

    /// Adds an operation on a physical key.
    pub(crate) fn push_physical(&mut self, kind: OpKind, key: &[u8], value: &[u8]) {
        self.has_operands |= kind == OpKind::Merge;
        self.push_rare(kind, key, value);
    }

    /// Adds the deletion of a range of physical keys.
    pub(crate) fn push_physical_range(&mut self, bounds: &Bounds) {
        self.push_range(&bounds.from, bounds.to.as_deref());
    }

    /// Adds a condition on a physical key.
    pub(crate) fn push_condition(&mut self, condition: Condition) {
        self.conditions.push(condition);
    }

    /// Records that the batch is on this keyspace.
    pub(crate) fn add_keyspace(&mut self, keyspace: &Arc<KeyspaceState>) {
        add_once(&mut self.mapping.keyspaces, keyspace);
    }

    /// Takes over the keyspaces recorded for `other`.
    pub(super) fn join_keyspaces(&mut self, other: &Self) {
        other.mapping.keyspaces.iter().for_each(|keyspace| self.add_keyspace(keyspace));
        self.mapping.has_headers |= other.mapping.has_headers;
        self.mapping.has_open_end |= other.mapping.has_open_end;
    }

    /// The named keyspaces that the batch is on.
    pub(crate) fn keyspaces(&self) -> &[Arc<KeyspaceState>] {
        &self.mapping.keyspaces
    }

    /// Whether the batch is on the default keyspace only, and its encoding is the same in every
    /// store.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.mapping.keyspaces.is_empty() && !self.depends_on_store()
    }

    /// Whether the batch's encoding depends on how the store keeps the default keyspace.
    #[inline]
    pub(crate) fn depends_on_store(&self) -> bool {
        self.mapping.has_headers || self.mapping.has_open_end
    }

    /// The batch as it is written to a store that keeps the default keyspace as `default`.
    pub(crate) fn for_store(&self, default: Space) -> Result<Cow<'_, Self>> {
        self.check()?;
        let is_right = match default == Space::Plain {
            true => !self.mapping.has_headers,
            false => !self.mapping.has_open_end,
        };
        if is_right {
            return Ok(Cow::Borrowed(self));
        }
        let mut again = Self::with_capacity(self.encoded.len());
        for Operation { kind, key, value } in self.operations().flatten() {
            match kind {
                OpKind::RangeDelete if default == Space::Plain => {
                    again.push(kind, without_header(key), without_header(value));
                }
                _ if default == Space::Plain => _ = again.push(kind, without_header(key), value),
                OpKind::RangeDeleteFrom => {
                    _ = again.push_range(key, default.end().as_ref().map(|end| &end[..]));
                }
                _ => _ = again.push(kind, key, value),
            }
        }
        let conditions = self.conditions.iter();
        again.conditions = match default {
            Space::Plain => conditions.map(|condition| condition.on(without_header)).collect(),
            _ => conditions.cloned().collect(),
        };
        again.check()?;
        Ok(Cow::Owned(again))
    }
}

/// Adds `keyspace` unless it is in the list, which is short.
pub(crate) fn add_once(keyspaces: &mut Vec<Arc<KeyspaceState>>, keyspace: &Arc<KeyspaceState>) {
    if !keyspaces.iter().any(|other| Arc::ptr_eq(other, keyspace)) {
        keyspaces.push(Arc::clone(keyspace));
    }
}

impl Batch<'_> {
    /// Fails if an operation on this physical range would be too long.
    pub(crate) fn check_range(bounds: &Bounds) -> Result<()> {
        Batch::one(OpKind::RangeDelete, &bounds.from, bounds.to.as_deref().unwrap_or_default())
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BatchOp;

    const MARKED: &[u8] = b"\xff\xff\xff\xffkey";

    fn sample() -> WriteBatch {
        let mut batch = WriteBatch::new();
        batch.put("a", "1").put(MARKED, "2").delete(MARKED).delete_range("b"..);
        batch.delete_range(MARKED..).delete_range(b"c".as_slice()..MARKED);
        batch.expect_absent(MARKED).expect_value("a", "0");
        batch
    }

    #[test]
    fn operations_come_back_as_they_were_added() {
        let batch = sample();
        let end = |from, to| BatchOp::DeleteRange { from, to };
        let expected = [
            BatchOp::Put { key: b"a", value: b"1" },
            BatchOp::Put { key: MARKED, value: b"2" },
            BatchOp::Delete { key: MARKED },
            end(b"b", None),
            end(MARKED, None),
            end(b"c", Some(MARKED)),
        ];
        assert_eq!(batch.iter().collect::<Vec<_>>(), expected);
        let mut joined = WriteBatch::new();
        assert!(joined.is_plain());
        joined.append(&batch);
        assert!(joined.depends_on_store() && joined.iter().eq(expected));
        // Compared operation by operation, because one of them cannot be written.
        let mut refused = sample();
        refused.put(vec![0; 1 << 17], "");
        assert_eq!(joined.append(&refused).iter().take(12).skip(6).collect::<Vec<_>>(), expected);
        joined.clear();
        assert!(joined.is_plain());
    }

    #[test]
    fn a_batch_is_encoded_for_its_store() {
        let batch = sample();
        for default in [Space::Plain, Space::Default] {
            let stored = batch.for_store(default).unwrap();
            let keys = |bounds: Bounds| default.bounds(bounds);
            let expected = [
                (OpKind::Put, b"a".to_vec(), b"1".to_vec()),
                (OpKind::Put, default.key(MARKED).into_owned(), b"2".to_vec()),
                (OpKind::Delete, default.key(MARKED).into_owned(), Vec::new()),
            ];
            let mut ranges = Vec::new();
            for (nth, op) in stored.operations().flatten().enumerate() {
                match expected.get(nth) {
                    Some(expected) => {
                        assert_eq!((op.kind, op.key.to_vec(), op.value.to_vec()), *expected);
                    }
                    None => {
                        ranges.extend(op.range_tombstone(0).map(|range| (range.from, range.to)));
                    }
                }
            }
            let wanted = [
                keys(Bounds { from: b"b".to_vec(), to: None }),
                keys(Bounds { from: MARKED.to_vec(), to: None }),
                keys(Bounds { from: b"c".to_vec(), to: Some(MARKED.to_vec()) }),
            ];
            assert_eq!(ranges.len(), wanted.len());
            for ((from, to), wanted) in ranges.iter().zip(&wanted) {
                assert_eq!((&**from, to.as_deref()), (&*wanted.from, wanted.to.as_deref()));
            }
            let conditions = format!("{:?}", stored.conditions());
            let marked = format!("{:?}", Condition::of(&default.key(MARKED), None));
            assert!(conditions.contains(&marked), "{conditions}");
        }
        let mut plain = WriteBatch::new();
        plain.put("a", "1").delete_range("b".."c");
        assert!(plain.is_plain());
    }
}

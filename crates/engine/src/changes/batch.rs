//! A batch as a change feed yields it, in terms of keyspaces and user keys.
//!
//! 1. Time marks and entries of the catalog are left out. A batch that begins the catalog or
//!    creates a keyspace contains nothing else; one that drops a keyspace also deletes all of its
//!    keys.
//! 2. In a store with keyspaces, the header of a key identifies its keyspace. Keys written before
//!    the first keyspace have no headers; the catalog states up to which sequence number.
//! 3. The name of a keyspace is in the catalog, or was in an entry of the catalog that the feed has
//!    passed.

use std::collections::BTreeMap;
use std::sync::Arc;

use trommel_base::SeqNo;

use super::reader::FoundBatch;
use crate::batch::{BatchOp, BatchOperations, OpKind, Operation};
use crate::keyspaces::{KeyspaceRecord, Keyspaces};
use crate::space::{CATALOG_ID, DEFAULT_ID, Space, header, id_of, user_key};

/// A committed batch, from a change feed: see [`Changes`](crate::Changes).
///
/// ```
/// use trommel::{BatchOp, ChangedKeyspace, Db, Options, WriteBatch};
/// # let dir = tempfile::tempdir().unwrap();
/// let options = Options::default().writes(|w| w.log_archive_bytes(1 << 30));
/// let db = Db::open(dir.path(), options)?;
/// let mut batch = WriteBatch::new();
/// batch.put("a", "1").delete("b");
/// let written = db.write(&batch)?;
///
/// let changed = db.changes_since(0)?.next().expect("there is one")?;
/// assert_eq!(changed.seqno(), written);
/// let ops: Vec<_> = changed.iter().collect();
/// assert_eq!(ops[0].keyspace, ChangedKeyspace::Default);
/// assert_eq!(ops[0].op, BatchOp::Put { key: b"a", value: b"1" });
/// assert_eq!(ops[1].op, BatchOp::Delete { key: b"b" });
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ChangedBatch {
    logged: FoundBatch,
    /// Whether keys of named keyspaces have headers.
    has_headers: bool,
    /// The names of the keyspaces that it changes, by their ids.
    names: BTreeMap<u32, Arc<str>>,
}

/// An operation of a [`ChangedBatch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedOp<'a> {
    /// The keyspace that it changes.
    pub keyspace: ChangedKeyspace<'a>,
    /// The operation, on keys of that keyspace. Never [`BatchOp::TimeMark`] nor
    /// [`BatchOp::Refused`].
    pub op: BatchOp<'a>,
}

/// The keyspace of a [`ChangedOp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangedKeyspace<'a> {
    /// The default one.
    Default,
    /// A named one.
    Named {
        /// Its name.
        name: &'a str,
        /// Its number, which no other keyspace of the store ever has.
        id: u32,
    },
    /// A keyspace that has been dropped since, and whose name is no longer known.
    Dropped {
        /// Its number.
        id: u32,
    },
}

/// The names of keyspaces that a feed has passed.
#[derive(Debug, Default)]
pub(super) struct PassedNames(BTreeMap<u32, Arc<str>>);

impl ChangedBatch {
    /// The batch in terms of user keys; `None` if it only concerns the store itself. `plain_to` is
    /// the last sequence number of the writes without headers, if any have them.
    pub(super) fn of(
        logged: FoundBatch,
        plain_to: Option<SeqNo>,
        passed: &mut PassedNames,
        keyspaces: &Keyspaces,
    ) -> Option<Self> {
        let has_headers = plain_to.is_some_and(|plain_to| logged.first_seqno > plain_to);
        let mut names = BTreeMap::new();
        if has_headers {
            if passed.take(&logged) {
                return None;
            }
            let ids = operations(&logged).filter_map(|op| id_of(op.key)).filter(is_named);
            names.extend(ids.filter_map(|id| Some((id, passed.name(id, keyspaces)?))));
        }
        let batch = Self { logged, has_headers, names };
        let has_any = batch.iter().next().is_some();
        has_any.then_some(batch)
    }

    /// The sequence number of its last operation, which the write has returned. A feed that begins
    /// after it continues with the next batch.
    ///
    /// ```
    /// # use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().writes(|w| w.log_archive_bytes(1 << 30));
    /// let db = Db::open(dir.path(), options)?;
    /// let written = db.put("a", "1")?;
    /// let changed = db.changes_since(0)?.next().expect("there is one")?;
    /// assert_eq!(changed.seqno(), written);
    /// assert_eq!(db.changes_since(changed.seqno())?.count(), 0);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn seqno(&self) -> SeqNo {
        self.logged.last_seqno
    }

    /// Its operations, in the order in which they were written. Later ones win over earlier ones.
    ///
    /// ```
    /// # use trommel::{ChangedKeyspace, Db, KeyspaceOptions, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().writes(|w| w.log_archive_bytes(1 << 30));
    /// let db = Db::open(dir.path(), options)?;
    /// let users = db.keyspace("users", KeyspaceOptions::new())?;
    /// users.put("1", "Ada")?;
    /// let changed = db.changes_since(0)?.next().expect("there is one")?;
    /// let keyspace = changed.iter().next().unwrap().keyspace;
    /// assert!(matches!(keyspace, ChangedKeyspace::Named { name: "users", .. }));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = ChangedOp<'_>> {
        operations(&self.logged).filter_map(|op| self.changed(op))
    }

    fn changed<'a>(&'a self, op: Operation<'a>) -> Option<ChangedOp<'a>> {
        if op.kind == OpKind::TimeMark {
            return None;
        }
        if !self.has_headers {
            return Some(ChangedOp { keyspace: ChangedKeyspace::Default, op: op.into() });
        }
        let keyspace = match id_of(op.key) {
            None | Some(DEFAULT_ID) => ChangedKeyspace::Default,
            Some(CATALOG_ID) => return None,
            Some(id) => match self.names.get(&id) {
                Some(name) => ChangedKeyspace::Named { name, id },
                None => ChangedKeyspace::Dropped { id },
            },
        };
        Some(ChangedOp { keyspace, op: without_headers(op) })
    }
}

/// The operation by the keys of its keyspace.
fn without_headers(op: Operation<'_>) -> BatchOp<'_> {
    let space = match id_of(op.key) {
        None | Some(DEFAULT_ID) => Space::Default,
        Some(id) => Space::Named(id),
    };
    let key = user_key(op.key);
    match op.kind {
        OpKind::RangeDelete => {
            let is_end = space.end().is_some_and(|end| op.value == end);
            BatchOp::DeleteRange { from: key, to: (!is_end).then(|| user_key(op.value)) }
        }
        _ => Operation { key, ..op }.into(),
    }
}

/// The operations of a batch that was checked when it was read.
fn operations(logged: &FoundBatch) -> impl Iterator<Item = Operation<'_>> {
    BatchOperations::decode(&logged.encoded).into_iter().flatten().flatten()
}

fn is_named(id: &u32) -> bool {
    *id > CATALOG_ID
}

impl PassedNames {
    /// Records the names of keyspaces in a batch. Returns whether the batch contains nothing else.
    fn take(&mut self, logged: &FoundBatch) -> bool {
        let catalog = Space::Named(CATALOG_ID);
        let (mut is_internal, mut dropped) = (false, None);
        for op in operations(logged) {
            if !catalog.holds(op.key) {
                if let (OpKind::RangeDelete, Some(id)) = (op.kind, id_of(op.key))
                    && *op.key == header(id)
                    && let Some(name) = dropped.take()
                {
                    self.0.insert(id, name);
                }
                continue;
            }
            let name = String::from_utf8_lossy(catalog.strip(op.key)).into_owned();
            match op.kind {
                // The first entry changes only with the catalog.
                OpKind::Put if name.is_empty() => is_internal = true,
                OpKind::Put => {
                    let record = KeyspaceRecord::decode(op.value);
                    self.0.extend(record.map(|record| (record.id, name.into())));
                }
                _ => dropped = Some(Arc::from(name)),
            }
        }
        is_internal
    }

    /// The name of a keyspace, if it is known.
    fn name(&self, id: u32, keyspaces: &Keyspaces) -> Option<Arc<str>> {
        self.0.get(&id).cloned().or_else(|| keyspaces.name_of(id).map(Arc::from))
    }
}

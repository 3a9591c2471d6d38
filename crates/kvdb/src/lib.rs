//! Parity's [`kvdb`] interface over a Trommel store, with one keyspace for each column.
//!
//! ```
//! use kvdb::KeyValueDB;
//! use trommel::{Db, Options};
//! use trommel_kvdb::Columns;
//! # let dir = tempfile::tempdir()?;
//! let db = Db::open(dir.path(), Options::default())?;
//! let columns = Columns::open(&db, 2)?;
//!
//! let mut transaction = columns.transaction();
//! transaction.put(0, b"block 7", b"header");
//! transaction.put(1, b"block 7", b"body");
//! columns.write(transaction)?; // both or none
//! assert_eq!(columns.get(1, b"block 7")?.unwrap(), b"body");
//!
//! let mut transaction = columns.transaction();
//! transaction.delete_prefix(1, b"block "); // one write, however many keys
//! columns.write(transaction)?;
//! assert!(!columns.has_prefix(1, b"block ")?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * A transaction is one atomic write, as durable as [`Options::durability`] of the store says.
//!   Writes of other threads come before or after it as a whole.
//! * Iterators yield keys in order, and show the store as of when they were created.
//! * Errors are [`io::Error`]s around the [`trommel::Error`]. A column that does not exist is
//!   `InvalidInput`; no other call fails because of it.
//!
//! [`Options::durability`]: trommel::Options::durability
#![forbid(unsafe_code)]

mod counts;

use std::io;

use kvdb::{
    DBKey, DBKeyValue, DBOp, DBTransaction, DBValue, IoStats, IoStatsKind, KeyValueDB, end_prefix,
};
use trommel::{Db, Keyspace, KeyspaceOptions, Range, WriteBatch};

use counts::Counts;

/// The columns of a store: a [`KeyValueDB`].
#[derive(Debug)]
pub struct Columns {
    keyspaces: Vec<Keyspace>,
    counts: Counts,
    /// Last field: it may close the store.
    db: Db,
}

type Entries<'a> = Box<dyn Iterator<Item = io::Result<DBKeyValue>> + 'a>;

fn failed(error: trommel::Error) -> io::Error {
    let kind = match &error {
        trommel::Error::Io { source, .. } => source.kind(),
        trommel::Error::Corruption(_) => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl Columns {
    /// Opens `count` columns, numbered from 0, and creates those that are missing: the keyspaces
    /// `column 0` and so on. Further columns of the store are left as they are.
    ///
    /// # Errors
    /// As [`Db::keyspace`].
    pub fn open(db: &Db, count: u32) -> trommel::Result<Self> {
        let open = |column| db.keyspace(format!("column {column}"), KeyspaceOptions::new());
        let keyspaces = (0..count).map(open).collect::<trommel::Result<_>>()?;
        Ok(Self { keyspaces, counts: Counts::new(), db: db.clone() })
    }

    fn column(&self, column: u32) -> io::Result<&Keyspace> {
        let found = usize::try_from(column).ok().and_then(|column| self.keyspaces.get(column));
        found.ok_or_else(|| {
            let text = format!("there is no column {column}: {} are open", self.keyspaces.len());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
    }

    fn entries(&self, column: u32, range: impl FnOnce(&Keyspace) -> Range) -> Entries<'_> {
        match self.column(column) {
            Ok(keyspace) => Box::new(range(keyspace).map(|entry| {
                let (key, value) = entry.map_err(failed)?;
                Ok((DBKey::from_slice(&key), value.to_vec()))
            })),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }
}

impl KeyValueDB for Columns {
    fn get(&self, col: u32, key: &[u8]) -> io::Result<Option<DBValue>> {
        let value = self.column(col)?.get(key).map_err(failed)?;
        self.counts.read(key.len(), value.as_deref());
        Ok(value.map(|value| value.to_vec()))
    }

    fn get_by_prefix(&self, col: u32, prefix: &[u8]) -> io::Result<Option<DBValue>> {
        let first = self.column(col)?.prefix(prefix).next().transpose().map_err(failed)?;
        self.counts.read(prefix.len(), first.as_ref().map(|(_, value)| &**value));
        Ok(first.map(|(_, value)| value.to_vec()))
    }

    fn has_key(&self, col: u32, key: &[u8]) -> io::Result<bool> {
        let has_key = self.column(col)?.contains_key(key).map_err(failed)?;
        self.counts.read(key.len(), None);
        Ok(has_key)
    }

    fn write(&self, transaction: DBTransaction) -> io::Result<()> {
        let (mut batch, mut bytes) = (WriteBatch::new(), 0);
        for op in &transaction.ops {
            let mut part = batch.keyspace(self.column(op.col())?);
            bytes += op.key().len();
            match op {
                DBOp::Insert { key, value, .. } => {
                    bytes += value.len();
                    part.put(key, value);
                }
                DBOp::Delete { key, .. } => _ = part.delete(key),
                DBOp::DeletePrefix { prefix, .. } => match end_prefix(prefix) {
                    Some(end) => _ = part.delete_range(&prefix[..]..&end[..]),
                    None => _ = part.delete_range(&prefix[..]..),
                },
            }
        }
        self.db.write(batch).map_err(failed)?;
        self.counts.written(transaction.ops.len(), bytes);
        Ok(())
    }

    fn iter<'a>(&'a self, col: u32) -> Entries<'a> {
        self.entries(col, Keyspace::iter)
    }

    fn iter_with_prefix<'a>(&'a self, col: u32, prefix: &'a [u8]) -> Entries<'a> {
        self.entries(col, |keyspace| keyspace.prefix(prefix))
    }

    /// Counts of reads of single keys and of operations written, with the bytes of their keys and
    /// values. Reads from the cache are not distinguished: the store counts blocks
    /// ([`Db::stats`]).
    fn io_stats(&self, kind: IoStatsKind) -> IoStats {
        self.counts.stats(&kind)
    }
}

//! redb.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition,
};
use trommel_harness::{Direction, Operation, Store, StoreError, Visit};

use crate::settings::Settings;
use crate::stores::{self, Facts};

/// The usage of redb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variant {
    /// A thread keeps its read transaction, with the table open, while nothing is written.
    pub(crate) reuse: bool,
}

type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;
const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");
const DURABLE: &str = "none; every commit is synced";
const UNSYNCED: &str = "none; commits without durability, lost if the process dies";
const FILE: &str = "data.redb";

/// A table in one read transaction, which it keeps alive.
struct Seen {
    store: u64,
    commits: u64,
    table: Table,
}

thread_local! {
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

pub(crate) struct RedbStore {
    db: Database,
    variant: Variant,
    number: u64,
    commits: AtomicU64,
}

impl RedbStore {
    pub(crate) fn open(
        dir: &Path,
        settings: &Settings,
        variant: Variant,
    ) -> Result<Self, StoreError> {
        let db =
            Builder::new().set_cache_size(settings.cache_bytes as usize).create(dir.join(FILE))?;
        let number = stores::next_number();
        let store = Self { db, variant, number, commits: AtomicU64::new(0) };
        // So that readers find the table from the start.
        store.commit(&[], Durability::None)?;
        Ok(store)
    }

    fn commit(
        &self,
        operations: &[Operation<'_>],
        durability: Durability,
    ) -> Result<(), StoreError> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(durability)?;
        {
            let mut table = transaction.open_table(TABLE)?;
            for operation in operations {
                match *operation {
                    Operation::Put { key, value } => drop(table.insert(key, value)?),
                    Operation::Delete { key } => drop(table.remove(key)?),
                }
            }
        }
        transaction.commit()?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn table(&self) -> Result<Table, StoreError> {
        Ok(self.db.begin_read()?.open_table(TABLE)?)
    }

    /// Calls `read` with the current table.
    fn with_table<T>(
        &self,
        read: impl FnOnce(&Table) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if !self.variant.reuse {
            return read(&self.table()?);
        }
        let commits = self.commits.load(Ordering::Acquire);
        let kept = SEEN.take().filter(|seen| (seen.store, seen.commits) == (self.number, commits));
        let seen = match kept {
            Some(seen) => seen,
            None => Seen { store: self.number, commits, table: self.table()? },
        };
        let result = read(&seen.table);
        SEEN.set(Some(seen));
        result
    }
}

/// The fairness block of this set-up.
pub(crate) fn facts(settings: &Settings, variant: Variant) -> Facts {
    let mut facts = Facts::new();
    facts.extend([
        ("version", format!("redb {}", stores::locked("redb"))),
        ("writes", stores::batches(settings)),
        ("log", if settings.durable { DURABLE } else { UNSYNCED }.into()),
        ("filter", "none (a B+ tree)".into()),
        ("cache", stores::size(settings.cache_bytes)),
        ("block or page", "4 KiB".into()),
        ("compression", "none".into()),
        ("tables are read by", "pread".into()),
        ("checksum of a block", "not verified by reads".into()),
        ("read transaction", stores::read_transaction(variant.reuse).into()),
    ]);
    facts
}

impl Store for RedbStore {
    fn write(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        self.commit(operations, Durability::None)
    }

    fn write_durably(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        self.commit(operations, Durability::Immediate)
    }

    fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(Durability::None)?;
        transaction.open_table(TABLE)?.retain_in(from..to, |_, _| false)?;
        transaction.commit()?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, StoreError> {
        self.with_table(|table| Ok(table.get(key)?.map(|value| found(value.value())).is_some()))
    }

    fn multi_get(
        &self,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), StoreError> {
        self.with_table(|table| {
            for (at, key) in keys.iter().enumerate() {
                if let Some(value) = table.get(*key)? {
                    found(at, value.value());
                }
            }
            Ok(())
        })
    }

    fn scan(
        &self,
        start: Option<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        self.with_table(|table| {
            let mut entries = match (start, direction) {
                (None, _) => table.iter()?,
                (Some(start), Direction::Forward) => ReadableTable::range(table, start..)?,
                (Some(start), Direction::Backward) => ReadableTable::range(table, ..=start)?,
            };
            let mut next = || match direction {
                Direction::Forward => entries.next(),
                Direction::Backward => entries.next_back(),
            };
            while let Some(entry) = next() {
                let (key, value) = entry?;
                if !visit(key.value(), value.value()) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Makes all commits durable.
    fn flush(&self) -> Result<(), StoreError> {
        self.commit(&[], Durability::Immediate)
    }

    fn verify(&self) -> Result<String, StoreError> {
        stores::count_entries(self)
    }

    /// Drops this thread's read transaction; other threads have ended by now.
    fn close(self: Arc<Self>) -> Result<(), StoreError> {
        drop(SEEN.take());
        drop(self);
        Ok(())
    }
}

//! LMDB, through crate `heed`.

use std::cell::RefCell;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use heed::types::Bytes;
use heed::{
    CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithoutTls, env_closing_event,
};
use trommel_harness::{Direction, Operation, Store, StoreError, Visit};

use crate::settings::Settings;
use crate::stores::{self, Facts};

/// The usage of LMDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variant {
    /// A thread keeps its read transaction while nothing is written.
    pub(crate) reuse: bool,
    /// Pages are modified in the map itself instead of written from a copy: faster, but a stray
    /// pointer of the program can corrupt them.
    pub(crate) write_map: bool,
}

const SYNCED: &str = "none; every commit is synced";
const UNSYNCED: &str = "none; commits are with the system, not synced (MDB_NOSYNC)";
/// Bytes of the map per byte written, and its minimum.
const MAP_PER_BYTE: u64 = 4;
const MAP_BYTES_MIN: u64 = 1 << 30;

/// A read transaction kept by a thread.
struct Seen {
    store: u64,
    commits: u64,
    transaction: RoTxn<'static, WithoutTls>,
}

thread_local! {
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

pub(crate) struct LmdbStore {
    env: Env<WithoutTls>,
    entries: Database<'static, Bytes, Bytes>,
    variant: Variant,
    durable: bool,
    number: u64,
    commits: AtomicU64,
}

impl LmdbStore {
    pub(crate) fn open(
        dir: &Path,
        settings: &Settings,
        variant: Variant,
    ) -> Result<Self, StoreError> {
        let map_bytes = (settings.user_bytes() * MAP_PER_BYTE).max(MAP_BYTES_MIN);
        let map_bytes = map_bytes.next_multiple_of(1 << 20) as usize;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(map_bytes);
        let mut flags = EnvFlags::empty();
        flags.set(EnvFlags::NO_SYNC, !settings.durable);
        flags.set(EnvFlags::WRITE_MAP, variant.write_map);
        // SAFETY: the directory is this run's own and nothing else opens or changes the file.
        // Without syncs (unless all commits must be durable) the file may be lost in a power
        // failure, but not with this process; a run ends with either.
        #[expect(unsafe_code, reason = "LMDB is a map, and a map is only as good as its file")]
        let env = unsafe { options.flags(flags).open(dir)? };
        let transaction = env.write_txn()?;
        let entries = env
            .create_databases_and_commit(transaction, |opener, transaction| {
                let entries = opener.create_database::<Bytes, Bytes>(transaction, None)?;
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(entries))
            })?
            .commit()
            .ok_or("LMDB did not open its unnamed database")?;
        let number = stores::next_number();
        let durable = settings.durable;
        Ok(Self { env, entries, variant, durable, number, commits: AtomicU64::new(0) })
    }

    /// Calls `read` with a transaction that sees the current state.
    fn with_transaction<T>(
        &self,
        read: impl FnOnce(&RoTxn<'_, WithoutTls>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if !self.variant.reuse {
            return read(&self.env.read_txn()?);
        }
        let commits = self.commits.load(Ordering::Acquire);
        let kept = SEEN.take().filter(|seen| (seen.store, seen.commits) == (self.number, commits));
        let seen = match kept {
            Some(seen) => seen,
            None => {
                let transaction = self.env.clone().static_read_txn()?;
                Seen { store: self.number, commits, transaction }
            }
        };
        let result = read(&seen.transaction);
        SEEN.set(Some(seen));
        result
    }
}

/// Crate `lmdb-master-sys` contains LMDB's source.
fn version() -> String {
    format!(
        "heed {}, lmdb-master-sys {}",
        stores::locked("heed"),
        stores::locked("lmdb-master-sys")
    )
}

/// The fairness block of this set-up.
pub(crate) fn facts(settings: &Settings, variant: Variant) -> Facts {
    let mut facts = Facts::new();
    facts.extend([
        ("version", version()),
        ("writes", stores::batches(settings)),
        ("log", if settings.durable { SYNCED } else { UNSYNCED }.into()),
        ("filter", "none (a B+ tree)".into()),
        ("cache", "none; the system's page cache".into()),
        ("block or page", "4 KiB".into()),
        ("compression", "none".into()),
        ("tables are read by", "mmap".into()),
        ("checksum of a block", "none in the format".into()),
        ("read transaction", stores::read_transaction(variant.reuse).into()),
        ("tuned besides", if variant.write_map { "MDB_WRITEMAP" } else { "nothing" }.into()),
    ]);
    facts
}

impl Store for LmdbStore {
    fn write(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        let mut transaction = self.env.write_txn()?;
        for operation in operations {
            match *operation {
                Operation::Put { key, value } => self.entries.put(&mut transaction, key, value)?,
                Operation::Delete { key } => {
                    self.entries.delete(&mut transaction, key)?;
                }
            }
        }
        transaction.commit()?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn write_durably(&self, operations: &[Operation<'_>]) -> Result<(), StoreError> {
        if !self.durable {
            return Err("this environment was opened with MDB_NOSYNC".into());
        }
        self.write(operations)
    }

    fn delete_range(&self, from: &[u8], to: &[u8]) -> Result<(), StoreError> {
        let mut transaction = self.env.write_txn()?;
        self.entries.delete_range(&mut transaction, &(Included(from), Excluded(to)))?;
        transaction.commit()?;
        self.commits.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, StoreError> {
        self.with_transaction(|seen| Ok(self.entries.get(seen, key)?.map(found).is_some()))
    }

    fn multi_get(
        &self,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), StoreError> {
        self.with_transaction(|seen| {
            for (at, key) in keys.iter().enumerate() {
                if let Some(value) = self.entries.get(seen, key)? {
                    found(at, value);
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
        fn visit_all<'a>(
            mut entries: impl Iterator<Item = heed::Result<(&'a [u8], &'a [u8])>>,
            visit: Visit<'_>,
        ) -> Result<(), StoreError> {
            for entry in &mut entries {
                let (key, value) = entry?;
                if !visit(key, value) {
                    break;
                }
            }
            Ok(())
        }
        let all = &self.entries;
        self.with_transaction(|seen| match (start, direction) {
            (None, Direction::Forward) => visit_all(all.iter(seen)?, visit),
            (None, Direction::Backward) => visit_all(all.rev_iter(seen)?, visit),
            (Some(start), Direction::Forward) => {
                visit_all(all.range(seen, &(Included(start), Unbounded))?, visit)
            }
            (Some(start), Direction::Backward) => {
                visit_all(all.rev_range(seen, &(Unbounded, Included(start)))?, visit)
            }
        })
    }

    fn verify(&self) -> Result<String, StoreError> {
        stores::count_entries(self)
    }

    /// Ends this thread's read transaction and waits until the map is closed, so that the file can
    /// be dropped from the page cache.
    fn close(self: Arc<Self>) -> Result<(), StoreError> {
        drop(SEEN.take());
        let path = self.env.path().to_path_buf();
        drop(self);
        if let Some(closing) = env_closing_event(path) {
            closing.wait();
        }
        Ok(())
    }
}

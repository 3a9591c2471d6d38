//! The interface between the harness and a store.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, StoreError};
use crate::record::{Product, State};

/// One operation of an atomic write.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// Sets a key to a value.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
    },
    /// Deletes a key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
}

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// In ascending key order.
    Forward,
    /// In descending key order.
    Backward,
}

/// The contents of one level of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// Number of the level; new data arrives in level 0.
    pub level: usize,
    /// Number of table files.
    pub files: u64,
    /// Their bytes on disk.
    pub bytes: u64,
}

/// Counters of lookups since the last [`Store::reset_stats`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Data blocks read from files.
    pub block_reads: u64,
    /// Data blocks found in the store's own cache.
    pub cache_hits: u64,
}

/// A callback for each key and value of a scan; the scan continues while it returns true.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// Turns bytes, in place, into a valid value of a key; called with the key and the value.
pub type Mark = fn(&[u8], &mut [u8]);

/// An ordered key-value store that the harness can drive.
///
/// Values are passed to a closure instead of returned, so that a store that can lend its bytes need
/// not copy them.
pub trait Store: Send + Sync {
    /// Sets `key` to `value`.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.write(&[Operation::Put { key, value }])
    }

    /// Turns arbitrary bytes into a valid value of a key, for a store that cannot store any value
    /// under any key. Fills call it for all values of a batch before the batch is written (the
    /// values have separate buffers if they take 1 MiB or less). For single puts they call it one
    /// put in advance, because reading memory right after writing it is slow, and that cost is not
    /// the store's.
    fn mark(&self) -> Option<Mark> {
        None
    }

    /// Applies all `operations`, in order, or none.
    fn write(&self, operations: &[Operation<'_>]) -> Result<(), StoreError>;

    /// As [`Store::write`], and synced before it returns.
    ///
    /// # Errors
    /// Also if the store cannot choose this for a single write.
    fn write_durably(&self, _operations: &[Operation<'_>]) -> Result<(), StoreError> {
        Err("this store cannot sync single writes".into())
    }

    /// Deletes `key`, if it is present.
    fn delete(&self, key: &[u8]) -> Result<(), StoreError> {
        self.write(&[Operation::Delete { key }])
    }

    /// Deletes the keys from `from` on that are before `to`.
    ///
    /// # Errors
    /// Also if the store cannot delete a range in one operation.
    fn delete_range(&self, _from: &[u8], _to: &[u8]) -> Result<(), StoreError> {
        Err("this store cannot delete ranges".into())
    }

    /// Merges `operand` into `key`.
    ///
    /// # Errors
    /// Also if the store has no merge operator.
    fn merge(&self, _key: &[u8], _operand: &[u8]) -> Result<(), StoreError> {
        Err("this store does not merge".into())
    }

    /// Whether `key` is present; if so, `found` is called once with its value.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, StoreError>;

    /// Looks up all `keys`; `found` is called with the position and value of each that is present.
    fn multi_get(
        &self,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), StoreError> {
        for (at, key) in keys.iter().enumerate() {
            self.get(key, &mut |value| found(at, value))?;
        }
        Ok(())
    }

    /// Scans entries in key order (or in reverse), from `start` inclusive, or else from the first
    /// in that direction.
    fn scan(
        &self,
        start: Option<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), StoreError>;

    /// As `scan` from `start`, restricted to the prefix of `start` of this many bytes; `start` is
    /// at least as long.
    fn scan_prefix(
        &self,
        start: &[u8],
        prefix_bytes: usize,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), StoreError> {
        let prefix = &start[..prefix_bytes];
        self.scan(Some(start), direction, &mut |key, value| {
            key.starts_with(prefix) && visit(key, value)
        })
    }

    /// Creates an iterator over the whole store and drops it, without reading an entry.
    fn make_iterator(&self) -> Result<(), StoreError> {
        self.scan(None, Direction::Forward, &mut |_, _| false)
    }

    /// Flushes the memtables to table files.
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Waits until no background work is left.
    fn settle(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Compacts all data into the deepest level.
    fn compact(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Reads and verifies everything; returns one line on what was verified.
    fn verify(&self) -> Result<String, StoreError>;

    /// Creates a checkpoint of the store in `dir`, which must not exist.
    ///
    /// # Errors
    /// Also if the store does not support checkpoints.
    fn checkpoint(&self, _dir: &Path) -> Result<(), StoreError> {
        Err("this store does not support checkpoints".into())
    }

    /// Closes the store. The caller holds the only reference.
    fn close(self: Arc<Self>) -> Result<(), StoreError>;

    /// Counters of lookups since the last reset.
    fn lookups(&self) -> Lookups {
        Lookups::default()
    }

    /// The contents of each level.
    fn levels(&self) -> Vec<Level> {
        Vec::new()
    }

    /// The measured and expected rates of each level's filters, as text.
    fn filter_stats(&self) -> String {
        "this store does not report its filters' results".into()
    }

    /// All other statistics of the store, as text.
    fn stats(&self) -> String {
        String::new()
    }

    /// Memory use by part, as text.
    fn memory_stats(&self) -> String {
        "this store does not report its memory use".into()
    }

    /// The table files, one per line, as text.
    fn table_stats(&self) -> String {
        "this store cannot list its tables".into()
    }

    /// The report on the store's state for a record; counters run from the last reset or the
    /// opening. Take one before and one after a workload, and call [`State::since`].
    fn state(&self) -> State {
        State::default()
    }

    /// Resets all counters.
    fn reset_stats(&self) {}
}

/// Opens stores for a run.
pub trait Opener {
    /// Opens the store. With `fresh`, an empty one replaces the store that this opener made before.
    /// Otherwise the existing one is reopened, which this opener may have made and closed.
    fn open(&self, fresh: bool) -> Result<Arc<dyn Store>, Error>;

    /// The location and setup of the store: name and value of every relevant setting.
    fn describe(&self) -> Vec<(&'static str, String)>;

    /// The directory that holds only the store, if it has one: `--cold` evicts its files from the
    /// page cache, and checkpoints are made next to it.
    fn dir(&self) -> Option<&Path> {
        None
    }

    /// The store's name in output: its directory, if it has one.
    fn name(&self) -> String;

    /// The kind of store, for a record.
    fn product(&self) -> Product;
}

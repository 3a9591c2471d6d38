//! The seam between the harness and a store.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, StoreError};
use crate::record::{Product, State};

/// One part of an atomic write.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// Sets a key to a value.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
}

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From small keys to large ones.
    Forward,
    /// From large keys to small ones.
    Backward,
}

/// What one level of a tree holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// Number of the level; 0 is where new data arrives.
    pub level: usize,
    /// Table files.
    pub files: u64,
    /// Their bytes on disk.
    pub bytes: u64,
}

/// What lookups did since the last [`Store::reset_stats`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Data blocks read from files.
    pub block_reads: u64,
    /// Data blocks found in the store's own cache.
    pub cache_hits: u64,
}

/// Calls `visit` with a key and its value; the scan goes on while it returns true.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// Makes a value, in its place, that of a key; called with the key and the value.
pub type Mark = fn(&[u8], &mut [u8]);

/// An ordered key-value store that can be driven.
///
/// Values are handed to a closure rather than returned, so that a store which can lend its bytes
/// need not copy them.
pub trait Store: Send + Sync {
    /// Sets `key` to `value`.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError>;

    /// How the value of a key is made the one that this store would have there, if not any is:
    /// called by fills, for all values of a batch before it is written (which lie apart where they
    /// take 1 MiB or less), and for a single one before the put ahead, as what was just written
    /// takes longer to be read, which is nothing of the store that is measured.
    fn mark(&self) -> Option<Mark> {
        None
    }

    /// Does all `operations`, in order, or none.
    fn write(&self, operations: &[Operation<'_>]) -> Result<(), StoreError>;

    /// As [`Store::write`], and all of it is on the device when this returns.
    ///
    /// # Errors
    /// Also where the store cannot choose this for a single write.
    fn write_durably(&self, _operations: &[Operation<'_>]) -> Result<(), StoreError> {
        Err("this store does not sync single writes".into())
    }

    /// Removes `key`, if it is there.
    fn delete(&self, key: &[u8]) -> Result<(), StoreError>;

    /// Whether `key` is there; if so, `found` is called once with its value.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool, StoreError>;

    /// Looks all `keys` up; `found` is called with the position and value of each that is there.
    fn multi_get(
        &self,
        keys: &[&[u8]],
        found: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), StoreError>;

    /// Visits entries in key order (or backwards), from `start` inclusive, or from the end that
    /// the direction begins with.
    fn scan(
        &self,
        start: Option<&[u8]>,
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), StoreError>;

    /// As `scan` from `start`, within its prefix of so many bytes, which it has.
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

    /// Makes an iterator over the whole store and drops it, without reading an entry.
    fn make_iterator(&self) -> Result<(), StoreError> {
        self.scan(None, Direction::Forward, &mut |_, _| false)
    }

    /// Writes what is held in memory to table files.
    fn flush(&self) -> Result<(), StoreError>;

    /// Returns when nothing is left to do in the background.
    fn settle(&self) -> Result<(), StoreError>;

    /// Merges all data into its deepest level.
    fn compact(&self) -> Result<(), StoreError>;

    /// Reads and checks everything; returns one line that says what was checked.
    fn verify(&self) -> Result<String, StoreError>;

    /// Makes `dir`, which does not exist, a store that holds what this one holds now.
    ///
    /// # Errors
    /// Also where the store has no such thing.
    fn checkpoint(&self, _dir: &Path) -> Result<(), StoreError> {
        Err("this store makes no checkpoints".into())
    }

    /// Closes the store. Nothing else holds it.
    fn close(self: Arc<Self>) -> Result<(), StoreError>;

    /// What lookups did since the last reset.
    fn lookups(&self) -> Lookups {
        Lookups::default()
    }

    /// What each level holds.
    fn levels(&self) -> Vec<Level> {
        Vec::new()
    }

    /// What the filters of each level did and should have done, as text.
    fn filter_stats(&self) -> String {
        "this store does not say what its filters did".into()
    }

    /// Everything else the store can say about itself, as text.
    fn stats(&self) -> String {
        String::new()
    }

    /// What it holds in memory, part by part, as text.
    fn memory_stats(&self) -> String {
        "this store does not say what it holds in memory".into()
    }

    /// Its table files, one a line, as text.
    fn table_stats(&self) -> String {
        "this store does not list its tables".into()
    }

    /// What it says about itself for a record, all counts since the last reset or since it was
    /// opened. Take one before and one after a workload, and [`State::since`].
    fn state(&self) -> State {
        State::default()
    }

    /// Starts all counts anew.
    fn reset_stats(&self) {}
}

/// Makes stores for a run.
pub trait Opener {
    /// Opens the store; with `fresh`, an empty one in place of what this opener made before.
    /// Without, the one that is there: also one that this opener made and that was closed since.
    fn open(&self, fresh: bool) -> Result<Arc<dyn Store>, Error>;

    /// Where the store is, and how it is set up: name and value of every setting that matters.
    fn describe(&self) -> Vec<(&'static str, String)>;

    /// The directory that holds the store and nothing else, if it lies in one: `--cold` drops its
    /// files from the page cache, and checkpoints are made beside it.
    fn dir(&self) -> Option<&Path> {
        None
    }

    /// What the store is called in lines about it: its directory, if it has one.
    fn name(&self) -> String;

    /// Which kind of store it opens, for a record.
    fn product(&self) -> Product;
}

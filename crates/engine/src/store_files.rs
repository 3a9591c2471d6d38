//! The files of an open store: their directory, their numbers, and their users.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_filter::HashSeed;
use trommel_vfs::Vfs;

use crate::files::deletion_queue::DeletionQueue;
use crate::log::LogEnds;
use crate::log_archive::LogArchive;
use crate::manifest::active::ActiveManifest;
use crate::sync::{AtomicU64, Mutex};
use crate::version::TableCache;

/// The files of an open store.
#[derive(Debug)]
pub(crate) struct StoreFiles {
    /// The store's directory.
    pub(crate) dir: PathBuf,
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) store_id: u64,
    /// The secret with which the keys of all tables are hashed.
    pub(crate) hash_seed: HashSeed,
    pub(crate) next_file_number: AtomicU64,
    /// Open tables.
    pub(crate) tables: Arc<TableCache>,
    /// The deletion queue of obsolete files.
    pub(crate) deletion_queue: Arc<DeletionQueue>,
    /// Obsolete logs that are kept for change feeds.
    pub(crate) archive: LogArchive,
    /// The manifest; `None` in a read-only store.
    pub(crate) manifest: Mutex<Option<ActiveManifest>>,
    /// Ends of logs when the store was opened, as recorded in its manifest.
    pub(crate) log_ends: LogEnds,
}

impl StoreFiles {
    /// A number that no file of this store has had.
    pub(crate) fn new_file_number(&self) -> u64 {
        self.next_file_number.fetch_add(1, Ordering::Relaxed)
    }
}

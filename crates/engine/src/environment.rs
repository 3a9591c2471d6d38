//! Resources shared by several stores of a process: threads, the block cache, one memory limit, and
//! open files.
//!
//! 1. [Workers](WorkerPool) serve all stores in turn, a job at a time.
//! 2. The blocks of each store are in its own part of one [`BlockCache`], and its memory counts
//!    toward one [`Ceiling`].
//! 3. If the active memtables of all stores exceed their share of the ceiling, a worker has the
//!    largest of them flushed.
//! 4. If all stores together have too many tables open, a store that opens one more closes a table
//!    of the store that has the most open.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_sstable::BlockCache;
use trommel_vfs::OpenFlag;

use crate::error::{Error, Result};
use crate::memory::{Ceiling, HeldMemory, default_cache_bytes};
use crate::version::SharedFiles;
use crate::workers::WorkerPool;

/// Resources shared by several stores of a process: background threads, the block cache, a memory
/// limit, and a limit on open tables. Clones are the same environment, which lives as long as any
/// clone, or any store in it.
///
/// A store joins it by [`Options::environment`](crate::Options::environment). A store without an
/// environment has resources of its own, and has threads only while it has work.
///
/// ```
/// use trommel::{Db, Environment, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// let environment = Environment::builder()
///     .threads(4)
///     .cache_bytes(256 << 20)
///     .memory_limit(512 << 20)
///     .max_open_files(2_000)
///     .build()?;
/// let stores: Vec<_> = (0..10)
///     .map(|tenant| {
///         let options = Options::default().environment(&environment);
///         Db::open(dir.path().join(format!("tenant-{tenant}")), options)
///     })
///     .collect::<trommel::Result<_>>()?;
/// stores[3].put("key", "value")?;
/// assert_eq!(environment.stats().stores, 10);
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Clone)]
pub struct Environment {
    shared: Arc<Shared>,
}

struct Shared {
    workers: Arc<WorkerPool>,
    blocks: Arc<BlockCache>,
    ceiling: Arc<Ceiling>,
    memory_limit: Option<u64>,
    files: Arc<SharedFiles>,
    open_flag: OpenFlag,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Its threads do not exist here, and may have held its locks.
        if self.open_flag.get().is_forked() {
            return;
        }
        self.workers.end();
    }
}

/// A builder of an [`Environment`]; every setting has a default.
#[derive(Debug, Clone)]
pub struct EnvironmentBuilder {
    threads: usize,
    cache_bytes: Option<u64>,
    memory_limit: Option<u64>,
    max_open_files: usize,
}

impl EnvironmentBuilder {
    /// Maximum number of background threads for all stores, 1 to 256; they are started when there
    /// is work, and end when there is none. If there are several, one runs only flushes, so that no
    /// store's flush waits for another's compaction. A store uses at most
    /// [`Options::background_threads`](crate::Options::background_threads) of them at once; if that
    /// is 0, callers run its work. Default: as many as the machine has cores, at least two.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Capacity of the block cache, in bytes. Default: as for
    /// [`ReadSettings::cache_bytes`](crate::settings::ReadSettings::cache_bytes).
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = Some(bytes);
        self
    }

    /// One limit, in bytes, on the memtables, indexes and filters of all stores and the block cache
    /// together, at least 64 KiB: the cache gets what the others leave. A memtable is full at a
    /// sixteenth of it at most. If the active memtables of all stores exceed an eighth of it, the
    /// largest is flushed; while all memtables exceed half of it, writers are slowed. Default:
    /// none.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Maximum number of open tables of all stores, at least 16; never more than half of the
    /// process's limit on open files (`ulimit -n`), less some for logs and new tables. In addition,
    /// each store has three files open: its lock, its log and its manifest. Default: 1000.
    #[must_use]
    pub fn max_open_files(mut self, files: usize) -> Self {
        self.max_open_files = files;
        self
    }

    /// Builds the environment. It starts no thread yet.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if a setting is out of bounds.
    pub fn build(self) -> Result<Environment> {
        let Self { threads, cache_bytes, memory_limit, max_open_files } = self;
        if !(1..=256).contains(&threads) {
            return Err(Error::option(format!("threads is {threads}: it must be 1 to 256")));
        }
        if max_open_files < 16 {
            let what = format!("max_open_files is {max_open_files}: it must be at least 16");
            return Err(Error::option(what));
        }
        if let Some(limit) = memory_limit.filter(|limit| *limit < 64 << 10) {
            return Err(Error::option(format!(
                "memory_limit is {limit}: it must be at least 65536"
            )));
        }
        let wanted = cache_bytes.unwrap_or_else(default_cache_bytes);
        let blocks = BlockCache::new(wanted.min(memory_limit.unwrap_or(u64::MAX)));
        let shared = Shared {
            workers: WorkerPool::of_many(threads),
            ceiling: Ceiling::new(Arc::clone(&blocks), memory_limit, wanted),
            blocks,
            memory_limit,
            files: SharedFiles::new(max_open_files),
            open_flag: OpenFlag::new(),
        };
        Ok(Environment { shared: Arc::new(shared) })
    }
}

/// Resources held by the stores of an environment.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct EnvironmentStats {
    /// Open stores, except those that are read-only or have no background threads.
    pub stores: usize,
    /// Running threads, busy or idle.
    pub threads: usize,
    /// Open table files.
    pub open_tables: usize,
    /// Bytes of memtables, and of memory kept for them.
    pub memtables: u64,
    /// Bytes of indexes and pinned filters of open tables.
    pub tables: u64,
    /// Bytes of filters and indexes of tables being written.
    pub construction: u64,
    /// Bytes in the block cache.
    pub block_cache: u64,
    /// Bytes that the block cache may hold now.
    pub block_cache_capacity: u64,
}

impl Environment {
    /// A builder with the defaults.
    pub fn builder() -> EnvironmentBuilder {
        EnvironmentBuilder {
            threads: crate::env::cores().max(2),
            cache_bytes: None,
            memory_limit: None,
            max_open_files: 1000,
        }
    }

    /// The resources that its stores hold.
    pub fn stats(&self) -> EnvironmentStats {
        let HeldMemory { memtables, tables, construction, cache, cache_capacity } =
            self.shared.ceiling.held();
        let (stores, threads) = self.shared.workers.counts();
        EnvironmentStats {
            stores,
            threads,
            open_tables: self.shared.files.open().load(Ordering::Relaxed),
            memtables,
            tables,
            construction,
            block_cache: cache,
            block_cache_capacity: cache_capacity,
        }
    }

    pub(crate) fn workers(&self) -> &Arc<WorkerPool> {
        &self.shared.workers
    }

    pub(crate) fn blocks(&self) -> &Arc<BlockCache> {
        &self.shared.blocks
    }

    pub(crate) fn ceiling(&self) -> &Arc<Ceiling> {
        &self.shared.ceiling
    }

    pub(crate) fn memory_limit(&self) -> Option<u64> {
        self.shared.memory_limit
    }

    pub(crate) fn files(&self) -> &Arc<SharedFiles> {
        &self.shared.files
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Environment").field(&self.stats()).finish()
    }
}

//! How a store is opened. Nothing here is frozen into the directory: every option may differ at the
//! next open (those that shape a store are recorded in it, for programs that ask for them: module
//! [`options_file`](crate::options_file)), and those that
//! [`Db::set_options`](crate::Db::set_options) takes may change on a live store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use trommel_filter::FilterSpec;
use trommel_sstable::FilterPlan;
use trommel_vfs::{DiskVfs, Vfs};

use crate::compaction_options::CompactionOptions;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::filter_policy::FilterPolicy;
use crate::memory::{PinnedLimits, default_cache_bytes};
use crate::prefix::Prefix;
use crate::read_mode::ReadMode;
use crate::user_filters::{UserFilterPolicy, UserPolicy};

pub use trommel_sstable::{Compression, FilterShape};

/// How far a write has got when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Durability {
    /// It is with the operating system: it survives the death of the process, but may be lost,
    /// with everything written after it, when the machine loses power.
    #[default]
    Os,
    /// It is on the device: it survives power loss, and so does every write before it.
    Sync,
}

/// Where filters are in memory once they have been read, which is when they are first asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FilterResidency {
    /// With their open table, up to [`Options::pinned_filter_bytes`]; what does not fit goes to the
    /// block cache, as with `Cached`, and is not used if it does not fit there either. Found by one
    /// load, without a lock. The default.
    #[default]
    Pinned,
    /// In the block cache, beside the blocks and evicted like them. A filter (or a piece of one,
    /// see [`Options::filter_shape`]) of more than half a shard of the cache is not used, and
    /// counted ([`Stats::filters_not_held`](crate::Stats::filters_not_held)): a shard is a 64th of
    /// a cache of 64 MiB and more, about 1 MiB of a smaller one.
    Cached,
    /// As `Cached`, but those of tables that were written for level 0 as `Pinned`: lookups ask them
    /// first, and most often.
    CachedBelowLevel0,
}

/// What a degraded open answers where nobody can know the keys of the writes that are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Degraded {
    /// Nothing: every read is [`Error::InDoubt`](crate::Error::InDoubt).
    Certain,
    /// What was true once: the state before the first write that is lost.
    LastIntact,
}

/// Options of one write.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    pub(crate) durability: Option<Durability>,
}

impl WriteOptions {
    /// As the store's [`Options::durability`] says.
    pub fn new() -> Self {
        Self::default()
    }

    /// On the device when the write returns.
    pub fn sync() -> Self {
        Self { durability: Some(Durability::Sync) }
    }

    /// With the operating system when the write returns.
    pub fn os() -> Self {
        Self { durability: Some(Durability::Os) }
    }
}

/// How a store is opened: a builder whose every setting has a default.
///
/// ```
/// use trommel::{Durability, Options};
/// let options = Options::default()
///     .filters("L0=paired:20,L1-=blocked:12.5".parse()?)
///     .durability(Durability::Sync)
///     .cache_bytes(256 << 20);
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) environment: Option<Environment>,
    pub(crate) create_if_missing: bool,
    pub(crate) error_if_exists: bool,
    pub(crate) read_only: bool,
    pub(crate) salvage: bool,
    pub(crate) degraded: Option<Degraded>,
    pub(crate) log: bool,
    pub(crate) durability: Durability,
    pub(crate) filters: FilterPolicy,
    pub(crate) filter_shape: FilterShape,
    pub(crate) filter_piece_bytes: usize,
    pub(crate) user_filters: Option<UserPolicy>,
    pub(crate) filters_on_last_level: bool,
    pub(crate) filter_residency: FilterResidency,
    pub(crate) pinned_filter_bytes: Option<u64>,
    pub(crate) prefix_extractor: Option<Prefix>,
    pub(crate) prefix_filters: Option<FilterPolicy>,
    pub(crate) whole_key_filters: bool,
    pub(crate) read_mode: ReadMode,
    pub(crate) write_buffer_bytes: usize,
    pub(crate) max_frozen_memtables: usize,
    pub(crate) block_bytes: usize,
    pub(crate) block_align: bool,
    pub(crate) compression: Compression,
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) max_open_files: usize,
    pub(crate) table_bytes: u64,
    pub(crate) base_level_bytes: u64,
    pub(crate) spare_file_bytes: u64,
    pub(crate) level_ratio: u32,
    pub(crate) l0_trigger: usize,
    pub(crate) l0_slowdown: usize,
    pub(crate) l0_stop: usize,
    pub(crate) debt_stop_bytes: u64,
    pub(crate) background_threads: usize,
    pub(crate) background_bytes_per_second: Option<u64>,
    pub(crate) stall_timeout: Option<Duration>,
    pub(crate) auto_compaction: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            vfs: Arc::new(DiskVfs),
            environment: None,
            create_if_missing: true,
            error_if_exists: false,
            read_only: false,
            salvage: false,
            degraded: None,
            log: true,
            durability: Durability::Os,
            filters: FilterPolicy::default(),
            filter_shape: FilterShape::Whole,
            filter_piece_bytes: 32 << 10,
            user_filters: None,
            filters_on_last_level: true,
            filter_residency: FilterResidency::Pinned,
            pinned_filter_bytes: None,
            prefix_extractor: None,
            prefix_filters: None,
            whole_key_filters: true,
            read_mode: ReadMode::Cached,
            write_buffer_bytes: 64 << 20,
            max_frozen_memtables: 4,
            block_bytes: 4 << 10,
            block_align: false,
            compression: Compression::Lz4,
            cache_bytes: None,
            memory_limit: None,
            max_open_files: 1000,
            table_bytes: 64 << 20,
            base_level_bytes: 256 << 20,
            spare_file_bytes: 512 << 20,
            level_ratio: 10,
            l0_trigger: 4,
            l0_slowdown: 12,
            l0_stop: 24,
            debt_stop_bytes: 64 << 30,
            background_threads: 2,
            background_bytes_per_second: None,
            stall_timeout: Some(Duration::from_secs(10)),
            auto_compaction: true,
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        $($(#[$doc])* #[must_use] pub fn $name(mut self, $name: $type) -> Self {
            self.$name = $name;
            self
        })*
    };
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// The file system that holds the store. Default: the disk.
        vfs: Arc<dyn Vfs>;
        /// Whether a missing (or empty) directory becomes a new store. Default: true.
        create_if_missing: bool;
        /// Whether an existing store is an error. Default: false.
        error_if_exists: bool;
        /// Whether to open without writing anything at all: nothing is created, repaired or
        /// removed, and what the log holds is read into memory. Default: false.
        read_only: bool;
        /// Whether to open in spite of damage in the log, keeping what stands before it and
        /// reporting what is dropped ([`Db::recovery_report`](crate::Db::recovery_report)).
        /// Default: false, damage is an error.
        salvage: bool;
        /// Whether writes go to a log before they are acknowledged. Without one, writes since
        /// the last [`Db::flush`](crate::Db::flush) or close are lost when the process dies, and a
        /// write with [`Durability::Sync`] writes a table. Default: true.
        log: bool;
        /// How far a write has got when it returns, unless the write says otherwise.
        /// Default: [`Durability::Os`].
        durability: Durability;
        /// Which filter the tables of which level get. Default: `L0=paired:16,L1-=paired:12`.
        filters: FilterPolicy;
        /// How the filters of new tables are cut. [`FilterShape::Partitioned`]: into one for each
        /// range of keys, so that only those in use need memory. [`FilterShape::PerBlock`]: into
        /// small ones, one for each data block and kept in groups, each a standard filter with the
        /// bits per key that [`filters`](Self::filters) asks for, whatever the kind; the index is
        /// searched before the filter is asked. Default: [`FilterShape::Whole`].
        filter_shape: FilterShape;
        /// About how many bytes a piece of a filter that is cut has, 256 B to 16 MiB; it ends where
        /// a data block ends. Default: 32 KiB.
        filter_piece_bytes: usize;
        /// Whether the tables of the last level have filters. Without, none are built for them, and
        /// those that they hold, as they were built for a higher level, are neither held in memory
        /// nor asked until a deeper level appears. For stores whose lookups nearly all hit: a key
        /// that is missing costs about one read in the last level then. Default: true.
        filters_on_last_level: bool;
        /// Where filters are in memory. Default: [`FilterResidency::Pinned`].
        filter_residency: FilterResidency;
        /// Most bytes of filters that are pinned, where they are pinned at all. Filters that are
        /// read once the limit is reached lie in the block cache. Default: none; but under a
        /// [`memory_limit`](Self::memory_limit) pinned filters and indexes together take at most
        /// half of it.
        pinned_filter_bytes: Option<u64>;
        /// Whether tables get filters of whole keys. Without them point lookups ask those of
        /// prefixes, so there must be a [`prefix_extractor`](Options::prefix_extractor).
        /// Default: true.
        whole_key_filters: bool;
        /// How table blocks reach memory. Default: [`ReadMode::Cached`].
        read_mode: ReadMode;
        /// Bytes a memtable may hold before it is written out, 4 KiB to 4 GiB. Default: 64 MiB.
        write_buffer_bytes: usize;
        /// Full memtables that may wait to be written out, 1 to 64. Default: 4.
        max_frozen_memtables: usize;
        /// Bytes of a table block before compression, 64 B to 1 MiB. Default: 4 KiB.
        block_bytes: usize;
        /// Whether table blocks are padded to the end of a page of 4 KiB: for stores without
        /// [`compression`](Self::compression), as a block that was compressed is not padded. Blocks
        /// of 4 KiB, or a multiple, then lie in as few pages as they fill, else in one more: which
        /// is what a read of one that is not in memory takes from the device, and leaves in the
        /// page cache. Padding takes about half an entry of each block, 3 to 5% of the data with
        /// values of 256 B, and at most an eighth of what is then written: where entries are large
        /// some blocks go without. For data larger than memory. Default: false.
        block_align: bool;
        /// Compression of table blocks. Default: LZ4.
        compression: Compression;
        /// Open table files at most, 16 or more; never more than half of what the process may have
        /// open (`ulimit -n`), less some for logs and new tables. A store of more tables opens them
        /// again and again, and finds nothing of what its block cache had of those that were
        /// closed. Default: 1000.
        max_open_files: usize;
        /// Bytes at which a compaction starts a new table, 1 KiB to 1 TiB; where nothing lies
        /// below, those of a large one share evenly what it writes, and may have up to 1.7 times as
        /// many. Default: 64 MiB.
        table_bytes: u64;
        /// Bytes from which on the deepest level has another above it; the topmost of several may
        /// have to hold twice as many before one is opened above it. 1 KiB to 1 PiB. Default: 256
        /// MiB.
        base_level_bytes: u64;
        /// Bytes of tables and logs that nothing needs any more and that are kept for new tables to
        /// be written over, which spares the system much of what a new file costs, and the removal
        /// of the old one: so much more of the disk a store may take while it is being written. At
        /// most 64 files, and a quarter of what its tables take; 0 keeps none. They are removed
        /// when the store rests ([`Db::wait_idle`](crate::Db::wait_idle), or ten seconds in which
        /// its background threads had nothing to do), when it is closed, and when the disk is full.
        /// Only Linux writes over files. Default: 512 MiB.
        spare_file_bytes: u64;
        /// How many times larger each level is than the one above, 2 to 100. Default: 10.
        level_ratio: u32;
        /// Runs in level 0 that start a compaction, 1 to 1000; up to a quarter more where they hold
        /// less than seven eighths of what the level they go to may hold (`base_level_bytes`, where
        /// it is the deepest) and no writer is slowed by it. While somebody waits for the store to
        /// rest ([`Db::wait_idle`](crate::Db::wait_idle)), half as many (rounded up, two at least)
        /// where they find at most five times their bytes in the base level, and no more than this
        /// elsewhere. Default: 4.
        l0_trigger: usize;
        /// Runs in level 0 from which writers are slowed, [`l0_trigger`](Self::l0_trigger) or more.
        /// Default: 12.
        l0_slowdown: usize;
        /// Runs in level 0 at which writers wait, [`l0_slowdown`](Self::l0_slowdown) or more.
        /// Default: 24.
        l0_stop: usize;
        /// Bytes of pending compaction at which writers wait; from half of it on they are slowed.
        /// It is what keeps deep levels within bounds where the level-0 triggers do not, and costs
        /// a fill much where it is what slows it. 1 KiB or more. Default: 64 GiB.
        debt_stop_bytes: u64;
        /// Threads that write out memtables and compact, 0 to 256; they are started when there is
        /// work, and end when there is none. With 0, the call that makes such work necessary does
        /// it itself. Default: 2.
        background_threads: usize;
        /// Whether compactions start by themselves. Default: true.
        auto_compaction: bool;
    }

    /// Whether to open in spite of damage, to read what is healthy: read-only, and with an error
    /// for each read that comes to what is damaged or missing.
    /// [`RecoveryReport::damage`](crate::RecoveryReport::damage) lists what that is. Where writes
    /// of unknown keys are lost, as behind the damage of a log, nothing is certain any more: see
    /// [`Degraded`]. Default: `None`, damage is an error.
    #[must_use]
    pub fn degraded(mut self, degraded: impl Into<Option<Degraded>>) -> Self {
        self.degraded = degraded.into();
        self.read_only |= self.degraded.is_some();
        self
    }

    /// What the prefix of a key is, or `None`. Tables get a filter of the prefixes of their keys
    /// beside that of whole keys, and what reads within one prefix
    /// ([`Db::prefix`](crate::Db::prefix), a range or a bounded cursor that lies within it) passes
    /// over tables that do not hold it. Keys without a prefix are not in the filter, and nothing
    /// that could be looking for them asks it.
    ///
    /// Tables that exist keep the filters they have. Those that another extractor made are not
    /// used, and counted ([`Stats::prefix_unused`](crate::Stats::prefix_unused)). Where none is
    /// set, a table's own is used if it is one of the rules built in. Default: none.
    #[must_use]
    pub fn prefix_extractor(mut self, extractor: impl Into<Option<Prefix>>) -> Self {
        self.prefix_extractor = extractor.into();
        self
    }

    /// Which filter of prefixes the tables of which level get, bits being counted for each prefix.
    /// Default, and with `None`: as [`filters`](Options::filters) says.
    #[must_use]
    pub fn prefix_filters(mut self, filters: impl Into<Option<FilterPolicy>>) -> Self {
        self.prefix_filters = filters.into();
        self
    }

    /// What the store shares with others of the process: threads, the block cache, a ceiling over
    /// memory and open files. The settings of the environment then count, and
    /// [`cache_bytes`](Self::cache_bytes), [`memory_limit`](Self::memory_limit) and
    /// [`max_open_files`](Self::max_open_files) do not;
    /// [`background_threads`](Self::background_threads) is how many of the environment's threads
    /// work for the store at once. Default: none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let environment = trommel::Environment::builder().threads(2).build()?;
    /// let options = trommel::Options::default().environment(&environment);
    /// let (cats, dogs) = (dir.path().join("cats"), dir.path().join("dogs"));
    /// let (cats, dogs) = (options.clone().open(cats)?, options.open(dogs)?);
    /// # cats.put("a", "b")?;
    /// # dogs.put("a", "b")?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    #[must_use]
    pub fn environment(mut self, environment: &Environment) -> Self {
        self.environment = Some(environment.clone());
        self
    }

    /// Bytes of the block cache. Default: an eighth of the memory that the process may use, at most
    /// 1 GiB. That is the machine's memory, or less where a control group, `RLIMIT_AS` or
    /// `RLIMIT_DATA` says so.
    #[must_use]
    pub fn cache_bytes(mut self, cache_bytes: u64) -> Self {
        self.cache_bytes = Some(cache_bytes);
        self
    }

    /// One ceiling, in bytes, over memtables, block cache, index and filters: the cache gets what
    /// the others leave. 64 KiB or more. Default: none.
    #[must_use]
    pub fn memory_limit(mut self, memory_limit: u64) -> Self {
        self.memory_limit = Some(memory_limit);
        self
    }

    /// Bytes per second that flushes, compactions and rebuilds of filters may write, 4 KiB or more.
    /// Work that a caller waits for is not limited: opening, closing,
    /// [`Db::flush`](crate::Db::flush), [`Db::wait_idle`](crate::Db::wait_idle), and writers that
    /// are slowed or stopped among them.
    /// [`Stats::rate_limited_bytes`](crate::Stats::rate_limited_bytes) counts what it was applied
    /// to. Default: no limit.
    #[must_use]
    pub fn background_bytes_per_second(mut self, limit: Option<u64>) -> Self {
        self.background_bytes_per_second = limit;
        self
    }

    /// How long flushes or compactions may go on failing before writers that wait for them get
    /// [`Error::Stalled`](crate::Error::Stalled), counted from the first failure of those in a row:
    /// so a writer that comes later is refused at once, until an attempt succeeds. They are tried
    /// again all the while, as when the disk is full or there are no file handles left. `None`:
    /// writers wait for as long as it takes. Work that is slow and does not fail is waited for in
    /// any case. Without background threads the write that meets the failure returns it. Default:
    /// 10 seconds.
    ///
    /// ```
    /// use std::time::Duration;
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = trommel::Options::default().stall_timeout(Some(Duration::from_secs(1)));
    /// let db = trommel::Db::open(dir.path(), options)?;
    /// match db.put("key", "value") {
    ///     // Neither logged nor visible: try again later.
    ///     Err(trommel::Error::Stalled { source, .. }) => eprintln!("held up: {source}"),
    ///     outcome => drop(outcome?),
    /// }
    /// # Ok::<(), trommel::Error>(())
    /// ```
    #[must_use]
    pub fn stall_timeout(mut self, limit: Option<Duration>) -> Self {
        self.stall_timeout = limit;
        self
    }

    /// A policy that chooses the filter of each table, and may bring filters of its own. What
    /// [`filters`](Self::filters) says for the table is told to it, and it has the last word; for
    /// tables that get no filter because of
    /// [`filters_on_last_level`](Self::filters_on_last_level) it is not asked. Tables that hold its
    /// filters can be read without it. It cannot change while the store is open:
    /// [`Db::set_options`](crate::Db::set_options) refuses another one. Default: none.
    #[must_use]
    pub fn user_filters(mut self, policy: Arc<dyn UserFilterPolicy>) -> Self {
        self.user_filters = Some(UserPolicy::new(policy));
        self
    }

    /// Every setting but the file system and the environment, which are no text, by the name of its
    /// setter, with its value as text (sizes in bytes). Where nothing was set and the machine
    /// decides, what it decides.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let or_none = |limit: Option<u64>| limit.map_or("none".into(), |bytes| bytes.to_string());
        fn or_word(value: Option<&impl fmt::Display>, word: &str) -> String {
            value.map_or_else(|| word.to_owned(), ToString::to_string)
        }
        let stall_timeout = self.stall_timeout.map(|limit| format!("{limit:?}"));
        let lower = |value: &dyn fmt::Debug| format!("{value:?}").to_lowercase();
        vec![
            ("create_if_missing", self.create_if_missing.to_string()),
            ("error_if_exists", self.error_if_exists.to_string()),
            ("read_only", self.read_only.to_string()),
            ("salvage", self.salvage.to_string()),
            ("degraded", self.degraded.map_or("none".into(), |how| lower(&how))),
            ("log", self.log.to_string()),
            ("durability", lower(&self.durability)),
            ("filters", self.filters.to_string()),
            ("filter_shape", self.filter_shape.to_string()),
            ("filter_piece_bytes", self.filter_piece_bytes.to_string()),
            ("user_filters", self.user_filters.as_ref().map_or("none".into(), UserPolicy::quoted)),
            ("filters_on_last_level", self.filters_on_last_level.to_string()),
            ("filter_residency", lower(&self.filter_residency)),
            ("pinned_filter_bytes", or_none(self.pinned_filter_bytes)),
            ("prefix_extractor", or_word(self.prefix_extractor.as_ref(), "none")),
            ("prefix_filters", or_word(self.prefix_filters.as_ref(), "as filters")),
            ("whole_key_filters", self.whole_key_filters.to_string()),
            ("read_mode", self.read_mode.to_string()),
            ("write_buffer_bytes", self.write_buffer_bytes.to_string()),
            ("max_frozen_memtables", self.max_frozen_memtables.to_string()),
            ("block_bytes", self.block_bytes.to_string()),
            ("block_align", self.block_align.to_string()),
            ("compression", lower(&self.compression)),
            ("cache_bytes", self.wanted_cache_bytes().to_string()),
            ("memory_limit", or_none(self.memory_limit)),
            ("max_open_files", self.max_open_files.to_string()),
            ("table_bytes", self.table_bytes.to_string()),
            ("base_level_bytes", self.base_level_bytes.to_string()),
            ("spare_file_bytes", self.spare_file_bytes.to_string()),
            ("level_ratio", self.level_ratio.to_string()),
            ("l0_trigger", self.l0_trigger.to_string()),
            ("l0_slowdown", self.l0_slowdown.to_string()),
            ("l0_stop", self.l0_stop.to_string()),
            ("debt_stop_bytes", self.debt_stop_bytes.to_string()),
            ("background_threads", self.background_threads.to_string()),
            ("background_bytes_per_second", or_none(self.background_bytes_per_second)),
            ("stall_timeout", or_word(stall_timeout.as_ref(), "none")),
            ("auto_compaction", self.auto_compaction.to_string()),
        ]
    }

    /// With no more threads than the environment has.
    pub(crate) fn within_environment(mut self) -> Self {
        let most = self.environment.as_ref().map_or(usize::MAX, |it| it.workers().most());
        self.background_threads = self.background_threads.min(most);
        self
    }

    /// Bytes of the block cache, where no memory limit stands against it.
    pub(crate) fn wanted_cache_bytes(&self) -> u64 {
        self.cache_bytes.unwrap_or_else(default_cache_bytes)
    }

    /// Bytes a second that background threads may write. Without threads it is callers who write,
    /// and no limit holds.
    pub(crate) fn background_limit(&self) -> Option<u64> {
        self.background_bytes_per_second.filter(|_| self.background_threads > 0)
    }

    /// Most bytes of filters that may be pinned.
    pub(crate) fn pinned_limits(&self) -> PinnedLimits {
        let most = self.pinned_filter_bytes.unwrap_or(u64::MAX);
        let (level_0, below) = match self.filter_residency {
            FilterResidency::Pinned => (most, most),
            FilterResidency::CachedBelowLevel0 => (most, 0),
            FilterResidency::Cached => (0, 0),
        };
        PinnedLimits { level_0, below }
    }

    /// Bytes at which a memtable is full. Under the memory limit of an environment a sixteenth of
    /// it: of several stores the largest is written out when all are too much. Under a memory limit
    /// of its own all memtables together, full ones and what is kept for the next included, get a
    /// quarter of it.
    pub(crate) fn memtable_limit(&self) -> u64 {
        let buffer = self.write_buffer_bytes as u64;
        if let Some(environment) = &self.environment {
            return environment.memory_limit().map_or(buffer, |limit| buffer.min(limit / 16));
        }
        let memtables = self.max_frozen_memtables as u64 + 2;
        self.memory_limit.map_or(buffer, |limit| buffer.min(limit / 4 / memtables))
    }

    /// Bytes up to which the memory of memtables is kept for the next ones, what is in use
    /// included: one memtable. Under the memory limit of an environment none: other stores may need
    /// it.
    pub(crate) fn arena_limit(&self) -> usize {
        if self.environment.as_ref().is_some_and(|shared| shared.memory_limit().is_some()) {
            return 0;
        }
        self.memtable_limit() as usize
    }

    /// The filters of a table built for `level`: see [`FilterPolicy::for_level`]; those `by_budget`
    /// where there is one.
    pub(crate) fn filter_plan(
        &self,
        level: usize,
        is_last: bool,
        by_budget: Option<FilterSpec>,
    ) -> FilterPlan {
        let keys = by_budget.unwrap_or_else(|| self.filters.for_level(level, is_last));
        let prefixes = self.prefix_filters.as_ref();
        let prefixes = prefixes.map_or(keys, |filters| filters.for_level(level, is_last));
        let extractor = self.prefix_extractor.as_ref().filter(|prefix| prefix.breach().is_none());
        FilterPlan {
            keys: if self.whole_key_filters { keys } else { FilterSpec::NONE },
            prefixes: extractor.map(|prefix| (prefixes, prefix.extractor())),
            shape: self.filter_shape,
            piece_bytes: self.filter_piece_bytes,
        }
    }

    /// What the compaction planner needs to know.
    pub(crate) fn compaction(&self) -> CompactionOptions {
        CompactionOptions {
            l0_trigger: self.l0_trigger,
            base_level_bytes: self.base_level_bytes,
            level_ratio: u64::from(self.level_ratio),
            table_bytes: self.table_bytes,
            slow_runs: self.l0_slowdown,
            stop_runs: self.l0_stop,
            slow_debt_bytes: self.debt_stop_bytes / 2,
            stop_debt_bytes: self.debt_stop_bytes,
            max_frozen_memtables: self.max_frozen_memtables,
            ..CompactionOptions::default()
        }
    }

    /// Checks every bound that the setters' docs state.
    pub(crate) fn check(&self) -> Result<()> {
        fn within(name: &str, value: u64, low: u64, high: u64) -> Result<()> {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            let bounds = match high {
                u64::MAX => format!("at least {low}"),
                _ => format!("{low} to {high}"),
            };
            Err(Error::option(format!("{name} is {value}: it must be {bounds}")))
        }
        /// Those that are ordered among each other: a default may be too small for what was set.
        fn in_order(name: &str, value: usize, least_name: &str, least: usize) -> Result<()> {
            if value >= least {
                return Ok(());
            }
            Err(Error::option(format!(
                "{name} is {value} and {least_name} is {least}: {name} must be at least {least_name}, \
                 so set both"
            )))
        }
        within("write_buffer_bytes", self.write_buffer_bytes as u64, 4 << 10, 4 << 30)?;
        within("max_frozen_memtables", self.max_frozen_memtables as u64, 1, 64)?;
        within("block_bytes", self.block_bytes as u64, 64, 1 << 20)?;
        within("filter_piece_bytes", self.filter_piece_bytes as u64, 256, 16 << 20)?;
        within("max_open_files", self.max_open_files as u64, 16, u64::MAX)?;
        within("table_bytes", self.table_bytes, 1 << 10, 1 << 40)?;
        within("base_level_bytes", self.base_level_bytes, 1 << 10, 1 << 50)?;
        within("level_ratio", u64::from(self.level_ratio), 2, 100)?;
        within("l0_trigger", self.l0_trigger as u64, 1, 1000)?;
        in_order("l0_slowdown", self.l0_slowdown, "l0_trigger", self.l0_trigger)?;
        in_order("l0_stop", self.l0_stop, "l0_slowdown", self.l0_slowdown)?;
        within("debt_stop_bytes", self.debt_stop_bytes, 1 << 10, u64::MAX)?;
        within("background_threads", self.background_threads as u64, 0, 256)?;
        within("memory_limit", self.memory_limit.unwrap_or(u64::MAX), 64 << 10, u64::MAX)?;
        let rate = self.background_bytes_per_second.unwrap_or(u64::MAX);
        within("background_bytes_per_second", rate, 4 << 10, u64::MAX)?;
        if let Some(prefix) = &self.prefix_extractor {
            prefix.check()?;
        } else if !self.whole_key_filters {
            return Err(Error::option(
                "whole_key_filters is false, and there is no prefix_extractor: set one, or set \
                 filters to none if there are to be no filters",
            ));
        }
        if self.prefix_filters.as_ref().is_some_and(|filters| filters.budget().is_some()) {
            return Err(Error::option(
                "prefix_filters is a budget: there is one for all filters, that of filters, so give \
                 the budget there, and prefix_filters a filter or nothing",
            ));
        }
        self.user_filters.as_ref().map_or(Ok(()), UserPolicy::check)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of the planner stand in its own defaults once more, for its tests.
    #[test]
    fn the_planner_s_defaults_are_those_of_a_store() {
        let (of_store, own) = (Options::default().compaction(), CompactionOptions::default());
        assert_eq!(format!("{of_store:?}"), format!("{own:?}"));
    }

    /// The text names what was set, where another option's default is what does not fit it.
    #[test]
    fn bounds_are_told_as_they_are() {
        let told = |options: Options| options.check().unwrap_err().to_string();
        assert_eq!(
            told(Options::default().l0_trigger(20)),
            "l0_slowdown is 12 and l0_trigger is 20: l0_slowdown must be at least l0_trigger, so set both"
        );
        assert_eq!(
            told(Options::default().l0_slowdown(30)),
            "l0_stop is 24 and l0_slowdown is 30: l0_stop must be at least l0_slowdown, so set both"
        );
        assert_eq!(
            told(Options::default().max_open_files(3)),
            "max_open_files is 3: it must be at least 16"
        );
        assert_eq!(
            told(Options::default().level_ratio(1)),
            "level_ratio is 1: it must be 2 to 100"
        );
    }

    #[test]
    fn settings_leave_nothing_out() {
        let options = Options::default();
        let text = format!("{options:#?}");
        let fields = text.lines().filter_map(|line| {
            let field =
                line.strip_prefix("    ").filter(|field| !field.starts_with([' ', '}', ')']))?;
            Some(field.split(':').next().unwrap_or_default().to_owned())
        });
        let fields: Vec<String> =
            fields.filter(|field| field != "vfs" && field != "environment").collect();
        let settings: Vec<&str> = options.settings().iter().map(|(name, _)| *name).collect();
        assert_eq!(settings, fields);
        assert!(options.settings().contains(&("compression", "lz4".into())));
    }
}

//! The current options, and the subset that every write checks.
//!
//! They are replaced as a whole. Loading them takes an atomic read-modify-write or two, which a
//! write need not pay for: the write leader keeps a copy of the values it checks ([`Marks`]), and
//! only checks whether the options have changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::compaction_options::CompactionOptions;
use crate::keyspaces::Keyspaces;
use crate::options::{Durability, Options};
use crate::options_record::OptionsRecord;
use crate::prefix::Prefix;
use crate::space::is_marked;
use crate::sync::{AtomicBool, AtomicU64, Guard, Mutex, MutexGuard, Swap, lock};

/// The current options, of the store and of its keyspaces.
#[derive(Debug)]
pub(crate) struct CurrentOptions {
    all: Swap<Options>,
    /// Whether a write without its own setting is synced.
    syncs: AtomicBool,
    /// Number of replacements.
    changes: AtomicU64,
    /// Locked while they are changed.
    change: Mutex<()>,
    /// The contents of the options file. Locked after `change`, and before no other lock.
    record: Mutex<OptionsRecord>,
    pub(crate) keyspaces: Keyspaces,
}

impl CurrentOptions {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            syncs: AtomicBool::new(options.durability == Durability::Sync),
            all: Swap::new(Arc::new(options)),
            changes: AtomicU64::new(0),
            change: Mutex::default(),
            record: Mutex::default(),
            keyspaces: Keyspaces::new(),
        }
    }

    /// Prevents changes by others while the guard lives.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.change)
    }

    /// The contents of the options file.
    pub(crate) fn record(&self) -> MutexGuard<'_, OptionsRecord> {
        lock(&self.record)
    }

    /// All options, for a short time.
    pub(crate) fn load(&self) -> Guard<Arc<Options>> {
        self.all.load()
    }

    /// All options, to keep.
    pub(crate) fn load_full(&self) -> Arc<Options> {
        self.all.load_full()
    }

    /// The options of the table that holds this physical key.
    pub(crate) fn for_key(&self, physical: &[u8]) -> Arc<Options> {
        self.keyspaces.options_for(physical, self.load_full())
    }

    /// The rule for the prefix of this physical key.
    pub(crate) fn extractor_for(&self, physical: &[u8]) -> Option<Prefix> {
        if is_marked(physical) {
            return self.for_key(physical).filtering.prefix_extractor.clone();
        }
        self.load().filtering.prefix_extractor.clone()
    }

    /// Replaces the options.
    pub(crate) fn store(&self, options: Options) {
        self.syncs.store(options.durability == Durability::Sync, Ordering::Release);
        self.all.store(Arc::new(options));
        // Last: a thread that sees the new count finds the options replaced.
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether a write without its own setting is synced.
    #[inline]
    pub(crate) fn syncs(&self) -> bool {
        self.syncs.load(Ordering::Acquire)
    }
}

/// The values that a writer checks before each write.
#[derive(Debug)]
pub(crate) struct Marks {
    /// The number of replacements when these values were copied.
    changes: u64,
    /// Bytes at which a memtable is full.
    pub(crate) memtable_limit: u64,
    /// Whether the memory of memtables is shared with other stores.
    pub(crate) shares_memory: bool,
    /// Settings that slow or stop writers.
    pub(crate) compaction: CompactionOptions,
}

impl Marks {
    pub(crate) fn of(options: &CurrentOptions) -> Self {
        let changes = options.changes.load(Ordering::Acquire);
        let now = options.load();
        let shares_memory = now.environment.as_ref().is_some_and(|it| it.memory_limit().is_some());
        let (memtable_limit, compaction) = (now.memtable_limit(), now.planner());
        Self { changes, memtable_limit, shares_memory, compaction }
    }

    /// Reloads the values if the options were replaced.
    #[inline]
    pub(crate) fn keep_up_with(&mut self, options: &CurrentOptions) {
        if options.changes.load(Ordering::Acquire) != self.changes {
            *self = Self::of(options);
        }
    }
}

//! The options in force, and what every write looks at of them.
//!
//! They are replaced as a whole. To read them takes a locked instruction or two, which a write need
//! not pay for: whoever leads keeps what it looks at ([`Marks`]), and asks only whether they were
//! changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::compaction_options::CompactionOptions;
use crate::options::{Durability, Options};
use crate::options_record::OptionsRecord;
use crate::sync::{AtomicBool, AtomicU64, Guard, Mutex, MutexGuard, Swap, lock};

/// The options in force.
#[derive(Debug)]
pub(crate) struct CurrentOptions {
    all: Swap<Options>,
    /// Whether a write is synced that does not say.
    syncs: AtomicBool,
    /// How often they were replaced.
    changes: AtomicU64,
    /// Held while they are changed.
    change: Mutex<()>,
    /// What the options file says. Taken after `change`, and before no other lock.
    record: Mutex<OptionsRecord>,
}

impl CurrentOptions {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            syncs: AtomicBool::new(options.durability == Durability::Sync),
            all: Swap::new(Arc::new(options)),
            changes: AtomicU64::new(0),
            change: Mutex::default(),
            record: Mutex::default(),
        }
    }

    /// Keeps others from changing them for as long as the guard lives.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.change)
    }

    /// What the options file says.
    pub(crate) fn record(&self) -> MutexGuard<'_, OptionsRecord> {
        lock(&self.record)
    }

    /// All of them, for as long as they are looked at.
    pub(crate) fn load(&self) -> Guard<Arc<Options>> {
        self.all.load()
    }

    /// All of them, to keep.
    pub(crate) fn load_full(&self) -> Arc<Options> {
        self.all.load_full()
    }

    /// Replaces them.
    pub(crate) fn store(&self, options: Options) {
        self.syncs.store(options.durability == Durability::Sync, Ordering::Release);
        self.all.store(Arc::new(options));
        // Last: who sees it finds the options replaced.
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether a write is synced that does not say.
    #[inline]
    pub(crate) fn syncs(&self) -> bool {
        self.syncs.load(Ordering::Acquire)
    }
}

/// What a writer looks at before each write.
#[derive(Debug)]
pub(crate) struct Marks {
    /// How often the options had been replaced.
    changes: u64,
    /// Bytes at which a memtable is full.
    pub(crate) memtable_limit: u64,
    /// Whether the memory of memtables is shared with other stores.
    pub(crate) shares_memory: bool,
    /// Where writers are slowed.
    pub(crate) compaction: CompactionOptions,
}

impl Marks {
    pub(crate) fn of(options: &CurrentOptions) -> Self {
        let changes = options.changes.load(Ordering::Acquire);
        let now = options.load();
        let shares_memory = now.environment.as_ref().is_some_and(|it| it.memory_limit().is_some());
        let (memtable_limit, compaction) = (now.memtable_limit(), now.compaction());
        Self { changes, memtable_limit, shares_memory, compaction }
    }

    /// Looks at the options again if they were replaced.
    #[inline]
    pub(crate) fn keep_up_with(&mut self, options: &CurrentOptions) {
        if options.changes.load(Ordering::Acquire) != self.changes {
            *self = Self::of(options);
        }
    }
}

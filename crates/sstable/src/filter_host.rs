//! The memory that an open table acquires, and the host that accounts for it.
//!
//! 1. Filters are *pinned*: the host grants a [`PinCharge`] before the memory is allocated.
//! 2. Everything else that a table loads on demand is *reported*: [`LoadedMemory`] notifies the
//!    host before the bytes are held.
//!
//! Both return their bytes to the host when they are dropped. Used for leaves of the index, blocks
//! of filters, and the record of verified blocks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::user_filter::UserFilterReader;

/// Whether a table's filters can be queried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterState {
    /// They can, as far as they were read.
    Loaded,
    /// The table was built without filters.
    Absent,
    /// A filter is corrupt, for this reason. It answers "maybe".
    Damaged(String),
    /// A filter is of a kind that this version does not know. It answers "maybe".
    Unknown(String),
    /// A user-defined filter whose policy is missing, or rejects it, for this reason. It is intact,
    /// and answers "maybe".
    Foreign(String),
    /// There are filters, but the [`FilterHost`] does not want them used.
    Spared,
}

/// Grants a table's filters their memory, accounts for the other memory of an open table, and is
/// notified of unusable filters.
pub trait FilterHost: Send + Sync + fmt::Debug {
    /// Whether `bytes` more may be held for as long as the table is open. If so, they count as
    /// held.
    fn pin(&self, bytes: u64) -> bool;

    /// Releases `bytes` that were pinned.
    fn unpin(&self, bytes: u64);

    /// The open table is about to take `bytes` more, until it is closed, for parts loaded on
    /// demand, such as leaves of its index.
    fn grows(&self, _bytes: u64) {}

    /// Releases `bytes` of these.
    fn shrinks(&self, _bytes: u64) {}

    /// A filter or partition was needed and can be held nowhere: it may not be pinned, and it takes
    /// more than half a shard of the block cache. Reported once per partition while the top index
    /// of its part is in memory, and once for a whole filter while the table is open. The table
    /// answers "maybe" instead.
    fn not_held(&self) {}

    /// A filter of the table is unusable; reported once.
    fn unusable(&self, state: &FilterState);

    /// The reader of the user-defined filters stored in the table, if there is one.
    fn user_filters(&self) -> Option<Arc<dyn UserFilterReader>> {
        None
    }

    /// Whether the table's filters are used at all. Called when the table is opened.
    fn wants_filters(&self) -> bool {
        true
    }
}

/// Bytes that count as pinned; released when dropped.
#[derive(Debug)]
pub(crate) struct PinCharge {
    host: Option<Arc<dyn FilterHost>>,
    bytes: u64,
}

impl PinCharge {
    /// A charge of `bytes`, if `host` grants them. Without a host everything is granted.
    pub(crate) fn new(host: Option<&Arc<dyn FilterHost>>, bytes: u64) -> Option<Self> {
        let granted = host.is_none_or(|host| host.pin(bytes));
        granted.then(|| Self { host: host.cloned(), bytes })
    }

    /// Bytes charged.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Releases the charge beyond `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let more = self.bytes.saturating_sub(bytes);
        self.bytes -= more;
        if let Some(host) = &self.host {
            host.unpin(more);
        }
    }
}

impl Drop for PinCharge {
    fn drop(&mut self) {
        if let Some(host) = &self.host {
            host.unpin(self.bytes);
        }
    }
}

/// Bytes that a table has loaded since it was opened, reported to its host.
#[derive(Debug, Default)]
pub(crate) struct LoadedMemory {
    host: Option<Arc<dyn FilterHost>>,
    bytes: AtomicUsize,
}

impl LoadedMemory {
    /// No bytes loaded.
    pub(crate) fn new(host: Option<Arc<dyn FilterHost>>) -> Self {
        Self { host, bytes: AtomicUsize::new(0) }
    }

    pub(crate) fn host(&self) -> Option<Arc<dyn FilterHost>> {
        self.host.clone()
    }

    /// Reports `bytes` that are about to be held.
    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Relaxed);
        if let Some(host) = &self.host {
            host.grows(bytes as u64);
        }
    }

    /// Reports that `bytes` were released, or not taken after all.
    pub(crate) fn take_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
        if let Some(host) = &self.host {
            host.shrinks(bytes as u64);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

impl Drop for LoadedMemory {
    fn drop(&mut self) {
        self.take_back(self.bytes());
    }
}

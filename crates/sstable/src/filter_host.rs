//! The memory that an open table comes to take, and the host that accounts for it.
//!
//! 1. Filters are *pinned*: a [`PinCharge`] is granted by the host before the memory is allocated.
//! 2. Anything else that a table loads when it is first needed is *reported*: [`LoadedMemory`]
//!    tells the host before the bytes are held.
//!
//! Both return their bytes to the host when they are dropped. Used by whatever a table loads:
//! leaves of the index, blocks of filters, the record of verified blocks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::user_filter::UserFilterReader;

/// Whether a table's filters can be queried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterState {
    /// They can, as far as they were read.
    Loaded,
    /// The table was built without any.
    Absent,
    /// One is damaged; the text says how. It answers "maybe".
    Damaged(String),
    /// One is of a kind this version does not know. It answers "maybe".
    Unknown(String),
    /// One was made by a user's policy that is not here, or that refuses it; the text says which.
    /// It is intact, and answers "maybe".
    Foreign(String),
    /// There are some, which the [`FilterHost`] does not want used.
    Spared,
}

/// Grants a table's filters their memory, accounts for what else an open table comes to take, and
/// is notified of filters that cannot be used.
pub trait FilterHost: Send + Sync + fmt::Debug {
    /// Whether `bytes` more may be held for as long as the table is open. If so they count as held
    /// from now on.
    fn pin(&self, bytes: u64) -> bool;

    /// `bytes` that were pinned are held no longer.
    fn unpin(&self, bytes: u64);

    /// The open table is about to take `bytes` more, for as long as it is open: of its index, which
    /// is read when it is needed.
    fn grows(&self, _bytes: u64) {}

    /// `bytes` of these are held no longer.
    fn shrinks(&self, _bytes: u64) {}

    /// A filter, or a partition of one, was needed and can be held nowhere: it may not be pinned,
    /// and takes more than half a shard of the block cache. Reported once for each partition as
    /// long as the top of its part is in memory, and of a whole filter as long as the table is
    /// open; the table answers "maybe" in its place.
    fn not_held(&self) {}

    /// A filter of the table cannot be used; reported once.
    fn unusable(&self, state: &FilterState);

    /// Reads the filters of users' policies that are stored in the table, if there is such a
    /// reader.
    fn user_filters(&self) -> Option<Arc<dyn UserFilterReader>> {
        None
    }

    /// Whether the table's filters are to be used at all. Called when the table is opened.
    fn wants_filters(&self) -> bool {
        true
    }
}

/// Bytes that count as pinned; returned when dropped.
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

    /// Bytes that are charged.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns what is charged beyond `bytes`.
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

/// Bytes that a table has loaded beyond those that it took when it was opened, reported to its
/// host.
#[derive(Debug, Default)]
pub(crate) struct LoadedMemory {
    host: Option<Arc<dyn FilterHost>>,
    bytes: AtomicUsize,
}

impl LoadedMemory {
    /// Nothing loaded yet.
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

    /// Reports that `bytes` of them are held no longer, or were not taken.
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

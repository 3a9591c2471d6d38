//! The lock on a store's directory, while the store is open.
//!
//! If the directory was moved away and replaced by another, the files at the old path may belong to
//! another owner. The engine detects this at its next flush, new log or close, and accepts no more
//! writes from then on. Neither queued files nor those of a failed job are removed.

use trommel_vfs::FileLock;

use crate::sync::{Mutex, lock};

/// The lock, until it is released.
#[derive(Debug)]
pub(crate) struct HeldLock(Mutex<Option<Box<dyn FileLock>>>);

impl HeldLock {
    /// `None` for a store that writes nothing.
    pub(crate) fn new(held: Option<Box<dyn FileLock>>) -> Self {
        Self(Mutex::new(held))
    }

    /// Whether the lock file was removed or replaced.
    pub(crate) fn is_lost(&self) -> bool {
        lock(&self.0).as_ref().is_some_and(|held| !held.is_in_place())
    }

    /// Whether the directory is ours to change: the lock is held, and its file still in place.
    pub(crate) fn is_held(&self) -> bool {
        lock(&self.0).as_ref().is_some_and(|held| held.is_in_place())
    }

    /// Releases the lock.
    pub(crate) fn give_back(&self) {
        *lock(&self.0) = None;
    }
}

#[cfg(test)]
impl HeldLock {
    /// A lock that is never lost.
    pub(crate) fn of_nothing() -> std::sync::Arc<Self> {
        #[derive(Debug)]
        struct Nothing;
        impl FileLock for Nothing {}
        std::sync::Arc::new(Self::new(Some(Box::new(Nothing))))
    }
}

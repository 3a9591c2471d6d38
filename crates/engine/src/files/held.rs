//! The lock on a store's directory, for as long as the store is open.
//!
//! A directory that was moved away, with another in its place, may be another owner's by then.
//! Nobody may change what lies there by its old path: the engine takes no more writes, and files
//! that wait to be removed are left.

use trommel_vfs::FileLock;

use crate::sync::{Mutex, lock};

/// The lock, until it is given back.
#[derive(Debug)]
pub(crate) struct HeldLock(Mutex<Option<Box<dyn FileLock>>>);

impl HeldLock {
    /// None for a store that writes nothing.
    pub(crate) fn new(held: Option<Box<dyn FileLock>>) -> Self {
        Self(Mutex::new(held))
    }

    /// Whether somebody removed or replaced what was locked.
    pub(crate) fn is_lost(&self) -> bool {
        lock(&self.0).as_ref().is_some_and(|held| !held.is_in_place())
    }

    /// Whether the directory is this owner's to change: it was locked, is, and lies where it did.
    pub(crate) fn is_held(&self) -> bool {
        lock(&self.0).as_ref().is_some_and(|held| held.is_in_place())
    }

    /// Lets others have the store.
    pub(crate) fn give_back(&self) {
        *lock(&self.0) = None;
    }
}

#[cfg(test)]
impl HeldLock {
    /// One that is never lost.
    pub(crate) fn of_nothing() -> std::sync::Arc<Self> {
        #[derive(Debug)]
        struct Nothing;
        impl FileLock for Nothing {}
        std::sync::Arc::new(Self::new(Some(Box::new(Nothing))))
    }
}

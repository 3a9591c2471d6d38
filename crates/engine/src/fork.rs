//! Handles of a store in a forked child do nothing.
//!
//! A child has a copy of its parent's memory, and only one of its threads. A lock that another
//! thread held at the fork stays locked there forever, the background threads are gone, and writes
//! to the parent's files would corrupt them. So each call compares the process with the one that
//! opened the store, before it takes a lock or touches a file. Values dropped in a child are
//! leaked: no thread is joined, no file is closed, removed or unlocked, and nothing is returned to
//! a cache.
//!
//! Checked by every call of the engine, by iterators, and by each drop of a value that shares the
//! engine.

use std::sync::Arc;

use trommel_vfs::{OpenFlag, OpenFlagRef};

use crate::error::{Error, Result};

/// The process that opened a store, and whether the store is still open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opener(OpenFlagRef);

impl Opener {
    /// The calling process, which holds the flag for as long as the store is open.
    pub(crate) fn of(flag: &OpenFlag) -> Self {
        Self(flag.get())
    }

    /// Whether the caller runs in a forked child of the opener.
    #[inline]
    pub(crate) fn is_forked(self) -> bool {
        self.0.is_forked()
    }

    /// Whether the store was closed, or the caller runs in a forked child. One load, for hot paths.
    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        !self.0.is_open()
    }

    /// An error in a forked child.
    #[inline]
    pub(crate) fn check(self) -> Result<()> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }
}

/// Prevents a shared value from ever being dropped.
pub(crate) fn leak<T: ?Sized>(shared: &Arc<T>) {
    std::mem::forget(Arc::clone(shared));
}

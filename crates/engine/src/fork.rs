//! What a store's handle does in a forked child: nothing.
//!
//! A child has a copy of its parent's memory, and of one of its threads. A lock that another thread held at that
//! moment is held for ever there, the threads that work in the background are gone, and what is written to the
//! parent's files is written under its feet. So each call compares the process with the one that opened the store,
//! before it takes a lock or touches a file, and what is dropped there is leaked: no thread is waited for, no file is
//! closed, removed or unlocked, and nothing is given back to a cache.
//!
//! Called by every call of the engine, by what iterates, and by each drop of what shares the engine.

use std::sync::Arc;

use trommel_vfs::Process;

use crate::error::{Error, Result};

/// The process that opened a store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opener(Process);

impl Opener {
    /// The process that calls.
    pub(crate) fn current() -> Self {
        Self(Process::current())
    }

    /// Whether the caller runs in a process that was forked from it.
    #[inline]
    pub(crate) fn is_forked(self) -> bool {
        !self.0.is_current()
    }

    /// No process.
    pub(crate) const NOWHERE: u64 = u64::MAX;

    /// The number of the process that opened the store.
    pub(crate) fn number(self) -> u64 {
        self.0.number()
    }

    /// The number of the process that calls: that one, unless it was forked from it.
    #[inline]
    pub(crate) fn running(self) -> u64 {
        self.0.running()
    }

    /// An error where it does.
    #[inline]
    pub(crate) fn check(self) -> Result<()> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }
}

/// Keeps what is shared from ever being dropped.
pub(crate) fn leak<T: ?Sized>(shared: &Arc<T>) {
    std::mem::forget(Arc::clone(shared));
}

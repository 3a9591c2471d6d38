//! What a store's handle does in a forked child: nothing.
//!
//! A child has a copy of its parent's memory, and of one of its threads. A lock that another thread
//! held at that moment is held for ever there, the threads that work in the background are gone,
//! and what is written to the parent's files is written under its feet. So each call compares the
//! process with the one that opened the store, before it takes a lock or touches a file, and what
//! is dropped there is leaked: no thread is waited for, no file is closed, removed or unlocked, and
//! nothing is given back to a cache.
//!
//! Called by every call of the engine, by what iterates, and by each drop of what shares the
//! engine.

use std::sync::Arc;

use trommel_vfs::{OpenFlag, OpenFlagRef};

use crate::error::{Error, Result};

/// The process that opened a store, and whether it is still open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opener(OpenFlagRef);

impl Opener {
    /// The process that calls, which holds the flag for as long as what it opens.
    pub(crate) fn of(flag: &OpenFlag) -> Self {
        Self(flag.get())
    }

    /// Whether the caller runs in a process that was forked from it.
    #[inline]
    pub(crate) fn is_forked(self) -> bool {
        self.0.is_forked()
    }

    /// Whether it was closed, or the caller runs in such a process. One load, for hot paths.
    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        !self.0.is_open()
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

//! The shared owner of an open store, which closes it.

use std::sync::{Arc, OnceLock};

use crate::engine::Engine;
use crate::error::Result;
use crate::fork::leak;
use crate::limiter::AwaitedWork;
use crate::sync::{Mutex, lock};

/// What all clones of a [`Db`](crate::Db) share, with all that reads at one moment; dropped, it
/// closes the store.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    /// Held by whoever closes.
    closing: Mutex<()>,
    /// How closing ended, for all who close.
    closed: OnceLock<Result<()>>,
}

impl Handle {
    /// Of a store that has been opened.
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, closing: Mutex::default(), closed: OnceLock::new() }
    }

    /// Closes the store, unless it is closed; how that ended.
    pub(crate) fn close(&self) -> Result<()> {
        self.engine.access.opener().check()?;
        // Held throughout: a second closer must not end the work that the first one waits for.
        let _one_at_a_time = lock(&self.closing);
        if let Some(outcome) = self.closed.get() {
            return outcome.clone();
        }
        // Jobs that run end before the store is closed.
        let _awaited = self.engine.background.limiter.awaits(AwaitedWork::All);
        let closed = self.engine.close();
        self.engine.end_workers();
        let outcome = closed.clone().and(self.engine.finish_manifest(closed.is_ok()));
        let _ = self.closed.set(outcome.clone());
        outcome
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.engine.access.opener().is_forked() {
            // Its threads are not there, and may have held its locks.
            leak(&self.engine);
            return;
        }
        let _ = self.close();
    }
}

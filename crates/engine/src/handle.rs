//! The shared owner of an open store, which closes it.

use std::sync::{Arc, OnceLock};

use crate::engine::Engine;
use crate::error::Result;
use crate::fork::leak;
use crate::limiter::AwaitedWork;
use crate::sync::{Mutex, lock};

/// The state shared by all clones of a [`Db`](crate::Db) and everything that reads from it; its
/// drop closes the store.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) engine: Arc<Engine>,
    /// Held by the closing thread.
    closing: Mutex<()>,
    /// The outcome of closing, for all callers that close.
    closed: OnceLock<Result<()>>,
}

impl Handle {
    /// A handle to an opened store.
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, closing: Mutex::default(), closed: OnceLock::new() }
    }

    /// Closes the store, unless it is closed; returns the outcome.
    pub(crate) fn close(&self) -> Result<()> {
        self.engine.access.opener().check()?;
        // Held throughout: a second closer must not end the work that the first one waits for.
        let _one_at_a_time = lock(&self.closing);
        if let Some(outcome) = self.closed.get() {
            return outcome.clone();
        }
        // Running jobs end before the store is closed.
        let _awaited = self.engine.background.limiter.awaits(AwaitedWork::All);
        let closed = self.engine.close();
        self.engine.end_workers();
        #[cfg(feature = "metrics")]
        self.engine.statistics.publisher.publish("", Vec::new);
        let outcome = closed.clone().and(self.engine.finish_manifest(closed.is_ok()));
        let _ = self.closed.set(outcome.clone());
        outcome
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.engine.access.opener().is_forked() {
            // Its threads do not exist here, and may have held its locks.
            leak(&self.engine);
            return;
        }
        let _ = self.close();
    }
}

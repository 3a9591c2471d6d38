//! Recording the lookups of an open store: the part of [`trace`](crate::trace) that knows the
//! engine.
//!
//! That module defines what is recorded and how it is written; this one attaches it to a store.
//! Called by [`Db::trace_lookups`](crate::Db::trace_lookups).

use std::path::Path;
use std::sync::{Arc, Weak};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fork::{Opener, leak};
use crate::sync::{Mutex, lock};
use crate::trace::{TraceOptions, TraceRecorder, TraceTotals};

impl Engine {
    /// Records lookups from now on.
    pub(crate) fn trace_lookups(
        self: &Arc<Self>,
        path: &Path,
        options: TraceOptions,
    ) -> Result<LookupTrace> {
        self.access.check_open()?;
        self.statistics.trace.check_off()?;
        let files = &self.files;
        let recorder =
            TraceRecorder::create(&files.vfs, &files.dir, files.store_id, path, options)?;
        let recorder = Arc::new(recorder);
        self.statistics.trace.begin(&recorder)?;
        let opener = self.access.opener();
        let store = Mutex::new(Arc::downgrade(self));
        Ok(LookupTrace { recorder, store, opener, is_finished: false })
    }
}

/// A trace being recorded: see [`Db::trace_lookups`](crate::Db::trace_lookups). Dropping it
/// finishes it, and errors are lost.
#[derive(Debug)]
#[must_use = "dropped, it records nothing more"]
pub struct LookupTrace {
    recorder: Arc<TraceRecorder>,
    /// The store whose lookups are recorded.
    store: Mutex<Weak<Engine>>,
    opener: Opener,
    is_finished: bool,
}

impl LookupTrace {
    /// Continues with `store`, which is the same store reopened.
    pub(crate) fn resume(&self, store: &Arc<Engine>) -> Result<()> {
        self.opener.check()?;
        store.access.opener().check()?;
        if store.files.store_id != self.recorder.info.store_id {
            return Err(Error::option("a trace is of one store, and this is another"));
        }
        let mut current = lock(&self.store);
        if let Some(earlier) = current.upgrade() {
            earlier.statistics.trace.end(&self.recorder);
        }
        store.statistics.trace.begin(&self.recorder)?;
        *current = Arc::downgrade(store);
        Ok(())
    }

    /// The path of its file.
    pub fn path(&self) -> &Path {
        &self.recorder.path
    }

    /// Ends the recording, and syncs the trace.
    ///
    /// # Errors
    /// The first error of its file: the trace then has no end, but everything written before the
    /// error can be read.
    pub fn finish(mut self) -> Result<TraceTotals> {
        self.end()
    }

    fn end(&mut self) -> Result<TraceTotals> {
        self.is_finished = true;
        if let Err(forked) = self.opener.check() {
            leak(&self.recorder);
            return Err(forked);
        }
        if let Some(store) = lock(&self.store).upgrade() {
            store.statistics.trace.end(&self.recorder);
        }
        self.recorder.end()
    }
}

impl Drop for LookupTrace {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = self.end();
        }
    }
}

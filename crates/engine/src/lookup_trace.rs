//! Recording the lookups of an open store: the part of [`trace`](crate::trace) that knows the
//! engine.
//!
//! That module defines what is recorded and how it is written; here it gets the store. Called by
//! [`Db::trace_lookups`](crate::Db::trace_lookups).

use std::path::Path;
use std::sync::Arc;

use trommel_vfs::Vfs;

use crate::db::Db;
use crate::engine::Engine;
use crate::error::Result;
use crate::fork::Opener;
use crate::trace::{LookupTrace, TraceOptions, TraceSlot, Traced};

impl Traced for Engine {
    fn trace(&self) -> &TraceSlot {
        &self.statistics.trace
    }

    fn vfs(&self) -> &Arc<dyn Vfs> {
        &self.files.vfs
    }

    fn dir(&self) -> &Path {
        &self.files.dir
    }

    fn store_id(&self) -> u64 {
        self.files.store_id
    }

    fn opener(&self) -> Opener {
        self.access.opener()
    }

    fn check_open(&self) -> Result<()> {
        self.access.check_open()
    }
}

impl Engine {
    /// Records lookups from now on.
    pub(crate) fn trace_lookups(
        self: &Arc<Self>,
        path: &Path,
        options: TraceOptions,
    ) -> Result<LookupTrace> {
        LookupTrace::begin(&(Arc::clone(self) as Arc<dyn Traced>), path, options)
    }
}

impl LookupTrace {
    /// Continues with `db`, which is the same store reopened. The lookups of the earlier handle, if
    /// it is still open, are no longer recorded.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) if it is another store, or if a trace
    /// of `db` is already being recorded.
    pub fn go_on(&self, db: &Db) -> Result<()> {
        self.resume(&(Arc::clone(db.engine()) as Arc<dyn Traced>))
    }
}

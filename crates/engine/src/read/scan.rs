//! Walking over entries in order.

use std::sync::Arc;

use trommel_base::SeqNo;
use trommel_sstable::ScanOptions;

use crate::engine::Engine;
use crate::error::Result;
use crate::iter::level::LevelCursor;
use crate::iter::range::{Bounds, Range};
use crate::iter::source::Source;
use crate::iter::visible::VisibleCursor;
use crate::view::View;

impl Engine {
    /// A cursor over everything at the moment `at`, or now.
    pub(crate) fn cursor(&self, at: Option<SeqNo>) -> Result<VisibleCursor> {
        let (view, seqno) = self.pin(at)?;
        self.cursor_over(&view, seqno)
    }

    /// The entries within `bounds` at the moment `at`, or now.
    pub(crate) fn range(self: &Arc<Self>, bounds: Bounds, at: Option<SeqNo>) -> Range {
        let engine = Arc::clone(self);
        match self.pin(at) {
            Ok((view, seqno)) => {
                Range::new(bounds, Box::new(move || engine.cursor_over(&view, seqno)))
            }
            Err(error) => Range::new(bounds, Box::new(move || Err(error.clone()))),
        }
    }

    fn pin(&self, at: Option<SeqNo>) -> Result<(Arc<View>, SeqNo)> {
        self.check_open()?;
        let view = self.view.load_full();
        let seqno = at.unwrap_or_else(|| self.snapshots.visible());
        Ok((view, seqno))
    }

    /// Memtables, each run of level 0, each deeper level: newest first.
    fn cursor_over(&self, view: &Arc<View>, seqno: SeqNo) -> Result<VisibleCursor> {
        let scan = ScanOptions::default();
        let mut sources: Vec<Source> =
            view.memtables().map(|logged| Source::memtable(&logged.memtable)).collect();
        for table in &view.version.levels[0] {
            sources.push(Source::Table(self.tables.reader(table)?.cursor(scan)));
        }
        for run in view.version.levels[1..].iter().filter(|run| !run.is_empty()) {
            let level = LevelCursor::new(run.clone(), Arc::clone(&self.tables), scan);
            sources.push(Source::Level(level));
        }
        Ok(VisibleCursor::new(sources, seqno, Arc::clone(view)))
    }
}

//! Writing a frozen memtable out as a table of level 0.

use std::sync::Arc;
use trommel_base::planted::{Bug, planted};

use trommel_base::Cursor;

use crate::compaction::merge::{DropRule, Verdict};
use crate::engine::Engine;
use crate::error::Result;
use crate::files::log_path;
use crate::manifest::edit::VersionEdit;
use crate::output::{Outputs, Purpose};
use crate::user_filters::FilterReason;
use crate::version::TableMeta;
use crate::view::LoggedMemtable;

impl Engine {
    /// Writes `frozen`, the oldest frozen memtable, to a table, installs it, and lets go of the
    /// logs that held its writes.
    pub(crate) fn run_flush(&self, frozen: &Arc<LoggedMemtable>) -> Result<()> {
        let start = crate::env::now();
        // With the older logs durable, records of the current log can say so, and an outsider's
        // damage to an older log is told apart from what a power cut leaves.
        self.rotated.sync().map_err(|error| self.poison(error))?;
        let purpose = Purpose::of_memtable(FilterReason::Flush, &frozen.memtable);
        let mut outputs = Outputs::new(self, 0, self.version(), purpose);
        let last_seqno = self.write_memtable(frozen, &mut outputs)?;
        let tables = outputs.finish()?;
        let oldest_log = self.oldest_log_after(frozen);
        let edit = VersionEdit {
            log_number: Some(oldest_log),
            last_seqno: Some(last_seqno),
            added: tables.iter().map(|table| (0, table.clone())).collect(),
            ..VersionEdit::default()
        };
        if planted(Bug::LogRemovedBeforeManifest) {
            let _ = self.vfs.remove(&log_path(&self.dir, frozen.log_number));
        }
        self.install(edit, None, Some(frozen))?;
        outputs.keep();
        if oldest_log != 0 {
            self.graveyard.add(log_path(&self.dir, frozen.log_number));
        }
        let bytes = tables.iter().map(|table: &TableMeta| table.file_bytes).sum();
        let time = start.elapsed();
        self.stalls.count_flush(bytes, time);
        crate::events::flushed(bytes, time);
        Ok(())
    }

    /// Adds what readers may still see of `frozen` to `outputs`; returns its last sequence number.
    pub(crate) fn write_memtable(
        &self,
        frozen: &LoggedMemtable,
        outputs: &mut Outputs<'_>,
    ) -> Result<u64> {
        let mut rule = DropRule::new(self.snapshots.live());
        let mut last_seqno = 0;
        let mut cursor = frozen.memtable.cursor();
        cursor.seek_to_first()?;
        while let Some(entry) = cursor.entry() {
            last_seqno = last_seqno.max(entry.seqno);
            // Older versions may lie in any table: tombstones stay.
            if rule.judge(entry.key, entry.seqno, entry.kind, || true) == Verdict::Keep {
                outputs.add(entry)?;
            }
            cursor.next()?;
        }
        Ok(last_seqno)
    }

    /// The oldest log that is needed once `frozen` is a table, 0 where the store keeps none.
    fn oldest_log_after(&self, frozen: &Arc<LoggedMemtable>) -> u64 {
        if !self.options.load().log {
            return 0;
        }
        let view = self.view.load();
        let rest = view.memtables().filter(|other| !Arc::ptr_eq(other, frozen));
        let numbers = rest.map(|memtable| memtable.log_number);
        match planted(Bug::LogReleasedEarly) {
            true => numbers.max().unwrap_or(0),
            false => numbers.min().unwrap_or(0),
        }
    }
}

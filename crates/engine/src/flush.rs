//! Flushing a frozen memtable to a table of level 0.
//!
//! 1. The entries that some reader may still see are written in order; the memtable's own range
//!    tombstones, and expiry, are applied to them.
//! 2. The logs that held the memtable's writes are [archived](crate::log_archive), if a change feed
//!    may read them.
//! 3. One edit adds the table, hands the range tombstones over to the version, and names the oldest
//!    log that is still needed. Installing the edit replaces the memtable by the table.
//! 4. These logs are queued for deletion.

use std::sync::Arc;

use trommel_base::{Cursor, EntryRef};

use crate::background_trace::Detail;
use crate::compaction::merge::{DropRule, EntryFate};
use crate::engine::Engine;
use crate::error::Result;
use crate::expiry::TimeMarks;
use crate::files::log_path;
use crate::folding::{Folding, FoldingOperators, Kept};
use crate::latencies::TimedOperation;
use crate::manifest::edit::VersionEdit;
use crate::output::Outputs;
use crate::purpose::Purpose;
use crate::ranges::{RangeMap, RangeSet, RangeTombstone, Readers};
use crate::space::Space;
use crate::user_filters::FilterReason;
use crate::version::TableMeta;
use crate::view::LoggedMemtable;

impl Engine {
    /// Flushes `frozen`, the oldest frozen memtable, to a table, installs it, and retires the logs
    /// that held its writes.
    pub(crate) fn run_flush(&self, frozen: &Arc<LoggedMemtable>) -> Result<()> {
        let start = crate::env::now();
        let purpose = Purpose::of_memtable(FilterReason::Flush, &frozen.memtable);
        let purpose = self.divided(purpose, &frozen.memtable)?;
        let mut outputs = Outputs::new(self, 0, self.version(), purpose);
        let last_seqno = self.write_memtable(frozen, &mut outputs)?;
        let tables = outputs.finish()?;
        let oldest_log = self.oldest_log_after(frozen);
        if oldest_log != 0 {
            self.archive_logs(frozen);
        }
        let edit = VersionEdit {
            log_number: Some(oldest_log),
            last_seqno: Some(last_seqno),
            added: tables.iter().map(|table| (0, table.clone())).collect(),
            ranges: self.ranges_of(frozen),
            ..VersionEdit::default()
        };
        self.install(edit, None, Some(frozen))?;
        outputs.keep();
        // Not earlier: a write synced meanwhile acknowledges that log's contents, too.
        let log_bytes = self.writes.rotated.forget(frozen.log_number);
        if oldest_log != 0 {
            self.remove_earlier_logs(frozen);
            let log = log_path(&self.files.dir, frozen.log_number);
            self.files.deletion_queue.add_spare(log, frozen.log_number, log_bytes);
            self.files.archive.shrink();
        }
        let bytes = tables.iter().map(|table: &TableMeta| table.file_bytes).sum();
        let time = start.elapsed();
        self.statistics.jobs.count_flush(bytes, time);
        crate::events::flushed(bytes, time);
        let details = [("bytes", Detail::Number(bytes))];
        self.statistics.end_work(TimedOperation::Flush, Some(start), &details);
        Ok(())
    }

    /// Archives the logs of `frozen`, if that is on.
    fn archive_logs(&self, frozen: &LoggedMemtable) {
        if self.files.archive.is_on() {
            self.files.deletion_queue.will_link(frozen.log_number);
            self.files.archive.add(frozen.logs(), &self.files.tables);
        }
    }

    /// Removes the logs that `frozen`, now a table, was replayed from. If recovery dropped bytes,
    /// they stay until the next open, like every file that held any.
    pub(crate) fn remove_earlier_logs(&self, frozen: &LoggedMemtable) {
        if self.recovery.dropped.is_empty() {
            for number in &frozen.earlier_logs {
                self.files.deletion_queue.add(log_path(&self.files.dir, *number));
            }
        }
    }

    /// Adds the entries of `frozen` that readers may still see to `outputs`; returns its last
    /// sequence number.
    pub(crate) fn write_memtable(
        &self,
        frozen: &LoggedMemtable,
        outputs: &mut Outputs<'_>,
    ) -> Result<u64> {
        let ranges = frozen.ranges.load();
        let mut set = ranges.as_ref().map_or_else(RangeSet::default, |loaded| loaded.set.clone());
        let newest_range = set.newest();
        // The horizons of the manifest: dropped entries must have expired at the next open, too.
        set.expire(self.version().ranges.horizons());
        let mut rule = DropRule::new(self.snapshots.live(), &set);
        outputs.judged_by(&rule);
        let mut folding = self.folding();
        let mut last_seqno = newest_range;
        let mut cursor = frozen.memtable.cursor();
        cursor.seek_to_first()?;
        while let Some(entry) = cursor.entry() {
            last_seqno = last_seqno.max(entry.seqno);
            // Older versions may be in any table: tombstones stay.
            let fate = rule.judge(entry.key, entry.seqno, entry.kind, || true);
            if folding.concerns(fate) {
                folding.take(entry, fate, &rule, outputs)?;
            } else if fate == EntryFate::Keep {
                outputs.add(entry)?;
            }
            cursor.next()?;
        }
        folding.finish(outputs)?;
        Ok(last_seqno)
    }

    /// Folds the operands of a flush or compaction.
    pub(crate) fn folding(&self) -> Folding<'_> {
        let expiry = &self.snapshots.expiry;
        let marks = match expiry.is_on() {
            true => expiry.marks(|| self.snapshots.visible()),
            false => TimeMarks::default(),
        };
        let default = self.options.keyspaces.default_of_tables();
        // While a store with a catalog is opened, it is not known yet which keys have a header, and
        // an operator must be passed keys without headers.
        let is_unknown = default == Space::Plain && self.version().catalog_salt.is_some();
        if is_unknown {
            return Folding::new(FoldingOperators::NONE, marks);
        }
        let of_store = self.options.load().writes.merge_operator.clone();
        let keyspaces = (default != Space::Plain).then_some(&self.options.keyspaces);
        Folding::new(FoldingOperators { of_store, keyspaces }, marks)
    }

    /// The range tombstones of `frozen` that readers need.
    pub(crate) fn ranges_of(&self, frozen: &LoggedMemtable) -> Vec<RangeTombstone> {
        let Some(loaded) = frozen.ranges.load() else { return Vec::new() };
        let all = loaded.set.tombstones().collect();
        RangeMap::new(all, &Readers::at(self.snapshots.live())).tombstones().collect()
    }

    /// The oldest log that is needed once `frozen` is a table; 0 if the store keeps no log.
    fn oldest_log_after(&self, frozen: &Arc<LoggedMemtable>) -> u64 {
        if !self.options.load().writes.log {
            return 0;
        }
        let view = self.view.load();
        let rest = view.memtables().filter(|other| !Arc::ptr_eq(other, frozen));
        rest.map(|memtable| memtable.oldest_log()).min().unwrap_or(0)
    }
}

/// Older versions may be in any table.
impl Kept for Outputs<'_> {
    fn add(&mut self, entry: EntryRef<'_>, _: bool, _: Option<bool>) -> Result<()> {
        self.add(entry)
    }

    fn has_older(&mut self, _: &[u8]) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::{Arc, Mutex, OnceLock};

    use trommel_sim::MemoryVfs;
    use trommel_vfs::{Layer, Vfs, WriteFile};

    use crate::{Compression, Db, Options, WriteOptions};

    /// An in-memory file system that records which files start write-back and which are synced.
    #[derive(Debug, Clone, Default)]
    struct RecordingVfs {
        inner: MemoryVfs,
        recorded: Arc<Mutex<Vec<String>>>,
    }

    #[derive(Debug)]
    struct RecordingFile {
        file: Box<dyn WriteFile>,
        name: String,
        recorded: Arc<Mutex<Vec<String>>>,
    }

    impl Layer for RecordingVfs {
        fn below(&self) -> &dyn Vfs {
            &self.inner
        }

        fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
            let name = path.extension().unwrap_or_default().to_string_lossy().into_owned();
            let file = self.inner.create(path)?;
            Ok(Box::new(RecordingFile { file, name, recorded: Arc::clone(&self.recorded) }))
        }
    }

    impl WriteFile for RecordingFile {
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.file.append(bytes)
        }

        fn sync(&mut self) -> io::Result<()> {
            self.recorded.lock().unwrap().push(format!("sync {}", self.name));
            self.file.sync()
        }

        fn start_write_back(&mut self) {
            self.recorded.lock().unwrap().push(format!("start {}", self.name));
        }

        fn bytes(&self) -> u64 {
            self.file.bytes()
        }
    }

    /// An in-memory file system that records the memory the store keeps when its log is removed.
    #[derive(Debug, Default)]
    struct MeasuringVfs {
        inner: MemoryVfs,
        db: OnceLock<Db>,
        kept: Mutex<Vec<u64>>,
    }

    impl Layer for MeasuringVfs {
        fn below(&self) -> &dyn Vfs {
            &self.inner
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            if let Some(db) = self.db.get() {
                self.kept.lock().unwrap().push(db.stats().memory.idle_arenas);
            }
            self.inner.remove(path)
        }
    }

    #[test]
    fn a_memtable_is_given_back_before_its_log_is_removed() {
        let vfs = Arc::new(MeasuringVfs::default());
        let db = filled(Arc::clone(&vfs) as Arc<dyn Vfs>);
        vfs.db.set(db.clone()).unwrap();
        db.flush().unwrap();
        let kept = vfs.kept.lock().unwrap();
        assert!(!kept.is_empty() && kept.iter().all(|kept| *kept > 3 << 20), "{kept:?}");
    }

    fn filled(vfs: Arc<dyn Vfs>) -> Db {
        let options = Options::default().vfs(vfs).background_threads(0);
        let options =
            options.writes(|w| w.write_buffer_bytes(8 << 20)).compression(Compression::None);
        let db = Db::open("store", options).unwrap();
        for n in 0..3_u32 << 10 {
            db.put(n.to_le_bytes(), [7; 1 << 10]).unwrap();
        }
        db
    }

    #[test]
    fn a_table_is_written_back_meanwhile_and_its_log_is_never_synced() {
        let vfs = RecordingVfs::default();
        let db = filled(Arc::new(vfs.clone()));
        vfs.recorded.lock().unwrap().clear();
        db.flush().unwrap();
        let recorded = || std::mem::take(&mut *vfs.recorded.lock().unwrap());
        // The new log, the table of 3 MiB as it is written; then the syncs, the manifest's last.
        let expected = ["sync log", "start sst", "start sst", "start sst", "sync sst", "sync "];
        assert_eq!(recorded(), expected);
        // Nor is it synced by a later synced write, which needs only its own log.
        db.put_with("key", "value", WriteOptions::sync()).unwrap();
        assert_eq!(recorded(), ["sync log"]);
    }

    /// Of a flushed memtable, only as much memory is kept as the active one still needs.
    #[test]
    fn kept_and_active_memory_add_up_to_one_memtable() {
        let db = filled(Arc::new(MemoryVfs::default()));
        let put = |n: u32| _ = db.put(n.to_le_bytes(), [7; 1 << 10]).unwrap();
        (3 << 10..7 << 10).for_each(put);
        let engine = db.engine();
        engine.exclusively(|leader| engine.rotate(leader)).unwrap();
        (0..3 << 9).for_each(put);
        engine.work_inline().unwrap();
        let kept = db.stats().memory.idle_arenas;
        assert!((5 << 20..7 << 20).contains(&kept), "{kept} bytes kept, with 1.5 MiB of 8 filled");
    }

    #[test]
    fn an_idle_store_keeps_no_memory_for_memtables() {
        let db = filled(Arc::new(MemoryVfs::default()));
        db.flush().unwrap();
        let kept = db.stats().memory.idle_arenas;
        assert!(kept > 3 << 20, "{kept} bytes kept for the next memtable");
        db.wait_idle().unwrap();
        assert_eq!(db.stats().memory.idle_arenas, 0);
    }
}

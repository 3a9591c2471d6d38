//! Freezing the memtable together with its log, and making logs durable.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_memtable::Memtable;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::log_path;
use crate::latencies::TimedOperation;
use crate::limiter::AwaitedWork;
use crate::log::LogWriter;
use crate::view::{LoggedMemtable, View};
use crate::write_queue::Leader;

impl Engine {
    /// Freezes the active memtable and starts a new one with a new log. Does nothing if the active
    /// one is empty.
    pub(crate) fn rotate(&self, leader: &mut Leader) -> Result<()> {
        // A rotation that failed while the caller was queued may have left a log that names the
        // same predecessor as the next one would, or the old log's end marker.
        self.access.check_writable()?;
        self.wait_published(leader.last_seqno)?;
        if leader.active.is_empty() {
            return Ok(());
        }
        let number = self.files.new_file_number();
        if let Some(old) = &mut leader.log {
            let old_number = leader.active.log_number;
            let fresh = self.create_log(number, old_number)?;
            old.finish(number).map_err(|error| self.poison(error))?;
            self.writes.rotated.add(old_number, std::mem::replace(old, fresh));
        }
        // The next memtable will most likely be like the last.
        let (kind, before) = (self.options.load().writes.memtable, &leader.active.memtable);
        let memtable = Arc::new(Memtable::following(kind, &self.memory.arenas, before));
        let active = Arc::new(LoggedMemtable::new(memtable, number));
        leader.active = Arc::clone(&active);
        self.replace_view(|view| {
            let mut frozen = Vec::with_capacity(view.frozen.len() + 1);
            frozen.push(Arc::clone(&view.active));
            frozen.extend(view.frozen.iter().cloned());
            let (version, fences) = (Arc::clone(&view.version), Arc::clone(&view.fences));
            View::new(Arc::clone(&active), frozen, version, fences)
        });
        self.background.wake();
        Ok(())
    }

    /// Begins a new log, and an empty memtable for it, which the caller must install. The active
    /// memtable is empty, but its log may hold time marks.
    pub(crate) fn begin_empty(&self, leader: &mut Leader) -> Result<Arc<LoggedMemtable>> {
        self.access.check_writable()?;
        let mut number = leader.active.log_number;
        if let Some(old) = &mut leader.log {
            let old_number = std::mem::replace(&mut number, self.files.new_file_number());
            let fresh = self.create_log(number, old_number)?;
            old.finish(number).map_err(|error| self.poison(error))?;
            self.writes.rotated.add(old_number, std::mem::replace(old, fresh));
        }
        let memtable =
            Arc::new(Memtable::new(self.options.load().writes.memtable, &self.memory.arenas));
        leader.active = Arc::new(LoggedMemtable::new(memtable, number));
        Ok(Arc::clone(&leader.active))
    }

    /// Queues a log that was rotated out for deletion; the manifest no longer needs it.
    pub(crate) fn remove_rotated(&self, number: u64) {
        let bytes = self.writes.rotated.forget(number);
        self.files.deletion_queue.add_spare(log_path(&self.files.dir, number), number, bytes);
    }

    /// Creates log `number`, the successor of log `previous`; a failure may leave a partial log.
    pub(crate) fn try_log(&self, number: u64, previous: u64) -> Result<LogWriter> {
        self.check_lock()?;
        let path = log_path(&self.files.dir, number);
        let header = crate::log::FileHeader {
            kind: crate::log::FileKind::Log,
            number,
            salt: crate::env::random_u64(),
            store_id: self.files.store_id,
            previous,
        };
        let create = || LogWriter::create(&*self.files.vfs, &path, &header);
        let mut created = create();
        if created.as_ref().is_err_and(Error::is_out_of_handles) {
            self.files.tables.release_handles();
            self.take_back_log(&path)?;
            created = create();
        }
        created
    }

    /// Creates log `number`, the successor of log `previous`, in an open store.
    fn create_log(&self, number: u64, previous: u64) -> Result<LogWriter> {
        let path = log_path(&self.files.dir, number);
        match self.try_log(number, previous) {
            // Nothing was written yet: the write is refused, and the store stays usable.
            Err(error) if error.is_out_of_handles() => {
                self.take_back_log(&path)?;
                Err(error)
            }
            Err(error) => {
                let was_there = error.is_already_there();
                let poisoned = self.poison(error);
                if !was_there {
                    let _ = self.take_back_log(&path);
                }
                Err(poisoned)
            }
            created => created,
        }
    }

    /// Removes a partial log. If a later log named the same predecessor, the partial log would
    /// count as corruption. If a later log named the partial one, its predecessor would be missing
    /// if this directory entry never became durable.
    fn take_back_log(&self, path: &Path) -> Result<()> {
        match self.files.vfs.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.poison(Error::on(path)(error)))
            }
            _ => Ok(()),
        }
    }

    /// Syncs all logs. Not inlined into each write, few of which sync.
    #[inline(never)]
    pub(crate) fn sync_logs(&self, leader: &mut Leader) -> Result<()> {
        let start = self.statistics.begin_work();
        self.writes.rotated.sync().map_err(|error| self.poison(error))?;
        if let Some(log) = &mut leader.log {
            log.set_previous_durable();
            log.sync().map_err(|error| self.poison(error))?;
            self.writes.synced.store(leader.last_seqno, Ordering::Release);
            leader.counts.log_syncs.add(1);
            self.statistics.end_work(TimedOperation::Sync, start, &[]);
        }
        Ok(())
    }

    /// Makes every write so far durable: by syncing the log, or without one by flushing the
    /// memtable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.access.check_writable()?;
        if !self.options.load().writes.log {
            return self.flush();
        }
        self.exclusively(|leader| self.sync_logs(leader))
    }

    /// Flushes the memtables and waits for that to finish.
    pub(crate) fn flush(&self) -> Result<()> {
        if !self.write_out()? {
            return Ok(());
        }
        // If no worker will, the compaction that the flush has made necessary runs here. A lack of
        // space for it does not fail the flush; the compaction is retried unless the store is
        // poisoned.
        match self.work_inline() {
            Err(error) if !error.is_shortage() || self.access.poisoned().is_some() => Err(error),
            _ => Ok(()),
        }
    }

    /// Flushes the memtables and waits for that to finish; returns whether there were any. Like a
    /// writer, it first waits if level 0 has too many runs or the debt is too large, because each
    /// table adds a run.
    fn write_out(&self) -> Result<bool> {
        self.access.check_writable()?;
        self.wait_for_merges()?;
        self.write_out_now()
    }

    /// As [`Engine::write_out`], without waiting for compactions.
    pub(super) fn write_out_now(&self) -> Result<bool> {
        let awaited = self.background.limiter.awaits(AwaitedWork::Flushes);
        let newest = self.exclusively(|leader| {
            self.rotate(leader)?;
            Ok(self.view.load().frozen.first().map(|newest| newest.log_number))
        })?;
        // Memtables are flushed oldest first; later ones are not waited for. Nor is this one kept
        // alive while waiting, so that its memory is freed.
        let Some(newest) = newest else { return Ok(false) };
        self.wait_until(&awaited, |view| {
            view.frozen.iter().all(|frozen| frozen.log_number > newest)
        })?;
        Ok(true)
    }

    /// Ends the log durably, so that the next open knows it to be complete.
    pub(crate) fn finish_log(&self, leader: &mut Leader) -> Result<()> {
        // Synced first, so that the end marker itself records that everything before it is durable.
        self.sync_logs(leader)?;
        if let Some(log) = &mut leader.log {
            log.finish(0).map_err(|error| self.poison(error))?;
        }
        self.sync_logs(leader)?;
        leader.log = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trommel_sim::{Failure, Fault, OpKind, SimDisk};

    use super::*;
    use crate::{Db, Options, WriteOptions};

    /// Regression: a flush queued after a failed rotation rotated once more. Two logs named the
    /// same predecessor, and the store was corrupt.
    #[test]
    fn a_flush_queued_after_a_failed_rotation_does_not_rotate() {
        let of_log = |failure, kind| Fault::new(failure).on(kind).named(".log");
        let append = || of_log(Failure::NoSpace, OpKind::Append);
        let mut ways = vec![
            of_log(Failure::Io, OpKind::Create),
            of_log(Failure::Io, OpKind::Create).after_the_fact(),
            of_log(Failure::Io, OpKind::Sync),
            Fault::new(Failure::Io).on(OpKind::SyncDir),
        ];
        // The header of the new log, and the end marker of the old one.
        for calls in 0..2 {
            let bytes = [0, 1, 40].map(|bytes| append().writing_part(bytes));
            let whole = [append().writing_all_but(1), append().after_the_fact()];
            ways.extend(bytes.into_iter().chain(whole).map(|way| way.after(calls)));
        }
        for way in ways {
            let disk = SimDisk::new();
            let options = || Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
            let db = Db::open("db", options()).unwrap();
            db.put("key", "value").unwrap();
            disk.inject(way.clone());
            let engine = db.engine();
            // Like a flush that found the store writable before it had its turn.
            let rotate = || engine.exclusively(|leader| engine.rotate(leader));
            rotate().unwrap_err();
            assert_eq!(disk.faults_fired(), 1, "{way:?}");
            let second = rotate();
            drop(db);
            let db = Db::open("db", options()).unwrap_or_else(|error| panic!("{way:?}: {error}"));
            assert_eq!(db.get("key").unwrap().unwrap(), b"value"[..]);
            assert!(matches!(second, Err(Error::Poisoned { .. })), "{way:?}: {second:?}");
        }
    }

    /// Regression: close ended the log that the failed rotation had left, and reported success.
    #[test]
    fn a_close_queued_after_a_failed_rotation_fails() {
        let disk = SimDisk::new();
        let options = || Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
        let db = Db::open("db", options()).unwrap();
        db.put("key", "value").unwrap();
        let engine = db.engine();
        std::thread::scope(|scope| {
            let closing = engine.exclusively(|leader| {
                let closing = scope.spawn(|| engine.close());
                // Gives it time to check the store's health before the failure.
                std::thread::sleep(Duration::from_millis(100));
                disk.inject(Fault::new(Failure::Io).on(OpKind::Create).named(".log"));
                engine.rotate(leader).unwrap_err();
                Ok(closing)
            });
            let closed = closing.unwrap().join().unwrap();
            assert!(matches!(closed, Err(Error::Poisoned { .. })), "{closed:?}");
        });
        drop(db);
        assert_eq!(Db::open("db", options()).unwrap().get("key").unwrap().unwrap(), b"value"[..]);
    }

    /// Without a file handle for the directory nothing was synced: the sync is retried, and the
    /// store stays usable.
    #[test]
    fn a_directory_that_no_handle_is_left_for_is_synced_later() {
        let of_dir = || Fault::new(Failure::TooManyOpenFiles).on(OpKind::SyncDir);
        // The directory syncs of the new log and of the table.
        for calls in 0..2 {
            for is_lasting in [false, true] {
                let disk = SimDisk::new();
                let options = Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
                let db = Db::open("db", options).unwrap();
                db.put("key", "value").unwrap();
                let way = of_dir().after(calls);
                disk.inject(if is_lasting { way.lasting() } else { way });
                let flushed = db.flush();
                assert!(disk.faults_fired() > 0);
                assert_eq!(flushed.is_err(), is_lasting, "{calls}: {flushed:?}");
                disk.clear_faults();
                db.put("more", "value").unwrap();
                db.flush().unwrap();
                db.close().unwrap();
            }
        }
    }

    /// Every caller that closes a store gets its error, not only the first.
    #[test]
    fn every_closing_caller_gets_the_error() {
        let disk = SimDisk::new();
        let options = || Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
        let db = Db::open("db", options()).unwrap();
        db.put("key", "value").unwrap();
        let other = db.clone();
        disk.inject(Fault::new(Failure::Io).on(OpKind::Sync).named(".log"));
        db.close().unwrap_err();
        other.close().unwrap_err();
        let db = Db::open("db", options()).unwrap();
        let other = db.clone();
        db.close().unwrap();
        other.close().unwrap();
    }

    /// Without a log, the memtable is lost if it cannot be flushed.
    #[test]
    fn a_store_that_lost_its_last_memtable_was_not_closed() {
        let disk = SimDisk::new();
        let options = || {
            Options::default()
                .vfs(Arc::new(disk.clone()))
                .background_threads(0)
                .writes(|w| w.log(false))
        };
        let was_closed = || {
            let db = Db::open("db", options()).unwrap();
            db.put("key", "value").unwrap();
            (db.recovery_report().was_closed, db)
        };
        was_closed().1.close().unwrap();
        let (closed, db) = was_closed();
        assert!(closed);
        disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Create).named(".sst").lasting());
        db.close().unwrap_err();
        disk.clear_faults();
        assert!(!was_closed().0);
    }

    /// Compactions fail for lack of space: a write that is in a table is acknowledged all the same,
    /// and level 0 never has more runs than stop writers, whichever call creates them.
    #[test]
    fn merges_without_room_fail_no_flush_and_are_waited_for() {
        const STOP: usize = 4;
        for log in [true, false] {
            let disk = SimDisk::new();
            let options = Options::default()
                .vfs(Arc::new(disk.clone()))
                .background_threads(0)
                .writes(|w| w.log(log));
            let options = options
                .compaction(|c| c.l0_trigger(2).l0_slowdown(STOP).l0_stop(STOP))
                .writes(|w| w.spare_file_bytes(0));
            let db = Db::open("db", options).unwrap();
            let runs = || db.engine().version().levels[0].len();
            let mut most = 0;
            for n in 0..20 {
                // There is space for one table: that of the flush, or of the compaction that it
                // waits for. Without a log there is no other way to make a write durable, so both
                // do.
                let stops = runs() >= STOP;
                let tables = if stops && !log { 2 } else { 1 };
                disk.clear_faults();
                let full = Fault::new(Failure::NoSpace).on(OpKind::Create).named(".sst");
                disk.inject(full.after(tables).lasting());
                // With keys on both sides of all others, so that no run can be moved.
                db.put(format!("a{n}"), "value").unwrap();
                db.put_with(format!("z{n}"), "value", WriteOptions::sync()).unwrap();
                if log {
                    assert_eq!(db.flush().is_err(), stops);
                }
                if stops {
                    disk.clear_faults();
                    db.flush().unwrap();
                }
                most = most.max(runs());
            }
            assert_eq!(most, STOP, "with a log: {log}");
        }
    }

    #[test]
    fn a_file_that_was_there_before_is_not_taken_back() {
        let options = Options::default().vfs(Arc::new(SimDisk::new())).background_threads(0);
        let db = Db::open("db", options).unwrap();
        db.put("key", "value").unwrap();
        let engine = db.engine();
        let next = engine.files.next_file_number.load(Ordering::Relaxed);
        let path = log_path(&engine.files.dir, next);
        engine.files.vfs.create(&path).unwrap().append(b"somebody's").unwrap();
        engine.exclusively(|leader| engine.rotate(leader)).unwrap_err();
        assert_eq!(engine.files.vfs.read(&path, 100).unwrap(), b"somebody's");
    }
}

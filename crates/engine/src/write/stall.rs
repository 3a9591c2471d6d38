//! Making room for a write: freezes a full memtable, and slows or stops writers while flushes and
//! compactions lag.

use std::sync::Arc;
use std::time::Duration;

use crate::background_trace::Detail;
use crate::compaction::pressure::{Backlog, Cause, Pressure, is_idle, pressure};
use crate::engine::Engine;
use crate::env;
use crate::error::Result;
use crate::latencies::TimedOperation;
use crate::limiter::{AwaitedWork, WaitingCaller};
use crate::options::Options;
use crate::view::View;
use crate::write_queue::Leader;

impl Engine {
    /// Returns once the active memtable can take a group of `group_bytes`; it stays the active one
    /// while the caller leads.
    #[inline]
    pub(super) fn prepare_memtable(
        &self,
        leader: &mut Leader,
        group_bytes: impl Fn() -> u64,
    ) -> Result<()> {
        self.access.check_writable()?;
        leader.marks.keep_up_with(&self.options);
        let full = leader.active.memory_bytes() >= leader.marks.memtable_limit;
        let in_the_way = leader.marks.shares_memory && self.must_relieve_others();
        if !full && !in_the_way && is_idle(&self.backlog.load(), &leader.marks.compaction) {
            return Ok(());
        }
        self.prepare_memtable_slowly(leader, group_bytes)
    }

    #[cold]
    #[inline(never)]
    fn prepare_memtable_slowly(
        &self,
        leader: &mut Leader,
        group_bytes: impl Fn() -> u64,
    ) -> Result<()> {
        if leader.marks.shares_memory {
            self.relieve_others(leader)?;
        }
        loop {
            self.access.check_writable()?;
            let options = self.options.load();
            let view = self.view.load();
            let active = &view.active;
            // An empty memtable is never full: freezing it would make no room.
            let full = !active.is_empty() && active.memory_bytes() >= options.memtable_limit();
            match self.pressure(&view, &options) {
                Pressure::Stop(cause) if full => {
                    // The options may change during the wait.
                    drop(options);
                    self.wait_stopped(cause, &view)?;
                    continue;
                }
                // Slows to the slowest rate rather than running fast into a full stop.
                Pressure::Stop(cause) => {
                    let rate = options.planner().slowest_rate;
                    self.slow_down(leader, &group_bytes, rate, cause);
                }
                Pressure::Delay { rate, cause } => {
                    self.slow_down(leader, &group_bytes, rate, cause);
                }
                Pressure::None => {}
            }
            if !full {
                return Ok(());
            }
            self.rotate(leader)?;
            self.background.note_full();
            self.work_inline()?;
        }
    }

    /// Waits while the compaction backlog would stop writers.
    pub(super) fn wait_for_merges(&self) -> Result<()> {
        loop {
            let view = self.view.load_full();
            let cause = match self.pressure(&view, &self.options.load()) {
                Pressure::Stop(cause) if cause != Cause::Memtables => cause,
                _ => return Ok(()),
            };
            self.access.check_writable()?;
            self.wait_stopped(cause, &view)?;
        }
    }

    /// Waits, stopped for `cause`, until something has changed since `view`.
    fn wait_stopped(&self, cause: Cause, view: &Arc<View>) -> Result<()> {
        crate::events::stopped(cause);
        let waited = self
            .stall(cause, |awaited| self.wait_for_progress(awaited, cause, view))
            .inspect_err(|error| crate::events::refused(cause, error))?;
        crate::events::resumed(cause, waited);
        Ok(())
    }

    fn pressure(&self, view: &View, options: &Options) -> Pressure {
        let compaction = options.planner();
        // While compactions are paused, waiting for them would last forever.
        let is_paused = self.compaction_is_paused(options);
        let backlog = Backlog {
            l0_runs: if is_paused { 0 } else { view.version.levels[0].len() },
            debt: if is_paused { 0 } else { self.backlog.debt() },
            frozen_memtables: view.frozen.len(),
            active_fill: view.active.memory_bytes() as f64 / options.memtable_limit() as f64,
        };
        pressure(&backlog, &compaction)
    }

    /// Whether writers must wait with this view.
    pub(crate) fn stops(&self, view: &View) -> bool {
        matches!(self.pressure(view, &self.options.load()), Pressure::Stop(_))
    }

    fn slow_down(
        &self,
        leader: &mut Leader,
        group_bytes: &impl Fn() -> u64,
        rate: u64,
        cause: Cause,
    ) {
        let Some(delay) = leader.pace.charge(group_bytes(), rate, env::now()) else { return };
        let slept = self.stall(cause, |_| {
            env::sleep(delay);
            Ok(())
        });
        debug_assert!(slept.is_ok(), "sleeping does not fail");
    }

    /// Runs `wait`, adding its duration to the stalls of this cause; returns the duration.
    pub(super) fn stall(
        &self,
        cause: Cause,
        wait: impl FnOnce(&WaitingCaller<'_>) -> Result<()>,
    ) -> Result<Duration> {
        let awaited = self.background.limiter.awaits(match cause {
            Cause::Memtables => AwaitedWork::Flushes,
            Cause::Level0 | Cause::Debt => AwaitedWork::All,
        });
        let start = env::now();
        let outcome = wait(&awaited);
        let took = start.elapsed();
        self.statistics.jobs.count_stall(cause, took);
        let details = [("cause", Detail::Text(cause.name()))];
        self.statistics.end_work(TimedOperation::Stall, Some(start), &details);
        outcome.map(|()| took)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trommel_sim::MemoryVfs;

    use crate::{Db, Degraded, Durability, Options, WriteOptions};

    /// Every kind of write is slowed while a memtable waits and the next is more than half full.
    #[test]
    fn conditional_writes_are_slowed_as_others_are() {
        let value = vec![7; 4 << 20];
        let stalls_of = |write: &dyn Fn(&Db)| {
            let options = Options::default()
                .writes(|w| w.max_frozen_memtables(1).write_buffer_bytes(64 << 20));
            // Without a worker, the frozen memtable waits until a write needs room.
            let options = options.background_threads(0).vfs(Arc::new(MemoryVfs::new()));
            let db = Db::open("db", options).unwrap();
            db.put("before", "it is not empty").unwrap();
            let engine = db.engine();
            engine.exclusively(|leader| engine.rotate(leader)).unwrap();
            for n in 0..8 {
                db.put(format!("{n}"), &value).unwrap();
            }
            let stalls = || db.stats().background.stalls.memtables.times;
            let before = stalls();
            write(&db);
            (before, stalls() - before)
        };
        assert_eq!(
            stalls_of(&|db| {
                db.put("k", &value).unwrap();
            }),
            (0, 1)
        );
        assert_eq!(stalls_of(&|db| assert!(db.insert_if_absent("k", &value).unwrap())), (0, 1));
        let there = |db: &Db| assert!(!db.insert_if_absent("before", &value).unwrap());
        assert_eq!(stalls_of(&there), (0, 0));
    }

    /// A conditional write is as durable as its options require.
    #[test]
    fn conditional_writes_choose_their_durability() {
        let options = Options::default().background_threads(0).vfs(Arc::new(MemoryVfs::new()));
        let db = Db::open("db", options).unwrap();
        let syncs = || db.stats().writes.log_syncs;
        let before = syncs();
        assert!(db.insert_if_absent("a", "1").unwrap());
        assert_eq!(syncs(), before);
        assert!(db.insert_if_absent_with("b", "1", WriteOptions::sync()).unwrap());
        assert_eq!(syncs(), before + 1);
        let set = |old: &[u8], new: &[u8]| {
            db.compare_and_set_with("b", Some(old), Some(new), WriteOptions::sync()).unwrap()
        };
        assert!(!set(b"2", b"3"));
        assert_eq!(syncs(), before + 1, "nothing was set");
        assert!(set(b"1", b"3"));
        assert_eq!(syncs(), before + 2);
    }

    /// How a store was opened cannot be changed while it is open.
    #[test]
    fn how_a_store_was_opened_stays() {
        let options = Options::default().background_threads(0).vfs(Arc::new(MemoryVfs::new()));
        let db = Db::open("db", options).unwrap();
        let before = db.options().settings();
        db.set_options(|options| {
            options.opening(|o| o.degraded(Degraded::LastIntact).salvage(true))
        })
        .unwrap();
        assert_eq!(db.options().settings(), before);
    }

    /// The leader caches the options it needs: the next write must see changed ones.
    #[test]
    fn options_that_are_changed_hold_for_the_next_write() {
        let options = Options::default().background_threads(0).vfs(Arc::new(MemoryVfs::new()));
        let db = Db::open("db", options).unwrap();
        let log = || db.engine().view.load().active.log_number;
        let put = |key: &str| db.put(key, vec![7; 10_000]).unwrap();
        put("a");
        let (first, syncs) = (log(), db.stats().writes.log_syncs);
        put("b");
        assert_eq!((log(), db.stats().writes.log_syncs), (first, syncs));
        db.set_options(|options| options.durability(Durability::Sync)).unwrap();
        put("c");
        assert_eq!((log(), db.stats().writes.log_syncs), (first, syncs + 1));
        let smaller = |options: Options| {
            options.durability(Durability::Os).writes(|w| w.write_buffer_bytes(16 << 10))
        };
        db.set_options(smaller).unwrap();
        put("d");
        assert!(log() > first, "a full memtable was written to");
        assert_eq!(db.stats().writes.log_syncs, syncs + 1);
    }
}

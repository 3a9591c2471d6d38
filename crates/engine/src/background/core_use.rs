//! Limits concurrent compactions while writers need the cores.
//!
//! 1. If the store has at least as many threads as there are cores, another compaction takes a
//!    writer's core. While level 0 can wait that gains nothing: a later compaction takes more runs
//!    at once, so that each byte is written fewer times.
//! 2. So while memtables fill one after the other, no compaction starts that would leave no core to
//!    the writers, unless level 0 is near the slowdown, or the debt reaches a quarter of its
//!    slowdown. While a compaction is deferred, filters are not made smaller for the budget either.
//!    A table move that comes first is free and not deferred.
//! 3. If no memtable has become full for a while, or a caller waits for compactions, all threads
//!    take part.
//!
//! The gain is in docs/performance.md, *A core for writers*. Called by workers that search for a
//! compaction.

use std::time::{Duration, Instant};

use crate::compaction_options::CompactionOptions;
use crate::env;

/// If filling a memtable took longer than this, its writers do not need a core.
const SLOWEST: Duration = Duration::from_secs(5);
/// The next memtable is assumed to be filling for at least this long; for twice the last fill time,
/// if that is more.
const LEAST: Duration = Duration::from_secs(2);

/// Threads that the machine runs at once.
#[derive(Debug)]
pub(crate) struct Cores(pub(crate) usize);

impl Default for Cores {
    fn default() -> Self {
        Self(env::cores())
    }
}

/// How fast memtables fill.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    /// When the last one became full.
    last: Option<Instant>,
    /// Time since the one before.
    took: Option<Duration>,
}

impl Filling {
    /// Records that a memtable became full now.
    pub(crate) fn note(&mut self, now: Instant) {
        self.took = self.last.map(|last| now.saturating_duration_since(last));
        self.last = Some(now);
    }

    /// Until when another is assumed to be filling, if it is.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        let took = self.took.filter(|took| *took <= SLOWEST)?;
        Some(self.last? + LEAST.max(took * 2)).filter(|end| *end > now)
    }
}

/// The inputs that decide whether another compaction may start during heavy writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CoreUse<'a> {
    /// Threads of the store.
    pub(crate) threads: usize,
    /// Cores of the machine.
    pub(crate) cores: usize,
    /// Running compactions and filter rebuilds.
    pub(crate) running: usize,
    /// Runs of level 0.
    pub(crate) l0_runs: usize,
    /// Bytes of compaction debt.
    pub(crate) debt: u64,
    pub(crate) options: &'a CompactionOptions,
}

impl CoreUse<'_> {
    /// Whether another job would leave no core to writers. The first job never does, however few
    /// cores there are.
    pub(crate) fn takes_a_core(&self) -> bool {
        self.threads >= self.cores && self.running >= self.cores.saturating_sub(1).max(1)
    }

    /// Whether level 0 is at least three quarters of the way from the compaction trigger to the
    /// slowdown, or the debt a quarter of the way to its slowdown, because a compaction takes
    /// longer to bring the debt down.
    pub(crate) fn is_urgent(&self) -> bool {
        let CompactionOptions { l0_trigger, slow_runs, slow_debt_bytes, .. } = *self.options;
        let far = slow_runs.saturating_sub(l0_trigger).saturating_mul(3) / 4;
        self.l0_runs >= l0_trigger.saturating_add(far) || self.debt >= slow_debt_bytes / 4
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trommel_sim::MemoryVfs;

    use super::*;
    use crate::sync::{MutexGuard, lock};
    use crate::{Compression, Db, Options};

    #[test]
    fn a_merge_more_takes_a_core_where_threads_are_as_many() {
        let options = CompactionOptions::default();
        let core_use = |threads, cores, running| CoreUse {
            threads,
            cores,
            running,
            l0_runs: 4,
            debt: 0,
            options: &options,
        };
        let takes = |threads, cores, running| core_use(threads, cores, running).takes_a_core();
        assert!(!takes(2, 2, 0) && takes(2, 2, 1));
        assert!(!takes(1, 1, 0) && !takes(4, 1, 0) && takes(4, 1, 1));
        assert!(!takes(2, 3, 1) && !takes(3, 3, 1) && takes(3, 3, 2) && !takes(8, 64, 7));
    }

    #[test]
    fn nothing_is_put_off_that_is_nearly_late() {
        for (trigger, slow, late) in [(4, 12, 10), (4, 4, 4), (4, 7, 6), (1, 2, 1), (10, 4, 10)] {
            let options = CompactionOptions {
                l0_trigger: trigger,
                slow_runs: slow,
                slow_debt_bytes: 100,
                ..CompactionOptions::default()
            };
            let is_urgent = |l0_runs, debt| {
                let (threads, cores, running) = (2, 2, 1);
                CoreUse { threads, cores, running, l0_runs, debt, options: &options }.is_urgent()
            };
            assert!(is_urgent(late, 0) && !is_urgent(late - 1, 24), "{trigger} and {slow}");
            assert!(is_urgent(0, 25));
        }
    }

    #[test]
    fn memtables_are_taken_to_be_filled_while_they_become_full_one_after_the_other() {
        let start = env::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut filling = Filling::default();
        assert_eq!(filling.until(start), None);
        filling.note(start);
        assert_eq!(filling.until(start), None, "one by itself");
        filling.note(after(1));
        assert_eq!(filling.until(after(1)), Some(after(3)));
        assert_eq!(filling.until(after(3)), None);
        filling.note(after(5));
        assert_eq!(filling.until(after(5)), Some(after(13)));
        filling.note(after(11));
        assert_eq!(filling.until(after(11)), None, "slowly");
    }

    /// A store of small tables, on two cores, with two threads.
    fn open() -> Db {
        let options = Options::default()
            .vfs(Arc::new(MemoryVfs::default()))
            .compression(Compression::None)
            .writes(|w| w.write_buffer_bytes(64 << 10))
            .compaction(|c| {
                c.table_bytes(32 << 10)
                    .base_level_bytes(64 << 10)
                    .level_ratio(2)
                    // Nothing lags, however many runs there are.
                    .l0_slowdown(10_000)
                    .l0_stop(10_000)
                    .debt_stop_bytes(1 << 40)
            })
            .background_threads(2);
        let db = Db::open("db", options).unwrap();
        state(&db).writer_core.cores = Cores(2);
        db
    }

    fn state(db: &Db) -> MutexGuard<'_, crate::background::BackgroundState> {
        lock(&db.engine().background.state)
    }

    fn put(db: &Db, number: u32) {
        db.put(number.wrapping_mul(2_654_435_761).to_le_bytes(), [7; 100]).unwrap();
    }

    /// Pretends that the last memtable became full at this moment, soon after the one before it.
    fn became_full_at(db: &Db, moment: Instant) {
        state(db).writer_core.filling =
            Filling { last: Some(moment), took: Some(Duration::from_millis(1)) };
    }

    /// Later than the end of any test.
    fn much_later() -> Instant {
        env::now() + Duration::from_secs(1_000)
    }

    /// Whether `is_so` becomes true in time.
    fn comes_true(is_so: impl Fn() -> bool) -> bool {
        let end = env::now() + Duration::from_secs(60);
        while !is_so() && env::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        is_so()
    }

    #[test]
    fn compactions_leave_a_core_to_writers_of_a_filling_store() {
        let db = open();
        let (mut most, mut puts_off) = (0, false);
        for number in 0..60_000 {
            put(&db, number);
            // However long the test is delayed.
            became_full_at(&db, much_later());
            let state = state(&db);
            most = most.max(state.busy.working());
            puts_off |= state.writer_core.put_off_until.is_some();
        }
        assert_eq!((most, puts_off), (1, true));
        db.wait_idle().unwrap();
        assert!(db.stats().background.compactions.count > 3);
    }

    /// Fills level 0 while another job seems to be running, as if the last memtable had become full
    /// at this moment.
    fn put_off(db: &Db, full_at: Instant) {
        db.pause_compaction().unwrap();
        state(db).busy.start_rebuild(u64::MAX).unwrap();
        (0..6_000).for_each(|number| put(db, number));
        db.flush().unwrap();
        became_full_at(db, full_at);
        db.resume_compaction();
    }

    fn is_merged(db: &Db) -> bool {
        db.stats().background.compactions.count > 0
    }

    #[test]
    fn a_deferred_compaction_begins_when_writes_stop() {
        let db = open();
        let end = env::now() + Duration::from_millis(500);
        put_off(&db, end - LEAST);
        let begun_early = is_merged(&db) && env::now() < end;
        assert!(!begun_early, "not put off");
        // Without any notification.
        assert!(comes_true(|| is_merged(&db)), "put off for ever");
        assert!(env::now() >= end, "not put off for long enough");
    }

    #[test]
    fn a_deferred_compaction_begins_at_once_for_a_waiting_caller() {
        let db = open();
        put_off(&db, much_later());
        assert!(comes_true(|| state(&db).writer_core.put_off_until.is_some()));
        db.compact_all().unwrap();
        assert!(is_merged(&db));
    }

    /// A worker whose sleep ends at a time already past does not sleep.
    #[test]
    fn nothing_is_put_off_in_a_pause() {
        let db = open();
        put_off(&db, much_later());
        assert!(comes_true(|| state(&db).writer_core.put_off_until.is_some()));
        db.pause_compaction().unwrap();
        db.engine().background.wake();
        assert!(comes_true(|| state(&db).writer_core.put_off_until.is_none()));
    }
}

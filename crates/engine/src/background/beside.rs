//! How many merges run at once beside writers.
//!
//! 1. Where the store has as many threads as there are cores, a merge more takes the core of whoever writes. While
//!    level 0 can wait that gains nothing: what is merged later is more at once, and written fewer times.
//! 2. So while memtables become full, merges leave a core to who fills them, unless level 0, or what is due elsewhere,
//!    comes near to where writers are slowed.
//! 3. When none became full for a while, or somebody waits for merges, all threads take part.
//!
//! What it gains: docs/performance.md, *A core for who writes*. Called by workers that look for a merge.

use std::time::{Duration, Instant};

use crate::compaction::options::CompactionOptions;

/// For so long after a memtable was taken to be written out the next one is taken to be filled.
const WRITTEN_FOR: Duration = Duration::from_secs(if cfg!(test) { 30 } else { 2 });

/// What decides whether one merge more begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside<'a> {
    /// Threads of the store.
    pub(super) threads: usize,
    /// Cores of the machine.
    pub(super) cores: usize,
    /// Merges that run.
    pub(super) merges: usize,
    /// Runs of level 0.
    pub(super) l0_runs: usize,
    /// Bytes of merges that are due.
    pub(super) debt: u64,
    pub(super) options: &'a CompactionOptions,
    /// When a memtable was last taken to be written out.
    pub(super) last_flush: Option<Instant>,
}

impl Beside<'_> {
    /// Until when one merge more is put off, if it is.
    pub(super) fn put_off_until(&self, now: Instant) -> Option<Instant> {
        if self.leaves_a_core() || self.is_behind() {
            return None;
        }
        self.last_flush.map(|last| last + WRITTEN_FOR).filter(|end| *end > now)
    }

    fn leaves_a_core(&self) -> bool {
        self.threads < self.cores || self.merges < self.cores.saturating_sub(1).max(1)
    }

    /// Three quarters of the way from where merges begin to where writers are slowed.
    fn is_behind(&self) -> bool {
        let CompactionOptions { l0_trigger, slow_runs, slow_debt_bytes, .. } = *self.options;
        let far = slow_runs.saturating_sub(l0_trigger) / 4 * 3;
        self.l0_runs >= l0_trigger.saturating_add(far) || self.debt >= slow_debt_bytes / 4 * 3
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trommel_vfs::MemoryVfs;

    use super::*;
    use crate::sync::lock;
    use crate::{Compression, Db, Options, env};

    #[test]
    fn one_merge_more_is_put_off_while_much_is_written_and_nothing_is_late() {
        let options = CompactionOptions::default();
        let now = env::now();
        let at_rest = Beside {
            threads: 2,
            cores: 2,
            merges: 1,
            l0_runs: 4,
            debt: 0,
            options: &options,
            last_flush: None,
        };
        let written = Beside { last_flush: Some(now), ..at_rest };
        let end = Some(now + WRITTEN_FOR);
        let cases = [
            (at_rest, None),
            (written, end),
            // The first one never is, whatever there is of cores.
            (Beside { merges: 0, ..written }, None),
            (Beside { merges: 0, cores: 1, ..written }, None),
            (Beside { cores: 1, ..written }, end),
            (Beside { cores: 3, ..written }, None),
            (Beside { cores: 3, threads: 3, ..written }, None),
            (Beside { cores: 3, threads: 3, merges: 2, ..written }, end),
            (Beside { l0_runs: 9, ..written }, end),
            (Beside { l0_runs: 10, ..written }, None),
            (Beside { debt: options.slow_debt_bytes / 4 * 3, ..written }, None),
        ];
        for (beside, expected) in cases {
            assert_eq!(beside.put_off_until(now), expected, "{beside:?}");
            assert_eq!(beside.put_off_until(now + WRITTEN_FOR), None, "{beside:?}");
        }
    }

    /// Of a store that is filled while merges of deep levels and of level 0 are due at once.
    #[test]
    fn a_store_that_is_filled_leaves_a_core_to_who_writes() {
        let threads = env::cores().max(2);
        let most = (env::cores() - 1).max(1);
        let options = Options::default()
            .vfs(Arc::new(MemoryVfs::default()))
            .compression(Compression::None)
            .write_buffer_bytes(64 << 10)
            .table_bytes(32 << 10)
            .base_level_bytes(64 << 10)
            .level_ratio(2)
            // Nothing is late, however many runs there are.
            .l0_slowdown(10_000)
            .l0_stop(10_000)
            .debt_stop_bytes(1 << 40)
            .background_threads(threads);
        let db = Db::open("db", options).unwrap();
        let merges = || lock(&db.engine().background.state).busy.merges();
        let mut seen = 0;
        for number in 0..60_000_u32 {
            let key = number.wrapping_mul(2_654_435_761).to_le_bytes();
            db.put(key, [7; 100]).unwrap();
            seen = seen.max(merges());
        }
        assert!((1..=most).contains(&seen), "{seen} merges at once on {} cores", env::cores());
        db.wait_idle().unwrap();
        assert!(db.stats().compactions > 3);
    }
}

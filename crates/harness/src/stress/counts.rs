//! A worker's counters, by name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Number of shards; more threads share them.
const SHARDS: usize = 16;

type Map = BTreeMap<Cow<'static, str>, u64>;

/// Counters that many threads increment. Names are plural nouns, with details after dots.
#[derive(Debug, Default)]
pub(super) struct Counts {
    shards: [Mutex<Map>; SHARDS],
}

impl Counts {
    /// Adds to a counter.
    pub(super) fn add(&self, name: impl Into<Cow<'static, str>>, count: u64) {
        *self.shard().entry(name.into()).or_default() += count;
    }

    fn shard(&self) -> MutexGuard<'_, Map> {
        use std::sync::atomic::AtomicUsize;
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static OWN: usize = NEXT.fetch_add(1, Relaxed) % SHARDS);
        lock(&self.shards[OWN.with(|own| *own)])
    }

    /// All counters, by name.
    pub(super) fn all(&self) -> Vec<(String, u64)> {
        let mut sum: BTreeMap<String, u64> = BTreeMap::new();
        for shard in &self.shards {
            for (name, count) in &*lock(shard) {
                *sum.entry(name.to_string()).or_default() += count;
            }
        }
        sum.into_iter().collect()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread's current operation, for the watchdog.
#[derive(Debug)]
pub(super) struct Activity {
    born: Instant,
    /// Start of the operation in microseconds after `born`, plus one; 0 between operations.
    since: AtomicU64,
    what: Mutex<&'static str>,
    longest: AtomicU64,
}

impl Activity {
    /// For a thread without an operation.
    pub(super) fn new(born: Instant) -> Self {
        Self { born, since: AtomicU64::new(0), what: Mutex::new(""), longest: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        self.born.elapsed().as_micros() as u64 + 1
    }

    /// Runs a watched operation.
    pub(super) fn work<T>(&self, what: &'static str, work: impl FnOnce() -> T) -> T {
        *lock(&self.what) = what;
        let start = self.now();
        self.since.store(start, Relaxed);
        let done = work();
        self.longest.fetch_max(self.now() - start, Relaxed);
        self.since.store(0, Relaxed);
        done
    }

    /// Microseconds of the longest operation, including the current one.
    pub(super) fn longest(&self) -> u64 {
        self.longest.load(Relaxed).max(self.current().0)
    }

    /// Microseconds since the current operation began, and its name.
    pub(super) fn current(&self) -> (u64, &'static str) {
        match self.since.load(Relaxed) {
            0 => (0, ""),
            since => (self.now().saturating_sub(since), *lock(&self.what)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_threads_add_up() {
        let counts = Counts::default();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..100).for_each(|_| counts.add("puts", 2)));
            }
        });
        assert_eq!(counts.all(), [("puts".to_owned(), 600)]);
    }

    #[test]
    fn an_activity_knows_its_current_operation() {
        let activity = Activity::new(Instant::now());
        assert_eq!(activity.current().1, "");
        activity.work("compact", || {
            std::thread::sleep(std::time::Duration::from_millis(1));
            assert_eq!(activity.current().1, "compact");
        });
        assert!(activity.longest() > 0 && activity.current().1.is_empty());
    }
}

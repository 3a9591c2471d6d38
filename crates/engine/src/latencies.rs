//! How long operations take, on request.
//!
//! 1. While this is off, an operation loads one flag, and takes no time.
//! 2. While it is on, each thread times one read or write of [`LATENCY_SAMPLE`] on average. It
//!    draws the number of operations to skip uniformly and counts down, so no pattern of operations
//!    can be in step with the sample. Background work and syncs are all timed: they read the clock
//!    anyway, or take far longer than that does.
//! 3. A time is counted in a bucket: [`SUB_BUCKETS`] of equal width for each power of two, so that
//!    a percentile is exact to a sixteenth.
//!
//! The buckets are shared by all threads, because a thread counts too rarely for their cache lines
//! to be contended. They are allocated when this is first turned on.
//!
//! Source of the buckets: Gil Tene, [HdrHistogram](http://hdrhistogram.org).

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::env;
use crate::sync::quiet::{AtomicBool, AtomicU64};

/// One of this many reads and writes of a thread is timed, on average.
pub const LATENCY_SAMPLE: u64 = 64;

/// The logarithm of [`SUB_BUCKETS`].
const SUB_BITS: u32 = 4;
/// Buckets for each power of two.
const SUB_BUCKETS: usize = 1 << SUB_BITS;
/// Times from 2^42 nanoseconds on, over an hour, count in the last bucket.
const MAX_BITS: u32 = 42;
const BUCKETS: usize = (MAX_BITS - SUB_BITS + 1) as usize * SUB_BUCKETS;

/// An operation whose times are counted: see
/// [`Db::measure_latencies`](crate::Db::measure_latencies).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimedOperation {
    /// A lookup of one key.
    Get,
    /// A lookup of several keys at once.
    MultiGet,
    /// A write, from the call to its return: of a key, a range or a batch, with or without
    /// conditions, or the commit of a transaction. Its stall and its sync are included.
    Write,
    /// Moving a cursor to a key, or an iterator to its first entry.
    Seek,
    /// A sync of the log.
    Sync,
    /// A wait of a writer for background work.
    Stall,
    /// A flush of a memtable.
    Flush,
    /// A compaction.
    Compaction,
    /// A rebuild of the filters of a table.
    FilterRebuild,
}

impl TimedOperation {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Get,
        Self::MultiGet,
        Self::Write,
        Self::Seek,
        Self::Sync,
        Self::Stall,
        Self::Flush,
        Self::Compaction,
        Self::FilterRebuild,
    ];

    /// Its name in metrics and traces, in lower case with dashes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::MultiGet => "multi-get",
            Self::Write => "write",
            Self::Seek => "seek",
            Self::Sync => "sync",
            Self::Stall => "stall",
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::FilterRebuild => "filter-rebuild",
        }
    }
}

/// The times of one kind of operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatencyStats {
    /// The operation.
    pub operation: TimedOperation,
    /// Number of operations timed.
    pub count: u64,
    /// The sum of their times.
    pub total: Duration,
    /// The number in each bucket.
    buckets: Vec<u64>,
}

impl LatencyStats {
    /// The time that `percent` (0 to 100) of the operations did not exceed, rounded up by at most a
    /// sixteenth; zero if none was timed. Times of more than an hour count as that.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.measure_latencies(true);
    /// db.put("key", "value")?;
    /// db.flush()?;
    /// for times in db.latencies() {
    ///     println!("{}: {:?}", times.operation.name(), times.percentile(99.0));
    /// }
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn percentile(&self, percent: f64) -> Duration {
        let counted: u64 = self.buckets.iter().sum();
        let rank = ((percent.clamp(0.0, 100.0) / 100.0 * counted as f64).ceil() as u64).max(1);
        let mut below = 0;
        let found = self.buckets.iter().position(|count| {
            below += count;
            below >= rank
        });
        found.map_or(Duration::ZERO, |bucket| Duration::from_nanos(upper_end(bucket)))
    }

    /// Number of operations that took at most `2^bits` nanoseconds.
    pub(crate) fn within_bits(&self, bits: u32) -> u64 {
        let end = bucket_of((1 << bits) + 1);
        self.buckets[..end].iter().sum()
    }
}

/// The bucket of a time; those of one bucket are above the upper end of the one before.
fn bucket_of(nanos: u64) -> usize {
    let nanos = nanos.saturating_sub(1);
    if nanos < SUB_BUCKETS as u64 {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - SUB_BITS;
    let bucket = (shift as usize * SUB_BUCKETS) + (nanos >> shift) as usize;
    bucket.min(BUCKETS - 1)
}

/// The longest time of a bucket, in nanoseconds.
fn upper_end(bucket: usize) -> u64 {
    let shift = (bucket / SUB_BUCKETS).saturating_sub(1);
    let first = (bucket - shift * SUB_BUCKETS) as u64;
    (first + 1) << shift
}

#[derive(Debug)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    total_nanos: AtomicU64,
}

impl Histogram {
    fn new() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), total_nanos: AtomicU64::new(0) }
    }

    fn record(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanos)].fetch_add(1, Relaxed);
        self.total_nanos.fetch_add(nanos, Relaxed);
    }

    fn stats(&self, operation: TimedOperation) -> LatencyStats {
        let buckets: Vec<u64> = self.buckets.iter().map(|count| count.load(Relaxed)).collect();
        let total = Duration::from_nanos(self.total_nanos.load(Relaxed));
        LatencyStats { operation, count: buckets.iter().sum(), total, buckets }
    }

    fn reset(&self) {
        for number in self.buckets.iter().chain([&self.total_nanos]) {
            number.store(0, Relaxed);
        }
    }
}

/// The histograms of an open store.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    /// Whether times are counted: the only thing an operation checks.
    is_on: AtomicBool,
    histograms: OnceLock<Vec<Histogram>>,
}

/// What a thread still skips, and the state of its draws.
#[derive(Debug, Clone, Copy)]
struct SampleDraws {
    left: u64,
    state: u64,
}

thread_local! {
    static DRAWS: Cell<SampleDraws> = const { Cell::new(SampleDraws { left: 0, state: 0 }) };
}

impl Latencies {
    /// Whether times are counted.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Turns the counting on or off. Counts stay.
    pub(crate) fn switch(&self, is_on: bool) {
        if is_on {
            self.histograms
                .get_or_init(|| TimedOperation::ALL.iter().map(|_| Histogram::new()).collect());
        }
        self.is_on.store(is_on, Relaxed);
    }

    /// Whether the read or write that begins now is in the sample. If so, it is to begin once more
    /// within [`timed`](Self::timed), and is not in the sample then: so an operation that is not
    /// timed costs a check of the flag, and its code is there once.
    #[inline]
    pub(crate) fn samples(&self) -> bool {
        self.is_on() && draws()
    }

    /// Counts the time of `act`.
    #[cold]
    #[inline(never)]
    pub(crate) fn timed<T>(&self, operation: TimedOperation, act: impl FnOnce() -> T) -> T {
        let start = env::now();
        let outcome = act();
        self.record(operation, env::now() - start);
        outcome
    }

    /// Counts a time, if times are counted.
    pub(crate) fn record(&self, operation: TimedOperation, time: Duration) {
        if let Some(histograms) = self.histograms.get().filter(|_| self.is_on()) {
            histograms[operation as usize].record(time);
        }
    }

    /// The times of each operation; empty if they were never counted.
    pub(crate) fn stats(&self) -> Vec<LatencyStats> {
        let histograms = self.histograms.get().into_iter().flatten();
        let all = TimedOperation::ALL.into_iter().zip(histograms);
        all.map(|(operation, histogram)| histogram.stats(operation)).collect()
    }

    /// Resets the counts.
    pub(crate) fn reset(&self) {
        self.histograms.get().into_iter().flatten().for_each(Histogram::reset);
    }
}

/// Whether the calling thread's next operation is in its sample.
#[inline]
fn draws() -> bool {
    let draws = DRAWS.get();
    if draws.left > 0 {
        DRAWS.set(SampleDraws { left: draws.left - 1, ..draws });
        return false;
    }
    draw_gap()
}

/// Draws how many operations the thread skips: [`LATENCY_SAMPLE`] less one on average. Returns
/// whether the next one is timed: not a thread's first, or threads of one operation would time it.
#[cold]
#[inline(never)]
fn draw_gap() -> bool {
    let SampleDraws { state, .. } = DRAWS.get();
    let is_first = state == 0;
    let state = if is_first { env::random_u64() | 1 } else { state };
    // Xorshift: George Marsaglia, "Xorshift RNGs", 2003.
    let state = state ^ (state << 13);
    let state = state ^ (state >> 7);
    let state = state ^ (state << 17);
    let gaps = 2 * LATENCY_SAMPLE - 1;
    // One more for the operation that is timed, which begins twice. The first gap of a thread is
    // what is left of one at a random moment, which is shorter: threads of few operations would
    // otherwise be timed too seldom.
    let left = if is_first { (state % gaps).min(state / gaps % gaps) } else { state % gaps + 1 };
    DRAWS.set(SampleDraws { left, state });
    !is_first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::thread;

    #[test]
    fn buckets_are_in_order_and_a_sixteenth_wide() {
        let mut nanos = 1;
        while nanos < 1 << (MAX_BITS + 2) {
            for nanos in [nanos - 1, nanos, nanos + 1] {
                let (bucket, time) = (bucket_of(nanos), nanos.clamp(1, 1 << MAX_BITS));
                let end = upper_end(bucket);
                assert!(end >= time && end - time <= time / 16, "{nanos}: {bucket} to {end}");
                assert!(bucket == 0 || upper_end(bucket - 1) < time, "{nanos}: {bucket}");
            }
            nanos += nanos / 7 + 1;
        }
        assert_eq!((bucket_of(u64::MAX), upper_end(BUCKETS - 1)), (BUCKETS - 1, 1 << MAX_BITS));
    }

    #[test]
    fn percentiles_and_bounds_count_from_the_fastest() {
        let latencies = Latencies::default();
        latencies.record(TimedOperation::Get, Duration::from_nanos(1));
        latencies.switch(true);
        for nanos in 1..=1024 {
            latencies.record(TimedOperation::Get, Duration::from_nanos(nanos));
        }
        let stats = latencies.stats();
        let (gets, seeks) = (&stats[0], &stats[TimedOperation::Seek as usize]);
        assert_eq!((gets.count, gets.total), (1024, Duration::from_nanos(1024 * 1025 / 2)));
        let percentile = |percent| gets.percentile(percent).as_nanos();
        assert_eq!([0.0, 50.0, 100.0].map(percentile), [1, 512, 1024]);
        assert!((1014..=1024).contains(&percentile(99.0)));
        assert_eq!([0, 3, 9, 10, 20].map(|bits| gets.within_bits(bits)), [1, 8, 512, 1024, 1024]);
        assert_eq!((seeks.count, seeks.percentile(50.0)), (0, Duration::ZERO));
        latencies.reset();
        assert_eq!(latencies.stats()[0].count, 0);
    }

    /// Of two operations that alternate, as many are timed of each.
    #[test]
    fn the_sample_is_in_step_with_nothing() {
        let mut drawn = [0_u64; 2];
        for nth in 0..2_000_000 {
            if draws() {
                drawn[nth % 2] += 1;
                assert!(!draws(), "it begins a second time");
            }
        }
        let expected = 1_000_000 / LATENCY_SAMPLE;
        assert!(drawn.iter().all(|n| n.abs_diff(expected) < expected / 20), "{drawn:?}");
    }

    /// Of threads that do few operations, the same part is timed.
    #[test]
    fn short_threads_are_timed_as_often() {
        let timed = || {
            let draws = || u64::from(draws() && !draws());
            thread::spawn(move || (0..LATENCY_SAMPLE).map(|_| draws()).sum::<u64>())
        };
        // One each on average, except for the first operation; chance adds or removes some 30.
        let all: u64 = (0..1000).map(|_| timed().join().unwrap()).sum();
        assert!((850..1150).contains(&all), "{all}");
    }
}

//! Counts operations over time.
//!
//! Each thread keeps its own counter on its own cache line; one thread samples all of them ten
//! times a second. The series keeps at most a thousand points: when it is full, pairs of points are
//! merged.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::control::Progress;

/// Time between two samples.
const TICK: Duration = Duration::from_millis(100);
/// Maximum number of points in the series; even.
const POINTS_MAX: usize = 1000;

/// One thread's counter, alone on its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Slot(AtomicU64);

impl Slot {
    #[inline]
    pub(super) fn set(&self, done: u64) {
        self.0.store(done, Relaxed);
    }
}

/// The counters of all threads.
#[derive(Debug)]
pub(super) struct Meter {
    slots: Vec<Slot>,
    finished: Mutex<bool>,
    wake: Condvar,
}

impl Meter {
    pub(super) fn new(threads: usize) -> Self {
        let slots = (0..threads).map(|_| Slot::default()).collect();
        Self { slots, finished: Mutex::new(false), wake: Condvar::new() }
    }

    pub(super) fn slot(&self, thread: usize) -> &Slot {
        &self.slots[thread]
    }

    fn total(&self) -> u64 {
        self.slots.iter().map(|slot| slot.0.load(Relaxed)).sum()
    }

    /// Ends [`Meter::sample`].
    pub(super) fn finish(&self) {
        *self.finished.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }

    /// Samples the counters until [`Meter::finish`]; sets `halt` after `duration`. Returns the end
    /// of each interval, in seconds from now, and the number of operations in it.
    pub(super) fn sample(
        &self,
        progress: &dyn Progress,
        duration: Option<Duration>,
        halt: &AtomicBool,
    ) -> Vec<(f64, u64)> {
        let start = Instant::now();
        let mut series = Series::default();
        let mut next = TICK;
        loop {
            let wake_at = duration.map_or(next, |end| next.min(end));
            let finished = self.wait(wake_at.saturating_sub(start.elapsed()));
            let (elapsed, total) = (start.elapsed(), self.total());
            if duration.is_some_and(|end| elapsed >= end) {
                halt.store(true, Relaxed);
            }
            progress.advance(total - series.total);
            series.push(elapsed, total);
            if finished {
                return series.points;
            }
            // Missed samples are not made up for.
            next = elapsed + if halt.load(Relaxed) { TICK / 10 } else { TICK };
        }
    }

    /// Waits for at most `time`; returns whether the meter is finished.
    fn wait(&self, time: Duration) -> bool {
        let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        let (finished, _) = self
            .wake
            .wait_timeout_while(finished, time, |finished| !*finished)
            .unwrap_or_else(PoisonError::into_inner);
        *finished
    }
}

/// Operations over time.
#[derive(Debug, Default)]
struct Series {
    points: Vec<(f64, u64)>,
    total: u64,
    /// Samples per point, and samples in the last point: 0 means 1.
    merged: usize,
    held: usize,
}

impl Series {
    fn push(&mut self, at: Duration, total: u64) {
        let (at, operations) = (at.as_secs_f64(), total - self.total);
        self.total = total;
        if self.points.len() >= POINTS_MAX && self.held >= self.merged {
            let pairs = self.points.chunks(2);
            self.points = pairs.map(|pair| (pair[1].0, pair[0].1 + pair[1].1)).collect();
            self.merged = self.merged.max(1) * 2;
            self.held = self.merged;
        }
        match self.points.last_mut() {
            Some(last) if self.held < self.merged => {
                *last = (at, last.1 + operations);
                self.held += 1;
            }
            _ => {
                self.points.push((at, operations));
                self.held = 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_grows_coarse_and_loses_nothing() {
        let mut series = Series::default();
        let looks = 10_000;
        for nth in 1..=looks {
            series.push(TICK * nth, u64::from(nth) * 7);
        }
        assert!(series.points.len() <= POINTS_MAX && series.points.len() >= POINTS_MAX / 2);
        assert_eq!(series.points.iter().map(|point| point.1).sum::<u64>(), u64::from(looks) * 7);
        assert!(series.points.is_sorted_by(|a, b| a.0 < b.0));
        assert!((series.points.last().unwrap().0 - 1000.0).abs() < 1e-9);
        let steps: Vec<u64> = series.points.iter().map(|point| point.1).collect();
        let most = *steps.iter().max().unwrap();
        assert!(steps[..steps.len() - 1].iter().all(|step| *step == most), "equal steps");
    }

    #[test]
    fn the_end_of_the_time_is_said_to_all() {
        let (meter, halt) = (Meter::new(2), AtomicBool::new(false));
        meter.slot(0).set(3);
        meter.slot(1).set(4);
        let series = std::thread::scope(|scope| {
            let sampler =
                scope.spawn(|| meter.sample(&crate::Silent, Some(Duration::from_millis(1)), &halt));
            while !halt.load(Relaxed) {
                std::thread::yield_now();
            }
            meter.finish();
            sampler.join().unwrap()
        });
        assert_eq!(series.iter().map(|point| point.1).sum::<u64>(), 7);
    }
}

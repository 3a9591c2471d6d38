//! One thread of a workload: its random draws, its counters and its pace.

use std::num::NonZero;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::meter::Slot;
use super::{Load, Team, stream_seed};
use crate::histogram::Latencies;
use crate::keys::KeyMaker;
use crate::measured::{Kind, Measured, MeasuredTime, Tally};
use crate::rate::Pace;
use crate::store::{Mark, Store};
use crate::values::Values;

/// Longest sleep of a waiting thread, after which it checks for a stop.
const NAP: Duration = Duration::from_millis(20);
/// A due time this close is waited for by spinning, which takes less than a sleep and a wake-up.
const NEAR: Duration = Duration::from_micros(60);
/// Timer slack of a thread with a pace, in nanoseconds: by how much the system may oversleep. The
/// default is 50,000.
const SLACK: Option<NonZero<u64>> = NonZero::new(1000);

/// Entries of a scan between two checks for its end.
const COUNTED_TOGETHER: u64 = 64;

/// One thread of a workload.
pub(super) struct Worker<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) load: &'a Load<'a>,
    pub(super) thread: usize,
    team: &'a Team<'a>,
    slot: &'a Slot,
    pub(super) rng: Rng,
    pub(super) keys: KeyMaker<'a>,
    pub(super) value_position: usize,
    /// The mark that the store requests for its values, if any, and the marked values.
    pub(super) marked: Option<(Mark, Values)>,
    pace: Option<Pace>,
    start: Instant,
    /// End of the last operation if latencies are recorded, or the due time of the next one.
    last: Instant,
    latencies: Vec<(Kind, Latencies)>,
    pub(super) tally: Tally,
    pub(super) done: u64,
    pub(super) lookups: u64,
    pub(super) found: u64,
    pub(super) bytes: u64,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        team: &'a Team<'a>,
        thread: usize,
        rate: Option<f64>,
        slot: &'a Slot,
    ) -> Self {
        let (load, now) = (team.load, Instant::now());
        // A background thread has a pace of its own.
        let pace = rate.map(|rate| match thread.checked_sub(load.threads) {
            None => Pace::new(rate, thread, load.threads),
            Some(_) => Pace::new(rate, 0, 1),
        });
        if pace.is_some() {
            // If this fails, sleeps are less exact.
            let _ = rustix::thread::set_current_timer_slack(SLACK);
        }
        Self {
            store: team.store,
            load,
            thread,
            team,
            slot,
            rng: Rng::with_seed(stream_seed(load.seed, load.stream, thread as u64)),
            keys: load.keys.maker(),
            value_position: 0,
            marked: team.store.mark().map(|mark| (mark, load.values.clone())),
            pace,
            start: now,
            last: now,
            latencies: Vec::new(),
            tally: Tally::default(),
            done: 0,
            lookups: 0,
            found: 0,
            bytes: 0,
        }
    }

    pub(super) fn begin(&mut self) {
        // Threads start at different positions in the value pool, chosen at random.
        self.value_position = self.rng.usize(..=1 << 10) * self.load.values.value_bytes();
        self.start = Instant::now();
        self.last = self.start;
    }

    /// Returns whether there is another operation to do; waits until it is due, if there is a pace.
    #[inline]
    pub(super) fn next(&mut self) -> bool {
        self.done < self.load.operations && !self.halted() && self.take_turn()
    }

    /// As [`Worker::next`], for a thread that runs until the others are done.
    #[inline]
    pub(super) fn next_in_background(&mut self) -> bool {
        self.team.working.load(Relaxed) > 0 && !self.halted() && self.take_turn()
    }

    #[inline]
    fn halted(&self) -> bool {
        self.team.halt.load(Relaxed) || self.stopped()
    }

    #[inline]
    fn stopped(&self) -> bool {
        self.team.control.stop.is_set()
    }

    /// Waits until the next operation is due; returns whether it still has to run then.
    #[inline]
    fn take_turn(&mut self) -> bool {
        match self.pace {
            None => true,
            Some(pace) => self.wait_until(pace.intended(self.done)),
        }
    }

    fn wait_until(&mut self, intended: Duration) -> bool {
        loop {
            let left = intended.saturating_sub(self.start.elapsed());
            if left.is_zero() {
                self.last = self.start + intended;
                return true;
            }
            let is_background = self.thread >= self.load.threads;
            if self.halted() || (is_background && self.team.working.load(Relaxed) == 0) {
                return false;
            }
            match left.checked_sub(NEAR) {
                Some(time) if !time.is_zero() => std::thread::sleep(time.min(NAP)),
                // Not by yielding: if another thread is busy, such as a background thread of the
                // store, the scheduler takes milliseconds to return.
                _ => std::hint::spin_loop(),
            }
        }
    }

    /// Counts `operations` more as done, in one operation of the store.
    #[inline]
    pub(super) fn count(&mut self, kind: Kind, operations: u64) {
        if self.load.options.latencies {
            self.record(kind);
        }
        self.tally.add(kind, operations);
        self.done += operations;
        self.slot.set(self.done);
    }

    /// How many of the next operations may be counted at once: more than one if there are no
    /// latencies and no pace.
    pub(super) fn counted_together(&self) -> u64 {
        if self.load.options.latencies || self.pace.is_some() {
            return 1;
        }
        COUNTED_TOGETHER.min(self.load.operations.saturating_sub(self.done)).max(1)
    }

    #[cold]
    fn record(&mut self, kind: Kind) {
        let now = Instant::now();
        let time = now - self.last;
        let at = self.latencies.iter().position(|(of, _)| *of == kind).unwrap_or_else(|| {
            self.latencies.push((kind, Latencies::new()));
            self.latencies.len() - 1
        });
        self.latencies[at].1.record(time);
        // The histogram's own time belongs to no operation.
        self.last = Instant::now();
    }

    #[inline]
    pub(super) fn draw(&mut self) -> u64 {
        self.rng.u64(..self.load.range)
    }

    /// The next value to write.
    #[inline]
    pub(super) fn value(&mut self) -> &'a [u8] {
        self.load.values.next(&mut self.value_position)
    }

    /// The values of fills: marked, if the store requests it.
    #[inline]
    pub(super) fn values(&self) -> &Values {
        self.marked.as_ref().map_or(self.load.values, |(_, values)| values)
    }

    pub(super) fn finish(self) -> (Measured, Instant, Instant) {
        let end = Instant::now();
        let is_partial = self.stopped() && self.done < self.load.operations;
        let due = self.pace.map_or(0, |pace| pace.due(end - self.start));
        // For a background or stopped thread nothing is overdue.
        let is_overdue = !is_partial && self.thread < self.load.threads;
        let due = if is_overdue { due.min(self.load.operations) } else { 0 };
        let measured = Measured {
            operations: self.done,
            bytes: self.bytes,
            found: (self.lookups > 0).then_some((self.found, self.lookups)),
            time: MeasuredTime { threads: end - self.start, ..MeasuredTime::default() },
            // One may be due just now.
            overdue: due.saturating_sub(self.done + 1),
            interrupted: is_partial,
            latencies_by_kind: self.latencies,
            tally: self.tally,
            ..Measured::default()
        };
        (measured, self.start, end)
    }
}

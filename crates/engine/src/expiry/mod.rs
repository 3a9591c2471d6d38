//! Expiry of entries by their sequence numbers: no entry carries a time.
//!
//! 1. Time is divided into steps of [`resolution`]. The first write of a step is preceded by a
//!    *time mark*: what follows it, up to the next mark, was written no later than the end of the
//!    step. The mark has a sequence number of its own. It is in the log before the writes that it
//!    covers, and in the manifest with the next version edit.
//! 2. Everything before a mark has expired once the marks before it are `ttl` old. The first
//!    sequence number that has not expired is the *horizon*. It never goes down, whatever the clock
//!    does, and each version edit records it.
//! 3. The horizon is a range tombstone over all keys ([`RangeSet`](crate::ranges::RangeSet)) that
//!    every reader sees, also a snapshot that is older. So compactions drop what has expired, and
//!    tables that hold nothing else are removed unread.
//! 4. A read loads its view, then the horizon, then its sequence number. The clock is read then,
//!    and the horizon moved if it is time ([`Expiry::horizon`]): no thread has to be awake.
//! 5. A compaction uses the horizon that the manifest holds already: otherwise it could drop a
//!    tombstone, and a clock that jumped backward bring back what the tombstone hides.
//!
//! The lock of the marks is taken last. Called by reads, by the leader of the write queue for each
//! group, and by installs.

mod marks;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use trommel_base::SeqNo;
use trommel_vfs::Vfs;

pub use marks::TimeMark;
pub(crate) use marks::TimeMarks;

use crate::sync::{AtomicBool, AtomicU64, Mutex, lock};

/// Parts of `ttl` that get a mark each.
const STEPS: u32 = 256;
/// Shortest step between two marks.
const SHORTEST_STEP: Duration = Duration::from_secs(1);
/// The horizon does not move.
const NEVER: u64 = u64::MAX;

/// The longest time between two marks: entries expire between `ttl` and this much later.
fn resolution(ttl: Duration) -> Duration {
    (ttl / STEPS).max(SHORTEST_STEP)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The times of entries, and the horizon.
#[derive(Debug)]
pub(crate) struct Expiry {
    clock: Arc<dyn Vfs>,
    /// Whether entries expire.
    is_on: AtomicBool,
    /// The first sequence number that has not expired.
    horizon: AtomicU64,
    /// When the horizon may move, in milliseconds since 1970; [`NEVER`] if entries do not expire.
    due: AtomicU64,
    /// A write at a later time needs a mark.
    marked_until: AtomicU64,
    state: Mutex<ExpiryState>,
}

#[derive(Debug)]
struct ExpiryState {
    ttl: Option<Duration>,
    marks: TimeMarks,
}

impl Default for Expiry {
    fn default() -> Self {
        Self::new(Arc::new(trommel_vfs::DiskVfs), TimeMarks::default(), None)
    }
}

impl Expiry {
    /// Expiry with the recorded marks, by the clock of a file system.
    pub(crate) fn new(clock: Arc<dyn Vfs>, marks: TimeMarks, ttl: Option<Duration>) -> Self {
        let expiry = Self {
            clock,
            is_on: AtomicBool::new(false),
            horizon: AtomicU64::new(marks.horizon()),
            due: AtomicU64::new(NEVER),
            marked_until: AtomicU64::new(0),
            state: Mutex::new(ExpiryState { ttl, marks }),
        };
        expiry.set_ttl(ttl);
        expiry
    }

    /// Sets how long entries last. What was written while they did not expire counts as written
    /// now. No write may be in progress.
    pub(crate) fn set_ttl(&self, ttl: Option<Duration>) {
        let mut state = lock(&self.state);
        state.ttl = ttl;
        match ttl {
            None => state.marks.clear(),
            Some(ttl) if !state.marks.is_on() => {
                state
                    .marks
                    .add(0, self.clock.unix_millis().saturating_add(millis(resolution(ttl))));
            }
            Some(_) => {}
        }
        self.publish(&state, if ttl.is_some() { 0 } else { NEVER });
        self.is_on.store(ttl.is_some(), Ordering::Release);
    }

    /// Whether entries expire.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Whether entries expire, or did while there was a `ttl`.
    pub(crate) fn hides_any(&self) -> bool {
        self.is_on() || self.published() > 0
    }

    /// The horizon as of the last time that anything looked.
    #[inline]
    pub(crate) fn published(&self) -> SeqNo {
        self.horizon.load(Ordering::Acquire)
    }

    /// The horizon now. `visible` returns the newest visible sequence number.
    #[inline]
    pub(crate) fn horizon(&self, visible: impl FnOnce() -> SeqNo) -> SeqNo {
        let due = self.due.load(Ordering::Acquire);
        if due != NEVER && self.clock.unix_millis() >= due {
            self.advance(visible);
        }
        self.published()
    }

    #[cold]
    fn advance(&self, visible: impl FnOnce() -> SeqNo) {
        let mut state = lock(&self.state);
        let Some(ttl) = state.ttl else { return };
        // After the lock: the mark of each visible entry has been added.
        let (now, visible) = (self.clock.unix_millis(), visible());
        let due = state.marks.advance(now, millis(ttl), visible);
        let due = due.unwrap_or_else(|| now.saturating_add(millis(resolution(ttl))));
        self.publish(&state, due);
    }

    fn publish(&self, state: &ExpiryState, due: u64) {
        self.marked_until.store(state.marks.last().map_or(0, |mark| mark.until), Ordering::Release);
        self.horizon.store(state.marks.horizon(), Ordering::Release);
        // Last: a thread that sees this time finds the horizon moved.
        self.due.store(due, Ordering::Release);
    }

    /// If a write now needs a mark before it, the end of that mark's step. For the leader of the
    /// write queue, which calls [`Expiry::add`] before the write is visible.
    pub(crate) fn next_mark(&self) -> Option<u64> {
        let now = self.clock.unix_millis();
        if now <= self.marked_until.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.state).ttl.map(|ttl| now.saturating_add(millis(resolution(ttl))))
    }

    /// Adds a mark: what has a sequence number from `from` on is written no later than `until`.
    pub(crate) fn add(&self, from: SeqNo, until: u64) {
        let mut state = lock(&self.state);
        if state.ttl.is_some() {
            state.marks.add(from, until);
            self.publish(&state, self.due.load(Ordering::Acquire));
        }
    }

    /// Adds the marks and the horizon that another owner of the store has recorded.
    pub(crate) fn learn(&self, recorded: &TimeMarks) {
        let mut state = lock(&self.state);
        let is_on = state.ttl.is_some();
        state.marks.learn(recorded, is_on);
        self.publish(&state, if is_on { 0 } else { NEVER });
    }

    /// The marks and the horizon now, for the manifest.
    pub(crate) fn marks(&self, visible: impl FnOnce() -> SeqNo) -> TimeMarks {
        if self.is_on() {
            self.advance(visible);
        }
        lock(&self.state).marks.clone()
    }

    /// How long it takes until everything before `seqno` has expired; `None` if nothing expires.
    pub(crate) fn time_to(&self, seqno: SeqNo) -> Option<Duration> {
        let state = lock(&self.state);
        let at = state.marks.expires_at(seqno, millis(state.ttl?))?;
        Some(Duration::from_millis(at.saturating_sub(self.clock.unix_millis())))
    }
}

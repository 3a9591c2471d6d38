//! A write rate limit shared by all background jobs, and the rule for when it applies.
//!
//! Work that a caller waits for is not limited:
//! 1. Recovery and loads: the caller that opens the store, or loads, waits for it.
//! 2. Every job of a store without background threads, because it runs inside a call.
//! 3. A flush while any caller waits for background work.
//! 4. Other jobs while a caller waits for more than flushes; and while one waits for a flush that
//!    has not begun to write, because the worker that it needs may be at another job.
//!
//! Waiting callers hold a [`WaitingCaller`], without which no wait for background work can be
//! written (`Engine::wait_for_state`). A job delayed by the limit continues as soon as a caller
//! waits for it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use trommel_vfs::WriteFile;

use crate::env;
use crate::sync::{AtomicU64, Condvar, Mutex, lock, wait_until};
use crate::user_filters::FilterReason;

/// Longest delay of one append, so that a raised or lifted limit is noticed.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The work that a caller waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AwaitedWork {
    /// Flushes.
    Flushes,
    /// All background work.
    All,
}

/// Waiting callers, files being written, and the bytes granted.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    /// The limit in bytes per second; 0 for none.
    limit: AtomicU64,
    state: Mutex<LimiterState>,
    /// Signalled when a caller begins to wait, and when no flush is writing any more.
    changed: Condvar,
    /// Bytes to which the limit was applied.
    limited_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct LimiterState {
    /// When the bytes granted so far will have been written at the granted rate.
    due: Option<Instant>,
    /// Callers waiting for flushes only.
    await_flushes: usize,
    /// Callers waiting for more.
    await_all: usize,
    /// Files being written by flushes.
    flush_files: usize,
}

impl LimiterState {
    /// Whether a caller waits for files written for this `reason`: the rule at the head of this
    /// file.
    fn is_awaited(&self, reason: FilterReason) -> bool {
        match reason {
            FilterReason::Recovery | FilterReason::Load => true,
            FilterReason::Flush => self.await_flushes > 0 || self.await_all > 0,
            FilterReason::Compaction | FilterReason::Rebuild => {
                self.await_all > 0 || self.await_flushes > 0 && self.flush_files == 0
            }
        }
    }

    fn callers(&mut self, work: AwaitedWork) -> &mut usize {
        match work {
            AwaitedWork::Flushes => &mut self.await_flushes,
            AwaitedWork::All => &mut self.await_all,
        }
    }

    /// Reserves `bytes` at `bytes_per_second`; returns when they may be written.
    fn book(&mut self, bytes: u64, bytes_per_second: u64, now: Instant) -> Instant {
        let cost = Duration::from_secs_f64(bytes as f64 / bytes_per_second as f64);
        let start = self.due.unwrap_or(now).max(now);
        self.due = Some(start + cost.min(LONGEST_WAIT));
        start.min(now + LONGEST_WAIT)
    }
}

/// A caller waiting for background work, which is not limited until this value is dropped.
#[derive(Debug)]
pub(crate) struct WaitingCaller<'a> {
    limiter: &'a Limiter,
    work: AwaitedWork,
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        *lock(&self.limiter.state).callers(self.work) -= 1;
    }
}

impl Limiter {
    /// Limits background writes to `bytes_per_second` from now on.
    pub(crate) fn set_limit(&self, bytes_per_second: Option<u64>) {
        self.limit.store(bytes_per_second.unwrap_or(0), Relaxed);
    }

    /// The limit in bytes per second.
    fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Relaxed)).filter(|limit| *limit > 0)
    }

    /// Registers a caller that waits for this work. Must be called before the work is requested,
    /// because it may begin at once.
    pub(crate) fn awaits(&self, work: AwaitedWork) -> WaitingCaller<'_> {
        *lock(&self.state).callers(work) += 1;
        self.changed.notify_all();
        WaitingCaller { limiter: self, work }
    }

    /// Bytes to which the limit was applied since the store was opened.
    pub(crate) fn limited_bytes(&self) -> u64 {
        self.limited_bytes.load(Relaxed)
    }

    /// Resets the count of limited bytes.
    pub(crate) fn reset_limited_bytes(&self) {
        self.limited_bytes.store(0, Relaxed);
    }

    /// Waits until `bytes` more may be written for this `reason`.
    fn wait_for(&self, bytes: u64, bytes_per_second: u64, reason: FilterReason) {
        let mut state = lock(&self.state);
        if state.is_awaited(reason) {
            return;
        }
        self.limited_bytes.fetch_add(bytes, Relaxed);
        let start = state.book(bytes, bytes_per_second, env::now());
        while !state.is_awaited(reason) && env::now() < start {
            state = wait_until(&self.changed, state, start);
        }
    }

    fn note_file(&self, reason: FilterReason, change: impl FnOnce(&mut usize)) {
        if reason == FilterReason::Flush {
            change(&mut lock(&self.state).flush_files);
            self.changed.notify_all();
        }
    }
}

/// Bytes written to a limited file at once, for an even rate: an eighth of a second's worth, within
/// these bounds.
const SMALLEST_PIECE: u64 = 512;
const LARGEST_PIECE: u64 = 64 << 10;

/// A file whose appends obey the current limit.
#[derive(Debug)]
pub(crate) struct LimitedFile {
    file: Box<dyn WriteFile>,
    limiter: Arc<Limiter>,
    /// Why it is written.
    reason: FilterReason,
}

impl LimitedFile {
    pub(crate) fn new(
        file: Box<dyn WriteFile>,
        limiter: &Arc<Limiter>,
        reason: FilterReason,
    ) -> Self {
        limiter.note_file(reason, |files| *files += 1);
        Self { file, limiter: Arc::clone(limiter), reason }
    }
}

impl Drop for LimitedFile {
    fn drop(&mut self) {
        self.limiter.note_file(self.reason, |files| *files -= 1);
    }
}

impl WriteFile for LimitedFile {
    fn append(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(limit) = self.limiter.limit() else { return self.file.append(rest) };
            let largest = (limit / 8).clamp(SMALLEST_PIECE, LARGEST_PIECE);
            let (piece, behind) = rest.split_at(largest.min(rest.len() as u64) as usize);
            self.limiter.wait_for(piece.len() as u64, limit, self.reason);
            self.file.append(piece)?;
            rest = behind;
        }
        Ok(())
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.file.sync()
    }

    fn start_write_back(&mut self) {
        self.file.start_write_back();
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

#[cfg(test)]
mod tests;

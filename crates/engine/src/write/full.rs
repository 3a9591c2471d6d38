//! Freezes a full memtable when no further write does.
//!
//! A write freezes a full memtable before it adds to it. After the last write, one large batch, or
//! a lowered limit, the memtable would stay over its limit until the next write. So it is checked
//! 1. after each group was inserted, and when a caller that led alone is done;
//! 2. after each background job, because writers may have been stopped until then;
//! 3. when the options were changed, and by callers that wait until the store is idle.
//!
//! The thread that finds it full leads for a moment and freezes it. If another thread leads, that
//! one makes room before it writes, or checks after it has written, so nothing waits. While writers
//! would be stopped, nothing is frozen.

use super::commit::Turnstile;
use crate::engine::Engine;
use crate::error::Result;
use crate::sync::lock;
use crate::view::LoggedMemtable;

impl Engine {
    /// Freezes the active memtable if `active` has reached `limit`, as by
    /// [`Engine::freeze_full`].
    #[inline]
    pub(super) fn freeze_if_full(&self, active: &LoggedMemtable, limit: u64) {
        if active.memory_bytes() >= limit {
            self.freeze_full();
        }
    }

    /// Freezes the active memtable if it is full and no thread leads; returns whether it did. Its
    /// flush is then due, and runs here if the store has no threads; its outcome is recorded as for
    /// any flush.
    #[cold]
    #[inline(never)]
    pub(crate) fn freeze_full(&self) -> bool {
        let limit = self.options.load().memtable_limit();
        let is_full = self.view.load().active.memory_bytes() >= limit;
        if !is_full || self.access.check_writable().is_err() || !self.writes.queue.leads_at_once() {
            return false;
        }
        // A failure leaves the memtable as it is for the next write, or has poisoned the store.
        let is_frozen = self.freeze_in_turn().unwrap_or(false);
        if is_frozen {
            self.background.note_full();
            // A failed flush is not the writer's error: it is retried, or has poisoned the store.
            let _ = self.work_inline();
        }
        is_frozen
    }

    /// Freezes the active memtable if no thread leads, so that it is flushed.
    pub(crate) fn freeze_at_rest(&self) {
        if self.access.check_writable().is_ok() && self.writes.queue.leads_at_once() {
            let _turnstile = Turnstile::new(self);
            let mut leader = lock(&self.writes.leader);
            if !self.stops(&self.view.load()) {
                // A failure has poisoned the store, or leaves the memtable for the next write.
                let _ = self.rotate(&mut leader);
            }
        }
    }

    /// As `freeze_full`, by a caller at the head of the queue, which then leaves it.
    fn freeze_in_turn(&self) -> Result<bool> {
        let _turnstile = Turnstile::new(self);
        let mut leader = lock(&self.writes.leader);
        leader.marks.keep_up_with(&self.options);
        if !leader.is_full() || leader.active.is_empty() || self.stops(&self.view.load()) {
            return Ok(false);
        }
        self.rotate(&mut leader)?;
        Ok(true)
    }
}

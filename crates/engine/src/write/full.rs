//! Freezing a memtable that is full when no write comes that would.
//!
//! A write freezes a full memtable before it adds to it. The last write, one large batch, or a
//! limit that is lowered would leave one that is over its limit for as long as nobody writes. So
//! whether it is full is looked at
//! 1. after each group was inserted, and when a caller that led alone has ended;
//! 2. after each background job, as writers may have been stopped before it;
//! 3. when the options were changed, and by callers that wait until the store rests.
//!
//! Whoever finds it so leads for a moment and freezes it. Where somebody else leads, that one makes
//! room before it writes, or looks when it has written: nobody is waited for. While writers would
//! be stopped, nothing is frozen.

use trommel_memtable::Memtable;

use super::commit::Turnstile;
use crate::engine::Engine;
use crate::error::Result;
use crate::sync::lock;

impl Engine {
    /// Freezes `memtable` if it has reached this limit, as [`Engine::freeze_full`] does, where it
    /// is the active one.
    #[inline]
    pub(super) fn freeze_if_full(&self, memtable: &Memtable, limit: u64) {
        if memtable.memory_bytes() as u64 >= limit {
            self.freeze_full();
        }
    }

    /// Freezes the active memtable if it is full and nobody leads; whether it did. Its flush is
    /// then due, and done where the store has no threads; how that ends is noted where others look
    /// for it.
    #[cold]
    #[inline(never)]
    pub(crate) fn freeze_full(&self) -> bool {
        let limit = self.options.load().memtable_limit();
        let is_full = self.view.load().active.memtable.memory_bytes() as u64 >= limit;
        if !is_full || self.access.check_writable().is_err() || !self.writes.queue.leads_at_once() {
            return false;
        }
        // A failure leaves the memtable as it is, for the next write, or has poisoned the store.
        let is_frozen = self.freeze_in_turn().unwrap_or(false);
        if is_frozen {
            self.background.note_full();
            // Who wrote is not told of a flush that fails: it is tried again, or has poisoned the
            // store.
            let _ = self.work_inline();
        }
        is_frozen
    }

    /// The same, by a caller at the head of the queue, which it leaves.
    fn freeze_in_turn(&self) -> Result<bool> {
        let _turnstile = Turnstile::new(self);
        let mut leader = lock(&self.writes.leader);
        leader.marks.keep_up_with(&self.options);
        if !leader.is_full() || leader.active.memtable.is_empty() || self.stops(&self.view.load()) {
            return Ok(false);
        }
        self.rotate(&mut leader)?;
        Ok(true)
    }
}

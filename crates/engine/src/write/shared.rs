//! Writes to stores whose memtables share one memory budget.
//!
//! 1. If the active memtables of all stores take too much, the largest is frozen: at once if
//!    nothing writes to its store, otherwise by the next writer there, because a worker must not
//!    wait for writers that may wait for it.
//! 2. While all memtables take more than half of the ceiling, each write is slowed.

use std::sync::atomic::Ordering;

use super::commit::Turnstile;
use crate::compaction::pressure::Cause;
use crate::engine::Engine;
use crate::env;
use crate::error::Result;
use crate::sync::lock;
use crate::write_queue::{LONGEST_DELAY, Leader};

/// The outcome of freezing a memtable for the sake of other stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freezing {
    /// It was frozen, or cannot or need not be.
    Done,
    /// The next writer freezes it.
    Soon,
}

impl Engine {
    /// Bytes of the active memtable.
    pub(crate) fn active_bytes(&self) -> u64 {
        self.view.load().active.memory_bytes()
    }

    /// Freezes the active memtable for the sake of other stores. Waits for no writer.
    pub(crate) fn freeze_for_others(&self) -> Freezing {
        if self.has_no_room_to_freeze() {
            return Freezing::Done;
        }
        self.writes.freeze_soon.store(true, Ordering::Relaxed);
        if !self.writes.queue.leads_at_once() {
            return Freezing::Soon;
        }
        let _turnstile = Turnstile::new(self);
        if self.access.check_open().is_ok()
            && self.writes.freeze_soon.swap(false, Ordering::Relaxed)
        {
            // An error that prevents freezing also stops the writers, which get it.
            let _ = self.rotate(&mut lock(&self.writes.leader));
        }
        Freezing::Done
    }

    fn has_no_room_to_freeze(&self) -> bool {
        self.view.load().frozen.len() >= self.options.load().writes.max_frozen_memtables
    }

    /// Whether a writer has to freeze or slow down for other stores before it writes.
    pub(super) fn must_relieve_others(&self) -> bool {
        self.writes.freeze_soon.load(Ordering::Relaxed) || self.memory.shares.memtables_are_heavy()
    }

    /// Freezes or slows down for other stores.
    pub(super) fn relieve_others(&self, leader: &mut Leader) -> Result<()> {
        if self.writes.freeze_soon.swap(false, Ordering::Relaxed) && !self.has_no_room_to_freeze() {
            self.rotate(leader)?;
            self.work_inline()?;
        }
        if self.memory.shares.memtables_are_heavy() {
            self.stall(Cause::Memtables, |_| {
                env::sleep(LONGEST_DELAY);
                Ok(())
            })?;
        }
        Ok(())
    }
}

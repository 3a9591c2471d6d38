//! The state of the write path: the queue of writers, what its leader alone touches, and the logs
//! that were rotated out.
//!
//! The engine holds it, and [`write`](crate::write) is what is done with it. It knows a memtable
//! and a log, and neither the engine nor why writers are held up.

mod awaited;
mod leader;
mod queue;
mod rotated;

use crate::sync::{AtomicBool, Mutex};

pub(crate) use awaited::Awaited;
pub(crate) use leader::{LONGEST_DELAY, Leader};
pub(crate) use queue::{Group, Member, Place, Queue, Turn, Wanted, done, fail, hand_out};
pub(crate) use rotated::RotatedLogs;

/// The state of the write path of an open store.
#[derive(Debug)]
pub(crate) struct WritePath {
    /// The writers who wait for their turn.
    pub(crate) queue: Queue,
    /// What the writer at the head of the queue alone touches.
    pub(crate) leader: Mutex<Leader>,
    /// Logs that were rotated out and are still needed.
    pub(crate) rotated: RotatedLogs,
    /// Those who wait for a moment to be visible, or for the end of all writes.
    pub(crate) publication: Awaited,
    /// Whether the next writer is to freeze the memtable, for the sake of other stores.
    pub(crate) freeze_soon: AtomicBool,
}

impl WritePath {
    /// Nobody writes yet.
    pub(crate) fn new(leader: Leader) -> Self {
        Self {
            queue: Queue::default(),
            leader: Mutex::new(leader),
            rotated: RotatedLogs::default(),
            publication: Awaited::new(),
            freeze_soon: AtomicBool::new(false),
        }
    }
}

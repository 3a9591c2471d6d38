//! The state of the write path: the queue of writers, the leader's state, and the logs that were
//! rotated out.
//!
//! The engine owns it, and [`write`](crate::write) operates on it. It knows a memtable and a log,
//! but neither the engine nor why writers are stalled.

mod leader;
mod notifier;
mod queue;
mod rotated;

use crate::sync::{AtomicBool, AtomicU64, Mutex};

pub(crate) use leader::{LONGEST_DELAY, Leader};
pub(crate) use notifier::Notifier;
pub(crate) use queue::{
    CommitGroup, Joined, Member, Queue, Wanted, WriteTerms, WriterTurn, done, fail, hand_out,
};
pub(crate) use rotated::RotatedLogs;

/// The state of the write path of an open store.
#[derive(Debug)]
pub(crate) struct WritePath {
    /// The writers waiting for their turn.
    pub(crate) queue: Queue,
    /// State that only the queue's leader uses.
    pub(crate) leader: Mutex<Leader>,
    /// Logs that were rotated out and are still needed.
    pub(crate) rotated: RotatedLogs,
    /// Waiters for a sequence number to become visible, or for all writes to end.
    pub(crate) publication: Notifier,
    /// The last sequence number of the newest sync of all logs: everything up to it is durable.
    pub(crate) synced: AtomicU64,
    /// Whether the next writer must freeze the memtable for the sake of other stores.
    pub(crate) freeze_soon: AtomicBool,
    /// Whether operands may be written: there is a merge operator, and its name is recorded.
    pub(crate) takes_operands: AtomicBool,
    /// Held while sorted entries are loaded: each load reserves a sequence number.
    pub(crate) loading: Mutex<()>,
    /// Held while a load creates a table, by a thread that closing does not wait for.
    pub(crate) creating: Mutex<()>,
}

impl WritePath {
    /// The state before any write.
    pub(crate) fn new(leader: Leader) -> Self {
        Self {
            queue: Queue::default(),
            leader: Mutex::new(leader),
            rotated: RotatedLogs::default(),
            publication: Notifier::new(),
            synced: AtomicU64::new(0),
            freeze_soon: AtomicBool::new(false),
            takes_operands: AtomicBool::new(false),
            loading: Mutex::default(),
            creating: Mutex::default(),
        }
    }
}

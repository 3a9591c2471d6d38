//! The write path: a writer queues its batch; the one at the head of the queue leads: it makes
//! room, and puts the whole group into the log. Where batches are small it then inserts all of them
//! into the memtable and publishes the group; where they are large it hands every member its
//! sequence numbers, members insert in parallel, and the last one publishes.
//!
//! Invariants:
//! 1. One leader at a time; sequence numbers and log records come in the order of the queue.
//! 2. A group inserts only after the one before it is published, so moments come in order.
//! 3. The memtable is frozen by a leader, between groups: all its writes are published.
//! 4. Nothing is visible that is not in the log at its durability.
//! 5. A failure in the log, or a panic while inserting, poisons the store; nothing later is
//!    acknowledged.

mod commit;
mod full;
#[cfg(test)]
mod full_tests;
mod rotate;
mod shared;
mod stall;

pub(crate) use shared::Freezing;

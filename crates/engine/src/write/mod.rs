//! The write path. A writer queues its batch; the writer at the head of the queue leads: it makes
//! room, and appends the whole group to the log. If batches are small, the leader then inserts all
//! of them into the memtable and publishes the group. If they are large, it hands each member its
//! sequence numbers, the members insert in parallel, and the last one publishes.
//!
//! Invariants:
//! 1. There is one leader at a time; sequence numbers and log records follow the queue's order.
//! 2. A group inserts only after the one before it is published, so sequence numbers become visible
//!    in order.
//! 3. The memtable is frozen by a leader, between groups: all its writes are published.
//! 4. Nothing is visible that is not in the log at its durability.
//! 5. The conditions of a member are checked against all writes before it, including those of its
//!    own group; if they do not hold, nothing of it is logged.
//! 6. A failure in the log, or a panic while inserting, poisons the store; nothing later is
//!    acknowledged.

mod commit;
mod conditional;
#[cfg(test)]
mod conditional_tests;
mod full;
#[cfg(test)]
mod full_tests;
#[cfg(test)]
mod kind_tests;
mod operands;
mod part;
mod rotate;
mod shared;
mod stall;
mod time_mark;

pub(crate) use shared::Freezing;

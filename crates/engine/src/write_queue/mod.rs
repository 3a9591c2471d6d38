//! The state of the write path: the queue of writers, what its leader alone touches, and the logs
//! that were rotated out.
//!
//! The engine holds it, and [`write`](crate::write) is what is done with it. It knows a memtable
//! and a log, and neither the engine nor why writers are held up.

mod awaited;
mod leader;
mod queue;
mod rotated;

pub(crate) use awaited::Awaited;
pub(crate) use leader::{LONGEST_DELAY, Leader};
pub(crate) use queue::{Group, Member, Place, Queue, Turn, Wanted, done, fail, hand_out};
pub(crate) use rotated::RotatedLogs;

//! Time marks before the writes that they cover: see [`expiry`](crate::expiry).

use trommel_base::MAX_SEQNO;

use crate::batch::{Batch, OpKind};
use crate::engine::Engine;
use crate::error::Result;
use crate::write_queue::Leader;

impl Engine {
    /// Logs a time mark, if the next write needs one. It is a record of its own.
    #[cold]
    #[inline(never)]
    pub(super) fn mark_time(&self, leader: &mut Leader) -> Result<()> {
        match self.snapshots.expiry.next_mark() {
            Some(until) => self.log_mark(leader, until),
            None => Ok(()),
        }
    }

    /// Logs and adds a time mark: writes from now on are made no later than `until`.
    pub(crate) fn log_mark(&self, leader: &mut Leader, until: u64) -> Result<()> {
        if leader.last_seqno >= MAX_SEQNO {
            // The write is about to be refused.
            return Ok(());
        }
        self.wait_published(leader.last_seqno)?;
        let seqno = leader.last_seqno + 1;
        if let Some(log) = &mut leader.log {
            let until = until.to_le_bytes();
            if self.writes.rotated.is_empty() {
                log.set_previous_durable();
            }
            let mark = Batch::one(OpKind::TimeMark, &until, &[])?;
            let logged = mark.encoded(|pieces| log.push(seqno, pieces));
            logged.and_then(|()| log.commit()).map_err(|error| self.poison(error))?;
        }
        leader.last_seqno = seqno;
        // Before anything that it covers is visible.
        self.snapshots.expiry.add(seqno, until);
        self.publish(seqno);
        Ok(())
    }
}

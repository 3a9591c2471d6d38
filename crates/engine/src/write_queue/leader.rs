//! The state of the queue's leader, and the pace of slowed writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use trommel_base::SeqNo;

use crate::counters::{Counters, Shard};
use crate::current::{CurrentOptions, Marks};
use crate::log::LogWriter;
use crate::view::LoggedMemtable;

/// Shortest sleep that slows a writer; smaller debts of time add up first.
const SHORTEST_DELAY: Duration = Duration::from_millis(1);
/// Longest sleep of one write, so that a change of pressure is noticed.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_millis(20);

/// How far writers are ahead of their granted rate.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the bytes written so far would have been written at the granted rate.
    due: Option<Instant>,
}

impl Pace {
    /// How long to wait before writing `bytes` more at `rate` bytes per second.
    pub(crate) fn charge(&mut self, bytes: u64, rate: u64, now: Instant) -> Option<Duration> {
        let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let due = self.due.unwrap_or(now).max(now) + cost.min(Duration::from_secs(1));
        self.due = Some(due);
        let ahead = due - now;
        (ahead >= SHORTEST_DELAY).then(|| ahead.min(LONGEST_DELAY))
    }
}

/// State that only the leader of the write queue uses.
#[derive(Debug)]
pub(crate) struct Leader {
    /// The active memtable, the same as the view's. Only a leader, or recovery, replaces it.
    pub(crate) active: Arc<LoggedMemtable>,
    /// Its log; `None` if the store keeps no log.
    pub(crate) log: Option<LogWriter>,
    /// The last sequence number given out.
    pub(crate) last_seqno: SeqNo,
    /// The option values it needs.
    pub(crate) marks: Marks,
    /// Its shard of the counters.
    pub(crate) counts: Arc<Shard>,
    /// The pace of slowed writes.
    pub(crate) pace: Pace,
}

impl Leader {
    /// The leader of a store whose last operation had sequence number `last_seqno`, without a log
    /// yet.
    pub(crate) fn new(
        active: Arc<LoggedMemtable>,
        last_seqno: SeqNo,
        options: &CurrentOptions,
        counters: &Counters,
    ) -> Self {
        let (marks, pace) = (Marks::of(options), Pace::default());
        Self { active, log: None, last_seqno, marks, counts: counters.claim(), pace }
    }

    /// The log of the active memtable; `None` if the store keeps no log.
    pub(crate) fn log(&self) -> Option<&LogWriter> {
        self.log.as_ref()
    }

    /// Makes this the memtable that writes go to.
    pub(crate) fn write_to(&mut self, active: Arc<LoggedMemtable>) {
        self.active = active;
    }

    /// Takes over the state that recovery has built.
    pub(crate) fn start(
        &mut self,
        active: Arc<LoggedMemtable>,
        log: Option<LogWriter>,
        last_seqno: SeqNo,
    ) {
        (self.active, self.log, self.last_seqno) = (active, log, last_seqno);
    }

    /// Whether the active memtable has reached its limit.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.active.memory_bytes() >= self.marks.memtable_limit
    }
}

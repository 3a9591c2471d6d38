//! The queue of writers: which one leads, which wait, which insert.
//!
//! A writer that finds the queue empty leads at once, without allocating anything for others: a
//! lone writer takes no memory here and no lock, unless it is slowed, and changes one word when it
//! enters and when it leaves.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_base::SeqNo;

use crate::batch::{Batch, Condition};
use crate::error::Error;
use crate::sync::{
    AtomicUsize, Condvar, Mutex, SlowYields, lock, look_out, quiet, wait, yields_quickly,
};
use crate::view::{LoggedMemtable, Since};

/// Most bytes of batches that one group takes (but always at least one batch).
const GROUP_BYTES: usize = 1 << 20;

/// Times that a leader yields to other threads before it syncs.
const YIELDS_MAX: usize = 64;

/// The notification of a waiting writer.
#[derive(Debug)]
pub(crate) enum WriterTurn {
    /// Nothing yet.
    Wait,
    /// It is at the head of the queue.
    Lead,
    /// Its batch is in the log: insert it, with this number for its first operation.
    Insert(Arc<CommitGroup>, SeqNo),
    /// Its batch is written and visible; its last operation has this number.
    Written(SeqNo),
    /// Its batch is not acknowledged. It may be in the log nevertheless.
    Failed(Error),
}

/// A writer's request.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// Its batch; `None` to lead without a batch.
    pub(crate) batch: Option<Batch<'a>>,
    /// Whether the log must be durable before the write returns.
    pub(crate) sync: bool,
    /// Its conditions, if it has any.
    pub(crate) terms: Option<Box<WriteTerms<'a>>>,
}

/// The conditions of a write.
#[derive(Debug)]
pub(crate) struct WriteTerms<'a> {
    pub(crate) conditions: Cow<'a, [Condition]>,
    /// They held at this moment.
    pub(crate) since: Since,
}

impl Wanted<'_> {
    /// No write: to lead without a batch, or in place of a write that was refused.
    pub(crate) const NOTHING: Wanted<'static> = Wanted { batch: None, sync: false, terms: None };

    /// Operations in the batch.
    pub(crate) fn operations(&self) -> u64 {
        self.batch.as_ref().map_or(0, |batch| u64::from(batch.count()))
    }

    /// The sequence number of the batch's last operation, if the first has number `first`.
    #[inline]
    pub(crate) fn last_seqno(&self, first: SeqNo) -> SeqNo {
        first + self.operations() - 1
    }

    /// Bytes of the batch's keys and values.
    pub(crate) fn user_bytes(&self) -> u64 {
        self.batch.as_ref().map_or(0, Batch::user_bytes)
    }

    /// Bytes of the batch as the log stores it.
    pub(crate) fn bytes(&self) -> usize {
        self.batch.as_ref().map_or(0, Batch::bytes)
    }

    /// An owned copy, for a writer that waits while another thread reads it.
    fn into_owned(self) -> Wanted<'static> {
        let terms = self.terms.map(|terms| {
            let WriteTerms { conditions, since } = *terms;
            Box::new(WriteTerms { conditions: Cow::Owned(conditions.into_owned()), since })
        });
        Wanted { batch: self.batch.map(Batch::into_owned), sync: self.sync, terms }
    }
}

/// A writer's position after joining the queue.
#[derive(Debug)]
pub(crate) enum Joined<'a> {
    /// At the head: it leads.
    First(Wanted<'a>),
    /// After others, until its turn.
    Queued(Arc<Member>),
}

/// A writer that has to wait.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) wanted: Wanted<'static>,
    notification: Mutex<Notification>,
    changed: Condvar,
    /// Whether it was notified: a hint, checked before it sleeps.
    is_notified: quiet::AtomicBool,
}

/// A member's notification.
#[derive(Debug)]
struct Notification {
    turn: WriterTurn,
    /// Whether it sleeps until it is woken.
    sleeps: bool,
}

impl Member {
    fn new(wanted: Wanted<'static>) -> Arc<Self> {
        let notification = Mutex::new(Notification { turn: WriterTurn::Wait, sleeps: false });
        let is_notified = quiet::AtomicBool::new(false);
        Arc::new(Self { wanted, notification, changed: Condvar::new(), is_notified })
    }

    /// Ends its wait.
    pub(crate) fn notify(&self, turn: WriterTurn) {
        let mut notification = lock(&self.notification);
        notification.turn = turn;
        let sleeps = notification.sleeps;
        // The member would block on it as soon as it wakes.
        drop(notification);
        self.is_notified.store(true, Ordering::Release);
        // A wake-up is a system call, whether or not the member sleeps.
        if sleeps {
            self.changed.notify_one();
        }
    }

    /// Waits for its turn.
    pub(crate) fn wait(&self) -> WriterTurn {
        // A sync takes so long that it is better to sleep at once.
        if !self.wanted.sync {
            look_out(|| self.is_notified.load(Ordering::Acquire));
        }
        let mut notification = lock(&self.notification);
        notification.sleeps = true;
        while matches!(notification.turn, WriterTurn::Wait) {
            notification = wait(&self.changed, notification);
        }
        std::mem::replace(&mut notification.turn, WriterTurn::Wait)
    }
}

/// Batches that were logged together and become visible together.
#[derive(Debug)]
pub(crate) struct CommitGroup {
    pub(crate) active: Arc<LoggedMemtable>,
    /// Bytes at which the memtable is full.
    pub(crate) memtable_limit: u64,
    pub(crate) last_seqno: SeqNo,
    /// Members that have not inserted yet.
    remaining: AtomicUsize,
    /// Whether a member died before it had inserted, so that the group never becomes visible.
    is_broken: quiet::AtomicBool,
}

impl CommitGroup {
    pub(crate) fn new(
        active: Arc<LoggedMemtable>,
        memtable_limit: u64,
        members: usize,
        last_seqno: SeqNo,
    ) -> Arc<Self> {
        let (remaining, is_broken) = (AtomicUsize::new(members), quiet::AtomicBool::new(false));
        Arc::new(Self { active, memtable_limit, last_seqno, remaining, is_broken })
    }

    /// Notes that one member has inserted; true for the last one.
    pub(crate) fn inserted(&self) -> bool {
        self.remaining.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Marks that a member will not insert; waiters are to be notified after that.
    pub(crate) fn break_up(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }
}

/// How a leader's wait for other writers ended.
#[derive(Debug, PartialEq)]
enum GatherOutcome {
    /// No further writer came, and the yield was quick; or as many came as are waited for.
    Enough,
    /// No further writer came, and the yield was slow: threads that do not write are running.
    SlowlyNobody,
}

/// Writers in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// [`EMPTY`], [`LED`] or [`AWAITED`]. It changes to or from `AWAITED` only under the line's
    /// lock, so under the lock it shows whether the line is empty.
    state: AtomicUsize,
    line: Mutex<Line>,
}

/// No leader, so no waiters.
const EMPTY: usize = 0;
/// A leader, and no waiters.
const LED: usize = 1;
/// A leader, and waiters.
const AWAITED: usize = 2;

/// The writers waiting for the leader.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Arc<Member>>,
}

impl Queue {
    /// Joins the queue if it is empty: the caller then leads.
    #[inline]
    pub(crate) fn leads_at_once(&self) -> bool {
        self.changes(EMPTY, LED)
    }

    /// Joins the queue.
    pub(crate) fn join<'a>(&self, wanted: Wanted<'a>) -> Joined<'a> {
        if self.leads_at_once() {
            return Joined::First(wanted);
        }
        // Allocated before the lock is taken, because the leader needs the lock.
        self.join_line(wanted.into_owned())
    }

    fn join_line(&self, wanted: Wanted<'static>) -> Joined<'static> {
        let mut line = lock(&self.line);
        // While none wait, the leader may leave at any time, and another may come.
        while self.state.load(Ordering::Acquire) != AWAITED && !self.changes(LED, AWAITED) {
            if self.changes(EMPTY, LED) {
                return Joined::First(wanted);
            }
        }
        let member = Member::new(wanted);
        line.waiting.push_back(Arc::clone(&member));
        Joined::Queued(member)
    }

    /// Changes the state from `from` to `to`; false if it is another.
    fn changes(&self, from: usize, to: usize) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Yields for as long as each yield brings another writer to the queue: the members of the
    /// group before have just been woken and may write again. A sync takes far longer than this.
    /// Without it, they would arrive during the sync of a single writer.
    pub(crate) fn gather(&self) {
        static SLOW: SlowYields = SlowYields::none();
        if !SLOW.are_near() && self.gather_while(yields_quickly) == GatherOutcome::SlowlyNobody {
            SLOW.note();
        }
    }

    /// Number of writers waiting for the leader.
    pub(crate) fn waiting(&self) -> usize {
        if self.state.load(Ordering::Acquire) != AWAITED {
            return 0;
        }
        lock(&self.line).waiting.len()
    }

    fn gather_while(&self, mut others_run_quickly: impl FnMut() -> bool) -> GatherOutcome {
        let mut before = self.waiting();
        for _ in 0..YIELDS_MAX {
            let is_quick = others_run_quickly();
            let now = self.waiting();
            if now <= before {
                return if is_quick { GatherOutcome::Enough } else { GatherOutcome::SlowlyNobody };
            }
            before = now;
        }
        GatherOutcome::Enough
    }

    /// The waiting writers whose batches can be logged with the leader's `own`.
    #[inline]
    pub(crate) fn followers(&self, own: &Wanted<'_>) -> Vec<Arc<Member>> {
        if self.state.load(Ordering::Acquire) != AWAITED {
            return Vec::new();
        }
        lock(&self.line).following(own).cloned().collect()
    }

    /// Bytes of the batches that the leader's group would hold.
    pub(crate) fn group_bytes(&self, own: &Wanted<'_>) -> u64 {
        let line = lock(&self.line);
        let followers = line.following(own).map(|member| member.wanted.bytes()).sum::<usize>();
        (own.bytes() + followers) as u64
    }

    /// Takes the leader and `followers` more off the queue, and lets the next one lead.
    #[inline]
    pub(crate) fn leave(&self, followers: usize) {
        if !self.changes(LED, EMPTY) {
            self.leave_line(followers);
        }
    }

    fn leave_line(&self, followers: usize) {
        let mut line = lock(&self.line);
        line.waiting.drain(..followers);
        let next = line.waiting.pop_front();
        let state = match &next {
            None => EMPTY,
            Some(_) if line.waiting.is_empty() => LED,
            Some(_) => AWAITED,
        };
        self.state.store(state, Ordering::Release);
        // The woken writer takes the lock soon, and so does the next to come.
        drop(line);
        if let Some(next) = next {
            next.notify(WriterTurn::Lead);
        }
    }
}

impl Line {
    fn following(&self, own: &Wanted<'_>) -> impl Iterator<Item = &Arc<Member>> {
        let mut bytes = own.bytes();
        let leads_alone = own.batch.is_none();
        self.waiting.iter().take_while(move |member| {
            bytes += member.wanted.bytes();
            !leads_alone && member.wanted.batch.is_some() && bytes <= GROUP_BYTES
        })
    }
}

/// Notifies the `followers` to insert; `first_seqno` is the number of their first operation.
pub(crate) fn hand_out(group: &Arc<CommitGroup>, followers: &[Arc<Member>], first_seqno: SeqNo) {
    let mut seqno = first_seqno;
    for member in followers {
        member.notify(WriterTurn::Insert(Arc::clone(group), seqno));
        seqno += member.wanted.operations();
    }
}

/// Notifies the `followers` that the whole group is written; `first_seqno` is the number of their
/// first operation.
pub(crate) fn done(followers: &[Arc<Member>], first_seqno: SeqNo) {
    let mut seqno = first_seqno;
    for member in followers {
        seqno += member.wanted.operations();
        member.notify(WriterTurn::Written(seqno - 1));
    }
}

/// Notifies the `followers` that nothing of the group is acknowledged.
pub(crate) fn fail(followers: &[Arc<Member>], error: &Error) {
    for member in followers {
        member.notify(WriterTurn::Failed(error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Wanted<'static> = Wanted::NOTHING;

    /// Simulates a wait in which one of `coming` writers joins at each yield, quick or slow.
    /// Returns the number of yields and how the wait ended.
    fn gathered(coming: usize, is_quick: bool) -> (usize, GatherOutcome) {
        let queue = Queue::default();
        assert!(matches!(queue.join(ALONE), Joined::First(_)));
        let mut turns = 0;
        let end = queue.gather_while(|| {
            turns += 1;
            if turns <= coming {
                assert!(matches!(queue.join(ALONE), Joined::Queued(_)));
            }
            is_quick
        });
        (turns, end)
    }

    #[test]
    fn a_leader_lets_others_run_as_long_as_they_come() {
        for is_quick in [true, false] {
            let end = if is_quick { GatherOutcome::Enough } else { GatherOutcome::SlowlyNobody };
            assert_eq!(gathered(0, is_quick).0, 1, "a lone writer is not kept");
            assert_eq!(gathered(3, is_quick), (4, end));
            let all = gathered(usize::MAX, is_quick);
            assert_eq!(all, (YIELDS_MAX, GatherOutcome::Enough), "it does lead in the end");
        }
    }

    #[test]
    fn yields_are_skipped_after_a_slow_one_for_a_while() {
        let slow = SlowYields::none();
        assert!(!slow.are_near());
        slow.note();
        let left_out = (0..1000).filter(|_| slow.are_near()).count();
        assert_eq!(left_out, 256);
    }
}

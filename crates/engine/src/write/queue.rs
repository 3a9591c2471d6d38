//! The queue of writers: who leads, who waits, who inserts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_base::SeqNo;
use trommel_memtable::Memtable;

use crate::batch::SealedBatch;
use crate::error::Error;
use crate::sync::{AtomicUsize, Condvar, Mutex, lock, wait};

/// Bytes of batches that one group takes at most (but always one batch).
const GROUP_BYTES: usize = 1 << 20;

/// What a waiting writer is told.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Not yet anything.
    Wait,
    /// It stands at the head of the queue.
    Lead,
    /// Its batch is in the log: insert it, its first operation having this number.
    Insert(Arc<Group>, SeqNo),
    /// Its batch is not written.
    Failed(Error),
}

/// A writer in the queue.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its batch; none for one that wants to be alone.
    pub(crate) batch: Option<SealedBatch>,
    /// Whether the log must be durable before it returns.
    pub(crate) sync: bool,
    turn: Mutex<Turn>,
    changed: Condvar,
}

impl Member {
    /// A member that stands in no queue.
    pub(crate) fn alone(batch: SealedBatch, sync: bool) -> Arc<Self> {
        Self::new(Some(batch), sync, Turn::Lead)
    }

    fn new(batch: Option<SealedBatch>, sync: bool, turn: Turn) -> Arc<Self> {
        Arc::new(Self { batch, sync, turn: Mutex::new(turn), changed: Condvar::new() })
    }

    fn tell(&self, turn: Turn) {
        *lock(&self.turn) = turn;
        self.changed.notify_one();
    }

    /// Waits for its turn.
    pub(crate) fn wait(&self) -> Turn {
        let mut turn = lock(&self.turn);
        while matches!(*turn, Turn::Wait) {
            turn = wait(&self.changed, turn);
        }
        std::mem::replace(&mut *turn, Turn::Wait)
    }
}

/// Batches that were logged together and become visible together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) last_seqno: SeqNo,
    /// Members that have not inserted yet.
    remaining: AtomicUsize,
}

impl Group {
    pub(crate) fn new(memtable: Arc<Memtable>, members: usize, last_seqno: SeqNo) -> Arc<Self> {
        Arc::new(Self { memtable, last_seqno, remaining: AtomicUsize::new(members) })
    }

    /// Notes that one member has inserted; true for the last one.
    pub(crate) fn inserted(&self) -> bool {
        self.remaining.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Writers in the order in which they came. The one at the head leads.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    members: Mutex<VecDeque<Arc<Member>>>,
}

impl Queue {
    /// Joins the queue.
    pub(crate) fn join(&self, batch: Option<SealedBatch>, sync: bool) -> Arc<Member> {
        let mut members = lock(&self.members);
        let turn = if members.is_empty() { Turn::Lead } else { Turn::Wait };
        let member = Member::new(batch, sync, turn);
        members.push_back(Arc::clone(&member));
        member
    }

    /// The leader and those behind it whose batches can be logged with its own.
    pub(crate) fn group(&self) -> Vec<Arc<Member>> {
        let members = lock(&self.members);
        let mut bytes = 0;
        let fits = |member: &&Arc<Member>| {
            let Some(batch) = &member.batch else { return false };
            let first = bytes == 0;
            bytes += batch.encoded().len();
            first || bytes <= GROUP_BYTES
        };
        members.iter().take_while(fits).cloned().collect()
    }

    /// Bytes of the batches that the next group would hold.
    pub(crate) fn group_bytes(&self) -> u64 {
        let batches = self.group();
        let bytes = |member: &Arc<Member>| member.batch.as_ref().map_or(0, |b| b.encoded().len());
        batches.iter().map(bytes).sum::<usize>() as u64
    }

    /// Takes the first `count` members, the leader among them, off the queue, and lets the next
    /// one lead.
    pub(crate) fn leave(&self, count: usize) {
        let mut members = lock(&self.members);
        members.drain(..count);
        if let Some(next) = members.front() {
            next.tell(Turn::Lead);
        }
    }
}

/// Tells the members behind the leader to insert, in the order of their numbers.
pub(crate) fn hand_out(group: &Arc<Group>, members: &[Arc<Member>], first_seqno: SeqNo) {
    let mut seqno = first_seqno;
    for (i, member) in members.iter().enumerate() {
        if i > 0 {
            member.tell(Turn::Insert(Arc::clone(group), seqno));
        }
        seqno += member.batch.as_ref().map_or(0, |batch| u64::from(batch.count()));
    }
}

/// Tells the members behind the leader that nothing was written.
pub(crate) fn fail(members: &[Arc<Member>], error: &Error) {
    for member in &members[1..] {
        member.tell(Turn::Failed(error.clone()));
    }
}

//! The queue of writers: who leads, who waits, who inserts.
//!
//! A writer that finds nobody before it leads at once, and nothing is made for others to know it
//! by: a lone writer takes no memory here and no lock, unless it is slowed, and changes one word
//! when it comes and when it leaves.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_base::SeqNo;
use trommel_memtable::Memtable;

use crate::batch::Batch;
use crate::error::Error;
use crate::sync::{
    AtomicUsize, Condvar, Mutex, SlowYields, lock, look_out, quiet, wait, yields_quickly,
};

/// Bytes of batches that one group takes at most (but always one batch).
const GROUP_BYTES: usize = 1 << 20;

/// Times that a leader lets others run before it syncs.
const YIELDS_MAX: usize = 64;

/// What a waiting writer is told.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Not yet anything.
    Wait,
    /// It stands at the head of the queue.
    Lead,
    /// Its batch is in the log: insert it, its first operation having this number.
    Insert(Arc<Group>, SeqNo),
    /// Its batch is written, and visible; its last operation has this number.
    Written(SeqNo),
    /// Its batch is not acknowledged. It may be in the log all the same.
    Failed(Error),
}

/// What a writer wants written.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// Its batch; none for one that wants to be alone.
    pub(crate) batch: Option<Batch<'a>>,
    /// Whether the log must be durable before it returns.
    pub(crate) sync: bool,
}

impl Wanted<'_> {
    /// Operations in the batch.
    pub(crate) fn operations(&self) -> u64 {
        self.batch.as_ref().map_or(0, |batch| u64::from(batch.count()))
    }

    /// The number of the batch's last operation, where that of the first is `first`.
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

    /// The same, for one who waits while others read it.
    fn into_owned(self) -> Wanted<'static> {
        Wanted { batch: self.batch.map(Batch::into_owned), sync: self.sync }
    }
}

/// Where a writer stands that has joined the queue.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    /// At the head: it leads.
    First(Wanted<'a>),
    /// Behind others, until it is its turn.
    Behind(Arc<Member>),
}

/// A writer that had to wait.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) wanted: Wanted<'static>,
    told: Mutex<Told>,
    changed: Condvar,
    /// Whether it was told anything: a hint, for one who looks before it sleeps.
    is_told: quiet::AtomicBool,
}

/// What a writer was told.
#[derive(Debug)]
struct Told {
    turn: Turn,
    /// Whether it sleeps until it is woken.
    sleeps: bool,
}

impl Member {
    fn new(wanted: Wanted<'static>) -> Arc<Self> {
        let told = Mutex::new(Told { turn: Turn::Wait, sleeps: false });
        let is_told = quiet::AtomicBool::new(false);
        Arc::new(Self { wanted, told, changed: Condvar::new(), is_told })
    }

    fn tell(&self, turn: Turn) {
        let mut told = lock(&self.told);
        told.turn = turn;
        let sleeps = told.sleeps;
        // What it would wait for as soon as it wakes.
        drop(told);
        self.is_told.store(true, Ordering::Release);
        // To wake is a system call, whether or not it sleeps.
        if sleeps {
            self.changed.notify_one();
        }
    }

    /// Waits for its turn.
    pub(crate) fn wait(&self) -> Turn {
        // A sync takes so long that it is better to sleep at once.
        if !self.wanted.sync {
            look_out(|| self.is_told.load(Ordering::Acquire));
        }
        let mut told = lock(&self.told);
        told.sleeps = true;
        while matches!(told.turn, Turn::Wait) {
            told = wait(&self.changed, told);
        }
        std::mem::replace(&mut told.turn, Turn::Wait)
    }
}

/// Batches that were logged together and become visible together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) memtable: Arc<Memtable>,
    /// Bytes at which that is full.
    pub(crate) memtable_limit: u64,
    pub(crate) last_seqno: SeqNo,
    /// Members that have not inserted yet.
    remaining: AtomicUsize,
    /// Whether a member died before it had inserted, so that the group never becomes visible.
    is_broken: quiet::AtomicBool,
}

impl Group {
    pub(crate) fn new(
        memtable: Arc<Memtable>,
        memtable_limit: u64,
        members: usize,
        last_seqno: SeqNo,
    ) -> Arc<Self> {
        let (remaining, is_broken) = (AtomicUsize::new(members), quiet::AtomicBool::new(false));
        Arc::new(Self { memtable, memtable_limit, last_seqno, remaining, is_broken })
    }

    /// Notes that one member has inserted; true for the last one.
    pub(crate) fn inserted(&self) -> bool {
        self.remaining.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Says that a member will not insert; who waits for the group is to be told after that.
    pub(crate) fn break_up(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }
}

/// How a leader's wait for others ended.
#[derive(Debug, PartialEq)]
enum Gathered {
    /// With nobody more, soon, or with as many as may be waited for.
    Enough,
    /// With nobody more, and late: threads run that are no writers.
    SlowlyNobody,
}

/// Writers in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// [`EMPTY`], [`LED`] or [`AWAITED`]. Only a writer that holds the line's lock takes it to
    /// `AWAITED` or from there, so under the lock it says whether the line is empty.
    state: AtomicUsize,
    line: Mutex<Line>,
}

/// Nobody leads, so nobody waits.
const EMPTY: usize = 0;
/// One leads, and nobody waits behind it.
const LED: usize = 1;
/// One leads, and others wait behind it.
const AWAITED: usize = 2;

/// Those that wait behind the one that leads.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Arc<Member>>,
}

impl Queue {
    /// Joins the queue if nobody is in it: the caller then leads.
    #[inline]
    pub(crate) fn leads_at_once(&self) -> bool {
        self.changes(EMPTY, LED)
    }

    /// Joins the queue.
    pub(crate) fn join<'a>(&self, wanted: Wanted<'a>) -> Place<'a> {
        if self.leads_at_once() {
            return Place::First(wanted);
        }
        // Made before the lock is taken, which whoever leads takes too.
        self.join_line(wanted.into_owned())
    }

    fn join_line(&self, wanted: Wanted<'static>) -> Place<'static> {
        let mut line = lock(&self.line);
        // Who leads may leave at any time while nobody waits, and somebody else come.
        while self.state.load(Ordering::Acquire) != AWAITED && !self.changes(LED, AWAITED) {
            if self.changes(EMPTY, LED) {
                return Place::First(wanted);
            }
        }
        let member = Member::new(wanted);
        line.waiting.push_back(Arc::clone(&member));
        Place::Behind(member)
    }

    /// Takes the state from one to another, if it is the one.
    fn changes(&self, from: usize, to: usize) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Lets others run for as long as that brings one of them to the queue: those of the group
    /// before have just been woken and may come again. A sync takes far longer than this, and
    /// without it they would find one under way that is a single writer's.
    pub(crate) fn gather(&self) {
        static SLOW: SlowYields = SlowYields::none();
        if !SLOW.are_near() && self.gather_while(yields_quickly) == Gathered::SlowlyNobody {
            SLOW.note();
        }
    }

    /// How many wait behind the leader.
    pub(crate) fn waiting(&self) -> usize {
        if self.state.load(Ordering::Acquire) != AWAITED {
            return 0;
        }
        lock(&self.line).waiting.len()
    }

    fn gather_while(&self, mut others_run_quickly: impl FnMut() -> bool) -> Gathered {
        let mut before = self.waiting();
        for _ in 0..YIELDS_MAX {
            let is_quick = others_run_quickly();
            let now = self.waiting();
            if now <= before {
                return if is_quick { Gathered::Enough } else { Gathered::SlowlyNobody };
            }
            before = now;
        }
        Gathered::Enough
    }

    /// Those behind the leader whose batches can be logged with its `own`.
    #[inline]
    pub(crate) fn followers(&self, own: &Wanted<'_>) -> Vec<Arc<Member>> {
        if self.state.load(Ordering::Acquire) != AWAITED {
            return Vec::new();
        }
        lock(&self.line).following(own).cloned().collect()
    }

    /// Bytes of the batches that the group of this leader would hold.
    pub(crate) fn group_bytes(&self, own: &Wanted<'_>) -> u64 {
        let line = lock(&self.line);
        let followers = line.following(own).map(|member| member.wanted.bytes()).sum::<usize>();
        (own.bytes() + followers) as u64
    }

    /// Takes the leader and as many `followers` off the queue, and lets the next one lead.
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
        // Who is woken takes it soon, and so does whoever comes.
        drop(line);
        if let Some(next) = next {
            next.tell(Turn::Lead);
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

/// Tells the `followers` to insert, in the order of their numbers, the first of which is given.
pub(crate) fn hand_out(group: &Arc<Group>, followers: &[Arc<Member>], first_seqno: SeqNo) {
    let mut seqno = first_seqno;
    for member in followers {
        member.tell(Turn::Insert(Arc::clone(group), seqno));
        seqno += member.wanted.operations();
    }
}

/// Reports to the `followers` that all of the group is written; the first of their operations has
/// the number `first_seqno`.
pub(crate) fn done(followers: &[Arc<Member>], first_seqno: SeqNo) {
    let mut seqno = first_seqno;
    for member in followers {
        seqno += member.wanted.operations();
        member.tell(Turn::Written(seqno - 1));
    }
}

/// Tells the `followers` that nothing of the group is acknowledged.
pub(crate) fn fail(followers: &[Arc<Member>], error: &Error) {
    for member in followers {
        member.tell(Turn::Failed(error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Wanted<'static> = Wanted { batch: None, sync: true };

    /// Of `coming` writers one joins each time the leader lets others run, quickly or not: how
    /// often it does, and how that ends.
    fn gathered(coming: usize, is_quick: bool) -> (usize, Gathered) {
        let queue = Queue::default();
        assert!(matches!(queue.join(ALONE), Place::First(_)));
        let mut turns = 0;
        let end = queue.gather_while(|| {
            turns += 1;
            if turns <= coming {
                assert!(matches!(queue.join(ALONE), Place::Behind(_)));
            }
            is_quick
        });
        (turns, end)
    }

    #[test]
    fn a_leader_lets_others_run_as_long_as_they_come() {
        for is_quick in [true, false] {
            let end = if is_quick { Gathered::Enough } else { Gathered::SlowlyNobody };
            assert_eq!(gathered(0, is_quick).0, 1, "a lone writer is not kept");
            assert_eq!(gathered(3, is_quick), (4, end));
            let all = gathered(usize::MAX, is_quick);
            assert_eq!(all, (YIELDS_MAX, Gathered::Enough), "it does lead in the end");
        }
    }

    #[test]
    fn yields_are_left_out_behind_a_slow_one_for_a_while() {
        let slow = SlowYields::none();
        assert!(!slow.are_near());
        slow.note();
        let left_out = (0..1000).filter(|_| slow.are_near()).count();
        assert_eq!(left_out, 256);
    }
}

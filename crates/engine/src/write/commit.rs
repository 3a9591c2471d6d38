//! Putting a group of batches into the log and the memtable.

use std::sync::Arc;
use trommel_base::planted::{Bug, dawdling, planted};

use trommel_base::{MAX_SEQNO, SeqNo};
use trommel_memtable::Memtable;

use super::queue::{Group, Member, Place, Turn, Wanted, fail, hand_out};
use super::stall::Pace;
use crate::batch::SealedBatch;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::log::LogWriter;
use crate::options::{Durability, Options, WriteOptions};
use crate::sync::{lock, panicking, wait};

/// Operations of a batch, at most, whose memory is asked for before the batch is logged.
const PREFETCHED: usize = 16;

/// What only the leader of the write queue touches.
#[derive(Debug)]
pub(crate) struct Leader {
    /// The log of the active memtable; none where the store keeps no log.
    pub(super) log: Option<LogWriter>,
    /// The last sequence number given out.
    pub(super) last_seqno: SeqNo,
    /// What writers owe to the rate they are slowed to.
    pub(super) pace: Pace,
}

impl Leader {
    /// The leader of a store whose last operation had this number, before it has a log.
    pub(crate) fn new(last_seqno: SeqNo) -> Self {
        Self { log: None, last_seqno, pace: Pace::default() }
    }

    /// The log of the active memtable; none where the store keeps no log.
    pub(crate) fn log(&self) -> Option<&LogWriter> {
        self.log.as_ref()
    }

    /// Takes up what recovery has found and made.
    pub(crate) fn start(&mut self, log: Option<LogWriter>, last_seqno: SeqNo) {
        (self.log, self.last_seqno) = (log, last_seqno);
    }
}

impl Engine {
    /// Writes a batch: all of it or nothing.
    pub(crate) fn write(&self, batch: SealedBatch, options: WriteOptions) -> Result<()> {
        let sync = {
            let now = self.options.load();
            self.check_writable_with(&now)?;
            Self::wants_sync(&now, options)
        };
        if batch.count() == 0 {
            return Ok(());
        }
        if planted(Bug::BatchSplit) && batch.count() > 1 {
            return batch.operations().flatten().try_for_each(|op| {
                self.write(SealedBatch::single(op.kind, op.key, op.value)?, options)
            });
        }
        match self.queue.join(Wanted { batch: Some(batch), sync }) {
            Place::First(own) => self.lead(&own)?,
            Place::Behind(member) => match member.wait() {
                Turn::Insert(group, first_seqno) => {
                    self.insert(&group, &member.wanted, first_seqno)?;
                }
                Turn::Failed(error) => return Err(error),
                Turn::Lead | Turn::Wait => self.lead(&member.wanted)?,
            },
        }
        if sync && planted(Bug::PublishedBeforeSync) {
            self.sync_logs(&mut lock(&self.leader))?;
        }
        if sync { self.sync_without_log() } else { Ok(()) }
    }

    /// Where there is no log, a table is what makes a write durable. It is visible by then, so
    /// nothing may be acknowledged after a failure that could depend on it.
    fn sync_without_log(&self) -> Result<()> {
        if self.options.load().log {
            return Ok(());
        }
        self.flush().map_err(|error| self.poison(error))
    }

    fn wants_sync(now: &Options, options: WriteOptions) -> bool {
        options.durability.unwrap_or(now.durability) == Durability::Sync
    }

    /// Leads the group that begins with the caller's `own` batch.
    fn lead(&self, own: &Wanted) -> Result<()> {
        let mut turnstile = Turnstile::new(self);
        let mut leader = lock(&self.leader);
        let early = planted(Bug::RotationLosesWrite).then(|| self.view.load());
        let room = self.make_room(&mut leader, || self.queue.group_bytes(own))?;
        if own.sync {
            self.queue.gather();
        }
        turnstile.followers = self.queue.followers(own);
        let followers = &turnstile.followers;
        let first_seqno = leader.last_seqno + 1;
        Self::prefetch(&room.active.memtable, own);
        // Having logged its own, a group waits until the one before it has inserted.
        let logged = self
            .log_group(&mut leader, own, followers)
            .and_then(|()| self.wait_published(first_seqno - 1))
            .or_else(|error| if planted(Bug::LogErrorDiscarded) { Ok(()) } else { Err(error) });
        if let Err(error) = logged {
            fail(followers, &error);
            turnstile.is_told = true;
            return Err(error);
        }
        let memtable = &early.as_ref().unwrap_or(&room).active.memtable;
        let last_seqno = leader.last_seqno;
        let group = (!followers.is_empty())
            .then(|| Group::new(Arc::clone(memtable), followers.len() + 1, last_seqno));
        if let Some(group) = &group {
            hand_out(group, followers, first_seqno + own.operations());
        }
        turnstile.is_told = true;
        drop(leader);
        drop(turnstile);
        match group {
            Some(group) => self.insert(&group, own, first_seqno),
            None => self.insert_alone(memtable, own, first_seqno, last_seqno),
        }
    }

    /// Asks for the memory that inserting will look at, which then arrives while the log is written.
    fn prefetch(memtable: &Memtable, own: &Wanted) {
        let operations = own.batch.iter().flat_map(SealedBatch::operations);
        for op in operations.flatten().take(PREFETCHED) {
            memtable.prefetch(op.key);
        }
    }

    /// Numbers the group's operations and appends its batches to the log, durably if a member
    /// asked for that.
    fn log_group(
        &self,
        leader: &mut Leader,
        own: &Wanted,
        followers: &[Arc<Member>],
    ) -> Result<()> {
        let wanted = || std::iter::once(own).chain(followers.iter().map(|member| &member.wanted));
        let mut seqno = leader.last_seqno + 1;
        let last_seqno = leader.last_seqno + wanted().map(Wanted::operations).sum::<u64>();
        if last_seqno > MAX_SEQNO {
            return Err(Error::internal("the store has used all of its 2^56 sequence numbers"));
        }
        if let Some(log) = &mut leader.log {
            if self.rotated.is_empty() {
                log.set_previous_durable();
            }
            let before = log.bytes();
            for one in wanted() {
                if let Some(batch) = &one.batch {
                    log.push(seqno, &[batch.encoded()]).map_err(|error| self.poison(error))?;
                }
                seqno += one.operations();
            }
            log.commit().map_err(|error| match error {
                error if planted(Bug::WritesGoOnAfterLogError) => error,
                error => self.poison(error),
            })?;
            let bytes = log.bytes() - before;
            self.counters.with(|shard| shard.log_bytes.add(bytes));
        }
        leader.last_seqno = last_seqno;
        let told = if planted(Bug::FollowerAckedBeforeSync) { 1 } else { usize::MAX };
        let syncs = !planted(Bug::AckedBeforeSync) && !planted(Bug::PublishedBeforeSync);
        if wanted().take(told).any(|one| one.sync) && syncs {
            self.sync_logs(leader)?;
        }
        self.counters.with(|shard| shard.commits.add(1));
        Ok(())
    }

    /// Inserts a member's batch; the last of the group makes all of it visible.
    fn insert(&self, group: &Group, own: &Wanted, first_seqno: SeqNo) -> Result<()> {
        let _unwinding = PoisonOnUnwind(self);
        self.insert_batch(&group.memtable, own, first_seqno);
        if group.inserted() {
            self.publish(group.last_seqno);
            return Ok(());
        }
        self.wait_published(group.last_seqno)
    }

    /// Inserts the batch of a group of one, and makes it visible.
    fn insert_alone(
        &self,
        memtable: &Memtable,
        own: &Wanted,
        first_seqno: SeqNo,
        last_seqno: SeqNo,
    ) -> Result<()> {
        let _unwinding = PoisonOnUnwind(self);
        self.insert_batch(memtable, own, first_seqno);
        self.publish(last_seqno);
        Ok(())
    }

    fn insert_batch(&self, memtable: &Memtable, own: &Wanted, first_seqno: SeqNo) {
        let Some(batch) = &own.batch else { return };
        let mut user_bytes = 0;
        for (seqno, op) in (first_seqno..).zip(batch.operations().flatten()) {
            memtable.insert(op.key, seqno, op.kind, op.value);
            user_bytes += (op.key.len() + op.value.len()) as u64;
            if planted(Bug::HalfBatchVisible) {
                self.snapshots.publish(seqno);
            }
        }
        self.counters.with(|shard| {
            shard.writes.add(u64::from(batch.count()));
            shard.user_bytes.add(user_bytes);
        });
    }

    /// Makes everything up to `seqno` visible.
    fn publish(&self, seqno: SeqNo) {
        let waiting = lock(&self.publishing);
        self.snapshots.publish(seqno);
        // To wake is a system call, whether or not anyone waits.
        if *waiting > 0 {
            self.published.notify_all();
        }
        drop(waiting);
        if self.memory.has_ceiling() {
            self.account_memtables();
        }
    }

    /// Waits until everything up to `seqno` is visible.
    pub(crate) fn wait_published(&self, seqno: SeqNo) -> Result<()> {
        if self.snapshots.visible() >= seqno {
            return Ok(());
        }
        let mut waiting = lock(&self.publishing);
        *waiting += 1;
        let mut outcome = Ok(());
        while self.snapshots.visible() < seqno {
            if let Some(first) = self.poisoned() {
                outcome = Err(Error::Poisoned { first });
                break;
            }
            waiting = wait(&self.published, waiting);
        }
        *waiting -= 1;
        outcome
    }

    /// Runs `action` as the leader, alone: no group is in flight, and none starts meanwhile.
    pub(crate) fn exclusively<T>(
        &self,
        action: impl FnOnce(&mut Leader) -> Result<T>,
    ) -> Result<T> {
        // One without a batch is never part of another's group, so its turn is to lead.
        if let Place::Behind(member) = self.queue.join(Wanted { batch: None, sync: false }) {
            member.wait();
        }
        let _turnstile = Turnstile::new(self);
        self.check_open()?;
        let mut leader = lock(&self.leader);
        self.wait_published(leader.last_seqno)?;
        action(&mut leader)
    }

    /// Lets `decide` look at the store while nobody writes, and writes the batch it returns.
    /// False if it returned none.
    pub(crate) fn write_if(
        &self,
        options: WriteOptions,
        decide: impl FnOnce() -> Result<Option<SealedBatch>>,
    ) -> Result<bool> {
        self.check_writable()?;
        let sync = Self::wants_sync(&self.options.load(), options);
        let mut decide = Some(decide);
        let mut look = || decide.take().map_or(Ok(None), |decide| decide());
        let early = planted(Bug::ConditionNotAtomic).then(|| dawdling(look()));
        let written = self.exclusively(|leader| {
            let Some(batch) = early.unwrap_or_else(look)? else { return Ok(false) };
            let own = Wanted { batch: Some(batch), sync };
            let room = self.make_room(leader, || own.bytes() as u64)?;
            let first_seqno = leader.last_seqno + 1;
            self.log_group(leader, &own, &[])?;
            self.insert_alone(&room.active.memtable, &own, first_seqno, leader.last_seqno)?;
            Ok(true)
        })?;
        if written && sync {
            self.sync_without_log()?;
        }
        Ok(written)
    }
}

/// The leader's place at the head of the queue: dropped, it lets the next one lead. A leader that
/// panics poisons the store first, for nobody knows how far it got, and tells its followers.
struct Turnstile<'a> {
    engine: &'a Engine,
    /// Who leaves with the leader.
    followers: Vec<Arc<Member>>,
    /// Whether they know what has become of their batches.
    is_told: bool,
}

impl<'a> Turnstile<'a> {
    fn new(engine: &'a Engine) -> Self {
        Self { engine, followers: Vec::new(), is_told: false }
    }
}

impl Drop for Turnstile<'_> {
    fn drop(&mut self) {
        if panicking() {
            let error = self.engine.poison(panicked());
            if !self.is_told {
                fail(&self.followers, &error);
            }
        }
        self.engine.queue.leave(self.followers.len());
    }
}

/// Poisons the store if it is dropped by a panic: a member that dies between log and publication
/// would otherwise leave the others waiting for ever.
struct PoisonOnUnwind<'a>(&'a Engine);

impl Drop for PoisonOnUnwind<'_> {
    fn drop(&mut self) {
        if panicking() {
            self.0.poison(panicked());
        }
    }
}

fn panicked() -> Error {
    Error::internal("a thread panicked in the middle of a write")
}

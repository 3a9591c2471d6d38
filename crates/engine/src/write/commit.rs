//! Writing groups of batches to the log and the memtable.

use std::sync::Arc;

use trommel_base::{MAX_SEQNO, SeqNo};
use trommel_memtable::Memtable;

use crate::batch::Batch;
use crate::engine::Engine;
use crate::env;
use crate::error::{Error, Result};
use crate::log::LogWriter;
use crate::options::{Durability, WriteOptions};
use crate::sync::{MutexGuard, lock, look_out, panicking};
use crate::view::LoggedMemtable;
use crate::write_queue::{
    CommitGroup, Joined, Leader, Member, Wanted, WriterTurn, done, fail, hand_out,
};

/// Most operations of a batch whose memory is prefetched before the batch is logged.
const PREFETCHED: usize = 16;

/// Up to this many operations per follower, on average, the leader inserts for everyone: an insert
/// takes a third of a microsecond, waking a thread and scheduling it takes several.
const LEADER_INSERTS: u64 = 8;

impl Engine {
    /// As `write`, timed if it is in the sample.
    pub(crate) fn write_sampled(&self, batch: Batch<'_>, options: WriteOptions) -> Result<SeqNo> {
        if self.statistics.latencies.samples() {
            return self.write_timed(batch, options);
        }
        self.write(batch, options)
    }

    #[cold]
    #[inline(never)]
    fn write_timed(&self, batch: Batch<'_>, options: WriteOptions) -> Result<SeqNo> {
        self.timed_write(|| self.write(batch, options))
    }

    /// Writes a batch atomically. Returns the sequence number of its last operation; for an empty
    /// batch, the newest one visible to reads.
    #[inline]
    pub(crate) fn write(&self, batch: Batch<'_>, options: WriteOptions) -> Result<SeqNo> {
        // The queue must not be touched in a forked child; all else is checked by the leader.
        self.access.opener().check()?;
        let sync = self.wants_sync(options);
        if batch.count() == 0 {
            self.access.check_writable()?;
            let seqno = self.snapshots.visible();
            if sync {
                // An empty synced batch makes all earlier writes durable, too.
                self.sync()?;
            }
            return Ok(seqno);
        }
        if sync {
            self.wait_to_sync()?;
        }
        let seqno = self.commit(Wanted { batch: Some(batch), sync, terms: None })?;
        if sync {
            self.sync_without_log()?;
        }
        Ok(seqno)
    }

    /// Commits a batch in its turn.
    #[inline]
    pub(super) fn commit(&self, wanted: Wanted<'_>) -> Result<SeqNo> {
        if self.writes.queue.leads_at_once() {
            return self.lead(&wanted);
        }
        self.commit_queued(wanted)
    }

    /// As `commit`, while another thread leads.
    fn commit_queued(&self, wanted: Wanted<'_>) -> Result<SeqNo> {
        match self.writes.queue.join(wanted) {
            Joined::First(own) => self.lead(&own),
            Joined::Queued(member) => match member.wait() {
                WriterTurn::Insert(group, first_seqno) => {
                    self.insert(&group, &member.wanted, first_seqno)?;
                    Ok(member.wanted.last_seqno(first_seqno))
                }
                WriterTurn::Written(last_seqno) => Ok(last_seqno),
                WriterTurn::Failed(error) => Err(error),
                WriterTurn::Lead | WriterTurn::Wait => self.lead(&member.wanted),
            },
        }
    }

    /// Without a log, a synced write makes a table. Like a flush, it waits for compactions before
    /// it is visible, while it can still be refused.
    pub(super) fn wait_to_sync(&self) -> Result<()> {
        if self.options.load().writes.log { Ok(()) } else { self.wait_for_merges() }
    }

    /// Without a log, a table makes the write durable. The write is visible by then, so after a
    /// failure no write that could depend on it may be acknowledged.
    pub(super) fn sync_without_log(&self) -> Result<()> {
        if self.options.load().writes.log {
            return Ok(());
        }
        let is_due = self.write_out_now().map_err(|error| match error {
            // The thread that closes the store flushes the memtables, and gets the error if that
            // fails.
            Error::Closed => error,
            error => self.poison(error),
        })?;
        if is_due {
            // The write is durable by now: a compaction that fails here is retried, or has poisoned
            // the store.
            let _ = self.work_inline();
        }
        Ok(())
    }

    #[inline]
    pub(super) fn wants_sync(&self, options: WriteOptions) -> bool {
        match options.durability {
            Some(durability) => durability == Durability::Sync,
            None => self.options.syncs(),
        }
    }

    /// Leads the group that begins with the caller's `own` batch; returns the sequence number of
    /// that batch's last operation.
    fn lead(&self, own: &Wanted<'_>) -> Result<SeqNo> {
        let turnstile = Turnstile::new(self);
        let mut leader = lock(&self.writes.leader);
        self.prepare_memtable(&mut leader, || self.writes.queue.group_bytes(own))?;
        if self.snapshots.expiry.is_on() {
            self.mark_time(&mut leader)?;
        }
        if own.sync {
            self.writes.queue.gather();
        }
        if self.writes.queue.waiting() > 0 || own.terms.is_some() {
            return self.lead_others(Followers::new(self), turnstile, leader, own);
        }
        let first_seqno = leader.last_seqno + 1;
        self.log_in_turn(&mut leader, own, &[])?;
        if own.operations() <= LEADER_INSERTS && self.writes.queue.waiting() == 0 {
            // The log stays idle during the insert, but no writer is waiting, and one that arrives
            // now does not wait long, so the lead need not be handed over first.
            self.insert_all(&leader.active, own, &[], first_seqno);
            let is_full = leader.is_full();
            drop(leader);
            drop(turnstile);
            if is_full {
                self.freeze_full();
            }
            return Ok(own.last_seqno(first_seqno));
        }
        let active = Arc::clone(&leader.active);
        let limit = leader.marks.memtable_limit;
        drop((leader, turnstile));
        self.insert_all(&active, own, &[], first_seqno);
        self.freeze_if_full(&active, limit);
        Ok(own.last_seqno(first_seqno))
    }

    /// As `lead`, with followers or conditions. The `followers` are dropped last among the
    /// arguments, so that the members that a panic fails are off the queue.
    fn lead_others<'a>(
        &'a self,
        mut followers: Followers<'a>,
        mut turnstile: Turnstile<'a>,
        leader: MutexGuard<'a, Leader>,
        own: &Wanted<'_>,
    ) -> Result<SeqNo> {
        followers.members = self.writes.queue.followers(own);
        turnstile.followers = followers.members.len();
        if own.terms.is_none() && !followers.have_terms() {
            return self.lead_group(followers, turnstile, leader, own);
        }
        let verdict = match followers.judge(&leader, own) {
            Ok(verdict) => verdict,
            Err(error) => {
                followers.fail(&error);
                return Err(error);
            }
        };
        // A batch without operations has no record in the log.
        let is_written = verdict.is_ok() && own.operations() > 0;
        let own = if is_written { own } else { &Wanted::NOTHING };
        let written = self.lead_group(followers, turnstile, leader, own);
        // If the group failed, it is unknown whether the conflicting write is in the store.
        written.and_then(|seqno| verdict.map(|()| seqno))
    }

    /// As `lead`, for a group whose members are all to be written.
    fn lead_group<'a>(
        &'a self,
        mut followers: Followers<'a>,
        turnstile: Turnstile<'a>,
        mut leader: MutexGuard<'a, Leader>,
        own: &Wanted<'_>,
    ) -> Result<SeqNo> {
        let first_seqno = leader.last_seqno + 1;
        let own_last_seqno = own.last_seqno(first_seqno);
        if own.operations() + operations(&followers.members) == 0 {
            drop((leader, turnstile));
            followers.done(first_seqno);
            return Ok(own_last_seqno);
        }
        if let Err(error) = self.log_in_turn(&mut leader, own, &followers.members) {
            followers.fail(&error);
            return Err(error);
        }
        let active = Arc::clone(&leader.active);
        let (last_seqno, limit) = (leader.last_seqno, leader.marks.memtable_limit);
        if followers.are_worth_waking() {
            let group = CommitGroup::new(
                Arc::clone(&active),
                limit,
                followers.members.len() + 1,
                last_seqno,
            );
            followers.hand_out(&group, own_last_seqno + 1);
            drop((leader, turnstile));
            if let Err(error) = self.insert(&group, own, first_seqno) {
                followers.fail(&error);
                return Err(error);
            }
            followers.done(last_seqno + 1);
            return Ok(own_last_seqno);
        }
        drop((leader, turnstile));
        self.insert_all(&active, own, &followers.members, first_seqno);
        followers.done(own_last_seqno + 1);
        self.freeze_if_full(&active, limit);
        Ok(own_last_seqno)
    }

    /// Logs a group, then waits until the group before it has inserted. Always inlined: a call
    /// costs a put without a log 7 of its 823 instructions.
    #[inline(always)]
    fn log_in_turn(
        &self,
        leader: &mut Leader,
        own: &Wanted<'_>,
        followers: &[Arc<Member>],
    ) -> Result<()> {
        let before = leader.last_seqno;
        Self::prefetch(&leader.active.memtable, own);
        self.log_group(leader, own, followers)?;
        self.wait_published(before)
    }

    /// Prefetches the memory that inserting will read while the log is written.
    fn prefetch(memtable: &Memtable, own: &Wanted<'_>) {
        if let Some(batch) = &own.batch {
            batch.for_first(PREFETCHED, |op| memtable.prefetch(op.key));
        }
    }

    /// Numbers the group's operations and appends its batches to the log, and syncs it if any
    /// member requires that.
    fn log_group(
        &self,
        leader: &mut Leader,
        own: &Wanted<'_>,
        followers: &[Arc<Member>],
    ) -> Result<()> {
        let before = leader.last_seqno;
        let last_seqno = before + own.operations() + operations(followers);
        if last_seqno > MAX_SEQNO {
            return Err(Error::internal("the store has used all of its 2^56 sequence numbers"));
        }
        let mut log_bytes = 0;
        if let Some(log) = &mut leader.log {
            if self.writes.rotated.is_empty() {
                log.set_previous_durable();
            }
            let log_bytes_before = log.bytes();
            let mut seqno = before + 1;
            self.log_batch(log, own, seqno)?;
            seqno += own.operations();
            for member in followers {
                self.log_batch(log, &member.wanted, seqno)?;
                seqno += member.wanted.operations();
            }
            log.commit().map_err(|error| self.poison(error))?;
            log_bytes = log.bytes() - log_bytes_before;
        }
        leader.last_seqno = last_seqno;
        if own.sync || followers.iter().any(|one| one.wanted.sync) {
            self.sync_logs(leader)?;
        }
        let counts = &leader.counts;
        counts.log_bytes.add(log_bytes);
        counts.commits.add(1);
        counts.writes.add(last_seqno - before);
        let followers_bytes =
            followers.iter().map(|member| member.wanted.user_bytes()).sum::<u64>();
        counts.user_bytes.add(own.user_bytes() + followers_bytes);
        Ok(())
    }

    /// Adds a member's batch to the log's group, as a record of its own.
    #[inline]
    fn log_batch(&self, log: &mut LogWriter, one: &Wanted<'_>, first_seqno: SeqNo) -> Result<()> {
        let Some(batch) = &one.batch else { return Ok(()) };
        let pushed = batch.encoded(|pieces| log.push(first_seqno, pieces));
        pushed.map_err(|error| self.poison(error))
    }

    /// Inserts a member's batch; the last member to insert makes the whole group visible. The group
    /// is logged, so only a member that panics can fail it: if the store is poisoned by something
    /// else meanwhile, the others still publish the group, and none returns an error.
    fn insert(&self, group: &CommitGroup, own: &Wanted<'_>, first_seqno: SeqNo) -> Result<()> {
        let unless_done = PoisonOnUnwind { engine: self, group: Some(group) };
        self.insert_batch(&group.active, own, first_seqno);
        let is_last = group.inserted();
        if is_last {
            self.publish(group.last_seqno);
        }
        std::mem::forget(unless_done);
        if is_last {
            self.freeze_if_full(&group.active, group.memtable_limit);
            return Ok(());
        }
        self.wait_published_unless(group.last_seqno, || group.is_broken())
    }

    /// Inserts the leader's `own` batch and its followers' batches, and makes them visible.
    #[inline]
    fn insert_all(
        &self,
        active: &LoggedMemtable,
        own: &Wanted<'_>,
        followers: &[Arc<Member>],
        first_seqno: SeqNo,
    ) {
        let unless_done = PoisonOnUnwind { engine: self, group: None };
        self.insert_batch(active, own, first_seqno);
        let mut next_seqno = first_seqno + own.operations();
        for member in followers {
            self.insert_batch(active, &member.wanted, next_seqno);
            next_seqno += member.wanted.operations();
        }
        self.publish(next_seqno - 1);
        std::mem::forget(unless_done);
    }

    fn insert_batch(&self, active: &LoggedMemtable, own: &Wanted<'_>, first_seqno: SeqNo) {
        let Some(batch) = &own.batch else { return };
        let (mut seqno, mut may_free_space) = (first_seqno, false);
        batch.for_each(|op| {
            may_free_space |= active.insert(op, seqno, &self.snapshots);
            seqno += 1;
        });
        if may_free_space {
            // Wakes a worker, which then waits for the store to become idle.
            self.background.wake();
        }
    }

    /// Makes everything up to `seqno` visible.
    #[inline]
    pub(crate) fn publish(&self, seqno: SeqNo) {
        self.snapshots.publish(seqno);
        self.writes.publication.notify();
        if self.memory.shares.has_ceiling() {
            self.account_memtables();
        }
    }

    /// Waits until everything up to `seqno` is visible; an error if the store is poisoned first.
    #[inline]
    pub(crate) fn wait_published(&self, seqno: SeqNo) -> Result<()> {
        self.wait_published_unless(seqno, || true)
    }

    /// As `wait_published`, but poisoning is an error only if `is_kept` returns true: `seqno` then
    /// never becomes visible.
    #[inline]
    fn wait_published_unless(&self, seqno: SeqNo, is_kept: impl Fn() -> bool) -> Result<()> {
        if self.snapshots.visible() >= seqno {
            return Ok(());
        }
        self.wait_until_published(seqno, &is_kept)
    }

    #[inline(never)]
    fn wait_until_published(&self, seqno: SeqNo, is_kept: &dyn Fn() -> bool) -> Result<()> {
        look_out(|| self.snapshots.visible() >= seqno);
        if self.snapshots.visible() >= seqno {
            return Ok(());
        }
        let mut outcome = Ok(());
        self.writes.publication.wait_until(|| {
            if self.snapshots.visible() >= seqno {
                return true;
            }
            if let Some(first) = self.access.poisoned().filter(|_| is_kept()) {
                outcome = Err(Error::Poisoned { first });
            }
            outcome.is_err()
        });
        outcome
    }

    /// Runs `action` as the leader, alone: no group is in flight, and none starts meanwhile.
    pub(crate) fn exclusively<T>(
        &self,
        action: impl FnOnce(&mut Leader) -> Result<T>,
    ) -> Result<T> {
        self.access.opener().check()?;
        // A member without a batch never joins another's group, so its turn is to lead.
        if let Joined::Queued(member) = self.writes.queue.join(Wanted::NOTHING) {
            member.wait();
        }
        let turnstile = Turnstile::new(self);
        self.access.check_open()?;
        let mut leader = lock(&self.writes.leader);
        self.wait_published(leader.last_seqno)?;
        let outcome = action(&mut leader);
        let (active, limit) = (Arc::clone(&leader.active), leader.marks.memtable_limit);
        drop((leader, turnstile));
        self.freeze_if_full(&active, limit);
        outcome
    }
}

/// The leader's position at the head of the queue: on drop, the next writer leads. A leader that
/// panics poisons the store first, because it is unknown how far it got.
pub(super) struct Turnstile<'a> {
    engine: &'a Engine,
    /// Followers that leave the queue with the leader.
    followers: usize,
    /// Whether the thread was unwinding before, as when a handle is dropped during a panic: then
    /// this is not a failure of the leader.
    unwound_before: bool,
}

impl<'a> Turnstile<'a> {
    pub(super) fn new(engine: &'a Engine) -> Self {
        Self { engine, followers: 0, unwound_before: panicking() }
    }
}

impl Drop for Turnstile<'_> {
    #[inline]
    fn drop(&mut self) {
        if panicking() && !self.unwound_before {
            self.engine.poison(panicked());
        }
        self.engine.writes.queue.leave(self.followers);
    }
}

/// The members whose batches a leader writes with its own, and those that it refuses. If dropped
/// before they were notified, which only a panic causes, it fails them with the error that poisoned
/// the store.
struct Followers<'a> {
    engine: &'a Engine,
    /// Members to be written, until they are notified.
    members: Vec<Arc<Member>>,
    /// Members that left the group, with the outcomes that they are notified of once the group is
    /// published.
    others: Vec<(Arc<Member>, WriterTurn)>,
}

impl<'a> Followers<'a> {
    /// No followers yet.
    fn new(engine: &'a Engine) -> Self {
        Self { engine, members: Vec::new(), others: Vec::new() }
    }

    fn have_terms(&self) -> bool {
        self.members.iter().any(|member| member.wanted.terms.is_some())
    }

    /// Checks the conditions of the leader's `own` batch, and returns the outcome, and those of the
    /// followers. Members that are refused, or have nothing to write, leave the group.
    fn judge(&mut self, leader: &Leader, own: &Wanted<'_>) -> Result<Result<()>> {
        let mut verdicts = Vec::with_capacity(self.members.len());
        let own_verdict = self.engine.judge_group(leader, own, &self.members, &mut verdicts)?;
        let mut kept = Vec::with_capacity(self.members.len());
        let mut last_seqno = leader.last_seqno;
        last_seqno += if own_verdict.is_ok() { own.operations() } else { 0 };
        for (member, verdict) in std::mem::take(&mut self.members).into_iter().zip(verdicts) {
            match verdict {
                Ok(()) if member.wanted.operations() > 0 => {
                    last_seqno += member.wanted.operations();
                    kept.push(member);
                }
                Ok(()) => self.others.push((member, WriterTurn::Written(last_seqno))),
                Err(error) => self.others.push((member, WriterTurn::Failed(error))),
            }
        }
        self.members = kept;
        Ok(own_verdict)
    }

    /// Whether the followers have enough to insert for all of them to insert in parallel: each is
    /// then woken once to insert, and once when the last of them has. Schedule tests try both for
    /// groups of any size.
    fn are_worth_waking(&self) -> bool {
        if cfg!(shuttle) {
            return !self.members.is_empty() && env::random_u64().is_multiple_of(2);
        }
        operations(&self.members) > LEADER_INSERTS * self.members.len() as u64
    }

    fn hand_out(&mut self, group: &Arc<CommitGroup>, first_seqno: SeqNo) {
        hand_out(group, &std::mem::take(&mut self.members), first_seqno);
    }

    fn done(mut self, first_seqno: SeqNo) {
        done(&std::mem::take(&mut self.members), first_seqno);
        self.others.drain(..).for_each(|(member, turn)| member.notify(turn));
    }

    fn fail(&mut self, error: &Error) {
        fail(&std::mem::take(&mut self.members), error);
        self.others
            .drain(..)
            .for_each(|(member, _)| member.notify(WriterTurn::Failed(error.clone())));
    }
}

impl Drop for Followers<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.members.is_empty() || !self.others.is_empty() {
            let error = self.engine.poison(panicked());
            self.fail(&error);
        }
    }
}

/// Operations in the followers' batches.
fn operations(followers: &[Arc<Member>]) -> u64 {
    followers.iter().map(|member| member.wanted.operations()).sum()
}

/// Poisons the store on drop; forgotten on success. Without it, a member that dies between log and
/// publication would leave the others waiting forever.
struct PoisonOnUnwind<'a> {
    engine: &'a Engine,
    /// The group that waits for the caller, if each member inserts for itself.
    group: Option<&'a CommitGroup>,
}

impl Drop for PoisonOnUnwind<'_> {
    fn drop(&mut self) {
        self.group.inspect(|group| group.break_up());
        self.engine.poison(panicked());
    }
}

fn panicked() -> Error {
    Error::internal("a thread panicked in the middle of a write")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use trommel_base::EntryKind;
    use trommel_sim::{MemoryVfs, Policy, SimDisk};

    use super::{CommitGroup, LEADER_INSERTS, Wanted};
    use crate::batch::{Batch, OpKind};
    use crate::{Db, Error, Options, WriteBatch, WriteOptions};

    const WRITERS: usize = 5;

    /// Writers that queue while the store is held exclusively form one group, whether its leader
    /// inserts for all or each for itself: everything is there in queue order, is logged once, and
    /// each writer gets its own sequence number.
    #[test]
    fn writers_that_queued_together_are_logged_together() {
        for (operations, sync) in [(1, true), (1, false), (LEADER_INSERTS as usize + 1, false)] {
            let options = Options::default().vfs(Arc::new(MemoryVfs::new()));
            let db = Db::open("db", options).unwrap();
            let write = |writer: usize| {
                let mut batch = WriteBatch::new();
                for n in 0..operations {
                    batch.put(format!("{writer} {n}"), [writer as u8]);
                }
                batch.put("all write it", [writer as u8]);
                let durability = if sync { WriteOptions::sync() } else { WriteOptions::default() };
                let seqno = db.write_with(batch, durability).unwrap();
                assert_eq!(seqno, ((writer + 1) * (operations + 1)) as u64, "another's number");
                let seen = db.get(format!("{writer} 0")).unwrap();
                assert_eq!(seen.as_deref(), Some(&[writer as u8][..]), "written, and not there");
            };
            let commits = || db.stats().writes.commits;
            let before = commits();
            let engine = db.engine();
            thread::scope(|scope| {
                engine
                    .exclusively(|_| {
                        for writer in 0..WRITERS {
                            scope.spawn(move || write(writer));
                            let end = Instant::now() + Duration::from_secs(60);
                            while engine.writes.queue.waiting() <= writer {
                                assert!(Instant::now() < end, "a writer did not come");
                                thread::sleep(Duration::from_micros(100));
                            }
                        }
                        Ok(())
                    })
                    .unwrap();
            });
            assert_eq!(commits() - before, 1, "{operations} operations each");
            for (writer, n) in (0..WRITERS).flat_map(|w| (0..operations).map(move |n| (w, n))) {
                let seen = db.get(format!("{writer} {n}")).unwrap();
                assert_eq!(seen.as_deref(), Some(&[writer as u8][..]));
            }
            let last = db.get("all write it").unwrap();
            assert_eq!(last.as_deref(), Some(&[WRITERS as u8 - 1][..]), "who came last wins");
        }
    }

    #[test]
    fn a_write_returns_the_number_of_its_last_operation() {
        let db = Db::open("db", Options::default().vfs(Arc::new(MemoryVfs::new()))).unwrap();
        assert_eq!(db.write(WriteBatch::new()).unwrap(), 0);
        assert_eq!((db.put("a", "1").unwrap(), db.delete("b").unwrap()), (1, 2));
        let mut batch = WriteBatch::new();
        batch.put("c", "3").delete("d").put("e", "5");
        assert_eq!(db.write_with(&batch, WriteOptions::sync()).unwrap(), 5);
        assert_eq!(db.snapshot().seqno(), 5);
        for options in [WriteOptions::default(), WriteOptions::sync()] {
            assert_eq!(db.write_with(WriteBatch::new(), options).unwrap(), 5, "an empty batch");
        }
        assert!(db.insert_if_absent("f", "6").unwrap());
        assert_eq!(db.put_with("g", "7", WriteOptions::sync()).unwrap(), 7);
    }

    /// An empty synced batch makes earlier writes durable, like any other synced batch.
    #[test]
    fn an_empty_batch_syncs_what_was_written_before() {
        for log in [true, false] {
            let disk = SimDisk::new();
            let open = |disk: &SimDisk| {
                let options = Options::default().vfs(Arc::new(disk.clone())).writes(|w| w.log(log));
                Db::open("db", options.background_threads(0)).unwrap()
            };
            let db = open(&disk);
            db.put("key", "value").unwrap();
            let after_power_cut = || {
                let disk = disk.crash(Policy::SYNCED, 1).disk();
                open(&disk).get("key").unwrap().map(|value| value.to_vec())
            };
            db.write(WriteBatch::new()).unwrap();
            assert_eq!(after_power_cut(), None, "nothing more was requested");
            db.write_with(WriteBatch::new(), WriteOptions::sync()).unwrap();
            assert_eq!(after_power_cut().as_deref(), Some(&b"value"[..]));
        }
    }

    /// If the store is poisoned while a logged group inserts, the group does not fail: it becomes
    /// visible.
    #[test]
    fn a_group_that_is_logged_does_not_fail() {
        let db = Db::open("db", Options::default().vfs(Arc::new(MemoryVfs::new()))).unwrap();
        let engine = db.engine();
        let wanted = |key: &'static str| {
            let batch = Batch::one(OpKind::Put, key.as_bytes(), b"v").unwrap();
            Wanted { batch: Some(batch), sync: false, terms: None }
        };
        let logged = engine.exclusively(|leader| {
            let first = leader.last_seqno + 1;
            leader.last_seqno += 2;
            let active = Arc::clone(&leader.active);
            Ok((CommitGroup::new(active, u64::MAX, 2, leader.last_seqno), first))
        });
        let (group, first) = logged.unwrap();
        thread::scope(|scope| {
            let early = scope.spawn(|| engine.insert(&group, &wanted("early"), first));
            thread::sleep(Duration::from_millis(50));
            engine.poison(Error::internal("a disk that failed"));
            thread::sleep(Duration::from_millis(50));
            assert!(!early.is_finished(), "failed, and about to become visible");
            engine.insert(&group, &wanted("late"), first + 1).unwrap();
            early.join().unwrap().unwrap();
        });
        for key in ["early", "late"] {
            assert_eq!(db.get(key).unwrap().as_deref(), Some(&b"v"[..]));
        }
    }

    /// If a leader panics while it inserts for its group, nothing of the group becomes visible, the
    /// followers get an error, and the store takes no more writes.
    #[test]
    fn a_leader_that_panics_while_it_inserts_fails_its_group() {
        let db = Db::open("db", Options::default().vfs(Arc::new(MemoryVfs::new()))).unwrap();
        let engine = db.engine();
        let (first, second) = thread::scope(|scope| {
            let write = |key: &'static str| {
                let behind = engine.writes.queue.waiting();
                let db = db.clone();
                let writer = scope.spawn(move || db.put(key, "v"));
                let end = Instant::now() + Duration::from_secs(60);
                while engine.writes.queue.waiting() == behind {
                    assert!(Instant::now() < end, "a writer did not come");
                    thread::sleep(Duration::from_micros(100));
                }
                writer
            };
            let writers = engine
                .exclusively(|leader| {
                    // The second write's entry already exists, so inserting it panics.
                    let seqno = leader.last_seqno + 2;
                    let view = engine.view.load();
                    view.active.memtable.insert(b"second", seqno, EntryKind::Put, b"v");
                    Ok((write("first"), write("second")))
                })
                .unwrap();
            (writers.0.join(), writers.1.join())
        });
        assert!(first.is_err(), "the leader did not panic");
        let second = second.expect("the follower did not insert");
        assert!(
            matches!(second, Err(Error::Poisoned { .. } | Error::Internal { .. })),
            "{second:?}"
        );
        assert_eq!(db.get("first").unwrap(), None, "half of a group is visible");
        assert!(matches!(db.put("third", "v"), Err(Error::Poisoned { .. })));
    }
}

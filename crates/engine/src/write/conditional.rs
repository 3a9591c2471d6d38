//! Conditional writes.
//!
//! 1. The writer checks its conditions before it joins the queue, reading tables if necessary, and
//!    records the moment up to which it has checked them.
//! 2. The leader of its group checks only writes since then: in the memtables, and by earlier
//!    members of the group, which are not in the memtable yet. It waits until the group before it
//!    is published, so that everything older is visible.
//! 3. A member whose conditions do not hold leaves the group: nothing of it is logged. It is
//!    notified once the group is published, because the conflicting write may be in the group.
//!
//! A value can disappear without a write: it expires, or a compaction filter removes it. So the
//! leader reads the key of a condition on a value again if the expiry horizon has moved, or a
//! version was installed, while the writer waited. For a transaction, it reads a table only if the
//! memtable of that moment was flushed meanwhile. Expiry does not change what a transaction has
//! read. But an entry that was written after the transaction began, and has expired since, may have
//! left no trace in the tables: if they would have to be read, that counts as a change.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use trommel_base::{EntryKind, MAX_SEQNO, SeqNo};

use crate::batch::{Batch, Condition, OpKind, Operation};
use crate::bounds::Bounds;
use crate::conflict::{Conflict, Expected};
use crate::engine::Engine;
use crate::error::Result;
use crate::expiry::Horizons;
use crate::options::WriteOptions;
use crate::ranges::{RangeSet, Readers};
use crate::read::Change;
use crate::view::{ReadMoment, Since, View};
use crate::write_queue::{Leader, Member, Wanted, WriteTerms};

impl Engine {
    /// As `write`, if the conditions hold; otherwise [`Error::Conflict`]. The conditions of a
    /// transaction are on writes since it began; the others come without a moment.
    pub(crate) fn write_if(
        &self,
        batch: Batch<'_>,
        conditions: Cow<'_, [Condition]>,
        since: Option<Since>,
        options: WriteOptions,
    ) -> Result<SeqNo> {
        self.access.opener().check()?;
        self.access.check_writable()?;
        let since = match since {
            Some(since) => self.unchanged_until(&conditions, since)?,
            None => self.hold_at(&conditions)?,
        };
        let terms = Some(Box::new(WriteTerms { conditions, since }));
        let sync = self.wants_sync(options);
        if batch.count() == 0 {
            let seqno = self.commit(Wanted { batch: Some(batch), sync: false, terms })?;
            if sync {
                self.sync()?;
            }
            return Ok(seqno);
        }
        if sync {
            self.wait_to_sync()?;
        }
        let seqno = self.commit(Wanted { batch: Some(batch), sync, terms })?;
        if sync {
            self.sync_without_log()?;
        }
        Ok(seqno)
    }

    /// Checks conditions on values now. They hold at the returned moment, or were changed since.
    fn hold_at(&self, conditions: &[Condition]) -> Result<Since> {
        let since = self.since_now();
        for condition in conditions {
            self.check_value(condition)?;
        }
        Ok(since)
    }

    /// Checks a condition on a value by a read.
    fn check_value(&self, condition: &Condition) -> Result<()> {
        let found = match condition {
            // The value of a key that should have none is not copied.
            Condition::Absent(key) => self.contains(key, None)?.then(Default::default),
            Condition::Value { key, .. } => self.get(key, None)?,
            Condition::Unchanged(_) | Condition::UnchangedRange(_) => return Ok(()),
        };
        condition.conflict(found.as_deref()).map_or(Ok(()), |conflict| Err(conflict.into()))
    }

    /// Checks the writes in tables since the moment that a transaction began, and returns a later
    /// moment, unless the memtables still hold all writes since then.
    fn unchanged_until(&self, conditions: &[Condition], since: Since) -> Result<Since> {
        if self.view.load().holds_all_since(&since) {
            return Ok(since);
        }
        let until = self.since_now();
        // Loaded after that moment: everything up to it is in this view.
        let view = self.view.load_full();
        let judge = Judge::new(self, &view, None);
        conditions.iter().try_for_each(|condition| judge.check(condition, &since))?;
        Ok(until)
    }

    /// Checks the conditions of a group's members in order, each after the writes of those before
    /// it. Returns the outcome of the leader's own conditions; `verdicts` gets those of the
    /// followers.
    pub(super) fn judge_group(
        &self,
        leader: &Leader,
        own: &Wanted<'_>,
        followers: &[Arc<Member>],
        verdicts: &mut Vec<Result<()>>,
    ) -> Result<Result<()>> {
        self.wait_published(leader.last_seqno)?;
        let view = self.view.load();
        let mut earlier = EarlierWrites::default();
        let judge = |wanted: &Wanted<'_>, earlier: &EarlierWrites<'_>| match &wanted.terms {
            Some(terms) => Judge::new(self, &view, Some(earlier)).check_all(terms, leader),
            None => Ok(()),
        };
        let own_verdict = judge(own, &earlier);
        let last = followers.iter().rposition(|member| member.wanted.terms.is_some());
        if last.is_some() && own_verdict.is_ok() {
            earlier.add(own);
        }
        for (at, member) in followers.iter().enumerate() {
            let verdict = judge(&member.wanted, &earlier);
            if Some(at) < last && verdict.is_ok() {
                earlier.add(&member.wanted);
            }
            verdicts.push(verdict);
        }
        Ok(own_verdict)
    }
}

/// Checks conditions against one view.
struct Judge<'a> {
    engine: &'a Engine,
    view: &'a View,
    /// The expiry horizons.
    horizons: Arc<Horizons>,
    /// The range tombstones, if there are any.
    ranges: Option<ReadMoment<'a>>,
    earlier: Option<&'a EarlierWrites<'a>>,
}

impl<'a> Judge<'a> {
    fn new(engine: &'a Engine, view: &'a View, earlier: Option<&'a EarlierWrites<'a>>) -> Self {
        // Loaded after the view: nothing else is missing from the view because it has expired.
        let horizons = engine.snapshots.horizons();
        let ranges = view.has_ranges().then(|| view.moment(None, &engine.snapshots));
        Self { engine, view, horizons, ranges, earlier }
    }

    fn check_all(&self, terms: &WriteTerms<'_>, leader: &Leader) -> Result<()> {
        let is_first = self.earlier.is_none_or(EarlierWrites::is_empty);
        let is_unwritten = is_first && leader.last_seqno == terms.since.seqno;
        if is_unwritten && self.view.differs_only_by_writes(&terms.since, &self.horizons) {
            return Ok(());
        }
        terms.conditions.iter().try_for_each(|condition| self.check(condition, &terms.since))
    }

    /// Checks a condition that held at a moment.
    fn check(&self, condition: &Condition, since: &Since) -> Result<()> {
        let conflict = match condition {
            Condition::Absent(key) | Condition::Value { key, .. } => {
                let earlier = self.earlier.map_or(Change::None, |earlier| earlier.change_of(key));
                let change = match earlier {
                    Change::None if self.view.differs_only_by_writes(since, &self.horizons) => {
                        self.change_of(key, since.seqno)
                    }
                    Change::None => return self.engine.check_value(condition),
                    change => change,
                };
                match change {
                    Change::Merged => return self.check_merged(condition, key),
                    change => met_by(condition, change),
                }
            }
            Condition::Unchanged(key) => {
                let change = self.change_of(key, since.seqno);
                let is_changed = change != Change::None || self.changed_in_tables(key, since)?;
                is_changed.then(|| Conflict::new(key, Expected::Unchanged))
            }
            Condition::UnchangedRange(bounds) => {
                self.changed_in(bounds, since)?.map(|key| Conflict::new(&key, Expected::Unchanged))
            }
        };
        conflict.map_or(Ok(()), |conflict| Err(conflict.into()))
    }

    /// Checks a condition on the value of `key`, whose last change is a merge: in the memtables, or
    /// by an earlier member of the group.
    #[cold]
    fn check_merged(&self, condition: &Condition, key: &[u8]) -> Result<()> {
        let merges = self.earlier.map(|earlier| earlier.merges_of(key)).unwrap_or_default();
        if merges.operands.is_empty() {
            return self.engine.check_value(condition);
        }
        let stored = match merges.base {
            None => self.engine.get(key, None)?,
            Some(_) => None,
        };
        let base = merges.base.unwrap_or(stored.as_deref());
        let value = self.engine.apply_operands((key, MAX_SEQNO), base, &merges.operands)?;
        condition.conflict(value.as_deref()).map_or(Ok(()), |conflict| Err(conflict.into()))
    }

    fn change_of(&self, key: &[u8], since: SeqNo) -> Change<'_> {
        match self.earlier.map_or(Change::None, |earlier| earlier.change_of(key)) {
            Change::None => self.view.change_of(key, since, self.ranges.as_ref()),
            change => change,
        }
    }

    /// Whether a write to `key` since that moment is in a table, or may have been. The snapshot of
    /// the transaction keeps a trace of every later change, except of expired entries.
    fn changed_in_tables(&self, key: &[u8], since: &Since) -> Result<bool> {
        if self.view.holds_all_since(since) {
            return Ok(false);
        }
        // Something that was written since then may have expired.
        if self.horizons.before(key) > since.seqno + 1 {
            return Ok(true);
        }
        self.engine.changed_in_tables(self.view, key, since.seqno)
    }

    fn changed_in(&self, bounds: &Bounds, since: &Since) -> Result<Option<Vec<u8>>> {
        let in_memory = self
            .earlier
            .and_then(|earlier| earlier.changed_in(bounds))
            .or_else(|| self.view.changed_in(bounds, since.seqno, self.ranges.as_ref()));
        if in_memory.is_some() || self.view.holds_all_since(since) {
            return Ok(in_memory);
        }
        let highest = match &bounds.to {
            Some(to) => self.horizons.spans(&bounds.from, to).map(|span| span.seqno).max(),
            None => Some(self.horizons.newest()),
        };
        if highest > Some(since.seqno + 1) && !bounds.ends_before(&bounds.from) {
            return Ok(Some(bounds.from.clone()));
        }
        self.engine.range_changed_in_tables(self.view, bounds, since.seqno)
    }
}

/// The conflict of a condition on a value with a change of its key.
fn met_by(condition: &Condition, change: Change<'_>) -> Option<Conflict> {
    match change {
        Change::None => None,
        Change::Value(value) => condition.conflict(Some(value)),
        Change::Deleted => condition.conflict(None),
        // Compared with its value instead.
        Change::Merged => None,
    }
}

/// The last merges into a key by the earlier members of a group.
#[derive(Default)]
struct EarlierMerges<'a> {
    /// The key's value before them, if these members have set or deleted it.
    base: Option<Option<&'a [u8]>>,
    /// Oldest first.
    operands: Vec<&'a [u8]>,
}

/// The writes of the earlier members of a group.
#[derive(Default)]
struct EarlierWrites<'a> {
    /// The last operation on each key, with its number.
    newest: BTreeMap<&'a [u8], (SeqNo, Operation<'a>)>,
    /// For each key that is merged into: the last put or delete, if there is one, and the merges
    /// after it, in order.
    merges: BTreeMap<&'a [u8], Vec<(SeqNo, Operation<'a>)>>,
    ranges: RangeSet,
    operations: SeqNo,
}

impl<'a> EarlierWrites<'a> {
    fn is_empty(&self) -> bool {
        self.operations == 0
    }

    fn add(&mut self, wanted: &'a Wanted<'_>) {
        let Some(batch) = &wanted.batch else { return };
        batch.for_each(|op| {
            self.operations += 1;
            match op.kind.entry() {
                Some(EntryKind::Merge) => self.add_merge(op),
                Some(_) => _ = self.newest.insert(op.key, (self.operations, op)),
                None => {
                    let tombstone = op.range_tombstone(self.operations);
                    // All readers are later: only the newest tombstone of a key counts.
                    let later = Readers::at(Vec::new());
                    self.ranges = self.ranges.with(tombstone.into_iter().collect(), &later);
                }
            }
        });
    }

    #[cold]
    fn add_merge(&mut self, op: Operation<'a>) {
        let before = self.newest.insert(op.key, (self.operations, op));
        let merges = self.merges.entry(op.key).or_default();
        if let Some(before) = before.filter(|(_, before)| before.kind != OpKind::Merge) {
            *merges = vec![before];
        }
        merges.push((self.operations, op));
    }

    /// The merges into `key`, if one is the last operation on it.
    fn merges_of(&self, key: &[u8]) -> EarlierMerges<'a> {
        let deleted = self.ranges.covering(key, MAX_SEQNO);
        let mut found = EarlierMerges { base: (deleted > 0).then_some(None), operands: Vec::new() };
        for (_, op) in self.merges.get(key).into_iter().flatten().filter(|(at, _)| *at > deleted) {
            match op.kind {
                OpKind::Merge => found.operands.push(op.value),
                OpKind::Put => found.base = Some(Some(op.value)),
                _ => found.base = Some(None),
            }
        }
        found
    }

    fn change_of(&self, key: &[u8]) -> Change<'a> {
        let deleted = self.ranges.covering(key, MAX_SEQNO);
        match self.newest.get(key) {
            Some((at, op)) if *at > deleted && op.kind == OpKind::Put => Change::Value(op.value),
            Some((at, op)) if *at > deleted && op.kind == OpKind::Merge => Change::Merged,
            None if deleted == 0 => Change::None,
            _ => Change::Deleted,
        }
    }

    fn changed_in(&self, bounds: &Bounds) -> Option<Vec<u8>> {
        if self.is_empty() || bounds.ends_before(&bounds.from) {
            return None;
        }
        let end = bounds.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut keys = self.newest.range::<[u8], _>((Bound::Included(&*bounds.from), end));
        keys.next().map(|(key, _)| key.to_vec()).or_else(|| self.ranges.deleted_in(bounds, 0))
    }
}

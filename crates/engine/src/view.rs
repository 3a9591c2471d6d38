//! The view: the memtables and the version that a read uses, as one immutable value. It is replaced
//! as a whole when a memtable is frozen or a version is installed; a reader that loaded it keeps
//! what it needs alive.

use std::sync::Arc;

use trommel_base::{EntryRef, SeqNo};
use trommel_memtable::Memtable;

use crate::batch::Operation;
use crate::ranges::{LiveRanges, LoadedRanges, RangeSet};
use crate::snapshots::Snapshots;
use crate::sync::{Guard, Mutex, Swap, lock};
use crate::version::{Candidates, Fences, Version};

/// A memtable, and the log that holds its writes.
#[derive(Debug)]
pub(crate) struct LoggedMemtable {
    pub(crate) memtable: Arc<Memtable>,
    /// Number of the log that its writes go to.
    pub(crate) log_number: u64,
    /// Earlier logs that hold writes of this memtable, oldest first: at open there was no space to
    /// write them to tables.
    pub(crate) earlier_logs: Vec<u64>,
    /// The range tombstones written to it.
    pub(crate) ranges: LiveRanges,
}

impl LoggedMemtable {
    pub(crate) fn new(memtable: Arc<Memtable>, log_number: u64) -> Self {
        Self { memtable, log_number, earlier_logs: Vec::new(), ranges: LiveRanges::default() }
    }

    /// The same contents, under another log.
    pub(crate) fn logged_in(&self, log_number: u64, earlier_logs: Vec<u64>) -> Self {
        let (memtable, ranges) = (Arc::clone(&self.memtable), self.ranges.copy());
        Self { memtable, log_number, earlier_logs, ranges }
    }

    /// Applies an operation that becomes visible at `seqno`. Returns whether it is the first that
    /// deletes a range.
    #[inline(always)]
    pub(crate) fn insert(&self, op: Operation<'_>, seqno: SeqNo, snapshots: &Snapshots) -> bool {
        let Some(kind) = op.kind.entry() else { return self.delete_range(op, seqno, snapshots) };
        self.memtable.insert(op.key, seqno, kind, op.value);
        false
    }

    #[cold]
    #[inline(never)]
    fn delete_range(&self, op: Operation<'_>, seqno: SeqNo, snapshots: &Snapshots) -> bool {
        op.range_tombstone(seqno).is_some_and(|range| self.ranges.add(range, snapshots))
    }

    /// Whether nothing was written to it.
    pub(crate) fn is_empty(&self) -> bool {
        self.memtable.is_empty() && self.ranges.is_empty()
    }

    /// Bytes of memory held.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> u64 {
        let ranges = if self.ranges.is_empty() { 0 } else { self.ranges.memory_bytes() };
        (self.memtable.memory_bytes() + ranges) as u64
    }

    /// Number of the oldest log that holds a write of this memtable.
    pub(crate) fn oldest_log(&self) -> u64 {
        self.earlier_logs.first().copied().unwrap_or(self.log_number)
    }
}

/// The sources of every read, newest first: active memtable, frozen memtables, version.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) active: Arc<LoggedMemtable>,
    /// Full memtables waiting to be flushed, newest first.
    pub(crate) frozen: Vec<Arc<LoggedMemtable>>,
    pub(crate) version: Arc<Version>,
    /// The fences of `version`.
    pub(crate) fences: Arc<Fences>,
    /// The range tombstones of all sources but the active memtable.
    ranges: RangeSet,
    /// Whether there are any of these, or entries expire.
    has_older_ranges: bool,
}

/// What a snapshot reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadAt<'a> {
    /// Its registered sequence number.
    pub(crate) seqno: SeqNo,
    /// The view that it keeps, in a store with a compaction filter; otherwise the current one.
    pub(crate) view: Option<&'a Arc<View>>,
}

/// The sequence number that a read is as of, and the range tombstones that it may see.
#[derive(Debug)]
pub(crate) struct ReadMoment<'a> {
    pub(crate) seqno: SeqNo,
    /// Those of the active memtable.
    active: Option<Arc<LoadedRanges>>,
    others: &'a RangeSet,
    /// Entries with a lower one have expired.
    horizon: SeqNo,
}

impl ReadMoment<'_> {
    /// Every version of `key` with a lower sequence number is deleted or expired; 0 if none is.
    pub(crate) fn covering(&self, key: &[u8]) -> SeqNo {
        let active = self.active.as_ref().map_or(0, |one| one.set.covering(key, self.seqno));
        active.max(self.others.covering(key, self.seqno)).max(self.horizon)
    }

    /// All range tombstones, and what has expired.
    pub(crate) fn ranges(&self) -> RangeSet {
        let mut all = self.others.clone();
        self.active.iter().for_each(|active| all.extend(&active.set));
        all.expire_before(self.horizon);
        all
    }
}

/// The current view.
#[derive(Debug)]
pub(crate) struct CurrentView {
    current: Swap<View>,
    /// Held while it is replaced.
    change: Mutex<()>,
}

impl CurrentView {
    pub(crate) fn new(view: View) -> Self {
        Self { current: Swap::new(Arc::new(view)), change: Mutex::default() }
    }

    /// The view, for as long as the guard lives.
    #[inline]
    pub(crate) fn load(&self) -> Guard<Arc<View>> {
        self.current.load()
    }

    /// The view, as an owned reference.
    pub(crate) fn load_full(&self) -> Arc<View> {
        self.current.load_full()
    }

    /// Replaces the view by `change` applied to it, and passes the new one to `installed` before
    /// another replaces it.
    pub(crate) fn replace(
        &self,
        change: impl FnOnce(&View) -> View,
        installed: impl FnOnce(&View),
    ) {
        let _one_at_a_time = lock(&self.change);
        let changed = Arc::new(change(&self.current.load()));
        self.current.store(Arc::clone(&changed));
        installed(&changed);
    }
}

impl View {
    pub(crate) fn new(
        active: Arc<LoggedMemtable>,
        frozen: Vec<Arc<LoggedMemtable>>,
        version: Arc<Version>,
        fences: Arc<Fences>,
    ) -> Self {
        let mut ranges = version.ranges.clone();
        for loaded in frozen.iter().filter_map(|logged| logged.ranges.load()) {
            ranges.extend(&loaded.set);
        }
        let has_older_ranges = !ranges.is_empty() || version.time_marks.is_on();
        Self { active, frozen, version, fences, ranges, has_older_ranges }
    }

    /// Whether a reader must heed range tombstones or expiry. To be called after the reader has
    /// taken its sequence number; if so, [`View::moment`] takes another.
    #[inline]
    pub(crate) fn has_ranges(&self) -> bool {
        self.has_older_ranges || !self.active.ranges.is_empty()
    }

    /// The moment of a read at a registered sequence number, or now, among range tombstones and
    /// entries that expire.
    #[cold]
    #[inline(never)]
    pub(crate) fn moment(&self, at: Option<SeqNo>, snapshots: &Snapshots) -> ReadMoment<'_> {
        // Before the sequence number: what is newest at it has not expired by then.
        let horizon = snapshots.horizon();
        let mut seqno = at.unwrap_or_else(|| snapshots.visible());
        let mut active = self.active.ranges.load();
        // See the head of `ranges::live`.
        while at.is_none() && active.as_ref().is_some_and(|active| active.exact_from > seqno) {
            seqno = snapshots.visible();
            active = self.active.ranges.load();
        }
        ReadMoment { seqno, active, others: &self.ranges, horizon }
    }

    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<LoggedMemtable>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// The newest version of `key` in memory that is not newer than `seqno`.
    #[inline]
    pub(crate) fn get_in_memory(&self, key: &[u8], seqno: SeqNo) -> Option<EntryRef<'_>> {
        self.memtables().find_map(|logged| logged.memtable.get(key, seqno))
    }

    /// The tables that may hold `key`, newest first.
    #[inline]
    pub(crate) fn tables_for<'a>(&'a self, key: &'a [u8]) -> Candidates<'a> {
        self.fences.candidates(key)
    }

    /// Bytes of all memtables.
    pub(crate) fn memtable_bytes(&self) -> usize {
        self.memtables().map(|logged| logged.memory_bytes() as usize).sum()
    }
}

//! The view: the memtables and the version that a read uses, as one immutable value. It is replaced
//! as a whole when a memtable is frozen or a version is installed; a reader that loaded it keeps
//! what it needs alive.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use trommel_base::{EntryKind, EntryRef, SeqNo};
use trommel_memtable::Memtable;

use crate::batch::Operation;
use crate::bounds::Bounds;
use crate::expiry::Horizons;
use crate::ranges::{Gaps, LiveRanges, LoadedRanges, RangeSet};
use crate::snapshots::Snapshots;
use crate::sync::{AtomicUsize, Guard, Mutex, Swap, lock};
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
    /// Number of tombstones in it.
    tombstones: AtomicUsize,
}

/// Fewer tombstones of single keys are not worth a flush at rest.
const FEWEST_TOMBSTONES: usize = 4096;
/// Nor are tombstones that are less than one in this many entries.
const TOMBSTONES_PART: usize = 2;
/// Number of further tombstones after which these limits are checked again.
const TOMBSTONES_STEP: usize = 512;

impl LoggedMemtable {
    pub(crate) fn new(memtable: Arc<Memtable>, log_number: u64) -> Self {
        Self {
            memtable,
            log_number,
            earlier_logs: Vec::new(),
            ranges: LiveRanges::default(),
            tombstones: AtomicUsize::new(0),
        }
    }

    /// The same contents, under another log.
    pub(crate) fn logged_in(&self, log_number: u64, earlier_logs: Vec<u64>) -> Self {
        let (memtable, ranges) = (Arc::clone(&self.memtable), self.ranges.copy());
        let tombstones = AtomicUsize::new(self.tombstones.load(Ordering::Relaxed));
        Self { memtable, log_number, earlier_logs, ranges, tombstones }
    }

    /// Applies an operation that becomes visible at `seqno`. Returns whether
    /// [`frees_space`](Self::frees_space) may have changed.
    #[inline(always)]
    pub(crate) fn insert(&self, op: Operation<'_>, seqno: SeqNo, snapshots: &Snapshots) -> bool {
        let Some(kind) = op.kind.entry() else { return self.delete_range(op, seqno, snapshots) };
        self.memtable.insert(op.key, seqno, kind, op.value);
        kind == EntryKind::Delete && self.count_tombstone()
    }

    /// Counts a tombstone. Returns whether [`frees_space`](Self::frees_space) should be checked
    /// again.
    #[inline(never)]
    fn count_tombstone(&self) -> bool {
        let tombstones = self.tombstones.fetch_add(1, Ordering::Relaxed) + 1;
        if tombstones == FEWEST_TOMBSTONES && self.frees_space() {
            // A memtable holds many more tombstones than values. With a scan while they are few,
            // later ones are sorted as they are inserted, and the next scan need not sort all of
            // them at once.
            drop(self.memtable.cursor());
        }
        tombstones >= FEWEST_TOMBSTONES && tombstones.is_multiple_of(TOMBSTONES_STEP)
    }

    /// Whether a flush is worth the space that its tombstones free: if it has range tombstones, or
    /// many others.
    pub(crate) fn frees_space(&self) -> bool {
        let tombstones = self.tombstones.load(Ordering::Relaxed);
        let are_many = tombstones >= FEWEST_TOMBSTONES
            && tombstones.saturating_mul(TOMBSTONES_PART) >= self.memtable.len();
        are_many || !self.ranges.is_empty()
    }

    #[cold]
    #[inline(never)]
    fn delete_range(&self, op: Operation<'_>, seqno: SeqNo, snapshots: &Snapshots) -> bool {
        op.range_tombstone(seqno).is_some_and(|range| self.ranges.add(range, snapshots))
    }

    /// Whether it has enough tombstones for a scan to find gaps among them.
    pub(crate) fn has_many_tombstones(&self) -> bool {
        self.tombstones.load(Ordering::Relaxed) >= Gaps::FEWEST_KEYS as usize
    }

    /// Whether nothing was written to it.
    pub(crate) fn is_empty(&self) -> bool {
        self.memtable.is_empty() && self.ranges.is_empty()
    }

    /// Bytes of memory held.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.memtable.memory_bytes() + self.ranges.memory_bytes()) as u64
    }

    /// The numbers of the logs that hold its writes, oldest first.
    pub(crate) fn logs(&self) -> impl Iterator<Item = u64> {
        self.earlier_logs.iter().copied().chain([self.log_number])
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

/// The sequence number and the view of a snapshot's reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadAt<'a> {
    /// Its registered sequence number.
    pub(crate) seqno: SeqNo,
    /// The view that it keeps, in a follower or a store with a compaction filter; otherwise the
    /// current one.
    pub(crate) view: Option<&'a Arc<View>>,
}

/// The sequence number that a read is as of, and the range tombstones that it may see.
#[derive(Debug)]
pub(crate) struct ReadMoment<'a> {
    pub(crate) seqno: SeqNo,
    /// The range tombstones of the active memtable.
    active: Option<Arc<LoadedRanges>>,
    others: &'a RangeSet,
    /// The expiry horizons.
    horizons: Arc<Horizons>,
}

impl ReadMoment<'_> {
    /// Every version of `key` with a lower sequence number is deleted or expired; 0 if none is.
    pub(crate) fn covering(&self, key: &[u8]) -> SeqNo {
        let active = self.active.as_ref().map_or(0, |one| one.set.covering(key, self.seqno));
        active.max(self.others.covering(key, self.seqno)).max(self.horizons.before(key))
    }

    /// The newest range tombstone that applies to `key`, whatever has expired; 0 if there is none.
    pub(crate) fn deleting(&self, key: &[u8]) -> SeqNo {
        let active = self.active.as_ref().map_or(0, |one| one.set.deleting(key, self.seqno));
        active.max(self.others.deleting(key, self.seqno))
    }

    /// The first key within `bounds` that a range tombstone newer than `since` applies to.
    pub(crate) fn deleted_in(&self, bounds: &Bounds, since: SeqNo) -> Option<Vec<u8>> {
        let active = self.active.as_ref().and_then(|one| one.set.deleted_in(bounds, since));
        active.or_else(|| self.others.deleted_in(bounds, since))
    }

    /// All range tombstones, and the expiry horizons.
    pub(crate) fn ranges(&self) -> RangeSet {
        let mut all = self.others.clone();
        self.active.iter().for_each(|active| all.extend(&active.set));
        all.set_horizons(&self.horizons);
        all
    }
}

/// A moment, to find the writes after it: see [`View::holds_all_since`].
#[derive(Debug, Clone)]
pub(crate) struct Since {
    /// Writes up to this sequence number are before the moment.
    pub(crate) seqno: SeqNo,
    /// The memtable that was active before the sequence number was read. Later writes are in it or
    /// in newer ones. Not kept alive: it may be flushed and freed.
    oldest: Weak<Memtable>,
    /// The version at that moment. Not kept alive either.
    version: Weak<Version>,
    /// The expiry horizons at that moment.
    horizons: Arc<Horizons>,
}

/// The current view.
#[derive(Debug)]
pub(crate) struct CurrentView {
    current: Swap<View>,
    /// Held while the view is replaced.
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

    /// Passes the view to `read`; it is not replaced meanwhile.
    pub(crate) fn hold<T>(&self, read: impl FnOnce(&Arc<View>) -> T) -> T {
        let _none_replaces = lock(&self.change);
        read(&self.current.load())
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

    /// Whether a reader must take range tombstones or expiry into account. A reader must call this
    /// after it has taken its sequence number; if true, [`View::moment`] takes another.
    #[inline]
    pub(crate) fn has_ranges(&self) -> bool {
        self.has_older_ranges || !self.active.ranges.is_empty()
    }

    /// As [`has_ranges`](Self::has_ranges), for a read as of `at`, or now: entries may have begun
    /// to expire after a snapshot has taken its view.
    #[inline]
    pub(crate) fn needs_moment(&self, at: Option<ReadAt<'_>>, snapshots: &Snapshots) -> bool {
        self.has_ranges() || at.is_some_and(|at| at.view.is_some() && snapshots.expiry.hides_any())
    }

    /// The moment of a read at a registered sequence number, or now, among range tombstones and
    /// entries that expire.
    #[cold]
    #[inline(never)]
    pub(crate) fn moment(&self, at: Option<SeqNo>, snapshots: &Snapshots) -> ReadMoment<'_> {
        // Loaded before the sequence number: the newest entries at it have not expired by then.
        let horizons = snapshots.horizons();
        let mut seqno = at.unwrap_or_else(|| snapshots.visible());
        let mut active = self.active.ranges.load();
        // See the head of `ranges::live`.
        while at.is_none() && active.as_ref().is_some_and(|active| active.exact_from > seqno) {
            seqno = snapshots.visible();
            active = self.active.ranges.load();
        }
        ReadMoment { seqno, active, others: &self.ranges, horizons }
    }

    /// The moment of a sequence number that was visible, or a snapshot's, and was read after this
    /// view was loaded.
    pub(crate) fn since(&self, seqno: SeqNo, snapshots: &Snapshots) -> Since {
        let horizons = snapshots.horizons();
        if snapshots.is_before_load(seqno) {
            // Loaded entries are newer, and in no memtable.
            return Since { seqno, oldest: Weak::new(), version: Weak::new(), horizons };
        }
        let (oldest, version) = (&self.active.memtable, &self.version);
        let (oldest, version) = (Arc::downgrade(oldest), Arc::downgrade(version));
        Since { seqno, oldest, version, horizons }
    }

    /// Whether the only changes since that moment are writes that the memtables hold: nothing has
    /// expired, by these `horizons`, or was flushed, filtered or compacted.
    pub(crate) fn differs_only_by_writes(&self, since: &Since, horizons: &Horizons) -> bool {
        horizons.are(&since.horizons) && Arc::as_ptr(&self.version) == since.version.as_ptr()
    }

    /// Whether the memtables hold everything written since that moment. They are flushed oldest
    /// first, so it is enough that the oldest is still there.
    pub(crate) fn holds_all_since(&self, since: &Since) -> bool {
        self.memtables().any(|logged| Arc::as_ptr(&logged.memtable) == since.oldest.as_ptr())
    }

    /// All memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<LoggedMemtable>> + Clone {
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

#[cfg(test)]
mod tests {
    use trommel_memtable::{ArenaPool, MemtableKind};

    use super::*;
    use crate::batch::OpKind;

    fn memtable() -> Arc<Memtable> {
        Arc::new(Memtable::new(MemtableKind::Hash, &ArenaPool::new(0)))
    }

    #[test]
    fn many_tombstones_of_a_memtable_free_space_and_few_do_not() {
        let active = LoggedMemtable::new(memtable(), 1);
        let snapshots = Snapshots::default();
        let mut seqno = 0;
        let mut insert = |kind: OpKind, count: usize| {
            let mut one = |_: usize| {
                seqno += 1;
                let key = format!("{seqno}");
                let op = Operation { kind, key: key.as_bytes(), value: b"" };
                active.insert(op, seqno, &snapshots)
            };
            ((0..count).filter(|nth| one(*nth)).count(), active.frees_space())
        };
        assert_eq!(insert(OpKind::Delete, FEWEST_TOMBSTONES - 1), (0, false));
        assert_eq!(insert(OpKind::Delete, 1), (1, true));
        assert_eq!(insert(OpKind::Put, FEWEST_TOMBSTONES), (0, true));
        assert_eq!(insert(OpKind::Put, 1), (0, false), "less than half");
        // Noticed before there are twice as many.
        assert_eq!(insert(OpKind::Delete, TOMBSTONES_STEP), (1, true));
        let other = active.logged_in(2, Vec::new());
        assert!(other.frees_space(), "the same contents");
        assert_eq!(insert(OpKind::Put, 2 * FEWEST_TOMBSTONES), (0, false));
        assert_eq!(insert(OpKind::RangeDeleteFrom, 1), (1, true));
    }
}

//! The order of the entries: a run that is sorted when the first scan starts, and a tree for later
//! inserts.
//!
//! # Algorithm
//! 1. Each entry has a [`Slot`] of 24 bytes: the first 16 bytes of its key after the prefix that
//!    most keys share, and the address of its record. Comparisons rarely read more.
//! 2. An insert appends its slot to an unsorted list. Lists are sorted all at once, into a run,
//!    when the first scan starts: in a store that is only written to, that is the flush. If the
//!    number of entries is known in advance, there is one list with that capacity, which is sorted
//!    in place.
//! 3. After the first scan, and from the beginning if the memtable before had scans, an insert puts
//!    its slot into a tree (module `tree`). So no later scan waits for entries to be sorted, and no
//!    insert for more than a few nodes.
//! 4. A scan merges the run and the tree as they are at its start.
//!
//! In a search tree or a skip list, each insert waits for a sequence of dependent cache misses.
//! Before a scan an insert waits for none, and sorting is sequential.
//!
//! # Invariants
//! * Slots of the run are in the order of [`trommel_base::compare_internal`]; no two are equal. A
//!   slot of the run repeats if and only if the slot before it has the same key.
//!
//! One of the modules of this crate that hold `unsafe`.

use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use trommel_base::SeqNo;

use crate::arena::{Arena, SMALLEST_MAP};
use crate::index::IndexScan;
use crate::list::List;
use crate::record::Stored;
use crate::slot::{Probe, Slot};
use crate::tree::{Tree, TreeScan};
use crate::versions::{Moment, Position};

/// Slots in a list: 384 KiB.
const UNSORTED: usize = if cfg!(trommel_loom) { 2 } else { 16 << 10 };
/// The fewest expected slots for which one list of them all is allocated: those that fill a map.
const EXPECTED_MIN: usize = if cfg!(trommel_loom) { 2 } else { SMALLEST_MAP / size_of::<Slot>() };
/// The most slots that are reserved at once.
const EXPECTED_MAX: usize = 1 << 24;
/// How many slots ahead a scan prefetches the head of a record, and the rest of it.
const HEAD_AHEAD: isize = 8;
const PAYLOAD_AHEAD: isize = 4;
/// Slots that are examined to find one to prefetch.
const MOST_EXAMINED: isize = 16;

/// Slots in order, which are never changed.
pub(crate) struct SortedRun {
    slots: List<Slot>,
    /// The largest sequence number of each [`BLOCK`] slots, and of each [`BLOCK`] of these;
    /// computed when an iterator first skips old entries.
    newest: OnceLock<[Vec<SeqNo>; 2]>,
}

type Run = Arc<SortedRun>;

/// Slots, or groups of slots, whose largest sequence number is known.
const BLOCK: usize = if cfg!(test) { 4 } else { 64 };

impl Deref for SortedRun {
    type Target = [Slot];

    #[inline]
    fn deref(&self) -> &[Slot] {
        &self.slots
    }
}

impl SortedRun {
    fn new(slots: List<Slot>) -> Self {
        Self { slots, newest: OnceLock::new() }
    }

    fn newest(&self) -> &[Vec<SeqNo>; 2] {
        self.newest.get_or_init(|| {
            let largest =
                |slots: &[Slot]| slots.iter().map(|slot| slot.record().seqno()).max().unwrap_or(0);
            let fine: Vec<SeqNo> = self.chunks(BLOCK).map(largest).collect();
            let all = |fine: &[SeqNo]| fine.iter().copied().max().unwrap_or(0);
            let coarse = fine.chunks(BLOCK).map(all).collect();
            [fine, coarse]
        })
    }

    /// The first slot from `at` on that was written at `since` or later; `end` if none is before
    /// it.
    fn next_since(&self, mut at: usize, end: usize, since: SeqNo) -> usize {
        let [fine, coarse] = self.newest();
        let is_old = |newest: &[SeqNo], nth: usize| newest.get(nth).is_some_and(|it| *it < since);
        while at < end {
            if at.is_multiple_of(BLOCK * BLOCK) && is_old(coarse, at / (BLOCK * BLOCK)) {
                at += BLOCK * BLOCK;
            } else if at.is_multiple_of(BLOCK) && is_old(fine, at / BLOCK) {
                at += BLOCK;
            } else if self.get(at).is_some_and(|slot| slot.record().seqno() < since) {
                at += 1;
            } else {
                break;
            }
        }
        at.min(end)
    }

    /// The place after the last slot before `at` that was written at `since` or later; `begin` if
    /// none is at or after it.
    fn end_of_older(&self, mut at: usize, begin: usize, since: SeqNo) -> usize {
        let [fine, coarse] = self.newest();
        let is_old = |newest: &[SeqNo], nth: usize| newest.get(nth).is_some_and(|it| *it < since);
        while at > begin {
            if at.is_multiple_of(BLOCK * BLOCK) && is_old(coarse, at / (BLOCK * BLOCK) - 1) {
                at -= BLOCK * BLOCK;
            } else if at.is_multiple_of(BLOCK) && is_old(fine, at / BLOCK - 1) {
                at -= BLOCK;
            } else if self.get(at - 1).is_some_and(|slot| slot.record().seqno() < since) {
                at -= 1;
            } else {
                break;
            }
        }
        at.max(begin)
    }
}

/// All slots of a memtable.
#[derive(Default)]
pub(crate) struct Order {
    /// The capacity of the first list; 0 if it is allocated, or the number is unknown.
    expected: usize,
    /// The first entries, if the number of entries was known in advance.
    first: Option<List<Slot>>,
    /// The latest entries, fewer than [`UNSORTED`].
    unsorted: Vec<Slot>,
    /// Earlier entries, [`UNSORTED`] in each list.
    deferred: Vec<List<Slot>>,
    /// The entries inserted before the first scan.
    run: Option<Run>,
    /// The entries inserted after it.
    tree: Tree,
    /// Bytes that `deferred` and `run` hold.
    full_bytes: usize,
    /// Whether entries go to the tree; then all lists are empty.
    is_eager: bool,
    /// Whether there has been a scan.
    pub(crate) was_scanned: bool,
}

impl Order {
    /// Keeps all entries of an empty order in the tree, as after a scan.
    pub(crate) fn expect_scans(&mut self) {
        self.is_eager = true;
    }

    /// Reserves memory for about this many slots, with the first insert.
    pub(crate) fn expect(&mut self, slots: usize) {
        let slots = slots.min(EXPECTED_MAX);
        // An eighth more, since memtables differ in their number of entries.
        self.expected = if slots < EXPECTED_MIN || self.is_eager { 0 } else { slots + slots / 8 };
    }

    /// Adds an entry.
    #[inline]
    pub(crate) fn push(&mut self, slot: Slot) {
        match &mut self.first {
            Some(first) if first.has_room() => return first.push(slot),
            None if self.is_eager => return self.tree.insert(slot),
            None if self.expected > 0 => return self.push_first(slot),
            _ => self.unsorted.push(slot),
        }
        if self.unsorted.len() >= UNSORTED {
            self.end_list();
        }
    }

    /// Adds the first of the expected entries.
    #[cold]
    fn push_first(&mut self, slot: Slot) {
        self.first = List::with_room(std::mem::take(&mut self.expected));
        self.push(slot);
    }

    /// Bytes of memory held.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        let first = self.first.as_ref().map_or(0, List::bytes);
        let lists = first + self.unsorted.capacity() * size_of::<Slot>();
        lists + self.full_bytes + self.tree.bytes()
    }

    /// The number of entries that are in no order.
    pub(crate) fn unsorted(&self) -> usize {
        let first = self.first.as_ref().map_or(0, |first| first.len());
        first + self.deferred.len() * UNSORTED + self.unsorted.len()
    }

    #[cold]
    fn end_list(&mut self) {
        let mut full = List::with_capacity(UNSORTED);
        full.extend(&self.unsorted);
        self.unsorted.clear();
        self.deferred.push(full);
        self.account();
    }

    fn account(&mut self) {
        let deferred = self.deferred.iter().map(List::bytes).sum::<usize>();
        self.full_bytes = deferred + self.run.as_ref().map_or(0, |run| run.slots.bytes());
    }

    /// Sorts the unsorted entries into the run; there is none yet.
    #[cold]
    fn sort(&mut self) {
        let unsorted = self.unsorted();
        if unsorted == 0 {
            return;
        }
        let rest = std::mem::take(&mut self.unsorted);
        let mut run = match self.first.take() {
            Some(all) if all.len() == unsorted => all,
            first => {
                let mut run = List::with_capacity(unsorted);
                for list in first.into_iter().chain(std::mem::take(&mut self.deferred)) {
                    run.extend(&list);
                }
                run.extend(&rest);
                run
            }
        };
        sort(&mut run);
        self.run = Some(Arc::new(SortedRun::new(run)));
        self.account();
    }

    /// The first entry and the last, if there are any. Sorts nothing.
    pub(crate) fn ends(&self) -> Option<[Slot; 2]> {
        let ends_of_run = self.run.iter().flat_map(|run| [run.first(), run.last()]).flatten();
        let lists = self.first.iter().chain(&self.deferred);
        let unsorted = lists.flat_map(|list| &**list).chain(&self.unsorted);
        let mut all =
            ends_of_run.chain(unsorted).copied().chain(self.tree.ends().into_iter().flatten());
        let first = all.next()?;
        Some(all.fold([first, first], |[first, last], slot| {
            if slot.comes_before(&first) {
                [slot, last]
            } else if last.comes_before(&slot) {
                [first, slot]
            } else {
                [first, last]
            }
        }))
    }

    /// An iterator over all entries, or over the newest version of each key as of `moment` (see
    /// [`crate::versions`]). From now on entries are inserted in order, so that only the first scan
    /// sorts.
    pub(crate) fn scan(&mut self, moment: Option<SeqNo>) -> Scan {
        self.was_scanned = true;
        if !self.is_eager {
            (self.is_eager, self.expected) = (true, 0);
            self.sort();
        }
        let run = RunPosition { run: self.run.clone(), at: 0 };
        let (tree, moment) = (self.tree.scan(), moment.map(Moment));
        Scan { run, tree, moment, current: None, skipped: None, settled: None, begins_key: false }
    }
}

/// Sorts slots.
fn sort(slots: &mut [Slot]) {
    slots.sort_unstable_by_key(Slot::rank);
    // Versions of one key, and long keys. Their records are read for the rest of the order: all of
    // them at once, rather than one after another.
    for alike in slots.chunk_by_mut(|a, b| a.rank() == b.rank()).filter(|alike| alike.len() > 1) {
        alike.iter().for_each(|slot| Stored::prefetch_head(slot.at()));
        alike.sort_unstable_by(|a, b| if a.decide(b) { Ordering::Less } else { Ordering::Greater });
        let mut before = alike[0];
        for slot in &mut alike[1..] {
            slot.note_before(&before);
            before = *slot;
        }
    }
}

/// Where the current entry of a scan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Run,
    Tree,
}

/// A position in the run.
struct RunPosition {
    run: Option<Run>,
    /// The number of slots before it.
    at: usize,
}

impl RunPosition {
    #[inline]
    fn slots(&self) -> &[Slot] {
        self.run.as_deref().map_or(&[], |run| &run[..])
    }
}

impl Position for RunPosition {
    #[inline]
    fn after(&mut self) -> Option<Slot> {
        self.slots().get(self.at).copied()
    }

    #[inline]
    fn before(&mut self) -> Option<Slot> {
        self.slots().get(self.at.checked_sub(1)?).copied()
    }

    #[inline]
    fn advance(&mut self) {
        self.at += 1;
    }

    #[inline]
    fn retreat(&mut self) {
        self.at -= 1;
    }

    #[inline]
    fn is_within_key(&mut self) -> bool {
        self.slots().get(self.at).is_some_and(Slot::repeats)
    }

    fn search(&mut self, probe: &Probe<'_>) {
        self.at = probe.place_near(self.slots(), self.at);
    }
}

/// An iterator over the run and the tree of one moment.
pub(crate) struct Scan {
    /// Before the current entry.
    run: RunPosition,
    /// Before the current entry.
    tree: TreeScan,
    /// The reader's moment, if each part shows one version of a key.
    moment: Option<Moment>,
    /// The part that has the current entry.
    current: Option<Part>,
    /// Whether one of them was moved farther than the current entry: forward, or backward.
    skipped: Option<Ordering>,
    /// The direction in which both parts have been settled, if any.
    settled: Option<Ordering>,
    /// Whether the entry before the current one is known to have another key.
    begins_key: bool,
}

impl IndexScan for Scan {
    fn first(&mut self) {
        self.run.at = 0;
        self.tree.first();
        self.choose_anew(Ordering::Greater);
    }

    fn last(&mut self) {
        self.run.at = self.run.slots().len();
        self.tree.last();
        self.choose_anew(Ordering::Less);
    }

    fn seek(&mut self, probe: &Probe<'_>) {
        self.place(probe);
        self.choose_anew(Ordering::Greater);
    }

    fn before(&mut self, probe: &Probe<'_>) {
        self.place(probe);
        self.choose_anew(Ordering::Less);
    }

    fn skip_older(&mut self, since: SeqNo, end: Option<&Probe<'_>>) {
        let RunPosition { run, at } = &mut self.run;
        if let Some(run) = run {
            let end = end.map_or(run.len(), |end| end.place(run));
            if *at < end {
                *at = run.next_since(*at, end, since);
            }
        }
        self.tree.skip_older(since, end);
        self.choose_anew(Ordering::Greater);
        self.skipped = Some(Ordering::Greater);
    }

    fn skip_older_back(&mut self, since: SeqNo, begin: &Probe<'_>) {
        // The current entry has its place, the other's is before its place.
        match self.current {
            Some(Part::Run) => self.run.advance(),
            Some(Part::Tree) => self.tree.advance(),
            None => {}
        }
        let RunPosition { run, at } = &mut self.run;
        if let Some(run) = run {
            let begin = begin.place(run);
            if *at > begin {
                *at = run.end_of_older(*at, begin, since);
            }
        }
        self.tree.skip_older_back(since, begin);
        self.choose_anew(Ordering::Less);
        self.skipped = Some(Ordering::Less);
    }

    #[inline]
    fn next(&mut self) {
        if self.skipped == Some(Ordering::Less) {
            self.realign();
        }
        match self.current {
            Some(Part::Run) => self.run.advance(),
            Some(Part::Tree) => self.tree.advance(),
            None => return,
        }
        self.settle(Ordering::Greater);
        self.choose_next();
    }

    #[inline]
    fn prev(&mut self) {
        if self.skipped == Some(Ordering::Greater) {
            self.realign();
        }
        if self.current.is_some() {
            self.settle(Ordering::Less);
            self.choose_previous();
        }
    }

    #[inline]
    fn slot(&self) -> Option<&Slot> {
        match self.current? {
            Part::Run => self.run.slots().get(self.run.at),
            Part::Tree => self.tree.slot(),
        }
    }
}

impl Scan {
    /// Moves before the first entry at or after `probe`.
    fn place(&mut self, probe: &Probe<'_>) {
        self.run.search(probe);
        self.tree.search(probe);
    }

    /// Moves both parts to the current entry, before a change of direction after a skip.
    #[cold]
    fn realign(&mut self) {
        self.skipped = None;
        let Some(here) = self.slot().copied() else { return };
        if self.current == Some(Part::Run) {
            self.tree.seek_slot(&here);
        } else {
            self.run.at = self.run.slots().partition_point(|slot| slot.comes_before(&here));
        }
    }

    /// Whether the entry before the current one is known to have another key.
    #[inline]
    pub(crate) fn begins_key(&self) -> bool {
        self.begins_key
    }

    /// The current record, in the arena that the slots point to.
    pub(crate) fn record<'a>(&self, _arena: &'a Arena) -> Option<Stored<'a>> {
        // SAFETY: the arena, borrowed here, lives; as in `Slot::record`.
        self.slot().map(|slot| unsafe { Stored::new(slot.at()) })
    }

    /// Chooses the current entry in this direction after both parts have been moved.
    fn choose_anew(&mut self, direction: Ordering) {
        (self.current, self.skipped, self.settled) = (None, None, None);
        self.settle(direction);
        match direction {
            Ordering::Less => self.choose_previous(),
            _ => self.choose_next(),
        }
    }

    /// Moves each part on to the next version to show: the part that has the current entry, and the
    /// other one if the direction is new.
    #[inline]
    fn settle(&mut self, direction: Ordering) {
        let Some(moment) = self.moment else { return };
        let is_turn = self.settled != Some(direction);
        if is_turn || self.current == Some(Part::Run) {
            moment.settle(&mut self.run, direction);
        }
        if is_turn || self.current == Some(Part::Tree) {
            moment.settle(&mut self.tree, direction);
        }
        self.settled = Some(direction);
    }

    /// Makes the least entry at or after the position the current one.
    #[inline]
    fn choose_next(&mut self) {
        self.current = match (self.run.after(), self.tree.after()) {
            (Some(of_run), Some(of_tree)) if of_tree.comes_before(&of_run) => Some(Part::Tree),
            (Some(_), _) => Some(Part::Run),
            (None, of_tree) => of_tree.map(|_| Part::Tree),
        };
        self.begins_key = false;
        self.prefetch(1);
    }

    /// Moves to the greatest entry before the position.
    #[inline]
    fn choose_previous(&mut self) {
        let ends = (self.run.before(), self.tree.before());
        let may_share_key = ends.0.zip(ends.1).is_some_and(|(a, b)| a.rank() == b.rank());
        self.begins_key = self.moment.is_some() && !may_share_key;
        self.current = match ends {
            (Some(of_run), Some(of_tree)) if of_run.comes_before(&of_tree) => Some(Part::Tree),
            (Some(_), _) => Some(Part::Run),
            (None, of_tree) => of_tree.map(|_| Part::Tree),
        };
        match self.current {
            Some(Part::Run) => self.run.retreat(),
            Some(Part::Tree) => self.tree.retreat(),
            None => {}
        }
        self.prefetch(-1);
    }

    /// Prefetches entries ahead in the direction of travel: the first cache line of one record, and
    /// the rest of another, whose first line has usually arrived by now. Of a key with several
    /// versions, a reader mostly needs the first one.
    #[inline]
    fn prefetch(&self, direction: isize) {
        let Some(current) = self.current else { return };
        let ahead = |steps: isize| match current {
            Part::Run => self.run.slots().get(self.run.at.checked_add_signed(steps * direction)?),
            Part::Tree => self.tree.nearby(steps * direction),
        };
        let is_old = |slot: &Slot| self.moment.is_some() && slot.repeats();
        let first = |from: isize| {
            let steps = (from..from + MOST_EXAMINED).find(|at| !ahead(*at).is_some_and(is_old))?;
            ahead(steps).map(|slot| (slot, steps))
        };
        let Some((slot, steps)) = first(PAYLOAD_AHEAD) else { return };
        slot.record().prefetch_payload();
        if let Some((slot, _)) = first(steps + HEAD_AHEAD - PAYLOAD_AHEAD) {
            Stored::prefetch_head(slot.at());
        }
    }
}

//! The order of the entries: sorted runs, created when a scan starts or when enough entries are
//! unsorted.
//!
//! # Algorithm
//! 1. Each entry has a [`Slot`] of 24 bytes: the first 16 bytes of its key after the prefix that
//!    most keys share, and the address of its record. Comparisons rarely read more.
//! 2. An insert appends its slot to an unsorted list. Lists are sorted all at once, into a run,
//!    when a scan starts: in a store that is only written to, that is the flush. If the number of
//!    entries is known in advance, there is one list with that capacity, which is sorted in place.
//! 3. After the first scan, a list is sorted as soon as it is full, so that no later scan waits for
//!    many entries. A run is merged with the previous one while that is less than [`RATIO`] times
//!    as long, so lengths fall quickly and there are few runs. An entry is moved a few times for
//!    each [`RATIO`]-fold of entries, always sequentially in memory.
//! 4. A scan uses the runs as they are at its start; runs are never changed, only replaced.
//!
//! In a search tree or a skip list, each insert waits for a sequence of dependent cache misses.
//! Here an insert waits for none, and sorting is sequential.
//!
//! # Invariants
//! * Slots of one run are in the order of [`trommel_base::compare_internal`]; no two are equal.
//! * The record of a slot is in the arena of the memtable that holds the order, or that a scan
//!   keeps alive.
//!
//! One of the modules of this crate that hold `unsafe`.

use std::cmp::Ordering;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use trommel_base::{EntryRef, SeqNo, compare_internal, first_words};

use crate::arena::{Arena, CLAIM_ALIGN, SMALLEST_MAP};
use crate::index::IndexScan;
use crate::list::List;
use crate::record::{Record, Stored};

/// Slots in a list: 384 KiB, which fit a second-level cache while they are sorted.
const UNSORTED: usize = if cfg!(trommel_loom) { 2 } else { 16 << 10 };
/// The fewest expected slots for which one list of them all is allocated: those that fill a map.
const EXPECTED_MIN: usize = if cfg!(trommel_loom) { 2 } else { SMALLEST_MAP / size_of::<Slot>() };
/// The most slots that are reserved at once.
const EXPECTED_MAX: usize = 1 << 24;
/// Each run is at least this many times as long as the next.
const RATIO: usize = 4;
/// How many entries ahead a scan prefetches the head of a record, and the rest of it.
const HEAD_AHEAD: usize = 8;
const PAYLOAD_AHEAD: usize = 4;

/// The order of a key relative to the prefix that most keys share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// Smaller than the prefix.
    Below = 0,
    /// Begins with the prefix; the bytes after it are compared first.
    Within = 1,
    /// Greater than every key that begins with the prefix; every key, if there is no prefix.
    Above = 2,
}

impl Class {
    /// The class of `key`, and the part of it that is compared first.
    #[inline]
    fn and_tail<'a>(common_prefix: &[u8], key: &'a [u8]) -> (Self, &'a [u8]) {
        if common_prefix.is_empty() {
            return (Self::Above, key);
        }
        match key.strip_prefix(common_prefix) {
            Some(tail) => (Self::Within, tail),
            None if key < common_prefix => (Self::Below, key),
            None => (Self::Above, key),
        }
    }
}

/// The bits of a slot's address that hold the class.
const CLASS_BITS: usize = 3;
const _: () = assert!(CLASS_BITS < CLAIM_ALIGN);

/// An entry of the sorted order.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    /// The first 16 bytes of the key's tail as two numbers of the same order.
    high: u64,
    low: u64,
    /// The address of the record, with the class in its lowest bits.
    tagged: NonNull<Record>,
}

// SAFETY: it points to a record that is only read, except for an atomic.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// The slot of a record, given the prefix that most keys share.
    #[inline]
    pub(crate) fn new(common_prefix: &[u8], record: Stored<'_>) -> Self {
        let (class, tail) = Class::and_tail(common_prefix, record.key());
        let words = first_words(tail);
        let tagged = record.at().map_addr(|at| at | class as usize);
        Self { high: (words >> 64) as u64, low: words as u64, tagged }
    }

    /// What is compared first: the class, and the first bytes of the key's tail.
    #[inline]
    pub(crate) fn rank(&self) -> (usize, u128) {
        let class = self.tagged.addr().get() & CLASS_BITS;
        (class, u128::from(self.high) << 64 | u128::from(self.low))
    }

    #[inline]
    fn at(&self) -> NonNull<Record> {
        // SAFETY: records are at multiples of `CLAIM_ALIGN`, never at 0, so the address is not zero
        // without its lowest bits.
        unsafe { NonNull::new_unchecked(self.tagged.as_ptr().map_addr(|at| at & !CLASS_BITS)) }
    }

    /// The record of this slot.
    #[inline]
    pub(crate) fn record(&self) -> Stored<'_> {
        // SAFETY: the arena lives (invariant of the module). Slots are passed on under a lock, and
        // records are written before their slot exists.
        unsafe { Stored::new(self.at()) }
    }

    /// The entry of this slot.
    #[inline]
    pub(crate) fn entry(&self) -> EntryRef<'_> {
        self.record().entry()
    }

    #[inline]
    fn comes_before(&self, other: &Self) -> bool {
        let (rank, other_rank) = (self.rank(), other.rank());
        if rank == other_rank { self.decide(other) } else { rank < other_rank }
    }

    #[cold]
    fn decide(&self, other: &Self) -> bool {
        let (one, other) = (self.record(), other.record());
        compare_internal(one.key(), one.seqno(), other.key(), other.seqno()).is_lt()
    }
}

/// A position in the order.
pub(crate) struct Probe<'a> {
    /// As that of a slot.
    pub(crate) rank: (usize, u128),
    pub(crate) key: &'a [u8],
    pub(crate) seqno: SeqNo,
}

impl<'a> Probe<'a> {
    /// The position of version `seqno` of `key`, whether or not it exists.
    #[inline]
    pub(crate) fn new(common_prefix: &[u8], key: &'a [u8], seqno: SeqNo) -> Self {
        let (class, tail) = Class::and_tail(common_prefix, key);
        Self { rank: (class as usize, first_words(tail)), key, seqno }
    }

    /// The number of slots of `run` before this position.
    fn place(&self, run: &[Slot]) -> usize {
        run.partition_point(|slot| match slot.rank().cmp(&self.rank) {
            Ordering::Equal => {
                let record = slot.record();
                compare_internal(record.key(), record.seqno(), self.key, self.seqno).is_lt()
            }
            order => order.is_lt(),
        })
    }
}

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
    /// Earlier entries that have not been scanned, [`UNSORTED`] in each list.
    deferred: Vec<List<Slot>>,
    /// Longest first.
    runs: Vec<Run>,
    /// Bytes that `deferred` and `runs` hold.
    full_bytes: usize,
    /// Whether a full list is sorted at once, instead of when a scan starts.
    is_eager: bool,
    /// Whether there has been a scan.
    pub(crate) was_scanned: bool,
}

impl Order {
    /// Sorts each list when it is full, as after a scan.
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
        first + self.unsorted.capacity() * size_of::<Slot>() + self.full_bytes
    }

    /// The number of entries that are in no run.
    pub(crate) fn unsorted(&self) -> usize {
        let first = self.first.as_ref().map_or(0, |first| first.len());
        first + self.deferred.len() * UNSORTED + self.unsorted.len()
    }

    #[cold]
    fn end_list(&mut self) {
        if self.is_eager {
            return self.sort();
        }
        let mut full = List::with_capacity(UNSORTED);
        full.extend(&self.unsorted);
        self.unsorted.clear();
        self.deferred.push(full);
        self.account();
    }

    fn account(&mut self) {
        let deferred = self.deferred.iter().map(List::bytes).sum::<usize>();
        self.full_bytes = deferred + self.runs.iter().map(|run| run.slots.bytes()).sum::<usize>();
    }

    /// Sorts the unsorted entries into a run.
    fn sort(&mut self) {
        let unsorted = self.unsorted();
        if unsorted == 0 {
            return;
        }
        let mut run = match self.first.take() {
            Some(all) if all.len() == unsorted => all,
            first => {
                let mut run = List::with_capacity(unsorted);
                for list in first.into_iter().chain(std::mem::take(&mut self.deferred)) {
                    run.extend(&list);
                }
                run.extend(&self.unsorted);
                self.unsorted.clear();
                run
            }
        };
        run.sort_unstable_by(
            |a, b| {
                if a.comes_before(b) { Ordering::Less } else { Ordering::Greater }
            },
        );
        while let Some(before) = self.runs.pop_if(|before| before.len() < RATIO * run.len()) {
            run = merged(&before, &run);
        }
        self.runs.push(Arc::new(SortedRun::new(run)));
        self.account();
    }

    /// The first entry and the last, if there are any. Sorts nothing.
    pub(crate) fn ends(&self) -> Option<(&Slot, &Slot)> {
        let ends_of_runs = self.runs.iter().flat_map(|run| [run.first(), run.last()]).flatten();
        let lists = self.first.iter().chain(&self.deferred);
        let unsorted = lists.flat_map(|list| &**list).chain(&self.unsorted);
        let mut all = ends_of_runs.chain(unsorted);
        let first = all.next()?;
        Some(all.fold((first, first), |(first, last), slot| {
            if slot.comes_before(first) {
                (slot, last)
            } else if last.comes_before(slot) {
                (first, slot)
            } else {
                (first, last)
            }
        }))
    }

    /// An iterator over all entries. From now on full lists are sorted at once, so that only the
    /// first scan waits for much sorting.
    pub(crate) fn scan(&mut self) -> Scan {
        (self.is_eager, self.was_scanned, self.expected) = (true, true, 0);
        self.sort();
        let runs = self.runs.iter().map(|run| (Arc::clone(run), 0)).collect();
        Scan { runs, current: None, skipped: None }
    }
}

/// The slots of both, in order.
fn merged(a: &[Slot], b: &[Slot]) -> List<Slot> {
    let mut merged = List::with_capacity(a.len() + b.len());
    let (mut rest_a, mut rest_b) = (a, b);
    while let (Some(first_a), Some(first_b)) = (rest_a.first(), rest_b.first()) {
        // The order is unpredictable, so it is chosen without a branch.
        let is_b = first_b.comes_before(first_a);
        merged.push(if is_b { *first_b } else { *first_a });
        rest_a = &rest_a[usize::from(!is_b)..];
        rest_b = &rest_b[usize::from(is_b)..];
    }
    merged.extend(rest_a);
    merged.extend(rest_b);
    merged
}

/// An iterator over the runs of one moment.
pub(crate) struct Scan {
    /// Each run with the number of its slots before the current entry.
    runs: Vec<(Run, usize)>,
    /// The index of the run that has the current entry.
    current: Option<usize>,
    /// Whether runs were moved farther than the current entry: forward, or backward.
    skipped: Option<Ordering>,
}

impl IndexScan for Scan {
    fn first(&mut self) {
        self.runs.iter_mut().for_each(|(_, at)| *at = 0);
        self.skipped = None;
        self.choose_next();
    }

    fn last(&mut self) {
        self.runs.iter_mut().for_each(|(run, at)| *at = run.len());
        self.skipped = None;
        self.choose_previous();
    }

    fn seek(&mut self, probe: &Probe<'_>) {
        self.runs.iter_mut().for_each(|(run, at)| *at = probe.place(run));
        self.skipped = None;
        self.choose_next();
    }

    fn before(&mut self, probe: &Probe<'_>) {
        self.runs.iter_mut().for_each(|(run, at)| *at = probe.place(run));
        self.skipped = None;
        self.choose_previous();
    }

    fn skip_older(&mut self, since: SeqNo, end: Option<&Probe<'_>>) {
        for (run, at) in &mut self.runs {
            let end = end.map_or(run.len(), |end| end.place(run));
            if *at < end {
                *at = run.next_since(*at, end, since);
            }
        }
        self.skipped = Some(Ordering::Greater);
        self.choose_next();
    }

    fn skip_older_back(&mut self, since: SeqNo, begin: &Probe<'_>) {
        for (nth, (run, at)) in self.runs.iter_mut().enumerate() {
            // The current entry has its place, others are before theirs.
            let place = *at + usize::from(self.current == Some(nth));
            let begin = begin.place(run);
            if place > begin {
                *at = run.end_of_older(place, begin, since);
            } else {
                *at = place;
            }
        }
        self.skipped = Some(Ordering::Less);
        self.choose_previous();
    }

    #[inline]
    fn next(&mut self) {
        if self.skipped == Some(Ordering::Less) {
            self.realign();
        }
        let Some((_, at)) = self.current.and_then(|current| self.runs.get_mut(current)) else {
            return;
        };
        *at += 1;
        self.choose_next();
    }

    #[inline]
    fn prev(&mut self) {
        if self.skipped == Some(Ordering::Greater) {
            self.realign();
        }
        if self.current.is_some() {
            self.choose_previous();
        }
    }

    #[inline]
    fn slot(&self) -> Option<&Slot> {
        let (run, at) = self.runs.get(self.current?)?;
        run.get(*at)
    }
}

impl Scan {
    /// Moves all runs to the current entry, before a change of direction after a skip.
    #[cold]
    fn realign(&mut self) {
        self.skipped = None;
        let Some(here) = self.slot().copied() else { return };
        for (nth, (run, at)) in self.runs.iter_mut().enumerate() {
            if self.current != Some(nth) {
                *at = run.partition_point(|slot| slot.comes_before(&here));
            }
        }
    }

    /// The current record, in the arena that the slots point to.
    pub(crate) fn record<'a>(&self, _arena: &'a Arena) -> Option<Stored<'a>> {
        // SAFETY: the arena, borrowed here, lives; as in `Slot::record`.
        self.slot().map(|slot| unsafe { Stored::new(slot.at()) })
    }

    /// Makes the least entry at or after the position the current one.
    #[inline]
    fn choose_next(&mut self) {
        let mut least: Option<(usize, &Slot)> = None;
        for (i, (run, at)) in self.runs.iter().enumerate() {
            let Some(slot) = run.get(*at) else { continue };
            if least.is_none_or(|(_, least)| slot.comes_before(least)) {
                least = Some((i, slot));
            }
        }
        self.current = least.map(|(i, _)| i);
        if let Some((run, at)) = self.current.and_then(|current| self.runs.get(current)) {
            prefetch_slots(run.get(at + HEAD_AHEAD), run.get(at + PAYLOAD_AHEAD));
        }
    }

    /// Moves to the greatest entry before the position.
    #[inline]
    fn choose_previous(&mut self) {
        let mut largest: Option<(usize, &Slot)> = None;
        for (i, (run, at)) in self.runs.iter().enumerate() {
            let Some(slot) = at.checked_sub(1).and_then(|at| run.get(at)) else { continue };
            if largest.is_none_or(|(_, largest)| largest.comes_before(slot)) {
                largest = Some((i, slot));
            }
        }
        self.current = largest.map(|(i, _)| i);
        if let Some((run, at)) = self.current.and_then(|current| self.runs.get_mut(current)) {
            *at -= 1;
            let ahead = |steps| at.checked_sub(steps).and_then(|at| run.get(at));
            prefetch_slots(ahead(HEAD_AHEAD), ahead(PAYLOAD_AHEAD));
        }
    }
}

/// Prefetches the first cache line of one record, and the rest of another whose first line has
/// arrived by now.
#[inline]
fn prefetch_slots(head: Option<&Slot>, payload: Option<&Slot>) {
    if let Some(slot) = head {
        Stored::prefetch_head(slot.at());
    }
    if let Some(slot) = payload {
        slot.record().prefetch_payload();
    }
}

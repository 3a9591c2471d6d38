//! The order of the entries: sorted runs, made when they are asked for or when enough is unsorted.
//!
//! # Algorithm
//! 1. Of each entry there is a [`Slot`] of 24 bytes: the first 16 bytes of its key behind the
//!    prefix that most keys share, and where it lies. Comparisons rarely look further.
//! 2. An insert appends its slot to an unsorted list. Lists are sorted all at once, and become a
//!    run, when someone wants to walk: in a store that is only written to, that is the thread that
//!    flushes. Where it is known how many entries will come there is one list with room for them,
//!    which is sorted where it lies.
//! 3. Once someone has walked, a list is sorted when it is full, so that no later walk waits for
//!    many. A run is merged with the one before it while that is less than [`RATIO`] times as long,
//!    so runs get shorter quickly and there are few; an entry is moved a few times for each
//!    [`RATIO`]-fold of entries, always along memory.
//! 4. A walk takes the runs as they are at its beginning; they are never changed, only replaced.
//!
//! A search tree or a skip list makes each insert wait for the cache misses of a search, one behind
//! the other; here an insert waits for none, and sorting goes along memory.
//!
//! # Invariants
//! * Slots of one run stand in the order of [`trommel_base::compare_internal`]; no two are equal.
//! * What a slot leads to lies in the arena of the memtable that holds the order, or that a walk
//!   keeps alive.
//!
//! One of the modules of this crate that hold `unsafe`.

use std::cmp::Ordering;
use std::ptr::NonNull;
use std::sync::Arc;

use trommel_base::{EntryRef, SeqNo, compare_internal, first_words};

use crate::arena::{Arena, CLAIM_ALIGN, SMALLEST_MAP};
use crate::list::List;
use crate::record::{Record, Stored};

/// Slots in a list: 384 KiB, which a processor's second cache holds while they are sorted.
const UNSORTED: usize = if cfg!(trommel_loom) { 2 } else { 16 << 10 };
/// Slots that must be expected for a list of all of them: such as take a map.
const EXPECTED_MIN: usize = if cfg!(trommel_loom) { 2 } else { SMALLEST_MAP / size_of::<Slot>() };
/// Slots for which room is made at once, at most.
const EXPECTED_MAX: usize = 1 << 24;
/// How many times as long as the next a run is, at least.
const RATIO: usize = 4;
/// How many entries ahead a scan prefetches the head of a record, and the rest of it.
const HEAD_AHEAD: usize = 8;
const PAYLOAD_AHEAD: usize = 4;

/// Where a key stands to the prefix that most keys share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// Smaller than the prefix.
    Below = 0,
    /// Begins with the prefix; what is compared first stands behind it.
    Within = 1,
    /// Larger than every key that begins with the prefix; every key, if there is no prefix.
    Above = 2,
}

impl Class {
    /// The class of `key`, and what is compared first.
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

/// Room of a slot's address for a class.
const CLASS_BITS: usize = 3;
const _: () = assert!(CLASS_BITS < CLAIM_ALIGN);

/// An entry as it is sorted.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    /// The first 16 bytes of the key's tail as two numbers of the same order.
    high: u64,
    low: u64,
    /// Where the record lies, and in its lowest bits the class.
    tagged: NonNull<Record>,
}

// SAFETY: it leads to a record that is only read, but for an atomic.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// The slot of a record under the prefix that most keys share.
    #[inline]
    pub(crate) fn new(common_prefix: &[u8], record: Stored<'_>) -> Self {
        let (class, tail) = Class::and_tail(common_prefix, record.key());
        let words = first_words(tail);
        let tagged = record.at().map_addr(|at| at | class as usize);
        Self { high: (words >> 64) as u64, low: words as u64, tagged }
    }

    #[inline]
    fn rank(&self) -> (usize, u128) {
        let class = self.tagged.addr().get() & CLASS_BITS;
        (class, u128::from(self.high) << 64 | u128::from(self.low))
    }

    #[inline]
    fn at(&self) -> NonNull<Record> {
        // SAFETY: records lie at multiples of `CLAIM_ALIGN`, none of them the first: without its
        // lowest bits the address is not zero.
        unsafe { NonNull::new_unchecked(self.tagged.as_ptr().map_addr(|at| at & !CLASS_BITS)) }
    }

    #[inline]
    fn record(&self) -> Stored<'_> {
        // SAFETY: the arena lives (invariant of the module). Slots are handed on under a lock, and
        // records are written before they have one.
        unsafe { Stored::new(self.at()) }
    }

    /// The entry it stands for.
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

/// A place in the order.
pub(crate) struct Probe<'a> {
    rank: (usize, u128),
    key: &'a [u8],
    seqno: SeqNo,
}

impl<'a> Probe<'a> {
    /// Where the version `seqno` of `key` stands, or would.
    #[inline]
    pub(crate) fn new(common_prefix: &[u8], key: &'a [u8], seqno: SeqNo) -> Self {
        let (class, tail) = Class::and_tail(common_prefix, key);
        Self { rank: (class as usize, first_words(tail)), key, seqno }
    }

    /// How many slots of `run` stand before it.
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
type Run = Arc<List<Slot>>;

/// All slots of a memtable.
#[derive(Default)]
pub(crate) struct Order {
    /// How many slots the first list is to have room for; 0 where it is made, or not known.
    expected: usize,
    /// What came first, where it was known how much would come.
    first: Option<List<Slot>>,
    /// What came last, fewer than [`UNSORTED`].
    unsorted: Vec<Slot>,
    /// What came before and nobody has walked along yet, [`UNSORTED`] in each.
    deferred: Vec<List<Slot>>,
    /// Longest first.
    runs: Vec<Run>,
    /// Bytes that `deferred` and `runs` hold.
    full_bytes: usize,
    /// Whether a full list is sorted at once, not when someone wants to walk.
    is_eager: bool,
    /// Whether someone has walked.
    pub(crate) was_walked: bool,
}

impl Order {
    /// Sorts each list when it is full, as after a walk.
    pub(crate) fn expect_walks(&mut self) {
        self.is_eager = true;
    }

    /// Makes room for about so many slots at once, when the first one comes.
    pub(crate) fn expect(&mut self, slots: usize) {
        let slots = slots.min(EXPECTED_MAX);
        // An eighth more, as no memtable has as many entries as the one before.
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

    /// Adds the first entry of those that are expected.
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

    /// Entries that stand in no run.
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
        self.full_bytes = deferred + self.runs.iter().map(|run| run.bytes()).sum::<usize>();
    }

    /// Makes what is unsorted a run.
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
        self.runs.push(Arc::new(run));
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

    /// All entries there are, for a walk. From now on full lists are sorted at once, so that no
    /// walk waits for much sorting but the first.
    pub(crate) fn walk(&mut self) -> Walk {
        (self.is_eager, self.was_walked, self.expected) = (true, true, 0);
        self.sort();
        let runs = self.runs.iter().map(|run| (Arc::clone(run), 0)).collect();
        Walk { runs, current: None }
    }
}

/// The slots of both, in order.
fn merged(a: &[Slot], b: &[Slot]) -> List<Slot> {
    let mut merged = List::with_capacity(a.len() + b.len());
    let (mut rest_a, mut rest_b) = (a, b);
    while let (Some(first_a), Some(first_b)) = (rest_a.first(), rest_b.first()) {
        // Which of them comes first nobody can guess: chosen without a branch.
        let is_b = first_b.comes_before(first_a);
        merged.push(if is_b { *first_b } else { *first_a });
        rest_a = &rest_a[usize::from(!is_b)..];
        rest_b = &rest_b[usize::from(is_b)..];
    }
    merged.extend(rest_a);
    merged.extend(rest_b);
    merged
}

/// A walk over runs that were taken at one moment.
pub(crate) struct Walk {
    /// Each run with the number of its slots that stand before the current entry.
    runs: Vec<(Run, usize)>,
    /// The run that has the current entry, at its number.
    current: Option<usize>,
}

impl Walk {
    pub(crate) fn first(&mut self) {
        self.runs.iter_mut().for_each(|(_, at)| *at = 0);
        self.choose_next();
    }

    pub(crate) fn last(&mut self) {
        self.runs.iter_mut().for_each(|(run, at)| *at = run.len());
        self.choose_previous();
    }

    /// To the first entry at or behind `probe`.
    pub(crate) fn at_or_behind(&mut self, probe: &Probe<'_>) {
        self.runs.iter_mut().for_each(|(run, at)| *at = probe.place(run));
        self.choose_next();
    }

    /// To the last entry before `probe`.
    pub(crate) fn before(&mut self, probe: &Probe<'_>) {
        self.runs.iter_mut().for_each(|(run, at)| *at = probe.place(run));
        self.choose_previous();
    }

    /// One entry on; off the end, nowhere.
    #[inline]
    pub(crate) fn next(&mut self) {
        let Some((_, at)) = self.current.and_then(|current| self.runs.get_mut(current)) else {
            return;
        };
        *at += 1;
        self.choose_next();
    }

    /// One entry back; off the end, nowhere.
    #[inline]
    pub(crate) fn prev(&mut self) {
        if self.current.is_some() {
            self.choose_previous();
        }
    }

    /// The record that it stands on, in the arena that its slots lead to.
    pub(crate) fn record<'a>(&self, _arena: &'a Arena) -> Option<Stored<'a>> {
        // SAFETY: the arena, borrowed here, lives; as in `Slot::record`.
        self.slot().map(|slot| unsafe { Stored::new(slot.at()) })
    }

    #[inline]
    pub(crate) fn slot(&self) -> Option<&Slot> {
        let (run, at) = self.runs.get(self.current?)?;
        run.get(*at)
    }

    /// Makes the least of what stands at or behind the place the current entry.
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

    /// Makes the largest of what stands before the place the current entry, and goes there.
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

//! A cursor over the entries of a sorted view.
//!
//! 1. Each run has a cursor of its own, made when its first entry comes. It stands on the entry it
//!    was last moved to, which is known by its number in the run from the start of the current
//!    segment on; the next entry wanted of it is known likewise. It is moved when the selectors
//!    come to it: by one, usually, in either direction.
//! 2. At the start of another segment these numbers begin anew.
//! 3. A seek compares entries of one segment with the key, at most as many as the logarithm of its
//!    length. The cursors that it moves for that are where they are needed next, or near.
//! 4. An entry that is not where it should be, or is not after the one before, shows that the view
//!    is wrong. The cursor is then *lost*: off the end, with the entry that it was on.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_base::{
    Cursor, CursorHints, EntryRef, InternalKey, KeyHead, MAX_SEQNO, SeqNo, Slice, compare_internal,
    first_words,
};
use trommel_sstable::{ReadStats, ScanOptions};

use super::{MOST_RUNS, Sought, SortedView};
use crate::error::{Error, Result};
use crate::iter::level::{LevelCursor, ScanTables};
use crate::version::TableCache;

/// A run as the cursor knows it.
#[derive(Debug, Clone, Copy, Default)]
struct RunState {
    /// The number of the entry that comes next, from the start of the segment on: those of the run
    /// before the current entry of the view.
    next: i32,
    /// The number of the entry that the run's cursor is on, if it is on a known one.
    here: Option<i32>,
}

/// The entry that a lost cursor was on; of no meaning after a seek.
#[derive(Debug, Default)]
pub(crate) struct LostEntry {
    pub(crate) key: Vec<u8>,
    pub(crate) seqno: SeqNo,
}

/// A cursor over a sorted view.
pub(crate) struct SortedCursor {
    view: Arc<SortedView>,
    tables: Arc<TableCache>,
    scan: ScanOptions,
    /// The current entry's number in the view.
    at: usize,
    /// Its run, or no run if the cursor is off the end.
    run: usize,
    /// Its first bytes.
    words: u128,
    states: [RunState; MOST_RUNS],
    cursors: Vec<Option<LevelCursor>>,
    lost: Option<LostEntry>,
}

/// No run.
const OFF_END: usize = usize::MAX;

/// The direction of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Onward,
    Back,
}

thread_local! {
    /// The memory of a list of cursors, which takes more than allocators serve fast.
    static KEPT: Cell<Vec<Option<LevelCursor>>> = const { Cell::new(Vec::new()) };
}

impl Drop for SortedCursor {
    fn drop(&mut self) {
        let mut cursors = std::mem::take(&mut self.cursors);
        cursors.clear();
        // A thread that ends keeps nothing.
        let _ = KEPT.try_with(|kept| kept.set(cursors));
    }
}

impl SortedCursor {
    /// A cursor off the end.
    pub(crate) fn new(view: Arc<SortedView>, tables: Arc<TableCache>, scan: ScanOptions) -> Self {
        let mut cursors = KEPT.try_with(Cell::take).unwrap_or_default();
        cursors.resize_with(view.runs(), || None);
        let (states, lost) = ([RunState::default(); MOST_RUNS], None);
        Self { view, tables, scan, at: 0, run: OFF_END, words: 0, states, cursors, lost }
    }

    /// Reads so far.
    pub(crate) fn read_stats(&self) -> ReadStats {
        let mut read = ReadStats::default();
        self.cursors.iter().flatten().for_each(|cursor| read.add(&cursor.read_stats()));
        read
    }

    /// The entry that the cursor was on before a movement showed that the view is wrong.
    #[inline]
    pub(crate) fn lost(&self) -> Option<&LostEntry> {
        self.lost.as_ref()
    }

    /// As `lost`, taken out.
    pub(crate) fn take_lost(&mut self) -> Option<LostEntry> {
        self.lost.take()
    }

    /// A cursor over each run, to be merged instead.
    pub(crate) fn runs(&self) -> impl Iterator<Item = LevelCursor> + '_ {
        (0..self.view.runs()).map(|run| self.run_cursor(run))
    }

    /// The newest sequence number of all entries.
    pub(crate) fn newest(&self) -> SeqNo {
        self.view.newest
    }

    /// Moves off the end.
    pub(crate) fn leave(&mut self) {
        (self.run, self.lost) = (OFF_END, None);
    }

    fn run_cursor(&self, run: usize) -> LevelCursor {
        let tables = ScanTables::Sorted(Arc::clone(&self.view), run);
        LevelCursor::new(tables, Arc::clone(&self.tables), self.scan)
    }

    /// The cursor of the current run.
    #[inline]
    fn current(&self) -> Option<&LevelCursor> {
        self.cursors.get(self.run)?.as_ref()
    }

    /// Notes that the view is wrong.
    #[cold]
    fn lose(&mut self, lost: LostEntry) {
        self.view.is_wrong.store(true, Ordering::Relaxed);
        (self.run, self.lost) = (OFF_END, Some(lost));
    }

    /// Moves the cursor of `run` to its entry number `wanted` of the current segment. False if
    /// there is none.
    #[inline(never)]
    fn enter(&mut self, run: usize, wanted: i32) -> Result<bool> {
        let segment = self.view.segment_of(self.at);
        let here = self.states.get(run).and_then(|state| state.here);
        if self.cursors.get(run).is_some_and(Option::is_none) {
            let cursor = self.run_cursor(run);
            self.cursors[run] = Some(cursor);
        }
        let place = || self.view.place(segment, run, usize::try_from(wanted).ok()?);
        let Some(cursor) = self.cursors.get_mut(run).and_then(Option::as_mut) else {
            return Ok(false);
        };
        let state = &mut self.states[run];
        state.here = None;
        match here.map(|here| wanted - here) {
            Some(0) => {}
            Some(1) => cursor.next()?,
            Some(-1) => cursor.prev()?,
            _ => {
                let Some(place) = place() else { return Ok(false) };
                cursor.seek_to_place(place)?;
            }
        }
        if cursor.head().is_none() {
            return Ok(false);
        }
        state.here = Some(wanted);
        Ok(true)
    }

    /// Whether entry `at` of the view comes before (`key`, `seqno`), whose first bytes are `words`;
    /// `None` if there is no such entry.
    fn is_before(
        &mut self,
        at: usize,
        key: &[u8],
        words: u128,
        seqno: SeqNo,
    ) -> Result<Option<bool>> {
        if self.view.segment_of(at) != self.view.segment_of(self.at) {
            self.states.iter_mut().for_each(|state| state.here = None);
        }
        self.at = at;
        let run = self.view.selector(at);
        let wanted = self.view.count_before(at, run) as i32;
        if !self.enter(run, wanted)? {
            return Ok(None);
        }
        let cursor = self.cursors.get_mut(run).and_then(Option::as_mut);
        let table = cursor.and_then(LevelCursor::table);
        Ok(table.and_then(|table| table.is_before(key, words, seqno)))
    }

    /// The first of the entries `from..to` that is not before (`key`, `seqno`), if only every
    /// `step`th is looked at. `None` if the view is wrong.
    fn first_not_before(
        &mut self,
        (mut low, mut high): (usize, usize),
        entry: impl Fn(usize) -> usize,
        (key, words, seqno): (&[u8], u128, SeqNo),
    ) -> Result<Option<usize>> {
        while low < high {
            let middle = low + (high - low) / 2;
            match self.is_before(entry(middle), key, words, seqno)? {
                Some(true) => low = middle + 1,
                Some(false) => high = middle,
                None => return Ok(None),
            }
        }
        Ok(Some(low))
    }

    /// The first entry of the view at or after (`key`, `seqno`); the number of entries if there is
    /// none, `None` if the view is wrong.
    fn find(&mut self, key: &[u8], seqno: SeqNo) -> Result<Option<usize>> {
        (self.run, self.lost) = (OFF_END, None);
        self.states = [RunState::default(); MOST_RUNS];
        let view = Arc::clone(&self.view);
        let (first, last) = match view.find(key) {
            Sought::Start => return Ok(Some(0)),
            Sought::End => return Ok(Some(view.entries)),
            Sought::Between(first, last) => (first, last),
        };
        let target = (key, first_words(key), seqno);
        let start_of = |segment| view.start_of(segment);
        let Some(after) = self.first_not_before((first, last), start_of, target)? else {
            return Ok(None);
        };
        let Some(segment) = after.checked_sub(1) else { return Ok(Some(0)) };
        let (start, end) = (view.start_of(segment), view.start_of(after).min(view.entries));
        self.first_not_before((start + 1, end), |at| at, target)
    }

    /// Moves to entry `at` of the view, which was found by a seek. False if the view is wrong.
    fn land(&mut self, at: usize) -> Result<bool> {
        let view = &*self.view;
        let segment = view.segment_of(at);
        if segment != view.segment_of(self.at) {
            self.states.iter_mut().for_each(|state| state.here = None);
        }
        self.states.iter_mut().for_each(|state| state.next = 0);
        for before in view.start_of(segment)..at {
            let Some(state) = self.states.get_mut(view.selector(before)) else { return Ok(false) };
            state.next += 1;
        }
        self.at = at;
        let run = view.selector(at);
        let Some(state) = self.states.get(run) else { return Ok(false) };
        let (here, next) = (state.here, state.next);
        if here != Some(next) && !self.enter(run, next)? {
            return Ok(false);
        }
        self.run = run;
        self.words = self.head().map_or(0, |head| head.words);
        Ok(true)
    }

    /// Ends a seek on entry `at` if it is `right`, off the end if there is none.
    fn end_seek(
        &mut self,
        at: Option<usize>,
        is_right: impl FnOnce(&InternalKey<'_>) -> bool,
    ) -> Result<()> {
        if at.is_some_and(|at| at >= self.view.entries) {
            return Ok(());
        }
        let has_landed = match at {
            Some(at) => self.land(at)?,
            None => false,
        };
        if !has_landed || !self.internal_key().as_ref().is_some_and(is_right) {
            self.lose(LostEntry::default());
        }
        Ok(())
    }

    /// Makes the numbers of the runs those of the segment of entry `at`, which is next to the
    /// current one in direction `step`.
    #[inline(never)]
    fn change_segment(&mut self, at: usize, step: Step) {
        let view = &*self.view;
        if step == Step::Onward {
            // What comes next of each run is its first.
            for state in &mut self.states {
                state.here = state.here.map(|here| here - state.next);
                state.next = 0;
            }
            return;
        }
        // What came next of each run was its first, and comes now after as many.
        for before in view.start_of(view.segment_of(at))..=at {
            if let Some(state) = self.states.get_mut(view.selector(before)) {
                state.next += 1;
                state.here = state.here.map(|here| here + 1);
            }
        }
    }

    /// The entry next to the current one, if there is one, and its run.
    #[inline]
    fn neighbour(&self, step: Step) -> Option<(usize, usize)> {
        let at = match step {
            Step::Onward => self.at + 1,
            Step::Back => self.at.checked_sub(1)?,
        };
        (at < self.view.entries).then(|| (at, self.view.selector(at)))
    }

    /// Whether an entry with these first bytes may follow the current one.
    #[inline]
    fn is_in_order(&self, words: u128, step: Step) -> bool {
        match step {
            Step::Onward => self.words <= words,
            Step::Back => words <= self.words,
        }
    }

    #[inline(never)]
    fn step(&mut self, step: Step) -> Result<()> {
        if self.run == OFF_END {
            return Ok(());
        }
        let (from, from_at) = (self.run, self.at);
        let Some((at, run)) = self.neighbour(step) else {
            self.run = OFF_END;
            return Ok(());
        };
        let is_other_segment = self.view.segment_of(at) != self.view.segment_of(from_at);
        if step == Step::Onward
            && let Some(state) = self.states.get_mut(from)
        {
            state.next += 1;
        }
        if is_other_segment {
            self.change_segment(at, step);
        }
        self.at = at;
        let Some(state) = self.states.get_mut(run) else { return self.lose_step(from_at, from) };
        if step == Step::Back {
            state.next -= 1;
        }
        let (here, next) = (state.here, state.next);
        let outcome = if here == Some(next) { Ok(true) } else { self.enter(run, next) };
        self.run = OFF_END;
        let head = self.cursors.get(run).and_then(|cursor| cursor.as_ref()?.head());
        match head.filter(|head| self.is_in_order(head.words, step)) {
            Some(head) if outcome? => {
                (self.run, self.words) = (run, head.words);
                Ok(())
            }
            _ => self.lose_step(from_at, from),
        }
    }

    /// Notes that the view is wrong after entry `at`, of `run`, which was the current one.
    #[cold]
    fn lose_step(&mut self, at: usize, run: usize) -> Result<()> {
        self.states = [RunState::default(); MOST_RUNS];
        self.at = at;
        let number = self.view.count_before(at, run) as i32;
        let is_there = self.enter(run, number)?;
        let cursor = self.cursors.get(run).and_then(Option::as_ref).filter(|_| is_there);
        let entry = cursor.and_then(CursorHints::internal_key);
        let Some(InternalKey { key, seqno, .. }) = entry else {
            return Err(Error::internal("an entry of a sorted view is not found again"));
        };
        let key = key.to_vec();
        self.lose(LostEntry { key, seqno });
        Ok(())
    }

    /// As `step`, if the next entry is at hand and in the same segment.
    #[inline(always)]
    fn step_at_hand(
        &mut self,
        step: Step,
        movement: impl FnOnce(&mut LevelCursor) -> Option<KeyHead>,
    ) -> Option<KeyHead> {
        if self.run == OFF_END {
            return None;
        }
        let (at, run) = self.neighbour(step)?;
        if self.view.segment_of(at) != self.view.segment_of(self.at) {
            return None;
        }
        let is_same = run == self.run;
        let state = *self.states.get(run)?;
        let next = match step {
            Step::Onward => state.next + i32::from(is_same),
            Step::Back => state.next - 1,
        };
        let moves = match step {
            Step::Onward => 1,
            Step::Back => -1,
        };
        let here = state.here?;
        let cursor = self.cursors.get_mut(run)?.as_mut()?;
        let head = if here == next {
            cursor.head().filter(|head| !head.is_long())?
        } else if here + moves == next {
            movement(cursor)?
        } else {
            return None;
        };
        self.states[run].here = Some(next);
        // Entries of one run are in order, whatever the view says.
        if !is_same && !self.is_in_order(head.words, step) {
            return None;
        }
        match step {
            Step::Onward => self.states[self.run].next += 1,
            Step::Back => self.states[run].next -= 1,
        }
        (self.at, self.run, self.words) = (at, run, head.words);
        Some(head)
    }
}

impl Cursor for SortedCursor {
    type Error = Error;

    fn seek_to_first(&mut self) -> Result<()> {
        self.leave();
        self.states = [RunState::default(); MOST_RUNS];
        self.end_seek(Some(0), |_| true)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.leave();
        self.states = [RunState::default(); MOST_RUNS];
        match self.view.entries.checked_sub(1) {
            Some(last) => self.end_seek(Some(last), |_| true),
            None => Ok(()),
        }
    }

    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<()> {
        let at = self.find(key, seqno)?;
        self.end_seek(at, |found| compare_internal(found.key, found.seqno, key, seqno).is_ge())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        match self.find(key, MAX_SEQNO)? {
            Some(0) => Ok(()),
            at => self.end_seek(at.map(|at| at - 1), |found| found.key < key),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(Step::Onward)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(Step::Back)
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.current()?.entry()
    }
}

impl CursorHints for SortedCursor {
    #[inline]
    fn next_at_hand(&mut self) -> Option<KeyHead> {
        self.step_at_hand(Step::Onward, LevelCursor::next_at_hand)
    }

    #[inline]
    fn prev_at_hand(&mut self) -> Option<KeyHead> {
        self.step_at_hand(Step::Back, LevelCursor::prev_at_hand)
    }

    #[inline]
    fn internal_key(&self) -> Option<InternalKey<'_>> {
        self.current()?.internal_key()
    }

    #[inline]
    fn head(&self) -> Option<KeyHead> {
        self.current()?.head()
    }

    #[inline]
    fn begins_key(&self) -> bool {
        self.run != OFF_END && !self.view.repeats(self.at)
    }

    fn shared_value(&self) -> Option<Slice> {
        self.current().and_then(CursorHints::shared_value)
    }
}

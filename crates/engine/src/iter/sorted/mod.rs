//! A cursor over the entries of a sorted view, and how one is built.
//!
//! 1. Each run has a cursor of its own, made when its first entry comes. It is in a block whose
//!    entries are known by their numbers in the run, counted from the start of the view's current
//!    segment. At the start of another segment these numbers begin anew.
//! 2. The selectors say which run has the next entry, and how many of the run come before it: so
//!    its place in the block is known, in either direction, and the run's cursor moves there. Only
//!    beyond the block the next one is entered, or that of the place in the view.
//! 3. A seek compares entries of one segment with the key, at most as many as the logarithm of its
//!    length, in blocks that are then likely to be needed.
//! 4. An entry that is not where it should be, or is not after the one before, shows that the view
//!    is wrong. The cursor is then *lost*: off the end, with the entry that it was on.

mod build;
mod skip;

use std::cell::Cell;
use std::sync::Arc;

use trommel_base::{
    Cursor, CursorHints, EntryRef, InternalKey, KeyHead, MAX_SEQNO, SeqNo, Slice, Stage,
    compare_internal,
};
use trommel_sstable::{EntryPlace, ReadStats, ScanOptions, SeekTarget, TableCursor, Toward};

use super::level::{LevelCursor, ScanTables};
use crate::error::{Error, Result};
use crate::version::{MOST_RUNS, RunPlace, SortedView, Sought, TableCache};
pub(crate) use build::{NoView, build};

/// A run as the cursor knows it. Numbers of entries are counted from the start of the current
/// segment on, and are negative before it.
#[derive(Debug, Clone, Copy, Default)]
struct RunState {
    /// Whether the run's cursor is in a block with a known first entry.
    is_entered: bool,
    /// The number of the first entry of that block.
    first: i32,
    /// The number of the run's next entry: those before the current entry of the view.
    next: i32,
}

impl RunState {
    /// Counts from the start of another segment, before which there are `passed` entries more.
    fn count_from(&mut self, passed: i32) {
        self.first -= passed;
        self.next -= passed;
    }
}

/// A cursor over one of a run's tables, and which it is.
struct RunCursor {
    table: usize,
    cursor: TableCursor,
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
    /// The current entry's number in the view; off the end, one in the segment by which the states
    /// count.
    at: usize,
    /// Its run, or no run if the cursor is off the end.
    run: usize,
    /// Its first bytes.
    words: u128,
    states: [RunState; MOST_RUNS],
    cursors: Vec<Option<RunCursor>>,
    /// Reads of tables that were left.
    read: ReadStats,
    lost: Option<LostEntry>,
}

/// Entries after a seek whose blocks are prefetched: those of a short scan.
const ENTRIES_AHEAD: usize = 8;

/// No run.
const OFF_END: usize = usize::MAX;

thread_local! {
    /// The memory of a list of cursors, which takes more than allocators serve fast.
    static KEPT: Cell<Vec<Option<RunCursor>>> = const { Cell::new(Vec::new()) };
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
        let (states, read) = ([RunState::default(); MOST_RUNS], ReadStats::default());
        let (at, run, words, lost) = (0, OFF_END, 0, None);
        Self { view, tables, scan, at, run, words, states, cursors, read, lost }
    }

    /// Reads so far.
    pub(crate) fn read_stats(&self) -> ReadStats {
        let mut read = self.read;
        self.cursors.iter().flatten().for_each(|run| read.add(&run.cursor.stats()));
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
        let tables = |run| ScanTables::List(self.view.tables(run).to_vec());
        let cursor = move |run| LevelCursor::new(tables(run), Arc::clone(&self.tables), self.scan);
        (0..self.view.runs()).map(cursor)
    }

    /// The cursor of the current run.
    #[inline]
    fn current(&self) -> Option<&TableCursor> {
        self.cursors.get(self.run)?.as_ref().map(|run| &run.cursor)
    }

    /// The table's cursor of `run`, if the run was entered.
    #[inline]
    fn table(&mut self, run: usize) -> Option<&mut TableCursor> {
        self.cursors.get_mut(run)?.as_mut().map(|run| &mut run.cursor)
    }

    /// The cursor over `table` of `run`, opened unless it is the present one; `None` if there is no
    /// such table.
    fn open(&mut self, run: usize, table: usize) -> Result<Option<&mut TableCursor>> {
        let Some(room) = self.cursors.get_mut(run) else { return Ok(None) };
        if room.as_ref().is_none_or(|known| known.table != table) {
            let Some(file) = self.view.tables(run).get(table) else { return Ok(None) };
            let reader = self.tables.reader(file)?;
            if let Some(left) = room {
                self.read.add(&left.cursor.stats());
            }
            *room = Some(RunCursor { table, cursor: reader.cursor(self.scan) });
        }
        Ok(room.as_mut().map(|run| &mut run.cursor))
    }

    /// Prefetches the blocks of the entries from `at` on that a short scan in this direction will
    /// enter, all of them before any is waited for.
    fn prefetch(&mut self, at: usize, toward: Toward) -> Result<()> {
        let segment = self.view.segment_of(at);
        let (start, end) = (self.view.start_of(segment), self.view.start_of(segment + 1));
        let ahead = match toward {
            Toward::Larger => at..end.min(at + ENTRIES_AHEAD),
            Toward::Smaller => start.max((at + 1).saturating_sub(ENTRIES_AHEAD))..at + 1,
        };
        let mut wanted = 0_u32;
        for run in ahead.map(|at| self.view.selector(at)) {
            let is_entered = self.states.get(run).is_none_or(|state| state.is_entered);
            wanted |= u32::from(!is_entered) << run;
        }
        // A single prefetch overlaps with nothing.
        if wanted.count_ones() < 2 {
            return Ok(());
        }
        for stage in [Stage::Find, Stage::Prefetch] {
            for run in (0..self.view.runs()).filter(|run| wanted >> run & 1 != 0) {
                if let Some(place) = self.view.place(segment, run, 0)
                    && let Some(cursor) = self.open(run, place.table)?
                {
                    cursor.prefetch_place(place.within, stage);
                }
            }
        }
        Ok(())
    }

    /// Forgets where the runs' cursors are.
    fn forget(&mut self) {
        self.states.iter_mut().for_each(|state| state.is_entered = false);
    }

    /// Notes that the view is wrong.
    #[cold]
    fn lose(&mut self, lost: LostEntry) {
        self.view.note_wrong();
        (self.run, self.lost) = (OFF_END, Some(lost));
    }

    /// Enters the block of entry `number` of `run`. Returns its number in the block; `None` if
    /// there is no such entry.
    #[inline]
    fn reach(&mut self, run: usize, number: i32) -> Result<Option<usize>> {
        let Some(state) = self.states.get(run).copied() else { return Ok(None) };
        let mut toward = None;
        if state.is_entered
            && let Some(table) = self.table(run)
        {
            let i = number.wrapping_sub(state.first);
            let entries = table.block_entries();
            // A negative one is larger than any.
            if (i as usize) < entries {
                return Ok(Some(i as usize));
            }
            let is_next = i == -1 || i as usize == entries;
            toward = is_next.then_some(if i < 0 { Toward::Smaller } else { Toward::Larger });
        }
        self.enter(run, number, toward)
    }

    /// As `reach`, of an entry in another block: that next to the current one in this direction, or
    /// the one in which the view places it.
    #[inline(never)]
    fn enter(&mut self, run: usize, number: i32, toward: Option<Toward>) -> Result<Option<usize>> {
        if let Some(state) = self.states.get_mut(run) {
            state.is_entered = false;
        }
        let entered = match toward {
            Some(toward) => self.enter_neighbour(run, toward)?,
            None => self.enter_place(run, number)?,
        };
        if let Some(i) = entered
            && let Some(state) = self.states.get_mut(run)
        {
            (state.is_entered, state.first) = (true, number - i as i32);
        }
        Ok(entered)
    }

    fn enter_place(&mut self, run: usize, number: i32) -> Result<Option<usize>> {
        let segment = self.view.segment_of(self.at);
        let ahead = usize::try_from(number).ok();
        let place = ahead.and_then(|ahead| self.view.place(segment, run, ahead));
        let Some(RunPlace { mut table, mut within }) = place else { return Ok(None) };
        while let Some(cursor) = self.open(run, table)? {
            match cursor.enter_place(within)? {
                Ok(i) => return Ok(Some(i)),
                Err(behind) => {
                    (table, within) = (table + 1, EntryPlace { leaf: 0, slot: 0, entry: behind });
                }
            }
        }
        Ok(None)
    }

    /// Enters the block next to the current one of `run`. Returns the number of its first entry in
    /// this direction; `None` if there is no such block.
    fn enter_neighbour(&mut self, run: usize, toward: Toward) -> Result<Option<usize>> {
        let known = self.cursors.get(run).and_then(Option::as_ref);
        let (mut table, mut begins) = (known.map(|known| known.table), false);
        while let Some(at) = table
            && let Some(cursor) = self.open(run, at)?
        {
            if cursor.enter_neighbour(toward, begins)? {
                let last = cursor.block_entries().checked_sub(1);
                return Ok(if toward == Toward::Larger { Some(0) } else { last });
            }
            begins = true;
            table = match toward {
                Toward::Larger => Some(at + 1),
                Toward::Smaller => at.checked_sub(1),
            };
        }
        Ok(None)
    }

    /// Moves the cursor of `run` to entry `number`. False if there is none.
    fn move_to(&mut self, run: usize, number: i32, toward: Toward) -> Result<bool> {
        let Some(i) = self.reach(run, number)? else { return Ok(false) };
        let Some(table) = self.table(run) else { return Ok(false) };
        table.move_in_block(i, toward)?;
        Ok(true)
    }

    /// Counts from the start of the segment of entry `at` on.
    fn count_at(&mut self, at: usize) {
        if self.view.segment_of(at) != self.view.segment_of(self.at) {
            self.forget();
        }
        self.at = at;
    }

    /// Whether entry `at` of the view comes before `target`; `None` if there is no such entry.
    fn is_before(&mut self, at: usize, target: &SeekTarget<'_>) -> Result<Option<bool>> {
        self.count_at(at);
        let run = self.view.selector(at);
        let number = self.view.count_before(at, run) as i32;
        let Some(i) = self.reach(run, number)? else { return Ok(None) };
        let Some(table) = self.table(run) else { return Ok(None) };
        Ok(Some(table.is_before(i, target)?))
    }

    /// The first of `low..high` whose `entry` is not before `target`. `None` if the view is wrong.
    #[inline]
    fn first_not_before(
        &mut self,
        (mut low, mut high): (usize, usize),
        entry: impl Fn(usize) -> usize,
        target: &SeekTarget<'_>,
    ) -> Result<Option<usize>> {
        while low < high {
            let middle = low + (high - low) / 2;
            match self.is_before(entry(middle), target)? {
                Some(true) => low = middle + 1,
                Some(false) => high = middle,
                None => return Ok(None),
            }
        }
        Ok(Some(low))
    }

    /// The first entry of the view at or after (`key`, `seqno`); the number of entries if there is
    /// none, `None` if the view is wrong. The cursor is off the end.
    fn find(&mut self, key: &[u8], seqno: SeqNo) -> Result<Option<usize>> {
        (self.run, self.lost) = (OFF_END, None);
        self.forget();
        let (first, last) = match self.view.find(key) {
            Sought::Start => return Ok(Some(0)),
            Sought::End => return Ok(Some(self.view.entries)),
            Sought::Between(first, last) => (first, last),
        };
        let target = SeekTarget::new(key, seqno);
        let bits = self.view.segment_bits;
        let after = match first == last {
            true => Some(first),
            false => self.first_not_before((first, last), |segment| segment << bits, &target)?,
        };
        let Some(after) = after else { return Ok(None) };
        let Some(segment) = after.checked_sub(1) else { return Ok(Some(0)) };
        let (start, end) = (self.view.start_of(segment), self.view.start_of(after));
        self.first_not_before((start + 1, end.min(self.view.entries)), |at| at, &target)
    }

    /// Moves to entry `at` of the view, which was found by a seek. False if the view is wrong.
    fn land(&mut self, at: usize, toward: Toward) -> Result<bool> {
        self.count_at(at);
        self.prefetch(at, toward)?;
        let view = &*self.view;
        let run = view.selector(at);
        for (other, state) in self.states.iter_mut().enumerate().take(view.runs()) {
            if state.is_entered || other == run {
                state.next = view.count_before(at, other) as i32;
            }
        }
        let Some(number) = self.states.get(run).map(|state| state.next) else { return Ok(false) };
        if !self.move_to(run, number, toward)? {
            return Ok(false);
        }
        self.run = run;
        self.words = self.head().map_or(0, |head| head.words);
        Ok(true)
    }

    /// Ends a seek on entry `at` if it `is_right`, off the end if there is none.
    fn end_seek(
        &mut self,
        at: Option<usize>,
        toward: Toward,
        is_right: impl FnOnce(&InternalKey<'_>) -> bool,
    ) -> Result<()> {
        if at.is_some_and(|at| at >= self.view.entries) {
            return Ok(());
        }
        let has_landed = match at {
            Some(at) => self.land(at, toward)?,
            None => false,
        };
        if !has_landed || !self.internal_key().as_ref().is_some_and(is_right) {
            self.lose(LostEntry::default());
        }
        Ok(())
    }

    /// Counts from the start of the segment of entry `at`, which is next to the current one.
    #[inline(never)]
    fn change_segment(&mut self, at: usize, toward: Toward) {
        let view = &*self.view;
        let entered = self.states.iter_mut().enumerate().filter(|(_, state)| state.is_entered);
        for (run, state) in entered {
            state.count_from(match toward {
                // What comes next of each run is its first.
                Toward::Larger => state.next,
                // What came next of each run was its first.
                Toward::Smaller => {
                    -(view.count_before(at, run) as i32 + i32::from(view.selector(at) == run))
                }
            });
        }
    }

    /// The entry next to the current one, if there is one, and its run.
    #[inline]
    fn neighbour(&self, toward: Toward) -> Option<(usize, usize)> {
        let at = match toward {
            Toward::Larger => self.at + 1,
            Toward::Smaller => self.at.checked_sub(1)?,
        };
        (at < self.view.entries).then(|| (at, self.view.selector(at)))
    }

    /// Whether an entry with these first bytes may follow the current one.
    #[inline]
    fn is_in_order(&self, words: u128, toward: Toward) -> bool {
        match toward {
            Toward::Larger => self.words <= words,
            Toward::Smaller => words <= self.words,
        }
    }

    #[inline(never)]
    fn step(&mut self, toward: Toward) -> Result<()> {
        let (from, from_at) = (self.run, self.at);
        if from == OFF_END {
            return Ok(());
        }
        self.run = OFF_END;
        let Some((at, run)) = self.neighbour(toward) else { return Ok(()) };
        if toward == Toward::Larger
            && let Some(state) = self.states.get_mut(from)
        {
            state.next += 1;
        }
        if self.view.segment_of(at) != self.view.segment_of(from_at) {
            self.change_segment(at, toward);
        }
        self.at = at;
        let Some(state) = self.states.get_mut(run) else { return self.lose_step(from_at, from) };
        match (state.is_entered, toward) {
            (false, _) => state.next = self.view.count_before(at, run) as i32,
            (true, Toward::Smaller) => state.next -= 1,
            (true, Toward::Larger) => {}
        }
        let number = state.next;
        let has_moved = self.move_to(run, number, toward)?;
        let head = self.table(run).and_then(|table| table.head());
        match head.filter(|head| has_moved && self.is_in_order(head.words, toward)) {
            Some(head) => {
                (self.run, self.words) = (run, head.words);
                Ok(())
            }
            None => self.lose_step(from_at, from),
        }
    }

    /// Notes that the view is wrong after entry `at`, of `run`, which was the current one.
    #[cold]
    fn lose_step(&mut self, at: usize, run: usize) -> Result<()> {
        self.forget();
        self.at = at;
        let number = self.view.count_before(at, run) as i32;
        let is_there = self.move_to(run, number, Toward::Larger)?;
        let entry = self.table(run).and_then(|table| table.internal_key()).filter(|_| is_there);
        let Some(InternalKey { key, seqno, .. }) = entry else {
            return Err(Error::internal("an entry of a sorted view is not found again"));
        };
        let key = key.to_vec();
        self.lose(LostEntry { key, seqno });
        Ok(())
    }

    /// As `step`, if the next entry is at hand and in the same segment.
    #[inline(always)]
    fn step_at_hand(&mut self, toward: Toward) -> Option<KeyHead> {
        let from = self.run;
        if from == OFF_END {
            return None;
        }
        let (at, run) = self.neighbour(toward)?;
        if self.view.segment_of(at) != self.view.segment_of(self.at) {
            return None;
        }
        let is_same = run == from;
        let RunState { is_entered, first, next } = *self.states.get(run)?;
        if !is_entered {
            return None;
        }
        let number = match toward {
            Toward::Larger => next + i32::from(is_same),
            Toward::Smaller => next - 1,
        };
        let head = self.table(run)?.move_at_hand(number.wrapping_sub(first) as usize, toward)?;
        // Entries of one run are in order, whatever the view says.
        if !is_same && !self.is_in_order(head.words, toward) {
            return None;
        }
        match toward {
            Toward::Larger => self.states.get_mut(from)?.next += 1,
            Toward::Smaller => self.states.get_mut(run)?.next -= 1,
        }
        (self.at, self.run, self.words) = (at, run, head.words);
        Some(head)
    }
}

impl Cursor for SortedCursor {
    type Error = Error;

    fn seek_to_first(&mut self) -> Result<()> {
        self.forget();
        (self.run, self.lost) = (OFF_END, None);
        self.end_seek(Some(0), Toward::Larger, |_| true)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.forget();
        (self.run, self.lost) = (OFF_END, None);
        let last = self.view.entries.saturating_sub(1);
        self.end_seek(Some(last), Toward::Smaller, |_| true)
    }

    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<()> {
        let at = self.find(key, seqno)?;
        let is_right =
            |found: &InternalKey<'_>| compare_internal(found.key, found.seqno, key, seqno).is_ge();
        self.end_seek(at, Toward::Larger, is_right)
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        match self.find(key, MAX_SEQNO)? {
            Some(0) => Ok(()),
            at => self.end_seek(at.map(|at| at - 1), Toward::Smaller, |found| found.key < key),
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(Toward::Larger)
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(Toward::Smaller)
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.current()?.entry()
    }
}

impl CursorHints for SortedCursor {
    #[inline]
    fn next_at_hand(&mut self) -> Option<KeyHead> {
        self.step_at_hand(Toward::Larger)
    }

    #[inline]
    fn prev_at_hand(&mut self) -> Option<KeyHead> {
        self.step_at_hand(Toward::Smaller)
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

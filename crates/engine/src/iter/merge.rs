//! Merges many sorted sources into one by insertion, in both directions.
//!
//! 1. Before a seek, all sources prefetch the memory and blocks that they will read. After it each
//!    source is positioned on its first entry in the direction of travel, and the sources are
//!    sorted by these. The first has the current entry; when it has moved, it is reinserted in
//!    order. A source rarely moves far back, because one that holds a small part of the entries is
//!    rarely first, and the compared heads are contiguous: up to some dozens of sources this takes
//!    fewer instructions than a loser tree.
//! 2. The head of each source's entry is kept for comparison: the first sixteen bytes of its key as
//!    a number, the key's length, and the sequence number. Only long keys with a common start are
//!    read themselves.
//! 3. As long as the first source's next entry comes before the second's, as in a long run of one
//!    source, the order does not change. A visitor is lent the entries that the sources have
//!    decoded, while nothing is reordered at all (`merge/visit.rs`).
//! 4. A change of direction moves every other source by one: in forward travel each is after the
//!    current entry, so its previous entry is before it, and the other way round.
//!
//! Invariants: while the cursor is on an entry, each other source is on its nearest entry in the
//! direction of travel, or off the end if it has none. Where (key, sequence number) is the same in
//! two sources, so is the entry (see [`crate::compaction_job::slices`]); the earlier source's
//! comes first.
//!
//! After an error the cursor stays failed and repeats the error until the next seek: a source that
//! failed is never taken for one that has ended.
//!
//! Called by reads over memtables, tables and levels, and by compactions.

use std::cmp::Ordering;

use trommel_base::{
    Aim, Cursor, CursorHints, EntryKind, EntryRef, InternalKey, KeyHead, SeqNo, Slice, Stage,
};

mod order;
mod visit;

use order::{Direction, NO_HEAD, Ranked, SHOWN_BYTES, SourceHead, Tie};
pub(crate) use visit::{HasLeaf, Offered};

/// A cursor over the entries of all its sources, in order.
#[derive(Debug)]
pub(crate) struct MergeCursor<C: CursorHints> {
    sources: Vec<C>,
    heads: Vec<SourceHead>,
    /// All sources, sorted by their entries. The rank of the first may be stale; its head is not.
    order: Vec<Ranked>,
    /// The first source, if it is on an entry and nothing failed; otherwise [`NO_SOURCE`].
    top: usize,
    /// The rank of the second source. Zero if the sources are not sorted.
    second_rank: u128,
    /// Whether a visit has left the sources unsorted, except that the current one is the first: the
    /// next movement of the whole merge has to [`settle`](Self::settle) them.
    is_unsorted: bool,
    direction: Direction,
    failed: Option<C::Error>,
    /// The skips of deleted entries since the last seek, if there were any. Boxed, because most
    /// scans make none, and every scan moves this cursor.
    skips: Option<Box<Skips>>,
    /// Entries that visits skipped.
    skipped: u64,
}

/// The sources of a merge, and the memory of its other lists, which may come from an earlier merge.
#[derive(Debug)]
pub(crate) struct MergeLists<C> {
    pub(crate) sources: Vec<C>,
    heads: Vec<SourceHead>,
    order: Vec<Ranked>,
}

impl<C> Default for MergeLists<C> {
    fn default() -> Self {
        Self { sources: Vec::new(), heads: Vec::new(), order: Vec::new() }
    }
}

/// Skips of deleted entries since the last seek.
#[derive(Debug, Default)]
struct Skips {
    /// Whether there were any since the last change of direction.
    are_recent: bool,
    /// Where they have left the sources since then.
    landings: Vec<Option<Vec<u8>>>,
    /// Whether a skip came no farther than the one before it. Its source is then out of order,
    /// which no writer produces; until the next seek, no source skips entries.
    has_ended: bool,
}

/// A source that can skip entries without reading them.
pub(crate) trait SkipsDeleted: CursorHints {
    /// On an entry before `to`: moves to the first entry at or after `to`, or off the end without
    /// one, if nothing that it passes was written after `covering`. It may stop earlier, at an
    /// entry for which this is not known. Returns whether it has moved.
    fn skip_deleted(&mut self, covering: SeqNo, to: Option<&[u8]>) -> Result<bool, Self::Error>;

    /// As `skip_deleted`, backward: on an entry at or after `from`, moves to the last entry before
    /// `from`.
    fn skip_deleted_back(&mut self, covering: SeqNo, from: &[u8]) -> Result<bool, Self::Error>;
}

/// Versions of one key that are stepped over in one source before a seek skips the rest.
pub(crate) const STEPS_BEFORE_RESEEK: u32 = 8;

/// No source.
const NO_SOURCE: usize = usize::MAX;

/// A fingerprint of a key: two keys with different marks differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    words: u128,
    len: u32,
}

impl Mark {
    /// The mark of the key with this head.
    #[inline]
    pub(crate) fn of_head(head: &KeyHead) -> Self {
        Self { words: head.words, len: head.len }
    }

    /// Whether the mark determines the key.
    #[inline]
    pub(crate) fn is_whole(self) -> bool {
        self.len <= SHOWN_BYTES
    }
}

impl<C: CursorHints> MergeCursor<C>
where
    C::Error: Clone,
{
    /// A merge of `sources`, off the end.
    pub(crate) fn new(sources: Vec<C>) -> Self {
        Self::in_lists(MergeLists { sources, ..MergeLists::default() })
    }

    /// As `new`, in the memory of these lists.
    pub(crate) fn in_lists(lists: MergeLists<C>) -> Self {
        let MergeLists { sources, mut heads, mut order } = lists;
        heads.clear();
        heads.resize(sources.len(), NO_HEAD);
        order.clear();
        order.extend((0..sources.len()).map(|source| Ranked { rank: u128::MAX, source }));
        let (second_rank, direction) = (u128::MAX, Direction::Forward);
        Self {
            sources,
            heads,
            order,
            top: NO_SOURCE,
            second_rank,
            is_unsorted: false,
            direction,
            failed: None,
            skips: None,
            skipped: 0,
        }
    }

    /// The merged sources.
    pub(crate) fn sources(&self) -> &[C] {
        &self.sources
    }

    /// Takes all lists out of a merge that is about to be dropped.
    pub(crate) fn take_lists(&mut self) -> MergeLists<C> {
        self.top = NO_SOURCE;
        let (sources, heads) = (std::mem::take(&mut self.sources), std::mem::take(&mut self.heads));
        MergeLists { sources, heads, order: std::mem::take(&mut self.order) }
    }

    /// Number of entries that visits skipped.
    pub(crate) fn skipped_in_visits(&self) -> u64 {
        self.skipped
    }

    /// The head of the current entry.
    #[inline]
    pub(crate) fn head(&self) -> Option<&SourceHead> {
        self.heads.get(self.top)
    }

    /// Index of the source with the current entry.
    #[inline]
    pub(crate) fn current(&self) -> usize {
        self.top
    }

    /// The source with the current entry.
    #[inline]
    fn source(&self) -> Option<&C> {
        self.sources.get(self.top)
    }

    /// The mark of the key of `head`, which is of one of the sources.
    #[inline]
    pub(crate) fn mark(&self, head: &SourceHead) -> Mark {
        Mark { words: head.words(self.direction), len: head.len }
    }

    /// Whether the entry before the current one is known, without a movement, to have another key.
    #[inline]
    pub(crate) fn begins_key(&self) -> bool {
        // Going backward, the other sources are on their versions of the same key, or have passed
        // them.
        self.direction == Direction::Backward
            && self.head().is_some_and(|head| head.rank < self.second_rank)
            && self.source().is_some_and(C::begins_key)
    }

    /// Whether the next entry, of another source, is known to be a version of the same key that is
    /// newer than the current one and not newer than `moment`. False if that is not known at once.
    #[inline]
    pub(crate) fn is_hidden_at(&self, moment: SeqNo) -> bool {
        let next = self.order.get(1).and_then(|place| self.heads.get(place.source));
        self.direction == Direction::Backward
            && !self.is_unsorted
            && self.head().zip(next).is_some_and(|(head, next)| {
                let is_same_key = (head.rank, head.len) == (next.rank, next.len);
                is_same_key && next.live && head.len <= SHOWN_BYTES && next.seqno <= moment
            })
    }

    /// Which of two sources comes first in the direction of travel.
    #[inline]
    fn compare(&self, a: Ranked, b: Ranked) -> Ordering {
        a.rank.cmp(&b.rank).then_with(|| self.tie().decide(a.source, b.source))
    }

    #[inline]
    fn tie(&self) -> Tie<'_, C> {
        Tie { sources: &self.sources, heads: &self.heads, direction: self.direction }
    }

    /// Updates the head of source `i`.
    #[inline]
    fn remember(&mut self, i: usize) {
        let direction = self.direction;
        let head = self.sources[i].head();
        self.heads[i] = head.map_or(NO_HEAD, |head| SourceHead::new(head, direction));
    }

    /// Moves source `i` and updates its head.
    fn move_source(
        &mut self,
        i: usize,
        movement: impl FnOnce(&mut C) -> Result<(), C::Error>,
    ) -> Result<(), C::Error> {
        if let Err(error) = movement(&mut self.sources[i]) {
            return Err(self.fail(error));
        }
        self.remember(i);
        Ok(())
    }

    #[cold]
    fn fail(&mut self, error: C::Error) -> C::Error {
        (self.top, self.is_unsorted) = (NO_SOURCE, false);
        self.failed = Some(error.clone());
        error
    }

    /// Makes all sources prefetch the memory and blocks that a seek will read, before any of them
    /// waits for it.
    fn prefetch_seek_all(&mut self, key: &[u8], aim: Aim) {
        for stage in [Stage::Find, Stage::Prefetch] {
            let requested =
                self.sources.iter_mut().map(|source| source.prefetch_seek(key, aim, stage));
            // A single prefetch overlaps with nothing.
            if requested.map(usize::from).sum::<usize>() < 2 {
                return;
            }
        }
    }

    /// Moves all sources and sorts them again.
    fn seek_all(
        &mut self,
        direction: Direction,
        mut movement: impl FnMut(&mut C) -> Result<(), C::Error>,
    ) -> Result<(), C::Error> {
        (self.failed, self.skips, self.direction) = (None, None, direction);
        for i in 0..self.sources.len() {
            self.move_source(i, &mut movement)?;
        }
        self.sort_all();
        Ok(())
    }

    /// Sorts all sources by their entries.
    fn sort_all(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        for place in &mut order {
            place.rank = self.heads[place.source].rank;
        }
        order.sort_unstable_by(|a, b| self.compare(*a, *b));
        self.order = order;
        self.is_unsorted = false;
        self.update_top();
    }

    /// Makes the entry of the first source the current one, if it is on one.
    #[inline]
    fn update_top(&mut self) {
        let first = self.order.first().map(|first| first.source);
        self.top = first.filter(|first| self.heads[*first].live).unwrap_or(NO_SOURCE);
        self.second_rank = self.order.get(1).map_or(u128::MAX, |second| second.rank);
    }

    /// Reinserts source `i`, which was the first and has moved.
    fn reinsert(&mut self, i: usize) {
        if self.is_unsorted {
            return self.settle();
        }
        let Self { sources, heads, order, direction, .. } = self;
        let Some(head) = heads.get(i) else { return };
        let moved = Ranked { rank: head.rank, source: i };
        let tie = Tie { sources, heads, direction: *direction };
        tie.reinsert(order, moved);
        self.update_top();
    }

    /// Sorts the sources after a visit that has left them as they were.
    #[cold]
    fn settle(&mut self) {
        (0..self.sources.len()).for_each(|source| self.remember(source));
        self.sort_all();
    }

    /// Turns all sources except `current` around; see step 4 of the module's head.
    fn turn(&mut self, current: usize, direction: Direction) -> Result<(), C::Error> {
        if self.is_unsorted {
            self.settle();
        }
        self.direction = direction;
        if let Some(skips) = &mut self.skips
            && std::mem::take(&mut skips.are_recent)
        {
            skips.landings.clear();
            return self.turn_by_seeks(current, direction);
        }
        for i in (0..self.sources.len()).filter(|i| *i != current) {
            let live = self.heads[i].live;
            self.move_source(i, |source| match (direction, live) {
                (Direction::Forward, true) => source.next(),
                (Direction::Forward, false) => source.seek_to_first(),
                (Direction::Backward, true) => source.prev(),
                (Direction::Backward, false) => source.seek_to_last(),
            })?;
        }
        Ok(())
    }

    /// As `turn`, after a skip of deleted entries: then sources may be farther away than on their
    /// nearest entries.
    #[cold]
    fn turn_by_seeks(&mut self, current: usize, direction: Direction) -> Result<(), C::Error> {
        let here = self.sources.get(current).and_then(C::internal_key);
        let Some((key, seqno)) = here.map(|here| (here.key.to_vec(), here.seqno)) else {
            return Ok(());
        };
        for i in (0..self.sources.len()).filter(|i| *i != current) {
            self.move_source(i, |source| {
                source.seek(&key, seqno)?;
                match (direction, source.internal_key().is_some()) {
                    (Direction::Forward, _) => Ok(()),
                    (Direction::Backward, true) => source.prev(),
                    (Direction::Backward, false) => source.seek_to_last(),
                }
            })?;
        }
        Ok(())
    }

    /// Moves one entry in `direction`, by `movement` of a source.
    fn step(
        &mut self,
        direction: Direction,
        movement: impl FnOnce(&mut C) -> Result<(), C::Error>,
    ) -> Result<(), C::Error> {
        let current = self.top;
        let Some(source) = self.sources.get_mut(current) else { return self.stay() };
        if self.direction != direction {
            return self.turn_and_step(current, direction);
        }
        if let Err(error) = movement(source) {
            return Err(self.fail(error));
        }
        self.remember(current);
        if self.heads[current].rank >= self.second_rank {
            self.reinsert(current);
        }
        Ok(())
    }

    /// Moves one entry in `direction` by `movement` of the current source, if that source has the
    /// next entry at hand and the mark determines the current key. Returns the mark, and the entry
    /// reached; `None` if nothing has moved.
    #[inline]
    fn step_at_hand(
        &mut self,
        direction: Direction,
        movement: impl Fn(&mut C) -> Option<KeyHead>,
    ) -> Option<(Mark, KeyHead)> {
        let current = self.top;
        let (source, head) = self.sources.get_mut(current).zip(self.heads.get_mut(current))?;
        if self.direction != direction || head.len > SHOWN_BYTES {
            return None;
        }
        let next = movement(source)?;
        let left = std::mem::replace(head, SourceHead::new(next, direction));
        let mark = Mark { words: left.words(direction), len: left.len };
        if head.rank < self.second_rank {
            return Some((mark, next));
        }
        self.reinsert(current);
        let reached = self.head().map(|head| head.entry(direction));
        Some((mark, reached.unwrap_or(next)))
    }

    /// As [`next`](Cursor::next), if the next entry is at hand: the mark of the key left, which
    /// determines it, and the head of the entry reached. `None` if nothing has moved.
    #[inline]
    pub(crate) fn pass_at_hand(&mut self) -> Option<(Mark, KeyHead)> {
        self.step_at_hand(Direction::Forward, C::next_at_hand)
    }

    /// As [`pass_at_hand`](Self::pass_at_hand), backward.
    #[inline]
    pub(crate) fn pass_back_at_hand(&mut self) -> Option<(Mark, KeyHead)> {
        self.step_at_hand(Direction::Backward, C::prev_at_hand)
    }

    /// Going forward: moves the current source to its first entry at or after (`key`, `seqno`),
    /// like [`seek`](Cursor::seek). The other sources stay.
    #[cold]
    pub(crate) fn skip_to(&mut self, key: &[u8], seqno: SeqNo) -> Result<(), C::Error> {
        debug_assert_eq!(self.direction, Direction::Forward, "a scan does not turn to skip");
        self.step(Direction::Forward, |source| source.seek(key, seqno))
    }

    /// Going backward, from a version of `key`: moves the current source past all of its versions.
    /// If `seen` is given, returns the newest version in that source as of `seen`, and its value.
    /// The other sources stay.
    #[cold]
    pub(crate) fn skip_back(
        &mut self,
        key: &[u8],
        seen: Option<SeqNo>,
    ) -> Result<Option<(EntryKind, SeqNo, Slice)>, C::Error> {
        debug_assert_eq!(self.direction, Direction::Backward, "a scan does not turn to skip");
        let mut found = None;
        self.step(Direction::Backward, |source| {
            if let Some(seqno) = seen {
                source.seek(key, seqno)?;
                let version = source.internal_key().filter(|internal| internal.key == key);
                found = version.map(|version| (version.kind, version.seqno, source.value()));
            }
            source.seek_before(key)
        })?;
        Ok(found)
    }

    /// Off the end nothing moves, and an error persists.
    #[cold]
    fn stay(&self) -> Result<(), C::Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    #[cold]
    fn turn_and_step(&mut self, current: usize, direction: Direction) -> Result<(), C::Error> {
        self.turn(current, direction)?;
        self.move_source(current, |source| match direction {
            Direction::Forward => source.next(),
            Direction::Backward => source.prev(),
        })?;
        self.sort_all();
        Ok(())
    }
}

impl<C: SkipsDeleted> MergeCursor<C>
where
    C::Error: Clone,
{
    /// Moves, in the direction of travel, the sources that are in `from..to` past it, if they hold
    /// nothing there that was written after `covering`. Returns whether the current entry was left.
    ///
    /// A source that was moved is no longer on its nearest entry, but on its nearest one that is
    /// not known to be deleted.
    #[cold]
    pub(crate) fn skip_deleted(
        &mut self,
        covering: SeqNo,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<bool, C::Error> {
        let is_inside = |key: &[u8]| from <= key && to.is_none_or(|to| key < to);
        if self.skips.get_or_insert_default().has_ended {
            return Ok(false);
        }
        if self.is_unsorted {
            self.settle();
        }
        let (mut has_moved, mut moved_any) = (false, false);
        for i in 0..self.sources.len() {
            let key = self.sources[i].internal_key().map(|internal| internal.key);
            if !self.heads[i].live || !key.is_some_and(is_inside) {
                continue;
            }
            // Loaded entries have one sequence number, so that the heads of long keys may be equal.
            let (before, long) = (self.heads[i], self.long_key_of(i));
            let moved = match self.direction {
                Direction::Forward => self.sources[i].skip_deleted(covering, to),
                Direction::Backward => self.sources[i].skip_deleted_back(covering, from),
            };
            match moved {
                Ok(true) => {
                    self.remember(i);
                    moved_any = true;
                    if before != self.heads[i] || long != self.long_key_of(i) {
                        has_moved |= i == self.top;
                        self.note_landing(i);
                    }
                }
                Ok(false) => {}
                Err(error) => return Err(self.fail(error)),
            }
        }
        if moved_any {
            self.skips.get_or_insert_default().are_recent = true;
            self.sort_all();
        }
        Ok(has_moved)
    }

    /// The current key of source `i`, if its head does not hold it whole.
    fn long_key_of(&self, i: usize) -> Option<Vec<u8>> {
        let key = self.sources[i].internal_key()?.key;
        (self.heads[i].len > SHOWN_BYTES).then(|| key.to_vec())
    }

    /// Checks that a skip of source `i` has come farther than its last one.
    fn note_landing(&mut self, i: usize) {
        let skips = self.skips.get_or_insert_default();
        skips.landings.resize_with(self.sources.len(), || None);
        let now = self.sources[i].internal_key().map(|internal| internal.key.to_vec());
        if let Some((last, now)) = skips.landings[i].as_ref().zip(now.as_ref()) {
            let is_farther = match self.direction {
                Direction::Forward => now > last,
                Direction::Backward => now < last,
            };
            skips.has_ended |= !is_farther;
        }
        skips.landings[i] = now;
    }
}

impl<C: CursorHints> Cursor for MergeCursor<C>
where
    C::Error: Clone,
{
    type Error = C::Error;

    fn seek_to_first(&mut self) -> Result<(), C::Error> {
        self.seek_all(Direction::Forward, C::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<(), C::Error> {
        self.seek_all(Direction::Backward, C::seek_to_last)
    }

    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<(), C::Error> {
        self.prefetch_seek_all(key, Aim::From);
        self.seek_all(Direction::Forward, |source| source.seek(key, seqno))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<(), C::Error> {
        self.prefetch_seek_all(key, Aim::Before);
        self.seek_all(Direction::Backward, |source| source.seek_before(key))
    }

    #[inline]
    fn next(&mut self) -> Result<(), C::Error> {
        self.step(Direction::Forward, C::next)
    }

    #[inline]
    fn prev(&mut self) -> Result<(), C::Error> {
        self.step(Direction::Backward, C::prev)
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.source()?.entry()
    }
}

impl<C: CursorHints> CursorHints for MergeCursor<C>
where
    C::Error: Clone,
{
    #[inline]
    fn internal_key(&self) -> Option<InternalKey<'_>> {
        self.source()?.internal_key()
    }

    fn shared_value(&self) -> Option<Slice> {
        self.source().and_then(C::shared_value)
    }
}

#[cfg(test)]
mod tests;

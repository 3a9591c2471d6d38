//! Visits the entries of a merge. Each is lent directly from its table, without a step through the
//! cursors in between.
//!
//! 1. Each source that is in a table hands out the cursor over that table, its *leaf*. The entry of
//!    a leaf is known by its [`Rank`]; the least one comes next. After the visit its leaf moves by
//!    one, and nothing else changes.
//! 2. At the end of a leaf's table its source makes the step. A source without a leaf, such as a
//!    memtable, is stepped entry by entry.
//! 3. At most [`LEAVES`] sources take part: those that come first. When an entry of another source
//!    comes next, the visit stops and all are sorted again.
//! 4. Forward, versions of the last visited key are skipped. Backward, an entry is visited only if
//!    it is known that no other version of its key follows, and skipped if a version that hides it
//!    is known to follow. Everything that is not known is left to the steps of the merge, as are
//!    keys of more than sixteen bytes, and a key of which [`STEPS_BEFORE_RESEEK`] versions were
//!    skipped: a seek skips the others.
//!
//! Called by the cursor over visible entries.

use trommel_base::{Cursor, CursorHints, EntryRef, KeyHead, MAX_SEQNO, SeqNo};

use super::{
    Direction, Mark, MergeCursor, NO_SOURCE, Ranked, SHOWN_BYTES, STEPS_BEFORE_RESEEK, SourceHead,
};

/// Most sources whose leaves take part at once: the least rank is searched for among all of them.
const LEAVES: usize = 8;

/// What became of an entry that was offered to the visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    /// Taken; the next one is wanted too.
    Taken,
    /// Taken; the last one wanted.
    Last,
    /// Not taken; the cursor stays on it.
    Left,
}

/// A cursor that is positioned in one of several tables.
pub(crate) trait HasLeaf: CursorHints {
    /// A cursor over one table.
    type Leaf: CursorHints;

    /// The cursor over the current table. It may be moved: if it ends off its end, the next
    /// movement of the whole cursor continues after that table; if it failed, the whole cursor must
    /// seek. `None` if there is none.
    fn leaf(&mut self) -> Option<&mut Self::Leaf>;
}

/// The order of entries: the smaller rank comes first in the direction of travel. Long keys with a
/// common start may be ranked wrongly among themselves, but rightly among short ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rank {
    words: u128,
    /// The key's length, then the sequence number.
    tail: u64,
}

/// Bits of a sequence number.
const SEQNO_BITS: u32 = MAX_SEQNO.count_ones();

impl Rank {
    const LAST: Self = Self { words: u128::MAX, tail: u64::MAX };

    #[inline]
    fn new(head: &KeyHead, direction: Direction) -> Self {
        let KeyHead { words, len, seqno, .. } = *head;
        let tail = u64::from(len.min(u32::from(u8::MAX))) << SEQNO_BITS | (MAX_SEQNO - seqno);
        match direction {
            Direction::Forward => Self { words, tail },
            Direction::Backward => Self { words: !words, tail: !tail },
        }
    }

    /// Whether this one comes first. Branch-free: the next source is unpredictable.
    #[inline]
    fn is_before(self, other: Self) -> bool {
        (self.words < other.words) | ((self.words == other.words) & (self.tail < other.tail))
    }

    /// Whether both are of the same key, if both keys are short.
    #[inline]
    fn has_key_of(self, other: Self) -> bool {
        (self.words == other.words) & ((self.tail ^ other.tail) >> SEQNO_BITS == 0)
    }

    /// The mark of the key, which is short.
    fn mark(self, direction: Direction) -> Mark {
        let Self { words, tail } = self;
        let (words, tail) =
            if direction == Direction::Forward { (words, tail) } else { (!words, !tail) };
        Mark { words, len: (tail >> SEQNO_BITS) as u32 }
    }

    /// The sequence number of a backward rank.
    #[inline]
    fn seqno_back(self) -> SeqNo {
        MAX_SEQNO - (!self.tail & MAX_SEQNO)
    }
}

/// Why a visit of the leaves stopped.
enum Halt<E> {
    /// This source is on an entry that was visited or skipped, and has to step itself.
    Step(usize),
    /// The entry of this source comes next, and the source has no leaf. Backward, another source
    /// has a newer version, with that sequence number.
    Alone(usize, Option<SeqNo>),
    /// The next entry is of a source that does not take part.
    Sort,
    /// The visitor wants no entries after that of this source.
    Last(usize),
    /// The next entry, if any, is not for the visitor.
    Left,
    /// A leaf could not be moved.
    Failed(E),
}

/// Entries that were skipped.
struct SkippedEntries {
    /// The rank of the last one, and the number skipped of its key.
    last: Rank,
    steps: u32,
    /// All of them, except the entry that the visit began on.
    skipped: u64,
}

/// The sources that take part in a visit.
struct Leaves<'a, L> {
    count: usize,
    ranks: [Rank; LEAVES],
    leaves: [Option<&'a mut L>; LEAVES],
    sources: [usize; LEAVES],
    /// The first rank of the other sources.
    limit: Option<Rank>,
}

impl<'a, L: CursorHints> Leaves<'a, L> {
    /// Those of `sources` that are on an entry: all, or the first in `order`.
    #[inline]
    fn new<C: HasLeaf<Leaf = L>>(
        sources: &'a mut [C],
        heads: &[SourceHead],
        order: &[Ranked],
        direction: Direction,
    ) -> Self {
        let mut all = Self {
            count: 0,
            ranks: [Rank::LAST; LEAVES],
            leaves: [const { None }; LEAVES],
            sources: [NO_SOURCE; LEAVES],
            limit: None,
        };
        let (first, others) = order.split_at(order.len().min(LEAVES));
        let rank = |head: &SourceHead| Rank::new(&head.entry(direction), direction);
        let limit = others.first().and_then(|place| heads.get(place.source));
        all.limit = limit.filter(|head| head.live).map(rank);
        for (nth, (source, head)) in sources.iter_mut().zip(heads).enumerate() {
            let is_first = others.is_empty() || first.iter().any(|place| place.source == nth);
            if !head.live || !is_first {
                continue;
            }
            let leaf = source.leaf();
            // The leaf may have moved since the head was kept.
            let here = leaf.as_ref().and_then(|leaf| leaf.head());
            all.ranks[all.count] =
                here.map_or_else(|| rank(head), |here| Rank::new(&here, direction));
            all.leaves[all.count] = leaf;
            all.sources[all.count] = nth;
            all.count += 1;
        }
        all
    }

    /// The source whose entry comes first.
    #[inline]
    fn first(&self) -> (usize, Rank) {
        let (mut first, mut least) = (0, self.ranks[0]);
        for (place, rank) in self.ranks.iter().enumerate().take(self.count).skip(1) {
            let is_before = rank.is_before(least);
            first = if is_before { place } else { first };
            least = if is_before { *rank } else { least };
        }
        (first, least)
    }

    /// Why a visit stops before its first entry.
    #[inline]
    fn nothing(&self) -> Option<Halt<L::Error>> {
        let all_ended = if self.limit.is_some() { Halt::Sort } else { Halt::Left };
        (self.count == 0).then_some(all_ended)
    }

    /// Visits one entry after another, following that of rank `last`. Backward, a version of a key
    /// is skipped if a newer one `hides` it. Also returns the rank of the last one visited, which
    /// thus stays in registers.
    #[inline]
    fn visit(
        &mut self,
        mut last: Rank,
        passed: &mut SkippedEntries,
        direction: Direction,
        ends: &impl Fn() -> bool,
        hides: &impl Fn(SeqNo) -> bool,
        visit: &mut impl FnMut(&KeyHead, &[u8], &[u8]) -> Offered,
    ) -> (Halt<L::Error>, Rank) {
        let is_only = self.count == 1 && self.limit.is_none();
        let has_newer = direction == Direction::Backward && !is_only;
        loop {
            let (first, mut rank) = self.first();
            if self.limit.is_some_and(|limit| limit.is_before(rank)) {
                return (Halt::Sort, last);
            }
            let source = self.sources[first];
            let newer = if has_newer { self.newer_elsewhere(first, rank) } else { None };
            let Some(leaf) = self.leaves[first].as_deref_mut() else {
                return (Halt::Alone(source, newer), last);
            };
            loop {
                let Some(shown) = leaf.head().zip(leaf.entry()) else {
                    return (Halt::Alone(source, newer), last);
                };
                let begins_key = || leaf.begins_key();
                let is_passed = is_passed(rank, last, direction, newer, hides, begins_key);
                match passed.visit(source, rank, last, shown, is_passed, visit) {
                    Ok(visited) => last = visited,
                    Err(halt) => return (halt, last),
                }
                let next = match direction {
                    Direction::Forward => leaf.next_at_hand(),
                    Direction::Backward => leaf.prev_at_hand(),
                };
                let next = match next {
                    Some(next) => next,
                    None => match moved(leaf, direction) {
                        Ok(Some(_)) if ends() => return (Halt::Left, last),
                        Ok(Some(next)) => next,
                        Ok(None) => return (Halt::Step(source), last),
                        Err(error) => return (Halt::Failed(error), last),
                    },
                };
                rank = Rank::new(&next, direction);
                if !is_only {
                    break;
                }
            }
            self.ranks[first] = rank;
        }
    }

    /// The sequence number of a version of the same key that another source than `place` is on.
    #[inline]
    fn newer_elsewhere(&self, place: usize, rank: Rank) -> Option<SeqNo> {
        for (other, of) in self.ranks.iter().enumerate().take(self.count) {
            if other != place && of.has_key_of(rank) {
                return Some(of.seqno_back());
            }
        }
        self.limit.filter(|limit| limit.has_key_of(rank)).map(Rank::seqno_back)
    }
}

/// Moves `leaf` and returns the head of its entry, if it is on one.
#[inline(never)]
fn moved<L: CursorHints>(leaf: &mut L, direction: Direction) -> Result<Option<KeyHead>, L::Error> {
    step(leaf, direction)?;
    Ok(leaf.head())
}

/// Moves `cursor` by one entry in this direction.
#[inline]
fn step<C: Cursor>(cursor: &mut C, direction: Direction) -> Result<(), C::Error> {
    match direction {
        Direction::Forward => cursor.next(),
        Direction::Backward => cursor.prev(),
    }
}

/// Whether the next entry, of this rank, is to be skipped: forward, a version of the last visited
/// key; backward, that entry itself, and an entry hidden by a newer one. `None` if that is not
/// known.
#[inline]
fn is_passed(
    rank: Rank,
    last: Rank,
    direction: Direction,
    newer: Option<SeqNo>,
    hides: &impl Fn(SeqNo) -> bool,
    begins_key: impl FnOnce() -> bool,
) -> Option<bool> {
    if direction == Direction::Forward {
        return Some(rank.has_key_of(last));
    }
    let is_passed = rank == last || newer.is_some_and(hides);
    (is_passed || newer.is_none() && begins_key()).then_some(is_passed)
}

impl SkippedEntries {
    /// Offers an entry of `source`, of this rank, to `visit`, unless it `is_passed`. Returns the
    /// rank of the last one visited, or why the visit stops. Always inlined: a call costs a fifth
    /// of a visit.
    #[inline(always)]
    fn visit<E>(
        &mut self,
        source: usize,
        rank: Rank,
        last: Rank,
        (head, entry): (KeyHead, EntryRef<'_>),
        is_passed: Option<bool>,
        visit: &mut impl FnMut(&KeyHead, &[u8], &[u8]) -> Offered,
    ) -> Result<Rank, Halt<E>> {
        if head.len > SHOWN_BYTES {
            return Err(Halt::Left);
        }
        match is_passed {
            None => return Err(Halt::Left),
            Some(true) if self.is_long(rank, last) => return Err(Halt::Left),
            Some(true) => return Ok(last),
            Some(false) => {}
        }
        match visit(&head, entry.key, entry.value) {
            Offered::Left => Err(Halt::Left),
            Offered::Last => Err(Halt::Last(source)),
            Offered::Taken => Ok(rank),
        }
    }

    /// Skips an entry of this rank, after that of rank `visited`; returns whether too many of its
    /// key were skipped. Not inlined, so that the visiting code stays small enough to be inlined.
    #[inline(never)]
    fn is_long(&mut self, rank: Rank, visited: Rank) -> bool {
        self.steps = if rank.has_key_of(self.last) { self.steps + 1 } else { 0 };
        self.last = rank;
        self.skipped += u64::from(rank != visited);
        self.steps >= STEPS_BEFORE_RESEEK
    }
}

impl<C: HasLeaf> MergeCursor<C>
where
    C::Error: Clone + From<<C::Leaf as Cursor>::Error>,
{
    /// Moves forward over entries with short keys, offering each to `visit` if its key differs from
    /// the one before. If the merge has moved on past the last key that was taken, returns the mark
    /// of that key, which determines it; `None` if the merge is on the last one taken, or has not
    /// moved. Calls `ends` at the end of each block, and stops if it returns true. If `visit`
    /// panics, the merge is off the end.
    ///
    /// # Errors
    ///
    /// As [`next`](Cursor::next).
    #[inline]
    pub(crate) fn visit_forward(
        &mut self,
        ends: impl Fn() -> bool,
        visit: impl FnMut(&KeyHead, &[u8], &[u8]) -> Offered,
    ) -> Result<Option<Mark>, C::Error> {
        self.visit(Direction::Forward, ends, |_| false, visit)
    }

    /// As [`visit_forward`](Self::visit_forward), backward, from the newest version of a key. An
    /// entry is offered if it is known that no other version of its key follows, and skipped if one
    /// follows that `hides` it by its sequence number.
    ///
    /// # Errors
    ///
    /// As [`prev`](Cursor::prev).
    #[inline]
    pub(crate) fn visit_back(
        &mut self,
        ends: impl Fn() -> bool,
        hides: impl Fn(SeqNo) -> bool,
        visit: impl FnMut(&KeyHead, &[u8], &[u8]) -> Offered,
    ) -> Result<Option<Mark>, C::Error> {
        self.visit(Direction::Backward, ends, hides, visit)
    }

    #[inline]
    fn visit(
        &mut self,
        direction: Direction,
        ends: impl Fn() -> bool,
        hides: impl Fn(SeqNo) -> bool,
        mut visit: impl FnMut(&KeyHead, &[u8], &[u8]) -> Offered,
    ) -> Result<Option<Mark>, C::Error> {
        let Some(mut last) = self.begin_visit(direction) else { return Ok(None) };
        let mut passed = SkippedEntries { last: Rank::LAST, steps: 0, skipped: 0 };
        loop {
            self.top = NO_SOURCE;
            let mut leaves = Leaves::new(&mut self.sources, &self.heads, &self.order, direction);
            let mut halt;
            (halt, last) = match leaves.nothing() {
                Some(halt) => (halt, last),
                None => leaves.visit(last, &mut passed, direction, &ends, &hides, &mut visit),
            };
            if let Halt::Alone(source, newer) = halt {
                let outcome =
                    self.visit_alone(source, newer, last, &mut passed, &hides, &mut visit);
                match outcome {
                    Ok(visited) => (halt, last) = (Halt::Step(source), visited),
                    Err(end) => halt = end,
                }
            }
            self.skipped += std::mem::take(&mut passed.skipped);
            if matches!(halt, Halt::Step(_)) && ends() {
                halt = Halt::Left;
            }
            if let Some(end) = self.go_on(halt, last)? {
                return Ok(end);
            }
        }
    }

    /// The rank of the current entry, if entries from there on can be visited in this direction.
    #[inline]
    fn begin_visit(&mut self, direction: Direction) -> Option<Rank> {
        if self.is_unsorted {
            self.settle();
        }
        let head = self.head().filter(|head| head.len <= SHOWN_BYTES)?;
        let rank = Rank::new(&head.entry(direction), direction);
        (self.direction == direction).then_some(rank)
    }

    /// Visits the entry of `source`, unless it is to be skipped. Returns the rank of the last one
    /// visited.
    #[inline]
    fn visit_alone(
        &self,
        source: usize,
        newer: Option<SeqNo>,
        last: Rank,
        passed: &mut SkippedEntries,
        hides: &impl Fn(SeqNo) -> bool,
        visit: &mut impl FnMut(&KeyHead, &[u8], &[u8]) -> Offered,
    ) -> Result<Rank, Halt<<C::Leaf as Cursor>::Error>> {
        let (cursor, direction) = (&self.sources[source], self.direction);
        let Some(entry) = cursor.entry() else { return Err(Halt::Left) };
        let head = entry.internal_key().head();
        let rank = Rank::new(&head, direction);
        let begins_key = || cursor.begins_key();
        let is_passed = is_passed(rank, last, direction, newer, hides, begins_key);
        passed.visit(source, rank, last, (head, entry), is_passed, visit)
    }

    /// Ends a visit on the entry of `source`. The others are sorted when the merge moves on, which
    /// after a short scan it seldom does.
    #[inline]
    fn stop_at(&mut self, source: usize) {
        self.remember(source);
        (self.top, self.second_rank, self.is_unsorted) = (source, 0, true);
    }

    /// Continues after the `last` one visited. Returns the outcome of the visit, if it ends.
    #[inline]
    fn go_on(
        &mut self,
        halt: Halt<<C::Leaf as Cursor>::Error>,
        last: Rank,
    ) -> Result<Option<Option<Mark>>, C::Error> {
        match halt {
            Halt::Step(source) | Halt::Alone(source, _) => {
                let direction = self.direction;
                self.move_source(source, |cursor| step(cursor, direction))?;
                return Ok(None);
            }
            Halt::Last(source) => {
                self.stop_at(source);
                return Ok(Some(None));
            }
            Halt::Failed(error) => return Err(self.fail(error.into())),
            Halt::Sort | Halt::Left => {}
        }
        self.settle();
        let is_long = self.head().is_some_and(|head| head.len > SHOWN_BYTES);
        Ok(match halt {
            Halt::Sort if !is_long => None,
            _ => Some(Some(last.mark(self.direction))),
        })
    }
}

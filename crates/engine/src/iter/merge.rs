//! Many sorted sources as one: a merge by loser tree, in both directions.
//!
//! 1. After a seek each source stands on its first entry in the direction of travel. A tree of
//!    matches decides which comes first: each inner node holds the loser of its match, the root
//!    the winner, so replacing the winner costs one comparison per level of the tree.
//! 2. A comparison looks first at the first eight bytes of each key, cached as an integer, and at
//!    the sources' entries only where these are equal.
//! 3. A change of direction moves every other source by one: in forward travel each stands behind
//!    the current entry, so its previous entry stands before it, and the other way round.
//!
//! Invariants: while the cursor stands on an entry, each other source stands on its nearest entry
//! in the direction of travel, or off the end if it has none. (key, sequence number) is unique
//! among the sources; should two be equal all the same, the earlier source's stands first.
//!
//! After an error the cursor stays in error, and repeats it, until it is sought anew: a source
//! that failed is never taken for one that has ended.
//!
//! Called by reads over memtables, tables and levels, and by merges.

use std::cmp::Ordering;

use trommel_base::{Cursor, EntryRef, SeqNo, Slice, compare_internal, first_word};

/// The entries of all its sources, in order.
#[derive(Debug)]
pub(crate) struct MergeCursor<C: Cursor> {
    sources: Vec<C>,
    heads: Vec<Head>,
    /// `[0]` is the winner; `[n]` the loser of the match at node n, whose children are nodes 2n
    /// and 2n + 1; source i is the leaf at node `sources.len() + i`.
    tree: Vec<usize>,
    direction: Direction,
    failed: Option<C::Error>,
}

/// What is remembered of the entry that a source stands on.
#[derive(Debug, Clone, Copy, Default)]
struct Head {
    /// The key's first eight bytes as an integer that sorts as they do; shorter keys are filled
    /// with zeros.
    prefix: u64,
    /// Whether the source stands on an entry.
    live: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

impl<C: Cursor> MergeCursor<C>
where
    C::Error: Clone,
{
    /// A merge of `sources`, standing off the end.
    pub(crate) fn new(sources: Vec<C>) -> Self {
        let heads = vec![Head::default(); sources.len()];
        let tree = vec![0; sources.len()];
        Self { sources, heads, tree, direction: Direction::Forward, failed: None }
    }

    /// What is merged.
    pub(crate) fn sources(&self) -> &[C] {
        &self.sources
    }

    /// The source that stands on the current entry.
    fn winner(&self) -> Option<usize> {
        let winner = *self.tree.first()?;
        (self.failed.is_none() && self.heads[winner].live).then_some(winner)
    }

    /// Whether source `a` comes before source `b` in the direction of travel.
    #[inline]
    fn comes_first(&self, a: usize, b: usize) -> bool {
        let (head_a, head_b) = (self.heads[a], self.heads[b]);
        if !(head_a.live && head_b.live) {
            return head_a.live;
        }
        let order = head_a.prefix.cmp(&head_b.prefix);
        let order = order.then_with(|| self.compare_entries(a, b)).then(a.cmp(&b));
        order
            == if self.direction == Direction::Forward { Ordering::Less } else { Ordering::Greater }
    }

    fn compare_entries(&self, a: usize, b: usize) -> Ordering {
        match (self.sources[a].entry(), self.sources[b].entry()) {
            (Some(a), Some(b)) => compare_internal(a.key, a.seqno, b.key, b.seqno),
            _ => Ordering::Equal,
        }
    }

    /// Moves source `i` and remembers where it stands then.
    #[inline]
    fn move_source(
        &mut self,
        i: usize,
        movement: impl FnOnce(&mut C) -> Result<(), C::Error>,
    ) -> Result<(), C::Error> {
        if let Err(error) = movement(&mut self.sources[i]) {
            self.failed = Some(error.clone());
            return Err(error);
        }
        self.heads[i] = match self.sources[i].entry() {
            Some(entry) => Head { prefix: first_word(entry.key), live: true },
            None => Head::default(),
        };
        Ok(())
    }

    /// Moves all sources and plays all matches anew.
    fn seek_all(
        &mut self,
        direction: Direction,
        mut movement: impl FnMut(&mut C) -> Result<(), C::Error>,
    ) -> Result<(), C::Error> {
        self.failed = None;
        self.direction = direction;
        for i in 0..self.sources.len() {
            self.move_source(i, &mut movement)?;
        }
        self.play_all();
        Ok(())
    }

    /// Plays all matches, from the leaves to the root.
    fn play_all(&mut self) {
        let count = self.sources.len();
        let mut winners = vec![0; count];
        winners.extend(0..count);
        for node in (1..count).rev() {
            let (left, right) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) =
                if self.comes_first(left, right) { (left, right) } else { (right, left) };
            winners[node] = winner;
            self.tree[node] = loser;
        }
        if let Some(root) = self.tree.first_mut() {
            // Of one source alone, node 1 is its leaf.
            *root = winners[1];
        }
    }

    /// Plays the matches of source `i`, which was the winner and has moved.
    #[inline]
    fn replay(&mut self, i: usize) {
        let mut winner = i;
        let mut node = (self.sources.len() + i) / 2;
        while node > 0 {
            let loser = self.tree[node];
            if self.comes_first(loser, winner) {
                self.tree[node] = winner;
                winner = loser;
            }
            node /= 2;
        }
        self.tree[0] = winner;
    }

    /// Turns all sources but `current` round; see step 3 of the module's head.
    fn turn(&mut self, current: usize, direction: Direction) -> Result<(), C::Error> {
        self.direction = direction;
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

    /// Moves one entry in `direction`.
    #[inline]
    fn step(&mut self, direction: Direction) -> Result<(), C::Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(current) = self.winner() else { return Ok(()) };
        let turns = self.direction != direction;
        if turns {
            self.turn(current, direction)?;
        }
        self.move_source(current, |source| match direction {
            Direction::Forward => source.next(),
            Direction::Backward => source.prev(),
        })?;
        if turns {
            self.play_all();
        } else {
            self.replay(current);
        }
        Ok(())
    }
}

impl<C: Cursor> Cursor for MergeCursor<C>
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
        self.seek_all(Direction::Forward, |source| source.seek(key, seqno))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<(), C::Error> {
        self.seek_all(Direction::Backward, |source| source.seek_before(key))
    }

    fn next(&mut self) -> Result<(), C::Error> {
        self.step(Direction::Forward)
    }

    fn prev(&mut self) -> Result<(), C::Error> {
        self.step(Direction::Backward)
    }

    fn entry(&self) -> Option<EntryRef<'_>> {
        self.sources[self.winner()?].entry()
    }

    fn value(&self) -> Slice {
        self.winner().map_or_else(Slice::default, |winner| self.sources[winner].value())
    }
}

#[cfg(test)]
mod tests;

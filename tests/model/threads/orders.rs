//! Checks whether the calls on one key fit into one order: the search of Wing and Gong (1993) with
//! the memoization of Lowe (2017).
//!
//! 1. A configuration is a set of completed calls and the value of the key after them.
//! 2. The next call may be any pending call that began before all other pending calls ended.
//! 3. Its result must be that of a register with the configuration's value.
//! 4. A configuration is visited only once. The calls fit if all can be completed.
//!
//! The time grows with 2 to the number of overlapping calls, so histories are divided into windows
//! of at most 32 calls at points where no call is pending.

use std::collections::HashSet;
use std::fmt;

/// A value: each is written at most once. 0 means that the key is absent.
pub(super) type Value = u32;

/// A call, with its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Put(Value),
    Delete,
    Get(Value),
    /// Whether there was an entry.
    Contains(bool),
    /// `insert_if_absent`, and whether it inserted.
    Insert(Value, bool),
    /// `compare_and_set` from the first to the second, and whether it set.
    Set(Value, Value, bool),
}

impl Step {
    /// The value after the call; none if a register of this value would have returned another
    /// result.
    fn after(self, value: Value) -> Option<Value> {
        let conditional = |holds: bool, answer: bool, new: Value| {
            (holds == answer).then_some(if holds { new } else { value })
        };
        match self {
            Self::Put(new) => Some(new),
            Self::Delete => Some(0),
            Self::Get(seen) => (seen == value).then_some(value),
            Self::Contains(answer) => (answer == (value != 0)).then_some(value),
            Self::Insert(new, answer) => conditional(value == 0, answer, new),
            Self::Set(expected, new, answer) => conditional(value == expected, answer, new),
        }
    }
}

/// A step, with its times on the clock that all threads share.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) thread: usize,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) step: Step,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread, start, end, step } = self;
        write!(f, "  {start:>9}..{end:<9} thread {thread} {step:?}")
    }
}

/// Checks whether the calls fit into one order, from this value on.
pub(super) fn fit(calls: &[Call], first: Value) -> bool {
    assert!(calls.len() <= 32, "{} calls in a window", calls.len());
    let all = ((1_u64 << calls.len()) - 1) as u32;
    let mut seen = HashSet::from([(0_u32, first)]);
    let mut open = vec![(0_u32, first)];
    while let Some((done, value)) = open.pop() {
        if done == all {
            return true;
        }
        let left = || (0..calls.len()).filter(|at| done & 1 << at == 0);
        let first_end = left().map(|at| calls[at].end).min().unwrap_or(u64::MAX);
        for at in left().filter(|at| calls[*at].start < first_end) {
            let next = calls[at].step.after(value).map(|value| (done | 1 << at, value));
            open.extend(next.filter(|next| seen.insert(*next)));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::Step::{Contains, Delete, Get, Insert, Put, Set};
    use super::*;

    fn fits(first: Value, steps: &[(u64, u64, Step)]) -> bool {
        let call = |(start, end, step): &(u64, u64, Step)| Call {
            thread: 0,
            start: *start,
            end: *end,
            step: *step,
        };
        fit(&steps.iter().map(call).collect::<Vec<_>>(), first)
    }

    #[test]
    fn right_histories_fit() {
        assert!(fits(0, &[]));
        assert!(fits(7, &[(0, 1, Get(7)), (2, 3, Contains(true))]));
        assert!(fits(0, &[(0, 1, Put(1)), (2, 3, Get(1)), (4, 5, Delete), (6, 7, Get(0))]));
        // During a put a read may return the value before it, or after it.
        assert!(fits(5, &[(0, 9, Put(1)), (1, 2, Get(5)), (3, 4, Get(1))]));
        // Two concurrent puts, in either order.
        assert!(fits(0, &[(0, 5, Put(1)), (1, 6, Put(2)), (7, 8, Get(1))]));
        assert!(fits(0, &[(0, 5, Put(1)), (1, 6, Put(2)), (7, 8, Get(2))]));
        // One winner, and the loser comes after it.
        assert!(fits(3, &[(0, 5, Set(3, 1, true)), (1, 6, Set(3, 2, false)), (7, 8, Get(1))]));
        assert!(fits(0, &[(0, 5, Insert(1, false)), (1, 6, Insert(2, true)), (7, 8, Get(2))]));
        // A conditional removal between two inserts that both succeed.
        let steps = [(0, 9, Insert(1, true)), (1, 8, Set(1, 0, true)), (2, 7, Insert(2, true))];
        assert!(fits(0, &steps));
    }

    #[test]
    fn wrong_histories_do_not_fit() {
        // A stale read.
        assert!(!fits(0, &[(0, 1, Put(1)), (2, 3, Put(2)), (4, 5, Get(1))]));
        assert!(!fits(0, &[(0, 1, Put(1)), (2, 3, Contains(false))]));
        // Back in time, though both reads overlap the write.
        assert!(!fits(0, &[(0, 9, Put(1)), (1, 2, Get(1)), (3, 4, Get(0))]));
        // A lost update: nobody else wrote between setting and reading.
        assert!(!fits(5, &[(0, 1, Set(5, 1, true)), (2, 3, Get(5))]));
        let lost = [(0, 5, Set(5, 1, true)), (1, 6, Set(1, 2, true)), (7, 8, Get(1))];
        assert!(!fits(5, &lost));
        // Two winners of one value.
        assert!(!fits(5, &[(0, 5, Set(5, 1, true)), (1, 6, Set(5, 2, true))]));
        assert!(!fits(0, &[(0, 5, Insert(1, true)), (1, 6, Insert(2, true))]));
        // A loser without a reason.
        assert!(!fits(5, &[(0, 1, Set(5, 1, false))]));
        assert!(!fits(0, &[(0, 1, Insert(1, false))]));
        // A value that nobody wrote, and one from the future.
        assert!(!fits(0, &[(0, 1, Put(1)), (0, 3, Get(9))]));
        assert!(!fits(0, &[(0, 1, Get(1)), (2, 3, Put(1))]));
        // A deleted key reappears.
        assert!(!fits(5, &[(0, 1, Delete), (2, 3, Get(5))]));
    }

    /// The search visits as many configurations as possible, and still ends.
    #[test]
    fn twelve_calls_at_once_are_decided() {
        let puts = (0..11).map(|at| (at, 100 + at, Put(at as Value + 1)));
        let with = |seen| {
            let mut steps: Vec<_> = puts.clone().collect();
            steps.push((200, 201, Get(seen)));
            fits(0, &steps)
        };
        assert!(with(7));
        assert!(!with(77));
    }
}

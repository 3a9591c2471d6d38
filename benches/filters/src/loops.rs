//! The loops that query a filter, compiled once for each kind of filter.
//!
//! * [`Pattern::Independent`]: one query after another; none waits for an answer, so a processor
//!   overlaps several. Throughput.
//! * [`Pattern::Dependent`]: no query begins before the previous one is answered: a serialising
//!   instruction is in between, and the next key is computed with the answer. Latency. (Without the
//!   instruction, a processor predicts the answer and continues.)
//! * [`Pattern::Batched`]: [`BATCH`] queries at once, for filters that support it; the others are
//!   queried one after another.
//!
//! [`Nothing`] is queried in the same loops: the time without a filter is subtracted.

use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::barrier::wait;

/// Queries in a batch.
pub const BATCH: usize = 32;

/// A filter that can be queried with hashes.
pub trait Queried {
    /// Whether it may hold `hash`.
    fn holds(&self, hash: u64) -> bool;

    /// The same for many hashes.
    #[inline]
    fn holds_many(&self, hashes: &[u64], answers: &mut [bool]) {
        for (answer, &hash) in answers.iter_mut().zip(hashes) {
            *answer = self.holds(hash);
        }
    }
}

/// An operation on any kind of filter.
pub trait Ask {
    /// Its result.
    type Answer;

    /// Runs it.
    fn ask<Q: Queried>(self, filter: &Q) -> Self::Answer;
}

/// Not a filter: a loop that queries it does everything else.
pub struct Nothing;

impl Queried for Nothing {
    #[inline]
    fn holds(&self, hash: u64) -> bool {
        hash & 1 == 1
    }
}

/// The pattern of queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// No query waits for an answer.
    Independent,
    /// Every query waits for the previous answer.
    Dependent,
    /// Many queries at once.
    Batched,
}

/// The kind of keys queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Absent keys.
    Negative,
    /// Present keys.
    Positive,
}

/// A pattern and the kind of keys.
pub type Mode = (Side, Pattern);

/// Every mode, in the order of tables.
pub const MODES: [Mode; 6] = [
    (Side::Negative, Pattern::Independent),
    (Side::Positive, Pattern::Independent),
    (Side::Negative, Pattern::Dependent),
    (Side::Positive, Pattern::Dependent),
    (Side::Negative, Pattern::Batched),
    (Side::Positive, Pattern::Batched),
];

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if *self == Self::Negative { "negative" } else { "positive" })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Independent => "independent",
            Self::Dependent => "dependent",
            Self::Batched => "batched",
        })
    }
}

/// The name of a mode, as in records.
pub fn mode_name((side, pattern): Mode) -> String {
    format!("{side}_{pattern}")
}

/// Queries all of these hashes in a pattern; returns the time, and the number of positives.
pub struct Timed<'a>(pub Pattern, pub &'a [u64]);

impl Ask for Timed<'_> {
    type Answer = (Duration, u64);

    fn ask<Q: Queried>(self, filter: &Q) -> (Duration, u64) {
        let Self(pattern, hashes) = self;
        let start = Instant::now();
        let hits = match pattern {
            Pattern::Independent => independent(filter, hashes),
            Pattern::Dependent => dependent(filter, hashes),
            Pattern::Batched => batched(filter, hashes),
        };
        (start.elapsed(), black_box(hits))
    }
}

#[inline(never)]
fn independent<Q: Queried>(filter: &Q, hashes: &[u64]) -> u64 {
    hashes.iter().map(|&hash| u64::from(filter.holds(black_box(hash)))).sum()
}

#[inline(never)]
fn dependent<Q: Queried>(filter: &Q, hashes: &[u64]) -> u64 {
    // Only this function knows that it is zero.
    let nought = black_box(0_u64);
    let (mut hits, mut last) = (0, 0);
    for &hash in hashes {
        last = u64::from(filter.holds(hash ^ last & nought));
        hits += last;
        wait();
    }
    hits
}

#[inline(never)]
fn batched<Q: Queried>(filter: &Q, hashes: &[u64]) -> u64 {
    let mut answers = [false; BATCH];
    let mut hits = 0;
    for batch in hashes.chunks(BATCH) {
        let answers = &mut answers[..batch.len()];
        filter.holds_many(black_box(batch), answers);
        hits += answers.iter().map(|answer| u64::from(*answer)).sum::<u64>();
    }
    hits
}

/// Queries absent keys until there are `enough` false positives or `cap` queries; returns the
/// numbers of queries and of false positives.
pub struct Rate {
    /// Number of false positives after which it stops.
    pub enough: u64,
    /// Number of queries after which it stops.
    pub cap: u64,
}

impl Ask for Rate {
    type Answer = (u64, u64);

    fn ask<Q: Queried>(self, filter: &Q) -> (u64, u64) {
        let (mut asked, mut hits) = (0, 0);
        let mut hashes = [0_u64; 1024];
        let mut answers = [false; 1024];
        while asked < self.cap && hits < self.enough {
            for (nth, hash) in hashes.iter_mut().enumerate() {
                // Beyond all keys of timed queries.
                *hash = crate::keys::hash((1 << 60) + asked + nth as u64);
            }
            filter.holds_many(&hashes, &mut answers);
            asked += hashes.len() as u64;
            hits += answers.iter().map(|answer| u64::from(*answer)).sum::<u64>();
        }
        (asked, hits)
    }
}

/// The first of these hashes, out of every `step`th, that the filter denies.
pub struct FirstDenied<'a> {
    /// Hashes that were added.
    pub hashes: &'a [u64],
    /// Distance between the queried ones.
    pub step: usize,
}

impl Ask for FirstDenied<'_> {
    type Answer = Option<u64>;

    fn ask<Q: Queried>(self, filter: &Q) -> Option<u64> {
        self.hashes.iter().step_by(self.step.max(1)).copied().find(|&hash| !filter.holds(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds the even numbers.
    struct Even;

    impl Queried for Even {
        fn holds(&self, hash: u64) -> bool {
            hash.is_multiple_of(2)
        }
    }

    #[test]
    fn every_pattern_asks_every_question_once() {
        let hashes: Vec<u64> = (0..1001).collect();
        for pattern in [Pattern::Independent, Pattern::Dependent, Pattern::Batched] {
            assert_eq!(Timed(pattern, &hashes).ask(&Even).1, 501, "{pattern}");
        }
        assert_eq!(FirstDenied { hashes: &hashes, step: 2 }.ask(&Even), None);
        assert_eq!(FirstDenied { hashes: &hashes, step: 3 }.ask(&Even), Some(3));
        let (asked, hits) = Rate { enough: 2000, cap: 1 << 20 }.ask(&Even);
        assert!((2000..3100).contains(&hits) && (4096..8192).contains(&asked));
        assert_eq!(Rate { enough: 2000, cap: 1024 }.ask(&Even).0, 1024);
    }
}

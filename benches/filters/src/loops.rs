//! The loops that ask a filter, compiled once for each kind of filter.
//!
//! * [`Pattern::Independent`]: one question after the other; none waits for an answer, so a
//!   processor has several under way. Throughput.
//! * [`Pattern::Dependent`]: no question begins before the one before is answered: an instruction
//!   that waits stands between, and the next key is computed with the answer. Latency. (Without
//!   waiting, a processor guesses the answer and goes on.)
//! * [`Pattern::Batched`]: [`BATCH`] questions at once, for filters that have an entry for it; the
//!   others are asked one after the other.
//!
//! [`Nothing`] is asked in the same loops: what remains without a filter is subtracted.

use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::barrier::wait;

/// Questions of a batch.
pub const BATCH: usize = 32;

/// Something that is asked whether it holds hashes.
pub trait Queried {
    /// Whether it may hold `hash`.
    fn holds(&self, hash: u64) -> bool;

    /// The same for many.
    #[inline]
    fn holds_many(&self, hashes: &[u64], answers: &mut [bool]) {
        for (answer, &hash) in answers.iter_mut().zip(hashes) {
            *answer = self.holds(hash);
        }
    }
}

/// Something that is done with any filter.
pub trait Ask {
    /// What it finds out.
    type Answer;

    /// Does it.
    fn ask<Q: Queried>(self, filter: &Q) -> Self::Answer;
}

/// A filter that is none: a loop that asks it does everything else.
pub struct Nothing;

impl Queried for Nothing {
    #[inline]
    fn holds(&self, hash: u64) -> bool {
        hash & 1 == 1
    }
}

/// How a filter is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// No question waits for an answer.
    Independent,
    /// Every question waits for the answer before.
    Dependent,
    /// Many questions at once.
    Batched,
}

/// Which keys are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Keys that are not there.
    Negative,
    /// Keys that are.
    Positive,
}

/// A pattern and the keys asked for.
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

/// Asks for all of these hashes in a pattern; the time, and how many answers were "maybe".
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
    // Nobody but this function knows that it is nought.
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

/// Asks for absent keys until there were `enough` false positives or `cap` questions; the questions
/// and the false positives.
pub struct Rate {
    /// False positives after which no more is asked.
    pub enough: u64,
    /// Questions after which no more is asked.
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
                // Beyond all keys that are asked for against the clock.
                *hash = crate::keys::hash((1 << 60) + asked + nth as u64);
            }
            filter.holds_many(&hashes, &mut answers);
            asked += hashes.len() as u64;
            hits += answers.iter().map(|answer| u64::from(*answer)).sum::<u64>();
        }
        (asked, hits)
    }
}

/// The first of these hashes, every `step`th of them, that the filter denies.
pub struct FirstDenied<'a> {
    /// Hashes that were added.
    pub hashes: &'a [u64],
    /// Which of them are asked for.
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

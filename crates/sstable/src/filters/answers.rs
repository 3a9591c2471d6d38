//! What a table's filters say of many keys at once.
//!
//! Neighbours that one filter answers for are a *run*: kind and rate are said once for all of them,
//! and who counts, counts them together. The lists are used again for table after table.

use std::ops::Range;

use super::Verdict;

/// What a table's filters say of each of many keys, in their order.
#[derive(Debug, Default)]
pub struct Answers {
    maybe: Vec<bool>,
    /// Where each run ends, and its verdict on a key that may be there.
    runs: Vec<(usize, Verdict)>,
}

impl Answers {
    /// The runs: which keys, the verdict on those that may be there, and whether each of them may.
    /// It is [`Verdict::UNFILTERED`] where no filter could be asked.
    pub fn runs(&self) -> impl Iterator<Item = (Range<usize>, Verdict, &[bool])> {
        let mut start = 0;
        self.runs.iter().map(move |(end, verdict)| {
            let keys = std::mem::replace(&mut start, *end)..*end;
            let maybe = self.maybe.get(keys.clone()).unwrap_or_default();
            (keys, *verdict, maybe)
        })
    }

    pub(super) fn clear(&mut self) {
        self.maybe.clear();
        self.runs.clear();
    }

    /// Adds an answer for each of `keys` keys, true until it is changed: a filter of this kind and
    /// rate is about to be asked for them.
    pub(super) fn add(&mut self, keys: usize, verdict: Verdict) -> &mut [bool] {
        let start = self.maybe.len();
        self.maybe.resize(start + keys, true);
        let verdict = Verdict { maybe: true, ..verdict };
        match self.runs.last_mut() {
            Some((end, last)) if *last == verdict => *end = self.maybe.len(),
            _ => self.runs.push((self.maybe.len(), verdict)),
        }
        self.maybe.get_mut(start..).unwrap_or_default()
    }

    pub(super) fn add_unfiltered(&mut self, keys: usize) {
        self.add(keys, Verdict::UNFILTERED);
    }

    /// Adds what was said of one key.
    pub(super) fn add_one(&mut self, verdict: Verdict) {
        self.add(1, verdict).fill(verdict.maybe);
    }
}

//! What filters answer for one key, and for many keys at once.
//!
//! Neighbouring keys that one filter answers for are a *run*: kind and rate are stored once for all
//! of them, and whoever counts, counts them together. The lists are reused for table after table.

use std::fmt;
use std::ops::Range;

use trommel_filter::{Filter, FilterKind};

/// The kind of filter that answers for a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FilterLabel {
    /// A filter of our own; [`FilterKind::None`] where none could be queried.
    Own(FilterKind),
    /// A filter of a user's policy.
    User,
}

impl FilterLabel {
    /// The word that reports have for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own(kind) => kind.name(),
            Self::User => "user",
        }
    }
}

impl From<FilterKind> for FilterLabel {
    fn from(kind: FilterKind) -> Self {
        Self::Own(kind)
    }
}

impl PartialEq<FilterKind> for FilterLabel {
    fn eq(&self, kind: &FilterKind) -> bool {
        *self == Self::Own(*kind)
    }
}

impl fmt::Display for FilterLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a table's filters answer for a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// Whether the table may hold it.
    pub maybe: bool,
    /// Kind of the filter that answered; [`FilterKind::None`] where none could be queried.
    pub kind: FilterLabel,
    /// Rate of false positives of such a filter: exact, by theory. 1 where none could be queried.
    pub expected: f64,
}

impl Verdict {
    /// That of a table without a usable filter.
    pub const UNFILTERED: Self =
        Self { maybe: true, kind: FilterLabel::Own(FilterKind::None), expected: 1.0 };

    /// What a filter of our own answers for the key of this hash.
    #[inline]
    pub(crate) fn of(filter: &Filter, hash: u64) -> Self {
        Self {
            maybe: filter.may_contain_hash(hash),
            kind: filter.kind().into(),
            expected: filter.expected_fpr(),
        }
    }
}

/// What a table's filters answer for each of many keys, in their order.
#[derive(Debug, Default)]
pub struct Answers {
    maybe: Vec<bool>,
    /// Where each run ends, and its verdict on a key that may be there.
    runs: Vec<(usize, Verdict)>,
}

impl Answers {
    /// The runs: which keys, the verdict on those that may be there, and whether each of them may.
    /// It is [`Verdict::UNFILTERED`] where no filter could be queried.
    pub fn runs(&self) -> impl Iterator<Item = (Range<usize>, Verdict, &[bool])> {
        let mut start = 0;
        self.runs.iter().map(move |(end, verdict)| {
            let keys = std::mem::replace(&mut start, *end)..*end;
            let maybe = self.maybe.get(keys.clone()).unwrap_or_default();
            (keys, *verdict, maybe)
        })
    }

    pub(crate) fn clear(&mut self) {
        self.maybe.clear();
        self.runs.clear();
    }

    /// Adds an answer for each of `keys` keys, true until it is changed: a filter of this kind and
    /// rate is about to be queried for them.
    pub(crate) fn add(&mut self, keys: usize, verdict: Verdict) -> &mut [bool] {
        let start = self.maybe.len();
        self.maybe.resize(start + keys, true);
        let verdict = Verdict { maybe: true, ..verdict };
        match self.runs.last_mut() {
            Some((end, last)) if *last == verdict => *end = self.maybe.len(),
            _ => self.runs.push((self.maybe.len(), verdict)),
        }
        self.maybe.get_mut(start..).unwrap_or_default()
    }

    pub(crate) fn add_unfiltered(&mut self, keys: usize) {
        self.add(keys, Verdict::UNFILTERED);
    }

    /// Adds the answer for one key.
    pub(crate) fn add_one(&mut self, verdict: Verdict) {
        self.add(1, verdict).fill(verdict.maybe);
    }
}

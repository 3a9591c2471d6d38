//! Verdicts of filters on one key and on many keys.
//!
//! Neighbouring keys whose verdict comes from the same filter form a *run*: the filter's kind and
//! rate are stored once per run, so that counters are updated once per run too. The lists are
//! reused from table to table.

use std::fmt;
use std::ops::Range;

use trommel_filter::{Filter, FilterKind};

/// The kind of filter that a verdict comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FilterLabel {
    /// A built-in filter; [`FilterKind::None`] if no filter could be queried.
    BuiltIn(FilterKind),
    /// A filter of a user-defined policy.
    User,
    /// A range filter.
    Ranges,
}

impl FilterLabel {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::BuiltIn(kind) => kind.name(),
            Self::User => "user",
            Self::Ranges => "infix",
        }
    }
}

impl From<FilterKind> for FilterLabel {
    fn from(kind: FilterKind) -> Self {
        Self::BuiltIn(kind)
    }
}

impl PartialEq<FilterKind> for FilterLabel {
    fn eq(&self, kind: &FilterKind) -> bool {
        *self == Self::BuiltIn(*kind)
    }
}

impl fmt::Display for FilterLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The verdict of a table's filters on a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// Whether the table may hold the key.
    pub maybe: bool,
    /// Kind of the filter; [`FilterKind::None`] if none could be queried.
    pub kind: FilterLabel,
    /// The theoretical false-positive rate of the filter; 1 if none could be queried.
    pub expected: f64,
}

impl Verdict {
    /// The verdict of a table without a usable filter.
    pub const UNFILTERED: Self =
        Self { maybe: true, kind: FilterLabel::BuiltIn(FilterKind::None), expected: 1.0 };

    /// The verdict of a built-in filter on the key with this hash.
    #[inline]
    pub(crate) fn of(filter: &Filter, hash: u64) -> Self {
        Self {
            maybe: filter.may_contain_hash(hash),
            kind: filter.kind().into(),
            expected: filter.expected_fpr(),
        }
    }
}

/// The verdicts of a table's filters on many keys, in their order.
#[derive(Debug, Default)]
pub struct Answers {
    maybe: Vec<bool>,
    /// The end of each run, and its verdict on a key that may be present.
    runs: Vec<(usize, Verdict)>,
}

impl Answers {
    /// The runs: the range of keys, the verdict on a key that may be present, and for each key
    /// whether it may be present. The verdict is [`Verdict::UNFILTERED`] if no filter could be
    /// queried.
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

    /// Adds an answer for each of `keys` keys, all true. The caller then queries a filter of this
    /// kind and rate and overwrites them.
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

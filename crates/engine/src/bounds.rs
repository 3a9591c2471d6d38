//! Ranges of keys.

use std::ops::{self, Bound, Deref};
use std::sync::Arc;

/// A range of keys with owned bounds.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// The first key in the range.
    pub(crate) from: Vec<u8>,
    /// The first key after the range, if it has an end.
    pub(crate) to: Option<Vec<u8>>,
}

/// Bounds shared by everything made for one scan; those of all keys take no memory.
#[derive(Debug, Clone)]
pub(crate) struct SharedBounds(Option<Arc<Bounds>>);

/// The bounds of all keys.
static ALL: Bounds = Bounds { from: Vec::new(), to: None };

impl SharedBounds {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self((!bounds.are_all()).then(|| Arc::new(bounds)))
    }
}

impl Deref for SharedBounds {
    type Target = Bounds;

    #[inline]
    fn deref(&self) -> &Bounds {
        self.0.as_deref().unwrap_or(&ALL)
    }
}

/// A range of keys: any of Rust's ranges, `..` included, over any type that is bytes
/// (`AsRef<[u8]>`).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trommel::Db::open(dir.path(), Default::default())?;
/// # for key in ["a", "b", "c"] {
/// #     db.put(key, "")?;
/// # }
/// let low = b"b".to_vec();
/// assert_eq!(db.range("a".."c").count(), 2);
/// assert_eq!(db.range(&low..).count(), 2);
/// assert_eq!(db.range(..).count(), 3);
/// # Ok::<(), trommel::Error>(())
/// ```
pub trait KeyRange {
    /// The start and the end of the range.
    fn into_ends(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

impl KeyRange for ops::RangeFull {
    fn into_ends(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

macro_rules! key_ranges {
    ($($range:ty),*) => {
        $(impl<K: AsRef<[u8]>> KeyRange for $range {
            fn into_ends(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
                use ops::RangeBounds as _;
                let owned = |key: &K| key.as_ref().to_vec();
                (self.start_bound().map(owned), self.end_bound().map(owned))
            }
        })*
    };
}

key_ranges!(
    ops::Range<K>,
    ops::RangeFrom<K>,
    ops::RangeInclusive<K>,
    ops::RangeTo<K>,
    ops::RangeToInclusive<K>,
    (Bound<K>, Bound<K>)
);

/// The smallest key that is larger than `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

impl Bounds {
    /// All keys.
    pub(crate) fn all() -> Self {
        Self { from: Vec::new(), to: None }
    }

    /// Whether the range is all keys.
    #[inline]
    pub(crate) fn are_all(&self) -> bool {
        self.from.is_empty() && self.to.is_none()
    }

    /// The keys of any Rust range.
    pub(crate) fn of(range: impl KeyRange) -> Self {
        let (from, to) = range.into_ends();
        let from = match from {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key,
            Bound::Excluded(key) => successor(&key),
        };
        let to = match to {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(successor(&key)),
            Bound::Excluded(key) => Some(key),
        };
        Self { from, to }
    }

    /// The first key after `key`.
    pub(crate) fn after(key: &[u8]) -> Vec<u8> {
        successor(key)
    }

    /// `key`, or the end of the range if that comes first.
    pub(crate) fn capped(&self, key: &[u8]) -> Vec<u8> {
        match &self.to {
            Some(to) if **to < *key => to.clone(),
            _ => key.to_vec(),
        }
    }

    /// The keys that begin with `prefix`.
    pub(crate) fn prefix(prefix: &[u8]) -> Self {
        let mut to = prefix.to_vec();
        while to.last() == Some(&0xff) {
            to.pop();
        }
        let to = match to.last_mut() {
            Some(last) => {
                *last += 1;
                Some(to)
            }
            None => None,
        };
        Self { from: prefix.to_vec(), to }
    }

    /// Whether `key` is at the end of the range or after it.
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        self.to.as_ref().is_some_and(|to| **to <= *key)
    }

    /// Whether `key` is within the range.
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        *self.from <= *key && !self.ends_before(key)
    }
}

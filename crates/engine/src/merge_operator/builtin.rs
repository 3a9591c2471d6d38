//! The merge operators that come with the library.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use trommel_base::Decoder;
use trommel_base::codec::put_bytes;

use super::MergeOperator;

type Merged = Result<Option<Vec<u8>>, String>;

/// The merge operators that come with the library, and one made from a closure.
///
/// A store that was written with a built-in one can be opened without passing it again.
///
/// ```
/// use trommel::{Db, Merge, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// let options = Options::default().writes(|w| w.merge_operator(Merge::counter()));
/// let db = Db::open(dir.path(), options)?;
/// for page in ["a", "b", "a"] {
///     db.merge(page, 1_u64.to_le_bytes())?; // reads nothing
/// }
/// assert_eq!(db.get("a")?.unwrap(), 2_u64.to_le_bytes());
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Merge;

impl Merge {
    /// Adds integers of 8 bytes, little-endian, modulo 2^64: `u64` or, in two's complement, `i64`.
    /// A key without a value counts as 0. Values and operands of other lengths are an error.
    ///
    /// ```
    /// # use trommel::{Db, Merge, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().writes(|w| w.merge_operator(Merge::counter()));
    /// let db = Db::open(dir.path(), options)?;
    /// db.merge("balance", 100_i64.to_le_bytes())?;
    /// db.merge("balance", (-30_i64).to_le_bytes())?;
    /// assert_eq!(db.get("balance")?.unwrap(), 70_i64.to_le_bytes());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn counter() -> Arc<dyn MergeOperator> {
        Arc::new(Counter)
    }

    /// Keeps the largest of the value and all operands, in byte order. Numbers compare correctly if
    /// they are big-endian and of equal length.
    ///
    /// ```
    /// # use trommel::{Db, Merge, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().writes(|w| w.merge_operator(Merge::max()));
    /// let db = Db::open(dir.path(), options)?;
    /// for degrees in [17_u32, 23, 19] {
    ///     db.merge("warmest", degrees.to_be_bytes())?;
    /// }
    /// assert_eq!(db.get("warmest")?.unwrap(), 23_u32.to_be_bytes());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn max() -> Arc<dyn MergeOperator> {
        Arc::new(Max)
    }

    /// Forms the union of sets of byte strings, in the form of [`Merge::set`]; [`Merge::items`]
    /// reads it. A key without a value counts as the empty set. Other values and operands are an
    /// error.
    ///
    /// ```
    /// # use trommel::{Db, Merge, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().writes(|w| w.merge_operator(Merge::set_union()));
    /// let db = Db::open(dir.path(), options)?;
    /// db.merge("tags", Merge::set(["red", "blue"]))?;
    /// db.merge("tags", Merge::set(["red", "green"]))?;
    /// let tags = db.get("tags")?.unwrap();
    /// let tags: Vec<&[u8]> = Merge::items(&tags).collect::<Result<_, _>>().unwrap();
    /// assert_eq!(tags, [b"blue".as_slice(), b"green", b"red"]);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn set_union() -> Arc<dyn MergeOperator> {
        Arc::new(SetUnion)
    }

    /// A set for [`Merge::set_union`]: its items in byte order, each once, each after its length as
    /// a LEB128 varint. The whole set must be smaller than 1 GiB.
    ///
    /// ```
    /// use trommel::Merge;
    /// assert_eq!(Merge::set(["b", "a", "b"]), [1, b'a', 1, b'b']);
    /// ```
    pub fn set(items: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
        let items: Vec<_> = items.into_iter().collect();
        let items: BTreeSet<&[u8]> = items.iter().map(AsRef::as_ref).collect();
        encoded(&items)
    }

    /// The items of a set in the form of [`Merge::set`].
    ///
    /// ```
    /// use trommel::Merge;
    /// let set = Merge::set(["a", "b"]);
    /// assert_eq!(Merge::items(&set).count(), 2);
    /// assert!(Merge::items(b"\x05abc").next().unwrap().is_err());
    /// ```
    pub fn items(set: &[u8]) -> SetItems<'_> {
        SetItems { rest: Decoder::new(set) }
    }

    /// The operator `name` that repeatedly applies `combine` to the key, the result so far, and the
    /// next operand; the first operand of a key without a value is its value.
    ///
    /// `combine` must be associative: `combine(combine(a, b), c)` is `combine(a, combine(b, c))`.
    ///
    /// ```
    /// use trommel::{Db, Merge, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let append = Merge::associative("append", |_key, so_far, next| Ok([so_far, next].concat()));
    /// let options = Options::default().writes(|w| w.merge_operator(append));
    /// let db = Db::open(dir.path(), options)?;
    /// db.merge("word", "tromm")?;
    /// db.merge("word", "el")?;
    /// assert_eq!(db.get("word")?.unwrap(), b"trommel");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn associative<F>(name: impl Into<String>, combine: F) -> Arc<dyn MergeOperator>
    where
        F: Fn(&[u8], &[u8], &[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static,
    {
        Arc::new(Associative { name: name.into(), combine })
    }
}

#[derive(Debug)]
struct Counter;

impl Counter {
    fn sum<'a>(numbers: impl Iterator<Item = &'a [u8]>) -> Result<u64, String> {
        let number = |bytes: &[u8]| match <[u8; 8]>::try_from(bytes) {
            Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
            Err(_) => Err(format!("a counter has 8 bytes, and this has {}", bytes.len())),
        };
        numbers.map(number).try_fold(0_u64, |sum, number| Ok(sum.wrapping_add(number?)))
    }
}

impl MergeOperator for Counter {
    fn name(&self) -> &str {
        "trommel.counter"
    }

    fn full_merge(&self, _: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Merged {
        let sum = Self::sum(existing.into_iter().chain(operands.iter().copied()))?;
        Ok(Some(sum.to_le_bytes().to_vec()))
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Self::sum(operands.iter().copied()).ok().map(|sum| sum.to_le_bytes().to_vec())
    }
}

#[derive(Debug)]
struct Max;

impl MergeOperator for Max {
    fn name(&self) -> &str {
        "trommel.max"
    }

    fn full_merge(&self, _: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Merged {
        Ok(existing.into_iter().chain(operands.iter().copied()).max().map(<[u8]>::to_vec))
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        operands.iter().max().map(|largest| largest.to_vec())
    }
}

#[derive(Debug)]
struct SetUnion;

impl SetUnion {
    fn union<'a>(sets: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, InvalidSet> {
        let items: Result<BTreeSet<&[u8]>, _> = sets.flat_map(Merge::items).collect();
        Ok(encoded(&items?))
    }
}

impl MergeOperator for SetUnion {
    fn name(&self) -> &str {
        "trommel.set_union"
    }

    fn full_merge(&self, _: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Merged {
        let union = Self::union(existing.into_iter().chain(operands.iter().copied()));
        union.map(Some).map_err(|invalid| invalid.to_string())
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Self::union(operands.iter().copied()).ok()
    }
}

fn encoded(items: &BTreeSet<&[u8]>) -> Vec<u8> {
    let mut set = Vec::with_capacity(items.iter().map(|item| item.len() + 1).sum());
    items.iter().for_each(|item| put_bytes(&mut set, item));
    set
}

/// The items of a set: see [`Merge::items`]. After an error there are no more items.
#[derive(Debug, Clone)]
pub struct SetItems<'a> {
    rest: Decoder<'a>,
}

impl<'a> Iterator for SetItems<'a> {
    type Item = Result<&'a [u8], InvalidSet>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let item = self.rest.bytes(usize::MAX);
        if item.is_none() {
            self.rest = Decoder::new(&[]);
        }
        Some(item.ok_or(InvalidSet))
    }
}

/// The error for bytes that are not a set in the form of [`Merge::set`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidSet;

impl fmt::Display for InvalidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these bytes are not a set: make it with Merge::set")
    }
}

impl std::error::Error for InvalidSet {}

/// An operator made from a closure.
struct Associative<F> {
    name: String,
    combine: F,
}

impl<F> fmt::Debug for Associative<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

impl<F> Associative<F>
where
    F: Fn(&[u8], &[u8], &[u8]) -> Result<Vec<u8>, String> + Send + Sync,
{
    fn combined<'a>(&self, key: &[u8], mut parts: impl Iterator<Item = &'a [u8]>) -> Merged {
        let Some(first) = parts.next() else { return Ok(None) };
        parts.try_fold(first.to_vec(), |so_far, next| (self.combine)(key, &so_far, next)).map(Some)
    }
}

impl<F> MergeOperator for Associative<F>
where
    F: Fn(&[u8], &[u8], &[u8]) -> Result<Vec<u8>, String> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(&self, key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Merged {
        self.combined(key, existing.into_iter().chain(operands.iter().copied()))
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.combined(key, operands.iter().copied()).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case = (Arc<dyn MergeOperator>, [Vec<u8>; 4]);

    fn apply(operator: &dyn MergeOperator, old: Option<&[u8]>, operands: &[&[u8]]) -> Merged {
        operator.full_merge(b"k", old, operands)
    }

    /// Whatever part is merged first, the result is the same, overflow included.
    #[test]
    fn parts_may_be_merged_in_any_grouping() {
        let number = |number: u64| number.to_le_bytes().to_vec();
        let set = |items: &[&str]| Merge::set(items);
        let append = Merge::associative("append", |_, a, b| Ok([a, b].concat()));
        let cases: [Case; 4] = [
            (Merge::counter(), [number(1), number(u64::MAX), number(7), number(1 << 63)]),
            (Merge::max(), [b"b".to_vec(), b"".to_vec(), b"ab".to_vec(), b"b\0".to_vec()]),
            (Merge::set_union(), [set(&["b"]), set(&[]), set(&["", "b", "a"]), set(&["c"])]),
            (append, [b"1".to_vec(), b"".to_vec(), b"2".to_vec(), b"3".to_vec()]),
        ];
        for (operator, values) in cases {
            let [v, a, b, c] = values.each_ref().map(Vec::as_slice);
            for existing in [None, Some(v)] {
                let whole = apply(&*operator, existing, &[a, b, c]).unwrap();
                let ab = operator.partial_merge(b"k", &[a, b]).unwrap();
                let bc = operator.partial_merge(b"k", &[b, c]).unwrap();
                let first = apply(&*operator, existing, &[a]).unwrap();
                assert_eq!(apply(&*operator, existing, &[&ab, c]).unwrap(), whole);
                assert_eq!(apply(&*operator, existing, &[a, &bc]).unwrap(), whole);
                assert_eq!(apply(&*operator, first.as_deref(), &[b, c]).unwrap(), whole);
            }
        }
    }

    #[test]
    fn what_is_no_number_or_set_is_refused() {
        let counter = Merge::counter();
        assert!(apply(&*counter, Some(&[0; 8]), &[&[0; 7]]).unwrap_err().contains("has 7"));
        assert!(apply(&*counter, Some(&[]), &[&[0; 8]]).is_err());
        assert_eq!(counter.partial_merge(b"k", &[&[0; 8], b""]), None);
        let union = Merge::set_union();
        for wrong in [&b"\x02a"[..], b"\x80", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"] {
            assert!(apply(&*union, None, &[wrong]).is_err(), "{wrong:?}");
            assert!(apply(&*union, Some(wrong), &[b""]).is_err(), "{wrong:?}");
            assert_eq!(union.partial_merge(b"k", &[b"", wrong]), None);
        }
        assert_eq!(
            apply(&*union, Some(b"\x01b\x01a\x01b"), &[b""]),
            Ok(Some(b"\x01a\x01b".into()))
        );
        let failing = Merge::associative("fails", |_, _, _| Err("no".to_owned()));
        assert_eq!(apply(&*failing, None, &[b"a"]), Ok(Some(b"a".to_vec())));
        assert_eq!(apply(&*failing, None, &[b"a", b"b"]), Err("no".to_owned()));
        assert_eq!(failing.partial_merge(b"k", &[b"a", b"b"]), None);
    }
}

//! The keys that a run writes, and absent keys to look up.
//!
//! 1. *Integers*, as in db_bench: key `i` is `i` as 8 big-endian bytes, then `'0'` up to the key
//!    size. *Lines*: the distinct non-empty lines of a file, sorted.
//! 2. The missing counterpart of a key is that key with a tail appended. It sorts right after the
//!    key, within the range of stored keys (except the counterparts of the greatest key), so every
//!    level must query its filters. An integer key with a tail is longer than every stored key; a
//!    line gets a newline before its tail, which no line contains. So no counterpart is ever
//!    stored.
//! 3. The caller supplies the tails: random ones make absent keys distinct. A filter always answers
//!    the same for the same key, so a rate measured over repeated keys is less certain than the
//!    number of lookups suggests.

use std::io;
use std::path::Path;

use crate::error::Error;

/// Longest tail of a missing key, in bytes.
pub(crate) const TAIL_BYTES_MAX: usize = 8;
/// Longest key that leaves room for a newline and a tail within the store's limit of 65,535 bytes.
const KEY_BYTES_MAX: usize = 65_535 - 1 - TAIL_BYTES_MAX;
/// Bytes of the integer in a key.
const INTEGER_BYTES: usize = 8;

/// The keys of a run: key `i` for each `i` below [`KeySpace::len`], in key order.
#[derive(Debug, Clone)]
pub struct KeySpace {
    source: Source,
    len: u64,
}

#[derive(Debug, Clone)]
enum Source {
    Integers { key_bytes: usize },
    Lines { text: Vec<u8>, spans: Vec<Span> },
}

/// The range of a line in the text.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: usize,
    len: usize,
}

impl Span {
    fn of(self, text: &[u8]) -> &[u8] {
        &text[self.start..self.start + self.len]
    }
}

impl KeySpace {
    /// `count` integers as keys of `key_bytes` bytes.
    ///
    /// # Errors
    /// If `count` is 0, or `key_bytes` is 0, above 65,526, or too few for `count` keys.
    pub fn integers(count: u64, key_bytes: usize) -> Result<Self, Error> {
        if count == 0 {
            return Err(Error::Usage("there must be at least one key".into()));
        }
        if !(1..=KEY_BYTES_MAX).contains(&key_bytes) {
            return Err(Error::Usage(format!(
                "a key size of {key_bytes} bytes cannot be used: it must be 1 to {KEY_BYTES_MAX}"
            )));
        }
        if key_bytes < INTEGER_BYTES && (count - 1) >> (8 * key_bytes) != 0 {
            return Err(Error::Usage(format!(
                "{count} keys do not fit in {key_bytes} bytes each: make the keys longer"
            )));
        }
        Ok(Self { source: Source::Integers { key_bytes }, len: count })
    }

    /// The distinct non-empty lines among the first `limit` lines of `text`, as bytes without the
    /// newline.
    ///
    /// # Errors
    /// If there are none, or one is longer than 65,526 bytes.
    pub fn lines(text: Vec<u8>, limit: Option<u64>) -> Result<Self, Error> {
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let mut spans = Vec::new();
        let mut start = 0;
        for (nth, line) in text.split(|byte| *byte == b'\n').enumerate().take(limit) {
            if line.len() > KEY_BYTES_MAX {
                return Err(Error::Usage(format!(
                    "line {} has {} bytes: a key has at most {KEY_BYTES_MAX}",
                    nth + 1,
                    line.len()
                )));
            }
            if !line.is_empty() {
                spans.push(Span { start, len: line.len() });
            }
            start += line.len() + 1;
        }
        spans.sort_unstable_by(|a, b| a.of(&text).cmp(b.of(&text)));
        spans.dedup_by(|a, b| a.of(&text) == b.of(&text));
        if spans.is_empty() {
            return Err(Error::Usage("it has no keys: write one key per line".into()));
        }
        let len = spans.len() as u64;
        Ok(Self { source: Source::Lines { text, spans }, len })
    }

    /// [`KeySpace::lines`] of a file.
    ///
    /// # Errors
    /// As `lines`, or if the file cannot be read.
    pub fn read_lines(file: &Path, limit: Option<u64>) -> Result<Self, Error> {
        let text = std::fs::read(file).map_err(|error| match error.kind() {
            io::ErrorKind::IsADirectory => {
                let file = file.display();
                Error::Usage(format!("{file} is a directory; give a file with one key per line"))
            }
            _ => Error::io(file, "reading", error),
        })?;
        Self::lines(text, limit).map_err(|error| match error {
            Error::Usage(what) => Error::Usage(format!("{}: {what}", file.display())),
            other => other,
        })
    }

    /// Number of keys; at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a key space is never empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Average bytes in a key.
    pub fn key_bytes(&self) -> f64 {
        match &self.source {
            Source::Integers { key_bytes } => *key_bytes as f64,
            Source::Lines { spans, .. } => {
                spans.iter().map(|span| span.len as f64).sum::<f64>() / self.len as f64
            }
        }
    }

    /// Whether each key has a neighbouring prefix of `prefix_bytes` bytes that no key has. True for
    /// integer keys if the prefix is longer than eight bytes.
    pub fn has_missing_prefixes(&self, prefix_bytes: usize) -> bool {
        let Source::Integers { key_bytes } = self.source else { return false };
        (INTEGER_BYTES + 1..=key_bytes).contains(&prefix_bytes)
    }

    /// Whether keys beyond [`KeySpace::len`] exist, so that a run can insert them. True for
    /// integers of 8 bytes.
    pub fn can_grow(&self) -> bool {
        matches!(self.source, Source::Integers { key_bytes } if key_bytes >= INTEGER_BYTES)
    }

    /// The number of the key of record `record`: distinct for distinct records, and scattered, so
    /// that neighbouring records are not neighbouring keys. If the space cannot grow it is `record`
    /// itself.
    #[inline]
    pub(crate) fn scattered(&self, record: u64) -> u64 {
        if self.can_grow() { mix(record) } else { record }
    }

    /// A maker of keys for one thread.
    pub fn maker(&self) -> KeyMaker<'_> {
        let buffer = match &self.source {
            Source::Integers { key_bytes } => vec![b'0'; key_bytes + TAIL_BYTES_MAX],
            Source::Lines { .. } => Vec::new(),
        };
        KeyMaker { space: self, buffer, missing: Vec::new() }
    }
}

/// Makes keys of a [`KeySpace`] in a buffer of its own, one at a time.
#[derive(Debug)]
pub struct KeyMaker<'a> {
    space: &'a KeySpace,
    /// For integers: room for a key and a tail, `'0'` after the integer.
    buffer: Vec<u8>,
    /// A prefix that no key has.
    missing: Vec<u8>,
}

impl KeyMaker<'_> {
    /// Key number `index`.
    ///
    /// # Panics
    /// If the key space is not that long (checked for lines only).
    #[inline]
    pub fn key(&mut self, index: u64) -> &[u8] {
        match &self.space.source {
            Source::Integers { key_bytes } => {
                write_integer(&mut self.buffer[..*key_bytes], index);
                &self.buffer[..*key_bytes]
            }
            Source::Lines { text, spans } => spans[index as usize].of(text),
        }
    }

    /// The prefix of `prefix_bytes` bytes of key number `index`, with its last byte changed so that
    /// no key has that prefix. The prefix of an integer must be longer than the integer
    /// ([`KeySpace::has_missing_prefixes`]).
    ///
    /// # Panics
    /// If it is not.
    pub(crate) fn missing_prefix(&mut self, index: u64, prefix_bytes: usize) -> &[u8] {
        assert!(self.space.has_missing_prefixes(prefix_bytes), "every such prefix is there");
        self.key(index);
        let missing = &mut self.missing;
        missing.clear();
        missing.extend_from_slice(&self.buffer[..prefix_bytes]);
        missing[prefix_bytes - 1] = b'1';
        missing
    }

    /// The missing counterpart of key number `index` with this `tail` (1 to 8 bytes).
    ///
    /// # Panics
    /// As [`KeyMaker::key`], and if the tail of an integer key is longer.
    #[inline]
    pub fn missing(&mut self, index: u64, tail: &[u8]) -> &[u8] {
        match &self.space.source {
            Source::Integers { key_bytes } => {
                let end = key_bytes + tail.len();
                write_integer(&mut self.buffer[..*key_bytes], index);
                self.buffer[*key_bytes..end].copy_from_slice(tail);
                &self.buffer[..end]
            }
            Source::Lines { text, spans } => {
                self.buffer.clear();
                self.buffer.extend_from_slice(spans[index as usize].of(text));
                self.buffer.push(b'\n');
                self.buffer.extend_from_slice(tail);
                &self.buffer
            }
        }
    }
}

/// A bijection on 64-bit numbers in which each bit depends on all others: the finaliser of
/// splitmix64.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Writes `integer` at the start of `key`; a shorter key holds its low bytes.
#[inline]
#[expect(clippy::big_endian_bytes, reason = "keys sort as their integers do; no file holds this")]
fn write_integer(key: &mut [u8], integer: u64) {
    let bytes = integer.to_be_bytes();
    match key.first_chunk_mut::<INTEGER_BYTES>() {
        Some(head) => *head = bytes,
        None => key.copy_from_slice(&bytes[INTEGER_BYTES - key.len()..]),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Checks that the keys are in order, and that no counterpart is stored; all but the last are
    /// in range.
    fn check(space: &KeySpace) {
        let mut maker = space.maker();
        let stored: BTreeSet<Vec<u8>> =
            (0..space.len()).map(|index| maker.key(index).to_vec()).collect();
        assert_eq!(stored.len() as u64, space.len(), "keys are distinct");
        let in_order: Vec<_> = (0..space.len()).map(|index| maker.key(index).to_vec()).collect();
        assert!(in_order.is_sorted(), "keys are numbered in key order");
        let (first, last) = (stored.first().unwrap(), stored.last().unwrap());
        for index in 0..space.len() {
            for tail in [&b"0"[..], b"\0", b"\xff", b"12345678"] {
                let missing = maker.missing(index, tail).to_vec();
                assert!(!stored.contains(&missing), "{missing:?}");
                assert!(missing > *first);
                assert!(missing < *last || index == space.len() - 1, "{missing:?}");
            }
            assert_eq!(maker.key(index), in_order[index as usize], "a tail leaves no trace");
        }
    }

    #[test]
    fn integer_keys_are_those_of_db_bench() {
        let space = KeySpace::integers(1 << 40, 16).unwrap();
        let mut maker = space.maker();
        assert_eq!(maker.key(0x0102_0304), b"\0\0\0\0\x01\x02\x03\x0400000000");
        assert_eq!(maker.missing(7, b"0"), b"\0\0\0\0\0\0\0\x07000000000");
        assert_eq!(space.key_bytes(), 16.0);
    }

    #[test]
    fn missing_keys_lie_inside_the_range_and_are_never_present() {
        for key_bytes in [2, 7, 8, 9, 16, 40] {
            check(&KeySpace::integers(700, key_bytes).unwrap());
        }
        check(&KeySpace::integers(256, 1).unwrap());
        check(&KeySpace::lines(b"b\na\n\nabc\nab\nb\n\xff\xff\na\0".to_vec(), None).unwrap());
    }

    #[test]
    fn lines_are_sorted_distinct_and_limited() {
        let space = KeySpace::lines(b"pear\n\napple\npear\r\nfig\npear".to_vec(), None).unwrap();
        let mut maker = space.maker();
        let keys: Vec<_> = (0..space.len()).map(|index| maker.key(index).to_vec()).collect();
        assert_eq!(keys, [&b"apple"[..], b"fig", b"pear", b"pear\r"]);
        let space = KeySpace::lines(b"pear\napple\nfig".to_vec(), Some(2)).unwrap();
        assert_eq!(space.len(), 2);
        assert_eq!(space.maker().key(0), b"apple");
    }

    #[test]
    fn unusable_keys_are_explained() {
        let text = |result: Result<KeySpace, Error>| result.unwrap_err().to_string();
        assert!(text(KeySpace::integers(0, 16)).contains("at least one key"));
        assert!(text(KeySpace::integers(1, 0)).contains("1 to 65526"));
        assert!(text(KeySpace::integers(257, 1)).contains("do not fit"));
        assert!(text(KeySpace::lines(b"\n\n".to_vec(), None)).contains("one key per line"));
        let long = [b"a\n".to_vec(), vec![b'x'; 65_527]].concat();
        assert!(text(KeySpace::lines(long, None)).contains("line 2 has 65527 bytes"));
        let absent = text(KeySpace::read_lines(Path::new("/no/such/keys"), None));
        assert!(absent.starts_with("reading /no/such/keys failed"), "{absent}");
        let folder = text(KeySpace::read_lines(&std::env::temp_dir(), None));
        assert!(folder.ends_with("is a directory; give a file with one key per line"), "{folder}");
    }
}

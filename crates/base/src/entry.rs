//! One version of one key, and the order of versions.

use std::cmp::Ordering;

/// The number of a write. Every operation of every batch has its own, counting up from 1; 0 means
/// "before all writes".
pub type SeqNo = u64;

/// The largest sequence number: 56 bits, so that a sequence number and an [`EntryKind`] fit one
/// word.
pub const MAX_SEQNO: SeqNo = (1 << 56) - 1;

/// The kind of an entry: a value, a tombstone or a merge operand.
///
/// The numbers are part of the on-disk format. Other numbers belong to operations that are not
/// entries ([`RANGE_DELETE`], [`RANGE_DELETE_FROM`] and [`TIME_MARK`]), or are reserved for later
/// versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// The key has no value from here on (a tombstone).
    Delete = 0,
    /// The key has this value from here on.
    Put = 1,
    /// From here on the key has the value that the merge operator computes from the older versions
    /// and this operand.
    Merge = 3,
}

/// Kind number of a range deletion with an end.
pub const RANGE_DELETE: u8 = 2;
/// Kind number of a range deletion without an end.
pub const RANGE_DELETE_FROM: u8 = 4;
/// Kind number of a time mark.
pub const TIME_MARK: u8 = 5;

impl EntryKind {
    /// The kind with this number, if this version knows it.
    #[inline]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Delete),
            1 => Some(Self::Put),
            _ => Self::rare(number),
        }
    }

    /// Like `from_u8`, for a kind that most stores do not use. Out of line, so that scans of other
    /// entries do not pay for it.
    #[cold]
    #[inline(never)]
    const fn rare(number: u8) -> Option<Self> {
        match number {
            3 => Some(Self::Merge),
            _ => None,
        }
    }
}

/// The first eight bytes of `bytes`, padded with zeros, as a number with the same order: if two
/// numbers differ, the bytes compare the same way; if they are equal, the full bytes decide.
#[inline]
pub fn first_word(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*first).swap_bytes();
    }
    // Shorter inputs are read as two halves that may overlap in equal bytes. Assembling the word
    // byte by byte in memory would stall on store forwarding.
    let len = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let half = |bytes: &[u8; 4]| u64::from(u32::from_le_bytes(*bytes).swap_bytes());
        return half(first) << 32 | half(last) << (8 * (8 - len));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<2>(), bytes.last_chunk::<2>()) {
        let half = |bytes: &[u8; 2]| u64::from(u16::from_le_bytes(*bytes).swap_bytes());
        return half(first) << 48 | half(last) << (8 * (8 - len));
    }
    bytes.first().map_or(0, |byte| u64::from(*byte) << 56)
}

/// Whether two parts of keys are equal. Up to 16 bytes are compared as words, without a call.
#[inline]
pub fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    let len = a.len();
    if len != b.len() {
        return false;
    }
    match len {
        0 => true,
        1..=8 => first_word(a) == first_word(b),
        9..=16 => first_words(a) == first_words(b),
        _ => a == b,
    }
}

/// The rest of `key` after `prefix`, or `None` if `key` does not start with it.
#[inline(always)]
pub fn key_behind<'a>(key: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = key.split_at_checked(prefix.len())?;
    same_bytes(start, prefix).then_some(rest)
}

/// Like [`first_word`], for the first sixteen bytes.
#[inline]
pub fn first_words(bytes: &[u8]) -> u128 {
    if let Some(first) = bytes.first_chunk::<16>() {
        return u128::from_le_bytes(*first).swap_bytes();
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        // The two halves may overlap in equal bytes.
        let first = u128::from(u64::from_le_bytes(*first).swap_bytes()) << 64;
        let last = u128::from(u64::from_le_bytes(*last).swap_bytes());
        return first | last << (8 * (16 - bytes.len()));
    }
    u128::from(first_word(bytes)) << 64
}

/// Compares two keys bytewise. The first sixteen bytes are compared as words, without a call.
#[inline]
pub fn compare_keys(a: &[u8], b: &[u8]) -> Ordering {
    first_words(a).cmp(&first_words(b)).then_with(|| match (a.get(16..), b.get(16..)) {
        (Some(a), Some(b)) => a.cmp(b),
        // At least one key has at most sixteen bytes, and they differ at most in trailing zeros.
        _ => a.len().cmp(&b.len()),
    })
}

/// A key and its version: a borrowed view of an entry without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InternalKey<'a> {
    /// The user's key.
    pub key: &'a [u8],
    /// Sequence number of the write.
    pub seqno: SeqNo,
    /// Value, tombstone or operand.
    pub kind: EntryKind,
}

/// The part of an internal key that fits a few registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHead {
    /// The key's [`first_words`].
    pub words: u128,
    /// Length of the key, in bytes.
    pub len: u32,
    /// Value, tombstone or operand.
    pub kind: EntryKind,
    /// Sequence number of the write.
    pub seqno: SeqNo,
}

impl KeyHead {
    /// Whether the key has more bytes than `words` holds.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.len as usize > size_of_val(&self.words)
    }

    /// Compares two entries like [`compare_internal`]. Calls `keys` to compare the full keys only
    /// if both are long and their first words are equal.
    #[inline]
    pub fn compare(&self, other: &Self, keys: impl FnOnce() -> Ordering) -> Ordering {
        let behind = || match self.is_long() && other.is_long() {
            true => keys(),
            false => self.len.cmp(&other.len),
        };
        let order = self.words.cmp(&other.words).then_with(behind);
        order.then_with(|| other.seqno.cmp(&self.seqno))
    }
}

impl InternalKey<'_> {
    /// The head of this key.
    #[inline]
    pub fn head(&self) -> KeyHead {
        // A key has at most 64 KiB.
        let (words, len) = (first_words(self.key), self.key.len() as u32);
        KeyHead { words, len, kind: self.kind, seqno: self.seqno }
    }
}

/// A borrowed view of one version of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRef<'a> {
    /// The user's key.
    pub key: &'a [u8],
    /// Sequence number of the write.
    pub seqno: SeqNo,
    /// Value, tombstone or operand.
    pub kind: EntryKind,
    /// The value or operand; empty for a tombstone.
    pub value: &'a [u8],
}

impl<'a> EntryRef<'a> {
    /// The entry without its value.
    #[inline]
    pub fn internal_key(&self) -> InternalKey<'a> {
        InternalKey { key: self.key, seqno: self.seqno, kind: self.kind }
    }
}

/// The order of all entries: keys ascending as unsigned bytes, versions of one key newest first.
///
/// ```
/// use std::cmp::Ordering::Less;
/// use trommel_base::compare_internal;
/// assert_eq!(compare_internal(b"a", 1, b"b", 9), Less);
/// assert_eq!(compare_internal(b"a", 9, b"a", 1), Less); // the newer version sorts first
/// ```
#[inline]
pub fn compare_internal(
    key: &[u8],
    seqno: SeqNo,
    other_key: &[u8],
    other_seqno: SeqNo,
) -> Ordering {
    compare_keys(key, other_key).then_with(|| other_seqno.cmp(&seqno))
}

/// Packs a sequence number and a kind into the word that follows a key on disk.
#[inline]
pub const fn pack_trailer(seqno: SeqNo, kind: EntryKind) -> u64 {
    (seqno << 8) | kind as u64
}

/// Unpacks a trailer word. Returns `None` if this version does not know the kind.
#[inline]
pub const fn unpack_trailer(trailer: u64) -> Option<(SeqNo, EntryKind)> {
    match EntryKind::from_u8((trailer & 0xff) as u8) {
        Some(kind) => Some((trailer >> 8, kind)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words_sort_as_the_bytes_do_and_hold_sixteen_of_them() {
        let bytes: Vec<u8> = (1..=20).collect();
        for start in 0..4 {
            for len in 0..=bytes.len() - start {
                let key = &bytes[start..start + len];
                let mut padded = [0; 16];
                padded[..len.min(16)].copy_from_slice(&key[..len.min(16)]);
                let expected = u128::from_le_bytes(padded).swap_bytes();
                assert_eq!(first_words(key), expected, "{key:?}");
                assert_eq!((expected >> 64) as u64, first_word(key), "{key:?}");
            }
        }
    }

    /// Keys of all lengths around sixteen bytes, with zeros and differences at each position.
    #[test]
    fn keys_are_ordered_as_their_bytes_are() {
        let mut keys = vec![Vec::new()];
        for len in 1..=34_usize {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                keys.push(vec![byte; len]);
                for place in [0, 7, 8, 15, 16, 17, len - 1].into_iter().filter(|at| *at < len) {
                    let mut key = vec![byte; len];
                    key[place] ^= 0x81;
                    keys.push(key);
                }
            }
        }
        let head = |key: &[u8], seqno| InternalKey { key, seqno, kind: EntryKind::Put }.head();
        for (a, b) in keys.iter().flat_map(|a| keys.iter().map(move |b| (a, b))) {
            let order = a.cmp(b);
            assert_eq!(compare_keys(a, b), order, "{a:?} {b:?}");
            for (older, newer) in [(4, 4), (4, 5)] {
                let expected = order.then(newer.cmp(&older));
                assert_eq!(compare_internal(a, older, b, newer), expected, "{a:?} {b:?}");
                let by_heads = head(a, older).compare(&head(b, newer), || a.cmp(b));
                assert_eq!(by_heads, expected, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn same_bytes_compares_all_bytes() {
        let bytes: Vec<u8> = (1..=40).collect();
        for len in 0..=bytes.len() {
            let piece = &bytes[..len];
            assert!(same_bytes(piece, &bytes.clone()[..len]));
            assert_eq!(key_behind(&bytes, piece), Some(&bytes[len..]));
            for changed in 0..len {
                let mut other = piece.to_vec();
                other[changed] ^= 0x80;
                assert!(!same_bytes(piece, &other), "{len}, {changed}");
                assert_eq!(key_behind(&bytes, &other), None);
            }
            if len > 0 {
                assert!(!same_bytes(piece, &piece[1..]) && !same_bytes(&piece[..len - 1], piece));
                assert_eq!(key_behind(&piece[1..], piece), None, "it is longer");
            }
        }
        assert!(!same_bytes(&[0], &[0, 0]), "zeros behind the end are not the end");
    }

    #[test]
    fn a_trailer_comes_back_whole() {
        for seqno in [0, 1, 255, 256, MAX_SEQNO] {
            for kind in [EntryKind::Delete, EntryKind::Put, EntryKind::Merge] {
                assert_eq!(unpack_trailer(pack_trailer(seqno, kind)), Some((seqno, kind)));
            }
        }
        assert_eq!(unpack_trailer(u64::from(RANGE_DELETE)), None);
        assert_eq!(unpack_trailer(u64::from(RANGE_DELETE_FROM)), None);
    }
}

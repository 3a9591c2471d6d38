//! Bytes that are cheap to clone: short strings inline, long ones a view of a shared buffer.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Bound, Deref, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;

/// Longest string kept inline, in bytes: as many as fit the size of the other variants.
const INLINE_BYTES: usize = 30;

/// Longest buffer that a [`SliceBuffer`] reuses, in bytes.
const REUSED_BYTES: usize = 64 << 10;

/// An immutable byte string that is cheap to clone and derefs to `[u8]`.
///
/// Up to 30 bytes are held inline; longer strings are a view of a shared buffer, which stays in
/// memory while any slice of it lives. `Slice` and `Option<Slice>` are 32 bytes each.
///
/// # Memory held by a slice
/// A value read from a table, except from a map, is a view of its block (4 KiB unless
/// `ReadSettings::block_bytes` says otherwise, or as large as the value needs): a slice of 300
/// bytes holds the whole block in memory, outside the block cache and its limit. This makes reads
/// cheap, and suits values that are used and dropped. To keep many values for a long time, keep
/// copies: [`Slice::detached`] (a slice with its own buffer), [`to_vec`](slice::to_vec) or
/// `Vec::from`.
///
/// # Conversions
/// `From<Vec<u8>>`, `From<Box<[u8]>>` and `From<Bytes>` take over the buffer without a copy (up to
/// 30 bytes are copied inline). [`Bytes`] from a slice shares its buffer; a `Vec<u8>` is a copy.
///
/// ```
/// use trommel_base::Slice;
/// let slice = Slice::from("name=value");
/// assert_eq!(slice.slice(5..), b"value");
/// let (name, rest) = slice.split_at(4);
/// assert_eq!((&*name, &*rest), (&b"name"[..], &b"=value"[..]));
/// assert_eq!(Vec::from(name), b"name");
/// assert_eq!(bytes::Bytes::from(rest), "=value");
/// ```
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    Inline {
        len: u8,
        bytes: [u8; INLINE_BYTES],
    },
    Shared {
        owner: Arc<[u8]>,
        start: u32,
        len: u32,
    },
    /// A view of a buffer that the caller allocated.
    Taken {
        owner: Arc<Taken>,
        start: u32,
        len: u32,
    },
}

const _: () = assert!(size_of::<Slice>() == 32 && size_of::<Option<Slice>>() == 32);

/// A buffer taken over from its owner.
enum Taken {
    Boxed(Box<[u8]>),
    Vec(Vec<u8>),
    Bytes(Bytes),
}

impl Deref for Taken {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Boxed(bytes) => bytes,
            Self::Vec(bytes) => bytes,
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Taken {
    /// Bytes of memory that the buffer holds; `usize::MAX` if unknown.
    fn held_bytes(&self) -> usize {
        match self {
            Self::Boxed(bytes) => bytes.len(),
            Self::Vec(bytes) => bytes.capacity(),
            Self::Bytes(_) => usize::MAX,
        }
    }
}

impl Slice {
    /// The bytes `start..start + len` of `owner`: shared if long, copied if short.
    ///
    /// # Panics
    /// If the range is not inside `owner`, or `owner` is longer than 4 GiB.
    #[inline]
    pub fn window(owner: &Arc<[u8]>, start: usize, len: usize) -> Self {
        let bytes = &owner[start..start + len];
        if len <= INLINE_BYTES {
            return Self::inline(bytes);
        }
        assert!(owner.len() <= u32::MAX as usize, "a shared buffer is at most 4 GiB");
        Self(Repr::Shared { owner: Arc::clone(owner), start: start as u32, len: len as u32 })
    }

    #[inline]
    fn inline(bytes: &[u8]) -> Self {
        let mut held = [0; INLINE_BYTES];
        held[..bytes.len()].copy_from_slice(bytes);
        Self(Repr::Inline { len: bytes.len() as u8, bytes: held })
    }

    fn taken(owner: Taken) -> Self {
        if owner.len() <= INLINE_BYTES {
            return Self::inline(&owner);
        }
        assert!(owner.len() <= u32::MAX as usize, "a slice is at most 4 GiB");
        let len = owner.len() as u32;
        Self(Repr::Taken { owner: Arc::new(owner), start: 0, len })
    }

    /// A copy with its own buffer, so that no larger block stays in memory. Call it on values that
    /// are kept for a long time. Copies at most once, and not at all if the slice already holds
    /// only its own bytes.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use trommel_base::Slice;
    /// let block: Arc<[u8]> = Arc::from(vec![7; 4096]);
    /// let value = Slice::window(&block, 100, 300);
    /// assert_eq!(value.detached(), value);
    /// ```
    #[doc(alias = "to_owned")]
    #[doc(alias = "into_owned")]
    #[doc(alias = "copy")]
    #[must_use]
    pub fn detached(&self) -> Self {
        let holds_more = match &self.0 {
            Repr::Inline { .. } => false,
            Repr::Shared { owner, len, .. } => owner.len() != *len as usize,
            Repr::Taken { owner, len, .. } => owner.held_bytes() != *len as usize,
        };
        if holds_more { Self::from(&**self) } else { self.clone() }
    }

    /// A subslice, without copying. It shares the buffer; subslices of at most 30 bytes are held
    /// inline and share nothing.
    ///
    /// # Panics
    /// If the range is not inside the slice.
    ///
    /// ```
    /// # use trommel_base::Slice;
    /// let slice = Slice::from("key=value");
    /// assert_eq!(slice.slice(..3), b"key");
    /// assert_eq!(slice.slice(4..), b"value");
    /// ```
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(before) => before + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(last) => last + 1,
            Bound::Excluded(to) => *to,
            Bound::Unbounded => self.len(),
        };
        let part = &self[from..to];
        if part.len() <= INLINE_BYTES {
            return Self::inline(part);
        }
        // Within the slice, whose bounds fit into 32 bits.
        let (from, part_len) = (from as u32, part.len() as u32);
        let mut whole = self.clone();
        match &mut whole.0 {
            Repr::Inline { .. } => {}
            Repr::Shared { start, len, .. } | Repr::Taken { start, len, .. } => {
                (*start, *len) = (*start + from, part_len);
            }
        }
        whole
    }

    /// The bytes before `at`, and the rest, each like [`Slice::slice`].
    ///
    /// # Panics
    /// If `at` is larger than the length.
    #[must_use]
    pub fn split_at(&self, at: usize) -> (Self, Self) {
        (self.slice(..at), self.slice(at..))
    }
}

/// A buffer for slices that are built one after another. It is reused if the previous slice was
/// dropped, so that a loop that drops each slice before the next does not allocate.
#[derive(Debug, Default)]
pub struct SliceBuffer {
    last: Option<Arc<[u8]>>,
}

impl SliceBuffer {
    /// A slice of these bytes.
    #[inline]
    pub fn copied(&mut self, bytes: &[u8]) -> Slice {
        if bytes.len() <= INLINE_BYTES {
            return Slice::inline(bytes);
        }
        self.copied_long(bytes)
    }

    fn copied_long(&mut self, bytes: &[u8]) -> Slice {
        if let Some(last) = &mut self.last
            && let Some(room) = Arc::get_mut(last).and_then(|room| room.get_mut(..bytes.len()))
        {
            room.copy_from_slice(bytes);
            return Slice::window(last, 0, bytes.len());
        }
        let slice = Slice::from(bytes);
        if let Repr::Shared { owner, .. } = &slice.0
            && bytes.len() <= REUSED_BYTES
        {
            self.last = Some(Arc::clone(owner));
        }
        slice
    }
}

impl Default for Slice {
    fn default() -> Self {
        Self::inline(&[])
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Shared { owner, start, len } => {
                &owner[*start as usize..*start as usize + *len as usize]
            }
            Repr::Taken { owner, start, len } => {
                &owner[*start as usize..*start as usize + *len as usize]
            }
        }
    }
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Self {
        if bytes.len() <= INLINE_BYTES {
            return Self::inline(bytes);
        }
        assert!(bytes.len() <= u32::MAX as usize, "a slice is at most 4 GiB");
        Self(Repr::Shared { owner: Arc::from(bytes), start: 0, len: bytes.len() as u32 })
    }
}

/// Takes over the vector without a copy, including its spare capacity.
impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Self {
        Self::taken(Taken::Vec(bytes))
    }
}

/// Takes over the bytes without a copy.
impl From<Box<[u8]>> for Slice {
    fn from(bytes: Box<[u8]>) -> Self {
        Self::taken(Taken::Boxed(bytes))
    }
}

/// Shares the buffer, which stays in memory while any slice of it lives.
impl From<Bytes> for Slice {
    fn from(bytes: Bytes) -> Self {
        Self::taken(Taken::Bytes(bytes))
    }
}

/// Shares the buffer, with the memory cost described at [`Slice`]. A short slice is copied.
impl From<Slice> for Bytes {
    fn from(slice: Slice) -> Self {
        match &slice.0 {
            Repr::Inline { .. } => Self::copy_from_slice(&slice),
            _ => Self::from_owner(slice),
        }
    }
}

/// A copy, which holds nothing else in memory.
impl From<Slice> for Vec<u8> {
    fn from(slice: Slice) -> Self {
        slice.to_vec()
    }
}

/// A copy, which holds nothing else in memory.
impl From<&Slice> for Vec<u8> {
    fn from(slice: &Slice) -> Self {
        slice.to_vec()
    }
}

impl<const N: usize> From<&[u8; N]> for Slice {
    fn from(bytes: &[u8; N]) -> Self {
        Self::from(&bytes[..])
    }
}

impl From<&str> for Slice {
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Slice {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Slice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Vec<u8> {
        (0..200).collect()
    }

    #[test]
    fn short_and_long_slices_hold_their_bytes() {
        let bytes = bytes();
        for len in [0, 1, 29, 30, 31, 100, 200] {
            assert_eq!(Slice::from(&bytes[..len]), bytes[..len]);
        }
        let owner: Arc<[u8]> = Arc::from(&bytes[..]);
        let window = Slice::window(&owner, 10, 50);
        assert_eq!(window, bytes[10..60]);
        assert_eq!(Arc::strong_count(&owner), 2, "a long window shares its owner");
        let detached = window.detached();
        drop(window);
        assert_eq!(Arc::strong_count(&owner), 1, "a detached slice does not");
        assert_eq!(detached, bytes[10..60]);
        assert_eq!(Slice::window(&owner, 5, 3), bytes[5..8]);
    }

    /// `From<Vec<u8>>` copied the bytes.
    #[test]
    fn taking_over_a_buffer_does_not_move_it() {
        let taken: [fn(Vec<u8>) -> Slice; 3] = [
            |bytes| Slice::from(bytes),
            |bytes| Slice::from(bytes.into_boxed_slice()),
            |bytes| Slice::from(Bytes::from(bytes)),
        ];
        for (way, taken) in taken.into_iter().enumerate() {
            for len in [0, 1, 30, 31, 200] {
                let bytes = bytes()[..len].to_vec();
                let (address, copy) = (bytes.as_ptr(), bytes.clone());
                let slice = taken(bytes);
                assert_eq!(slice, copy);
                let is_there = slice.as_ptr() == address;
                assert!(is_there || len <= INLINE_BYTES, "way {way}: {len} bytes were copied");
                assert_eq!(slice.detached(), copy);
            }
        }
        let mut roomy = Vec::with_capacity(4096);
        roomy.extend(bytes());
        let slice = Slice::from(roomy);
        let detached = slice.detached();
        assert_ne!(detached.as_ptr(), slice.as_ptr(), "the spare capacity is kept");
        assert_eq!(detached.as_ptr(), detached.detached().as_ptr(), "copied twice");
    }

    #[test]
    fn subslices_share_the_buffer() {
        let bytes = bytes();
        for slice in [Slice::from(&bytes[..]), Slice::from(bytes.clone())] {
            let part = slice.slice(20..=119);
            assert_eq!(part, bytes[20..120]);
            assert_eq!(part.as_ptr(), slice[20..].as_ptr(), "copied");
            let part = part.slice((Bound::Excluded(9), Bound::Unbounded));
            assert_eq!(part, bytes[30..120]);
            assert_eq!(part.as_ptr(), slice[30..].as_ptr(), "copied");
            let (left, right) = part.split_at(45);
            assert_eq!((left, right), (Slice::from(&bytes[30..75]), Slice::from(&bytes[75..120])));
            assert_eq!(part.slice(..0), b"");
            assert_eq!(part.slice(90..), b"");
        }
        assert_eq!(Slice::from("short").slice(1..3), b"ho");
    }

    #[test]
    #[should_panic(expected = "slice index")]
    fn slicing_out_of_bounds_panics() {
        let (start, end) = (100, 40);
        let _ = Slice::from(bytes()).slice(start..end);
    }

    #[test]
    fn a_slice_becomes_bytes_without_a_copy() {
        let bytes = bytes();
        let slice = Slice::from(&bytes[..]).slice(10..150);
        let (address, shared) = (slice.as_ptr(), Bytes::from(slice.clone()));
        assert_eq!(shared, bytes[10..150]);
        assert_eq!(shared.as_ptr(), address, "copied");
        assert_eq!(Vec::from(&slice), bytes[10..150]);
        assert_eq!(Vec::from(slice), bytes[10..150]);
        assert_eq!(Bytes::from(Slice::from("short")), "short");
    }

    #[test]
    fn a_buffer_is_reused_unless_its_slice_is_kept() {
        let bytes = bytes();
        let mut buffer = SliceBuffer::default();
        let first = buffer.copied(&bytes[..100]);
        let address = first.as_ptr();
        drop(first);
        let second = buffer.copied(&bytes[50..120]);
        assert_eq!((second.as_ptr(), &*second), (address, &bytes[50..120]));
        let third = buffer.copied(&bytes[1..60]);
        assert_eq!((&*second, &*third), (&bytes[50..120], &bytes[1..60]), "a slice changed");
        drop(buffer.copied(b"short"));
        assert_eq!(buffer.copied(&[7; REUSED_BYTES + 1]).len(), REUSED_BYTES + 1);
        assert!(buffer.last.is_none_or(|last| last.len() < 100), "a large buffer is kept");
    }
}

//! Bytes that are cheap to clone: short ones inline, long ones a window on a shared buffer.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Longest value kept inline, in bytes.
const INLINE_BYTES: usize = 22;

/// An immutable run of bytes that is cheap to clone and derefs to `[u8]`.
///
/// Up to 22 bytes are held inline; longer runs are a window on a shared buffer (a verified block,
/// for a value read from a table), which stays in memory while any slice of it lives. Call
/// [`Slice::detached`] (or `to_vec`) to keep a small piece of a large block for long.
///
/// ```
/// let slice = trommel_base::Slice::from(&b"value"[..]);
/// assert_eq!(&*slice, b"value");
/// ```
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Shared { owner: Arc<[u8]>, start: u32, len: u32 },
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

    /// The same bytes in a buffer of their own, so that no larger block is kept in memory.
    #[must_use]
    pub fn detached(&self) -> Self {
        match &self.0 {
            Repr::Shared { owner, len, .. } if owner.len() != *len as usize => Self::from(&**self),
            _ => self.clone(),
        }
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

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(&*bytes)
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

    #[test]
    fn short_and_long_slices_hold_what_they_were_given() {
        let bytes: Vec<u8> = (0..200).collect();
        for len in [0, 1, 21, 22, 23, 100, 200] {
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
}

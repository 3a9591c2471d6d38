//! Little-endian integers and varints, and a decoder that never reads past the end.
//!
//! Varints are LEB128: seven bits a byte, least significant first, the high bit set on all bytes
//! but the last. The decoder accepts arbitrary bytes and returns `None` for bytes that it cannot
//! decode; the caller turns that into a [`Corruption`](crate::Corruption) that names the file.

/// Longest varint of a `u64`, in bytes.
pub const MAX_VARINT_BYTES: usize = 10;

/// Appends `value` in 2 bytes.
#[inline]
pub fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends `value` in 4 bytes.
#[inline]
pub fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends `value` in 8 bytes.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends `value` as a varint of 1 to 10 bytes.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, value: u64) {
    varint_by_byte(|byte| out.push(byte), value);
}

/// Calls `put` with each byte of `value` as a varint, in order.
#[inline]
pub fn varint_by_byte(mut put: impl FnMut(u8), mut value: u64) {
    while value >= 0x80 {
        put((value as u8) | 0x80);
        value >>= 7;
    }
    put(value as u8);
}

/// Appends the length of `bytes` as a varint, then `bytes`.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Length of the varint of `value`, in bytes.
#[inline]
pub const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Reads the output of the `put_*` functions, front to back, from untrusted bytes.
///
/// After a `None` the decoder's position is unspecified.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// A decoder at the start of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that have not been read.
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How many bytes have not been read.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether all bytes have been read.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// The next 2 bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next 4 bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next 8 bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next varint. Only the shortest encoding is accepted, so every value has exactly one.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let first = self.u8()?;
        if first < 0x80 { Some(u64::from(first)) } else { self.varint_rest(first) }
    }

    /// The rest of a varint of more than one byte, after its `first` byte.
    fn varint_rest(&mut self, first: u8) -> Option<u64> {
        let mut value = u64::from(first & 0x7f);
        let mut shift = 7;
        loop {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return (byte != 0).then_some(value);
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    /// The next varint, if it fits 32 bits.
    #[inline]
    pub fn varint_u32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    /// The next varint as a length, if it is at most `limit`.
    #[inline]
    pub fn length(&mut self, limit: usize) -> Option<usize> {
        usize::try_from(self.varint()?).ok().filter(|length| *length <= limit)
    }

    /// A length-prefixed byte string, if its length is at most `limit`.
    #[inline]
    pub fn bytes(&mut self, limit: usize) -> Option<&'a [u8]> {
        let length = self.length(limit)?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back_and_only_in_their_shortest_form() {
        for shift in 0..64 {
            for value in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1, u64::MAX] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                assert_eq!(out.len(), varint_len(value));
                let mut decoder = Decoder::new(&out);
                assert_eq!(decoder.varint(), Some(value));
                assert!(decoder.is_empty());
                assert_eq!(Decoder::new(&out[..out.len() - 1]).varint(), None);
            }
        }
        assert_eq!(Decoder::new(&[0x80, 0]).varint(), None, "a padded zero");
        assert_eq!(Decoder::new(&[0xff; 11]).varint(), None, "too long");
        let mut too_large = [0xff; 10];
        too_large[9] = 2;
        assert_eq!(Decoder::new(&too_large).varint(), None, "more than 64 bits");
    }

    #[test]
    fn lengths_are_checked_before_anything_is_taken() {
        let mut out = Vec::new();
        put_bytes(&mut out, b"abc");
        assert_eq!(Decoder::new(&out).bytes(3), Some(&b"abc"[..]));
        assert_eq!(Decoder::new(&out).bytes(2), None);
        assert_eq!(Decoder::new(&out[..3]).bytes(3), None);
    }
}

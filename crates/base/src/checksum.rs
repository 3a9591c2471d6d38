//! The checksum of stored bytes: CRC-32 (IEEE 802.3), which detects every burst error of up to 32
//! bits. It covers the content and the words that identify its location.
//!
//! Binding the location (the file's random id, the offset, the kind of block) detects a block that
//! was swapped, misplaced or left over from an older file, as well as a flipped bit.

/// A running checksum.
#[derive(Debug, Clone)]
pub struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// A checksum seeded with the words in `place`, in that order.
    #[inline]
    pub fn bound_to(place: &[u64]) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        for word in place {
            hasher.update(&word.to_le_bytes());
        }
        Self(hasher)
    }

    /// Adds `bytes`.
    #[inline]
    #[must_use]
    pub fn with(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    /// The checksum of all bytes added so far.
    #[inline]
    pub fn value(self) -> u32 {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_and_content_are_both_covered() {
        let sum = |place: &[u64], bytes: &[u8]| Checksum::bound_to(place).with(bytes).value();
        assert_eq!(sum(&[], b"123456789"), 0xcbf4_3926, "the check value of CRC-32");
        assert_ne!(sum(&[1, 2], b"x"), sum(&[2, 1], b"x"));
        assert_ne!(sum(&[1], b"x"), sum(&[1], b"y"));
        assert_eq!(sum(&[1], b"xy"), Checksum::bound_to(&[1]).with(b"x").with(b"y").value());
    }
}

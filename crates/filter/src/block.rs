//! One cache line of a filter: 512 bits, aligned to 64 bytes, so that a probe costs one cache miss.
//!
//! Bit `i` is bit `i % 64` of word `i / 64`; on disk the words are little-endian, so bit `i` is bit
//! `i % 8` of byte `i / 8`.

use alloc::vec::Vec;

/// Bits of one block.
pub(crate) const BLOCK_BITS: u64 = 512;
/// Bytes of one block.
pub(crate) const BLOCK_BYTES: usize = 64;

/// 512 bits in one cache line. Opaque: the filter defines their meaning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(align(64))]
pub struct Block(pub(crate) [u64; 8]);

/// The part of a filter that a query reads: its blocks, and the number of probes.
#[derive(Debug, Clone)]
pub(crate) struct Bits {
    pub(crate) blocks: Vec<Block>,
    pub(crate) probes: u32,
}

impl Block {
    /// Sets bit `position`, taken modulo 512.
    #[inline]
    pub(crate) fn set(&mut self, position: u32) {
        self.0[(position >> 6) as usize & 7] |= 1 << (position & 63);
    }

    /// Returns bit `position` (modulo 512) in bit 0. The other bits are unspecified, so that a
    /// caller may AND several results before testing one bit.
    #[inline]
    pub(crate) fn bit(&self, position: u32) -> u64 {
        self.0[(position >> 6) as usize & 7] >> (position & 63)
    }

    /// Decodes a block from its on-disk bytes.
    pub(crate) fn from_le_bytes(bytes: &[u8; BLOCK_BYTES]) -> Self {
        let mut words = [0; 8];
        for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        Self(words)
    }

    /// The on-disk bytes of the block.
    pub(crate) fn to_le_bytes(self) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.0) {
            *chunk = word.to_le_bytes();
        }
        bytes
    }
}

/// The 64-bit word at `index`; 0 beyond the end.
#[inline(always)]
pub(crate) fn word(blocks: &[Block], index: usize) -> u64 {
    blocks.get(index / 8).map_or(0, |block| block.0[index % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_at_the_offsets_of_the_format() {
        assert_eq!(size_of::<Block>(), BLOCK_BYTES);
        assert_eq!(align_of::<Block>(), 64);
        for position in 0..512_u32 {
            let mut block = Block::default();
            block.set(position);
            let bytes = block.to_le_bytes();
            assert_eq!(bytes[position as usize / 8], 1 << (position % 8));
            assert_eq!(Block::from_le_bytes(&bytes), block);
            for other in 0..512 {
                assert_eq!(block.bit(other) & 1 == 1, other == position);
            }
        }
    }
}

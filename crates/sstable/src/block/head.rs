//! The first sixteen bytes of the keys of a group as one word each: the bytes that a key shares
//! with the head of its group, then its own, then zeros.
//!
//! At least sixteen bytes follow the keys of a block, so a whole word can be read at the start of
//! any key's own bytes. Called by the search of a block and by the position of a scan.

use trommel_base::first_words;

use super::Block;
use crate::format::{Fault, GROUP_ENTRIES};

/// Bytes of a word.
pub(super) const WORD_BYTES: usize = 16;

/// The first key of a group, whose prefix the others share.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Head {
    /// Its first bytes, padded with zeros.
    shown: Shown,
    pub(super) len: usize,
}

/// The first bytes of a key, in two halves, which the compiler combines as one vector.
type Shown = [u64; 2];

impl Head {
    #[inline]
    pub(super) fn read(block: &Block<'_>, group: usize) -> Result<Self, Fault> {
        let key = block.head(group * GROUP_ENTRIES)?;
        Ok(Self::of_words(first_words(key), key.len()))
    }

    /// The head whose key has these [`first_words`], and this length.
    #[inline]
    pub(super) fn of_words(words: u128, len: usize) -> Self {
        Self { shown: halves(words.swap_bytes()), len }
    }

    /// The first bytes of a key of `len` bytes that shares `shared` bytes with the head and has the
    /// others at `own`; padded with zeros.
    #[inline(always)]
    pub(super) fn joined(
        &self,
        block: &Block<'_>,
        shared: u32,
        own: u32,
        len: u32,
    ) -> Option<[u8; WORD_BYTES]> {
        // For a long key, only the bytes that fit the word.
        let most = WORD_BYTES as u32;
        let from_head = shared.min(most);
        let head = FIRST_BYTES.get(from_head as usize)?;
        let all = FIRST_BYTES.get(len.min(most) as usize)?;
        // The head precedes the key's own bytes, and so at least `from_head` bytes do.
        let rest: &[u8; WORD_BYTES] = block.bytes(own.checked_sub(from_head)?)?;
        let rest = halves(u128::from_le_bytes(*rest));
        let half = |i: usize| self.shown[i] & head[i] | rest[i] & (all[i] ^ head[i]);
        // The compiler combines both halves as one vector.
        let mut bytes = [0; WORD_BYTES];
        *bytes.first_chunk_mut()? = half(0).to_le_bytes();
        *bytes.last_chunk_mut()? = half(1).to_le_bytes();
        Some(bytes)
    }
}

/// The two halves of a word.
#[inline]
const fn halves(word: u128) -> Shown {
    [word as u64, (word >> 64) as u64]
}

/// Masks of the first bytes of a word, by number of bytes.
const FIRST_BYTES: [Shown; WORD_BYTES + 1] = {
    let mut masks = [[u64::MAX; 2]; WORD_BYTES + 1];
    let mut bytes = 0;
    while bytes < WORD_BYTES {
        masks[bytes] = halves((1 << (8 * bytes)) - 1);
        bytes += 1;
    }
    masks
};

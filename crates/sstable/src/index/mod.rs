//! The sparse index: one separator per block.
//!
//! ```text
//! count, prefix length, zero, first offset |
//! words | stored lengths | suffix lengths | prefix | rests
//! ```
//!
//! A separator is the shortest key that is not smaller than its block's last key and smaller than
//! the next block's first; if versions of one key straddle two blocks, it is that key. The common
//! prefix of all separators is stored once. The next eight bytes of each form a word, first byte
//! most significant, so that words compare as the bytes do. The rests of longer separators come
//! last.
//!
//! 1. A search compares the key with the prefix, then forms a word from the next eight bytes.
//! 2. A binary search without unpredictable branches finds the first word that is not smaller:
//!    first among the *landmarks*, a copy of every 32nd word, few enough to stay in the processor's
//!    caches; then among the words before that landmark. The cache lines of these words, and of the
//!    ends of their blocks, are prefetched together (except for a fifth line of either): a search
//!    of all words would wait for one line after the other.
//! 3. Equal words are resolved by lengths and rests.
//!
//! Blocks are contiguous, so a block's offset is the sum of the lengths before it. A large index
//! has two levels: leaves of bounded size, each an index of data blocks, and a top that is an index
//! of leaves. This module decodes and searches single index blocks, each checked in full; the
//! [tree](crate::index_tree) loads them and keeps them in memory as long as the table is open.

mod builder;

pub(crate) use builder::{IndexBuilder, separator};

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use trommel_base::{Decoder, MAX_KEY_BYTES, first_word, key_behind};

use crate::block::prefetch_lines;
use crate::format::{FRAME_BYTES, Fault, Handle, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES};

/// Position of a data block: the leaf, and the block's number within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) leaf: usize,
    pub(crate) slot: usize,
}

/// One index block, decoded.
#[derive(Debug)]
pub(crate) struct Index {
    prefix: Box<[u8]>,
    /// The words, followed by the landmarks: every [`STRIDE`]th word.
    words: Box<[u64]>,
    /// Offset of the byte after each block.
    ends: Box<[u64]>,
    first_offset: u64,
    /// Length of each separator after the prefix.
    suffixes: Box<[u16]>,
    /// The end of each separator's rest in `rests`; empty if there are no rests.
    rest_ends: Box<[u32]>,
    rests: Box<[u8]>,
}

/// Words from one landmark to the next: as many as fill four cache lines, and their ends four more.
const STRIDE: usize = 32;

/// Why an index cannot be used.
pub(crate) const DAMAGED: Fault = Fault::Damaged("an index block makes no sense");

impl Index {
    /// Decodes an index of blocks that end at or before `limit`.
    pub(crate) fn decode(payload: &[u8], limit: u64) -> Result<Self, Fault> {
        let mut decoder = Decoder::new(payload);
        let count = decoder.u32().ok_or(DAMAGED)? as usize;
        let prefix_len = usize::from(decoder.u16().ok_or(DAMAGED)?);
        let zero = decoder.u16().ok_or(DAMAGED)?;
        let first_offset = decoder.u64().ok_or(DAMAGED)?;
        if zero != 0 {
            return Err(Fault::Unsupported(
                "an index block has flags that this build does not know",
            ));
        }
        if count > decoder.remaining() / INDEX_SLOT_BYTES {
            return Err(DAMAGED);
        }
        let words = column(&mut decoder, count, u64::from_le_bytes)?;
        let lengths = column(&mut decoder, count, u32::from_le_bytes)?;
        let suffixes = column(&mut decoder, count, u16::from_le_bytes)?;
        let prefix = decoder.take(prefix_len).ok_or(DAMAGED)?;
        let rests = decoder.rest();
        let index = Self {
            prefix: prefix.into(),
            words: with_landmarks(&words),
            ends: ends_of(&lengths, first_offset, limit)?,
            first_offset,
            rest_ends: rest_ends_of(&suffixes, rests.len())?,
            suffixes,
            rests: rests.into(),
        };
        index.check()?;
        Ok(index)
    }

    /// Checks the preconditions of a search: separators are keys, in order, each with one encoding.
    fn check(&self) -> Result<(), Fault> {
        for (i, word) in self.words().iter().enumerate() {
            let suffix = usize::from(self.suffixes.get(i).copied().unwrap_or_default());
            let padding = if suffix < 8 { u64::MAX >> (8 * suffix) } else { 0 };
            if word & padding != 0 || self.prefix.len() + suffix > MAX_KEY_BYTES {
                return Err(DAMAGED);
            }
            let previous = i.checked_sub(1).and_then(|p| self.words.get(p).map(|word| (p, *word)));
            let ordered = match previous {
                None => true,
                Some((_, before)) if before != *word => before < *word,
                Some((p, _)) => self.compare_tied(p, suffix, self.rest(i)) != Ordering::Greater,
            };
            if !ordered {
                return Err(Fault::Damaged("the separators of an index block are out of order"));
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The separators' words.
    #[inline]
    fn words(&self) -> &[u64] {
        self.words.get(..self.len()).unwrap_or_default()
    }

    /// The location of block `i`.
    #[inline]
    pub(crate) fn handle(&self, i: usize) -> Option<Handle> {
        let end = *self.ends.get(i)?;
        let offset = match i.checked_sub(1) {
            None => self.first_offset,
            Some(previous) => *self.ends.get(previous)?,
        };
        Some(Handle { offset, bytes: (end - offset) as usize })
    }

    /// Offset of the first block, and of the byte after the last.
    pub(crate) fn range(&self) -> (u64, u64) {
        (self.first_offset, self.ends.last().copied().unwrap_or(self.first_offset))
    }

    /// The first block whose separator is not smaller than `key`; [`Index::len`] if there is none.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> usize {
        let Some(suffix) = key_behind(key, &self.prefix) else {
            return if *key < *self.prefix { 0 } else { self.len() };
        };
        let word = first_word(suffix);
        let first = self.first_not_before(word);
        if self.words().get(first) != Some(&word) {
            return first;
        }
        self.find_tied(first, word, suffix)
    }

    /// The first block whose word is not smaller than `word`.
    #[inline]
    fn first_not_before(&self, word: u64) -> usize {
        let landmarks = self.words.get(self.len()..).unwrap_or_default();
        let start = STRIDE * lower_bound(landmarks, word);
        let words = self.words().get(start..).unwrap_or_default();
        let ends = self.ends.get(start..).unwrap_or_default();
        let near = match words.first_chunk::<STRIDE>().zip(ends.first_chunk::<STRIDE>()) {
            // Nearly always; the search is unrolled, as the number of words is known.
            Some((words, ends)) => {
                prefetch_lines(words);
                prefetch_lines(ends);
                lower_bound(words, word)
            }
            None => lower_bound(words, word),
        };
        start + near
    }

    /// Like `find`, if the word of block `first` equals that of `suffix`.
    fn find_tied(&self, first: usize, word: u64, suffix: &[u8]) -> usize {
        let rest = suffix.get(8..).unwrap_or_default();
        let tied = self.words().get(first..).unwrap_or_default();
        let (mut low, mut high) = (first, first + tied.partition_point(|w| *w == word));
        while low < high {
            let middle = low + (high - low) / 2;
            if self.compare_tied(middle, suffix.len(), rest) == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Compares separator `i` with a key of the same prefix and word, whose suffix has length `len`
    /// and ends in `rest`.
    #[inline]
    fn compare_tied(&self, i: usize, len: usize, rest: &[u8]) -> Ordering {
        let own = usize::from(self.suffixes.get(i).copied().unwrap_or_default());
        own.min(8).cmp(&len.min(8)).then_with(|| self.rest(i).cmp(rest))
    }

    /// The rest of separator `i`, after the prefix and the word.
    #[inline]
    fn rest(&self, i: usize) -> &[u8] {
        let Some(end) = self.rest_ends.get(i) else { return &[] };
        let start = i.checked_sub(1).and_then(|p| self.rest_ends.get(p)).copied().unwrap_or(0);
        self.rests.get(start as usize..*end as usize).unwrap_or_default()
    }

    /// Whether separator `i` is `key`.
    #[inline]
    pub(crate) fn separator_is(&self, i: usize, key: &[u8]) -> bool {
        key_behind(key, &self.prefix).is_some_and(|suffix| {
            self.words.get(i) == Some(&first_word(suffix))
                && self.suffixes.get(i).is_some_and(|len| usize::from(*len) == suffix.len())
                && self.rest(i) == suffix.get(8..).unwrap_or_default()
        })
    }

    /// Whether separator `i` starts with `start`.
    pub(crate) fn separator_starts_with(&self, i: usize, start: &[u8]) -> bool {
        let (prefix, behind) = start.split_at(start.len().min(self.prefix.len()));
        if !self.prefix.starts_with(prefix) {
            return false;
        }
        let len = usize::from(self.suffixes.get(i).copied().unwrap_or_default());
        let word = self.words.get(i).copied().unwrap_or_default().swap_bytes().to_le_bytes();
        let word = word.get(..len.min(8)).unwrap_or_default();
        let (head, behind) = behind.split_at(behind.len().min(word.len()));
        word.starts_with(head) && self.rest(i).starts_with(behind)
    }

    /// Separator `i` in full.
    pub(crate) fn separator(&self, i: usize) -> Vec<u8> {
        let mut separator = Vec::new();
        self.separator_into(i, &mut separator);
        separator
    }

    /// Replaces the contents of `out` by separator `i` in full.
    pub(crate) fn separator_into(&self, i: usize, out: &mut Vec<u8>) {
        let len = usize::from(self.suffixes.get(i).copied().unwrap_or_default());
        let word = self.words.get(i).copied().unwrap_or_default().swap_bytes().to_le_bytes();
        out.clear();
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(word.get(..len.min(8)).unwrap_or_default());
        out.extend_from_slice(self.rest(i));
    }

    /// Heap memory in use, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.prefix.len()
            + size_of_val(&*self.words)
            + size_of_val(&*self.ends)
            + size_of_val(&*self.suffixes)
            + size_of_val(&*self.rest_ends)
            + self.rests.len()
    }
}

/// `words`, followed by the landmarks.
fn with_landmarks(words: &[u64]) -> Box<[u64]> {
    let landmarks = words.iter().skip(STRIDE - 1).step_by(STRIDE);
    words.iter().chain(landmarks).copied().collect()
}

/// The next `count` integers of `N` bytes each.
fn column<const N: usize, T>(
    decoder: &mut Decoder<'_>,
    count: usize,
    read: fn([u8; N]) -> T,
) -> Result<Box<[T]>, Fault> {
    let bytes = decoder.take(count * N).ok_or(DAMAGED)?;
    Ok(bytes.as_chunks::<N>().0.iter().map(|bytes| read(*bytes)).collect())
}

fn ends_of(lengths: &[u32], first_offset: u64, limit: u64) -> Result<Box<[u64]>, Fault> {
    let mut end = first_offset;
    let ends = lengths.iter().map(|bytes| {
        end = end.checked_add(u64::from(*bytes)).filter(|end| *end <= limit)?;
        (*bytes as usize > FRAME_BYTES).then_some(end)
    });
    ends.collect::<Option<_>>().ok_or(Fault::Damaged("an index block points outside its region"))
}

/// The end of each rest, if there are any. Together they must be all of `total` bytes.
fn rest_ends_of(suffixes: &[u16], total: usize) -> Result<Box<[u32]>, Fault> {
    let mut end = 0usize;
    let mut ends = Vec::new();
    if total > 0 {
        ends.reserve_exact(suffixes.len());
    }
    for suffix in suffixes {
        end += usize::from(*suffix).saturating_sub(8);
        if end > total {
            return Err(DAMAGED);
        }
        if total > 0 {
            ends.push(u32::try_from(end).map_err(|_| DAMAGED)?);
        }
    }
    if end != total {
        return Err(DAMAGED);
    }
    Ok(ends.into_boxed_slice())
}

/// The first of the sorted `words` that is not smaller than `word`. Each step is a load, a
/// compare and a conditional move: nothing for a branch predictor to miss.
#[inline]
fn lower_bound(words: &[u64], word: u64) -> usize {
    let mut base = 0;
    let mut size = words.len();
    while size > 1 {
        let half = size / 2;
        let middle = base + half;
        let probe = words.get(middle - 1).copied().unwrap_or(u64::MAX);
        base = select_unpredictable(probe < word, middle, base);
        size -= half;
    }
    base + usize::from(words.get(base).is_some_and(|w| *w < word))
}

/// Bytes of an index of `count` separators; `rests` is the total length of what follows the prefix
/// and the first eight bytes in each.
fn encoded_bytes(count: usize, prefix: usize, rests: usize) -> usize {
    INDEX_HEADER_BYTES + count * INDEX_SLOT_BYTES + prefix + rests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{BlockKind, unseal};

    /// xorshift64*.
    fn random(state: &mut u64) -> usize {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize
    }

    /// Keys that share long prefixes, are prefixes of each other, and contain zeros, so that words
    /// tie.
    fn random_key(state: &mut u64) -> Vec<u8> {
        let mut key = b"pre".to_vec();
        key.resize(3 + random(state) % 14, 0);
        for _ in 0..random(state) % 4 {
            let at = 3 + random(state) % 14;
            if let Some(byte) = key.get_mut(at) {
                *byte = (random(state) % 3) as u8;
            }
        }
        key
    }

    fn decoded(separators: &[Vec<u8>]) -> Index {
        let mut builder = IndexBuilder::default();
        for separator in separators {
            builder.push(separator, 10);
        }
        let mut out = Vec::new();
        builder.finish(&mut out, 1, 0);
        let (payload, _) = unseal(&out, 1, 0, BlockKind::IndexTop).unwrap();
        Index::decode(payload, 10 * separators.len() as u64).unwrap()
    }

    #[test]
    fn find_agrees_with_a_search_over_whole_separators() {
        let state = &mut 99;
        // Lengths around multiples of the stride, and random ones.
        let lens = [0, 1, 31, 32, 33, 63, 64, 65, 95, 96, 97, 128, 200];
        for round in 0..400 {
            let len = lens.get(round).copied().unwrap_or_else(|| 1 + random(state) % 140);
            let key = |state: &mut u64| match round % 3 {
                0 => random_key(state),
                1 => (random(state) as u32).to_le_bytes().repeat(1 + random(state) % 3),
                // The same word for all.
                _ => [&[0xff; 8][..], &[random(state) as u8, random(state) as u8]].concat(),
            };
            let mut separators: Vec<Vec<u8>> = (0..len).map(|_| key(state)).collect();
            separators.sort();
            if round % 2 == 0 {
                separators.dedup();
            }
            let index = decoded(&separators);
            for (i, separator) in separators.iter().enumerate() {
                assert_eq!(index.separator(i), *separator);
                assert!(index.separator_is(i, separator));
                for end in 0..=separator.len() {
                    assert!(index.separator_starts_with(i, &separator[..end]));
                }
                let other = random_key(state);
                let starts = separator.starts_with(&other);
                assert_eq!(index.separator_starts_with(i, &other), starts);
                let handle = Handle { offset: 10 * i as u64, bytes: 10 };
                assert_eq!(index.handle(i), Some(handle));
            }
            let mut probes: Vec<Vec<u8>> = (0..60).map(|_| key(state)).collect();
            probes.extend((0..20).map(|_| random_key(state)));
            probes.extend(separators.iter().cloned());
            probes
                .extend([&b""[..], b"pr", b"pre", b"prd", b"prf", b"pre\xff"].map(<[u8]>::to_vec));
            for key in probes {
                let want = separators.partition_point(|separator| *separator < key);
                assert_eq!(index.find(&key), want, "{key:?} in {separators:?}");
                if let Some(separator) = separators.get(want) {
                    assert_eq!(index.separator_is(want, &key), *separator == key);
                }
            }
        }
    }

    /// Offsets above 4 GiB that were truncated to 32 bits made a database unreadable (redb PR 516).
    /// This test writes only the index of such a table.
    #[test]
    fn blocks_behind_4_gib_are_found() {
        let (blocks, length) = (40_u64, u32::MAX);
        let mut builder = IndexBuilder::new(64);
        for block in 0..blocks {
            builder.push(format!("{block:03}").as_bytes(), length);
        }
        let (mut out, start) = (Vec::new(), blocks * u64::from(length));
        let bytes = builder.finish(&mut out, 1, start);
        let open = |offset: u64, bytes: usize, limit: u64, kind| {
            let begin = (offset - start) as usize;
            let (payload, _) = unseal(&out[begin..begin + bytes], 1, offset, kind).unwrap();
            Index::decode(payload, limit).unwrap()
        };
        let top_offset = start + bytes.leaves;
        let top = open(top_offset, bytes.top as usize, top_offset, BlockKind::IndexTop);
        let mut found = Vec::new();
        for leaf in 0..top.len() {
            let Handle { offset, bytes } = top.handle(leaf).unwrap();
            let leaf = open(offset, bytes, start, BlockKind::IndexLeaf);
            found.extend((0..leaf.len()).map(|block| leaf.handle(block).unwrap()));
        }
        assert!(top.len() > 1);
        assert_eq!(found.len() as u64, blocks);
        for (block, handle) in (0_u64..).zip(&found) {
            assert_eq!((handle.offset, handle.bytes), (block * u64::from(length), length as usize));
        }
    }

    #[test]
    fn separators_out_of_order_are_rejected() {
        let mut builder = IndexBuilder::default();
        for separator in [&b"abcdefghij"[..], b"abcdefghii"] {
            builder.push(separator, 10);
        }
        let mut out = Vec::new();
        builder.finish(&mut out, 1, 0);
        let (payload, _) = unseal(&out, 1, 0, BlockKind::IndexTop).unwrap();
        assert!(Index::decode(payload, 20).is_err());
    }
}

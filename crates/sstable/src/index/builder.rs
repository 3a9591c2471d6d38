//! Collects one separator per block and writes the index, in one level or two.

use trommel_base::codec::{put_u16, put_u32, put_u64};
use trommel_base::first_word;

use super::encoded_bytes;
use crate::block::common_prefix;
use crate::format::{BlockKind, seal};

/// The shortest key that is not smaller than `last` and smaller than `next`, the first key of the
/// next block; `last` itself if they are equal or there is no next block.
pub(crate) fn separator(last: &[u8], next: Option<&[u8]>, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(last);
    let Some(next) = next else { return };
    let common = common_prefix(last, next);
    let (Some(own), Some(other)) = (last.get(common), next.get(common)) else { return };
    if other - own > 1 {
        out.truncate(common);
        out.push(own + 1);
    } else if next.len() > common + 1 {
        out.truncate(common);
        out.push(*other);
    } else if let Some(behind) = last[common + 1..].iter().position(|byte| *byte != 0xff) {
        let at = common + 1 + behind;
        out.truncate(at + 1);
        out[at] += 1;
    }
}

/// The separators and stored lengths of all blocks so far, and their division into leaves.
#[derive(Debug)]
pub(crate) struct IndexBuilder {
    separators: Vec<u8>,
    /// The end of each separator.
    ends: Vec<usize>,
    /// Stored length of each block.
    lengths: Vec<u32>,
    /// About the largest leaf in bytes.
    leaf_bytes: usize,
    /// The end of each full leaf, counted in blocks.
    leaf_ends: Vec<usize>,
    /// Of the separators of the open leaf: the length of their common prefix, and the bytes after
    /// it and the words.
    prefix: usize,
    rests: usize,
}

impl Default for IndexBuilder {
    /// An index of one level.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

/// The lengths of the written index.
pub(crate) struct IndexBytes {
    pub(crate) leaves: u64,
    pub(crate) top: u64,
}

impl IndexBuilder {
    /// An index of one block if that is at most `leaf_bytes` long, otherwise of leaves of about
    /// that length and a top index.
    pub(crate) fn new(leaf_bytes: usize) -> Self {
        let (separators, ends, lengths, leaf_ends) = Default::default();
        Self { separators, ends, lengths, leaf_bytes, leaf_ends, prefix: usize::MAX, rests: 0 }
    }

    /// Adds a block. Returns whether the leaf before it is full, so that it begins the next one.
    pub(crate) fn push(&mut self, separator: &[u8], stored_bytes: u32) -> bool {
        let i = self.len();
        self.separators.extend_from_slice(separator);
        self.ends.push(self.separators.len());
        self.lengths.push(stored_bytes);
        let first = self.leaf_ends.last().copied().unwrap_or_default();
        let common = common_prefix(self.separator(first), self.separator(i));
        if common < self.prefix {
            self.prefix = common;
            self.rests = (first..=i).map(|i| self.rest_bytes(i, common)).sum();
        } else {
            self.rests += self.rest_bytes(i, self.prefix);
        }
        let count = i + 1 - first;
        let is_full = count > 1 && encoded_bytes(count, self.prefix, self.rests) > self.leaf_bytes;
        if is_full {
            self.leaf_ends.push(i);
            self.prefix = separator.len();
            self.rests = 0;
        }
        is_full
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Estimated bytes of the index in the file.
    pub(crate) fn estimated_bytes(&self) -> usize {
        encoded_bytes(self.len(), 0, self.separators.len() / 2)
    }

    /// Memory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.separators.capacity()
            + self.ends.capacity() * size_of::<usize>()
            + self.lengths.capacity() * size_of::<u32>()
            + self.leaf_ends.capacity() * size_of::<usize>()
    }

    fn separator(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.separators[start..self.ends[i]]
    }

    /// Appends the index, which starts at `offset` of its file, to `out`.
    pub(crate) fn finish(&self, out: &mut Vec<u8>, table_id: u64, offset: u64) -> IndexBytes {
        let start = out.len();
        if self.leaf_ends.is_empty() {
            self.encode(0, self.len(), 0, out);
            seal(out, start, table_id, offset, BlockKind::IndexTop, 0);
            return IndexBytes { leaves: 0, top: (out.len() - start) as u64 };
        }
        let mut top = Self::default();
        let mut first_offset = 0;
        let mut first = 0;
        for end in self.leaf_ends.iter().copied().chain([self.len()]) {
            let leaf_start = out.len();
            first_offset = self.encode(first, end, first_offset, out);
            let leaf_offset = offset + (leaf_start - start) as u64;
            seal(out, leaf_start, table_id, leaf_offset, BlockKind::IndexLeaf, 0);
            top.push(self.separator(end - 1), (out.len() - leaf_start) as u32);
            first = end;
        }
        let leaves = (out.len() - start) as u64;
        let top_start = out.len();
        top.encode(0, top.len(), offset, out);
        seal(out, top_start, table_id, offset + leaves, BlockKind::IndexTop, 0);
        IndexBytes { leaves, top: (out.len() - top_start) as u64 }
    }

    /// Appends the index of blocks, the first of them at `first`, as one block of this kind at
    /// `offset` of its file. Returns its stored length.
    pub(crate) fn finish_one(
        &self,
        out: &mut Vec<u8>,
        table_id: u64,
        first: u64,
        offset: u64,
        kind: BlockKind,
    ) -> u64 {
        let start = out.len();
        self.encode(0, self.len(), first, out);
        seal(out, start, table_id, offset, kind, 0);
        (out.len() - start) as u64
    }

    /// Bytes of separator `i` after the common prefix and the word.
    fn rest_bytes(&self, i: usize, prefix: usize) -> usize {
        self.separator(i).len().saturating_sub(prefix + 8)
    }

    /// Appends the payload for blocks `first..end`, the first of them at `first_offset`. Returns
    /// the offset after the last block.
    fn encode(&self, first: usize, end: usize, first_offset: u64, out: &mut Vec<u8>) -> u64 {
        let prefix = match end.checked_sub(1).filter(|last| *last >= first) {
            None => 0,
            Some(last) => common_prefix(self.separator(first), self.separator(last)),
        };
        // A table has fewer than 2^32 blocks, and keys are at most 65,535 bytes.
        put_u32(out, (end - first) as u32);
        put_u16(out, prefix as u16);
        put_u16(out, 0);
        put_u64(out, first_offset);
        for i in first..end {
            put_u64(out, first_word(&self.separator(i)[prefix..]));
        }
        for length in &self.lengths[first..end] {
            put_u32(out, *length);
        }
        for i in first..end {
            put_u16(out, (self.separator(i).len() - prefix) as u16);
        }
        if end > first {
            out.extend_from_slice(&self.separator(first)[..prefix]);
        }
        for i in first..end {
            let suffix = &self.separator(i)[prefix..];
            out.extend_from_slice(suffix.get(8..).unwrap_or_default());
        }
        first_offset + self.lengths[first..end].iter().map(|bytes| u64::from(*bytes)).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All keys of up to three bytes over an alphabet with both ends of the byte range.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys = vec![Vec::new()];
        for length in 0..3 {
            for key in keys.clone().into_iter().filter(|key| key.len() == length) {
                keys.extend([0, 1, 2, 254, 255].map(|byte| [&*key, &[byte]].concat()));
            }
        }
        keys.sort();
        keys
    }

    #[test]
    fn a_separator_separates_two_keys_and_is_no_longer_than_the_first() {
        let keys = keys();
        let mut separator_bytes = Vec::new();
        for (i, last) in keys.iter().enumerate() {
            for next in keys.iter().skip(i) {
                separator(last, Some(next), &mut separator_bytes);
                assert!(*last <= separator_bytes, "{last:?} {next:?} {separator_bytes:?}");
                assert!(separator_bytes < *next || last == next, "{last:?} {next:?}");
                assert!(separator_bytes.len() <= last.len(), "{last:?} {next:?}");
                assert!(last != next || separator_bytes == *last);
            }
            separator(last, None, &mut separator_bytes);
            assert_eq!(separator_bytes, *last);
        }
        separator(b"abcdefgh", Some(b"abdzzz"), &mut separator_bytes);
        assert_eq!(separator_bytes, b"abd");
        separator(b"abcdefgh", Some(b"abz"), &mut separator_bytes);
        assert_eq!(separator_bytes, b"abd");
        separator(b"a\xff\xffbc", Some(b"b"), &mut separator_bytes);
        assert_eq!(separator_bytes, b"a\xff\xffc");
    }
}

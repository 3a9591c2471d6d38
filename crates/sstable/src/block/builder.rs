//! Writes one data block: values straight into the table's write buffer, the rest beside it until
//! the block is closed.

use std::ops::Range;

use trommel_base::codec::{put_u16, put_u64, put_varint};

use super::common_prefix;
use crate::format::{
    BLOCK_TAIL_BYTES, FLAG_PADDED, FLAG_WIDE_OFFSETS, GROUP_ENTRIES, MAX_BLOCK_ENTRIES,
};

/// Values and keys of a block with narrow offsets take at most this many bytes.
const NARROW: usize = u16::MAX as usize;

/// The block that is being written; its values are already in the write buffer.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    /// Where the block starts in the write buffer.
    start: usize,
    keys: Vec<u8>,
    /// Where the current group's head lies in `keys`.
    head: Range<usize>,
    entries: Vec<Entry>,
    smallest: u64,
    largest: u64,
    /// Where its values end, once it is finished.
    values_end: usize,
}

/// What the columns say of an entry.
#[derive(Debug, Clone, Copy)]
struct Entry {
    trailer: u64,
    /// Where its value lies in the block.
    value: u32,
    /// Where its key lies in `keys`.
    key: u32,
    tag: u8,
}

impl Default for BlockBuilder {
    fn default() -> Self {
        Self {
            start: 0,
            keys: Vec::new(),
            head: 0..0,
            entries: Vec::new(),
            smallest: u64::MAX,
            largest: 0,
            values_end: 0,
        }
    }
}

impl BlockBuilder {
    /// Starts a block at `start` of the write buffer.
    pub(crate) fn begin(&mut self, start: usize) {
        self.start = start;
        self.keys.clear();
        self.entries.clear();
        (self.smallest, self.largest) = (u64::MAX, 0);
    }

    pub(crate) fn start(&self) -> usize {
        self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the block, with one more entry of `bytes` key and value bytes, stays within
    /// `limit` bytes and the number of entries a block can have. What the key will share is not
    /// known yet, so the answer errs on the side of the limit.
    #[inline]
    pub(crate) fn has_room(&self, out: &[u8], bytes: usize, trailer: u64, limit: usize) -> bool {
        let count = self.entries.len() + 1;
        let width = trailer_width(self.smallest.min(trailer), self.largest.max(trailer));
        let bytes = out.len() - self.start + self.keys.len() + bytes + 3;
        let offset = if bytes > NARROW { 4 } else { 2 };
        let columns = count * (2 * offset + width + 1) + BLOCK_TAIL_BYTES;
        count <= MAX_BLOCK_ENTRIES && bytes + columns <= limit
    }

    /// Appends an entry, which must follow the last one in internal order.
    #[inline]
    pub(crate) fn add(
        &mut self,
        out: &mut Vec<u8>,
        key: &[u8],
        trailer: u64,
        tag: u8,
        value: &[u8],
    ) {
        // A block is at most its limit or one entry long, both far below 4 GiB.
        let value_at = (out.len() - self.start) as u32;
        let key_at = self.keys.len() as u32;
        if self.entries.len().is_multiple_of(GROUP_ENTRIES) {
            self.keys.push(0);
            self.head = self.keys.len()..self.keys.len() + key.len();
            self.keys.extend_from_slice(key);
        } else {
            let shared = common_prefix(&self.keys[self.head.clone()], key);
            put_varint(&mut self.keys, shared as u64);
            self.keys.extend_from_slice(&key[shared..]);
        }
        out.extend_from_slice(value);
        self.entries.push(Entry { trailer, value: value_at, key: key_at, tag });
        self.smallest = self.smallest.min(trailer);
        self.largest = self.largest.max(trailer);
    }

    /// Appends all that lies behind the values; the payload is then `out[self.start()..]`.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        self.values_end = out.len() - self.start;
        self.put_rest(out, 0);
    }

    /// Makes the payload that was just finished so many bytes longer. Whether that can be done: it
    /// takes an offset, and no other may become a wide one.
    pub(crate) fn pad(&self, out: &mut Vec<u8>, padding: usize) -> bool {
        let keys_end = self.values_end + self.keys.len();
        let wide = keys_end > NARROW;
        if padding < offset_bytes(wide) || (keys_end + padding > NARROW) != wide {
            return false;
        }
        out.truncate(self.start + self.values_end);
        self.put_rest(out, padding);
        true
    }

    /// Appends what lies behind the values, and makes that longer by `padding` bytes: none, or
    /// those of an offset at least.
    fn put_rest(&self, out: &mut Vec<u8>, padding: usize) {
        let (flags, wide) = match self.values_end + self.keys.len() + padding > NARROW {
            true => (FLAG_WIDE_OFFSETS, true),
            false => (0, false),
        };
        let zeros = padding.saturating_sub(offset_bytes(wide));
        out.resize(out.len() + zeros, 0);
        let keys_start = out.len() - self.start;
        out.extend_from_slice(&self.keys);
        put_offsets(out, self.entries.iter().map(|entry| entry.value), wide);
        if padding > 0 {
            put_offsets(out, [self.values_end as u32].into_iter(), wide);
        }
        put_offsets(out, self.entries.iter().map(|entry| keys_start as u32 + entry.key), wide);
        let width = trailer_width(self.smallest, self.largest);
        for Entry { trailer, .. } in &self.entries {
            let bytes = (trailer - self.smallest).to_le_bytes();
            out.extend_from_slice(&bytes[..width]);
        }
        put_column(out, self.entries.iter().map(|entry| [entry.tag]));
        put_u64(out, self.smallest);
        put_u16(out, self.entries.len() as u16);
        out.push(width as u8);
        out.push(flags | if padding > 0 { FLAG_PADDED } else { 0 });
    }
}

/// How many bytes an offset takes.
fn offset_bytes(wide: bool) -> usize {
    if wide { 4 } else { 2 }
}

#[inline]
fn put_offsets(out: &mut Vec<u8>, offsets: impl ExactSizeIterator<Item = u32>, wide: bool) {
    match wide {
        true => put_column(out, offsets.map(u32::to_le_bytes)),
        false => put_column(out, offsets.map(|offset| (offset as u16).to_le_bytes())),
    }
}

/// Appends a column of numbers of `N` bytes each.
#[inline]
fn put_column<const N: usize>(out: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = [u8; N]>) {
    let start = out.len();
    out.resize(start + N * numbers.len(), 0);
    let (places, _) = out[start..].as_chunks_mut();
    for (place, number) in places.iter_mut().zip(numbers) {
        *place = number;
    }
}

/// Bytes that the differences between `smallest` and `largest` need.
#[inline]
fn trailer_width(smallest: u64, largest: u64) -> usize {
    (64 - largest.saturating_sub(smallest).leading_zeros() as usize).div_ceil(8)
}

//! Writes one data block: values straight into the table's write buffer, everything else into
//! buffers of its own until the block is closed.

use std::ops::Range;

use trommel_base::codec::{put_u16, put_u64, put_varint};

use super::common_prefix;
use crate::format::{
    BLOCK_TAIL_BYTES, FLAG_PADDED, FLAG_WIDE_OFFSETS, GROUP_ENTRIES, MAX_BLOCK_ENTRIES,
};

/// Most bytes of values and keys in a block with narrow offsets.
const NARROW: usize = u16::MAX as usize;

/// The block under construction; its values are already in the write buffer.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    /// The start of the block in the write buffer.
    start: usize,
    keys: Vec<u8>,
    /// The current group's head in `keys`.
    head: Range<usize>,
    entries: Vec<Entry>,
    smallest: u64,
    largest: u64,
    /// The end of the values, once the block is finished.
    values_end: usize,
}

/// The columns of an entry.
#[derive(Debug, Clone, Copy)]
struct Entry {
    trailer: u64,
    /// The offset of its value in the block.
    value: u32,
    /// The offset of its key in `keys`.
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

    /// Whether the block stays within `limit` bytes and within the maximum number of entries after
    /// one more entry of `bytes` key and value bytes. Assumes that the key shares no prefix, so it
    /// may return false too early.
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
        // A block is bounded by its limit or by one entry, both far below 4 GiB.
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

    /// Appends the columns after the values; the payload is then `out[self.start()..]`.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        self.values_end = out.len() - self.start;
        self.put_rest(out, 0);
    }

    /// Pads the payload that was just finished by `padding` bytes. False if that is impossible:
    /// padding takes an offset, and must not make the other offsets wide.
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

    /// Appends the part after the values, made longer by `padding` bytes: 0, or at least the size
    /// of an offset.
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

/// Bytes of an offset.
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

/// Bytes that the difference of `largest` and `smallest` needs.
#[inline]
fn trailer_width(smallest: u64, largest: u64) -> usize {
    (64 - largest.saturating_sub(smallest).leading_zeros() as usize).div_ceil(8)
}

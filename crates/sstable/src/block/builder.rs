//! Writes one data block straight into the table's write buffer.

use std::ops::Range;

use trommel_base::codec::{put_u16, put_u32, put_u64, put_varint};

use super::common_prefix;
use crate::format::{BLOCK_TAIL_BYTES, FLAG_WIDE_OFFSETS, GROUP_ENTRIES, MAX_BLOCK_ENTRIES};

/// What an entry takes at most beside its key, its value and its trailer: two lengths of up to 3
/// bytes, a wide offset, a tag.
const ENTRY_OVERHEAD_BYTES: usize = 11;

/// The columns of the block that is being written; its entries are already in the write buffer.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    /// Where the block starts in the write buffer.
    start: usize,
    /// Where the current group's head lies in the write buffer.
    head: Range<usize>,
    offsets: Vec<u32>,
    trailers: Vec<u64>,
    tags: Vec<u8>,
    smallest: u64,
    largest: u64,
}

impl Default for BlockBuilder {
    fn default() -> Self {
        Self {
            start: 0,
            head: 0..0,
            offsets: Vec::new(),
            trailers: Vec::new(),
            tags: Vec::new(),
            smallest: u64::MAX,
            largest: 0,
        }
    }
}

impl BlockBuilder {
    /// Starts a block at `start` of the write buffer.
    pub(crate) fn begin(&mut self, start: usize) {
        self.start = start;
        self.offsets.clear();
        self.trailers.clear();
        self.tags.clear();
        (self.smallest, self.largest) = (u64::MAX, 0);
    }

    pub(crate) fn start(&self) -> usize {
        self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Whether the block, with one more entry of `bytes` key and value bytes, stays within
    /// `limit` bytes and the number of entries a block can have.
    #[inline]
    pub(crate) fn has_room(&self, out: &[u8], bytes: usize, trailer: u64, limit: usize) -> bool {
        let count = self.offsets.len() + 1;
        let width = trailer_width(self.smallest.min(trailer), self.largest.max(trailer));
        // Two bytes an offset: only a block beyond 64 KiB of entries needs more, and a block with
        // such a limit can afford the estimate.
        let columns = count * (3 + width) + BLOCK_TAIL_BYTES;
        count <= MAX_BLOCK_ENTRIES
            && out.len() - self.start + bytes + ENTRY_OVERHEAD_BYTES + columns <= limit
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
        let position = out.len();
        let is_head = self.offsets.len().is_multiple_of(GROUP_ENTRIES);
        let shared = if is_head { 0 } else { common_prefix(&out[self.head.clone()], key) };
        let suffix = &key[shared..];
        if shared < 0x80 && suffix.len() < 0x80 {
            out.extend_from_slice(&[shared as u8, suffix.len() as u8]);
        } else {
            put_varint(out, shared as u64);
            put_varint(out, suffix.len() as u64);
        }
        if is_head {
            self.head = out.len()..out.len() + key.len();
        }
        out.extend_from_slice(suffix);
        out.extend_from_slice(value);
        // A block is at most its limit or one entry long, both far below 4 GiB.
        self.offsets.push((position - self.start) as u32);
        self.trailers.push(trailer);
        self.tags.push(tag);
        self.smallest = self.smallest.min(trailer);
        self.largest = self.largest.max(trailer);
    }

    /// Appends the columns and the fixed part; the payload is then `out[self.start()..]`.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        let wide = self.offsets.last().is_some_and(|last| *last > u32::from(u16::MAX));
        out.reserve(self.offsets.len() * 13 + BLOCK_TAIL_BYTES);
        for offset in &self.offsets {
            if wide {
                put_u32(out, *offset);
            } else {
                put_u16(out, *offset as u16);
            }
        }
        let width = trailer_width(self.smallest, self.largest);
        for trailer in &self.trailers {
            let bytes = (trailer - self.smallest).to_le_bytes();
            out.extend_from_slice(&bytes[..width]);
        }
        out.extend_from_slice(&self.tags);
        put_u64(out, self.smallest);
        put_u16(out, self.offsets.len() as u16);
        out.push(width as u8);
        out.push(if wide { FLAG_WIDE_OFFSETS } else { 0 });
    }
}

/// Bytes that the differences between `smallest` and `largest` need.
#[inline]
fn trailer_width(smallest: u64, largest: u64) -> usize {
    (64 - largest.saturating_sub(smallest).leading_zeros() as usize).div_ceil(8)
}

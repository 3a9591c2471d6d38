//! A data block: the entries of a small range of keys, in internal order.
//!
//! ```text
//! values | padding | keys | value offsets | key offsets | trailers | tags | fixed part
//! ```
//!
//! Everything that a search reads is contiguous, after the values: some 250 bytes of a 4 KiB block
//! with values of 256 bytes, four neighbouring cache lines.
//!
//! 1. Entries form groups of 16. The first of a group, its head, stores its key whole; each other
//!    entry shares a prefix *with the head*, so any key consists of at most two slices.
//! 2. A key is stored as `shared` (a varint) and the rest; it ends where the next one starts, and
//!    so does a value, so neither needs a length.
//! 3. Sequence number and kind (the trailer word) have a column of their own: the difference from
//!    the block's smallest trailer, in as few bytes as the largest difference needs: often 2 to 4,
//!    none if all are equal. A load and a mask read one.
//! 4. A point read compares the tags, one hash byte per entry, eight at a time in a word, and
//!    decodes only matches. A seek is a binary search over heads, then within one group.
//!
//! Parsing checks only the fixed part ([`Layout::parse`]); each access checks its own bounds, so
//! reusing a cached block costs nothing. Entries out of order in a block with a valid checksum
//! yield wrong positions, never a panic or an endless loop; `verify` and cursors with `check_order`
//! detect them. Called by `Table::get`, the cursor and `verify`.

mod builder;
mod head;
mod position;
mod seek;

pub(crate) use builder::BlockBuilder;
pub(crate) use position::{Position, Way};

use std::ops::Range;
use std::sync::Arc;

use trommel_base::entry::unpack_trailer;
use trommel_base::{Decoder, EntryKind, MAX_KEY_BYTES, SeqNo, key_behind, same_bytes};

use trommel_filter::prefetch_at;

use crate::format::{BLOCK_TAIL_BYTES, FLAG_PADDED, FLAG_WIDE_OFFSETS, Fault, GROUP_ENTRIES};

/// Cache lines of the columns of a 4 KiB block with values of 256 bytes.
const COLUMN_LINES: usize = 5;

/// Most cache lines of a value to prefetch.
const VALUE_LINES: usize = 8;

const LOW_SEVEN: u64 = 0x7f7f_7f7f_7f7f_7f7f;
const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;

/// The byte of a key's hash that a block stores as its tag.
#[inline]
pub(crate) fn tag_of(hash: u64) -> u8 {
    (hash >> 24) as u8
}

/// Offsets of the parts of a block, relative to its payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Smallest trailer of the block.
    base: u64,
    /// End of the keys and start of the value offsets.
    value_offsets: u32,
    key_offsets: u32,
    trailers: u32,
    tags: u32,
    count: u16,
    trailer_width: u8,
    wide: bool,
}

impl Layout {
    /// The number of entries.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        usize::from(self.count)
    }

    pub(crate) fn parse(payload: &[u8]) -> Result<Self, Fault> {
        const SHORT: Fault = Fault::Damaged("a data block is too short for its entries");
        let (columns, tail) = payload.split_last_chunk::<BLOCK_TAIL_BYTES>().ok_or(SHORT)?;
        let [base @ .., c, d, trailer_width, flags] = *tail;
        let (base, count) = (u64::from_le_bytes(base), u16::from_le_bytes([c, d]));
        if flags & !(FLAG_WIDE_OFFSETS | FLAG_PADDED) != 0 {
            return Err(Fault::Unsupported(
                "a data block has a flag that this build does not know",
            ));
        }
        if count == 0 || trailer_width > 8 {
            return Err(Fault::Damaged("a data block's fixed part makes no sense"));
        }
        let wide = flags & FLAG_WIDE_OFFSETS != 0;
        let n = u32::from(count);
        let offset_shift = if wide { 2 } else { 1 };
        // With padding between values and keys, there is one more offset: the end of the last
        // value.
        let value_column = (n + u32::from(flags & FLAG_PADDED != 0)) << offset_shift;
        let key_column = n << offset_shift;
        let trailer_column = n * u32::from(trailer_width);
        let end = u32::try_from(columns.len()).map_err(|_| SHORT)?;
        let all = n + trailer_column + key_column + value_column;
        let value_offsets = end.checked_sub(all).ok_or(SHORT)?;
        let key_offsets = value_offsets + value_column;
        let trailers = key_offsets + key_column;
        let tags = trailers + trailer_column;
        Ok(Self { base, value_offsets, key_offsets, trailers, tags, count, trailer_width, wide })
    }
}

/// Prefetches the memory that a search of this stored block reads first.
#[inline]
pub(crate) fn prefetch_columns(stored: &[u8]) {
    prefetch_lines_before(stored.as_ptr_range().end.addr());
}

/// Prefetches the lines of `items`, at most a page.
#[inline]
pub(crate) fn prefetch_lines<T>(items: &[T]) {
    for line in (0..size_of_val(items).min(4096)).step_by(64) {
        prefetch_at(items.as_ptr().addr() + line);
    }
}

/// Prefetches the last cache lines of a block that ends at `end`.
#[inline]
fn prefetch_lines_before(end: usize) {
    for line in 0..COLUMN_LINES {
        prefetch_at((end - 1).wrapping_sub(64 * line));
    }
}

/// A verified block in memory, shared with the cache and with the values read from it.
#[derive(Debug, Clone)]
pub(crate) struct SharedBlock {
    /// The buffer with the payload. A read-ahead buffer holds several blocks.
    pub(crate) buffer: Arc<[u8]>,
    /// First byte of the payload in the buffer.
    pub(crate) start: u32,
    /// Length of the payload.
    pub(crate) len: u32,
    pub(crate) layout: Layout,
}

impl SharedBlock {
    /// The number of entries.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.layout.count()
    }

    /// Whether the buffer holds little else, so that a value may share it.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        is_fitting(&self.buffer, self.len as usize)
    }

    #[inline]
    pub(crate) fn view(&self) -> Block<'_> {
        let start = self.start as usize;
        let payload = self.buffer.get(start..start + self.len as usize).unwrap_or_default();
        Block { payload, layout: &self.layout }
    }
}

/// Whether a buffer is at most about twice as large as a block of `bytes` bytes, so that the
/// block's values may share it.
#[inline]
pub(crate) fn is_fitting(buffer: &[u8], bytes: usize) -> bool {
    buffer.len() / 2 <= bytes
}

/// A block in its searchable form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) layout: &'a Layout,
}

/// A key as stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredKey<'a> {
    /// The length of the prefix shared with the group's head.
    pub(crate) shared: usize,
    /// The rest of the key.
    pub(crate) suffix: &'a [u8],
}

/// The result of a point read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) seqno: SeqNo,
    pub(crate) kind: EntryKind,
    /// The value, relative to the payload.
    pub(crate) value: Range<usize>,
}

/// Entries decoded together by a scan: half a group.
const TOGETHER: usize = GROUP_ENTRIES / 2;

const OUTSIDE: Fault = Fault::Damaged("an entry lies outside its data block");

impl<'a> Block<'a> {
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.layout.count()
    }

    #[inline]
    fn word(&self, at: usize) -> Option<u64> {
        self.payload.get(at..)?.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// The `N` bytes at `at`.
    #[inline]
    fn bytes<const N: usize>(&self, at: u32) -> Option<&'a [u8; N]> {
        let at = at as usize;
        self.payload.get(at..at + N)?.first_chunk()
    }

    /// Start and end of the stored part of the key of entry `i`, from narrow offsets, which are not
    /// checked.
    #[inline]
    fn narrow_key(&self, i: u32) -> Option<(u32, u32)> {
        let both = u32::from_le_bytes(*self.bytes(self.layout.key_offsets.wrapping_add(2 * i))?);
        let is_last = i + 1 >= u32::from(self.layout.count);
        Some((both & 0xffff, if is_last { self.layout.value_offsets } else { both >> 16 }))
    }

    /// Offsets `i` and `i + 1` of the column that starts at `column`. After the last offset, the
    /// second is whatever follows the column.
    #[inline]
    fn offsets(&self, column: u32, i: usize) -> Option<(u32, u32)> {
        // The tags and the fixed part follow both columns, so two offsets can be read at the last
        // one too.
        let column = column as usize;
        if self.layout.wide {
            let both = self.word(column + 4 * i)?;
            return Some((both as u32, (both >> 32) as u32));
        }
        let both = self.payload.get(column + 2 * i..)?.first_chunk::<4>()?;
        let both = u32::from_le_bytes(*both);
        Some((both & 0xffff, both >> 16))
    }

    /// Narrow offsets of the column that starts at `column`, from entry `i` on: as many as are
    /// decoded together, and the next one. May read past the column; `None` at the end of the
    /// block.
    #[inline]
    fn offsets_from(&self, column: u32, i: usize) -> Option<&'a [[u8; 2]; TOGETHER + 1]> {
        self.payload.get(column as usize + 2 * i..)?.as_chunks::<2>().0.first_chunk()
    }

    #[inline]
    fn checked(&self, i: usize, (start, end): (u32, u32)) -> Result<(u32, u32), Fault> {
        if i >= self.count() || start > end || end > self.layout.value_offsets {
            return Err(OUTSIDE);
        }
        Ok((start, end))
    }

    /// Start and end of the value of entry `i` in the payload.
    #[inline]
    fn value_place(&self, i: usize) -> Result<(u32, u32), Fault> {
        // The last value ends at the offset that follows its own: the start of the padding, or the
        // first key's.
        self.checked(i, self.offsets(self.layout.value_offsets, i).ok_or(OUTSIDE)?)
    }

    /// The bytes between the values and the keys.
    pub(crate) fn padding(&self) -> Result<&'a [u8], Fault> {
        let (_, start) = self.value_place(self.count() - 1)?;
        let (end, _) = self.key_place(0)?;
        self.payload.get(start as usize..end).ok_or(OUTSIDE)
    }

    /// Like `value_place`, for the stored part of the key.
    #[inline]
    fn key_place(&self, i: usize) -> Result<(usize, usize), Fault> {
        let (start, next) = self.offsets(self.layout.key_offsets, i).ok_or(OUTSIDE)?;
        let end = if i + 1 < self.count() { next } else { self.layout.value_offsets };
        let (start, end) = self.checked(i, (start, end))?;
        Ok((start as usize, end as usize))
    }

    /// For a key stored between `start` and `end`: the length that it shares with its group's head,
    /// and the start of its own bytes.
    #[inline]
    fn shared(&self, start: usize, end: usize) -> Result<(usize, usize), Fault> {
        if start < end
            && let Some(shared) = self.payload.get(start)
            && *shared < 0x80
        {
            return Ok((usize::from(*shared), start + 1));
        }
        self.long_shared(start, end).ok_or(OUTSIDE)
    }

    #[cold]
    fn long_shared(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        let mut decoder = Decoder::new(self.payload.get(start..end)?);
        let shared = decoder.length(MAX_KEY_BYTES)?;
        Some((shared, end - decoder.remaining()))
    }

    /// The range of the value of entry `i` in the payload.
    #[inline]
    pub(crate) fn value(&self, i: usize) -> Result<Range<usize>, Fault> {
        self.value_place(i).map(|(start, end)| start as usize..end as usize)
    }

    /// The key of entry `i` as stored.
    #[inline]
    pub(crate) fn stored_key(&self, i: usize) -> Result<StoredKey<'a>, Fault> {
        let (start, end) = self.key_place(i)?;
        let (shared, own) = self.shared(start, end)?;
        Ok(StoredKey { shared, suffix: self.payload.get(own..end).ok_or(OUTSIDE)? })
    }

    /// The key of the head of the group of entry `i`.
    #[inline]
    pub(crate) fn head(&self, i: usize) -> Result<&'a [u8], Fault> {
        let head = self.stored_key(i - i % GROUP_ENTRIES)?;
        if head.shared != 0 {
            return Err(Fault::Damaged("the head of a group does not hold its key whole"));
        }
        Ok(head.suffix)
    }

    /// The two parts of the key of entry `i`.
    #[inline]
    pub(crate) fn key(&self, i: usize) -> Result<(&'a [u8], &'a [u8]), Fault> {
        let key = self.stored_key(i)?;
        let shared = self.head(i)?.get(..key.shared);
        let shared = shared.ok_or(Fault::Damaged("a key shares more than its head has"))?;
        Ok((shared, key.suffix))
    }

    /// Sequence number and kind of entry `i`.
    #[inline]
    pub(crate) fn trailer(&self, i: usize) -> Result<(SeqNo, EntryKind), Fault> {
        const DAMAGED: Fault = Fault::Damaged("a data block's trailer column is damaged");
        if i >= self.count() {
            return Err(DAMAGED);
        }
        let width = usize::from(self.layout.trailer_width);
        // At least eight bytes, tags and the fixed part, follow the column.
        let word = self.word(self.layout.trailers as usize + i * width).ok_or(DAMAGED)?;
        let mask = if width == 8 { u64::MAX } else { (1 << (8 * width)) - 1 };
        let trailer = self.layout.base.checked_add(word & mask).ok_or(DAMAGED)?;
        unpack_trailer(trailer)
            .ok_or(Fault::Unsupported("an entry is of a kind that this version does not know"))
    }

    /// Matches among eight entries from `first` on with the tag that `pattern` repeats: exactly the
    /// high bit of the byte of each match. May include entries beyond the count.
    #[inline]
    fn tagged(&self, first: usize, pattern: u64) -> Result<u64, Fault> {
        let word = self.word(self.layout.tags as usize + first).ok_or(OUTSIDE)? ^ pattern;
        Ok(!(((word & LOW_SEVEN) + LOW_SEVEN) | word | LOW_SEVEN))
    }

    /// Prefetches the first entry with this tag: the head of its group, its key and its value.
    #[inline]
    pub(crate) fn prefetch_entry(&self, tag: u8) {
        let pattern = u64::from(tag) * EVERY_BYTE;
        let tagged = |first| Some((first, self.tagged(first, pattern).ok()?));
        let mut words = (0..self.count()).step_by(8).map_while(tagged);
        let Some((first, hits)) = words.find(|(_, hits)| *hits != 0) else { return };
        let i = first + (hits.trailing_zeros() / 8) as usize;
        let key = |i| self.offsets(self.layout.key_offsets, i);
        if let (Some((head, _)), Some((key, _)), Ok(value)) =
            (key(i - i % GROUP_ENTRIES), key(i), self.value(i))
        {
            self.prefetch_line(head as usize);
            self.prefetch_line(key as usize);
            self.prefetch_value(&value);
        }
    }

    /// Prefetches a value, or the first lines of a long one.
    #[inline]
    fn prefetch_value(&self, value: &Range<usize>) {
        // One address per line's length, and the last byte's.
        let payload = self.payload.as_ptr().addr();
        let end = payload.wrapping_add(value.end.min(value.start + 64 * (VALUE_LINES - 1)));
        let mut at = payload.wrapping_add(value.start);
        while at < end {
            prefetch_at(at);
            at = at.wrapping_add(64);
        }
        prefetch_at(end.wrapping_sub(1));
    }

    /// Prefetches the cache line at this byte of the payload.
    #[inline]
    fn prefetch_line(&self, at: usize) {
        prefetch_at(self.payload.as_ptr().addr().wrapping_add(at));
    }

    /// The newest version of `key` with a sequence number of at most `seqno`, if this block holds
    /// it.
    pub(crate) fn get(&self, key: &[u8], tag: u8, seqno: SeqNo) -> Result<Option<Hit>, Fault> {
        let pattern = u64::from(tag) * EVERY_BYTE;
        let mut first = 0;
        while first < self.count() {
            let mut hits = self.tagged(first, pattern)?;
            while hits != 0 {
                let i = first + (hits.trailing_zeros() / 8) as usize;
                if i >= self.count() {
                    return Ok(None);
                }
                let value = self.value(i);
                if let Ok(value) = &value {
                    // The key most likely matches, and comparing it waits for memory; the value is
                    // loaded in the meantime.
                    self.prefetch_value(value);
                }
                if self.has_key(i, key)? {
                    let (value, (found, kind)) = (value?, self.trailer(i)?);
                    if found <= seqno {
                        return Ok(Some(Hit { seqno: found, kind, value }));
                    }
                    return self.older_version(i, key, seqno);
                }
                hits &= hits - 1;
            }
            first += 8;
        }
        Ok(None)
    }

    /// Whether entry `i` has the key `key`.
    #[inline]
    fn has_key(&self, i: usize, key: &[u8]) -> Result<bool, Fault> {
        let (prefix, suffix) = self.key(i)?;
        let rest = key_behind(key, prefix);
        Ok(rest.is_some_and(|rest| same_bytes(rest, suffix)))
    }

    /// Like `get`, where entry `newer` is a version of `key` that is too new. Versions are
    /// adjacent, newest first; there may be thousands.
    #[cold]
    fn older_version(&self, newer: usize, key: &[u8], seqno: SeqNo) -> Result<Option<Hit>, Fault> {
        let i = self.seek_from(newer, key, seqno)?;
        if i == self.count() {
            return Ok(None);
        }
        if !self.has_key(i, key)? {
            return Ok(None);
        }
        let (value, (found, kind)) = (self.value(i)?, self.trailer(i)?);
        // If the block is out of order, the search may end anywhere.
        Ok((found <= seqno).then_some(Hit { seqno: found, kind, value }))
    }

    /// Tag of entry `i`.
    #[inline]
    pub(crate) fn tag(&self, i: usize) -> Option<u8> {
        self.payload.get(self.layout.tags as usize + i).copied()
    }
}

/// The length of the common prefix of `a` and `b`.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut common = 0;
    let (mut a_words, mut b_words) = (a.chunks_exact(8), b.chunks_exact(8));
    for (a_word, b_word) in a_words.by_ref().zip(b_words.by_ref()) {
        let (Ok(a_word), Ok(b_word)) = (a_word.try_into(), b_word.try_into()) else { break };
        let differing = u64::from_le_bytes(a_word) ^ u64::from_le_bytes(b_word);
        if differing != 0 {
            return common + (differing.trailing_zeros() / 8) as usize;
        }
        common += 8;
    }
    let rest = a.iter().skip(common).zip(b.iter().skip(common));
    common + rest.take_while(|(a, b)| a == b).count()
}

//! The position of a scan in a block. Entries are decoded half a group at a time, so that most
//! steps only move within the list of decoded entries.
//!
//! 1. When a scan enters half a group, the group's head is read, and then of each entry ahead the
//!    trailer, the location of the value, and the first 16 bytes of the key, assembled in one word:
//!    the bytes shared with the head, the entry's own bytes, then zeros (`head.rs`). The first few
//!    entries after a seek are decoded one at a time, as a short scan needs no more of each table.
//! 2. The list ends at an entry that cannot be decoded. That is an error only for a scan that steps
//!    on it.
//! 3. A key of more than 16 bytes is assembled in a buffer when the scan steps on it. Within a
//!    group, the shared prefixes tend to shrink going forward, so the shared bytes are nearly
//!    always still in the buffer.
//!
//! Called by the cursor over a table. After a fault the position is undefined.

use std::ops::Range;

use trommel_base::{EntryKind, KeyHead, SeqNo};

use super::head::{Head, WORD_BYTES};
use super::seek::SeekResult;
use super::{Block, Layout, OUTSIDE, StoredKey, TOGETHER};
use crate::format::{Fault, GROUP_ENTRIES};

const TOO_MUCH_SHARED: Fault = Fault::Damaged("a key shares more than its head has");

/// The direction of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// To larger keys.
    Onward,
    /// To smaller keys.
    Back,
}

/// A position in a block.
#[derive(Debug)]
pub(crate) struct Position {
    pub(crate) i: usize,
    /// Range of decoded entries. Empty, with `first` at the maximum, if there are none.
    first: usize,
    end: usize,
    /// Entry `i` at `i` modulo their number.
    decoded: [Decoded; TOGETHER],
    /// The group of which the head is known, or the maximum.
    group: usize,
    head: Head,
    /// Entries that were decoded singly since the last seek.
    singles: u8,
    /// The key, if it is long. Its first `agreeing` bytes are those of the head of `group`.
    long: Vec<u8>,
    agreeing: usize,
}

/// Entries that are decoded singly after a seek: most scans end, or leave the table to others,
/// after a few entries.
const SINGLES: u8 = 4;

/// A decoded entry, without the bytes of its key after the first ones.
#[derive(Debug, Clone, Copy)]
struct Decoded {
    /// The key's first bytes, padded with zeros.
    key: [u8; WORD_BYTES],
    seqno: SeqNo,
    /// The value, relative to the block's payload.
    value: (u32, u32),
    /// Length of the key.
    len: u32,
    kind: EntryKind,
}

const NOTHING: Decoded =
    Decoded { key: [0; WORD_BYTES], seqno: 0, value: (0, 0), len: 0, kind: EntryKind::Delete };

impl Decoded {
    #[inline]
    fn is_long(&self) -> bool {
        self.len > WORD_BYTES as u32
    }

    #[inline]
    fn head(&self) -> KeyHead {
        let words = u128::from_le_bytes(self.key).swap_bytes();
        KeyHead { words, len: self.len, kind: self.kind, seqno: self.seqno }
    }
}

/// The kind in a trailer of a common kind.
#[inline]
fn common_kind(trailer: u64) -> EntryKind {
    if trailer & EntryKind::Put as u64 == 0 { EntryKind::Delete } else { EntryKind::Put }
}

impl Default for Position {
    fn default() -> Self {
        Self {
            i: 0,
            first: usize::MAX,
            end: 0,
            decoded: [NOTHING; TOGETHER],
            group: usize::MAX,
            head: Head::default(),
            singles: 0,
            long: Vec::new(),
            agreeing: 0,
        }
    }
}

/// The common kinds, 0 and 1, have no other bits than this.
const COMMON_KINDS: u64 = EntryKind::Delete as u64 | EntryKind::Put as u64;

impl Position {
    /// Forgets the block.
    #[inline]
    pub(crate) fn leave(&mut self) {
        (self.first, self.end, self.group) = (usize::MAX, 0, usize::MAX);
    }

    /// Prepares for a seek.
    #[inline]
    pub(crate) fn restart(&mut self) {
        self.singles = 0;
    }

    /// The first entry of `block` at or after (`key`, `seqno`); the count if there is none. Does
    /// not move there.
    #[inline]
    pub(crate) fn find(
        &mut self,
        block: &Block<'_>,
        key: &[u8],
        seqno: SeqNo,
    ) -> Result<usize, Fault> {
        let SeekResult { i, group } = block.seek(key, seqno)?;
        if let Some((group, head)) = group {
            self.set_head(group, head);
        }
        Ok(i)
    }

    #[inline]
    fn set_head(&mut self, group: usize, head: Head) {
        if self.group != group {
            (self.group, self.head, self.agreeing) = (group, head, 0);
        }
    }

    #[inline]
    fn entry(&self) -> &Decoded {
        &self.decoded[self.i % TOGETHER]
    }

    /// The current key.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        let entry = self.entry();
        entry.key.get(..entry.len as usize).unwrap_or(&self.long)
    }

    /// The head of the current internal key.
    #[inline]
    pub(crate) fn head(&self) -> KeyHead {
        self.entry().head()
    }

    /// The current sequence number.
    #[inline]
    pub(crate) fn seqno(&self) -> SeqNo {
        self.entry().seqno
    }

    /// The current kind.
    #[inline]
    pub(crate) fn kind(&self) -> EntryKind {
        self.entry().kind
    }

    /// The range of the value in the payload.
    #[inline]
    pub(crate) fn value(&self) -> Range<usize> {
        let (start, end) = self.entry().value;
        start as usize..end as usize
    }

    /// Moves to the next entry, if it is decoded and its key is short.
    #[inline]
    pub(crate) fn next_at_hand(&mut self) -> Option<KeyHead> {
        self.at_hand(self.i + 1)
    }

    /// Moves to the previous entry, if it is decoded and its key is short.
    #[inline]
    pub(crate) fn prev_at_hand(&mut self) -> Option<KeyHead> {
        self.at_hand(self.i.checked_sub(1)?)
    }

    /// Moves to entry `i`, if it is decoded and its key is short.
    #[inline]
    pub(crate) fn at_hand(&mut self, i: usize) -> Option<KeyHead> {
        let entry = &self.decoded[i % TOGETHER];
        if i < self.first || i >= self.end || entry.is_long() {
            return None;
        }
        self.i = i;
        Some(entry.head())
    }

    /// Moves to entry `i` of `block`, which must be the same block since the last `leave`. Further
    /// steps are expected to go in direction `way`.
    #[inline]
    pub(crate) fn move_to(&mut self, block: &Block<'_>, i: usize, way: Way) -> Result<(), Fault> {
        if i < self.first || i >= self.end {
            self.decode_ahead(block, i, way)?;
        }
        self.i = i;
        if self.entry().is_long() {
            return self.assemble(block);
        }
        Ok(())
    }

    /// Moves to the next entry of `block`, which is not decoded yet, if there is one, it is not
    /// corrupt, and its key is short.
    #[inline(always)]
    pub(crate) fn next_in(&mut self, block: &Block<'_>) -> Option<KeyHead> {
        let next = self.i + 1;
        match self.decode_single(block, next) {
            Some(head) => {
                self.i = next;
                Some(head)
            }
            None => self.move_in(block, next, Way::Onward),
        }
    }

    /// As `next_in`, to the previous entry.
    #[inline(always)]
    pub(crate) fn prev_in(&mut self, block: &Block<'_>) -> Option<KeyHead> {
        self.move_in(block, self.i.checked_sub(1)?, Way::Back)
    }

    /// Moves to the neighbouring entry `i` of `block`, as `next_in` and `prev_in`.
    #[inline(always)]
    fn move_in(&mut self, block: &Block<'_>, i: usize, way: Way) -> Option<KeyHead> {
        if i >= block.count() || (self.first..self.end).contains(&i) {
            return None;
        }
        // Decoding may overwrite the current entry, which must stay unless the position moves.
        let (at, here) = (self.i, *self.entry());
        let is_decoded = self.decode_ahead(block, i, way).is_ok();
        let head = self.at_hand(i).filter(|_| is_decoded);
        if head.is_none() {
            self.decoded[at % TOGETHER] = here;
            (self.i, self.first, self.end) = (at, at, at + 1);
        }
        head
    }

    /// Moves to entry `i` of `block`, if it is common and its key is short. Returns whether it
    /// moved.
    #[inline(always)]
    pub(crate) fn land(&mut self, block: &Block<'_>, i: usize) -> bool {
        let is_common = self.decode_single(block, i).is_some();
        if is_common {
            self.i = i;
        }
        is_common
    }

    /// Decodes entry `i` alone, if few entries were decoded singly since the last seek, and the
    /// entry is common and its key short.
    #[inline(always)]
    fn decode_single(&mut self, block: &Block<'_>, i: usize) -> Option<KeyHead> {
        if self.singles >= SINGLES {
            return None;
        }
        let group = i / GROUP_ENTRIES;
        if self.group != group {
            let head = Head::read(block, group).ok()?;
            self.set_head(group, head);
        }
        let entry = decode_common(block, &self.head, i)?;
        self.decoded[i % TOGETHER] = entry;
        self.singles += 1;
        // After the entry decoded last; its predecessors stay decoded until they are overwritten.
        let first = self.first.min(i).max(if self.end == i { 0 } else { i });
        (self.first, self.end) = (first.max((i + 1).saturating_sub(TOGETHER)), i + 1);
        Some(entry.head())
    }

    /// Decodes entry `i`: alone after a seek forward, later with the entries ahead in its half of a
    /// group.
    #[inline(never)]
    fn decode_ahead(&mut self, block: &Block<'_>, i: usize, way: Way) -> Result<(), Fault> {
        if matches!(way, Way::Onward) && self.decode_single(block, i).is_some() {
            return Ok(());
        }
        (self.first, self.end) = (usize::MAX, 0);
        let group = i / GROUP_ENTRIES;
        if self.group != group {
            let head = Head::read(block, group)?;
            self.set_head(group, head);
        }
        let head = self.head;
        let together = i - i % TOGETHER;
        let ahead = match way {
            Way::Onward => i..block.count().min(together + TOGETHER),
            Way::Back => together..block.count().min(i + 1),
        };
        if ahead.contains(&i) && self.decode_all(block, &head, ahead.clone()).is_some() {
            (self.first, self.end) = (ahead.start, ahead.end);
            return Ok(());
        }
        self.decode_each(block, &head, i, ahead)
    }

    /// Decodes the entries of half a group together. `None` if any of them is uncommon or corrupt.
    #[inline]
    fn decode_all(&mut self, block: &Block<'_>, head: &Head, entries: Range<usize>) -> Option<()> {
        if block.layout.wide {
            return None;
        }
        let first = entries.start;
        let places = self.decoded.get_mut(first % TOGETHER..)?.get_mut(..entries.len())?;
        decode_together(block, head, first, places)
    }

    /// Decodes entry `i`, however uncommon, and those of `ahead` on both sides of it that can be
    /// decoded.
    #[cold]
    fn decode_each(
        &mut self,
        block: &Block<'_>,
        head: &Head,
        i: usize,
        ahead: Range<usize>,
    ) -> Result<(), Fault> {
        let here = decode(block, head, i)?;
        self.decoded[i % TOGETHER] = here;
        (self.first, self.end) = (i, i + 1);
        for at in i + 1..ahead.end {
            let Ok(entry) = decode(block, head, at) else { break };
            self.decoded[at % TOGETHER] = entry;
            self.end = at + 1;
        }
        for at in (ahead.start..i).rev() {
            let Ok(entry) = decode(block, head, at) else { break };
            self.decoded[at % TOGETHER] = entry;
            self.first = at;
        }
        Ok(())
    }

    /// Assembles the current key, which is a long one.
    fn assemble(&mut self, block: &Block<'_>) -> Result<(), Fault> {
        let group = self.i / GROUP_ENTRIES;
        if self.group != group {
            // Decoded entries may be of two groups.
            self.set_head(group, Head::read(block, group)?);
        }
        let StoredKey { shared, suffix: own } = block.stored_key(self.i)?;
        self.long.truncate(self.agreeing.min(shared));
        if shared > self.agreeing {
            let head = block.head(self.i)?.get(self.agreeing..shared).ok_or(TOO_MUCH_SHARED)?;
            self.long.extend_from_slice(head);
        }
        self.long.extend_from_slice(own);
        let is_head = self.i.is_multiple_of(GROUP_ENTRIES);
        self.agreeing = if is_head { self.long.len() } else { shared };
        Ok(())
    }

    /// Whether the previous entry has another key, if both are decoded; otherwise `None`.
    #[inline]
    pub(crate) fn begins_key(&self) -> Option<bool> {
        let (before, entry) = (self.i.checked_sub(1)?, self.entry());
        if before < self.first || entry.is_long() {
            return None;
        }
        let before = &self.decoded[before % TOGETHER];
        Some((before.key, before.len) != (entry.key, entry.len))
    }

    /// Like [`begins_key`](Self::begins_key), for any two entries of this block; `None` if unknown,
    /// as at the first entry of the block.
    pub(crate) fn begins_key_by_tag(&self, block: &Block<'_>) -> Option<bool> {
        let before = self.i.checked_sub(1)?;
        if block.tag(before)? != block.tag(self.i)? {
            return Some(true);
        }
        let Ok((shared, own)) = block.key(before) else { return Some(false) };
        let key = self.key();
        let is_same =
            shared.len() + own.len() == key.len() && key.ends_with(own) && key.starts_with(shared);
        Some(!is_same)
    }
}

/// Decodes entries from `first` on, unless one is uncommon; `head` is the head of their group.
#[inline]
fn decode_together(
    block: &Block<'_>,
    head: &Head,
    first: usize,
    places: &mut [Decoded],
) -> Option<()> {
    let Layout { base, value_offsets: limit, trailers, trailer_width, .. } = *block.layout;
    let [start, mut ends @ ..] = *block.offsets_from(block.layout.key_offsets, first)?;
    // No offset follows that of the block's last key.
    if let Some(end) = ends.get_mut(block.count() - 1 - first) {
        *end = u16::try_from(limit).ok()?.to_le_bytes();
    }
    let (value_start, value_ends) = block.offsets_from(limit, first)?.split_first()?;
    let (mut start, mut value_start) = (offset(&start), offset(value_start));
    let most_shared = head.len.min(0x7f) as u32;
    let (width, mask) = (u32::from(trailer_width), *TRAILER_MASKS.get(usize::from(trailer_width))?);
    let mut at = trailers.wrapping_add(width * first as u32);
    for ((place, end), value_end) in places.iter_mut().zip(&ends).zip(value_ends) {
        let (own, end, value_end) = (start + 1, offset(end), offset(value_end));
        let [shared] = *block.bytes(start)?;
        let shared = u32::from(shared);
        if own > end || shared > most_shared || value_start > value_end {
            return None;
        }
        let len = shared + end - own;
        let key = head.joined(block, shared, own, len)?;
        let own_trailer = u64::from_le_bytes(*block.bytes(at)?) & mask;
        let trailer = base.checked_add(own_trailer)?;
        if trailer & 0xff > COMMON_KINDS {
            return None;
        }
        let (seqno, kind) = (trailer >> 8, common_kind(trailer));
        *place = Decoded { key, seqno, value: (value_start, value_end), len, kind };
        (start, value_start, at) = (end, value_end, at.wrapping_add(width));
    }
    // Each value ends where the next one, the padding or the keys begin.
    (start <= limit && value_start <= limit).then_some(())
}

#[inline]
fn offset(bytes: &[u8; 2]) -> u32 {
    u32::from(u16::from_le_bytes(*bytes))
}

/// Decodes entry `i`, if it is common and its key short; `head` is the head of its group.
#[inline(always)]
fn decode_common(block: &Block<'_>, head: &Head, i: usize) -> Option<Decoded> {
    let Layout { base, value_offsets, trailers, trailer_width, wide, .. } = *block.layout;
    let n = i as u32;
    if wide || i >= block.count() {
        return None;
    }
    let (start, end) = block.narrow_key(n)?;
    let [shared] = *block.bytes(start)?;
    let (own, shared) = (start + 1, u32::from(shared));
    let len = shared + end.checked_sub(own)?;
    if end > value_offsets || shared as usize > head.len || len > WORD_BYTES as u32 {
        return None;
    }
    let key = head.joined(block, shared, own, len)?;
    let values = u32::from_le_bytes(*block.bytes(value_offsets.wrapping_add(2 * n))?);
    let value = (values & 0xffff, values >> 16);
    if value.0 > value.1 || value.1 > value_offsets {
        return None;
    }
    let at = trailers.wrapping_add(u32::from(trailer_width) * n);
    let mask = TRAILER_MASKS.get(usize::from(trailer_width))?;
    let own_trailer = u64::from_le_bytes(*block.bytes(at)?) & mask;
    let trailer = base.checked_add(own_trailer)?;
    let (seqno, kind) = (trailer >> 8, common_kind(trailer));
    (trailer & 0xff <= COMMON_KINDS).then_some(Decoded { key, seqno, value, len, kind })
}

/// Masks of the first bytes of a word, by number of bytes.
const TRAILER_MASKS: [u64; 9] = {
    let mut masks = [u64::MAX; 9];
    let mut bytes = 0;
    while bytes < 8 {
        masks[bytes] = (1 << (8 * bytes)) - 1;
        bytes += 1;
    }
    masks
};

/// Decodes entry `i`; `head` is the head of its group.
fn decode(block: &Block<'_>, head: &Head, i: usize) -> Result<Decoded, Fault> {
    let (seqno, kind) = block.trailer(i)?;
    let value = block.value_place(i)?;
    let (start, end) = block.key_place(i)?;
    let (shared, own) = block.shared(start, end)?;
    if shared > head.len {
        return Err(TOO_MUCH_SHARED);
    }
    let len = shared + end - own;
    let (shared, own, len) = (shared as u32, own as u32, len as u32);
    let key = head.joined(block, shared, own, len).ok_or(OUTSIDE)?;
    Ok(Decoded { key, seqno, value, len, kind })
}

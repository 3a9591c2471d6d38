//! The position of a scan in a block. Entries are decoded half a group at a time, so that most
//! steps only move within the list of decoded entries.
//!
//! 1. When a scan enters half a group, the group's head is read, and then of each entry ahead the
//!    trailer, the location of the value, and the first 16 bytes of the key, assembled in one word:
//!    the bytes shared with the head, the entry's own bytes, then zeros (`head.rs`).
//! 2. The list ends at an entry that cannot be decoded. That is an error only for a scan that steps
//!    on it.
//! 3. A key of more than 16 bytes is assembled in a buffer when the scan steps on it. Within a
//!    group, the shared prefixes tend to shrink going forward, so the shared bytes are nearly
//!    always still in the buffer.
//!
//! Called by the cursor over a table. After a fault the position is undefined.

use std::ops::Range;

use trommel_base::entry::pack_trailer;
use trommel_base::{EntryKind, KeyHead, SeqNo};

use super::head::{Head, WORD_BYTES};
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
    /// Range of decoded entries, within half a group. Empty, with `first` at the maximum, if there
    /// are none.
    first: usize,
    end: usize,
    /// Entry `i` at `i` modulo their number.
    decoded: [Decoded; TOGETHER],
    /// The key, if it is long. Its first `agreeing` bytes are those of the head of the decoded
    /// group.
    long: Vec<u8>,
    agreeing: usize,
}

/// A decoded entry, without the bytes of its key after the first ones.
#[derive(Debug, Clone, Copy)]
struct Decoded {
    /// The key's first bytes, padded with zeros.
    key: [u8; WORD_BYTES],
    /// Packed sequence number and kind; always a known kind.
    trailer: u64,
    /// The value, relative to the block's payload.
    value: (u32, u32),
    /// Length of the key.
    len: u32,
}

const NOTHING: Decoded = Decoded { key: [0; WORD_BYTES], trailer: 0, value: (0, 0), len: 0 };

impl Decoded {
    #[inline]
    fn is_long(&self) -> bool {
        self.len > WORD_BYTES as u32
    }

    #[inline]
    fn trailer(&self) -> (SeqNo, EntryKind) {
        // The kinds are 0, 1 and 3.
        let kind = match self.trailer & 3 {
            0 => EntryKind::Delete,
            1 => EntryKind::Put,
            _ => EntryKind::Merge,
        };
        (self.trailer >> 8, kind)
    }

    #[inline]
    fn head(&self) -> KeyHead {
        let (seqno, kind) = self.trailer();
        let words = u128::from_le_bytes(self.key).swap_bytes();
        KeyHead { words, len: self.len, kind, seqno }
    }
}

impl Default for Position {
    fn default() -> Self {
        Self {
            i: 0,
            first: usize::MAX,
            end: 0,
            decoded: [NOTHING; TOGETHER],
            long: Vec::new(),
            agreeing: 0,
        }
    }
}

/// The kinds that are known, 0 and 1, have no other bits than this.
const KNOWN_KINDS: u64 = EntryKind::Delete as u64 | EntryKind::Put as u64;

impl Position {
    /// Forgets the block.
    #[inline]
    pub(crate) fn leave(&mut self) {
        (self.first, self.end) = (usize::MAX, 0);
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
        self.entry().trailer().0
    }

    /// The current kind.
    #[inline]
    pub(crate) fn kind(&self) -> EntryKind {
        self.entry().trailer().1
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

    /// Decodes entry `i`, and of its half group the entries ahead.
    #[inline(never)]
    fn decode_ahead(&mut self, block: &Block<'_>, i: usize, way: Way) -> Result<(), Fault> {
        self.leave();
        self.agreeing = 0;
        let head = Head::read(block, i / GROUP_ENTRIES)?;
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
        // One column after the other: all at once do not fit the processor's registers.
        decode_values(block, first, places)?;
        decode_trailers(block, first, places)?;
        decode_keys(block, head, first, places)
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

/// Decodes the locations of the values of entries from `first` on.
#[inline]
fn decode_values(block: &Block<'_>, first: usize, places: &mut [Decoded]) -> Option<()> {
    let (start, ends) = block.offsets_from(block.layout.value_offsets, first)?.split_first()?;
    let mut start = offset(start);
    for (place, end) in places.iter_mut().zip(ends) {
        let end = offset(end);
        if start > end {
            return None;
        }
        place.value = (start, end);
        start = end;
    }
    // Each value ends where the next one, the padding or the keys begin.
    (start <= block.layout.value_offsets).then_some(())
}

/// Decodes their sequence numbers and kinds.
#[inline]
fn decode_trailers(block: &Block<'_>, first: usize, places: &mut [Decoded]) -> Option<()> {
    let Layout { base, trailers, trailer_width, .. } = block.layout;
    let width = usize::from(trailer_width);
    let mask = u64::MAX.checked_shr(64 - 8 * u32::from(trailer_width)).unwrap_or(0);
    // Of all together: a sum that is too large, or a kind that is not known.
    let (mut overflows, mut kinds) = (false, 0);
    let mut at = trailers as usize + width * first;
    for place in places {
        let (trailer, is_over) = base.overflowing_add(block.word(at)? & mask);
        place.trailer = trailer;
        overflows |= is_over;
        kinds |= trailer & 0xff;
        at += width;
    }
    (!overflows && kinds <= KNOWN_KINDS).then_some(())
}

/// Decodes their keys; `head` is the head of their group.
#[inline]
fn decode_keys(block: &Block<'_>, head: &Head, first: usize, places: &mut [Decoded]) -> Option<()> {
    let [start, mut ends @ ..] = *block.offsets_from(block.layout.key_offsets, first)?;
    let (limit, most_shared) = (block.layout.value_offsets, head.len.min(0x7f) as u32);
    // No offset follows that of the block's last key.
    if let Some(end) = ends.get_mut(block.count() - 1 - first) {
        *end = u16::try_from(limit).ok()?.to_le_bytes();
    }
    let mut start = offset(&start);
    for (place, end) in places.iter_mut().zip(&ends) {
        let (own, end) = (start + 1, offset(end));
        let shared = u32::from(*block.payload.get(start as usize)?);
        if own > end || shared > most_shared {
            return None;
        }
        place.len = shared + end - own;
        place.key = head.joined(block, shared as usize, own as usize, place.len as usize)?;
        start = end;
    }
    (start <= limit).then_some(())
}

#[inline]
fn offset(bytes: &[u8; 2]) -> u32 {
    u32::from(u16::from_le_bytes(*bytes))
}

/// Decodes entry `i`; `head` is the head of its group.
fn decode(block: &Block<'_>, head: &Head, i: usize) -> Result<Decoded, Fault> {
    let (seqno, kind) = block.trailer(i)?;
    let (trailer, value) = (pack_trailer(seqno, kind), block.value_place(i)?);
    let (start, end) = block.key_place(i)?;
    let (shared, own) = block.shared(start, end)?;
    if shared > head.len {
        return Err(TOO_MUCH_SHARED);
    }
    let len = shared + end - own;
    let key = head.joined(block, shared, own, len).ok_or(OUTSIDE)?;
    Ok(Decoded { key, trailer, value, len: len as u32 })
}

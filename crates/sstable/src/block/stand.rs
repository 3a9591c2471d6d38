//! Where a walk stands in a block. Entries are decoded half a group at a time, so that most steps
//! are one up or down in a list of what was decoded.
//!
//! 1. When a walk enters half a group, the group's head is read, and then of each entry ahead the
//!    trailer, the place of the value, and the first 16 bytes of the key, put together in one word:
//!    the head's first bytes, the entry's own behind them, zeros behind both. Behind the keys of a
//!    block lie at least 16 bytes more, so a whole word can be read wherever a key's own part
//!    begins.
//! 2. What cannot be decoded ends the list there, and is an error for the walk that steps on it,
//!    not for one that only comes near.
//! 3. A key of more than 16 bytes is put together in a buffer when the walk steps on it. Going
//!    forward within a group, keys share less and less with the head: what is needed of it is
//!    nearly always still there.
//!
//! Called by the cursor over a table. A fault leaves it standing nowhere that counts.

use std::ops::Range;

use trommel_base::entry::{pack_trailer, unpack_trailer};
use trommel_base::{EntryKind, KeyHead, SeqNo, first_words};

use super::{Block, Layout, OUTSIDE, StoredKey, TOGETHER};
use crate::format::{Fault, GROUP_ENTRIES};

/// Longest key that is put together in a word, in bytes.
const WORD_BYTES: usize = 16;

const TOO_MUCH_SHARED: Fault = Fault::Damaged("a key shares more than its head has");

/// Which way a walk goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// To larger keys.
    Onward,
    /// To smaller keys.
    Back,
}

/// A position in a block.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) i: usize,
    /// Entries that were decoded: some of half a group. Empty, with `first` behind everything,
    /// where there are none.
    first: usize,
    end: usize,
    /// Entry `i` at `i` modulo their number.
    decoded: [Decoded; TOGETHER],
    /// The key, where it is a long one. Its first bytes, as many as `agreeing`, are those of the
    /// head of the group that was decoded.
    long: Vec<u8>,
    agreeing: usize,
}

/// An entry, but for what lies behind the first bytes of its key.
#[derive(Debug, Clone, Copy)]
struct Decoded {
    /// The key's first bytes, and zeros.
    key: [u8; WORD_BYTES],
    /// Sequence number and kind, as they are packed; of one of the two kinds that are known.
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
        let kind = if self.trailer & 1 == 0 { EntryKind::Delete } else { EntryKind::Put };
        (self.trailer >> 8, kind)
    }

    #[inline]
    fn head(&self) -> KeyHead {
        let (seqno, kind) = self.trailer();
        let words = u128::from_le_bytes(self.key).swap_bytes();
        KeyHead { words, len: self.len, kind, seqno }
    }
}

impl Default for Stand {
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

/// The first key of a group, which the others refer to.
struct Head {
    /// Its first bytes, and zeros.
    word: u128,
    len: usize,
}

impl Head {
    #[inline]
    fn read(block: &Block<'_>, group: usize) -> Result<Self, Fault> {
        let head = block.head(group * GROUP_ENTRIES)?;
        Ok(Self { word: first_words(head).swap_bytes(), len: head.len() })
    }

    /// The first bytes of a key of `len` bytes that shares so many with the head, and has the
    /// others at `own`; zeros behind them.
    #[inline]
    fn joined(
        &self,
        block: &Block<'_>,
        shared: usize,
        own: usize,
        len: usize,
    ) -> Option<[u8; WORD_BYTES]> {
        // Of a long key, as much as the word holds.
        let from_head = shared.min(WORD_BYTES);
        let (head, all) = (FIRST_BYTES.get(from_head)?, FIRST_BYTES.get(len.min(WORD_BYTES))?);
        // Before the key's own bytes lies at least the head, and so as many as are shared.
        let rest = block.words(own.checked_sub(from_head)?)?;
        Some((self.word & head | rest & (all ^ head)).to_le_bytes())
    }
}

/// The first eight bytes.
#[inline]
fn word(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
}

/// By number of bytes, a word that has its first ones set.
const FIRST_BYTES: [u128; WORD_BYTES + 1] = {
    let mut masks = [u128::MAX; WORD_BYTES + 1];
    let mut bytes = 0;
    while bytes < WORD_BYTES {
        masks[bytes] = (1 << (8 * bytes)) - 1;
        bytes += 1;
    }
    masks
};

impl Stand {
    /// Forgets the block it stood in.
    #[inline]
    pub(crate) fn leave(&mut self) {
        (self.first, self.end) = (usize::MAX, 0);
    }

    #[inline]
    fn entry(&self) -> &Decoded {
        &self.decoded[self.i % TOGETHER]
    }

    /// The key it stands on.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        let entry = self.entry();
        entry.key.get(..entry.len as usize).unwrap_or(&self.long)
    }

    /// The head of what it stands on.
    #[inline]
    pub(crate) fn head(&self) -> KeyHead {
        self.entry().head()
    }

    /// When the entry was written.
    #[inline]
    pub(crate) fn seqno(&self) -> SeqNo {
        self.entry().trailer().0
    }

    /// What the entry says.
    #[inline]
    pub(crate) fn kind(&self) -> EntryKind {
        self.entry().trailer().1
    }

    /// Where the value lies in the payload.
    #[inline]
    pub(crate) fn value(&self) -> Range<usize> {
        let (start, end) = self.entry().value;
        start as usize..end as usize
    }

    /// Moves on by one, if that entry was decoded and its key is short.
    #[inline]
    pub(crate) fn next_at_hand(&mut self) -> Option<KeyHead> {
        self.at_hand(self.i + 1)
    }

    /// Moves back by one, if that entry was decoded and its key is short.
    #[inline]
    pub(crate) fn prev_at_hand(&mut self) -> Option<KeyHead> {
        self.at_hand(self.i.checked_sub(1)?)
    }

    /// Stands on entry `i`, if that was decoded and its key is short.
    #[inline]
    pub(crate) fn at_hand(&mut self, i: usize) -> Option<KeyHead> {
        let entry = &self.decoded[i % TOGETHER];
        if i < self.first || i >= self.end || entry.is_long() {
            return None;
        }
        self.i = i;
        Some(entry.head())
    }

    /// Stands on entry `i` of `block`: the one it stood in last, unless it left that. The walk is
    /// likely to go on that way.
    #[inline]
    pub(crate) fn move_to(&mut self, block: &Block<'_>, i: usize, way: Way) -> Result<(), Fault> {
        if i < self.first || i >= self.end {
            self.decode_ahead(block, i, way)?;
        }
        self.i = i;
        if self.entry().is_long() {
            return self.put_together(block);
        }
        Ok(())
    }

    /// Decodes entry `i`, and of those that are decoded together with it what lies ahead.
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

    /// Decodes entries that are decoded together. `None` if anything about one of them is uncommon,
    /// or wrong.
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

    /// Decodes entry `i`, whatever it is like, and those of `ahead` on both sides of it that can
    /// be.
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

    /// Puts the key it stands on together, which is a long one.
    fn put_together(&mut self, block: &Block<'_>) -> Result<(), Fault> {
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

    /// Whether the entry before this one has another key, if both were decoded; else `None`.
    #[inline]
    pub(crate) fn begins_key(&self) -> Option<bool> {
        let (before, entry) = (self.i.checked_sub(1)?, self.entry());
        if before < self.first || entry.is_long() {
            return None;
        }
        let before = &self.decoded[before % TOGETHER];
        Some((before.key, before.len) != (entry.key, entry.len))
    }

    /// As [`begins_key`](Self::begins_key), of any two entries of this block; `None` if it cannot
    /// be told, as where this is the first of its block.
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

/// Where the values of entries from `first` on lie.
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
    // Behind each value begins the next one, the padding or the keys.
    (start <= block.layout.value_offsets).then_some(())
}

/// Their sequence numbers and kinds.
#[inline]
fn decode_trailers(block: &Block<'_>, first: usize, places: &mut [Decoded]) -> Option<()> {
    let Layout { base, trailers, trailer_width, .. } = block.layout;
    let width = usize::from(trailer_width);
    let mask = u64::MAX.checked_shr(64 - 8 * u32::from(trailer_width)).unwrap_or(0);
    let mut trailers = block.payload.get(trailers as usize + width * first..)?;
    for place in places {
        place.trailer = base.checked_add(word(trailers)? & mask)?;
        unpack_trailer(place.trailer)?;
        trailers = trailers.get(width..)?;
    }
    Some(())
}

/// Their keys, in whose group `head` is the first.
#[inline]
fn decode_keys(block: &Block<'_>, head: &Head, first: usize, places: &mut [Decoded]) -> Option<()> {
    let (start, ends) = block.offsets_from(block.layout.key_offsets, first)?.split_first()?;
    let limit = block.layout.value_offsets;
    let mut left = block.count() - first;
    let mut start = offset(start);
    for (place, end) in places.iter_mut().zip(ends) {
        left -= 1;
        // Behind the block's last offset of a key lies none.
        let end = if left == 0 { limit } else { offset(end) };
        let shared = u32::from(*block.payload.get(start as usize)?);
        if start >= end || end > limit || shared >= 0x80 || shared > head.len as u32 {
            return None;
        }
        let own = start + 1;
        place.len = shared + end - own;
        place.key = head.joined(block, shared as usize, own as usize, place.len as usize)?;
        start = end;
    }
    Some(())
}

#[inline]
fn offset(bytes: &[u8; 2]) -> u32 {
    u32::from(u16::from_le_bytes(*bytes))
}

/// Decodes entry `i`, in whose group `head` is the first.
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

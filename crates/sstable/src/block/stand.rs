//! Where a walk stands in a block. Entries are decoded half a group at a time, so that most steps are
//! one up or down in a list of what was decoded.
//!
//! 1. When a walk enters half a group, the group's head is read, and then of each entry ahead the
//!    trailer, the place of the value, and the first 16 bytes of the key, put together in one word: the head's first
//!    bytes, the entry's own behind them, zeros behind both. Behind the keys of a block lie at least 16
//!    bytes more, so a whole word can be read wherever a key's own part begins.
//! 2. What cannot be decoded ends the list there, and is an error for the walk that steps on it, not
//!    for one that only comes near.
//! 3. A key of more than 16 bytes is put together in a buffer when the walk steps on it. Going forward
//!    within a group, keys share less and less with the head: what is needed of it is nearly always
//!    still there.
//!
//! Called by the cursor over a table. A fault leaves it standing nowhere that counts.

use std::ops::Range;

use trommel_base::entry::unpack_trailer;
use trommel_base::{EntryKind, KeyHead, SeqNo, first_words};

use super::{Block, OUTSIDE};
use crate::format::{Fault, GROUP_ENTRIES};

/// Longest key that is put together in a word, in bytes.
const WORD_BYTES: usize = 16;
/// Entries that are decoded together: half a group.
const TOGETHER: usize = GROUP_ENTRIES / 2;

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
    /// Entries that were decoded: some of half a group. Empty, with `first` behind everything, where there are none.
    first: usize,
    end: usize,
    /// Entry `i` at `i` modulo their number.
    decoded: [Decoded; TOGETHER],
    /// The key, where it is a long one. Its first bytes, as many as `agreeing`, are those of the head
    /// of the group that was decoded.
    long: Vec<u8>,
    agreeing: usize,
}

/// An entry, but for what lies behind the first bytes of its key.
#[derive(Debug, Clone, Copy)]
struct Decoded {
    /// The key's first bytes, and zeros.
    key: [u8; WORD_BYTES],
    seqno: SeqNo,
    /// The value, relative to the block's payload.
    value: (u32, u32),
    /// Length of the key.
    len: u32,
    /// How much of it the group's head has, and where the rest begins in the payload.
    shared: u32,
    own: u32,
    kind: EntryKind,
}

const NOTHING: Decoded = Decoded {
    key: [0; WORD_BYTES],
    seqno: 0,
    value: (0, 0),
    len: 0,
    shared: 0,
    own: 0,
    kind: EntryKind::Delete,
};

impl Decoded {
    #[inline]
    fn is_long(&self) -> bool {
        self.len > WORD_BYTES as u32
    }

    #[inline]
    fn head(&self) -> KeyHead {
        let Self { key, len, kind, seqno, .. } = *self;
        KeyHead { words: u128::from_le_bytes(key).swap_bytes(), len, kind, seqno }
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

    /// The first bytes of a key of `len` bytes that shares so many with the head, and has the others at
    /// `own`; zeros behind them.
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
        self.entry().seqno
    }

    /// What the entry says.
    #[inline]
    pub(crate) fn kind(&self) -> EntryKind {
        self.entry().kind
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

    #[inline]
    fn at_hand(&mut self, i: usize) -> Option<KeyHead> {
        let entry = &self.decoded[i % TOGETHER];
        if i < self.first || i >= self.end || entry.is_long() {
            return None;
        }
        self.i = i;
        Some(entry.head())
    }

    /// Stands on entry `i` of `block`: the one it stood in last, unless it left that. The walk is likely
    /// to go on that way.
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

    /// Decodes entries that are decoded together. `None` if anything about one of them is uncommon, or
    /// wrong.
    #[inline]
    fn decode_all(&mut self, block: &Block<'_>, head: &Head, entries: Range<usize>) -> Option<()> {
        let first = entries.start;
        let (payload, layout) = (block.payload, &block.layout);
        if layout.wide {
            return None;
        }
        let limit = usize::from(u16::try_from(layout.value_offsets).ok()?);
        let column = |start: u32, width: usize| payload.get(start as usize + width * first..);
        // Behind each column stands more than a walk reads beyond it.
        let (values, keys) = (column(layout.value_offsets, 2)?, column(layout.key_offsets, 2)?);
        let width = usize::from(layout.trailer_width);
        let mut trailers = column(layout.trailers, width)?;
        let mask = u64::MAX.checked_shr(64 - 8 * u32::from(layout.trailer_width)).unwrap_or(0);
        let (values, keys) = (values.as_chunks::<2>().0, keys.as_chunks::<2>().0);
        let offset = |bytes: &[u8; 2]| usize::from(u16::from_le_bytes(*bytes));
        let (mut value, mut key) = (offset(values.first()?), offset(keys.first()?));
        let ends = values.get(1..)?.iter().zip(keys.get(1..)?);
        for (at, (value_end, key_end)) in entries.zip(ends) {
            let value_end = offset(value_end);
            let key_end = if at + 1 < block.count() { offset(key_end) } else { limit };
            let shared = usize::from(*payload.get(key)?);
            let own = key + 1;
            let is_sound = value <= value_end && value_end <= limit && own <= key_end;
            if !is_sound || key_end > limit || shared >= 0x80 || shared > head.len {
                return None;
            }
            let trailer = layout.base.checked_add(word(trailers)? & mask)?;
            trailers = trailers.get(width..)?;
            let (seqno, kind) = unpack_trailer(trailer)?;
            let len = shared + key_end - own;
            let decoded = self.decoded.get_mut(at % TOGETHER)?;
            decoded.key = head.joined(block, shared, own, len)?;
            (decoded.seqno, decoded.kind) = (seqno, kind);
            decoded.value = (value as u32, value_end as u32);
            (decoded.len, decoded.shared, decoded.own) = (len as u32, shared as u32, own as u32);
            (value, key) = (value_end, key_end);
        }
        Some(())
    }

    /// Decodes entry `i`, whatever it is like, and those of `ahead` on both sides of it that can be.
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
        let Decoded { shared, own, len, .. } = *self.entry();
        let (shared, own) = (shared as usize, own as usize);
        let own = block.payload.get(own..own + len as usize - shared).ok_or(OUTSIDE)?;
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

    /// Whether the entry before this one, in the same block, has another key; `None` if that cannot be
    /// told, as where this is the first of its block.
    #[inline]
    pub(crate) fn begins_key(&self, block: &Block<'_>) -> Option<bool> {
        let (before, entry) = (self.i.checked_sub(1)?, self.entry());
        if before >= self.first && !entry.is_long() {
            let before = &self.decoded[before % TOGETHER];
            return Some((before.key, before.len) != (entry.key, entry.len));
        }
        self.begins_key_by_tag(block, before)
    }

    /// As `begins_key`, where the entry before this one was not decoded, or its key is long.
    fn begins_key_by_tag(&self, block: &Block<'_>, before: usize) -> Option<bool> {
        if block.tag(before)? != block.tag(self.i)? {
            return Some(true);
        }
        let (shared, own) = block.key(before).ok()?;
        let key = self.key();
        let is_same =
            shared.len() + own.len() == key.len() && key.ends_with(own) && key.starts_with(shared);
        Some(!is_same)
    }
}

/// Decodes entry `i`, in whose group `head` is the first.
fn decode(block: &Block<'_>, head: &Head, i: usize) -> Result<Decoded, Fault> {
    let (seqno, kind) = block.trailer(i)?;
    let value = block.value_place(i)?;
    let (start, end) = block.key_place(i)?;
    let (shared, own) = block.shared(start, end)?;
    if shared > head.len {
        return Err(TOO_MUCH_SHARED);
    }
    let len = shared + end - own;
    let key = head.joined(block, shared, own, len).ok_or(OUTSIDE)?;
    let (len, shared, own) = (len as u32, shared as u32, own as u32);
    Ok(Decoded { key, seqno, value, len, shared, own, kind })
}

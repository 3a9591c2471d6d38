//! Where a walk stands in a block, and the entry there: each step decodes one entry.
//!
//! 1. A key of at most 16 bytes is put together in a word: the head's first bytes, the entry's own
//!    behind them, zeros behind both. Behind the keys of a block lie at least 16 bytes more, so a whole
//!    word can be read wherever a key's own part begins.
//! 2. A longer key is put together in a buffer that is reused. Going forward within a group, keys share
//!    less and less with the head: what is needed of it is nearly always still there.
//! 3. A group's head is read once, when the walk enters the group.
//!
//! Called by the cursor over a table. A fault leaves it standing nowhere that counts.

use std::ops::Range;

use trommel_base::{EntryKind, SeqNo};

use super::{Block, OUTSIDE};
use crate::format::{Fault, GROUP_ENTRIES};

/// Longest key that is put together in a word, in bytes.
const WORD_BYTES: usize = 16;
/// No group of any block.
const NO_GROUP: usize = usize::MAX;

const TOO_MUCH_SHARED: Fault = Fault::Damaged("a key shares more than its head has");

/// A position in a block.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) i: usize,
    pub(crate) seqno: SeqNo,
    pub(crate) kind: EntryKind,
    /// The value, relative to the block's payload.
    value: (u32, u32),
    /// Length of the key.
    len: usize,
    /// A short key, and zeros.
    short: [u8; WORD_BYTES],
    /// A long key. Its first bytes, as many as `agreeing`, are those of the group's head.
    long: Vec<u8>,
    agreeing: usize,
    /// The group whose head is known.
    group: usize,
    /// The head's first bytes, and zeros.
    head: u128,
    head_len: usize,
}

impl Default for Stand {
    fn default() -> Self {
        Self {
            i: 0,
            seqno: 0,
            kind: EntryKind::Delete,
            value: (0, 0),
            len: 0,
            short: [0; WORD_BYTES],
            long: Vec::new(),
            agreeing: 0,
            group: NO_GROUP,
            head: 0,
            head_len: 0,
        }
    }
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
        self.group = NO_GROUP;
    }

    /// The key it stands on.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.short.get(..self.len).unwrap_or(&self.long)
    }

    /// Where the value lies in the payload.
    #[inline]
    pub(crate) fn value(&self) -> Range<usize> {
        self.value.0 as usize..self.value.1 as usize
    }

    /// Stands on entry `i` of `block`: the one it stood in last, unless it left that.
    #[inline]
    pub(crate) fn move_to(&mut self, block: &Block<'_>, i: usize) -> Result<(), Fault> {
        let group = i / GROUP_ENTRIES;
        if self.group != group {
            self.enter_group(block, group)?;
        }
        (self.seqno, self.kind) = block.trailer(i)?;
        self.value = block.value_place(i)?;
        self.i = i;
        let (start, end) = block.key_place(i)?;
        let (shared, own) = block.shared(start, end)?;
        let len = shared + end - own;
        if len > WORD_BYTES {
            return self.put_together(block, i, shared, own..end);
        }
        self.len = len;
        self.short = self.word(block, shared, own, len)?.to_le_bytes();
        Ok(())
    }

    /// A key of `len` bytes, of which the group's head has `shared` and the others lie at `own`.
    #[inline]
    fn word(
        &self,
        block: &Block<'_>,
        shared: usize,
        own: usize,
        len: usize,
    ) -> Result<u128, Fault> {
        if shared > self.head_len {
            return Err(TOO_MUCH_SHARED);
        }
        let (Some(from_head), Some(all)) = (FIRST_BYTES.get(shared), FIRST_BYTES.get(len)) else {
            return Err(OUTSIDE);
        };
        // Before the key's own bytes lies at least the head, and so as many as are shared.
        let rest = own.checked_sub(shared).and_then(|start| block.words(start)).ok_or(OUTSIDE)?;
        Ok(self.head & from_head | rest & (all ^ from_head))
    }

    fn enter_group(&mut self, block: &Block<'_>, group: usize) -> Result<(), Fault> {
        self.leave();
        let head = block.head(group * GROUP_ENTRIES)?;
        let mut first = [0; WORD_BYTES];
        let len = head.len().min(WORD_BYTES);
        if let (Some(room), Some(bytes)) = (first.get_mut(..len), head.get(..len)) {
            room.copy_from_slice(bytes);
        }
        (self.head, self.head_len) = (u128::from_le_bytes(first), head.len());
        self.agreeing = 0;
        self.group = group;
        Ok(())
    }

    /// As the end of `move_to`, of a long key.
    fn put_together(
        &mut self,
        block: &Block<'_>,
        i: usize,
        shared: usize,
        own: Range<usize>,
    ) -> Result<(), Fault> {
        let own = block.payload.get(own).ok_or(OUTSIDE)?;
        self.len = shared + own.len();
        self.long.truncate(self.agreeing.min(shared));
        if shared > self.agreeing {
            let head = block.head(i)?.get(self.agreeing..shared).ok_or(TOO_MUCH_SHARED)?;
            self.long.extend_from_slice(head);
        }
        self.long.extend_from_slice(own);
        self.agreeing = if i.is_multiple_of(GROUP_ENTRIES) { self.len } else { shared };
        Ok(())
    }

    /// Whether the entry before this one, in the same block, has another key; `None` if that cannot be
    /// told, as where this is the first of its block.
    #[inline]
    pub(crate) fn begins_key(&self, block: &Block<'_>) -> Option<bool> {
        let before = self.i.checked_sub(1)?;
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

//! The search of a block for the first entry at or after a key and a sequence number.
//!
//! 1. A binary search over the heads of the groups finds the last one before the target, and
//!    another one within that group its last entry before the target.
//! 2. Keys are compared by their first sixteen bytes, as numbers. Where these are equal, the rest
//!    of the bytes, the lengths and the sequence numbers decide.
//! 3. In a group whose head agrees with the target in all sixteen bytes, entries are compared by
//!    what follows the prefix that they share with the head.

use std::cmp::Ordering;

use trommel_base::{SeqNo, first_words};

use super::head::{Head, WORD_BYTES};
use super::{Block, StoredKey, common_prefix};
use crate::format::{Fault, GROUP_ENTRIES};

/// What is searched for.
#[derive(Clone, Copy)]
struct Target<'k> {
    key: &'k [u8],
    /// The first bytes of the key as a number of the same order.
    words: u128,
    seqno: SeqNo,
}

impl Block<'_> {
    /// The first entry at or after (`key`, `seqno`); the count if there is none.
    #[inline]
    pub(crate) fn seek(&self, key: &[u8], seqno: SeqNo) -> Result<usize, Fault> {
        self.seek_from(0, key, seqno)
    }

    /// Like `seek`, from the start of the group of entry `from`.
    pub(super) fn seek_from(&self, from: usize, key: &[u8], seqno: SeqNo) -> Result<usize, Fault> {
        let target = Target { key, words: first_words(key), seqno };
        let first_group = from / GROUP_ENTRIES;
        // Heads before `low` are smaller than the target; heads from `high` on are not.
        let (mut low, mut high) = (first_group, self.count().div_ceil(GROUP_ENTRIES));
        // The head of the group before `low`, and its words.
        let mut last: (&[u8], u128) = (&[], 0);
        while low < high {
            let middle = low + (high - low) / 2;
            let i = middle * GROUP_ENTRIES;
            let head = self.head(i)?;
            let words = first_words(head);
            let is_before = match words == target.words {
                true => self.is_before(i, head, key, seqno)?,
                false => words < target.words,
            };
            if is_before {
                (low, last) = (middle + 1, (head, words));
            } else {
                high = middle;
            }
        }
        if low == first_group {
            return Ok(low * GROUP_ENTRIES);
        }
        self.seek_in_group(low - 1, last, &target)
    }

    #[inline]
    fn is_before(&self, i: usize, own: &[u8], key: &[u8], seqno: SeqNo) -> Result<bool, Fault> {
        Ok(match own.cmp(key) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.trailer(i)?.0 > seqno,
        })
    }

    /// The first entry at or after the target in `group`, whose head is smaller than the target;
    /// the start of the next group if there is none.
    #[inline]
    fn seek_in_group(
        &self,
        group: usize,
        (head, head_words): (&[u8], u128),
        target: &Target<'_>,
    ) -> Result<usize, Fault> {
        let Target { key, words, seqno } = *target;
        if head_words == words {
            let common = common_prefix(head, key);
            return self.search_group(group, |i| self.is_before_behind(i, common, target));
        }
        let shown = Head::of_words(head_words, head.len());
        self.search_group(group, |i| match self.words_of(i, &shown) {
            Some((own, _)) if own != words => Ok(own < words),
            // Both keys are in their words, padded with zeros.
            Some((_, len)) if len.max(key.len()) <= WORD_BYTES => match len.cmp(&key.len()) {
                Ordering::Equal => Ok(self.trailer(i)?.0 > seqno),
                order => Ok(order.is_lt()),
            },
            _ => self.is_before_behind(i, common_prefix(head, key), target),
        })
    }

    /// The first entry of `group` after its head that is not before the target; the start of the
    /// next group if there is none.
    #[inline(always)]
    fn search_group(
        &self,
        group: usize,
        is_before: impl Fn(usize) -> Result<bool, Fault>,
    ) -> Result<usize, Fault> {
        let mut low = group * GROUP_ENTRIES + 1;
        let mut high = self.count().min((group + 1) * GROUP_ENTRIES);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(middle)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The first bytes of the key of entry `i` as a number, and the key's length; `head` is the
    /// head of its group. `None` if they are not easily read.
    #[inline]
    fn words_of(&self, i: usize, head: &Head) -> Option<(u128, usize)> {
        let (start, next) = self.offsets(self.layout.key_offsets, i)?;
        let end = if i + 1 < self.count() { next } else { self.layout.value_offsets };
        let (own, end) = (start as usize + 1, end as usize);
        let shared = usize::from(*self.payload.get(start as usize)?);
        if own > end || shared >= 0x80 {
            return None;
        }
        let len = shared + end - own;
        let joined = head.joined(self, shared, own, len)?;
        Some((u128::from_le_bytes(joined).swap_bytes(), len))
    }

    /// Whether entry `i` is before the target, which has the first `common` bytes of the head of
    /// its group, and not the next one.
    #[inline(never)]
    fn is_before_behind(
        &self,
        i: usize,
        common: usize,
        target: &Target<'_>,
    ) -> Result<bool, Fault> {
        let StoredKey { shared, suffix } = self.stored_key(i)?;
        // An entry that shares with the head the byte in which the head is smaller than the target
        // is smaller too. All others equal the target in the shared part.
        match target.key.get(shared..) {
            Some(rest) if shared <= common => self.is_before(i, suffix, rest, target.seqno),
            _ => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use trommel_base::entry::pack_trailer;
    use trommel_base::{EntryKind, MAX_SEQNO, compare_internal};

    use super::*;
    use crate::block::{BlockBuilder, Layout, Position, Way};

    /// A version of a key.
    type Version = (Vec<u8>, SeqNo);

    fn kind_of(seqno: SeqNo) -> EntryKind {
        if seqno % 4 == 1 { EntryKind::Delete } else { EntryKind::Put }
    }

    fn value_of((key, seqno): &Version) -> Vec<u8> {
        [key.as_slice(), &seqno.to_le_bytes()].concat()
    }

    /// The payload of a block of these entries.
    fn payload_of(entries: &[Version]) -> Vec<u8> {
        let (mut builder, mut out) = (BlockBuilder::default(), Vec::new());
        builder.begin(0);
        for entry in entries {
            let trailer = pack_trailer(entry.1, kind_of(entry.1));
            builder.add(&mut out, &entry.0, trailer, 0, &value_of(entry));
        }
        builder.finish(&mut out);
        out
    }

    /// Keys that agree in more and in fewer than the bytes of a word, and differ in trailing zeros.
    fn keys(prefix: usize) -> BTreeSet<Vec<u8>> {
        let tails: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"ab", b"\xff\xff"];
        let middles: [&[u8]; 5] = [b"", b"a", b"aaaaaaaa", b"aaaaaaab", b"b\0\0\0\0\0\0\0\0"];
        let tails = middles.iter().flat_map(|middle| tails.map(|tail| [*middle, tail].concat()));
        let mut keys: BTreeSet<_> = tails.map(|tail| [vec![b'p'; prefix], tail].concat()).collect();
        // A few that have little of it.
        keys.extend([b"o".to_vec(), vec![b'p'; prefix / 2], b"q".to_vec(), b"q\0".to_vec()]);
        keys
    }

    /// Calls `check` with blocks of different lengths and widths, and the entries of each.
    fn with_blocks(check: impl Fn(&Block<'_>, &[Version], &BTreeSet<Vec<u8>>)) {
        for prefix in [0, 3, 8, 14, 15, 16, 17, 40, 127, 128, 300] {
            let keys = keys(prefix);
            let versions =
                keys.iter().flat_map(|key| [900, 5, 4].map(|seqno| (key.clone(), seqno)));
            let all: Vec<Version> = versions.collect();
            for len in [1, 2, 8, 9, 15, 16, 17, 18, 33, 70, all.len()] {
                for entries in all.chunks(len) {
                    let payload = payload_of(entries);
                    let layout = Layout::parse(&payload).unwrap();
                    check(&Block { payload: &payload, layout }, entries, &keys);
                }
            }
        }
    }

    #[test]
    fn a_seek_finds_the_first_entry_that_is_not_before() {
        with_blocks(|block, entries, keys| {
            let others = keys.iter().map(|key| [key, &b"\0"[..]].concat());
            for key in keys.iter().cloned().chain(others) {
                for seqno in [0, 3, 4, 5, 6, MAX_SEQNO] {
                    let before =
                        |entry: &Version| compare_internal(&entry.0, entry.1, &key, seqno).is_lt();
                    let expected = entries.partition_point(before);
                    let found = block.seek(&key, seqno).unwrap();
                    assert_eq!(found, expected, "{key:?} {seqno} in {entries:?}");
                }
            }
        });
    }

    #[test]
    fn each_entry_is_decoded_from_either_side() {
        with_blocks(|block, entries, _| {
            for (start, way) in [(0, Way::Onward), (5, Way::Onward), (0, Way::Back), (3, Way::Back)]
            {
                let mut position = Position::default();
                let steps: Vec<usize> = match way {
                    Way::Onward => (start..entries.len()).collect(),
                    Way::Back => (0..entries.len().saturating_sub(start)).rev().collect(),
                };
                for i in steps {
                    position.move_to(block, i, way).unwrap();
                    let (entry, value) = (&entries[i], &block.payload[position.value()]);
                    assert_eq!((position.key(), position.seqno()), (&*entry.0, entry.1));
                    assert_eq!((position.kind(), value), (kind_of(entry.1), &*value_of(entry)));
                }
            }
        });
    }
}

//! The search of a block for the first entry at or after a key and a sequence number.
//!
//! 1. A binary search over the heads of the groups finds the last one before the target, and
//!    another one within that group its last entry before the target.
//! 2. Heads are compared by their first sixteen bytes, as numbers. Where these are equal, the rest
//!    of the bytes, the lengths and the sequence numbers decide.
//! 3. An entry that shares with its head the byte in which the head is smaller than the target is
//!    smaller too. Any other entry is compared by the bytes after the prefix that it shares with
//!    the head: first by eight of them as a number, then by the rest if these are equal.

use std::cmp::Ordering;

use trommel_base::{SeqNo, first_word, first_words};

use super::head::{Head, WORD_BYTES};
use super::{Block, StoredKey, common_prefix};
use crate::format::{Fault, GROUP_ENTRIES};

/// First bytes of a target's key that are compared as words: eight after any that a word holds.
const SHOWN_BYTES: usize = WORD_BYTES + 8;

/// The target of a search.
#[derive(Clone, Copy)]
struct Target<'k> {
    key: &'k [u8],
    /// The first bytes of the key as a number of the same order.
    words: u128,
    seqno: SeqNo,
}

impl Target<'_> {
    /// The first bytes of the key, followed by zeros.
    #[inline]
    fn shown(&self) -> [u8; SHOWN_BYTES] {
        let mut shown = [0; SHOWN_BYTES];
        let (first, rest) = shown.split_at_mut(WORD_BYTES);
        first.copy_from_slice(&self.words.swap_bytes().to_le_bytes());
        if let Some(behind) = self.key.get(WORD_BYTES..).filter(|behind| !behind.is_empty()) {
            rest.copy_from_slice(&first_word(behind).swap_bytes().to_le_bytes());
        }
        shown
    }
}

/// The result of a search.
pub(super) struct SeekResult {
    /// The first entry at or after the target; the count if there is none.
    pub(super) i: usize,
    /// The last group whose head is before the target, if that is known, and its head.
    pub(super) group: Option<(usize, Head)>,
}

impl Block<'_> {
    /// Searches for the first entry at or after (`key`, `seqno`).
    #[inline]
    pub(super) fn seek(&self, key: &[u8], seqno: SeqNo) -> Result<SeekResult, Fault> {
        let target = Target { key, words: first_words(key), seqno };
        match self.seek_by_words(&target) {
            Some(found) => Ok(found),
            None => Ok(SeekResult { i: self.seek_from(0, key, seqno)?, group: None }),
        }
    }

    /// As `seek`, if the heads and the target differ in their first bytes and nothing is uncommon.
    /// Separate from the general search, so that its variables stay in registers.
    #[inline(never)]
    fn seek_by_words(&self, target: &Target<'_>) -> Option<SeekResult> {
        if self.layout.wide {
            return None;
        }
        let groups = self.count().div_ceil(GROUP_ENTRIES);
        let (mut low, mut high, mut last) = (0, groups, (0, 0));
        while low < high {
            let middle = low + (high - low) / 2;
            let head = self.narrow_head(middle * GROUP_ENTRIES)?;
            if head.0 == target.words {
                return None;
            }
            if head.0 < target.words {
                (low, last) = (middle + 1, head);
            } else {
                high = middle;
            }
        }
        let Some(group) = low.checked_sub(1) else {
            return Some(SeekResult { i: 0, group: None });
        };
        let (words, len) = last;
        // The bytes before the first one in which the head is smaller than the target.
        let common = (words ^ target.words).leading_zeros() / 8;
        let shown = target.shown();
        let found = self.search_group(group, |i| match self.is_before_by_word(i, common, &shown) {
            Some(is_before) => Ok(is_before),
            None => self.is_before_whole(i, target),
        });
        let group = (group, Head::of_words(words, len as usize));
        Some(SeekResult { i: found.ok()?, group: Some(group) })
    }

    /// The first bytes of the key of the head `i` of a group as a number, and its length, if its
    /// offsets are narrow.
    #[inline(always)]
    fn narrow_head(&self, i: usize) -> Option<(u128, u32)> {
        let (start, end) = self.narrow_key(i as u32)?;
        let [shared] = *self.bytes(start)?;
        let own = start + 1;
        let len = end.checked_sub(own)?;
        if shared > 0 || end > self.layout.value_offsets {
            return None;
        }
        // At least sixteen bytes follow the keys.
        let words = u128::from_le_bytes(*self.bytes(own)?).swap_bytes();
        let words = if len < 16 { words & !(u128::MAX >> (8 * len)) } else { words };
        Some((words, len))
    }

    /// Like `seek`, from the start of the group of entry `from`; returns only the entry.
    #[inline(never)]
    pub(super) fn seek_from(&self, from: usize, key: &[u8], seqno: SeqNo) -> Result<usize, Fault> {
        let target = Target { key, words: first_words(key), seqno };
        let first_group = from / GROUP_ENTRIES;
        // Heads before `low` are smaller than the target; heads from `high` on are not.
        let (mut low, mut high) = (first_group, self.count().div_ceil(GROUP_ENTRIES));
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
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low == first_group {
            return Ok(low * GROUP_ENTRIES);
        }
        let common = common_prefix(self.head((low - 1) * GROUP_ENTRIES)?, key);
        self.search_group(low - 1, |i| self.is_before_behind(i, common, &target))
    }

    #[inline]
    fn is_before(&self, i: usize, own: &[u8], key: &[u8], seqno: SeqNo) -> Result<bool, Fault> {
        Ok(match own.cmp(key) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.trailer(i)?.0 > seqno,
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

    /// As `is_before_behind`, by the first eight bytes after the prefix that the entry shares with
    /// the head of its group. `shown` are the first bytes of the target's key. `None` if they do
    /// not decide.
    #[inline(always)]
    fn is_before_by_word(&self, i: usize, common: u32, shown: &[u8; SHOWN_BYTES]) -> Option<bool> {
        if self.layout.wide {
            return None;
        }
        let (start, end) = self.narrow_key(i as u32)?;
        let [shared] = *self.bytes(start)?;
        let (own, shared) = (start + 1, u32::from(shared));
        if shared > common {
            // A longer number takes two bytes.
            return (shared < 0x80).then_some(true);
        }
        // At least eight bytes follow the keys.
        let word = u64::from_le_bytes(*self.bytes(own)?).swap_bytes();
        let len = end.checked_sub(own)?;
        let word = if len < 8 { word & !(u64::MAX >> (8 * len)) } else { word };
        let sought = shown.get(shared as usize..shared as usize + 8)?.first_chunk()?;
        let sought = u64::from_le_bytes(*sought).swap_bytes();
        (word != sought).then_some(word < sought)
    }

    /// As `is_before_behind`, if the head was read only in part.
    #[inline(never)]
    fn is_before_whole(&self, i: usize, target: &Target<'_>) -> Result<bool, Fault> {
        self.is_before_behind(i, common_prefix(self.head(i)?, target.key), target)
    }

    /// Whether entry `i` is before the target, which has the first `common` bytes of the head of
    /// its group, and not the next one.
    #[inline]
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
        // A few keys that share little of the prefix.
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
                    check(&Block { payload: &payload, layout: &layout }, entries, &keys);
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
                    let found = block.seek(&key, seqno).unwrap().i;
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

    /// Single entries and half groups are decoded in turns, and overwrite one another.
    #[test]
    fn steps_within_a_block_reach_each_neighbour() {
        with_blocks(|block, entries, _| {
            let (mut position, mut at) = (Position::default(), entries.len() / 2);
            position.move_to(block, at, Way::Onward).unwrap();
            for step in 0..4 * entries.len() {
                // Ever longer moves in both directions, and a seek now and then.
                let is_onward = step % 7 < 4 || step % 31 > 20;
                if step % 40 == 39 {
                    position.restart();
                }
                let next = if is_onward { Some(at + 1) } else { at.checked_sub(1) };
                let Some(next) = next.filter(|next| *next < entries.len()) else { continue };
                let hand = match is_onward {
                    true => position.next_at_hand().or_else(|| position.next_in(block)),
                    false => position.prev_at_hand().or_else(|| position.prev_in(block)),
                };
                let is_short = entries[next].0.len() <= WORD_BYTES;
                assert_eq!(hand.is_some(), is_short, "{:?}", entries[next]);
                at = if is_short { next } else { at };
                let (entry, value) = (&entries[at], &block.payload[position.value()]);
                assert_eq!((position.key(), position.seqno()), (&*entry.0, entry.1));
                assert_eq!((position.kind(), value), (kind_of(entry.1), &*value_of(entry)));
                if !is_short {
                    let way = if is_onward { Way::Onward } else { Way::Back };
                    position.move_to(block, next, way).unwrap();
                    at = next;
                    assert_eq!(position.key(), entries[at].0);
                }
            }
        });
    }

    /// Long keys of several groups, whose heads differ early, among short ones.
    #[test]
    fn long_keys_are_assembled_from_the_head_of_their_group() {
        let key = |i: u64| match (i * 7) % 5 {
            0 | 1 => format!("{:04}-{i:04}", i / 16),
            _ => format!("{:04}-{i:04}{}", i / 16, "-long".repeat(4 + i as usize / 40)),
        };
        let entries: Vec<Version> = (0..160).map(|i| (key(i).into_bytes(), i)).collect();
        let payload = payload_of(&entries);
        let layout = Layout::parse(&payload).unwrap();
        let block = Block { payload: &payload, layout: &layout };
        let (mut position, mut at, mut draw) = (Position::default(), 0, 1_u64);
        position.move_to(&block, at, Way::Onward).unwrap();
        for step in 0..20_000 {
            draw = draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let way = if draw >> 60 < 8 { Way::Onward } else { Way::Back };
            if draw >> 40 & 15 == 0 {
                position.restart();
                let sought = (draw >> 44) as usize % entries.len();
                // The scan continues from the entry that the seek finds, or from the one before it.
                let i = position.find(&block, &entries[sought].0, MAX_SEQNO).unwrap();
                assert_eq!(i, sought);
                at = i.saturating_sub((draw >> 52 & 1) as usize);
                if at < i || !position.land(&block, i) {
                    position.move_to(&block, at, way).unwrap();
                }
            } else {
                let next = match way {
                    Way::Onward => Some(at + 1),
                    Way::Back => at.checked_sub(1),
                };
                let Some(next) = next.filter(|next| *next < entries.len()) else { continue };
                let hand = match way {
                    Way::Onward => position.next_at_hand().or_else(|| position.next_in(&block)),
                    Way::Back => position.prev_at_hand().or_else(|| position.prev_in(&block)),
                };
                if hand.is_none() {
                    position.move_to(&block, next, way).unwrap();
                }
                at = next;
            }
            let shown = String::from_utf8_lossy(position.key()).into_owned();
            assert_eq!(shown.as_bytes(), entries[at].0, "entry {at}, step {step}");
        }
    }

    /// A backward scan would otherwise continue from an entry of the half group that it could not
    /// decode.
    #[test]
    fn a_step_to_a_corrupt_entry_leaves_the_current_one() {
        let (mut builder, mut out) = (BlockBuilder::default(), Vec::new());
        builder.begin(0);
        let key = |i: u64| format!("{i:04}").into_bytes();
        for i in 0..40 {
            // No entry has such a kind.
            let trailer = if i == 15 { i << 8 | 0x77 } else { pack_trailer(i, EntryKind::Put) };
            builder.add(&mut out, &key(i), trailer, 0, &key(i));
        }
        builder.finish(&mut out);
        let layout = Layout::parse(&out).unwrap();
        let block = Block { payload: &out, layout: &layout };
        for (from, way) in [(16, Way::Back), (14, Way::Onward)] {
            for singles in [0, 10] {
                let mut position = Position::default();
                (0..singles).for_each(|i| position.move_to(&block, 20 + i, way).unwrap());
                position.move_to(&block, from, way).unwrap();
                let step = match way {
                    Way::Onward => position.next_in(&block),
                    Way::Back => position.prev_in(&block),
                };
                assert_eq!(step, None);
                assert_eq!((position.i, position.key()), (from, &*key(from as u64)));
                assert_eq!(out[position.value()], *key(from as u64));
                assert!(position.move_to(&block, 15, way).is_err());
            }
        }
    }
}

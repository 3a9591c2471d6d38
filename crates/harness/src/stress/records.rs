//! The entries stored: keys in the order of their numbers, and self-verifying values.
//!
//! The nth write of a key is its *generation* n. The seed, the key and the generation determine the
//! write: whether it is a delete, and the length and contents of its value. So a key's history is
//! its last generation, and every byte of a value can be checked:
//!
//! ```text
//! value   := key (4) generation (4) members (1) member* filling
//! member  := key (4) generation (4)        all writes of the batch, in their order
//! ```
//!
//! A single write has no members. The filling is pseudo-random, and half of it repeats. A reader
//! that finds one value of a batch can check the other members: none of them may be older.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Keys in one block, which share a prefix and a lock.
pub(super) const BLOCK_KEYS: u32 = 64;
/// Maximum number of writes in one batch.
pub(super) const MAX_MEMBERS: usize = 16;
const HEAD_BYTES: usize = 9;
const MEMBER_BYTES: usize = 8;

/// A key's number, and a generation.
pub(super) type Member = (u32, u32);

/// The parameters of all keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordSpec {
    /// Number of keys ever written: their numbers are below this.
    pub(super) keys: u32,
    /// Minimum bytes of a value; its head is never left out.
    pub(super) min_value: u32,
    /// Maximum bytes of a value, without the head.
    pub(super) max_value: u32,
    /// Seed of everything else.
    pub(super) seed: u64,
}

/// A parsed value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) key: u32,
    pub(super) generation: u32,
    /// Writes of its batch; empty for a single write.
    pub(super) members: Vec<Member>,
}

impl RecordSpec {
    /// The key of this number. Larger numbers have larger keys; some have a long tail.
    pub(super) fn key(&self, number: u32) -> Vec<u8> {
        let mut key = self.prefix(number / BLOCK_KEYS);
        key.extend_from_slice(format!("{:02}", number % BLOCK_KEYS).as_bytes());
        let draw = self.draw(number, 0);
        let tail = match draw % 32 {
            0 => draw >> 8 & 0xff,
            1..8 => draw >> 8 & 0xf,
            _ => 0,
        };
        key.extend((0..tail).map(|at| b'a' + ((draw >> 16) + at) as u8 % 26));
        key
    }

    /// The prefix of exactly the keys of a block.
    pub(super) fn prefix(&self, block: u32) -> Vec<u8> {
        format!("{block:08}/").into_bytes()
    }

    /// The number of a key, if it is valid.
    pub(super) fn number(&self, key: &[u8]) -> Option<u32> {
        let text = str::from_utf8(key.get(..11)?).ok()?;
        let (block, rest) = text.split_once('/')?;
        let block: u32 = block.parse().ok()?;
        let number = block.checked_mul(BLOCK_KEYS)?.checked_add(rest.parse().ok()?)?;
        (number < self.keys && self.key(number) == key).then_some(number)
    }

    /// Number of blocks; the last may be smaller.
    pub(super) fn blocks(&self) -> u32 {
        self.keys.div_ceil(BLOCK_KEYS)
    }

    /// The numbers of a block's keys.
    pub(super) fn block(&self, block: u32) -> std::ops::Range<u32> {
        let start = block * BLOCK_KEYS;
        start..(start.saturating_add(BLOCK_KEYS)).min(self.keys)
    }

    /// Whether this write deletes the key. Generation 0, before the first write, counts as a
    /// delete. Some blocks have more deletes than others.
    pub(super) fn is_delete(&self, key: u32, generation: u32) -> bool {
        let often = [1, 1, 2, 6][self.draw(key / BLOCK_KEYS, u32::MAX) as usize % 4];
        generation == 0 || self.draw(key, generation) % 8 < often
    }

    /// Bytes of the key and value after this write, as a single write.
    pub(super) fn bytes(&self, key: u32, generation: u32) -> u64 {
        if self.is_delete(key, generation) {
            return 0;
        }
        self.key(key).len() as u64 + self.value_bytes(key, generation).max(HEAD_BYTES) as u64
    }

    fn value_bytes(&self, key: u32, generation: u32) -> usize {
        let span = u64::from(self.max_value.saturating_sub(self.min_value)) + 1;
        self.min_value as usize + ((self.draw(key, generation) >> 8) % span) as usize
    }

    /// The value of a write.
    pub(super) fn value(&self, key: u32, generation: u32, members: &[Member]) -> Vec<u8> {
        let mut value = Vec::with_capacity(HEAD_BYTES + members.len() * MEMBER_BYTES);
        value.extend(key.to_le_bytes());
        value.extend(generation.to_le_bytes());
        value.push(members.len() as u8);
        for (key, generation) in members {
            value.extend(key.to_le_bytes());
            value.extend(generation.to_le_bytes());
        }
        let mut rng = Rng::with_seed(self.draw(key, generation));
        let bytes = self.value_bytes(key, generation);
        while value.len() < bytes {
            let word = rng.u64(..).to_le_bytes();
            let repeated = if rng.bool() { [word[0]; 8] } else { word };
            let room = bytes - value.len();
            value.extend_from_slice(&repeated[..room.min(8)]);
        }
        value
    }

    /// Parses a value; none unless every byte is as some write made it.
    pub(super) fn parse(&self, value: &[u8]) -> Option<Found> {
        let number = |at: usize| {
            let bytes = value.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let (key, generation) = (number(0)?, number(4)?);
        let count = usize::from(*value.get(8)?);
        if count > MAX_MEMBERS {
            return None;
        }
        let members = (0..count).map(|nth| {
            let at = HEAD_BYTES + nth * MEMBER_BYTES;
            Some((number(at)?, number(at + 4)?))
        });
        let members = members.collect::<Option<Vec<Member>>>()?;
        let is_ours = key < self.keys && !self.is_delete(key, generation);
        let is_whole = is_ours && self.value(key, generation, &members) == value;
        is_whole.then_some(Found { key, generation, members })
    }

    /// 64 bits that differ for each write (splitmix64).
    fn draw(&self, key: u32, generation: u32) -> u64 {
        let mut word = self.seed ^ (u64::from(key) << 32 | u64::from(generation));
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

/// The range between the writes known before a read and those in flight after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// The last write acknowledged before the read began.
    pub(super) low: u32,
    /// The last write issued before the read ended.
    pub(super) high: u32,
}

impl Window {
    /// A window of exactly one state.
    #[cfg(test)]
    fn exactly(generation: u32) -> Self {
        Self { low: generation, high: generation }
    }

    /// Whether the window permits this result: a write of this generation, or nothing.
    pub(super) fn admits(self, records: &RecordSpec, key: u32, found: Option<u32>) -> bool {
        match found {
            Some(generation) => (self.low..=self.high).contains(&generation),
            None => (self.low..=self.high).any(|nth| records.is_delete(key, nth)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: RecordSpec = RecordSpec { keys: 1000, min_value: 16, max_value: 300, seed: 7 };

    #[test]
    fn keys_sort_as_their_numbers_and_foreign_keys_are_recognised() {
        let keys: Vec<Vec<u8>> = (0..1000).map(|number| RECORDS.key(number)).collect();
        assert!(keys.is_sorted() && keys.iter().any(|key| key.len() > 50));
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(RECORDS.number(key), Some(number as u32));
            let block = number as u32 / BLOCK_KEYS;
            assert!(
                key.starts_with(&RECORDS.prefix(block))
                    && RECORDS.block(block).contains(&(number as u32))
            );
        }
        for strange in
            [&b""[..], b"k", b"00000000/0", b"00000000/64", b"99999999/00", b"00000000x00"]
        {
            assert_eq!(RECORDS.number(strange), None, "{strange:?}");
        }
        assert_eq!(RECORDS.number(&RECORDS.key(1000)), None, "beyond the last");
    }

    #[test]
    fn no_bit_of_a_value_can_change() {
        let (key, generation) = (5, (1..).find(|nth| !RECORDS.is_delete(5, *nth)).unwrap());
        for members in [vec![], vec![(5, generation), (6, 3)]] {
            let value = RECORDS.value(key, generation, &members);
            assert_eq!(RECORDS.parse(&value), Some(Found { key, generation, members }));
            for bit in 0..value.len() * 8 {
                let mut flipped = value.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let parsed = RECORDS.parse(&flipped);
                let is_distinguished = parsed.is_none_or(|found| {
                    // A flipped bit in the list of members gives another valid value.
                    (found.key, found.generation) == (key, generation) && bit / 8 > 8
                });
                assert!(is_distinguished, "bit {bit}");
            }
            assert_eq!(RECORDS.parse(&value[..value.len() - 1]), None);
        }
    }

    #[test]
    fn a_window_admits_the_states_within_it() {
        let put = (1..).find(|nth| !RECORDS.is_delete(9, *nth)).unwrap();
        let delete = (1..).find(|nth| RECORDS.is_delete(9, *nth)).unwrap();
        assert!(Window::exactly(put).admits(&RECORDS, 9, Some(put)));
        assert!(!Window::exactly(put).admits(&RECORDS, 9, None));
        assert!(!Window::exactly(put).admits(&RECORDS, 9, Some(put + 1)));
        assert!(Window::exactly(delete).admits(&RECORDS, 9, None));
        assert!(Window::exactly(0).admits(&RECORDS, 9, None), "never written");
        assert!(Window { low: put, high: put + 5 }.admits(&RECORDS, 9, Some(put + 5)));
    }
}

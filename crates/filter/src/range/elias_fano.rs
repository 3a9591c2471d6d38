//! A sorted list of distinct numbers, in about two bits and `log2(limit / count)` bits each.
//!
//! 1. The low bits of each number are stored as they are, side by side.
//! 2. The high bits are stored in unary: for each value of theirs, a one for each number with that
//!    value, and then a zero.
//! 3. A search for the first number that is not smaller than another goes to the zero that ends the
//!    high value before its own, from the nearest *hint*, and on from there.
//!
//! Hints are not stored: they are the positions of every 256th zero, found when the list is
//! decoded.
//!
//! Sources: Elias, "Efficient Storage and Retrieval by Content and Address of Static Files", 1974;
//! Fano, "On the Number of Bits Required to Implement an Associative Memory", 1971.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Zeros from one hint to the next.
const STRIDE: u64 = 256;

/// Most bytes of the hints of a list of `stored` bytes.
pub(super) fn most_hint_bytes(stored: usize) -> usize {
    (stored * 8).div_ceil(STRIDE as usize) * size_of::<u32>()
}

/// The list.
#[derive(Debug, Clone)]
pub(super) struct Sorted {
    /// The high bits, then the low bits.
    words: Box<[u64]>,
    /// Words of the high bits.
    high_words: usize,
    /// Position of each zero whose number is a multiple of [`STRIDE`].
    hints: Box<[u32]>,
    low_bits: u8,
}

/// Bits of the high part of `count` numbers below `limit`: ones, and zeros.
fn high_len(count: u64, limit: u64, low_bits: u8) -> Option<u64> {
    count.checked_add((limit.saturating_sub(1) >> low_bits) + 1)
}

/// Words of both parts.
fn word_counts(count: u64, limit: u64, low_bits: u8) -> Option<(u64, u64)> {
    let high = high_len(count, limit, low_bits)?.div_ceil(64);
    Some((high, count.checked_mul(u64::from(low_bits))?.div_ceil(64)))
}

/// The number of low bits with the fewest words.
pub(super) fn best_low_bits(count: u64, limit: u64) -> u8 {
    let bits = |low: &u8| high_len(count, limit, *low).map(|high| high + count * u64::from(*low));
    (0..48).min_by_key(bits).unwrap_or_default()
}

/// Bytes of a list of `count` numbers below `limit`.
pub(super) fn stored_bytes(count: u64, limit: u64) -> u64 {
    let words = word_counts(count, limit, best_low_bits(count, limit));
    words.map_or(u64::MAX, |(high, low)| (high + low).saturating_mul(8))
}

/// Appends the sorted and distinct `numbers`, all below `limit`.
pub(super) fn encode(numbers: &[u64], limit: u64, low_bits: u8, out: &mut Vec<u8>) {
    let count = numbers.len() as u64;
    let (high, low) = word_counts(count, limit, low_bits).unwrap_or_default();
    let mut words = vec![0_u64; (high + low) as usize];
    for (i, number) in (0_u64..).zip(numbers) {
        let at = (number >> low_bits) + i;
        words[(at / 64) as usize] |= 1 << (at % 64);
        let value = number & ((1 << low_bits) - 1);
        let at = i * u64::from(low_bits);
        let (word, shift) = ((high + at / 64) as usize, at % 64);
        if low_bits > 0 {
            words[word] |= value << shift;
        }
        if shift + u64::from(low_bits) > 64 {
            words[word + 1] |= value >> (64 - shift);
        }
    }
    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

impl Sorted {
    /// Decodes a list of `count` numbers below `limit`. Returns `None` for bytes that no list has:
    /// then the length or the number of ones is wrong.
    pub(super) fn decode(bytes: &[u8], count: u64, limit: u64, low_bits: u8) -> Option<Self> {
        let (high, low) = word_counts(count, limit, low_bits)?;
        let (words, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || words.len() as u64 != high.checked_add(low)? {
            return None;
        }
        let words: Box<[u64]> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let high_words = high as usize;
        let (high, _) = words.split_at_checked(high_words)?;
        let ones: u64 = high.iter().map(|word| u64::from(word.count_ones())).sum();
        let len = high_len(count, limit, low_bits)?;
        let behind =
            high.last().map_or(0, |last| if len % 64 == 0 { 0 } else { last >> (len % 64) });
        let hints = hints_of(high)?;
        let fits = ones == count && behind == 0;
        fits.then_some(Self { words, high_words, hints, low_bits })
    }

    /// Whether a number from `from` to `to`, both included, is in the list. (With any words in
    /// bounded time: no list has more numbers of one high value than there are low values.)
    #[inline]
    pub(super) fn has_any(&self, from: u64, to: u64) -> bool {
        let mut high = from >> self.low_bits;
        let Some(mut at) = self.start_of(high) else { return false };
        let mut left = 1_u64 << self.low_bits;
        loop {
            let Some(word) = self.words.get((at / 64) as usize).filter(|_| self.is_high(at)) else {
                return false;
            };
            if word >> (at % 64) & 1 == 0 {
                (high, at, left) = (high + 1, at + 1, 1 << self.low_bits);
                if high > to >> self.low_bits {
                    return false;
                }
                continue;
            }
            let number = high << self.low_bits | self.low(at.saturating_sub(high));
            if number >= from {
                return number <= to;
            }
            at += 1;
            match left {
                0 => return true,
                _ => left -= 1,
            }
        }
    }

    /// Whether there is a high bit at `at`.
    #[inline]
    fn is_high(&self, at: u64) -> bool {
        at < self.high_words as u64 * 64
    }

    /// Position of the first bit of high value `high`: after the zero that ends the one before.
    #[inline]
    fn start_of(&self, high: u64) -> Option<u64> {
        let Some(zero) = high.checked_sub(1) else { return Some(0) };
        let mut at = u64::from(*self.hints.get((zero / STRIDE) as usize)?);
        let mut left = zero % STRIDE;
        let mut word_at = (at / 64) as usize;
        let mut zeros = !*self.words.get(word_at)? & u64::MAX << (at % 64);
        loop {
            let here = u64::from(zeros.count_ones());
            if left < here {
                (0..left).for_each(|_| zeros &= zeros - 1);
                at = word_at as u64 * 64 + u64::from(zeros.trailing_zeros());
                return Some(at + 1);
            }
            left -= here;
            word_at += 1;
            zeros = !*self.words.get(..self.high_words)?.get(word_at)?;
        }
    }

    /// The low bits of number `i`.
    #[inline]
    fn low(&self, i: u64) -> u64 {
        let bits = u64::from(self.low_bits);
        let at = i * bits;
        let (word, shift) = (self.high_words + (at / 64) as usize, at % 64);
        let mut value = self.words.get(word).copied().unwrap_or_default() >> shift;
        if shift + bits > 64 {
            value |= self.words.get(word + 1).copied().unwrap_or_default() << (64 - shift);
        }
        value & ((1 << bits) - 1)
    }

    /// Heap memory in use, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words) + size_of_val(&*self.hints)
    }
}

/// The hints of these high bits.
fn hints_of(high: &[u64]) -> Option<Box<[u32]>> {
    let mut hints = Vec::new();
    let mut before = 0_u64;
    for (i, word) in (0_u64..).zip(high) {
        let mut zeros = !word;
        let here = u64::from(zeros.count_ones());
        let next = before.next_multiple_of(STRIDE);
        if next < before + here {
            (before..next).for_each(|_| zeros &= zeros - 1);
            hints.push(u32::try_from(i * 64 + u64::from(zeros.trailing_zeros())).ok()?);
        }
        before += here;
    }
    Some(hints.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_agree_with_a_list() {
        let mut word = 3_u64;
        let mut below = |n: u64| {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (word >> 20) % n
        };
        for round in 0..300_u64 {
            let limit = [1, 2, 63, 64, 65, 1000, 1 << 20, 1 << 45][(round % 8) as usize];
            let count = below(round * 4 + 2).min(limit);
            let mut numbers: Vec<u64> = (0..count).map(|_| below(limit)).collect();
            if round % 3 == 0 {
                // All in one place.
                numbers = (0..count).map(|i| limit - 1 - i).collect();
            }
            numbers.sort_unstable();
            numbers.dedup();
            let low_bits = best_low_bits(numbers.len() as u64, limit);
            let mut bytes = Vec::new();
            encode(&numbers, limit, low_bits, &mut bytes);
            let list = Sorted::decode(&bytes, numbers.len() as u64, limit, low_bits).unwrap();
            assert!(list.heap_bytes() <= bytes.len() + most_hint_bytes(bytes.len()));
            for _ in 0..200 {
                let near = numbers.get(below(count + 1) as usize).copied().unwrap_or(0);
                let from = [below(limit), near, near.saturating_sub(1), near + 1]
                    [below(4) as usize]
                    .min(limit - 1);
                let width = 1 << below(20);
                let to = (from + below(width)).min(limit - 1);
                let first = numbers.partition_point(|number| *number < from);
                let has = numbers.get(first).is_some_and(|number| *number <= to);
                assert_eq!(list.has_any(from, to), has, "{from}..={to} of {}", numbers.len());
            }
        }
    }
}

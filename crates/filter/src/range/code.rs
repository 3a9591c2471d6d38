//! An order-preserving code of infixes, by the frequencies of their bytes.
//!
//! The keys of real stores are rarely random bytes: of 256 values, decimal digits take ten, and
//! many positions hold always the same byte. Read as a binary number, the infixes of such keys
//! crowd in a few places, and so do the bounds of ranges. The code maps an infix to a number as an
//! arithmetic coder does (Rissanen and Langdon, "Arithmetic Coding", 1979): it divides an interval
//! of numbers among the values of the first byte in their order, by their frequencies, then the
//! part of that byte's value among those of the second, and so on. The number is the start of the
//! last part.
//!
//! 1. There is one table of frequencies for all positions in a key, and some positions have tables
//!    of their own: those where this makes the codes of the keys shorter by more than the table
//!    takes. A position with always the same byte takes no part of the numbers.
//! 2. As many bytes of each key of a block are counted as tell its keys apart on average, and those
//!    that select a cell between neighbours: others do not matter, and may be of another kind.
//!
//! Values that do not occur have no share, or the least if they are few among others (odd digits,
//! if all are even), so that bounds of ranges with them differ from the keys beside them.
//!
//! *Monotone*: the parts of an interval are disjoint and in order, and a number within a part is
//! the start of a part of it. A value without a share has an empty part at its place in the order.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

#[cfg(not(feature = "std"))]
use crate::float::Float;

/// Values of a byte.
const VALUES: usize = 256;
/// The sum of all shares.
const WHOLE: u64 = 1 << 16;
/// An interval shorter than this is not divided further.
const SHORTEST: u64 = 1 << 16;
/// Bits of entropy of a byte from which on it is taken for random.
const ENOUGH_ENTROPY: f64 = 7.5;
/// Bytes of an infix.
pub(super) const INFIX_BYTES: usize = size_of::<u128>();
/// Most positions that have tables of their own.
const MOST_POSITIONS: usize = 32;
/// Most bytes of an encoded code.
pub(super) const MOST_BYTES: usize = 2 << 10;
/// A table must save this many times its bytes.
const WORTH: f64 = 2.0;

/// The first bytes of `key` after `skip` bytes, the first most significant; zeros after its end.
#[inline]
pub(super) fn infix(key: &[u8], skip: usize) -> u128 {
    let rest = key.get(skip..).unwrap_or_default();
    if let Some(whole) = rest.first_chunk::<INFIX_BYTES>() {
        return u128::from_le_bytes(*whole).swap_bytes();
    }
    let mut bytes = [0; INFIX_BYTES];
    bytes[..rest.len()].copy_from_slice(rest);
    u128::from_le_bytes(bytes).swap_bytes()
}

/// Bytes of an infix, the first byte first.
#[inline]
fn bytes_of(infix: u128) -> [u8; INFIX_BYTES] {
    infix.swap_bytes().to_le_bytes()
}

/// How often each value of a byte occurs.
type Counts = [u32; VALUES];

/// How often each value occurs in each position.
#[derive(Debug, Clone)]
pub(super) struct Frequencies {
    /// The first position that is counted by itself.
    base: usize,
    positions: Vec<Counts>,
    /// In all other positions.
    others: Counts,
}

impl Frequencies {
    /// Bytes of heap memory.
    pub(super) const HEAP_BYTES: usize = MOST_POSITIONS * size_of::<Counts>();

    /// None yet, of infixes that begin at position `base` of their keys or after it.
    pub(super) fn new(base: usize) -> Self {
        Self { base, positions: vec![[0; VALUES]; MOST_POSITIONS], others: [0; VALUES] }
    }

    /// Counts the first bytes of the sorted infixes of a block, which begin at position `at`: those
    /// that tell them apart on average, and `more`. (To count each up to the byte by which it
    /// differs from the one before would miss the smallest values, which differ least.) Zeros at
    /// the end of an infix are not counted, since they may be none of the key.
    pub(super) fn count(&mut self, infixes: &[u128], at: usize, more: usize) {
        let shared = |pair: &[u128]| (pair[0] ^ pair[1]).leading_zeros() as usize / 8;
        let sum: usize = infixes.windows(2).map(shared).sum();
        let depth = 1 + sum.div_ceil(infixes.len().saturating_sub(1).max(1)) + more;
        for infix in infixes {
            let len = INFIX_BYTES - infix.trailing_zeros() as usize / 8;
            for (at, byte) in (at - self.base..).zip(bytes_of(*infix)).take(depth.min(len)) {
                let counts = self.positions.get_mut(at).unwrap_or(&mut self.others);
                let count = &mut counts[usize::from(byte)];
                *count = count.saturating_add(1);
            }
        }
    }

    /// Appends the code, as it is stored.
    pub(super) fn encode(mut self, out: &mut Vec<u8>) {
        let mut all = self.others;
        self.positions.iter().for_each(|counts| add(&mut all, counts));
        let common = stored_table(&all);
        let mut room = MOST_BYTES / 2;
        let own = |counts: &Counts| {
            let own = stored_table(counts);
            let saved = bits(&common, counts) - bits(&own, counts);
            let pays = saved > WORTH * 8.0 * own.len() as f64 && own.len() <= room;
            room -= if pays { own.len() } else { 0 };
            pays.then_some(own)
        };
        let own: Vec<Option<Vec<u8>>> = self.positions.iter().map(own).collect();
        for (counts, _) in self.positions.iter().zip(&own).filter(|(_, own)| own.is_none()) {
            add(&mut self.others, counts);
        }
        let count = own.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        out.extend_from_slice(&(self.base as u16).to_le_bytes());
        out.push(count as u8);
        out.extend_from_slice(&stored_table(&self.others));
        for table in own.iter().take(count) {
            out.extend_from_slice(table.as_deref().unwrap_or(&AS_OTHERS));
        }
    }
}

fn add(sum: &mut Counts, counts: &Counts) {
    sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
}

/// The stored form of a table of equal shares.
const EVEN: [u8; 2] = [1, 0];
/// Stands for the table of other positions.
const AS_OTHERS: [u8; 2] = [2, 0];

/// The stored form of the table for a byte that takes its values so often.
fn stored_table(counts: &Counts) -> Vec<u8> {
    let is_used = |count: &u32| *count > 0;
    let ends = counts.iter().position(is_used).zip(counts.iter().rposition(is_used));
    let Some((first, last)) = ends.filter(|_| !is_even(counts)) else { return EVEN.to_vec() };
    let mut stored = vec![first as u8, last as u8];
    if first < last {
        let most = u64::from(counts.iter().copied().max().unwrap_or_default()).max(1);
        let between = &counts[first..=last];
        let used = between.iter().filter(|count| is_used(count)).count();
        let least = u64::from(used * 2 >= between.len());
        let whole = u64::from(u8::MAX);
        let weight = |count: &u32| (u64::from(*count) * whole).div_ceil(most).max(least) as u8;
        stored.extend(between.iter().map(weight));
    }
    stored
}

/// Bits of the code, with this stored table, of bytes that take their values so often.
fn bits(stored: &[u8], counts: &Counts) -> f64 {
    let table = Table::decode(stored).and_then(|(table, _)| table).expect("it was just made");
    let bits = |(value, count): (u8, &u32)| {
        let (start, end) = table.share(value);
        f64::from(*count) * (WHOLE as f64 / (end - start).max(1) as f64).log2()
    };
    (0..=u8::MAX).zip(counts).filter(|(_, count)| **count > 0).map(bits).sum()
}

/// The shares of the values of a byte.
#[derive(Debug, Clone)]
struct Table {
    /// The first value with a share.
    first: u8,
    /// Where the shares of this value and those after it begin, of [`WHOLE`]; the last ends there.
    /// Empty for equal shares of all values.
    starts: Box<[u16]>,
}

impl Table {
    /// Decodes a table, or `None` for that of other positions; returns the bytes after it.
    fn decode(bytes: &[u8]) -> Option<(Option<Self>, &[u8])> {
        let ([first, last], rest) = bytes.split_first_chunk::<2>()?;
        let first = *first;
        match [first, *last] {
            EVEN => return Some((Some(Self { first, starts: Box::default() }), rest)),
            AS_OTHERS => return Some((None, rest)),
            _ => {}
        }
        let more = usize::from(last.checked_sub(first)?);
        if more == 0 {
            return Some((Some(Self { first, starts: Box::new([0]) }), rest));
        }
        let (weights, rest) = rest.split_at_checked(more + 1)?;
        if weights.first() == Some(&0) || weights.last() == Some(&0) {
            return None;
        }
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut before = 0_u64;
        let start = |weight: &u8| {
            let start = (before * WHOLE / sum) as u16;
            before += u64::from(*weight);
            start
        };
        let starts = weights.iter().map(start).collect();
        Some((Some(Self { first, starts }), rest))
    }

    /// Where the share of a value begins and ends.
    #[inline]
    fn share(&self, value: u8) -> (u64, u64) {
        if self.starts.is_empty() {
            return (u64::from(value) << 8, (u64::from(value) + 1) << 8);
        }
        let Some(i) = value.checked_sub(self.first).map(usize::from) else { return (0, 0) };
        let start = |i: usize| self.starts.get(i).map_or(WHOLE, |start| u64::from(*start));
        (start(i), start(i + 1))
    }
}

/// Whether all values are about as frequent: then their code would save less than it takes.
fn is_even(counts: &Counts) -> bool {
    let sum: f64 = counts.iter().map(|count| f64::from(*count)).sum();
    let shares = counts.iter().map(|count| f64::from(*count) / sum.max(1.0));
    let entropy: f64 = shares.filter(|share| *share > 0.0).map(|share| -share * share.log2()).sum();
    entropy > ENOUGH_ENTROPY
}

/// The code.
#[derive(Debug, Clone)]
pub(super) struct Code {
    /// The position of the first of `positions`.
    base: usize,
    positions: Box<[Option<Table>]>,
    others: Table,
}

impl Code {
    /// Decodes a code of at most [`MOST_BYTES`], and returns the bytes after it.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, _) = bytes.split_at(bytes.len().min(MOST_BYTES));
        let (base, rest) = head.split_first_chunk::<2>()?;
        let (count, rest) = rest.split_first()?;
        if usize::from(*count) > MOST_POSITIONS {
            return None;
        }
        let (others, mut rest) = Table::decode(rest)?;
        let mut positions = Vec::with_capacity(usize::from(*count));
        for _ in 0..*count {
            let (table, more) = Table::decode(rest)?;
            positions.push(table);
            rest = more;
        }
        let code = Self {
            base: usize::from(u16::from_le_bytes(*base)),
            positions: positions.into_boxed_slice(),
            others: others?,
        };
        bytes.get(head.len() - rest.len()..).map(|rest| (code, rest))
    }

    /// The number of an infix that begins at position `at` of its key.
    #[inline]
    pub(super) fn number(&self, infix: u128, at: usize) -> u64 {
        let (mut low, mut length) = (0_u64, u64::MAX);
        let first = at.wrapping_sub(self.base);
        for (i, byte) in bytes_of(infix).into_iter().enumerate() {
            let own = self.positions.get(first.wrapping_add(i)).and_then(Option::as_ref);
            let (start, end) = own.unwrap_or(&self.others).share(byte);
            let part = |share: u64| ((u128::from(length) * u128::from(share)) >> 16) as u64;
            let (from, to) = (part(start), part(end));
            low += from;
            length = to - from;
            if length < SHORTEST {
                break;
            }
        }
        low
    }

    /// Heap memory in use, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let tables = self.positions.iter().flatten().chain([&self.others]);
        size_of_val(&*self.positions)
            + tables.map(|table| size_of_val(&*table.starts)).sum::<usize>()
    }
}

/// Most bytes of a decoded code in memory, of a filter of `stored` bytes.
pub(super) fn most_heap_bytes(stored: usize) -> usize {
    // A stored weight takes one byte, and a share two.
    MOST_POSITIONS * size_of::<Option<Table>>() + 2 * stored.min(MOST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(infixes: &[u128], at: usize) -> Code {
        let mut frequencies = Frequencies::new(at);
        frequencies.count(infixes, at, 2);
        let mut bytes = Vec::new();
        frequencies.encode(&mut bytes);
        assert!(bytes.len() <= MOST_BYTES);
        let (code, rest) = Code::decode(&bytes).unwrap();
        assert!(rest.is_empty() && code.heap_bytes() <= most_heap_bytes(bytes.len()));
        code
    }

    #[test]
    fn numbers_are_in_the_order_of_the_infixes() {
        let mut word = 7_u64;
        let mut next = || {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            word ^ word >> 29
        };
        for round in 0..300 {
            let key = |word: u64| {
                let digits = format!("{:03}-{:04}", word % 1000, word / 1000 % 10_000);
                match round % 6 {
                    0 => u128::from(word) << 64,
                    4 => u128::from(word | 1 << 63) << 64 | 7,
                    5 => infix(&[digits.as_bytes(), b"/of/", digits.as_bytes()].concat(), 0),
                    1 => infix(digits.as_bytes(), 0),
                    2 => u128::from(word & 0xff00_ff00_00ff_0000) << 40,
                    _ => infix(&digits.as_bytes()[..(word % 8) as usize], 0),
                }
            };
            let mut known: Vec<u128> = (0..2 * round).map(|_| key(next())).collect();
            known.sort_unstable();
            let at = round % 3;
            let code = code_of(&known, at);
            let near = |infix: &u128| [*infix, infix ^ 1 << 64, infix ^ 3 << 105, infix ^ 1 << 87];
            let mut any: Vec<u128> = known.iter().flat_map(near).collect();
            any.extend((0..200).map(|_| u128::from(next()) << 64));
            any.extend([0, u128::MAX, 1, 0xff << 120]);
            any.sort_unstable();
            for pair in any.windows(2) {
                assert!(code.number(pair[0], at) <= code.number(pair[1], at), "{pair:x?}");
            }
        }
    }

    #[test]
    fn digits_spread_over_all_numbers() {
        let keys: Vec<u128> =
            (0..100_000_u32).map(|n| infix(format!("{:08}", n * 997).as_bytes(), 0)).collect();
        let code = code_of(&keys, 0);
        for (i, key) in keys.iter().enumerate().step_by(1000) {
            let share = code.number(*key, 0) as f64 / u64::MAX as f64;
            assert!((share - f64::from(i as u32) * 997.0 / 1e8).abs() < 0.01, "{i}: {share}");
        }
    }

    /// Bytes that are the same in all keys, or of few values, take their part of the numbers only.
    #[test]
    fn constant_positions_take_no_part_of_the_numbers() {
        let key = |n: u32| format!("{:02}/{:01}T:{:02}", n / 600, n / 100 % 6, n % 100);
        let keys: Vec<u128> = (0..60_000).map(|n| infix(key(n).as_bytes(), 0)).collect();
        let code = code_of(&keys, 0);
        for (i, key) in keys.iter().enumerate().step_by(100) {
            let share = code.number(*key, 0) as f64 / u64::MAX as f64;
            assert!((share - i as f64 / 6e4).abs() < 0.01, "{i}: {share}");
        }
    }
}

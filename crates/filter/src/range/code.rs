//! An order-preserving code of infixes, by the frequencies of their bytes.
//!
//! The keys of real stores are rarely random bytes: of 256 values, decimal digits take ten. Read as
//! a binary number, the infixes of such keys crowd in a few places, and so do the bounds of ranges.
//! The code maps an infix to a number as an arithmetic coder does (Rissanen and Langdon,
//! "Arithmetic Coding", 1979): it divides an interval of numbers among the values of the first byte
//! in their order, by their frequencies, then the part of that byte's value among those of the
//! second, and so on. The number is the start of the last part. Frequencies are the same in every
//! position. As many bytes of each key of a block are counted as tell its keys apart on average:
//! those after them do not matter, and may be of another kind.
//!
//! *Monotone*: the parts of an interval are disjoint and in order, and a number within a part is
//! the start of a part of it. A value with frequency 0 has an empty part at its place in the order.

/// Values of a byte.
const VALUES: usize = 256;
/// Bytes of the set of values with a frequency.
const SET_BYTES: usize = VALUES / 8;
/// The sum of all shares.
const WHOLE: u64 = 1 << 16;
/// An interval shorter than this is not divided further.
const SHORTEST: u64 = 1 << 8;
/// Bits of entropy of a byte from which on it is taken for random.
const ENOUGH_ENTROPY: f64 = 7.5;
/// Bytes of an infix.
const INFIX_BYTES: usize = size_of::<u64>();
/// Bytes of a decoded code in memory.
pub(super) const HEAP_BYTES: usize = VALUES * size_of::<u16>();

/// The first eight bytes of `key` after `skip` bytes, the first most significant; zeros after its
/// end.
#[inline]
pub(super) fn infix(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    if let Some(whole) = rest.first_chunk::<INFIX_BYTES>() {
        return u64::from_le_bytes(*whole).swap_bytes();
    }
    let mut bytes = [0; INFIX_BYTES];
    bytes[..rest.len()].copy_from_slice(rest);
    u64::from_le_bytes(bytes).swap_bytes()
}

/// Bytes of an infix, the first byte first.
#[inline]
fn bytes_of(infix: u64) -> [u8; INFIX_BYTES] {
    infix.swap_bytes().to_le_bytes()
}

/// How often each value of a byte occurs.
#[derive(Debug, Clone)]
pub(super) struct Frequencies([u32; VALUES]);

impl Frequencies {
    pub(super) fn new() -> Self {
        Self([0; VALUES])
    }

    /// Counts the first bytes of the sorted infixes of a block. (To count each up to the byte by
    /// which it differs from the one before would miss the smallest values, which differ least.)
    pub(super) fn count(&mut self, infixes: &[u64]) {
        let shared = |pair: &[u64]| (pair[0] ^ pair[1]).leading_zeros() as usize / 8;
        let sum: usize = infixes.windows(2).map(shared).sum();
        let depth = 1 + sum.div_ceil(infixes.len().saturating_sub(1).max(1));
        for infix in infixes {
            for byte in bytes_of(*infix).into_iter().take(depth) {
                let count = &mut self.0[usize::from(byte)];
                *count = count.saturating_add(1);
            }
        }
    }

    /// Whether all values are about as frequent: then their code would save less than it takes.
    fn are_even(&self) -> bool {
        let sum: f64 = self.0.iter().map(|count| f64::from(*count)).sum();
        let shares = self.0.iter().map(|count| f64::from(*count) / sum.max(1.0));
        let entropy: f64 =
            shares.filter(|share| *share > 0.0).map(|share| -share * share.log2()).sum();
        entropy > ENOUGH_ENTROPY
    }

    /// Appends the set of values that occur, and a weight for each: the stored form of the code.
    /// The empty set stands for equal weights of all.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        if self.are_even() {
            out.extend_from_slice(&[0; SET_BYTES]);
            return;
        }
        let most = u64::from(self.0.iter().copied().max().unwrap_or_default()).max(1);
        let mut set = [0_u8; SET_BYTES];
        let mut weights = Vec::new();
        for (value, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            set[value / 8] |= 1 << (value % 8);
            weights.push((u64::from(*count) * u64::from(u8::MAX)).div_ceil(most) as u8);
        }
        out.extend_from_slice(&set);
        out.extend_from_slice(&weights);
    }
}

/// The code.
#[derive(Debug, Clone)]
pub(super) struct Code {
    /// Where the share of each value begins, of [`WHOLE`]; the last ends there.
    starts: Box<[u16; VALUES]>,
}

impl Code {
    /// Decodes a code, and returns the bytes after it.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (set, rest) = bytes.split_first_chunk::<SET_BYTES>()?;
        let count = set.iter().map(|byte| byte.count_ones() as usize).sum();
        let (weights, rest) = rest.split_at_checked(count)?;
        if weights.contains(&0) {
            return None;
        }
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        if sum == 0 {
            let each = (WHOLE / VALUES as u64) as u16;
            return Some((
                Self { starts: Box::new(std::array::from_fn(|v| v as u16 * each)) },
                rest,
            ));
        }
        let mut left = weights.iter();
        let mut before = 0_u64;
        let mut starts = Box::new([0; VALUES]);
        for (value, start) in starts.iter_mut().enumerate() {
            // Values after the last one that occurs have nothing; the share of that one reaches to
            // the end, which has no number of 16 bits.
            *start = u16::try_from(before * WHOLE / sum).unwrap_or(u16::MAX);
            if set[value / 8] & 1 << (value % 8) != 0 {
                before += u64::from(*left.next()?);
            }
        }
        Some((Self { starts }, rest))
    }

    /// The number of an infix.
    #[inline]
    pub(super) fn number(&self, infix: u64) -> u64 {
        let (mut low, mut length) = (0_u64, u64::MAX);
        for byte in bytes_of(infix) {
            let value = usize::from(byte);
            let start = u64::from(self.starts[value]);
            let end = self.starts.get(value + 1).map_or(WHOLE, |start| u64::from(*start));
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
        size_of_val(&*self.starts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(infixes: &[u64]) -> Code {
        let mut frequencies = Frequencies::new();
        frequencies.count(infixes);
        let mut bytes = Vec::new();
        frequencies.encode(&mut bytes);
        let (code, rest) = Code::decode(&bytes).unwrap();
        assert!(rest.is_empty());
        code
    }

    #[test]
    fn numbers_are_in_the_order_of_the_infixes() {
        let mut word = 7_u64;
        let mut next = || {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            word ^ word >> 29
        };
        for round in 0..200 {
            let key = |word: u64| {
                let digits = format!("{:08}", word % 100_000_000);
                match round % 5 {
                    0 => word,
                    4 => word | 1 << 63,
                    1 => infix(digits.as_bytes(), 0),
                    2 => word & 0xff00_ff00_00ff_0000,
                    _ => infix(&digits.as_bytes()[..(word % 8) as usize], 0),
                }
            };
            let mut known: Vec<u64> = (0..round).map(|_| key(next())).collect();
            known.sort_unstable();
            let code = code_of(&known);
            let mut any: Vec<u64> = (0..200).map(|_| next()).chain(known).collect();
            any.extend([0, u64::MAX, 1, 0xff << 56]);
            any.sort_unstable();
            for pair in any.windows(2) {
                assert!(code.number(pair[0]) <= code.number(pair[1]), "{pair:x?}");
            }
        }
    }

    #[test]
    fn digits_spread_over_all_numbers() {
        let keys: Vec<u64> =
            (0..100_000_u32).map(|n| infix(format!("{:08}", n * 997).as_bytes(), 0)).collect();
        let code = code_of(&keys);
        for (i, key) in keys.iter().enumerate().step_by(1000) {
            let share = code.number(*key) as f64 / u64::MAX as f64;
            assert!((share - f64::from(i as u32) * 997.0 / 1e8).abs() < 0.01, "{i}: {share}");
        }
    }
}

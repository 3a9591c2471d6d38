//! Groups of many small filters, such as one for each block of a table.
//!
//! # Idea
//! A filter of fifty keys needs some sixty bytes. A header of 64 bytes and a body rounded up to
//! 64-byte blocks would double that. In a group, the filters share one header, and each body is
//! rounded up to a whole byte.
//!
//! # Algorithm
//! 1. Each filter of `n` keys has `m = 8 ceil(n b / 8)` bits, where `b` is the spec's bits per key.
//!    It is a standard Bloom filter with the probes of that kind; the whole group has one number of
//!    probes, the best for `b`.
//! 2. A filter is found by its *label*, a number that its owner chose (such as a block's offset).
//!    Labels ascend. They are stored as 32-bit differences from the first, and found by binary
//!    search.
//! 3. The group has a checksum, and states the expected rate: the exact `E[(X/m)^k]` of each
//!    filter, averaged over the keys.
//!
//! # Mathematics
//! With so few bits the textbook's `(1 - e^(-k/c))^k` is off: ten keys of 10 bits each make 104
//! bits, of which 51 +- 2.8 are set, and the rate is 7.37e-3 instead of 6.77e-3.
//! [`theory::standard_fpr`] computes it exactly, ball by ball.
//!
//! # Cost
//! 8 bytes a filter and 48 a group on top of the bits. A query is a binary search of the labels,
//! then the probes, which share one or two cache lines.

use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::format::{DecodeError, MAX_PROBES, array, checksum};
use crate::kind::{FilterKind, MAX_MILLIBITS, MIN_MILLIBITS};
use crate::spec::FilterSpec;
use crate::standard::ProbeSequence;
use crate::theory;

/// The first four bytes of every group.
const MAGIC: [u8; 4] = *b"TrFs";
const VERSION: u8 = 1;
/// Bytes before the labels.
const HEADER_BYTES: usize = 48;
/// Offset of the checksum: the last eight bytes of the header.
const CHECKSUM_AT: usize = 40;
/// Bytes a filter takes on top of its bits: its label and its end offset.
const SLOT_BYTES: usize = 8;

/// Rates of filters, by number of keys and thousandths of a bit per key, which determine bits and
/// probes.
static RATES: LazyLock<Mutex<Rates>> = LazyLock::new(Mutex::default);
type Rates = HashMap<(u64, u32), f64>;
/// The most rates to cache: some 2 MiB. Blocks of a few thousand sizes are common, more are not.
const MOST_RATES: usize = 1 << 16;

/// The rate for `keys` keys of `millibits` thousandths of a bit each. Computed once per process: it
/// costs up to a millisecond, and a table has a group every few dozen blocks.
fn cached_rate(keys: u64, millibits: u32, compute: impl FnOnce() -> f64) -> f64 {
    let rates = || RATES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(rate) = rates().get(&(keys, millibits)) {
        return *rate;
    }
    // Computed without the lock, so that other builders need not wait.
    let rate = compute();
    cache_rate(&mut rates(), (keys, millibits), rate);
    rate
}

fn cache_rate(rates: &mut Rates, filter: (u64, u32), rate: f64) {
    if rates.len() >= MOST_RATES {
        rates.clear();
    }
    rates.insert(filter, rate);
}

/// A stored label or end.
type Word = [u8; 4];

#[inline]
fn word(bytes: &Word) -> u32 {
    u32::from_le_bytes(*bytes)
}

/// Builds a group of small filters, one after the other.
///
/// ```
/// use trommel_filter::{SmallFilters, SmallFiltersBuilder, hash};
///
/// let mut builder = SmallFiltersBuilder::new("standard:10".parse()?);
/// builder.add_hash(hash(b"age"));
/// builder.end(0);
/// builder.add_hash(hash(b"city"));
/// builder.end(4096);
/// let filters = SmallFilters::decode(builder.finish())?;
/// assert_eq!(filters.may_contain_hash(4096, hash(b"city")), Some(true));
/// assert_eq!(filters.may_contain_hash(4096, hash(b"age")), Some(false));
/// assert_eq!(filters.may_contain_hash(8192, hash(b"age")), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SmallFiltersBuilder {
    millibits: u32,
    probes: u32,
    /// Label of the first filter.
    first: u64,
    /// Labels, less the first one.
    labels: Vec<u32>,
    ends: Vec<u32>,
    bits: Vec<u8>,
    /// Keys of the open filter.
    hashes: Vec<u64>,
    /// Keys of the closed filters.
    keys: u64,
    /// Sum of their rates, each weighted by its keys.
    passes: f64,
}

impl SmallFiltersBuilder {
    /// A group with the bits per key of `spec`, whatever its kind.
    ///
    /// # Panics
    /// If `spec` is [`FilterSpec::NONE`], which has no bits: all keys would be denied.
    pub fn new(spec: FilterSpec) -> Self {
        assert!(spec != FilterSpec::NONE, "a group of small filters needs bits: not `none`");
        Self {
            millibits: spec.millibits(),
            probes: theory::best_standard_probes(spec.bits_per_key()),
            first: 0,
            labels: Vec::new(),
            ends: Vec::new(),
            bits: Vec::new(),
            hashes: Vec::new(),
            keys: 0,
            passes: 0.0,
        }
    }

    /// Adds a key to the open filter. A hash equal to the last one is dropped.
    #[inline]
    pub fn add_hash(&mut self, hash: u64) {
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// Whether a filter with this label still fits the group: labels must ascend, and be within 4
    /// GiB of the first.
    pub fn has_room(&self, label: u64) -> bool {
        let Some(last) = self.labels.last() else { return true };
        let difference = label.checked_sub(self.first).and_then(|d| u32::try_from(d).ok());
        difference.is_some_and(|difference| difference > *last)
            && self.bits.len() + 8 * self.hashes.len() + 8 < u32::MAX as usize
    }

    /// Closes the open filter under `label`, and opens the next. A filter without keys answers no
    /// to every query.
    ///
    /// # Panics
    /// If the group has no [room](Self::has_room) for it.
    pub fn end(&mut self, label: u64) {
        assert!(self.has_room(label), "labels ascend, within 4 GiB of the first");
        if self.labels.is_empty() {
            self.first = label;
        }
        let keys = self.hashes.len();
        let bytes = (keys as u64 * u64::from(self.millibits)).div_ceil(8000) as usize;
        let start = self.bits.len();
        self.bits.resize(start + bytes, 0);
        let bits = &mut self.bits[start..];
        for hash in self.hashes.drain(..) {
            let mut sequence = ProbeSequence::new(hash);
            for _ in 0..self.probes {
                let position = sequence.next(8 * bytes as u64) as usize;
                if let Some(byte) = bits.get_mut(position / 8) {
                    *byte |= 1 << (position % 8);
                }
            }
        }
        let probes = self.probes;
        let rate = || theory::standard_fpr(keys as u64, 8 * bytes as u64, probes);
        self.passes += keys as f64 * cached_rate(keys as u64, self.millibits, rate);
        self.keys += keys as u64;
        self.labels.push((label - self.first) as u32);
        self.ends.push(self.bits.len() as u32);
    }

    /// Number of closed filters.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether no filter is closed.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Keys in all filters, including the open one.
    pub fn keys(&self) -> u64 {
        self.keys + self.hashes.len() as u64
    }

    /// Size of the group in bytes if it were finished now, without the open filter.
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + SLOT_BYTES * self.labels.len() + self.bits.len()
    }

    /// The exact expected false positive rate, averaged over the keys of the closed filters; 0
    /// without keys.
    pub fn expected_fpr(&self) -> f64 {
        if self.keys == 0 { 0.0 } else { self.passes / self.keys as f64 }
    }

    /// The encoded group. Keys added since the last [`end`](Self::end) are not in it.
    pub fn finish(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION, self.probes as u8, 0, 0]);
        bytes.extend_from_slice(&(self.labels.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.millibits.to_le_bytes());
        bytes.extend_from_slice(&self.keys.to_le_bytes());
        bytes.extend_from_slice(&self.expected_fpr().to_bits().to_le_bytes());
        bytes.extend_from_slice(&self.first.to_le_bytes());
        bytes.extend_from_slice(&[0; HEADER_BYTES - CHECKSUM_AT]);
        for word in self.labels.iter().chain(&self.ends) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.bits);
        let sum = checksum(&bytes[..CHECKSUM_AT], &bytes[HEADER_BYTES..]);
        bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// A finished group of small filters.
#[derive(Clone)]
pub struct SmallFilters {
    /// The group as stored: queries read it in place.
    bytes: Vec<u8>,
    count: usize,
    millibits: u32,
    probes: u32,
    keys: u64,
    expected_fpr: f64,
    first: u64,
}

impl SmallFilters {
    /// Validates the output of [`SmallFiltersBuilder::finish`] and takes it over. Does not allocate
    /// if passed a vector.
    ///
    /// # Errors
    /// Like [`Filter::decode`](crate::Filter::decode).
    pub fn decode(bytes: impl Into<Vec<u8>>) -> Result<Self, DecodeError> {
        let bytes = bytes.into();
        let damaged = |what| DecodeError::Damaged { what };
        let Some((head, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(damaged("it is shorter than its header"));
        };
        if head[..4] != MAGIC {
            return Err(damaged("it does not start as a group of small filters does"));
        }
        if checksum(&head[..CHECKSUM_AT], body) != u64::from_le_bytes(array(head, CHECKSUM_AT)) {
            return Err(damaged("its checksum does not match"));
        }
        let flags = u16::from_le_bytes(array(head, 6));
        if head[4] != VERSION || flags != 0 {
            return Err(DecodeError::Unknown { family: 0, version: head[4], flags });
        }
        let count = u32::from_le_bytes(array(head, 8)) as usize;
        if count.checked_mul(SLOT_BYTES).is_none_or(|slots| slots > body.len()) {
            return Err(damaged("it is shorter than its labels"));
        }
        let filters = Self {
            count,
            millibits: u32::from_le_bytes(array(head, 12)),
            probes: u32::from(head[5]),
            keys: u64::from_le_bytes(array(head, 16)),
            expected_fpr: f64::from_bits(u64::from_le_bytes(array(head, 24))),
            first: u64::from_le_bytes(array(head, 32)),
            bytes,
        };
        filters.check().map_err(damaged)?;
        Ok(filters)
    }

    /// Rejects what no builder writes.
    fn check(&self) -> Result<(), &'static str> {
        let (labels, ends, bits) = self.columns();
        let (labels, ends) = (labels.iter().map(word), ends.iter().map(word));
        let ascend = labels.clone().next().is_none_or(|first| first == 0)
            && labels.is_sorted_by(|a, b| a < b);
        let end = ends.clone().next_back().unwrap_or(0) as usize;
        if !(1..=MAX_PROBES).contains(&self.probes) {
            Err("its number of probes is out of range")
        } else if !(MIN_MILLIBITS..=MAX_MILLIBITS).contains(&self.millibits) {
            Err("its bits per key are out of range")
        } else if !(0.0..=1.0).contains(&self.expected_fpr) {
            Err("its expected rate is not a probability")
        } else if !ascend || !ends.is_sorted() || end != bits.len() {
            Err("its filters do not fill it")
        } else {
            Ok(())
        }
    }

    /// Labels, ends and bits.
    #[inline]
    fn columns(&self) -> (&[Word], &[Word], &[u8]) {
        let body = self.bytes.get(HEADER_BYTES..).unwrap_or_default();
        let (slots, bits) = body.split_at_checked(self.count * SLOT_BYTES).unwrap_or_default();
        let (labels, ends) = slots.as_chunks().0.split_at_checked(self.count).unwrap_or_default();
        (labels, ends, bits)
    }

    /// Whether the key with this [`hash`](crate::hash) may be in the filter of `label`; `None` if
    /// there is no such filter.
    #[inline]
    pub fn may_contain_hash(&self, label: u64, hash: u64) -> Option<bool> {
        let label = u32::try_from(label.checked_sub(self.first)?).ok()?;
        let (labels, ends, bits) = self.columns();
        let i = labels.binary_search_by_key(&label, word).ok()?;
        let start = match i.checked_sub(1) {
            None => 0,
            Some(before) => word(ends.get(before)?),
        };
        let bits = bits.get(start as usize..word(ends.get(i)?) as usize)?;
        let mut sequence = ProbeSequence::new(hash);
        let set = |position: u64| {
            bits.get((position / 8) as usize).is_some_and(|byte| byte >> (position % 8) & 1 == 1)
        };
        Some((0..self.probes).all(|_| set(sequence.next(8 * bits.len() as u64))))
    }

    /// Number of filters in the group.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the group is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Keys in all filters; a key in two filters counts twice.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The exact expected false positive rate, averaged over the keys.
    pub fn expected_fpr(&self) -> f64 {
        self.expected_fpr
    }

    /// The kind of the filters: always standard.
    pub fn kind(&self) -> FilterKind {
        FilterKind::Standard
    }

    /// Bytes of memory held by the group.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity()
    }
}

impl fmt::Debug for SmallFilters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmallFilters")
            .field("filters", &self.len())
            .field("keys", &self.keys)
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::remix;

    /// Filters of the given sizes; key `i` of all has the hash `remix(i)`.
    fn group(spec: &str, sizes: &[usize]) -> SmallFilters {
        let mut builder = SmallFiltersBuilder::new(spec.parse().unwrap());
        let mut next = 0;
        for (i, size) in sizes.iter().enumerate() {
            for _ in 0..*size {
                builder.add_hash(remix(next));
                builder.add_hash(remix(next));
                next += 1;
            }
            builder.end(1000 + 7 * i as u64);
        }
        assert_eq!(builder.keys(), next);
        let (bytes, rate) = (builder.bytes(), builder.expected_fpr());
        let finished = builder.finish();
        assert_eq!(finished.len(), bytes);
        let filters = SmallFilters::decode(finished).unwrap();
        assert_eq!((filters.keys(), filters.expected_fpr()), (next, rate));
        filters
    }

    #[test]
    fn an_added_key_is_never_denied_and_an_empty_filter_denies_all() {
        let sizes = [1, 0, 40, 3, 0, 200];
        for spec in ["standard:0.5", "standard:10", "paired:64"] {
            let filters = group(spec, &sizes);
            let mut next = 0;
            for (i, size) in sizes.iter().enumerate() {
                let label = 1000 + 7 * i as u64;
                for _ in 0..*size {
                    assert_eq!(filters.may_contain_hash(label, remix(next)), Some(true));
                    next += 1;
                }
                if *size == 0 {
                    assert_eq!(filters.may_contain_hash(label, 5), Some(false));
                }
            }
            for label in [0, 999, 1001, 1000 + 7 * 6, u64::MAX] {
                assert_eq!(filters.may_contain_hash(label, 5), None);
            }
        }
    }

    /// Such a group was written, and then rejected as damaged.
    #[test]
    #[should_panic = "needs bits"]
    fn a_group_without_bits_is_not_begun() {
        let _ = SmallFiltersBuilder::new(FilterSpec::NONE);
    }

    #[test]
    fn the_cache_of_rates_is_bounded() {
        let mut rates = Rates::new();
        for keys in 0..2 * MOST_RATES as u64 {
            cache_rate(&mut rates, (keys, 10_000), 0.01);
            assert!(rates.len() <= MOST_RATES && rates.contains_key(&(keys, 10_000)));
        }
    }

    /// Computing a rate costs more than the filter, so later groups reuse it.
    #[test]
    fn a_rate_is_computed_for_the_first_group_only() {
        let first = group("standard:10.123", &[40, 7, 40]);
        for keys in [40, 7] {
            cached_rate(keys, 10_123, || panic!("{keys} keys are computed anew"));
        }
        assert_eq!(group("standard:10.123", &[40, 7, 40]).expected_fpr(), first.expected_fpr());
    }

    /// The measured rate is the theoretical one: at least 2,000 expected false positives a row, and
    /// the error estimated from the variance between the filters.
    #[test]
    fn rates_are_those_of_the_exact_theory() {
        for (spec, keys) in [
            ("standard:8", 1),
            ("standard:10", 3),
            ("standard:10", 40),
            ("standard:10", 500),
            ("standard:16", 40),
            ("standard:20", 12),
        ] {
            let count = 500;
            let filters = group(spec, &vec![keys; count]);
            let expected = filters.expected_fpr();
            let queries = (2500.0 / expected / count as f64).ceil().max(20.0) as u64;
            let rates: Vec<f64> = (0..count as u64)
                .map(|i| {
                    let hash = |q: u64| remix(!(i * queries + q));
                    let passes = (0..queries)
                        .filter(|q| filters.may_contain_hash(1000 + 7 * i, hash(*q)).unwrap());
                    passes.count() as f64 / queries as f64
                })
                .collect();
            let mean = rates.iter().sum::<f64>() / count as f64;
            let squares = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
            let sigma = (squares / (count * (count - 1)) as f64).sqrt();
            let off = (mean - expected).abs();
            assert!(
                off < 4.0 * sigma,
                "{spec}, {keys} keys: {mean:e} for {expected:e} ({sigma:e})"
            );
            assert!(sigma < 0.1 * expected, "{spec}, {keys} keys: too few questions");
        }
    }

    #[test]
    fn every_damaged_byte_and_length_is_refused() {
        let mut builder = SmallFiltersBuilder::new("standard:10".parse().unwrap());
        for label in 0..5 {
            (0..20).for_each(|i| builder.add_hash(remix(label * 100 + i)));
            builder.end(label);
        }
        let bytes = builder.finish();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(SmallFilters::decode(flipped).is_err(), "byte {at} bit {bit}");
            }
            assert!(SmallFilters::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn arbitrary_bytes_with_a_right_checksum_never_panic() {
        let mut builder = SmallFiltersBuilder::new("standard:10".parse().unwrap());
        for label in 0..5 {
            (0..20).for_each(|i| builder.add_hash(remix(label * 100 + i)));
            builder.end(label);
        }
        let bytes = builder.finish();
        for at in 0..HEADER_BYTES + 40 {
            for value in [0, 1, 0x7f, 0xff] {
                let mut hostile = bytes.clone();
                hostile[at] = value;
                let sum = checksum(&hostile[..CHECKSUM_AT], &hostile[HEADER_BYTES..]);
                hostile[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
                let Ok(filters) = SmallFilters::decode(hostile) else { continue };
                assert!(filters.memory_bytes() <= bytes.len() + size_of::<SmallFilters>());
                for label in 0..6 {
                    let _ = filters.may_contain_hash(label, remix(label));
                }
            }
        }
    }
}

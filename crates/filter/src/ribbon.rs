//! The ribbon filter: the solution of a system of linear equations, in place of a Bloom filter's
//! bits.
//!
//! # Idea
//! Every key has `r` equations over the two-element field: the sum of some unknowns, selected by
//! the key's hash, equals a bit that is also derived from the hash. Only the solution is stored.
//! All equations of an added key hold; each equation of any other key holds with probability one
//! half, so that key passes with probability `2^-r`. There are hardly more unknowns than keys, so
//! the filter takes about `1.02 r` bits per key for a rate of `2^-r`, where a Bloom filter takes
//! `1.44 r`.
//!
//! # Algorithm
//! *Unknowns* are arranged in *slots*; a slot has one unknown for each of the *columns*. The
//! unknowns of an equation are in a window of 128 slots, the ribbon: the hash gives the first slot,
//! and 128 coefficients (the first is always 1).
//!
//! To build:
//! 1. The hashes are partitioned by their high bits into shards of some 16,000 keys, so that all
//!    further steps stay in the second-level cache. Each shard is a filter of its own.
//! 2. Equations are inserted one by one. If the equation's first slot is free, it is stored there.
//!    Otherwise the stored equation is added to it, which clears its first coefficient; it moves to
//!    the slot of its first remaining coefficient, and so on.
//! 3. If no coefficient remains while the right side is not 0, the equations contradict each other:
//!    start over with another seed. If 16 seeds fail, add a block of slots.
//! 4. From the last slot to the first, each equation determines its slot's unknowns.
//!
//! The number of columns may vary: the first blocks of 128 slots have one column less than the
//! others, so that any number of bits per key can be met. An equation has as many columns as the
//! block it starts in.
//!
//! To query: find the shard, compute the first slot and the coefficients from its seed, and compare
//! column by column. An absent key fails at each with probability one half, so it reads two columns
//! on average. The columns of a block of slots are adjacent, and so are blocks.
//!
//! # Mathematics
//! The expected rate is the mean of `2^-columns` over the slots in which an equation can start. It
//! is exact, whatever the keys. The number of slots needed for a solution is known by experiment:
//! with 1.018 slots a key, four of five shards of 16,384 keys are solved by the first seed; with
//! 1.008, one of five.
//!
//! # Bounds
//! An adversary who can compute the hash can choose keys whose equations have no solution, or
//! that all fall in one shard. The work to build is bounded for any keys:
//! 1. A shard whose keys exceed its share by eight standard deviations is not attempted: the
//!    probability of one is 10^-15.
//! 2. A shard has 32 attempts (16 seeds with each of two sizes), and all shards of a filter share 4
//!    more each: random keys take less than two on average.
//! 3. An attempt ends after 512 additions for each of its keys: random keys take less than 60.
//!
//! If a bound is exceeded, the whole filter is built as a standard one of the same bits per key
//! from the same hashes, and its header states that kind. A standard filter can always be built.
//! Its probes come from the whole remixed hash, so that keys chosen for one shard (or one block of
//! the other kinds) are spread like any others.
//!
//! # Layout
//! The body begins with the number of shards (8 bytes) and one 16-byte entry per shard: its first
//! segment (32 bits; a segment is 128 bits, one column of one block), its number of blocks of slots
//! (32 bits), how many of these have one column less (32 bits), that lower number of columns (8
//! bits), the seed (8 bits), 16 zero bits. The segments follow, then zeros to a multiple of 64
//! bytes.
//!
//! # Costs
//! To build: 24 bytes a slot, of one shard at a time, on top of the hashes; and the finished
//! columns are held twice while they are encoded. Each key's equation meets some of the earlier
//! ones, and each slot is solved column by column, so the time grows with the columns: several
//! times a blocked filter's (`COSTS.md`). To query: an absent key reads 2 to 4 cache lines, 3 on
//! average; a present key reads all of its columns, 32 bytes each in two adjacent blocks, which is
//! `r / 2 + 1` lines on average.
//!
//! # Source
//! P. C. Dillinger, S. Walzer, "Ribbon filter: practically smaller than Bloom and Xor", 2021
//! (arXiv:2103.02515). The layout in columns of blocks, with a fractional number of columns,
//! follows its "interleaved column-major storage". Sharding, which bounds the memory and the slots,
//! is this crate's.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::block::{Block, word};
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::kernel::prefetch;
use crate::mix::{remix, scale};

/// Slots of an equation's window, and of a block.
const WINDOW: usize = 128;
/// The most keys that a shard holds on average.
const SHARD_KEYS: u64 = 1 << 14;
/// Slots per key, in thousandths, of the first attempts.
const SLOTS_PER_1000_KEYS: u64 = 1018;
/// Below this number of keys the rounding of slots to blocks matters.
const SMALL_KEYS: u64 = 2000;
/// The fewest slots that a small shard has beyond its share.
const SMALL_SPARE: u64 = 8;
/// Seeds that are tried with a number of slots before one block is added.
const SEEDS_PER_SIZE: u8 = 16;
/// The most blocks that are added to a shard.
const MOST_EXTRA: u32 = 1;
/// The most attempts at one shard.
const SHARD_ATTEMPTS: u64 = SEEDS_PER_SIZE as u64 * (MOST_EXTRA as u64 + 1);
/// Attempts that a filter of many shards has for each of them, in addition to those of one shard.
const MEAN_ATTEMPTS: u64 = 4;
/// The most additions of one equation to another in an attempt, per key.
const ADDITIONS_PER_KEY: u64 = 512;
/// The most columns.
const MAX_COLUMNS: usize = 63;
/// Bytes of the number of shards.
const COUNT_BYTES: usize = 8;
/// Bytes of a shard's entry.
const ENTRY_BYTES: usize = 16;
/// Queries whose cache misses overlap in [`contains_many`].
const GROUP: usize = 32;
/// Bytes of a segment.
const SEGMENT_BYTES: usize = 16;

/// Shards of a filter of `keys` keys.
pub(crate) fn shards(keys: u64) -> u64 {
    keys.div_ceil(SHARD_KEYS).max(1)
}

/// The multiplier of a seed before it is combined with the hash: odd, without a visible pattern.
pub(crate) const SEED_FACTOR: u64 = 0xd134_2543_de82_ef95;

/// One key's equations, one for each column.
struct Equation {
    start: usize,
    coefficients: u128,
    result: u64,
}

impl Equation {
    #[inline]
    fn new(hash: u64, seed: u8, blocks: usize) -> Self {
        let mixed = remix(hash ^ u64::from(seed).wrapping_mul(SEED_FACTOR));
        let low = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let low = low ^ (low >> 32);
        let high = low.wrapping_mul(0xa076_1d64_78bd_642f);
        let high = high ^ (high >> 29);
        let result = (mixed ^ high.rotate_left(17)).wrapping_mul(0xe703_7ed1_a0b4_28db);
        Self {
            start: scale(mixed, (blocks * WINDOW - WINDOW + 1) as u64) as usize,
            coefficients: u128::from(high) << 64 | u128::from(low) | 1,
            result: result ^ (result >> 32),
        }
    }
}

/// The location and shape of a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shard {
    /// Index of its first segment.
    first: u32,
    /// Blocks of slots.
    blocks: u32,
    /// How many of them, from the front, have `columns` columns; the others have one more.
    lower: u32,
    columns: u8,
    seed: u8,
}

impl Shard {
    /// A shape for `keys` keys of `millibits` thousandths of a bit each, with `extra` additional
    /// blocks.
    fn plan(keys: u64, millibits: u32, extra: u32) -> Self {
        if keys == 0 {
            return Self::default();
        }
        let slots = keys * SLOTS_PER_1000_KEYS / 1000;
        let window = WINDOW as u64;
        let is_small = keys < SMALL_KEYS;
        // To the nearest block; upwards for few keys, for which a block is a large share.
        let spare = if is_small { window - 1 + SMALL_SPARE } else { window / 2 };
        let blocks = ((slots + spare) / window) as u32 + extra;
        // The requested bits; few keys get the rate that more keys would have.
        let bits =
            if is_small { u64::from(blocks) * window * 1000 / SLOTS_PER_1000_KEYS } else { keys };
        let segments = (bits * u64::from(millibits)).div_ceil(1000 * window);
        let columns = (segments / u64::from(blocks)).min(MAX_COLUMNS as u64 - 1);
        let upper = (segments - columns * u64::from(blocks)).min(u64::from(blocks));
        Self { first: 0, blocks, lower: blocks - upper as u32, columns: columns as u8, seed: 0 }
    }

    /// Columns of block `block`.
    #[inline]
    fn columns(&self, block: usize) -> usize {
        usize::from(self.columns) + usize::from(block >= self.lower as usize)
    }

    /// The first segment of block `block`, relative to the shard's first.
    #[inline]
    fn segment(&self, block: usize) -> usize {
        block * usize::from(self.columns) + block.saturating_sub(self.lower as usize)
    }

    fn segments(&self) -> usize {
        self.segment(self.blocks as usize)
    }

    /// The mean of `2^-columns` over all starts; 0 for a shard without keys.
    fn rate(&self) -> f64 {
        if self.blocks == 0 {
            return 0.0;
        }
        let blocks = f64::from(self.blocks);
        let starts = (blocks - 1.0) * WINDOW as f64 + 1.0;
        // Every block has 128 starts, except the last, which has one.
        let lower = (f64::from(self.lower) * WINDOW as f64).min(starts);
        let lower = if self.lower == self.blocks { starts } else { lower };
        let rate = 2.0_f64.powi(-i32::from(self.columns));
        (lower * rate + (starts - lower) * rate / 2.0) / starts
    }

    fn from_words(first: u64, second: u64) -> Self {
        Self {
            first: first as u32,
            blocks: (first >> 32) as u32,
            lower: second as u32,
            columns: (second >> 32) as u8,
            seed: (second >> 40) as u8,
        }
    }

    fn to_words(self) -> [u64; ENTRY_BYTES / 8] {
        let shape = u64::from(self.columns) << 32 | u64::from(self.seed) << 40;
        [u64::from(self.first) | u64::from(self.blocks) << 32, u64::from(self.lower) | shape]
    }
}

/// Equations in echelon form: the equation in a slot begins with that slot's unknown.
struct Band {
    coefficients: Vec<u128>,
    results: Vec<u64>,
}

impl Band {
    /// The equations of `hashes`. `None` if they contradict each other, or if elimination takes
    /// more than `additions`; each addition is subtracted from `additions`.
    fn new(shard: &Shard, additions: &mut u64, hashes: impl Iterator<Item = u64>) -> Option<Self> {
        let slots = shard.blocks as usize * WINDOW;
        let mut band = Self { coefficients: vec![0; slots], results: vec![0; slots] };
        // Only the stored columns must agree.
        let mask = (1_u64 << (shard.columns + 1)) - 1;
        hashes
            .map(|hash| Equation::new(hash, shard.seed, shard.blocks as usize))
            .all(|equation| band.add(&equation, mask, additions))
            .then_some(band)
    }

    /// Inserts an equation. `mask` selects the stored columns of its result. Returns false if it
    /// contradicts the others or `additions` is exhausted.
    #[inline]
    fn add(&mut self, equation: &Equation, mask: u64, additions: &mut u64) -> bool {
        let Equation { start: mut slot, mut coefficients, mut result } = *equation;
        result &= mask;
        loop {
            let there = &mut self.coefficients[slot];
            if *there == 0 {
                *there = coefficients;
                self.results[slot] = result;
                return true;
            }
            coefficients ^= *there;
            result ^= self.results[slot];
            if coefficients == 0 {
                return result == 0;
            }
            if *additions == 0 {
                return false;
            }
            *additions -= 1;
            let step = coefficients.trailing_zeros();
            coefficients >>= step;
            slot += step as usize;
        }
    }

    /// Solves the equations and writes the solution's segments.
    fn solve(&self, shard: &Shard, segments: &mut [u128]) {
        // The unknowns of the 128 slots that follow the current one, column by column.
        let mut state = [0_u128; MAX_COLUMNS + 1];
        for block in (0..shard.blocks as usize).rev() {
            let columns = shard.columns(block);
            let state = &mut state[..columns];
            for slot in (block * WINDOW..(block + 1) * WINDOW).rev() {
                let (coefficients, result) = (self.coefficients[slot], self.results[slot]);
                for (column, state) in state.iter_mut().enumerate() {
                    let shifted = *state << 1;
                    let sum = (shifted & coefficients).count_ones() as u64 ^ result >> column;
                    *state = shifted | u128::from(sum & 1 & u64::from(coefficients != 0));
                }
            }
            let first = shard.segment(block);
            segments[first..first + columns].copy_from_slice(state);
        }
    }
}

/// A filter under construction.
#[derive(Debug)]
pub(crate) struct Ribbon {
    millibits: u32,
    shards: Vec<Shard>,
    segments: Vec<u128>,
    /// The most keys of a shard, unless hashes are crafted.
    most_keys: u64,
    /// Remaining attempts, over all shards.
    attempts: u64,
    /// The work done so far.
    work: Work,
}

/// The work of solving a filter's equations.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    /// Systems of equations that were attempted.
    pub(crate) attempts: u64,
    /// Additions of one equation to another.
    pub(crate) additions: u64,
}

impl Ribbon {
    /// An empty filter with capacity for `keys` keys, so that its columns are allocated once.
    pub(crate) fn with_room(keys: u64, millibits: u32) -> Self {
        let shards = shards(keys);
        let segments = most_segments(keys, millibits);
        Self {
            millibits,
            shards: Vec::with_capacity(usize::try_from(shards).unwrap_or(0)),
            segments: Vec::with_capacity(usize::try_from(segments).unwrap_or(0)),
            most_keys: most_shard_keys(keys),
            attempts: SHARD_ATTEMPTS + MEAN_ATTEMPTS * (shards - 1),
            work: Work::default(),
        }
    }

    /// Adds the next shard, of `keys` hashes. Returns whether it could be solved within the bounds
    /// on keys, attempts and additions. If not, the filter must be of another kind.
    #[must_use]
    pub(crate) fn push(&mut self, keys: u64, hashes: &(impl Iterator<Item = u64> + Clone)) -> bool {
        if keys > self.most_keys {
            return false;
        }
        let Some((shard, band)) = self.solve_shard(keys, hashes) else { return false };
        let first = self.segments.len();
        self.segments.resize(first + shard.segments(), 0);
        band.solve(&shard, &mut self.segments[first..]);
        self.shards.push(shard);
        true
    }

    /// Tries each seed with each size.
    fn solve_shard(
        &mut self,
        keys: u64,
        hashes: &(impl Iterator<Item = u64> + Clone),
    ) -> Option<(Shard, Band)> {
        for extra in 0..=MOST_EXTRA {
            let mut shard = Shard::plan(keys, self.millibits, extra);
            shard.first = u32::try_from(self.segments.len()).ok()?;
            for seed in 0..SEEDS_PER_SIZE {
                if self.work.attempts == self.attempts {
                    return None;
                }
                self.work.attempts += 1;
                shard.seed = seed;
                let mut additions = ADDITIONS_PER_KEY * keys;
                let band = Band::new(&shard, &mut additions, hashes.clone());
                self.work.additions += ADDITIONS_PER_KEY * keys - additions;
                if let Some(band) = band {
                    return Some((shard, band));
                }
            }
        }
        None
    }

    /// The work done so far.
    #[cfg(test)]
    pub(crate) fn work(&self) -> Work {
        self.work
    }

    /// The most columns of an equation.
    pub(crate) fn columns(&self) -> u32 {
        let most = self
            .shards
            .iter()
            .map(|shard| u32::from(shard.columns) + u32::from(shard.lower < shard.blocks));
        most.max().unwrap_or(0).max(1)
    }

    /// The exact expected rate.
    pub(crate) fn rate(&self) -> f64 {
        self.shards.iter().map(Shard::rate).sum::<f64>() / self.shards.len().max(1) as f64
    }

    /// The body, in blocks of 64 bytes.
    pub(crate) fn finish(self) -> Vec<Block> {
        if self.shards.is_empty() {
            return Vec::new();
        }
        let words = COUNT_BYTES / 8
            + self.shards.len() * (ENTRY_BYTES / 8)
            + self.segments.len() * (SEGMENT_BYTES / 8);
        let mut blocks = vec![Block::default(); words.div_ceil(8)];
        let entries = self.shards.iter().flat_map(|shard| shard.to_words());
        let segments = self.segments.iter().flat_map(|&segment| {
            // The low half is first, as in the encoding.
            [segment as u64, (segment >> 64) as u64]
        });
        let all = core::iter::once(self.shards.len() as u64).chain(entries).chain(segments);
        for (at, word) in all.enumerate() {
            blocks[at / 8].0[at % 8] = word;
        }
        blocks
    }
}

#[inline(always)]
fn shard_at(blocks: &[Block], nth: usize) -> Shard {
    Shard::from_words(word(blocks, 1 + 2 * nth), word(blocks, 2 + 2 * nth))
}

/// The index of the first word of the first segment of `shard`.
#[inline(always)]
fn first_word(shards: usize, shard: &Shard) -> usize {
    (COUNT_BYTES + shards * ENTRY_BYTES) / 8 + 2 * shard.first as usize
}

/// Whether the shards are contiguous and fill the body, and their shapes are possible.
pub(crate) fn shape_is_valid(blocks: &[Block], keys: u64) -> bool {
    if keys == 0 {
        return blocks.is_empty();
    }
    let shards = word(blocks, 0);
    if shards != self::shards(keys) || shards > blocks.len() as u64 * 4 {
        return false;
    }
    let mut segments = 0_u64;
    for nth in 0..shards as usize {
        let shard = shard_at(blocks, nth);
        let is_possible = shard.lower <= shard.blocks && usize::from(shard.columns) < MAX_COLUMNS;
        let nothing_else = word(blocks, 2 + 2 * nth) >> 48 == 0;
        if u64::from(shard.first) != segments || !is_possible || !nothing_else {
            return false;
        }
        let upper = u64::from(shard.blocks - shard.lower);
        segments += u64::from(shard.blocks) * u64::from(shard.columns) + upper;
    }
    let bytes = COUNT_BYTES as u64 + shards * ENTRY_BYTES as u64 + segments * SEGMENT_BYTES as u64;
    bytes.div_ceil(64) == blocks.len() as u64
}

/// A query, and the location of its equations.
struct Lookup {
    coefficients: u128,
    result: u64,
    /// The first slot's index in its block.
    offset: u32,
    columns: usize,
    /// The indexes of the words at which its block's segments begin, and those of the next block.
    here: usize,
    next: usize,
}

impl Lookup {
    /// `None` for a shard without keys, which denies everything.
    #[inline(always)]
    fn new(blocks: &[Block], hash: u64) -> Option<Self> {
        let shards = word(blocks, 0);
        let shard = shard_at(blocks, scale(hash, shards) as usize);
        if shard.blocks == 0 {
            return None;
        }
        let equation = Equation::new(hash, shard.seed, shard.blocks as usize);
        let block = equation.start / WINDOW;
        let first = first_word(shards as usize, &shard);
        Some(Self {
            coefficients: equation.coefficients,
            result: equation.result,
            offset: (equation.start % WINDOW) as u32,
            columns: shard.columns(block),
            here: first + 2 * shard.segment(block),
            next: first + 2 * shard.segment(block + 1),
        })
    }

    #[inline(always)]
    fn prefetch(&self, blocks: &[Block]) {
        for index in [self.here, self.next] {
            if let Some(block) = blocks.get(index / 8) {
                prefetch(block);
            }
        }
    }

    /// Whether all columns agree.
    #[inline(always)]
    fn answer(&self, blocks: &[Block]) -> bool {
        self.agrees(blocks, 0..self.columns)
    }

    /// Whether the columns of a range agree.
    #[inline(always)]
    fn agrees(&self, blocks: &[Block], mut columns: Range<usize>) -> bool {
        let here = self.coefficients << self.offset;
        // The window extends into the next block by as many slots as its offset.
        let next = (self.coefficients >> 1) >> (WINDOW as u32 - 1 - self.offset);
        let segment = |from: usize, column: usize| {
            let at = from + 2 * column;
            u128::from(word(blocks, at + 1)) << 64 | u128::from(word(blocks, at))
        };
        columns.all(|column| {
            let sum = segment(self.here, column) & here ^ segment(self.next, column) & next;
            u64::from(sum.count_ones()) & 1 == self.result >> column & 1
        })
    }
}

/// Prefetches the line of the entry of `hash`'s shard, which locates everything else. The number of
/// shards follows from the filter's keys, so nothing is read.
#[inline]
pub(crate) fn prefetch_first(blocks: &[Block], keys: u64, hash: u64) {
    let entry = 1 + 2 * scale(hash, shards(keys)) as usize;
    if let Some(block) = blocks.get(entry / 8) {
        prefetch(block);
    }
}

/// Whether every equation of `hash` holds. False for a filter without keys.
// Not inlined: it would take registers that the other kinds' queries need.
#[inline(never)]
pub(crate) fn contains(blocks: &[Block], hash: u64) -> bool {
    Lookup::new(blocks, hash).is_some_and(|lookup| lookup.answer(blocks))
}

/// Whether the equations of `hash` in a range of columns hold: a part of the test by [`contains`],
/// for rates that are measured in parts.
#[cfg(test)]
pub(crate) fn contains_between(blocks: &[Block], columns: Range<usize>, hash: u64) -> bool {
    Lookup::new(blocks, hash).is_some_and(|lookup| {
        let end = columns.end.min(lookup.columns);
        lookup.agrees(blocks, columns.start..end)
    })
}

/// [`contains`] for many hashes, in two stages: all lines are prefetched, then all queries are
/// tested.
pub(crate) fn contains_many(blocks: &[Block], hashes: &[u64], answers: &mut [bool]) {
    for (hashes, answers) in hashes.chunks(GROUP).zip(answers.chunks_mut(GROUP)) {
        let mut lookups = [const { None }; GROUP];
        for (lookup, &hash) in lookups.iter_mut().zip(hashes) {
            *lookup = Lookup::new(blocks, hash);
            lookup.iter().for_each(|lookup: &Lookup| lookup.prefetch(blocks));
        }
        for (answer, lookup) in answers.iter_mut().zip(&lookups) {
            *answer = lookup.as_ref().is_some_and(|lookup| lookup.answer(blocks));
        }
    }
}

/// Sizes of shards that [`mean_over_shards`] samples: 16 for each standard deviation. The rate
/// jumps every 126 keys, as slots are rounded to blocks, and a shard's deviation is 64 to 128 keys.
const SIZES: i32 = 128;

/// The mean of `of` over the sizes that a shard of a filter of `keys` keys may have. Keys fall into
/// shards at random, so the sizes are nearly normal.
fn mean_over_shards(keys: u64, of: impl Fn(u64) -> f64) -> f64 {
    let shards = shards(keys);
    if shards == 1 {
        return of(keys);
    }
    let mean = keys as f64 / shards as f64;
    let deviation = (mean * (1.0 - 1.0 / shards as f64)).sqrt();
    let (mut sum, mut weights) = (0.0, 0.0);
    for nth in 0..SIZES {
        let off = (f64::from(nth) + 0.5 - f64::from(SIZES) / 2.0) / 16.0;
        let weight = (-off * off / 2.0).exp();
        sum += weight * of((mean + off * deviation).round() as u64);
        weights += weight;
    }
    sum / weights
}

/// The expected rate of a filter of `keys` keys. An absent key falls in each shard with the same
/// probability.
pub(crate) fn expected_rate(keys: u64, millibits: u32) -> f64 {
    mean_over_shards(keys, |keys| Shard::plan(keys, millibits, 0).rate())
}

/// The rate in the limit of many keys.
pub(crate) fn limit(bits_per_key: f64) -> f64 {
    let columns =
        (bits_per_key * 1000.0 / SLOTS_PER_1000_KEYS as f64).min(MAX_COLUMNS as f64 - 1.0);
    let upper = columns.fract();
    (1.0 - upper / 2.0) * (-columns.floor()).exp2()
}

/// 64-byte blocks of the body of a filter of `keys` keys, if all shards are of equal size.
pub(crate) fn expected_blocks(keys: u64, millibits: u32) -> u64 {
    let shards = shards(keys);
    let segments = Shard::plan(keys / shards, millibits, 0).segments() as u64;
    let shard = (ENTRY_BYTES as u64 + segments * SEGMENT_BYTES as u64).saturating_mul(shards);
    shard.saturating_add(COUNT_BYTES as u64).div_ceil(64)
}

/// The most columns of an equation of a filter of `keys` keys, if all shards are of equal size.
pub(crate) fn expected_columns(keys: u64, millibits: u32) -> u32 {
    let shard = Shard::plan(keys / shards(keys), millibits, 0);
    (u32::from(shard.columns) + u32::from(shard.lower < shard.blocks)).max(1)
}

/// The most segments that a filter of `keys` keys takes. A single shard may need a block more than
/// planned; of many shards, each rounds up to a segment.
fn most_segments(keys: u64, millibits: u32) -> u64 {
    match shards(keys) {
        1 => Shard::plan(keys, millibits, MOST_EXTRA).segments() as u64,
        shards => (keys * u64::from(millibits)).div_ceil(1000 * WINDOW as u64) + shards,
    }
}

/// Keys of the largest shard of a filter of `keys` keys. More than eight standard deviations above
/// the mean do not occur by chance: such hashes were chosen, or are repeated.
fn most_shard_keys(keys: u64) -> u64 {
    match shards(keys) {
        1 => keys,
        shards => keys / shards + 8 * SHARD_KEYS.isqrt(),
    }
}

/// The most memory that building a filter of `keys` keys takes, without the hashes.
pub(crate) struct Needs {
    /// Bytes of all columns before they are encoded; encoding takes as much again.
    pub(crate) columns: u64,
    /// Bytes of the equations of a shard.
    pub(crate) equations: u64,
}

impl Needs {
    pub(crate) fn of(keys: u64, millibits: u32) -> Self {
        let (shards, most) = (shards(keys), most_shard_keys(keys));
        let slots = u64::from(Shard::plan(most, millibits, MOST_EXTRA).blocks) * WINDOW as u64;
        let slot = (size_of::<u128>() + size_of::<u64>()) as u64;
        let columns = most_segments(keys, millibits) * SEGMENT_BYTES as u64;
        let entries = shards * size_of::<Shard>() as u64 + 64;
        Self { columns: columns + entries, equations: slots * slot }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Block, Lookup, Range, Ribbon, SLOTS_PER_1000_KEYS};
    use crate::{Filter, FilterKind, FilterSpec};

    fn build(spec: FilterSpec, keys: u64, salt: u64) -> Filter {
        let mut builder = spec.builder();
        (0..keys).for_each(|key| builder.add_hash(crate::mix::remix(key ^ salt << 40)));
        Filter::decode(builder.finish()).unwrap()
    }

    /// The target: all bytes counted, at most 1.06 times the information-theoretic minimum for the
    /// rate.
    #[test]
    fn a_ribbon_is_near_the_minimum_size_for_its_rate() {
        for keys in [10_000, 16_384, 40_000, 300_000, 1_000_000] {
            for bits in [5.0, 7.3, 10.0, 15.0, 20.0] {
                let spec = FilterSpec::new(FilterKind::Ribbon, bits).unwrap();
                let filter = build(spec, keys, 1);
                let worth = -filter.expected_fpr().log2();
                let overhead = filter.bits_per_key() / worth;
                assert!(overhead < 1.06, "{spec}, {keys} keys: {overhead}");
                assert!(filter.bits_per_key() < bits * 1.02, "{}", filter.bits_per_key());
                if keys == 1_000_000 {
                    println!("{spec}: {overhead:.4} times the information");
                }
            }
        }
    }

    /// The number of cache lines that hold the columns read by a query: those up to the first that
    /// differs.
    fn lines(filter: &[Block], hash: u64) -> usize {
        let lookup = Lookup::new(filter, hash).unwrap();
        let agreeing = (0..lookup.columns).take_while(|&at| lookup.agrees(filter, at..at + 1));
        let columns = (agreeing.count() + 1).min(lookup.columns);
        let segments = [lookup.here, lookup.next];
        let words = segments.into_iter().flat_map(|first| first..first + 2 * columns);
        words.map(|word| word / 8).collect::<BTreeSet<_>>().len()
    }

    /// The cost model of queries relies on these figures.
    #[test]
    fn a_present_key_reads_half_a_line_per_column_and_one_more() {
        for bits in [8.0, 13.0, 20.0] {
            let (keys, millibits) = (10_000, (bits * 1000.0) as u32);
            let hash = crate::mix::remix;
            let mut ribbon = Ribbon::with_room(keys, millibits);
            assert!(ribbon.push(keys, &(0..keys).map(hash)));
            let filter = ribbon.finish();
            let mean = |hashes: Range<u64>| {
                let count = (hashes.end - hashes.start) as f64;
                hashes.map(|key| lines(&filter, hash(key)) as f64).sum::<f64>() / count
            };
            let columns = bits * 1000.0 / SLOTS_PER_1000_KEYS as f64;
            let (present, absent) = (mean(0..keys), mean(1 << 40..(1 << 40) + 20_000));
            println!("{bits} bits: {present:.3} lines present, {absent:.3} absent");
            // The offsets of columns in their lines are random only with many shards.
            assert!((present - columns / 2.0 - 1.0).abs() < 0.25, "{bits} bits: {present}");
            assert!((absent - 3.0).abs() < 0.5, "{bits} bits: {absent}");
        }
    }

    /// When all shards were assumed to have the mean size, the stated rate of some filters of two
    /// shards was 5% too high.
    #[test]
    fn a_rate_is_the_mean_over_shards_of_all_sizes() {
        for (keys, bits) in
            [(16_474, 5.0), (17_473, 5.0), (19_249, 5.0), (26_000, 4.5), (40_000, 4.0)]
        {
            let spec = FilterSpec::new(FilterKind::Ribbon, bits).unwrap();
            let (filters, lookups) = (60, 20_000);
            let mut passed = 0_u64;
            for salt in 0..filters {
                let filter = build(spec, keys, salt);
                let absent = |lookup: u64| crate::mix::remix(lookup | salt << 40 | 1 << 63);
                let passes = |lookup: &u64| filter.may_contain_hash(absent(*lookup));
                passed += (0..lookups).filter(passes).count() as u64;
            }
            let expected = spec.expected_fpr(keys);
            let measured = passed as f64 / (filters * lookups) as f64;
            let off = expected / measured - 1.0;
            // Three standard deviations of the count.
            let chance = 3.0 / (passed as f64).sqrt();
            println!(
                "{spec}, {keys} keys: {expected:.5} said, {measured:.5} seen, {off:+.4} +- {chance:.4}"
            );
            assert!(off.abs() < chance + 0.003, "{spec}, {keys} keys: {expected} for {measured}");
        }
    }

    #[test]
    fn large_filters_reach_the_limit() {
        for bits in [4.0, 9.7, 16.0] {
            let limit = crate::theory::best_fpr(FilterKind::Ribbon, bits);
            let spec = FilterSpec::new(FilterKind::Ribbon, bits).unwrap();
            assert!((spec.expected_fpr(1 << 24) / limit - 1.0).abs() < 0.04, "{bits}: {limit}");
            let found = FilterSpec::with_fpr(FilterKind::Ribbon, limit).unwrap();
            assert!((found.bits_per_key() - bits).abs() < 0.01, "{found:?}");
        }
    }
}

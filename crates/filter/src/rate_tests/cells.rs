//! The rate of one cell: a kind, a number of bits per key, a number of keys.
//!
//! 1. At least 30 filters are built from independent random hashes, through the shipped builder,
//!    and opened through the shipped decoder.
//! 2. Each filter's own rate is determined by the first of three methods that is feasible:
//!    * *queried*: the filter is queried for random hashes.
//!    * *parts*: the probes of a query are divided into parts, the rate of each part is measured
//!      separately, and the filter's rate is their product. For blocked and paired filters the
//!      parts are the two chains of a key, in one block or in a pair of blocks. The chains start
//!      from the two halves of the folded word, so all halves are combined with all others, and the
//!      product is exactly the result of queries; it is averaged over sampled blocks. For standard
//!      filters, ribbons and fuse filters the parts are ranges of probes, columns or bits; the
//!      queried cells show that
//!      these are independent of each other.
//!    * *bits*: rates below 10^-11 are too low for queries. The set bits are counted, and the rate
//!      is that of ideal probes in these. This shows that the builder sets as many bits as it
//!      should. (At such rates, most actual false positives are keys with the hash of another,
//!      one in `2^64 / keys`.)
//! 3. The mean over the filters is compared with the exact expected rate. The standard error
//!    follows from the variance *between* filters.

use super::{Measured, Random};
use crate::block::{BLOCK_BITS, Block};
use crate::format;
use crate::kernel::{Chosen, Probe, Task};
use crate::kind::FilterKind;
use crate::mix::RESERVED;
use crate::mix::{Golden, scale};
use crate::paired;
use crate::{Filter, FilterSpec, fuse, ribbon, standard};

/// Expected hits of a *part* in a cell.
const HITS_OF_A_PART: f64 = 30_000.0;
/// Blocks that are sampled in a cell of a paired filter.
const SAMPLED_BLOCKS: u64 = 15_000;
/// The approximate rate of one part of a standard filter's probes or a ribbon's columns.
const RATE_OF_A_PART: f64 = 1e-3;
/// Below this rate, bits are counted.
const OUT_OF_REACH: f64 = 1e-11;

/// How a filter's rate is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Queried,
    Parts,
    Bits,
}

/// A unit of measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub(super) kind: FilterKind,
    pub(super) bits: f64,
    pub(super) keys: u64,
}

/// The effort of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// Expected false positives of all queries together.
    pub(super) hits: f64,
    /// The least number of queries.
    pub(super) least: f64,
    /// If more queries than this are needed, another method is used.
    pub(super) most: f64,
}

/// The result of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    pub(super) method: Method,
    pub(super) filters: u32,
    /// Queries, or trials of a part; 0 if bits were counted.
    pub(super) queries: u64,
    pub(super) expected: f64,
    pub(super) measured: Measured,
}

impl Outcome {
    /// The distance from the expected rate, in standard errors.
    pub(super) fn z(&self) -> f64 {
        (self.measured.mean - self.expected) / self.measured.error
    }
}

/// Filters built in a cell: small ones differ more, and cost less. With a hundred keys on a few
/// blocks, the rate depends on a few crowded blocks.
pub(super) fn filters(cell: Cell) -> u32 {
    match cell.keys {
        100..1_000 if matches!(cell.kind, FilterKind::Blocked | FilterKind::Paired) => 20_000,
        ..1_000 => 2_000,
        // With more bits, such filters differ more.
        1_000..10_000 if cell.kind == FilterKind::Blocked && cell.bits > 32.0 => 2_000,
        1_000..10_000 => 600,
        10_000..100_000 => 100,
        _ => 30,
    }
}

impl Cell {
    pub(super) fn spec(self) -> FilterSpec {
        FilterSpec::new(self.kind, self.bits).unwrap()
    }

    /// Whether a key is compared bit by bit with the sum of its slots.
    fn has_columns(self) -> bool {
        matches!(self.kind, FilterKind::Ribbon | FilterKind::Fuse)
    }

    pub(super) fn name(self) -> String {
        format!("{}, {} keys", self.spec(), self.keys)
    }

    /// A salt per cell, so that no two are measured with the same keys.
    fn salt(self) -> u64 {
        crate::hash(self.name().as_bytes())
    }

    pub(super) fn measure(self, effort: Effort) -> Outcome {
        let filters = filters(self);
        let expected = self.spec().expected_fpr(self.keys);
        let queries = (effort.hits / expected).max(effort.least);
        let each = (queries / f64::from(filters)).ceil() as u64;
        let method = if queries <= effort.most {
            Method::Queried
        } else if expected >= OUT_OF_REACH || self.has_columns() {
            Method::Parts
        } else {
            Method::Bits
        };
        let (mut announced, mut queried) = (0.0, 0);
        let measured = Measured::over(filters, self.salt(), |random| {
            let mut builder = self.spec().builder();
            (0..self.keys).for_each(|_| builder.add_hash(random.next()));
            let bytes = builder.finish();
            let filter = Filter::decode(&bytes).unwrap();
            announced += filter.expected_fpr() / f64::from(filters);
            match method {
                Method::Queried => {
                    queried += each;
                    hits(&filter, each, random) as f64 / each as f64
                }
                Method::Parts => {
                    let (_, blocks) = format::decode(&bytes, |_| ()).unwrap();
                    let queried = &mut queried;
                    Parts { cell: self, filter: &filter, blocks: &blocks, random, queried }.rate()
                }
                Method::Bits => {
                    let (_, blocks) = format::decode(&bytes, |_| ()).unwrap();
                    ideal_rate(&filter, &blocks)
                }
            }
        });
        // A ribbon's rate depends on how its keys fall on shards; the header is exact.
        let expected = if self.kind == FilterKind::Ribbon { announced } else { expected };
        Outcome { method, filters, queries: queried, expected, measured }
    }
}

/// The number of false positives of `filter` among `queries` random hashes.
pub(super) fn hits(filter: &Filter, queries: u64, random: &mut Random) -> u64 {
    let (mut hashes, mut answers) = ([0; 512], [false; 512]);
    let (mut left, mut hits) = (queries, 0);
    while left > 0 {
        let count = left.min(512) as usize;
        hashes[..count].fill_with(|| random.next());
        filter.may_contain_many(&hashes[..count], &mut answers[..count]);
        hits += answers[..count].iter().filter(|&&answer| answer).count() as u64;
        left -= count as u64;
    }
    hits
}

/// The rate of ideal probes in the set bits.
pub(super) fn ideal_rate(filter: &Filter, blocks: &[Block]) -> f64 {
    let probes = filter.probes() as i32;
    let ones = |block: &Block| block.0.iter().map(|word| word.count_ones()).sum::<u32>();
    let part = |ones: u32, of: u64| f64::from(ones) / of as f64;
    let mean = |sum: f64| sum / blocks.len() as f64;
    match filter.kind() {
        FilterKind::Standard => {
            mean(blocks.iter().map(|block| part(ones(block), BLOCK_BITS)).sum()).powi(probes)
        }
        FilterKind::Blocked => {
            mean(blocks.iter().map(|block| part(ones(block), BLOCK_BITS).powi(probes)).sum())
        }
        _ => {
            let usable = BLOCK_BITS - u64::from(RESERVED);
            let named = |block: &Block| (block.0[0] & ((1 << RESERVED) - 1)).count_ones();
            let half = |block: &Block| part(ones(block) - named(block), usable).powi(probes / 2);
            let pairs = blocks.iter().enumerate().map(|(place, block)| {
                half(block) * half(&blocks[paired::partner::<Golden>(place, block)])
            });
            mean(pairs.sum())
        }
    }
}

/// A filter whose rate is measured part by part.
struct Parts<'a> {
    cell: Cell,
    filter: &'a Filter,
    blocks: &'a [Block],
    random: &'a mut Random,
    queried: &'a mut u64,
}

impl Parts<'_> {
    fn rate(mut self) -> f64 {
        let probes = self.filter.probes();
        match self.cell.kind {
            FilterKind::Standard => self.cut(|blocks, from, to, hash| {
                standard::contains_between(blocks, from..to.min(probes), hash)
            }),
            FilterKind::Ribbon => self.cut(|blocks, from, to, hash| {
                ribbon::contains_between(blocks, from as usize..to as usize, hash)
            }),
            FilterKind::Fuse => self.cut(fuse::contains_between),
            FilterKind::Blocked => {
                let halves = (probes.div_ceil(2) as usize, (probes / 2) as usize);
                self.chains::<0>(halves, |_, place| place)
            }
            _ => {
                let half = probes as usize / 2;
                self.chains::<RESERVED>((half, half), |blocks, place| {
                    paired::partner::<Golden>(place, &blocks[place])
                })
            }
        }
    }

    /// The product of the rates of ranges of a query's probes. The last range has no end.
    fn cut(&mut self, contains: impl Fn(&[Block], u32, u32, u64) -> bool) -> f64 {
        let rate = self.filter.expected_fpr();
        let parts = (rate.ln() / RATE_OF_A_PART.ln()).ceil() as u32;
        let hits = (HITS_OF_A_PART / f64::from(filters(self.cell))).max(40.0);
        let trials = (hits / rate.powf(1.0 / f64::from(parts))) as u64;
        // Blocks of a ribbon differ by one column, slots by one bit, which belongs to the last
        // part.
        let probes = self.filter.probes() - u32::from(self.cell.has_columns());
        let range_of = |part: u32| {
            let to = if part + 1 == parts { u32::MAX } else { probes * (part + 1) / parts };
            (probes * part / parts, to)
        };
        *self.queried += trials * u64::from(parts);
        let mut rate_of = |(from, to)| {
            let hits =
                (0..trials).filter(|_| contains(self.blocks, from, to, self.random.next())).count();
            hits as f64 / trials as f64
        };
        (0..parts).map(|part| rate_of(range_of(part))).product()
    }

    /// The mean over sampled blocks of the product of both chains' rates. The number of tried seeds
    /// is such that about two pass.
    fn chains<const RESERVED: u32>(
        &mut self,
        (first, second): (usize, usize),
        partner: impl Fn(&[Block], usize) -> usize,
    ) -> f64 {
        let trials = (2.0 / self.filter.expected_fpr().sqrt()).ceil() as u64;
        // Unpaired blocks differ more.
        let wanted = SAMPLED_BLOCKS * if self.cell.kind == FilterKind::Blocked { 20 } else { 1 };
        let sampled =
            (wanted / u64::from(filters(self.cell))).clamp(4, 4.max(2 * self.blocks.len() as u64));
        let kernel = Chosen::best();
        let mut sum = 0.0;
        for _ in 0..sampled {
            let place = scale(self.random.next(), self.blocks.len() as u64) as usize;
            let both = [(place, first), (partner(self.blocks, place), second)];
            let passed = both.map(|(place, count)| {
                let (block, random) = (&self.blocks[place], &mut *self.random);
                kernel.run(Chain::<RESERVED> { block, count, trials, random }) as f64
            });
            sum += passed[0] * passed[1];
        }
        *self.queried += 2 * trials * sampled;
        sum / (sampled as f64 * trials as f64 * trials as f64)
    }
}

/// Counts how many of `trials` random seeds pass a block.
struct Chain<'a, const RESERVED: u32> {
    block: &'a Block,
    count: usize,
    trials: u64,
    random: &'a mut Random,
}

impl<const RESERVED: u32> Task for Chain<'_, RESERVED> {
    type Answer = u64;

    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> u64 {
        let mut passed = 0;
        for _ in 0..self.trials {
            let seed = (self.random.next() >> 32) as u32;
            passed += u64::from(probe.hits::<RESERVED>(self.block, seed, self.count));
        }
        passed
    }
}

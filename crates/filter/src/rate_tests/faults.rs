//! Shows that the rate tests can fail: classic faults are injected into the shipped code, and each
//! must be detected.
//!
//! Faults of a paired filter's hashing are injected through its [`Scheme`] and detected by
//! *crossing*. The folded word's low half determines the result in the primary block, the high half
//! the result in the partner; so the few low halves that pass the first block are each combined
//! with many high halves. That runs the shipped code on words that hashes can produce, and `q` and
//! `r` trials make some `q * r` queries.
//!
//! A wrong number of probes is put into the finished plan of a filter.

use super::cells::hits;
use super::{Measured, Random};
use crate::block::Block;
use crate::format::{self, Header};
use crate::kernel;
use crate::kind::FilterKind;
use crate::mix::RESERVED;
use crate::mix::{Golden, Scheme, fold, scale};
use crate::paired;
use crate::plan::{Part, Plan};
use crate::{Filter, FilterSpec, blocked, ribbon, standard, theory};

/// The rate of a paired filter by crossing, over `sampled` of its blocks. The number of low halves
/// tried in each is such that about two pass, and each is combined with as many high halves.
fn crossed<S: Scheme>(
    blocks: &[Block],
    probes: u32,
    expected: f64,
    sampled: u64,
    random: &mut Random,
) -> f64 {
    let trials = (2.0 / expected.sqrt()).ceil() as u64;
    let half = probes as usize / 2;
    let mut hits = 0_u64;
    for _ in 0..sampled {
        let place = scale(random.next(), blocks.len() as u64) as usize;
        let primary = &blocks[place];
        let partner = &blocks[paired::partner::<S>(place, primary)];
        for _ in 0..trials {
            let low = random.next() >> 32;
            if kernel::hits::<S, RESERVED>(primary, S::seeds(low).0, half) {
                for _ in 0..trials {
                    let mixed = random.next() << 32 | low;
                    let seed = S::seeds(mixed).1;
                    hits += u64::from(kernel::hits::<S, RESERVED>(partner, seed, half));
                }
            }
        }
    }
    hits as f64 / (trials * trials * sampled) as f64
}

/// The rate measured by crossing, and the expected one, for paired filters that `S` builds and
/// queries.
fn cross_cell<S: Scheme>(bits: f64, keys: u64, filters: u32, sampled: u64) -> (Measured, f64) {
    let spec = FilterSpec::new(FilterKind::Paired, bits).unwrap();
    let plan = Plan::new(spec, keys);
    let expected = theory::paired_fpr(keys, plan.blocks, plan.probes);
    let measured = Measured::over(filters, 0, |random| {
        let hashes = random.words(keys);
        let mut blocks = vec![Block::default(); plan.blocks as usize];
        paired::fill::<S>(&mut Part::whole(&mut blocks), plan.probes, hashes.into_iter());
        crossed::<S>(&blocks, plan.probes, expected, sampled, random)
    });
    (measured, expected)
}

/// Batches of 32 blocks: the pairs are less equal.
struct SmallBatches;

impl Scheme for SmallBatches {
    const BATCH: usize = 32;
}

/// One 32-bit seed: the second chain continues where the first one ends.
struct OneSeed;

impl Scheme for OneSeed {
    fn seeds(mixed: u64) -> (u32, u32) {
        let seed = mixed as u32;
        (seed, Golden::state(seed, 20))
    }
}

/// Additive double hashing: state `i` is `seed + i * step`.
struct Additive;

impl Scheme for Additive {
    fn state(seed: u32, i: usize) -> u32 {
        let step = seed.rotate_left(17) | 1;
        seed.wrapping_add(step.wrapping_mul(i as u32))
    }
}

fn assert_found<S: Scheme>(bits: f64, power: f64, fault: &str) {
    let (measured, expected) = cross_cell::<S>(bits, 50_000, 60, 150);
    println!("{fault} at {bits} bits: {:.3} of the expected rate", measured.mean / expected);
    assert!(!measured.confirms(expected, power), "{fault} goes unnoticed at {bits} bits");
    let (measured, expected) = cross_cell::<Golden>(bits, 50_000, 60, 150);
    assert!(measured.confirms(expected, power), "the same test is red without the fault");
}

#[test]
fn batches_of_32_are_found() {
    assert_found::<SmallBatches>(23.4, 0.02, "a batch of 32");
    assert_found::<SmallBatches>(28.0, 0.02, "a batch of 32");
}

#[test]
fn additive_double_hashing_is_found() {
    assert_found::<Additive>(23.4, 0.02, "additive double hashing");
}

/// With one seed, the low half determines both blocks, so the high halves change nothing: the
/// filters differ wildly.
#[test]
fn one_shared_seed_is_found() {
    assert_found::<OneSeed>(40.0, 0.05, "one shared 32-bit seed");
}

/// The cost of one seed: a hash that shares 32 bits with a key passes both blocks. With two seeds,
/// it passes the partner no more often than any other hash.
#[test]
fn the_low_half_of_a_key_passes_one_block_only() {
    fn passing<S: Scheme>() -> f64 {
        let spec = FilterSpec::new(FilterKind::Paired, 40.0).unwrap();
        let mut random = Random(7);
        let hashes = random.words(20_000);
        let plan = Plan::new(spec, 20_000);
        let mut blocks = vec![Block::default(); plan.blocks as usize];
        paired::fill::<S>(&mut Part::whole(&mut blocks), plan.probes, hashes.iter().copied());
        let half = plan.probes as usize / 2;
        let passes = hashes.iter().filter(|&&hash| {
            let place = scale(hash, plan.blocks) as usize;
            let partner = &blocks[paired::partner::<S>(place, &blocks[place])];
            let mixed = random.next() << 32 | fold(hash) & 0xffff_ffff;
            kernel::hits::<S, RESERVED>(partner, S::seeds(mixed).1, half)
        });
        passes.count() as f64 / hashes.len() as f64
    }
    assert!(passing::<Golden>() < 1e-3, "half of the probes pass with 1e-4");
    assert_eq!(passing::<OneSeed>(), 1.0);
}

/// The rate with one shared seed, over all of its 2^32 values on two pairs.
#[test]
#[ignore = "long: goes through 2^33 seeds"]
fn one_shared_seed_more_than_doubles_the_rate_at_40_bits() {
    let spec = FilterSpec::new(FilterKind::Paired, 40.0).unwrap();
    let plan = Plan::new(spec, 50_000);
    let mut random = Random(1);
    let mut blocks = vec![Block::default(); plan.blocks as usize];
    paired::fill::<OneSeed>(
        &mut Part::whole(&mut blocks),
        plan.probes,
        random.words(50_000).into_iter(),
    );
    let half = plan.probes as usize / 2;
    let mut hits = 0_u32;
    for place in [0, 2000] {
        let primary = &blocks[place];
        let partner = &blocks[paired::partner::<OneSeed>(place, primary)];
        hits += (0..=u32::MAX)
            .filter(|&seed| {
                let (first, second) = OneSeed::seeds(u64::from(seed));
                kernel::hits::<OneSeed, RESERVED>(primary, first, half)
                    && kernel::hits::<OneSeed, RESERVED>(partner, second, half)
            })
            .count() as u32;
    }
    let ratio = f64::from(hits) / 2_f64.powi(33) / spec.expected_fpr(50_000);
    println!("one shared seed at 40 bits: {ratio:.2} of the expected rate");
    assert!(ratio > 1.5);
}

/// Builds filters of `built` probes whose header states `tested` probes, and queries them through
/// the shipped format.
fn with_probes(spec: FilterSpec, (built, tested): (u32, u32), queries: u64) -> Measured {
    let keys = 50_000;
    let millibits = spec.millibits();
    let blocks = Plan::new(spec, keys).blocks;
    Measured::over(40, 1, |random| {
        let hashes = random.words(keys).into_iter();
        let mut bits = vec![Block::default(); blocks as usize];
        match spec.kind() {
            FilterKind::Standard => standard::fill(&mut bits, built, hashes),
            FilterKind::Blocked => blocked::fill(&mut Part::whole(&mut bits), built, hashes),
            _ => paired::fill::<Golden>(&mut Part::whole(&mut bits), built, hashes),
        }
        let kind = spec.kind();
        let header = Header { kind, probes: tested, millibits, blocks, keys, expected_fpr: 0.0 };
        let filter = Filter::decode(format::encode(header, &bits)).unwrap();
        hits(&filter, queries / 40, random) as f64 / (queries / 40) as f64
    })
}

/// One probe more or less than the best (two for paired filters) costs some percent; testing one
/// probe less than set doubles the rate. The bits per key are between two thresholds, where the
/// best number is unambiguous.
#[test]
fn a_wrong_number_of_probes_is_found() {
    for (spec, step) in [("standard:10", 1), ("blocked:7.5", 1), ("paired:8.7", 2)] {
        let spec: FilterSpec = spec.parse().unwrap();
        let (expected, best) = (spec.expected_fpr(50_000), Plan::new(spec, 50_000).probes);
        let measure = |probes| with_probes(spec, probes, 40_000_000);
        measure((best, best)).assert(expected, 0.004, &format!("{spec}, {best} probes"));
        for probes in [(best + step, best + step), (best - step, best - step), (best, best - step)]
        {
            let measured = measure(probes);
            println!("{spec}, {probes:?} probes: {:.4} times", measured.mean / expected);
            assert!(measured.mean > expected, "{spec}: {probes:?} probes are better");
            assert!(!measured.confirms(expected, 0.004), "{spec}: {probes:?} go unnoticed");
        }
    }
}

#[test]
fn a_column_that_is_not_tested_is_found() {
    let spec: FilterSpec = "ribbon:8.144".parse().unwrap();
    let tested = |left_out: usize| {
        let mut announced = 0.0;
        let measured = Measured::over(40, 2, |random| {
            let mut builder = spec.builder();
            random.words(20_000).iter().for_each(|&hash| builder.add_hash(hash));
            let bytes = builder.finish();
            announced += Filter::decode(&bytes).unwrap().expected_fpr() / 40.0;
            let (header, blocks) = format::decode(&bytes, |_| ()).unwrap();
            let columns = 0..header.probes as usize - left_out;
            let passed = (0..500_000)
                .filter(|_| ribbon::contains_between(&blocks, columns.clone(), random.next()));
            passed.count() as f64 / 500_000.0
        });
        (measured, announced)
    };
    let (measured, announced) = tested(0);
    measured.assert(announced, 0.01, "all columns");
    let (measured, announced) = tested(1);
    assert!(!measured.confirms(announced, 0.01), "a column is not queried, unnoticed");
}

/// The number of probes that RocksDB uses for these bits per key.
fn rocksdb_probes(bits: f64) -> u32 {
    let millibits = (bits * 1000.0) as u32;
    let thresholds =
        [2080, 3580, 5100, 6640, 8300, 10070, 11720, 14001, 16050, 18300, 22001, 25501];
    match millibits {
        ..=25_501 => {
            1 + thresholds.iter().filter(|&&threshold| millibits > threshold).count() as u32
        }
        25_502..=50_000 => (millibits - 1) / 2000 - 1,
        _ => 24,
    }
}

/// RocksDB's table has gaps: above 25.5 bits it falls back to 11 probes. Ours is never worse.
#[test]
fn rocksdb_s_number_of_probes_is_worse_in_its_holes() {
    for (bits, probes, cost) in [(26.0, 11, 1.09), (28.0, 12, 1.05), (30.0, 13, 1.02)] {
        assert_eq!(rocksdb_probes(bits), probes);
        let ratio =
            theory::blocked_limit(bits, probes) / theory::best_fpr(FilterKind::Blocked, bits);
        assert!(ratio > cost, "{bits} bits: {ratio}");
    }
    for halves in 2..=100 {
        let bits = f64::from(halves) / 2.0;
        let theirs = theory::blocked_limit(bits, rocksdb_probes(bits));
        assert!(theory::best_fpr(FilterKind::Blocked, bits) <= theirs * 1.000_001, "{bits} bits");
    }
    let spec: FilterSpec = "blocked:26".parse().unwrap();
    let expected = spec.expected_fpr(50_000);
    let best = Plan::new(spec, 50_000).probes;
    let measure = |probes| with_probes(spec, (probes, probes), 200_000_000);
    measure(best).assert(expected, 0.025, "blocked:26, best number of probes");
    assert!(!measure(11).confirms(expected, 0.025), "RocksDB's number goes unnoticed");
}

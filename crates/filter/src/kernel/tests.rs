//! Every kernel gives the same answers as the scalar one, bit for bit.
//!
//! A kernel that the processor does not support is not tested. `TROMMEL_KERNELS=avx2,avx512` lists
//! the kernels without which the tests fail. The available kernels are printed in either case.

use std::marker::PhantomData;

use super::*;
use crate::block::Bits;
use crate::mix::{Golden, MAX_CHAIN, Scheme, position};
use crate::plan::Part;
use crate::{Filter, FilterKind, FilterSpec, blocked, paired};

/// Tests one chain with a kernel.
struct Chain<'a, const RESERVED: u32>(&'a Block, u32, usize);

impl<const RESERVED: u32> Task for Chain<'_, RESERVED> {
    type Answer = bool;

    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> bool {
        probe.hits::<RESERVED>(self.0, self.1, self.2)
    }
}

/// Sets one chain with a kernel.
struct Set<'a, const RESERVED: u32>(&'a mut Block, u32, usize);

impl<const RESERVED: u32> Task for Set<'_, RESERVED> {
    type Answer = ();

    #[inline(always)]
    fn run<P: Probe>(self, probe: P) {
        probe.set::<RESERVED>(self.0, self.1, self.2);
    }
}

/// Tests two chains with a kernel.
struct Both<'a>(&'a Block, u64, usize);

impl Task for Both<'_> {
    type Answer = bool;

    #[inline(always)]
    fn run<P: Probe>(self, probe: P) -> bool {
        probe.hits_both(self.0, self.1, self.2)
    }
}

fn vectors() -> Vec<Chosen> {
    let all: Vec<_> = Kernel::available().filter_map(Chosen::new).collect();
    println!("kernels: {:?}", all.iter().map(|chosen| chosen.kernel()).collect::<Vec<_>>());
    all
}

fn words(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let word = state ^ (state >> 31);
        word.wrapping_mul(0x9fb2_1c65_1e98_df25)
    }
}

fn check_chain<const RESERVED: u32>(kernels: &[Chosen], block: &Block, seed: u32) -> u32 {
    let mut hits = 0;
    for count in 0..=MAX_CHAIN {
        let expected = scalar::hits::<Golden, RESERVED>(block, seed, count);
        hits += u32::from(expected);
        for kernel in kernels {
            let answer = kernel.run(Chain::<RESERVED>(block, seed, count));
            assert_eq!(answer, expected, "{kernel:?}: {count} probes from {seed:#x} in {block:?}");
        }
    }
    hits
}

/// A block that holds exactly the bits of one chain, then the same without one of them.
fn check_exact<const RESERVED: u32>(kernels: &[Chosen], seed: u32) {
    for count in 1..=MAX_CHAIN {
        let mut block = Block::default();
        set::<Golden, RESERVED>(&mut block, seed, count);
        for kernel in kernels {
            let mut built = Block::default();
            kernel.run(Set::<RESERVED>(&mut built, seed, count));
            assert!(built == block, "{kernel:?}: {count} bits from {seed:#x}: {built:?}");
            assert!(kernel.run(Chain::<RESERVED>(&block, seed, count)), "{kernel:?}, {count}");
            for probe in 0..count {
                let bit = position::<RESERVED>(Golden::state(seed, probe));
                let mut less = block;
                less.0[bit as usize / 64] &= !(1 << (bit % 64));
                let answer = kernel.run(Chain::<RESERVED>(&less, seed, count));
                assert!(!answer, "{kernel:?}: {count} probes from {seed:#x}, without bit {bit}");
            }
        }
    }
}

#[test]
fn a_chain_needs_each_of_its_bits_in_every_kernel() {
    let (kernels, mut random) = (vectors(), words(1));
    for _ in 0..60 {
        let seed = random() as u32;
        check_exact::<0>(&kernels, seed);
        check_exact::<7>(&kernels, seed);
    }
    for seed in [0, 1, u32::MAX, 1 << 31, 1 << 9] {
        check_exact::<0>(&kernels, seed);
        check_exact::<7>(&kernels, seed);
    }
}

#[test]
fn every_kernel_answers_as_the_scalar_one() {
    let (kernels, mut random) = (vectors(), words(2));
    let mut hits = 0;
    for round in 0..4000 {
        // From nearly empty to nearly full.
        let mut block = Block::default();
        for word in &mut block.0 {
            *word = match round % 4 {
                0 => random() & random(),
                1 => random(),
                2 => random() | random(),
                _ => random() | random() | random() | random() | random(),
            };
        }
        let (seed, other) = (random() as u32, random() as u32);
        hits += check_chain::<0>(&kernels, &block, seed);
        hits += check_chain::<7>(&kernels, &block, seed);
        for count in 0..=2 * MAX_CHAIN {
            let expected = scalar::hits::<Golden, 0>(&block, seed, count.div_ceil(2))
                && scalar::hits::<Golden, 0>(&block, other, count / 2);
            let seeds = u64::from(seed) | u64::from(other) << 32;
            for kernel in &kernels {
                let answer = kernel.run(Both(&block, seeds, count));
                assert_eq!(answer, expected, "{kernel:?}: {count} in turn in {block:?}");
            }
        }
    }
    assert!((20_000..200_000).contains(&hits), "{hits} of 264,000: both answers are tested");
}

#[test]
fn single_and_batched_queries_agree_in_every_kernel() {
    let mut random = words(3);
    let (mut yes, mut no) = (0, 0);
    use FilterKind::{Blocked, Fuse, Paired, Ribbon, Standard};
    for kind in [Standard, Blocked, Paired, Ribbon, Fuse] {
        for (bits, keys) in [
            (0.5, 1000),
            (2.0, 3),
            (5.0, 40),
            (8.0, 1000),
            (10.0, 20_000),
            (16.0, 5000),
            (23.4, 30_000),
            (40.0, 3000),
            (64.0, 500),
        ] {
            let mut builder = FilterSpec::new(kind, bits).unwrap().builder();
            let mut hashes: Vec<u64> = (0..keys).map(|_| random()).collect();
            for &hash in &hashes {
                builder.add_hash(hash);
            }
            hashes.extend((0..2000).map(|_| random()));
            let filter = Filter::decode(builder.finish()).unwrap();
            let scalar = filter.clone().with_kernel(Kernel::Scalar);
            let expected: Vec<_> =
                hashes.iter().map(|&hash| scalar.may_contain_hash(hash)).collect();
            assert!(expected[..keys as usize].iter().all(|&answer| answer));
            yes += expected.iter().filter(|&&answer| answer).count();
            no += expected.iter().filter(|&&answer| !answer).count();
            for kernel in Kernel::available() {
                let filter = filter.clone().with_kernel(kernel);
                assert_eq!(filter.kernel(), kernel);
                hashes.iter().for_each(|&hash| filter.prefetch(hash));
                let one_by_one: Vec<_> =
                    hashes.iter().map(|&hash| filter.may_contain_hash(hash)).collect();
                assert!(one_by_one == expected, "{kernel}, {kind} at {bits} bits");
                let mut many = vec![true; hashes.len()];
                filter.may_contain_many(&hashes, &mut many);
                assert!(many == expected, "{kernel}, {kind} at {bits} bits, many at once");
            }
        }
    }
    assert!(yes > 100_000 && no > 30_000, "{yes} yes, {no} no");
}

/// Fills a filter with one kernel.
fn filled(kernel: Chosen, kind: FilterKind, count: usize, probes: u32, keys: &[Vec<u64>]) -> Bits {
    let mut blocks = vec![Block::default(); count];
    let part = &mut Part::whole(&mut blocks);
    if kind == FilterKind::Paired {
        let (counts, scheme) = (part.counts(keys), PhantomData::<Golden>);
        kernel.run(paired::PairedFill { part, probes, keys: &counts, chunks: keys, scheme });
    } else {
        kernel.run(blocked::BlockedFill { part, probes, chunks: keys });
    }
    Bits { blocks, probes }
}

/// Queries a filter with one kernel, one by one and many at once.
fn queried(kernel: Chosen, kind: FilterKind, bits: &Bits, hashes: &[u64]) -> [Vec<bool>; 2] {
    let mut many = vec![true; hashes.len()];
    let answers = &mut many[..];
    let query = if kind == FilterKind::Paired {
        kernel.run(paired::PairedContainsMany { bits, hashes, answers });
        QueryFn::with::<paired::PairedContains>(kernel)
    } else {
        kernel.run(blocked::BlockedContainsMany { bits, hashes, answers });
        QueryFn::with::<blocked::BlockedContains>(kernel)
    };
    [hashes.iter().map(|&hash| query.query(bits, hash)).collect(), many]
}

#[test]
fn every_size_and_number_of_probes_agrees_in_every_kernel() {
    let (kernels, mut random) = (vectors(), words(4));
    let (mut yes, mut no) = (0, 0);
    for count in 1..=300_usize {
        // From one probe in a dense filter to 64 in a sparse one; in two chunks.
        for probes in 1..=64_usize {
            let keys =
                [0, 1].map(|_| (0..(count * 5).div_ceil(probes)).map(|_| random()).collect());
            let keys: Vec<Vec<u64>> = keys.into();
            let mut hashes: Vec<u64> = keys.iter().flatten().copied().take(40).collect();
            let known = hashes.len();
            hashes.extend((0..50).map(|_| random()));
            for kind in [FilterKind::Blocked, FilterKind::Paired] {
                let is_odd = count > 1 && count % 2 == 1 || probes % 2 == 1;
                if kind == FilterKind::Paired && is_odd {
                    continue;
                }
                let bits = filled(kernels[0], kind, count, probes as u32, &keys);
                let [expected, _] = queried(kernels[0], kind, &bits, &hashes);
                assert!(expected[..known].iter().all(|&answer| answer), "{kind}: a key is denied");
                assert!(kind == FilterKind::Blocked || paired::pairs_are_valid(&bits.blocks));
                yes += expected[known..].iter().filter(|&&answer| answer).count();
                no += expected[known..].iter().filter(|&&answer| !answer).count();
                for &kernel in &kernels {
                    let case = || format!("{kernel:?}: {kind}, {count} blocks, {probes} probes");
                    let built = filled(kernel, kind, count, probes as u32, &keys);
                    assert!(built.blocks == bits.blocks, "{}, built", case());
                    let answers = queried(kernel, kind, &bits, &hashes);
                    assert!(answers.iter().all(|given| *given == expected), "{}", case());
                }
            }
        }
    }
    assert!(yes > 200 && no > 500_000, "{yes} yes, {no} no");
}

#[test]
fn an_empty_filter_denies_everything_in_every_kernel() {
    for kind in [FilterKind::Standard, FilterKind::Blocked, FilterKind::Paired] {
        let filter = Filter::decode(FilterSpec::new(kind, 10.0).unwrap().builder().finish());
        let filter = filter.unwrap();
        for kernel in Kernel::available() {
            let filter = filter.clone().with_kernel(kernel);
            [0, 1, u64::MAX].into_iter().for_each(|hash| filter.prefetch(hash));
            assert!(!filter.may_contain(b"any"));
            let mut answers = [true; 2];
            filter.may_contain_many(&[1, u64::MAX], &mut answers);
            assert_eq!(answers, [false; 2]);
        }
    }
}

/// The kernels of the comma-separated list `names` that are not in `available`.
fn missing(names: &str, available: &[Kernel]) -> Vec<Kernel> {
    let demanded = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    let demanded =
        demanded.map(|name| name.parse().expect("TROMMEL_KERNELS names kernels of this crate"));
    demanded.filter(|kernel| !available.contains(kernel)).collect()
}

#[test]
fn kernels_that_are_demanded_are_tested() {
    let available: Vec<Kernel> = vectors().iter().map(|chosen| chosen.kernel()).collect();
    let demanded = std::env::var("TROMMEL_KERNELS").unwrap_or_default();
    let absent = missing(&demanded, &available);
    assert!(absent.is_empty(), "TROMMEL_KERNELS demands {absent:?}: this processor lacks them");
    assert_eq!(missing("avx2, avx512,scalar", &[Kernel::Scalar, Kernel::Avx512]), [Kernel::Avx2]);
    assert_eq!(missing("", &[Kernel::Scalar]), []);
}

#[test]
fn kernels_have_names() {
    for kernel in Kernel::ALL {
        assert_eq!(kernel.to_string().parse(), Ok(kernel));
    }
    assert!("sse9".parse::<Kernel>().unwrap_err().to_string().contains("avx512"));
    assert!(Kernel::available().any(|kernel| kernel == Kernel::Scalar));
}

//! Filters of more bits than 32-bit arithmetic can address. Every run tests the properties that can
//! be shown without building them. Some are built in the long run, which needs 12 GB of memory:
//!
//! `cargo test --release -p trommel-filter --lib large -- --ignored --nocapture --test-threads 1`

use super::Random;
use super::cells::{Cell, hits};
use crate::block::Block;
use crate::kernel;
use crate::kind::FilterKind;
use crate::mix::RESERVED;
use crate::mix::{Golden, Scheme, fold};
use crate::paired;
use crate::plan::{Part, Plan};
use crate::{Filter, FilterSpec, blocked, theory};

/// The sizes and rates of 10^9 to 10^15 keys are those of the limit.
#[test]
fn plans_and_rates_hold_for_any_number_of_keys() {
    for kind in [FilterKind::Standard, FilterKind::Blocked, FilterKind::Paired] {
        for bits in [10.0, 23.4] {
            let spec = FilterSpec::new(kind, bits).unwrap();
            let limit = theory::best_fpr(kind, bits);
            for keys in [10_u64.pow(9), 10_u64.pow(12), 10_u64.pow(15)] {
                let plan = Plan::new(spec, keys);
                let stored = plan.blocks as f64 * 512.0 / keys as f64;
                assert!((stored / bits - 1.0).abs() < 1e-5, "{spec}, {keys} keys: {stored}");
                let rate = spec.expected_fpr(keys);
                assert!((rate / limit - 1.0).abs() < 1e-4, "{spec}, {keys} keys: {rate:e}");
                assert_eq!(spec.expected_bytes(keys), 64 + 64 * plan.blocks);
            }
        }
    }
}

/// A part in the middle of a terabyte filter places its keys where a query looks for them.
#[test]
fn parts_lie_where_they_should_in_a_filter_of_2_to_the_43_bits() {
    let (count, first) = (1_u64 << 34, (1_u64 << 33) + 512);
    let mut random = Random(5);
    // A block's hashes are an interval of 2^64 / count.
    let hashes: Vec<u64> =
        (0..5_000).map(|i| (first + i % 256) << 30 | random.next() >> 34).collect();
    let place = |hash: u64| ((hash >> 30) - first) as usize;
    let mut blocks = [Block::default(); 256];
    let mut part = Part { count, first: first as usize, blocks: &mut blocks };
    assert!(hashes.iter().all(|&hash| part.place(hash) == place(hash)));
    blocked::fill(&mut part, 13, hashes.iter().copied());
    for &hash in &hashes {
        let (block, (seed, other)) = (&blocks[place(hash)], Golden::seeds(fold(hash)));
        assert!(kernel::hits::<Golden, 0>(block, seed, 7));
        assert!(kernel::hits::<Golden, 0>(block, other, 6));
    }
    let mut blocks = [Block::default(); 256];
    let mut part = Part { count, first: first as usize, blocks: &mut blocks };
    paired::fill::<Golden>(&mut part, 16, hashes.iter().copied());
    assert!(paired::pairs_are_valid(&blocks));
    for &hash in &hashes {
        let primary = place(hash);
        let partner = paired::partner::<Golden>(primary, &blocks[primary]);
        let (seed, other) = Golden::seeds(fold(hash));
        assert!(kernel::hits::<Golden, RESERVED>(&blocks[primary], seed, 8));
        assert!(kernel::hits::<Golden, RESERVED>(&blocks[partner], other, 8));
    }
}

/// Builds one filter, queries all of its keys and measures its rate to some 0.1%. Filters of this
/// size hardly differ from each other.
fn build_large(kind: FilterKind, keys: u64) {
    let cell = Cell { kind, bits: 10.0, keys };
    let mut builder = cell.spec().builder();
    let mut random = Random(keys);
    (0..keys).for_each(|_| builder.add_hash(random.next()));
    let filter = Filter::decode(builder.finish()).unwrap();
    assert!(filter.memory_bytes() > 1 << 29, "more than 2^32 bits");
    let mut random = Random(keys);
    for _ in 0..20_000_000 {
        assert!(filter.may_contain_hash(random.next()), "a key is denied");
    }
    let queries = 120_000_000;
    let hits = hits(&filter, queries, &mut Random(!keys)) as f64;
    let (rate, expected) = (hits / queries as f64, filter.expected_fpr());
    let z = (rate - expected) * queries as f64 / hits.sqrt();
    println!("{}: expected {expected:.5e}, measured {rate:.5e} ({z:+.2} sigma)", cell.name());
    assert!(z.abs() < 3.0);
}

#[test]
#[ignore = "long: builds a filter of 10^10 bits, with 12 GB of memory"]
fn large_standard_of_a_billion_keys() {
    build_large(FilterKind::Standard, 1_000_000_000);
}

#[test]
#[ignore = "long: builds a filter of 4.5 * 10^9 bits"]
fn large_blocked_above_32_bits() {
    build_large(FilterKind::Blocked, 450_000_000);
}

#[test]
#[ignore = "long: builds a filter of 4.5 * 10^9 bits"]
fn large_paired_above_32_bits() {
    build_large(FilterKind::Paired, 450_000_000);
}

//! Filters of keys whose hashes were chosen by an adversary: attempts and additions of a build are
//! bounded, the size is that of any other keys, and the filter states its actual kind and rate.
//!
//! Before these bounds, 1,000,000 keys of one shard of a ribbon were not built in 290 s, and a
//! build of the 3,200 keys of [`defeating_every_seed`] never ended.

use crate::mix::{remix, scale};
use crate::ribbon::{self, Ribbon};
use crate::{Filter, FilterKind, FilterSpec};

/// The hash for which [`remix`] returns `mixed`.
fn unmix(mixed: u64) -> u64 {
    let unshift = |x: u64, by: u32| (0..64 / by).fold(x, |y, _| x ^ y >> by);
    let inverse = |factor: u64| {
        (0..6).fold(factor, |x: u64, _| x.wrapping_mul(2_u64.wrapping_sub(factor.wrapping_mul(x))))
    };
    let x = unshift(mixed, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    let x = unshift(x, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    unshift(x, 30).wrapping_sub(0x9e37_79b9_7f4a_7c15)
}

/// The hash whose equation with `seed` derives from `mixed`.
fn hash_for(mixed: u64, seed: u8) -> u64 {
    unmix(mixed) ^ u64::from(seed).wrapping_mul(ribbon::SEED_FACTOR)
}

/// Hashes within 2^-6 of the range: all in one shard, or one block.
fn of_one_place(keys: u64) -> Vec<u64> {
    (0..keys).map(|key| remix(key) >> 6).collect()
}

/// For each of the 16 seeds, 200 equations in the same 128 unknowns.
fn defeating_every_seed() -> Vec<u64> {
    let group = |seed| (0..200).map(move |nth| hash_for(7 << 60 | remix(nth) >> 40, seed));
    (0..16).flat_map(group).collect()
}

/// All equations of the first seed begin in the first half of the slots.
fn crowding_one_half(keys: u64) -> Vec<u64> {
    (0..keys).map(|key| hash_for(remix(key) >> 1, 0)).collect()
}

/// Two hashes, alternating.
fn by_turns(keys: u64) -> Vec<u64> {
    (0..keys).map(|key| remix(key % 2)).collect()
}

fn finish(spec: FilterSpec, hashes: &[u64]) -> Vec<u8> {
    let mut builder = spec.builder();
    hashes.iter().for_each(|&hash| builder.add_hash(hash));
    builder.finish()
}

fn build(spec: FilterSpec, hashes: &[u64]) -> Filter {
    let filter = Filter::decode(finish(spec, hashes)).unwrap();
    assert!(hashes.iter().all(|&hash| filter.may_contain_hash(hash)), "{spec} lost a key");
    filter
}

/// The fraction of `queries` absent hashes, made by `hash`, that pass.
fn passing(filter: &Filter, queries: u64, hash: impl Fn(u64) -> u64) -> f64 {
    let passed = (0..queries).filter(|&n| filter.may_contain_hash(hash(remix(n | 1 << 63))));
    passed.count() as f64 / queries as f64
}

#[test]
fn unmix_inverts_remix() {
    for n in [0, 1, 77, u64::MAX, 0x0123_4567_89ab_cdef] {
        assert_eq!(remix(unmix(n)), n);
    }
}

/// The claims at the head of `ribbon.rs`, for random keys.
#[test]
fn a_ribbon_of_random_keys_needs_few_attempts_and_additions() {
    let sizes = [1, 10, 100, 127, 1000, 1999, 2000, 5000, 10_000, 16_384, 16_400, 40_000, 300_000];
    for (keys, millibits) in sizes.into_iter().zip([700, 10_000, 60_000].into_iter().cycle()) {
        let (count, mut shards, mut attempts, mut most) = (ribbon::shards(keys), 0, 0, 0);
        for salt in 0..60_u64.div_ceil(count) {
            let mut ribbon = Ribbon::with_room(keys, millibits);
            let mut by_shard = vec![Vec::new(); count as usize];
            for key in 0..keys {
                let hash = remix(key ^ salt << 40);
                by_shard[scale(hash, count) as usize].push(hash);
            }
            for hashes in &by_shard {
                assert!(ribbon.push(hashes.len() as u64, &hashes.iter().copied()), "{keys} keys");
            }
            let work = ribbon.work();
            most = most.max(work.additions / (keys * work.attempts.div_ceil(count)));
            (shards, attempts) = (shards + count, attempts + work.attempts);
        }
        println!("{keys} keys: {attempts} attempts for {shards} shards, {most} additions a key");
        assert!(attempts <= 2 * shards, "{keys} keys: {attempts} attempts for {shards} shards");
        assert!(most <= 60, "{keys} keys: {most} additions a key");
    }
}

#[test]
fn keys_of_one_shard_become_a_standard_filter() {
    for (keys, bits) in [(40_000, 10.0), (150_000, 10.0), (150_000, 0.5), (150_000, 64.0)] {
        let spec = FilterSpec::new(FilterKind::Ribbon, bits).unwrap();
        let filter = build(spec, &of_one_place(keys));
        assert_eq!(filter.kind(), FilterKind::Standard, "{spec} of {keys} keys");
        let standard = FilterSpec::new(FilterKind::Standard, bits).unwrap();
        assert_eq!(filter.expected_fpr(), standard.expected_fpr(keys));
        assert_eq!(filter.requested_bits_per_key(), bits);
        assert_eq!(filter.keys(), keys);
    }
}

/// The rate also holds for absent keys of the same shard, since the probes come from the remixed
/// hash.
#[test]
fn the_standard_filter_in_place_of_a_ribbon_has_the_rate_that_it_states() {
    let spec = FilterSpec::new(FilterKind::Ribbon, 7.0).unwrap();
    let filter = build(spec, &of_one_place(60_000));
    let expected = filter.expected_fpr();
    for shift in [0, 6] {
        let measured = passing(&filter, 400_000, |hash| hash >> shift);
        // Some 14,000 pass: five standard deviations are 4%.
        assert!((measured / expected - 1.0).abs() < 0.04, "{measured} for {expected}");
    }
}

#[test]
fn keys_that_defeat_every_seed_end_after_32_attempts() {
    let hashes = defeating_every_seed();
    for millibits in [4_000, 10_000, 40_000] {
        let keys = hashes.len() as u64;
        let mut ribbon = Ribbon::with_room(keys, millibits);
        assert!(!ribbon.push(keys, &hashes.iter().copied()));
        let work = ribbon.work();
        assert_eq!(work.attempts, 32);
        assert!(work.additions <= 32 * 512 * keys, "{work:?}");
        let spec = FilterSpec::new(FilterKind::Ribbon, f64::from(millibits) / 1000.0).unwrap();
        assert_eq!(build(spec, &hashes).kind(), FilterKind::Standard);
    }
}

/// One shard may take the attempts of many, but all together have 4 each.
#[test]
fn a_filter_of_many_shards_does_not_try_32_times_for_each() {
    let keys = 20 << 14;
    let mut ribbon = Ribbon::with_room(keys, 10_000);
    let easy = |shard: u64| (0..16_000).map(move |key| remix(key | shard << 32));
    let mut solved = 0;
    while solved < 8 && ribbon.push(16_000, &easy(solved)) {
        solved += 1;
    }
    let before = ribbon.work().attempts;
    assert!(!ribbon.push(3200, &defeating_every_seed().iter().copied()));
    assert!(ribbon.work().attempts <= before + 32);
    while ribbon.push(16_000, &easy(solved)) {
        solved += 1;
        assert!(ribbon.work().attempts <= 32 + 4 * 19);
        if solved == 200 {
            break;
        }
    }
    // Each shard takes at least one attempt.
    assert!(solved <= 32 + 4 * 19, "{solved} shards of 20");
}

#[test]
fn equations_that_need_many_additions_are_given_up() {
    let (keys, millibits) = (16_000, 10_000);
    let hashes = crowding_one_half(keys);
    let mut ribbon = Ribbon::with_room(keys, millibits);
    assert!(ribbon.push(keys, &hashes.iter().copied()), "the other seeds are not concerned");
    let work = ribbon.work();
    assert!(work.attempts >= 2, "{work:?}");
    assert!(work.additions <= (512 + 60 * (work.attempts - 1)) * keys, "{work:?}");
    let spec = FilterSpec::new(FilterKind::Ribbon, 10.0).unwrap();
    assert_eq!(build(spec, &hashes).kind(), FilterKind::Ribbon);
}

/// Equal hashes have equal equations, which do not contradict each other.
#[test]
fn duplicate_keys_do_not_contradict_each_other() {
    let spec = FilterSpec::new(FilterKind::Ribbon, 10.0).unwrap();
    assert_eq!(build(spec, &by_turns(10_000)).kind(), FilterKind::Ribbon);
    assert_eq!(build(spec, &vec![remix(5); 300_000]).keys(), 1);
    // Here they exceed the number that a shard has by chance.
    let filter = build(spec, &by_turns(300_000));
    assert_eq!((filter.kind(), filter.keys()), (FilterKind::Standard, 300_000));
}

/// The other kinds set each bit once for each key, so only their rate can suffer. They state the
/// rate of their bits: 1 in 64 for 100,000 keys in 1 of 64 blocks, where theory predicts 6e-9.
#[test]
fn kinds_that_set_bits_are_as_large_as_ever_and_state_their_rate() {
    let one_block = |keys: u64| (0..keys).map(|key| remix(key) >> 30).collect();
    let sets: [Vec<u64>; 4] =
        [of_one_place(100_000), one_block(100_000), by_turns(100_000), defeating_every_seed()];
    for text in ["standard:10", "blocked:10", "paired:10", "paired:0.5", "blocked:40", "paired:40"]
    {
        let spec: FilterSpec = text.parse().unwrap();
        for (nth, hashes) in sets.iter().enumerate() {
            let bytes = finish(spec, hashes).len() as u64;
            let filter = build(spec, hashes);
            assert_eq!((filter.kind(), filter.keys()), (spec.kind(), hashes.len() as u64));
            assert_eq!(bytes, spec.expected_bytes(filter.keys()), "{text}");
            let (measured, stated) =
                (passing(&filter, 100_000, |hash| hash), filter.expected_fpr());
            // The lowest rate stated for whole blocks, 1 in 64, is observed 1,562 times.
            assert!(measured <= 1.1 * stated + 1e-4, "{text}, set {nth}: {measured}, not {stated}");
        }
        let stated = build(spec, &sets[0]).expected_fpr();
        let is_crowded = spec.kind() != FilterKind::Standard && spec.bits_per_key() > 1.0;
        assert!(!is_crowded || stated >= 0.0155, "{text}: {stated}");
    }
}

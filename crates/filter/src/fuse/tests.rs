use super::*;
use crate::mix::{FOLD_FACTOR, fold};
use crate::{DecodeError, Filter, FilterKind, FilterSpec};

fn hashes(keys: u64, salt: u64) -> Vec<u64> {
    (0..keys).map(|key| remix(key ^ salt << 40)).collect()
}

fn finish(spec: FilterSpec, hashes: &[u64]) -> Vec<u8> {
    let mut builder = spec.builder();
    hashes.iter().for_each(|&hash| builder.add_hash(hash));
    builder.finish()
}

fn build(spec: &str, hashes: &[u64]) -> Filter {
    let filter = Filter::decode(finish(spec.parse().unwrap(), hashes)).unwrap();
    assert!(hashes.iter().all(|&hash| filter.may_contain_hash(hash)), "{spec} lost a key");
    filter
}

/// The claim at the head of the module: random keys need hardly more than one attempt.
#[test]
fn random_keys_need_few_attempts() {
    for keys in [1, 2, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 32_767, 32_768, 300_000] {
        let shards = (1_000_000 / keys).clamp(2, 1000);
        let (mut attempts, mut most) = (0, 0);
        for salt in 0..shards {
            let mut fuse = Fuse::new(keys, 9000);
            let before = fuse.attempts;
            assert!(fuse.push(&[hashes(keys, salt)]), "{keys} keys, salt {salt}");
            attempts += before - fuse.attempts;
            most = most.max(before - fuse.attempts);
        }
        let mean = attempts as f64 / shards as f64;
        assert!(mean < 1.5 && most <= 10, "{keys} keys: {mean} on average, {most} at most");
    }
}

/// All bytes counted: 1.13 times the information-theoretic minimum from some hundred thousand keys
/// on, at whole bits.
#[test]
fn the_size_is_near_the_minimum_for_the_rate() {
    for (keys, most) in [(10_000, 1.27), (100_000, 1.20), (1_000_000, 1.14), (30_000_000, 1.14)] {
        for bits in [9.0, 18.0, 36.0] {
            let size = FilterSpec::new(FilterKind::Fuse, bits).unwrap().size(keys);
            let minimum = -size.expected_fpr.log2();
            let factor = size.bits_per_key / minimum;
            assert!(factor < most, "{keys} keys of {bits} bits: {factor}");
        }
    }
}

/// Any rate can be requested, and is met to a thousandth of a bit: 0.1%.
#[test]
fn every_rate_is_met() {
    // Half a bit per key, the least, has a rate of 0.78.
    for exponent in 3..120 {
        let rate = 0.9_f64.powi(exponent);
        let spec = FilterSpec::with_fpr(FilterKind::Fuse, rate).unwrap();
        for keys in [1000, 20_000, 1_000_000, 5_000_000] {
            let expected = spec.expected_fpr(keys);
            let off = expected / rate - 1.0;
            assert!((-0.02..0.01).contains(&off), "{keys} keys: {expected} for {rate}");
        }
    }
}

/// The share of absent keys that are compared in one bit more is the one that the rate assumes.
#[test]
fn the_share_of_wide_keys_is_the_computed_one() {
    for (keys, millibits) in [(100, 9_600), (2000, 10_000), (40_000, 700), (200_000, 17_300)] {
        let shape = Shape::of(keys, millibits);
        let tables = Tables::new(shape);
        let wide = |hash: &&u64| {
            let lookup = SlotLookup::new(&tables, &[], **hash);
            lookup.mask.count_ones() == u32::from(shape.bits) + 1
        };
        let queries = hashes(400_000, 9);
        let share = queries.iter().filter(wide).count() as f64 / queries.len() as f64;
        let expected = 2.0 * (1.0 - shape.rate() * f64::from(shape.bits).exp2());
        assert!((share - expected).abs() < 0.004, "{keys} keys: {share} for {expected}");
    }
}

/// Keys of several shards, whose tables follow one another.
#[test]
fn a_filter_of_several_shards_has_the_same_rate() {
    let keys = hashes(2_200_000, 1);
    let bytes = finish("fuse:7.5".parse().unwrap(), &keys);
    // Too large for a golden file: these bytes are the first version's.
    assert_eq!(
        crate::hash(&bytes[64..]),
        10_076_607_908_580_972_337,
        "they are written differently"
    );
    let filter = Filter::decode(bytes).unwrap();
    assert!(keys.iter().all(|&hash| filter.may_contain_hash(hash)));
    assert_eq!((filter.kind(), Shape::decode(filter.blocks()).shards), (FilterKind::Fuse, 3));
    let absent = hashes(1_000_000, 2);
    let passed = absent.iter().filter(|&&hash| filter.may_contain_hash(hash)).count();
    let rate = passed as f64 / absent.len() as f64;
    let off = rate / filter.expected_fpr() - 1.0;
    assert!(off.abs() < 0.05, "{rate} for {}", filter.expected_fpr());
}

/// Equal hashes, which no salt separates, are reduced to one.
#[test]
fn repeated_hashes_are_separated_from_the_others() {
    let by_turns: Vec<u64> = (0..10_000).map(|key| remix(key % 2)).collect();
    assert_eq!(build("fuse:10", &by_turns).kind(), FilterKind::Fuse);
    let twice: Vec<u64> = (0..10_000).chain(0..10_000).map(remix).collect();
    assert_eq!(build("fuse:10", &twice).kind(), FilterKind::Fuse);
}

/// The inverse of [`fold`].
fn unfold(folded: u64) -> u64 {
    let inverse = (0..6).fold(FOLD_FACTOR, |inverse: u64, _| {
        inverse.wrapping_mul(2_u64.wrapping_sub(FOLD_FACTOR.wrapping_mul(inverse)))
    });
    (folded ^ (folded >> 32)).wrapping_mul(inverse)
}

/// Keys that defeat the first attempts, and keys that no attempt can separate: the work is bounded,
/// and the filter is of a kind that can be built.
#[test]
fn chosen_keys_are_built_into_another_kind() {
    // All keys begin in one slot of 2^-20 of the range, which has a segment's three slots for all.
    let narrow: Vec<u64> = (0..100_000).map(|key| remix(key) >> 20).collect();
    let filter = build("fuse:10", &narrow);
    assert_eq!(filter.kind(), FilterKind::Standard);
    // Far more keys than its share in one shard of several.
    let crowded: Vec<u64> = (0..1_500_000).map(|key| remix(key) >> 2).collect();
    let filter = build("fuse:4", &crowded);
    assert_eq!(filter.kind(), FilterKind::Standard);
    let mut fuse = Fuse::new(1_500_000, 4000);
    assert!(!fuse.push(&[crowded]));
    assert_eq!(fuse.attempts, SHARD_ATTEMPTS + MEAN_ATTEMPTS, "it is not attempted");
}

#[test]
fn the_first_attempt_can_be_defeated_but_not_the_next() {
    // Keys whose offsets in their segments are all 0 with the first salt: four keys of one first
    // slot have the same three slots.
    assert_eq!(fold(unfold(0x0123_4567_89ab_cdef)), 0x0123_4567_89ab_cdef);
    let keys: Vec<u64> =
        (0..20_000_u64).map(|key| unfold(remix(key / 4) << 40 | (key % 4) << 58)).collect();
    let mut distinct = keys.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let mut fuse = Fuse::new(distinct.len() as u64, 9000);
    let before = fuse.attempts;
    assert!(fuse.push(&[distinct]));
    assert!(before - fuse.attempts > 1, "the first attempt was not defeated");
    assert_eq!(build("fuse:9", &keys).kind(), FilterKind::Fuse);
}

/// Before anything is read, a prefetch is for a line that the query reads.
#[test]
fn the_prefetched_slot_is_the_first() {
    let keys = hashes(50_000, 3);
    let filter = build("fuse:10.3", &keys);
    let tables = Tables::new(Shape::decode(filter.blocks()));
    for &hash in &keys {
        let (shard, first) = tables.first(hash);
        let bit = tables.table(shard) + tables.shape.bit(first);
        assert_eq!(bit, SlotLookup::new(&tables, filter.blocks(), hash).bits[0]);
    }
}

/// A forged shape is refused before a query could read beyond the filter.
#[test]
fn impossible_shapes_are_refused() {
    let bytes = finish("fuse:10".parse().unwrap(), &hashes(1000, 4));
    let forge = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        let sum = crate::format::checksum(&bytes[..56], &bytes[64..]);
        bytes[56..64].copy_from_slice(&sum.to_le_bytes());
        Filter::decode(bytes)
    };
    assert!(forge(64, 1).is_ok(), "the forgery keeps the checksum");
    let body = 64;
    let (shards, starts, wide, segment, bits, reserved) =
        (body, body + 4, body + 8, body + 12, body + 13, body + 14);
    for (at, value) in [
        (shards, 0),
        (shards, 2),
        (starts, 1),
        (starts + 3, 0x80),
        (wide + 3, 0xff),
        (segment, 0),
        (segment, 255),
        (bits, 57),
        (bits, 0),
        (reserved, 1),
    ] {
        let refused = forge(at, value);
        assert!(matches!(refused, Err(DecodeError::Damaged { .. })), "{at}: {value}: {refused:?}");
    }
}

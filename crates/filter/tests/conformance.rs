//! The contract of every kind of filter, tested for each.

use trommel_filter::{DecodeError, Filter, FilterKind, FilterSpec, hash};

/// Every kind, in sizes with few probes, the usual number and very many.
const SPECS: [&str; 23] = [
    "standard:0.5",
    "standard:10",
    "standard:64",
    "standard:fpr=1e-3",
    "blocked:0.5",
    "blocked:12.345",
    "blocked:64",
    "blocked:fpr=1e-3",
    "paired:0.5",
    "paired:10",
    "paired:23.4",
    "paired:64",
    "paired:fpr=1e-3",
    "ribbon:0.5",
    "ribbon:7",
    "ribbon:16.3",
    "ribbon:64",
    "ribbon:fpr=1e-3",
    "fuse:0.5",
    "fuse:9",
    "fuse:16.3",
    "fuse:64",
    "fuse:fpr=1e-3",
];

fn specs() -> impl Iterator<Item = FilterSpec> {
    SPECS.iter().map(|text| text.parse().expect("a valid spec"))
}

fn key(n: u64) -> [u8; 8] {
    n.to_le_bytes()
}

fn built(spec: FilterSpec, keys: u64) -> Vec<u8> {
    let mut builder = spec.builder();
    assert!(builder.is_empty());
    (0..keys).for_each(|n| builder.add(&key(n)));
    assert_eq!(builder.len(), keys);
    builder.finish()
}

fn decoded(bytes: &[u8]) -> Filter {
    Filter::decode(bytes).expect("what a builder wrote")
}

/// Numbers of keys around all sizes at which the layout changes.
fn sizes() -> impl Iterator<Item = u64> {
    (0..200)
        .chain([255, 256, 257, 511, 512, 513, 1000, 2801, 4999, 6553, 6554, 6600, 30_000, 100_000])
}

#[test]
fn no_key_is_ever_denied() {
    for spec in specs() {
        for keys in sizes() {
            let filter = decoded(&built(spec, keys));
            for n in 0..keys {
                assert!(filter.may_contain(&key(n)), "{spec}, {keys} keys: {n} is denied");
            }
        }
    }
}

/// Every number of keys up to 2,000 at the usual sizes, and up to 500 at all sizes.
#[test]
fn no_key_is_denied_at_any_small_number_of_keys() {
    for spec in specs() {
        let usual = (8.0..30.0).contains(&spec.bits_per_key());
        for keys in 1..=if usual { 2_000 } else { 500 } {
            let mut builder = spec.builder();
            (0..keys).for_each(|n| builder.add_hash(hash(&key(n)) ^ keys));
            let filter = decoded(&builder.finish());
            for n in 0..keys {
                let hash = hash(&key(n)) ^ keys;
                assert!(filter.may_contain_hash(hash), "{spec}, {keys} keys: {n} is denied");
            }
        }
    }
}

#[test]
fn no_key_is_denied_at_random_large_numbers_of_keys() {
    for (nth, spec) in specs().enumerate() {
        let keys = 100_000 + hash(&key(nth as u64)) % 900_000;
        let hashes: Vec<u64> = (0..keys).map(|n| hash(&key(n))).collect();
        let mut builder = spec.builder();
        hashes.iter().for_each(|&hash| builder.add_hash(hash));
        let filter = decoded(&builder.finish());
        let mut answers = vec![false; hashes.len()];
        filter.may_contain_many(&hashes, &mut answers);
        assert!(answers.iter().all(|&answer| answer), "{spec}, {keys} keys: one is denied");
    }
}

fn assert_near(is: f64, should_be: f64, tolerance: f64) {
    assert!((is - should_be).abs() <= tolerance * should_be, "{is} instead of {should_be}");
}

#[test]
fn a_filter_states_its_parameters() {
    for spec in specs() {
        for keys in sizes() {
            let bytes = built(spec, keys);
            let filter = decoded(&bytes);
            assert_eq!(filter.kind(), spec.kind());
            assert_eq!(filter.keys(), keys);
            assert_eq!(filter.requested_bits_per_key(), spec.bits_per_key());
            // A ribbon's shards differ in size, so its rate and size are exact only once it is
            // built.
            let tolerance = if spec.kind() == FilterKind::Ribbon { 0.05 } else { 0.0 };
            let worth = |rate: f64| -rate.log2();
            let (is, planned) = (filter.expected_fpr(), spec.expected_fpr(keys));
            if tolerance == 0.0 || keys == 0 {
                assert_eq!(is, planned, "{spec}, {keys} keys");
            } else {
                assert_near(worth(is), worth(planned), tolerance);
            }
            assert_near(bytes.len() as f64, spec.expected_bytes(keys) as f64, tolerance);
            let least_slots = match spec.kind() {
                FilterKind::Ribbon => 136.0,
                FilterKind::Fuse => 12.0,
                _ => 0.0,
            };
            let slack = (1024.0 + least_slots * spec.bits_per_key()) / keys.max(1) as f64;
            let (requested, stored) = (spec.bits_per_key(), filter.bits_per_key());
            if keys > 0 {
                assert!(
                    stored >= requested.min(63.0),
                    "{spec}, {keys} keys: {stored} bits per key"
                );
                // A fuse filter has the rate of its bits with any number of keys, and more bits
                // for few.
                let factor = if spec.kind() == FilterKind::Fuse { 1.75 } else { 1.0 };
                assert!(
                    stored <= requested * factor + slack + tolerance,
                    "{spec}, {keys} keys: {stored} bits per key"
                );
                assert!(filter.expected_fpr() > 0.0 && filter.expected_fpr() < 1.0);
            }
            assert!((1..=64).contains(&filter.probes()));
            assert!(filter.memory_bytes() <= bytes.len() + 128, "no more memory than bytes");
            assert_eq!(bytes, built(spec, keys), "the same keys give the same bytes");
        }
    }
}

#[test]
fn a_filter_without_keys_denies_everything() {
    for spec in specs() {
        let bytes = spec.builder().finish();
        let filter = decoded(&bytes);
        assert_eq!(bytes.len(), 64);
        assert_eq!(filter.expected_fpr(), 0.0);
        assert_eq!(filter.bits_per_key(), 0.0);
        let hashes: Vec<u64> = (0..1000).map(|n| hash(&key(n))).chain([0, u64::MAX]).collect();
        let mut answers = vec![true; hashes.len()];
        filter.may_contain_many(&hashes, &mut answers);
        assert!(!hashes.iter().any(|&hash| filter.may_contain_hash(hash)));
        assert!(!answers.contains(&true));
    }
}

#[test]
fn a_filter_of_one_key_denies_all_others() {
    for spec in specs().filter(|spec| spec.expected_fpr(1) < 1e-6) {
        let filter = decoded(&built(spec, 1));
        assert!(filter.may_contain(&key(0)));
        assert!(!(1..10_000).any(|n| filter.may_contain(&key(n))), "{spec}");
    }
}

#[test]
fn adjacent_duplicates_are_dropped_and_no_key_is_lost() {
    for spec in specs() {
        let mut builder = spec.builder();
        for n in 0..1000 {
            (0..=n % 4).for_each(|_| builder.add(&key(n)));
        }
        assert_eq!(builder.len(), 1000);
        assert_eq!(builder.finish(), built(spec, 1000));

        // Duplicates that are not adjacent count again; no key is lost.
        let mut builder = spec.builder();
        (0..3).for_each(|_| (0..1000).for_each(|n| builder.add(&key(n))));
        assert_eq!(builder.len(), 3000);
        let filter = decoded(&builder.finish());
        assert!((0..1000).all(|n| filter.may_contain(&key(n))));

        // All keys in one block: the paired kind has empty and crowded blocks.
        let mut builder = spec.builder();
        (0..3000_u64).for_each(|n| builder.add_hash(n << 8 | 1 << 63));
        let filter = decoded(&builder.finish());
        assert!((0..3000_u64).all(|n| filter.may_contain_hash(n << 8 | 1 << 63)));
    }
}

#[test]
fn extreme_hashes_are_kept() {
    for spec in specs() {
        for keys in [0, 10, 1000, 10_000] {
            let mut builder = spec.builder();
            let extremes = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 32];
            extremes.iter().for_each(|&hash| builder.add_hash(hash));
            (0..keys).for_each(|n| builder.add(&key(n)));
            let filter = decoded(&builder.finish());
            assert!(extremes.iter().all(|&hash| filter.may_contain_hash(hash)));
        }
    }
}

#[test]
fn batched_queries_agree_with_single_ones() {
    for spec in specs() {
        for keys in [0, 1, 50, 5000] {
            let filter = decoded(&built(spec, keys));
            let hashes: Vec<u64> = (0..10_003).map(|n| hash(&key(n))).collect();
            for count in [0, 1, 31, 32, 33, hashes.len()] {
                let mut answers = vec![false; count];
                filter.may_contain_many(&hashes[..count], &mut answers);
                for (&hash, answer) in hashes.iter().zip(answers) {
                    assert_eq!(filter.may_contain_hash(hash), answer);
                }
            }
        }
    }
}

#[test]
fn rates_are_as_announced() {
    for spec in specs().filter(|spec| spec.expected_fpr(20_000) > 5e-4) {
        let filter = decoded(&built(spec, 20_000));
        let queries = 1_000_000;
        let hits = (20_000..20_000 + queries).filter(|&n| filter.may_contain(&key(n))).count();
        let (rate, expected) = (hits as f64 / queries as f64, filter.expected_fpr());
        assert!((rate / expected - 1.0).abs() < 0.15, "{spec}: {rate} instead of {expected}");
    }
}

#[test]
fn a_builder_takes_little_memory() {
    for spec in specs() {
        let mut builder = spec.builder();
        assert!(builder.memory_bytes() < 256);
        (0..1_000_000_u64).for_each(|n| builder.add_hash(n << 40));
        let bytes = builder.memory_bytes();
        assert!((8_000_000..8_400_000).contains(&bytes), "{bytes} bytes for a million hashes");
    }
}

#[test]
fn none_is_no_filter() {
    let spec: FilterSpec = "none".parse().expect("a valid spec");
    assert_eq!(spec, FilterSpec::NONE);
    assert_eq!(spec.kind(), FilterKind::None);
    assert_eq!(spec.expected_bytes(1_000_000), 0);
    assert_eq!(spec.expected_fpr(1_000_000), 1.0);
    let mut builder = spec.builder();
    (0..100_000).for_each(|n| builder.add(&key(n)));
    assert_eq!(builder.len(), 100_000);
    assert!(builder.memory_bytes() < 256);
    let bytes = builder.finish();
    assert!(bytes.is_empty());
    assert!(matches!(Filter::decode(bytes), Err(DecodeError::Damaged { .. })));
}

#[test]
#[should_panic(expected = "one answer for each hash")]
fn answers_and_hashes_must_have_the_same_length() {
    decoded(&built(FilterSpec::new(FilterKind::Paired, 10.0).expect("valid"), 10))
        .may_contain_many(&[1, 2], &mut [false]);
}

#[test]
fn filters_can_be_shared() {
    fn shareable<T: Send + Sync + Clone + 'static>() {}
    shareable::<Filter>();
    shareable::<FilterSpec>();
}

//! Memory: building takes at most 12 bytes a key on top of the filter (21 for a ribbon, 26 for a
//! fuse filter), from 30,000 keys on; below, 12 bytes a key (29, 30) and 60 KiB. Decoding takes at
//! most the filter's bytes, and queries take nothing.

use trommel_filter::{Filter, FilterKind, FilterSpec, hash};

use crate::allocator::most_held;

const SPECS: [&str; 20] = [
    "standard:4",
    "standard:10",
    "standard:23.4",
    "standard:64",
    "blocked:4",
    "blocked:10",
    "blocked:23.4",
    "blocked:64",
    "paired:4",
    "paired:10",
    "paired:23.4",
    "paired:64",
    "ribbon:4",
    "ribbon:10",
    "ribbon:23.4",
    "ribbon:60",
    "fuse:4",
    "fuse:10",
    "fuse:23.4",
    "fuse:60",
];

/// Sizes of large filters: the largest in the project's CI only.
fn large_sizes() -> &'static [u64] {
    let is_ci = std::env::var("TROMMEL_LANES").is_ok_and(|size| size == "ci");
    if is_ci { &[1_000_000, 5_000_000] } else { &[1_000_000] }
}

/// Hashes in random order.
fn hashes(keys: u64) -> impl Iterator<Item = u64> {
    (0..keys).map(|key| hash(&key.to_le_bytes()))
}

/// The finished filter, and the peak memory of building it without the filter itself, in bytes a
/// key.
fn built(spec: FilterSpec, keys: u64) -> (Vec<u8>, f64) {
    // The tables of the theory live as long as the process, and belong to no filter.
    spec.expected_fpr(keys);
    let (bytes, most) = most_held(|| {
        let mut builder = spec.builder();
        hashes(keys).for_each(|hash| builder.add_hash(hash));
        builder.finish()
    });
    let beyond = most.saturating_sub(bytes.len() as u64) as f64 / keys as f64;
    (bytes, beyond)
}

/// Sizes from which fixed costs are negligible: one key more than fills a chunk or a part, and
/// others.
const ORDINARY: [u64; 8] = [30_000, 32_769, 65_537, 100_000, 131_073, 200_000, 300_000, 1_000_000];
/// Below, half a chunk of hashes is significant per key, a list of chunks has spare capacity, and
/// one shard of a ribbon has all its equations.
const SMALL: [u64; 8] = [1, 100, 2049, 4097, 10_000, 16_384, 20_000, 29_999];
const SMALL_FIXED_BYTES: f64 = 60.0 * 1024.0;

#[test]
fn building_takes_at_most_12_bytes_a_key_beyond_the_filter() {
    for text in SPECS {
        let spec: FilterSpec = text.parse().expect("a valid spec");
        // A ribbon's equations, of one shard at a time, exist along with the hashes.
        let (limit, of_few) = match text.split_once(':') {
            Some(("ribbon", _)) => (21.0, 29.0),
            Some(("fuse", _)) => (26.0, 30.0),
            _ => (12.0, 12.0),
        };
        for keys in ORDINARY {
            let (bytes, beyond) = built(spec, keys);
            println!("{text}, {keys} keys: {} bytes and {beyond:.2} a key", bytes.len());
            assert!(beyond <= limit, "{text}, {keys} keys: {beyond} bytes a key");
        }
        for keys in SMALL {
            let (_, beyond) = built(spec, keys);
            let (beyond, limit) = (beyond * keys as f64, of_few * keys as f64 + SMALL_FIXED_BYTES);
            println!("{text}, {keys} keys: {beyond:.0} bytes, of {limit:.0}");
            assert!(beyond <= limit, "{text}, {keys} keys: {beyond} bytes, not {limit}");
        }
    }
}

#[test]
fn peak_bytes_is_an_upper_bound() {
    for kind in FilterKind::ALL {
        for bits in [4, 12, 40, 64] {
            let text =
                format!("{kind}:{}", if kind == FilterKind::Ribbon { bits.min(60) } else { bits });
            let spec: FilterSpec = text.parse().expect("a valid spec");
            let small = [1, 100, 1000, 4097, 17_000, 32_769, 65_537, 100_000, 300_000];
            for keys in small.iter().chain(large_sizes()).copied() {
                spec.expected_fpr(keys);
                let (stated, most) = most_held(|| {
                    let mut builder = spec.builder();
                    hashes(keys).for_each(|hash| builder.add_hash(hash));
                    let stated = builder.peak_bytes();
                    builder.finish();
                    stated
                });
                println!("{text}, {keys} keys: {stated} {most} {:.3}", stated as f64 / most as f64);
                assert!(stated >= most, "{text}, {keys} keys: said {stated}, took {most}");
                // The filter of a few keys is hardly larger than the fixed part.
                let limit = most + most / 2 + 4096;
                assert!(stated <= limit, "{text}, {keys} keys: said {stated}, took {most}");
            }
        }
    }
}

/// Chosen hashes: all in one of 64 parts, all in one second-level part, and two alternating ones.
#[test]
fn chosen_hashes_take_no_more_than_others() {
    let chosen: [fn(u64) -> u64; 3] = [
        |key| hash(&key.to_le_bytes()) >> 6,
        |key| hash(&key.to_le_bytes()) >> 30,
        |key| hash(&(key % 2).to_le_bytes()),
    ];
    for text in [
        "standard:10",
        "blocked:10",
        "blocked:64",
        "paired:10",
        "paired:64",
        "ribbon:10",
        "fuse:10",
    ] {
        let spec: FilterSpec = text.parse().expect("a valid spec");
        for keys in [1000, 17_000, 100_000].iter().chain(large_sizes()).copied() {
            spec.expected_fpr(keys);
            for (nth, hash) in chosen.iter().enumerate() {
                let (stated, most) = most_held(|| {
                    let mut builder = spec.builder();
                    (0..keys).for_each(|key| builder.add_hash(hash(key)));
                    let stated = builder.peak_bytes();
                    builder.finish();
                    stated
                });
                println!("{text}, {keys} keys, set {nth}: {stated} {most}");
                assert!(
                    stated >= most,
                    "{text}, {keys} keys, set {nth}: said {stated}, took {most}"
                );
            }
        }
    }
}

#[test]
fn memory_bytes_is_the_memory_held() {
    let spec: FilterSpec = "paired:10".parse().expect("a valid spec");
    for keys in [0, 1, 1000, 500_000] {
        let (builder, most) = most_held(|| {
            let mut builder = spec.builder();
            hashes(keys).for_each(|hash| builder.add_hash(hash));
            builder
        });
        let stated = builder.memory_bytes() as u64;
        assert!(
            stated.abs_diff(most) <= 64_000.min(2 * stated),
            "{keys} keys: {stated}, held {most}"
        );
    }
}

#[test]
fn decoding_allocates_the_filter_once_and_queries_nothing() {
    let hashes: Vec<u64> = hashes(10_000).collect();
    let mut answers = vec![false; hashes.len()];
    for text in SPECS {
        let spec: FilterSpec = text.parse().expect("a valid spec");
        let (bytes, _) = built(spec, 20_000);
        let (filter, most) = most_held(|| Filter::decode(&bytes).expect("what a builder wrote"));
        assert!(most <= bytes.len() as u64, "{text}: {most} bytes to open {}", bytes.len());
        let (_, most) = most_held(|| {
            assert!(hashes.iter().all(|&hash| filter.may_contain_hash(hash)));
            filter.may_contain_many(&hashes, &mut answers);
            assert!(answers.iter().all(|&answer| answer));
        });
        assert_eq!(most, 0, "{text}: querying allocates");
    }
}

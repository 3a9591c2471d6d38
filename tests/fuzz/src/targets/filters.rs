//! Filters of every family.

use trommel_filter::{Filter, FilterSpec, hash};

use crate::{fix, image};

/// Hashes to query: the ends of the range, and some in between.
fn hashes() -> Vec<u64> {
    let spread = (0..200_u64).map(|n| hash(&n.to_le_bytes()));
    [0, 1, u64::MAX, u64::MAX - 1, 1 << 63].into_iter().chain(spread).collect()
}

/// A filter with a valid checksum; single and batched queries agree.
pub(crate) fn filter(input: &[u8]) {
    let mut bytes = input.to_vec();
    fix::filter(&mut bytes);
    let Ok(filter) = Filter::decode(&bytes) else { return };
    let hashes = hashes();
    let mut answers = vec![false; hashes.len()];
    filter.may_contain_many(&hashes, &mut answers);
    for (hash, answer) in hashes.iter().zip(&answers) {
        filter.prefetch(*hash);
        assert_eq!(filter.may_contain_hash(*hash), *answer);
    }
    assert!((0.0..=1.0).contains(&filter.expected_fpr()));
    let described = (filter.keys(), filter.probes(), filter.kind(), filter.bits_per_key());
    let again = Filter::decode(&bytes).expect("it was one a moment ago");
    assert_eq!(described, (again.keys(), again.probes(), again.kind(), again.bits_per_key()));
}

fn build(spec: &str, keys: u64) -> Vec<u8> {
    let spec: FilterSpec = spec.parse().expect("a spec");
    let mut builder = spec.builder();
    (0..keys).for_each(|n| builder.add(&n.to_le_bytes()));
    builder.finish()
}

pub(crate) fn filter_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> =
        ["standard:10", "blocked:10", "paired:16", "ribbon:10", "ribbon:fpr=1e-2"]
            .iter()
            .flat_map(|spec| [0, 1, 40, 400].map(|keys| build(spec, keys)))
            .collect();
    let golden = image::golden("crates/filter/tests/golden", "filter");
    seeds.extend(golden.into_iter().filter(|bytes| bytes.len() <= 16 << 10));
    seeds
}

//! Filters of every family.

use trommel_filter::{BlockEnds, Filter, FilterSpec, RangeFilter, RangeSpec, hash};

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

/// A range filter with a valid checksum: it stays within its memory, and answers the same when
/// it is decoded again.
pub(crate) fn ranges(input: &[u8]) {
    let mut bytes = input.to_vec();
    fix::filter(&mut bytes);
    let Ok(filter) = RangeFilter::decode(&bytes) else { return };
    assert!(filter.memory_bytes() <= RangeFilter::most_memory_bytes(bytes.len()));
    assert!((0.0..=1.0).contains(&filter.expected_fpr()));
    let again = RangeFilter::decode(&bytes).expect("it was one a moment ago");
    for n in 0..200_u64 {
        let key = |turn: u32| hash(&n.to_le_bytes()).rotate_left(turn).to_le_bytes();
        let mut ends = [key(0), key(9)];
        ends.sort_unstable();
        let ends = BlockEnds { first: &ends[0], last: &ends[1] };
        let (block, from, to) = ((n % 40) as usize, key(20), key(31));
        let to = (n % 5 > 0).then_some(&to[..]);
        let answer = filter.may_hold(block, ends, &from, to);
        assert_eq!(answer, again.may_hold(block, ends, &from, to));
        assert!(answer || block < filter.blocks());
    }
}

pub(crate) fn range_seeds() -> Vec<Vec<u8>> {
    let mut seeds = image::golden("crates/filter/tests/golden", "ranges");
    for (spec, keys) in [("infix:3", 1), ("infix:6", 40), ("infix:9.5", 300), ("infix:32", 60)] {
        let mut builder = spec.parse::<RangeSpec>().expect("a spec").builder();
        let mut first = Vec::new();
        for n in 0..keys {
            let key = format!("{:06}", n * 37).into_bytes();
            builder.add(&key);
            if n % 20 == 19 || n + 1 == keys {
                builder.end_block(BlockEnds { first: &first, last: &key });
                first = key;
            }
        }
        seeds.push(builder.finish());
    }
    seeds
}

//! The keys, as hashes: this compares filters, not hash functions.
//!
//! Key `i` is the number `i` in eight bytes; its hash is that of all of Trommel's filters, XXH3
//! with 64 bits, which maps different numbers to different hashes. Numbers from [`ABSENT`] on are
//! never added.

/// The first number that is in no filter.
pub const ABSENT: u64 = 1 << 40;

/// The hash of key `number`.
#[inline]
pub fn hash(number: u64) -> u64 {
    trommel_filter::hash(&number.to_le_bytes())
}

/// The hashes of `keys` keys that are added.
pub fn present(keys: u64) -> Vec<u64> {
    (0..keys).map(hash).collect()
}

/// The hashes of `count` absent keys, all distinct, also between different `part`s.
pub fn absent(part: u64, count: usize) -> Vec<u64> {
    let first = ABSENT + (part << 32);
    (first..first + count as u64).map(hash).collect()
}

/// The hashes of `count` random keys among the first `keys`, different for each `part`.
pub fn drawn(keys: u64, part: u64, count: usize) -> Vec<u64> {
    let draw = |at: u64| ((u128::from(hash(!at)) * u128::from(keys)) >> 64) as u64;
    let first = part << 32;
    (first..first + count as u64).map(|at| hash(draw(at))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_there_or_not() {
        let there: HashSet<u64> = present(5000).into_iter().collect();
        assert_eq!(there.len(), 5000);
        assert!(drawn(5000, 3, 2000).iter().all(|hash| there.contains(hash)));
        assert!(drawn(5000, 0, 2000).iter().collect::<HashSet<_>>().len() > 1500);
        let absent: HashSet<u64> =
            [absent(0, 2000), absent(1, 2000)].concat().into_iter().collect();
        assert_eq!(absent.len(), 4000);
        assert!(absent.is_disjoint(&there));
    }
}

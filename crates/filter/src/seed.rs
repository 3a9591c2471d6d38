//! The secret of a store, without which no key's hash can be computed.
//!
//! Anyone can compute [`hash`](crate::hash), and so choose keys that fill one block of a filter, or
//! absent keys that pass a filter. With a secret seed, chosen keys are as good as random ones:
//! 1. XXH3 takes the seed. Without it, all keys of 17 to 240 bytes for which one factor of its
//!    products is zero have the same hash, whatever their other factor; the seed moves the zero.
//! 2. The result is multiplied by an odd number that depends on the seed. XXH3 combines the seed
//!    and a key of 4 to 8 bytes by an exclusive or, so the distance of two hashes may be known
//!    without the seed. Multiplied, it is not.
//!
//! This is no cryptographic function. It withstands those who see neither the hashes nor files with
//! them.

use core::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The multiplier that makes the second secret of a seed.
const FACTOR: u64 = 0xd134_2543_de82_ef95;

/// A secret from which keys are hashed, so that nobody without it can choose keys by their hashes.
///
/// A filter does not store it: whoever stores the filter stores the seed too, and hashes keys with
/// it to build the filter and to query it. Its `Debug` output hides it.
///
/// ```
/// use trommel_filter::{Filter, FilterSpec, HashSeed, hash};
///
/// let seed = HashSeed::new(0x5eed_5eed_5eed_5eed); // random, and secret
/// let mut builder = "blocked:10".parse::<FilterSpec>()?.builder();
/// builder.add_hash(seed.hash(b"amber"));
/// let filter = Filter::decode(builder.finish())?;
/// assert!(filter.may_contain_hash(seed.hash(b"amber")));
///
/// assert_eq!(format!("{seed:?}"), "HashSeed(secret)");
/// assert_eq!(HashSeed::NONE.hash(b"amber"), hash(b"amber"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct HashSeed {
    word: u64,
    /// The multiplier, which follows from the word; 1 for 0.
    factor: u64,
}

impl HashSeed {
    /// No secret: keys are hashed by [`hash`](crate::hash).
    pub const NONE: Self = Self::new(0);

    /// The seed `word`, all of whose 64 bits should be random. 0 is [`NONE`](Self::NONE).
    #[must_use]
    pub const fn new(word: u64) -> Self {
        Self { word, factor: word.wrapping_mul(FACTOR) | 1 }
    }

    /// The seed as a number, to be stored.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.word
    }

    /// The hash of a key. It is part of the format, like [`hash`](crate::hash).
    #[inline]
    #[must_use]
    pub fn hash(self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.word).wrapping_mul(self.factor)
    }
}

impl PartialEq for HashSeed {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.word == other.word
    }
}

impl Eq for HashSeed {}

impl Default for HashSeed {
    /// [`NONE`](Self::NONE).
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Debug for HashSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::NONE { "HashSeed(none)" } else { "HashSeed(secret)" })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::mix::remix;
    use crate::{Filter, FilterSpec, hash};

    /// Seeds as random as a test may have them.
    fn seeds() -> impl Iterator<Item = HashSeed> {
        (1..).map(|n| HashSeed::new(remix(n)))
    }

    /// Keys whose first word equals that of XXH3's secret, so that a factor of its first product is
    /// zero, whatever the second word.
    fn colliding_key(n: u64) -> [u8; 32] {
        let mut key = [7; 32];
        key[..8].copy_from_slice(&0xbe4b_a423_396c_feb8_u64.to_le_bytes());
        key[8..16].copy_from_slice(&n.to_le_bytes());
        key
    }

    #[test]
    fn hashes_are_those_of_the_format() {
        let seed = HashSeed::new(0x0123_4567_89ab_cdef);
        let hashes = [&b""[..], b"key", b"amber", &[7; 12], &[7; 32], &[7; 200], &[7; 300]];
        let hashes = hashes.map(|key| format!("{:016x}", seed.hash(key)));
        assert_eq!(
            hashes,
            [
                "75909591913769b4",
                "4d9c80a69f85f0b5",
                "53273c54368a9074",
                "67b6f69827025cc1",
                "024f3eecd11d9f72",
                "ad24a308992dc481",
                "073b43500c363ea8",
            ]
        );
        assert_eq!(HashSeed::NONE.hash(b"amber"), hash(b"amber"));
    }

    #[test]
    fn keys_that_collide_without_a_seed_do_not_with_one() {
        let different = |seed: HashSeed| -> usize {
            (0..1000).map(|n| seed.hash(&colliding_key(n))).collect::<HashSet<_>>().len()
        };
        assert_eq!(different(HashSeed::NONE), 1, "the attack is none");
        assert!(seeds().take(100).all(|seed| different(seed) == 1000));
    }

    /// Two keys of eight bytes whose difference XXH3's rotations turn into the highest bit.
    #[test]
    fn the_distance_of_two_hashes_depends_on_the_seed() {
        let rotate = |x: u64| x ^ x.rotate_left(49) ^ x.rotate_left(24);
        // The 64th power of that map is the identity.
        let difference = (0..63).fold(1 << 63, |x, _| rotate(x));
        assert_eq!(rotate(difference), 1 << 63);
        // XXH3 exchanges the halves of such a key.
        let [one, other] = [0, difference].map(|x: u64| x.rotate_left(32).to_le_bytes());
        let distances = |hash: &dyn Fn(HashSeed, &[u8]) -> u64| {
            let distance = |seed| hash(seed, &other).wrapping_sub(hash(seed, &one)) >> 40;
            seeds().take(1000).map(distance).collect::<HashSet<_>>().len()
        };
        let of_xxh3 = distances(&|seed, key| xxh3_64_with_seed(key, seed.word()));
        assert!(of_xxh3 < 20, "the attack is none: {of_xxh3} distances");
        let of_seeds = distances(&HashSeed::hash);
        assert!(of_seeds > 990, "{of_seeds} distances");
    }

    /// The fraction of absent chosen keys that pass a filter of one of them and many others.
    fn passed(spec: FilterSpec, seed: HashSeed) -> f64 {
        let mut builder = spec.builder();
        builder.add_hash(seed.hash(&colliding_key(0)));
        (0..10_000_u32).for_each(|n| builder.add_hash(seed.hash(&n.to_le_bytes())));
        let filter = Filter::decode(builder.finish()).unwrap();
        let pass = |n: &u64| filter.may_contain_hash(seed.hash(&colliding_key(*n)));
        (1..=10_000).filter(pass).count() as f64 / 1e4
    }

    #[test]
    fn chosen_absent_keys_pass_no_more_often_than_others() {
        for spec in ["standard:10", "blocked:10", "paired:10", "fuse:10", "ribbon:10"] {
            let spec: FilterSpec = spec.parse().unwrap();
            assert!(passed(spec, HashSeed::NONE) == 1.0, "the attack is none");
            for seed in seeds().take(5) {
                let (passed, expected) = (passed(spec, seed), spec.expected_fpr(10_000));
                assert!(passed < 2.0 * expected, "{spec}: {passed} for {expected}");
            }
        }
    }

    /// The fraction of random absent keys that pass, if all keys are of one block without a seed.
    #[test]
    fn chosen_keys_fill_no_block() {
        let in_one_block = |n: &u64| hash(&n.to_le_bytes()) >> 54 == 0;
        let keys: Vec<u64> = (0..).filter(in_one_block).take(2000).collect();
        for spec in ["blocked:10", "paired:10"] {
            let spec: FilterSpec = spec.parse().unwrap();
            let stated = |seed: HashSeed| {
                let mut builder = spec.builder();
                keys.iter().for_each(|n| builder.add_hash(seed.hash(&n.to_le_bytes())));
                let filter = Filter::decode(builder.finish()).unwrap();
                filter.expected_fpr()
            };
            let expected = spec.expected_fpr(keys.len() as u64);
            // The header states the rate of the bits if the keys are not like random ones.
            assert_ne!(stated(HashSeed::NONE), expected, "the attack is none");
            assert!(seeds().take(20).all(|seed| stated(seed) == expected), "{spec}");
        }
    }
}

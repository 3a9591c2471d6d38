//! Values that are generated before the clock starts.

use std::ops::Range;

use fastrand::Rng;

/// Size of the pool that values are slices of, or the size of two values if that is more.
const POOL_BYTES: usize = 1 << 20;
/// Length of a piece of the pool, which repeats itself to be compressible.
const PARTITION_BYTES: usize = 100;

/// Values of one size, slices of a pool that compresses to about a given fraction.
///
/// The pool is a sequence of pieces of 100 bytes; in each the first `ratio` x 100 bytes are random
/// and then repeated to its end, as in db_bench. A value costs the measured loop a pointer.
/// Consecutive values do not overlap.
#[derive(Debug, Clone)]
pub struct Values {
    pool: Vec<u8>,
    value_bytes: usize,
    compression_ratio: f64,
}

impl Values {
    /// Values of `value_bytes` bytes that compress to about `ratio` (0 to 1) of that. Takes at
    /// least twice their size in memory: callers bound it.
    pub fn new(value_bytes: usize, ratio: f64, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let random_bytes =
            (PARTITION_BYTES as f64 * ratio.clamp(0.0, 1.0)).round().max(1.0) as usize;
        let pool_bytes = (2 * value_bytes + PARTITION_BYTES).max(POOL_BYTES);
        let mut pool = Vec::with_capacity(pool_bytes + PARTITION_BYTES);
        let mut piece = vec![0; random_bytes];
        while pool.len() < pool_bytes {
            rng.fill(&mut piece);
            pool.extend(piece.iter().cycle().take(PARTITION_BYTES));
        }
        Self { pool, value_bytes, compression_ratio: ratio }
    }

    /// Bytes of every value.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// The share of a value that is left after compression.
    pub fn compression_ratio(&self) -> f64 {
        self.compression_ratio
    }

    /// The value at `position` of the pool; moves the position on to the next one.
    #[inline]
    pub fn next(&self, position: &mut usize) -> &[u8] {
        self.at(self.next_place(position))
    }

    /// As [`Values::next`], but returns the value's range.
    #[inline]
    pub(crate) fn next_place(&self, position: &mut usize) -> Range<usize> {
        let start = if *position + self.value_bytes > self.pool.len() { 0 } else { *position };
        *position = start + self.value_bytes;
        start..*position
    }

    /// The value in this range.
    #[inline]
    pub(crate) fn at(&self, place: Range<usize>) -> &[u8] {
        &self.pool[place]
    }

    /// As [`Values::at`], mutable.
    #[inline]
    pub(crate) fn at_mut(&mut self, place: Range<usize>) -> &mut [u8] {
        &mut self.pool[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_size_whatever_it_is() {
        for bytes in [0, 1, 99, 100, 101, 4096, (1 << 20) - 1, 1 << 20, 3 << 20] {
            let values = Values::new(bytes, 0.5, 1);
            let mut position = 0;
            for _ in 0..100 {
                let place = values.next_place(&mut position);
                assert_eq!(values.at(place.clone()).len(), bytes);
                let next = values.next_place(&mut position.clone());
                assert!(next.start >= place.end || next.end <= place.start, "{place:?} {next:?}");
            }
        }
    }

    #[test]
    fn half_of_each_piece_repeats_the_other() {
        let values = Values::new(100, 0.5, 1);
        let value = values.next(&mut 300);
        assert_eq!(value[..50], value[50..]);
        assert_ne!(value, values.next(&mut 400));
        let incompressible = Values::new(100, 1.0, 1);
        assert_ne!(incompressible.next(&mut 0)[..50], incompressible.next(&mut 0)[50..]);
    }

    #[test]
    fn the_seed_decides() {
        let first = |seed| Values::new(100, 0.5, seed).next(&mut 0).to_vec();
        assert_eq!(first(7), first(7));
        assert_ne!(first(7), first(8));
    }
}

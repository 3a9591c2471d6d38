//! Sampling of lookups: one of N, each drawn independently.
//!
//! A thread draws the number of lookups to skip until the next, from the geometric distribution of
//! independent draws, and then only counts down: a skipped lookup writes no memory that is shared
//! with other threads.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use crate::env;
use crate::sync::quiet::{AtomicU64, StaticU64};

static NEXT_ID: StaticU64 = StaticU64::new(1);

/// Samples lookups.
#[derive(Debug)]
pub(super) struct Sampler {
    /// Distinguishes its draws from those of another sampler in a thread's memory.
    id: u64,
    one_of: u64,
    seed: u64,
    /// Threads that have sampled.
    threads: AtomicU64,
}

/// A thread's draws.
#[derive(Debug, Clone, Copy)]
struct Draws {
    /// The sampler they belong to.
    sampler: u64,
    /// Lookups to skip.
    left: u64,
    state: u64,
}

thread_local! {
    static DRAWS: Cell<Draws> = const { Cell::new(Draws { sampler: 0, left: 0, state: 0 }) };
}

impl Sampler {
    pub(super) fn new(one_of: u64, seed: Option<u64>) -> Self {
        Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            one_of,
            seed: seed.unwrap_or_else(env::random_u64),
            threads: AtomicU64::new(0),
        }
    }

    /// Whether the next lookup of the calling thread is sampled.
    pub(super) fn draws(&self) -> bool {
        if self.one_of == 1 {
            return true;
        }
        let mut draws = DRAWS.get();
        if draws.sampler != self.id {
            let thread = self.threads.fetch_add(1, Relaxed);
            draws = Draws { sampler: self.id, left: 0, state: mix(self.seed ^ mix(thread + 1)) };
            draws.left = self.pass_over(&mut draws.state);
        }
        let is_drawn = draws.left == 0;
        draws.left = if is_drawn { self.pass_over(&mut draws.state) } else { draws.left - 1 };
        DRAWS.set(draws);
        is_drawn
    }

    /// Draws the number of lookups to skip.
    fn pass_over(&self, state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        // Above 0 and at most 1, to 53 bits.
        let uniform = ((mix(*state) >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        (uniform.ln() / (-1.0 / self.one_of as f64).ln_1p()) as u64
    }
}

/// The finalizer of splitmix64 (Steele, Lea, Flood, 2014).
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes `lookups` draws, and returns the indexes of those that were sampled.
    fn drawn(sampler: &Sampler, lookups: u64) -> Vec<u64> {
        (0..lookups).filter(|_| sampler.draws()).collect()
    }

    #[test]
    fn one_of_so_many_is_drawn_independently() {
        assert_eq!(drawn(&Sampler::new(1, Some(7)), 5), [0, 1, 2, 3, 4]);
        let lookups = 1_000_000;
        for one_of in [2, 10, 1000] {
            let drawn = drawn(&Sampler::new(one_of, Some(7)), lookups);
            let (expected, rate) = (lookups as f64 / one_of as f64, 1.0 / one_of as f64);
            let deviation = (expected * (1.0 - rate)).sqrt();
            let off = (drawn.len() as f64 - expected).abs();
            assert!(off < 4.0 * deviation, "1 of {one_of}: {} of {expected}", drawn.len());
            // A periodic pattern in the lookups is sampled evenly.
            let odd = drawn.iter().filter(|at| *at % 2 == 1).count() as f64;
            let off = (odd - expected / 2.0).abs();
            assert!(off < 4.0 * deviation, "1 of {one_of}: {odd} odd ones");
            // Draws are independent: of the sampled lookups, one in N is followed by another.
            let pairs = drawn.windows(2).filter(|pair| pair[1] == pair[0] + 1).count() as f64;
            let expected = expected * rate;
            assert!((pairs - expected).abs() < 5.0 * expected.sqrt() + 3.0, "{pairs} pairs");
        }
    }

    #[test]
    fn a_seed_draws_the_same_again_and_samplers_do_not_mix() {
        let (one, same) = (Sampler::new(10, Some(1)), Sampler::new(10, Some(1)));
        let other = Sampler::new(10, Some(2));
        let first = drawn(&one, 10_000);
        assert_eq!(drawn(&same, 10_000), first);
        assert_ne!(drawn(&other, 10_000), first);
        assert_ne!(drawn(&one, 10_000), first, "a thread that comes back begins anew");
    }
}

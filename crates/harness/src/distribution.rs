//! Skewed distributions of keys, and permutations that name each key once.
//!
//! 1. [`Zipfian`]: rank `r` (from 0) is drawn with a probability near `1 / (r + 1)^theta`, by the
//!    inversion of Gray, Sundaresan, Englert, Baclawski and Weinberger, "Quickly Generating
//!    Billion-Record Synthetic Databases", SIGMOD 1994, section 3. Ranks 0 and 1 are exact, later
//!    ranks come from the integral.
//! 2. [`ScrambledZipfian`], as in YCSB: a rank among 10,000,000,000 is hashed onto the items, so
//!    that the popular ones are spread over the key space. Several ranks may hash to the same item.
//! 3. [`Latest`], as in YCSB: a rank counted back from the newest item, among as many ranks as
//!    there are items.
//! 4. [`Permutation`]: a Feistel network over the next power of four, iterated until its output is
//!    in range. So it needs no memory, and any thread can start anywhere.
//!
//! Invariant: a draw is below the given number of items. Called by the loops of `measure`.

use fastrand::Rng;

/// Skew in YCSB's workloads.
pub(crate) const THETA: f64 = 0.99;
/// Number of ranks that YCSB scrambles, for any number of items.
const SCRAMBLED_RANKS: u64 = 10_000_000_000;
/// Terms of a zeta sum that are added one by one; the rest is an integral with corrections.
const EXACT_TERMS: u64 = 1000;

/// The sum of `1 / i^theta` for `i` from 1 to `items`: the first terms exactly, the rest by the
/// Euler–Maclaurin formula up to the first derivative.
fn zeta(items: u64, theta: f64) -> f64 {
    let exact = items.min(EXACT_TERMS);
    let head: f64 = (1..=exact).map(|i| (i as f64).powf(-theta)).sum();
    if items == exact {
        return head;
    }
    let (from, to) = (exact as f64, items as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    let ends = (to.powf(-theta) - from.powf(-theta)) / 2.0;
    let slopes = theta / 12.0 * (from.powf(-theta - 1.0) - to.powf(-theta - 1.0));
    head + integral + ends + slopes
}

/// Ranks whose probabilities follow a power law.
#[derive(Debug, Clone)]
pub(crate) struct Zipfian {
    items: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
    /// Draws below this, and not of rank 0, are of rank 1.
    second: f64,
}

impl Zipfian {
    /// Ranks below `items` (at least 1) with skew `theta`, above 0 and below 1.
    pub(crate) fn new(items: u64, theta: f64) -> Self {
        let items = items.max(1);
        let zeta_all = zeta(items, theta);
        let second = 1.0 + 0.5_f64.powf(theta);
        let left = 1.0 - (2.0 / items as f64).powf(1.0 - theta);
        Self {
            items: items as f64,
            zeta: zeta_all,
            alpha: 1.0 / (1.0 - theta),
            eta: left / (1.0 - second / zeta_all),
            second,
        }
    }

    /// The rank of a uniform draw from 0 to 1.
    fn rank(&self, uniform: f64) -> u64 {
        let share = uniform * self.zeta;
        if share < 1.0 {
            return 0;
        }
        if share < self.second {
            return 1;
        }
        let rank = self.items * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        rank.min(self.items - 1.0) as u64
    }

    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> u64 {
        // With a single item rank 1 does not exist.
        self.rank(rng.f64()).min(self.items as u64 - 1)
    }
}

/// Draws mostly a few items, scattered over the key space.
#[derive(Debug, Clone)]
pub struct ScrambledZipfian {
    ranks: Zipfian,
    items: u64,
}

impl ScrambledZipfian {
    /// Over `items` items. Ranks are always scattered over this many: if the number grew with the
    /// items, each new item would change the popular ones.
    pub fn new(items: u64) -> Self {
        Self { ranks: Zipfian::new(SCRAMBLED_RANKS, THETA), items: items.max(1) }
    }

    /// An item below `present`, which is at least 1. As in YCSB, an item that does not exist yet is
    /// drawn again.
    #[inline]
    pub fn draw(&self, present: u64, rng: &mut Rng) -> u64 {
        loop {
            let item = fnv(self.ranks.draw(rng)) % self.items;
            if item < present.max(1) {
                return item;
            }
        }
    }
}

/// The 64-bit FNV hash of a number's bytes, least significant first, as YCSB computes it.
fn fnv(number: u64) -> u64 {
    let hash = number.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // YCSB takes the absolute value of a signed number.
    hash.cast_signed().unsigned_abs()
}

/// Draws mostly the newest items.
#[derive(Debug, Clone)]
pub struct Latest {
    items: u64,
    ranks: Zipfian,
}

impl Latest {
    /// Over `items` items to begin with.
    pub fn new(items: u64) -> Self {
        Self { items, ranks: Zipfian::new(items, THETA) }
    }

    /// An item below `items`, which must not decrease between calls.
    #[inline]
    pub fn draw(&mut self, items: u64, rng: &mut Rng) -> u64 {
        // The skew over 1% more items is the same to three digits; a new sum for each new item
        // would cost more than a lookup.
        if items > self.items + self.items / 128 {
            *self = Self::new(items);
        }
        items.saturating_sub(1 + self.ranks.draw(rng))
    }
}

/// All numbers below a limit, each once, in a pseudo-random order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    pub(crate) fn new(len: u64, seed: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let mut rng = Rng::with_seed(seed);
        let keys = [(); 4].map(|()| rng.u64(..));
        Self { len, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// The number at `position`, which is below the limit.
    #[inline]
    pub(crate) fn at(&self, position: u64) -> u64 {
        let mut at = position;
        loop {
            at = self.step(at);
            if at < self.len {
                return at;
            }
        }
    }

    #[inline]
    fn step(&self, at: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (at >> self.half_bits, at & mask);
        for key in self.keys {
            let mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let round = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
            (left, right) = (right, left ^ (round & mask));
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact_zeta(items: u64, theta: f64) -> f64 {
        (1..=items).map(|i| (i as f64).powf(-theta)).sum()
    }

    #[test]
    fn zeta_is_that_of_the_sum() {
        for items in [1, 2, 999, 1000, 1001, 5000, 1_000_000] {
            let (got, exact) = (zeta(items, THETA), exact_zeta(items, THETA));
            assert!((got / exact - 1.0).abs() < 1e-10, "{items}: {got} for {exact}");
        }
        // YCSB's constant for its scrambled draws.
        assert!((zeta(SCRAMBLED_RANKS, THETA) - 26.469_028_201_783_02).abs() < 1e-6);
    }

    #[test]
    fn the_first_ranks_have_their_exact_probabilities() {
        for items in [2, 10, 1000, 1_000_000] {
            let zipfian = Zipfian::new(items, THETA);
            let first = 1.0 / exact_zeta(items, THETA);
            let two = first + first * 0.5_f64.powf(THETA);
            for (uniform, rank) in [(0.0, 0), (first - 1e-9, 0), (first + 1e-9, 1)] {
                assert_eq!(zipfian.rank(uniform), rank, "{uniform} of {items}");
            }
            assert_eq!(zipfian.rank(two - 1e-9), 1);
            assert!(items == 2 || zipfian.rank(two + 1e-9) >= 2);
        }
    }

    /// The inversion is exact at the ends and follows the sum between them: the cumulative
    /// probability differs from the exact one by less than two hundredths.
    #[test]
    fn all_ranks_follow_the_exact_distribution() {
        let items = 1000;
        let zipfian = Zipfian::new(items, THETA);
        let total = exact_zeta(items, THETA);
        let mut below = 0.0;
        for rank in 0..items {
            below += 1.0 / ((rank + 1) as f64).powf(THETA) / total;
            // The share of draws up to this rank, to six digits.
            let (mut low, mut high) = (0.0, 1.0);
            while high - low > 1e-7 {
                let middle = (low + high) / 2.0;
                if zipfian.rank(middle) <= rank { low = middle } else { high = middle }
            }
            assert!((low - below).abs() < 0.02, "rank {rank}: {low} for {below}");
        }
        assert_eq!(zipfian.rank(1.0 - 1e-12), items - 1);
    }

    #[test]
    fn draws_come_as_often_as_the_distribution_says() {
        let mut rng = Rng::with_seed(1);
        let zipfian = Zipfian::new(100, THETA);
        let draws = 200_000;
        let mut counts = [0_u64; 100];
        for _ in 0..draws {
            counts[zipfian.draw(&mut rng) as usize] += 1;
        }
        let total = exact_zeta(100, THETA);
        for (rank, share) in [(0, 1.0 / total), (1, 0.5_f64.powf(THETA) / total)] {
            let expected = share * f64::from(draws);
            // Five standard deviations of a binomial draw.
            let slack = 5.0 * (expected * (1.0 - share)).sqrt();
            assert!((counts[rank] as f64 - expected).abs() < slack, "{rank}: {}", counts[rank]);
        }
        assert!(counts[99] > 0);
    }

    #[test]
    fn a_scrambled_draw_favours_few_items_all_over_the_space() {
        assert_eq!(fnv(0), 0xa8c7_f832_281a_39c5_u64.cast_signed().unsigned_abs());
        let items = 1000;
        let (scrambled, mut rng) = (ScrambledZipfian::new(items), Rng::with_seed(2));
        let mut counts = vec![0_u64; items as usize];
        let draws = 100_000;
        for _ in 0..draws {
            counts[scrambled.draw(items, &mut rng) as usize] += 1;
        }
        let hottest = fnv(0) % items;
        let expected = draws as f64 / zeta(SCRAMBLED_RANKS, THETA);
        // Other ranks hash to the same item, a thousandth of them.
        let count = counts[hottest as usize] as f64;
        assert!(count > expected * 0.9 && count < expected * 1.2, "{count} for {expected}");
        let cold = counts[500..].iter().sum::<u64>() as f64 / draws as f64;
        assert!((0.35..0.65).contains(&cold), "no half of the space is left out: {cold}");
    }

    /// The popular items used to change with every new item, and no skew was left.
    #[test]
    fn the_favoured_items_stay_so_while_others_come_in() {
        let (first, last, draws) = (100_000, 105_000, 100_000);
        let (scrambled, mut rng) = (ScrambledZipfian::new(110_000), Rng::with_seed(4));
        let mut counts = vec![0_u64; last as usize];
        for draw in 0..draws {
            let present = first + (last - first) * draw / draws;
            let item = scrambled.draw(present, &mut rng);
            assert!(item < present);
            counts[item as usize] += 1;
        }
        let hottest = *counts.iter().max().unwrap() as f64 / draws as f64;
        let expected = 1.0 / zeta(SCRAMBLED_RANKS, THETA);
        assert!(hottest > expected * 0.95, "{hottest} for {expected}");
    }

    #[test]
    fn the_latest_items_are_drawn_most() {
        let (mut latest, mut rng) = (Latest::new(1000), Rng::with_seed(3));
        let newest = (0..10_000).filter(|_| latest.draw(1000, &mut rng) == 999).count();
        let share = 1.0 / exact_zeta(1000, THETA);
        assert!((newest as f64 / 10_000.0 - share).abs() < 0.02, "{newest} for {share}");
        for items in [1000, 1001, 2000, 100_000] {
            for _ in 0..1000 {
                assert!(latest.draw(items, &mut rng) < items);
            }
        }
        assert_eq!(Latest::new(1).draw(1, &mut rng), 0);
    }

    #[test]
    fn a_permutation_names_each_number_once() {
        for len in [1, 2, 3, 4, 5, 16, 17, 1000, 4096, 4097] {
            let order = Permutation::new(len, 7);
            let mut seen: Vec<u64> = (0..len).map(|position| order.at(position)).collect();
            if len >= 1000 {
                let rises = seen.windows(2).filter(|pair| pair[0] < pair[1]).count() as f64;
                assert!((rises / len as f64 - 0.5).abs() < 0.1, "{rises} of {len} rise");
                assert_ne!(seen[..10], (0..10).collect::<Vec<_>>());
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..len).collect::<Vec<_>>());
        }
        let other = Permutation::new(1000, 8);
        assert!((0..10).any(|at| other.at(at) != Permutation::new(1000, 7).at(at)));
    }
}

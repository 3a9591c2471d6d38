//! The paired filter's rate, for any number of keys.
//!
//! 1. With independent Poisson counts, of mean `x` keys a block, the rate of a batch is
//!    `G(x) = sum_t P(T = t) * E[(X/505)^(k/2)]^2`, with `P(T)` from [`pair_law`].
//! 2. A filter's counts are not independent: they add up to its `n` keys. If a quantity that
//!    depends on the distribution of `n` keys has the mean `G(x)` when `n` is made Poisson, then
//!    for fixed `n` its mean is a coefficient of the power series `e^n G`. By Cauchy's formula this
//!    is `n! n^-n / 2 pi` times the integral of `exp(n e^(i a) - i n a) G(x e^(i a))` over `a` from
//!    `-pi` to `pi`, where `x` is the mean number of keys a block. The first factor is a bell of
//!    width `1/sqrt(n)`, so that the integral depends on `G` close to `x` only. This step changes
//!    the rate by 2% at 1,000 keys and 6% at 100.
//! 3. `G` is interpolated: `ln G` as a polynomial in `ln x`, over fixed intervals of `ln x`, which
//!    also works for the complex arguments of step 2. The distributions at an interval's nodes do
//!    not depend on the number of probes; they are computed on first use (some 43 million
//!    instructions for a full batch and many keys) and cached. After that, an expected rate takes
//!    some microseconds.
//! 4. A batch of two blocks, or a single block, needs none of this: its pair holds all its keys.
//!    For a few dozen keys the bell is too wide, but all outcomes can be enumerated
//!    ([`super::few`]).
//! 5. The last batch may have any even number of blocks, and each size would need its own
//!    distributions, although that batch is a small part of many. After [`MANY_BATCHES`] full ones
//!    its rate is interpolated between those of the next lower and higher power of two, linearly in
//!    one over the number of blocks. That changes the filter's rate by less than 2 parts in 100,000
//!    up to 28 bits per key, and 2 in 10,000 at 40.
//!
//! Simulation agrees within 0.05% for up to 40 bits per key at all sizes, and within 1% for filters
//! of under 100 keys at 64 bits, whose rates are below 10^-12.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::counts::CountDistribution;
use super::few::mean_over_partitions;
use super::occupancy::PassTable;
use super::pairs::pair_law;
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::mix::{BATCH, RESERVED};

/// Distance between the centers of two intervals of `ln x`.
const SPACING: f64 = 0.25;
/// Interpolation where the bell of step 2 is narrow: from [`MANY_KEYS`] on.
const NARROW: Grid = Grid { nodes: 6, half_width: 0.3 };
/// Interpolation where it is wide.
const WIDE: Grid = Grid { nodes: 12, half_width: 0.75 };
/// See [`NARROW`].
const MANY_KEYS: u64 = 2000;
/// Widths of the bell that the integral of step 2 covers, and steps in one width.
const BELL: (f64, f64) = (8.0, 3.0);

/// Up to this many keys on up to [`FEW_BLOCKS`] blocks, all outcomes are enumerated.
const FEW_KEYS: u64 = 48;
/// The number of full batches from which the last one's rate is interpolated.
const MANY_BATCHES: u64 = 16;
/// The most blocks that the builder chooses for [`FEW_KEYS`] keys, with more than one or two
/// blocks.
const FEW_BLOCKS: u64 = 6;
/// The range of mean numbers of keys a block for which rates are computed; the builder stays within
/// it.
const MEANS: (f64, f64) = (4.0, 2048.0);

/// The nodes of an interval.
#[derive(Debug, Clone, Copy)]
struct Grid {
    nodes: usize,
    /// Half the width of the nodes' range.
    half_width: f64,
}

impl Grid {
    fn for_keys(keys: u64) -> Self {
        if keys >= MANY_KEYS { NARROW } else { WIDE }
    }

    /// The angle whose cosine is node `i` of the interval from -1 to 1.
    fn angle(self, i: usize) -> f64 {
        core::f64::consts::PI * (i as f64 + 0.5) / self.nodes as f64
    }
}

/// Distributions of a pair's keys at the nodes of one interval.
type Interval = [CountDistribution];

/// The probability that an absent key passes both blocks of a pair that holds `keys` keys.
fn pass(keys: usize, half: u32) -> f64 {
    PassTable::of::<{ RESERVED as usize }>(half).at(keys).powi(2)
}

/// The exact rate of a filter of `keys` keys in `blocks` blocks. More than 128 bits per key count
/// as 128, and less than a quarter of a bit gives 1.
pub(super) fn rate(keys: u64, blocks: u64, probes: u32) -> f64 {
    if blocks == 1 {
        let single = PassTable::of::<{ RESERVED as usize }>(probes);
        return single.at(usize::try_from(keys).unwrap_or(usize::MAX));
    }
    if blocks > 2 && blocks <= FEW_BLOCKS && keys <= FEW_KEYS {
        return mean_over_partitions(keys, blocks, |keys| pass(keys, probes / 2));
    }
    if keys as f64 > MEANS.1 * blocks as f64 {
        return 1.0;
    }
    let keys = keys.max((MEANS.0 * blocks as f64) as u64);
    let full = BATCH as u64;
    let last = blocks % full;
    let mut rate = 0.0;
    for (batch, blocks_in_such) in [(full, blocks - last), (last, last)] {
        if blocks_in_such > 0 {
            let share = blocks_in_such as f64 / blocks as f64;
            let exact = |batch| batch_rate(batch, keys, blocks, probes / 2);
            let is_small = batch != full && blocks / full >= MANY_BATCHES;
            let batch = batch as usize;
            rate += share * if is_small { between_powers(batch, exact) } else { exact(batch) };
        }
    }
    rate
}

/// The rate of a batch of `batch` blocks, interpolated between the next lower and higher power of
/// two.
fn between_powers(batch: usize, exact: impl Fn(usize) -> f64) -> f64 {
    if batch.is_power_of_two() {
        return exact(batch);
    }
    let high = batch.next_power_of_two();
    let low = high / 2;
    let over = |blocks: usize| 1.0 / blocks as f64;
    let way = (over(batch) - over(low)) / (over(high) - over(low));
    exact(low) + (exact(high) - exact(low)) * way
}

/// The rate of a batch of `batch` blocks of a filter of `keys` keys in `blocks` blocks.
pub(super) fn batch_rate(batch: usize, keys: u64, blocks: u64, half: u32) -> f64 {
    if batch == 2 {
        let counts = CountDistribution::binomial(keys, 2.0 / blocks as f64);
        return counts.mean_of(|keys| pass(keys, half));
    }
    let at = (keys as f64 / blocks as f64).ln();
    let curve = Curve::new(batch, at, half, Grid::for_keys(keys));
    let n = keys as f64;
    let (reach, steps) = BELL;
    let width = 1.0 / n.sqrt();
    let count = (reach * steps) as usize;
    let (mut sum, mut total) = (0.0, 0.0);
    for i in 0..=count {
        let angle = width * i as f64 / steps;
        if angle > core::f64::consts::PI {
            break;
        }
        let size = (-2.0 * n * (angle / 2.0).sin().powi(2)).exp();
        let turn = n * (angle.sin() - angle);
        let weight = if i == 0 { 0.5 } else { 1.0 };
        let (re, im) = curve.at(at, angle);
        total += weight * size * turn.cos();
        sum += weight * size * re.exp() * (turn + im).cos();
    }
    sum / total
}

/// The rate of a full batch with independent Poisson counts of mean `mean`: the limit of many keys.
/// Outside of [`MEANS`] like [`rate`].
pub(super) fn limit(mean: f64, probes: u32) -> f64 {
    if mean > MEANS.1 {
        return 1.0;
    }
    let at = mean.max(MEANS.0).ln();
    Curve::new(BATCH, at, probes / 2, NARROW).at(at, 0.0).0.exp()
}

/// `ln G` around a point, as a sum of Chebyshev polynomials.
struct Curve {
    centre: f64,
    half_width: f64,
    coefficients: Vec<f64>,
}

impl Curve {
    fn new(batch: usize, at: f64, half: u32, grid: Grid) -> Self {
        let number = (at / SPACING).round() as i32;
        let interval = interval(batch, number, grid);
        let value = |law: &CountDistribution| {
            law.mean_of(|keys| pass(keys, half)).max(f64::MIN_POSITIVE).ln()
        };
        let values: Vec<f64> = interval.iter().map(value).collect();
        let coefficient = |j: usize| {
            let terms =
                values.iter().enumerate().map(|(i, v)| v * (j as f64 * grid.angle(i)).cos());
            terms.sum::<f64>() * if j == 0 { 1.0 } else { 2.0 } / grid.nodes as f64
        };
        Self {
            centre: f64::from(number) * SPACING,
            half_width: grid.half_width,
            coefficients: (0..grid.nodes).map(coefficient).collect(),
        }
    }

    /// Real and imaginary part of `ln G` at `ln x = re + i im`, by Clenshaw's recurrence.
    fn at(&self, re: f64, im: f64) -> (f64, f64) {
        let (re, im) = ((re - self.centre) / self.half_width, im / self.half_width);
        let (mut b1, mut b2) = ((0.0, 0.0), (0.0, 0.0));
        for &c in self.coefficients[1..].iter().rev() {
            let next =
                (2.0 * (re * b1.0 - im * b1.1) - b2.0 + c, 2.0 * (re * b1.1 + im * b1.0) - b2.1);
            (b1, b2) = (next, b1);
        }
        (re * b1.0 - im * b1.1 - b2.0 + self.coefficients[0], re * b1.1 + im * b1.0 - b2.1)
    }
}

/// The distributions at the nodes of an interval. With `std` they are cached after the first use.
fn interval(batch: usize, number: i32, grid: Grid) -> Arc<Interval> {
    let compute = || {
        let node = |i| f64::from(number) * SPACING + grid.half_width * f64::cos(grid.angle(i));
        (0..grid.nodes).map(|i| pair_law(batch, node(i).exp())).collect()
    };
    #[cfg(feature = "std")]
    return cached((batch, number, grid.nodes), compute);
    #[cfg(not(feature = "std"))]
    compute()
}

/// What `compute` gave for `key` at its first use.
#[cfg(feature = "std")]
fn cached(key: (usize, i32, usize), compute: impl FnOnce() -> Arc<Interval>) -> Arc<Interval> {
    use std::collections::HashMap;
    use std::sync::{Mutex, PoisonError};

    type Intervals = HashMap<(usize, i32, usize), Arc<Interval>>;
    static STORE: Mutex<Option<Intervals>> = Mutex::new(None);
    let store = || STORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(laws) = store().as_ref().and_then(|laws| laws.get(&key)) {
        return Arc::clone(laws);
    }
    // Computed without the lock: two threads may do the same work once, but none waits for another.
    let laws = compute();
    store().get_or_insert_default().insert(key, Arc::clone(&laws));
    laws
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theory::best_paired_probes;

    #[test]
    fn interpolation_changes_rates_only_slightly() {
        let blocks = MANY_BATCHES * BATCH as u64;
        for (bits, most) in [(4.0, 2e-5), (12.0, 2e-5), (23.4, 2e-5), (28.0, 2e-5), (40.0, 2e-4)] {
            let keys = (blocks as f64 * 512.0 / bits) as u64;
            let exact = |batch| batch_rate(batch, keys, blocks, best_paired_probes(bits) / 2);
            for last in [6, 12, 46, 94, 126] {
                let off = (between_powers(last, exact) / exact(last) - 1.0).abs();
                let share = last as f64 / blocks as f64;
                assert!(off * share < most, "{bits} bits, {last} blocks: {off}");
            }
            let far = (exact(BATCH) / exact(6) - 1.0).abs();
            assert!(far > 1e-3 || bits < 10.0, "{bits} bits: nothing to interpolate");
        }
    }
}

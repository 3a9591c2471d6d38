//! The distribution of the number of keys of a pair: sums of order statistics.
//!
//! A batch has `B` blocks with independent counts. Sorted, the `i`-th smallest is paired with the
//! `i`-th largest. This module computes how many of the `B/2` pairs have a lower member `a` and an
//! upper member `b`, on average.
//!
//! 1. For `a < b` let `N` be the number of blocks with at most `a` keys and `M` the number of
//!    blocks with at least `b`. Exactly `min(N, M)` pairs have a lower member of at most `a` and an
//!    upper member of at least `b`. So `S(a, b) = E[min(N, M)]` is a cumulative table, and the
//!    number of pairs `(a, b)` is `S(a,b) - S(a-1,b) - S(a,b+1) + S(a-1,b+1)`.
//! 2. `min(N, M) = (N + M - |N - M|) / 2`, and `N - M` is the end of a random walk of `B` steps
//!    that goes up with probability `p = P(count <= a)`, down with `q = P(count >= b)` and stays
//!    otherwise. So only the mean distance of a lazy [`Walk`] is needed.
//! 3. The pairs of equal members, `(a, a)`, are the remaining lower members equal to `a`; their
//!    number also follows from a mean distance.
//!
//! This is exact, and takes some hundred walks of a dozen powers each, where summing the joint
//! probabilities of all pairs of order statistics takes 10^8 terms.

use alloc::vec;
use alloc::vec::Vec;

use super::counts::CountDistribution;
#[cfg(not(feature = "std"))]
use crate::float::Float;

/// Counts are grouped so that their standard deviation spans this many groups. This matters only
/// below five bits per key, where it changes rates by less than 1 part in 20,000.
const GROUPS_PER_SIGMA: f64 = 5.0;
/// Fewer pairs than this are rounding noise, which is about 1e-14: a true number that small adds
/// nothing to any rate.
const NOISE: f64 = 1e-12;
/// Walks whose mean is this many standard deviations from 0 never return to 0.
const FAR: f64 = 8.0;
/// Values below this are taken as 0.
const NEGLIGIBLE: f64 = 1e-16;
/// Terms that are computed in parallel lanes.
const LANES: usize = 8;

/// The distribution of the number of keys in a random pair of a batch of `batch` blocks (even, 4 or
/// more) whose counts are independent and Poisson of mean `mean`.
pub(super) fn pair_law(batch: usize, mean: f64) -> CountDistribution {
    let walk = Walk::new(batch);
    let counts = CountDistribution::poisson(mean);
    let group = ((mean.sqrt() / GROUPS_PER_SIGMA) as usize).max(1);
    let chances: Vec<f64> = counts.weights.chunks(group).map(|g| g.iter().sum()).collect();
    let groups = chances.len();
    // at_most[a + 1] = P(count <= a), at_least[b] = P(count >= b), each summed from its small end.
    let mut at_most = vec![0.0; groups + 1];
    let mut at_least = vec![0.0; groups + 1];
    for i in 0..groups {
        at_most[i + 1] = at_most[i] + chances[i];
        at_least[groups - 1 - i] = at_least[groups - i] + chances[groups - 1 - i];
    }
    // A group's members are represented by its middle: the sum of two middles is a whole number.
    let mut weights = vec![0.0; 2 * group * (groups - 1) + 1];
    let mut upper = vec![0.0; groups + 1];
    for a in 0..groups {
        let mut unequal = 0.0;
        let row: Vec<f64> = (0..=groups)
            .map(|b| if b <= a { 0.0 } else { walk.both(at_most[a + 1], at_least[b]) })
            .collect();
        for b in a + 1..groups {
            let pairs = above_noise(row[b] - upper[b] - row[b + 1] + upper[b + 1]);
            weights[group * (a + b)] += pairs;
            unequal += pairs;
        }
        let lower = walk.lower_members(at_most[a + 1]) - walk.lower_members(at_most[a]);
        weights[2 * group * a] += above_noise(lower - unequal);
        upper = row;
    }
    let total: f64 = weights.iter().sum();
    for weight in &mut weights {
        *weight /= total;
    }
    CountDistribution { first: 2 * counts.first + group - 1, weights }
}

fn above_noise(pairs: f64) -> f64 {
    if pairs < NOISE { 0.0 } else { pairs }
}

/// A lazy random walk of a fixed number of steps.
///
/// The characteristic function of its end `D` is a power, and the Fourier series of `|d|` with the
/// even period `m` has the constant `m/4` and, for odd `j`, the terms `-(1/m) / sin^2(pi j / m)`.
/// The period must only be so large that `D` stays within half of it. The power decays like a
/// normal distribution's on both sides of 0 and of pi (where it is large if the walk hardly ever
/// stays, so that `D` has the parity of the number of steps), so few terms matter.
struct Walk {
    steps: usize,
    /// For ascending periods, the terms for odd `j` up to half the period.
    series: Vec<Series>,
}

struct Series {
    period: usize,
    terms: Vec<Term>,
}

#[derive(Clone, Copy, Default)]
struct Term {
    /// The angle `2 pi j / m`.
    angle: f64,
    sin: f64,
    cos: f64,
    weight: f64,
}

impl Walk {
    fn new(steps: usize) -> Self {
        let widest = 2 * (steps + 1);
        let narrower = (4..).map(|bits| 1 << bits).take_while(|&period| period < widest);
        let series = narrower.chain([widest]).map(Series::new).collect();
        Self { steps, series }
    }

    /// The mean number of pairs with a lower member of probability `p` and an upper one of
    /// probability `q`.
    fn both(&self, p: f64, q: f64) -> f64 {
        let n = self.steps as f64;
        // The lesser of two integers is at most their product, whose mean is n (n - 1) p q.
        if n * n * p * q < NEGLIGIBLE {
            return 0.0;
        }
        (n * (p + q) - self.mean_distance(p, q)) / 2.0
    }

    /// The mean number of lower members among blocks of probability `p` each: at most half of the
    /// batch.
    fn lower_members(&self, p: f64) -> f64 {
        let batch = self.steps as f64;
        let distance = self.mean_distance(p, (1.0 - p).max(0.0));
        (batch * p + batch / 2.0 - distance / 2.0) / 2.0
    }

    /// The mean of `|D|` if each step is +1 with probability `p`, -1 with probability `q`, else 0.
    fn mean_distance(&self, p: f64, q: f64) -> f64 {
        let n = self.steps as f64;
        let mean = n * (p - q);
        let sigma = (n * ((p + q) - (p - q).powi(2))).max(0.0).sqrt();
        if mean.abs() > FAR * sigma + FAR {
            return mean.abs();
        }
        let reach = 2.0 * (mean.abs() + (FAR + 2.0) * sigma + FAR + 2.0);
        let fits = |series: &&Series| series.period as f64 >= reach;
        let Some(series) = self.series.iter().find(fits).or(self.series.last()) else {
            return mean.abs();
        };
        series.period as f64 / 4.0 - series.sum(p, q, sigma, self.steps)
    }
}

impl Series {
    fn new(period: usize) -> Self {
        let term = |j: usize| {
            let angle = core::f64::consts::TAU * j as f64 / period as f64;
            // Terms j and -j are equal, and are the same term at j = period/2.
            let both = if 2 * j == period { 1.0 } else { 2.0 };
            Term {
                angle,
                sin: angle.sin(),
                cos: angle.cos(),
                weight: both / (period as f64 * (angle / 2.0).sin().powi(2)),
            }
        };
        Self { period, terms: (1..=period / 2).step_by(2).map(term).collect() }
    }

    /// The sum of all terms that are not negligible: those with angles near 0, and near pi if the
    /// walk hardly ever stays.
    fn sum(&self, p: f64, q: f64, sigma: f64, steps: usize) -> f64 {
        let near = (FAR + 1.0) / sigma;
        let low = self.terms.partition_point(|term| term.angle <= near);
        let at_pi = (1.0 - 2.0 * (p + q)).abs().powi(steps as i32);
        let high = if at_pi < NEGLIGIBLE {
            self.terms.len()
        } else {
            let far = core::f64::consts::PI - near;
            self.terms.partition_point(|term| term.angle < far).max(low)
        };
        let stay = (1.0 - p - q).max(0.0);
        let mut sum = 0.0;
        for terms in self.terms[..low].chunks(LANES).chain(self.terms[high..].chunks(LANES)) {
            let mut lanes = [Term::default(); LANES];
            lanes[..terms.len()].copy_from_slice(terms);
            let re = lanes.map(|term| stay + (p + q) * term.cos);
            let im = lanes.map(|term| (p - q) * term.sin);
            for (power, term) in powers(re, im, steps).into_iter().zip(lanes) {
                sum += term.weight * power;
            }
        }
        sum
    }
}

/// The real parts of the powers of complex numbers. They are computed together, because each alone
/// would be bound by the latency of its multiplications.
fn powers(mut re: [f64; LANES], mut im: [f64; LANES], mut exponent: usize) -> [f64; LANES] {
    let (mut product_re, mut product_im) = ([1.0; LANES], [0.0; LANES]);
    loop {
        if exponent % 2 == 1 {
            for i in 0..LANES {
                let old = product_re[i];
                product_re[i] = old * re[i] - product_im[i] * im[i];
                product_im[i] = old * im[i] + product_im[i] * re[i];
            }
        }
        exponent /= 2;
        if exponent == 0 {
            return product_re;
        }
        for i in 0..LANES {
            (re[i], im[i]) = (re[i] * re[i] - im[i] * im[i], 2.0 * re[i] * im[i]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean distance by simulating the distribution step by step.
    fn walked(steps: usize, p: f64, q: f64) -> f64 {
        let mut law = vec![0.0; 2 * steps + 3];
        law[steps + 1] = 1.0;
        for _ in 0..steps {
            let old = law.clone();
            for d in 1..law.len() - 1 {
                law[d] = old[d] * (1.0 - p - q) + old[d - 1] * p + old[d + 1] * q;
            }
        }
        law.iter().enumerate().map(|(d, w)| w * (d as f64 - steps as f64 - 1.0).abs()).sum()
    }

    #[test]
    fn distances_agree_with_walking() {
        for steps in [1, 2, 3, 4, 10, 46, 128] {
            for (p, q) in [
                (0.0, 0.0),
                (0.5, 0.5),
                (0.3, 0.2),
                (0.01, 0.012),
                (0.9, 0.1),
                (0.001, 0.4),
                (1e-9, 1e-8),
                (0.0, 1.0),
            ] {
                let (fast, slow) = (Walk::new(steps).mean_distance(p, q), walked(steps, p, q));
                assert!((fast - slow).abs() < 1e-11, "{steps} {p} {q}: {fast} against {slow}");
            }
        }
    }

    /// All outcomes of four blocks, summed one by one.
    #[test]
    fn small_batches_agree_with_enumeration() {
        let mean = 1.7;
        let single = CountDistribution::poisson(mean);
        let mut law = vec![0.0; 60];
        let chances: Vec<(usize, f64)> = single.iter().filter(|&(i, _)| i < 14).collect();
        for &(a, pa) in &chances {
            for &(b, pb) in &chances {
                for &(c, pc) in &chances {
                    for &(d, pd) in &chances {
                        let mut x = [a, b, c, d];
                        x.sort_unstable();
                        law[x[0] + x[3]] += pa * pb * pc * pd / 2.0;
                        law[x[1] + x[2]] += pa * pb * pc * pd / 2.0;
                    }
                }
            }
        }
        let fast = pair_law(4, mean);
        for (keys, chance) in fast.iter().take(16) {
            assert!((chance - law[keys]).abs() < 1e-8, "{keys}: {chance} against {}", law[keys]);
        }
    }

    #[test]
    fn pairs_are_as_narrow_as_published() {
        let law = pair_law(128, 512.0 / 23.4);
        let mean = law.mean_of(|t| t as f64);
        let sigma = law.mean_of(|t| (t as f64 - mean).powi(2)).sqrt();
        assert!((mean - 1024.0 / 23.4).abs() < 1e-6, "{mean}");
        assert!((1.24..1.26).contains(&sigma), "{sigma}");
    }
}

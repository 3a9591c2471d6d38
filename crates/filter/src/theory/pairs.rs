//! The law of the keys of a pair: sums of order statistics.
//!
//! A batch has `B` blocks with independent counts. Sorted, the `i`-th smallest is paired with the
//! `i`-th largest. What is wanted is how many of the `B/2` pairs have a lower member `a` and an
//! upper member `b`, on average.
//!
//! 1. For `a < b` let `N` be the number of blocks of at most `a` keys and `M` that of blocks of at
//!    least `b`. Of the pairs, exactly `min(N, M)` have a lower member of at most `a` and an upper
//!    one of at least `b`. So `S(a, b) = E[min(N, M)]` is a cumulative table, and the number of
//!    pairs `(a, b)` is `S(a,b) - S(a-1,b) - S(a,b+1) + S(a-1,b+1)`.
//! 2. `min(N, M) = (N + M - |N - M|) / 2`, and `N - M` is where a walk of `B` steps ends that goes
//!    up with probability `p = P(count <= a)`, down with `q = P(count >= b)` and stays otherwise.
//!    So all that is needed is the mean distance of a lazy walk, [`mean_distance`].
//! 3. The pairs of equal members, `(a, a)`, are what is missing from the number of lower members
//!    that are `a`, which is a mean distance too.
//!
//! That is exact, and takes some hundred walks of a dozen cosines each, where summing the joint
//! probabilities of all pairs of order statistics takes 10^8 terms.

use super::counts::Counts;

/// Counts are grouped so that their standard deviation spans this many groups. It matters below
/// five bits per key only, where it changes rates by less than 1 part in 20,000.
const GROUPS_PER_SIGMA: f64 = 5.0;
/// Fewer pairs than this are rounding noise, which is about 1e-14: where the true number is that
/// small, it adds nothing to any rate.
const NOISE: f64 = 1e-12;
/// Walks whose mean is this many standard deviations from 0 never return there.
const FAR: f64 = 8.0;

/// The law of the number of keys in a random pair of a batch of `batch` blocks (even, 4 or more)
/// whose counts are independent and Poisson of mean `mean`.
pub(super) fn pair_law(batch: usize, mean: f64) -> Counts {
    let counts = Counts::poisson(mean);
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
    // A group's members are taken as its middle: the sum of two middles is a whole number.
    let mut weights = vec![0.0; 2 * group * (groups - 1) + 1];
    let mut upper = vec![0.0; groups + 1];
    for a in 0..groups {
        let mut unequal = 0.0;
        let row: Vec<f64> = (0..=groups)
            .map(|b| if b <= a { 0.0 } else { both(batch, at_most[a + 1], at_least[b]) })
            .collect();
        for b in a + 1..groups {
            let pairs = above_noise(row[b] - upper[b] - row[b + 1] + upper[b + 1]);
            weights[group * (a + b)] += pairs;
            unequal += pairs;
        }
        let lower = lower_members(batch, at_most[a + 1]) - lower_members(batch, at_most[a]);
        weights[2 * group * a] += above_noise(lower - unequal);
        upper = row;
    }
    let total: f64 = weights.iter().sum();
    for weight in &mut weights {
        *weight /= total;
    }
    Counts { first: 2 * counts.first + group - 1, weights }
}

fn above_noise(pairs: f64) -> f64 {
    if pairs < NOISE { 0.0 } else { pairs }
}

/// The mean number of pairs with a lower member of chance `p` and an upper one of chance `q`.
fn both(batch: usize, p: f64, q: f64) -> f64 {
    (batch as f64 * (p + q) - mean_distance(batch, p, q)) / 2.0
}

/// The mean number of lower members among the blocks that are each of chance `p`: at most half of
/// the batch.
fn lower_members(batch: usize, p: f64) -> f64 {
    let batch_f = batch as f64;
    (batch_f * p + batch_f / 2.0 - mean_distance(batch, p, (1.0 - p).max(0.0)) / 2.0) / 2.0
}

/// The mean of `|D|`, where `D` is the sum of `steps` steps, each +1 with chance `p`, -1 with
/// chance `q`, else 0.
///
/// The characteristic function of `D` is a power, and the Fourier series of `|d|` with period `m`
/// has the terms `m/4` and, for odd `j`, `-(2/m) / sin^2(pi j / m)` twice over (for `j` and `-j`).
/// The period only has to be wide enough that `D` stays within half of it. The power decays like a
/// normal law's on both sides of 0 and of pi (where it is large if the walk hardly ever stays, so
/// that `D` has the parity of the number of steps); few terms count.
fn mean_distance(steps: usize, p: f64, q: f64) -> f64 {
    let n = steps as f64;
    let mean = n * (p - q);
    let sigma = (n * ((p + q) - (p - q).powi(2))).max(0.0).sqrt();
    if mean.abs() > FAR * sigma + FAR {
        return mean.abs();
    }
    let reach = (mean.abs() + (FAR + 2.0) * sigma + FAR + 2.0).min(n + 1.0);
    let period = 2 * reach.ceil() as usize;
    let angle = std::f64::consts::TAU / period as f64;
    let stay = (1.0 - p - q).max(0.0);
    let mut sum = 0.0;
    for j in (1..=period / 2).step_by(2) {
        let theta = angle * j as f64;
        if theta.min(std::f64::consts::PI - theta) * sigma > FAR + 1.0 {
            continue;
        }
        let (sin, cos) = theta.sin_cos();
        let (re, im) = (stay + (p + q) * cos, (p - q) * sin);
        let size = (re * re + im * im).powf(n / 2.0);
        let term = size * (n * im.atan2(re)).cos() / (theta / 2.0).sin().powi(2);
        // At j = period/2 (odd half periods only) j and -j are the same term.
        sum += if 2 * j == period { term / 2.0 } else { term };
    }
    period as f64 / 4.0 - 2.0 * sum / period as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean distance by walking.
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
                let (fast, slow) = (mean_distance(steps, p, q), walked(steps, p, q));
                assert!((fast - slow).abs() < 1e-11, "{steps} {p} {q}: {fast} against {slow}");
            }
        }
    }

    /// All orders of four blocks, summed one by one.
    #[test]
    fn small_batches_agree_with_enumeration() {
        let mean = 1.7;
        let single = Counts::poisson(mean);
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

//! Whether two small samples differ by more than chance explains. Pure arithmetic.
//!
//! * [`rank_test`]: Wilcoxon's rank-sum test (Mann and Whitney's U), two-sided. It assumes nothing
//!   of how the values are spread, but with fewer than four on each side it cannot reach 5%.
//! * [`welch`]: Welch's t test, for samples that are too small for ranks; it assumes that they are
//!   spread about normally. Its interval is also used for larger ones.
//!
//! Called by [`compare`](crate::compare).

/// Values of both samples together up to which the rank test counts every arrangement.
const EXACT_MAX: usize = 60;

/// How likely it is, were both samples drawn alike, that their ranks differ as much as these do.
/// Values must not be NaN.
///
/// 1. Rank all values together, equal ones by their average rank. Ranks are doubled, to be whole.
/// 2. Count, for each sum, in how many ways as many ranks as `a` has values add up to it, by
///    adding one rank after the other. This is exact whether or not values are equal.
/// 3. The answer is the share of ways whose sum is at least as far from its mean as that of `a`.
///
/// Above 60 values the normal approximation stands for steps 2 and 3.
pub fn rank_test(a: &[f64], b: &[f64]) -> f64 {
    let (n, all) = (a.len(), a.len() + b.len());
    if a.is_empty() || b.is_empty() {
        return 1.0;
    }
    let ranks = doubled_ranks(a, b);
    let sum: usize = ranks[..n].iter().sum();
    let mean = n * (all + 1);
    let distance = sum.abs_diff(mean);
    if all > EXACT_MAX {
        return normal_tail(&ranks, n, distance);
    }
    let top: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0_f64; top + 1]; n + 1];
    ways[0][0] = 1.0;
    for rank in &ranks {
        for taken in (1..=n).rev() {
            let (fewer, more) = ways.split_at_mut(taken);
            for (sum, count) in more[0].iter_mut().enumerate().skip(*rank) {
                *count += fewer[taken - 1][sum - rank];
            }
        }
    }
    let total: f64 = ways[n].iter().sum();
    let far = ways[n].iter().enumerate().filter(|(sum, _)| sum.abs_diff(mean) >= distance);
    (far.map(|(_, count)| count).sum::<f64>() / total).min(1.0)
}

/// Twice the rank of each value among all: those of `a`, then those of `b`.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<usize> {
    let values: Vec<f64> = a.iter().chain(b).copied().collect();
    let rank = |value: &f64| {
        let less = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        2 * less + equal + 1
    };
    values.iter().map(rank).collect()
}

/// Step 3 for large samples: the sum of `n` of these ranks is nearly normal. Half a rank is taken
/// off the distance, as sums are whole.
fn normal_tail(ranks: &[usize], n: usize, distance: usize) -> f64 {
    let (n, all) = (n as f64, ranks.len() as f64);
    let mean = all + 1.0;
    let squares: f64 = ranks.iter().map(|rank| (*rank as f64 - mean).powi(2)).sum();
    let deviation = (n * (all - n) / (all * (all - 1.0)) * squares).sqrt();
    if deviation == 0.0 {
        return 1.0;
    }
    let z = (distance as f64 - 1.0).max(0.0) / deviation;
    // The normal distribution is Student's with no end of degrees of freedom.
    student_tails(z, 1e9)
}

/// What Welch's test says of the means of two samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Welch {
    /// Mean of the second sample, less that of the first.
    pub difference: f64,
    /// Student's t.
    pub t: f64,
    /// Its degrees of freedom.
    pub freedom: f64,
    /// How likely a difference as large is, were both means equal.
    pub p: f64,
    /// 95% interval of the difference.
    pub interval: (f64, f64),
}

/// Welch's t test; none if a sample has fewer than two values, or neither has any spread.
pub fn welch(a: &[f64], b: &[f64]) -> Option<Welch> {
    let ((mean_a, error_a), (mean_b, error_b)) = (mean_and_error(a)?, mean_and_error(b)?);
    let error = error_a + error_b;
    if error <= 0.0 {
        return None;
    }
    let parts = error_a.powi(2) / (a.len() - 1) as f64 + error_b.powi(2) / (b.len() - 1) as f64;
    let freedom = error.powi(2) / parts;
    let difference = mean_b - mean_a;
    let t = difference / error.sqrt();
    let half = student_quantile(0.05, freedom) * error.sqrt();
    Some(Welch {
        difference,
        t,
        freedom,
        p: student_tails(t.abs(), freedom),
        interval: (difference - half, difference + half),
    })
}

/// The mean, and the square of its standard error.
fn mean_and_error(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, squares / (n - 1.0) / n))
}

/// The share of Student's distribution that is farther than `t` from its middle, on both sides.
fn student_tails(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The t beyond which, on both sides, lies the share `tails`. Found by halving.
fn student_quantile(tails: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if student_tails(middle, freedom) > tails {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// The regularised incomplete beta function, by its continued fraction, evaluated from the front
/// (Lentz's method; Abramowitz and Stegun 26.5.8).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on this side only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let log_front = a * x.ln() + b * (-x).ln_1p() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    let tiny = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let (mut c, mut d) = (1.0, 1.0 / tiny(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for step in 1..10_000 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / tiny(1.0 + term * d);
            c = tiny(1.0 + term / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    (log_front.exp() * fraction / a).clamp(0.0, 1.0)
}

/// The logarithm of the gamma function: Stirling's series, after the argument is raised above 20 by
/// the recurrence (Abramowitz and Stegun 6.1.41 and 6.1.15).
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 20.0 {
        shift += x.ln();
        x += 1.0;
    }
    let (inverse, square) = (1.0 / x, 1.0 / (x * x));
    let series = inverse / 12.0
        * (1.0 - square / 30.0 * (1.0 - square * (2.0 / 7.0) * (1.0 - square * 0.75)));
    (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series - shift
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(found: f64, expected: f64, digits: i32) {
        assert!((found - expected).abs() < 0.6 * 10_f64.powi(-digits), "{found}, not {expected}");
    }

    #[test]
    fn ranks_without_ties_have_the_values_of_the_tables() {
        let rising = |from: u32, to: u32| (from..to).map(f64::from).collect::<Vec<_>>();
        // All of one side above the other: 2 of the C(2n, n) arrangements are as far off.
        is_near(rank_test(&rising(0, 3), &rising(3, 6)), 0.1, 12);
        is_near(rank_test(&rising(0, 4), &rising(4, 8)), 2.0 / 70.0, 12);
        is_near(rank_test(&rising(0, 5), &rising(5, 10)), 2.0 / 252.0, 12);
        // The table of critical values has U = 2 for two samples of five at 5%, and 23 for tens.
        let swapped = |n: u32, u: u32| {
            // Moving the largest of `a` up by one place adds one to U.
            let mut a: Vec<f64> = (0..n).map(f64::from).collect();
            let mut left = u;
            for at in (0..n as usize).rev() {
                let step = left.min(n);
                a[at] += f64::from(step);
                left -= step;
            }
            let b = (0..2 * n).map(f64::from).filter(|value| !a.contains(value)).collect();
            (a, b)
        };
        for (n, critical) in [(5, 2), (6, 5), (7, 8), (8, 13), (9, 17), (10, 23)] {
            let p = |u| {
                let (a, b): (Vec<f64>, Vec<f64>) = swapped(n, u);
                rank_test(&a, &b)
            };
            assert!(p(critical) <= 0.05 && p(critical + 1) > 0.05, "{n}: {}", p(critical));
        }
        // Ages at diagnosis, the example in SciPy's documentation of the test.
        let (males, females) = ([19.0, 22.0, 16.0, 29.0, 24.0], [20.0, 11.0, 17.0, 12.0]);
        is_near(rank_test(&males, &females), 0.111_111_1, 7);
        is_near(rank_test(&females, &males), 0.111_111_1, 7);
    }

    /// The same by trying every choice of `a.len()` values.
    fn by_trying(a: &[f64], b: &[f64]) -> f64 {
        let ranks = doubled_ranks(a, b);
        let sum_of = |set: u32| -> usize {
            ranks
                .iter()
                .enumerate()
                .filter(|(at, _)| set >> at & 1 == 1)
                .map(|(_, rank)| rank)
                .sum()
        };
        let mean = a.len() * (ranks.len() + 1);
        let distance = sum_of((1 << a.len()) - 1).abs_diff(mean);
        let sets = (0_u32..1 << ranks.len()).filter(|set| set.count_ones() as usize == a.len());
        let (mut far, mut total) = (0, 0);
        for set in sets {
            far += u32::from(sum_of(set).abs_diff(mean) >= distance);
            total += 1;
        }
        f64::from(far) / f64::from(total)
    }

    #[test]
    fn ranks_with_ties_are_exact() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut sample =
                || -> Vec<f64> { (0..rng.usize(1..7)).map(|_| f64::from(rng.u32(..5))).collect() };
            let (a, b) = (sample(), sample());
            is_near(rank_test(&a, &b), by_trying(&a, &b), 12);
        }
        assert_eq!(rank_test(&[1.0; 5], &[1.0; 5]), 1.0);
        assert_eq!(rank_test(&[1.0; 50], &[1.0; 50]), 1.0);
        assert_eq!(rank_test(&[], &[1.0]), 1.0);
    }

    #[test]
    fn the_approximation_takes_over_smoothly() {
        let mut rng = fastrand::Rng::with_seed(7);
        let a: Vec<f64> = (0..30).map(|_| rng.f64()).collect();
        let b: Vec<f64> = (0..30).map(|_| rng.f64() + 0.15).collect();
        let exact = rank_test(&a, &b);
        let ranks = doubled_ranks(&a, &b);
        let distance = ranks[..30].iter().sum::<usize>().abs_diff(30 * 61);
        is_near(normal_tail(&ranks, 30, distance), exact, 2);
    }

    #[test]
    fn students_distribution_has_the_values_of_the_tables() {
        for (freedom, at_5, at_1) in [
            (1.0, 12.706, 63.657),
            (2.0, 4.303, 9.925),
            (5.0, 2.571, 4.032),
            (10.0, 2.228, 3.169),
            (30.0, 2.042, 2.750),
            (120.0, 1.980, 2.617),
            (1e9, 1.960, 2.576),
        ] {
            is_near(student_quantile(0.05, freedom), at_5, 3);
            is_near(student_quantile(0.01, freedom), at_1, 3);
        }
        // With one degree of freedom it is Cauchy's: an arc tangent.
        is_near(student_tails(1.0, 1.0), 0.5, 12);
        // With two it is algebraic.
        is_near(student_tails(3.0, 2.0), 1.0 - 3.0 / 11_f64.sqrt(), 12);
        assert_eq!(student_tails(0.0, 5.0), 1.0);
    }

    #[test]
    fn the_gamma_function_is_the_factorial_between() {
        is_near(ln_gamma(1.0), 0.0, 12);
        is_near(ln_gamma(0.5), std::f64::consts::PI.ln() / 2.0, 12);
        is_near(ln_gamma(11.0), 3_628_800_f64.ln(), 11);
    }

    #[test]
    fn welchs_test_has_its_published_values() {
        // The first of Welch's examples as given by Ruxton's and others' texts: equal variances.
        let a = [
            27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7,
            21.4,
        ];
        let b = [
            27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5,
            24.4,
        ];
        let found = welch(&a, &b).unwrap();
        is_near(found.t, 2.46, 2);
        is_near(found.freedom, 25.0, 1);
        is_near(found.p, 0.021, 3);
        assert!(found.interval.0 > 0.0 && found.interval.1 > found.difference);
        // Another, with unequal variances and sizes.
        let a = [17.2, 20.9, 22.6, 18.1, 21.7, 21.4, 23.5, 24.2, 14.7, 21.8];
        let b = [
            21.5, 22.8, 21.0, 23.0, 21.6, 23.6, 22.5, 20.7, 23.4, 21.8, 20.7, 21.7, 21.5, 22.5,
            23.6, 21.5, 22.5, 23.5, 21.5, 21.8,
        ];
        let found = welch(&a, &b).unwrap();
        is_near(found.t, 1.57, 2);
        is_near(found.freedom, 9.9, 1);
        is_near(found.p, 0.149, 3);
        assert!(found.interval.0 < 0.0 && found.interval.1 > 0.0);
    }

    #[test]
    fn without_spread_there_is_no_test() {
        assert_eq!(welch(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(welch(&[1.0, 1.0], &[2.0, 2.0]), None);
        assert!(welch(&[1.0, 1.0], &[2.0, 2.5]).is_some());
    }
}

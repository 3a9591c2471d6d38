//! Tests whether two small samples differ by more than chance explains. Pure arithmetic.
//!
//! * [`welch`]: Welch's t-test. It assumes normally distributed values, which logarithms of times
//!   nearly are. Its interval and p-value are consistent with each other.
//! * [`holm`]: adjusts the p-values of many tests made at once.
//!
//! Called by [`compare`](crate::compare) and [`filter_bench`](crate::filter_bench).

/// Adjusts the p-values of several tests so that the probability of any false alarm among them
/// stays at its nominal level: the smallest is multiplied by their number, the next by one less,
/// and so on, without decreasing (Holm's step-down method).
pub fn holm(ps: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ps.len()).collect();
    order.sort_by(|a, b| ps[*a].total_cmp(&ps[*b]));
    let (mut raised, mut least) = (vec![1.0; ps.len()], 0.0_f64);
    for (rank, at) in order.into_iter().enumerate() {
        least = least.max(ps[at] * (ps.len() - rank) as f64).min(1.0);
        raised[at] = least;
    }
    raised
}

/// The result of Welch's test on the means of two samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Welch {
    /// Mean of the second sample minus that of the first.
    pub difference: f64,
    /// Student's t.
    pub t: f64,
    /// The degrees of freedom.
    pub freedom: f64,
    /// Probability of a difference at least as large if the means were equal.
    pub p: f64,
    /// 95% interval of the difference.
    pub interval: (f64, f64),
}

/// Relative spread that rounding may cause among equal values.
const ROUNDING: f64 = 1e-12;

/// Welch's t-test; none if a sample has fewer than two values, or neither has any spread.
pub fn welch(a: &[f64], b: &[f64]) -> Option<Welch> {
    let ((mean_a, error_a), (mean_b, error_b)) = (mean_and_error(a)?, mean_and_error(b)?);
    let error = error_a + error_b;
    // Equal values may differ by rounding, which is no spread.
    if error.sqrt() <= ROUNDING * mean_a.abs().max(mean_b.abs()) {
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
pub(crate) fn mean_and_error(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, squares / (n - 1.0) / n))
}

/// The two-sided tail probability of Student's distribution beyond `t`.
fn student_tails(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The t whose two-sided tail probability is `tails`, found by bisection.
pub(crate) fn student_quantile(tails: f64, freedom: f64) -> f64 {
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

/// The regularised incomplete beta function, by its continued fraction, evaluated forward (Lentz's
/// method; Abramowitz and Stegun 26.5.8).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast only on this side.
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

/// The logarithm of the gamma function: Stirling's series, after the recurrence has raised the
/// argument above 20 (Abramowitz and Stegun 6.1.41 and 6.1.15).
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

    /// Times have three significant digits, so several runs are often equal; rounding errors used
    /// to make a difference between them look certain, or absent.
    #[test]
    fn equal_values_have_no_spread() {
        for value in [1200.0_f64, 1440.0, 0.1, 7.3] {
            let (a, b) = (vec![value.ln(); 5], vec![(value * 1.2).ln(); 5]);
            assert!(welch(&a, &b).is_none(), "{value}");
        }
    }

    fn is_near(found: f64, expected: f64, digits: i32) {
        assert!((found - expected).abs() < 0.6 * 10_f64.powi(-digits), "{found}, not {expected}");
    }

    #[test]
    fn holms_method_has_its_published_values() {
        let raised = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (found, expected) in raised.into_iter().zip([0.03, 0.06, 0.06, 0.02]) {
            is_near(found, expected, 12);
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert_eq!(holm(&[]), [] as [f64; 0]);
    }

    #[test]
    fn the_interval_holds_zero_just_when_the_test_says_chance() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut seen = [0, 0];
        for _ in 0..500 {
            let mut sample = |shift: f64| -> Vec<f64> {
                (0..rng.usize(2..8)).map(|_| rng.f64() + shift).collect()
            };
            let found = welch(&sample(0.0), &sample(0.4)).unwrap();
            let holds_zero = found.interval.0 <= 0.0 && 0.0 <= found.interval.1;
            assert_eq!(holds_zero, found.p >= 0.05, "{found:?}");
            seen[usize::from(holds_zero)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
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
        // With one degree of freedom it is the Cauchy distribution: an arc tangent.
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
        // The first of Welch's examples, as in Ruxton and other texts: equal variances.
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
        // Another example, with unequal variances and sizes.
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

use super::*;

/// Bits per key, and the rates of the standard, blocked and paired filter to four digits, for ideal
/// probes, their best number and the limit of many keys. Computed independently of this crate.
const RATES: [(f64, [f64; 3]); 9] = [
    (8.0, [2.158e-2, 2.326e-2, 2.300e-2]),
    (10.0, [8.194e-3, 9.665e-3, 9.051e-3]),
    (12.0, [3.142e-3, 4.135e-3, 3.454e-3]),
    (16.0, [4.587e-4, 8.439e-4, 5.350e-4]),
    (20.0, [6.714e-5, 1.978e-4, 8.158e-5]),
    (23.4, [1.311e-5, 6.425e-5, 1.674e-5]),
    (28.0, [1.440e-6, 1.603e-5, 2.014e-6]),
    (32.0, [2.104e-7, 5.344e-6, 3.257e-7]),
    (40.0, [4.507e-9, 7.681e-7, 9.233e-9]),
];

const KINDS: [FilterKind; 3] = [FilterKind::Standard, FilterKind::Blocked, FilterKind::Paired];

#[test]
fn rates_are_the_published_ones_to_every_digit() {
    for (bits, rates) in RATES {
        for (kind, rate) in KINDS.into_iter().zip(rates) {
            let ours = format!("{:.3e}", best_fpr(kind, bits));
            assert_eq!(ours, format!("{rate:.3e}"), "{kind} at {bits} bits per key");
        }
    }
}

/// A random generator that is independent of the filters' hash.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * n as u128) >> 64) as usize
    }
}

/// Distributes keys over blocks, pairs the blocks and returns the mean probability of passing a
/// pair: the mean over `trials` filters and its standard error.
fn simulated(keys: u64, blocks: usize, probes: u32, trials: u32) -> (f64, f64) {
    let table = PassTable::of::<7>(probes / 2);
    let mut random = Random(keys ^ 0x9e37_79b9_7f4a_7c15);
    let (mut sum, mut squares) = (0.0, 0.0);
    for _ in 0..trials {
        let mut counts = vec![0_usize; blocks];
        for _ in 0..keys {
            counts[random.below(blocks)] += 1;
        }
        let mut rate = 0.0;
        for batch in counts.chunks_mut(128) {
            batch.sort_unstable();
            let pairs = batch.iter().zip(batch.iter().rev());
            rate += pairs.map(|(a, b)| table.at(a + b).powi(2)).sum::<f64>();
        }
        let rate = rate / blocks as f64;
        sum += rate;
        squares += rate * rate;
    }
    let n = f64::from(trials);
    let mean = sum / n;
    (mean, ((squares / n - mean * mean).max(0.0) / n).sqrt())
}

#[test]
fn paired_rates_agree_with_simulation_at_any_size() {
    for (keys, bits, trials) in [
        (17, 64.0, 100_000),
        (30, 64.0, 100_000),
        (36, 64.0, 100_000),
        (49, 64.0, 100_000),
        (45, 40.0, 100_000),
        (100, 23.4, 100_000),
        (110, 10.0, 50_000),
        (1000, 1.0, 2_000),
        (1000, 5.0, 5_000),
        (1000, 10.0, 10_000),
        (1000, 23.4, 10_000),
        (3000, 23.4, 5_000),
        (6000, 16.0, 3_000),
        (50_000, 28.0, 200),
    ] {
        let plan = crate::paired::plan(keys, (bits * 1000.0) as u32);
        let exact = paired_fpr(keys, plan.blocks, plan.probes);
        let (mean, error) = simulated(keys, plan.blocks as usize, plan.probes, trials);
        assert!(
            (exact - mean).abs() < 3.5 * error + 1e-4 * mean,
            "{keys} keys at {bits} bits: {exact:e}, simulated {mean:e} +- {error:e}"
        );
    }
}

/// The contour integral and the enumeration are independent computations of the same value.
#[test]
fn two_ways_to_fix_the_number_of_keys_agree() {
    for (keys, blocks, probes) in [(24, 4, 32), (48, 4, 28), (36, 6, 32), (48, 6, 30)] {
        let enumerated = paired::rate(keys, blocks, probes);
        let integrated = paired::batch_rate(blocks as usize, keys, blocks, probes / 2);
        assert!(
            (integrated / enumerated - 1.0).abs() < 5e-3,
            "{keys} keys, {blocks} blocks: {integrated:e} against {enumerated:e}"
        );
    }
}

#[test]
fn fixed_and_poisson_counts_meet_for_many_keys_and_differ_for_few() {
    let limit = paired_limit(23.4, 16);
    let many = paired_fpr(1_024_000_000, 46_800_000, 16);
    assert!((many / limit - 1.0).abs() < 1e-6, "{many:e} {limit:e}");
    let fixed = blocked_fpr(1000, 46, 12);
    let poisson = blocked_limit(46.0 * 512.0 / 1000.0, 12);
    assert!((0.95..0.99).contains(&(fixed / poisson)), "{fixed:e} {poisson:e}");
}

#[test]
fn standard_rates_join_where_the_method_changes() {
    for (bits, probes) in [(4096, 7), (4096, 16), (4096, 30)] {
        for keys in [50, 200, 400, 1500] {
            let approximate = standard_fpr(keys, bits + 1, probes);
            let exact = standard_fpr(keys, bits, probes);
            let step = f64::from(probes) * 2.0 / bits as f64;
            assert!(
                (approximate / exact - 1.0).abs() < step + 2e-4,
                "{keys} keys, {bits} bits, {probes} probes: {exact:e} then {approximate:e}"
            );
        }
    }
    for bits in [10.0, 16.0, 23.4, 28.0] {
        let probes = best_standard_probes(bits);
        let exact = standard_fpr(10_000, (10_000.0 * bits) as u64, probes);
        assert!((exact / standard_limit(bits, probes) - 1.0).abs() < 0.005);
    }
    // The worked example's filter is so small that the textbook's formula is 9% too low.
    assert_eq!(format!("{:.3}%", 100.0 * standard_fpr(10, 100, 7)), "0.894%");
}

#[test]
fn absurd_questions_get_bounded_answers() {
    for kind_fpr in [standard_fpr, blocked_fpr, paired_fpr] {
        assert_eq!(kind_fpr(0, 1 << 20, 8), 0.0);
        assert_eq!(kind_fpr(1, 0, 8), 1.0);
        for keys in [1, 1000, 1 << 40, u64::MAX] {
            for size in [1, 2, 4, 100, 130, 1 << 40, 1 << 62] {
                for probes in [0, 1, 2, 8, 64, 1000] {
                    let rate = kind_fpr(keys, size, probes);
                    assert!((0.0..=1.0).contains(&rate), "{keys} {size} {probes}: {rate}");
                }
            }
        }
    }
    for kind in FilterKind::ALL.into_iter().chain([FilterKind::None]) {
        for bits in [f64::NAN, f64::NEG_INFINITY, -1.0, -0.0, 0.0, 5e-324, 1e-20, 4e-4] {
            assert_eq!(best_fpr(kind, bits), 1.0, "{kind} at {bits} bits per key");
        }
        for bits in [5e-4, 0.1, 0.24, 0.26, 0.5, 64.0, 127.0, 129.0, 1e9, f64::INFINITY] {
            let rate = best_fpr(kind, bits);
            assert!((0.0..=1.0).contains(&rate), "{kind} at {bits} bits per key: {rate}");
        }
        assert!(kind == FilterKind::None || best_fpr(kind, f64::INFINITY) < 1e-12, "{kind}");
    }
}

use super::*;

/// Bits per key, and the rates of the standard, blocked and paired filter to four digits: ideal
/// probes, the best number of them, the limit of many keys. Computed independently of this crate.
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

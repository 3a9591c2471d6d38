//! False positive rates of filters as they are shipped, measured and compared with the theory.
//!
//! `cells` measures one rate and its error, and describes the methods. This module holds the cells
//! that every run of the tests measures; `table` measures all sizes at all bits per key and writes
//! `RATES.md`; `large` builds filters of a billion keys; `faults` shows that wrong code is
//! detected.
//!
//! A rate must be within three standard errors of the exact expected one, and the standard error
//! must be small enough to be meaningful. All randomness is seeded: a test that passes always
//! passes.

mod cells;
mod faults;
mod large;
mod spread;
mod table;

use cells::{Cell, Effort, Method};

use crate::FilterSpec;
use crate::kind::FilterKind;
use crate::mix::remix;

/// Random words from a 128-bit product, independent of the crate's own code.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    }

    fn words(&mut self, count: u64) -> Vec<u64> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// A mean over filters and its standard error.
#[derive(Debug, Clone, Copy)]
struct Measured {
    mean: f64,
    error: f64,
}

impl Measured {
    /// Measures `filters` filters, each with its own random stream; another salt gives other
    /// streams.
    fn over(filters: u32, salt: u64, mut rate: impl FnMut(&mut Random) -> f64) -> Self {
        let (mut sum, mut squares) = (0.0, 0.0);
        for filter in 0..filters {
            let rate = rate(&mut Random(remix(salt) ^ u64::from(filter) << 40));
            sum += rate;
            squares += rate * rate;
        }
        let n = f64::from(filters);
        let mean = sum / n;
        Self { mean, error: ((squares / n - mean * mean).max(0.0) / (n - 1.0)).sqrt() }
    }

    /// Whether the mean agrees with the expected rate, and its standard error is at most `power` of
    /// it.
    fn confirms(self, expected: f64, power: f64) -> bool {
        self.error <= power * expected && (self.mean - expected).abs() <= 3.0 * self.error
    }

    fn assert(self, expected: f64, power: f64, cell: &str) {
        let verdict = format!(
            "{cell}: expected {expected:.4e}, measured {:.4e} +- {:.2}% ({:+.2} sigma)",
            self.mean,
            100.0 * self.error / expected,
            (self.mean - expected) / self.error
        );
        println!("{verdict}");
        assert!(self.confirms(expected, power), "{verdict}");
    }
}

/// Measures cells of `kind`, given as bits per key and keys.
fn confirm(kind: FilterKind, cells: &[(f64, u64)]) {
    for &(bits, keys) in cells {
        let cell = Cell { kind, bits, keys };
        // A blocked filter's rate depends on a few crowded blocks: queries measure it better.
        let most = if kind == FilterKind::Blocked { 5e8 } else { 1e8 };
        let outcome = cell.measure(Effort { hits: 2_500.0, least: 3e6, most });
        let name = format!("{} ({:?})", cell.name(), outcome.method);
        outcome.measured.assert(outcome.expected, 0.04, &name);
    }
}

/// Every method is used: queries up to about 23.4 bits, then parts, and bits for a single key.
const QUICK: [(f64, u64); 10] = [
    (10.0, 1),
    (10.0, 60),
    (10.0, 100),
    (10.0, 300),
    (10.0, 1_000),
    (10.0, 6_700),
    (16.0, 10_000),
    (23.4, 10_000),
    (28.0, 1_000),
    (32.0, 10_000),
];

/// Measured in the project's CI only: half of the time of all cells.
const SLOW: [(f64, u64); 2] = [(10.0, 1_000_000), (40.0, 10_000)];

/// The cells of every kind.
fn cells() -> Vec<(f64, u64)> {
    let is_ci = std::env::var("TROMMEL_LANES").is_ok_and(|size| size == "ci");
    let slow: &[_] = if is_ci { &SLOW } else { &[] };
    [&QUICK, slow].concat()
}

#[test]
fn standard_rates_are_as_expected() {
    confirm(FilterKind::Standard, &cells());
}

#[test]
fn blocked_rates_are_as_expected() {
    confirm(FilterKind::Blocked, &cells());
}

#[test]
fn paired_rates_are_as_expected() {
    confirm(FilterKind::Paired, &cells());
}

#[test]
fn ribbon_rates_are_as_announced() {
    confirm(FilterKind::Ribbon, &cells());
    // Between whole columns.
    confirm(FilterKind::Ribbon, &[(5.0, 1_000), (8.65, 50_000), (14.5, 50_000)]);
}

#[test]
fn fuse_rates_are_as_expected() {
    confirm(FilterKind::Fuse, &cells());
    // At whole bits, and between them.
    confirm(FilterKind::Fuse, &[(9.0, 1_000), (4.95, 1_000), (8.65, 50_000), (14.5, 50_000)]);
}

/// Parts and queries must agree where both are feasible.
#[test]
fn all_methods_agree() {
    for kind in FilterKind::ALL {
        let cell = Cell { kind, bits: 16.0, keys: 10_000 };
        let outcome = cell.measure(Effort { hits: 2_500.0, least: 0.0, most: 0.0 });
        assert_eq!(outcome.method, Method::Parts);
        outcome.measured.assert(outcome.expected, 0.04, &format!("{} in parts", cell.name()));
    }
}

/// Keys as applications have them, not random hashes: consecutive numbers, and names.
#[test]
fn real_keys_through_the_real_hash() {
    for kind in [FilterKind::Standard, FilterKind::Blocked, FilterKind::Paired] {
        let spec = FilterSpec::new(kind, 10.0).unwrap();
        let keys = 20_000_u64;
        let numbers = |i: u64| i.to_le_bytes().to_vec();
        let names = |i: u64| format!("user:{i}:email").into_bytes();
        for (name, key) in [("numbers", numbers as fn(u64) -> Vec<u8>), ("names", names)] {
            let mut filter = 0;
            let measured = Measured::over(40, 0, |_| {
                filter += 1;
                let first = filter * 1_000_000;
                let mut builder = spec.builder();
                (first..first + keys).for_each(|i| builder.add(&key(i)));
                let filter = crate::Filter::decode(builder.finish()).unwrap();
                let absent = first + keys..first + 10 * keys;
                let hits = absent.filter(|&i| filter.may_contain(&key(i))).count();
                hits as f64 / (9 * keys) as f64
            });
            measured.assert(spec.expected_fpr(keys), 0.01, &format!("{spec}, {name}"));
        }
    }
}

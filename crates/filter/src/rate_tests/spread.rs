//! The difference between single filters and the expected rate.

use super::cells::ideal_rate;
use super::{Measured, Random};
use crate::format;
use crate::kind::FilterKind;
use crate::{Filter, FilterSpec, theory};

/// The relative standard deviation of the rates of `filters` filters, from the bits set in each.
fn measured(kind: FilterKind, keys: u64, bits: f64, filters: u32) -> f64 {
    let spec = FilterSpec::new(kind, bits).unwrap();
    let rates = Measured::over(filters, keys ^ bits.to_bits(), |random: &mut Random| {
        let mut builder = spec.builder();
        (0..keys).for_each(|_| builder.add_hash(random.next()));
        let bytes = builder.finish();
        let (_, blocks) = format::decode(&bytes, |_| ()).unwrap();
        ideal_rate(&Filter::decode(&bytes).unwrap(), &blocks)
    });
    rates.error * f64::from(filters).sqrt() / rates.mean
}

#[test]
fn single_filters_differ_by_the_stated_spread() {
    for kind in [FilterKind::Standard, FilterKind::Blocked, FilterKind::Paired] {
        for bits in [4.0, 10.0, 16.0, 23.4, 30.0] {
            for (keys, filters) in [(100, 1000), (1000, 300), (20_000, 50)] {
                let seen = measured(kind, keys, bits, filters);
                let stated = theory::spread(kind, keys, bits);
                let cell = format!("{kind:?}:{bits}, {keys} keys: {seen:.4}, said {stated:.4}");
                // 50 filters determine a deviation to a tenth.
                assert!(seen <= 1.2 * stated, "{cell}");
                assert!(seen >= 0.15 * stated, "{cell}");
            }
        }
    }
}

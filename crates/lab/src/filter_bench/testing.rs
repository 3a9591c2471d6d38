//! Made-up records, for tests.
#![cfg(test)]

use trommel::filter::{FilterKind, FilterSpec};
use trommel_harness::machine::{Cache, Environment};

use super::record::{CellRecord, Place};
use super::{BuiltFilters, FilterCell, FilterSetup, Pattern, Rate, Timing};

/// A record of a filter of `kind` with `bits` bits for each of `keys` keys.
pub(crate) fn record(kind: &str, bits: f64, keys: u64) -> CellRecord {
    let spec: FilterSpec = format!("{kind}:{bits}").parse().unwrap();
    let expected = spec.expected_fpr(keys);
    let bytes = spec.expected_bytes(keys);
    let timing = |(nth, pattern)| Timing { pattern, gross_ns: 20.0 + nth as f64, dry_ns: 12.5 };
    let rate = Rate::new(&[(1 << 30, (expected * (1 << 30) as f64) as u64)], expected, bits, 1e4);
    let place = Place {
        start: "2026-11-21T09:30:00Z".into(),
        environment: Environment::default(),
        caches: [32 << 10, 1 << 20, 32 << 20]
            .iter()
            .zip(1..)
            .map(|(bytes, level)| Cache { level, bytes: *bytes })
            .collect(),
    };
    let cell = FilterCell {
        setup: FilterSetup {
            spec: spec.to_string(),
            kind: kind.into(),
            bits,
            average_keys: keys,
            kernel: (spec.kind() != FilterKind::Ribbon).then(|| "avx2".into()),
            huge_pages: true,
            key_bytes: 24,
            batch: 8,
            queries: 1000,
            ..FilterSetup::default()
        },
        built: BuiltFilters {
            filters: 2,
            keys: 2 * keys,
            memory_bytes: 2 * bytes,
            single_bytes: bytes,
            stored_bits: bits + 0.01,
            probes: 6,
            build_ns: 11.5,
            build_bytes: 8.25,
        },
        rate,
        timings: Pattern::all().into_iter().enumerate().map(timing).collect(),
        ..FilterCell::default()
    };
    CellRecord::new(&place, cell)
}

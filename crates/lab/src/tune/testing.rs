//! Records for tests.

use trommel_harness::machine::{BuildInfo, Environment};

use super::cell::{Cell, Draw};
use super::record::{Estimate, LevelRecord, LookupCosts, Predicted, Record, SCHEMA};
use super::shape::{Grown, Shape};

/// A cell with `bits` bits per key in total.
pub(crate) fn cell(family: &str, bits: f64) -> Cell {
    Cell {
        family: family.into(),
        filters: family.replace("{budget}", &bits.to_string()),
        budget: Some(bits),
        tree: Shape {
            name: "two <full> levels".into(),
            l0: vec![100],
            levels: vec![1000, 10_000],
            grown: None,
            table_bytes: 1 << 20,
            value_bytes: 100,
            block_bytes: 4096,
        },
        misses: 0.9,
        draw: Draw::Uniform,
        read_mode: "cached".into(),
        cache_bytes: 8 << 20,
        stores: 8,
        lookups: 100_000,
        warmup: 10_000,
        seed: 42,
    }
}

/// The same on a grown tree.
pub(crate) fn grown(family: &str, bits: f64) -> Cell {
    let mut cell = cell(family, bits);
    (cell.tree.l0, cell.tree.levels) = (Vec::new(), Vec::new());
    cell.tree.grown = Some(Grown {
        keys: 20_000,
        write_buffer_bytes: 64 << 10,
        base_level_bytes: 256 << 10,
        ratio: 4,
        l0_trigger: 3,
    });
    cell
}

/// The cell with a result in which every part is present.
pub(crate) fn record(cell: Cell) -> Record {
    let bits = cell.budget.unwrap_or(10.0);
    let wasted = 2.0 * 0.6_f64.powf(bits);
    let estimate = |mean: f64| Estimate {
        mean,
        standard_error: mean / 50.0,
        interval: (mean * 0.95, mean * 1.05),
    };
    let level = |level: u64, keys: f64| LevelRecord {
        level,
        runs: 1.0,
        tables: 1.5,
        keys,
        bytes: keys * 120.0,
        filters: vec![format!("paired:{bits}")],
        filter_bytes: keys * bits / 8.0,
        predicted: wasted / 3.0,
        expected: wasted / 3.0,
        wasted_reads: estimate(wasted / 3.0),
    };
    Record {
        title: Some("Filters and trees".into()),
        schema: SCHEMA,
        key: cell.key(),
        cell,
        start: "2026-11-21T09:30:00Z".into(),
        seconds: 1.5,
        environment: Environment {
            build: BuildInfo {
                program: "0.1.0".into(),
                rustc: "rustc 1.95.0".into(),
                profile: "release".into(),
                ..BuildInfo::default()
            },
            ..Environment::default()
        },
        levels: vec![level(0, 100.0), level(1, 1000.0), level(2, 10_000.0)],
        filter_bytes: 11_100.0 * bits / 8.0,
        keys: 11_100.0,
        predicted: Predicted {
            wasted_reads: wasted * 1.02,
            filter_bytes: 11_100.0 * bits / 8.0,
            filters_queried: 2.7,
            cache_lines: 5.1,
        },
        measured: LookupCosts {
            reported_per_miss: wasted,
            expected: wasted,
            wasted_reads: estimate(wasted),
            micros: estimate(1.0 + wasted),
            blocks: 0.2,
            block_reads: 0.01,
            file_reads: 0.01,
        },
    }
}

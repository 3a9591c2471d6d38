//! A measurement as a row of a table, a document or a file of comma-separated values.

use trommel_lab::filter_bench::{Access, FilterCell, Mix, Rate};

use crate::output::{Format, Output, Value};

/// Columns for people, to fit a screen.
const SHORT: [&str; 15] = [
    "filter",
    "keys",
    "filters",
    "bits",
    "k",
    "build_ns",
    "build_bytes",
    "rate",
    "low",
    "high",
    "expected",
    "outside_ns",
    "batched_ns",
    "random_ns",
    "inside_ns",
];

/// Columns for programs, without the times.
const LONG: [&str; 29] = [
    "filter",
    "kind",
    "bits_asked",
    "average_keys",
    "filters",
    "keys",
    "kernel",
    "huge_pages",
    "probes",
    "bits_per_key",
    "memory_bytes",
    "single_bytes",
    "build_ns",
    "build_bytes",
    "measured_rate",
    "interval_low",
    "interval_high",
    "standard_error",
    "expected_rate",
    "deviation",
    "worst_rate",
    "best_rate",
    "asked",
    "false_positives",
    "queries",
    "key_bytes",
    "batch",
    "seed",
    "interrupted",
];

/// Net nanoseconds, by mix and access, each in the order of its `ALL`.
const TIMES: [&str; 18] = [
    "mixed_single_ns",
    "mixed_batched_prepared_ns",
    "mixed_batched_unprepared_ns",
    "mixed_random_ns",
    "mixed_skewed_50_in_1_ns",
    "mixed_skewed_80_in_20_ns",
    "inside_single_ns",
    "inside_batched_prepared_ns",
    "inside_batched_unprepared_ns",
    "inside_random_ns",
    "inside_skewed_50_in_1_ns",
    "inside_skewed_80_in_20_ns",
    "outside_single_ns",
    "outside_batched_prepared_ns",
    "outside_batched_unprepared_ns",
    "outside_random_ns",
    "outside_skewed_50_in_1_ns",
    "outside_skewed_80_in_20_ns",
];

/// The columns of a format.
pub(super) fn columns(format: Format) -> Vec<&'static str> {
    match format {
        Format::Table => SHORT.to_vec(),
        _ => LONG.into_iter().chain(TIMES).collect(),
    }
}

pub(super) fn write(
    cell: &FilterCell,
    format: Format,
    output: &mut Output<'_>,
) -> std::io::Result<()> {
    output.row(if format == Format::Table { short(cell) } else { long(cell) })
}

fn time(cell: &FilterCell, access: Access, mix: Mix) -> Value {
    cell.net_ns(access, mix).into()
}

fn short(cell: &FilterCell) -> Vec<Value> {
    let rate = cell.rate.as_ref();
    vec![
        cell.setup.spec.clone().into(),
        Value::Count(cell.keys_per_filter().round() as u64),
        Value::Count(cell.built.filters),
        Value::Float(cell.built.stored_bits),
        Value::Count(cell.built.probes.into()),
        Value::Float(cell.built.build_ns),
        cell.built.build_bytes.into(),
        rate.map(|rate| rate.measured).into(),
        rate.map(|rate| rate.interval.0).into(),
        rate.map(|rate| rate.interval.1).into(),
        rate.map(|rate| rate.expected).into(),
        time(cell, Access::Single, Mix::Outside),
        time(cell, Access::BatchedPrepared, Mix::Outside),
        time(cell, Access::Random, Mix::Outside),
        time(cell, Access::Single, Mix::Inside),
    ]
}

fn long(cell: &FilterCell) -> Vec<Value> {
    let rate = cell.rate.as_ref();
    let mut row = vec![
        cell.setup.spec.clone().into(),
        cell.setup.kind.clone().into(),
        Value::Float(cell.setup.bits),
        Value::Count(cell.setup.average_keys),
        Value::Count(cell.built.filters),
        Value::Count(cell.built.keys),
        cell.setup.kernel.clone().into(),
        Value::Bool(cell.setup.huge_pages),
        Value::Count(cell.built.probes.into()),
        Value::Float(cell.built.stored_bits),
        Value::Size(cell.built.memory_bytes),
        Value::Size(cell.built.single_bytes),
        Value::Float(cell.built.build_ns),
        cell.built.build_bytes.into(),
        rate.map(|rate| rate.measured).into(),
        rate.map(|rate| rate.interval.0).into(),
        rate.map(|rate| rate.interval.1).into(),
        rate.map(|rate| rate.standard_error).into(),
        rate.map(|rate| rate.expected).into(),
        rate.map(Rate::deviation).into(),
        rate.map(|rate| rate.worst).into(),
        rate.map(|rate| rate.best).into(),
        rate.map_or(Value::Null, |rate| Value::Count(rate.asked)),
        rate.map_or(Value::Null, |rate| Value::Count(rate.false_positives)),
        Value::Count(cell.setup.queries),
        Value::Count(cell.setup.key_bytes),
        Value::Count(cell.setup.batch),
        Value::Integer(cell.setup.seed),
        Value::Bool(cell.interrupted),
    ];
    for mix in Mix::ALL {
        row.extend(Access::ALL.map(|access| time(cell, access, mix)));
    }
    row
}

#[cfg(test)]
mod tests {
    use trommel_lab::filter_bench::{Pattern, Timing};

    use super::*;

    #[test]
    fn each_time_is_in_the_column_of_its_name() {
        let timing = |(nth, pattern)| Timing { pattern, gross_ns: nth as f64 + 1.5, dry_ns: 1.0 };
        let timings = Pattern::all().into_iter().enumerate().map(timing).collect();
        let cell = FilterCell { timings, ..FilterCell::default() };
        let (columns, row) = (columns(Format::Csv), long(&cell));
        assert_eq!(columns.len(), row.len());
        for (pattern, nth) in Pattern::all().into_iter().zip(0_u32..) {
            let is_it =
                |(value, _): &(&Value, &&str)| **value == Value::Float(f64::from(nth) + 0.5);
            let (_, name) = row.iter().zip(&columns).find(is_it).unwrap();
            let mix = format!("{:?}", pattern.mix).to_lowercase();
            assert!(name.starts_with(&mix), "{pattern} is {name}");
            let word = match pattern.access {
                Access::Single => "single",
                Access::BatchedPrepared => "batched_prepared",
                Access::BatchedUnprepared => "batched_unprepared",
                Access::Random => "random",
                Access::SkewedHalfInOne => "50_in_1_",
                Access::SkewedEightyInTwenty => "80_in_20",
            };
            assert!(name.contains(word), "{pattern} is {name}");
        }
        assert_eq!(short(&cell).len(), SHORT.len());
    }
}

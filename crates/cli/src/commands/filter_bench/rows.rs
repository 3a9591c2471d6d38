//! A measurement as a row of a table, a document or a file of comma-separated values.

use std::io;

use trommel_lab::filter_bench::{Access, FilterCell, Mix, Rate};

use crate::output::{Format, Output, Value};

/// A column.
struct Column {
    name: &'static str,
    /// Its name in the table, which has the columns that fit a screen.
    short: Option<&'static str>,
    of: fn(&FilterCell) -> Value,
}

const fn long(name: &'static str, of: fn(&FilterCell) -> Value) -> Column {
    Column { name, short: None, of }
}

const fn both(name: &'static str, short: &'static str, of: fn(&FilterCell) -> Value) -> Column {
    Column { name, short: Some(short), of }
}

/// A figure of the measured rate; none if the run was stopped before.
fn rate(cell: &FilterCell, of: impl Fn(&Rate) -> f64) -> Value {
    cell.rate.as_ref().map(of).into()
}

fn count(cell: &FilterCell, of: impl Fn(&Rate) -> u64) -> Value {
    cell.rate.as_ref().map(of).map(Value::Count).into()
}

static COLUMNS: [Column; 36] = [
    both("filter", "filter", |cell| cell.setup.spec.clone().into()),
    long("kind", |cell| cell.setup.kind.clone().into()),
    long("bits_requested", |cell| cell.setup.bits.into()),
    long("average_keys", |cell| Value::Count(cell.setup.average_keys)),
    both("keys_per_filter", "keys", |cell| Value::Count(cell.keys_per_filter().round() as u64)),
    both("filters", "filters", |cell| Value::Count(cell.built.filters)),
    long("keys", |cell| Value::Count(cell.built.keys)),
    long("kernel", |cell| cell.setup.kernel.clone().into()),
    long("huge_pages", |cell| cell.setup.huge_pages.into()),
    both("bits_per_key", "bits", |cell| cell.built.stored_bits.into()),
    both("probes", "k", |cell| Value::Count(cell.built.probes.into())),
    long("memory_bytes", |cell| Value::Size(cell.built.memory_bytes)),
    long("single_bytes", |cell| Value::Size(cell.built.single_bytes)),
    both("build_ns", "build_ns", |cell| cell.built.build_ns.into()),
    both("build_bytes", "build_bytes", |cell| cell.built.build_bytes.into()),
    both("measured_rate", "rate", |cell| rate(cell, |rate| rate.measured)),
    both("interval_low", "low", |cell| rate(cell, |rate| rate.interval.0)),
    both("interval_high", "high", |cell| rate(cell, |rate| rate.interval.1)),
    both("expected_rate", "expected", |cell| rate(cell, |rate| rate.expected)),
    long("standard_error", |cell| rate(cell, |rate| rate.standard_error)),
    long("deviation", |cell| rate(cell, Rate::deviation)),
    long("worst_rate", |cell| rate(cell, |rate| rate.worst)),
    long("best_rate", |cell| rate(cell, |rate| rate.best)),
    long("queries", |cell| count(cell, |rate| rate.queries)),
    long("false_positives", |cell| count(cell, |rate| rate.false_positives)),
    long("queries", |cell| Value::Count(cell.setup.queries)),
    long("key_bytes", |cell| Value::Count(cell.setup.key_bytes)),
    long("batch", |cell| Value::Count(cell.setup.batch)),
    long("seed", |cell| Value::Integer(cell.setup.seed)),
    both("outside_single_ns", "outside_ns", |cell| time(cell, Access::Single, Mix::Outside)),
    both("outside_batched_ns", "batched_ns", |cell| time(cell, Access::Batched, Mix::Outside)),
    both("outside_random_ns", "random_ns", |cell| time(cell, Access::Random, Mix::Outside)),
    both("inside_single_ns", "inside_ns", |cell| time(cell, Access::Single, Mix::Inside)),
    long("inside_batched_ns", |cell| time(cell, Access::Batched, Mix::Inside)),
    long("inside_random_ns", |cell| time(cell, Access::Random, Mix::Inside)),
    long("interrupted", |cell| cell.interrupted.into()),
];

fn time(cell: &FilterCell, access: Access, mix: Mix) -> Value {
    cell.net_ns(access, mix).into()
}

fn is_shown(column: &&Column, format: Format) -> bool {
    format != Format::Table || column.short.is_some()
}

/// Begins the rows.
pub(super) fn begin(format: Format, output: &mut Output<'_>) -> io::Result<()> {
    let name = |column: &'static Column| match format {
        Format::Table => column.short.unwrap_or_default(),
        _ => column.name,
    };
    let shown = COLUMNS.iter().filter(|column| is_shown(column, format));
    output.list("filters", &shown.map(name).collect::<Vec<_>>())
}

/// Writes the row of a measurement.
pub(super) fn write(cell: &FilterCell, format: Format, output: &mut Output<'_>) -> io::Result<()> {
    let shown = COLUMNS.iter().filter(|column| is_shown(column, format));
    output.row(shown.map(|column| (column.of)(cell)).collect())
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
        for (pattern, nth) in Pattern::all().into_iter().zip(0_u32..) {
            let name = format!("{}_{}_ns", pattern.mix.name(), pattern.access.name());
            let column = COLUMNS.iter().find(|column| column.name == name).unwrap();
            assert_eq!((column.of)(&cell), Value::Float(f64::from(nth) + 0.5), "{pattern}");
        }
    }
}

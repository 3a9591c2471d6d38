//! `trommel compare`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use trommel_harness::record::Record;
use trommel_harness::units::parse_percent;
use trommel_lab::compare::{
    Absence, Change, Metric, Unequal, Verdict, absent, compare, failures, unequal,
};

use crate::commands::records;
use crate::failure::Failure;
use crate::output::{Column, Format, OutputArgs, Value};

pub(crate) const LONG_ABOUT: &str = "\
Compares the workloads that two files of records have in common: operations per second, and \
latencies if they were recorded (bench --histogram).

A change is called faster or slower only if it is significant at the 5% level, by Welch's t-test \
of the logarithms, which also gives the 95% interval of the change. The samples are runs: take \
about five of each program, base and new in alternation, with bench --json, which appends. If a \
run repeats a workload (readrandom[X5]), its median is the sample. With one run per side the \
repeats are the samples, and the verdict is 'within one run': it does not cover the variation \
between runs, which is often larger. With one sample on a side the verdict is 'unknown'. Numbers \
are geometric means; throughput is in operations per second. The formats json and csv have all \
columns.

Records with different settings, processors, memory, devices, file systems or build profiles are \
refused. A different compiler or kernel is only reported, as it may be the subject of the \
comparison.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  for i in 1 2 3 4 5; do
    old/trommel bench --benchmarks=fillrandom,readrandom --json=base.jsonl
    new/trommel bench --benchmarks=fillrandom,readrandom --json=new.jsonl
  done
  trommel compare base.jsonl new.jsonl
  trommel compare base.jsonl new.jsonl --fail-on=5%
      exit with 7 if throughput fell by more than 5%
  trommel compare base.jsonl new.jsonl --fail-on=10% --watch=p50,p99

--fail-on fails if the whole interval of a slowdown exceeds the limit, and the slowdown is \
significant after Holm's correction over all watched metrics; without an interval, if the change \
itself exceeds it. It also fails if a workload of the base is missing or was interrupted in the \
new records.";

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Records before the change (bench --json); - for standard input
    #[arg(value_name = "BASE.jsonl")]
    base: PathBuf,
    /// Records after it; - for standard input
    #[arg(value_name = "NEW.jsonl")]
    new: PathBuf,
    /// Exit with 7 if a watched figure became slower by more than this
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_on: Option<f64>,
    /// What --fail-on watches: throughput, mean, p50, p90, p99, p99.9, max
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "throughput")]
    #[arg(value_parser = metric_parser(), hide_possible_values = true)]
    watch: Vec<Metric>,
    /// Compare even if settings, machines or builds differ
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    output: OutputArgs,
}

fn metric_parser() -> impl TypedValueParser<Value = Metric> {
    PossibleValuesParser::new(Metric::ALL.map(Metric::name)).map(|name| {
        let named = Metric::ALL.into_iter().find(|metric| metric.name() == name);
        named.expect("the parser accepts only names")
    })
}

/// `5%` or `5` as 0.05.
fn percent(text: &str) -> Result<f64, String> {
    match parse_percent(text) {
        Ok(number) if number <= 1e6 => Ok(number / 100.0),
        _ => Err("it must be a percentage, such as 5%".into()),
    }
}

pub(crate) fn run(args: &CompareArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let (base, new) = (records::read(&args.base)?, records::read(&args.new)?);
    let changes = compare(&base, &new);
    if changes.is_empty() {
        return Err(Failure::Usage(format!(
            "there is nothing to compare: {} has {}, {} has {}",
            args.base.display(),
            workloads(&base),
            args.new.display(),
            workloads(&new)
        )));
    }
    check_equal(&unequal(&base, &new), args.force)?;
    for metric in args.watch.iter().filter(|_| args.fail_on.is_some()) {
        if !changes.iter().any(|change| change.metric == *metric) {
            let name = metric.name();
            return Err(Failure::Usage(format!(
                "--watch={name}: no workload has its {name} in both files; run the benches with \
                 --histogram"
            )));
        }
    }
    let printed = print(args, &changes, out);
    let absent = absent(&base, &new);
    for (workload, absence) in &absent {
        note(&format!("{workload} is {}", absence.name()));
    }
    if changes.iter().any(|change| change.within_run && change.p.is_some()) {
        note(
            "'within one run' is the significance of repeats only, without the variation from run \
             to run; compare several runs of each",
        );
    }
    if changes.iter().any(|change| change.verdict == Verdict::Unknown) {
        note(
            "'unknown': there are too few runs, or they do not vary at all, so significance cannot \
             be determined",
        );
    }
    let judge = |threshold| check(&changes, &absent, &args.watch, threshold);
    // Judge even if the reader of the table is gone.
    args.fail_on.map_or(Ok(()), judge).and(printed)
}

/// The names of the completed workloads.
fn workloads(records: &[Record]) -> String {
    let whole = records
        .iter()
        .filter(|record| !record.results.interrupted && record.results.operations > 0);
    let names: BTreeSet<&str> = whole.map(|record| record.workload.as_str()).collect();
    match names.len() {
        0 => "no finished workload".into(),
        _ => names.into_iter().collect::<Vec<_>>().join(", "),
    }
}

/// Rejects differences, or with `force` only prints them.
fn check_equal(differences: &[Unequal], force: bool) -> Result<(), Failure> {
    let (meant, wrong): (Vec<_>, Vec<_>) =
        differences.iter().partition(|unequal| unequal.may_be_meant);
    for Unequal { what, base, new, .. } in meant {
        note(&format!("{what} differs: {base} | {new}"));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let mut text = String::from("the two have different settings:");
    for Unequal { what, base, new, .. } in wrong {
        text += &format!("\n  {what}: {base} | {new}");
    }
    if force {
        note(&text);
        return Ok(());
    }
    Err(Failure::Usage(text + "\nCompare like with like, or use --force"))
}

/// Notes go to standard error, and a reader that is gone is not a failure.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "note: {text}");
}

fn percent_of(share: f64) -> Value {
    Value::Float(share * 100.0)
}

/// All columns, for programs.
const COLUMNS: [Column<Change>; 13] = [
    ("workload", |change| change.workload.as_str().into()),
    ("metric", |change| change.metric.name().into()),
    ("unit", |change| change.metric.unit().into()),
    ("base", |change| change.base.into()),
    ("new", |change| change.new.into()),
    ("change_percent", |change| percent_of(change.change)),
    ("low_percent", |change| change.interval.map(|(low, _)| percent_of(low)).into()),
    ("high_percent", |change| change.interval.map(|(_, high)| percent_of(high)).into()),
    ("p", |change| change.p.into()),
    ("base_samples", |change| Value::Count(change.samples.0 as u64)),
    ("new_samples", |change| Value::Count(change.samples.1 as u64)),
    ("samples_are", |change| if change.within_run { "repeats" } else { "runs" }.into()),
    ("verdict", |change| change.verdict.name().into()),
];

/// The columns of the table.
const SHOWN: [Column<Change>; 7] = [
    ("workload", |change| change.workload.as_str().into()),
    ("metric", |change| {
        let unit = if change.metric == Metric::Throughput { "" } else { " us" };
        format!("{}{unit}", change.metric.name()).into()
    }),
    ("base", |change| change.base.into()),
    ("new", |change| change.new.into()),
    ("change", |change| format!("{:+.1}%", change.change * 100.0).into()),
    ("95%_interval", |change| {
        let text = |(low, high)| format!("{:+.1}% to {:+.1}%", low * 100.0, high * 100.0);
        change.interval.map(text).into()
    }),
    ("verdict", |change| {
        let place = if change.within_run && change.p.is_some() { " within one run" } else { "" };
        format!("{}{place}", change.verdict.name()).into()
    }),
];

fn print(args: &CompareArgs, changes: &[Change], out: &mut dyn Write) -> Result<(), Failure> {
    let is_table = matches!(args.output.format, Format::Table);
    let mut columns = if is_table { SHOWN.to_vec() } else { COLUMNS.to_vec() };
    if changes.iter().any(|change| change.store.is_some()) {
        columns.insert(0, ("store", |change| change.store.clone().into()));
    }
    let mut output = args.output.begin("compare", out);
    output.rows("changes", &columns, changes)?;
    Ok(output.finish()?)
}

/// Fails if any watched metric became slower than the threshold, or is missing.
fn check(
    changes: &[Change],
    absent: &[(String, Absence)],
    watched: &[Metric],
    threshold: f64,
) -> Result<(), Failure> {
    let mut text = Vec::new();
    let slow: Vec<String> = failures(changes, watched, threshold).into_iter().map(slower).collect();
    if !slow.is_empty() {
        text.push(format!("slower by more than {}%:\n  {}", threshold * 100.0, slow.join("\n  ")));
    }
    let gone = absent.iter().filter(|(_, absence)| absence.fails());
    text.extend(gone.map(|(workload, absence)| format!("{workload} is {}", absence.name())));
    if text.is_empty() { Ok(()) } else { Err(Failure::Check(text.join("\n"))) }
}

fn slower(change: &Change) -> String {
    let store = change.store.as_ref().map_or(String::new(), |store| format!("{store} "));
    let certainty = match change.p {
        Some(p) if change.within_run => format!("p = {p:.4} within one run"),
        Some(p) => format!("p = {p:.4}"),
        None => "too few runs: significance unknown".into(),
    };
    format!(
        "{store}{} {}: {:+.1}% ({certainty})",
        change.workload,
        change.metric.name(),
        change.change * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_with_and_without_their_sign() {
        assert_eq!(percent("5%"), Ok(0.05));
        assert_eq!(percent("2.5"), Ok(0.025));
        assert_eq!(percent("0"), Ok(0.0));
        for wrong in ["", "%", "-1%", "five", "NaN", "inf%"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}

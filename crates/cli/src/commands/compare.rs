//! `trommel compare`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use trommel_harness::compare::{Change, Metric, Unequal, Verdict, compare, unequal};
use trommel_harness::record::Record;

use crate::commands::records;
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};

pub(crate) const LONG_ABOUT: &str = "\
Sets the workloads that two files of records share side by side: operations a second, and times of \
operations where they were kept (bench --histogram).

Repeats of a workload (bench --benchmarks='readrandom[X5]', or several runs in one file) show how \
much chance moves its numbers; a change is called faster or slower only if chance makes one as \
large in less than 5% of cases, by the rank test (four repeats or more) or Welch's t test. Five \
repeats are a good number. Without repeats the word is 'unknown'. Numbers are geometric means of \
the repeats.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel bench --benchmarks='fillrandom,readrandom[X5]' --json=base.jsonl
  trommel compare base.jsonl new.jsonl
  trommel compare base.jsonl new.jsonl --fail-on=5%
      exit with 7 if throughput fell by more than 5%
  trommel compare base.jsonl new.jsonl --fail-on=10% --watch=p50,p99

--fail-on fails for a slowdown that is larger and not chance; without repeats, for any larger one.";

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Records before the change (bench --json); - for standard input
    #[arg(value_name = "BASE.jsonl")]
    base: PathBuf,
    /// Records after it; - for standard input
    #[arg(value_name = "NEW.jsonl")]
    new: PathBuf,
    /// Exit with 7 if anything that is watched became slower by more than this
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
        named.expect("the parser lets only names pass")
    })
}

/// `5%` or `5` as 0.05.
fn percent(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>() {
        Ok(number) if (0.0..=1e6).contains(&number) => Ok(number / 100.0),
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
    print(args, &changes, out)?;
    if changes.iter().any(|change| change.verdict == Verdict::Unknown) {
        note(
            "where the verdict is 'unknown' there are no repeats, so nothing is known about chance",
        );
    }
    args.fail_on.map_or(Ok(()), |threshold| check(&changes, &args.watch, threshold))
}

/// The names of the workloads that were finished.
fn workloads(records: &[Record]) -> String {
    let whole = records.iter().filter(|record| !record.interrupted && record.operations > 0);
    let names: BTreeSet<&str> = whole.map(|record| record.workload.as_str()).collect();
    match names.len() {
        0 => "no finished workload".into(),
        _ => names.into_iter().collect::<Vec<_>>().join(", "),
    }
}

/// Refuses, or with `force` only says, what differs.
fn check_equal(differences: &[Unequal], force: bool) -> Result<(), Failure> {
    if differences.is_empty() {
        return Ok(());
    }
    let mut text = String::from("the two are not set up alike:");
    for Unequal { what, base, new } in differences {
        text += &format!("\n  {what}: {base} | {new}");
    }
    if force {
        note(&text);
        return Ok(());
    }
    Err(Failure::Usage(text + "\nCompare like with like, or use --force"))
}

/// Words go to standard error, and a reader that is gone is no failure.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "note: {text}");
}

fn print(args: &CompareArgs, changes: &[Change], out: &mut dyn Write) -> Result<(), Failure> {
    let mut columns = vec![
        "workload",
        "metric",
        "unit",
        "base",
        "new",
        "change_percent",
        "low_percent",
        "high_percent",
        "p",
        "base_repeats",
        "new_repeats",
        "verdict",
    ];
    let has_stores = changes.iter().any(|change| change.store.is_some());
    if has_stores {
        columns.insert(0, "store");
    }
    let mut output = args.output.begin("compare", out);
    output.list("changes", &columns)?;
    for change in changes {
        let percent = |share: f64| Value::Float(share * 100.0);
        let mut row = vec![
            change.workload.as_str().into(),
            change.metric.name().into(),
            change.metric.unit().into(),
            change.base.into(),
            change.new.into(),
            percent(change.change),
            change.interval.map(|(low, _)| percent(low)).into(),
            change.interval.map(|(_, high)| percent(high)).into(),
            change.p.into(),
            Value::Count(change.samples.0 as u64),
            Value::Count(change.samples.1 as u64),
            change.verdict.name().into(),
        ];
        if has_stores {
            row.insert(0, change.store.clone().into());
        }
        output.row(row)?;
    }
    Ok(output.finish()?)
}

/// Fails if anything watched became slower than the threshold allows.
fn check(changes: &[Change], watched: &[Metric], threshold: f64) -> Result<(), Failure> {
    let failed = changes.iter().filter(|change| watched.contains(&change.metric));
    let failed: Vec<String> = failed.filter(|change| change.fails(threshold)).map(slower).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let limit = threshold * 100.0;
    Err(Failure::Check(format!("slower by more than {limit}%:\n  {}", failed.join("\n  "))))
}

fn slower(change: &Change) -> String {
    let store = change.store.as_ref().map_or(String::new(), |store| format!("{store} "));
    let certainty = match change.p {
        Some(p) => format!("p = {p:.3}"),
        None => "no repeats: significance unknown".into(),
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

//! `trommel tune advise`.

use std::io::Write;

use clap::Args;
use trommel::tuning::Budget;
use trommel::{AdviceOptions, FilterAdvice, LOOKUPS_FOR_ADVICE, LevelAdvice};
use trommel_harness::units::{grouped, parse_part};

use super::cost::CostArgs;
use crate::commands::filters::ProbeArgs;
use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{Column, Output, OutputArgs, Value};

pub(crate) const LONG_ABOUT: &str = "\
Recommends a filter for each level of a store, with the effect and the reason. Missing keys are \
looked up, as by `trommel filters`, to find out how many tables of each level a missing key \
reaches. The advice assumes that the fraction --misses of lookups finds nothing, and that the \
others find every key equally often. Nothing is changed.

A program that has the store open gets advice for its actual lookups: Db::filter_advice.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel tune advise --db data
  trommel tune advise --db data --misses 0.1 --budget 8/key
  trommel tune advise --db data --read-cost L0=0 --read-cost L1=0.1
  trommel tune advise --db data --budget 64MiB --format json";

#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// Memory for all filters: bits per key, as in 10/key, or bytes, as in 64MiB [default: their
    /// current size]
    #[arg(long, value_name = "BUDGET")]
    budget: Option<Budget>,
    /// The share of lookups that find nothing
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = parse_part)]
    misses: f64,
    #[command(flatten)]
    costs: CostArgs,
    #[command(flatten)]
    probes: ProbeArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(
    args: &AdviseArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if args.probes.probe < LOOKUPS_FOR_ADVICE {
        return Err(Failure::Usage(format!(
            "--probe {}: give {LOOKUPS_FOR_ADVICE} or more: fewer lookups do not show which tables \
             they reach",
            args.probes.probe
        )));
    }
    let mut options = AdviceOptions::new().misses(args.misses);
    if let Some(budget) = args.budget {
        options = options.budget(budget);
    }
    for (level, cost) in args.costs.levels() {
        options = options.read_cost(level, cost);
    }
    args.store.read(session, |db| {
        if let Some(last) = db.stats().levels.last() {
            args.costs.check(last.level)?;
        }
        // Check the fraction of misses before the lookups.
        db.filter_advice_with(&options)?;
        args.probes.query(db, session)?;
        let advice = db.filter_advice_with(&options)?;
        let mut output = args.output.begin("tune-advise", out);
        write_levels(&advice, &mut output)?;
        output.record("all", &all(&advice, args.costs.are_given()))?;
        output.list("assumptions", &["assumed"])?;
        for assumption in assumptions(args) {
            output.row(vec![assumption.into()])?;
        }
        Ok(output.finish()?)
    })
}

/// The assumptions of the advice, because the use of the store was not observed.
fn assumptions(args: &AdviseArgs) -> [String; 3] {
    let costs: Vec<String> =
        args.costs.levels().map(|(level, cost)| format!("{cost} on L{level}")).collect();
    [
        format!(
            "the tables that a missing key reaches are those of {} lookups made for this \
             (--probe), of keys between the stored ones; for a program's own lookups, call \
             Db::filter_advice in it",
            grouped(args.probes.probe)
        ),
        format!(
            "{}% of lookups find nothing (--misses); the others find every key equally often",
            100.0 * args.misses
        ),
        match costs.is_empty() {
            true => "a wasted read costs the same on every level (--read-cost)".to_owned(),
            false => format!(
                "a wasted read costs {} (--read-cost), and 1 on other levels",
                costs.join(", ")
            ),
        },
    ]
}

fn write_levels(advice: &FilterAdvice, output: &mut Output<'_>) -> Result<(), Failure> {
    let columns: [Column<LevelAdvice>; 13] = [
        ("level", |level| Value::level(level.level)),
        ("tables", |level| Value::Count(level.tables)),
        ("keys", |level| Value::Count(level.keys)),
        ("in_vain", |level| level.in_vain.into()),
        ("hits", |level| level.hits.into()),
        ("filter", |level| (&*level.filter_now).into()),
        ("advised", |level| level.filter.to_string().into()),
        ("filter_bytes", |level| Value::Size(level.now.bytes)),
        ("advised_bytes", |level| Value::Size(level.advised.bytes)),
        ("wasted_reads", |level| level.now.wasted_reads.into()),
        ("advised_wasted_reads", |level| level.advised.wasted_reads.into()),
        ("cache_lines", |level| level.now.lines.into()),
        ("advised_cache_lines", |level| level.advised.lines.into()),
    ];
    output.rows("levels", &columns, &advice.levels)?;
    let reasons: [Column<LevelAdvice>; 2] =
        [("level", |level| Value::level(level.level)), ("reason", |level| (&*level.reason).into())];
    Ok(output.rows("reasons", &reasons, &advice.levels)?)
}

fn all(advice: &FilterAdvice, has_costs: bool) -> Vec<(&'static str, Value)> {
    let (now, advised) = (&advice.now, &advice.advised);
    let mut fields: Vec<(&'static str, Value)> = vec![
        ("verdict", advice.verdict.name().into()),
        ("policy", advice.policy.as_ref().map(ToString::to_string).into()),
        ("misses", advice.misses.into()),
        ("lookups", Value::Count(advice.lookups)),
        ("budget_bytes", Value::Size(advice.budget_bytes)),
        ("filter_bytes", Value::Size(now.bytes)),
        ("advised_filter_bytes", Value::Size(advised.bytes)),
        ("wasted_reads_per_lookup", now.wasted_reads.into()),
        ("advised_wasted_reads_per_lookup", advised.wasted_reads.into()),
        ("cache_lines_per_lookup", now.lines.into()),
        ("advised_cache_lines_per_lookup", advised.lines.into()),
    ];
    // Only if costs are not simply reads.
    if has_costs {
        fields.push(("wasted_cost_per_lookup", now.wasted_cost.into()));
        fields.push(("advised_wasted_cost_per_lookup", advised.wasted_cost.into()));
    }
    fields.push(("summary", advice.summary().into()));
    // Only if enough scans found nothing.
    if let Some(ranges) = &advice.ranges {
        fields.push(("empty_scans", Value::Count(ranges.empty_scans)));
        fields.push(("blocks_per_empty_scan", ranges.blocks.into()));
        fields.push(("range_filter_bytes", Value::Size(ranges.bytes_now)));
        fields.push(("advised_range_filter_bytes", Value::Size(ranges.bytes)));
        fields.push(("ranges", ranges.to_string().into()));
    }
    fields
}

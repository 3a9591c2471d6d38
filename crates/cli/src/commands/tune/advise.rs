//! `trommel tune advise`.

use std::io::Write;

use clap::Args;
use trommel::tuning::Budget;
use trommel::{AdviceOptions, FilterAdvice, LOOKUPS_FOR_ADVICE};

use crate::commands::filters::ProbeArgs;
use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{Output, OutputArgs, Value};

pub(crate) const LONG_ABOUT: &str = "\
Says which filter each level of a store should have, what that changes, and why. The store is asked for \
keys that it does not hold, as `trommel filters` does, which shows how many tables of each level a \
missing key comes to. The advice is for lookups of which the share --misses finds nothing, and of which \
the others find every key equally often. Nothing is changed.

A program that has the store open gets advice for the lookups that it really makes: Db::filter_advice.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel tune advise --db data
  trommel tune advise --db data --misses 0.1 --budget 8/key
  trommel tune advise --db data --budget 64MiB --format json";

#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// Memory for all filters: bits for each key, as in 10/key, or bytes, as in 64MiB [default: what
    /// they take now]
    #[arg(long, value_name = "BUDGET")]
    budget: Option<Budget>,
    /// The share of lookups that find nothing
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    misses: f64,
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
            "--probe {}: give {LOOKUPS_FOR_ADVICE} or more, for fewer lookups do not show where they \
             go",
            args.probes.probe
        )));
    }
    let mut options = AdviceOptions::new().misses(args.misses);
    if let Some(budget) = args.budget {
        options = options.budget(budget);
    }
    args.store.read(session, |db| {
        // Before the store is asked: a share that is none is refused at once.
        db.filter_advice_with(&options)?;
        args.probes.ask(db, session)?;
        let advice = db.filter_advice_with(&options)?;
        let mut output = args.output.begin("tune-advise", out);
        write_levels(&advice, &mut output)?;
        output.record("all", &all(&advice))?;
        Ok(output.finish()?)
    })
}

fn write_levels(advice: &FilterAdvice, output: &mut Output<'_>) -> Result<(), Failure> {
    output.list(
        "levels",
        &[
            "level",
            "tables",
            "keys",
            "in_vain",
            "hits",
            "filter",
            "advised",
            "filter_bytes",
            "advised_bytes",
            "wasted_reads",
            "advised_wasted_reads",
            "cache_lines",
            "advised_cache_lines",
        ],
    )?;
    for level in &advice.levels {
        output.row(vec![
            format!("L{}", level.level).into(),
            Value::Count(level.tables),
            Value::Count(level.keys),
            level.in_vain.into(),
            level.hits.into(),
            (&*level.filter_now).into(),
            level.filter.to_string().into(),
            Value::Size(level.now.bytes),
            Value::Size(level.advised.bytes),
            level.now.wasted_reads.into(),
            level.advised.wasted_reads.into(),
            level.now.lines.into(),
            level.advised.lines.into(),
        ])?;
    }
    output.list("reasons", &["level", "reason"])?;
    for level in &advice.levels {
        output.row(vec![format!("L{}", level.level).into(), (&*level.reason).into()])?;
    }
    Ok(())
}

fn all(advice: &FilterAdvice) -> [(&'static str, Value); 12] {
    let (now, advised) = (&advice.now, &advice.advised);
    [
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
        ("summary", advice.summary().into()),
    ]
}

//! `trommel explain`: the steps of a lookup of a key.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use trommel::{ExplainedOutcome, ExplainedPlace, ExplainedStep};

use crate::commands::keyspaces::KeyspaceArgs;
use crate::commands::store_args::{FollowArgs, Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};
use crate::text::KeyForm;

pub(crate) const LONG_ABOUT: &str = "\
Looks up a key in the open store, and shows each memtable and table that this reached, newest \
first: the verdict of the table's filter and its theoretical false-positive rate, what was found, \
the blocks read from the file and those found in the block cache, and the time. Outside the shell \
the store has just been opened, so its cache is empty and its filters are not loaded yet.

The outcome is a value, a tombstone, a merge operand (older versions are needed too), deleted (by a \
range tombstone, or expired), absent (searched without finding the key) or skipped (the filter \
excluded the key). `absent` after `maybe` is a false positive. `find` shows all versions of a key in \
the files instead, without opening the store.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel explain user:42 --db db
  trommel explain user:42 --db db --follow --format=json

Exit 3 if the key is absent.";

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The key, in the form that --key-format says
    #[arg(allow_hyphen_values = true)]
    key: OsString,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    follow: FollowArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    output: OutputArgs,
}

const COLUMNS: [&str; 9] = [
    "place",
    "level",
    "filter",
    "verdict",
    "expected_rate",
    "outcome",
    "block_reads",
    "cache_hits",
    "microseconds",
];

pub(crate) fn run(
    args: &ExplainArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let key = args.key_form.of_argument(&args.key)?;
    args.store.read_following(session, args.follow, |db| {
        let explanation = args.keyspace.of(db)?.explain(&key)?;
        let mut output = args.output.begin("explain", out);
        output.list("steps", &COLUMNS)?;
        for step in &explanation.steps {
            output.row(row(step))?;
        }
        output.record(
            "",
            &[
                ("seqno", Value::Integer(explanation.seqno)),
                ("deleted_before", explanation.deleted_before.map(Value::Integer).into()),
                ("value_bytes", explanation.value_bytes.map(Value::Count).into()),
                ("microseconds", Value::Float(explanation.time.as_secs_f64() * 1e6)),
            ],
        )?;
        output.finish()?;
        if explanation.value_bytes.is_some() { Ok(()) } else { Err(Failure::NotFound) }
    })
}

fn row(step: &ExplainedStep) -> Vec<Value> {
    let (place, level) = match step.place {
        ExplainedPlace::Memtable(0) => ("memtable".into(), Value::Null),
        ExplainedPlace::Memtable(nth) => (format!("memtable {nth} (frozen)").into(), Value::Null),
        ExplainedPlace::Table { level, number } => {
            (format!("{number:06}.sst").into(), Value::level(level))
        }
        _ => (Value::Null, Value::Null),
    };
    let filter = step.filter.as_ref();
    let verdict = filter.map(|filter| match (filter.maybe, filter.is_of_prefixes) {
        (false, false) => "no",
        (true, false) => "maybe",
        (false, true) => "no, by its prefix",
        (true, true) => "maybe, by its prefix",
    });
    vec![
        place,
        level,
        filter.map(|filter| Value::from(filter.kind.name())).into(),
        verdict.map(Value::from).into(),
        filter.map(|filter| Value::Float(filter.expected)).into(),
        outcome(step.outcome).into(),
        Value::Count(step.block_reads),
        Value::Count(step.cache_hits),
        Value::Float(step.time.as_secs_f64() * 1e6),
    ]
}

fn outcome(outcome: ExplainedOutcome) -> &'static str {
    match outcome {
        ExplainedOutcome::Skipped => "skipped",
        ExplainedOutcome::Absent => "absent",
        ExplainedOutcome::Value => "value",
        ExplainedOutcome::Tombstone => "tombstone",
        ExplainedOutcome::Operand => "operand",
        ExplainedOutcome::Deleted => "deleted",
        _ => "unknown",
    }
}

//! `trommel tune replay`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use trommel_harness::units::{grouped, parse_bytes};
use trommel_lab::tune::replay::{Candidate, Replay, ReplayedLevel, TraceRead, replay};

use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};

pub(crate) const LONG_ABOUT: &str = "\
Computes what other filters would have done for recorded lookups, with the store's own keys: the \
keys of each table are read, and the filters of each SPEC are built from them and queried for the \
lookups that reach the table. No table is written, and the store is only read. The keys are read \
once for any number of specs. solved=12/key stands for the paired filters of that many bits per \
key on average that waste the fewest reads on this tree, for the trace's fractions of hits and \
misses.

Each level gets the filters that a compaction would build there: whole filters of whole keys. If \
the trace is a sample, counts are scaled to all lookups. wasted_reads is the mean over all \
lookups; its interval is for other lookups of the same workload, and expected is the theoretical \
value for the same probes.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel bench --db=/data/bench --use-existing-db --benchmarks=readrandom --trace=lookups.trace
  trommel tune replay --db /data/bench --trace lookups.trace paired:10 ribbon:10 solved=10/key
  trommel tune replay --db /data/bench --trace lookups.trace L0=paired:20,L1-=paired:12,last=none";

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Filters to query: paired:12, L0=paired:20,L1-=blocked:12,last=none, or solved=12/key
    #[arg(required = true, value_name = "SPEC")]
    specs: Vec<Candidate>,
    /// The trace, recorded by `trommel bench --trace` or `Db::trace_lookups`
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Memory for lookups, in bytes; a larger trace is replayed in parts
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_bytes)]
    memory: u64,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const COLUMNS: [&str; 9] = [
    "filters",
    "level",
    "bits_per_key",
    "filter_bytes",
    "probes",
    "false_positives",
    "wasted_reads",
    "interval_95",
    "expected",
];

pub(crate) fn run(
    args: &ReplayArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let control = session.control;
    args.store.read(session, |db| {
        let replay = replay(db, &args.trace, &args.specs, args.memory, control)?;
        for note in notes(&replay.trace, db.id()) {
            control.progress.say(&format!("note: {note}"));
        }
        write(args, &replay, out)
    })
}

/// Caveats of the results.
fn notes(trace: &TraceRead, store: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if trace.info.store_id != store {
        let id = trace.info.store_id;
        notes.push(format!(
            "the lookups were recorded on another store, {id:016x}, not on {store:016x}"
        ));
    }
    if trace.is_cut_off {
        let lookups = grouped(trace.lookups);
        notes.push(format!(
            "the trace is truncated, because its recording was not finished: its {lookups} lookups \
             are used"
        ));
    }
    if trace.elsewhere > 0 {
        let (elsewhere, lookups) = (grouped(trace.elsewhere), grouped(trace.lookups));
        notes.push(format!(
            "{elsewhere} of {lookups} lookups end on another level than when they were recorded: the \
             store has changed since"
        ));
    }
    notes
}

fn write(args: &ReplayArgs, replay: &Replay, out: &mut dyn Write) -> Result<(), Failure> {
    let trace = &replay.trace;
    let share = |count: u64| Value::Float(count as f64 / trace.lookups.max(1) as f64);
    let mut output = args.output.begin("tune-replay", out);
    output.record(
        "trace",
        &[
            ("lookups", Value::Count(trace.lookups)),
            ("sample", Value::Integer(trace.info.sample)),
            ("distinct_keys", Value::Count(trace.keys)),
            ("misses", share(trace.lookups - trace.found)),
            ("answered_in_memory", share(trace.in_memory)),
        ],
    )?;
    output.list("filters", &COLUMNS)?;
    for spec in &replay.specs {
        for level in std::iter::once(&spec.all).chain(&spec.levels) {
            output.row(row(&spec.filters, level))?;
        }
    }
    Ok(output.finish()?)
}

fn row(filters: &str, level: &ReplayedLevel) -> Vec<Value> {
    let (low, high) = level.wasted_reads.interval;
    vec![
        filters.into(),
        level.level.map_or("all".into(), |level| format!("L{level}")).into(),
        level.bits_per_key().into(),
        Value::Size(level.filter_bytes),
        Value::Count(level.probes),
        Value::Count(level.false_positives),
        level.wasted_reads.mean.into(),
        Some(vec![low.into(), high.into()]).into(),
        level.expected.into(),
    ]
}

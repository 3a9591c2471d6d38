//! `trommel bench`.

pub(crate) mod args;
pub(crate) mod filters;
mod steps;
mod store;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use trommel::trace::TraceOptions;
use trommel::{BackgroundTrace, Options};
use trommel_harness::bench::{Journal, Operations, Plan, PrintOptions, Rates, bench};
use trommel_harness::machine::Environment;
use trommel_harness::record::{Record, Run};
use trommel_harness::{
    Control, EngineOpener, KeySpace, Opener, PrefixSeeks, ScratchDir, Values, Workload,
    WorkloadOptions, units,
};

use crate::commands::records::Appender;
use crate::commands::store_args::is_missing_or_empty;
use crate::failure::Failure;
pub(crate) use args::BenchArgs;
use args::PaceArgs;
use store::{Setup, Use, prefix_bytes, set_up};

pub(crate) const LONG_ABOUT: &str = "\
Runs benchmarks one after the other on one store, and prints a line for each in the form db_bench \
uses. Keys are 8-byte big-endian integers below --num, padded with '0' to --key-size. Missing keys \
are the same with one random byte appended: they sort between the others, so a lookup reaches \
every level. Draws are with replacement: fillrandom writes about 63% of the keys.

Benchmarks that fill start from an empty store. All counts are those of all threads together; \
microseconds per operation are those of one thread.

Flags with a name of db_bench mean the same, and are accepted with dashes or underscores, and with \
one leading dash or two.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel bench
      fill, compact and read a store of 1,000,000 keys in the temporary directory
  trommel bench --filters=blocked:10
      the same with another filter
  trommel bench --db=/data/bench --benchmarks=fillseq,compact --num=10M --value-size=400
  trommel bench --db=/data/bench --use-existing-db --benchmarks=readrandom --threads=4 --histogram
      fill once, then read several times; --num must be that of the fill
  trommel bench --keys-file=/usr/share/dict/words --benchmarks=fillrandom,readmissing,filterstats
  trommel bench --benchmarks='fillrandom,waitforcompaction,readrandom[W1-X5]' --json=base.jsonl
      one run to warm up and five that count, kept for `trommel compare`
  trommel bench --benchmarks=ycsbload,ycsba,ycsbf --value-size=1000 --duration=30 --rate=20K
      YCSB on records of a thousand bytes, 20,000 operations a second for 30 seconds each
  trommel bench --filter_uri=speedb.PairedBloomFilter --bloom_bits=23.4 -num=1000000
      as Speedb writes it";

/// Default number of keys.
const DEFAULT_NUM: u64 = 1_000_000;

pub(crate) fn run(
    args: &BenchArgs,
    control: Control<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut plan = plan(args)?;
    for note in not_limited(&plan, &args.pace) {
        control.progress.say(&format!("note: {note}"));
    }
    let filters = args.store.filters.policy()?;
    let filters = Some(&filters).filter(|_| args.store.filters.are_given());
    let purpose = Use::of(plan.steps.iter().map(|step| step.workload));
    let (store, switches) = (&args.store.options, &args.store.switches);
    let setup = set_up(store, switches, filters, args.data.read_mode, purpose)?;
    plan.options.prefixes = prefixes(args, &plan.keys, &setup.options)?;
    for note in &setup.notes {
        control.progress.say(&format!("note: {note}"));
    }
    match &args.store.options.db {
        Some(dir) => run_in(dir, args, &plan, setup, control, out).map_err(|failure| {
            let is_missing = failure.is_no_store() && is_missing_or_empty(dir);
            match is_missing && args.store.switches.use_existing_db {
                true => failure.with("to create one, leave out --use-existing-db"),
                false => failure,
            }
        }),
        None if args.store.switches.use_existing_db => Err(Failure::Usage(
            "--use-existing-db needs --db DIR, the directory of the store".into(),
        )),
        None if args.output.reports.trace.is_some() => Err(Failure::Usage(
            "--trace needs --db DIR: a replay needs the store, and without --db it is removed"
                .into(),
        )),
        None => {
            let scratch = ScratchDir::new(&std::env::temp_dir())?;
            let result = run_in(&scratch.path().join("db"), args, &plan, setup, control, out);
            let removed = scratch.remove();
            result.and(removed.map_err(Failure::from))
        }
    }
}

fn run_in(
    dir: &Path,
    args: &BenchArgs,
    plan: &Plan,
    setup: Setup,
    control: Control<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let settings = settings(args, plan, &setup.options);
    let mut opener = EngineOpener::new(dir, setup.options, setup.lines);
    if let Some(file) = &args.output.reports.trace {
        let options = TraceOptions::default().sample(args.output.reports.trace_sample);
        opener = opener.traced(file, options.seed(args.data.seed()));
    }
    let background = args.output.reports.background_trace.as_deref().map(begin_background_trace);
    let background = background.transpose()?;
    if let Some(trace) = &background {
        opener = opener.background_traced(trace);
    }
    if let Some(file) = &args.output.reports.metrics {
        opener = opener.publishing(file);
    }
    let result = measure(dir, args, plan, &opener, settings, control, out);
    if let Some(trace) = background {
        let failed = |error| Failure::Other(format!("recording background work: {error}"));
        let events = units::grouped(trace.finish().map_err(failed)?);
        control.progress.say(&format!("{events} events of background work are recorded"));
    }
    // The trace is useful even after an error or a stop.
    let traced = opener.finish_trace();
    result?;
    if let (Some(totals), Some(file)) = (traced?, &args.output.reports.trace) {
        let lookups = units::grouped(totals.lookups);
        control.progress.say(&format!("{lookups} lookups are recorded in {}", file.display()));
    }
    Ok(())
}

/// A trace of background work in a new file.
fn begin_background_trace(file: &Path) -> Result<BackgroundTrace, Failure> {
    let created = File::create_new(file);
    let failed = |error| Failure::Other(format!("creating {}: {error}", file.display()));
    created.map(BackgroundTrace::new).map_err(failed)
}

fn measure(
    dir: &Path,
    args: &BenchArgs,
    plan: &Plan,
    opener: &EngineOpener,
    settings: Vec<(&'static str, Value)>,
    control: Control<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let Some(file) = &args.output.reports.json else {
        return Ok(bench(plan, opener, control, out, None)?);
    };
    let mut file = Appender::open(file)?;
    let run = Run::new(
        opener.product(),
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        Environment::of(Some(dir)),
    );
    let mut write = |record: Record| file.add(&record);
    let mut journal = Journal { run, write: &mut write };
    Ok(bench(plan, opener, control, out, Some(&mut journal))?)
}

fn plan(args: &BenchArgs) -> Result<Plan, Failure> {
    let keys = args.data.keys(args.num, DEFAULT_NUM)?;
    let (work, pace, counts) = (&args.work, &args.pace, &args.counts);
    let duration = Duration::try_from_secs_f64(pace.duration)
        .map_err(|_| Failure::Usage("--duration must be a number of seconds, 0 or more".into()))?;
    let seed = args.data.seed();
    let num = args.num.unwrap_or(keys.len());
    let values = Values::new(args.data.value_size, work.compression_ratio, seed);
    Ok(Plan {
        steps: args.benchmarks.clone(),
        operations: Operations {
            writes: counts.writes.0.unwrap_or(num),
            reads: counts.reads.0.unwrap_or(num),
            deletes: counts.deletes.0.unwrap_or(num),
            both: counts.reads.0.max(counts.writes.0).unwrap_or(num),
        },
        threads: args.threads,
        duration: (!duration.is_zero()).then_some(duration),
        rates: Rates {
            all: positive(pace.rate),
            write_bytes: positive(pace.benchmark_write_rate_limit),
            read: positive(pace.benchmark_read_rate_limit),
        },
        seed,
        options: WorkloadOptions {
            batch: work.batch_size,
            seek_nexts: work.seek_nexts,
            backward: args.switches.reverse_iterator,
            read_percent: work.readwritepercent,
            hit_rate: work.get_then_put_hit_rate,
            latencies: args.switches.histogram,
            ..WorkloadOptions::default()
        },
        existing: args.store.switches.use_existing_db,
        cold: args.switches.cold,
        print: PrintOptions {
            statistics: args.output.switches.statistics,
            interval_only: args.output.switches.confidence_interval_only,
        },
        ..Plan::new(keys, values)
    })
}

/// The prefix settings of seeks.
fn prefixes(
    args: &BenchArgs,
    keys: &KeySpace,
    options: &Options,
) -> Result<Option<PrefixSeeks>, Failure> {
    let missing = args.switches.seek_missing_prefix;
    if !missing && !args.switches.prefix_same_as_start {
        return Ok(None);
    }
    let flag = if missing { "seek_missing_prefix" } else { "prefix_same_as_start" };
    let bytes = prefix_bytes(options);
    if missing && !keys.has_missing_prefixes(bytes) {
        return Err(Failure::Usage(format!(
            "--{flag} changes a byte after the number in a key: give a --prefix_size of more than \
             8, up to the --key_size, and no --keys_file"
        )));
    }
    if bytes == 0 || bytes as f64 > keys.key_bytes() {
        return Err(Failure::Usage(format!(
            "--{flag} needs prefixes: give --prefix_size too, up to the --key_size, as in --prefix_size=8"
        )));
    }
    Ok(Some(PrefixSeeks { bytes, missing }))
}

fn positive(rate: u64) -> Option<f64> {
    (rate > 0).then_some(rate as f64)
}

/// Notes on rate limits that do not apply to some of the benchmarks.
fn not_limited(plan: &Plan, pace: &PaceArgs) -> Vec<String> {
    let workloads = plan.steps.iter().map(|step| step.workload);
    let mut mixed: Vec<_> = workloads.filter(|w| w.is_mixed()).map(Workload::name).collect();
    mixed.dedup();
    if mixed.is_empty() || plan.rates.all.is_some() {
        return Vec::new();
    }
    let mixed = mixed.join(", ");
    [
        ("--benchmark-write-rate-limit", pace.benchmark_write_rate_limit),
        ("--benchmark-read-rate-limit", pace.benchmark_read_rate_limit),
    ]
    .into_iter()
    .filter(|(_, limit)| *limit > 0)
    .map(|(flag, _)| {
        format!("{flag} does not apply to {mixed}, which mix reads and writes: use --rate")
    })
    .collect()
}

/// Every option with its resolved value, for the records.
fn settings(args: &BenchArgs, plan: &Plan, options: &Options) -> Vec<(&'static str, Value)> {
    let keys_file =
        args.data.keys_file.as_ref().map_or(String::new(), |file| file.display().to_string());
    let mut settings = vec![
        ("num", json!(plan.keys.len())),
        ("writes", json!(plan.operations.writes)),
        ("reads", json!(plan.operations.reads)),
        ("deletes", json!(plan.operations.deletes)),
        ("threads", json!(plan.threads)),
        ("key_size", json!(plan.keys.key_bytes())),
        ("value_size", json!(plan.values.value_bytes())),
        ("keys_file", json!(keys_file)),
        ("compression_ratio", json!(plan.values.compression_ratio())),
        ("seed", json!(plan.seed)),
        ("duration", json!(plan.duration.unwrap_or_default().as_secs_f64())),
        ("rate", json!(plan.rates.all.unwrap_or_default())),
        ("write_bytes_rate", json!(plan.rates.write_bytes.unwrap_or_default())),
        ("read_rate", json!(plan.rates.read.unwrap_or_default())),
        ("batch_size", json!(plan.options.batch)),
        ("seek_nexts", json!(plan.options.seek_nexts)),
        ("reverse_iterator", json!(plan.options.backward)),
        ("prefix_same_as_start", json!(plan.options.prefixes.is_some())),
        (
            "seek_missing_prefix",
            json!(plan.options.prefixes.is_some_and(|prefixes| prefixes.missing)),
        ),
        ("readwritepercent", json!(plan.options.read_percent)),
        ("get_then_put_hit_rate", json!(plan.options.hit_rate)),
        ("histogram", json!(plan.options.latencies)),
        ("cold", json!(plan.cold)),
        (
            "trace_sample",
            json!(args.output.reports.trace.as_ref().map(|_| args.output.reports.trace_sample)),
        ),
    ];
    settings.extend(store::settings(options));
    settings
}

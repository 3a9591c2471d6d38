//! `trommel filter-bench`: filters by themselves, with the flags and modes of RocksDB's filter_bench.

pub(crate) mod foreign;

use std::io::Write;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use trommel::filter::{FilterKind, FilterSpec, Kernel};
use trommel_harness::Control;
use trommel_harness::filter_bench::{Access, Cell, Mix, Pattern, Plan, measure};
use trommel_harness::units::parse_count;

use self::foreign::FilterBench;
use crate::failure::Failure;
use crate::foreign::ForeignFlags;
use crate::output::{Format, Output, OutputArgs, Value};

pub(crate) const LONG_ABOUT: &str = "\
Builds filters until they fill some memory, checks that they deny no key, measures how often they \
take absent keys for present ones beside the exact rate that theory expects, and times them: one \
filter, many, in batches, for keys that are there and keys that are not. Times are net: of the \
filter alone, without making keys, hashing and choosing filters, which a dry run measures.

With several specs or numbers of keys it sweeps over all of them and prints one row each.

Ends with exit code 7 if filters err more often than expected by more than chance explains.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel filter-bench --filters paired:23.4 --quick
  trommel filter-bench -impl=2 -bits_per_key=10 -average_keys_per_filter=100000
  trommel filter-bench --filters paired:16 --filters blocked:16 --filters ribbon:12 --keys 1K,100K,10M
  trommel filter-bench --filters paired:10 --kernel scalar --format json";

#[derive(Debug, Args)]
pub(crate) struct FilterBenchArgs {
    /// A filter; give it several times to sweep [default: --impl with --bits-per-key]
    #[arg(long, value_name = "SPEC", alias = "filter")]
    filters: Vec<FilterSpec>,
    /// As filter_bench has it: 1 or bloom is blocked, 2 or ribbon is ribbon; or a kind's name
    #[arg(long = "impl", value_name = "KIND", default_value = "paired", value_parser = implementation)]
    implementation: FilterKind,
    /// Bits per key for --impl; several for a sweep
    #[arg(long, value_name = "BITS", value_delimiter = ',', default_value = "10")]
    bits_per_key: Vec<f64>,
    /// Keys of a filter, on average; several for a sweep
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_value = "10000")]
    #[arg(visible_alias = "keys", value_parser = parse_count)]
    average_keys_per_filter: Vec<u64>,
    /// By which part the number of keys varies up and down
    #[arg(long, value_name = "RATIO", default_value_t = 0.4)]
    vary_key_count_ratio: f64,
    /// Bytes of a key
    #[arg(long, value_name = "BYTES", default_value_t = 24)]
    key_size: usize,
    /// MiB that all filters together take
    #[arg(long, value_name = "MB", default_value_t = 200)]
    working_mem_size_mb: u64,
    /// Millions of keys of all filters together, at most; 0 for no limit
    #[arg(long, value_name = "MILLIONS", default_value_t = 0.0)]
    m_keys_total_max: f64,
    /// Millions of queries of each mode
    #[arg(long, value_name = "MILLIONS", default_value_t = 200.0)]
    m_queries: f64,
    /// Keys in a batch
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    batch_size: usize,
    /// Count hashing the key as the filter's cost
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", default_value = "false", hide_default_value = true)]
    #[arg(hide_possible_values = true, value_parser = BoolishValueParser::new())]
    net_includes_hashing: bool,
    /// Fewer queries and modes
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", default_value = "false", hide_default_value = true)]
    #[arg(hide_possible_values = true, value_parser = BoolishValueParser::new())]
    quick: bool,
    /// Time only keys that are not there, on one filter
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", default_value = "false", hide_default_value = true)]
    #[arg(hide_possible_values = true, value_parser = BoolishValueParser::new())]
    best_case: bool,
    /// Do not fail if a filter errs more often than expected
    #[arg(long, alias = "allow-bad-fp-rate", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", value_name = "BOOL", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    #[arg(value_parser = BoolishValueParser::new())]
    allow_bad_rate: bool,
    /// Measure so many times, each with another seed
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = parse_count)]
    runs: u64,
    /// Decides all keys and the order of queries
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Instructions to ask with [default: the best of this processor]
    #[arg(long, value_name = "KERNEL", value_enum)]
    kernel: Option<KernelArg>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    foreign: ForeignFlags<FilterBench>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KernelArg {
    Scalar,
    Avx2,
    Avx512,
}

impl From<KernelArg> for Kernel {
    fn from(kernel: KernelArg) -> Self {
        match kernel {
            KernelArg::Scalar => Self::Scalar,
            KernelArg::Avx2 => Self::Avx2,
            KernelArg::Avx512 => Self::Avx512,
        }
    }
}

/// A kind, by our name or filter_bench's number.
fn implementation(text: &str) -> Result<FilterKind, String> {
    match text {
        "0" => Err("the legacy filter is not here; 1 is blocked, 2 is ribbon".into()),
        "1" | "bloom" | "blocked" => Ok(FilterKind::Blocked),
        "2" | "ribbon" => Ok(FilterKind::Ribbon),
        "paired" => Ok(FilterKind::Paired),
        "standard" => Ok(FilterKind::Standard),
        _ => Err("write 1 or blocked, 2 or ribbon, standard, or paired".into()),
    }
}

pub(crate) fn run(
    args: &FilterBenchArgs,
    control: Control<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    for note in args.foreign.judge()? {
        control.progress.say(&format!("note: {note}"));
    }
    let plans = plans(args)?;
    let in_words = args.output.format == Format::Table && plans.len() == 1;
    let mut bad = None;
    if in_words {
        let cell = measure(&plans[0], control)?;
        write_words(&cell, out)?;
        bad = bad.or(complaint(&cell));
    } else {
        let mut output = args.output.begin("filter_bench", out);
        output.list("filters", COLUMNS)?;
        for plan in &plans {
            let cell = measure(plan, control)?;
            write_row(&cell, &mut output)?;
            bad = bad.or(complaint(&cell));
        }
        output.finish()?;
    }
    match bad {
        Some(text) if !args.allow_bad_rate => Err(Failure::Check(text)),
        _ => Ok(()),
    }
}

fn plans(args: &FilterBenchArgs) -> Result<Vec<Plan>, Failure> {
    if let Some(kernel) = args.kernel.map(Kernel::from)
        && !Kernel::available().any(|known| known == kernel)
    {
        return Err(Failure::Usage(format!("this processor does not have {kernel}")));
    }
    if !(args.m_queries > 0.0 && args.m_queries <= 1e6) {
        return Err(Failure::Usage("--m-queries must be above 0, in millions".into()));
    }
    let mut specs = args.filters.clone();
    if specs.is_empty() {
        for &bits in &args.bits_per_key {
            let spec = FilterSpec::new(args.implementation, bits);
            specs.push(spec.map_err(|error| Failure::Usage(error.to_string()))?);
        }
    }
    let mut plans = Vec::new();
    for run in 0..args.runs.max(1) {
        for &keys in &args.average_keys_per_filter {
            for &spec in &specs {
                plans.push(plan(args, spec, keys, args.seed + run));
            }
        }
    }
    Ok(plans)
}

fn plan(args: &FilterBenchArgs, spec: FilterSpec, keys: u64, seed: u64) -> Plan {
    let is_sweep = args.filters.len() > 1
        || args.bits_per_key.len() > 1
        || args.average_keys_per_filter.len() > 1;
    let patterns = if args.best_case {
        vec![Pattern { access: Access::Single, mix: Mix::Outside }]
    } else if args.quick || is_sweep {
        let of = |mix| QUICK.map(|access| Pattern { access, mix });
        [Mix::Inside, Mix::Outside].into_iter().flat_map(of).collect()
    } else {
        Pattern::all()
    };
    let share = if args.quick { 10.0 } else { 1.0 };
    let memory = args.working_mem_size_mb << 20;
    let limit = match args.m_keys_total_max {
        millions if millions > 0.0 => (millions * 1e6 * spec.bits_per_key() / 8.0) as u64,
        _ => u64::MAX,
    };
    Plan {
        spec,
        keys,
        vary: args.vary_key_count_ratio,
        key_bytes: args.key_size,
        memory_bytes: memory.min(limit),
        queries: (args.m_queries * 1e6 / share) as u64,
        batch: args.batch_size,
        seed,
        kernel: args.kernel.map(Into::into),
        net_includes_hashing: args.net_includes_hashing,
        patterns,
    }
}

/// What a quick run and a sweep time.
const QUICK: [Access; 3] = [Access::Single, Access::BatchedPrepared, Access::Random];

/// What is wrong with a cell's rate, if anything.
fn complaint(cell: &Cell) -> Option<String> {
    let rate = &cell.rate;
    rate.is_bad().then(|| {
        format!(
            "{} errs too often: measured {:.4e}, expected {:.4e}, {:.1} standard errors apart",
            cell.spec,
            rate.measured,
            rate.expected,
            rate.deviation()
        )
    })
}

const COLUMNS: &[&str] = &[
    "filter",
    "kernel",
    "filters",
    "keys_per_filter",
    "memory_bytes",
    "bits_per_key",
    "probes",
    "build_ns",
    "build_bytes",
    "measured_rate",
    "standard_error",
    "expected_rate",
    "absent_single_ns",
    "absent_batched_ns",
    "absent_random_ns",
    "present_single_ns",
    "present_batched_ns",
    "present_random_ns",
];

fn write_row(cell: &Cell, output: &mut Output<'_>) -> Result<(), Failure> {
    let time = |access, mix| cell.net_ns(access, mix).map_or(Value::Null, Value::Float);
    let mut row = vec![
        cell.spec.clone().into(),
        cell.kernel.clone().into(),
        Value::Count(cell.filters),
        Value::Count(cell.keys / cell.filters),
        Value::Size(cell.memory_bytes),
        Value::Float(cell.stored_bits),
        Value::Count(cell.probes.into()),
        Value::Float(cell.build_ns),
        Value::Float(cell.build_bytes),
        Value::Float(cell.rate.measured),
        Value::Float(cell.rate.standard_error),
        Value::Float(cell.rate.expected),
    ];
    for mix in [Mix::Outside, Mix::Inside] {
        row.extend(QUICK.map(|access| time(access, mix)));
    }
    Ok(output.row(row)?)
}

/// What filter_bench prints, in its words, with the exact expectation beside what was measured.
fn write_words(cell: &Cell, out: &mut dyn Write) -> Result<(), Failure> {
    let rate = &cell.rate;
    writeln!(out, "Filter: {} (asked with {} instructions)", cell.spec, cell.kernel)?;
    writeln!(out, "Build avg ns/key: {:.2}", cell.build_ns)?;
    writeln!(out, "Build avg bytes/key beyond the filter: {:.2}", cell.build_bytes)?;
    writeln!(out, "Number of filters: {}", cell.filters)?;
    writeln!(out, "Total size (MB): {:.3}", cell.memory_bytes as f64 / 1_048_576.0)?;
    writeln!(out, "Bits/key stored: {:.4}", cell.stored_bits)?;
    writeln!(out, "Probes: {}", cell.probes)?;
    writeln!(out, "Expected FP rate %: {:.6}", 100.0 * rate.expected)?;
    writeln!(
        out,
        "Average FP rate %: {:.6} +- {:.6} ({} of {}; {:+.2} standard errors)",
        100.0 * rate.measured,
        100.0 * rate.standard_error,
        rate.false_positives,
        rate.asked,
        rate.deviation()
    )?;
    writeln!(
        out,
        "95% interval of the count %: {:.6} to {:.6}",
        100.0 * rate.interval.0,
        100.0 * rate.interval.1
    )?;
    writeln!(out, "Worst filter FP rate %: {:.6}", 100.0 * rate.worst)?;
    writeln!(out, "Best filter FP rate %: {:.6}", 100.0 * rate.best)?;
    writeln!(out, "Best possible bits/key: {:.3}", cell.best_possible_bits())?;
    writeln!(out, "No FNs :)")?;
    for mix in Mix::ALL {
        let mut timings = cell.timings.iter().filter(|timing| timing.pattern.mix == mix).peekable();
        if timings.peek().is_some() {
            writeln!(out, "----------------------------\n{}...", mix.name())?;
        }
        for timing in timings {
            let (net, gross) = (timing.net_ns(), timing.gross_ns);
            let access = timing.pattern.access.name();
            writeln!(out, "  {access} net ns/op: {net:.2} (gross {gross:.2})")?;
        }
    }
    Ok(())
}

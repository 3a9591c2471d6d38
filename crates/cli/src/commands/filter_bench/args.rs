//! The flags, and the measurements that they request.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use trommel::filter::{FilterKind, FilterSpec, Kernel};
use trommel_harness::units::{parse_count, parse_decimal};
use trommel_lab::filter_bench::{
    Access, FilterBenchPlan, KeyShape, Mix, Pattern, QueryCounts, Until, has_kernels,
};

use super::specs::{Bits, Implementation, KINDS, Specs, bits, implementation, specs};
use crate::commands::bench::args::switches;
use crate::failure::Failure;
use crate::foreign::{FilterBench, ForeignFlags};
use crate::output::OutputArgs;
use crate::shared_args::whole;

/// Default memory of all filters together, in MiB.
const MEMORY_MB: f64 = 200.0;
/// Default number of queries of each mode, in millions.
const M_QUERIES: f64 = 200.0;
/// The same in a sweep.
const M_QUERIES_SWEEP: f64 = 10.0;
/// Default bits per key.
const BITS_PER_KEY: f64 = 10.0;
/// Default number of keys in a batch.
const BATCH: usize = 8;
/// Maximum number of measurements in one run.
const MOST_PLANS: u64 = 100_000;
/// Flags without effect if earlier records are shown.
const MEASURING: [&str; 23] = [
    "filters",
    "implementation",
    "bits_per_key",
    "average_keys_per_filter",
    "vary_key_count_ratio",
    "key_size",
    "vary_key_alignment",
    "vary_key_size_log2_interval",
    "working_mem_size_mb",
    "m_keys_total_max",
    "m_queries",
    "m_rate_queries",
    "batch_size",
    "runs",
    "seed",
    "kernel",
    "huge_pages",
    "net_includes_hashing",
    "quick",
    "best_case",
    "allow_bad_rate",
    "legend",
    "json",
];

#[derive(Debug, Args)]
pub(crate) struct FilterBenchArgs {
    /// Filters: paired:23.4, paired:8..40/4, all:10,16; may be given several times
    /// [default: --impl with --bits-per-key]
    #[arg(long, value_name = "SPECS", alias = "filter", value_parser = specs)]
    #[arg(conflicts_with_all = ["implementation", "bits_per_key"])]
    filters: Vec<Specs>,
    /// Kinds, as filter_bench has them: 1 is blocked, 2 the ribbon with the rate of 1; or standard,
    /// blocked, paired, ribbon with these very bits
    #[arg(long = "impl", value_name = "KINDS", default_value = "paired", value_delimiter = ',')]
    #[arg(value_parser = implementation)]
    implementation: Vec<Implementation>,
    /// Bits per key for --impl; several, or a range such as 8..40/4, for a sweep [default: 10]
    #[arg(long, value_name = "BITS", value_delimiter = ',')]
    #[arg(allow_negative_numbers = true, value_parser = bits)]
    bits_per_key: Vec<Bits>,
    /// Keys of a filter, on average; several, such as 1K,100K,10M, for a sweep
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "10000")]
    #[arg(visible_alias = "keys", value_parser = parse_count)]
    average_keys_per_filter: Vec<u64>,
    /// By which part the number of keys varies up and down
    #[arg(long, value_name = "RATIO", default_value = "0.4", allow_negative_numbers = true)]
    #[arg(value_parser = parse_decimal)]
    vary_key_count_ratio: f64,
    #[command(flatten)]
    keys: KeyArgs,
    /// MiB that all filters together take [default: 200; 50 with --quick, 20 with --best-case]
    #[arg(long, value_name = "MB", allow_negative_numbers = true, value_parser = parse_decimal)]
    working_mem_size_mb: Option<f64>,
    /// Millions of keys of all filters together, instead of --working-mem-size-mb; 0 for no limit
    #[arg(long, value_name = "MILLIONS", default_value = "0", allow_negative_numbers = true)]
    #[arg(value_parser = parse_decimal)]
    m_keys_total_max: f64,
    /// Millions of queries of each mode [default: 200, in a sweep 10]
    #[arg(long, value_name = "MILLIONS", allow_negative_numbers = true)]
    #[arg(value_parser = parse_decimal)]
    m_queries: Option<f64>,
    /// Millions of absent keys to measure the rate with [default: as many as queries of a mode]
    #[arg(long, value_name = "MILLIONS", allow_negative_numbers = true)]
    #[arg(value_parser = parse_decimal)]
    m_rate_queries: Option<f64>,
    /// Keys in a batch [default: 8]
    #[arg(long, value_name = "COUNT", value_parser = whole::<usize>)]
    batch_size: Option<usize>,
    /// Measure so many times, each with another seed
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = parse_count)]
    runs: u64,
    /// Decides all keys and the order of queries
    #[arg(long, default_value = "0", value_parser = whole::<u64>)]
    seed: u64,
    /// Instructions to ask blocked and paired filters with [default: the best of this processor]
    #[arg(long, value_name = "KERNEL", value_enum)]
    kernel: Option<KernelArg>,
    /// Request huge pages for filters of 4 MiB and more, as a store does
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", default_value = "true")]
    #[arg(hide_possible_values = true, value_parser = BoolishValueParser::new())]
    huge_pages: bool,
    #[command(flatten)]
    pub(super) switches: Switches,
    #[command(flatten)]
    pub(super) files: FileArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) foreign: ForeignFlags<FilterBench>,
}

#[derive(Debug, Args)]
struct KeyArgs {
    /// Bytes of a key, on average
    #[arg(long, value_name = "BYTES", default_value = "24", value_parser = whole::<usize>)]
    key_size: usize,
    /// Let keys begin at any address, not at multiples of 4 only
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", default_value = "true")]
    #[arg(hide_possible_values = true, value_parser = BoolishValueParser::new())]
    vary_key_alignment: bool,
    /// Change the size of keys, by up to 2 bytes, after 2 to this number of keys; from 30 on never
    #[arg(long, value_name = "LOG2", default_value = "5", value_parser = whole::<u32>)]
    vary_key_size_log2_interval: u32,
}

switches! {
    Switches {
        /// Count hashing the key as the filter's cost
        net_includes_hashing,
        /// Fewer queries, modes and filters: a few seconds
        quick,
        /// Only one filter at a time, with fewer queries, in less memory
        best_case,
        /// Do not fail if a filter errs more often than expected
        #[arg(visible_alias = "allow-bad-fp-rate")]
        allow_bad_rate,
        /// Explain the results instead
        legend,
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct FileArgs {
    /// Add a line of JSON for each filter and size to FILE
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write an HTML page with all charts and tables
    #[arg(long, value_name = "PAGE.html")]
    pub(super) report: Option<PathBuf>,
    /// Write the charts, as SVG files, to DIR
    #[arg(long, value_name = "DIR", alias = "svg")]
    pub(super) plot: Option<PathBuf>,
    /// Measure nothing: take what an earlier run wrote with --json; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = MEASURING)]
    pub(super) from: Vec<PathBuf>,
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

impl FilterBenchArgs {
    /// Whether there is more than one filter or number of keys.
    pub(super) fn is_sweep(&self) -> bool {
        self.specs().is_ok_and(|specs| specs.len() > 1) || self.average_keys_per_filter.len() > 1
    }

    /// The measurements, in order.
    ///
    /// # Errors
    /// If one is impossible.
    pub(super) fn plans(&self) -> Result<Vec<FilterBenchPlan>, Failure> {
        if let Some(kernel) = self.kernel.map(Kernel::from)
            && !Kernel::available().any(|known| known == kernel)
        {
            let known: Vec<String> = Kernel::available().map(|known| known.to_string()).collect();
            return Err(Failure::Usage(format!(
                "this processor does not have {kernel}; it has {}",
                known.join(", ")
            )));
        }
        if self.runs == 0 {
            return Err(Failure::Usage("--runs must be at least 1".into()));
        }
        let specs = self.specs().map_err(Failure::Usage)?;
        let each = specs.len().saturating_mul(self.average_keys_per_filter.len()) as u64;
        if self.runs.saturating_mul(each) > MOST_PLANS {
            return Err(Failure::Usage(format!(
                "these would be {} measurements; at most {MOST_PLANS} can be made in one run: ask \
                 for fewer --runs, filters or numbers of keys",
                self.runs.saturating_mul(each)
            )));
        }
        let mut plans = Vec::new();
        for run in 0..self.runs {
            for &keys in &self.average_keys_per_filter {
                for &spec in &specs {
                    plans.push(self.plan(spec, keys, self.seed.wrapping_add(run))?);
                }
            }
        }
        // Check all of them before hours are spent on the first.
        plans.iter().try_for_each(FilterBenchPlan::check)?;
        Ok(plans)
    }

    /// Notes on flags that have no effect on `plans`.
    pub(super) fn notes(&self, plans: &[FilterBenchPlan]) -> Vec<String> {
        let Switches { quick, best_case, .. } = self.switches;
        let mut notes = Vec::new();
        let is_asked = |kind| plans.iter().any(|plan| plan.spec.kind() == kind);
        let plain = KINDS.into_iter().filter(|kind| !has_kernels(*kind) && is_asked(*kind));
        let plain: Vec<&str> = plain.map(FilterKind::name).collect();
        if self.kernel.is_some() && !plain.is_empty() {
            notes.push(format!(
                "--kernel does nothing for {} filters: they have one code for all processors",
                plain.join(" and ")
            ));
        }
        if quick && best_case {
            notes.push("--best-case does nothing with --quick, which asks for less still".into());
        }
        if self.m_keys_total_max != 0.0 && self.working_mem_size_mb.is_some() {
            let why = "--m-keys-total-max says where to end";
            notes.push(format!("--working-mem-size-mb does nothing: {why}"));
        }
        let is_batched = |pattern: &Pattern| pattern.access.is_batched();
        if self.batch_size.is_some()
            && !plans.iter().any(|plan| plan.patterns.iter().any(is_batched))
        {
            let why = "--quick and --best-case ask no batches";
            notes.push(format!("--batch-size does nothing: {why}"));
        }
        notes
    }

    fn specs(&self) -> Result<Vec<FilterSpec>, String> {
        if !self.filters.is_empty() {
            return Ok(self.filters.iter().flat_map(|specs| &specs.0).copied().collect());
        }
        let mut bits: Vec<f64> =
            self.bits_per_key.iter().flat_map(|bits| &bits.0).copied().collect();
        if bits.is_empty() {
            bits.push(BITS_PER_KEY);
        } else if self.implementation.iter().all(Implementation::has_bits) {
            return Err("all of --impl have bits of their own: leave --bits-per-key out".into());
        }
        let of = |kind: &Implementation| kind.specs(&bits);
        Ok(self.implementation.iter().map(of).collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn plan(&self, spec: FilterSpec, keys: u64, seed: u64) -> Result<FilterBenchPlan, Failure> {
        let Switches { quick, best_case, .. } = self.switches;
        // The fractions are filter_bench's.
        let part = if quick {
            7.0
        } else if best_case {
            3.0
        } else {
            1.0
        };
        let usual = if self.is_sweep() { M_QUERIES_SWEEP } else { M_QUERIES };
        let queries = millions("--m-queries", self.m_queries.unwrap_or(usual))?;
        let rate_queries = match self.m_rate_queries {
            Some(asked) => millions("--m-rate-queries", asked)?,
            None => queries / part,
        };
        Ok(FilterBenchPlan {
            spec,
            keys,
            vary: self.vary_key_count_ratio,
            shape: KeyShape {
                bytes: self.keys.key_size,
                vary_alignment: self.keys.vary_key_alignment,
                vary_size_log2: self.keys.vary_key_size_log2_interval,
            },
            until: self.until()?,
            queries: QueryCounts {
                for_rate: (rate_queries as u64).max(1),
                per_pattern: ((queries / part) as u64).max(1),
                batch: self.batch_size.unwrap_or(BATCH),
            },
            seed,
            kernel: self.kernel.map(Into::into),
            huge_pages: self.huge_pages,
            net_includes_hashing: self.switches.net_includes_hashing,
            patterns: self.patterns(),
        })
    }

    fn until(&self) -> Result<Until, Failure> {
        let total = self.m_keys_total_max;
        if total != 0.0 {
            return Ok(Until::Keys((millions("--m-keys-total-max", total)? as u64).max(1)));
        }
        let megabytes = match self.working_mem_size_mb {
            Some(asked) => asked,
            None if self.switches.quick => MEMORY_MB / 4.0,
            None if self.switches.best_case => MEMORY_MB / 10.0,
            None => MEMORY_MB,
        };
        if !(0.0..1e12).contains(&megabytes) {
            let text = format!("--working-mem-size-mb={megabytes} is no size of memory in MiB");
            return Err(Failure::Usage(text));
        }
        Ok(Until::Bytes((megabytes * 1_048_576.0) as u64))
    }

    fn patterns(&self) -> Vec<Pattern> {
        let Switches { quick, best_case, .. } = self.switches;
        let (accesses, mixes): (&[Access], &[Mix]) = match (self.is_sweep(), quick, best_case) {
            (true, false, false) => (
                &[Access::Single, Access::BatchedPrepared, Access::Random],
                &[Mix::Outside, Mix::Inside],
            ),
            (true, ..) => (&[Access::Single], &[Mix::Outside, Mix::Inside]),
            (false, true, _) => (&[Access::Single, Access::Random], &[Mix::Mixed]),
            (false, false, true) => (&[Access::Single], &Mix::ALL),
            (false, false, false) => return Pattern::all(),
        };
        let of = |mix: &Mix| {
            let mix = *mix;
            accesses.iter().map(move |access| Pattern { access: *access, mix })
        };
        mixes.iter().flat_map(of).collect()
    }
}

/// Converts a number of millions.
fn millions(flag: &str, number: f64) -> Result<f64, Failure> {
    if number > 0.0 && number <= 1e9 {
        return Ok(number * 1e6);
    }
    Err(Failure::Usage(format!("{flag}={number} is out of range: it is in millions, and above 0")))
}

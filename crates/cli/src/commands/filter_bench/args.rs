//! The flags, and the measurements that they request.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use trommel::filter::{FilterKind, FilterSpec, Kernel};
use trommel_harness::units::{parse_count, parse_decimal};
use trommel_lab::filter_bench::{Access, FilterBenchPlan, Pattern, QueryCounts, Until};

use super::specs::{Specs, specs};
use crate::commands::bench::args::switches;
use crate::failure::Failure;
use crate::output::OutputArgs;
use crate::shared_args::whole;

/// Default memory of all filters together, in MiB.
const MEMORY_MB: f64 = 200.0;
/// Default number of queries of each pattern, in millions.
const M_QUERIES: f64 = 10.0;
/// By how much `--quick` divides the number of queries.
const QUICK: f64 = 7.0;
/// Default number of keys in a batch.
const BATCH: usize = 8;
/// Maximum number of measurements in one run.
const MOST_PLANS: u64 = 100_000;
/// Flags without effect if earlier records are shown.
const MEASURING: [&str; 16] = [
    "filters",
    "average_keys_per_filter",
    "vary_key_count_ratio",
    "key_size",
    "working_mem_size_mb",
    "m_keys_total_max",
    "m_queries",
    "m_rate_queries",
    "batch_size",
    "runs",
    "seed",
    "kernel",
    "huge_pages",
    "quick",
    "allow_bad_rate",
    "json",
];

#[derive(Debug, Args)]
pub(crate) struct FilterBenchArgs {
    /// Filters: paired:23.4, paired:8..40/4, all:10,16; may be given several times
    #[arg(long, value_name = "SPECS", alias = "filter", default_value = "paired:10")]
    #[arg(value_parser = specs)]
    filters: Vec<Specs>,
    /// Keys of a filter, on average; several, such as 1K,100K,10M, for a sweep
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "10000")]
    #[arg(visible_alias = "keys", value_parser = parse_count)]
    average_keys_per_filter: Vec<u64>,
    /// The fraction by which the number of keys varies in either direction
    #[arg(long, value_name = "RATIO", default_value = "0.4", allow_negative_numbers = true)]
    #[arg(value_parser = parse_decimal)]
    vary_key_count_ratio: f64,
    /// Bytes of a key
    #[arg(long, value_name = "BYTES", default_value = "24", value_parser = whole::<usize>)]
    key_size: usize,
    /// MiB of all filters together [default: 200; 50 with --quick]
    #[arg(long, value_name = "MB", allow_negative_numbers = true, value_parser = parse_decimal)]
    working_mem_size_mb: Option<f64>,
    /// Millions of keys of all filters together, instead of --working-mem-size-mb; 0 for no limit
    #[arg(long, value_name = "MILLIONS", default_value = "0", allow_negative_numbers = true)]
    #[arg(value_parser = parse_decimal)]
    m_keys_total_max: f64,
    /// Millions of queries of each pattern; a seventh with --quick [default: 10]
    #[arg(long, value_name = "MILLIONS", allow_negative_numbers = true)]
    #[arg(value_parser = parse_decimal)]
    m_queries: Option<f64>,
    /// Millions of missing keys to measure the rate with [default: the number of queries of a
    /// pattern]
    #[arg(long, value_name = "MILLIONS", allow_negative_numbers = true)]
    #[arg(value_parser = parse_decimal)]
    m_rate_queries: Option<f64>,
    /// Keys in a batch [default: 8]
    #[arg(long, value_name = "COUNT", value_parser = whole::<usize>)]
    batch_size: Option<usize>,
    /// Measure this many times, each with another seed
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = parse_count)]
    runs: u64,
    /// Seed of all keys and of the order of queries
    #[arg(long, default_value = "0", value_parser = whole::<u64>)]
    seed: u64,
    /// Instruction set for queries of blocked and paired filters [default: the best of this
    /// processor]
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
}

switches! {
    Switches {
        /// Fewer queries, for single keys in one filter only: a few seconds
        quick,
        /// Do not fail if a filter has more false positives than expected
        #[arg(visible_alias = "allow-bad-fp-rate")]
        allow_bad_rate,
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct FileArgs {
    /// Add a line of JSON for each filter and size to FILE
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write the charts, as SVG files, to DIR
    #[arg(long, value_name = "DIR", alias = "svg")]
    pub(super) plot: Option<PathBuf>,
    /// Measure nothing: use the results that an earlier run wrote with --json; - for standard input
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
        let specs: Vec<FilterSpec> =
            self.filters.iter().flat_map(|specs| &specs.0).copied().collect();
        let each = specs.len().saturating_mul(self.average_keys_per_filter.len()) as u64;
        if self.runs.saturating_mul(each) > MOST_PLANS {
            return Err(Failure::Usage(format!(
                "these would be {} measurements; at most {MOST_PLANS} can be made in one run: give \
                 fewer --runs, filters or numbers of keys",
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
        let mut notes = Vec::new();
        let is_planned = |kind| plans.iter().any(|plan| plan.spec.kind() == kind);
        let plain =
            FilterKind::ALL.into_iter().filter(|kind| !kind.has_kernels() && is_planned(*kind));
        let plain: Vec<&str> = plain.map(FilterKind::name).collect();
        if self.kernel.is_some() && !plain.is_empty() {
            notes.push(format!(
                "--kernel does nothing for {} filters: they have one code for all processors",
                plain.join(" and ")
            ));
        }
        if self.m_keys_total_max != 0.0 && self.working_mem_size_mb.is_some() {
            let why = "--m-keys-total-max sets the limit";
            notes.push(format!("--working-mem-size-mb does nothing: {why}"));
        }
        if self.batch_size.is_some() && self.switches.quick {
            notes.push("--batch-size does nothing: --quick has no batched queries".into());
        }
        notes
    }

    fn plan(&self, spec: FilterSpec, keys: u64, seed: u64) -> Result<FilterBenchPlan, Failure> {
        let queries = millions("--m-queries", self.m_queries.unwrap_or(M_QUERIES))?;
        let queries = if self.switches.quick { queries / QUICK } else { queries };
        let rate_queries = match self.m_rate_queries {
            Some(queries) => millions("--m-rate-queries", queries)?,
            None => queries,
        };
        Ok(FilterBenchPlan {
            spec,
            keys,
            vary: self.vary_key_count_ratio,
            key_bytes: self.key_size,
            until: self.until()?,
            queries: QueryCounts {
                for_rate: (rate_queries as u64).max(1),
                per_pattern: (queries as u64).max(1),
                batch: self.batch_size.unwrap_or(BATCH),
            },
            seed,
            kernel: self.kernel.map(Into::into),
            huge_pages: self.huge_pages,
            patterns: self.patterns(),
        })
    }

    fn until(&self) -> Result<Until, Failure> {
        let total = self.m_keys_total_max;
        if total != 0.0 {
            return Ok(Until::Keys((millions("--m-keys-total-max", total)? as u64).max(1)));
        }
        let megabytes = match self.working_mem_size_mb {
            Some(queries) => queries,
            None if self.switches.quick => MEMORY_MB / 4.0,
            None => MEMORY_MB,
        };
        if !(0.0..1e12).contains(&megabytes) {
            let text = format!("--working-mem-size-mb={megabytes} is not a size in MiB");
            return Err(Failure::Usage(text));
        }
        Ok(Until::Bytes((megabytes * 1_048_576.0) as u64))
    }

    fn patterns(&self) -> Vec<Pattern> {
        let mut patterns = Pattern::all();
        patterns.retain(|pattern| !self.switches.quick || pattern.access == Access::Single);
        patterns
    }
}

/// Converts a number of millions.
fn millions(flag: &str, number: f64) -> Result<f64, Failure> {
    if number > 0.0 && number <= 1e9 {
        return Ok(number * 1e6);
    }
    Err(Failure::Usage(format!("{flag}={number} is out of range: it is in millions, and above 0")))
}

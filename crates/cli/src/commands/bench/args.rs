//! The flags of the bench, except those of its store.

use std::path::PathBuf;

use clap::Args;
use trommel_harness::Step;
use trommel_harness::units::{parse_bytes, parse_count, parse_decimal, parse_part, parse_percent};

use super::filters::FilterArgs;
use super::steps::StepParser;
use super::store::{BenchStoreArgs, StoreSwitches};
use crate::shared_args::{DataArgs, threads};

/// Defines boolean flags with an optional value, as in gflags.
macro_rules! switches {
    ($(#[$outer:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        #[derive(Debug, clap::Args)]
        $(#[$outer])*
        pub(crate) struct $name {
            $(
                $(#[$doc])*
                #[arg(long, num_args = 0..=1, require_equals = true)]
                #[arg(default_missing_value = "true", default_value = "false")]
                #[arg(value_name = "BOOL", hide_default_value = true)]
                #[arg(hide_possible_values = true)]
                #[arg(value_parser = clap::builder::BoolishValueParser::new())]
                pub(crate) $field: bool,
            )*
        }
    };
}
pub(crate) use switches;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[arg(
        long,
        help = "What to run, in order, separated by commas; NAME[X3] runs it three times, \
                NAME[W1-X3] once more before them",
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "fillrandom,waitforcompaction,levelstats,readrandom,readmissing,filterstats",
        value_parser = StepParser
    )]
    pub(crate) benchmarks: Vec<Step>,
    /// Keys, and writes of each thread [default: 1M, or the lines of --keys-file]
    #[arg(long, value_parser = parse_count)]
    pub(crate) num: Option<u64>,
    #[command(flatten)]
    pub(crate) counts: CountArgs,
    /// Threads of each benchmark; each does all of its operations
    #[arg(long, default_value = "1", value_parser = threads)]
    pub(crate) threads: usize,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    #[command(flatten)]
    pub(crate) switches: WorkSwitches,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
    #[command(flatten)]
    pub(crate) output: BenchOutputArgs,
    #[command(flatten)]
    pub(crate) store: BenchedStoreArgs,
}

/// What the bench writes besides its results.
#[derive(Debug, Args)]
pub(crate) struct BenchOutputArgs {
    #[command(flatten)]
    pub(crate) reports: BenchReportArgs,
    #[command(flatten)]
    pub(crate) switches: ReportSwitches,
}

/// The store of the bench, and its filters.
#[derive(Debug, Args)]
pub(crate) struct BenchedStoreArgs {
    #[command(flatten)]
    pub(crate) options: BenchStoreArgs,
    #[command(flatten)]
    pub(crate) filters: FilterArgs,
    #[command(flatten)]
    pub(crate) switches: StoreSwitches,
}

/// A number of operations, or -1 for the default from another flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) Option<u64>);

fn count(text: &str) -> Result<Count, String> {
    let is_negative = text.parse::<i64>().is_ok_and(|number| number < 0);
    if is_negative {
        return Ok(Count(None));
    }
    parse_count(text).map(|count| Count(Some(count))).map_err(|error| error.to_string())
}

#[derive(Debug, Args)]
pub(crate) struct CountArgs {
    /// Reads of each thread; -1: --num
    #[arg(long, value_name = "COUNT", default_value = "-1", value_parser = count)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) reads: Count,
    /// Writes of each thread; -1: --num
    #[arg(long, value_name = "COUNT", default_value = "-1", value_parser = count)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) writes: Count,
    /// Deletes of each thread; -1: --num
    #[arg(long, value_name = "COUNT", default_value = "-1", value_parser = count)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) deletes: Count,
}

#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    /// The fraction of its size that a value compresses to, 0 to 1
    #[arg(long, value_name = "RATIO", default_value = "0.5", value_parser = parse_part)]
    pub(crate) compression_ratio: f64,
    /// Operations in one write, and keys in one multireadrandom (there, 1 means 32)
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = threads)]
    pub(crate) batch_size: usize,
    /// Entries that seekrandom reads after each seek
    #[arg(long, value_name = "COUNT", default_value = "0", value_parser = parse_count)]
    pub(crate) seek_nexts: u64,
    /// Reads among a hundred operations of readrandomwriterandom
    #[arg(long, value_name = "PERCENT", default_value = "90")]
    #[arg(value_parser = percent)]
    pub(crate) readwritepercent: u64,
    /// Fraction of the gets of getthenput that look up keys of the fill: 0, 1/1000, 0.5
    #[arg(long, value_name = "PART", default_value = "1/1000", value_parser = parse_part)]
    pub(crate) get_then_put_hit_rate: f64,
}

/// An integer percentage, up to 100.
fn percent(text: &str) -> Result<u64, String> {
    match parse_percent(text) {
        Ok(percent) if percent <= 100.0 && percent.fract() == 0.0 => Ok(percent as u64),
        _ => Err("it must be a whole number of percent from 0 to 100, such as 90 or 90%".into()),
    }
}

/// The N of a sample of 1/N.
fn one_of(text: &str) -> Result<u64, String> {
    let number = text.strip_prefix("1/").and_then(|number| parse_count(number).ok());
    number
        .filter(|number| (1..=1 << 32).contains(number))
        .ok_or_else(|| "write it as 1/100, for one of a hundred, up to 1/4294967296".into())
}

switches! {
    /// How the work is done.
    WorkSwitches {
        /// Read backward after each seek of seekrandom
        reverse_iterator,
        /// Read only keys with the same prefix (of --prefix-size bytes) as the key that seekrandom
        /// seeks, so that tables without that prefix are skipped by their prefix filters
        prefix_same_as_start,
        /// The same with a prefix that no key has; --prefix-size must be more than 8
        seek_missing_prefix,
        /// Drop the store's files from the page cache, and reopen it, before each benchmark that
        /// reads
        cold,
        /// Print the latencies of single operations (reads the clock for each)
        histogram,
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Pace")]
pub(crate) struct PaceArgs {
    /// End each benchmark of random keys after this time, regardless of the counts; 0: use the
    /// counts
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_decimal)]
    pub(crate) duration: f64,
    /// Start this many operations a second, over all threads, whether or not the store keeps up;
    /// times count from the intended start of each. 0: each starts when the previous one has ended
    #[arg(long, value_name = "OPS", default_value = "0", value_parser = parse_count)]
    pub(crate) rate: u64,
    /// Like --rate, in bytes of keys and values, for benchmarks that only write, and for the
    /// background writer of the others; 0: none
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_bytes)]
    pub(crate) benchmark_write_rate_limit: u64,
    /// Like --rate, for benchmarks that only read; 0: none
    #[arg(long, value_name = "OPS", default_value = "0", value_parser = parse_count)]
    pub(crate) benchmark_read_rate_limit: u64,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Results")]
pub(crate) struct BenchReportArgs {
    /// Append a record of each benchmark to FILE, as a line of JSON; a file may hold many runs,
    /// each with its own ID. `trommel compare` and `trommel report` read them
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Record the lookups in FILE, which must not exist, for `trommel tune replay`; requires --db
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Record one lookup of N, each sampled independently
    #[arg(long, value_name = "1/N", default_value = "1/1", requires = "trace")]
    #[arg(value_parser = one_of)]
    pub(crate) trace_sample: u64,
    /// Record flushes, compactions, rebuilds of filters, syncs and stalls in FILE, which must not
    /// exist, for ui.perfetto.dev or Chrome
    #[arg(long, value_name = "FILE")]
    pub(crate) background_trace: Option<PathBuf>,
    /// Write the store's metrics to FILE each second, for `trommel top`, and time one operation of
    /// 64 for them
    #[arg(long, value_name = "FILE")]
    pub(crate) metrics: Option<PathBuf>,
}

switches! {
    /// What else is printed.
    ReportSwitches {
        /// Print all statistics of the store at the end
        statistics,
        /// For repeated runs, print only the 95% interval of their mean
        confidence_interval_only,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_whole() {
        assert_eq!([percent("0"), percent("90"), percent("90%")], [Ok(0), Ok(90), Ok(90)]);
        for text in ["", "101", "-1", "0.5", "90 percent"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_sample_is_one_of_so_many() {
        assert_eq!(
            [one_of("1/1"), one_of("1/100"), one_of("1/1M")],
            [Ok(1), Ok(100), Ok(1_000_000)]
        );
        for text in ["", "1", "100", "2/3", "1/0", "1/-1", "1/5G", "1/x"] {
            assert!(one_of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn negative_counts_are_left_to_others() {
        assert_eq!([count("-1"), count("5K")], [Ok(Count(None)), Ok(Count(Some(5000)))]);
        assert!(count("-x").is_err() && count("1.5.2").is_err());
    }
}

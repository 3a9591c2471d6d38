//! The command line.
//!
//! A flag may be written with dashes or, as db_bench has it, with underscores.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{BoolishValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use trommel::FilterPolicy;
use trommel_harness::Workload;
use trommel_harness::units::{ParseUnitError, parse_bytes, parse_count};

const ABOUT: &str = "An ordered key-value store whose every table probe is gated by a filter";

const LONG_ABOUT: &str = "\
Trommel is an embedded, ordered key-value store (a log-structured merge tree) whose every table \
probe is gated by a filter. This program runs it and says what its filters did.

Without a command it does `trommel demo`: it fills a store, reads keys that are there and keys that \
are not, once for each of three kinds of filter of the same size, and sets them side by side.";

const AFTER_HELP: &str = "\
Examples:
  trommel                                  compare three kinds of filter (under two minutes)
  trommel demo --quick                     the same, small (a few seconds)
  trommel bench --num=1M --benchmarks=fillrandom,waitforcompaction,readmissing,filterstats
  trommel help bench                       all benchmarks and their flags

Sizes:   64M, 64MB and 64MiB are all 64 x 1,048,576 bytes; counts such as 20M are decimal.
Filters: KIND:BITS (bits per key) or KIND:fpr=RATE; KIND is none, standard, blocked or paired.
         By level: L0=paired:20,L1-3=blocked:12.5,L4-=standard:10,last=none (the last match wins).
Exit:    0 done, 1 error, 2 wrong usage, 4 damaged file, 5 store open elsewhere,
         6 no store or one of a newer version, 130 interrupted.";

const BENCH_LONG_ABOUT: &str = "\
Runs benchmarks one after the other on one store, and prints a line for each in the form db_bench \
uses. Keys are 8-byte big-endian integers below --num, padded with '0' to --key-size. Missing keys \
are the same with one random byte appended: they lie between the others, so every level has to be \
asked. Draws are with replacement: fillrandom writes about 63% of the keys.

fillseq and fillrandom start from an empty store. All counts are those of all threads together; \
microseconds per operation are those of one thread.";

const BENCH_AFTER_HELP: &str = "\
Examples:
  trommel bench
      fill, settle and read a store of 1,000,000 keys in the temporary directory
  trommel bench --filters=blocked:10
      the same with another filter
  trommel bench --db=/data/bench --benchmarks=fillseq,compact --num=10M --value-size=400
  trommel bench --db=/data/bench --use-existing-db --benchmarks=readrandom --threads=4 --histogram
      fill once, then read several times; --num must be that of the fill
  trommel bench --keys-file=/usr/share/dict/words --benchmarks=fillrandom,readmissing,filterstats";

const DEMO_LONG_ABOUT: &str = "\
The scenario the store exists for, once for each of several filters: write keys drawn with \
replacement, wait until compaction is done, look up keys drawn the same way, then look up keys that \
are not there. Ends in one table: rates of false positives measured and expected, data blocks read \
per lookup, time and memory.

The trees are kept small for their data (write buffer 1/32 of it), so that a lookup meets several \
levels at any --num. All files are removed at the end.";

const DEMO_AFTER_HELP: &str = "\
Examples:
  trommel demo --quick
  trommel demo --filters paired:16 --filters standard:16 --missing 50M
  trommel demo --filters paired:12 --filters L0=paired:20,L1-=paired:11
  trommel demo --keys-file /usr/share/dict/words --dir /data";

/// Reads the command line.
#[derive(Debug, Parser)]
#[command(name = "trommel", version, about = ABOUT, long_about = LONG_ABOUT)]
#[command(after_help = AFTER_HELP, override_usage = "trommel [COMMAND]", max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare filters on a store that is filled, read, and asked for what it has not (the default)
    #[command(long_about = DEMO_LONG_ABOUT, after_help = DEMO_AFTER_HELP)]
    Demo(DemoArgs),
    /// Run benchmarks by name, with db_bench's flags and lines
    #[command(long_about = BENCH_LONG_ABOUT, after_help = BENCH_AFTER_HELP)]
    Bench(Box<BenchArgs>),
}

impl Cli {
    /// Reads arguments, program name first; ends the process on `--help` and wrong usage.
    pub(crate) fn read(arguments: impl Iterator<Item = OsString>) -> Self {
        Self::parse_from(normalised(arguments))
    }
}

/// The arguments with dashes for underscores in the names of flags, and the default command.
fn normalised(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut values_only = false;
    let mut all: Vec<OsString> = arguments
        .map(|argument| {
            values_only |= argument == "--";
            match argument.to_str().filter(|text| !values_only && text.starts_with("--")) {
                Some(text) => with_dashes(text).into(),
                None => argument,
            }
        })
        .collect();
    if all.len() <= 1 {
        all.resize(1, "trommel".into());
        all.push("demo".into());
    }
    all
}

fn with_dashes(flag: &str) -> String {
    match flag.split_once('=') {
        Some((name, value)) => format!("{}={value}", name.replace('_', "-")),
        None => flag.replace('_', "-"),
    }
}

/// Which keys and values, in both commands.
#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    /// Bytes of a key
    #[arg(long, value_name = "BYTES", default_value_t = 16, conflicts_with = "keys_file")]
    pub(crate) key_size: usize,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE", default_value = "100", value_parser = size)]
    pub(crate) value_size: usize,
    /// Take the keys from FILE, one a line (distinct, not empty), at most the first --num lines
    #[arg(long, value_name = "FILE")]
    pub(crate) keys_file: Option<PathBuf>,
    /// Decides everything that is drawn
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// How table blocks reach memory
    #[arg(long, value_name = "MODE", value_enum, default_value = "cached")]
    pub(crate) read_mode: ReadMode,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keys, and writes [default: 1M, or the lines of --keys-file]
    #[arg(long, value_parser = parse_count)]
    pub(crate) num: Option<u64>,
    /// Lookups of drawn keys [default: as many as writes]
    #[arg(long, value_parser = parse_count)]
    pub(crate) reads: Option<u64>,
    /// Lookups of missing keys [default: 20M]
    #[arg(long, value_parser = parse_count)]
    pub(crate) missing: Option<u64>,
    /// Be quick: 100K keys and 2M missing lookups, where not given otherwise
    #[arg(long)]
    pub(crate) quick: bool,
    /// Threads that look up; one thread writes
    #[arg(long, default_value = "2", value_parser = threads)]
    pub(crate) threads: usize,
    /// A filter to compare; give it several times
    #[arg(
        long,
        value_name = "SPEC",
        default_values = ["paired:23.4", "blocked:23.4", "standard:23.4"]
    )]
    pub(crate) filters: Vec<FilterPolicy>,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Bytes of the block cache [default: 1/16 of the data]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) cache_size: Option<u64>,
    /// Where to make the directory that holds the stores [default: the temporary directory]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to run, in order, separated by commas
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "fillrandom,waitforcompaction,levelstats,readrandom,readmissing,filterstats",
        value_parser = workload_parser()
    )]
    pub(crate) benchmarks: Vec<Workload>,
    /// Keys, and writes of each thread [default: 1M, or the lines of --keys-file]
    #[arg(long, value_parser = parse_count)]
    pub(crate) num: Option<u64>,
    /// Reads of each thread [default: --num]
    #[arg(long, value_parser = parse_count)]
    pub(crate) reads: Option<u64>,
    /// Threads of each benchmark
    #[arg(long, default_value = "1", value_parser = threads)]
    pub(crate) threads: usize,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Which part of its size a value is compressible to, 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 0.5)]
    pub(crate) compression_ratio: f64,
    /// Print how long single operations took (reads a clock for each)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", default_value = "false", hide_default_value = true)]
    #[arg(hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub(crate) histogram: bool,
    /// Operations in one write, and keys in one multireadrandom (there, 1 means 32)
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = threads)]
    pub(crate) batch_size: usize,
    /// Entries that seekrandom reads from where it is
    #[arg(long, value_name = "COUNT", default_value = "0", value_parser = parse_count)]
    pub(crate) seek_nexts: u64,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
}

/// The store of a bench.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Its directory, kept afterwards [default: one in the temporary directory, removed afterwards]
    #[arg(long, value_name = "DIR")]
    pub(crate) db: Option<PathBuf>,
    /// Work on the store that is in --db; fills are skipped
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", default_value = "false", hide_default_value = true)]
    #[arg(hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub(crate) use_existing_db: bool,
    /// Filters by level [default: the store's own]
    #[arg(long, value_name = "SPEC", alias = "filter-uri")]
    pub(crate) filters: Option<FilterPolicy>,
    /// Bytes of the block cache
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = parse_bytes)]
    pub(crate) cache_size: u64,
    /// Bytes of a memtable
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    pub(crate) write_buffer_size: usize,
    /// Bytes of the smallest level below level 0
    #[arg(long, value_name = "SIZE", alias = "max-bytes-for-level-base")]
    #[arg(default_value = "256M", value_parser = parse_bytes)]
    pub(crate) base_level_size: u64,
    /// Bytes of a table
    #[arg(long, value_name = "SIZE", alias = "target-file-size-base")]
    #[arg(default_value = "64M", value_parser = parse_bytes)]
    pub(crate) table_size: u64,
    /// Bytes of a table block
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = size)]
    pub(crate) block_size: usize,
    /// Compression of table blocks
    #[arg(long, value_name = "KIND", alias = "compression-type", value_enum)]
    #[arg(default_value = "none")]
    pub(crate) compression: Compression,
    /// Have every write on the device before it returns
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", default_value = "false", hide_default_value = true)]
    #[arg(hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub(crate) sync: bool,
    /// Write no log: what is in memory is lost if the process dies
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", default_value = "false", hide_default_value = true)]
    #[arg(hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub(crate) disable_wal: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ReadMode {
    /// pread and the block cache
    Cached,
    /// Read-only maps of the files
    Mapped,
    /// O_DIRECT and the block cache
    Direct,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Compression {
    None,
    Lz4,
}

/// Lists all workloads in help and in errors.
fn workload_parser() -> impl TypedValueParser<Value = Workload> {
    let names =
        Workload::all().map(|workload| PossibleValue::new(workload.name()).help(workload.about()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Workload>())
}

/// A size in memory.
fn size(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text).map_err(|error: ParseUnitError| error.to_string())?;
    usize::try_from(bytes).map_err(|_| format!("{bytes} bytes are more than memory can hold"))
}

/// A number from 1 to 65,536.
fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=65_536) => Ok(number),
        _ => Err("it must be a number from 1 to 65536".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn normal(line: &str) -> String {
        let arguments = line.split(' ').map(OsString::from);
        let normal: Vec<String> = normalised(arguments)
            .into_iter()
            .map(|argument| argument.into_string().unwrap())
            .collect();
        normal.join(" ")
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn underscores_in_flags_are_dashes() {
        assert_eq!(
            normal("trommel bench --key_size=16 --db /a_b --use_existing_db --db=c_d -- --x_y"),
            "trommel bench --key-size=16 --db /a_b --use-existing-db --db=c_d -- --x_y"
        );
        assert_eq!(normal("trommel"), "trommel demo");
    }

    #[test]
    fn command_lines_of_db_bench_are_understood() {
        let line = "trommel bench --benchmarks=fillseq,readrandom --num=1000 --key_size=20 \
                    --value_size=400 --threads=2 --use_existing_db=1 --cache_size=8388608 \
                    --histogram=true --compression_type=none --write_buffer_size=1048576 \
                    --max_bytes_for_level_base=4194304 --disable_wal=0 --batch_size=10";
        let cli = Cli::read(line.split_whitespace().map(OsString::from));
        let Command::Bench(args) = cli.command else { panic!("it is the bench") };
        assert_eq!(args.benchmarks, [Workload::FillSeq, Workload::ReadRandom]);
        assert_eq!((args.num, args.reads, args.threads), (Some(1000), None, 2));
        assert_eq!((args.data.key_size, args.data.value_size), (20, 400));
        assert!(args.store.use_existing_db && args.histogram && !args.store.disable_wal);
        assert_eq!((args.store.cache_size, args.store.base_level_size), (8 << 20, 4 << 20));
        assert_eq!((args.store.write_buffer_size, args.batch_size), (1 << 20, 10));
    }
}

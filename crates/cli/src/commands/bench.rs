//! `trommel bench`.

use std::io::Write;
use std::path::PathBuf;

use clap::builder::{BoolishValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use trommel::{Durability, FilterPolicy, Options};
use trommel_harness::bench::{Plan, bench};
use trommel_harness::units::{parse_bytes, parse_count};
use trommel_harness::{Control, EngineOpener, ScratchDir, Step, Values, Workload, units};

use crate::failure::Failure;
use crate::shared_args::{DataArgs, ReadMode, size, threads};

pub(crate) const LONG_ABOUT: &str = "\
Runs benchmarks one after the other on one store, and prints a line for each in the form db_bench \
uses. Keys are 8-byte big-endian integers below --num, padded with '0' to --key-size. Missing keys \
are the same with one random byte appended: they lie between the others, so every level has to be \
asked. Draws are with replacement: fillrandom writes about 63% of the keys.

fillseq and fillrandom start from an empty store. All counts are those of all threads together; \
microseconds per operation are those of one thread.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel bench
      fill, settle and read a store of 1,000,000 keys in the temporary directory
  trommel bench --filters=blocked:10
      the same with another filter
  trommel bench --db=/data/bench --benchmarks=fillseq,compact --num=10M --value-size=400
  trommel bench --db=/data/bench --use-existing-db --benchmarks=readrandom --threads=4 --histogram
      fill once, then read several times; --num must be that of the fill
  trommel bench --keys-file=/usr/share/dict/words --benchmarks=fillrandom,readmissing,filterstats";

/// Keys, if nothing says how many.
const DEFAULT_NUM: u64 = 1_000_000;

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

pub(crate) fn run(
    args: BenchArgs,
    control: Control<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let plan = plan(&args)?;
    let (options, settings) = options(&args.store, args.data.read_mode);
    match args.store.db {
        Some(dir) => {
            Ok(bench(&plan, &EngineOpener::new(dir, options, settings), control, out, None)?)
        }
        None if args.store.use_existing_db => Err(Failure::Usage(
            "--use-existing-db needs --db DIR, the directory of the store".into(),
        )),
        None => {
            let scratch = ScratchDir::new(&std::env::temp_dir())?;
            let opener = EngineOpener::new(scratch.path().join("db"), options, settings);
            let result = bench(&plan, &opener, control, out, None);
            let removed = scratch.remove();
            Ok(result.and(removed)?)
        }
    }
}

fn plan(args: &BenchArgs) -> Result<Plan, Failure> {
    let keys = args.data.keys(args.num, DEFAULT_NUM)?;
    if !(0.0..=1.0).contains(&args.compression_ratio) {
        return Err(Failure::Usage("--compression-ratio must be from 0 to 1".into()));
    }
    let num = args.num.unwrap_or(keys.len());
    let values = Values::new(args.data.value_size, args.compression_ratio, args.data.seed);
    Ok(Plan {
        steps: args.benchmarks.iter().copied().map(Step::from).collect(),
        compression_ratio: args.compression_ratio,
        writes: num,
        reads: args.reads.unwrap_or(num),
        both: args.reads.unwrap_or(num),
        threads: args.threads,
        seed: args.data.seed,
        batch: args.batch_size,
        seek_nexts: args.seek_nexts,
        latencies: args.histogram,
        existing: args.store.use_existing_db,
        ..Plan::new(keys, values)
    })
}

/// How the store is opened, and what the results say about that.
fn options(args: &StoreArgs, mode: ReadMode) -> (Options, Vec<(&'static str, String)>) {
    let filters = args.filters.clone().unwrap_or_default();
    let durability = if args.sync { Durability::Sync } else { Durability::Os };
    let compression = match args.compression {
        Compression::None => trommel::Compression::None,
        Compression::Lz4 => trommel::Compression::Lz4,
    };
    let bytes = units::bytes;
    let settings = vec![
        ("Filters", filters.to_string()),
        ("Read mode", format!("{mode:?}").to_lowercase()),
        ("Cache", bytes(args.cache_size)),
        (
            "Tree",
            format!(
                "write buffer {}, base level {}, tables {}, blocks {}",
                bytes(args.write_buffer_size as u64),
                bytes(args.base_level_size),
                bytes(args.table_size),
                bytes(args.block_size as u64)
            ),
        ),
        ("Compression", format!("{compression:?}").to_lowercase()),
        (
            "Log",
            match (args.disable_wal, args.sync) {
                (true, _) => "none".into(),
                (false, true) => "synced at each write".into(),
                (false, false) => "left to the operating system".into(),
            },
        ),
    ];
    let options = Options::default()
        .filters(filters)
        .read_mode(mode.into())
        .cache_bytes(args.cache_size)
        .write_buffer_bytes(args.write_buffer_size)
        .base_level_bytes(args.base_level_size)
        .table_bytes(args.table_size)
        .block_bytes(args.block_size)
        .compression(compression)
        .log(!args.disable_wal)
        .durability(durability);
    (options, settings)
}

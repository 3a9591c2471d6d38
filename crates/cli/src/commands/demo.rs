//! `trommel demo`, the default command.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use trommel::FilterPolicy;
use trommel_harness::demo::{DemoPlan, Tree, demo};
use trommel_harness::units::{parse_bytes, parse_count};
use trommel_harness::{Control, Values};

use crate::failure::Failure;
use crate::shared_args::{DataArgs, threads};

pub(crate) const LONG_ABOUT: &str = "\
Runs the store's core scenario once for each of several filters: it writes random keys (drawn with \
replacement), waits until compaction is done, looks up keys drawn the same way, and then looks up \
missing keys. It ends with one table: measured and expected false-positive rates, data blocks read \
per lookup, time and memory.

Write buffers are small for the data (1/32 of it), so that a lookup searches several levels at any \
--num. All files are removed at the end.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel demo --quick
  trommel demo --filters paired:16 --filters standard:16 --missing 50M
  trommel demo --filters paired:12 --filters L0=paired:20,L1-=paired:11
  trommel demo --keys-file /usr/share/dict/words --dir /data";

const NUM: u64 = 1_000_000;
const MISSING: u64 = 20_000_000;
const QUICK_NUM: u64 = 100_000;
const QUICK_MISSING: u64 = 2_000_000;
/// Compressed size of a value, as a fraction of its size; db_bench's default.
const COMPRESSION_RATIO: f64 = 0.5;

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keys, and writes [default: 1M, or the lines of --keys-file]
    #[arg(long, value_parser = parse_count)]
    pub(crate) num: Option<u64>,
    /// Lookups of random keys [default: as many as writes]
    #[arg(long, value_parser = parse_count)]
    pub(crate) reads: Option<u64>,
    /// Lookups of missing keys [default: 20M]
    #[arg(long, value_parser = parse_count)]
    pub(crate) missing: Option<u64>,
    /// Use 100K keys and 2M lookups of missing keys, unless other numbers are given
    #[arg(long)]
    pub(crate) quick: bool,
    /// Threads that look up keys; one thread writes
    #[arg(long, default_value = "2", value_parser = threads)]
    pub(crate) threads: usize,
    /// A filter to compare; may be given several times
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

pub(crate) fn run(
    args: DemoArgs,
    control: Control<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (num, missing) = if args.quick { (QUICK_NUM, QUICK_MISSING) } else { (NUM, MISSING) };
    let limit = args.num.or(args.quick.then_some(QUICK_NUM));
    let keys = args.data.keys(limit, num)?;
    let writes = args.num.unwrap_or(keys.len());
    let seed = args.data.seed();
    let values = Values::new(args.data.value_size, COMPRESSION_RATIO, seed);
    let mut tree = Tree::for_data(&keys, &values, writes);
    tree.read_mode = args.data.read_mode;
    tree.cache_bytes = args.cache_size.unwrap_or(tree.cache_bytes);
    let plan = DemoPlan {
        policies: args.filters,
        keys,
        keys_file: args.data.keys_file,
        values,
        writes,
        reads: args.reads.unwrap_or(writes),
        missing: args.missing.unwrap_or(missing),
        threads: args.threads,
        seed,
        parent: args.dir.unwrap_or_else(std::env::temp_dir),
        tree,
    };
    Ok(demo(&plan, control, out)?)
}

//! `trommel demo`, the main job.

use std::io::Write;

use trommel_harness::demo::{Plan, Tree, demo};
use trommel_harness::{Control, Error, Values};

use crate::args::DemoArgs;
use crate::bench::{keys, read_mode};

const NUM: u64 = 1_000_000;
const MISSING: u64 = 20_000_000;
const QUICK_NUM: u64 = 100_000;
const QUICK_MISSING: u64 = 2_000_000;
/// What share of a value is left when it is compressed, as db_bench has it.
const COMPRESSION_RATIO: f64 = 0.5;

pub(crate) fn run(args: DemoArgs, control: Control<'_>, out: &mut dyn Write) -> Result<(), Error> {
    let (num, missing) = if args.quick { (QUICK_NUM, QUICK_MISSING) } else { (NUM, MISSING) };
    let limit = args.num.or(args.quick.then_some(QUICK_NUM));
    let keys = keys(&args.data, limit, num)?;
    let writes = args.num.unwrap_or(keys.len());
    let values = Values::new(args.data.value_size, COMPRESSION_RATIO, args.data.seed);
    let mut tree = Tree::for_data(&keys, &values, writes);
    tree.read_mode = read_mode(args.data.read_mode);
    tree.cache_bytes = args.cache_size.unwrap_or(tree.cache_bytes);
    let plan = Plan {
        policies: args.filters,
        keys,
        keys_file: args.data.keys_file,
        values,
        writes,
        reads: args.reads.unwrap_or(writes),
        missing: args.missing.unwrap_or(missing),
        threads: args.threads,
        seed: args.data.seed,
        parent: args.dir.unwrap_or_else(std::env::temp_dir),
        tree,
    };
    demo(&plan, control, out)
}

//! `trommel bench`.

use std::io::Write;

use trommel::{Compression, Durability, Options, ReadMode};
use trommel_harness::bench::{Plan, bench};
use trommel_harness::{Control, EngineOpener, Error, KeySpace, ScratchDir, Values, units};

use crate::args::{self, BenchArgs, DataArgs, StoreArgs};

/// Keys, if nothing says how many.
const DEFAULT_NUM: u64 = 1_000_000;

pub(crate) fn run(args: BenchArgs, control: Control<'_>, out: &mut dyn Write) -> Result<(), Error> {
    let plan = plan(&args)?;
    let (options, settings) = options(&args.store, args.data.read_mode);
    match args.store.db {
        Some(dir) => bench(&plan, &EngineOpener::new(dir, options, settings), control, out),
        None if args.store.use_existing_db => {
            Err(Error::Usage("--use-existing-db needs --db DIR, the directory of the store".into()))
        }
        None => {
            let scratch = ScratchDir::new(&std::env::temp_dir())?;
            let opener = EngineOpener::new(scratch.path().join("db"), options, settings);
            let result = bench(&plan, &opener, control, out);
            let removed = scratch.remove();
            result.and(removed)
        }
    }
}

/// The keys that a command works on; `num` of them, or `default` where no file decides.
pub(crate) fn keys(data: &DataArgs, num: Option<u64>, default: u64) -> Result<KeySpace, Error> {
    match &data.keys_file {
        Some(file) => KeySpace::read_lines(file, num),
        None => KeySpace::integers(num.unwrap_or(default), data.key_size),
    }
}

pub(crate) fn read_mode(mode: args::ReadMode) -> ReadMode {
    match mode {
        args::ReadMode::Cached => ReadMode::Cached,
        args::ReadMode::Mapped => ReadMode::Mapped,
        args::ReadMode::Direct => ReadMode::Direct,
    }
}

fn plan(args: &BenchArgs) -> Result<Plan, Error> {
    let keys = keys(&args.data, args.num, DEFAULT_NUM)?;
    if !(0.0..=1.0).contains(&args.compression_ratio) {
        return Err(Error::Usage("--compression-ratio must be from 0 to 1".into()));
    }
    let num = args.num.unwrap_or(keys.len());
    Ok(Plan {
        workloads: args.benchmarks.clone(),
        values: Values::new(args.data.value_size, args.compression_ratio, args.data.seed),
        keys,
        compression_ratio: args.compression_ratio,
        writes: num,
        reads: args.reads.unwrap_or(num),
        threads: args.threads,
        seed: args.data.seed,
        batch: args.batch_size,
        seek_nexts: args.seek_nexts,
        latencies: args.histogram,
        existing: args.store.use_existing_db,
    })
}

/// How the store is opened, and what the results say about that.
fn options(args: &StoreArgs, mode: args::ReadMode) -> (Options, Vec<(&'static str, String)>) {
    let filters = args.filters.clone().unwrap_or_default();
    let durability = if args.sync { Durability::Sync } else { Durability::Os };
    let compression = match args.compression {
        args::Compression::None => Compression::None,
        args::Compression::Lz4 => Compression::Lz4,
    };
    let bytes = units::bytes;
    let settings = vec![
        ("Filters", filters.to_string()),
        ("Read mode", format!("{:?}", read_mode(mode)).to_lowercase()),
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
        .read_mode(read_mode(mode))
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

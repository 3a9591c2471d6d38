//! The store of a bench: its flags, and what they come to.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use trommel::{Durability, FilterPolicy, Options, Prefix};
use trommel_harness::units::{self, parse_bytes, parse_decimal};

use super::args::switches;
use super::cuts::Cuts;
use crate::failure::Failure;
use crate::shared_args::{ReadMode, signed, size, threads, whole, whole_in};

/// Open files, where there is to be no limit but the system's.
const MANY_FILES: usize = 1 << 20;

/// The store of a bench.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Its directory, kept afterwards [default: one in the temporary directory, removed afterwards]
    #[arg(long, value_name = "DIR")]
    pub(crate) db: Option<PathBuf>,
    /// Bytes of the block cache
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = parse_bytes)]
    pub(crate) cache_size: u64,
    /// Bytes of a memtable
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    pub(crate) write_buffer_size: usize,
    /// Memtables at most, the one that is written to among them
    #[arg(long, value_name = "COUNT", default_value = "2")]
    #[arg(value_parser = whole_in(2..=65_u16))]
    pub(crate) max_write_buffer_number: u16,
    /// Bytes of the smallest level below level 0
    #[arg(long, value_name = "SIZE", alias = "max-bytes-for-level-base")]
    #[arg(default_value = "256M", value_parser = parse_bytes)]
    pub(crate) base_level_size: u64,
    /// How many times larger each level is than the one above
    #[arg(long, value_name = "RATIO", default_value = "10", value_parser = ratio)]
    pub(crate) max_bytes_for_level_multiplier: u32,
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
    /// Tables of level 0 that start a compaction
    #[arg(long, value_name = "COUNT", default_value = "4", value_parser = whole::<usize>)]
    pub(crate) level0_file_num_compaction_trigger: usize,
    /// Tables of level 0 from which writers are slowed
    #[arg(long, value_name = "COUNT", default_value = "20", value_parser = whole::<usize>)]
    pub(crate) level0_slowdown_writes_trigger: usize,
    /// Tables of level 0 at which writers wait
    #[arg(long, value_name = "COUNT", default_value = "36", value_parser = whole::<usize>)]
    pub(crate) level0_stop_writes_trigger: usize,
    /// Bytes of compaction that is due at which writers wait
    #[arg(long, value_name = "SIZE", default_value = "256G", value_parser = parse_bytes)]
    pub(crate) hard_pending_compaction_bytes_limit: u64,
    /// Threads that write out memtables and compact
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = threads)]
    pub(crate) max_background_jobs: usize,
    /// Bytes a second that these write at most; 0: no limit
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_bytes)]
    pub(crate) rate_limiter_bytes_per_sec: u64,
    /// Bytes of a key that are its prefix: tables get filters of prefixes; 0: none
    #[arg(long, value_name = "COUNT", default_value = "0", value_parser = whole::<u16>)]
    pub(crate) prefix_size: u16,
    /// Build filters of whole keys beside those of prefixes; false: these alone, which lookups ask then
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL", default_value = "true")]
    #[arg(hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub(crate) whole_key_filtering: bool,
    /// Open table files at most; -1: as many as the system allows
    #[arg(long, value_name = "COUNT", default_value = "-1", allow_negative_numbers = true)]
    #[arg(value_parser = signed)]
    pub(crate) open_files: i64,
    /// With the next one, --max-background-jobs as db_bench once had it
    #[arg(long, hide = true, value_parser = whole::<usize>)]
    max_background_compactions: Option<usize>,
    #[arg(long, hide = true, value_parser = whole::<usize>)]
    max_background_flushes: Option<usize>,
    /// The level from which blocks are compressed: all are alike here
    #[arg(long, hide = true, default_value = "-1", allow_negative_numbers = true)]
    #[arg(value_parser = signed)]
    min_level_to_compress: i64,
    /// The directory of the log: it is that of the store
    #[arg(long, hide = true)]
    wal_dir: Option<PathBuf>,
}

switches! {
    /// How the store is used.
    #[command(next_help_heading = "Store")]
    StoreSwitches {
        /// Work on the store that is in --db; fills are skipped
        use_existing_db,
        /// Build no filters for the deepest level
        optimize_filters_for_hits,
        /// Pad blocks that are not compressed to the end of a page of 4 KiB
        block_align,
        /// Read through maps of the files, as --read-mode=mapped
        mmap_read,
        /// Read past the page cache, as --read-mode=direct
        use_direct_reads,
        /// Let no compaction start by itself; the benchmark compact does
        disable_auto_compactions,
        /// Have every write on the device before it returns
        sync,
        /// Write no log: what is in memory is lost if the process dies
        disable_wal,
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Compression {
    None,
    Lz4,
}

impl ValueEnum for Compression {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::None, Self::Lz4]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()))
    }
}

impl Compression {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
        }
    }
}

/// How the store is opened, and what results say about that.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) options: Options,
    /// For people.
    pub(crate) lines: Vec<(&'static str, String)>,
    /// Every setting, for programs.
    pub(crate) settings: Vec<(&'static str, Value)>,
}

/// What the flags of the store come to.
pub(crate) fn set_up(
    args: &StoreArgs,
    switches: &StoreSwitches,
    filters: &FilterPolicy,
    cuts: &Cuts,
    mode: ReadMode,
) -> Result<Setup, Failure> {
    check(args)?;
    let mode = trommel::ReadMode::from(read_mode(switches, mode)?);
    let durability = if switches.sync { Durability::Sync } else { Durability::Os };
    let compression = match args.compression {
        Compression::None => trommel::Compression::None,
        Compression::Lz4 => trommel::Compression::Lz4,
    };
    let limit = args.rate_limiter_bytes_per_sec;
    let options = Options::default()
        .filters(filters.clone())
        .filters_on_last_level(!switches.optimize_filters_for_hits)
        .read_mode(mode)
        .cache_bytes(args.cache_size)
        .write_buffer_bytes(args.write_buffer_size)
        .max_frozen_memtables(usize::from(args.max_write_buffer_number) - 1)
        .base_level_bytes(args.base_level_size)
        .level_ratio(args.max_bytes_for_level_multiplier)
        .table_bytes(args.table_size)
        .block_bytes(args.block_size)
        .block_align(switches.block_align)
        .compression(compression)
        .l0_trigger(args.level0_file_num_compaction_trigger)
        .l0_slowdown(args.level0_slowdown_writes_trigger)
        .l0_stop(args.level0_stop_writes_trigger)
        .debt_stop_bytes(args.hard_pending_compaction_bytes_limit)
        .background_threads(args.jobs())
        .background_bytes_per_second((limit > 0).then_some(limit))
        .max_open_files(usize::try_from(args.open_files).unwrap_or(MANY_FILES))
        .auto_compaction(!switches.disable_auto_compactions)
        .log(!switches.disable_wal)
        .durability(durability)
        .whole_key_filters(args.whole_key_filtering)
        .prefix_extractor((args.prefix_size > 0).then(|| Prefix::fixed(args.prefix_size.into())));
    let lines = lines(args, switches, filters, cuts, mode);
    Ok(Setup {
        options: cuts.apply(options),
        lines,
        settings: settings(args, switches, filters, cuts, mode),
    })
}

/// How many times larger each level is; RocksDB takes fractions, too.
fn ratio(text: &str) -> Result<u32, String> {
    let is_fraction = parse_decimal(text).is_ok_and(|ratio| ratio.fract() != 0.0);
    whole(text).map_err(|error| match is_fraction {
        true => format!("the ratio of levels is a whole number here: not {text}, but 8 or 10"),
        false => error,
    })
}

fn check(args: &StoreArgs) -> Result<(), Failure> {
    if !matches!(args.compression, Compression::None) && args.min_level_to_compress > 0 {
        return Err(Failure::Usage(format!(
            "--min_level_to_compress={} cannot be done: all levels are compressed alike",
            args.min_level_to_compress
        )));
    }
    if !args.whole_key_filtering && args.prefix_size == 0 {
        return Err(Failure::Usage(
            "--whole_key_filtering=false leaves filters of prefixes alone, and there are none: give \
             --prefix_size too, as in --prefix_size=8"
                .into(),
        ));
    }
    if args.wal_dir.is_some() && args.wal_dir != args.db {
        return Err(Failure::Usage(
            "--wal_dir cannot be done: the log lies in the directory of the store".into(),
        ));
    }
    Ok(())
}

fn read_mode(switches: &StoreSwitches, mode: ReadMode) -> Result<ReadMode, Failure> {
    match (switches.mmap_read, switches.use_direct_reads) {
        (true, true) => Err(Failure::Usage(
            "--mmap-read and --use-direct-reads cannot both be: a file is read in one way".into(),
        )),
        (true, false) => Ok(ReadMode::Mapped),
        (false, true) => Ok(ReadMode::Direct),
        (false, false) => Ok(mode),
    }
}

impl StoreArgs {
    fn jobs(&self) -> usize {
        match (self.max_background_compactions, self.max_background_flushes) {
            (None, None) => self.max_background_jobs,
            (compactions, flushes) => {
                let jobs = compactions.unwrap_or(1).saturating_add(flushes.unwrap_or(1));
                jobs.clamp(1, 1024)
            }
        }
    }
}

fn lines(
    args: &StoreArgs,
    switches: &StoreSwitches,
    filters: &FilterPolicy,
    cuts: &Cuts,
    mode: trommel::ReadMode,
) -> Vec<(&'static str, String)> {
    let bytes = units::bytes;
    let mut lines = vec![
        (
            "Filters",
            match switches.optimize_filters_for_hits {
                true => format!("{filters}, and none on the last level{}", cuts.line()),
                false => format!("{filters}{}", cuts.line()),
            },
        ),
        ("Read mode", mode.to_string()),
        ("Cache", bytes(args.cache_size)),
        (
            "Tree",
            format!(
                "{} write buffers of {}, base level {}, ratio {}, tables {}, blocks {}{}",
                args.max_write_buffer_number,
                bytes(args.write_buffer_size as u64),
                bytes(args.base_level_size),
                args.max_bytes_for_level_multiplier,
                bytes(args.table_size),
                bytes(args.block_size as u64),
                if switches.block_align { " in pages of their own" } else { "" }
            ),
        ),
        (
            "Level 0",
            format!(
                "compacted from {} tables, writers slowed from {}, stopped at {}",
                args.level0_file_num_compaction_trigger,
                args.level0_slowdown_writes_trigger,
                args.level0_stop_writes_trigger
            ),
        ),
        ("Background", format!("{} threads", args.jobs())),
        ("Compression", args.compression.name().into()),
        (
            "Log",
            match (switches.disable_wal, switches.sync) {
                (true, _) => "none".into(),
                (false, true) => "synced at each write".into(),
                (false, false) => "left to the operating system".into(),
            },
        ),
    ];
    if args.prefix_size > 0 {
        let alone = if args.whole_key_filtering { "" } else { ", and no filters of whole keys" };
        lines.push(("Prefixes", format!("the first {} bytes{alone}", args.prefix_size)));
    }
    if switches.disable_auto_compactions {
        lines.push(("Compaction", "only on request".into()));
    }
    lines
}

fn settings(
    args: &StoreArgs,
    switches: &StoreSwitches,
    filters: &FilterPolicy,
    cuts: &Cuts,
    mode: trommel::ReadMode,
) -> Vec<(&'static str, Value)> {
    let mut settings = vec![
        ("filters", json!(filters.to_string())),
        ("optimize_filters_for_hits", json!(switches.optimize_filters_for_hits)),
        ("read_mode", json!(mode.to_string())),
        ("cache_size", json!(args.cache_size)),
        ("write_buffer_size", json!(args.write_buffer_size)),
        ("max_write_buffer_number", json!(args.max_write_buffer_number)),
        ("base_level_size", json!(args.base_level_size)),
        ("max_bytes_for_level_multiplier", json!(args.max_bytes_for_level_multiplier)),
        ("table_size", json!(args.table_size)),
        ("block_size", json!(args.block_size)),
        ("block_align", json!(switches.block_align)),
        ("compression", json!(args.compression.name())),
        ("level0_file_num_compaction_trigger", json!(args.level0_file_num_compaction_trigger)),
        ("level0_slowdown_writes_trigger", json!(args.level0_slowdown_writes_trigger)),
        ("level0_stop_writes_trigger", json!(args.level0_stop_writes_trigger)),
        ("hard_pending_compaction_bytes_limit", json!(args.hard_pending_compaction_bytes_limit)),
        ("max_background_jobs", json!(args.jobs())),
        ("rate_limiter_bytes_per_sec", json!(args.rate_limiter_bytes_per_sec)),
        ("open_files", json!(args.open_files)),
        ("prefix_size", json!(args.prefix_size)),
        ("whole_key_filtering", json!(args.whole_key_filtering)),
        ("disable_auto_compactions", json!(switches.disable_auto_compactions)),
        ("sync", json!(switches.sync)),
        ("disable_wal", json!(switches.disable_wal)),
        ("use_existing_db", json!(switches.use_existing_db)),
    ];
    settings.extend(cuts.settings());
    settings
}

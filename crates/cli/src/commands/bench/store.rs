//! The store of a bench: its flags, and their effect.

use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;
use serde_json::{Value, json};
use trommel::{Compression, Durability, FilterPolicy, Options, ReadMode, Verify};
use trommel_harness::Workload;
use trommel_harness::units::{self, parse_bytes, parse_decimal};

use super::args::switches;
use super::partitions::Partitions;
use crate::commands::base::{Base, number, setting};
use crate::failure::Failure;
use crate::shared_args::{one_of, signed, size, whole, whole_in};

/// A number of open files above any limit of the system.
const MANY_FILES: usize = 1 << 20;

/// The store of a bench.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct BenchStoreArgs {
    /// Its directory, kept afterwards [default: one in the temporary directory, removed afterwards]
    #[arg(long, value_name = "DIR")]
    pub(crate) db: Option<PathBuf>,
    /// Bytes of the block cache
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = parse_bytes)]
    pub(crate) cache_size: u64,
    /// Bytes of a memtable [default: 64M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) write_buffer_size: Option<usize>,
    /// Memtables at most, the one that is written to among them
    #[arg(long, value_name = "COUNT", default_value = "2")]
    #[arg(value_parser = whole_in(2..=65_u16))]
    pub(crate) max_write_buffer_number: u16,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    #[command(flatten)]
    pub(crate) triggers: TriggerArgs,
    /// Threads that write out memtables and compact; 0: writers do it themselves, so that with one
    /// thread the same seed makes the same tables
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = whole_in(0..=65_536_usize))]
    pub(crate) max_background_jobs: usize,
    /// Bytes a second that these write at most; 0: no limit
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_bytes)]
    pub(crate) rate_limiter_bytes_per_sec: u64,
    #[command(flatten)]
    pub(crate) prefixes: PrefixArgs,
    /// Build no filters for the deepest level [default: false]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL")]
    #[arg(hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub(crate) optimize_filters_for_hits: Option<bool>,
    /// Pad blocks that are not compressed to the end of a page of 4 KiB [default: false]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL")]
    #[arg(hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub(crate) block_align: Option<bool>,
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

/// The sizes of levels, tables and blocks.
#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    /// Bytes of the smallest level below level 0 [default: 256M]
    #[arg(long, value_name = "SIZE", alias = "max-bytes-for-level-base")]
    #[arg(value_parser = parse_bytes)]
    pub(crate) base_level_size: Option<u64>,
    /// How many times larger each level is than the one above [default: 10]
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    pub(crate) max_bytes_for_level_multiplier: Option<u32>,
    /// Bytes of a table [default: 64M]
    #[arg(long, value_name = "SIZE", alias = "target-file-size-base")]
    #[arg(value_parser = parse_bytes)]
    pub(crate) table_size: Option<u64>,
    /// Bytes of a table block [default: 4K]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) block_size: Option<usize>,
    /// Compression of table blocks [default: none]
    #[arg(long, value_name = "KIND", alias = "compression-type")]
    #[arg(value_parser = one_of::<Compression>(["none", "lz4"]))]
    pub(crate) compression: Option<Compression>,
}

/// When compactions start, and when writers are slowed or stopped.
#[derive(Debug, Args)]
pub(crate) struct TriggerArgs {
    /// Tables of level 0 that start a compaction [default: 4]
    #[arg(long, value_name = "COUNT", value_parser = whole::<usize>)]
    pub(crate) level0_file_num_compaction_trigger: Option<usize>,
    /// Tables of level 0 above which writers are slowed [default: 20]
    #[arg(long, value_name = "COUNT", value_parser = whole::<usize>)]
    pub(crate) level0_slowdown_writes_trigger: Option<usize>,
    /// Tables of level 0 at which writers wait [default: 36]
    #[arg(long, value_name = "COUNT", value_parser = whole::<usize>)]
    pub(crate) level0_stop_writes_trigger: Option<usize>,
    /// Bytes of compaction that is due at which writers wait [default: 256G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) hard_pending_compaction_bytes_limit: Option<u64>,
}

/// Filters of prefixes.
#[derive(Debug, Args)]
pub(crate) struct PrefixArgs {
    /// Bytes of a key that are its prefix: tables get filters of prefixes; 0: none [default: 0]
    #[arg(long, value_name = "COUNT", value_parser = whole::<u16>)]
    pub(crate) prefix_size: Option<u16>,
    /// Build filters of whole keys beside those of prefixes; false: these alone, which lookups ask
    /// then [default: true]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_name = "BOOL")]
    #[arg(hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub(crate) whole_key_filtering: Option<bool>,
}

switches! {
    /// How the store is used.
    #[command(next_help_heading = "Store")]
    StoreSwitches {
        /// Work on the store that is in --db, as it is where no flag says otherwise; fills are
        /// skipped. Where only reads are measured it is opened read-only, and no compaction starts
        use_existing_db,
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

/// The options of the store, and their description in results.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) options: Options,
    /// For people.
    pub(crate) lines: Vec<(&'static str, String)>,
    /// Every setting, for programs.
    pub(crate) settings: Vec<(&'static str, Value)>,
    /// Where the flags differ from the existing store.
    pub(crate) notes: Vec<String>,
}

/// The use of an existing store by a bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Only reads: the store is opened read-only.
    Reads,
    /// Flushes or compacts, without any operation that starts compactions.
    Maintains,
    /// Writes.
    Writes,
}

impl Use {
    /// The use by these workloads; fills are skipped.
    pub(crate) fn of(workloads: impl Iterator<Item = Workload> + Clone) -> Self {
        let mut done = workloads.filter(|workload| !workload.wants_fresh_store());
        match () {
            () if done.clone().all(Workload::only_reads) => Self::Reads,
            () if done.any(Workload::needs_compaction) => Self::Writes,
            () => Self::Maintains,
        }
    }
}

/// Resolves the flags of the store; an existing store is used as it is, except for explicit flags.
pub(crate) fn set_up(
    args: &BenchStoreArgs,
    switches: &StoreSwitches,
    filters: Option<&FilterPolicy>,
    partitions: &Partitions,
    mode: ReadMode,
    purpose: Use,
) -> Result<Setup, Failure> {
    check(args)?;
    let mode = read_mode(switches, mode)?;
    let existing = args.db.as_ref().filter(|_| switches.use_existing_db);
    let base = existing.map(|dir| Base::of(dir, &of_a_new_store()));
    let options = base.as_ref().map_or_else(of_a_new_store, |base| base.options.clone());
    let options = partitions.apply(given(args, filters, options)?);
    check_prefixes(args, &options)?;
    let notes = base.map_or_else(Vec::new, |base| match purpose {
        Use::Reads => base.notes_of_a_reader(&options),
        _ => base.notes(&options),
    });
    let compacts =
        !switches.disable_auto_compactions && (existing.is_none() || purpose == Use::Writes);
    let limit = args.rate_limiter_bytes_per_sec;
    let options = options
        .opening(|o| o.read_only(existing.is_some() && purpose == Use::Reads))
        .reads(|r| {
            r.read_mode(mode)
                .cache_bytes(args.cache_size)
                .max_open_files(usize::try_from(args.open_files).unwrap_or(MANY_FILES))
        })
        .writes(|w| {
            w.max_frozen_memtables(usize::from(args.max_write_buffer_number) - 1)
                .log(!switches.disable_wal)
        })
        .background_threads(args.jobs())
        .compaction(|c| {
            c.background_bytes_per_second((limit > 0).then_some(limit)).auto_compaction(compacts)
        })
        .durability(if switches.sync { Durability::Sync } else { Durability::Os });
    Ok(Setup {
        lines: lines(args, switches, &options, partitions),
        settings: settings(args, switches, &options, partitions),
        options,
        notes,
    })
}

/// Rejects a store without any filters if only filters of prefixes were requested.
fn check_prefixes(args: &BenchStoreArgs, options: &Options) -> Result<(), Failure> {
    if args.prefixes.whole_key_filtering == Some(false) && prefix_bytes(options) == 0 {
        return Err(Failure::Usage(
            "--whole_key_filtering=false leaves filters of prefixes alone, and there are none: give \
             --prefix_size too, as in --prefix_size=8"
                .into(),
        ));
    }
    Ok(())
}

/// The size ratio of levels; RocksDB also accepts fractions.
fn ratio(text: &str) -> Result<u32, String> {
    let is_fraction = parse_decimal(text).is_ok_and(|ratio| ratio.fract() != 0.0);
    whole(text).map_err(|error| match is_fraction {
        true => format!("the ratio of levels is a whole number here: not {text}, but 8 or 10"),
        false => error,
    })
}

/// The shape of a new store: the defaults, except where db_bench has others.
fn of_a_new_store() -> Options {
    Options::default()
        .compression(Compression::None)
        .compaction(|c| c.l0_slowdown(20).l0_stop(36).debt_stop_bytes(256 << 30))
}

/// `options` with the explicit flags that shape a store.
fn given(
    args: &BenchStoreArgs,
    filters: Option<&FilterPolicy>,
    mut options: Options,
) -> Result<Options, Failure> {
    fn text(value: Option<impl ToString>) -> Option<String> {
        value.map(|value| value.to_string())
    }
    let prefix = args.prefixes.prefix_size.map(|bytes| match bytes {
        0 => "none".to_owned(),
        bytes => format!("fixed:{bytes}"),
    });
    let given = [
        ("filters", text(filters)),
        ("filters_on_last_level", text(args.optimize_filters_for_hits.map(|only_hits| !only_hits))),
        ("write_buffer_bytes", text(args.write_buffer_size)),
        ("base_level_bytes", text(args.tree.base_level_size)),
        ("level_ratio", text(args.tree.max_bytes_for_level_multiplier)),
        ("table_bytes", text(args.tree.table_size)),
        ("block_bytes", text(args.tree.block_size)),
        ("block_align", text(args.block_align)),
        ("compression", text(args.tree.compression)),
        ("l0_trigger", text(args.triggers.level0_file_num_compaction_trigger)),
        ("l0_slowdown", text(args.triggers.level0_slowdown_writes_trigger)),
        ("l0_stop", text(args.triggers.level0_stop_writes_trigger)),
        ("debt_stop_bytes", text(args.triggers.hard_pending_compaction_bytes_limit)),
        ("whole_key_filters", text(args.prefixes.whole_key_filtering)),
        ("prefix_extractor", prefix),
    ];
    for (name, text) in given {
        if let Some(text) = text {
            options = options.set(name, &text)?;
        }
    }
    Ok(options)
}

fn check(args: &BenchStoreArgs) -> Result<(), Failure> {
    let compresses = !matches!(args.tree.compression, None | Some(Compression::None));
    if compresses && args.min_level_to_compress > 0 {
        return Err(Failure::Usage(format!(
            "--min_level_to_compress={} cannot be done: all levels are compressed alike",
            args.min_level_to_compress
        )));
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
        (true, false) => Ok(ReadMode::Mapped(Verify::EachUse)),
        (false, true) => Ok(ReadMode::Direct),
        (false, false) => Ok(mode),
    }
}

impl BenchStoreArgs {
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
    args: &BenchStoreArgs,
    switches: &StoreSwitches,
    options: &Options,
    partitions: &Partitions,
) -> Vec<(&'static str, String)> {
    let text = |name| setting(options, name).unwrap_or_default();
    let bytes = |name| units::bytes(number(options, name));
    let (filters, shape) = (text("filters"), partitions.line(options));
    let mut lines = vec![
        (
            "Filters",
            match &*text("filters_on_last_level") {
                "false" => format!("{filters}, and none on the last level{shape}"),
                _ => format!("{filters}{shape}"),
            },
        ),
        ("Read mode", text("read_mode")),
        ("Cache", units::bytes(args.cache_size)),
        (
            "Tree",
            format!(
                "{} write buffers of {}, base level {}, ratio {}, tables {}, blocks {}{}",
                args.max_write_buffer_number,
                bytes("write_buffer_bytes"),
                bytes("base_level_bytes"),
                text("level_ratio"),
                bytes("table_bytes"),
                bytes("block_bytes"),
                if text("block_align") == "true" { " in pages of their own" } else { "" }
            ),
        ),
        (
            "Level 0",
            format!(
                "compacted from {} tables, writers slowed from {}, stopped at {}",
                text("l0_trigger"),
                text("l0_slowdown"),
                text("l0_stop")
            ),
        ),
        ("Background", format!("{} threads", args.jobs())),
        ("Compression", text("compression")),
        (
            "Log",
            match (switches.disable_wal, switches.sync) {
                (true, _) => "none".into(),
                (false, true) => "synced at each write".into(),
                (false, false) => "left to the operating system".into(),
            },
        ),
    ];
    match prefix_bytes(options) {
        0 => {}
        bytes => {
            let alone = match text("whole_key_filters") == "true" {
                true => "",
                false => ", and no filters of whole keys",
            };
            lines.push(("Prefixes", format!("the first {bytes} bytes{alone}")));
        }
    }
    match (text("read_only") == "true", text("auto_compaction") == "true") {
        (true, _) => lines.push(("Compaction", "none: the store is only read".into())),
        (false, false) => lines.push(("Compaction", "only on request".into())),
        (false, true) => {}
    }
    lines
}

/// Bytes of a prefix, if prefixes are the first bytes of keys.
fn prefix_bytes(options: &Options) -> u64 {
    let prefix = setting(options, "prefix_extractor").unwrap_or_default();
    prefix.strip_prefix("fixed:").and_then(|bytes| bytes.parse().ok()).unwrap_or_default()
}

fn settings(
    args: &BenchStoreArgs,
    switches: &StoreSwitches,
    options: &Options,
    partitions: &Partitions,
) -> Vec<(&'static str, Value)> {
    let text = |name| json!(setting(options, name).unwrap_or_default());
    let number = |name| json!(number(options, name));
    let is = |name, value: &str| json!(setting(options, name).is_some_and(|it| it == value));
    let mut settings = vec![
        ("filters", text("filters")),
        ("optimize_filters_for_hits", is("filters_on_last_level", "false")),
        ("read_mode", text("read_mode")),
        ("cache_size", json!(args.cache_size)),
        ("write_buffer_size", number("write_buffer_bytes")),
        ("max_write_buffer_number", json!(args.max_write_buffer_number)),
        ("base_level_size", number("base_level_bytes")),
        ("max_bytes_for_level_multiplier", number("level_ratio")),
        ("table_size", number("table_bytes")),
        ("block_size", number("block_bytes")),
        ("block_align", is("block_align", "true")),
        ("compression", text("compression")),
        ("level0_file_num_compaction_trigger", number("l0_trigger")),
        ("level0_slowdown_writes_trigger", number("l0_slowdown")),
        ("level0_stop_writes_trigger", number("l0_stop")),
        ("hard_pending_compaction_bytes_limit", number("debt_stop_bytes")),
        ("max_background_jobs", json!(args.jobs())),
        ("rate_limiter_bytes_per_sec", json!(args.rate_limiter_bytes_per_sec)),
        ("open_files", json!(args.open_files)),
        ("prefix_size", json!(prefix_bytes(options))),
        ("whole_key_filtering", is("whole_key_filters", "true")),
        ("disable_auto_compactions", is("auto_compaction", "false")),
        ("sync", json!(switches.sync)),
        ("disable_wal", json!(switches.disable_wal)),
        ("use_existing_db", json!(switches.use_existing_db)),
    ];
    settings.extend(partitions.settings(options));
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_states_the_defaults_of_the_store() {
        let command = BenchStoreArgs::augment_args(clap::Command::new("bench"));
        let options = of_a_new_store();
        for (flag, name) in [
            ("write_buffer_size", "write_buffer_bytes"),
            ("base_level_size", "base_level_bytes"),
            ("max_bytes_for_level_multiplier", "level_ratio"),
            ("table_size", "table_bytes"),
            ("block_size", "block_bytes"),
            ("level0_file_num_compaction_trigger", "l0_trigger"),
            ("level0_slowdown_writes_trigger", "l0_slowdown"),
            ("level0_stop_writes_trigger", "l0_stop"),
            ("hard_pending_compaction_bytes_limit", "debt_stop_bytes"),
        ] {
            let argument = command.get_arguments().find(|argument| argument.get_id() == flag);
            let help = argument.and_then(|it| it.get_help()).unwrap().to_string();
            let (_, default) = help.split_once("[default: ").unwrap();
            let default = parse_bytes(default.trim_end_matches(']')).unwrap();
            assert_eq!(default, number(&options, name), "{flag}");
        }
    }
}

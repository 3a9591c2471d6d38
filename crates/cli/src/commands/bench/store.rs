//! The store of a bench: its flags, and their effect.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command};
use serde_json::{Value, json};
use trommel::{FilterPolicy, Options, ReadMode};
use trommel_harness::Workload;
use trommel_harness::units::{parse_bytes, parse_decimal, parse_time};

use super::args::switches;
use crate::commands::base::{Base, setting};
use crate::failure::Failure;
use crate::shared_args::{signed, whole};

/// A number of open files above any limit of the system.
const MANY_FILES: usize = 1 << 20;

/// A flag that sets one setting of the store.
struct Flag {
    long: &'static str,
    /// Other names: db_bench's, where this program has a plainer one, and a former one.
    aliases: &'static [&'static str],
    /// The setting, as in [`Options::set`].
    setting: &'static str,
    /// The placeholder of the value in the help; `BOOL` for a switch, whose value may be left out.
    value: &'static str,
    /// The setting's text for the flag's.
    text: fn(&str) -> Result<String, String>,
    help: &'static str,
}

const fn flag(
    long: &'static str,
    setting: &'static str,
    value: &'static str,
    text: fn(&str) -> Result<String, String>,
    help: &'static str,
) -> Flag {
    Flag { long, aliases: &[], setting, value, text, help }
}

impl Flag {
    const fn or(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }
}

static FLAGS: [Flag; 29] = [
    flag("cache-size", "cache_bytes", "SIZE", bytes, "Bytes of the block cache [default: 32M]"),
    flag(
        "write-buffer-size",
        "write_buffer_bytes",
        "SIZE",
        bytes,
        "Bytes of a memtable [default: 64M]",
    ),
    flag(
        "memtable",
        "memtable",
        "KIND",
        word,
        "How memtables find and order entries: hash (sorted when scanned), or skiplist [default: \
         hash]",
    ),
    flag(
        "max-write-buffer-number",
        "max_frozen_memtables",
        "COUNT",
        |text| Ok(whole::<u64>(text)?.saturating_sub(1).to_string()),
        "Maximum number of memtables, including the active one [default: 2]",
    ),
    flag(
        "base-level-size",
        "base_level_bytes",
        "SIZE",
        bytes,
        "Bytes of the smallest level below level 0 [default: 256M]",
    )
    .or(&["max-bytes-for-level-base"]),
    flag(
        "max-bytes-for-level-multiplier",
        "level_ratio",
        "RATIO",
        ratio,
        "Size ratio of each level to the one above [default: 10]",
    ),
    flag("table-size", "table_bytes", "SIZE", bytes, "Bytes of a table [default: 64M]")
        .or(&["target-file-size-base"]),
    flag("block-size", "block_bytes", "SIZE", bytes, "Bytes of a data block [default: 4K]"),
    flag(
        "block-align",
        "block_align",
        "BOOL",
        is,
        "Pad uncompressed blocks to a page boundary of 4 KiB [default: false]",
    ),
    flag(
        "compression",
        "compression",
        "KIND",
        word,
        "Compression of data blocks, none or lz4 [default: none]",
    )
    .or(&["compression-type"]),
    flag(
        "level0-file-num-compaction-trigger",
        "l0_trigger",
        "COUNT",
        count,
        "Number of tables in level 0 that starts a compaction [default: 4]",
    ),
    flag(
        "level0-slowdown-writes-trigger",
        "l0_slowdown",
        "COUNT",
        count,
        "Number of tables in level 0 above which writers are slowed [default: 20]",
    ),
    flag(
        "level0-stop-writes-trigger",
        "l0_stop",
        "COUNT",
        count,
        "Number of tables in level 0 at which writers stop [default: 36]",
    ),
    flag(
        "hard-pending-compaction-bytes-limit",
        "debt_stop_bytes",
        "SIZE",
        bytes,
        "Compaction debt, in bytes, at which writers stop [default: 256G]",
    ),
    flag(
        "ttl",
        "ttl",
        "TIME",
        |text| {
            let ttl = parse_time(text).map_err(|error| error.to_string())?;
            Ok(if ttl.is_zero() { "none".into() } else { format!("{}s", ttl.as_secs_f64()) })
        },
        "How long entries last; 0: forever [default: 0]",
    ),
    flag(
        "merge-operator",
        "merge_operator",
        "NAME",
        |text| match text {
            "counter" | "uint64add" => Ok("trommel.counter".to_owned()),
            "max" => Ok("trommel.max".to_owned()),
            _ => Err("give counter, for values of 8 bytes, or max".to_owned()),
        },
        "What mergerandom merges with: counter, for values of 8 bytes, or max [default: none]",
    ),
    flag(
        "max-background-jobs",
        "background_threads",
        "COUNT",
        count,
        "Threads that flush and compact; 0: writers do it themselves, so that with one thread the same seed produces the same tables [default: 2]",
    ),
    flag(
        "rate-limiter-bytes-per-sec",
        "background_bytes_per_second",
        "SIZE",
        |text| parse_bytes(text).map_err(|error| error.to_string()).map(none_if_0),
        "Limit on the bytes per second that flushes and compactions write; 0: no limit [default: 0]",
    ),
    flag(
        "disable-auto-compactions",
        "auto_compaction",
        "BOOL",
        is_not,
        "Start no compaction except in the benchmark compact",
    ),
    flag(
        "prefix-size",
        "prefix_extractor",
        "COUNT",
        |text| {
            Ok(match whole::<u16>(text)? {
                0 => "none".to_owned(),
                bytes => format!("fixed:{bytes}"),
            })
        },
        "Length, in bytes, of the key prefixes in the prefix filters of new tables; 0: none [default: 0]",
    ),
    flag(
        "whole-key-filtering",
        "whole_key_filters",
        "BOOL",
        is,
        "Build whole-key filters; without them lookups query prefix filters [default: true]",
    ),
    flag(
        "optimize-filters-for-hits",
        "filters_on_last_level",
        "BOOL",
        is_not,
        "Build no filters for the last level [default: false]",
    ),
    flag(
        "filter-shape",
        "filter_shape",
        "SHAPE",
        word,
        "How filters are partitioned: whole or partitioned (by key range) [default: whole]",
    ),
    flag(
        "filter-partition-bytes",
        "filter_partition_bytes",
        "SIZE",
        bytes,
        "Approximate bytes of a filter partition [default: 32K]",
    )
    .or(&["metadata-block-size", "filter-piece-bytes"]),
    flag(
        "filter-residency",
        "filter_residency",
        "PLACE",
        word,
        "Where filters are held: pinned with their tables, cached in the block cache, or \
         pinned-level-0 [default: pinned]",
    ),
    flag(
        "pinned-filter-bytes",
        "pinned_filter_bytes",
        "SIZE",
        bytes,
        "Maximum bytes of pinned filters; others are cached [default: no limit]",
    ),
    flag(
        "open-files",
        "max_open_files",
        "COUNT",
        |text| Ok(usize::try_from(signed(text)?).unwrap_or(MANY_FILES).to_string()),
        "Maximum number of open tables; -1: as many as the system allows [default: -1]",
    ),
    flag(
        "sync",
        "durability",
        "BOOL",
        |text| Ok(if boolish(text)? { "sync" } else { "os" }.to_owned()),
        "Sync each write before it returns",
    ),
    flag(
        "disable-wal",
        "log",
        "BOOL",
        is_not,
        "Write no log: the contents of memtables are lost if the process dies",
    ),
];

fn word(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

fn bytes(text: &str) -> Result<String, String> {
    parse_bytes(text).map(|bytes| bytes.to_string()).map_err(|error| error.to_string())
}

fn count(text: &str) -> Result<String, String> {
    whole::<u64>(text).map(|count| count.to_string())
}

fn none_if_0(number: u64) -> String {
    if number == 0 { "none".into() } else { number.to_string() }
}

fn boolish(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("it must be true or false".into()),
    }
}

fn is(text: &str) -> Result<String, String> {
    Ok(boolish(text)?.to_string())
}

fn is_not(text: &str) -> Result<String, String> {
    Ok((!boolish(text)?).to_string())
}

/// Parses a ratio of levels; RocksDB also has ratios such as 8.5.
fn ratio(text: &str) -> Result<String, String> {
    let is_fraction = parse_decimal(text).is_ok_and(|ratio| ratio.fract() != 0.0);
    count(text).map_err(|error| match is_fraction {
        true => format!("the ratio of levels must be an integer, such as 8 or 10, not {text}"),
        false => error,
    })
}

/// The settings that are given by flags: names and texts.
#[derive(Debug)]
pub(crate) struct Given(pub(crate) Vec<(&'static str, String)>);

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        let arg = |flag: &'static Flag| {
            let parse = |text: &str| -> Result<String, String> {
                let text = (flag.text)(text)?;
                let set = Options::default().set(flag.setting, &text);
                set.map(|_| text).map_err(|error| error.to_string())
            };
            let arg = Arg::new(flag.setting).long(flag.long).value_name(flag.value);
            let arg = arg.help(flag.help).help_heading("Store").value_parser(parse);
            let arg = arg.aliases(flag.aliases);
            match flag.value {
                "BOOL" => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
                _ => arg.allow_negative_numbers(true),
            }
        };
        command.args(FLAGS.iter().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = FLAGS.iter().filter_map(|flag| {
            Some((flag.setting, matches.get_one::<String>(flag.setting)?.clone()))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The store of a bench.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct BenchStoreArgs {
    /// Directory of the store, which is kept [default: one in the temporary directory, which is
    /// removed]
    #[arg(long, value_name = "DIR")]
    pub(crate) db: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) given: Given,
}

switches! {
    #[command(next_help_heading = "Store")]
    StoreSwitches {
        /// Use the existing store in --db, with its recorded options unless a flag sets them; fills
        /// are skipped. If all benchmarks only read, it is opened read-only, and not compacted
        use_existing_db,
    }
}

/// The options of the store, and how they are reported.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) options: Options,
    /// The lines of the header.
    pub(crate) lines: Vec<(&'static str, String)>,
    /// The differences from the options that the store records.
    pub(crate) notes: Vec<String>,
}

/// What a bench does to the tree of an existing store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Nothing: no workload writes, and no compaction may change what is measured.
    Reads,
    /// It is compacted on request, or checked.
    Maintains,
    /// It is written, so it is compacted in the background as usual.
    Writes,
}

impl Use {
    /// The effect of these workloads; those that fill a fresh store are skipped on an existing one.
    pub(crate) fn of(workloads: impl Iterator<Item = Workload> + Clone) -> Self {
        let mut done = workloads.filter(|workload| !workload.wants_fresh_store());
        match () {
            () if done.clone().all(Workload::only_reads) => Self::Reads,
            () if done.any(Workload::needs_compaction) => Self::Writes,
            () => Self::Maintains,
        }
    }
}

/// The options for a bench, from the flags: an existing store keeps those that it records, unless
/// they are given.
pub(crate) fn set_up(
    args: &BenchStoreArgs,
    switches: &StoreSwitches,
    filters: Option<&FilterPolicy>,
    mode: ReadMode,
    purpose: Use,
) -> Result<Setup, Failure> {
    let existing = args.db.as_ref().filter(|_| switches.use_existing_db);
    let base = existing.map(|dir| Base::of(dir, &of_a_new_store()));
    let mut options = base.as_ref().map_or_else(of_a_new_store, |base| base.options.clone());
    options = options.reads(|r| r.read_mode(mode));
    if existing.is_some() && purpose != Use::Writes {
        options = options.compaction(|c| c.auto_compaction(false));
    }
    options = options.opening(|o| o.read_only(existing.is_some() && purpose == Use::Reads));
    if let Some(filters) = filters {
        options = options.filters(filters.clone());
    }
    for (name, text) in &args.given.0 {
        if *name != "auto_compaction" || existing.is_none() || purpose == Use::Writes {
            options = options.set(name, text)?;
        }
    }
    if prefix_bytes(&options) == 0
        && setting(&options, "whole_key_filters").as_deref() == Some("false")
    {
        return Err(Failure::Usage(
            "--whole_key_filtering=false leaves only prefix filters, and there are none: give \
             --prefix_size too, as in --prefix_size=8"
                .into(),
        ));
    }
    let notes = base.map_or_else(Vec::new, |base| match purpose {
        Use::Reads => base.notes_of_a_reader(&options),
        _ => base.notes(&options),
    });
    Ok(Setup { lines: lines(&options), options, notes })
}

/// The options of a new store, unless others are given: db_bench's.
fn of_a_new_store() -> Options {
    Options::default()
        .compression(trommel::Compression::None)
        .reads(|r| r.cache_bytes(32 << 20).max_open_files(MANY_FILES))
        .writes(|w| w.max_frozen_memtables(1))
        .compaction(|c| c.l0_slowdown(20).l0_stop(36).debt_stop_bytes(256 << 30))
}

/// The options that differ from the defaults, for the header.
fn lines(options: &Options) -> Vec<(&'static str, String)> {
    let text = |name| setting(options, name).unwrap_or_default();
    let differ = options.settings().into_iter().zip(Options::default().settings());
    let differ = differ.filter(|(here, default)| here != default).map(|(here, _)| here);
    let differ = differ.filter(|(name, _)| !["filters", "read_mode"].contains(name));
    let others: Vec<String> = differ.map(|(name, value)| format!("{name} {value}")).collect();
    vec![
        ("Filters", text("filters")),
        ("Read mode", text("read_mode")),
        ("Options", others.join(", ")),
    ]
}

/// Bytes of a prefix, where prefixes are of one length.
pub(super) fn prefix_bytes(options: &Options) -> usize {
    let prefix = setting(options, "prefix_extractor").unwrap_or_default();
    prefix.strip_prefix("fixed:").and_then(|bytes| bytes.parse().ok()).unwrap_or_default()
}

/// The settings of a record: all of the store's.
pub(super) fn settings(options: &Options) -> impl Iterator<Item = (&'static str, Value)> {
    let value = |text: String| match (text.parse::<u64>(), text.parse::<bool>()) {
        (Ok(number), _) => json!(number),
        (_, Ok(is)) => json!(is),
        _ => json!(text),
    };
    options.settings().into_iter().map(move |(name, text)| (name, value(text)))
}

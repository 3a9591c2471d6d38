//! The command line.
//!
//! A flag may be written with dashes or, as db_bench has it, with underscores.

use std::ffi::OsString;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::commands::*;

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
Exit:    0 done, 1 error, 2 wrong usage, 3 key not there, 4 damaged file, 5 store open elsewhere,
         6 no store or one of a newer version, 7 a check did not pass, 130 interrupted.";

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
    #[command(long_about = demo::LONG_ABOUT, after_help = demo::AFTER_HELP)]
    Demo(demo::DemoArgs),
    /// Run benchmarks by name, with db_bench's flags and lines
    #[command(long_about = bench::LONG_ABOUT, after_help = bench::AFTER_HELP)]
    Bench(Box<bench::BenchArgs>),
    /// Set two benches side by side: what became faster or slower, and is it chance
    #[command(long_about = compare::LONG_ABOUT, after_help = compare::AFTER_HELP)]
    Compare(compare::CompareArgs),
    /// Print the value of a key
    Get(get::GetArgs),
    /// Print the values of several keys
    Mget(get::MgetArgs),
    /// Set a key to a value
    Put(put::PutArgs),
    /// Delete keys
    Delete(put::DeleteArgs),
    /// Print entries in key order
    Scan(scan::ScanArgs),
    /// Write entries from a file or standard input
    #[command(long_about = load::LONG_ABOUT, after_help = load::AFTER_HELP)]
    Load(load::LoadArgs),
    /// Print or save entries so that load reads them back
    #[command(after_help = dump::AFTER_HELP)]
    Dump(dump::DumpArgs),
    /// Show what the store holds
    #[command(long_about = levels::STATS_ABOUT)]
    Stats(levels::StatsArgs),
    /// Show what each level holds
    Levels(levels::LevelsArgs),
    /// Show the filters of each level, measured beside theory
    #[command(long_about = filters::LONG_ABOUT)]
    Filters(filters::FiltersArgs),
    /// Show where the memory of the open store is
    #[command(long_about = levels::MEMORY_ABOUT)]
    Memory(levels::MemoryArgs),
    /// Show the options in force, and what is recorded in the store
    #[command(long_about = admin::OPTIONS_ABOUT)]
    Options(admin::OptionsArgs),
    /// Write what is in the log out to tables
    Flush(admin::FlushArgs),
    /// Merge levels, and drop what nobody can see any more
    #[command(long_about = admin::COMPACT_ABOUT)]
    Compact(admin::CompactArgs),
    /// Read and check every byte of every file
    #[command(long_about = admin::VERIFY_ABOUT)]
    Verify(admin::VerifyArgs),
    /// Make a second store that holds what the store holds now (hard links where possible)
    Checkpoint(admin::CheckpointArgs),
    /// Remove the store and all its data
    Destroy(admin::DestroyArgs),
    /// Print the rates that filters have by theory
    #[command(long_about = rates::LONG_ABOUT)]
    Rates(rates::RatesArgs),
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
    if all.get(1).is_some_and(|command| command == "bench") {
        let cli = Cli::command();
        if let Some(command) = cli.find_subcommand("bench") {
            let flags = all.split_off(2);
            all.extend(bench::spelling::plain(command, flags));
        }
    }
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

#[cfg(test)]
mod tests {
    use trommel_harness::Workload;

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
        let names: Vec<_> = args.benchmarks.iter().map(|step| step.workload).collect();
        assert_eq!(names, [Workload::FillSeq, Workload::ReadRandom]);
        assert_eq!((args.num, args.counts.reads.0, args.threads), (Some(1000), None, 2));
        assert_eq!((args.data.key_size, args.data.value_size), (20, 400));
        assert!(args.store_switches.use_existing_db && args.switches.histogram);
        assert!(!args.store_switches.disable_wal);
        assert_eq!((args.store.cache_size, args.store.base_level_size), (8 << 20, 4 << 20));
        assert_eq!((args.store.write_buffer_size, args.work.batch_size), (1 << 20, 10));
    }
}

//! The command line.
//!
//! A flag may be written with dashes or, as in db_bench, with underscores.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::commands::*;
use crate::families::in_families;

const ABOUT: &str = "An ordered key-value store whose every table probe is gated by a filter";

const LONG_ABOUT: &str = "\
Trommel is an embedded, ordered key-value store (a log-structured merge tree) whose every table \
probe is gated by a filter. This program runs it and reports what its filters do.

Without a command it runs `trommel demo`: it fills a store and looks up present and missing keys, \
once for each of three kinds of filter of the same size, and compares them.";

const AFTER_HELP: &str = "\
Examples:
  trommel                                  compare three kinds of filter (under two minutes)
  trommel demo --quick                     the same, small (a few seconds)
  trommel bench --num=1M --benchmarks=fillrandom,waitforcompaction,readmissing,filterstats
  trommel help bench                       all benchmarks and their flags

Sizes:   64M, 64MB and 64MiB are all 64 x 1,048,576 bytes; counts such as 20M are decimal.
Filters: KIND:BITS (bits per key) or KIND:fpr=RATE; KIND is none, standard,
         blocked, paired, fuse or ribbon.
         By level: L0=paired:20,L1-3=blocked:12.5,L4-=standard:10,last=none (the last match wins).
         A budget: budget=10/key or budget=64MiB, with kinds=paired|blocked (quoted), misses=0.9.
Exit:    0 done, 1 error, 2 wrong usage, 3 key not found, 4 corrupt file, 5 store open elsewhere,
         6 no store or one of a newer version, 7 a check failed, 130 interrupted.";

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
    /// Compare filters on a store: fill, read, look up missing keys (the default)
    #[command(long_about = demo::LONG_ABOUT, after_help = demo::AFTER_HELP)]
    Demo(demo::DemoArgs),
    /// Run benchmarks by name, with db_bench's flags and lines
    #[command(long_about = bench::LONG_ABOUT, after_help = bench::AFTER_HELP)]
    #[command(args_override_self = true)]
    Bench(Box<bench::BenchArgs>),
    /// Compare two benchmark runs: what became faster or slower, and is it significant
    #[command(long_about = compare::LONG_ABOUT, after_help = compare::AFTER_HELP)]
    Compare(compare::CompareArgs),
    /// Make an HTML page of benchmark records
    #[command(long_about = report::LONG_ABOUT, after_help = report::AFTER_HELP)]
    Report(report::ReportArgs),
    /// Measure filters alone, with filter_bench's flags and modes
    #[command(long_about = filter_bench::LONG_ABOUT, after_help = filter_bench::AFTER_HELP)]
    #[command(args_override_self = true)]
    FilterBench(Box<filter_bench::FilterBenchArgs>),
    /// Choose filters by computation, and measure them in experiments
    #[command(long_about = tune::LONG_ABOUT)]
    Tune(tune::TuneArgs),
    /// Stress test: write, read, kill and check, for any length of time
    #[command(long_about = stress::LONG_ABOUT, after_help = stress::AFTER_HELP)]
    Stress(Box<stress::StressArgs>),
    /// The process that `stress` kills
    #[command(name = stress::WORKER, hide = true)]
    StressWorker(stress::WorkerArgs),
    #[command(flatten)]
    Store(store::StoreCommand),
    /// Run commands on one store, at a prompt or from a script
    #[command(long_about = shell::LONG_ABOUT, after_help = shell::AFTER_HELP)]
    Shell(shell::ShellArgs),
    /// Build a new store from the readable data of a corrupt one
    #[command(long_about = repair::LONG_ABOUT, after_help = repair::AFTER_HELP)]
    Repair(repair::RepairArgs),
    /// Remove the store and all its data
    Destroy(admin::DestroyArgs),
    /// Print completions for a shell
    #[command(after_help = generated::COMPLETIONS_HELP)]
    Completions(generated::CompletionsArgs),
    /// Print a manual page, or write the pages of all commands
    Man(generated::ManArgs),
    /// Print the theoretical false-positive rates of filters
    #[command(long_about = rates::LONG_ABOUT)]
    Rates(rates::RatesArgs),
}

impl Cli {
    /// Parses the arguments, including the program name; exits on `--help` and on usage errors.
    pub(crate) fn read(arguments: impl Iterator<Item = OsString>) -> Self {
        let matches = Self::definition().try_get_matches_from(normalised(arguments));
        let matches = matches.unwrap_or_else(|error| with_tip(error).exit());
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// The definition of the command line.
    pub(crate) fn definition() -> clap::Command {
        in_families(Self::command())
    }
}

/// Suggests `--db` for a positional argument that is a directory.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    if error.kind() == ErrorKind::UnknownArgument && Path::new(argument).is_dir() {
        let tip = format!("to name the directory of a store, write '--db {argument}'");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Inserts the default command if there is none, and spells the flags of benches as clap does.
fn normalised(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<_> = arguments.collect();
    if all.len() <= 1 {
        all.resize(1, "trommel".into());
        all.push("demo".into());
    }
    if ["bench", "filter-bench", "stress"].iter().any(|name| all[1] == *name) {
        let end = all.iter().position(|argument| argument == "--").unwrap_or(all.len());
        for argument in &mut all[2..end] {
            if let Some(flag) = argument.to_str().and_then(dashed) {
                *argument = flag.into();
            }
        }
    }
    all
}

/// A flag in db_bench's spelling, with underscores or a single dash, spelled with dashes.
fn dashed(argument: &str) -> Option<String> {
    let body = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    let (name, value) = body.split_at(body.find('=').unwrap_or(body.len()));
    let is_name = name.len() > 1 && name.starts_with(|first: char| first.is_ascii_alphabetic());
    is_name.then(|| format!("--{}{value}", name.replace('_', "-")))
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
        Cli::definition().debug_assert();
    }

    #[test]
    fn underscores_in_flags_are_dashes() {
        assert_eq!(
            normal("trommel bench --key_size=16 --db /a_b --use_existing_db --db=c_d -- --x_y"),
            "trommel bench --key-size=16 --db /a_b --use-existing-db --db=c_d -- --x_y"
        );
        assert_eq!(normal("trommel bench -num=1_0 -h -1 a_b"), "trommel bench --num=1_0 -h -1 a_b");
        let of_another = "trommel scan --prefix --keys_only --value-format=a_b";
        assert_eq!(normal(of_another), of_another);
        assert_eq!(normal("trommel --x_y"), "trommel --x_y");
        assert_eq!(normal("trommel"), "trommel demo");
    }

    #[test]
    fn command_lines_of_db_bench_are_understood() {
        let line = "trommel bench --benchmarks=fillseq,readrandom --num=1000 --key_size=20 \
                    --value_size=400 --threads=2 --use_existing_db=1 --cache_size=8388608 \
                    --histogram=true --compression_type=none --write_buffer_size=1048576 \
                    --max_bytes_for_level_base=4194304 --disable_wal=0 --batch_size=7 --batch_size=10";
        let cli = Cli::read(line.split_whitespace().map(OsString::from));
        let Command::Bench(args) = cli.command else { panic!("it is the bench") };
        let names: Vec<_> = args.benchmarks.iter().map(|step| step.workload).collect();
        assert_eq!(names, [Workload::FillSeq, Workload::ReadRandom]);
        assert_eq!((args.num, args.counts.reads.0, args.threads), (Some(1000), None, 2));
        assert_eq!((args.data.key_size, args.data.value_size), (20, 400));
        assert!(args.store.switches.use_existing_db && args.switches.histogram);
        assert_eq!(args.work.batch_size, 10);
        let given: Vec<_> =
            args.store.options.given.0.iter().map(|(name, text)| (*name, &**text)).collect();
        let expected = [
            ("cache_bytes", "8388608"),
            ("write_buffer_bytes", "1048576"),
            ("base_level_bytes", "4194304"),
            ("compression", "none"),
            ("log", "true"),
        ];
        assert_eq!(given, expected);
    }

    /// Invalid numbers used to be reported in the words of the standard library's parsers.
    #[test]
    fn wrong_numbers_are_rejected_with_a_valid_example() {
        fn visit(command: &clap::Command, path: &[String], wrong: &mut Vec<String>) {
            for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
                let Some(long) = arg.get_long() else { continue };
                for value in ["8.5x", "", "90 percent", "99999999999999999999999", "1e400"] {
                    let line = path.iter().cloned().chain([format!("--{long}={value}")]);
                    let Err(error) = Cli::command().try_get_matches_from(line) else { continue };
                    let text = error.to_string();
                    let is_bare =
                        ["invalid digit", "invalid float", "cannot parse", "too large to"]
                            .iter()
                            .any(|words| text.contains(words));
                    if is_bare {
                        wrong.push(text.lines().next().unwrap_or_default().to_owned());
                    }
                }
            }
            for sub in command.get_subcommands() {
                visit(sub, &[path, &[sub.get_name().to_owned()]].concat(), wrong);
            }
        }
        let mut wrong = Vec::new();
        visit(&Cli::command(), &["trommel".to_owned()], &mut wrong);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

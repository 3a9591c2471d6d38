//! The flags of RocksDB's programs that ours lack, and how each is handled.
//!
//! 1. `flags.txt` lists the flags of db_bench, db_stress and filter_bench. A command of ours
//!    handles those that it has itself, under that name or as an alias. It accepts all others too,
//!    hidden from its help, so that command lines for the other program can be used.
//! 2. `reasons.txt` has one entry for each of the others. A flag without a visible effect here is
//!    accepted, with a note on standard error that gives the reason.
//! 3. A flag that would change the measurement is accepted only with the value that matches our
//!    behaviour. Any other value is rejected, with the reason.
//!
//! `bench` reads db_bench's flags, `stress` db_stress's and `filter-bench` filter_bench's.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::OnceLock;

use clap::builder::BoolishValueParser;
use clap::{Arg, ArgMatches, Command};

use crate::failure::Failure;

const FLAGS: &str = include_str!("flags.txt");
const REASONS: &str = include_str!("reasons.txt");

/// One of RocksDB's programs.
pub(crate) trait Program {
    /// Its name in `flags.txt`.
    const NAME: &str;
}

macro_rules! programs {
    ($($(#[$doc:meta])* $type:ident = $name:literal,)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) enum $type {}

        impl Program for $type {
            const NAME: &str = $name;
        }
    )*};
}

programs! {
    /// Measures a store.
    DbBench = "db_bench",
    /// Checks a store under load.
    DbStress = "db_stress",
    /// Measures filters.
    FilterBench = "filter_bench",
}

/// One flag of one program.
#[derive(Debug)]
struct ForeignFlag {
    program: &'static str,
    /// The name with underscores, as in the program.
    name: &'static str,
    /// The name with dashes, as on the command line.
    long: String,
    /// The id of its value among the parsed arguments; no flag of a command's own has such an id.
    id: String,
    is_switch: bool,
}

/// The lines of a file, without comments.
fn lines(file: &'static str) -> impl Iterator<Item = &'static str> {
    file.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The text in brackets, if that is the whole line.
fn bracketed(line: &'static str) -> Option<&'static str> {
    line.strip_prefix('[')?.strip_suffix(']')
}

/// All flags of `program`.
fn flags(program: &str) -> impl Iterator<Item = &'static ForeignFlag> {
    static FLAGS_READ: OnceLock<Vec<ForeignFlag>> = OnceLock::new();
    let all = FLAGS_READ.get_or_init(|| {
        let mut flags = Vec::new();
        let mut program = "";
        for line in lines(FLAGS) {
            if let Some(heading) = bracketed(line) {
                program = heading;
                continue;
            }
            flags.extend(line.split_whitespace().map(|word| {
                let name = word.strip_suffix('?').unwrap_or(word);
                let (long, id) = (name.replace('_', "-"), format!("foreign {name}"));
                ForeignFlag { program, name, long, id, is_switch: name != word }
            }));
        }
        flags
    });
    all.iter().filter(move |flag| flag.program == program)
}

/// The accepted values of a flag, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    /// `None`: every value, because the flag has no effect.
    only: Option<Vec<&'static str>>,
    why: &'static str,
}

/// The answers by program (`""` for all of them) and name of the flag.
type Answers = HashMap<(&'static str, &'static str), Answer>;

fn answers() -> &'static Answers {
    static ANSWERS: OnceLock<Answers> = OnceLock::new();
    ANSWERS.get_or_init(|| {
        let mut answers = Answers::new();
        let mut why = "";
        for line in lines(REASONS) {
            if let Some(reason) = bracketed(line) {
                why = reason;
                continue;
            }
            let (rule, names) = line.split_once(": ").expect("an entry has a rule and flags");
            let (program, rule) = match rule.split_once(' ') {
                Some((program @ ("db_bench" | "db_stress" | "filter_bench"), rule)) => {
                    (program, rule)
                }
                _ => ("", rule),
            };
            let values = rule.strip_prefix("only ");
            assert!(values.is_some() || rule == "any", "{line}: no such rule");
            let only = values.map(|values| values.split('|').map(unquoted).collect());
            for name in names.split_whitespace() {
                let before = answers.insert((program, name), Answer { only: only.clone(), why });
                assert_eq!(before, None, "{name} has two entries");
            }
        }
        answers
    })
}

/// A value in the table; `''` is the empty one.
fn unquoted(value: &'static str) -> &'static str {
    if value == "''" { "" } else { value }
}

fn answer(program: &'static str, name: &'static str) -> Option<&'static Answer> {
    let answers = answers();
    answers.get(&(program, name)).or_else(|| answers.get(&("", name)))
}

/// The given flags of another program that the command does not have.
#[derive(Debug)]
pub(crate) struct ForeignFlags<P> {
    given: Vec<(&'static str, String)>,
    program: PhantomData<P>,
}

impl<P: Program> clap::Args for ForeignFlags<P> {
    /// Flattened last, when the command has all flags of its own.
    fn augment_args(command: Command) -> Command {
        let is_own = |long: &str| {
            command.get_arguments().any(|arg| {
                arg.get_long() == Some(long)
                    || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&long))
            })
        };
        let foreign: Vec<Arg> = flags(P::NAME)
            .filter(|flag| !is_own(&flag.long))
            .map(|flag| {
                let arg = Arg::new(&*flag.id).long(&*flag.long).value_name("VALUE").hide(true);
                if flag.is_switch {
                    arg.num_args(0..=1)
                        .require_equals(true)
                        .default_missing_value("true")
                        .value_parser(BoolishValueParser::new())
                } else {
                    arg.num_args(1).allow_hyphen_values(true)
                }
            })
            .collect();
        command.args(foreign)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<P: Program> clap::FromArgMatches for ForeignFlags<P> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        // The command has no ids of foreign flags with its own names.
        let value_of = |flag: &ForeignFlag| {
            let value = if flag.is_switch {
                matches.try_get_one::<bool>(&flag.id).ok().flatten().map(bool::to_string)
            } else {
                matches.try_get_one::<String>(&flag.id).ok().flatten().cloned()
            };
            value.map(|value| (flag.name, value))
        };
        Ok(Self::new(flags(P::NAME).filter_map(value_of).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<P: Program> ForeignFlags<P> {
    fn new(given: Vec<(&'static str, String)>) -> Self {
        Self { given, program: PhantomData }
    }

    /// Notes for the user about flags without effect.
    ///
    /// # Errors
    /// If flags are given that would have to change the behaviour; it names all of them.
    pub(crate) fn judge(&self) -> Result<Vec<String>, Failure> {
        let (mut notes, mut refused) = (Vec::new(), Vec::new());
        for (name, value) in &self.given {
            let Answer { only, why } =
                answer(P::NAME, name).expect("each flag that no command has is in the table");
            match only {
                None => notes.push(format!("--{name} does nothing here: {why}")),
                Some(values) if values.iter().any(|accepted| is_same(accepted, value)) => {}
                Some(_) => refused.push(format!("--{name}={value} cannot be done: {why}")),
            }
        }
        if refused.is_empty() { Ok(notes) } else { Err(Failure::Usage(refused.join("\n       "))) }
    }
}

fn is_same(accepted: &str, value: &str) -> bool {
    let numbers = accepted.parse::<f64>().ok().zip(value.parse::<f64>().ok());
    accepted == value || numbers.is_some_and(|(accepted, value)| accepted == value)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use clap::CommandFactory as _;

    use super::*;

    const PROGRAMS: [(&str, &str); 3] =
        [("bench", "db_bench"), ("stress", "db_stress"), ("filter-bench", "filter_bench")];

    /// 115 of 310 flags of db_bench, and all but five of db_stress, used to be rejected as
    /// unexpected arguments.
    #[test]
    fn every_flag_is_known_and_has_one_answer() {
        let cli = crate::args::Cli::command();
        let mut seen = HashSet::new();
        for (command, program) in PROGRAMS {
            let command = cli.find_subcommand(command).unwrap();
            let mut count = 0;
            for ForeignFlag { name, long, id, .. } in flags(program) {
                count += 1;
                seen.extend([(program, *name), ("", *name)]);
                let is_named = |arg: &&Arg| {
                    arg.get_long() == Some(long)
                        || arg.get_all_aliases().is_some_and(|all| all.contains(&&**long))
                };
                let arg = command.get_arguments().find(is_named);
                let arg = arg.unwrap_or_else(|| panic!("{program} -{name} is unknown"));
                if arg.get_id().as_str() == id {
                    assert!(answer(program, name).is_some(), "{program} -{name} has no reason");
                }
            }
            assert!(count > 20, "{program}");
        }
        for key in answers().keys() {
            assert!(seen.contains(key), "{key:?} is in the table, and a flag of no program");
        }
    }

    #[test]
    fn foreign_flags_are_ignored_accepted_or_rejected() {
        fn judge<P: Program>(given: &[(&'static str, &str)]) -> Result<Vec<String>, String> {
            let given = given.iter().map(|(name, value)| (*name, (*value).into())).collect();
            ForeignFlags::<P>::new(given).judge().map_err(|failure| failure.to_string())
        }
        let accepted = [("compaction_style", "0"), ("memtable_bloom_size_ratio", "0.0")];
        assert_eq!(judge::<DbBench>(&accepted), Ok(vec![]));
        let notes = judge::<DbBench>(&[("cache_numshardbits", "6"), ("verify_checksum", "true")]);
        assert_eq!(
            notes.unwrap(),
            [
                "--cache_numshardbits does nothing here: the cache divides itself, and is of one kind"
            ]
        );
        let refused = judge::<DbBench>(&[
            ("compaction_style", "1"),
            ("perf_level", "2"),
            ("merge_operator", "put"),
        ]);
        assert_eq!(
            refused.unwrap_err(),
            "--compaction_style=1 cannot be done: there is one compaction style: leveled\n       \
             --merge_operator=put cannot be done: there are no merge operators"
        );
        // A flag of two programs, with an answer for each.
        assert!(judge::<DbBench>(&[("charge_filter_construction", "true")]).is_ok());
        assert!(judge::<FilterBench>(&[("charge_filter_construction", "true")]).is_err());
    }
}

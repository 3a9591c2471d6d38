//! Flags of another program's that this one has not, and what becomes of each.
//!
//! 1. Each is known to the command line, hidden from its help, so that lines written for the other
//!    program are read as that reads them.
//! 2. A flag that changes nothing here that a benchmark could see is accepted, with a line on
//!    standard error that says why it does nothing.
//! 3. A flag that would change what is measured is accepted only with the value that says what is
//!    done anyway; with any other value it is refused, and the reason given.
//!
//! Called by `bench` for db_bench's flags and by `filter-bench` for filter_bench's.

use std::marker::PhantomData;

use clap::builder::BoolishValueParser;
use clap::{Arg, ArgMatches, Command};

use crate::failure::Failure;

/// Which values are accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Accepts {
    /// All: the flag does nothing here.
    Any,
    /// Those that say what is done anyway; numbers may be written in any way.
    Only(&'static [&'static str]),
}

pub(crate) use Accepts::{Any, Only};

/// Flags with one answer.
pub(crate) struct Group {
    names: &'static [&'static str],
    accepts: Accepts,
    why: &'static str,
}

pub(crate) const fn group(
    names: &'static [&'static str],
    accepts: Accepts,
    why: &'static str,
) -> Group {
    Group { names, accepts, why }
}

/// The flags of a program.
pub(crate) trait Tables {
    /// Flags that are on or off.
    const SWITCHES: &[Group];
    /// Flags with a value.
    const VALUES: &[Group];
}

/// The flags of the tables that were given, with their values.
#[derive(Debug)]
pub(crate) struct ForeignFlags<T> {
    given: Vec<(&'static str, String)>,
    tables: PhantomData<T>,
}

fn all<T: Tables>() -> impl Iterator<Item = (&'static str, bool)> {
    let names = |groups: &'static [Group], is_switch| {
        groups.iter().flat_map(|group| group.names).map(move |name| (*name, is_switch))
    };
    names(T::SWITCHES, true).chain(names(T::VALUES, false))
}

impl<T: Tables> clap::Args for ForeignFlags<T> {
    fn augment_args(command: Command) -> Command {
        command.args(all::<T>().map(|(name, is_switch)| {
            let arg = Arg::new(name).long(name).hide(true);
            if is_switch {
                arg.num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
                    .value_parser(BoolishValueParser::new())
            } else {
                arg.num_args(1).allow_hyphen_values(true)
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Tables> clap::FromArgMatches for ForeignFlags<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value_of = |(name, is_switch): (&'static str, bool)| {
            let value = if is_switch {
                matches.get_one::<bool>(name).map(bool::to_string)
            } else {
                matches.get_one::<String>(name).cloned()
            };
            value.map(|value| (name, value))
        };
        Ok(Self::new(all::<T>().filter_map(value_of).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Tables> ForeignFlags<T> {
    /// These flags, each with its value.
    pub(crate) fn new(given: Vec<(&'static str, String)>) -> Self {
        Self { given, tables: PhantomData }
    }

    /// What to tell the user about flags that do nothing here.
    ///
    /// # Errors
    /// If flags were given that would have to change what is measured, all of them named.
    pub(crate) fn judge(&self) -> Result<Vec<String>, Failure> {
        let (mut notes, mut refused) = (Vec::new(), Vec::new());
        for (name, value) in &self.given {
            // As db_bench writes it.
            let spelled = name.replace('-', "_");
            let group = T::SWITCHES
                .iter()
                .chain(T::VALUES)
                .find(|group| group.names.contains(name))
                .expect("only flags of the tables are given");
            match group.accepts {
                Any => notes.push(format!("--{spelled} does nothing here: {}", group.why)),
                Only(values) if values.iter().any(|accepted| is_same(accepted, value)) => {}
                Only(_) => {
                    refused.push(format!("--{spelled}={value} cannot be done: {}", group.why));
                }
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
    use super::*;
    use crate::commands::{bench, filter_bench};

    fn check_names<T: Tables>() {
        let mut names: Vec<_> = all::<T>().map(|(name, _)| name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn each_flag_has_one_answer() {
        check_names::<bench::foreign::DbBench>();
        check_names::<filter_bench::foreign::FilterBench>();
    }
}

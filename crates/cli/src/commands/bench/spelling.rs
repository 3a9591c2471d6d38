//! Translates the spelling of db_bench's command lines (gflags) to this program's own.
//!
//! 1. A flag may have one dash or two, and dashes or underscores in its name.
//! 2. A switch is on by itself, off with `no` before its name (`--nohistogram`), or has a value
//!    after `=`.
//! 3. The argument after a flag that takes a value is that value, whatever it looks like.

use std::ffi::OsString;

use clap::{Arg, Command};

/// The arguments of `command` (without the command itself) in the form for clap.
pub(crate) fn plain(command: &Command, arguments: Vec<OsString>) -> Vec<OsString> {
    let mut plain = Vec::with_capacity(arguments.len());
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let is_end = argument == "--";
        let flag = argument.to_str().and_then(|text| Flag::read(command, text));
        let Some(flag) = flag else {
            plain.push(argument);
            if is_end {
                plain.extend(arguments);
                return plain;
            }
            continue;
        };
        let wants_value = flag.wants_value;
        plain.push(flag.text.into());
        if wants_value {
            plain.extend(arguments.next());
        }
    }
    plain
}

/// A flag of a command, in the form for clap.
pub(crate) struct Flag {
    pub(crate) text: String,
    /// Whether its value is the next argument.
    pub(crate) wants_value: bool,
}

impl Flag {
    /// The flag in `text`, if the command has it.
    fn read(command: &Command, text: &str) -> Option<Self> {
        let body = text.strip_prefix("--").or_else(|| text.strip_prefix('-'))?;
        Self::named(command, body).or_else(|| Self::negated(command, body))
    }

    /// The flag with `body` after its dashes, if the command has one of that name, with dashes or
    /// underscores.
    pub(crate) fn named(command: &Command, body: &str) -> Option<Self> {
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        let name = name.replace('_', "-");
        let arg = find(command, &name)?;
        let text = match value {
            Some(value) => format!("--{name}={value}"),
            None => format!("--{name}"),
        };
        let wants_value = value.is_none() && !is_switch(arg) && arg.get_action().takes_values();
        Some(Self { text, wants_value })
    }

    /// As [`Flag::named`], for a switch with `no` before its name.
    fn negated(command: &Command, body: &str) -> Option<Self> {
        let name = body.replace('_', "-");
        let positive = name.strip_prefix("no")?;
        find(command, positive)
            .is_some_and(is_switch)
            .then(|| Self { text: format!("--{positive}=false"), wants_value: false })
    }
}

fn find<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| {
        arg.get_long() == Some(name)
            || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    })
}

/// Whether the flag can be used without a value.
fn is_switch(arg: &Arg) -> bool {
    arg.is_require_equals_set()
}

/// The arguments (without the program) with underscores replaced by dashes in the names of flags of
/// `command`, or of the subcommand that they call. Everything else is unchanged: a key or a value
/// may look like a flag.
pub(crate) fn with_dashed_flags(command: &Command, arguments: Vec<OsString>) -> Vec<OsString> {
    let mut command = command;
    let mut dashed = Vec::with_capacity(arguments.len());
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            dashed.push(argument);
            break;
        }
        let body = argument.to_str().and_then(|text| text.strip_prefix("--"));
        if let Some(flag) = body.and_then(|body| Flag::named(command, body)) {
            dashed.push(flag.text.into());
            if flag.wants_value {
                dashed.extend(arguments.next());
            }
            continue;
        }
        command = command.find_subcommand(&argument).unwrap_or(command);
        dashed.push(argument);
    }
    dashed.extend(arguments);
    dashed
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn spelled(line: &str) -> String {
        let cli = crate::args::Cli::command();
        let command = cli.find_subcommand("bench").unwrap();
        let arguments = line.split(' ').map(OsString::from).collect();
        let plain = plain(command, arguments);
        let texts: Vec<_> = plain.iter().map(|argument| argument.to_str().unwrap()).collect();
        texts.join(" ")
    }

    #[test]
    fn lines_of_gflags_become_plain() {
        for (line, expected) in [
            ("-num=5 --num=5 --num 5", "--num=5 --num=5 --num 5"),
            ("-key_size 20 -db -odd", "--key-size 20 --db -odd"),
            ("--nohistogram -nouse_existing_db", "--histogram=false --use-existing-db=false"),
            ("-histogram --histogram=1 x", "--histogram --histogram=1 x"),
            ("--noverify_checksum", "--verify-checksum=false"),
            ("-compression_type none", "--compression-type none"),
            ("-h --help -what --nonsense", "-h --help -what --nonsense"),
            ("-- -num=5", "-- -num=5"),
            ("--db=a_b", "--db=a_b"),
        ] {
            assert_eq!(spelled(line), expected);
        }
    }
}

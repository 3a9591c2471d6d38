//! The names that `--benchmarks` takes.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};
use trommel_harness::{Step, Workload};

/// Parses one step; lists all workloads in the help, and suggests a name for an unknown one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepParser;

fn names() -> impl Iterator<Item = PossibleValue> {
    Workload::all().map(|workload| {
        PossibleValue::new(workload.name()).aliases(workload.aliases()).help(workload.about())
    })
}

impl TypedValueParser for StepParser {
    type Value = Step;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Step, Error> {
        let text = value.to_string_lossy();
        let text = text.trim();
        let (name, _) = Step::split(text);
        if Workload::why_absent(name).is_none() {
            PossibleValuesParser::new(names()).parse_ref(command, arg, OsStr::new(name))?;
        }
        text.parse::<Step>().map_err(|error| {
            let flag = arg.map_or_else(String::new, Arg::to_string);
            let what = format!("invalid value '{text}' for '{flag}': {error}\n");
            Error::raw(ErrorKind::ValueValidation, what).with_cmd(command)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(names()))
    }
}

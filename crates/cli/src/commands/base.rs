//! The options that a command starts from: those recorded in the store, if any, and the defaults.
//!
//! A command that only reads, or does one operation, must not reshape a store by options that
//! were not given. So an option without a flag has the store's recorded value, and each flag that
//! differs from the recorded value is reported.

use std::io::{self, Write as _};
use std::path::Path;

use trommel::{Db, IgnoredOption, Options};

use crate::escape::visible;
use crate::failure::Failure;

/// The starting options of a command.
#[derive(Debug)]
pub(crate) struct Base {
    /// The defaults, overridden by the options recorded in the store.
    pub(crate) options: Options,
    /// The names of the recorded options.
    pub(crate) remembered: Vec<&'static str>,
    ignored: Vec<IgnoredOption>,
    /// The state of the file that records them.
    pub(crate) state: String,
    /// Whether there is a store whose options are unknown.
    is_unknown: bool,
}

impl Base {
    /// The options recorded in the store in `dir`, over `defaults`. Prints a warning to standard
    /// error if they cannot be read.
    pub(crate) fn of(dir: &Path, defaults: &Options) -> Self {
        let base = Self::look(dir, defaults);
        if base.is_unknown && base.state != MISSING {
            note(&format!("{}: this command uses the default options", base.state));
        }
        base
    }

    fn look(dir: &Path, defaults: &Options) -> Self {
        let is_there = dir.join("CURRENT").exists();
        let (latest, state) = match defaults.clone().load_latest(dir) {
            Ok(latest) if latest.remembered.is_empty() => (Some(latest), MISSING.to_owned()),
            Ok(latest) => (Some(latest), "remembered".to_owned()),
            Err(error) => (None, error.to_string()),
        };
        let is_unknown = is_there && state != "remembered";
        let Some(latest) = latest else {
            let options = defaults.clone();
            return Self { options, remembered: vec![], ignored: vec![], state, is_unknown };
        };
        let (options, remembered, ignored) = (latest.options, latest.remembered, latest.ignored);
        Self { options, remembered, ignored, state, is_unknown }
    }

    /// The same over the options of an open store.
    pub(crate) fn with(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// How the options `wanted` differ from those that the store was last written with.
    pub(crate) fn notes(&self, wanted: &Options) -> Vec<String> {
        let mut notes = Vec::new();
        if self.is_unknown && self.state == MISSING {
            notes.push(
                "the store has no record of its options: it gets those of this command, and the \
                 defaults for the rest"
                    .to_owned(),
            );
        }
        for option in &self.ignored {
            let IgnoredOption { name, value, why, .. } = option;
            let here =
                setting(wanted, name).map_or("not known here".into(), |it| format!("{it} here"));
            notes.push(format!("{name}: {here}, store has {value}: {why}"));
        }
        let is_remembered = |(name, _, _): &(&str, String, String)| self.remembered.contains(name);
        let given = wanted.differences(&self.options).into_iter().filter(is_remembered);
        notes.extend(
            given.map(|(name, here, there)| format!("{name}: {here} given, store has {there}")),
        );
        notes
    }

    /// Options that have no effect on a command that only reads.
    pub(crate) fn notes_of_a_reader(&self, wanted: &Options) -> Vec<String> {
        let is_remembered = |(name, _, _): &(&str, String, String)| self.remembered.contains(name);
        let given = wanted.differences(&self.options).into_iter().filter(is_remembered);
        let note = |(name, here, there)| {
            format!("{name}: {here} given, store has {there}, which stays: nothing is written")
        };
        given.map(note).collect()
    }

    /// Opens the store for writing, and reports changed options.
    pub(crate) fn open(&self, dir: &Path, wanted: &Options) -> Result<Db, Failure> {
        let db = Db::open(dir, wanted.clone())?;
        self.report(wanted);
        if let Some(fault) = db.options_fault().filter(|fault| fault.to_string() != self.state) {
            note(&format!("the store's options could not be recorded: {fault}"));
        }
        Ok(db)
    }

    /// Prints these notes to standard error.
    pub(crate) fn report(&self, wanted: &Options) {
        self.notes(wanted).iter().for_each(|text| note(text));
    }

    /// The source of the value of the option `name` in `wanted`.
    pub(crate) fn source(&self, name: &'static str, wanted: &Options) -> &'static str {
        match () {
            () if setting(wanted, name) != setting(&self.options, name) => "given",
            () if self.remembered.contains(&name) => "remembered",
            () => "default",
        }
    }
}

const MISSING: &str = "none";

/// The value of the option `name`, as text.
pub(crate) fn setting(options: &Options, name: &str) -> Option<String> {
    let found = options.settings().into_iter().find(|(other, _)| *other == name);
    found.map(|(_, value)| value)
}

/// The number in the option `name`.
pub(crate) fn number(options: &Options, name: &str) -> u64 {
    setting(options, name).and_then(|value| value.parse().ok()).unwrap_or_default()
}

fn note(text: &str) {
    let _ = writeln!(io::stderr(), "note: {}", visible(text));
}

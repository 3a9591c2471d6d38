//! The commands that inspect the files of a store, which may be open elsewhere, or corrupt: `sst`,
//! `log`, `manifest`, `find`, `properties`, `files`.
//!
//! [`trommel::inspect`] decodes the files; these modules format the result. A command on several
//! files processes all of them: each error is printed when it occurs, and the exit code is that of
//! corruption, if there is any.

pub(crate) mod find;
pub(crate) mod listing;
pub(crate) mod log;
pub(crate) mod manifest;
pub(crate) mod properties;
pub(crate) mod sst;

use std::path::{Path, PathBuf};

use clap::Args;
use trommel::inspect::{Ending, LogSpan, LogSpanKind};
use trommel::vfs::{DiskVfs, Vfs as _};
use trommel_harness::units::parse_count;

use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::Value;

/// The file system of all files.
const DISK: &DiskVfs = &DiskVfs;

/// Entries between two checks for an interrupt.
const ENTRIES_PER_LOOK: u64 = 1024;

/// How many entries to print.
#[derive(Debug, Args)]
struct LimitArgs {
    /// Stop after this many entries of each file
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    limit: Option<u64>,
}

impl LimitArgs {
    fn entries(&self) -> u64 {
        self.limit.unwrap_or(u64::MAX)
    }
}

/// The files, with each directory replaced by the files in it that have this extension.
fn with_those_of_dirs(files: &[PathBuf], extension: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for path in files {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let listed = DISK.list(path).map_err(|error| Failure::Other(error.to_string()))?;
        let names =
            listed.into_iter().filter(|entry| entry.is_file).map(|entry| path.join(entry.name));
        let before = all.len();
        all.extend(names.filter(|name| name.extension().is_some_and(|other| other == extension)));
        if all.len() == before {
            let what = format!("there is no file *.{extension} in {}", path.display());
            return Err(Failure::NothingThere(what));
        }
    }
    Ok(all)
}

/// Collects failures; the worst is the command's.
#[derive(Debug, Default)]
struct Failures(Option<Failure>);

impl Failures {
    /// Keeps the worse of two failures, and prints the other.
    fn add(&mut self, failure: impl Into<Failure>) {
        let failure = failure.into();
        match self.0.take() {
            Some(kept) if kept.is_damage() && !failure.is_damage() => {
                failure.say();
                self.0 = Some(kept);
            }
            kept => {
                kept.iter().for_each(Failure::say);
                self.0 = Some(failure);
            }
        }
    }

    /// Calls `act` for each file, whatever happens to the others.
    fn each(
        files: &[PathBuf],
        session: Session<'_>,
        mut act: impl FnMut(&Path) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let mut failures = Self::default();
        for file in files {
            session.go_on()?;
            match act(file) {
                Err(failure) if failure.is_final() => return Err(failure),
                Err(failure) => failures.add(failure),
                Ok(()) => {}
            }
        }
        Ok(failures)
    }

    /// The command's result.
    fn result(self) -> Result<(), Failure> {
        self.0.map_or(Ok(()), Err)
    }
}

/// The directory of the store: the shell's, or the one in the arguments.
fn dir_of(store: &StoreArgs, session: Session<'_>) -> Result<PathBuf, Failure> {
    match session.open {
        Some(db) => {
            store.reject_db()?;
            Ok(db.dir().to_path_buf())
        }
        None => store.dir(),
    }
}

/// A random id as text.
fn id(id: u64) -> Value {
    format!("{id:016x}").into()
}

/// The last component of a path, to identify the file of a row.
fn name(path: &Path) -> Value {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned().into()
}

fn path_text(path: &Path) -> Value {
    path.display().to_string().into()
}

fn level(level: usize) -> Value {
    format!("L{level}").into()
}

/// The end of a log or manifest: its kind, and details.
fn ending(ending: &Ending) -> (Value, Value) {
    let (word, detail) = match ending {
        Ending::Marked { next: 0 } => ("closed", Some("an end marker".into())),
        Ending::Marked { next } => {
            ("closed", Some(format!("an end marker that names {next:06}.log")))
        }
        Ending::Open => ("open", Some("no end marker: in use, or its writer was killed".into())),
        Ending::Torn { offset, bytes, records, what } => {
            let text = format!(
                "{what}: {bytes} bytes from byte {offset} on do not count, {records} readable \
                 records among them"
            );
            ("torn", Some(text))
        }
        Ending::Damaged(damage) => {
            ("damaged", Some(format!("byte {}: {}", damage.offset, damage.what)))
        }
        _ => ("unknown", None),
    };
    (word.into(), detail.into())
}

/// The columns of the layout of a log or manifest.
const SPANS: [&str; 5] = ["file", "offset", "bytes", "kind", "seqno"];

/// A row of the layout of a log or manifest.
fn span_row(file: &Path, span: &LogSpan, record: &'static str) -> Vec<Value> {
    let kind = match span.kind {
        LogSpanKind::Header => "header",
        LogSpanKind::Record => record,
        LogSpanKind::EndMarker => "end marker",
        LogSpanKind::Torn => "torn",
        LogSpanKind::Damaged => "damaged",
        LogSpanKind::ZerosAhead => "zeros ahead",
        _ => "unknown",
    };
    vec![
        name(file),
        Value::Integer(span.offset),
        Value::Integer(span.bytes),
        kind.into(),
        span.seqno.map(Value::Integer).into(),
    ]
}

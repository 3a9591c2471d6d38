//! `trommel files`: the files in a directory, and their kinds.

use std::io::Write;

use clap::Args;
use trommel::inspect::{LiveFile, Role, live_files};

use super::{DISK, Failures, dir_of, name};
use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};

pub(crate) const LONG_ABOUT: &str = "\
Lists the files of a store: the role of each, whether the store needs it (column `live`), and \
files named in the manifest that are missing or have another length. A file that is not live is \
either foreign, and never touched, or an orphan, which is removed when the store is opened for \
writing.

Exit 4 if a file is missing or has another length, or if the manifest is corrupt. The contents of \
tables and logs are not read: see trommel verify and trommel sst check.";

#[derive(Debug, Args)]
pub(crate) struct FilesArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(
    args: &FilesArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let files = live_files(DISK, &dir_of(&args.store, session)?)?;
    let mut output = args.output.begin("files", out);
    output.list("files", &["file", "role", "bytes", "live", "problem"])?;
    let mut failures = Failures::default();
    for file in files {
        output.row(row(&file))?;
        file.problem.into_iter().for_each(|problem| failures.add(problem));
    }
    output.finish()?;
    failures.result()
}

fn row(file: &LiveFile) -> Vec<Value> {
    let role = match file.role {
        Role::Lock => "lock",
        Role::Current => "current",
        Role::Options => "options",
        Role::Manifest => "manifest",
        Role::Log => "log",
        Role::ArchivedLog => "archived-log",
        Role::Table => "table",
        Role::FilterSidecar => "filter sidecar",
        Role::Spare => "spare",
        Role::Temporary => "temporary",
        _ => "foreign",
    };
    vec![
        name(&file.path),
        role.into(),
        file.bytes.map(Value::Count).into(),
        file.live.into(),
        file.problem.as_ref().map(problem).into(),
    ]
}

/// The problem, without the file, which is in another column.
fn problem(error: &trommel::Error) -> String {
    match error {
        trommel::Error::Corruption(damage) if damage.offset == 0 => damage.what.to_string(),
        trommel::Error::Corruption(damage) => format!("byte {}: {}", damage.offset, damage.what),
        other => other.to_string(),
    }
}

//! `trommel find`: the locations of a key in a store.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use trommel::inspect::{self, Answer, Sighting, Trace, VersionAt};

use super::sst::kind;
use super::{DISK, Failures, dir_of, level, name};
use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};
use crate::text::KeyForm;

pub(crate) const LONG_ABOUT: &str = "\
Shows every file of a store that holds a version of a key, newest first, and, for every table \
whose key range covers the key, the answer of its filter. If a table has only a prefix filter, \
that one is queried, provided that its extractor is a built-in rule. The files are read as they \
are on disk, without a lock, so the store may be in use.

The column `lookup` shows what a lookup of the key does at each file: it is answered there; it \
skips the table because the filter answers no (a read is saved); it reads the table and does not \
find the key (a read is wasted: by a false positive, or because there is no filter); or it does \
not get there, as it was answered before. The column `range deleted` shows the sequence number of \
the newest range tombstone that applies to the key, if it deletes the version.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel find user:42 --db db
  trommel find 757365723a3432 --key-format=hex --db db --format=json

Exit 3 if no file holds a version of the key.";

#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    /// The key, in the form that --key-format says
    #[arg(allow_hyphen_values = true)]
    key: OsString,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    output: OutputArgs,
}

const COLUMNS: [&str; 9] = [
    "file",
    "level",
    "filter",
    "lookup",
    "seqno",
    "kind",
    "range_deleted",
    "value_bytes",
    "offset",
];

pub(crate) fn run(
    args: &FindArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let key = args.key_form.of_argument(&args.key)?;
    let trace = inspect::find(DISK, &dir_of(&args.store, session)?, &key)?;
    let mut output = args.output.begin("find", out);
    output.list("places", &COLUMNS)?;
    for sighting in &trace.sightings {
        let mut versions = sighting.versions.iter();
        output.row(row(&trace, sighting, versions.next(), lookup(sighting)))?;
        for older in versions {
            output.row(row(&trace, sighting, Some(older), "older"))?;
        }
    }
    output.finish()?;
    let is_there = trace.newest().is_some();
    let mut failures = Failures::default();
    trace.problems.into_iter().for_each(|problem| failures.add(problem));
    failures.result()?;
    if is_there { Ok(()) } else { Err(Failure::NotFound) }
}

fn row(
    trace: &Trace,
    sighting: &Sighting,
    version: Option<&VersionAt>,
    lookup: &str,
) -> Vec<Value> {
    let deleted = |version: &VersionAt| trace.range_deleted.filter(|at| *at > version.seqno);
    let filter = match (sighting.filter, sighting.by_prefix) {
        (Answer::NotQueried, _) => Value::Null,
        (Answer::No, false) => "no".into(),
        (Answer::Maybe, false) => "maybe".into(),
        (Answer::No, true) => "no, by its prefix".into(),
        (Answer::Maybe, true) => "maybe, by its prefix".into(),
        _ => "unknown".into(),
    };
    vec![
        name(&sighting.path),
        sighting.level.map_or("log".into(), level),
        filter,
        lookup.into(),
        version.map(|version| Value::Integer(version.seqno)).into(),
        version.map(|version| kind(version.kind)).into(),
        version.and_then(deleted).map(Value::Integer).into(),
        version.map(|version| Value::Count(version.value_bytes)).into(),
        version.map(|version| Value::Integer(version.offset)).into(),
    ]
}

/// The step of a lookup of the key in this file.
fn lookup(sighting: &Sighting) -> &'static str {
    match sighting.filter {
        _ if !sighting.reached => "answered before",
        _ if !sighting.versions.is_empty() => "answered here",
        Answer::No => "goes past",
        _ => "wasted read",
    }
}

//! `trommel load`.
//!
//! 1. A file is read once to its end, so that a truncated or corrupt dump, or an invalid line, is
//!    found before anything is written.
//! 2. Then its entries are written, in batches. No compaction starts until they exceed the
//!    memtables that fill level 0: a few entries leave the tree as it is, and many do not stay in
//!    level 0. Entries from a pipe are written as they arrive, and after an early end the number of
//!    entries in the store is reported.

use std::ffi::OsString;
use std::io::Write;

use clap::Args;
use trommel::{Db, KeyspaceOptions, WriteBatch};
use trommel_harness::Unit;

use crate::commands::base::number;
use crate::commands::keyspaces::{KeyspaceArgs, OpenKeyspace};
use crate::commands::store_args::{Session, WriteArgs};
use crate::entries::{EntryReader, Forms, Item, Source, StreamForm};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};
use crate::text::{KeyForm, ValueForm};

pub(crate) const LONG_ABOUT: &str = "\
Writes the entries of a file or of standard input into the store: the output of dump, or of scan \
as jsonl or csv. The keyspaces of a dump are created if there are none of their names, and get the \
options that the dump has. A file is checked to its end before anything is written. Entries from standard \
input are written as they arrive, and an error reports how many are in the store.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel load --db data --create all.dump
  printf 'apple\\tred\\npear\\tgreen\\n' | trommel load --db data --create -
  trommel load --db data --as csv --value-format base64 table.csv";

/// Maximum entries, or bytes, of a batch.
const BATCH_ENTRIES: usize = 1000;
const BATCH_BYTES: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// The file to read; - is standard input
    file: OsString,
    /// Its form: jsonl, text (key, tab, value), csv or binary [default: jsonl, binary or text,
    /// according to its first bytes]
    #[arg(long = "as", value_name = "FORM", value_enum, hide_possible_values = true)]
    form: Option<StreamForm>,
    /// Create the store if the directory is missing or empty
    #[arg(long)]
    create: bool,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    value_form: ValueForm,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(
    args: &LoadArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let source = match args.file.to_str() {
        Some("-") => Source::StandardInput(session.input()?),
        _ => Source::File(args.file.clone().into()),
    };
    let forms = Forms { key: args.key_form.key_format, value: args.value_form.value_format };
    let open = || EntryReader::open(&source, args.form, forms);
    let one = args.keyspace.is_given();
    let total = match &source {
        Source::StandardInput(_) => 0,
        Source::File(_) => {
            session.step("checking", (0, Unit::Entries), || check(&mut open()?, one, session))?
        }
    };
    let mut reader = open()?;
    let loaded = args.write.make_and(session, args.create, |db| {
        let (before, place) = (db.options(), args.keyspace.of(db)?);
        let load = || load(&mut reader, db, place, one, session);
        let loaded = session.step("loading", (total, Unit::Entries), load);
        db.set_options(|_| before)?;
        let loaded = loaded?;
        db.sync()?;
        Ok(loaded)
    })?;
    let mut output = args.output.begin("load", out);
    output.record("", &[("entries", Value::Count(loaded))])?;
    Ok(output.finish()?)
}

/// The error of a dump that has named keyspaces and is to be loaded into one.
fn several(name: &str) -> Failure {
    Failure::Usage(format!(
        "the dump has the keyspace \"{name}\": load it without --keyspace, which creates its \
         keyspaces"
    ))
}

/// Reads all entries, which may have to be of `one` keyspace; returns their number.
fn check(reader: &mut EntryReader, one: bool, session: Session<'_>) -> Result<u64, Failure> {
    let mut entries = 0;
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Keyspace(name, _) if one => return Err(several(&name)),
            Item::Keyspace(..) => continue,
            Item::Entry(..) => entries += 1,
        }
        if entries % 1024 == 0 {
            session.go_on()?;
        }
    }
    Ok(entries)
}

/// Writes all entries, of `one` keyspace or of several; returns their number.
fn load<'a>(
    reader: &mut EntryReader,
    db: &'a Db,
    mut place: OpenKeyspace<'a>,
    one: bool,
    session: Session<'_>,
) -> Result<u64, Failure> {
    let (mut loaded, mut bytes) = (0, 0);
    let options = db.options();
    let few = number(&options, "write_buffer_bytes") * number(&options, "l0_trigger");
    loop {
        let (batch, batch_bytes, end) = next_batch(reader, &place);
        let entries = batch.len() as u64;
        let was_few = bytes <= few;
        bytes += batch_bytes;
        if was_few && bytes > few {
            db.set_options(|options| options.compaction(|c| c.auto_compaction(true)))?;
        }
        let written =
            if entries == 0 { Ok(()) } else { db.write(batch).map(drop).map_err(Failure::from) };
        let outcome = written.and_then(|()| {
            loaded += entries;
            session.control.progress.advance(entries);
            session.go_on()?;
            match end? {
                End::OfBatch => {}
                End::OfInput => return Ok(true),
                End::AtKeyspace(name, _) if one => return Err(several(&name)),
                End::AtKeyspace(name, options) => {
                    place = OpenKeyspace::Named(db.keyspace(name, options)?);
                }
            }
            Ok(false)
        });
        match outcome {
            Ok(false) => {}
            Ok(true) => return Ok(loaded),
            Err(failure) => {
                return Err(failure.with(format!("{loaded} entries before that were loaded")));
            }
        }
    }
}

/// Where a batch ends.
enum End {
    OfBatch,
    OfInput,
    /// At the beginning of a named keyspace.
    AtKeyspace(String, KeyspaceOptions),
}

/// The next batch, its size, and what follows it, or why the input failed there.
fn next_batch(
    reader: &mut EntryReader,
    place: &OpenKeyspace<'_>,
) -> (WriteBatch, u64, Result<End, Failure>) {
    let mut batch = WriteBatch::new();
    let mut bytes = 0;
    while batch.len() < BATCH_ENTRIES && bytes < BATCH_BYTES {
        match reader.next_item() {
            Ok(Some(Item::Entry(key, value))) => {
                bytes += (key.len() + value.len()) as u64;
                place.put(&mut batch, &key, &value);
            }
            Ok(Some(Item::Keyspace(name, options))) => {
                return (batch, bytes, Ok(End::AtKeyspace(name, options)));
            }
            Ok(None) => return (batch, bytes, Ok(End::OfInput)),
            Err(failure) => return (batch, bytes, Err(failure)),
        }
    }
    (batch, bytes, Ok(End::OfBatch))
}

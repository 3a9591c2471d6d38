//! `trommel write-table` and `trommel ingest`.
//!
//! 1. `write-table` reads sorted entries, such as a dump of a keyspace, and writes a complete table
//!    file of them, durably, or none. It needs no store.
//! 2. `ingest` loads such files into a keyspace, all or none. It starts no compaction, like other
//!    commands.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use trommel::{Compression, IngestBatch, Options, TableWriter};
use trommel_harness::Unit;

use crate::commands::keyspaces::KeyspaceArgs;
use crate::commands::store_args::{Session, WriteArgs};
use crate::entries::{EntryReader, Forms, Item, StreamForm};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};
use crate::shared_args::one_of;
use crate::text::{KeyForm, ValueForm};

pub(crate) const WRITE_ABOUT: &str = "\
Writes the entries of a file or of standard input, which must be in key order, to a table file that \
ingest loads into any store. A dump is in order. A dump with named keyspaces is refused: dump each \
with --keyspace.";

pub(crate) const WRITE_HELP: &str = "\
Examples:
  trommel dump --db data --as binary - | trommel write-table - all.table
  LC_ALL=C sort entries.txt | trommel write-table --as text - entries.table";

pub(crate) const INGEST_ABOUT: &str = "\
Loads table files, which write-table or a program wrote, into a keyspace of the store: all of them, \
or none. Every byte is verified first; a file that is corrupt, foreign, or overlaps another one is \
refused. Existing keys are overwritten. The files stay as they are.";

pub(crate) const INGEST_HELP: &str = "\
Examples:
  trommel ingest --db data --create part-1.table part-2.table
  trommel ingest --db data --keyspace users users.table";

#[derive(Debug, Args)]
pub(crate) struct WriteTableArgs {
    /// The file to read; - is standard input
    file: OsString,
    /// The table file to write, which must not exist
    table: PathBuf,
    /// The form of the input: jsonl, text (key, tab, value), csv or binary [default: jsonl, binary
    /// or text, according to its first bytes]
    #[arg(long = "as", value_name = "FORM", value_enum, hide_possible_values = true)]
    form: Option<StreamForm>,
    /// Compression of the file, none or lz4
    #[arg(long, value_name = "KIND", default_value = "lz4", hide_possible_values = true)]
    #[arg(value_parser = one_of::<Compression>(["none", "lz4"]))]
    compression: Compression,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    value_form: ValueForm,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct IngestArgs {
    /// The table files to load
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Create the store if the directory is missing or empty
    #[arg(long)]
    create: bool,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run_write(
    args: &WriteTableArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let source = session.source(&args.file)?;
    let forms = Forms { key: args.key_form.key_format, value: args.value_form.value_format };
    let mut reader = EntryReader::open(&source, args.form, forms)?;
    let options = Options::default().compression(args.compression);
    let mut writer = TableWriter::create(&args.table, &options)?;
    let written = session.step("writing", (0, Unit::Entries), || {
        while let Some(item) = reader.next_item()? {
            let Item::Entry(key, value) = item else { return Err(of_several()) };
            writer.put(key, value)?;
            session.control.progress.advance(1);
            session.go_on()?;
        }
        Ok(writer.finish()?)
    })?;
    let mut output = args.output.begin("write-table", out);
    output.record(
        "",
        &[("entries", Value::Count(written.entries)), ("bytes", Value::Size(written.bytes))],
    )?;
    Ok(output.finish()?)
}

fn of_several() -> Failure {
    Failure::Usage(
        "the dump has several keyspaces, and a table file is for one: dump each with --keyspace"
            .into(),
    )
}

pub(crate) fn run_ingest(
    args: &IngestArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let report = args.write.make_and(session, args.create, |db| {
        let place = args.keyspace.of(db)?;
        let mut batch = IngestBatch::new();
        args.files.iter().for_each(|file| place.ingest(&mut batch, file));
        session.call("ingesting", db, move |db| db.ingest_batch(&batch))
    })?;
    let mut output = args.output.begin("ingest", out);
    output.record(
        "",
        &[
            ("entries", Value::Count(report.entries)),
            ("tables", Value::Count(report.tables)),
            ("bytes", Value::Size(report.bytes)),
        ],
    )?;
    Ok(output.finish()?)
}

//! `trommel log`: write-ahead logs.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use trommel::inspect::{Ending, Log, LogInfo};

use super::{
    DISK, ENTRIES_PER_LOOK, Failures, LimitArgs, SPANS, ending, id, name, path_text, span_row,
    with_those_of_dirs,
};
use crate::commands::operations::columns;
use crate::commands::store_args::Session;
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};
use crate::text::{KeyForm, ValueForm};

pub(crate) const LONG_ABOUT: &str = "\
Inspects write-ahead logs (n.log): the writes that may not be in a table yet. Nothing is written \
and no lock is taken, so the store may be in use, and a log may be corrupt, or a copy.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel log info db/000016.log     the header, its batches and operations in numbers, how it ends
  trommel log check db/*.log         read every byte; exit 4 if one is wrong
  trommel log scan db/000016.log     every operation, in the order of the writes
  trommel log layout db/000016.log   each record: offset, length, first sequence number

A log ends in one of four ways. closed: with an end marker. open: at the end of a record; it is in \
use, or its writer was killed. torn: inside a record that a power cut truncated; the rest of it \
does not count, and that is not corruption. damaged: in bytes that no power cut explains.";

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    command: LogCommand,
}

#[derive(Debug, Subcommand)]
enum LogCommand {
    /// Print a log's header, its number of batches and operations, and how it ends
    Info(LogFilesArgs),
    /// Read every byte and check it: checksums, order, every operation
    Check(LogFilesArgs),
    /// Print every operation, in the order of the writes
    Scan(LogScanArgs),
    /// Print the layout of the file, record by record
    Layout(LogFilesArgs),
}

#[derive(Debug, Args)]
struct LogFilesArgs {
    /// Logs, or directories of them
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct LogScanArgs {
    /// Logs, or directories of them
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    value_form: ValueForm,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(
    args: &LogArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match &args.command {
        LogCommand::Info(args) => info(args, session, out),
        LogCommand::Check(args) => check(args, session, out),
        LogCommand::Scan(args) => scan(args, session, out),
        LogCommand::Layout(args) => layout(args, session, out),
    }
}

fn info(args: &LogFilesArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut items = Vec::new();
    let failures = Failures::each(&with_those_of_dirs(&args.files, "log")?, session, |file| {
        items.push(item(&Log::open(DISK, file)?.info()?));
        Ok(())
    })?;
    let mut output = args.output.begin("log_info", out);
    output.items("logs", items)?;
    output.finish()?;
    failures.result()
}

fn item(info: &LogInfo) -> Vec<(&'static str, Value)> {
    let (word, detail) = ending(&info.ending);
    vec![
        ("file", path_text(&info.path)),
        ("format_version", Value::Integer(info.format_version.into())),
        ("number", Value::Integer(info.number)),
        ("store_id", id(info.store_id)),
        ("salt", id(info.salt)),
        ("previous_log", Some(info.previous).filter(|n| *n != 0).map(Value::Integer).into()),
        ("file_bytes", Value::Count(info.file_bytes)),
        ("batches", Value::Count(info.written.batches)),
        ("puts", Value::Count(info.written.puts)),
        ("deletes", Value::Count(info.written.deletes)),
        ("merges", Value::Count(info.written.merges)),
        ("range_deletes", Value::Count(info.written.range_deletes)),
        ("first_seqno", info.seqnos.map(|(first, _)| Value::Integer(first)).into()),
        ("last_seqno", info.seqnos.map(|(_, last)| Value::Integer(last)).into()),
        ("ending", word),
        ("ending_detail", detail),
    ]
}

fn check(args: &LogFilesArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut output = args.output.begin("log_check", out);
    output.list("logs", &["file", "ok", "bytes", "batches", "operations", "ending"])?;
    let failures = Failures::each(&with_those_of_dirs(&args.files, "log")?, session, |file| {
        let checked = Log::open(DISK, file).and_then(|log| log.check());
        let found = match &checked {
            Ok(checked) => [
                Value::Count(checked.bytes),
                Value::Count(checked.batches),
                Value::Count(checked.operations),
                ending(&checked.ending).0,
            ],
            Err(_) => [const { Value::Null }; 4],
        };
        let row = [path_text(file), checked.is_ok().into()].into_iter().chain(found);
        output.row(row.collect())?;
        Ok(checked.map(drop)?)
    })?;
    output.finish()?;
    failures.result()
}

fn scan(args: &LogScanArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut output = args.output.begin("log_scan", out);
    output.list("operations", &["file", "offset", "seqno", "kind", "key", "value"])?;
    let failures = Failures::each(&with_those_of_dirs(&args.files, "log")?, session, |file| {
        let log = Log::open(DISK, file)?;
        let operations = log
            .scan()
            .flat_map(|batch| batch.operations().map(move |operation| (batch.offset, operation)));
        for ((offset, operation), count) in operations.zip(0..args.limit.entries()) {
            let operation = operation?;
            // Others are never in a log.
            let Some(columns) = columns(operation.op, args.key_form, args.value_form) else {
                continue;
            };
            let place = [name(file), Value::Integer(offset), Value::Integer(operation.seqno)];
            output.row(place.into_iter().chain(columns).collect())?;
            if count.is_multiple_of(ENTRIES_PER_LOOK) {
                session.go_on()?;
            }
        }
        match log.ending() {
            Ending::Damaged(damage) => Err(trommel::Error::from(damage).into()),
            _ => Ok(()),
        }
    })?;
    output.finish()?;
    failures.result()
}

fn layout(args: &LogFilesArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut output = args.output.begin("log_layout", out);
    output.list("records", &SPANS)?;
    let failures = Failures::each(&with_those_of_dirs(&args.files, "log")?, session, |file| {
        for span in Log::open(DISK, file)?.layout() {
            output.row(span_row(file, &span, "batch"))?;
        }
        Ok(())
    })?;
    output.finish()?;
    failures.result()
}

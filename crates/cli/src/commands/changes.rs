//! `trommel changes`.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use trommel::{ChangedBatch, ChangedKeyspace, Changes, Db, Error};
use trommel_harness::units::parse_count;

use crate::commands::live_store::LiveStore;
use crate::commands::operations::columns;
use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{Output, OutputArgs, Value};
use crate::shared_args::whole;
use crate::text::{KeyForm, ValueForm};

pub(crate) const LONG_ABOUT: &str = "\
Prints the writes of a store in the order in which they were committed, from its logs: those that \
it still needs, and those that it keeps for change feeds (the option log_archive_bytes, off by \
default). Takes no lock, so another process may be writing to the store.

Each row is an operation, with the sequence number of the last one of its batch. --since with that \
number continues after the batch. Printed batches are durable: the log is synced first if needed. \
What expires is not printed. Where changes are missing, because their logs were removed or a program \
loaded sorted entries, the command ends with an error that names the number at which it can go on.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel changes --db db                          all that is there, from the oldest
  trommel changes --db db --since 4711             what came after the batch that ends with 4711
  trommel changes --db db --follow --format=jsonl  that, and then each batch as it is committed

Exit 2 if changes after --since are missing.";

/// How long to wait for changes before checking for an interrupt.
const PAUSE: Duration = Duration::from_millis(100);

const COLUMNS: [&str; 5] = ["seqno", "keyspace", "kind", "key", "value"];

#[derive(Debug, Args)]
pub(crate) struct ChangesArgs {
    /// Only batches after this sequence number [default: from the oldest that is there]
    #[arg(long, value_name = "SEQNO", value_parser = whole::<u64>)]
    since: Option<u64>,
    /// Go on as batches are committed, until interrupted
    #[arg(long)]
    follow: bool,
    /// Stop after this many batches
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    limit: Option<u64>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    value_form: ValueForm,
    #[command(flatten)]
    output: OutputArgs,
}

/// Waits a little for changes. Returns whether there are any.
fn wait(source: &LiveStore<'_>, changes: &mut Changes) -> Result<bool, Failure> {
    if let LiveStore::Followed(follower) = source {
        follower.catch_up()?;
        if !changes.wait(Duration::ZERO)? {
            std::thread::sleep(PAUSE);
            return Ok(false);
        }
        return Ok(true);
    }
    Ok(changes.wait(PAUSE)?)
}

pub(crate) fn run(
    args: &ChangesArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let source = LiveStore::open(&args.store, session)?;
    let mut changes = begin(args, source.db())?;
    let mut output = args.output.begin("changes", out);
    output.list("changes", &COLUMNS)?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    let ended = print_all(args, &source, &mut changes, &mut left, session, &mut output);
    // Complete the document even after an error.
    output.finish()?;
    ended
}

/// The feed from the requested position.
fn begin(args: &ChangesArgs, db: &Db) -> Result<Changes, Failure> {
    if let Some(since) = args.since {
        return Ok(db.changes_since(since)?);
    }
    match db.changes_since(0) {
        Err(Error::ChangesMissing { oldest, .. }) => {
            let _ = writeln!(io::stderr(), "changes before {oldest} are not in the logs any more");
            Ok(db.changes_since(oldest - 1)?)
        }
        begun => Ok(begun?),
    }
}

fn print_all(
    args: &ChangesArgs,
    source: &LiveStore<'_>,
    changes: &mut Changes,
    left: &mut u64,
    session: Session<'_>,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    while *left > 0 {
        session.go_on()?;
        match changes.next() {
            Some(batch) => {
                print_batch(args, &batch?, output)?;
                *left -= 1;
            }
            None if args.follow => {
                output.pass_on()?;
                while !wait(source, changes)? {
                    session.go_on()?;
                }
            }
            None => break,
        }
    }
    Ok(())
}

fn print_batch(
    args: &ChangesArgs,
    batch: &ChangedBatch,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    for changed in batch.iter() {
        let keyspace = match changed.keyspace {
            ChangedKeyspace::Named { name, .. } => name.into(),
            ChangedKeyspace::Dropped { id } => format!("number {id}, dropped").into(),
            _ => Value::Null,
        };
        // Others are never in a feed.
        let Some(columns) = columns(changed.op, args.key_form, args.value_form) else { continue };
        let place = [Value::Integer(batch.seqno()), keyspace];
        output.row(place.into_iter().chain(columns).collect())?;
    }
    Ok(())
}

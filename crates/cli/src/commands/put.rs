//! `trommel put`, `trommel delete` and `trommel delete-range`.

use std::ffi::OsString;
use std::io::Read as _;
use std::ops::Bound;

use clap::Args;
use trommel::{WriteBatch, WriteOptions};

use crate::commands::keyspaces::KeyspaceArgs;
use crate::commands::scan::RangeArgs;
use crate::commands::store_args::{Session, WriteArgs};
use crate::failure::Failure;
use crate::text::{KeyForm, ValueForm};

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The key, in the form that --key-format says
    key: OsString,
    /// The value, in the form that --value-format says; - takes standard input, byte for byte
    #[arg(allow_hyphen_values = true)]
    value: OsString,
    /// Sync the write to the device before returning
    #[arg(long)]
    sync: bool,
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
}

pub(crate) fn run_put(args: &PutArgs, session: Session<'_>) -> Result<(), Failure> {
    let key = args.key_form.of_argument(&args.key)?;
    let value = if args.value == "-" {
        let mut value = Vec::new();
        let read = session.input()?.lock().read_to_end(&mut value);
        read.map_err(|error| Failure::Other(format!("reading standard input: {error}")))?;
        value
    } else {
        args.value_form.of_argument(&args.value)?
    };
    args.write.make_and(session, args.create, |db| {
        let mut batch = WriteBatch::new();
        args.keyspace.of(db)?.put(&mut batch, &key, &value);
        db.write_with(batch, durability(args.sync))?;
        Ok(())
    })
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The keys, in the form that --key-format says; all are deleted, or none
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    /// Sync the write to the device before returning
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    key_form: KeyForm,
}

pub(crate) fn run_delete(args: &DeleteArgs, session: Session<'_>) -> Result<(), Failure> {
    let keys = args.keys.iter().map(|key| args.key_form.of_argument(key));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    args.write.write(session, |db| {
        let (place, mut batch) = (args.keyspace.of(db)?, WriteBatch::new());
        keys.iter().for_each(|key| place.delete(&mut batch, key));
        db.write_with(batch, durability(args.sync))?;
        Ok(())
    })
}

pub(crate) const DELETE_RANGE_ABOUT: &str = "\
Deletes all keys in a range with one write, whatever their number. Their space is freed when \
compactions have removed them: see compact.";

pub(crate) const DELETE_RANGE_HELP: &str = "\
Examples:
  trommel delete-range --db db --prefix log/2024-     every key with this prefix
  trommel delete-range --db db --from b --to d        b is deleted, d stays
  trommel delete-range --db db --to log/417           everything before that key
  trommel delete-range --db db --all";

#[derive(Debug, Args)]
pub(crate) struct DeleteRangeArgs {
    #[command(flatten)]
    range: RangeArgs,
    /// Confirm the deletion of every key of the store
    #[arg(long, conflicts_with_all = ["from", "to", "prefix"])]
    all: bool,
    /// Sync the write to the device before returning
    #[arg(long)]
    sync: bool,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    key_form: KeyForm,
}

pub(crate) fn run_delete_range(
    args: &DeleteRangeArgs,
    session: Session<'_>,
) -> Result<(), Failure> {
    let ends = args.range.bounds(args.key_form)?;
    match &ends {
        (Bound::Included(from), Bound::Excluded(to)) if from > to => {
            let (from, to) = (args.key_form.print(from), args.key_form.print(to));
            let what = format!("no key is in this range: its start {from} is after its end {to}");
            return Err(Failure::Usage(what));
        }
        // Bounds are often variables of a script, which may be empty by mistake.
        (Bound::Unbounded, Bound::Unbounded) if !args.all => return Err(refuse_all()),
        (Bound::Included(from), Bound::Unbounded) if from.is_empty() => return Err(refuse_all()),
        _ => {}
    }
    args.write.write(session, |db| {
        let mut batch = WriteBatch::new();
        args.keyspace.of(db)?.delete_range(&mut batch, ends);
        db.write_with(batch, durability(args.sync))?;
        Ok(())
    })
}

fn refuse_all() -> Failure {
    Failure::Usage(
        "this deletes every key of the store: give --from, --to or --prefix, or --all to confirm"
            .into(),
    )
}

fn durability(sync: bool) -> WriteOptions {
    if sync { WriteOptions::sync() } else { WriteOptions::new() }
}

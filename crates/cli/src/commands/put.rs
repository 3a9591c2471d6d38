//! `trommel put`, `trommel merge`, `trommel delete` and `trommel delete-range`.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::ops::Bound;

use clap::{Args, ValueEnum};
use trommel::{Db, Error, Merge, Options, WriteBatch, WriteOptions};

use crate::commands::base::setting;
use crate::commands::keyspaces::{KeyspaceArgs, OpenKeyspace};
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
    let value = value_of(&args.value, args.value_form, session)?;
    args.write.make_and(session, args.create, |db| {
        let mut batch = WriteBatch::new();
        args.keyspace.of(db)?.put(&mut batch, &key, &value);
        db.write_with(batch, durability(args.sync))?;
        Ok(())
    })
}

/// The value of an argument: in its form, or all of standard input.
fn value_of(text: &OsStr, form: ValueForm, session: Session<'_>) -> Result<Vec<u8>, Failure> {
    if text != "-" {
        return form.of_argument(text);
    }
    let mut value = Vec::new();
    let read = session.input()?.lock().read_to_end(&mut value);
    read.map_err(|error| Failure::Other(format!("reading standard input: {error}")))?;
    Ok(value)
}

pub(crate) const MERGE_ABOUT: &str = "\
Merges an operand into the value of a key, without reading it: the merge operator of the store makes \
one value of both. A store has one operator, recorded with its first merge; before that, --operator \
names one of those that come with Trommel.";

pub(crate) const MERGE_HELP: &str = "\
Examples:
  trommel merge --db data --operator counter --number visits 1
  trommel merge --db data --keyspace pages --number home -2
  trommel merge --db data --operator max last-visit 2026-11-29
max compares bytes: values of one length, such as dates, are ordered as expected.";

/// The name of [`Merge::counter`].
const COUNTER: &str = "trommel.counter";

/// A merge operator that comes with the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum BuiltIn {
    Counter,
    Max,
    SetUnion,
}

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// The key, in the form that --key-format says
    key: OsString,
    /// The operand, in the form that --value-format says; - takes standard input, byte for byte
    #[arg(allow_hyphen_values = true)]
    operand: OsString,
    /// The operand is a whole number, of 8 bytes in the store, as counter counts it
    #[arg(long, conflicts_with = "value_format")]
    number: bool,
    /// The merge operator of a store that has none yet: counter, max or set_union
    #[arg(long, value_name = "NAME", value_enum, hide_possible_values = true)]
    operator: Option<BuiltIn>,
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

pub(crate) fn run_merge(args: &MergeArgs, session: Session<'_>) -> Result<(), Failure> {
    let key = args.key_form.of_argument(&args.key)?;
    let operand = match args.number {
        true => number_of(&args.operand)?,
        false => value_of(&args.operand, args.value_form, session)?,
    };
    let operator = args.operator.map(|operator| match operator {
        BuiltIn::Counter => Merge::counter(),
        BuiltIn::Max => Merge::max(),
        BuiltIn::SetUnion => Merge::set_union(),
    });
    if session.open.is_some() && operator.is_some() {
        return Err(Failure::Usage(
            "the shell has its store open already: leave out --operator".into(),
        ));
    }
    let with_operator = |options: Options| match operator {
        Some(operator) => options.writes(|w| w.merge_operator(operator)),
        None => options,
    };
    args.write.make_with(session, args.create, with_operator, |db| {
        let (place, mut batch) = (args.keyspace.of(db)?, WriteBatch::new());
        check_operand(args, db, &place, &operand)?;
        place.merge(&mut batch, &key, &operand);
        match db.write_with(batch, durability(args.sync)) {
            Err(Error::Merge(failure)) if failure.operator.is_empty() => Err(Failure::Usage(
                "the store has no merge operator yet: --operator counter, max or set_union gives it \
                 one, which stays (in the shell, leave it first)"
                    .into(),
            )),
            written => Ok(written.map(drop)?),
        }
    })
}

/// Refuses flags, or an operand, that do not fit the merge operator of the key.
fn check_operand(
    args: &MergeArgs,
    db: &Db,
    place: &OpenKeyspace<'_>,
    operand: &[u8],
) -> Result<(), Failure> {
    let own = match place {
        OpenKeyspace::Default(_) => None,
        OpenKeyspace::Named(keyspace) => {
            let settings = keyspace.options().settings().into_iter();
            settings.filter(|(option, _)| *option == "merge_operator").map(|(_, name)| name).next()
        }
    };
    if let Some(name) = own.as_ref().filter(|_| args.operator.is_some()) {
        return Err(Failure::Usage(format!(
            "the keyspace has a merge operator of its own, {name}: leave out --operator"
        )));
    }
    let name = own.or_else(|| setting(&db.options(), "merge_operator"));
    let is_counter = name.as_ref().is_some_and(|name| name.trim_matches('"') == COUNTER);
    let what = match name {
        Some(_) if is_counter && operand.len() != 8 => {
            let bytes = operand.len();
            format!(
                "a counter takes operands of 8 bytes, not of {bytes}: --number writes a number so"
            )
        }
        Some(name) if args.number && !is_counter && name != "none" => {
            format!("--number is for a counter, and the merge operator is {name}: leave it out")
        }
        _ => return Ok(()),
    };
    Err(Failure::Usage(what))
}

/// The bytes of a number from -2^63 to 2^64 - 1, as a counter has them.
fn number_of(text: &OsStr) -> Result<Vec<u8>, Failure> {
    let number = text.to_str().and_then(|text| {
        let signed = || text.parse::<i64>().map(i64::cast_unsigned);
        text.parse::<u64>().or_else(|_| signed()).ok()
    });
    match number {
        Some(number) => Ok(number.to_le_bytes().to_vec()),
        None => Err(Failure::Usage(format!(
            "{} is no whole number from -2^63 to 2^64 - 1",
            text.to_string_lossy()
        ))),
    }
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

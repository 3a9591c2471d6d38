//! `trommel scan`.

use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;

use clap::Args;
use trommel::{Db, Range};
use trommel_harness::units::parse_count;

use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};
use crate::text::{KeyForm, ValueForm};

/// Entries between two looks at whether the user has had enough.
const ENTRIES_PER_LOOK: u64 = 1024;

/// The ends of a range, as the engine takes them.
type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The two ends of a range.
#[derive(Debug, Args)]
pub(crate) struct EndsArgs {
    /// The first key (itself included)
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// The key behind the last (itself excluded)
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
}

impl EndsArgs {
    /// The range, as the engine takes it.
    pub(crate) fn bounds(&self, form: KeyForm) -> Result<Ends, Failure> {
        let read = |text: &Option<OsString>| {
            text.as_deref().map(|text| form.of_argument(text)).transpose()
        };
        let from = read(&self.from)?.map_or(Bound::Unbounded, Bound::Included);
        let to = read(&self.to)?.map_or(Bound::Unbounded, Bound::Excluded);
        Ok((from, to))
    }
}

/// Which entries.
#[derive(Debug, Args)]
pub(crate) struct RangeArgs {
    #[command(flatten)]
    ends: EndsArgs,
    /// Only keys that begin so
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
}

impl RangeArgs {
    /// The entries of `db`.
    pub(crate) fn of(&self, db: &Db, form: KeyForm) -> Result<Range, Failure> {
        Ok(match &self.prefix {
            Some(prefix) => db.prefix(form.of_argument(prefix)?),
            None => db.range(self.ends.bounds(form)?),
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    range: RangeArgs,
    /// Stop after so many entries
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    limit: Option<u64>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Print how many entries there are, not the entries
    #[arg(long, conflicts_with = "keys_only")]
    count: bool,
    /// Print no values
    #[arg(long)]
    keys_only: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    value_form: ValueForm,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(
    args: &ScanArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    args.store.read(session, |db| {
        let mut output = args.output.begin("scan", out);
        if args.count {
            let count = visit(args, db, session, |_, _| Ok(()))?;
            output.lone("count", Value::Count(count))?;
        } else if args.keys_only {
            output.list("entries", &["key"])?;
            visit(args, db, session, |key, _| {
                Ok(output.row(vec![args.key_form.print(key).into()])?)
            })?;
        } else {
            output.list("entries", &["key", "value"])?;
            visit(args, db, session, |key, value| {
                let (key, value) = (args.key_form.print(key), args.value_form.print(value));
                Ok(output.row(vec![key.into(), value.into()])?)
            })?;
        }
        Ok(output.finish()?)
    })
}

/// Calls `each` for the entries that were asked for, in order; how many there were.
fn visit(
    args: &ScanArgs,
    db: &Db,
    session: Session<'_>,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let mut range = args.range.of(db, args.key_form)?;
    let mut count = 0;
    while args.limit.is_none_or(|limit| count < limit) {
        let next = if args.reverse { range.next_back() } else { range.next() };
        let Some(entry) = next else { break };
        let (key, value) = entry?;
        each(&key, &value)?;
        count += 1;
        if count.is_multiple_of(ENTRIES_PER_LOOK) {
            session.go_on()?;
        }
    }
    Ok(count)
}

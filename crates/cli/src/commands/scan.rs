//! `trommel scan`.

use std::ffi::OsString;
use std::io::Write;
use std::ops::Bound;

use clap::Args;
use trommel::{Db, Healthy, KeySpan, Range, Slice};
use trommel_harness::units::parse_count;

use crate::commands::keyspaces::{KeyspaceArgs, OpenKeyspace};
use crate::commands::store_args::{DegradedArgs, Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};
use crate::text::{KeyForm, ValueForm};

/// Entries between two checks for an interrupt.
const ENTRIES_PER_LOOK: u64 = 1024;

/// The bounds of a range, for the engine.
type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The two ends of a range.
#[derive(Debug, Args)]
pub(crate) struct EndsArgs {
    /// The first key (itself included)
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// The key after the last one (itself excluded)
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
}

impl EndsArgs {
    /// The bounds of the range.
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
    /// Only keys with this prefix
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
}

impl RangeArgs {
    /// Whether it is all of a keyspace.
    pub(crate) fn is_whole(&self) -> bool {
        self.prefix.is_none() && self.ends.from.is_none() && self.ends.to.is_none()
    }

    /// The entries of `place`, on request skipping corruption: then the keys in doubt are added to
    /// `passed_over`.
    pub(crate) fn entries(
        &self,
        place: &OpenKeyspace<'_>,
        form: KeyForm,
        degraded: DegradedArgs,
        passed_over: &mut Vec<KeySpan>,
    ) -> Result<Entries, Failure> {
        if !degraded.is_wanted() {
            return Ok(Entries::All(Box::new(self.of(place, form)?)));
        }
        let healthy = place.healthy(self.bounds(form)?)?;
        for span in healthy.in_doubt() {
            // The span of a table with several keyspaces is found in each of them.
            if !passed_over.contains(&span) {
                passed_over.push(span);
            }
        }
        Ok(Entries::Around(Box::new(healthy)))
    }

    /// The bounds of the range.
    pub(crate) fn bounds(&self, form: KeyForm) -> Result<Ends, Failure> {
        let Some(prefix) = &self.prefix else { return self.ends.bounds(form) };
        let from = form.of_argument(prefix)?;
        let mut to = from.clone();
        while to.last() == Some(&0xff) {
            to.pop();
        }
        let to = match to.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(to)
            }
            None => Bound::Unbounded,
        };
        Ok((Bound::Included(from), to))
    }

    /// The entries of `place`.
    fn of(&self, place: &OpenKeyspace<'_>, form: KeyForm) -> Result<Range, Failure> {
        Ok(match &self.prefix {
            Some(prefix) => place.prefix(&form.of_argument(prefix)?),
            None => place.range(self.ends.bounds(form)?),
        })
    }
}

/// An iterator over entries, which may skip corruption.
pub(crate) enum Entries {
    All(Box<Range>),
    Around(Box<Healthy>),
}

/// The next entry, if there is one.
type Step = Option<trommel::Result<(Slice, Slice)>>;

impl Entries {
    /// The next entry from the front, or the back.
    pub(crate) fn step(&mut self, reverse: bool) -> Result<Step, Failure> {
        match self {
            Self::All(range) if reverse => Ok(range.next_back()),
            Self::All(range) => Ok(range.next()),
            Self::Around(_) if reverse => Err(Failure::Usage(
                "a damaged store can only be scanned forward: leave out --reverse or --degraded"
                    .into(),
            )),
            Self::Around(healthy) => Ok(healthy.next()),
        }
    }
}

/// Fails if keys were skipped, and prints them to standard error.
pub(crate) fn report_skipped(passed_over: &[KeySpan], form: KeyForm) -> Result<(), Failure> {
    for KeySpan { first, last } in passed_over {
        let (first, last) = (form.print(first), form.print(last));
        let _ =
            writeln!(std::io::stderr(), "in doubt, skipped where not certain: {first} to {last}");
    }
    match passed_over.len() {
        0 => Ok(()),
        n => {
            let ranges =
                if n == 1 { "a range of keys is" } else { &*format!("{n} ranges of keys are") };
            let what = format!("{ranges} in doubt; entries that are not certain were skipped");
            Err(Failure::Damaged(what))
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    range: RangeArgs,
    /// Stop after this many entries
    #[arg(long, value_name = "COUNT", value_parser = parse_count)]
    limit: Option<u64>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Print the number of entries instead of the entries
    #[arg(long, conflicts_with = "keys_only")]
    count: bool,
    /// Print no values
    #[arg(long)]
    keys_only: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    #[command(flatten)]
    degraded: DegradedArgs,
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
    let mut passed_over = Vec::new();
    args.store.read_degraded(session, args.degraded, |db| {
        let mut output = args.output.begin("scan", out);
        if args.count {
            let count = visit(args, db, session, &mut passed_over, |_, _| Ok(()))?;
            output.lone("count", Value::Count(count))?;
        } else if args.keys_only {
            output.list("entries", &["key"])?;
            visit(args, db, session, &mut passed_over, |key, _| {
                Ok(output.row(vec![args.key_form.print(key).into()])?)
            })?;
        } else {
            output.list("entries", &["key", "value"])?;
            visit(args, db, session, &mut passed_over, |key, value| {
                let (key, value) = (args.key_form.print(key), args.value_form.print(value));
                Ok(output.row(vec![key.into(), value.into()])?)
            })?;
        }
        Ok(output.finish()?)
    })?;
    report_skipped(&passed_over, args.key_form)
}

/// Calls `each` for the requested entries, in order; returns their number.
fn visit(
    args: &ScanArgs,
    db: &Db,
    session: Session<'_>,
    passed_over: &mut Vec<KeySpan>,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let mut range =
        args.range.entries(&args.keyspace.of(db)?, args.key_form, args.degraded, passed_over)?;
    let mut count = 0;
    while args.limit.is_none_or(|limit| count < limit) {
        let next = range.step(args.reverse)?;
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

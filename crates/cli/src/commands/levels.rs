//! `trommel levels`.

use std::io::Write;

use clap::Args;
use trommel::Db;

use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{Output, OutputArgs, Value};

#[derive(Debug, Args)]
pub(crate) struct LevelsArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(
    args: &LevelsArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    args.store.read(session, |db| {
        let mut output = args.output.begin("levels", out);
        write_levels(db, &mut output)?;
        Ok(output.finish()?)
    })
}

/// A row for each level that holds data, and what the logs hold beside.
pub(crate) fn write_levels(db: &Db, output: &mut Output<'_>) -> Result<(), Failure> {
    output.list(
        "levels",
        &["level", "tables", "file_bytes", "entries", "deletions", "filter_bytes"],
    )?;
    for level in db.stats().levels {
        output.row(vec![
            format!("L{}", level.level).into(),
            Value::Count(level.tables),
            Value::Size(level.bytes),
            Value::Count(level.entries),
            Value::Count(level.deletions),
            Value::Size(level.filter_bytes),
        ])?;
    }
    Ok(())
}

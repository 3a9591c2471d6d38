//! Operations on a store as a whole: `options`, `flush`, `compact`, `checkpoint` and `destroy`.
//! (`verify` and `repair` have modules of their own.)

use std::io::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use clap::Args;
use trommel::{Db, Options};

use crate::commands::levels::write_levels;
use crate::commands::scan::EndsArgs;
use crate::commands::store_args::{Session, StoreArgs, WriteArgs};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};
use crate::text::KeyForm;

pub(crate) const OPTIONS_ABOUT: &str = "\
Shows the options with which a command of this program opens the store, and the source of each: \
given to this command, remembered by the store, or this program's default. A store remembers the \
options that shape it (filters, blocks, tables, levels), as of the last time it was open for \
writing. Existing tables stay as they were built; a second list shows how.";

#[derive(Debug, Args)]
pub(crate) struct OptionsArgs {
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run_options(
    args: &OptionsArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    args.write.store.read(session, |db| {
        let (options, base) = args.write.in_force(session)?;
        let mut output = args.output.begin("options", out);
        output.list("options", &["option", "value", "from"])?;
        for (name, value) in options.settings() {
            output.row(vec![name.into(), value.into(), base.source(name, &options).into()])?;
        }
        let id = format!("{:016x}", db.id());
        output.record("store", &[("id", id.into()), ("options_file", base.state.into())])?;
        output.list("tables", &["level", "tables", "filter", "bits_requested"])?;
        for level in db.filter_report().levels {
            output.row(vec![
                format!("L{}", level.level).into(),
                Value::Count(level.tables),
                level.kind.name().into(),
                level.bits_requested.into(),
            ])?;
        }
        Ok(output.finish()?)
    })
}

#[derive(Debug, Args)]
pub(crate) struct FlushArgs {
    #[command(flatten)]
    write: WriteArgs,
}

pub(crate) fn run_flush(args: &FlushArgs, session: Session<'_>) -> Result<(), Failure> {
    args.write.write(session, |db| session.call("flushing", db, Db::flush))
}

pub(crate) const COMPACT_ABOUT: &str = "\
Compacts all levels that hold keys of the range (of the default keyspace; without a range, of all \
keyspaces) into the last one, drops versions that no reader \
can see, and shows the resulting levels. New tables get the given filters and compression, so this \
also changes those of an existing store.";

#[derive(Debug, Args)]
pub(crate) struct CompactArgs {
    #[command(flatten)]
    ends: EndsArgs,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run_compact(
    args: &CompactArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let ends = args.ends.bounds(args.key_form)?;
    args.write.write(session, |db| {
        session.call("compacting", db, move |db| match ends {
            // Of all keyspaces.
            (Bound::Unbounded, Bound::Unbounded) => db.compact_all(),
            _ => db.compact_range(ends),
        })?;
        let mut output = args.output.begin("compact", out);
        write_levels(db, &mut output)?;
        Ok(output.finish()?)
    })
}

#[derive(Debug, Args)]
pub(crate) struct CheckpointArgs {
    /// The directory to create
    #[arg(value_name = "NEW")]
    dir: PathBuf,
    #[command(flatten)]
    write: WriteArgs,
}

pub(crate) fn run_checkpoint(args: &CheckpointArgs, session: Session<'_>) -> Result<(), Failure> {
    args.write.write(session, |db| {
        let dir = args.dir.clone();
        session.call("checkpointing", db, move |db| db.checkpoint(dir))
    })
}

#[derive(Debug, Args)]
pub(crate) struct DestroyArgs {
    /// Confirm the removal of all data of the store
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// If `dir` is a symbolic link, adds its target to the failure.
fn with_target(error: trommel::Error, dir: &Path) -> Failure {
    let dir: PathBuf = dir.components().collect();
    let failure = Failure::from(error);
    match std::fs::read_link(&dir) {
        Ok(target) => {
            let (dir, target) = (dir.display(), target.display());
            failure.with(format!("{dir} is a symbolic link to {target}"))
        }
        Err(_) => failure,
    }
}

pub(crate) fn run_destroy(args: &DestroyArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let dir = args.store.dir()?;
    if !args.yes {
        let dir = dir.display();
        return Err(Failure::Usage(format!(
            "this permanently removes all data of the store in {dir}: give --yes to confirm"
        )));
    }
    let report =
        Db::destroy(&dir, &Options::default()).map_err(|error| with_target(error, &dir))?;
    let left = report.left.iter().map(|name| name.to_string_lossy().as_ref().into()).collect();
    let mut output = args.output.begin("destroy", out);
    output.record(
        "",
        &[
            ("files_removed", Value::Count(report.files)),
            ("bytes_removed", Value::Size(report.bytes)),
            ("directory_removed", report.left.is_empty().into()),
            ("left", if report.left.is_empty() { Value::Null } else { Value::List(left) }),
        ],
    )?;
    Ok(output.finish()?)
}

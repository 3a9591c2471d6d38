//! `trommel memory`.

use std::io::Write;

use clap::Args;
use trommel::Db;

use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(
    args: &MemoryArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    args.store.read(session, |db| {
        let mut output = args.output.begin("memory", out);
        output.record("memory", &fields(db))?;
        Ok(output.finish()?)
    })
}

/// Where the memory is.
pub(crate) fn fields(db: &Db) -> Vec<(&'static str, Value)> {
    let memory = db.stats().memory;
    vec![
        ("memtables", Value::Size(memory.memtables)),
        ("idle_arenas", Value::Size(memory.idle_arenas)),
        ("block_cache", Value::Size(memory.block_cache)),
        ("filters", Value::Size(memory.filters)),
        ("index", Value::Size(memory.index)),
        ("other", Value::Size(memory.other)),
        ("total", Value::Size(memory.total())),
    ]
}

//! `trommel properties`: the properties of a store, and of each of its tables.

use std::io::Write;

use clap::Args;
use trommel::inspect::{self, FilterState, StoreProperties, TableProperties};

use super::sst::state;
use super::{DISK, Failures, dir_of, ending, id, level};
use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};
use crate::text::KeyForm;

pub(crate) const LONG_ABOUT: &str = "\
Prints what the manifest says of a store, and what each table says of itself: its key range, its \
filter as it was asked for and as it is, its blocks. The files are read as they are on disk, without \
a lock, so the store may be in use. What is not in a table yet stands in the logs: see trommel log.";

#[derive(Debug, Args)]
pub(crate) struct PropertiesArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    output: OutputArgs,
}

const TABLES: [&str; 15] = [
    "table",
    "level",
    "built_for",
    "bytes",
    "entries",
    "deletes",
    "keys",
    "smallest_key",
    "largest_key",
    "blocks",
    "compression",
    "filter",
    "filter_state",
    "filter_bits_stored",
    "filter_expected_rate",
];

pub(crate) fn run(
    args: &PropertiesArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let store = inspect::properties(DISK, &dir_of(&args.store, session)?)?;
    let mut output = args.output.begin("properties", out);
    output.record("store", &whole(&store))?;
    output.list("tables", &TABLES)?;
    for table in &store.tables {
        output.row(row(table, args.key_form))?;
    }
    output.finish()?;
    let mut failures = Failures::default();
    store.tables.into_iter().filter_map(|table| table.info.err()).for_each(|e| failures.add(e));
    failures.result()
}

fn whole(store: &StoreProperties) -> Vec<(&'static str, Value)> {
    let manifest = &store.manifest;
    let sum = |of: fn(&TableProperties) -> u64| store.tables.iter().map(of).sum();
    vec![
        ("store_id", id(manifest.store_id)),
        ("manifest", Value::Integer(manifest.number)),
        ("ending", ending(&manifest.ending).0),
        ("tables", Value::Count(store.tables.len() as u64)),
        ("table_bytes", Value::Size(sum(|table| table.listed.meta.file_bytes))),
        ("entries", Value::Count(sum(|table| table.listed.meta.entries))),
        ("deletes", Value::Count(sum(|table| table.listed.meta.deletions))),
        ("filter_bytes", Value::Size(sum(|table| table.listed.meta.filters.bytes))),
        ("last_seqno", Value::Integer(manifest.last_seqno)),
        ("next_file_number", Value::Integer(manifest.next_file_number)),
        ("oldest_log", Some(manifest.log_number).filter(|n| *n != 0).map(Value::Integer).into()),
    ]
}

fn row(table: &TableProperties, keys: KeyForm) -> Vec<Value> {
    let meta = &table.listed.meta;
    let info = table.info.as_ref().ok();
    let loaded = info.filter(|info| info.filter.state == FilterState::Loaded);
    vec![
        Value::Integer(meta.number),
        level(table.listed.level),
        level(meta.filters.built_for.into()),
        Value::Size(meta.file_bytes),
        Value::Count(meta.entries),
        Value::Count(meta.deletions),
        Value::Count(meta.keys),
        keys.print(&meta.smallest).into(),
        keys.print(&meta.largest).into(),
        info.map(|info| Value::Count(info.properties.contents.blocks)).into(),
        info.map(|info| info.properties.compression.clone()).into(),
        info.map(|info| info.properties.filter.clone()).into(),
        info.map(|info| state(&info.filter.state)).into(),
        loaded.map(|info| Value::Float(info.filter.bits_stored)).into(),
        loaded.map(|info| Value::Float(info.filter.expected_rate)).into(),
    ]
}

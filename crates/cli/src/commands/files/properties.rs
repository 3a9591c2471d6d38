//! `trommel properties`: the properties of a store, and of each of its tables.

use std::io::Write;

use clap::Args;
use trommel::inspect::{
    self, FilterInfo, FilterState, StoreProperties, TableInfo, TableProperties,
};

use super::sst::state;
use super::{DISK, Failures, dir_of, ending, id};
use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{Column, OutputArgs, Value};
use crate::text::KeyForm;

pub(crate) const LONG_ABOUT: &str = "\
Prints the state of a store according to its manifest, and the metadata of each table: its key \
range, its filter as requested and as built, its blocks. The files are read as they are on disk, \
without a lock, so the store may be in use. Entries that are not in a table yet are in the logs: \
see trommel log.";

#[derive(Debug, Args)]
pub(crate) struct PropertiesArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    output: OutputArgs,
}

/// A table, and how keys are printed.
type Item<'a> = (&'a TableProperties, KeyForm);

fn tables<'a>() -> [Column<Item<'a>>; 15] {
    [
        ("table", |(table, _)| Value::Integer(table.listed.meta.number)),
        ("level", |(table, _)| Value::level(table.listed.level)),
        ("built_for", |(table, _)| Value::level(table.listed.meta.filters.built_for.into())),
        ("bytes", |(table, _)| Value::Size(table.listed.meta.file_bytes)),
        ("entries", |(table, _)| Value::Count(table.listed.meta.entries)),
        ("deletes", |(table, _)| Value::Count(table.listed.meta.deletions)),
        ("keys", |(table, _)| Value::Count(table.listed.meta.keys)),
        ("smallest_key", |(table, keys)| keys.print(&table.listed.meta.smallest).into()),
        ("largest_key", |(table, keys)| keys.print(&table.listed.meta.largest).into()),
        ("blocks", |(table, _)| info(table, |info| Value::Count(info.properties.contents.blocks))),
        ("compression", |(table, _)| {
            info(table, |info| info.properties.compression.clone().into())
        }),
        ("filter", |(table, _)| info(table, |info| info.properties.filter.clone().into())),
        ("filter_state", |(table, _)| info(table, |info| state(&info.filter.state).into())),
        ("filter_bits_stored", |(table, _)| loaded(table, |filter| filter.bits_stored)),
        ("filter_expected_rate", |(table, _)| loaded(table, |filter| filter.expected_rate)),
    ]
}

/// The metadata of an intact table.
fn info(table: &TableProperties, of: impl Fn(&TableInfo) -> Value) -> Value {
    table.info.as_ref().ok().map(of).into()
}

/// A figure of a filter that is used.
fn loaded(table: &TableProperties, of: impl Fn(&FilterInfo) -> f64) -> Value {
    let filter = table.info.as_ref().ok().map(|info| &info.filter);
    filter.filter(|filter| filter.state == FilterState::Loaded).map(of).into()
}

pub(crate) fn run(
    args: &PropertiesArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let store = inspect::properties(DISK, &dir_of(&args.store, session)?)?;
    let mut output = args.output.begin("properties", out);
    output.record("store", &whole(&store))?;
    output.rows("tables", &tables(), store.tables.iter().map(|table| (table, args.key_form)))?;
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

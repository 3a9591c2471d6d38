//! `trommel sst`: tables.

use std::io::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use trommel::inspect::{
    BlockInfo, BlockKind, BlockSums, EntryKind, FilterState, PrefixFilterInfo, Table, TableInfo,
    Verified,
};

use super::{
    DISK, ENTRIES_PER_LOOK, Failures, LimitArgs, id, level, name, path_text, with_those_of_dirs,
};
use crate::commands::scan::EndsArgs;
use crate::commands::store_args::Session;
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};
use crate::text::{KeyForm, ValueForm};

pub(crate) const LONG_ABOUT: &str = "\
Inspects tables (n.sst): the sorted, immutable files that hold a store's data. Nothing is written \
and no lock is taken, so the store may be in use, and a table may be corrupt, or a copy.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel sst info db/000012.sst                a table's metadata, including its filter
  trommel sst check db/*.sst                    read every byte; exit 4 if one is wrong
  trommel sst scan --from=user:1 db/000012.sst  the entries, every version of a key
  trommel sst layout db/000012.sst              each block: offset, length, whether it is intact";

#[derive(Debug, Args)]
pub(crate) struct SstArgs {
    #[command(subcommand)]
    command: SstCommand,
}

#[derive(Debug, Subcommand)]
enum SstCommand {
    /// Print a table's metadata: entries, key range, sizes of its parts, its filter
    Info(InfoArgs),
    /// Read every byte and check it: checksums, order, counts, every key against the filter
    Check(CheckArgs),
    /// Print the entries: every version of each key, deletes included
    Scan(SstScanArgs),
    /// Print the layout of the file, block by block; also of a corrupt table
    Layout(LayoutArgs),
}

#[derive(Debug, Args)]
struct TablesArgs {
    /// Tables, or directories of them
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
struct InfoArgs {
    #[command(flatten)]
    files: TablesArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    files: TablesArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct LayoutArgs {
    #[command(flatten)]
    files: TablesArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct SstScanArgs {
    #[command(flatten)]
    files: TablesArgs,
    #[command(flatten)]
    range: EndsArgs,
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    key_form: KeyForm,
    #[command(flatten)]
    value_form: ValueForm,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(
    args: &SstArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match &args.command {
        SstCommand::Info(args) => info(args, session, out),
        SstCommand::Check(args) => check(args, session, out),
        SstCommand::Scan(args) => scan(args, session, out),
        SstCommand::Layout(args) => layout(args, session, out),
    }
}

fn info(args: &InfoArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut items = Vec::new();
    let failures =
        Failures::each(&with_those_of_dirs(&args.files.files, "sst")?, session, |file| {
            let table = Table::open(DISK, file)?;
            let info = table.info()?;
            let sums = BlockSums::of(&table.layout()?);
            let mut item = of_file(&table, &info, args.key_form);
            item.extend(of_parts(&info, &sums));
            item.extend(of_filter(&info));
            item.extend(info.filter.prefixes.iter().flat_map(of_prefixes));
            items.push(item);
            Ok(())
        })?;
    let mut output = args.output.begin("sst_info", out);
    output.items("tables", items)?;
    output.finish()?;
    failures.result()
}

type Fields = Vec<(&'static str, Value)>;

/// The table's identity, and its entries.
fn of_file(table: &Table, info: &TableInfo, keys: KeyForm) -> Fields {
    let listed = table.listed(DISK);
    let said = &info.properties;
    vec![
        ("file", path_text(&info.path)),
        ("format_version", Value::Integer(info.format_version.into())),
        ("table_id", id(info.footer.table_id)),
        ("level", listed.as_ref().map(|listed| level(listed.level)).into()),
        ("built_for", listed.map(|listed| level(listed.meta.filters.built_for.into())).into()),
        ("entries", Value::Count(said.contents.entries)),
        ("puts", Value::Count(said.contents.entries - said.contents.deletions)),
        ("deletes", Value::Count(said.contents.deletions)),
        ("keys", Value::Count(said.contents.keys)),
        ("smallest_key", keys.print(&said.contents.smallest).into()),
        ("largest_key", keys.print(&said.contents.largest).into()),
        ("smallest_seqno", Value::Integer(said.contents.min_seqno)),
        ("largest_seqno", Value::Integer(said.contents.max_seqno)),
    ]
}

/// The table's bytes by part.
fn of_parts(info: &TableInfo, sums: &BlockSums) -> Fields {
    let footer = &info.footer;
    let before_footer =
        footer.properties_offset() + footer.properties_bytes + footer.extension_bytes;
    vec![
        ("file_bytes", Value::Count(info.file_bytes)),
        ("data_bytes", Value::Count(footer.data_bytes)),
        ("filter_bytes", Value::Count(footer.filter_bytes)),
        ("index_bytes", Value::Count(footer.index_bytes + footer.leaves_bytes)),
        ("properties_bytes", Value::Count(footer.properties_bytes)),
        ("footer_bytes", Value::Count(info.file_bytes - before_footer)),
        ("index_levels", Value::Integer(1 + u64::from(footer.has_two_levels()))),
        ("blocks", Value::Count(info.properties.contents.blocks)),
        ("damaged_blocks", Value::Count(sums.damaged)),
        ("block_limit", Value::Count(info.properties.block_bytes)),
        ("smallest_block", Value::Count(sums.smallest)),
        ("largest_block", Value::Count(sums.largest)),
        ("compression", info.properties.compression.clone().into()),
        ("compressed_blocks", Value::Count(sums.compressed)),
        ("raw_data_bytes", Value::Count(sums.raw_bytes)),
        ("stored_key_bytes", Value::Count(sums.key_bytes)),
        ("value_bytes", Value::Count(sums.value_bytes)),
        ("key_and_value_bytes", Value::Count(info.properties.contents.raw_bytes)),
    ]
}

fn of_filter(info: &TableInfo) -> Fields {
    let filter = &info.filter;
    let loaded = filter.state == FilterState::Loaded;
    let known = |value: Value| if loaded { value } else { Value::Null };
    vec![
        ("filter", info.properties.filter.clone().into()),
        ("filter_state", state(&filter.state).into()),
        ("filter_keys", known(Value::Count(filter.keys))),
        ("filter_bits_requested", known(Value::Float(filter.bits_requested))),
        ("filter_bits_stored", known(Value::Float(filter.bits_stored))),
        ("filter_probes", known(Value::Count(filter.probes.into()))),
        ("filter_expected_rate", known(Value::Float(filter.expected_rate))),
    ]
}

fn of_prefixes(filter: &PrefixFilterInfo) -> Fields {
    vec![
        ("prefix_extractor", filter.extractor.clone().into()),
        ("prefix_filter", filter.kind.name().into()),
        ("prefixes", Value::Count(filter.prefixes)),
        ("prefix_bits_requested", Value::Float(filter.bits_requested)),
        ("prefix_filter_bytes", Value::Size(filter.bytes)),
        ("prefix_expected_rate", Value::Float(filter.expected_rate)),
    ]
}

/// Whether a filter is usable, in words.
pub(super) fn state(state: &FilterState) -> String {
    match state {
        FilterState::Loaded => "loaded".into(),
        FilterState::Absent => "absent".into(),
        FilterState::Damaged(why) => format!("damaged: {why}"),
        FilterState::Unknown(why) => format!("unknown: {why}"),
        FilterState::Foreign(why) => format!("not used: {why}"),
        FilterState::Spared => "not used".into(),
    }
}

fn check(args: &CheckArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut output = args.output.begin("sst_check", out);
    output.list("tables", &["file", "ok", "bytes", "entries", "keys", "foreign_filter"])?;
    let failures =
        Failures::each(&with_those_of_dirs(&args.files.files, "sst")?, session, |file| {
            let checked = Table::open(DISK, file).and_then(|table| table.check());
            let found = checked.as_ref().ok();
            let count = |count: fn(&Verified) -> u64| found.map(count).map(Value::Count).into();
            output.row(vec![
                path_text(file),
                checked.is_ok().into(),
                count(|checked| checked.bytes),
                count(|checked| checked.entries),
                count(|checked| checked.keys),
                found.map(|checked| Value::from(checked.foreign_filter)).into(),
            ])?;
            Ok(checked.map(drop)?)
        })?;
    output.finish()?;
    failures.result()
}

fn scan(args: &SstScanArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let (from, to) = args.range.bounds(args.key_form)?;
    let mut output = args.output.begin("sst_scan", out);
    output.list("entries", &["file", "key", "seqno", "kind", "value"])?;
    let failures =
        Failures::each(&with_those_of_dirs(&args.files.files, "sst")?, session, |file| {
            let entries = Table::open(DISK, file)?.scan(as_slice(&from), as_slice(&to))?;
            for (entry, count) in entries.zip(0..args.limit.entries()) {
                let entry = entry?;
                output.row(vec![
                    name(file),
                    args.key_form.print(&entry.key).into(),
                    Value::Integer(entry.seqno),
                    kind(entry.kind).into(),
                    value(entry.kind, &entry.value, args.value_form),
                ])?;
                if count.is_multiple_of(ENTRIES_PER_LOOK) {
                    session.go_on()?;
                }
            }
            Ok(())
        })?;
    output.finish()?;
    failures.result()
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}

/// The operation of an entry on its key.
pub(super) fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Put => "put",
        EntryKind::Delete => "delete",
        EntryKind::Merge => "merge",
    }
}

/// The value of a put; a delete has none.
pub(super) fn value(kind: EntryKind, value: &[u8], form: ValueForm) -> Value {
    match kind {
        EntryKind::Put | EntryKind::Merge => form.print(value).into(),
        EntryKind::Delete => Value::Null,
    }
}

const LAYOUT: [&str; 9] = [
    "file",
    "offset",
    "bytes",
    "kind",
    "compression",
    "raw_bytes",
    "items",
    "first_key",
    "problem",
];

fn layout(args: &LayoutArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut output = args.output.begin("sst_layout", out);
    output.list("blocks", &LAYOUT)?;
    let failures =
        Failures::each(&with_those_of_dirs(&args.files.files, "sst")?, session, |file| {
            for block in Table::open(DISK, file)?.layout()? {
                output.row(layout_row(file, &block, args.key_form))?;
            }
            Ok(())
        })?;
    output.finish()?;
    failures.result()
}

fn layout_row(file: &Path, block: &BlockInfo, keys: KeyForm) -> Vec<Value> {
    let kind = match block.kind {
        BlockKind::Data => "data",
        BlockKind::Filter => "filter",
        BlockKind::FilterTop => "filter index",
        BlockKind::IndexLeaf => "index leaf",
        BlockKind::IndexTop => "index",
        BlockKind::Properties => "properties",
        BlockKind::Footer => "footer",
        BlockKind::Sidecar => "sidecar",
    };
    let has_keys =
        matches!(block.kind, BlockKind::Data | BlockKind::IndexLeaf | BlockKind::IndexTop);
    let content = block.content.as_ref().ok();
    let counted = has_keys || block.kind == BlockKind::Filter;
    vec![
        name(file),
        Value::Integer(block.offset),
        Value::Integer(block.bytes),
        kind.into(),
        content.map(|content| content.compression).into(),
        content.map(|content| Value::Integer(content.raw_bytes)).into(),
        content.filter(|_| counted).map(|content| Value::Count(content.items)).into(),
        content.filter(|_| has_keys).map(|content| keys.print(&content.first_key)).into(),
        block.content.as_ref().err().cloned().into(),
    ]
}

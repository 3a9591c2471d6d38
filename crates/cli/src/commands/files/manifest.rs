//! `trommel manifest`: the tables of the store, and their history.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use trommel::inspect::{Edit, ListedTable, Manifest, ManifestInfo, RangeTombstone, TableMeta};

use super::{DISK, Failures, SPANS, dir_of, ending, id, path_text, span_row};
use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{Column, OutputArgs, Value};
use crate::text::KeyForm;

pub(crate) const LONG_ABOUT: &str = "\
Inspects manifests (MANIFEST-n): the record of the tables and logs that make up a store. Give the \
file, or the store, whose CURRENT names the current manifest. Nothing is written and no lock is \
taken, so the store may be in use, and a manifest may be corrupt, or a copy.

Levels are counted as in all reports: L0, then L1 for the first level below that holds data. The \
manifest itself counts from 0 to 6; the column with that number is `stored level`.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel manifest info --db db            the state: every table with its level and key range
  trommel manifest check db/MANIFEST-*     read every byte; exit 4 if one is wrong
  trommel manifest scan --db db            each change: tables added and removed
  trommel manifest history --db db         the shape of the store after each change
  trommel manifest layout db/MANIFEST-000002";

#[derive(Debug, Args)]
pub(crate) struct ManifestArgs {
    #[command(subcommand)]
    command: ManifestCommand,
}

#[derive(Debug, Subcommand)]
enum ManifestCommand {
    /// Print the state: every table with its level and key range, every range tombstone, the logs
    /// still needed
    Info(KeyedArgs),
    /// Read every byte and check it: checksums, every edit, and that the resulting states are valid
    Check(ManifestFilesArgs),
    /// Print each change that an edit makes
    Scan(KeyedArgs),
    /// Print the shape of the store after each edit
    History(ManifestFilesArgs),
    /// Print the layout of the file, record by record
    Layout(ManifestFilesArgs),
}

#[derive(Debug, Args)]
struct ManifestFilesArgs {
    /// Manifests, or stores, whose current manifest is used [default: --db]
    #[arg(value_name = "FILE", conflicts_with = "db")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct KeyedArgs {
    #[command(flatten)]
    plain: ManifestFilesArgs,
    #[command(flatten)]
    key_form: KeyForm,
}

impl ManifestFilesArgs {
    /// Calls `act` for each manifest.
    fn each(
        &self,
        session: Session<'_>,
        mut act: impl FnMut(&Manifest) -> Result<(), Failure>,
    ) -> Result<Failures, Failure> {
        if self.files.is_empty() {
            act(&Manifest::in_force(DISK, &dir_of(&self.store, session)?)?)?;
            return Ok(Failures::default());
        }
        Failures::each(&self.files, session, |file| match file.is_dir() {
            true => act(&Manifest::in_force(DISK, file)?),
            false => act(&Manifest::open(DISK, file)?),
        })
    }
}

pub(crate) fn run(
    args: &ManifestArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match &args.command {
        ManifestCommand::Info(args) => info(args, session, out),
        ManifestCommand::Check(args) => check(args, session, out),
        ManifestCommand::Scan(args) => scan(args, session, out),
        ManifestCommand::History(args) => history(args, session, out),
        ManifestCommand::Layout(args) => layout(args, session, out),
    }
}

fn info(args: &KeyedArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut infos = Vec::new();
    let failures = args.plain.each(session, |manifest| {
        infos.push(manifest.info()?);
        Ok(())
    })?;
    let mut output = args.plain.output.begin("manifest_info", out);
    output.items("manifests", infos.iter().map(item).collect())?;
    let all = infos.iter().flat_map(|info| {
        info.contents.tables.iter().map(move |table| (table, info.number, args.key_form))
    });
    output.rows("tables", &tables(), all)?;
    output.list("range_tombstones", &["manifest", "seqno", "from", "to"])?;
    for info in &infos {
        for tombstone in &info.contents.range_tombstones {
            let [from, to] = ends(tombstone, args.key_form);
            let seqno = Value::Integer(tombstone.seqno);
            output.row(vec![Value::Integer(info.number), seqno, from, to])?;
        }
    }
    output.list("time_marks", &["manifest", "from_seqno", "written_until"])?;
    for info in &infos {
        for mark in &info.contents.time_marks {
            let until = Value::Integer(mark.until);
            output.row(vec![Value::Integer(info.number), Value::Integer(mark.from), until])?;
        }
    }
    output.list("keyspace_horizons", &["manifest", "keyspace", "horizon"])?;
    for info in &infos {
        for (id, horizon) in &info.contents.keyspace_horizons {
            let row = [info.number, u64::from(*id), *horizon];
            output.row(row.map(Value::Integer).into())?;
        }
    }
    output.finish()?;
    failures.result()
}

fn item(info: &ManifestInfo) -> Vec<(&'static str, Value)> {
    let (word, detail) = ending(&info.ending);
    let sum =
        |of: fn(&TableMeta) -> u64| info.contents.tables.iter().map(|table| of(&table.meta)).sum();
    vec![
        ("file", path_text(&info.path)),
        ("format_version", Value::Integer(info.format_version.into())),
        ("number", Value::Integer(info.number)),
        ("store_id", id(info.store_id)),
        ("salt", id(info.salt)),
        ("file_bytes", Value::Count(info.file_bytes)),
        ("edits", Value::Count(info.edits)),
        ("tables", Value::Count(info.contents.tables.len() as u64)),
        ("table_bytes", Value::Count(sum(|table| table.file_bytes))),
        ("entries", Value::Count(sum(|table| table.entries))),
        ("range_tombstones", Value::Count(info.contents.range_tombstones.len() as u64)),
        ("expiry_horizon", Value::Integer(info.contents.expiry_horizon)),
        ("merge_operator", info.contents.merge_operator.clone().into()),
        ("keyspace_operators", info.contents.keyspace_operators.into()),
        ("hash_seed", info.contents.has_hash_seed.into()),
        ("last_seqno", Value::Integer(info.last_seqno)),
        ("next_file_number", Value::Integer(info.next_file_number)),
        ("oldest_log", Some(info.log_number).filter(|n| *n != 0).map(Value::Integer).into()),
        ("ending", word),
        ("ending_detail", detail),
    ]
}

/// The start of a range, and its end if it has one.
fn ends(tombstone: &RangeTombstone, keys: KeyForm) -> [Value; 2] {
    let to = tombstone.to.as_ref().map(|to| keys.print(to));
    [keys.print(&tombstone.from).into(), to.into()]
}

/// A table, the number of its manifest, and how keys are printed.
type Item<'a> = (&'a ListedTable, u64, KeyForm);

fn tables<'a>() -> [Column<Item<'a>>; 15] {
    [
        ("manifest", |(_, number, _)| Value::Integer(*number)),
        ("level", |(table, ..)| Value::level(table.level)),
        ("stored_level", |(table, ..)| Value::Integer(table.stored_level as u64)),
        ("table", |(table, ..)| Value::Integer(table.meta.number)),
        ("bytes", |(table, ..)| Value::Count(table.meta.file_bytes)),
        ("entries", |(table, ..)| Value::Count(table.meta.entries)),
        ("deletes", |(table, ..)| Value::Count(table.meta.deletions)),
        ("keys", |(table, ..)| Value::Count(table.meta.keys)),
        ("smallest_key", |(table, _, keys)| keys.print(&table.meta.smallest).into()),
        ("largest_key", |(table, _, keys)| keys.print(&table.meta.largest).into()),
        ("smallest_seqno", |(table, ..)| Value::Integer(table.meta.min_seqno)),
        ("largest_seqno", |(table, ..)| Value::Integer(table.meta.max_seqno)),
        ("filter_bytes", |(table, ..)| Value::Count(table.meta.filters.bytes)),
        ("built_for", |(table, ..)| Value::level(table.meta.filters.built_for.into())),
        ("sidecar", |(table, ..)| table.meta.filters.sidecar.map(Value::Integer).into()),
    ]
}

fn check(
    args: &ManifestFilesArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut output = args.output.begin("manifest_check", out);
    output.list("manifests", &["file", "ok", "bytes", "edits", "tables", "ending"])?;
    let failures = args.each(session, |manifest| {
        let checked = manifest.check();
        let found = match &checked {
            Ok(checked) => [
                Value::Count(checked.bytes),
                Value::Count(checked.edits),
                Value::Count(checked.tables),
                ending(&checked.ending).0,
            ],
            Err(_) => [const { Value::Null }; 4],
        };
        let row = [path_text(manifest.path()), checked.is_ok().into()].into_iter().chain(found);
        output.row(row.collect())?;
        Ok(checked.map(drop)?)
    })?;
    output.finish()?;
    failures.result()
}

const CHANGES: [&str; 9] = [
    "edit",
    "offset",
    "change",
    "number",
    "stored_level",
    "bytes",
    "entries",
    "smallest_key",
    "largest_key",
];

fn scan(args: &KeyedArgs, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut output = args.plain.output.begin("manifest_scan", out);
    output.list("changes", &CHANGES)?;
    let failures = args.plain.each(session, |manifest| {
        for edit in manifest.scan() {
            for row in change_rows(&edit?, args.key_form) {
                output.row(row)?;
            }
        }
        Ok(manifest.check().map(drop)?)
    })?;
    output.finish()?;
    failures.result()
}

/// A row for each change of an edit.
fn change_rows(edit: &Edit, keys: KeyForm) -> Vec<Vec<Value>> {
    let row = |change: &str, number: Value, rest: [Value; 5]| {
        let first =
            [Value::Integer(edit.ordinal), Value::Integer(edit.offset), change.into(), number];
        first.into_iter().chain(rest).collect::<Vec<_>>()
    };
    let numbers = [
        ("next file number", edit.next_file_number),
        ("last seqno", edit.last_seqno),
        ("oldest log", edit.log_number),
        ("expiry horizon", edit.expiry_horizon),
    ];
    let numbers = numbers.into_iter().filter_map(|(change, number)| {
        Some(row(change, Value::Integer(number?), [const { Value::Null }; 5]))
    });
    let log_ends = edit.log_ends.iter().map(|ended| {
        let [to, _, entries, smallest, largest] = [const { Value::Null }; 5];
        row(
            "end log",
            Value::Integer(ended.number),
            [to, Value::Count(ended.end), entries, smallest, largest],
        )
    });
    let removed = edit.removed.iter().map(|(from, number)| {
        let [_, bytes, entries, smallest, largest] = [const { Value::Null }; 5];
        row(
            "remove table",
            Value::Integer(*number),
            [Value::Integer((*from).into()), bytes, entries, smallest, largest],
        )
    });
    let added = edit.added.iter().map(|(to, table)| {
        let rest = [
            Value::Integer((*to).into()),
            Value::Count(table.file_bytes),
            Value::Count(table.entries),
            keys.print(&table.smallest).into(),
            keys.print(&table.largest).into(),
        ];
        row("add table", Value::Integer(table.number), rest)
    });
    let replaced = edit
        .replaces_range_tombstones
        .then(|| row("remove range tombstones", Value::Null, [const { Value::Null }; 5]));
    let deleted = edit.range_tombstones.iter().map(|tombstone| {
        let [level, bytes, entries] = [const { Value::Null }; 3];
        let [from, to] = ends(tombstone, keys);
        let seqno = Value::Integer(tombstone.seqno);
        row("add range tombstone", seqno, [level, bytes, entries, from, to])
    });
    let ranges = replaced.into_iter().chain(deleted);
    numbers.chain(log_ends).chain(ranges).chain(removed).chain(added).collect()
}

const HISTORY: [&str; 10] = [
    "edit",
    "offset",
    "added",
    "removed",
    "tables",
    "stored_levels",
    "table_bytes",
    "range_tombstones",
    "last_seqno",
    "oldest_log",
];

fn history(
    args: &ManifestFilesArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut output = args.output.begin("manifest_history", out);
    output.list("edits", &HISTORY)?;
    let failures = args.each(session, |manifest| {
        for moment in manifest.history() {
            let moment = moment?;
            let levels = moment.tables.iter().map(|tables| Value::Count(*tables));
            output.row(vec![
                Value::Integer(moment.edit.ordinal),
                Value::Integer(moment.edit.offset),
                Value::Count(moment.edit.added.len() as u64),
                Value::Count(moment.edit.removed.len() as u64),
                Value::Count(moment.tables.iter().sum()),
                Value::List(levels.collect()),
                Value::Size(moment.table_bytes),
                Value::Count(moment.range_tombstones),
                Value::Integer(moment.last_seqno),
                Value::Integer(moment.log_number),
            ])?;
        }
        Ok(manifest.check().map(drop)?)
    })?;
    output.finish()?;
    failures.result()
}

fn layout(
    args: &ManifestFilesArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut output = args.output.begin("manifest_layout", out);
    output.list("records", &SPANS)?;
    let failures = args.each(session, |manifest| {
        for span in manifest.layout() {
            output.row(span_row(manifest.path(), &span, "edit"))?;
        }
        Ok(())
    })?;
    output.finish()?;
    failures.result()
}

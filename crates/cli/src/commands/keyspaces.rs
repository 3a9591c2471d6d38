//! The keyspace of a command, and `trommel keyspaces`.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use trommel::{
    Compression, Db, Explanation, FilterPolicy, Healthy, IngestBatch, KeyRange, Keyspace,
    KeyspaceOptions, Merge, MergeOperator, Prefix, Range, Slice, WriteBatch,
};
use trommel_harness::units::parse_time;

use crate::commands::store_args::{Session, StoreArgs};
use crate::failure::Failure;
use crate::output::{OutputArgs, Value};
use crate::shared_args::one_of;

/// Which keyspace of the store.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct KeyspaceArgs {
    /// Name of the keyspace [default: the default one, which has no name]
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
}

/// The keyspace that a command reads or writes.
pub(crate) enum OpenKeyspace<'a> {
    /// The default one.
    Default(&'a Db),
    /// One with a name.
    Named(Keyspace),
}

impl KeyspaceArgs {
    /// Whether one was named.
    pub(crate) fn is_given(&self) -> bool {
        self.keyspace.is_some()
    }

    /// The keyspace, which must exist.
    pub(crate) fn of<'a>(&self, db: &'a Db) -> Result<OpenKeyspace<'a>, Failure> {
        match &self.keyspace {
            None => Ok(OpenKeyspace::Default(db)),
            Some(name) => {
                db.open_keyspace(name)?.map(OpenKeyspace::Named).ok_or_else(|| missing(name))
            }
        }
    }
}

fn missing(name: &str) -> Failure {
    Failure::NothingThere(format!(
        "there is no keyspace \"{name}\": trommel keyspaces list shows which there are, trommel \
         keyspaces create makes one"
    ))
}

impl OpenKeyspace<'_> {
    pub(crate) fn get(&self, key: &[u8]) -> trommel::Result<Option<Slice>> {
        match self {
            Self::Default(db) => db.get(key),
            Self::Named(keyspace) => keyspace.get(key),
        }
    }

    pub(crate) fn explain(&self, key: &[u8]) -> trommel::Result<Explanation> {
        match self {
            Self::Default(db) => db.explain(key),
            Self::Named(keyspace) => keyspace.explain(key),
        }
    }

    pub(crate) fn multi_get(&self, keys: &[Vec<u8>]) -> trommel::Result<Vec<Option<Slice>>> {
        match self {
            Self::Default(db) => db.multi_get(keys),
            Self::Named(keyspace) => keyspace.multi_get(keys),
        }
    }

    pub(crate) fn range(&self, range: impl KeyRange) -> Range {
        match self {
            Self::Default(db) => db.range(range),
            Self::Named(keyspace) => keyspace.range(range),
        }
    }

    pub(crate) fn prefix(&self, prefix: &[u8]) -> Range {
        match self {
            Self::Default(db) => db.prefix(prefix),
            Self::Named(keyspace) => keyspace.prefix(prefix),
        }
    }

    pub(crate) fn healthy(&self, range: impl KeyRange) -> trommel::Result<Healthy> {
        match self {
            Self::Default(db) => db.healthy(range),
            Self::Named(keyspace) => keyspace.healthy(range),
        }
    }

    /// Adds a put to a batch.
    pub(crate) fn put(&self, batch: &mut WriteBatch, key: &[u8], value: &[u8]) {
        match self {
            Self::Default(_) => _ = batch.put(key, value),
            Self::Named(keyspace) => _ = batch.keyspace(keyspace).put(key, value),
        }
    }

    /// Adds a table file to those that are ingested together.
    pub(crate) fn ingest(&self, batch: &mut IngestBatch, file: &Path) {
        match self {
            Self::Default(_) => _ = batch.add(file),
            Self::Named(keyspace) => _ = batch.add_to(keyspace, file),
        }
    }

    /// Adds a merge to a batch.
    pub(crate) fn merge(&self, batch: &mut WriteBatch, key: &[u8], operand: &[u8]) {
        match self {
            Self::Default(_) => _ = batch.merge(key, operand),
            Self::Named(keyspace) => _ = batch.keyspace(keyspace).merge(key, operand),
        }
    }

    /// Adds a deletion to a batch.
    pub(crate) fn delete(&self, batch: &mut WriteBatch, key: &[u8]) {
        match self {
            Self::Default(_) => _ = batch.delete(key),
            Self::Named(keyspace) => _ = batch.keyspace(keyspace).delete(key),
        }
    }

    /// Adds the deletion of a range to a batch.
    pub(crate) fn delete_range(&self, batch: &mut WriteBatch, range: impl KeyRange) {
        match self {
            Self::Default(_) => _ = batch.delete_range(range),
            Self::Named(keyspace) => _ = batch.keyspace(keyspace).delete_range(range),
        }
    }
}

pub(crate) const LONG_ABOUT: &str = "\
Lists, creates and drops the keyspaces of a store: sorted maps of their own, with their own options. \
Other commands read and write one of them with --keyspace NAME, and the default one without.";

pub(crate) const AFTER_HELP: &str = "\
Examples:
  trommel keyspaces list --db data
  trommel keyspaces create events --db data --prefix-extractor until:/
  trommel put --db data --keyspace events 2026/11/29 snow
  trommel keyspaces drop events --db data --yes";

#[derive(Debug, Args)]
pub(crate) struct KeyspacesArgs {
    #[command(subcommand)]
    command: KeyspacesCommand,
}

#[derive(Debug, Subcommand)]
enum KeyspacesCommand {
    /// List the keyspaces, with the size of their tables and the options in which they differ
    List(ListKeyspacesArgs),
    /// Create a keyspace, or change the options of one
    Create(CreateKeyspaceArgs),
    /// Drop a keyspace with all that it holds
    Drop(DropKeyspaceArgs),
}

#[derive(Debug, Args)]
struct ListKeyspacesArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct CreateKeyspaceArgs {
    /// Its name
    name: String,
    /// Filters of its new tables, by level [default: the store's]
    #[arg(long, value_name = "SPEC")]
    filters: Option<FilterPolicy>,
    /// Prefix extractor for filters of its new tables: fixed:8, until:/ [default: the store's]
    #[arg(long, value_name = "RULE")]
    prefix_extractor: Option<Prefix>,
    /// Compression of its new tables, none or lz4 [default: the store's]
    #[arg(long, value_name = "KIND", hide_possible_values = true)]
    #[arg(value_parser = one_of::<Compression>(["none", "lz4"]))]
    compression: Option<Compression>,
    /// Its merge operator, counter, max or set-union; it stays [default: the store's]
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    merge_operator: Option<OperatorName>,
    /// How long its entries last: 90s, 24h; 0: forever [default: 0]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    ttl: Option<Duration>,
    #[command(flatten)]
    store: StoreArgs,
}

/// A merge operator that comes with the library.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum OperatorName {
    Counter,
    Max,
    SetUnion,
}

impl OperatorName {
    fn operator(self) -> Arc<dyn MergeOperator> {
        match self {
            Self::Counter => Merge::counter(),
            Self::Max => Merge::max(),
            Self::SetUnion => Merge::set_union(),
        }
    }
}

#[derive(Debug, Args)]
struct DropKeyspaceArgs {
    /// Its name
    name: String,
    /// Confirm that all that it holds is to be removed
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(
    args: &KeyspacesArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match &args.command {
        KeyspacesCommand::List(args) => list(args, session, out),
        KeyspacesCommand::Create(args) => args.store.write(session, |db| {
            let mut options = KeyspaceOptions::new();
            if let Some(filters) = &args.filters {
                options = options.filters(filters.clone());
            }
            if let Some(prefix) = &args.prefix_extractor {
                options = options.prefix_extractor(prefix.clone());
            }
            if let Some(compression) = args.compression {
                options = options.compression(compression);
            }
            if let Some(name) = args.merge_operator {
                options = options.merge_operator(name.operator());
            }
            options = options.ttl(args.ttl.filter(|ttl| !ttl.is_zero()));
            Ok(db.keyspace(&args.name, options).map(drop)?)
        }),
        KeyspacesCommand::Drop(DropKeyspaceArgs { name, yes: false, .. }) => {
            Err(Failure::Usage(format!(
                "this removes all that the keyspace \"{name}\" holds: give --yes if that is meant"
            )))
        }
        KeyspacesCommand::Drop(args) => args.store.write(session, |db| {
            if db.drop_keyspace(&args.name)? { Ok(()) } else { Err(missing(&args.name)) }
        }),
    }
}

fn list(
    args: &ListKeyspacesArgs,
    session: Session<'_>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    args.store.read(session, |db| {
        let mut output = args.output.begin("keyspaces", out);
        output.list("keyspaces", &["name", "table_bytes", "options"])?;
        for name in db.list_keyspaces()? {
            let Some(keyspace) = db.open_keyspace(&name)? else { continue };
            let options = keyspace.options().settings();
            let options: Vec<String> =
                options.iter().map(|(option, value)| format!("{option}={value}")).collect();
            let options = if options.is_empty() { Value::Null } else { options.join(" ").into() };
            let bytes = Value::Size(keyspace.approximate_bytes(..)?);
            output.row(vec![name.into(), bytes, options])?;
        }
        Ok(output.finish()?)
    })
}

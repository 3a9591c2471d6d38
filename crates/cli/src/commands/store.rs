//! The commands on one store: on the command line, and in the shell, where the store is already
//! open.

use std::io::Write;

use clap::Subcommand;

use super::files::{find, listing, log, manifest, properties, sst};
use super::store_args::Session;
use super::{
    admin, backup, changes, dump, explain, filters, get, ingest, keyspaces, levels, load, put,
    rebuild, scan, top, verify,
};
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Print the value of a key
    Get(get::GetArgs),
    /// Print the values of several keys
    Mget(get::MgetArgs),
    /// Set a key to a value
    Put(put::PutArgs),
    /// Merge an operand into the value of a key
    #[command(long_about = put::MERGE_ABOUT, after_help = put::MERGE_HELP)]
    Merge(put::MergeArgs),
    /// Delete keys
    Delete(put::DeleteArgs),
    /// Delete all keys in a range
    #[command(long_about = put::DELETE_RANGE_ABOUT, after_help = put::DELETE_RANGE_HELP)]
    DeleteRange(Box<put::DeleteRangeArgs>),
    /// Print entries in key order
    Scan(scan::ScanArgs),
    /// Print the committed writes in order, and on request those to come
    #[command(long_about = changes::LONG_ABOUT, after_help = changes::AFTER_HELP)]
    Changes(changes::ChangesArgs),
    /// Write entries from a file or standard input
    #[command(long_about = load::LONG_ABOUT, after_help = load::AFTER_HELP)]
    Load(load::LoadArgs),
    /// Print or save entries in a form that load reads
    #[command(long_about = dump::LONG_ABOUT, after_help = dump::AFTER_HELP)]
    Dump(dump::DumpArgs),
    /// Write sorted entries to a table file for ingest, without a store
    #[command(long_about = ingest::WRITE_ABOUT, after_help = ingest::WRITE_HELP)]
    WriteTable(ingest::WriteTableArgs),
    /// Load table files, all or none
    #[command(long_about = ingest::INGEST_ABOUT, after_help = ingest::INGEST_HELP)]
    Ingest(ingest::IngestArgs),
    /// List, create and drop keyspaces
    #[command(long_about = keyspaces::LONG_ABOUT, after_help = keyspaces::AFTER_HELP)]
    Keyspaces(keyspaces::KeyspacesArgs),
    /// Show statistics of the store
    #[command(long_about = levels::STATS_ABOUT)]
    Stats(levels::StatsArgs),
    /// Show a store at work, anew each second
    #[command(long_about = top::LONG_ABOUT, after_help = top::AFTER_HELP)]
    Top(top::TopArgs),
    /// Show the tables, bytes and entries of each level
    Levels(levels::LevelsArgs),
    /// Show the filters of each level, measured and in theory
    #[command(long_about = filters::LONG_ABOUT)]
    Filters(filters::FiltersArgs),
    /// Show the memory of the open store, part by part
    #[command(long_about = levels::MEMORY_ABOUT)]
    Memory(levels::MemoryArgs),
    /// Show the current options, and those recorded in the store
    #[command(long_about = admin::OPTIONS_ABOUT)]
    Options(admin::OptionsArgs),
    /// Flush the entries of the log to tables
    Flush(admin::FlushArgs),
    /// Compact all levels, and drop versions that no reader can see
    #[command(long_about = admin::COMPACT_ABOUT)]
    Compact(admin::CompactArgs),
    /// Rebuild the filters of tables as new ones would get them, without writing data
    #[command(long_about = rebuild::LONG_ABOUT)]
    RebuildFilters(rebuild::RebuildFiltersArgs),
    /// Read and check every byte of every file
    #[command(long_about = verify::LONG_ABOUT)]
    Verify(verify::VerifyArgs),
    /// Create a copy of the store as of now (with hard links if possible)
    Checkpoint(admin::CheckpointArgs),
    /// Create, list, verify, restore and delete backups
    #[command(long_about = backup::LONG_ABOUT, after_help = backup::AFTER_HELP)]
    Backup(backup::BackupArgs),
    /// Restore a backup as a new store (same as backup restore)
    Restore(backup::RestoreArgs),
    /// Inspect tables
    #[command(long_about = sst::LONG_ABOUT, after_help = sst::AFTER_HELP)]
    Sst(sst::SstArgs),
    /// Inspect write-ahead logs
    #[command(long_about = log::LONG_ABOUT, after_help = log::AFTER_HELP)]
    Log(log::LogArgs),
    /// Inspect manifests: the tables that make up a store, and their history
    #[command(long_about = manifest::LONG_ABOUT, after_help = manifest::AFTER_HELP)]
    Manifest(manifest::ManifestArgs),
    /// Show every file that holds a key, and each filter's answer for it
    #[command(long_about = find::LONG_ABOUT, after_help = find::AFTER_HELP)]
    Find(find::FindArgs),
    /// Look up a key, and show each step: filters, blocks and times
    #[command(long_about = explain::LONG_ABOUT, after_help = explain::AFTER_HELP)]
    Explain(explain::ExplainArgs),
    /// Show the properties of a store and of each of its tables
    #[command(long_about = properties::LONG_ABOUT)]
    Properties(properties::PropertiesArgs),
    /// List the files of a store and their roles
    #[command(long_about = listing::LONG_ABOUT)]
    Files(listing::FilesArgs),
}

impl StoreCommand {
    pub(crate) fn run(self, session: Session<'_>, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Get(args) => get::run_get(&args, session, out),
            Self::Mget(args) => get::run_mget(&args, session, out),
            Self::Put(args) => put::run_put(&args, session),
            Self::Merge(args) => put::run_merge(&args, session),
            Self::Delete(args) => put::run_delete(&args, session),
            Self::DeleteRange(args) => put::run_delete_range(&args, session),
            Self::Scan(args) => scan::run(&args, session, out),
            Self::Changes(args) => changes::run(&args, session, out),
            Self::Load(args) => load::run(&args, session, out),
            Self::Dump(args) => dump::run(&args, session, out),
            Self::WriteTable(args) => ingest::run_write(&args, session, out),
            Self::Ingest(args) => ingest::run_ingest(&args, session, out),
            Self::Keyspaces(args) => keyspaces::run(&args, session, out),
            Self::Stats(args) => levels::run_stats(&args, session, out),
            Self::Top(args) => top::run(&args, session, out),
            Self::Levels(args) => levels::run_levels(&args, session, out),
            Self::Filters(args) => filters::run(&args, session, out),
            Self::Memory(args) => levels::run_memory(&args, session, out),
            Self::Options(args) => admin::run_options(&args, session, out),
            Self::Flush(args) => admin::run_flush(&args, session),
            Self::Compact(args) => admin::run_compact(&args, session, out),
            Self::RebuildFilters(args) => rebuild::run(&args, session, out),
            Self::Verify(args) => verify::run(&args, session, out),
            Self::Checkpoint(args) => admin::run_checkpoint(&args, session),
            Self::Backup(args) => backup::run(&args, session, out),
            Self::Restore(args) => backup::restore(&args, session, out),
            Self::Sst(args) => sst::run(&args, session, out),
            Self::Log(args) => log::run(&args, session, out),
            Self::Manifest(args) => manifest::run(&args, session, out),
            Self::Find(args) => find::run(&args, session, out),
            Self::Explain(args) => explain::run(&args, session, out),
            Self::Properties(args) => properties::run(&args, session, out),
            Self::Files(args) => listing::run(&args, session, out),
        }
    }
}

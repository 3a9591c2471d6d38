//! The commands, one module for each or for a family: their arguments, and their implementation.

pub(crate) mod admin;
pub(crate) mod backup;
pub(crate) mod base;
pub(crate) mod bench;
pub(crate) mod changes;
pub(crate) mod compare;
pub(crate) mod demo;
pub(crate) mod dump;
pub(crate) mod explain;
pub(crate) mod files;
pub(crate) mod filter_bench;
pub(crate) mod filters;
pub(crate) mod generated;
pub(crate) mod get;
pub(crate) mod ingest;
pub(crate) mod keyspaces;
pub(crate) mod levels;
pub(crate) mod live_store;
pub(crate) mod load;
pub(crate) mod operations;
pub(crate) mod put;
pub(crate) mod rates;
pub(crate) mod rebuild;
pub(crate) mod records;
pub(crate) mod repair;
pub(crate) mod report;
pub(crate) mod scan;
pub(crate) mod shell;
pub(crate) mod store;
pub(crate) mod store_args;
pub(crate) mod stress;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod top;
pub(crate) mod tune;
pub(crate) mod verify;

//! Every table of a store, with the manifest's record and its own metadata.

use std::path::Path;

use trommel_vfs::Vfs;

use super::manifest::{ListedTable, Manifest, ManifestInfo};
use super::table::{Table, TableInfo};
use super::{as_damage, is_missing, read_consistently};
use crate::error::Result;
use crate::files::table_path;

/// The manifest and the tables of a store.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoreProperties {
    /// The current manifest.
    pub manifest: ManifestInfo,
    /// The tables, in the manifest's order.
    pub tables: Vec<TableProperties>,
}

/// One table of a store.
#[derive(Debug)]
#[non_exhaustive]
pub struct TableProperties {
    /// The manifest's record.
    pub listed: ListedTable,
    /// The table's own metadata, or why it cannot be read.
    pub info: Result<TableInfo>,
}

/// Reads the manifest, and the metadata of each table, but no data blocks.
///
/// # Errors
/// As [`Manifest::in_force`] and [`Manifest::info`]. The error of a table is returned in its
/// [`TableProperties::info`].
pub fn properties(vfs: &dyn Vfs, dir: &Path) -> Result<StoreProperties> {
    let is_torn = |store: &StoreProperties| {
        store.tables.iter().any(|table| table.info.as_ref().is_err_and(is_missing))
    };
    let StoreProperties { manifest, tables } =
        read_consistently(vfs, dir, || properties_once(vfs, dir), is_torn)?;
    let named = |TableProperties { listed, info }| TableProperties {
        listed,
        info: info.map_err(as_damage),
    };
    Ok(StoreProperties { manifest, tables: tables.into_iter().map(named).collect() })
}

fn properties_once(vfs: &dyn Vfs, dir: &Path) -> Result<StoreProperties> {
    let manifest = Manifest::in_force(vfs, dir)?.info()?;
    let tables = manifest.contents.tables.iter().map(|listed| {
        let path = table_path(dir, listed.meta.number);
        let sidecar = listed.meta.filters.sidecar;
        let info =
            Table::open(vfs, &path).and_then(|table| table.with_sidecar(vfs, sidecar).info());
        TableProperties { listed: listed.clone(), info }
    });
    let tables = tables.collect();
    Ok(StoreProperties { manifest, tables })
}

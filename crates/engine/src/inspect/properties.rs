//! Every table of a store, with what the manifest and the table itself say of it.

use std::path::Path;

use trommel_vfs::Vfs;

use super::manifest::{Manifest, ManifestInfo};
use super::table::{Table, TableInfo};
use crate::error::Result;
use crate::files::table_path;
use crate::version::TableMeta;

/// What is known of a store from its manifest and its tables.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoreProperties {
    /// The manifest in force.
    pub manifest: ManifestInfo,
    /// The tables, in the manifest's order.
    pub tables: Vec<TableProperties>,
}

/// One table of a store.
#[derive(Debug)]
#[non_exhaustive]
pub struct TableProperties {
    /// Its level.
    pub level: usize,
    /// What the manifest says of it.
    pub meta: TableMeta,
    /// What it says of itself, or why it cannot be read.
    pub info: Result<TableInfo>,
}

/// Reads the manifest, and of each table the parts that speak of the whole: no data blocks.
///
/// # Errors
/// As [`Manifest::in_force`] and [`Manifest::info`]. What is wrong with a table stands in its
/// [`TableProperties::info`].
pub fn properties(vfs: &dyn Vfs, dir: &Path) -> Result<StoreProperties> {
    let manifest = Manifest::in_force(vfs, dir)?.info()?;
    let tables = manifest.tables.iter().map(|(level, meta)| {
        let info = Table::open(vfs, &table_path(dir, meta.number)).and_then(|table| table.info());
        TableProperties { level: *level, meta: meta.clone(), info }
    });
    let tables = tables.collect();
    Ok(StoreProperties { manifest, tables })
}

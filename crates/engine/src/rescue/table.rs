//! All corruption of one table, with the affected keys.
//!
//! 1. The file must exist, have the length recorded in the manifest, and be the table that it
//!    names.
//! 2. It is read and verified as a whole. If that finds nothing, the table is intact.
//! 3. Otherwise every block is checked on its own, and each unusable one is reported. The keys of
//!    an unreadable data block are between the keys of its good neighbours, these included: the
//!    block may hold older versions of them.
//!
//! [`dissect`] returns both the corruption and the good blocks from a single reading. A block that
//! is unreadable for a moment is then either left out and reported, or kept.

use std::io;
use std::path::Path;
use std::sync::Arc;

use trommel_sstable::format::BlockKind;
use trommel_sstable::{
    BlockCache, BlockInfo, Expected, Sidecar, Table, TableConfig, Verified, layout,
};
use trommel_vfs::{Access, DirEntry, ReadFile, Vfs};

use crate::damage::{Damage, KeySpan, Remedy};
use crate::error::{Error, Result};
use crate::files::{sidecar_path, table_path};
use crate::prefix::Prefix;
use crate::version::TableMeta;

/// Reported for a table that is not the one in the manifest.
const DISAGREES: &str = "its properties are not those that the manifest states";

/// Cache for one table during a check: each block is read once.
const CACHE_BYTES: u64 = 1 << 20;

/// All corruption of the table described by `meta`, whose directory entry is `entry`; and the
/// result of its verification if there is none.
pub(crate) fn survey(
    vfs: &dyn Vfs,
    dir: &Path,
    meta: &TableMeta,
    entry: Option<&DirEntry>,
    extractor: Option<&Prefix>,
) -> (Vec<Damage>, Option<Verified>) {
    let path = table_path(dir, meta.number);
    let all = KeySpan::new(&meta.smallest, &meta.largest);
    let file = match open(vfs, &path, meta, entry) {
        Ok(file) => file,
        Err(damage) => return (vec![damage.costing(all).of_bytes(meta.file_bytes)], None),
    };
    match check(&file, &path, meta, extractor) {
        Ok(verified) => (Vec::new(), Some(verified)),
        Err(error) => (damages(&file, &path, &error, &all), None),
    }
}

/// Corruption of the sidecar of the table described by `meta`, which affects no key; and the result
/// of its verification if there is none.
pub(crate) fn survey_sidecar(
    vfs: &dyn Vfs,
    dir: &Path,
    meta: &TableMeta,
    extractor: Option<&Prefix>,
) -> (Option<Damage>, Option<VerifiedSidecar>) {
    let path = table_path(dir, meta.number);
    let table =
        vfs.open(&path, Access::Buffered).ok().and_then(|file| plain(&file, &path, meta).ok());
    match check_sidecar(vfs, dir, meta, table.as_ref(), extractor) {
        Ok(verified) => (None, verified),
        Err(error) => (Some(damage_of_sidecar(&error, dir, meta)), None),
    }
}

/// The damage for `error`, found in the sidecar of the table described by `meta`.
pub(crate) fn damage_of_sidecar(error: &Error, dir: &Path, meta: &TableMeta) -> Damage {
    let path = sidecar_path(dir, meta.filters.sidecar.unwrap_or_default());
    Damage::of(error, &path, Remedy::Compact)
}

/// Opens the table in `file` without shared caches.
fn plain(file: &Arc<dyn ReadFile>, path: &Path, meta: &TableMeta) -> Result<Table> {
    let expected = Expected { file_bytes: meta.file_bytes, table_id: meta.table_id };
    let cache = BlockCache::new(CACHE_BYTES);
    let config = TableConfig { cache, access: Access::Buffered, filter_host: None };
    Ok(Table::open(Arc::clone(file), path, expected, &config)?)
}

/// Opens the file, if it can be the table.
pub(crate) fn open(
    vfs: &dyn Vfs,
    path: &Path,
    meta: &TableMeta,
    entry: Option<&DirEntry>,
) -> Result<Arc<dyn ReadFile>, Box<Damage>> {
    let damaged = |what: String| Box::new(Damage::at(path, 0, what, Remedy::RestoreOrRepair));
    match entry {
        None => return Err(damaged("the table is missing".to_owned())),
        Some(entry) if !entry.is_file => return Err(damaged("it is no regular file".to_owned())),
        Some(entry) if entry.bytes != meta.file_bytes => {
            let (bytes, stated) = (entry.bytes, meta.file_bytes);
            return Err(damaged(format!("it has {bytes} bytes, and the manifest says {stated}")));
        }
        Some(_) => {}
    }
    vfs.open(path, Access::Buffered).map_err(|source| {
        let error = Error::io(path, "opening", source);
        Box::new(Damage::of(&error, path, Remedy::RestoreOrRepair))
    })
}

/// A table, block by block.
#[derive(Debug, Default)]
pub(crate) struct DissectedTable {
    /// Its blocks, good and bad; empty if their bounds are unknown, or if they belong to another
    /// table.
    pub(crate) blocks: Vec<BlockInfo>,
    /// Corruption of the blocks, and any other of the table.
    pub(crate) damage: Vec<Damage>,
}

impl DissectedTable {
    /// Entries in the readable blocks.
    pub(crate) fn entries(&self) -> u64 {
        let is_data = |block: &&BlockInfo| block.kind == BlockKind::Data;
        let good = self.blocks.iter().filter(is_data).filter_map(|b| b.content.as_ref().ok());
        good.map(|content| content.items).sum()
    }
}

/// The rest of the table described by `meta`, and all of its corruption.
pub(crate) fn dissect(
    vfs: &dyn Vfs,
    dir: &Path,
    meta: &TableMeta,
    entry: Option<&DirEntry>,
) -> DissectedTable {
    let path = table_path(dir, meta.number);
    let all = KeySpan::new(&meta.smallest, &meta.largest);
    let lost = |damage: Damage| {
        let damage = vec![damage.costing(all.clone()).of_bytes(meta.file_bytes)];
        DissectedTable { blocks: Vec::new(), damage }
    };
    let file = match open(vfs, &path, meta, entry) {
        Ok(file) => file,
        Err(damage) => return lost(*damage),
    };
    match Expected::of_file(&*file, &path) {
        Ok(found) if found.table_id == meta.table_id => {}
        Ok(_) => {
            let what = "it is another table than the one that the manifest names";
            return lost(Damage::at(&path, 0, what, Remedy::RestoreOrRepair));
        }
        Err(error) => return lost(Damage::of(&error.into(), &path, Remedy::RestoreOrRepair)),
    }
    let first = check(&file, &path, meta, None).err();
    dissect_blocks(&file, &path, first.as_ref(), &all)
}

/// Verifies the whole table, and compares it with the manifest's record.
fn check(
    file: &Arc<dyn ReadFile>,
    path: &Path,
    meta: &TableMeta,
    extractor: Option<&Prefix>,
) -> Result<Verified> {
    let table = plain(file, path, meta)?;
    let maker = table.filters().prefixes_part().map(|part| &*part.extractor);
    let prefix = maker.and_then(|maker| Prefix::maker(maker, extractor));
    let verified = table.verify_with(prefix.map(|prefix| prefix.extractor()))?;
    agrees(&table, meta, path)?;
    Ok(verified)
}

/// An error unless the table's properties match the manifest's record.
pub(crate) fn agrees(table: &Table, meta: &TableMeta, path: &Path) -> Result<()> {
    let said = table.properties();
    let agrees = said.contents.entries == meta.entries
        && said.contents.keys == meta.keys
        && *said.contents.smallest == *meta.smallest
        && *said.contents.largest == *meta.largest
        && said.contents.min_seqno == meta.min_seqno
        && said.contents.max_seqno == meta.max_seqno;
    if agrees {
        return Ok(());
    }
    Err(trommel_base::Corruption::new(path, 0, DISAGREES).into())
}

/// The corruption of the table's blocks, one by one; `first` if there is none.
pub(crate) fn damages(
    file: &Arc<dyn ReadFile>,
    path: &Path,
    first: &Error,
    all: &KeySpan,
) -> Vec<Damage> {
    dissect_blocks(file, path, Some(first), all).damage
}

/// The table's blocks, and their corruption; if there is none, `first`, which a verification of the
/// whole table found.
pub(crate) fn dissect_blocks(
    file: &Arc<dyn ReadFile>,
    path: &Path,
    first: Option<&Error>,
    all: &KeySpan,
) -> DissectedTable {
    // If the entries are intact, the corruption is in a filter: any other would be reported by both
    // checks.
    let is_of_filters = |error: &Error| {
        let is_of_manifest = matches!(error, Error::Corruption(damage) if damage.what == DISAGREES);
        matches!(error, Error::Corruption(_))
            && !is_of_manifest
            && check_entries(file, path).is_ok()
    };
    let whole = |error: &Error| match is_of_filters(error) {
        true => vec![Damage::of(error, path, Remedy::Compact)],
        false => {
            vec![Damage::of(error, path, Remedy::RestoreOrRepair).costing(all.clone())]
        }
    };
    let blocks = match layout(file, path) {
        Ok(blocks) => blocks,
        Err(error) => {
            let error = Error::from(error);
            // A read would return the first error; without a footer, both errors report that. But
            // corruption of a filter must not be reported as the loss of everything.
            let noted = first.filter(|_| matches!(error, Error::Corruption(_)));
            let damage = Damage::of(noted.unwrap_or(&error), path, Remedy::RestoreOrRepair);
            return DissectedTable {
                blocks: Vec::new(),
                damage: vec![damage.costing(all.clone())],
            };
        }
    };
    let mut damage = of_blocks(path, &blocks, all);
    if let Some(first) = first.filter(|_| damage.is_empty()) {
        return DissectedTable { damage: whole(first), blocks };
    }
    // The entries were not checked after a corrupt filter.
    if !damage.is_empty()
        && damage.iter().all(|found| found.remedy == Remedy::Compact)
        && let Err(error @ Error::Corruption(_)) = check_entries(file, path)
    {
        damage.push(Damage::of(&error, path, Remedy::RestoreOrRepair).costing(all.clone()));
    }
    DissectedTable { blocks, damage }
}

/// The result of verifying a sidecar.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VerifiedSidecar {
    /// Bytes of the file, all of which were read.
    pub(crate) bytes: u64,
    /// Whether it has a filter that cannot be queried here.
    pub(crate) has_foreign: bool,
}

/// Reads every byte of the sidecar of the table described by `meta`, and queries it for every key
/// of `table`, if that is readable. `None` if there is no sidecar. Corruption of the table itself
/// is not an error here.
pub(crate) fn check_sidecar(
    vfs: &dyn Vfs,
    dir: &Path,
    meta: &TableMeta,
    table: Option<&Table>,
    extractor: Option<&Prefix>,
) -> Result<Option<VerifiedSidecar>> {
    let Some(number) = meta.filters.sidecar else { return Ok(None) };
    let path = sidecar_path(dir, number);
    let file = vfs.open(&path, Access::Buffered).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => {
            trommel_base::Corruption::new(&path, 0, "the filter sidecar is missing").into()
        }
        io::ErrorKind::InvalidInput => {
            trommel_base::Corruption::new(&path, 0, "it is no regular file").into()
        }
        _ => Error::io(&path, "opening", source),
    })?;
    let sidecar = Sidecar::open(file, &path)?;
    let bytes = sidecar.file_bytes();
    let Some(table) = table else {
        sidecar.check()?;
        return Ok(Some(VerifiedSidecar { bytes, has_foreign: false }));
    };
    let maker = sidecar.parts().map(|part| &*part.extractor).find(|maker| !maker.is_empty());
    let prefix = maker.and_then(|maker| Prefix::maker(maker, extractor));
    let has_foreign = match table.verify_sidecar(&sidecar, prefix.map(|prefix| prefix.extractor()))
    {
        Err(error) if is_of(&error, table.path()) => false,
        verified => verified?,
    };
    Ok(Some(VerifiedSidecar { bytes, has_foreign }))
}

/// Whether `error` concerns `file`.
fn is_of(error: &trommel_sstable::Error, file: &Path) -> bool {
    use trommel_sstable::Error as Table;
    match error {
        Table::Corruption(damage) => *damage.file == *file,
        Table::Io { file: of, .. } | Table::Unsupported { file: of, .. } => of == file,
        _ => false,
    }
}

/// Verifies the entries of the table, whatever the state of its filters.
fn check_entries(file: &Arc<dyn ReadFile>, path: &Path) -> Result<()> {
    let expected = Expected::of_file(&**file, path)?;
    let cache = BlockCache::new(CACHE_BYTES);
    let config = TableConfig { cache, access: Access::Buffered, filter_host: None };
    let table = Table::open(Arc::clone(file), path, expected, &config)?;
    table.verify_entries()?;
    Ok(())
}

/// One damage per unusable block.
fn of_blocks(path: &Path, blocks: &[BlockInfo], all: &KeySpan) -> Vec<Damage> {
    let damaged = |block: &BlockInfo, what: &str| {
        let kind = block.kind;
        let remedy = match kind {
            BlockKind::Filter | BlockKind::FilterTop => Remedy::Compact,
            _ => Remedy::RestoreOrRepair,
        };
        let part = match kind {
            BlockKind::Data => "a data block",
            BlockKind::Filter | BlockKind::FilterTop => "the filter",
            BlockKind::IndexLeaf | BlockKind::IndexTop => "the index",
            BlockKind::Properties => "the properties",
            BlockKind::Footer => "the footer",
            BlockKind::Sidecar => "the sidecar",
        };
        Damage::at(path, block.offset, format!("{part}: {what}"), remedy).of_bytes(block.bytes)
    };
    let mut found = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let Err(what) = &block.content else { continue };
        let damage = damaged(block, what);
        found.push(match block.kind {
            BlockKind::Data => damage.costing(lost_span(blocks, at, all)),
            // A table without a top index or properties cannot be opened at all.
            BlockKind::IndexTop | BlockKind::Properties | BlockKind::Footer => {
                damage.costing(all.clone())
            }
            // The blocks of a corrupt index leaf are reported as unlisted data blocks.
            _ => damage,
        });
    }
    found
}

/// The range of possible keys of data block `at`, which is unreadable.
pub(crate) fn lost_span(blocks: &[BlockInfo], at: usize, all: &KeySpan) -> KeySpan {
    let good = |block: &BlockInfo| match (&block.kind, &block.content) {
        (BlockKind::Data, Ok(content)) => Some(content.clone()),
        _ => None,
    };
    let (before, behind) = (blocks.get(..at), blocks.get(at + 1..));
    let first = before.unwrap_or_default().iter().rev().find_map(good);
    let last = behind.unwrap_or_default().iter().find_map(good);
    KeySpan {
        first: first.map_or_else(|| all.first.clone(), |content| content.last_key),
        last: last.map_or_else(|| all.last.clone(), |content| content.first_key),
    }
}

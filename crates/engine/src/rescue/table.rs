//! Everything that is wrong with one table, with the keys that it costs.
//!
//! 1. The file must be there, of the length that the manifest states, and be the table it names.
//! 2. It is read and checked as a whole. If that finds nothing, nothing is wrong.
//! 3. Otherwise every block is looked at by itself, and each that cannot be used is one damage.
//!    What lies in a data block that cannot be read lies between the keys of its good neighbours,
//!    these included: older versions of them may be in it.
//!
//! Who wants both the damage and what is left ([`dissect`]) has both of one reading: what cannot be
//! read for a moment is then either left out and told of, or kept.

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

/// What is said of a table that is not the one the manifest describes.
const DISAGREES: &str = "its properties are not those that the manifest states";

/// Bytes of blocks that one table keeps while it is looked at: each is read once.
const CACHE_BYTES: u64 = 1 << 20;

/// All that is wrong with the table that `meta` describes, whose directory entry is `entry`; and
/// what was read of it where nothing is.
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

/// What is wrong with the sidecar of the table that `meta` describes, which costs no key; and what
/// was read of it where nothing is.
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

/// What `error`, met in the sidecar of the table that `meta` describes, is about.
pub(crate) fn damage_of_sidecar(error: &Error, dir: &Path, meta: &TableMeta) -> Damage {
    let path = sidecar_path(dir, meta.filter_sidecar.unwrap_or_default());
    Damage::of(error, &path, Remedy::Compact)
}

/// The table in `file`, to be read past every cache.
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

/// A table, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Its blocks, good and bad; none where nobody can tell where they begin, or where they are not
    /// those of the table.
    pub(crate) blocks: Vec<BlockInfo>,
    /// What is wrong with them, and whatever else is wrong with the table.
    pub(crate) damage: Vec<Damage>,
}

impl Pieces {
    /// Entries in the blocks that can be read.
    pub(crate) fn entries(&self) -> u64 {
        let is_data = |block: &&BlockInfo| block.kind == BlockKind::Data;
        let good = self.blocks.iter().filter(is_data).filter_map(|b| b.content.as_ref().ok());
        good.map(|content| content.items).sum()
    }
}

/// What is left of the table that `meta` describes, and all that is wrong with it.
pub(crate) fn dissect(
    vfs: &dyn Vfs,
    dir: &Path,
    meta: &TableMeta,
    entry: Option<&DirEntry>,
) -> Pieces {
    let path = table_path(dir, meta.number);
    let all = KeySpan::new(&meta.smallest, &meta.largest);
    let lost = |damage: Damage| {
        let damage = vec![damage.costing(all.clone()).of_bytes(meta.file_bytes)];
        Pieces { blocks: Vec::new(), damage }
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
    pieces(&file, &path, first.as_ref(), &all)
}

/// Reads the table as a whole, and compares it with what the manifest states.
fn check(
    file: &Arc<dyn ReadFile>,
    path: &Path,
    meta: &TableMeta,
    extractor: Option<&Prefix>,
) -> Result<Verified> {
    let table = plain(file, path, meta)?;
    let maker = table.filters().prefixes_part().map(|part| part.extractor.clone());
    let set = extractor.filter(|prefix| maker.as_deref() == Some(prefix.name())).cloned();
    let prefix = set.or_else(|| maker.and_then(|maker| Prefix::stored(&maker)));
    let verified = table.verify_with(prefix.map(|prefix| prefix.extractor()))?;
    agrees(&table, meta, path)?;
    Ok(verified)
}

/// An error unless the table's properties are those that the manifest states.
pub(crate) fn agrees(table: &Table, meta: &TableMeta, path: &Path) -> Result<()> {
    let said = table.properties();
    let agrees = said.entries == meta.entries
        && said.keys == meta.keys
        && *said.smallest == *meta.smallest
        && *said.largest == *meta.largest
        && said.min_seqno == meta.min_seqno
        && said.max_seqno == meta.max_seqno;
    if agrees {
        return Ok(());
    }
    Err(trommel_base::Corruption::new(path, 0, DISAGREES).into())
}

/// What is wrong with the table's blocks, one by one; `first` where that finds nothing.
pub(crate) fn damages(
    file: &Arc<dyn ReadFile>,
    path: &Path,
    first: &Error,
    all: &KeySpan,
) -> Vec<Damage> {
    pieces(file, path, Some(first), all).damage
}

/// The table's blocks, and what is wrong with them; `first`, which a check of the whole table
/// found, where that is nothing.
pub(crate) fn pieces(
    file: &Arc<dyn ReadFile>,
    path: &Path,
    first: Option<&Error>,
    all: &KeySpan,
) -> Pieces {
    // Where the entries are sound, what is wrong is a filter's: of anything else both would be
    // told.
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
            // What was found first is what a read would be told; where there is no footer, both say
            // so. But no damage of a filter says that all is lost.
            let told = first.filter(|_| matches!(error, Error::Corruption(_)));
            let damage = Damage::of(told.unwrap_or(&error), path, Remedy::RestoreOrRepair);
            return Pieces { blocks: Vec::new(), damage: vec![damage.costing(all.clone())] };
        }
    };
    let mut damage = of_blocks(path, &blocks, all);
    if let Some(first) = first.filter(|_| damage.is_empty()) {
        return Pieces { damage: whole(first), blocks };
    }
    // Behind a filter that is damaged the entries were not looked at.
    if !damage.is_empty()
        && damage.iter().all(|found| found.remedy == Remedy::Compact)
        && let Err(error @ Error::Corruption(_)) = check_entries(file, path)
    {
        damage.push(Damage::of(&error, path, Remedy::RestoreOrRepair).costing(all.clone()));
    }
    Pieces { blocks, damage }
}

/// What was read of a sidecar.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VerifiedSidecar {
    /// Bytes of it: all.
    pub(crate) bytes: u64,
    /// Whether there is a filter in it that nobody here can ask.
    pub(crate) has_foreign: bool,
}

/// Reads every byte of the sidecar of the table that `meta` describes, and asks every key of
/// `table` of it, where that can be read; `None` where it has none. What is wrong with the table is
/// no error here.
pub(crate) fn check_sidecar(
    vfs: &dyn Vfs,
    dir: &Path,
    meta: &TableMeta,
    table: Option<&Table>,
    extractor: Option<&Prefix>,
) -> Result<Option<VerifiedSidecar>> {
    let Some(number) = meta.filter_sidecar else { return Ok(None) };
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
    let set = extractor.filter(|prefix| maker == Some(prefix.name())).cloned();
    let prefix = set.or_else(|| maker.and_then(Prefix::stored));
    let has_foreign = match table.verify_sidecar(&sidecar, prefix.map(|prefix| prefix.extractor()))
    {
        Err(error) if is_of(&error, table.path()) => false,
        verified => verified?,
    };
    Ok(Some(VerifiedSidecar { bytes, has_foreign }))
}

/// Whether `error` is about `file`.
fn is_of(error: &trommel_sstable::Error, file: &Path) -> bool {
    use trommel_sstable::Error as Table;
    match error {
        Table::Corruption(damage) => *damage.file == *file,
        Table::Io { file: of, .. } | Table::Unsupported { file: of, .. } => of == file,
        _ => false,
    }
}

/// Whether all is well with what the table holds, whatever is with its filters.
fn check_entries(file: &Arc<dyn ReadFile>, path: &Path) -> Result<()> {
    let expected = Expected::of_file(&**file, path)?;
    let cache = BlockCache::new(CACHE_BYTES);
    let config = TableConfig { cache, access: Access::Buffered, filter_host: None };
    let table = Table::open(Arc::clone(file), path, expected, &config)?;
    table.verify_entries()?;
    Ok(())
}

/// A damage for each block that cannot be used.
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
            // A table without a top index or properties is not opened at all.
            BlockKind::IndexTop | BlockKind::Properties | BlockKind::Footer => {
                damage.costing(all.clone())
            }
            // What a leaf lists stands as data blocks that nobody lists.
            _ => damage,
        });
    }
    found
}

/// Between which keys the entries of data block `at`, which cannot be read, lie.
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

//! Filter sidecars: a sidecar is a file with replacement filters for a table, so that filters can
//! be rebuilt without rewriting the table's data.
//!
//! 1. [`Table::write_sidecar`] reads all keys of a table, block by block, bypassing every cache,
//!    and writes the requested filters (`build.rs`).
//! 2. [`Sidecar::open`] reads the end of such a file: its footer and its directory of filters.
//! 3. [`Table::take_sidecar`] makes a table query these filters instead of its own.
//! 4. [`Table::verify_sidecar`] reads every byte and queries every key.
//!
//! Invariants: a sidecar is used only with the table it was built from. Tables never change and
//! their ids are random, so the id identifies the table; the number of keys and the length of the
//! data must match as well. If any part of a sidecar is unusable, the table's own filters are the
//! fallback.
//!
//! Called by the engine, whose manifest records which table has a sidecar.

mod build;
pub mod format;

use std::path::Path;
use std::sync::Arc;

use trommel_vfs::ReadFile;

pub use build::SidecarSummary;
use format::{FOOTER_BYTES, HEAD_BYTES, SidecarFooter};

use crate::filters::{Listed, PrefixExtractor, Watch, decode_directory};
use crate::format::{BlockKind, Fault, Handle};
use crate::keys::Step;
use crate::layout::{TakeBlock, blocks_of_parts, list_in, plain};
use crate::source::Source;
use crate::{BlockContent, BlockInfo, Error, FilterPart, FilterRole, Table};

/// An open sidecar.
#[derive(Debug)]
pub struct Sidecar {
    pub(crate) source: Source,
    footer: SidecarFooter,
    parts: Vec<Listed>,
}

impl Sidecar {
    /// Opens the sidecar in `file`, which `path` names in errors. Reads none of its filters.
    ///
    /// # Errors
    /// [`Error::Corruption`] if its end is corrupt; [`Error::Unsupported`] for a newer format;
    /// [`Error::Io`].
    pub fn open(file: Arc<dyn ReadFile>, path: &Path) -> Result<Self, Error> {
        let file_bytes = file.bytes();
        let mut end = [0; FOOTER_BYTES];
        let at_footer = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        let room = end.get_mut(..(file_bytes - at_footer) as usize).unwrap_or_default();
        file.read_at(at_footer, room).map_err(|source| Error::io(path, source))?;
        let footer =
            SidecarFooter::decode(room, file_bytes).map_err(|fault| fault.at(path, at_footer))?;
        let source = Source::uncached(file, path, footer.binding(), 0);
        let offset = footer.directory_offset();
        // Bounded by the file's length, which the footer was checked against.
        let handle = Handle { offset, bytes: footer.directory_bytes as usize };
        let payload = source.read_plain(handle, BlockKind::Sidecar)?;
        let parts = decode_directory(&payload, footer.region_bytes)
            .map_err(|what| Fault::Damaged(what).at(path, offset))?;
        Ok(Self { source, footer, parts })
    }

    /// The footer.
    pub fn footer(&self) -> &SidecarFooter {
        &self.footer
    }

    /// Its filters, except those of kinds unknown to this version.
    pub fn parts(&self) -> impl Iterator<Item = &FilterPart> {
        self.parts.iter().filter_map(|listed| match listed {
            Listed::Part(part) => Some(part),
            Listed::Later { .. } => None,
        })
    }

    /// The file's path, as given to [`Sidecar::open`].
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.source.file.bytes()
    }

    /// An error unless the sidecar was built from `table`.
    fn check_table(&self, table: &Table) -> Result<(), Error> {
        let footer = &self.footer;
        let is_its = footer.table_id == table.footer.table_id
            && footer.keys == table.properties().contents.keys
            && footer.data_bytes == table.footer.data_bytes;
        let foreign = Fault::Damaged("it was built from another table");
        if is_its { Ok(()) } else { Err(foreign.at(&self.source.path, 0)) }
    }

    /// Every block in file order, with its content or the reason why it cannot be used.
    pub fn layout(&self) -> Vec<BlockInfo> {
        let mut blocks = Vec::new();
        let _ = self.each_block(&mut list_in(&mut blocks));
        blocks
    }

    /// Reads every byte and checks everything that can be checked without the table.
    ///
    /// # Errors
    /// The first corruption found.
    pub fn check(&self) -> Result<(), Error> {
        self.each_block(&mut |_, _, content| content.map(drop))
    }

    /// Passes every block to `take`.
    fn each_block(&self, take: &mut TakeBlock<'_>) -> Result<(), Error> {
        let at = |offset, bytes| Handle { offset, bytes };
        take(at(0, HEAD_BYTES), BlockKind::Sidecar, self.read_head())?;
        blocks_of_parts(&self.source, &self.parts, self.footer.region_offset(), take)?;
        let directory = at(self.footer.directory_offset(), self.footer.directory_bytes as usize);
        let read = self.source.read_plain(directory, BlockKind::Sidecar);
        take(directory, BlockKind::Sidecar, read.map(|payload| plain(payload.len() as u64)))?;
        let footer = at(directory.end(), FOOTER_BYTES);
        take(footer, BlockKind::Sidecar, self.read_footer(footer))
    }

    fn read_head(&self) -> Result<BlockContent, Error> {
        let mut bytes = [0; HEAD_BYTES];
        self.source.read_into(0, &mut bytes)?;
        match bytes == self.footer.head() {
            true => Ok(plain(HEAD_BYTES as u64)),
            false => Err(Fault::Damaged("the sidecar's head is not that of its footer")
                .at(&self.source.path, 0)),
        }
    }

    fn read_footer(&self, handle: Handle) -> Result<BlockContent, Error> {
        let mut bytes = [0; FOOTER_BYTES];
        self.source.read_into(handle.offset, &mut bytes)?;
        let footer = SidecarFooter::decode(&bytes, self.file_bytes());
        footer
            .and_then(|footer| match footer == self.footer {
                true => Ok(plain(FOOTER_BYTES as u64)),
                false => Err(Fault::Damaged("the sidecar's footer has changed")),
            })
            .map_err(|fault| fault.at(&self.source.path, handle.offset))
    }
}

impl Table {
    /// Replaces the table's filters by those of `sidecar`. Its own remain the fallback if these
    /// cannot be used.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the sidecar was built from another table; the table is unchanged
    /// then.
    pub fn take_sidecar(&mut self, sidecar: Sidecar) -> Result<(), Error> {
        sidecar.check_table(self)?;
        let cache = Arc::clone(&self.source.cache);
        let source = Source { number: cache.number_table(), cache, ..sidecar.source };
        let offset = sidecar.footer.region_offset();
        let smallest = self.properties().contents.smallest.clone();
        self.filters.use_sidecar(Arc::new(source), sidecar.parts, offset, &smallest);
        Ok(())
    }

    /// Records that the table's sidecar cannot be used, so that its own filters are queried.
    pub fn miss_sidecar(&self, why: &str) {
        self.filters.note_damage(format!("its sidecar cannot be used: {why}"));
    }

    /// Reads every byte of `sidecar`, which must belong to this table, and queries its filters for
    /// every key of the table, and for every key's prefix if `extractor` has the name of the one
    /// they were built with. Returns whether a filter was not queried, because this version does
    /// not know its kind or its user-defined policy is missing.
    ///
    /// # Errors
    /// The first corruption found, in either file.
    pub fn verify_sidecar(
        &self,
        sidecar: &Sidecar,
        extractor: Option<Arc<dyn PrefixExtractor>>,
    ) -> Result<bool, Error> {
        sidecar.check_table(self)?;
        sidecar.check()?;
        let source = sidecar.source.clone();
        let offset = sidecar.footer.region_offset();
        let smallest = &self.properties().contents.smallest;
        let filters =
            self.filters.of_sidecar(Arc::new(source), sidecar.parts.clone(), offset, smallest);
        let (path, seed) = (sidecar.path(), self.hash_seed());
        let denied = |what| Fault::Damaged(what).at(path, offset);
        let mut prefixes = extractor
            .filter(|it| filters.prefixes_part().is_some_and(|part| part.extractor == it.name()))
            .map(|extractor| (extractor, Watch::default()));
        for part in sidecar.parts().filter(|part| part.role == FilterRole::Keys) {
            if part.keys != sidecar.footer.keys {
                return Err(denied("the filter was built for another number of keys"));
            }
        }
        self.each_key(|step| {
            if let Step::Key(key, leaf, at) | Step::KeyAgain(key, leaf, at) = step
                && !filters.may_hold_at(&self.index, leaf, at, key)
            {
                return Err(denied("the range filter denies a key that the table holds"));
            }
            let Step::Key(key, ..) = step else { return Ok(()) };
            if !filters.query(key, seed.hash(key)).maybe {
                return Err(denied("the filter denies a key that the table holds"));
            }
            let Some((extractor, watch)) = &mut prefixes else { return Ok(()) };
            let made = watch.next(&**extractor, key).map_err(|_| {
                denied("the extractor that made its prefix filter breaks its contract")
            })?;
            let Some(prefix) = made else { return Ok(()) };
            match filters.query_prefix(prefix, seed.hash(prefix), extractor.name()).maybe {
                true => Ok(()),
                false => Err(denied("the prefix filter denies the prefix of a key of the table")),
            }
        })?;
        Ok(filters.has_unused())
    }
}

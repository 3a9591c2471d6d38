//! Builds a sidecar from the keys of a table.
//!
//! 1. Write the head.
//! 2. Read all keys of the table and add them to the builders of the filters, as when the table was
//!    written. If no filter is requested, nothing is read.
//! 3. Write the filters as adjacent parts, then the directory that describes them, and the footer.
//!    Sync the file; syncing its directory entry is the caller's task.

use std::path::Path;
use std::sync::Arc;

use trommel_vfs::WriteFile;

use super::format::{SidecarFooter, VERSION};
use crate::filters::{FiltersBuilder, UserBuild, encode_whole_directory};
use crate::format::{BlockKind, seal};
use crate::keys::Step;
use crate::sink::Sink;
use crate::{Error, FilterPlan, Table, UserFilterBuilder, UserFilterReader};

/// Size of the write buffer in bytes.
const WRITE_BYTES: usize = 256 << 10;

/// Keys between two calls of `watch`.
const KEYS_BETWEEN_LOOKS: u64 = 64;

/// Summary of a finished sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SidecarSummary {
    /// Version of the format.
    pub version: u16,
    /// Length of the file.
    pub file_bytes: u64,
    /// Bytes of the filters in it.
    pub filter_bytes: u64,
    /// Keys read from the table.
    pub keys: u64,
    /// Bytes read from the table.
    pub bytes_read: u64,
    /// Why a user-defined filter could not be built.
    pub filter_failure: Option<String>,
    /// Filters and filter partitions of a fallback kind, as their keys did not fit the requested
    /// kind.
    pub filter_fallbacks: u64,
}

impl Table {
    /// Writes a sidecar with these filters to `file`, which must be new and empty, and syncs it.
    /// `path` names the file in errors. `id` must be random and unique among sidecars. With `user`,
    /// the filter of whole keys is user-defined, and the plan must have none. `watch` is called
    /// every few keys with the memory in bytes of the filters until they are written; an error that
    /// it returns ends the build.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the table is corrupt; [`Error::Io`]; the errors of `watch`. The
    /// file is unusable then.
    pub fn write_sidecar<E: From<Error>>(
        &self,
        file: Box<dyn WriteFile>,
        path: &Path,
        id: u64,
        filters: &FilterPlan,
        user: Option<(Arc<dyn UserFilterReader>, Box<dyn UserFilterBuilder>)>,
        mut watch: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<SidecarSummary, E> {
        let mut footer = SidecarFooter {
            table_id: self.footer.table_id,
            sidecar_id: id,
            keys: self.properties().contents.keys,
            data_bytes: self.footer.data_bytes,
            region_bytes: 0,
            directory_bytes: 0,
            features: 0,
        };
        let mut summary = SidecarSummary { version: VERSION, ..SidecarSummary::default() };
        let mut user = user.map(|(reader, builder)| UserBuild::new(reader, builder));
        let seed = self.hash_seed();
        let mut builder = FiltersBuilder::new(filters, seed);
        if user.is_some() || filters.has_any() {
            summary.bytes_read = self.each_key(|step| {
                match step {
                    Step::Key(key, ..) => {
                        let hash = seed.hash(key);
                        builder.add(key, hash);
                        if let Some(user) = &mut user {
                            user.add(key, hash);
                        }
                        summary.keys += 1;
                        if !summary.keys.is_multiple_of(KEYS_BETWEEN_LOOKS) {
                            return Ok(());
                        }
                    }
                    Step::KeyAgain(key, ..) => builder.add_again(key),
                    Step::BlockEnd { separator, ends_leaf } => {
                        builder.end_block(separator);
                        if ends_leaf {
                            builder.end_leaf();
                        }
                    }
                }
                let of_user = user.as_mut().map_or(0, UserBuild::memory_bytes);
                watch(builder.memory_bytes() + of_user)
            })?;
        }
        let mut sink = Sink::new(file, path, footer.binding(), WRITE_BYTES);
        sink.out.extend_from_slice(&footer.head());
        let mut parts = Vec::new();
        match user.map(UserBuild::finish) {
            Some(Ok(built)) => sink.write_part(built, &mut parts)?,
            Some(Err(why)) => summary.filter_failure = Some(why),
            None => {}
        }
        builder.finish(|built| sink.write_part(built, &mut parts))?;
        footer.region_bytes = sink.offset() - footer.region_offset();
        write_end(&mut sink, &mut footer, &encode_whole_directory(&parts))?;
        summary.file_bytes = sink.written;
        summary.filter_bytes = footer.region_bytes;
        summary.filter_fallbacks = sink.fallbacks;
        Ok(summary)
    }
}

/// Writes the directory and the footer, and syncs the file.
fn write_end(sink: &mut Sink, footer: &mut SidecarFooter, directory: &[u8]) -> Result<(), Error> {
    sink.flush()?;
    let offset = sink.offset();
    sink.out.extend_from_slice(directory);
    seal(&mut sink.out, 0, footer.binding(), offset, BlockKind::Sidecar, 0);
    footer.directory_bytes = sink.out.len() as u64;
    let offset = sink.offset();
    footer.encode(offset, &mut sink.out);
    sink.flush()?;
    sink.sync()
}

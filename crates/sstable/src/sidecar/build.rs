//! Builds a sidecar from the keys of a table.
//!
//! 1. The head goes out first.
//! 2. All keys of the table are read and added to the builders of the filters, as they were when
//!    the table was written; where no filter is asked for nothing is read.
//! 3. The filters are written as parts, side by side, then the directory that says what they are,
//!    and the footer. The file is synced; its directory entry is the caller's.

use std::path::Path;
use std::sync::Arc;

use trommel_base::planted::{Bug, planted};
use trommel_vfs::WriteFile;

use super::format::{SidecarFooter, VERSION};
use crate::filters::{FiltersBuilder, UserBuild, encode_whole_directory};
use crate::format::{BlockKind, seal};
use crate::keys::Step;
use crate::sink::Sink;
use crate::{Error, FilterPlan, Table, UserFilterBuilder, UserFilterReader};

/// The write buffer's bytes.
const WRITE_BYTES: usize = 256 << 10;

/// Keys after which it is asked whether to go on.
const KEYS_BETWEEN_LOOKS: u64 = 64;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SidecarSummary {
    /// Version of the format.
    pub version: u16,
    /// Length of the file.
    pub file_bytes: u64,
    /// Bytes of the filters in it.
    pub filter_bytes: u64,
    /// Keys that were read of the table.
    pub keys: u64,
    /// Bytes that were read of the table.
    pub bytes_read: u64,
    /// Why a user's filter was to be there and is not.
    pub filter_failure: Option<String>,
    /// Filters, and pieces of filters, of another kind than was asked for, as their keys could not
    /// be built into that.
    pub filter_fallbacks: u64,
}

impl Table {
    /// Writes a sidecar with these filters to `file`, which is new and empty and which `path` names
    /// in errors, and syncs it. `id` is random, unlike that of any other sidecar. With `user`, the
    /// filter of whole keys is of a user's making, and the plan has none. `watch` is told after
    /// every few keys how many bytes of memory the filters take until they are written; an error of
    /// it is the end.
    ///
    /// # Errors
    /// [`Error::Corruption`] where the table is damaged; [`Error::Io`]; those of `watch`. The file
    /// is of no use then.
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
            keys: self.properties().keys,
            data_bytes: self.footer.data_bytes,
            region_bytes: 0,
            directory_bytes: 0,
            features: 0,
        };
        let mut summary = SidecarSummary { version: VERSION, ..SidecarSummary::default() };
        let mut user = user.map(|(reader, builder)| UserBuild::new(reader, builder));
        let mut builder = FiltersBuilder::new(filters);
        if user.is_some() || filters.has_any() {
            summary.bytes_read = self.each_key(|step| {
                match step {
                    Step::Key(_)
                        if planted(Bug::RebuildMissesLastKey)
                            && summary.keys + 1 == footer.keys =>
                    {
                        summary.keys += 1;
                    }
                    Step::Key(key) => {
                        let hash = trommel_filter::hash(key);
                        builder.add(key, hash);
                        if let Some(user) = &mut user {
                            user.add(key, hash);
                        }
                        summary.keys += 1;
                        if !summary.keys.is_multiple_of(KEYS_BETWEEN_LOOKS) {
                            return Ok(());
                        }
                    }
                    Step::BlockEnd { offset, next, separator } => {
                        builder.end_block(offset, next, separator);
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

/// Writes the directory and the footer, and makes all of the file durable.
fn write_end(sink: &mut Sink, footer: &mut SidecarFooter, directory: &[u8]) -> Result<(), Error> {
    sink.flush()?;
    let offset = sink.offset();
    sink.out.extend_from_slice(directory);
    seal(&mut sink.out, 0, footer.binding(), offset, BlockKind::Sidecar, 0);
    footer.directory_bytes = sink.out.len() as u64;
    let offset = sink.offset();
    footer.encode(offset, &mut sink.out);
    sink.flush()?;
    if planted(Bug::SidecarNotSynced) {
        return Ok(());
    }
    sink.sync()
}

//! The write-ahead log: framed batches, and a reader that distinguishes a torn tail from
//! corruption.
//!
//! * [`format`]: the constants; `docs/format/log.md` specifies the bytes.
//! * [`framing`]: one file header, one record; [`mask`]: the sector rule.
//! * [`writer`]: appends groups of records and tracks how much is durable.
//! * [`reader`]: decodes one file into records and a verdict.
//! * [`later_records`]: records after corruption that can still be verified.
//! * [`stream`]: decodes an intact log with one record in memory at a time.
//! * [`tail`]: reads a file to which its writer still appends.
//! * [`ends`]: the ends of logs without an end marker, as recorded in the manifest.
//! * [`recover`]: decides which records of all needed logs are replayed and which are dropped.
//!
//! The manifest has the same framing and uses the writer and the reader of this module. Nothing
//! here knows the contents of a batch.

mod ends;
pub(crate) mod format;
pub(crate) mod framing;
pub(crate) mod later_records;
mod mask;
pub(crate) mod reader;
pub(crate) mod recover;
mod stream;
pub(crate) mod tail;
pub(crate) mod writer;

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod recover_tests;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

use trommel_base::Corruption;
use trommel_vfs::{Access, ReadFile, Vfs};

use crate::error::Error;

pub use ends::LogEnd;
pub(crate) use ends::LogEnds;
pub(crate) use framing::{FileHeader, FileKind};
pub(crate) use recover::{DropReason, Dropped};
pub(crate) use writer::LogWriter;

/// Upper bound for the length of a log or a manifest: a log ends with the first batch that fills
/// its memtable, which has at most 4 GiB, and a batch has little more than 1 GiB.
const LONGEST_BYTES: u64 = 8 << 30;

/// Reads a whole log or manifest. Fails, rather than aborts, if memory is short.
///
/// # Errors
/// [`Error::Corruption`] if it is longer than any log or manifest can be; [`Error::Io`] if it
/// cannot be read, or does not fit into memory.
pub(crate) fn read_whole(vfs: &dyn Vfs, path: &Path) -> Result<Vec<u8>, Error> {
    let file = vfs.open(path, Access::Buffered).map_err(Error::on(path))?;
    read_all(&*file, path)
}

/// Like [`read_whole`], for an open file.
pub(crate) fn read_all(file: &dyn ReadFile, path: &Path) -> Result<Vec<u8>, Error> {
    if file.bytes() > LONGEST_BYTES {
        let what = "it is longer than any log or manifest that was ever written";
        return Err(Corruption::new(path, LONGEST_BYTES, what).into());
    }
    let length = usize::try_from(file.bytes()).map_err(|_| too_large(path))?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| too_large(path))?;
    bytes.resize(length, 0);
    file.read_at(0, &mut bytes).map_err(Error::on(path))?;
    Ok(bytes)
}

fn too_large(path: &Path) -> Error {
    let text = format!("{} does not fit into memory", path.display());
    Error::on(path)(io::Error::new(io::ErrorKind::OutOfMemory, text))
}

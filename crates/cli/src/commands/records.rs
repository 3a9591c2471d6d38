//! Files of records, for several commands.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use trommel_harness::Error;
use trommel_harness::record::{ReadError, Record, read_lines, write_line};

use crate::failure::Failure;

/// The records of a bench in `file`, or on standard input for `-`.
pub(crate) fn read(file: &Path) -> Result<Vec<Record>, Failure> {
    read_with(file, read_lines)
}

/// The result of `parse` for the text in `file`, or on standard input for `-`.
pub(crate) fn read_with<T>(
    file: &Path,
    parse: impl FnOnce(&str) -> Result<Vec<T>, ReadError>,
) -> Result<Vec<T>, Failure> {
    let (name, text) = if file == Path::new("-") {
        let mut text = String::new();
        let read = std::io::stdin().lock().read_to_string(&mut text);
        ("standard input".to_owned(), read.map(|_| text))
    } else {
        (file.display().to_string(), std::fs::read_to_string(file))
    };
    let text = text.map_err(|error| Failure::Other(format!("reading {name} failed: {error}")))?;
    parse(&text).map_err(|error| Failure::Other(format!("{name}: {error}")))
}

/// A file to which records are appended, a line each, so that it may hold several runs. It is
/// complete up to the last record whenever a run ends.
pub(crate) struct Appender {
    path: PathBuf,
    file: File,
}

impl Appender {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Io { file: path.into(), doing: "writing", source };
        #[expect(clippy::disallowed_methods, reason = "it is no store's file")]
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let mut file = opened.map_err(failed)?;
        let is_cut = path.is_file()
            && std::fs::read(path).map_err(failed)?.last().is_some_and(|last| *last != b'\n');
        if is_cut {
            file.write_all(b"\n").map_err(failed)?;
        }
        Ok(Self { path: path.into(), file })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn add<T: Serialize>(&mut self, record: &T) -> Result<(), Error> {
        write_line(record, &mut self.file).map_err(|source| Error::Io {
            file: self.path.clone(),
            doing: "writing",
            source,
        })
    }
}

/// Writes a file as a whole.
pub(crate) fn write(file: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(file, bytes).map_err(|source| Error::Io {
        file: file.into(),
        doing: "writing",
        source,
    })
}

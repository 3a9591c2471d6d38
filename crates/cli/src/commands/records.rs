//! Files of records, for several commands.

use std::io::Read as _;
use std::path::Path;

use trommel_harness::record::{ReadError, Record, read_lines};

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

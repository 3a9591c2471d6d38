//! Entries as a stream, out of one store and into another: four forms, each written and read.
//!
//! * `jsonl`: a line that says what follows, an object a line, a line that counts them and has the
//!   XXH3 (64 bits, 16 hexadecimal digits) of all bytes before it.
//! * `text`: key, tab, value, a line each.
//! * `csv`: a header with the columns `key` and `value`, then a record each.
//! * `binary`: a checked dump ([`trommel::dump`]).
//!
//! The first three write keys and values as `--key-format` and `--value-format` say; jsonl says
//! itself which. The first and the last can tell that they were cut off or damaged.

mod reading;
mod writing;

#[cfg(test)]
mod tests;

use clap::ValueEnum;

pub(crate) use reading::{EntryReader, Source};
pub(crate) use writing::EntryWriter;

use crate::text::TextForm;

/// What a jsonl dump calls itself.
const SCHEMA: &str = "trommel.dump.v1";

/// The form of a stream of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamForm {
    /// An object {"key":..,"value":..} a line
    Jsonl,
    /// Key, tab, value, a line each
    Text,
    /// Comma-separated values with the columns key and value
    Csv,
    /// Checked blocks; see docs/format/dump.md
    Binary,
}

/// How keys and values are written in a stream of text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forms {
    pub(crate) key: TextForm,
    pub(crate) value: TextForm,
}

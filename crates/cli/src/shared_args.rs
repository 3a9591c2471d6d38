//! Arguments and value parsers that several commands share.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use trommel::{MAX_VALUE_BYTES, ReadMode};
use trommel_harness::KeySpace;
use trommel_harness::units::{self, ParseUnitError, parse_bytes, parse_count};

use crate::failure::Failure;

/// Which keys and values, in both commands.
#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    /// Bytes of a key
    #[arg(long, value_name = "BYTES", default_value = "16", conflicts_with = "keys_file")]
    #[arg(value_parser = whole::<usize>)]
    pub(crate) key_size: usize,
    /// Bytes of a value
    #[arg(long, value_name = "SIZE", default_value = "100", value_parser = value_size)]
    pub(crate) value_size: usize,
    /// Take the keys from FILE, one per line (distinct, not empty), at most the first --num lines
    #[arg(long, value_name = "FILE")]
    pub(crate) keys_file: Option<PathBuf>,
    /// Seed of all random draws; 0: taken from the clock
    #[arg(long, default_value = "42", value_parser = whole::<u64>)]
    pub(crate) seed: u64,
    /// How blocks are read from tables
    #[arg(long, value_name = "MODE", default_value = "cached", value_parser = read_mode())]
    pub(crate) read_mode: ReadMode,
}

impl DataArgs {
    /// The seed, never 0. If it is taken from the clock, each call returns another one.
    pub(crate) fn seed(&self) -> u64 {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.seed == 0 { now().as_nanos() as u64 | 1 } else { self.seed }
    }

    /// The keys of a command; `num` of them, or `default` unless a file determines them.
    pub(crate) fn keys(&self, num: Option<u64>, default: u64) -> Result<KeySpace, Failure> {
        Ok(match &self.keys_file {
            Some(file) => KeySpace::read_lines(file, num)?,
            None => KeySpace::integers(num.unwrap_or(default), self.key_size)?,
        })
    }
}

/// A value of an option of the store that is one of `words`, each with its help, in the text that
/// the store itself has for it.
pub(crate) fn one_of<T>(
    words: impl IntoIterator<Item = impl Into<PossibleValue>>,
) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|text| text.parse::<T>())
}

fn read_mode() -> impl TypedValueParser<Value = ReadMode> {
    let words = [
        ("cached", "pread and the block cache"),
        ("mapped", "read-only maps of the files, blocks verified at each use"),
        (
            "mapped-once",
            "read-only maps of the files, blocks verified at their first use by lookups",
        ),
        ("mapped-trusted", "the same, but verified only once for lookups and scans together"),
        ("direct", "O_DIRECT and the block cache"),
    ];
    one_of(words.map(|(word, help)| PossibleValue::new(word).help(help)))
}

/// A size in memory.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text).map_err(|error: ParseUnitError| error.to_string())?;
    usize::try_from(bytes).map_err(|_| format!("{bytes} bytes are more than memory can hold"))
}

/// The size of a value, up to the store's maximum.
fn value_size(text: &str) -> Result<usize, String> {
    let bytes = size(text)?;
    if bytes > MAX_VALUE_BYTES {
        return Err(format!("a value has at most {}", units::bytes(MAX_VALUE_BYTES as u64)));
    }
    Ok(bytes)
}

/// An integer in the syntax of a count: 10, 10.0, 1K.
pub(crate) fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = parse_count(text).map_err(|error| error.to_string())?;
    T::try_from(number).map_err(|_| format!("{number} is too large"))
}

/// An integer within a range.
pub(crate) fn whole_in<T>(
    range: impl RangeBounds<T> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync
where
    T: TryFrom<u64> + PartialOrd + Display,
{
    move |text| {
        let number = whole(text)?;
        if range.contains(&number) {
            return Ok(number);
        }
        let end = |bound: Bound<&T>| match bound {
            Bound::Included(number) | Bound::Excluded(number) => Some(number.to_string()),
            Bound::Unbounded => None,
        };
        Err(match (end(range.start_bound()), end(range.end_bound())) {
            (Some(least), Some(most)) => format!("it must be a number from {least} to {most}"),
            (least, _) => format!("it must be {} or more", least.unwrap_or_default()),
        })
    }
}

/// An integer that may be negative.
pub(crate) fn signed(text: &str) -> Result<i64, String> {
    match text.strip_prefix('-') {
        Some(digits) => whole::<i64>(digits).map(|number| -number),
        None => whole(text),
    }
}

/// A number from 1 to 65,536.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    whole_in(1..=65_536_usize)(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that are too large used to be generated before the store rejected them, and ended in
    /// a panic.
    #[test]
    fn values_are_as_large_as_the_store_takes_them() {
        assert_eq!([value_size("0"), value_size("1G")], [Ok(0), Ok(MAX_VALUE_BYTES)]);
        for text in ["1073741825", "2G", "16777215T"] {
            assert_eq!(value_size(text), Err("a value has at most 1 GiB".into()), "{text}");
        }
    }
}

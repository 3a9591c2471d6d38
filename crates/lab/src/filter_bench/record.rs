//! Records of measurements in files: one JSON object per line.
//!
//! The format is specified in `docs/format/filter-bench-record.md`; a test keeps it and these types
//! in step. A reader ignores unknown fields and rejects a schema newer than [`SCHEMA`].

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use trommel_harness::machine::{self, Cache, Environment};
use trommel_harness::record::{ReadError, read_each};
use trommel_harness::units;

use super::FilterCell;

/// Version of [`CellRecord`] as JSON.
pub const SCHEMA: u32 = 3;

/// The place and time of a measurement, shared by all cells of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Place {
    /// Start of the run: UTC, as `2026-11-21T09:30:00Z`.
    pub start: String,
    /// The machine and the build.
    pub environment: Environment,
    /// The data caches of the machine's first core, smallest first.
    pub caches: Vec<Cache>,
}

impl Place {
    /// This machine, now.
    pub fn new() -> Self {
        Self {
            start: units::utc(SystemTime::now()),
            environment: Environment::of(None),
            caches: machine::data_caches(),
        }
    }
}

/// A cell with its place.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CellRecord {
    /// [`SCHEMA`], or the schema of the file that the record was read from.
    pub schema: u32,
    /// The place and time.
    #[serde(flatten)]
    pub place: Place,
    /// The measurements.
    #[serde(flatten)]
    pub cell: FilterCell,
}

impl CellRecord {
    /// `cell`, measured at `place`.
    pub fn new(place: &Place, cell: FilterCell) -> Self {
        Self { schema: SCHEMA, place: place.clone(), cell }
    }
}

/// Parses a file of records. Empty lines and unknown fields are ignored.
///
/// # Errors
/// The first line that is not a record of this schema; a file without any record.
pub fn read_lines(text: &str) -> Result<Vec<CellRecord>, ReadError> {
    read_each(text, "a filter-bench", SCHEMA)
}

#[cfg(test)]
mod tests {
    use trommel_harness::record::write_line;

    use super::*;
    use crate::filter_bench::testing;
    use crate::format_tests::check;

    const PAGE: &str = include_str!("../../../../docs/format/filter-bench-record.md");

    #[test]
    fn records_survive_a_file() {
        let records = [testing::record("paired", 10.0, 1000), testing::record("ribbon", 8.0, 10)];
        let mut bytes = Vec::new();
        records.iter().for_each(|record| write_line(record, &mut bytes).unwrap());
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(read_lines(&text).unwrap(), records);
        let newer = text.replacen("\"schema\":3", "\"schema\":4", 1);
        let error = read_lines(&newer).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("schema 4"), "{error}");
        let error = read_lines("{\"schema\":1}").unwrap_err().to_string();
        assert!(error.contains("not a record of a filter-bench"), "{error}");
    }

    #[test]
    fn the_page_names_every_field() {
        check(PAGE, SCHEMA, &[testing::record("paired", 10.0, 1000)]);
    }
}

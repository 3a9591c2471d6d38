//! The files for the records of a bench.
//!
//! Each file is rewritten as a whole after each workload: so it is complete up to there whenever
//! the bench ends, and small enough that this costs nothing. Lines of JSON are appended to the
//! previous contents of their file, so that one file may hold many runs; two benches at once need
//! two files.

use std::path::{Path, PathBuf};

use trommel_harness::Error;
use trommel_harness::record::{Record, write_csv, write_csv_header, write_line};
use trommel_lab::report::{Source, page};

use super::args::BenchReportArgs;

/// The title of the page.
const TITLE: &str = "Trommel bench";

/// The files, and the records so far.
pub(crate) struct RecordFiles {
    json: Option<PathBuf>,
    /// The previous contents of the JSON file.
    earlier: Vec<u8>,
    csv: Option<PathBuf>,
    page: Option<PathBuf>,
    records: Vec<Record>,
}

impl RecordFiles {
    /// The requested files, without records.
    ///
    /// # Errors
    /// If one cannot be written.
    pub(crate) fn new(args: &BenchReportArgs) -> Result<Self, Error> {
        let files = Self {
            json: args.json.clone(),
            earlier: args.json.as_deref().map_or(Ok(Vec::new()), earlier)?,
            csv: args.csv.clone(),
            page: args.report.clone(),
            records: Vec::new(),
        };
        files.write_all()?;
        Ok(files)
    }

    /// Whether any file was requested.
    pub(crate) fn are_wanted(&self) -> bool {
        self.json.is_some() || self.csv.is_some() || self.page.is_some()
    }

    /// Adds a record to all files.
    ///
    /// # Errors
    /// If one cannot be written.
    pub(crate) fn add(&mut self, record: Record) -> Result<(), Error> {
        self.records.push(record);
        self.write_all()
    }

    fn write_all(&self) -> Result<(), Error> {
        if let Some(file) = &self.json {
            let mut bytes = self.earlier.clone();
            for record in &self.records {
                write_line(record, &mut bytes)?;
            }
            write(file, &bytes)?;
        }
        if let Some(file) = &self.csv {
            let mut bytes = Vec::new();
            write_csv_header(&mut bytes)?;
            for record in &self.records {
                write_csv(record, &mut bytes)?;
            }
            write(file, &bytes)?;
        }
        if let Some(file) = &self.page {
            let source = Source { name: "bench".into(), records: self.records.clone() };
            write(file, page(TITLE, &[source]).as_bytes())?;
        }
        Ok(())
    }
}

/// The contents of a file of records, in whole lines: nothing if it does not exist, or is a pipe or
/// a device.
pub(crate) fn earlier(file: &Path) -> Result<Vec<u8>, Error> {
    if !file.is_file() {
        return Ok(Vec::new());
    }
    let mut bytes = std::fs::read(file).map_err(|source| Error::Io {
        file: file.into(),
        doing: "reading",
        source,
    })?;
    if bytes.last().is_some_and(|last| *last != b'\n') {
        bytes.push(b'\n');
    }
    Ok(bytes)
}

pub(crate) fn write(file: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(file, bytes).map_err(|source| Error::Io {
        file: file.into(),
        doing: "writing",
        source,
    })
}

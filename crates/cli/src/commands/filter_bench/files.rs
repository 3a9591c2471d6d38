//! The files for measurements.
//!
//! Each is rewritten as a whole after each measurement: so it is complete up to there whenever the
//! run ends. Lines of JSON are appended to the previous contents of their file.

use std::path::Path;

use trommel_harness::Error;
use trommel_harness::record::write_line;
use trommel_lab::filter_bench::FilterCell;
use trommel_lab::filter_bench::record::{CellRecord, Place};
use trommel_lab::report::filters;

use super::args::FileArgs;
use crate::commands::bench::journal::{earlier, write};

/// The title of the page.
const TITLE: &str = "Trommel filter-bench";

/// The files, and the measurements so far.
pub(super) struct CellFiles<'a> {
    args: &'a FileArgs,
    /// The previous contents of the JSON file.
    earlier: Vec<u8>,
    place: Place,
    records: Vec<CellRecord>,
}

impl<'a> CellFiles<'a> {
    /// The requested files, with initial records.
    ///
    /// # Errors
    /// If one cannot be written.
    pub(super) fn new(args: &'a FileArgs, records: Vec<CellRecord>) -> Result<Self, Error> {
        if let Some(dir) = &args.plot {
            std::fs::create_dir_all(dir).map_err(|source| Error::Io {
                file: dir.clone(),
                doing: "making the directory",
                source,
            })?;
        }
        let earlier = args.json.as_deref().map_or(Ok(Vec::new()), earlier)?;
        let files = Self { args, earlier, place: Place::new(), records };
        files.write_all()?;
        Ok(files)
    }

    /// Adds a measurement to all files.
    ///
    /// # Errors
    /// If one cannot be written.
    pub(super) fn add(&mut self, cell: FilterCell) -> Result<(), Error> {
        self.records.push(CellRecord::new(&self.place, cell));
        self.write_all()
    }

    fn write_all(&self) -> Result<(), Error> {
        if let Some(file) = &self.args.json {
            let mut bytes = self.earlier.clone();
            for record in &self.records {
                write_line(record, &mut bytes)?;
            }
            write(file, &bytes)?;
        }
        if let Some(file) = &self.args.report {
            write(file, filters::page(TITLE, &self.records).as_bytes())?;
        }
        if let Some(dir) = &self.args.plot {
            for (name, svg) in filters::plots(&self.records) {
                write(&Path::new(dir).join(format!("{name}.svg")), svg.as_bytes())?;
            }
        }
        Ok(())
    }
}

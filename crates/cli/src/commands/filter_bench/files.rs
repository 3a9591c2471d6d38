//! The files that measurements go to.
//!
//! Each is written anew, whole, after each measurement: so it is complete up to there whenever the
//! run ends. Lines of JSON come after what their file held before.

use std::path::Path;

use trommel_harness::Error;
use trommel_harness::filter_bench::Cell;
use trommel_harness::filter_bench::record::{Place, Record, write_line};
use trommel_harness::report::filters;

use super::args::FileArgs;
use crate::commands::bench::journal::{earlier, write};

/// What the page is called.
const TITLE: &str = "Trommel filter-bench";

/// Where measurements go, and those so far.
pub(super) struct Files<'a> {
    args: &'a FileArgs,
    /// What the file of JSON held before.
    earlier: Vec<u8>,
    place: Place,
    records: Vec<Record>,
}

impl<'a> Files<'a> {
    /// The files asked for, with these records to begin with.
    ///
    /// # Errors
    /// If one cannot be written.
    pub(super) fn new(args: &'a FileArgs, records: Vec<Record>) -> Result<Self, Error> {
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
    pub(super) fn add(&mut self, cell: Cell) -> Result<(), Error> {
        self.records.push(Record::new(&self.place, cell));
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

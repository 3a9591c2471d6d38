//! The record of an open store's options in its options file. The engine writes it when the store
//! is opened for writing, and when [`Db::set_options`](crate::Db::set_options) changes an option
//! that shapes the store.

use std::path::Path;

use trommel_vfs::{DirEntry, Vfs};

use crate::damage::{Damage, Remedy};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::options_file::{Lines, damage, install, read};

/// The contents of an open store's options file.
#[derive(Debug, Default)]
pub(crate) struct OptionsRecord {
    /// The options that it names, or last named.
    lines: Lines,
    /// Whether the file has exactly these lines.
    is_written: bool,
    /// Whether the file is left unchanged: a newer version wrote it, it cannot be read, or
    /// something that is not a file has its name.
    keeps: bool,
    /// Why the file does not match the store's options.
    fault: Option<Error>,
}

impl OptionsRecord {
    /// Reads the file when a store is opened; `wrong` is set to its damage, if there is any.
    pub(crate) fn read(
        vfs: &dyn Vfs,
        dir: &Path,
        listing: &[DirEntry],
        wrong: &mut Option<Damage>,
    ) -> Self {
        match read(vfs, dir, listing) {
            Ok(Some(lines)) => Self { lines, is_written: true, ..Self::default() },
            Ok(None) => Self::default(),
            Err(error) => {
                let damage = damage(&error, dir);
                let keeps = damage.remedy != Remedy::Reopen;
                *wrong = Some(damage);
                Self { keeps, fault: Some(error), ..Self::default() }
            }
        }
    }

    /// Writes `options`, unless the file has them already or must be left unchanged.
    pub(crate) fn write(&mut self, vfs: &dyn Vfs, dir: &Path, options: &Options) -> Result<()> {
        if self.keeps {
            return Ok(());
        }
        let lines = Lines::of(options, &self.lines);
        if self.is_written && self.lines == lines {
            return Ok(());
        }
        let written = install(vfs, dir, &lines.text());
        // If that failed, the file has the old text or the new one, and is written again next time.
        self.is_written = written.is_ok();
        self.fault = written.as_ref().err().cloned();
        self.lines = lines;
        written
    }

    /// The text of a file with `options` that retains the other lines of this one.
    pub(crate) fn text_of(&self, options: &Options) -> String {
        Lines::of(options, &self.lines).text()
    }

    /// Why the file does not match the store's options, if it does not.
    pub(crate) fn fault(&self) -> Option<Error> {
        self.fault.clone()
    }
}

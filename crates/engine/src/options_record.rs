//! What an open store knows of its options file. The engine has it written when the store is opened
//! for writing, and when [`Db::set_options`](crate::Db::set_options) changes an option that shapes
//! it.

use std::path::Path;

use trommel_vfs::{DirEntry, Vfs};

use crate::damage::{Damage, Remedy};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::options_file::{Lines, damage, install, read};

/// What the options file of an open store says.
#[derive(Debug, Default)]
pub(crate) struct OptionsRecord {
    /// The options that it names, or last named.
    lines: Lines,
    /// Whether it says just that.
    is_written: bool,
    /// Whether it is left as it is: a newer version wrote it, it cannot be read, or something else
    /// stands there.
    keeps: bool,
    /// Why it does not say what the store's options are.
    fault: Option<Error>,
}

impl OptionsRecord {
    /// Reads it as a store is opened; `wrong` gets what is wrong with it.
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

    /// Writes `options`, unless the file says so already, or is to be left as it is.
    pub(crate) fn write(&mut self, vfs: &dyn Vfs, dir: &Path, options: &Options) -> Result<()> {
        if self.keeps {
            return Ok(());
        }
        let lines = Lines::of(options, &self.lines);
        if self.is_written && self.lines == lines {
            return Ok(());
        }
        let written = install(vfs, dir, &lines.text());
        // Where that failed it has the old text or the new one, and is written again next time.
        self.is_written = written.is_ok();
        self.fault = written.as_ref().err().cloned();
        self.lines = lines;
        written
    }

    /// The text of a file of `options` that keeps what else this one holds.
    pub(crate) fn text_of(&self, options: &Options) -> String {
        Lines::of(options, &self.lines).text()
    }

    /// Why the file does not say what the store's options are, if it does not.
    pub(crate) fn fault(&self) -> Option<Error> {
        self.fault.clone()
    }
}

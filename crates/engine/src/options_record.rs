//! What an open store knows of its options file, and when it writes it: when the store is opened for writing, and
//! when [`Db::set_options`](crate::Db::set_options) changes an option that shapes it.

use std::path::Path;

use trommel_vfs::{DirEntry, Vfs};

use crate::damage::{Damage, Remedy};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::names::OPTIONS_TMP;
use crate::options::Options;
use crate::options_file::{Lines, damage, install, read};
use crate::sync::lock;

/// What the options file of an open store says.
#[derive(Debug, Default)]
pub(crate) struct OptionsRecord {
    /// The options that it names, or last named.
    lines: Lines,
    /// Whether it says just that.
    is_written: bool,
    /// Whether it is left as it is: a newer version wrote it, it cannot be read, or something else stands there.
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
    fn write(&mut self, vfs: &dyn Vfs, dir: &Path, options: &Options) -> Result<()> {
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
}

impl Engine {
    /// Records the options that the store was opened with, and removes what a crash left of that. A failure costs
    /// no more than the record, so it is noted, and opening goes on.
    pub(crate) fn record_first_options(&self, listing: &[DirEntry]) {
        if listing.iter().any(|entry| entry.name == OPTIONS_TMP && entry.is_file) {
            let _ = self.vfs.remove(&self.dir.join(OPTIONS_TMP));
        }
        if let Err(error) = self.record_options(&self.options.load_full()) {
            crate::events::options_not_recorded(&error);
        }
    }

    /// Records these options, if the store is open for writing.
    pub(crate) fn record_options(&self, options: &Options) -> Result<()> {
        let mut record = lock(&self.options_record);
        if self.check_writable().is_err() {
            return Ok(());
        }
        record.write(&*self.vfs, &self.dir, options)
    }

    /// Writes the options in force to another directory, which has no options file.
    pub(crate) fn copy_options(&self, dir: &Path) -> Result<()> {
        let lines = Lines::of(&self.options.load(), &lock(&self.options_record).lines);
        install(&*self.vfs, dir, &lines.text())
    }

    /// Why the options file does not say what the store's options are, if it does not.
    pub(crate) fn options_fault(&self) -> Option<Error> {
        lock(&self.options_record).fault.clone()
    }
}

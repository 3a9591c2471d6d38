//! `OPTIONS`: the options that shape a store, as they were when it was last open for writing.
//!
//! ```text
//! trommel options 1
//! filters = L0=paired:16,L1-=paired:12
//! compression = lz4
//! crc32 c6b0d538
//! ```
//!
//! A store does not need it: [`Db::open`](crate::Db::open) uses the given options, and records them
//! here. [`Options::load_latest`](crate::Options::load_latest) reads them, so that a program that
//! did not create the store can open it without reshaping it. The format: `docs/format/options.md`.
//!
//! 1. The text is written to `OPTIONS.tmp` and synced, renamed over `OPTIONS`, and the directory is
//!    synced: a crash leaves the old text or the new one. A new store gets its `CURRENT` first.
//! 2. No line is used before the checksum in the last line is verified.
//! 3. A line with the former name of an option counts as one with its present name.
//! 4. A line with an option that this version does not know is retained when the file is written
//!    again.
//!
//! Invariant: a file that is missing, corrupt or of a newer version never prevents an open.

mod shaping;

use std::io;
use std::path::Path;

use trommel_base::{Checksum, Corruption};
use trommel_vfs::{DirEntry, Vfs};

pub use self::shaping::{IgnoredOption, LatestOptions};
use crate::damage::{Damage, NO_FILE, Remedy};
use crate::error::{Error, Result};
use crate::names::{OPTIONS, OPTIONS_TMP};
use crate::options::Options;

/// The start of the first line; the version follows.
pub(crate) const HEADER: &str = "trommel options ";
/// The version that is written, and the newest that is read.
pub(crate) const VERSION: u64 = 1;
/// The start of the last line; the checksum of all bytes before that line follows, in 8 hexadecimal
/// digits.
pub(crate) const CHECKSUM: &str = "crc32 ";
/// The separator between an option's name and its value.
pub(crate) const EQUALS: &str = " = ";
/// Maximum size of the file, in bytes.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// The options that a file names, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Lines(pub(crate) Vec<(String, String)>);

impl Lines {
    /// The lines that record `options`, with those of `before` that this version does not know.
    pub(crate) fn of(options: &Options, before: &Self) -> Self {
        let mut lines: Vec<(String, String)> = shaping::settings(options)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), printable(&value)))
            .collect();
        let is_unknown = |(name, _): &&(String, String)| !shaping::is_known(name);
        lines.extend(before.0.iter().filter(is_unknown).cloned());
        Self(lines)
    }

    /// The text of the file.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{HEADER}{VERSION}\n");
        for (name, value) in &self.0 {
            text.push_str(&format!("{name}{EQUALS}{value}\n"));
        }
        let checksum = checksum(text.as_bytes());
        format!("{text}{CHECKSUM}{checksum:08x}\n")
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    Checksum::bound_to(&[]).with(bytes).value()
}

/// A value on one line. Only names chosen by users may have control characters, and those are never
/// read back.
fn printable(value: &str) -> String {
    let escaped = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    value.chars().map(escaped).collect()
}

/// A defect in the bytes of a file.
#[derive(Debug, PartialEq, Eq)]
enum Flaw {
    /// No version writes them.
    Corrupt(&'static str),
    /// A newer version wrote them.
    Newer(String),
}

/// Reads the bytes of a file.
fn parse(bytes: &[u8]) -> Result<Lines, Flaw> {
    const CUT: Flaw = Flaw::Corrupt("it does not end with the checksum of its lines");
    const NO_LINE: Flaw = Flaw::Corrupt("its checksum is right and its lines are no options");
    let text = std::str::from_utf8(bytes).map_err(|_| CUT)?;
    let body_end = text.strip_suffix('\n').and_then(|text| text.rfind('\n')).ok_or(CUT)? + 1;
    let (body, last) = text.split_at(body_end);
    if last != format!("{CHECKSUM}{:08x}\n", checksum(body.as_bytes())) {
        return Err(CUT);
    }
    let (first, rest) = body.split_once('\n').ok_or(NO_LINE)?;
    let version = first.strip_prefix(HEADER).ok_or(NO_LINE)?;
    if version != VERSION.to_string() {
        return Err(Flaw::Newer(format!(
            "its version is {version}, and this program reads version {VERSION}"
        )));
    }
    let mut lines: Vec<(String, String)> = Vec::new();
    for line in rest.lines() {
        let (name, value) = line.split_once(EQUALS).ok_or(NO_LINE)?;
        if lines.iter().any(|(other, _)| other == name) {
            return Err(NO_LINE);
        }
        lines.push((name.to_owned(), value.to_owned()));
    }
    Ok(Lines(shaping::with_names_of_today(lines)))
}

/// The options recorded in `dir`, whose entries are `listing`; `None` if there is no file.
///
/// # Errors
/// [`Error::Corruption`], [`Error::Unsupported`] if a newer version wrote it, or [`Error::Io`].
pub(crate) fn read(vfs: &dyn Vfs, dir: &Path, listing: &[DirEntry]) -> Result<Option<Lines>> {
    let Some(entry) = listing.iter().find(|entry| entry.name == OPTIONS) else { return Ok(None) };
    let path = dir.join(OPTIONS);
    let corrupt = |what: &'static str| Err(Corruption::new(&path, 0, what).into());
    if !entry.is_file {
        return corrupt(NO_FILE);
    }
    let bytes = match vfs.read(&path, MAX_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return corrupt("it is longer than any options file");
        }
        bytes => bytes.map_err(Error::on(&path))?,
    };
    match parse(&bytes) {
        Ok(lines) => Ok(Some(lines)),
        Err(Flaw::Corrupt(what)) => corrupt(what),
        Err(Flaw::Newer(what)) => Err(Error::Unsupported { file: path, what }),
    }
}

/// The damage of the options file in `dir` that `error` reports.
pub(crate) fn damage(error: &Error, dir: &Path) -> Damage {
    let path = dir.join(OPTIONS);
    let is_in_the_way = matches!(error, Error::Corruption(c) if c.what == NO_FILE);
    Damage::of(error, &path, if is_in_the_way { Remedy::Remove } else { Remedy::Reopen })
}

/// Makes `text` the options file of `dir`, durably.
pub(crate) fn install(vfs: &dyn Vfs, dir: &Path, text: &str) -> Result<()> {
    let (path, temporary) = (dir.join(OPTIONS), dir.join(OPTIONS_TMP));
    if text.len() as u64 > MAX_BYTES {
        return Err(Error::option(format!(
            "the options take {} bytes, and {OPTIONS} holds at most {MAX_BYTES}",
            text.len()
        )));
    }
    match vfs.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::on(&temporary)(error));
        }
        _ => {}
    }
    let mut file = vfs.create(&temporary).map_err(Error::on(&temporary))?;
    file.append(text.as_bytes()).map_err(Error::on(&temporary))?;
    file.sync().map_err(Error::on(&temporary))?;
    drop(file);
    vfs.rename(&temporary, &path).map_err(Error::on(&path))?;
    vfs.sync_dir(dir).map_err(Error::on(dir))
}

#[cfg(test)]
mod tests;

//! The options that shape a store, and how they are read back from its options file.

use std::path::Path;

use super::read;
use crate::error::{Error, Result};
use crate::options::Options;

/// The options that determine new files and the shape of the tree, by the names of their setters,
/// in the order of the file. Options that depend on the machine or the program (cache, memory,
/// threads, read mode, durability) are not among them.
const SHAPING: [&str; 23] = [
    "filters",
    "filter_shape",
    "filter_partition_bytes",
    "user_filters",
    "filters_on_last_level",
    "prefix_extractor",
    "prefix_filters",
    "whole_key_filters",
    "write_buffer_bytes",
    "memtable",
    "ttl",
    "log_archive_bytes",
    "block_bytes",
    "block_align",
    "compression",
    "table_bytes",
    "base_level_bytes",
    "level_ratio",
    "l0_trigger",
    "l0_slowdown",
    "l0_stop",
    "debt_stop_bytes",
    "compaction_filter",
];

/// Options that were renamed: the former name, and the current one.
const RENAMED: [(&str, &str); 1] = [("filter_piece_bytes", "filter_partition_bytes")];

/// The lines under the current names. A file with both names of an option was last written by a
/// program that knows only the former one, so that value is the newer one.
pub(super) fn with_names_of_today(mut lines: Vec<(String, String)>) -> Vec<(String, String)> {
    for (former, today) in RENAMED {
        if lines.iter().any(|(name, _)| name == former) {
            lines.retain(|(name, _)| name != today);
        }
        for (name, _) in lines.iter_mut().filter(|(name, _)| name == former) {
            *name = today.to_owned();
        }
    }
    lines
}

/// Sets an option from its text in the file; the error is the reason why it cannot be used.
fn take(options: &mut Options, name: &str, text: &str) -> std::result::Result<(), String> {
    // The extractor comes earlier in the file: without one, tables would get no filters.
    if (name, text) == ("whole_key_filters", "false")
        && options.filtering.prefix_extractor.is_none()
    {
        return Err("there is no prefix_extractor here whose filters could stand in".to_owned());
    }
    options.parse_any(name, text).unwrap_or_else(|| Err(UNKNOWN.to_owned()))
}

const UNKNOWN: &str = "an option that this program does not know";

/// Whether an option of this name is among those that shape a store.
pub(super) fn is_known(name: &str) -> bool {
    SHAPING.contains(&name)
}

/// The options that shape a store, with their values as text.
pub(super) fn settings(options: &Options) -> Vec<(&'static str, String)> {
    let all = options.settings();
    let value = |name| all.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone());
    SHAPING.into_iter().filter_map(|name| Some((name, value(name)?))).collect()
}

/// An option of a store's options file that [`Options::load_latest`] did not take.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IgnoredOption {
    /// Its name.
    pub name: String,
    /// Its value in the file.
    pub value: String,
    /// Why it was not taken, in words.
    pub why: String,
}

/// The options that a store was last written with: see [`Options::load_latest`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LatestOptions {
    /// The given options, with each remembered one in place of the given value.
    pub options: Options,
    /// The names of the remembered options, as in [`Options::settings`]. Empty if there is no
    /// options file: an older version wrote the store, or there is no store.
    pub remembered: Vec<&'static str>,
    /// Other entries of the file: options of a newer version, closures, and user policies.
    pub ignored: Vec<IgnoredOption>,
}

impl Options {
    /// Replaces the options that shape a store by those with which the store in `dir` was last open
    /// for writing, as recorded in the file `OPTIONS` of its directory: all that determine new
    /// files and the shape of the tree. For programs that did not create the store and should not
    /// reshape it, like RocksDB's `LoadLatestOptions`. Options that depend on the machine or the
    /// program (cache, memory limit, threads, read mode, durability) keep their values. A prefix
    /// extractor that is a closure, and a user's filter policy, are recorded by name only, and are
    /// listed in [`LatestOptions::ignored`].
    ///
    /// Takes no lock, and does not open the store. If there is no store, or no such file, the
    /// options are returned unchanged.
    ///
    /// ```
    /// use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// Db::open(dir.path(), Options::default().compaction(|c| c.table_bytes(8 << 20)))?.close()?;
    /// let latest = Options::default().load_latest(dir.path())?;
    /// assert!(latest.remembered.contains(&"table_bytes"));
    /// let db = Db::open(dir.path(), latest.options)?;
    /// assert!(db.options().settings().contains(&("table_bytes", "8388608".to_owned())));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corruption`] if the file is corrupt, [`Error::Unsupported`] if a newer version
    /// wrote it, [`Error::Io`]. [`Db::open`](crate::Db::open) opens the store nevertheless.
    pub fn load_latest(self, dir: impl AsRef<Path>) -> Result<LatestOptions> {
        let dir = dir.as_ref();
        let listing = match self.vfs.list(dir) {
            Err(error) if is_nothing_there(error.kind()) => Vec::new(),
            listing => listing.map_err(|source| Error::io(dir, "listing", source))?,
        };
        let lines = read(&*self.vfs, dir, &listing)?.unwrap_or_default();
        let mut latest =
            LatestOptions { options: self, remembered: Vec::new(), ignored: Vec::new() };
        for name in SHAPING {
            let Some((_, value)) = lines.0.iter().find(|(known, _)| known == name) else {
                continue;
            };
            match take(&mut latest.options, name, value) {
                Ok(()) => latest.remembered.push(name),
                Err(why) => latest.ignore(name, value, &why),
            }
        }
        for (name, value) in lines.0.iter().filter(|(name, _)| !is_known(name)) {
            latest.ignore(name, value, UNKNOWN);
        }
        Ok(latest)
    }

    /// The options that shape a store and whose values differ from those in `other`: the name, the
    /// value here, the value there. A store remembers these: see [`Options::load_latest`].
    pub fn differences(&self, other: &Self) -> Vec<(&'static str, String, String)> {
        let (here, there) = (settings(self), settings(other));
        let pairs = here.into_iter().zip(there);
        pairs.filter(|(a, b)| a.1 != b.1).map(|((name, a), (_, b))| (name, a, b)).collect()
    }
}

fn is_nothing_there(kind: std::io::ErrorKind) -> bool {
    matches!(kind, std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

impl LatestOptions {
    fn ignore(&mut self, name: &str, value: &str, why: &str) {
        let ignored =
            IgnoredOption { name: name.to_owned(), value: value.to_owned(), why: why.to_owned() };
        self.ignored.push(ignored);
    }
}

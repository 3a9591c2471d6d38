//! Which options shape a store, and how each is had back from its text.

use std::path::Path;
use std::str::FromStr;

use trommel_sstable::Compression;

use super::read;
use crate::error::{Error, Result};
use crate::filter_policy::FilterPolicy;
use crate::options::Options;
use crate::prefix::Prefix;

/// Takes the value of one option from its text; the failure says why it cannot be had.
type Take = fn(Options, &str) -> std::result::Result<Options, String>;

/// The options that decide what new files look like and how the tree is kept, by the names of their
/// setters, in the order of the file. What depends on the machine or the program (cache, memory,
/// threads, how files are read, durability) is not among them.
const SHAPING: [(&str, Take); 19] = [
    ("filters", |options, text| Ok(options.filters(parsed(text)?))),
    ("filter_shape", |options, text| Ok(options.filter_shape(parsed(text)?))),
    ("filter_piece_bytes", |options, text| Ok(options.filter_piece_bytes(parsed(text)?))),
    ("user_filters", user_filters),
    ("filters_on_last_level", |options, text| Ok(options.filters_on_last_level(parsed(text)?))),
    ("prefix_extractor", prefix_extractor),
    ("prefix_filters", prefix_filters),
    ("whole_key_filters", whole_key_filters),
    ("write_buffer_bytes", |options, text| Ok(options.write_buffer_bytes(parsed(text)?))),
    ("block_bytes", |options, text| Ok(options.block_bytes(parsed(text)?))),
    ("block_align", |options, text| Ok(options.block_align(parsed(text)?))),
    ("compression", |options, text| Ok(options.compression(compression(text)?))),
    ("table_bytes", |options, text| Ok(options.table_bytes(parsed(text)?))),
    ("base_level_bytes", |options, text| Ok(options.base_level_bytes(parsed(text)?))),
    ("level_ratio", |options, text| Ok(options.level_ratio(parsed(text)?))),
    ("l0_trigger", |options, text| Ok(options.l0_trigger(parsed(text)?))),
    ("l0_slowdown", |options, text| Ok(options.l0_slowdown(parsed(text)?))),
    ("l0_stop", |options, text| Ok(options.l0_stop(parsed(text)?))),
    ("debt_stop_bytes", |options, text| Ok(options.debt_stop_bytes(parsed(text)?))),
];

fn parsed<T: FromStr<Err: ToString>>(text: &str) -> std::result::Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn user_filters(options: Options, text: &str) -> std::result::Result<Options, String> {
    match text {
        "none" => Ok(Options { user_filters: None, ..options }),
        _ => Err("a policy of the program that wrote the store: give it in code".to_owned()),
    }
}

fn prefix_extractor(options: Options, text: &str) -> std::result::Result<Options, String> {
    if text == "none" {
        return Ok(options.prefix_extractor(None));
    }
    match Prefix::stored(text) {
        Some(prefix) => Ok(options.prefix_extractor(prefix)),
        None if text.starts_with("custom:") => {
            Err("a closure of the program that wrote the store: give it in code".to_owned())
        }
        None => Err("a rule that this program does not know".to_owned()),
    }
}

fn prefix_filters(options: Options, text: &str) -> std::result::Result<Options, String> {
    match text {
        "as filters" => Ok(options.prefix_filters(None)),
        _ => Ok(options.prefix_filters(parsed::<FilterPolicy>(text)?)),
    }
}

/// Taken after the extractor: without one tables would be left without filters.
fn whole_key_filters(options: Options, text: &str) -> std::result::Result<Options, String> {
    match parsed(text)? {
        false if options.prefix_extractor.is_none() => {
            Err("there is no prefix_extractor here whose filters could stand in".to_owned())
        }
        whole => Ok(options.whole_key_filters(whole)),
    }
}

fn compression(text: &str) -> std::result::Result<Compression, String> {
    #[cfg(feature = "zstd")]
    if let Some(level) = text.strip_prefix("zstd(").and_then(|rest| rest.strip_suffix(')')) {
        return Ok(Compression::Zstd(parsed(level)?));
    }
    match text {
        "none" => Ok(Compression::None),
        "lz4" => Ok(Compression::Lz4),
        _ => Err("a compression that this program does not know".to_owned()),
    }
}

/// Whether an option of this name is among those that shape a store.
pub(super) fn is_known(name: &str) -> bool {
    SHAPING.iter().any(|(known, _)| *known == name)
}

/// The options that shape a store, with their values as text.
pub(super) fn settings(options: &Options) -> Vec<(&'static str, String)> {
    let all = options.settings();
    let value = |name| all.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone());
    SHAPING.iter().filter_map(|(name, _)| Some((*name, value(*name)?))).collect()
}

/// An option of a store's options file that [`Options::load_latest`] did not take.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IgnoredOption {
    /// Its name.
    pub name: String,
    /// Its value there.
    pub value: String,
    /// Why it was not taken, in words.
    pub why: String,
}

/// The options that a store was last written with: see [`Options::load_latest`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LatestOptions {
    /// Those that were given, with every remembered one in its place.
    pub options: Options,
    /// The names of those that were remembered, as in [`Options::settings`]. Empty where the store
    /// has no options file: it was last written by a version that kept none, or there is no store.
    pub remembered: Vec<&'static str>,
    /// What the file says beyond that: options of a newer version, closures, policies of a program.
    pub ignored: Vec<IgnoredOption>,
}

impl Options {
    /// These options, with those in their place that the store in `dir` was last written with: all
    /// that decide what new files look like and how the tree is kept, from the file `OPTIONS` in
    /// its directory. For programs that did not make the store, and are to leave it as it is; as
    /// RocksDB's `LoadLatestOptions`. What depends on the machine or the program (cache, memory
    /// limit, threads, read mode, durability) stays as it is here. A prefix extractor that is a
    /// closure, and a filter policy of a user's, are known by name only, and are told in
    /// [`LatestOptions::ignored`].
    ///
    /// Takes no lock, and opens nothing: a directory without a store, or without the file,
    /// remembers nothing.
    ///
    /// ```
    /// use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// Db::open(dir.path(), Options::default().table_bytes(8 << 20))?.close()?;
    /// let latest = Options::default().load_latest(dir.path())?;
    /// assert!(latest.remembered.contains(&"table_bytes"));
    /// let db = Db::open(dir.path(), latest.options)?;
    /// assert!(db.options().settings().contains(&("table_bytes", "8388608".to_owned())));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Corruption`] where the file is corrupt, [`Error::Unsupported`] where a newer
    /// version wrote it, [`Error::Io`]. [`Db::open`](crate::Db::open) opens the store all the same.
    pub fn load_latest(self, dir: impl AsRef<Path>) -> Result<LatestOptions> {
        let dir = dir.as_ref();
        let listing = match self.vfs.list(dir) {
            Err(error) if is_nothing_there(error.kind()) => Vec::new(),
            listing => listing.map_err(|source| Error::io(dir, "listing", source))?,
        };
        let lines = read(&*self.vfs, dir, &listing)?.unwrap_or_default();
        let mut latest =
            LatestOptions { options: self, remembered: Vec::new(), ignored: Vec::new() };
        for (name, take) in SHAPING {
            let Some((_, value)) = lines.0.iter().find(|(known, _)| known == name) else {
                continue;
            };
            match take(latest.options.clone(), value) {
                Ok(options) => {
                    latest.options = options;
                    latest.remembered.push(name);
                }
                Err(why) => latest.ignore(name, value, &why),
            }
        }
        for (name, value) in lines.0.iter().filter(|(name, _)| !is_known(name)) {
            latest.ignore(name, value, "an option that this program does not know");
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

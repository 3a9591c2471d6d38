//! The options of one keyspace.

use trommel_sstable::Compression;

use crate::error::{Error, Result};
use crate::filter_policy::FilterPolicy;
use crate::options::Options;
use crate::prefix::Prefix;

/// The options in which a keyspace differs from its store: by default in none. They are recorded in
/// the store, and apply to tables written from then on.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trommel::Db::open(dir.path(), Default::default())?;
/// use trommel::{Compression, KeyspaceOptions, Prefix};
/// let options = KeyspaceOptions::new()
///     .filters("paired:20".parse()?)
///     .prefix_extractor(Prefix::until("/"))
///     .compression(Compression::None);
/// let events = db.keyspace("events", options)?;
/// events.put("2026/11/29", "first snow")?;
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct KeyspaceOptions {
    filters: Option<FilterPolicy>,
    prefix_extractor: Option<Prefix>,
    compression: Option<Compression>,
}

impl KeyspaceOptions {
    /// Those of the store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The filters of each level's tables. Not a budget: that of
    /// [`Options::filters`](crate::Options::filters) is one for all keyspaces without filters of
    /// their own.
    #[must_use]
    pub fn filters(mut self, filters: FilterPolicy) -> Self {
        self.filters = Some(filters);
        self
    }

    /// The rule for the prefixes of keys, for prefix filters; see
    /// [`FilterSettings::prefix_extractor`](crate::settings::FilterSettings::prefix_extractor). A
    /// closure ([`Prefix::custom`]) is not recorded: pass it whenever the store is opened.
    #[must_use]
    pub fn prefix_extractor(mut self, prefix: Prefix) -> Self {
        self.prefix_extractor = Some(prefix);
        self
    }

    /// Compression of data blocks.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// Checks the bounds of the options.
    pub(crate) fn check(&self) -> Result<()> {
        if self.filters.as_ref().is_some_and(|filters| filters.budget().is_some()) {
            return Err(Error::option(
                "a keyspace has no filter budget of its own: set one in Options::filters, which \
                 all keyspaces share, or give the keyspace filters by level, as in \
                 L0=paired:16,L1-=paired:12",
            ));
        }
        self.prefix_extractor.as_ref().map_or(Ok(()), Prefix::check)
    }

    /// The name and the value, as text, of each option that is set.
    ///
    /// ```
    /// use trommel::{KeyspaceOptions, Prefix};
    /// let options = KeyspaceOptions::new().prefix_extractor(Prefix::until("/"));
    /// assert_eq!(options.settings(), [("prefix_extractor", "until:/".to_owned())]);
    /// ```
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let filters = self.filters.as_ref().map(|filters| ("filters", filters.to_string()));
        let prefix = self.prefix_extractor.as_ref();
        let prefix = prefix.map(|prefix| ("prefix_extractor", prefix.to_string()));
        let compression = self.compression.map(|kind| ("compression", kind.to_string()));
        [filters, prefix, compression].into_iter().flatten().collect()
    }

    /// Sets an option by its name and its value as text, as in [`KeyspaceOptions::settings`].
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if this version does not know the name or the value.
    ///
    /// ```
    /// use trommel::{KeyspaceOptions, Prefix};
    /// let options = KeyspaceOptions::new().with_setting("prefix_extractor", "until:/")?;
    /// assert_eq!(options.settings(), [("prefix_extractor", "until:/".to_owned())]);
    /// assert!(options.with_setting("colour", "green").is_err());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn with_setting(mut self, name: &str, value: &str) -> Result<Self> {
        self.set(name, value);
        if self.settings().iter().any(|(set, _)| *set == name) {
            return Ok(self);
        }
        Err(Error::option(format!("{name} = {value} is not an option of a keyspace")))
    }

    /// A line of text for each option that is set and can be recorded.
    pub(super) fn lines(&self) -> String {
        let is_closure = |name: &str| name == "prefix_extractor" && self.closure().is_some();
        let settings = self.settings().into_iter().filter(|(name, _)| !is_closure(name));
        settings.map(|(name, value)| format!("{name} = {value}\n")).collect()
    }

    /// The prefix extractor, if it is a closure.
    fn closure(&self) -> Option<&Prefix> {
        self.prefix_extractor.as_ref().filter(|prefix| Prefix::stored(prefix.name()).is_none())
    }

    /// Sets the option of this name; ignores what this version does not know.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        match name {
            "filters" => self.filters = value.parse().ok(),
            "prefix_extractor" => self.prefix_extractor = Prefix::stored(value),
            "compression" => self.compression = value.parse().ok(),
            _ => {}
        }
    }

    /// A text that is the same for the same options, and empty if none is set.
    pub(super) fn key(&self) -> String {
        let mut key = self.lines();
        // The closures of two extractors with one name may differ.
        if let Some(prefix) = self.closure() {
            key.push_str(&format!("{} {}\n", prefix.name(), prefix.id()));
        }
        key
    }

    /// Whether these are the same options.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.key() == other.key()
    }

    /// The options of the keyspace's tables in a store with the options `base`.
    pub(super) fn over(&self, base: &Options) -> Options {
        let mut options = base.clone();
        if let Some(filters) = &self.filters {
            options.filters = filters.clone();
        }
        if let Some(compression) = self.compression {
            options.compression = compression;
        }
        let prefix = self.prefix_extractor.as_ref().or(base.filtering.prefix_extractor.as_ref());
        options.filtering.prefix_extractor = prefix.map(Prefix::after_header);
        options
    }
}

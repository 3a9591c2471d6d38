//! The options of one keyspace.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trommel_sstable::Compression;

use crate::error::{Error, Result};
use crate::filter_policy::FilterPolicy;
use crate::merge_operator::{MergeOperator, UserMergeOperator, is_operator_name};
use crate::options::{Options, check_ttl};
use crate::prefix::Prefix;

/// The options in which a keyspace differs from its store: by default in none. They are recorded in
/// the store. Options of tables apply to tables written from then on.
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
    merge_operator: Option<RecordedOperator>,
    ttl: Option<Duration>,
}

/// A merge operator; only its name is recorded.
#[derive(Debug, Clone)]
pub(crate) struct RecordedOperator {
    pub(crate) name: Arc<str>,
    /// The operator, if it was given or is a built-in one.
    pub(crate) operator: Option<UserMergeOperator>,
}

impl RecordedOperator {
    /// The operator of this name, as recorded; `None` if no operator may have this name.
    pub(crate) fn stored(name: &str) -> Option<Self> {
        let operator = UserMergeOperator::built_in(name);
        is_operator_name(name).then(|| Self { name: name.into(), operator })
    }
}

impl KeyspaceOptions {
    /// The same options as the store.
    pub fn new() -> Self {
        Self::default()
    }

    /// The filters of each level's tables. They cannot be a budget: the budget of
    /// [`Options::filters`](crate::Options::filters) is shared by all keyspaces without filters of
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

    /// The merge operator of the keyspace, in place of the store's. Its name is recorded, and
    /// cannot change while the keyspace exists: pass the same operator whenever
    /// [`Db::keyspace`](crate::Db::keyspace) opens the keyspace. One of [`Merge`](crate::Merge) is
    /// found by its name. Until the keyspace is opened with its operator, merged keys cannot be
    /// read ([`Error::Merge`](crate::Error::Merge)), and flushes and compactions keep the operands.
    ///
    /// Versions of Trommel without such operators do not open a store once a keyspace has one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use trommel::{KeyspaceOptions, Merge};
    /// let visits = db.keyspace("visits", KeyspaceOptions::new().merge_operator(Merge::counter()))?;
    /// let warmest = db.keyspace("warmest", KeyspaceOptions::new().merge_operator(Merge::max()))?;
    /// for number in [7_u64, 2] {
    ///     visits.merge("page", number.to_le_bytes())?;
    ///     warmest.merge("here", number.to_be_bytes())?;
    /// }
    /// assert_eq!(visits.get("page")?.unwrap(), 9_u64.to_le_bytes());
    /// assert_eq!(warmest.get("here")?.unwrap(), 7_u64.to_be_bytes());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    #[must_use]
    pub fn merge_operator(mut self, operator: Arc<dyn MergeOperator>) -> Self {
        let operator = UserMergeOperator::new(operator);
        let name = Arc::clone(operator.name());
        self.merge_operator = Some(RecordedOperator { name, operator: Some(operator) });
        self
    }

    /// How long entries of the keyspace last, with the bounds and guarantees of the store's
    /// [`ttl`](crate::settings::WriteSettings::ttl), which applies to the default keyspace. Unlike
    /// that setting it is recorded: it stays in effect when the store is reopened, until
    /// [`Db::keyspace`](crate::Db::keyspace) is called with another `ttl`, or without one. If it is
    /// set for a keyspace whose entries did not expire, they count as written at that moment.
    ///
    /// All keyspaces share the recorded times, of which there are a few hundred. If their `ttl`s
    /// range from seconds to months, entries may outlast theirs by more than a 256th of it: by a
    /// 64th with four such `ttl`s. Versions of Trommel that do not support this do not open the
    /// store.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// use std::time::Duration;
    /// use trommel::KeyspaceOptions;
    /// let hour = KeyspaceOptions::new().ttl(Duration::from_secs(3600));
    /// let sessions = db.keyspace("sessions", hour)?;
    /// sessions.put("1", "Ada")?; // gone in an hour
    /// db.put("1", "here")?; // stays
    /// # Ok::<(), trommel::Error>(())
    /// ```
    #[must_use]
    pub fn ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.ttl = ttl.into();
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
        let operator = self.merge_operator.as_ref().and_then(|one| one.operator.as_ref());
        operator.map_or(Ok(()), UserMergeOperator::check)?;
        check_ttl(self.ttl)?;
        self.prefix_extractor.as_ref().map_or(Ok(()), Prefix::check)
    }

    /// The `ttl` of the keyspace's entries.
    pub(crate) fn lasting(&self) -> Option<Duration> {
        self.ttl
    }

    /// The merge operator of the keyspace's own.
    pub(crate) fn operator(&self) -> Option<&RecordedOperator> {
        self.merge_operator.as_ref()
    }

    /// With the merge operator of `given`, if that is the recorded one.
    pub(crate) fn with_operator_of(mut self, given: Self) -> Self {
        let is_recorded = self.merge_operator.is_some() && given.merge_operator.is_some();
        if is_recorded {
            self.merge_operator = given.merge_operator;
        }
        self
    }

    /// With a merge operator of which only the name is known.
    pub(crate) fn with_operator_named(mut self, name: &str) -> Self {
        self.merge_operator = RecordedOperator::stored(name);
        self
    }

    /// Takes over the previous merge operator of the keyspace, if that was given.
    pub(super) fn keep_operator(&mut self, before: &RecordedOperator) {
        let is_other = self.merge_operator.as_ref().is_some_and(|now| now.name != before.name);
        if !is_other && (before.operator.is_some() || self.merge_operator.is_none()) {
            self.merge_operator = Some(before.clone());
        }
    }

    /// These options for a keyspace that has had the options `before`, in a store that may hold
    /// operands of the operator `of_store`.
    ///
    /// # Errors
    /// [`Error::OtherMergeOperator`] if the keyspace may hold operands of another operator, or of
    /// one that neither these options nor earlier ones contain.
    pub(crate) fn after(
        mut self,
        before: &Self,
        of_store: Option<&Arc<str>>,
        (dir, keyspace): (&Path, &str),
    ) -> Result<Self> {
        let given = self.merge_operator.as_ref().map(|given| &given.name);
        let recorded = match (&before.merge_operator, given) {
            (None, Some(_)) => of_store,
            (recorded, _) => recorded.as_ref().map(|recorded| &recorded.name),
        };
        let is_missing = before.merge_operator.as_ref().is_some_and(|one| one.operator.is_none());
        let is_other = match given {
            Some(given) => recorded.is_some_and(|recorded| recorded != given),
            None => is_missing,
        };
        if let Some(recorded) = recorded.filter(|_| is_other) {
            return Err(Error::OtherMergeOperator {
                dir: dir.to_path_buf(),
                keyspace: Some(keyspace.to_owned()),
                recorded: recorded.to_string(),
                given: given.map(ToString::to_string).unwrap_or_default(),
            });
        }
        before.merge_operator.iter().for_each(|before| self.keep_operator(before));
        Ok(self)
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
        let operator = self.merge_operator.as_ref();
        let operator = operator.map(|operator| ("merge_operator", operator.name.to_string()));
        let ttl = self.ttl.map(|ttl| ("ttl", format!("{}s", ttl.as_secs_f64())));
        [filters, prefix, compression, operator, ttl].into_iter().flatten().collect()
    }

    /// Sets an option by its name and its value as text, as in [`KeyspaceOptions::settings`].
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if this version does not know the name or the value, or a keyspace
    /// cannot have this option.
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
            return self.check().map(|()| self);
        }
        Err(Error::option(format!("{name} = {value} is not an option of a keyspace")))
    }

    /// The settings that [`with_setting`](Self::with_setting) takes back: not closures.
    pub(crate) fn recordable(&self) -> impl Iterator<Item = (&'static str, String)> {
        let is_known = |name: &str, value: &str| Self::new().with_setting(name, value).is_ok();
        self.settings().into_iter().filter(move |(name, value)| is_known(name, value))
    }

    /// A line of text for each option that is set and can be recorded.
    pub(super) fn lines(&self) -> String {
        self.lines_of(|_| true)
    }

    fn lines_of(&self, is_wanted: impl Fn(&str) -> bool) -> String {
        let is_closure = |name: &str| name == "prefix_extractor" && self.closure().is_some();
        let settings = self.settings().into_iter();
        let settings = settings.filter(|(name, _)| !is_closure(name) && is_wanted(name));
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
            "ttl" => self.ttl = stored_ttl(value),
            "merge_operator" => self.merge_operator = RecordedOperator::stored(value),
            _ => {}
        }
    }

    /// A text that is the same for the same options, and empty if none is set.
    pub(super) fn key(&self) -> String {
        self.with_closure(self.lines())
    }

    /// As [`key`](Self::key), for the options of tables.
    pub(super) fn key_of_tables(&self) -> String {
        self.with_closure(self.lines_of(|name| name != "merge_operator"))
    }

    fn with_closure(&self, mut key: String) -> String {
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

/// The `ttl` of this text, as recorded; `None` if the text is not a valid one.
fn stored_ttl(text: &str) -> Option<Duration> {
    let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
    let ttl = Duration::try_from_secs_f64(seconds).ok()?;
    check_ttl(Some(ttl)).is_ok().then_some(ttl)
}

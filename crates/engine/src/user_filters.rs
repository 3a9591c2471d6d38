//! Custom filter policies.
//!
//! 1. Before a table is written, [`UserFilterPolicy::choose`] gets its description and chooses its
//!    filter: a built-in one, none, or a custom one.
//! 2. A custom filter is stored with the policy's name. Tables with that name are read by
//!    [`UserFilterPolicy::open`]; in a store opened without a policy of that name, they pass every
//!    key.
//! 3. A policy's failures are counted, and the first is kept for the report. A failure is never an
//!    error of the store.
//!
//! Invariants: the name is read once, when the policy is set. A custom filter gates lookups only:
//! no compaction drops a tombstone because of its negative.
//!
//! Called by [`Outputs`](crate::output::Outputs), and by the readers of tables.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use trommel_filter::FilterSpec;
use trommel_sstable::{UserFilter, UserFilterBuilder, UserFilterReader, contained};

use crate::error::{Error, Result};

/// Longest name of a policy, in bytes.
const MOST_NAME_BYTES: usize = 200;

/// Why a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterReason {
    /// A full memtable is flushed to level 0.
    Flush,
    /// A compaction.
    Compaction,
    /// A log is written to a table when the store is opened.
    Recovery,
    /// Sorted entries are loaded: [`Db::load_sorted`](crate::Db::load_sorted).
    Load,
    /// An existing table gets other filters: [`Db::rebuild_filters`](crate::Db::rebuild_filters).
    /// The policy is called for each table that may need them, even if the table then keeps its
    /// filter.
    Rebuild,
}

/// The table that a filter is chosen for.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FilterContext {
    /// Its level: 0, or 1 for the first level below that holds data, and so on.
    pub level: usize,
    /// Whether no deeper level holds data. Level 0 is never the last.
    pub is_last: bool,
    /// Expected number of keys, if known before they are read. For a flush, at least the actual
    /// number (every version counts); for a compaction, an estimate for each output from the
    /// inputs' keys, which may be off either way; for a load, the lower bound that its iterator
    /// reports.
    pub expected_keys: Option<u64>,
    /// Why it is written.
    pub reason: FilterReason,
    /// The filter that [`Options::filters`](crate::Options::filters) sets for it.
    pub configured: FilterSpec,
}

/// The filter of one table.
#[derive(Debug)]
#[non_exhaustive]
pub enum FilterChoice {
    /// A built-in filter; [`FilterSpec::NONE`] for none.
    Spec(FilterSpec),
    /// A custom filter.
    User(Box<dyn UserFilterBuilder>),
}

/// Chooses the filter of each table, and may provide custom filters.
///
/// A policy that only chooses among built-in filters needs just [`name`](Self::name) and
/// [`choose`](Self::choose):
///
/// ```
/// use std::sync::Arc;
/// use trommel::{Db, FilterChoice, FilterContext, FilterReason, FilterSpec, Options};
/// use trommel::UserFilterPolicy;
///
/// /// No filters for tables that the next compaction will replace.
/// #[derive(Debug)]
/// struct NoneForFlushes;
///
/// impl UserFilterPolicy for NoneForFlushes {
///     fn name(&self) -> &str {
///         "none for flushes"
///     }
///
///     fn choose(&self, context: &FilterContext) -> FilterChoice {
///         FilterChoice::Spec(match context.reason {
///             FilterReason::Flush => FilterSpec::NONE,
///             _ => context.configured,
///         })
///     }
/// }
///
/// # let dir = tempfile::tempdir().unwrap();
/// let options = Options::default().filtering(|f| f.user_filters(Arc::new(NoneForFlushes)));
/// let db = Db::open(dir.path().join("data"), options)?;
/// # db.close()?;
/// # Ok::<(), trommel::Error>(())
/// ```
///
/// # Panics
/// A panic in any of its calls is caught if panics unwind, and counted in
/// [`FilterReport::policy`](crate::FilterReport::policy); so is a panic in the `Drop` of its
/// builders and filters, but not in the `Drop` of the policy itself, which is dropped with the
/// store's options.
pub trait UserFilterPolicy: Send + Sync + fmt::Debug {
    /// Its name: 1 to 200 bytes without control characters. Stored with each table that has one of
    /// its custom filters. A filter is only opened by the policy with that name, so a policy with
    /// another encoding needs another name.
    fn name(&self) -> &str;

    /// Chooses the filter of a table that is about to be written.
    fn choose(&self, context: &FilterContext) -> FilterChoice;

    /// Opens the output of one of its builders. The bytes have passed their checksum, but may be
    /// from an older version of the policy.
    ///
    /// # Errors
    /// The reason why they cannot be used: the table then passes every key.
    fn open(&self, bytes: &[u8]) -> std::result::Result<Box<dyn UserFilter>, String> {
        Err(format!("this policy opens no filters, and there is one of {} bytes", bytes.len()))
    }
}

/// The failures of a user's policy.
#[derive(Debug, Default)]
struct Failures {
    count: AtomicU64,
    first: OnceLock<String>,
}

/// A policy with its name and failures.
#[derive(Clone)]
pub(crate) struct UserPolicy {
    name: Arc<str>,
    policy: Arc<dyn UserFilterPolicy>,
    failures: Arc<Failures>,
}

impl UserPolicy {
    /// Takes a policy, and reads its name.
    pub(crate) fn new(policy: Arc<dyn UserFilterPolicy>) -> Self {
        Self { name: policy.name().into(), policy, failures: Arc::default() }
    }

    /// As [`UserPolicy::new`], as an option.
    pub(crate) fn chosen(policy: Arc<dyn UserFilterPolicy>) -> Option<Self> {
        Some(Self::new(policy))
    }

    /// Whether `other` is the same policy, not just one with the same name.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policy, &other.policy)
    }

    /// Checks the documented bounds of its name.
    pub(crate) fn check(&self) -> Result<()> {
        let what = if self.name.is_empty() {
            "is empty: tables need a name to find their policy by"
        } else if self.name.len() > MOST_NAME_BYTES {
            "is longer than 200 bytes"
        } else if self.name.contains(char::is_control) {
            "has control characters"
        } else {
            return Ok(());
        };
        Err(Error::option(format!("user_filters: the policy's name {:?} {what}", self.name)))
    }

    /// Its name, as shown in settings.
    pub(crate) fn quoted(&self) -> String {
        format!("{:?}", self.name)
    }

    /// Its choice; the configured filter if it fails.
    pub(crate) fn choose(&self, context: &FilterContext) -> FilterChoice {
        contained(|| self.policy.choose(context)).unwrap_or_else(|why| {
            self.failed(&format!(
                "{why}, as it chose a filter: the one that is configured is built"
            ));
            FilterChoice::Spec(context.configured)
        })
    }

    /// Its part of the filter report.
    pub(crate) fn report(&self) -> PolicyReport {
        PolicyReport {
            name: self.name.to_string(),
            failures: self.failures.count.load(Relaxed),
            first_failure: self.failures.first.get().cloned(),
        }
    }
}

impl UserFilterReader for UserPolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, bytes: &[u8]) -> std::result::Result<Box<dyn UserFilter>, String> {
        self.policy.open(bytes)
    }

    fn failed(&self, what: &str) {
        self.failures.count.fetch_add(1, Relaxed);
        if self.failures.first.set(what.to_owned()).is_ok() {
            crate::events::policy_failed(&self.name, what);
        }
    }
}

impl fmt::Debug for UserPolicy {
    /// Writes its name: the policy's own output may be long or endless.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

/// The policy that a store was opened with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyReport {
    /// Its name.
    pub name: String,
    /// Failed calls of its code since it was set: panics, filters that it built and cannot open,
    /// and filters that deny their own keys.
    pub failures: u64,
    /// The first failure.
    pub first_failure: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Named(String);

    impl UserFilterPolicy for Named {
        fn name(&self) -> &str {
            &self.0
        }

        fn choose(&self, _: &FilterContext) -> FilterChoice {
            panic!("it never chooses")
        }
    }

    fn policy(name: &str) -> UserPolicy {
        UserPolicy::new(Arc::new(Named(name.to_owned())))
    }

    #[test]
    fn names_are_checked() {
        for name in ["a", "Ranges of hours, v2", "größe", &"n".repeat(200)] {
            policy(name).check().unwrap();
        }
        for (name, why) in
            [("", "empty"), (&"n".repeat(201), "longer"), ("a\nb", "control"), ("\u{0}", "control")]
        {
            let error = policy(name).check().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("user_filters"), "{error}");
        }
    }

    #[test]
    fn a_panic_while_choosing_builds_the_configured_filter() {
        let policy = policy("panics");
        let configured = "blocked:10".parse().unwrap();
        let context = FilterContext {
            level: 1,
            is_last: true,
            expected_keys: None,
            reason: FilterReason::Compaction,
            configured,
        };
        let chosen = policy.choose(&context);
        assert!(matches!(chosen, FilterChoice::Spec(spec) if spec == configured));
        let report = policy.report();
        assert_eq!(report.failures, 1);
        assert!(report.first_failure.unwrap().contains("panic"));
    }
}

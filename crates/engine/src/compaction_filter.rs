//! Compaction filters: user code that keeps, removes or replaces entries while they are compacted.
//!
//! 1. A compaction calls the filter for the newest version of a key that it reads, if that is a
//!    value which no live snapshot can see, and which is neither deleted by a range tombstone nor
//!    expired. Snapshots are those that were listed when the compaction began.
//! 2. A removed entry becomes a tombstone with its sequence number, which is dropped at once if
//!    nothing older can be outside the compaction. A replaced one keeps its sequence number.
//! 3. A snapshot that is taken later keeps the view of its creation
//!    ([`Snapshot`](crate::Snapshot)), so nothing that it sees changes when the compaction is
//!    installed. Reads without a snapshot pin their view in any case.
//! 4. A failure of the user's code is counted, and the entry kept. It is not an error of the store.
//!
//! Called by [`Engine::run_compaction`](crate::engine::Engine::run_compaction), also for the parts
//! of a compaction that other workers take, and therefore by several threads at once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use trommel_base::MAX_VALUE_BYTES;
use trommel_sstable::contained;

use crate::error::{Error, Result};

/// Longest name of a filter, in bytes.
const MOST_NAME_BYTES: usize = 200;

/// The compaction that reads an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionContext {
    /// The level that it writes to: 0, or 1 for the first level below that holds data, and so on.
    pub level: usize,
    /// Whether no deeper level holds data.
    pub is_last: bool,
}

/// What becomes of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterDecision {
    /// It stays.
    Keep,
    /// It is deleted, as by [`Db::delete`](crate::Db::delete) at the time of its write: older
    /// versions of its key do not come back.
    Remove,
    /// It gets this value, of at most 1 GiB.
    Replace(Vec<u8>),
}

/// Keeps, removes or replaces entries while they are compacted.
///
/// It is called for the newest version of a key among what a compaction reads, in key order within
/// each of its threads, unless a live snapshot can see that version, or it was deleted or has
/// expired. So a filter does not decide what is visible at a given time: an entry stays visible
/// until a compaction reads it, which may be soon, much later, or never.
/// [`Db::compact_range`](crate::Db::compact_range) reads every entry of its range. A newer version
/// of the key may be elsewhere, and an entry may be passed to the filter any number of times, so
/// the decision should follow from key and value alone. A value that merge operands apply to stays,
/// whatever the decision, if one of them was written before the decision. Operands written after
/// it, even while the compaction still runs, apply, once the compaction has ended, to what the
/// decision left: to no value after [`FilterDecision::Remove`]. Flushes, moves of whole tables and
/// [`Db::repair`](crate::Db::repair) do not call it.
///
/// ```
/// use std::sync::Arc;
/// use trommel::{CompactionContext, CompactionFilter, Db, FilterDecision, Options};
///
/// /// Removes sessions whose value says that they have ended.
/// #[derive(Debug)]
/// struct EndedSessions;
///
/// impl CompactionFilter for EndedSessions {
///     fn name(&self) -> &str {
///         "ended sessions"
///     }
///
///     fn filter(&self, _: &CompactionContext, key: &[u8], value: &[u8]) -> FilterDecision {
///         match key.starts_with(b"session/") && value == b"ended" {
///             true => FilterDecision::Remove,
///             false => FilterDecision::Keep,
///         }
///     }
/// }
///
/// # let dir = tempfile::tempdir().unwrap();
/// let filter = Arc::new(EndedSessions);
/// let options = Options::default().compaction(|c| c.compaction_filter(filter));
/// let db = Db::open(dir.path(), options)?;
/// db.put("session/1", "ended")?;
/// db.put("session/2", "open")?;
/// db.compact_range(..)?;
/// assert_eq!(db.iter().count(), 1);
/// # Ok::<(), trommel::Error>(())
/// ```
///
/// # Panics
/// A panic in [`filter`](Self::filter) is caught if panics unwind, and counted in
/// [`CompactionStats::filter_failures`](crate::CompactionStats::filter_failures): the entry stays.
pub trait CompactionFilter: Send + Sync + fmt::Debug {
    /// Its name: 1 to 200 bytes without control characters. Recorded among the options of the
    /// store.
    fn name(&self) -> &str;

    /// What becomes of an entry. Called by several threads at once. It may read the same store only
    /// by getting keys, one or several at once, from any keyspace; in the default keyspace, only
    /// keys that do not begin with `FF FF FF FF`. It must not use the store otherwise: a write may
    /// wait for compactions, and scans and transactions may wait for the creation of the first
    /// keyspace, which is a write.
    fn filter(&self, context: &CompactionContext, key: &[u8], value: &[u8]) -> FilterDecision;
}

/// Counts since the filter was set.
#[derive(Debug, Default)]
struct FilteredCounts {
    removed: AtomicU64,
    replaced: AtomicU64,
    failures: AtomicU64,
}

/// A compaction filter with its name and counts.
#[derive(Clone)]
pub(crate) struct UserCompactionFilter {
    name: Arc<str>,
    filter: Arc<dyn CompactionFilter>,
    counts: Arc<FilteredCounts>,
}

impl UserCompactionFilter {
    /// A filter as an option. Reads its name.
    pub(crate) fn chosen(filter: Arc<dyn CompactionFilter>) -> Option<Self> {
        Some(Self { name: filter.name().into(), filter, counts: Arc::default() })
    }

    /// Whether `other` is the same filter, not just one with the same name.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.filter, &other.filter)
    }

    /// Checks the documented bounds of its name.
    pub(crate) fn check(&self) -> Result<()> {
        let is_good = (1..=MOST_NAME_BYTES).contains(&self.name.len())
            && !self.name.contains(char::is_control);
        if is_good {
            return Ok(());
        }
        Err(Error::option(format!(
            "compaction_filter: the name {:?} must have 1 to {MOST_NAME_BYTES} bytes, and no control \
             characters",
            self.name
        )))
    }

    /// Its name, as shown in settings.
    pub(crate) fn quoted(&self) -> String {
        format!("{:?}", self.name)
    }

    /// Its decision; [`FilterDecision::Keep`] if it fails.
    pub(crate) fn decide(
        &self,
        context: &CompactionContext,
        key: &[u8],
        value: &[u8],
    ) -> FilterDecision {
        let decision = contained(|| self.filter.filter(context, key, value));
        let decision = decision.and_then(|decision| match decision {
            FilterDecision::Replace(value) if value.len() > MAX_VALUE_BYTES => {
                Err(format!("a value of {} bytes is too long", value.len()))
            }
            decision => Ok(decision),
        });
        decision.unwrap_or_else(|why| {
            if self.counts.failures.fetch_add(1, Relaxed) == 0 {
                crate::events::policy_failed(&self.name, &why);
            }
            FilterDecision::Keep
        })
    }

    /// Counts an entry that it has removed.
    pub(crate) fn count_removed(&self) {
        self.counts.removed.fetch_add(1, Relaxed);
    }

    /// Counts an entry that it has replaced.
    pub(crate) fn count_replaced(&self) {
        self.counts.replaced.fetch_add(1, Relaxed);
    }

    /// Entries that it has removed and replaced, and its failures.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let FilteredCounts { removed, replaced, failures } = &*self.counts;
        (removed.load(Relaxed), replaced.load(Relaxed), failures.load(Relaxed))
    }
}

impl fmt::Debug for UserCompactionFilter {
    /// Writes its name: the filter's own output may be long or endless.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name, f)
    }
}

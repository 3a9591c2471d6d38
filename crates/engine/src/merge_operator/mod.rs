//! Merge operators: user code that computes the value of a key from operands.
//!
//! 1. [`Db::merge`](crate::Db::merge) writes an operand and reads nothing. Reads collect the
//!    operands of a key, newest first, down to a value, a tombstone, or the end of the key, and
//!    call [`MergeOperator::full_merge`] (module `read::operands`).
//! 2. Flushes and compactions fold operands (module [`folding`](crate::folding)): by a full merge
//!    where it is known what is below the operands, otherwise by [`MergeOperator::partial_merge`].
//! 3. A failure of the user's code fails the reads that encounter it. Flushes and compactions then
//!    keep the operands as they are.
//! 4. The name of the operator is recorded in the manifest before the first operand is logged.
//!    After that, the store cannot be opened with an operator of another name.
//!
//! Called by several threads at once.

mod builtin;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use trommel_base::MAX_VALUE_BYTES;
use trommel_sstable::contained;

pub use builtin::{InvalidSet, Merge, SetItems};

use crate::error::{Error, Result};
use crate::merge_failure::{MergeCause, MergeFailure};

/// Longest name of an operator, in bytes.
const MOST_NAME_BYTES: usize = 200;

/// Whether an operator may have this name.
pub(crate) fn is_operator_name(name: &str) -> bool {
    (1..=MOST_NAME_BYTES).contains(&name.len()) && !name.contains(char::is_control)
}

/// Computes values from merge operands; [`Merge`] has built-in operators.
///
/// Given to a store by
/// [`WriteSettings::merge_operator`](crate::settings::WriteSettings::merge_operator), or to one of
/// its keyspaces by [`KeyspaceOptions::merge_operator`](crate::KeyspaceOptions). A write of an
/// operand ([`Db::merge`](crate::Db::merge)) reads nothing; the operator is called when the key is
/// read, flushed or compacted. How the operands of a key are divided among these calls is
/// unspecified, so the results must depend only on the key, the value and the order of the
/// operands, and for all values `v` and operands `a`, `b` and `c`:
///
/// * merging `a` and `b` into `v` is merging `b` into the result of merging `a` into `v`;
/// * if `partial_merge` of `a` and `b` is `c`, merging `c` is merging `a` and then `b`.
///
/// ```
/// use std::sync::Arc;
/// use trommel::{Db, MergeOperator, Options};
///
/// /// Appends lines to a text.
/// #[derive(Debug)]
/// struct Lines;
///
/// impl MergeOperator for Lines {
///     fn name(&self) -> &str {
///         "lines"
///     }
///
///     fn full_merge(
///         &self,
///         _: &[u8],
///         existing: Option<&[u8]>,
///         operands: &[&[u8]],
///     ) -> Result<Option<Vec<u8>>, String> {
///         let parts: Vec<&[u8]> = existing.iter().chain(operands).copied().collect();
///         Ok(Some(parts.join(&b'\n')))
///     }
///
///     fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
///         Some(operands.join(&b'\n'))
///     }
/// }
///
/// # let dir = tempfile::tempdir().unwrap();
/// let options = Options::default().writes(|w| w.merge_operator(Arc::new(Lines)));
/// let db = Db::open(dir.path(), options)?;
/// db.merge("log", "started")?;
/// db.merge("log", "stopped")?;
/// assert_eq!(db.get("log")?.unwrap(), b"started\nstopped");
/// # Ok::<(), trommel::Error>(())
/// ```
///
/// # Panics
/// A panic in any of its calls is caught if panics unwind, and treated as an error of that call.
pub trait MergeOperator: Send + Sync + fmt::Debug {
    /// Its name: 1 to 200 bytes without control characters. Recorded in the store before its first
    /// operand; the store is then opened only with an operator of this name, or without one. An
    /// operator that would read the operands of another one differently needs another name.
    fn name(&self) -> &str;

    /// Returns the value of `key` after `operands`, oldest first, at least one; `existing` is the
    /// value before them, if there is one. The result may have at most 1 GiB; with `None`, the key
    /// has no value.
    ///
    /// Called by several threads at once. It must not use the store that calls it: that may wait
    /// for the flush, the compaction or the creation of a keyspace that this call is part of.
    ///
    /// # Errors
    /// Why they cannot be applied, in words: reads of the key then fail with
    /// [`Error::Merge`](crate::Error::Merge), and the operands stay.
    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> std::result::Result<Option<Vec<u8>>, String>;

    /// Returns one operand that has the effect of `operands`, oldest first, at least two, whatever
    /// the value before them; `None` if there is no such operand, or computing it is not
    /// worthwhile. The operands then stay as they are until the value before them is known.
    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = (key, operands);
        None
    }
}

/// A merge operator with its name.
#[derive(Clone)]
pub(crate) struct UserMergeOperator(Arc<ChosenOperator>);

struct ChosenOperator {
    name: Arc<str>,
    operator: Arc<dyn MergeOperator>,
    /// Whether a failure of a flush or compaction was reported.
    has_failed: AtomicBool,
}

impl UserMergeOperator {
    /// An operator as an option. Reads its name.
    pub(crate) fn chosen(operator: Arc<dyn MergeOperator>) -> Option<Self> {
        Some(Self::new(operator))
    }

    /// An operator. Reads its name.
    pub(crate) fn new(operator: Arc<dyn MergeOperator>) -> Self {
        let name = operator.name().into();
        Self(Arc::new(ChosenOperator { name, operator, has_failed: AtomicBool::new(false) }))
    }

    /// The built-in operator of this name, if there is one.
    pub(crate) fn built_in(name: &str) -> Option<Self> {
        let all = [Merge::counter(), Merge::max(), Merge::set_union()];
        all.into_iter().find(|operator| operator.name() == name).map(Self::new)
    }

    /// Whether `other` is the same operator, not just one with the same name.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.operator, &other.0.operator)
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Its name, as shown in settings.
    pub(crate) fn quoted(&self) -> String {
        format!("{:?}", self.name())
    }

    /// Checks the documented bounds of its name.
    pub(crate) fn check(&self) -> Result<()> {
        if is_operator_name(self.name()) {
            return Ok(());
        }
        Err(Error::option(format!(
            "merge_operator: the name {:?} must have 1 to {MOST_NAME_BYTES} bytes, and no control \
             characters",
            self.name()
        )))
    }

    /// The value of `key`, without a header, after these operands, oldest first.
    ///
    /// # Errors
    /// [`Error::Merge`] if the operator fails.
    pub(crate) fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>> {
        let merged = contained(|| self.0.operator.full_merge(key, existing, operands));
        let merged = merged.and_then(|merged| merged).and_then(within_limit);
        merged.map_err(|why| {
            let cause = MergeCause::Failed(why);
            Error::Merge(Box::new(MergeFailure::new(self.name(), key, cause)))
        })
    }

    /// One operand of `key`, without a header, that replaces these, oldest first, if there is one.
    pub(crate) fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let merged = contained(|| self.0.operator.partial_merge(key, operands));
        match merged.and_then(within_limit) {
            Ok(merged) => merged,
            Err(why) => {
                self.report(&why);
                None
            }
        }
    }

    /// Reports the first failure in a flush or compaction, which keeps the operands.
    pub(crate) fn report(&self, why: &dyn fmt::Display) {
        if !self.0.has_failed.swap(true, Relaxed) {
            crate::events::merge_failed(self.name(), &why.to_string());
        }
    }
}

impl fmt::Debug for UserMergeOperator {
    /// Writes its name: the operator's own output may be long or endless.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.name(), f)
    }
}

fn within_limit(merged: Option<Vec<u8>>) -> std::result::Result<Option<Vec<u8>>, String> {
    match merged {
        Some(value) if value.len() > MAX_VALUE_BYTES => {
            Err(format!("a value of {} bytes is too long: at most 1 GiB", value.len()))
        }
        merged => Ok(merged),
    }
}

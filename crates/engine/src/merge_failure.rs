//! Why a merge was refused, or a merged value could not be computed.

use std::fmt;

/// A key whose merge operands cannot be applied: see [`Error::Merge`](crate::Error::Merge).
///
/// Nothing is lost: the operands stay until an operator can apply them, or a later put or delete
/// replaces them.
///
/// ```
/// use trommel::{Db, Error, Merge, MergeCause, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// let options = Options::default().writes(|w| w.merge_operator(Merge::counter()));
/// let db = Db::open(dir.path(), options)?;
/// db.merge("visits", "not a number of 8 bytes")?;
/// let Err(Error::Merge(failure)) = db.get("visits") else { panic!("it has a value") };
/// assert_eq!((&*failure.operator, &*failure.key), ("trommel.counter", &b"visits"[..]));
/// assert!(matches!(failure.cause, MergeCause::Failed(_)));
/// db.put("visits", 1_u64.to_le_bytes())?; // replaces what cannot be applied
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MergeFailure {
    /// The name of the merge operator. If the store was opened without it, the recorded name, or
    /// empty if none is recorded.
    pub operator: String,
    /// The key.
    pub key: Vec<u8>,
    /// The name of the keyspace that the key is in, if that has a merge operator of its own, which
    /// is missing.
    pub keyspace: Option<String>,
    /// The cause.
    pub cause: MergeCause,
}

/// Why operands cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeCause {
    /// The store, or the keyspace, was opened without a merge operator.
    NoOperator,
    /// The operator returned this error, or panicked with this message.
    Failed(String),
}

impl MergeFailure {
    pub(crate) fn new(operator: &str, key: &[u8], cause: MergeCause) -> Self {
        Self { operator: operator.to_owned(), key: key.to_vec(), keyspace: None, cause }
    }
}

impl fmt::Display for MergeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operator, key) = (self.operator.as_str(), self.key.escape_ascii());
        if let Some(keyspace) = &self.keyspace {
            return write!(
                f,
                "key {key} needs the merge operator {operator:?}, and the keyspace \"{keyspace}\" \
                 was opened without it: open it with KeyspaceOptions::merge_operator"
            );
        }
        match &self.cause {
            MergeCause::NoOperator if operator.is_empty() => write!(
                f,
                "key {key} needs a merge operator, and the store was opened without one: open it \
                 with WriteSettings::merge_operator"
            ),
            MergeCause::NoOperator => write!(
                f,
                "key {key} needs the merge operator {operator:?}, and the store was opened without \
                 it: open it with WriteSettings::merge_operator"
            ),
            MergeCause::Failed(why) => write!(
                f,
                "the merge operator {operator:?} failed for key {key}: {why} (its operands stay: \
                 correct the operator, or put or delete the key)"
            ),
        }
    }
}

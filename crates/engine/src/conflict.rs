//! Conflicts, because of which a conditional write or a transaction is refused.

use std::fmt;

/// The first condition of a batch or a transaction that did not hold: see
/// [`Error::Conflict`](crate::Error::Conflict).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = trommel::Db::open(dir.path(), Default::default())?;
/// use trommel::{Error, Expected, WriteBatch};
/// db.put("request:17", "done")?;
/// let mut batch = WriteBatch::new();
/// batch.expect_absent("request:17").put("request:17", "done").put("balance", "90");
/// let Err(Error::Conflict(conflict)) = db.write(&batch) else { panic!("it was written") };
/// assert_eq!((&*conflict.key, conflict.expected), (&b"request:17"[..], Expected::Absent));
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// The key that was not as expected. If a transaction read a range and another write deleted a
    /// part of it, the first key of that part.
    pub key: Vec<u8>,
    /// The condition on the key.
    pub expected: Expected,
    /// The name of the key's keyspace; `None` for the default one.
    pub keyspace: Option<String>,
}

impl Conflict {
    pub(crate) fn new(key: &[u8], expected: Expected) -> Self {
        Self { key: key.to_vec(), expected, keyspace: None }
    }
}

/// A condition of a batch or a transaction on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Expected {
    /// That it has no value: [`WriteBatch::expect_absent`](crate::WriteBatch::expect_absent).
    Absent,
    /// That it has a certain value: [`WriteBatch::expect_value`](crate::WriteBatch::expect_value).
    Value,
    /// That no other write has changed it since the transaction began.
    Unchanged,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.escape_ascii();
        if let Some(keyspace) = &self.keyspace {
            write!(f, "keyspace {keyspace}: ")?;
        }
        match self.expected {
            Expected::Absent => write!(f, "key {key} has a value, and none was expected"),
            Expected::Value => write!(f, "key {key} does not have the value that was expected"),
            Expected::Unchanged => {
                write!(f, "another write changed key {key}, which the transaction had read")
            }
        }
    }
}

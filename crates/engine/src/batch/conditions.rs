//! Conditions of a batch on the state of the store, which are checked atomically with the write.

use super::WriteBatch;
use crate::bounds::Bounds;
use crate::conflict::{Conflict, Expected};

/// A condition of a write, on the state right before it.
#[derive(Debug, Clone)]
pub(crate) enum Condition {
    /// The key has no value.
    Absent(Vec<u8>),
    /// The key has this value.
    Value { key: Vec<u8>, value: Vec<u8> },
    /// The key has not been written since the moment that the write is compared with.
    Unchanged(Vec<u8>),
    /// No key of the range has been written since that moment.
    UnchangedRange(Bounds),
}

impl Condition {
    /// The condition that `key` has this value, or none.
    pub(crate) fn of(key: &[u8], expected: Option<&[u8]>) -> Self {
        match expected {
            None => Self::Absent(key.to_vec()),
            Some(value) => Self::Value { key: key.to_vec(), value: value.to_vec() },
        }
    }

    /// The same condition on another key; a range stays as it is.
    pub(super) fn on(&self, key: impl FnOnce(&[u8]) -> &[u8]) -> Self {
        match self {
            Self::Absent(on) => Self::Absent(key(on).to_vec()),
            Self::Value { key: on, value } => {
                Self::Value { key: key(on).to_vec(), value: value.clone() }
            }
            Self::Unchanged(on) => Self::Unchanged(key(on).to_vec()),
            Self::UnchangedRange(bounds) => Self::UnchangedRange(bounds.clone()),
        }
    }

    /// The conflict, if the key of this condition has been written to and now has `value`, or none.
    /// A condition on a range is never checked against a single key.
    pub(crate) fn conflict(&self, value: Option<&[u8]>) -> Option<Conflict> {
        match self {
            Self::Absent(key) if value.is_some() => Some(Conflict::new(key, Expected::Absent)),
            Self::Value { key, value: expected } if value != Some(expected) => {
                Some(Conflict::new(key, Expected::Value))
            }
            Self::Unchanged(key) => Some(Conflict::new(key, Expected::Unchanged)),
            Self::Absent(_) | Self::Value { .. } | Self::UnchangedRange(_) => None,
        }
    }
}

impl WriteBatch {
    /// Makes the write conditional: nothing is written if `key` has a value. All conditions of a
    /// batch are on the state before it, whatever operations it has, and are checked atomically
    /// with the write. [`Db::write`](crate::Db::write) then returns
    /// [`Error::Conflict`](crate::Error::Conflict).
    ///
    /// Tables are read before the write enters the queue, so a conditional write delays no other
    /// write, and shares its commit and its sync with others.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let mut batch = trommel::WriteBatch::new();
    /// batch.expect_absent("name:ada").put("name:ada", "user:1").put("user:1", "Ada");
    /// db.write(&batch)?;
    /// assert!(matches!(db.write(&batch), Err(trommel::Error::Conflict(_)))); // the name is taken
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn expect_absent(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        let key = self.default_key(key.as_ref());
        self.conditions.push(Condition::of(&key, None));
        self
    }

    /// Makes the write conditional: nothing is written unless `key` has this value. See
    /// [`WriteBatch::expect_absent`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("from", "100")?;
    /// let mut batch = trommel::WriteBatch::new();
    /// batch.expect_value("from", "100").expect_absent("to").put("from", "90").put("to", "10");
    /// db.write(batch)?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn expect_value(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        let key = self.default_key(key.as_ref());
        self.conditions.push(Condition::of(&key, Some(value.as_ref())));
        self
    }

    /// The conditions added so far.
    pub(crate) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }
}

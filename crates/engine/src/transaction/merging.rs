//! Merging operands in a transaction.

use std::sync::Arc;

use trommel_base::Slice;

use super::writes::OwnValue;
use super::{Transaction, TransactionState};
use crate::batch::{Batch, OpKind};
use crate::error::Result;
use crate::keyspaces::KeyspaceState;
use crate::space::Space;
use crate::sync::MutexGuard;

impl Transaction {
    /// Merges `operand` into `key`: see [`Db::merge`](crate::Db::merge). It reads nothing, so it
    /// conflicts with no other write; a read of the key by the transaction applies the operand, and
    /// counts as a read of the store's value.
    ///
    /// # Errors
    /// As [`Transaction::put`]; [`Error::Merge`](crate::Error::Merge) if the store was opened
    /// without a merge operator.
    ///
    /// ```
    /// use trommel::{Db, Merge, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().writes(|w| w.merge_operator(Merge::counter()));
    /// let db = Db::open(dir.path(), options)?;
    /// let transaction = db.begin();
    /// transaction.merge("orders", 1_u64.to_le_bytes())?;
    /// db.merge("orders", 1_u64.to_le_bytes())?; // no conflict: the transaction has not read it
    /// transaction.commit()?;
    /// assert_eq!(db.get("orders")?.unwrap(), 2_u64.to_le_bytes());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        self.merge_in(None, self.default_for(key), key, operand.as_ref())
    }

    /// As `put_in`, for a merge.
    pub(crate) fn merge_in(
        &self,
        keyspace: Option<&Arc<KeyspaceState>>,
        space: Space,
        key: &[u8],
        operand: &[u8],
    ) -> Result<()> {
        let key = space.key(key);
        Batch::one(OpKind::Merge, &key, operand)?;
        let mut state = self.state()?;
        self.snapshot.store().engine.merge_operator_for(&key)?;
        state.note(keyspace);
        state.writes.merge(&key, operand);
        Ok(())
    }

    /// The value of a key that the transaction has merged operands into. If they apply to the
    /// store's value, that value is read.
    pub(super) fn read_merged(
        &self,
        mut state: MutexGuard<'_, TransactionState>,
        key: &[u8],
    ) -> Result<Option<Slice>> {
        let Some(OwnValue::Merged { base, operands }) = state.writes.get(key) else {
            return Ok(None);
        };
        if let Some(base) = base {
            return self.merged(key, base, operands);
        }
        let operands = operands.to_vec();
        state.reads.add_key(key);
        // Reading may take long, and call the operator.
        drop(state);
        let stored = self.store().engine.get(key, self.snapshot.at())?;
        self.merged(key, stored.as_deref(), &operands)
    }

    /// The result of the merge operator for a value and operands, oldest first.
    pub(super) fn merged(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[Vec<u8>],
    ) -> Result<Option<Slice>> {
        let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
        let engine = &self.store().engine;
        // The operands may be of a keyspace that is newer than the snapshot.
        let default = engine.options.keyspaces.default_of_tables();
        let merged = engine.apply_operands_in(default, key, existing, &operands)?;
        Ok(merged.map(Slice::from))
    }
}

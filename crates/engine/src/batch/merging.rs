//! Merges in a batch.

use super::{OpKind, WriteBatch};

impl WriteBatch {
    /// Merges `operand` into `key`: from then on the key has the value that the store's
    /// [`merge_operator`](crate::settings::WriteSettings::merge_operator) computes from the
    /// previous value and the operand. Nothing is read for this: see
    /// [`Db::merge`](crate::Db::merge). The limits are those of [`WriteBatch::put`].
    ///
    /// ```
    /// use trommel::{Db, Merge, Options, WriteBatch};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().writes(|w| w.merge_operator(Merge::counter()));
    /// let db = Db::open(dir.path(), options)?;
    /// let mut batch = WriteBatch::new();
    /// batch.put("page:1", "text").merge("pages", 1_u64.to_le_bytes());
    /// db.write(&batch)?;
    /// assert_eq!(db.get("pages")?.unwrap(), 1_u64.to_le_bytes());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> &mut Self {
        self.has_operands = true;
        self.push_default(OpKind::Merge, key.as_ref(), operand.as_ref())
    }

    /// Whether the batch merges operands.
    #[inline]
    pub(crate) fn has_operands(&self) -> bool {
        self.has_operands
    }

    /// The keys that the batch merges operands into, as they are encoded.
    pub(crate) fn merged_keys(&self) -> impl Iterator<Item = &[u8]> {
        let merges = self.operations().flatten().filter(|op| op.kind == OpKind::Merge);
        merges.map(|op| op.key)
    }
}

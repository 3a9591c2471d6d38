//! Merging operands into keys.

use trommel_base::SeqNo;

use super::Db;
use crate::batch::OpKind;
use crate::error::Result;
use crate::keyspaces::Part;
use crate::options::WriteOptions;

impl Db {
    /// Merges `operand` into `key`: from then on the key has the value that the store's
    /// [`merge_operator`](crate::settings::WriteSettings::merge_operator) computes from the
    /// previous value and the operand. Returns the sequence number of the write.
    ///
    /// It reads nothing, and costs as much as [`Db::put`]: the operator is called when the key is
    /// read, flushed or compacted. Reads apply all operands since the last flush, so a key that is
    /// often merged into, and rarely flushed, takes longer to read. Many threads may merge into one
    /// key at once; each operand is applied once, in the order of the sequence numbers.
    ///
    /// # Errors
    /// As [`Db::put`]; [`Error::Merge`](crate::Error::Merge) if the store was opened without a
    /// merge operator. An operand that the operator cannot apply is found when the key is read.
    ///
    /// ```
    /// use trommel::{Db, Merge, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().writes(|w| w.merge_operator(Merge::counter()));
    /// let db = Db::open(dir.path(), options)?;
    /// db.merge("visits", 1_u64.to_le_bytes())?;
    /// db.merge("visits", 1_u64.to_le_bytes())?;
    /// assert_eq!(db.get("visits")?.unwrap(), 2_u64.to_le_bytes());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.merge_with(key, operand, WriteOptions::default())
    }

    /// As [`Db::merge`], with write options.
    ///
    /// # Errors
    /// As [`Db::merge`].
    ///
    /// ```
    /// use trommel::{Db, Merge, Options, WriteOptions};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().writes(|w| w.merge_operator(Merge::max()));
    /// let db = Db::open(dir.path(), options)?;
    /// db.merge_with("highest", [7], WriteOptions::sync())?; // on the device when it returns
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        options: WriteOptions,
    ) -> Result<SeqNo> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.engine().write_in(Part::Default, OpKind::Merge, key, operand, options)
    }
}

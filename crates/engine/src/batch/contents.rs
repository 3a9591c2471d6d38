//! Reads back the operations of a [`WriteBatch`], refused ones included.

use std::fmt;
use std::iter::Peekable;
use std::slice;

use super::mapped::without_header;
use super::{BatchOperations, MAX_BATCH_BYTES, OpKind, Operation, WriteBatch, check_sizes_of};
use crate::error::Error;

/// An operation of a [`WriteBatch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchOp<'a> {
    /// Sets `key` to `value`.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// Deletes `key`.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Merges `operand` into `key`: see [`WriteBatch::merge`].
    Merge {
        /// The key.
        key: &'a [u8],
        /// The operand, which the merge operator applies to the key's value.
        operand: &'a [u8],
    },
    /// Deletes the keys in `from..to`.
    DeleteRange {
        /// The first key of the range.
        from: &'a [u8],
        /// The first key after it; `None` if the range has no end.
        to: Option<&'a [u8]>,
    },
    /// States that the writes after it, up to the next mark, were made no later than `until`. Only
    /// in logs of stores whose entries expire, never in a [`WriteBatch`].
    TimeMark {
        /// Milliseconds since 1970.
        until: u64,
    },
    /// An operation above a limit. Its bytes were not copied, and the batch cannot be written.
    Refused(RefusedOperation),
}

/// An operation that makes a [`WriteBatch`] unwritable: its key, its value or the batch is too
/// long.
///
/// ```
/// use trommel::{Error, WriteBatch};
/// let mut batch = WriteBatch::new();
/// batch.put("a", "1").put(vec![0; 70_000], "2");
/// let refused = batch.check().unwrap_err();
/// assert_eq!((refused.index, refused.key_bytes, refused.value_bytes), (1, 70_000, 1));
/// assert!(matches!(Error::from(refused), Error::KeyTooLong { bytes: 70_000 }));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedOperation {
    /// Number of operations before it in the batch.
    pub index: usize,
    /// Length of its key, in bytes.
    pub key_bytes: usize,
    /// Length of its value, in bytes; 0 for a delete.
    pub value_bytes: usize,
    /// Encoded size that the batch would have with it, in bytes.
    pub batch_bytes: usize,
}

impl From<RefusedOperation> for Error {
    fn from(refused: RefusedOperation) -> Self {
        let RefusedOperation { key_bytes, value_bytes, batch_bytes, .. } = refused;
        let too_large = Self::BatchTooLarge { bytes: batch_bytes, limit: MAX_BATCH_BYTES };
        check_sizes_of(key_bytes, value_bytes).err().unwrap_or(too_large)
    }
}

impl fmt::Display for RefusedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, key_bytes, value_bytes, .. } = *self;
        write!(
            f,
            "operation {index} of the batch (counted from 0; key of {key_bytes} bytes, value of \
             {value_bytes} bytes) cannot be written: {}",
            Error::from(*self)
        )
    }
}

impl std::error::Error for RefusedOperation {}

/// The operations of a [`WriteBatch`] in the order they were added: see [`WriteBatch::iter`].
#[derive(Debug, Clone)]
pub struct BatchIter<'a> {
    written: BatchOperations<'a>,
    refused: Peekable<slice::Iter<'a, RefusedOperation>>,
    /// Operations yielded so far.
    index: usize,
}

impl<'a> BatchIter<'a> {
    /// Calls `take` with the operations, whose keys are as they are encoded.
    pub(super) fn for_each_encoded(mut self, mut take: impl FnMut(BatchOp<'a>)) {
        while let Some(operation) = self.next_encoded() {
            take(operation);
        }
    }

    fn next_encoded(&mut self) -> Option<BatchOp<'a>> {
        let index = self.index;
        self.index += 1;
        if let Some(refused) = self.refused.next_if(|refused| refused.index == index) {
            return Some(BatchOp::Refused(*refused));
        }
        // The batch has encoded them itself, so every operation is there.
        Some(self.written.next()??.into())
    }
}

impl<'a> Iterator for BatchIter<'a> {
    type Item = BatchOp<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_encoded().map(|operation| match operation {
            BatchOp::Put { key, value } => BatchOp::Put { key: without_header(key), value },
            BatchOp::Delete { key } => BatchOp::Delete { key: without_header(key) },
            BatchOp::DeleteRange { from, to } => {
                BatchOp::DeleteRange { from: without_header(from), to: to.map(without_header) }
            }
            other => other,
        })
    }
}

impl<'a> From<Operation<'a>> for BatchOp<'a> {
    fn from(operation: Operation<'a>) -> Self {
        let Operation { kind, key, value } = operation;
        match kind {
            OpKind::Put => BatchOp::Put { key, value },
            OpKind::Delete => BatchOp::Delete { key },
            OpKind::Merge => BatchOp::Merge { key, operand: value },
            OpKind::RangeDelete => BatchOp::DeleteRange { from: key, to: Some(value) },
            OpKind::RangeDeleteFrom => BatchOp::DeleteRange { from: key, to: None },
            OpKind::TimeMark => {
                BatchOp::TimeMark { until: operation.marked_time().unwrap_or_default() }
            }
        }
    }
}

impl WriteBatch {
    /// Iterates over the operations in the order they were added: as many as [`WriteBatch::len`]
    /// counts. A key of a named keyspace is preceded by the 8 bytes with which it is stored: four
    /// of `FF`, and the number of the keyspace.
    ///
    /// ```
    /// use trommel::{BatchOp, WriteBatch};
    /// let mut batch = WriteBatch::new();
    /// batch.put("a", "1").delete("b");
    /// let operations: Vec<_> = batch.iter().collect();
    /// assert_eq!(operations[0], BatchOp::Put { key: b"a", value: b"1" });
    /// assert_eq!(operations[1], BatchOp::Delete { key: b"b" });
    /// ```
    pub fn iter(&self) -> BatchIter<'_> {
        let written = self.operations();
        BatchIter { written, refused: self.refused.iter().peekable(), index: 0 }
    }

    /// Whether the sizes of the batch allow writing it.
    ///
    /// # Errors
    /// The first operation above a limit. [`Db::write`](crate::Db::write) then refuses the batch
    /// with the [`Error`] that the refusal converts into.
    pub fn check(&self) -> Result<(), RefusedOperation> {
        self.refused.first().map_or(Ok(()), |refused| Err(*refused))
    }
}

impl<'a> IntoIterator for &'a WriteBatch {
    type Item = BatchOp<'a>;
    type IntoIter = BatchIter<'a>;

    fn into_iter(self) -> BatchIter<'a> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

    const FINE: &[u8] = b"fine";

    fn shape(batch: &WriteBatch) -> String {
        let letter = |op| match op {
            BatchOp::Put { .. } => 'p',
            BatchOp::Delete { .. } => 'd',
            BatchOp::Merge { .. } => 'm',
            BatchOp::DeleteRange { .. } => 'r',
            BatchOp::TimeMark { .. } => 't',
            BatchOp::Refused(_) => '!',
        };
        batch.iter().map(letter).collect()
    }

    /// Regression: a put whose key was too long was left out of `len` and `iter`.
    #[test]
    fn no_operation_is_skipped_however_wrong_it_is() {
        let long = vec![7; MAX_KEY_BYTES + 1];
        let mut batch = WriteBatch::new();
        batch.put(&long, "v");
        assert_eq!((batch.len(), batch.is_empty(), shape(&batch)), (1, false, "!".into()));
        batch.put(FINE, "1").delete(&long).delete(FINE);
        assert_eq!((batch.len(), shape(&batch)), (4, "!p!d".into()));
        let refused = batch.check().unwrap_err();
        assert_eq!((refused.index, refused.key_bytes, refused.value_bytes), (0, 65_536, 1));
        let text = refused.to_string();
        assert!(
            text.starts_with("operation 0 of the batch (counted from 0; key of 65536"),
            "{text}"
        );
        let mut joined = WriteBatch::new();
        joined.put(FINE, "0").append(&batch).put(FINE, "2");
        assert_eq!((joined.len(), shape(&joined)), (6, "p!p!dp".into()));
        assert_eq!(joined.check().unwrap_err().index, 1);
        joined.clear();
        assert_eq!((joined.len(), shape(&joined), joined.check()), (0, String::new(), Ok(())));
    }

    /// The zeros are never touched, so they take no memory.
    #[test]
    fn operations_beyond_the_batch_limit_are_counted() {
        let huge = vec![0; MAX_VALUE_BYTES];
        let mut batch = WriteBatch::new();
        batch.put("a", vec![1; MAX_BATCH_BYTES - MAX_VALUE_BYTES]).put("b", &huge).delete("c");
        assert_eq!((batch.len(), shape(&batch)), (3, "p!d".into()));
        let refused = batch.check().unwrap_err();
        assert!(refused.batch_bytes > MAX_BATCH_BYTES && refused.index == 1, "{refused:?}");
        assert!(matches!(Error::from(refused), Error::BatchTooLarge { .. }));
        let mut other = WriteBatch::new();
        let too_long = vec![0; MAX_VALUE_BYTES + 1];
        other.put("d", &too_long);
        let refused = other.check().unwrap_err();
        assert!(matches!(Error::from(refused), Error::ValueTooLong { bytes: 1_073_741_825 }));
        batch.append(&other);
        assert_eq!((batch.len(), shape(&batch)), (4, "p!d!".into()));
    }
}

//! Writes that take effect together or not at all.
//!
//! A batch is kept in the encoding of the log, so committing it copies bytes and decodes nothing: a
//! count, then each operation as `kind, varint key length, [varint value length,] key, [value]`.
//! The format is part of `docs/format/log.md`. A single operation is encoded only into the log's
//! own buffer, or when its writer has to wait.

mod conditions;
mod contents;
mod mapped;
mod merging;

use std::borrow::Cow;

use trommel_base::codec::{put_u32, varint_by_byte};
use trommel_base::{
    Decoder, EntryKind, MAX_KEY_BYTES, MAX_VALUE_BYTES, RANGE_DELETE, RANGE_DELETE_FROM, SeqNo,
    TIME_MARK,
};

pub(crate) use conditions::Condition;
pub use contents::{BatchIter, BatchOp, RefusedOperation};
use mapped::BatchMapping;
pub(crate) use mapped::add_once;

use crate::error::{Error, Result};
use crate::ranges::RangeTombstone;

/// Largest encoded batch, in bytes: one value of the largest size and some headroom.
pub const MAX_BATCH_BYTES: usize = MAX_VALUE_BYTES + (64 << 20);
/// Bytes of the operation count at the head of an encoded batch.
const COUNT_BYTES: usize = 4;

/// Puts, merges and deletes, also of whole ranges, that become visible together, and durable
/// together or not at all. A batch may have conditions ([`WriteBatch::expect_absent`]). The
/// operations are on the default keyspace; those of [`WriteBatch::keyspace`] are on another.
///
/// An operation above a size limit is not dropped: it makes the whole batch unwritable.
/// [`WriteBatch::len`] counts it, [`WriteBatch::iter`] yields it, [`WriteBatch::check`] names it,
/// and [`Db::write`](crate::Db::write) returns an error and writes nothing.
///
/// ```
/// let mut batch = trommel::WriteBatch::new();
/// batch.put(b"from", b"90").put(b"to", b"110").delete(b"pending");
/// assert_eq!(batch.len(), 3);
/// ```
#[derive(Debug, Clone)]
pub struct WriteBatch {
    encoded: Vec<u8>,
    /// Operations in `encoded`.
    count: u32,
    /// Bytes of keys and values in `encoded`.
    user_bytes: u64,
    /// Operations above a limit; their bytes are not stored. If there are any, the batch cannot be
    /// written.
    refused: Vec<RefusedOperation>,
    conditions: Vec<Condition>,
    /// How the batch depends on the keyspaces of its store.
    mapping: BatchMapping,
    /// Whether an operation is a merge.
    has_operands: bool,
}

impl Default for WriteBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteBatch {
    /// An empty batch.
    ///
    /// ```
    /// let batch = trommel::WriteBatch::new();
    /// assert!(batch.is_empty());
    /// ```
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// An empty batch with room for about `bytes` of keys and values.
    ///
    /// ```
    /// let mut batch = trommel::WriteBatch::with_capacity(1 << 20);
    /// batch.put("key", "value");
    /// ```
    pub fn with_capacity(bytes: usize) -> Self {
        let mut encoded = Vec::with_capacity(COUNT_BYTES + bytes);
        put_u32(&mut encoded, 0);
        Self {
            encoded,
            count: 0,
            user_bytes: 0,
            refused: Vec::new(),
            conditions: Vec::new(),
            mapping: BatchMapping::default(),
            has_operands: false,
        }
    }

    /// Sets `key` to `value`. Later operations of a batch win over earlier ones.
    ///
    /// A key above 65,535 bytes, a value above 1 GiB, or growth beyond [`MAX_BATCH_BYTES`] makes
    /// the write of the whole batch fail before anything is changed; [`WriteBatch::check`] reports
    /// it earlier.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// let mut batch = trommel::WriteBatch::new();
    /// batch.put("a", "1").put("a", "2");
    /// db.write(&batch)?;
    /// assert_eq!(db.get("a")?.unwrap(), b"2");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.push_default(OpKind::Put, key.as_ref(), value.as_ref())
    }

    /// Deletes `key`, whether or not it exists.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = trommel::Db::open(dir.path(), Default::default())?;
    /// db.put("a", "1")?;
    /// let mut batch = trommel::WriteBatch::new();
    /// batch.delete("a").put("b", "1");
    /// db.write(&batch)?;
    /// assert!(!db.contains_key("a")? && db.contains_key("b")?);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push_default(OpKind::Delete, key.as_ref(), &[])
    }

    /// As `push`, for operations that are rarer than puts and deletes of one key.
    #[cold]
    #[inline(never)]
    fn push_rare(&mut self, kind: OpKind, key: &[u8], value: &[u8]) -> &mut Self {
        self.push(kind, key, value)
    }

    #[inline(always)]
    fn push(&mut self, kind: OpKind, key: &[u8], value: &[u8]) -> &mut Self {
        let batch_bytes = self.encoded.len() + key.len() + value.len() + 11;
        let fits = batch_bytes <= MAX_BATCH_BYTES && self.count < u32::MAX;
        if !fits || kind.check_sizes(key, value).is_err() {
            let (key_bytes, value_bytes) = (key.len(), value.len());
            self.refuse(RefusedOperation { index: 0, key_bytes, value_bytes, batch_bytes });
            return self;
        }
        Operation { kind, key, value }.encode(&mut self.encoded);
        self.set_count(self.count + 1);
        self.user_bytes += (key.len() + value.len()) as u64;
        self
    }

    /// Adds an operation that cannot be written, and sets its index.
    #[cold]
    fn refuse(&mut self, refused: RefusedOperation) {
        let index = self.len();
        self.refused.push(RefusedOperation { index, ..refused });
    }

    fn set_count(&mut self, count: u32) {
        self.count = count;
        self.encoded[..COUNT_BYTES].copy_from_slice(&count.to_le_bytes());
    }

    fn push_again(&mut self, operation: BatchOp<'_>) {
        match operation {
            BatchOp::Put { key, value } => _ = self.push_rare(OpKind::Put, key, value),
            BatchOp::Delete { key } => _ = self.push_rare(OpKind::Delete, key, &[]),
            BatchOp::Merge { key, operand } => _ = self.merge(key, operand),
            BatchOp::DeleteRange { from, to: Some(to) } => {
                _ = self.push_rare(OpKind::RangeDelete, from, to);
            }
            BatchOp::DeleteRange { from, to: None } => {
                _ = self.push_rare(OpKind::RangeDeleteFrom, from, &[]);
            }
            BatchOp::TimeMark { .. } => {}
            BatchOp::Refused(refused) => self.refuse(refused),
        }
    }

    /// Removes all operations and conditions, and keeps the memory for reuse.
    ///
    /// ```
    /// let mut batch = trommel::WriteBatch::new();
    /// batch.put("key", "value");
    /// batch.clear();
    /// assert!(batch.is_empty());
    /// ```
    pub fn clear(&mut self) {
        self.encoded.truncate(COUNT_BYTES);
        self.set_count(0);
        self.user_bytes = 0;
        self.refused.clear();
        self.conditions.clear();
        self.mapping = BatchMapping::default();
        self.has_operands = false;
    }

    /// Number of operations added since the batch was created or cleared, refused ones included.
    ///
    /// ```
    /// let mut batch = trommel::WriteBatch::new();
    /// batch.put("a", "1").delete("b");
    /// assert_eq!(batch.len(), 2);
    /// ```
    pub fn len(&self) -> usize {
        self.count as usize + self.refused.len()
    }

    /// Whether the batch has no operations.
    ///
    /// ```
    /// assert!(trommel::WriteBatch::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Encoded size in bytes, without the log's framing.
    ///
    /// ```
    /// let mut batch = trommel::WriteBatch::new();
    /// batch.put("key", "value");
    /// assert!(batch.encoded_bytes() > "keyvalue".len());
    /// ```
    pub fn encoded_bytes(&self) -> usize {
        self.encoded.len()
    }

    /// The batch as the log stores it.
    pub(crate) fn seal(&self) -> Result<SealedBatch<'_>> {
        self.check()?;
        Ok(SealedBatch {
            encoded: Cow::Borrowed(&self.encoded),
            count: self.count,
            user_bytes: self.user_bytes,
        })
    }

    /// The operations that were not refused.
    fn operations(&self) -> BatchOperations<'_> {
        BatchOperations::written(&self.encoded, self.count)
    }
}

impl AsRef<WriteBatch> for WriteBatch {
    fn as_ref(&self) -> &WriteBatch {
        self
    }
}

#[inline]
fn check_sizes_of(key_bytes: usize, value_bytes: usize) -> Result<()> {
    if key_bytes > MAX_KEY_BYTES {
        return Err(Error::KeyTooLong { bytes: key_bytes });
    }
    if value_bytes > MAX_VALUE_BYTES {
        return Err(Error::ValueTooLong { bytes: value_bytes });
    }
    Ok(())
}

/// The kind of an operation. The numbers are part of the log's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum OpKind {
    Delete = EntryKind::Delete as u8,
    Put = EntryKind::Put as u8,
    /// Its value is an operand for the merge operator.
    Merge = EntryKind::Merge as u8,
    /// Deletes the keys from the operation's key on, up to its value.
    RangeDelete = RANGE_DELETE,
    /// Deletes the keys from the operation's key on.
    RangeDeleteFrom = RANGE_DELETE_FROM,
    /// The latest time of the writes after it, which is its key. Only the engine writes it.
    TimeMark = TIME_MARK,
}

/// Kind number of a merge.
const MERGE: u8 = EntryKind::Merge as u8;

/// Longest bound of a range: the longest key and a zero byte, the first key after that key.
pub(crate) const MAX_BOUND_BYTES: usize = MAX_KEY_BYTES + 1;

impl OpKind {
    /// The kind of the entry that the operation writes, if it writes one.
    #[inline]
    pub(crate) fn entry(self) -> Option<EntryKind> {
        match self {
            Self::Delete => Some(EntryKind::Delete),
            Self::Put => Some(EntryKind::Put),
            Self::Merge => Some(EntryKind::Merge),
            Self::RangeDelete | Self::RangeDeleteFrom | Self::TimeMark => None,
        }
    }

    #[inline]
    fn has_value(self) -> bool {
        matches!(self, Self::Put | Self::Merge | Self::RangeDelete)
    }

    #[inline]
    fn check_sizes(self, key: &[u8], value: &[u8]) -> Result<()> {
        match self {
            Self::Delete | Self::Put | Self::Merge => check_sizes_of(key.len(), value.len()),
            Self::RangeDelete | Self::RangeDeleteFrom | Self::TimeMark => {
                let bytes = key.len().max(value.len());
                if bytes > MAX_BOUND_BYTES { Err(Error::KeyTooLong { bytes }) } else { Ok(()) }
            }
        }
    }
}

/// Most bytes before an operation's key: its kind and two varint lengths.
const HEAD_BYTES_MAX: usize = 16;

/// Operations that are written together.
#[derive(Debug)]
pub(crate) enum Batch<'a> {
    /// A single operation, borrowed from the caller.
    One(Operation<'a>),
    /// Any number of operations, as the log stores them.
    Sealed(SealedBatch<'a>),
}

impl<'a> Batch<'a> {
    /// One operation, if its sizes are within bounds.
    #[inline]
    pub(crate) fn one(kind: OpKind, key: &'a [u8], value: &'a [u8]) -> Result<Self> {
        kind.check_sizes(key, value)?;
        Ok(Self::One(Operation { kind, key, value }))
    }

    /// An owned copy, for a writer that waits while another thread reads the batch.
    pub(crate) fn into_owned(self) -> Batch<'static> {
        Batch::Sealed(match self {
            Self::One(operation) => SealedBatch::single(operation),
            Self::Sealed(batch) => batch.into_owned(),
        })
    }

    /// Number of operations.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        match self {
            Self::One(_) => 1,
            Self::Sealed(batch) => batch.count,
        }
    }

    /// Bytes of its keys and values.
    #[inline]
    pub(crate) fn user_bytes(&self) -> u64 {
        match self {
            Self::One(operation) => operation.user_bytes(),
            Self::Sealed(batch) => batch.user_bytes,
        }
    }

    /// Calls `take` with each of its operations, in order.
    #[inline]
    pub(crate) fn for_each<'b>(&'b self, mut take: impl FnMut(Operation<'b>)) {
        match self {
            Self::One(operation) => take(*operation),
            Self::Sealed(batch) => {
                for operation in batch.operations().flatten() {
                    take(operation);
                }
            }
        }
    }

    /// Calls `take` with its first `most` operations, in order.
    #[inline]
    pub(crate) fn for_first(&self, most: usize, mut take: impl FnMut(Operation<'_>)) {
        match self {
            Self::One(operation) => take(*operation),
            Self::Sealed(batch) => batch.operations().flatten().take(most).for_each(take),
        }
    }

    /// Bytes of the batch as the log stores it.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::One(operation) => operation.sealed_bytes(),
            Self::Sealed(batch) => batch.encoded.len(),
        }
    }

    /// Passes the batch to `take` as the log stores it, in chunks.
    #[inline]
    pub(crate) fn encoded<T>(&self, take: impl FnOnce(&[&[u8]]) -> T) -> T {
        match self {
            Self::One(operation) => {
                let (mut head, mut len) = ([0; COUNT_BYTES + HEAD_BYTES_MAX], COUNT_BYTES);
                head[..COUNT_BYTES].copy_from_slice(&1_u32.to_le_bytes());
                operation.put_head(|byte| {
                    head[len] = byte;
                    len += 1;
                });
                take(&[&head[..len], operation.key, operation.value])
            }
            Self::Sealed(batch) => take(&[&batch.encoded]),
        }
    }
}

/// A batch whose sizes have all been checked, ready for the log.
#[derive(Debug)]
pub(crate) struct SealedBatch<'a> {
    encoded: Cow<'a, [u8]>,
    count: u32,
    user_bytes: u64,
}

impl SealedBatch<'_> {
    /// A batch of one operation.
    fn single(operation: Operation<'_>) -> SealedBatch<'static> {
        let mut encoded = Vec::with_capacity(operation.sealed_bytes());
        put_u32(&mut encoded, 1);
        operation.encode(&mut encoded);
        SealedBatch { encoded: encoded.into(), count: 1, user_bytes: operation.user_bytes() }
    }

    fn into_owned(self) -> SealedBatch<'static> {
        SealedBatch { encoded: self.encoded.into_owned().into(), ..self }
    }

    fn operations(&self) -> BatchOperations<'_> {
        BatchOperations::written(&self.encoded, self.count)
    }
}

/// One operation of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation<'a> {
    pub(crate) kind: OpKind,
    /// The key, or the first key of a range.
    pub(crate) key: &'a [u8],
    /// The value or operand; the end of a range that has one.
    pub(crate) value: &'a [u8],
}

impl Operation<'_> {
    /// The tombstone that this operation writes at `seqno`, if it deletes a range.
    pub(crate) fn range_tombstone(&self, seqno: SeqNo) -> Option<RangeTombstone> {
        match self.kind {
            OpKind::RangeDelete => Some(RangeTombstone::new(self.key, Some(self.value), seqno)),
            OpKind::RangeDeleteFrom => Some(RangeTombstone::new(self.key, None, seqno)),
            OpKind::Delete | OpKind::Put | OpKind::Merge | OpKind::TimeMark => None,
        }
    }

    /// The time of a time mark, in milliseconds since 1970.
    pub(crate) fn marked_time(&self) -> Option<u64> {
        let bytes = <[u8; 8]>::try_from(self.key).ok()?;
        (self.kind == OpKind::TimeMark).then(|| u64::from_le_bytes(bytes))
    }

    /// Writes the bytes before the key.
    #[inline]
    fn put_head(&self, mut put: impl FnMut(u8)) {
        put(self.kind as u8);
        varint_by_byte(&mut put, self.key.len() as u64);
        if self.kind.has_value() {
            varint_by_byte(&mut put, self.value.len() as u64);
        }
    }

    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.put_head(|byte| out.push(byte));
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
    }

    /// Bytes of its key and value.
    fn user_bytes(&self) -> u64 {
        (self.key.len() + self.value.len()) as u64
    }

    /// Encoded bytes of a batch that holds only this operation.
    fn sealed_bytes(&self) -> usize {
        let mut head_bytes = 0;
        self.put_head(|_| head_bytes += 1);
        COUNT_BYTES + head_bytes + self.key.len() + self.value.len()
    }
}

/// The operations of an encoded batch, in order. Never panics on bytes from a log: yields `None`
/// where the batch cannot have been written by a [`WriteBatch`].
#[derive(Debug, Clone)]
pub(crate) struct BatchOperations<'a> {
    rest: Decoder<'a>,
    left: u32,
}

impl<'a> BatchOperations<'a> {
    /// Reads the count of a batch that came from a log.
    pub(crate) fn decode(encoded: &'a [u8]) -> Option<Self> {
        let mut rest = Decoder::new(encoded);
        let left = rest.u32()?;
        Some(Self { rest, left })
    }

    /// Operations of our own encoding, whose count is known.
    #[inline]
    fn written(encoded: &'a [u8], count: u32) -> Self {
        Self { rest: Decoder::new(&encoded[COUNT_BYTES..]), left: count }
    }

    #[inline]
    fn operation(&mut self) -> Option<Operation<'a>> {
        let kind = match self.rest.u8()? {
            0 => OpKind::Delete,
            1 => OpKind::Put,
            number => return self.other_operation(number),
        };
        let key_bytes = self.rest.length(MAX_KEY_BYTES)?;
        let value_bytes = if kind == OpKind::Put { self.rest.length(MAX_VALUE_BYTES)? } else { 0 };
        let key = self.rest.take(key_bytes)?;
        let value = self.rest.take(value_bytes)?;
        Some(Operation { kind, key, value })
    }

    /// The rest of an operation with this kind number, which is neither a put nor a delete of one
    /// key.
    #[cold]
    #[inline(never)]
    fn other_operation(&mut self, number: u8) -> Option<Operation<'a>> {
        let kind = match number {
            RANGE_DELETE => OpKind::RangeDelete,
            RANGE_DELETE_FROM => OpKind::RangeDeleteFrom,
            TIME_MARK => OpKind::TimeMark,
            MERGE => OpKind::Merge,
            _ => return None,
        };
        let most = if kind == OpKind::Merge { MAX_KEY_BYTES } else { MAX_BOUND_BYTES };
        let key_bytes = self.rest.length(most)?;
        let value_bytes = match kind {
            OpKind::Merge => self.rest.length(MAX_VALUE_BYTES)?,
            OpKind::RangeDelete => self.rest.length(MAX_BOUND_BYTES)?,
            _ => 0,
        };
        let key = self.rest.take(key_bytes)?;
        let value = self.rest.take(value_bytes)?;
        let is_valid = match kind {
            OpKind::RangeDelete => key < value,
            OpKind::TimeMark => key.len() == size_of::<u64>(),
            _ => true,
        };
        is_valid.then_some(Operation { kind, key, value })
    }
}

impl<'a> Iterator for BatchOperations<'a> {
    /// The inner `None` means that the bytes are not a batch.
    type Item = Option<Operation<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return (!self.rest.is_empty()).then(|| {
                self.rest = Decoder::new(&[]);
                None
            });
        }
        let operation = self.operation();
        self.left = if operation.is_some() { self.left - 1 } else { 0 };
        if operation.is_none() {
            self.rest = Decoder::new(&[]);
        }
        Some(operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Owned = (OpKind, Vec<u8>, Vec<u8>);

    fn decode(bytes: &[u8]) -> Option<Vec<Owned>> {
        BatchOperations::decode(bytes)?
            .map(|op| op.map(|op| (op.kind, op.key.to_vec(), op.value.to_vec())))
            .collect()
    }

    #[test]
    fn a_batch_comes_back_from_its_encoding() {
        let mut batch = WriteBatch::new();
        batch.put(b"", b"").put(b"k", vec![7; 300]).delete(b"gone");
        batch.delete_range("a".."c").delete_range("d"..).merge("m", "by");
        let sealed = batch.seal().unwrap();
        let expected = vec![
            (OpKind::Put, vec![], vec![]),
            (OpKind::Put, b"k".to_vec(), vec![7; 300]),
            (OpKind::Delete, b"gone".to_vec(), vec![]),
            (OpKind::RangeDelete, b"a".to_vec(), b"c".to_vec()),
            (OpKind::RangeDeleteFrom, b"d".to_vec(), vec![]),
            (OpKind::Merge, b"m".to_vec(), b"by".to_vec()),
        ];
        assert_eq!(decode(&sealed.encoded), Some(expected));
        assert_eq!(sealed.count, 6);
        for len in 0..sealed.encoded.len() {
            assert_eq!(decode(&sealed.encoded[..len]), None, "cut to {len}");
        }
        let mut longer = sealed.encoded.to_vec();
        longer.push(0);
        assert_eq!(decode(&longer), None, "a byte too many");
        batch.clear();
        assert!(batch.is_empty());
        assert_eq!(decode(&batch.seal().unwrap().encoded), Some(vec![]));
    }

    fn operations(batch: &Batch<'_>) -> Vec<Owned> {
        let mut listed = Vec::new();
        batch.for_each(|op| listed.push((op.kind, op.key.to_vec(), op.value.to_vec())));
        let mut first = Vec::new();
        batch.for_first(2, |op| first.push((op.kind, op.key.to_vec(), op.value.to_vec())));
        assert_eq!(first, listed[..listed.len().min(2)]);
        listed
    }

    /// A put and a batch of only that put have the same encoding, whether or not the writer waited.
    #[test]
    fn one_operation_is_encoded_as_a_batch_of_it_is() {
        let long = vec![7; 70_000];
        let lengths = [0, 1, 127, 128, 16_383, 16_384, MAX_KEY_BYTES];
        for (key, value) in lengths.iter().flat_map(|key| lengths.map(|value| (*key, value))) {
            let (key, value) = (&long[..key], &long[..value]);
            let kinds = [(OpKind::Put, value), (OpKind::Delete, &[][..]), (OpKind::Merge, value)];
            for (kind, value) in kinds {
                let mut batch = WriteBatch::new();
                batch.push(kind, key, value);
                let sealed = batch.seal().unwrap().encoded;
                let one = Batch::one(kind, key, value).unwrap();
                assert_eq!(one.encoded(|pieces| pieces.concat()), *sealed);
                assert_eq!(one.bytes(), sealed.len());
                let expected = [(kind, key.to_vec(), value.to_vec())];
                assert_eq!(operations(&one), expected);
                let one_bytes = one.user_bytes();
                let owned = one.into_owned();
                assert_eq!(owned.encoded(|pieces| pieces.concat()), *sealed);
                assert_eq!((owned.count(), owned.bytes()), (1, sealed.len()));
                assert_eq!(owned.user_bytes(), (key.len() + value.len()) as u64);
                assert_eq!(one_bytes, owned.user_bytes());
                assert_eq!(operations(&owned), expected);
            }
        }
    }

    /// The zeros are never touched, so they take no memory.
    #[test]
    fn sizes_are_taken_up_to_their_bounds_and_not_beyond() {
        let (key, value) = (vec![0; MAX_KEY_BYTES + 1], vec![0; MAX_VALUE_BYTES + 1]);
        let judge = |key_bytes: usize, value_bytes: usize| {
            OpKind::Put.check_sizes(&key[..key_bytes], &value[..value_bytes])
        };
        assert!(judge(MAX_KEY_BYTES, MAX_VALUE_BYTES).is_ok() && judge(0, 0).is_ok());
        let refused = judge(MAX_KEY_BYTES + 1, 0);
        assert!(matches!(refused, Err(Error::KeyTooLong { bytes: 65_536 })), "{refused:?}");
        let refused = judge(0, MAX_VALUE_BYTES + 1);
        assert!(matches!(refused, Err(Error::ValueTooLong { bytes: 1_073_741_825 })));
        let mut batch = WriteBatch::new();
        batch.put("a", vec![1; MAX_BATCH_BYTES - MAX_VALUE_BYTES]).put("b", &value[1..]);
        assert!(matches!(batch.seal(), Err(Error::BatchTooLarge { .. })));
    }

    #[test]
    fn batches_are_joined_and_used_again() {
        let mut joined = WriteBatch::new();
        let mut part = WriteBatch::new();
        part.put("a", "1").delete("b");
        joined.append(&part).append(&part).append(&WriteBatch::new());
        part.clear();
        part.put("c", "23");
        joined.append(&part);
        let mut plain = WriteBatch::new();
        plain.put("a", "1").delete("b").put("a", "1").delete("b").put("c", "23");
        let (joined, plain) = (Batch::Sealed(joined.seal().unwrap()), plain.seal().unwrap());
        assert_eq!((joined.count(), joined.user_bytes()), (5, plain.user_bytes));
        assert_eq!(joined.encoded(|pieces| pieces.concat()), *plain.encoded);
        let owned = joined.into_owned();
        assert_eq!(owned.encoded(|pieces| pieces.concat()), *plain.encoded);
        let mut wrong = WriteBatch::new();
        wrong.put(vec![0; MAX_KEY_BYTES + 1], "");
        assert!(matches!(part.append(&wrong).seal(), Err(Error::KeyTooLong { .. })));
        part.clear();
        assert_eq!(decode(&part.seal().unwrap().encoded), Some(vec![]));
    }

    #[test]
    fn a_key_too_long_fails_the_whole_batch() {
        let mut batch = WriteBatch::new();
        batch.put(b"fine", b"1").put(vec![0; MAX_KEY_BYTES + 1], b"2").put(b"also fine", b"3");
        assert!(matches!(batch.seal(), Err(Error::KeyTooLong { bytes }) if bytes == 65_536));
        assert!(Batch::one(OpKind::Put, &vec![0; MAX_KEY_BYTES], b"").is_ok());
    }
}

//! Records that can still be verified behind the damage of a log.
//!
//! Every offset behind the last good record is tried: a record is believed if the checksums of its
//! header and of its payload hold, which are bound to the file and to the offset, so that bytes
//! inside a value are no record. That the record before it was the one it names is not asked: that
//! one is lost, or was lost before it.
//!
//! A repair reports these, and takes them if it is asked to.

use super::format::{KIND_DATA, RECORD_HEADER_BYTES, RECORD_MAGIC, RECORD_TRAILER};
use super::framing::{Binding, RecordHeader};
use super::mask;
use super::reader::LogImage;

/// A record behind damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordBehind {
    /// Where in the file it begins.
    pub(crate) offset: u64,
    /// Its first sequence number.
    pub(crate) first_seqno: u64,
    /// What was appended.
    pub(crate) payload: Vec<u8>,
}

impl LogImage {
    /// The records behind the last good one that can be verified by themselves, in file order.
    pub(crate) fn records_behind(&self) -> Vec<RecordBehind> {
        let Some(header) = self.summary().header else { return Vec::new() };
        let binding = Binding::new(&header);
        let (start, rest) = self.rest();
        let (mut found, mut from) = (Vec::new(), 0);
        while let Some(skip) =
            rest.get(from..).and_then(|rest| rest.iter().position(|byte| *byte == RECORD_MAGIC))
        {
            let at = from + skip;
            match record_at(&rest[at..], &binding, start + at as u64) {
                Some((record, bytes)) => {
                    found.extend(record);
                    from = at + bytes;
                }
                None => from = at + 1,
            }
        }
        found
    }
}

/// The record that `bytes`, which stand at `offset`, begin with, if it holds data, and its length.
fn record_at(
    bytes: &[u8],
    binding: &Binding,
    offset: u64,
) -> Option<(Option<RecordBehind>, usize)> {
    let header = RecordHeader::decode(bytes, binding, offset)?;
    let end = RECORD_HEADER_BYTES.checked_add(usize::try_from(header.payload_bytes).ok()?)?;
    let stored = bytes.get(RECORD_HEADER_BYTES..end)?;
    let is_whole = bytes.get(end) == Some(&RECORD_TRAILER)
        && header.payload_checksum == binding.at(offset).with(stored).value();
    if !is_whole {
        return None;
    }
    let record = (header.kind == KIND_DATA).then(|| {
        let mut payload = stored.to_vec();
        mask::apply(&mut payload, binding.salt(), offset, header.mask);
        RecordBehind { offset, first_seqno: header.first_seqno, payload }
    });
    Some((record, end + 1))
}

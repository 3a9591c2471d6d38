//! Records after corruption in a log that can still be verified.
//!
//! Tries every offset after the last good record. A record is accepted if the checksums of its
//! header and its payload hold; they are bound to the file and the offset, so bytes inside a value
//! never look like a record. Its predecessor is not checked, as that one is lost or follows a lost
//! one.
//!
//! A repair reports these records, and replays them on request.

use super::format::{KIND_DATA, RECORD_HEADER_BYTES, RECORD_MAGIC, RECORD_TRAILER};
use super::framing::{Binding, RecordHeader};
use super::mask;
use super::reader::LogImage;

/// A record after corruption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaterRecord {
    /// Its offset in the file.
    pub(crate) offset: u64,
    /// Its first sequence number.
    pub(crate) first_seqno: u64,
    /// The payload as appended.
    pub(crate) payload: Vec<u8>,
}

impl LogImage {
    /// The records after the last good one that can be verified on their own, in file order.
    pub(crate) fn later_records(&self) -> Vec<LaterRecord> {
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

/// The data record at the start of `bytes`, which are at `offset`, if it is one, and its length.
fn record_at(bytes: &[u8], binding: &Binding, offset: u64) -> Option<(Option<LaterRecord>, usize)> {
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
        LaterRecord { offset, first_seqno: header.first_seqno, payload }
    });
    Some((record, end + 1))
}

//! Logs and manifests (`docs/format/log.md`): the header, and the chain of records after it.

use trommel_base::Checksum;

use super::{set, u32_at, u64_at};

const HEADER_BYTES: usize = 64;
const RECORD_HEADER_BYTES: usize = 36;
const RECORD_MAGIC: u8 = 0xd3;
const RECORD_TRAILER: u8 = 0xb5;

/// Fixes the header, then each record as far as lengths lead: the magic byte, the checksum of the
/// previous record, those of payload and header, and the trailer. Stops at a record that does not
/// fit.
pub(crate) fn framed(bytes: &mut [u8]) {
    let Some(header) = bytes.get(..HEADER_BYTES - 4) else { return };
    let mut previous = Checksum::bound_to(&[]).with(header).value();
    set(bytes, HEADER_BYTES - 4, &previous.to_le_bytes());
    let (number, salt) = (u64_at(bytes, 24), u64_at(bytes, 32));
    let mut at = HEADER_BYTES;
    while let Some(length) = u32_at(bytes, at + 4) {
        let payload_at = at + RECORD_HEADER_BYTES;
        let end = payload_at.saturating_add(length as usize);
        if end >= bytes.len() {
            return;
        }
        let place = [salt.unwrap_or(0), number.unwrap_or(0), at as u64];
        let sum = |bytes: &[u8]| Checksum::bound_to(&place).with(bytes).value();
        let payload_sum = sum(bytes.get(payload_at..end).unwrap_or_default());
        set(bytes, at, &[RECORD_MAGIC]);
        set(bytes, at + 24, &previous.to_le_bytes());
        set(bytes, at + 28, &payload_sum.to_le_bytes());
        let header_sum = sum(bytes.get(at..at + 32).unwrap_or_default());
        set(bytes, at + 32, &header_sum.to_le_bytes());
        set(bytes, end, &[RECORD_TRAILER]);
        previous = payload_sum;
        at = end + 1;
    }
}

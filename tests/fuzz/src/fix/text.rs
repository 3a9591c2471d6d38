//! `CURRENT`, dumps, and traces, which have the framing of dumps (`docs/format/manifest.md`,
//! `dump.md`, `trace.md`).

use trommel_base::Checksum;

use super::{set, u64_at};

/// Fixes the second line of `CURRENT`.
pub(crate) fn current(bytes: &mut [u8]) {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let line = bytes.get(..=end).unwrap_or_default();
    let sum = format!("crc32 {:08x}\n", Checksum::bound_to(&[]).with(line).value());
    set(bytes, end + 1, sum.as_bytes());
}

const DUMP_HEADER_BYTES: usize = 36;
const DUMP_HEAD_BYTES: usize = 24;

/// Fixes a dump or a trace: the header, and heads and payloads as far as their lengths lead.
pub(crate) fn dump(bytes: &mut [u8]) {
    let Some(header) = bytes.get(..DUMP_HEADER_BYTES - 4) else { return };
    let sum = Checksum::bound_to(&[]).with(header).value();
    set(bytes, DUMP_HEADER_BYTES - 4, &sum.to_le_bytes());
    let id = u64_at(bytes, 24).unwrap_or(0);
    let mut fix = |from: usize, to: usize| {
        let covered = bytes.get(from..to)?;
        let sum = Checksum::bound_to(&[id, from as u64]).with(covered).value();
        set(bytes, to, &sum.to_le_bytes());
        // The length of the payload after a head; meaningless after a payload.
        u64_at(bytes, from + 12)
    };
    let mut at = DUMP_HEADER_BYTES;
    while let Some(length) = fix(at, at.saturating_add(DUMP_HEAD_BYTES - 4)) {
        let payload_at = at + DUMP_HEAD_BYTES;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let end = payload_at.saturating_add(length);
        fix(payload_at, end);
        at = end.saturating_add(4);
    }
}

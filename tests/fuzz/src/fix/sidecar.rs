//! Filter sidecars (`docs/format/sidecar.md`): head, footer, and the filters in the directory.

use trommel_sstable::format::{BlockKind, FRAME_BYTES};
use trommel_sstable::sidecar::format::{FOOTER_BYTES, HEAD_BYTES, SidecarFooter};

use super::table::Fixer;
use super::{set, u64_at};

/// Fixes every checksum of the sidecar in `bytes`.
pub(crate) fn sidecar(bytes: &mut [u8]) {
    fix(bytes, |footer| footer);
}

/// The same, and binds the sidecar to the table with this id, number of keys and bytes of data.
pub(crate) fn sidecar_of(bytes: &mut [u8], table_id: u64, keys: u64, data_bytes: u64) {
    fix(bytes, |footer| SidecarFooter { table_id, keys, data_bytes, ..footer });
}

fn fix(bytes: &mut [u8], change: impl FnOnce(SidecarFooter) -> SidecarFooter) {
    let Some(at) = bytes.len().checked_sub(FOOTER_BYTES) else { return };
    let word = |nth: usize| u64_at(bytes, at + nth * 8).unwrap_or(0);
    let footer = change(SidecarFooter {
        table_id: word(0),
        sidecar_id: word(1),
        keys: word(2),
        data_bytes: word(3),
        region_bytes: word(4),
        directory_bytes: word(5),
        features: word(6),
    });
    let mut encoded = Vec::new();
    footer.encode(at as u64, &mut encoded);
    set(bytes, at, &encoded);
    set(bytes, 0, &footer.head());
    let length = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let region = HEAD_BYTES..HEAD_BYTES.saturating_add(length(footer.region_bytes));
    let place = region.end..region.end.saturating_add(length(footer.directory_bytes));
    let payload = place.start..place.end.saturating_sub(FRAME_BYTES);
    let directory = bytes.get(payload).map(<[u8]>::to_vec);
    let mut fixer = Fixer { bytes, id: footer.binding() };
    fixer.filters(&region, directory.as_deref());
    fixer.block(&place, BlockKind::Sidecar);
}

//! Tables (`docs/format/sstable.md`): the footer, then everything that its regions refer to.

use std::ops::Range;

use trommel_base::Decoder;
use trommel_sstable::format::{
    BlockKind, FOOTER_BYTES, FRAME_BYTES, INDEX_HEADER_BYTES, MAGIC, VERSION, block_checksum,
    footer_checksum,
};

use super::{filter, set, u32_at, u64_at};

/// Bytes of the footer that its checksum covers.
const WORDS_BYTES: usize = FOOTER_BYTES - 16;
/// Tag of the directory of filters in the properties.
const DIRECTORY: u64 = 14;

/// Fixes every checksum of the table in `bytes`.
pub(crate) fn table(bytes: &mut [u8]) {
    let Some(at) = bytes.len().checked_sub(FOOTER_BYTES) else { return };
    let word = |nth: usize| u64_at(bytes, at + nth * 8).unwrap_or(0);
    let id = word(0);
    let [data, filters, leaves, index, properties] = [1, 2, 3, 4, 5].map(word);
    let words = bytes.get(at..at + WORDS_BYTES).unwrap_or_default();
    let sum = footer_checksum(id, at as u64, VERSION, words);
    set(bytes, at + WORDS_BYTES, &sum.to_le_bytes());
    set(bytes, at + WORDS_BYTES + 4, &VERSION.to_le_bytes());
    set(bytes, at + WORDS_BYTES + 6, &(!VERSION).to_le_bytes());
    set(bytes, at + WORDS_BYTES + 8, &MAGIC);
    let mut start = 0_usize;
    let regions = [data, filters, leaves, index, properties].map(|length| {
        let end = start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        std::mem::replace(&mut start, end)..end
    });
    let [_, filters, leaves, index, properties] = regions;
    let mut fixer = Fixer { bytes, id };
    let directory = fixer.directory(&properties);
    fixer.filters(&filters, directory.as_deref());
    let below = if leaves.is_empty() { BlockKind::Data } else { BlockKind::IndexLeaf };
    for child in fixer.children(&index) {
        if below == BlockKind::IndexLeaf {
            for block in fixer.children(&child) {
                fixer.block(&block, BlockKind::Data);
            }
        }
        fixer.block(&child, below);
    }
    fixer.block(&index, BlockKind::IndexTop);
    fixer.block(&properties, BlockKind::Properties);
}

pub(super) struct Fixer<'a> {
    pub(super) bytes: &'a mut [u8],
    /// The id that checksums are bound to.
    pub(super) id: u64,
}

impl Fixer<'_> {
    /// Fixes the frame of one block.
    pub(super) fn block(&mut self, place: &Range<usize>, kind: BlockKind) {
        let Some(content_end) = place.end.checked_sub(4) else { return };
        let Some(content) = self.bytes.get(place.start..content_end) else { return };
        let sum = block_checksum(self.id, place.start as u64, kind, content);
        set(self.bytes, content_end, &sum.to_le_bytes());
    }

    /// The ranges of the blocks that the index block at `place` lists.
    fn children(&self, place: &Range<usize>) -> Vec<Range<usize>> {
        let payload = self.bytes.get(place.clone()).unwrap_or_default();
        let n = u32_at(payload, 0).unwrap_or(0) as usize;
        let first = u64_at(payload, 8).and_then(|first| usize::try_from(first).ok());
        let lengths = INDEX_HEADER_BYTES.saturating_add(n.saturating_mul(8));
        let mut at = first.unwrap_or(usize::MAX);
        let mut found = Vec::new();
        for slot in 0..n {
            let Some(length) = u32_at(payload, lengths.saturating_add(slot * 4)) else { break };
            let end = at.saturating_add(length as usize);
            if end > self.bytes.len() {
                break;
            }
            found.push(at..end);
            at = end;
        }
        found
    }

    /// Fixes all filters and their frames.
    pub(super) fn filters(&mut self, region: &Range<usize>, directory: Option<&[u8]>) {
        let Some(directory) = directory else {
            return self.filter(region);
        };
        let mut start = region.start;
        for (shape, bytes, top_bytes) in parts(directory) {
            let end = start.saturating_add(bytes);
            let top = end.saturating_sub(top_bytes)..end;
            if shape == 0 {
                self.filter(&(start..end));
            } else {
                for partition in self.children(&top) {
                    self.filter(&partition);
                }
                self.block(&top, BlockKind::FilterTop);
            }
            start = end;
        }
    }

    fn filter(&mut self, place: &Range<usize>) {
        let Some(end) = place.end.checked_sub(FRAME_BYTES) else { return };
        if let Some(payload) = self.bytes.get_mut(place.start..end) {
            filter(payload);
        }
        self.block(place, BlockKind::Filter);
    }

    fn directory(&self, properties: &Range<usize>) -> Option<Vec<u8>> {
        let mut decoder = Decoder::new(self.bytes.get(properties.clone())?);
        loop {
            let (tag, field) = (decoder.varint()?, decoder.bytes(usize::MAX)?);
            if tag == DIRECTORY {
                return Some(field.to_vec());
            }
        }
    }
}

/// Shape, bytes, and bytes of the top index, of each part in a directory of filters.
fn parts(directory: &[u8]) -> Vec<(u8, usize, usize)> {
    let mut decoder = Decoder::new(directory);
    let count = decoder.varint().unwrap_or(0);
    let mut part = || {
        let (_role, shape) = (decoder.u8()?, decoder.u8()?);
        let (_rate, _keys) = (decoder.u64()?, decoder.varint()?);
        let (bytes, top_bytes) = (decoder.length(usize::MAX)?, decoder.length(usize::MAX)?);
        for _ in ["spec", "policy", "extractor"] {
            decoder.bytes(usize::MAX)?;
        }
        Some((shape, bytes, top_bytes))
    };
    (0..count).map_while(|_| part()).collect()
}

//! Builds range filters.
//!
//! 1. Keys are added in order. Those of the open block are kept whole, as the bytes that they share
//!    are known only at its end.
//! 2. At the end of a block each of its keys is reduced to its infix: 16 bytes in memory.
//! 3. At the end the frequencies of bytes are counted, the infixes mapped to cells, and these
//!    encoded. Several filters can be made of one builder, each of some adjacent blocks.

use alloc::vec::Vec;
use core::ops::Range;

use super::code::{Code, Frequencies, infix};
use super::{BlockEnds, CHECKSUM_AT, RangeHeader, RangeSpec, Scale, elias_fano, rate};
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::format::{HEADER_BYTES, checksum};

/// Collects the keys of adjacent blocks.
///
/// [`RangeFilter`](super::RangeFilter) has an example.
#[derive(Debug)]
pub struct RangeFilterBuilder {
    spec: RangeSpec,
    /// The keys of the open block, one after the other, and the end of each.
    open: Vec<u8>,
    open_ends: Vec<usize>,
    infixes: Vec<u128>,
    blocks: Vec<BlockInfixes>,
}

/// What is known of a finished block.
#[derive(Debug, Clone, Copy)]
struct BlockInfixes {
    /// Those of its ends.
    ends: [u128; 2],
    /// Where they begin in their keys.
    at: usize,
    /// The number of infixes up to its end.
    until: usize,
}

impl RangeFilterBuilder {
    pub(super) fn new(spec: RangeSpec) -> Self {
        let (open, open_ends) = (Vec::new(), Vec::new());
        Self { spec, open, open_ends, infixes: Vec::new(), blocks: Vec::new() }
    }

    /// The requested filter.
    pub fn spec(&self) -> RangeSpec {
        self.spec
    }

    /// Adds a key to the open block: not before the last one, which it may equal.
    #[inline]
    pub fn add(&mut self, key: &[u8]) {
        self.open.extend_from_slice(key);
        self.open_ends.push(self.open.len());
    }

    /// Ends a block. None of its keys may be before `ends.first` or after `ends.last`.
    pub fn end_block(&mut self, ends: BlockEnds<'_>) {
        let at = ends.shared();
        let mut start = 0;
        for end in self.open_ends.drain(..) {
            let key = self.open.get(start..end).unwrap_or_default();
            self.infixes.push(infix(key, at));
            start = end;
        }
        self.open.clear();
        let ends = [ends.first, ends.last].map(|end| infix(end, at));
        self.blocks.push(BlockInfixes { ends, at, until: self.infixes.len() });
    }

    /// Keys of the finished blocks.
    pub fn len(&self) -> u64 {
        self.infixes.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.infixes.is_empty()
    }

    /// Number of finished blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of memory in use.
    pub fn memory_bytes(&self) -> usize {
        self.open.capacity()
            + self.open_ends.capacity() * size_of::<usize>()
            + self.infixes.capacity() * size_of::<u128>()
            + self.blocks.capacity() * size_of::<BlockInfixes>()
    }

    /// The filter of all finished blocks, encoded.
    pub fn finish(self) -> Vec<u8> {
        self.finish_blocks(0..self.blocks())
    }

    /// The filter of these finished blocks, encoded, in which the first of them has number 0.
    ///
    /// # Panics
    /// If there are no such blocks.
    pub fn finish_blocks(&self, blocks: Range<usize>) -> Vec<u8> {
        let before = blocks.start.checked_sub(1).map_or(0, |before| self.blocks[before].until);
        let blocks = &self.blocks[blocks];
        let keys = blocks.last().map_or(0, |last| last.until - before) as u64;
        let mut body = self.frequencies(before, blocks);
        let (code, _) = Code::decode(&body).expect("the encoded frequencies are valid");
        let cells = self.cells(keys, blocks.len());
        let mut of_keys = self.cells_of_keys(before, blocks, &code, cells);
        let limit = cells * blocks.len() as u64;
        let sizes = self.each(before, blocks).map(|(_, infixes)| infixes.len());
        let expected_fpr = rate::expected(&of_keys, sizes, limit);
        of_keys.dedup();
        let (count, occupied) = (of_keys.len() as u64, of_keys);
        let low_bits = elias_fano::best_low_bits(count, limit);
        elias_fano::encode(&occupied, limit, low_bits, &mut body);
        let header = RangeHeader {
            millibits: self.spec.millibits(),
            blocks: blocks.len() as u32,
            keys,
            occupied: count,
            cells,
            low_bits,
            expected_fpr,
        };
        let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
        out.extend_from_slice(&header.to_bytes());
        let sum = checksum(&out[..CHECKSUM_AT], &body);
        out[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    /// The infixes of each block.
    fn each<'a>(
        &'a self,
        before: usize,
        blocks: &'a [BlockInfixes],
    ) -> impl Iterator<Item = (&'a BlockInfixes, &'a [u128])> {
        let mut start = before;
        blocks.iter().map(move |block| {
            let infixes = &self.infixes[start..block.until];
            start = block.until;
            (block, infixes)
        })
    }

    /// The encoded frequencies of bytes.
    fn frequencies(&self, before: usize, blocks: &[BlockInfixes]) -> Vec<u8> {
        let base = blocks.iter().map(|block| block.at).min().unwrap_or_default();
        let mut frequencies = Frequencies::new(base);
        let more = 1 + self.spec.bits_per_key() as usize / 4;
        let each = self.each(before, blocks);
        each.for_each(|(block, infixes)| frequencies.count(infixes, block.at, more));
        let mut out = Vec::new();
        frequencies.encode(&mut out);
        out
    }

    /// The number of cells of each of `blocks` blocks that hold `keys` keys.
    fn cells(&self, keys: u64, blocks: usize) -> u64 {
        let of_key = 2_f64.powf(self.spec.bits_per_key() - 2.0);
        let cells = (keys as f64 * of_key / blocks.max(1) as f64).round() as u64;
        cells.clamp(1, super::MOST_CELLS / (blocks.max(1) as u64))
    }

    /// The cell of each key, in order.
    fn cells_of_keys(
        &self,
        before: usize,
        blocks: &[BlockInfixes],
        code: &Code,
        cells: u64,
    ) -> Vec<u64> {
        let held = blocks.last().map_or(0, |last| last.until - before);
        let mut of_keys = Vec::with_capacity(held);
        for (i, (block, infixes)) in (0_u64..).zip(self.each(before, blocks)) {
            let scale = Scale::of_infixes(code, block.at, block.ends, cells);
            let cell = |infix: &u128| i * cells + scale.cell(code.number(*infix, block.at));
            of_keys.extend(infixes.iter().map(cell));
        }
        of_keys
    }
}

//! Builds range filters.
//!
//! 1. Keys are added in order. Those of the open block are kept whole, as the bytes that they share
//!    are known only at its end.
//! 2. At the end of a block each of its keys is reduced to its infix: 16 bytes in memory.
//! 3. For a filter the frequencies of bytes are counted, the infixes of all finished blocks mapped
//!    to cells, and these encoded. The builder then begins the filter of the blocks that follow, so
//!    it holds the infixes of one filter only.

use alloc::vec;
use alloc::vec::Vec;
use core::mem;

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

    /// Most bytes of memory that the build takes from now until [`take_blocks`](Self::take_blocks)
    /// returns, if few keys follow.
    pub fn peak_bytes(&self) -> u64 {
        // A list that is full holds three times its memory while it doubles; at the end that is
        // more than the cells. The encoded filter is in memory twice.
        let frequencies = size_of::<Frequencies>() + Frequencies::HEAP_BYTES;
        (3 * self.memory_bytes() + frequencies) as u64 + 2 * self.spec.expected_bytes(self.len())
    }

    /// The filter of all finished blocks, encoded.
    pub fn finish(mut self) -> Vec<u8> {
        self.take_blocks()
    }

    /// The filter of all finished blocks, encoded. The builder continues with the open block, which
    /// is the first of its next filter.
    pub fn take_blocks(&mut self) -> Vec<u8> {
        let blocks = mem::take(&mut self.blocks);
        let keys = self.len();
        let mut out = vec![0; HEADER_BYTES];
        self.frequencies(&blocks).encode(&mut out);
        let (code, _) =
            Code::decode(&out[HEADER_BYTES..]).expect("the encoded frequencies are valid");
        let cells = self.cells(keys, blocks.len());
        let mut of_keys = self.cells_of_keys(&blocks, &code, cells);
        let limit = cells * blocks.len() as u64;
        let sizes = self.each(&blocks).map(|(_, infixes)| infixes.len());
        let expected_fpr = rate::expected(&of_keys, sizes, limit);
        self.infixes.clear();
        of_keys.dedup();
        let (count, occupied) = (of_keys.len() as u64, of_keys);
        let low_bits = elias_fano::best_low_bits(count, limit);
        elias_fano::encode(&occupied, limit, low_bits, &mut out);
        let header = RangeHeader {
            millibits: self.spec.millibits(),
            blocks: blocks.len() as u32,
            keys,
            occupied: count,
            cells,
            low_bits,
            expected_fpr,
        };
        let (head, body) = out.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header.to_bytes());
        let sum = checksum(&head[..CHECKSUM_AT], body);
        head[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// The infixes of each of the finished `blocks`.
    fn each<'a>(
        &'a self,
        blocks: &'a [BlockInfixes],
    ) -> impl Iterator<Item = (&'a BlockInfixes, &'a [u128])> {
        let mut start = 0;
        blocks.iter().map(move |block| {
            let infixes = &self.infixes[start..block.until];
            start = block.until;
            (block, infixes)
        })
    }

    /// The frequencies of bytes.
    fn frequencies(&self, blocks: &[BlockInfixes]) -> Frequencies {
        let base = blocks.iter().map(|block| block.at).min().unwrap_or_default();
        let mut frequencies = Frequencies::new(base);
        let more = 1 + self.spec.bits_per_key() as usize / 4;
        let each = self.each(blocks);
        each.for_each(|(block, infixes)| frequencies.count(infixes, block.at, more));
        frequencies
    }

    /// The number of cells of each of `blocks` blocks that hold `keys` keys.
    fn cells(&self, keys: u64, blocks: usize) -> u64 {
        let cells = keys as f64 * self.spec.cells_per_key() / blocks.max(1) as f64;
        (cells.round() as u64).clamp(1, super::MOST_CELLS / (blocks.max(1) as u64))
    }

    /// The cell of each key, in order.
    fn cells_of_keys(&self, blocks: &[BlockInfixes], code: &Code, cells: u64) -> Vec<u64> {
        let mut of_keys = Vec::with_capacity(self.infixes.len());
        for (i, (block, infixes)) in (0_u64..).zip(self.each(blocks)) {
            let scale = Scale::of_infixes(code, block.at, block.ends, cells);
            let cell = |infix: &u128| i * cells + scale.cell(code.number(*infix, block.at));
            of_keys.extend(infixes.iter().map(cell));
        }
        of_keys
    }
}

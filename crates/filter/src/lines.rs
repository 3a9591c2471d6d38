//! The addresses of a filter's cache lines, recorded separately from the filter.
//!
//! To query many filters for one key, all of their lines should be prefetched before the first
//! query. Reaching a filter may itself take cache misses. The records of many filters are
//! contiguous, so reading them takes few, and they need not keep the filters alive:
//!
//! 1. After a query, the filter's lines are recorded: their start address and their number.
//! 2. The record and a hash determine the address of the first line that the filter would read (for
//!    a standard filter, the first two). It is prefetched.
//!
//! A record may be out of date, because its filter was dropped or moved. Then the prefetch is
//! wasted. Processors accept a prefetch of any address, and no answer depends on it.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::block::{BLOCK_BITS, BLOCK_BYTES};
use crate::kernel::prefetch_at;
use crate::mix::scale;
use crate::standard::ProbeSequence;
use crate::{Filter, FilterKind};

/// The addresses of a filter's cache lines: see the head of this module's source.
///
/// ```
/// use trommel_filter::{Filter, FilterLines, FilterSpec, hash};
///
/// let mut filters = Vec::new();
/// for first in [0, 1000, 2000_u32] {
///     let mut builder = "paired:16".parse::<FilterSpec>()?.builder();
///     (first..first + 1000).for_each(|n| builder.add(&n.to_le_bytes()));
///     filters.push((Filter::decode(builder.finish())?, FilterLines::default()));
/// }
/// for (filter, lines) in &filters {
///     lines.note(filter);
/// }
/// // One key, three filters: three misses at once, not one after the other.
/// let hash = hash(&2007_u32.to_le_bytes());
/// filters.iter().for_each(|(_, lines)| lines.prefetch(hash));
/// let place = filters.iter().position(|(filter, _)| filter.may_contain_hash(hash));
/// assert_eq!(place, Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct FilterLines {
    /// Address of the first line; 0 if none was recorded.
    start: AtomicUsize,
    count: AtomicUsize,
    /// Whether each probe has a line of its own.
    is_standard: AtomicBool,
}

impl FilterLines {
    /// Records the lines of `filter`. Writes only if they changed. Records nothing for a ribbon
    /// and a fuse filter, whose first line depends on more than these fields.
    #[inline]
    pub fn note(&self, filter: &Filter) {
        let blocks = filter.blocks();
        if self.start.load(Relaxed) != blocks.as_ptr().addr() {
            self.renew(filter);
        }
    }

    #[cold]
    fn renew(&self, filter: &Filter) {
        let is_standard = match filter.kind() {
            FilterKind::Standard => true,
            FilterKind::Blocked | FilterKind::Paired => false,
            FilterKind::None | FilterKind::Ribbon | FilterKind::Fuse => return,
        };
        let blocks = filter.blocks();
        self.is_standard.store(is_standard, Relaxed);
        self.count.store(blocks.len(), Relaxed);
        self.start.store(blocks.as_ptr().addr(), Relaxed);
    }

    /// Prefetches the lines that the recorded filter would read first for this hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.each_first(hash, prefetch_at);
    }

    /// Calls `prefetch_line` with the address of each of these lines.
    #[inline]
    fn each_first(&self, hash: u64, mut prefetch_line: impl FnMut(usize)) {
        if self.start.load(Relaxed) == 0 {
            return;
        }
        if self.is_standard.load(Relaxed) {
            self.first_two(hash).into_iter().for_each(prefetch_line);
        } else {
            prefetch_line(self.line(scale(hash, self.count.load(Relaxed) as u64)));
        }
    }

    /// The address of a line.
    #[inline]
    fn line(&self, nth: u64) -> usize {
        self.start.load(Relaxed).wrapping_add((nth as usize).wrapping_mul(BLOCK_BYTES))
    }

    // Not inlined: it would take registers that the other kinds need.
    #[inline(never)]
    fn first_two(&self, hash: u64) -> [usize; 2] {
        let bits = self.count.load(Relaxed) as u64 * BLOCK_BITS;
        let mut sequence = ProbeSequence::new(hash);
        [(); 2].map(|()| self.line(sequence.next(bits) / BLOCK_BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FilterSpec, hash};

    #[test]
    fn prefetched_lines_are_those_that_a_query_reads() {
        for spec in ["standard:16", "blocked:16", "paired:16"] {
            let hashes: Vec<u64> = (0..2000_u32).map(|n| hash(&n.to_le_bytes())).collect();
            let mut builder = spec.parse::<FilterSpec>().unwrap().builder();
            hashes.iter().for_each(|hash| builder.add_hash(*hash));
            let filter = Filter::decode(builder.finish()).unwrap();
            let lines = FilterLines::default();
            lines.note(&filter);
            let start = filter.blocks().as_ptr().addr();
            for hash in hashes {
                let mut prefetched = Vec::new();
                lines.each_first(hash, |address| prefetched.push((address - start) / BLOCK_BYTES));
                assert_eq!(
                    prefetched.len(),
                    if spec.starts_with("standard") { 2 } else { 1 },
                    "{spec}"
                );
                for line in prefetched {
                    let mut without = filter.clone();
                    // The first bits of a paired filter's block are its partner's index.
                    let kept = if spec.starts_with("paired") { 127 } else { 0 };
                    without.blocks_mut()[line].0[0] &= kept;
                    without.blocks_mut()[line].0[1..].fill(0);
                    assert!(!without.may_contain_hash(hash), "{spec}: line {line} is not read");
                }
            }
        }
    }
}

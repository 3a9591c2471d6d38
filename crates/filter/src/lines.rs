//! A note of where the cache lines of a filter lie, kept apart from the filter.
//!
//! Who asks many filters for one key wants all of their lines to be on their way before the first
//! is asked. To come to a filter may take misses of its own; notes of many filters, side by side,
//! take few, and nothing has to be kept alive for them:
//!
//! 1. A filter that was asked is noted: where its lines begin, and how many there are.
//! 2. From these and a hash comes the address of the first line that the filter would look at. It
//!    is asked for without waiting.
//!
//! A note may be out of date: its filter is gone, or lies elsewhere. Then a line is asked for in
//! vain. A processor does that without harm for any address, and no answer depends on it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::block::BLOCK_BYTES;
use crate::kernel::prefetch_at;
use crate::mix::scale;
use crate::{Filter, FilterKind};

/// Where the cache lines of a filter lie: see the head of this module's source.
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
    /// Address of the first; 0 if none was noted.
    start: AtomicUsize,
    count: AtomicUsize,
}

impl FilterLines {
    /// Notes where the lines of `filter` lie. Writes only where that is news. Of a kind that does
    /// not begin with one whole line, nothing is noted.
    #[inline]
    pub fn note(&self, filter: &Filter) {
        let blocks = filter.blocks();
        if self.start.load(Relaxed) != blocks.as_ptr().addr() {
            self.renew(filter);
        }
    }

    #[cold]
    fn renew(&self, filter: &Filter) {
        if matches!(filter.kind(), FilterKind::Blocked | FilterKind::Paired) {
            let blocks = filter.blocks();
            self.count.store(blocks.len(), Relaxed);
            self.start.store(blocks.as_ptr().addr(), Relaxed);
        }
    }

    /// Asks the processor for the line that the noted filter would look at first for this hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let start = self.start.load(Relaxed);
        if start != 0 {
            let line = scale(hash, self.count.load(Relaxed) as u64) as usize;
            prefetch_at(start.wrapping_add(line.wrapping_mul(BLOCK_BYTES)));
        }
    }
}

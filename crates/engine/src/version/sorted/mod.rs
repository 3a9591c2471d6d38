//! A sorted view: the order of all entries of a version's tables, in memory, so that a seek is one
//! search instead of one in each run. After REMIX (Zhong et al., FAST 2021).
//!
//! 1. A *run* is one table of level 0, or all tables of a deeper level. The view divides the
//!    entries of all runs, in the order in which a merge yields them, into *segments* of equal
//!    length.
//! 2. Of each segment it holds the first bytes of its first key, behind the prefix that all keys
//!    share, and for each run the place of its first entry from there on. Of each entry it holds
//!    the number of its run, the *selector*, and whether its key is that of the entry before.
//! 3. The place of an entry is that of its run at the start of the segment, and as many entries
//!    after it as selectors of the segment before it name the run.
//! 4. A cursor ([`crate::iter::sorted`]) searches the segments, then the entries of one, and
//!    follows the selectors from there on. It enters a run when its first entry comes.
//! 5. A worker builds it (`builder.rs`) once the scans that lacked it have cost as much as building
//!    it does (`demand.rs`), and no compaction is due or running, which would replace the version.
//!
//! It answers nothing: keys, versions and values are read from the tables. It is not trusted
//! either: a cursor that finds an entry out of order takes the tables instead, and no other cursor
//! takes the view from then on.

mod builder;
mod demand;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_base::{first_words, key_behind};
use trommel_sstable::EntryPlace;

use super::TableFile;
use crate::memory::ViewShare;
use crate::sync::AtomicBool;

pub(crate) use builder::{SortedBuilder, runs_of};
pub(crate) use demand::SortedSlot;

/// Fewer runs are searched one by one for less: see the page on performance.
pub(crate) const FEWEST_RUNS: usize = if cfg!(any(test, shuttle)) { 2 } else { 10 };
/// Most runs: as many as a selector can name, and one number that names none.
pub(crate) const MOST_RUNS: usize = 15;

/// Bits of a selector.
const SELECTOR_BITS: usize = 4;
/// Selectors in a word.
const WORD_SELECTORS: usize = u64::BITS as usize / SELECTOR_BITS;
/// The lowest bit of each selector in a word.
const EVERY_SELECTOR: u64 = 0x1111_1111_1111_1111;

/// The order of the entries of several runs.
#[derive(Debug)]
pub(crate) struct SortedView {
    runs: Box<[SortedRun]>,
    /// Number of entries.
    pub(crate) entries: usize,
    /// Entries of a segment, as a power of two.
    pub(crate) segment_bits: u32,
    /// What all keys begin with.
    prefix: Box<[u8]>,
    /// Of the first key of each segment, the [`first_words`] after the prefix.
    heads: Box<[u128]>,
    /// Of each segment, the place of the first entry of each run from there on.
    places: Box<[StoredPlace]>,
    /// The selectors, as many in each word.
    selectors: Box<[u64]>,
    /// Of each entry, a bit: whether its key is that of the entry before.
    repeats: Box<[u64]>,
    /// Whether any table has a prefix filter, by which scans may skip it.
    has_prefix_filters: bool,
    /// Whether a cursor has found it to be wrong.
    is_wrong: AtomicBool,
    _share: ViewShare,
}

/// One run of a view: its tables, and the numbers of its blocks.
#[derive(Debug)]
struct SortedRun {
    /// In key order, not overlapping.
    tables: Box<[Arc<TableFile>]>,
    leaves: Box<[Leaf]>,
}

/// A leaf of the index of a run's table.
#[derive(Debug, Clone, Copy)]
struct Leaf {
    /// The number of its first block, among those of the run.
    first: u32,
    table: u32,
    leaf: u32,
}

/// A block of a run in 24 bits, and an entry of it in 16, both with the first byte least
/// significant.
type StoredPlace = [u8; 5];

/// A place of a run of no more entries: nothing is there.
const NOWHERE: StoredPlace = [0xff; 5];

/// The place of an entry in a run: the table, and the place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunPlace {
    pub(crate) table: usize,
    pub(crate) within: EntryPlace,
}

/// Where a key is among the segments.
pub(crate) enum Sought {
    /// Before all entries.
    Start,
    /// After all entries.
    End,
    /// The first segment whose head is not smaller than that of the key, and the first whose head
    /// is larger.
    Between(usize, usize),
}

impl SortedRun {
    /// Stores a place; `None` if the run has too many blocks, or no such leaf.
    fn stored(&self, place: RunPlace) -> Option<StoredPlace> {
        let EntryPlace { leaf, slot, entry } = place.within;
        let of_leaf = |known: &Leaf| (known.table as usize, known.leaf as usize);
        let at = self.leaves.binary_search_by_key(&(place.table, leaf), of_leaf).ok()?;
        let block = self.leaves.get(at)?.first.checked_add(u32::try_from(slot).ok()?)?;
        let [b0, b1, b2, 0] = block.to_le_bytes() else { return None };
        let [e0, e1] = u16::try_from(entry).ok()?.to_le_bytes();
        Some([b0, b1, b2, e0, e1])
    }

    /// The place of the entry that is `ahead` entries after a stored place; `None` if there is no
    /// such block.
    #[inline]
    fn place(&self, stored: StoredPlace, ahead: usize) -> Option<RunPlace> {
        if stored == NOWHERE {
            return None;
        }
        let [b0, b1, b2, e0, e1] = stored;
        let block = u32::from_le_bytes([b0, b1, b2, 0]);
        let at = match &*self.leaves {
            [_] => 0,
            leaves => leaves.partition_point(|leaf| leaf.first <= block).checked_sub(1)?,
        };
        let Leaf { first, table, leaf } = *self.leaves.get(at)?;
        let entry = usize::from(u16::from_le_bytes([e0, e1])) + ahead;
        let within = EntryPlace { leaf: leaf as usize, slot: (block - first) as usize, entry };
        Some(RunPlace { table: table as usize, within })
    }
}

impl SortedView {
    /// The tables of `run`.
    pub(crate) fn tables(&self, run: usize) -> &[Arc<TableFile>] {
        self.runs.get(run).map_or(&[], |run| &run.tables)
    }

    /// Number of runs.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Whether any table has a prefix filter.
    pub(crate) fn has_prefix_filters(&self) -> bool {
        self.has_prefix_filters
    }

    /// Whether no cursor takes it any more.
    pub(crate) fn note_wrong(&self) {
        self.is_wrong.store(true, Ordering::Relaxed);
    }

    /// Bytes of memory held by a view of `entries` entries in `runs` runs, without lists that have
    /// one item for each table.
    pub(crate) fn memory_bytes(entries: usize, runs: usize) -> u64 {
        let segments = entries.div_ceil(1 << segment_bits(runs));
        let of_segments = segments * (size_of::<u128>() + runs * size_of::<StoredPlace>());
        let words = entries.div_ceil(WORD_SELECTORS) + entries.div_ceil(u64::BITS as usize);
        (of_segments + words * size_of::<u64>() + size_of::<Self>()) as u64
    }

    /// The segment of entry `at`.
    #[inline]
    pub(crate) fn segment_of(&self, at: usize) -> usize {
        at >> self.segment_bits
    }

    /// The first entry of `segment`.
    #[inline]
    pub(crate) fn start_of(&self, segment: usize) -> usize {
        segment << self.segment_bits
    }

    /// The run of entry `at`; a run that does not exist if there is no such entry.
    #[inline]
    pub(crate) fn selector(&self, at: usize) -> usize {
        let word = self.selectors.get(at / WORD_SELECTORS).copied().unwrap_or(u64::MAX);
        (word >> (SELECTOR_BITS * (at % WORD_SELECTORS))) as usize & MOST_RUNS
    }

    /// Whether the key of entry `at` is that of the entry before.
    #[inline]
    pub(crate) fn repeats(&self, at: usize) -> bool {
        let word = self.repeats.get(at / u64::BITS as usize).copied().unwrap_or(u64::MAX);
        word >> (at % u64::BITS as usize) & 1 != 0
    }

    /// The number of entries of `run` in the segment of entry `at` before that.
    #[inline]
    pub(crate) fn count_before(&self, at: usize, run: usize) -> usize {
        let start = self.start_of(self.segment_of(at));
        let pattern = run as u64 * EVERY_SELECTOR;
        let words = self.selectors.get(start / WORD_SELECTORS..).unwrap_or_default();
        let mut left = at - start;
        let mut count = 0;
        for word in words.iter().take(left.div_ceil(WORD_SELECTORS)) {
            let differing = word ^ pattern;
            let differing = differing | differing >> 2;
            let same = !(differing | differing >> 1) & EVERY_SELECTOR;
            let shown = left.min(WORD_SELECTORS);
            let mask =
                if shown < WORD_SELECTORS { (1 << (SELECTOR_BITS * shown)) - 1 } else { u64::MAX };
            count += (same & mask).count_ones() as usize;
            left -= shown;
        }
        count
    }

    /// The place of the entry of `run` that is `ahead` entries after the first one from the start
    /// of `segment` on.
    #[inline]
    pub(crate) fn place(&self, segment: usize, run: usize, ahead: usize) -> Option<RunPlace> {
        let stored = *self.places.get(segment * self.runs.len() + run)?;
        self.runs.get(run)?.place(stored, ahead)
    }

    /// Where `key` is among the segments, by the first bytes behind the prefix.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Sought {
        let Some(behind) = key_behind(key, &self.prefix) else {
            return if *key < *self.prefix { Sought::Start } else { Sought::End };
        };
        let words = first_words(behind);
        let first = lower_bound(&self.heads, words);
        let tied = self.heads.get(first..).unwrap_or_default();
        let mut last = first;
        if tied.first() == Some(&words) {
            last += tied.partition_point(|head| *head == words);
        }
        Sought::Between(first, last)
    }
}

/// The first of the sorted `heads` that is not smaller than `words`, without a branch that depends
/// on a comparison.
#[inline]
fn lower_bound(heads: &[u128], words: u128) -> usize {
    let (mut base, mut size) = (0, heads.len());
    while size > 1 {
        let half = size / 2;
        let is_before = heads.get(base + half - 1).is_some_and(|head| *head < words);
        base = std::hint::select_unpredictable(is_before, base + half, base);
        size -= half;
    }
    base + usize::from(heads.get(base).is_some_and(|head| *head < words))
}

/// Entries of a segment of a view over `runs` runs, as a power of two: few, so that a seek reads
/// few, but enough that the view takes less than two bytes for each.
fn segment_bits(runs: usize) -> u32 {
    match runs {
        ..=5 => 5,
        6..=12 => 6,
        _ => 7,
    }
}

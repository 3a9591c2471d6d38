//! Builds a view: a merge of all runs that reads keys only, and checks their order.

use std::cmp::Ordering;
use std::sync::Arc;

use trommel_base::{Cursor, CursorHints, KeyHead};
use trommel_sstable::ScanOptions;

use super::{
    Leaf, NOWHERE, SELECTOR_BITS, SortedRun, SortedView, StoredPlace, WORD_SELECTORS, segment_bits,
};
use crate::error::Result;
use crate::iter::level::{LevelCursor, ScanTables};
use crate::iter::merge::MergeCursor;
use crate::memory::MemoryShares;
use crate::sync::AtomicBool;
use crate::version::{TableCache, TableFile, Version};

/// Entries between two questions whether to go on.
const STEP: usize = 1 << 12;

/// Why there is no view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoView {
    /// The caller wants none any more.
    Stopped,
    /// There is no memory for it, a table cannot be read, or its entries are not in order. Readers
    /// will notice themselves.
    Refused,
}

/// Builds the view of all tables of `version`, as long as it `goes_on`.
pub(crate) fn build(
    version: &Version,
    tables: &Arc<TableCache>,
    shares: &Arc<MemoryShares>,
    goes_on: impl Fn() -> bool,
) -> std::result::Result<SortedView, NoView> {
    let runs = runs_of(version);
    let entries = runs.iter().flatten().map(|table| table.entries).sum::<u64>();
    let entries = usize::try_from(entries).map_err(|_| NoView::Refused)?;
    let bytes = SortedView::memory_bytes(entries, runs.len());
    let share = MemoryShares::reserve_view(shares, bytes).ok_or(NoView::Refused)?;
    let refused = |_| NoView::Refused;
    let mut building = Building::new(&runs, entries, tables).map_err(refused)?;
    building.merge(&runs, tables, goes_on)?;
    let newest = runs.iter().flatten().map(|table| table.max_seqno).max().unwrap_or(0);
    let Building { runs, prefix, heads, places, selectors, repeats, has_prefix_filters, .. } =
        building;
    Ok(SortedView {
        segment_bits: segment_bits(runs.len()),
        runs: runs.into(),
        entries,
        prefix,
        heads: heads.into(),
        places: places.into(),
        selectors: selectors.into(),
        repeats: repeats.into(),
        newest,
        has_prefix_filters,
        is_wrong: AtomicBool::new(false),
        _share: share,
    })
}

/// The runs of a version: each table of level 0, newest first, and each deeper level with tables.
fn runs_of(version: &Version) -> Vec<Vec<Arc<TableFile>>> {
    let [newest, deeper @ ..] = &version.levels;
    let newest = newest.iter().map(|table| vec![Arc::clone(table)]);
    newest.chain(deeper.iter().filter(|tables| !tables.is_empty()).cloned()).collect()
}

/// What all keys of these tables begin with.
fn common_prefix(runs: &[Vec<Arc<TableFile>>]) -> &[u8] {
    let mut ends = runs.iter().flatten().flat_map(|table| [&*table.smallest, &*table.largest]);
    let first = ends.next().unwrap_or_default();
    ends.fold(first, |prefix, key| {
        let same = prefix.iter().zip(key).take_while(|(a, b)| a == b).count();
        prefix.get(..same).unwrap_or_default()
    })
}

/// A view that is being built.
struct Building {
    runs: Vec<SortedRun>,
    entries: usize,
    prefix: Box<[u8]>,
    heads: Vec<u128>,
    places: Vec<StoredPlace>,
    selectors: Vec<u64>,
    repeats: Vec<u64>,
    has_prefix_filters: bool,
}

impl Building {
    fn new(
        runs: &[Vec<Arc<TableFile>>],
        entries: usize,
        tables: &TableCache,
    ) -> Result<Self> {
        let segments = entries.div_ceil(1 << segment_bits(runs.len()));
        let mut this = Self {
            runs: Vec::with_capacity(runs.len()),
            entries,
            prefix: common_prefix(runs).into(),
            heads: Vec::with_capacity(segments),
            places: Vec::with_capacity(segments * runs.len()),
            selectors: vec![u64::MAX; entries.div_ceil(WORD_SELECTORS)],
            repeats: vec![0; entries.div_ceil(u64::BITS as usize)],
            has_prefix_filters: false,
        };
        for run in runs {
            let (mut leaves, mut first) = (Vec::new(), 0);
            for (table, file) in (0..).zip(run) {
                let reader = tables.reader(file)?;
                this.has_prefix_filters |= reader.filters().prefixes_part().is_some();
                for (leaf, blocks) in (0..).zip(reader.blocks_of_leaves()?) {
                    leaves.push(Leaf { first, table, leaf });
                    // More are refused once one of them would be stored.
                    first = u32::try_from(blocks).unwrap_or(u32::MAX).saturating_add(first);
                }
            }
            this.runs.push(SortedRun { tables: run.as_slice().into(), leaves: leaves.into() });
        }
        Ok(this)
    }

    fn merge(
        &mut self,
        runs: &[Vec<Arc<TableFile>>],
        tables: &Arc<TableCache>,
        goes_on: impl Fn() -> bool,
    ) -> std::result::Result<(), NoView> {
        let scan = ScanOptions { fill_cache: false, check_order: true, ..ScanOptions::default() };
        let level = |run: &Vec<_>| {
            LevelCursor::new(ScanTables::List(run.clone()), Arc::clone(tables), scan)
        };
        let mut merge = MergeCursor::new(runs.iter().map(level).collect());
        let mut previous = PreviousKey::default();
        let mask = (1 << segment_bits(runs.len())) - 1;
        merge.seek_to_first().map_err(|_| NoView::Refused)?;
        for at in 0..self.entries {
            if at.is_multiple_of(STEP) && !goes_on() {
                return Err(NoView::Stopped);
            }
            let is_known = previous.replace(&merge).and_then(|repeats| {
                if at & mask == 0 {
                    self.begin_segment(&merge)?;
                }
                self.add(at, merge.current(), repeats)
            });
            is_known.ok_or(NoView::Refused)?;
            merge.next().map_err(|_| NoView::Refused)?;
        }
        // The manifest says how many there are.
        if merge.entry().is_some() { Err(NoView::Refused) } else { Ok(()) }
    }

    /// Begins a segment at the current entry; `None` if a place cannot be stored.
    fn begin_segment(&mut self, merge: &MergeCursor<LevelCursor>) -> Option<()> {
        let key = merge.internal_key()?.key;
        self.heads.push(trommel_base::first_words(key.get(self.prefix.len()..)?));
        for (run, cursor) in self.runs.iter().zip(merge.sources()) {
            let place = cursor.place();
            self.places.push(place.map_or(Some(NOWHERE), |place| run.stored(place))?);
        }
        Some(())
    }

    fn add(&mut self, at: usize, run: usize, repeats: bool) -> Option<()> {
        let shift = SELECTOR_BITS * (at % WORD_SELECTORS);
        // All its bits are set.
        *self.selectors.get_mut(at / WORD_SELECTORS)? ^= ((run ^ super::MOST_RUNS) as u64) << shift;
        let bits = u64::BITS as usize;
        *self.repeats.get_mut(at / bits)? |= u64::from(repeats) << (at % bits);
        Some(())
    }
}

/// The entry before the current one.
#[derive(Default)]
struct PreviousKey {
    head: Option<KeyHead>,
    /// The key, if it is long.
    long: Vec<u8>,
}

impl PreviousKey {
    /// Sets the current entry of `merge`, and returns whether it is a version of the same key as
    /// the one before; `None` if it comes before that.
    fn replace(&mut self, merge: &MergeCursor<LevelCursor>) -> Option<bool> {
        let now = merge.internal_key()?;
        let head = now.head();
        let before = self.head.replace(head);
        let order = before.map(|before| {
            let keys = || self.long.as_slice().cmp(now.key);
            let order = before.compare(&head, keys);
            // Of two runs, identical entries come one after the other.
            let is_same = (before.words, before.len) == (head.words, head.len)
                && (!head.is_long() || keys().is_eq());
            (order, is_same)
        });
        if head.is_long() {
            self.long.clear();
            self.long.extend_from_slice(now.key);
        }
        match order {
            None => Some(false),
            Some((Ordering::Greater, _)) => None,
            Some((_, is_same)) => Some(is_same),
        }
    }
}

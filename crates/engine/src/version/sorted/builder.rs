//! Packs a view, entry by entry.

use std::sync::Arc;

use trommel_base::first_words;

use super::{
    Leaf, MOST_RUNS, NOWHERE, RunPlace, SELECTOR_BITS, SortedRun, SortedView, StoredPlace,
    WORD_SELECTORS, segment_bits,
};
use crate::error::Result;
use crate::memory::ViewShare;
use crate::sync::AtomicBool;
use crate::version::{TableCache, TableFile, Version};

/// A view that is being built.
pub(crate) struct SortedBuilder {
    runs: Vec<SortedRun>,
    entries: usize,
    /// Entries added.
    count: usize,
    prefix: Box<[u8]>,
    heads: Vec<u128>,
    places: Vec<StoredPlace>,
    selectors: Vec<u64>,
    repeats: Vec<u64>,
    has_prefix_filters: bool,
    share: ViewShare,
}

/// The runs of a version: each table of level 0, newest first, and each deeper level with tables.
pub(crate) fn runs_of(version: &Version) -> Vec<Vec<Arc<TableFile>>> {
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

impl SortedBuilder {
    /// An empty view of these runs, whose `share` is for `entries` entries. Reads indexes.
    pub(crate) fn new(
        runs: &[Vec<Arc<TableFile>>],
        entries: usize,
        share: ViewShare,
        tables: &TableCache,
    ) -> Result<Self> {
        let segments = entries.div_ceil(1 << segment_bits(runs.len()));
        let mut this = Self {
            runs: Vec::with_capacity(runs.len()),
            entries,
            count: 0,
            prefix: common_prefix(runs).into(),
            heads: Vec::with_capacity(segments),
            places: Vec::with_capacity(segments * runs.len()),
            selectors: vec![u64::MAX; entries.div_ceil(WORD_SELECTORS)],
            repeats: vec![0; entries.div_ceil(u64::BITS as usize)],
            has_prefix_filters: false,
            share,
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

    /// Adds an entry with this key, of `run`, that `repeats` the key of the one before. `places`
    /// are those of the next entry of each run, from this one on. `None` if one of them cannot be
    /// stored, or there are more entries than expected.
    pub(crate) fn add(
        &mut self,
        key: &[u8],
        run: usize,
        repeats: bool,
        places: impl Iterator<Item = Option<RunPlace>>,
    ) -> Option<()> {
        let at = self.count;
        if at.is_multiple_of(1 << segment_bits(self.runs.len())) {
            self.heads.push(first_words(key.get(self.prefix.len()..)?));
            for (run, place) in self.runs.iter().zip(places) {
                self.places.push(place.map_or(Some(NOWHERE), |place| run.stored(place))?);
            }
        }
        let shift = SELECTOR_BITS * (at % WORD_SELECTORS);
        // All its bits are set.
        *self.selectors.get_mut(at / WORD_SELECTORS)? ^= ((run ^ MOST_RUNS) as u64) << shift;
        let bits = u64::BITS as usize;
        *self.repeats.get_mut(at / bits)? |= u64::from(repeats) << (at % bits);
        self.count += 1;
        Some(())
    }

    /// The view; `None` if there are not as many entries as expected.
    pub(crate) fn finish(self) -> Option<SortedView> {
        (self.count == self.entries).then(|| SortedView {
            segment_bits: segment_bits(self.runs.len()),
            runs: self.runs.into(),
            entries: self.entries,
            prefix: self.prefix,
            heads: self.heads.into(),
            places: self.places.into(),
            selectors: self.selectors.into(),
            repeats: self.repeats.into(),
            has_prefix_filters: self.has_prefix_filters,
            is_wrong: AtomicBool::new(false),
            _share: self.share,
        })
    }
}

//! The entries that one thread of a compaction keeps, on their way to its outputs: past the
//! compaction filter, and to the table that is written next.

use trommel_base::EntryRef;
use trommel_sstable::FilterLabel;

use crate::compaction::cut::OutputCutter;
use crate::compaction::older::OlderData;
use crate::engine::Engine;
use crate::error::Result;
use crate::folding::Kept;
use crate::output::Outputs;
use crate::shared_merge::SharedMerge;
use crate::snapshots::Snapshots;
use crate::version::TableFile;

use super::filtering::Filtering;

/// Where the entries go that are kept.
pub(super) struct KeptEntries<'m, 'o> {
    older: OlderData,
    filtering: Option<Filtering>,
    cutter: OutputCutter,
    snapshots: &'m Snapshots,
    /// Whether there were snapshots when the compaction began.
    has_snapshots: bool,
    outputs: &'m mut Outputs<'o>,
}

impl<'m, 'o> KeptEntries<'m, 'o> {
    /// The way to `outputs`, past what is `older` than the inputs of `merge`.
    pub(super) fn new(
        engine: &'m Engine,
        merge: &SharedMerge,
        older: OlderData,
        has_snapshots: bool,
        outputs: &'m mut Outputs<'o>,
    ) -> Self {
        let options = engine.options.load();
        let (planner, grandparents) = (options.planner(), merge.plan.grandparents.clone());
        Self {
            older,
            filtering: Filtering::of(&engine.options, merge),
            cutter: OutputCutter::new(grandparents, &planner, merge.table_bytes),
            snapshots: &engine.snapshots,
            has_snapshots,
            outputs,
        }
    }
}

impl Kept for KeptEntries<'_, '_> {
    fn add(&mut self, entry: EntryRef<'_>, is_unseen: bool, has_older: Option<bool>) -> Result<()> {
        let Self { older, filtering, cutter, snapshots, has_snapshots, outputs } = self;
        let hides = || *has_snapshots || has_older.unwrap_or_else(|| may_exist(older, entry.key));
        let kept = match filtering {
            None => Some(entry),
            Some(filtering) => filtering.apply(entry, is_unseen, snapshots, hides),
        };
        let Some(entry) = kept else { return Ok(()) };
        if cutter.cut_before(entry.key, outputs.last_key(), outputs.open_bytes()) {
            outputs.close_table()?;
        }
        outputs.add(entry)
    }

    fn has_older(&mut self, key: &[u8]) -> bool {
        may_exist(&mut self.older, key)
    }
}

/// Whether a table outside the compaction may hold an older version of `key`.
fn may_exist(older: &mut OlderData, key: &[u8]) -> bool {
    older.may_exist(key, |table| may_hold(table, key))
}

/// Whether `table` may hold `key`: true if it is not open. The filter of an open table is queried,
/// and read if it is not in memory.
fn may_hold(table: &TableFile, key: &[u8]) -> bool {
    let Some(open) = table.open_reader() else { return true };
    let filters = open.table().filters();
    let verdict = filters.query(key, filters.hash_seed().hash(key));
    // A wrong user filter costs a lookup its answer; it must not cost a tombstone.
    verdict.maybe || verdict.kind == FilterLabel::User
}

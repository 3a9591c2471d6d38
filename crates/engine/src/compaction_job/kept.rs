//! Passes the entries that one thread of a compaction keeps through the compaction filter to its
//! outputs.

use trommel_base::{EntryRef, SeqNo};
use trommel_sstable::FilterLabel;

use crate::compaction::cut::OutputCutter;
use crate::compaction::older::OlderData;
use crate::engine::Engine;
use crate::error::Result;
use crate::folding::Kept;
use crate::output::Outputs;
use crate::read::Change;
use crate::shared_merge::SharedMerge;
use crate::version::TableFile;

use super::filtering::Filtering;

/// The destination of the entries that are kept.
pub(super) struct KeptEntries<'m, 'o> {
    engine: &'m Engine,
    older: OlderData,
    filtering: Option<Filtering>,
    cutter: OutputCutter,
    /// Whether there were snapshots when the compaction began.
    has_snapshots: bool,
    outputs: &'m mut Outputs<'o>,
}

impl<'m, 'o> KeptEntries<'m, 'o> {
    /// The destination of entries of `merge` that are written to `outputs`; `older` is the data
    /// older than its inputs.
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
            engine,
            older,
            filtering: Filtering::of(&engine.options, merge),
            cutter: OutputCutter::new(grandparents, &planner, merge.table_bytes),
            has_snapshots,
            outputs,
        }
    }
}

impl Kept for KeptEntries<'_, '_> {
    fn add(&mut self, entry: EntryRef<'_>, is_unseen: bool, has_older: Option<bool>) -> Result<()> {
        let Self { engine, older, filtering, cutter, has_snapshots, outputs } = self;
        let hides = || *has_snapshots || has_older.unwrap_or_else(|| may_exist(older, entry.key));
        let kept = match filtering {
            None => Some(entry),
            Some(filtering) => {
                let has_newer = || may_have_operands(engine, entry.key, entry.seqno);
                filtering.apply(entry, is_unseen, &engine.snapshots, hides, has_newer)
            }
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

/// Whether merge operands that are newer than `seqno` may be anywhere for `key` now. Operands
/// written later, until the compaction is installed, apply to what the filter left.
#[cold]
fn may_have_operands(engine: &Engine, key: &[u8], seqno: SeqNo) -> bool {
    let view = engine.view.load();
    view.version.merge_operator.is_some()
        && (view.change_of(key, seqno, None) != Change::None
            || engine.changed_in_tables(&view, key, seqno).unwrap_or(true))
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
    // A wrong user filter can make a lookup miss its key; it must not drop a tombstone.
    verdict.maybe || verdict.kind == FilterLabel::User
}

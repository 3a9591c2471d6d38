//! The compaction filter of one thread of a compaction.

use trommel_base::{EntryKind, EntryRef};

use crate::compaction_filter::{CompactionContext, FilterDecision, UserCompactionFilter};
use crate::current::CurrentOptions;
use crate::shared_merge::SharedMerge;
use crate::snapshots::Snapshots;
use crate::space::Space;
use crate::version::logical_level;

/// A compaction filter, and the compaction that it is called for.
pub(super) struct Filtering {
    filter: UserCompactionFilter,
    context: CompactionContext,
    /// How the default keyspace is stored; only its values are filtered.
    default: Space,
    /// The value that replaces the last one, if it was replaced.
    replacement: Vec<u8>,
}

impl Filtering {
    /// The filter for `merge`, if there is one.
    pub(super) fn of(options: &CurrentOptions, merge: &SharedMerge) -> Option<Self> {
        let default = options.keyspaces.default_of_tables();
        let options = options.load();
        let filter = options.compaction.compaction_filter.clone()?;
        let (level, is_last) = logical_level(&merge.version, merge.plan.output_level);
        let context = CompactionContext { level, is_last };
        Some(Self { filter, context, default, replacement: Vec::new() })
    }

    /// What the filter leaves of `entry`, which the drop rule keeps, and which no snapshot sees if
    /// it `is_unseen`; `None` if nothing. `hides` is called if the entry is removed, and returns
    /// whether a reader may see older versions. An entry that has expired by `snapshots`, but not
    /// yet by the recorded horizon that the drop rule uses, is not passed to the filter.
    /// `has_newer` is called if the filter wants a change, and returns whether merge operands
    /// elsewhere apply to the entry: it is then not the value that a reader sees, and stays.
    pub(super) fn apply<'e>(
        &'e mut self,
        entry: EntryRef<'e>,
        is_unseen: bool,
        snapshots: &Snapshots,
        hides: impl FnOnce() -> bool,
        has_newer: impl FnOnce() -> bool,
    ) -> Option<EntryRef<'e>> {
        let is_filtered = entry.kind == EntryKind::Put && is_unseen;
        if !is_filtered || entry.seqno < snapshots.horizon() {
            return Some(entry);
        }
        if !self.default.holds(entry.key) {
            return Some(entry);
        }
        match self.filter.decide(&self.context, self.default.strip(entry.key), entry.value) {
            FilterDecision::Keep => Some(entry),
            _ if has_newer() => Some(entry),
            FilterDecision::Remove => {
                self.filter.count_removed();
                let hides = hides();
                hides.then_some(EntryRef { kind: EntryKind::Delete, value: &[], ..entry })
            }
            FilterDecision::Replace(value) => {
                self.filter.count_replaced();
                self.replacement = value;
                Some(EntryRef { value: &self.replacement, ..entry })
            }
        }
    }
}

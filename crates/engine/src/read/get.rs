//! Looking up one key.

use trommel_base::{EntryKind, SeqNo, Slice};

use super::probe::Lookup;
use crate::engine::Engine;
use crate::error::Result;
use crate::version::LEVELS;

impl Engine {
    /// The value of `key` at the moment `at`, or now.
    ///
    /// Memtables first, then the runs of level 0 newest first, then of each deeper level the one
    /// table whose key range holds the key; the first version found is the newest.
    pub(crate) fn get(&self, key: &[u8], at: Option<SeqNo>) -> Result<Option<Slice>> {
        self.check_open()?;
        // The view is pinned before the moment is read: see `Snapshots::visible`.
        let view = self.view.load();
        let seqno = at.unwrap_or_else(|| self.snapshots.visible());
        if let Some(entry) = view.get_in_memory(key, seqno) {
            let value = (entry.kind == EntryKind::Put).then(|| Slice::from(entry.value));
            self.count_get(value.is_some());
            return Ok(value);
        }
        let lookup = Lookup::new(self, key, seqno);
        let mut found = None;
        for table in view.version.levels[0].iter().filter(|table| table.may_hold(key)) {
            found = lookup.probe(0, table)?;
            if found.is_some() {
                break;
            }
        }
        for level in 1..LEVELS {
            if found.is_some() {
                break;
            }
            if let Some(table) = view.version.table_for(level, key) {
                found = lookup.probe(level, table)?;
            }
        }
        let value = found.filter(|found| found.kind == EntryKind::Put).map(|found| found.value);
        self.count_get(value.is_some());
        Ok(value)
    }

    fn count_get(&self, found: bool) {
        self.counters.with(|shard| {
            shard.gets.add(1);
            shard.found.add(u64::from(found));
        });
    }
}

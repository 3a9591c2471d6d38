//! Which tables make up the store at one moment: an immutable value, replaced as a whole.
//!
//! Invariants:
//! 1. Level 0 holds runs that may overlap, newest first; each deeper level is one sorted run of
//!    tables that do not overlap, smallest key first.
//! 2. All versions of one user key that lie in one level below 0 lie in one table.
//! 3. Of any key, at any moment that a reader may see, the first place that holds a version holds
//!    the newest: the tables of level 0 in their order, then each deeper level. What lies in an
//!    upper level is newer than what lies in a deeper one, but where a merge goes on, or was given
//!    up, of which [a part](crate::compaction_job::stretches) is in force: there the versions that
//!    it kept lie deeper too.

mod fences;
mod shared_files;
mod table_cache;
mod table_file;

use std::ops::Range;
use std::sync::Arc;

use crate::levels::LEVELS;

pub(crate) use fences::{Candidates, Fence, Fences, Run};
pub(crate) use shared_files::SharedFiles;
pub(crate) use table_cache::{Reader, TableCache};
pub use table_file::TableMeta;
pub(crate) use table_file::{Keeping, TableFile};

/// The tables of the store at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Version {
    /// Level 0 newest first; deeper levels by key.
    pub(crate) levels: [Vec<Arc<TableFile>>; LEVELS],
}

impl Version {
    /// All tables with their levels, level 0 first.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.levels.iter().enumerate().flat_map(|(level, run)| run.iter().map(move |t| (level, t)))
    }

    /// Keys of all tables, each counted in every table that has it.
    pub(crate) fn keys(&self) -> u64 {
        self.tables().map(|(_, table)| table.keys).sum()
    }

    /// The tables of `level` whose key range meets `smallest..=largest`, in the level's order.
    pub(crate) fn overlapping(
        &self,
        level: usize,
        smallest: &[u8],
        largest: &[u8],
    ) -> Vec<Arc<TableFile>> {
        let meets = |t: &&Arc<TableFile>| t.overlaps(smallest, largest);
        if level == 0 {
            return self.levels[0].iter().filter(meets).cloned().collect();
        }
        self.levels[level][self.span(level, smallest, largest)].to_vec()
    }

    /// Where the tables of a sorted `level` stand whose key range meets `smallest..=largest`.
    pub(crate) fn span(&self, level: usize, smallest: &[u8], largest: &[u8]) -> Range<usize> {
        let run = &self.levels[level];
        let from = run.partition_point(|table| *table.largest < *smallest);
        let len = run[from..].partition_point(|table| *table.smallest <= *largest);
        from..from + len
    }
}

/// The number that reports and filter policies give to physical `level`, once a table is in it:
/// 0, or 1 for the first level below that holds data, and so on; and whether it is the deepest.
pub(crate) fn logical_level(version: &Version, level: usize) -> (usize, bool) {
    if level == 0 {
        return (0, false);
    }
    let holds_data = |other: usize| other == level || !version.levels[other].is_empty();
    let number = (1..=level).filter(|other| holds_data(*other)).count();
    let is_last = (level + 1..LEVELS).all(|deeper| version.levels[deeper].is_empty());
    (number, is_last)
}

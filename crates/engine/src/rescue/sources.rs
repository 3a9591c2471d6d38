//! Ordered iteration over everything that is left of a store: keys ascending, versions of one key
//! newest first.
//!
//! Each version has its sequence number, so the level of a table does not matter and need not be
//! known: the newest remaining version of a key is the one with the highest number.
//!
//! 1. The tables are arranged in as few runs of disjoint tables as their key ranges allow; a run
//!    has one table open at a time.
//! 2. The writes of the logs are one more source.
//! 3. The iteration merges the sources.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use trommel_base::{EntryRef, compare_internal};
use trommel_sstable::format::BlockKind;
use trommel_sstable::{BlockInfo, Salvage};
use trommel_vfs::{Access, Vfs};

use super::logs::LoggedEntry;
use crate::damage::{Damage, KeySpan, Remedy};
use crate::error::{Error, Result};

/// A table with at least one good block.
#[derive(Debug)]
pub(crate) struct TableLeft {
    pub(crate) path: PathBuf,
    pub(crate) blocks: Vec<BlockInfo>,
    /// The key range of its good blocks.
    pub(crate) keys: KeySpan,
}

/// The table, if any of its blocks is good.
pub(crate) fn left(path: PathBuf, blocks: Vec<BlockInfo>) -> Option<TableLeft> {
    let mut good = blocks
        .iter()
        .filter(|block| block.kind == BlockKind::Data)
        .filter_map(|block| block.content.as_ref().ok());
    let first = good.next()?;
    let last = good.next_back().unwrap_or(first);
    let keys = KeySpan::new(&first.first_key, &last.last_key);
    Some(TableLeft { path, blocks, keys })
}

/// Disjoint tables, in order.
#[derive(Debug)]
struct RescuedRun {
    vfs: Arc<dyn Vfs>,
    tables: VecDeque<TableLeft>,
    open: Option<(PathBuf, Salvage)>,
    last: Option<(Vec<u8>, u64)>,
}

impl RescuedRun {
    /// Moves to the next entry. A table whose entries are out of order, which no writer writes,
    /// ends there and is reported.
    fn advance(&mut self, damage: &mut Vec<Damage>) -> Result<()> {
        loop {
            let Some((path, table)) = &mut self.open else {
                let Some(next) = self.tables.pop_front() else { return Ok(()) };
                let file = self.vfs.open(&next.path, Access::Buffered);
                let file = file.map_err(|error| Error::io(&next.path, "opening", error))?;
                let table = Salvage::new(file, &next.path, &next.blocks)?;
                self.open = Some((next.path, table));
                self.last = None;
                continue;
            };
            if !table.advance()? {
                self.open = None;
                continue;
            }
            let Some(entry) = table.entry()? else { continue };
            let is_next = self.last.as_ref().is_none_or(|(key, seqno)| {
                compare_internal(key, *seqno, entry.key, entry.seqno) == Ordering::Less
            });
            if is_next {
                self.last = Some((entry.key.to_vec(), entry.seqno));
                return Ok(());
            }
            let what = "its entries are out of order; what lies behind that is left out";
            damage.push(Damage::at(path, 0, what, Remedy::RestoreOrRepair));
            self.open = None;
        }
    }

    fn entry(&self) -> Result<Option<EntryRef<'_>>> {
        match &self.open {
            Some((_, table)) => Ok(table.entry()?),
            None => Ok(None),
        }
    }
}

/// The iterator over all sources.
#[derive(Debug)]
pub(crate) struct Everything {
    runs: Vec<RescuedRun>,
    /// In order, the next one first.
    logged: VecDeque<LoggedEntry>,
    /// Tables found out of order during the iteration.
    pub(crate) damage: Vec<Damage>,
    /// Source of the current entry; the logs come after all runs.
    at: Option<usize>,
}

impl Everything {
    /// An iterator over `tables` and `logged`, at the first entry.
    pub(crate) fn new(
        vfs: &Arc<dyn Vfs>,
        mut tables: Vec<TableLeft>,
        mut logged: Vec<LoggedEntry>,
    ) -> Result<Self> {
        tables.sort_by(|a, b| a.keys.cmp(&b.keys));
        let mut runs: Vec<VecDeque<TableLeft>> = Vec::new();
        for table in tables {
            let fits = |run: &&mut VecDeque<TableLeft>| {
                run.back().is_none_or(|last| last.keys.last < table.keys.first)
            };
            match runs.iter_mut().find(fits) {
                Some(run) => run.push_back(table),
                None => runs.push(VecDeque::from([table])),
            }
        }
        logged.sort_by(|a, b| compare_internal(&a.key, a.seqno, &b.key, b.seqno));
        let run = |tables| RescuedRun { vfs: Arc::clone(vfs), tables, open: None, last: None };
        let mut everything = Self {
            runs: runs.into_iter().map(run).collect(),
            logged: logged.into(),
            damage: Vec::new(),
            at: None,
        };
        for run in &mut everything.runs {
            run.advance(&mut everything.damage)?;
        }
        everything.at = everything.first()?;
        Ok(everything)
    }

    /// The source with the smallest current entry.
    fn first(&self) -> Result<Option<usize>> {
        let mut best: Option<(usize, EntryRef<'_>)> = None;
        for source in 0..=self.runs.len() {
            let Some(entry) = self.entry_of(source)? else { continue };
            let is_first = best.as_ref().is_none_or(|(_, first)| {
                compare_internal(entry.key, entry.seqno, first.key, first.seqno) == Ordering::Less
            });
            if is_first {
                best = Some((source, entry));
            }
        }
        Ok(best.map(|(source, _)| source))
    }

    fn entry_of(&self, source: usize) -> Result<Option<EntryRef<'_>>> {
        match self.runs.get(source) {
            Some(run) => run.entry(),
            None => Ok(self.logged.front().map(|entry| EntryRef {
                key: &entry.key,
                seqno: entry.seqno,
                kind: entry.kind,
                value: &entry.value,
            })),
        }
    }

    /// The current entry.
    pub(crate) fn entry(&self) -> Result<Option<EntryRef<'_>>> {
        self.at.map_or(Ok(None), |source| self.entry_of(source))
    }

    /// Moves to the next entry.
    pub(crate) fn advance(&mut self) -> Result<()> {
        match self.at {
            Some(source) if source < self.runs.len() => {
                self.runs[source].advance(&mut self.damage)?;
            }
            Some(_) => drop(self.logged.pop_front()),
            None => {}
        }
        self.at = self.first()?;
        Ok(())
    }
}

//! A cursor over one sorted level: opens each table when the cursor reaches it, and skips tables
//! that a gate has found to hold no key of the range.

use std::ops::Range;
use std::sync::Arc;

use trommel_base::{
    Aim, Cursor, CursorHints, EntryRef, InternalKey, KeyHead, MAX_SEQNO, SeqNo, Slice, Stage,
};
use trommel_sstable::{ReadStats, ScanOptions, TableCursor};

use super::gate::TableGate;
use crate::error::{Error, Result};
use crate::version::{Fences, Run, TableCache, TableFile};

/// Where to continue after a skipped table.
#[derive(Debug, Clone, Copy)]
enum SkipDirection {
    Forward,
    Backward,
}

/// The tables to iterate over, sorted and disjoint.
pub(crate) enum ScanTables {
    /// A list of tables.
    List(Vec<Arc<TableFile>>),
    /// Part of a sorted run of a version, found by its fences.
    Run {
        /// The version's fences.
        fences: Arc<Fences>,
        /// Index of the sorted run.
        run: usize,
        /// Indexes of its tables.
        range: Range<usize>,
    },
}

impl ScanTables {
    fn run(fences: &Fences, run: usize) -> Option<&Run> {
        fences.sorted_runs().get(run)
    }

    /// Number of tables.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::List(tables) => tables.len(),
            Self::Run { range, .. } => range.len(),
        }
    }

    fn get(&self, at: usize) -> Option<&Arc<TableFile>> {
        match self {
            Self::List(tables) => tables.get(at),
            Self::Run { fences, run, range } if at < range.len() => {
                Self::run(fences, *run)?.table(range.start + at)
            }
            Self::Run { .. } => None,
        }
    }

    /// Number of tables that end before `key`.
    fn ending_before(&self, key: &[u8]) -> usize {
        match self {
            Self::List(tables) => tables.partition_point(|table| *table.largest < *key),
            Self::Run { fences, run, range } => {
                let before = Self::run(fences, *run).map_or(0, |run| run.ending_before(key));
                before.clamp(range.start, range.end) - range.start
            }
        }
    }

    /// Number of tables that begin before `key`.
    fn beginning_before(&self, key: &[u8]) -> usize {
        match self {
            Self::List(tables) => tables.partition_point(|table| *table.smallest < *key),
            Self::Run { fences, run, range } => {
                let before = Self::run(fences, *run).map_or(0, |run| run.beginning_before(key));
                before.clamp(range.start, range.end) - range.start
            }
        }
    }

    /// The table that a seek goes to, and where to continue if it is skipped; `None` if the seek
    /// goes before the first table.
    fn sought(&self, key: &[u8], aim: Aim) -> Option<(usize, SkipDirection)> {
        match aim {
            Aim::From => Some((self.ending_before(key), SkipDirection::Forward)),
            Aim::Before => {
                Some((self.beginning_before(key).checked_sub(1)?, SkipDirection::Backward))
            }
        }
    }
}

/// A cursor over tables that do not overlap, in key order.
pub(crate) struct LevelCursor {
    tables: ScanTables,
    cache: Arc<TableCache>,
    scan: ScanOptions,
    gate: Option<TableGate>,
    /// Reads of the tables that the cursor has left.
    read: ReadStats,
    /// Index of the table that `cursor` iterates over.
    at: usize,
    cursor: Option<TableCursor>,
    /// The aim for which the last prefetch opened the table, until the next seek.
    prefetched: Option<Aim>,
}

impl LevelCursor {
    /// A cursor over `tables`.
    pub(crate) fn new(tables: ScanTables, cache: Arc<TableCache>, scan: ScanOptions) -> Self {
        let read = ReadStats::default();
        Self { tables, cache, scan, gate: None, read, at: 0, cursor: None, prefetched: None }
    }

    /// Adds a gate: tables that `gate` does not admit are skipped.
    pub(crate) fn with_gate(mut self, gate: TableGate) -> Self {
        self.gate = Some(gate);
        self
    }

    /// The physical level of its tables.
    pub(crate) fn level(&self) -> usize {
        match &self.tables {
            ScanTables::List(_) => 0,
            ScanTables::Run { fences, run, .. } => {
                ScanTables::run(fences, *run).map_or(0, Run::level)
            }
        }
    }

    /// Reads so far.
    pub(crate) fn read_stats(&self) -> ReadStats {
        let mut read = self.read;
        if let Some(cursor) = &self.cursor {
            read.add(&cursor.stats());
        }
        read
    }

    /// The cursor over the current table.
    #[inline]
    pub(crate) fn table(&mut self) -> Option<&mut TableCursor> {
        self.cursor.as_mut()
    }

    /// Whether the last prefetch has opened the table for a seek to `key` with this aim, as far as
    /// that is known.
    #[inline]
    fn is_prefetched(&mut self, key: &[u8], aim: Aim) -> bool {
        let is_for_aim = self.prefetched.take() == Some(aim);
        is_for_aim && self.cursor.as_ref().is_some_and(|cursor| cursor.has_sought(key))
    }

    fn leave(&mut self) {
        self.read = self.read_stats();
        self.cursor = None;
    }

    /// Opens table `at`, or the next one in this direction that the gate admits; `None` if there is
    /// none.
    fn open(
        &mut self,
        mut at: usize,
        direction: SkipDirection,
    ) -> Result<Option<&mut TableCursor>> {
        while self.cursor.is_none() || self.at != at {
            self.leave();
            let Some(file) = self.tables.get(at) else { return Ok(None) };
            if !self.gate.as_ref().is_some_and(|gate| gate.has_refused(at)) {
                let table = self.cache.reader(file)?;
                if self.gate.as_mut().is_none_or(|gate| gate.admits(at, file.max_seqno, &table)) {
                    let cursor = self.cursor.insert(table.cursor(self.scan));
                    if let Some(gate) = &self.gate {
                        gate.limit(&table, cursor);
                    }
                    self.at = at;
                    break;
                }
            }
            at = match direction {
                SkipDirection::Forward => at + 1,
                SkipDirection::Backward if at == 0 => return Ok(None),
                SkipDirection::Backward => at - 1,
            };
        }
        Ok(self.cursor.as_mut())
    }

    /// See [`SkipsDeleted::skip_deleted`](super::merge::SkipsDeleted::skip_deleted). Tables that
    /// end before `to` are passed unread.
    pub(crate) fn skip_deleted(&mut self, covering: SeqNo, to: Option<&[u8]>) -> Result<bool> {
        let (here, mut at) = (self.at, self.at);
        let is_older = |file: &Arc<TableFile>| file.max_seqno < covering;
        let is_passed =
            |file: &Arc<TableFile>| is_older(file) && to.is_none_or(|to| *file.largest < *to);
        while self.tables.get(at).is_some_and(is_passed) {
            at += 1;
        }
        let reaches_on = self.tables.get(at).is_some_and(is_older);
        if at == here && !reaches_on {
            return Ok(false);
        }
        self.guarded(|this| {
            if let Some(cursor) = this.open(at, SkipDirection::Forward)? {
                match to.filter(|_| reaches_on) {
                    Some(to) => cursor.seek(to, MAX_SEQNO)?,
                    None => cursor.seek_to_first()?,
                }
            }
            this.report_to_gate(TableGate::passed);
            this.skip_ends_forward()
        })?;
        Ok(true)
    }

    /// As `skip_deleted`, backward.
    pub(crate) fn skip_deleted_back(&mut self, covering: SeqNo, from: &[u8]) -> Result<bool> {
        let (here, mut at) = (self.at, self.at);
        let is_older = |file: &Arc<TableFile>| file.max_seqno < covering;
        while self.tables.get(at).is_some_and(|file| is_older(file) && *file.smallest >= *from) {
            let Some(before) = at.checked_sub(1) else {
                self.leave();
                return Ok(true);
            };
            at = before;
        }
        let reaches_on = self.tables.get(at).is_some_and(is_older);
        if at == here && !reaches_on {
            return Ok(false);
        }
        self.guarded(|this| {
            if let Some(cursor) = this.open(at, SkipDirection::Backward)? {
                match reaches_on {
                    true => cursor.seek_before(from)?,
                    false => cursor.seek_to_last()?,
                }
            }
            this.report_to_gate(TableGate::passed);
            this.skip_ends_backward()
        })?;
        Ok(true)
    }

    /// Reports to the gate in which table the cursor is positioned, if any, and on which key.
    fn report_to_gate(
        &mut self,
        report: impl FnOnce(&mut TableGate, Option<usize>, Option<&[u8]>),
    ) {
        let Some(gate) = &mut self.gate else { return };
        let entry = self.cursor.as_ref().and_then(TableCursor::entry);
        report(gate, self.cursor.as_ref().map(|_| self.at), entry.map(|entry| entry.key));
    }

    /// Moves to the first entry of the next non-empty table, if the current one is at its end.
    fn skip_ends_forward(&mut self) -> Result<()> {
        while self.cursor.as_ref().is_some_and(|cursor| !cursor.is_valid()) {
            if let Some(cursor) = self.open(self.at + 1, SkipDirection::Forward)? {
                cursor.seek_to_first()?;
            }
            self.report_to_gate(TableGate::passed);
        }
        Ok(())
    }

    fn skip_ends_backward(&mut self) -> Result<()> {
        while self.cursor.as_ref().is_some_and(|cursor| !cursor.is_valid()) {
            let Some(before) = self.at.checked_sub(1) else {
                self.leave();
                return Ok(());
            };
            if let Some(cursor) = self.open(before, SkipDirection::Backward)? {
                cursor.seek_to_last()?;
            }
            self.report_to_gate(TableGate::passed);
        }
        Ok(())
    }

    /// Continues after a table that has ended or failed.
    #[cold]
    fn continue_after(
        &mut self,
        outcome: std::result::Result<(), trommel_sstable::Error>,
        direction: SkipDirection,
    ) -> Result<()> {
        self.guarded(|this| {
            outcome?;
            match direction {
                SkipDirection::Forward => this.skip_ends_forward(),
                SkipDirection::Backward => this.skip_ends_backward(),
            }
        })
    }

    /// Runs a movement; an error leaves the cursor off the end.
    fn guarded(&mut self, movement: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let outcome = movement(self);
        if outcome.is_err() {
            self.leave();
        }
        outcome
    }
}

impl Cursor for LevelCursor {
    type Error = Error;

    fn seek_to_first(&mut self) -> Result<()> {
        self.guarded(|this| {
            if let Some(cursor) = this.open(0, SkipDirection::Forward)? {
                cursor.seek_to_first()?;
            }
            this.report_to_gate(TableGate::passed);
            this.skip_ends_forward()
        })
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.guarded(|this| {
            let Some(last) = this.tables.len().checked_sub(1) else { return Ok(()) };
            if let Some(cursor) = this.open(last, SkipDirection::Backward)? {
                cursor.seek_to_last()?;
            }
            this.report_to_gate(TableGate::passed);
            this.skip_ends_backward()
        })
    }

    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<()> {
        let is_prefetched = self.is_prefetched(key, Aim::From);
        self.guarded(|this| {
            if is_prefetched && let Some(cursor) = &mut this.cursor {
                cursor.seek(key, seqno)?;
                return this.skip_ends_forward();
            }
            if let Some((at, direction)) = this.tables.sought(key, Aim::From)
                && let Some(cursor) = this.open(at, direction)?
            {
                cursor.seek(key, seqno)?;
            }
            this.report_to_gate(|gate, at, found| gate.found_from(at, key, seqno, found));
            this.skip_ends_forward()
        })
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let is_prefetched = self.is_prefetched(key, Aim::Before);
        self.guarded(|this| {
            if is_prefetched && let Some(cursor) = &mut this.cursor {
                cursor.seek_before(key)?;
                return this.skip_ends_backward();
            }
            let Some((at, direction)) = this.tables.sought(key, Aim::Before) else {
                this.leave();
                return Ok(());
            };
            if let Some(cursor) = this.open(at, direction)? {
                cursor.seek_before(key)?;
            }
            this.report_to_gate(|gate, at, found| gate.found_before(at, key, found));
            this.skip_ends_backward()
        })
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some(cursor) = self.cursor.as_mut() else { return Ok(()) };
        match cursor.next() {
            Ok(()) if cursor.is_valid() => Ok(()),
            outcome => self.continue_after(outcome, SkipDirection::Forward),
        }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let Some(cursor) = self.cursor.as_mut() else { return Ok(()) };
        match cursor.prev() {
            Ok(()) if cursor.is_valid() => Ok(()),
            outcome => self.continue_after(outcome, SkipDirection::Backward),
        }
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.cursor.as_ref()?.entry()
    }
}

impl CursorHints for LevelCursor {
    fn prefetch_seek(&mut self, key: &[u8], aim: Aim, stage: Stage) -> bool {
        // A gate is probed once, by the seek. Where whole blocks are copied there is nothing to
        // prefetch.
        if self.gate.is_some() || self.cache.read_mode().copies_for_scans() {
            return false;
        }
        if stage == Stage::Find {
            let Some((at, direction)) = self.tables.sought(key, aim) else { return false };
            // An error here recurs in the seek.
            let is_open = matches!(self.open(at, direction), Ok(Some(_)));
            self.prefetched = is_open.then_some(aim);
        }
        self.cursor.as_mut().is_some_and(|cursor| cursor.prefetch_seek(key, aim, stage))
    }

    #[inline]
    fn next_at_hand(&mut self) -> Option<KeyHead> {
        self.cursor.as_mut()?.next_at_hand()
    }

    #[inline]
    fn prev_at_hand(&mut self) -> Option<KeyHead> {
        self.cursor.as_mut()?.prev_at_hand()
    }

    #[inline]
    fn internal_key(&self) -> Option<InternalKey<'_>> {
        self.cursor.as_ref()?.internal_key()
    }

    #[inline]
    fn head(&self) -> Option<KeyHead> {
        self.cursor.as_ref()?.head()
    }

    #[inline]
    fn begins_key(&self) -> bool {
        self.cursor.as_ref().is_some_and(CursorHints::begins_key)
    }

    fn shared_value(&self) -> Option<Slice> {
        self.cursor.as_ref().and_then(CursorHints::shared_value)
    }
}

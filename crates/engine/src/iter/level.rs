//! A walk over one sorted level: its tables one after the other, each opened when it is reached.

use std::sync::Arc;

use trommel_base::{Cursor, EntryRef, SeqNo, Slice};
use trommel_sstable::{ScanOptions, TableCursor};

use crate::error::{Error, Result};
use crate::version::{TableCache, TableFile};

/// A cursor over tables that do not overlap, in key order.
pub(crate) struct LevelCursor {
    tables: Vec<Arc<TableFile>>,
    cache: Arc<TableCache>,
    scan: ScanOptions,
    /// Index of the table that `cursor` walks.
    at: usize,
    cursor: Option<TableCursor>,
}

impl LevelCursor {
    /// A cursor over `tables`, which must be sorted and disjoint.
    pub(crate) fn new(
        tables: Vec<Arc<TableFile>>,
        cache: Arc<TableCache>,
        scan: ScanOptions,
    ) -> Self {
        Self { tables, cache, scan, at: 0, cursor: None }
    }

    /// Makes `cursor` walk table `at`, or nothing if there is no such table.
    fn open(&mut self, at: usize) -> Result<Option<&mut TableCursor>> {
        if self.cursor.is_none() || self.at != at {
            self.cursor = None;
            let Some(file) = self.tables.get(at) else { return Ok(None) };
            self.cursor = Some(self.cache.reader(file)?.cursor(self.scan));
            self.at = at;
        }
        Ok(self.cursor.as_mut())
    }

    /// Moves on to the first entry of the next table that has one, if the current one is at its
    /// end.
    fn skip_ends_forward(&mut self) -> Result<()> {
        while self.cursor.as_ref().is_some_and(|cursor| cursor.entry().is_none()) {
            if let Some(cursor) = self.open(self.at + 1)? {
                cursor.seek_to_first()?;
            }
        }
        Ok(())
    }

    fn skip_ends_backward(&mut self) -> Result<()> {
        while self.cursor.as_ref().is_some_and(|cursor| cursor.entry().is_none()) {
            let Some(before) = self.at.checked_sub(1) else {
                self.cursor = None;
                return Ok(());
            };
            if let Some(cursor) = self.open(before)? {
                cursor.seek_to_last()?;
            }
        }
        Ok(())
    }

    /// Runs a movement; an error leaves the cursor off the end.
    fn guarded(&mut self, movement: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let outcome = movement(self);
        if outcome.is_err() {
            self.cursor = None;
        }
        outcome
    }
}

impl Cursor for LevelCursor {
    type Error = Error;

    fn seek_to_first(&mut self) -> Result<()> {
        self.guarded(|this| {
            if let Some(cursor) = this.open(0)? {
                cursor.seek_to_first()?;
            }
            this.skip_ends_forward()
        })
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.guarded(|this| {
            let Some(last) = this.tables.len().checked_sub(1) else { return Ok(()) };
            if let Some(cursor) = this.open(last)? {
                cursor.seek_to_last()?;
            }
            this.skip_ends_backward()
        })
    }

    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<()> {
        self.guarded(|this| {
            let at = this.tables.partition_point(|table| *table.largest < *key);
            if let Some(cursor) = this.open(at)? {
                cursor.seek(key, seqno)?;
            }
            this.skip_ends_forward()
        })
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.guarded(|this| {
            let behind = this.tables.partition_point(|table| *table.smallest < *key);
            let Some(at) = behind.checked_sub(1) else {
                this.cursor = None;
                return Ok(());
            };
            if let Some(cursor) = this.open(at)? {
                cursor.seek_before(key)?;
            }
            this.skip_ends_backward()
        })
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some(cursor) = self.cursor.as_mut() else { return Ok(()) };
        let outcome = cursor.next();
        if outcome.is_ok() && cursor.entry().is_some() {
            return Ok(());
        }
        self.guarded(|this| {
            outcome?;
            this.skip_ends_forward()
        })
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let Some(cursor) = self.cursor.as_mut() else { return Ok(()) };
        let outcome = cursor.prev();
        if outcome.is_ok() && cursor.entry().is_some() {
            return Ok(());
        }
        self.guarded(|this| {
            outcome?;
            this.skip_ends_backward()
        })
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.cursor.as_ref()?.entry()
    }

    fn value(&self) -> Slice {
        self.cursor.as_ref().map_or_else(Slice::default, Cursor::value)
    }
}

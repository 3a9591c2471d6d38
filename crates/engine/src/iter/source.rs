//! The sources that a scan merges: memtables, level-0 tables, whole levels, and in place of all
//! tables a sorted view of them.
//!
//! A sorted view that turns out to be wrong is replaced by a merge of its tables, which goes on
//! from the same entry.

use std::sync::Arc;

use trommel_base::{
    Aim, Cursor, CursorHints, EntryRef, InternalKey, KeyHead, MAX_SEQNO, SeqNo, Slice, Stage,
};
use trommel_memtable::MemtableCursor;
use trommel_sstable::{ReadStats, TableCursor};

use super::level::LevelCursor;
use super::merge::{HasLeaf, MergeCursor, SkipsDeleted};
use super::sorted::{LostEntry, SortedCursor};
use crate::error::{Error, Result};

/// One source of a merge.
pub(crate) enum Source {
    Memtable(MemtableCursor),
    /// A table, and its largest sequence number.
    Table(TableCursor, SeqNo),
    Level(LevelCursor),
    /// All tables.
    Sorted(SortedCursor),
    /// All tables, in place of a sorted view that is wrong.
    Merged(Box<MergeCursor<LevelCursor>>),
}

macro_rules! each {
    ($self:ident, $cursor:ident => $call:expr) => {
        match $self {
            Source::Memtable($cursor) => $call,
            Source::Table($cursor, _) => $call,
            Source::Level($cursor) => $call,
            Source::Sorted($cursor) => $call,
            Source::Merged($cursor) => $call,
        }
    };
}

impl Cursor for Source {
    type Error = Error;

    fn seek_to_first(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_to_first()?);
        if self.is_lost() { self.instead(Cursor::seek_to_first) } else { Ok(()) }
    }

    fn seek_to_last(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_to_last()?);
        if self.is_lost() { self.instead(Cursor::seek_to_last) } else { Ok(()) }
    }

    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<()> {
        each!(self, cursor => cursor.seek(key, seqno)?);
        if self.is_lost() { self.instead(|merge| merge.seek(key, seqno)) } else { Ok(()) }
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        each!(self, cursor => cursor.seek_before(key)?);
        if self.is_lost() { self.instead(|merge| merge.seek_before(key)) } else { Ok(()) }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, cursor => cursor.next()?);
        if self.is_lost() { self.step_instead(Cursor::next) } else { Ok(()) }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        each!(self, cursor => cursor.prev()?);
        if self.is_lost() { self.step_instead(Cursor::prev) } else { Ok(()) }
    }

    #[inline]
    fn entry(&self) -> Option<EntryRef<'_>> {
        each!(self, cursor => cursor.entry())
    }
}

impl CursorHints for Source {
    fn prefetch_seek(&mut self, key: &[u8], aim: Aim, stage: Stage) -> bool {
        each!(self, cursor => cursor.prefetch_seek(key, aim, stage))
    }

    #[inline]
    fn next_at_hand(&mut self) -> Option<KeyHead> {
        each!(self, cursor => cursor.next_at_hand())
    }

    #[inline]
    fn prev_at_hand(&mut self) -> Option<KeyHead> {
        each!(self, cursor => cursor.prev_at_hand())
    }

    #[inline]
    fn internal_key(&self) -> Option<InternalKey<'_>> {
        each!(self, cursor => cursor.internal_key())
    }

    #[inline]
    fn head(&self) -> Option<KeyHead> {
        match self {
            Self::Memtable(cursor) => cursor.head(),
            Self::Table(cursor, _) => cursor.head(),
            Self::Level(cursor) => cursor.head(),
            Self::Sorted(cursor) => cursor.head(),
            Self::Merged(merge) => CursorHints::head(&**merge),
        }
    }

    #[inline]
    fn begins_key(&self) -> bool {
        each!(self, cursor => cursor.begins_key())
    }

    fn shared_value(&self) -> Option<Slice> {
        each!(self, cursor => cursor.shared_value())
    }
}

impl HasLeaf for Source {
    type Leaf = TableCursor;

    #[inline]
    fn leaf(&mut self) -> Option<&mut TableCursor> {
        match self {
            Self::Memtable(_) => None,
            Self::Table(cursor, _) => Some(cursor),
            Self::Level(cursor) => cursor.table(),
            Self::Sorted(_) | Self::Merged(_) => None,
        }
    }

    type Whole = SortedCursor;

    #[inline]
    fn whole(&mut self) -> Option<&mut SortedCursor> {
        match self {
            Self::Sorted(cursor) => Some(cursor),
            _ => None,
        }
    }
}

impl SkipsDeleted for Source {
    fn skip_deleted(&mut self, covering: SeqNo, to: Option<&[u8]>) -> Result<bool> {
        match self {
            Self::Memtable(cursor) => cursor.skip_older(covering, to),
            Self::Table(_, newest) if *newest >= covering => return Ok(false),
            Self::Table(cursor, _) => match to {
                Some(to) => cursor.seek(to, MAX_SEQNO)?,
                None => cursor.leave(),
            },
            Self::Level(cursor) => return cursor.skip_deleted(covering, to),
            Self::Sorted(cursor) => {
                let has_moved = cursor.skip_deleted(covering, to)?;
                return self.unless_lost(has_moved);
            }
            Self::Merged(_) => return Ok(false),
        }
        Ok(true)
    }

    fn skip_deleted_back(&mut self, covering: SeqNo, from: &[u8]) -> Result<bool> {
        match self {
            Self::Memtable(cursor) => cursor.skip_older_back(covering, from),
            Self::Table(_, newest) if *newest >= covering => return Ok(false),
            Self::Table(cursor, _) => cursor.seek_before(from)?,
            Self::Level(cursor) => return cursor.skip_deleted_back(covering, from),
            Self::Sorted(cursor) => {
                let has_moved = cursor.skip_deleted_back(covering, from)?;
                return self.unless_lost(has_moved);
            }
            Self::Merged(_) => return Ok(false),
        }
        Ok(true)
    }
}

impl Source {
    /// Table reads so far.
    pub(crate) fn read_stats(&self) -> ReadStats {
        match self {
            Self::Memtable(_) => ReadStats::default(),
            Self::Table(cursor, _) => cursor.stats(),
            Self::Level(cursor) => cursor.read_stats(),
            Self::Sorted(cursor) => cursor.read_stats(),
            Self::Merged(merge) => {
                let mut read = ReadStats::default();
                merge.sources().iter().for_each(|cursor| read.add(&cursor.read_stats()));
                read
            }
        }
    }

    /// Whether the last movement has shown a sorted view to be wrong.
    #[inline]
    fn is_lost(&self) -> bool {
        matches!(self, Self::Sorted(cursor) if cursor.lost().is_some())
    }

    /// Takes the tables in place of a sorted view that is wrong, by this movement.
    #[cold]
    fn instead(
        &mut self,
        movement: impl FnOnce(&mut MergeCursor<LevelCursor>) -> Result<()>,
    ) -> Result<()> {
        let Self::Sorted(cursor) = self else { return Ok(()) };
        let mut merge = Box::new(MergeCursor::new(cursor.runs().collect()));
        let outcome = movement(&mut merge);
        *self = Self::Merged(merge);
        outcome
    }

    /// Returns whether a skip has moved. If it has shown a sorted view to be wrong, the tables are
    /// taken, on the same entry.
    fn unless_lost(&mut self, has_moved: bool) -> Result<bool> {
        if self.is_lost() {
            self.step_instead(|_| Ok(()))?;
        }
        Ok(has_moved)
    }

    /// As `instead`, by this step from the entry that the view was left on.
    #[cold]
    fn step_instead(
        &mut self,
        movement: impl FnOnce(&mut MergeCursor<LevelCursor>) -> Result<()>,
    ) -> Result<()> {
        let Self::Sorted(cursor) = self else { return Ok(()) };
        let Some(LostEntry { key, seqno }) = cursor.take_lost() else { return Ok(()) };
        self.instead(|merge| {
            merge.seek(&key, seqno)?;
            movement(merge)
        })
    }

    /// A source over one memtable.
    pub(crate) fn memtable(memtable: &Arc<trommel_memtable::Memtable>) -> Self {
        Self::Memtable(memtable.cursor())
    }
}

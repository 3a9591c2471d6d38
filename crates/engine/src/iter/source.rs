//! The sources that a scan merges: memtables, level-0 tables, and whole levels.

use std::sync::Arc;

use trommel_base::{
    Aim, Cursor, CursorHints, EntryRef, InternalKey, KeyHead, MAX_SEQNO, SeqNo, Slice, Stage,
};
use trommel_memtable::MemtableCursor;
use trommel_sstable::{ReadStats, TableCursor};

use super::level::LevelCursor;
use super::merge::{HasLeaf, SkipsDeleted};
use crate::error::{Error, Result};

/// One source of a merge.
pub(crate) enum Source {
    Memtable(MemtableCursor),
    /// A table, and its largest sequence number.
    Table(TableCursor, SeqNo),
    Level(LevelCursor),
}

macro_rules! each {
    ($self:ident, $cursor:ident => $call:expr) => {
        match $self {
            Source::Memtable($cursor) => $call,
            Source::Table($cursor, _) => $call,
            Source::Level($cursor) => $call,
        }
    };
}

impl Cursor for Source {
    type Error = Error;

    fn seek_to_first(&mut self) -> Result<()> {
        each!(self, cursor => Ok(cursor.seek_to_first()?))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        each!(self, cursor => Ok(cursor.seek_to_last()?))
    }

    fn seek(&mut self, key: &[u8], seqno: SeqNo) -> Result<()> {
        each!(self, cursor => Ok(cursor.seek(key, seqno)?))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        each!(self, cursor => Ok(cursor.seek_before(key)?))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, cursor => Ok(cursor.next()?))
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        each!(self, cursor => Ok(cursor.prev()?))
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
        each!(self, cursor => cursor.head())
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
        }
        Ok(true)
    }

    fn skip_deleted_back(&mut self, covering: SeqNo, from: &[u8]) -> Result<bool> {
        match self {
            Self::Memtable(cursor) => cursor.skip_older_back(covering, from),
            Self::Table(_, newest) if *newest >= covering => return Ok(false),
            Self::Table(cursor, _) => cursor.seek_before(from)?,
            Self::Level(cursor) => return cursor.skip_deleted_back(covering, from),
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
        }
    }

    /// The physical level of its tables, if it has any.
    pub(crate) fn level(&self) -> Option<usize> {
        match self {
            Self::Memtable(_) => None,
            Self::Table(..) => Some(0),
            Self::Level(cursor) => Some(cursor.level()),
        }
    }

    /// A source over what a reader as of `seqno` needs of one memtable.
    pub(crate) fn memtable(memtable: &Arc<trommel_memtable::Memtable>, seqno: SeqNo) -> Self {
        Self::Memtable(memtable.cursor_at(seqno))
    }
}

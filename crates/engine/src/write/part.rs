//! Writes to one keyspace, and batches over several.
//!
//! A write to a named keyspace holds its gate. A write whose keys depend on how the default
//! keyspace is stored holds the lock of the mapping, so that this cannot change. Both are taken
//! before the write joins the queue, and held until it is visible. They cannot deadlock: a drop or
//! a change of the mapping holds only one of them exclusively, and waits for no other.

use std::borrow::Cow;

use trommel_base::SeqNo;

use crate::batch::{Batch, Condition, OpKind, WriteBatch};
use crate::bounds::Bounds;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::keyspaces::{KeyspaceState, Part};
use crate::latencies::TimedOperation;
use crate::options::WriteOptions;
use crate::space::{CATALOG_ID, KeyBuffer, Space, id_of, is_marked};
use crate::sync::RwLockReadGuard;

impl Engine {
    /// Counts the time of a write that is in the sample: that of the whole call, from before its
    /// keyspaces are entered until it is visible.
    #[cold]
    #[inline(never)]
    pub(crate) fn timed_write<T>(&self, write: impl FnOnce() -> T) -> T {
        self.statistics.latencies.timed(TimedOperation::Write, write)
    }

    /// Writes one operation on a key of this part.
    #[inline]
    pub(crate) fn write_in(
        &self,
        part: Part<'_>,
        kind: OpKind,
        key: &[u8],
        value: &[u8],
        options: WriteOptions,
    ) -> Result<SeqNo> {
        match part {
            Part::Default if kind != OpKind::Merge && !is_marked(key) => {
                // Nothing was waited for so far.
                self.write_sampled(Batch::one(kind, key, value)?, options)
            }
            _ => self.write_mapped(part, kind, key, value, options),
        }
    }

    /// As `write_in`, for keys that are stored with a header, and for operands.
    #[inline(never)]
    fn write_mapped(
        &self,
        part: Part<'_>,
        kind: OpKind,
        key: &[u8],
        value: &[u8],
        options: WriteOptions,
    ) -> Result<SeqNo> {
        if self.statistics.latencies.samples() {
            return self.timed_write(|| self.write_mapped(part, kind, key, value, options));
        }
        let (_entered, space) = match part {
            Part::Default if !is_marked(key) => (None, Space::Plain),
            _ => self.enter(part)?,
        };
        let mut buffer = KeyBuffer::default();
        let key = space.key_in(key, &mut buffer);
        if kind == OpKind::Merge {
            self.prepare_for_operand(key)?;
        }
        self.write(Batch::one(kind, key, value)?, options)
    }

    /// Deletes the keys of this part within `bounds`.
    pub(crate) fn delete_range_in(
        &self,
        part: Part<'_>,
        bounds: Bounds,
        options: WriteOptions,
    ) -> Result<SeqNo> {
        if self.statistics.latencies.samples() {
            return self.timed_write(|| self.delete_range_in(part, bounds, options));
        }
        let (_entered, space) = self.enter(part)?;
        let mut batch = WriteBatch::new();
        batch.push_physical_range(&space.bounds(bounds));
        self.write_physical(&batch, options)
    }

    /// How the keys of this part are stored, while the guard lives.
    fn enter<'a>(&'a self, part: Part<'a>) -> Result<(Option<RwLockReadGuard<'a, ()>>, Space)> {
        // In a forked child the locks may be held forever.
        self.access.opener().check()?;
        match part {
            Part::Whole => Ok((None, Space::Plain)),
            Part::Keyspace(state) => Ok((Some(state.enter()?), state.space())),
            Part::Default => {
                let (guard, space) = self.options.keyspaces.default_for_write();
                Ok((Some(guard), space))
            }
        }
    }

    /// Sets a key of this part to `new`, or deletes it, if its value is `expected`, or if it has
    /// none; returns whether it was set.
    pub(crate) fn compare_and_set_in(
        &self,
        part: Part<'_>,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        options: WriteOptions,
    ) -> Result<bool> {
        if self.statistics.latencies.samples() {
            return self.timed_write(|| self.compare_and_set_in(part, key, expected, new, options));
        }
        let (_entered, space) = match part {
            Part::Default if !is_marked(key) => (None, Space::Plain),
            _ => self.enter(part)?,
        };
        let mut buffer = KeyBuffer::default();
        let key = space.key_in(key, &mut buffer);
        let batch = match new {
            Some(value) => Batch::one(OpKind::Put, key, value)?,
            None => Batch::one(OpKind::Delete, key, &[])?,
        };
        let condition = [Condition::of(key, expected)];
        match self.write_if(batch, Cow::Borrowed(&condition), None, options) {
            Ok(_) => Ok(true),
            Err(Error::Conflict(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes a batch, whatever keyspaces it is on.
    pub(crate) fn write_batch(&self, batch: &WriteBatch, options: WriteOptions) -> Result<SeqNo> {
        if self.statistics.latencies.samples() {
            return self.timed_write(|| self.write_batch(batch, options));
        }
        if !batch.is_plain() {
            return self.write_batch_mapped(batch, options);
        }
        self.prepare_for_operands(batch)?;
        self.write_physical(batch, options)
    }

    /// Writes a batch of physical keys.
    pub(crate) fn write_physical(
        &self,
        batch: &WriteBatch,
        options: WriteOptions,
    ) -> Result<SeqNo> {
        let (sealed, conditions) = (Batch::Sealed(batch.seal()?), batch.conditions());
        if conditions.is_empty() {
            return self.write(sealed, options);
        }
        self.write_if(sealed, Cow::Borrowed(conditions), None, options)
    }

    #[inline(never)]
    fn write_batch_mapped(&self, batch: &WriteBatch, options: WriteOptions) -> Result<SeqNo> {
        self.access.opener().check()?;
        let entered = self.enter_all(batch.keyspaces().iter().map(|state| &**state))?;
        self.prepare_for_operands(batch)?;
        let (guard, batch) = match batch.depends_on_store() {
            false => (None, Cow::Borrowed(batch)),
            true => {
                let (guard, default) = self.options.keyspaces.default_for_write();
                (Some(guard), batch.for_store(default)?)
            }
        };
        let outcome = self.write_physical(&batch, options);
        drop((entered, guard));
        outcome.map_err(|error| self.name_conflict(error))
    }

    /// Holds the gates of these keyspaces, none of which occurs twice.
    pub(crate) fn enter_all<'a>(
        &self,
        states: impl Iterator<Item = &'a KeyspaceState>,
    ) -> Result<Vec<RwLockReadGuard<'a, ()>>> {
        let enter = |state: &'a KeyspaceState| {
            self.options.keyspaces.check_own(state)?;
            state.enter()
        };
        states.map(enter).collect()
    }

    /// Names the keyspace of a conflict, whose key is a physical one.
    pub(crate) fn name_conflict(&self, error: Error) -> Error {
        let Error::Conflict(mut conflict) = error else { return error };
        let keyspaces = &self.options.keyspaces;
        if let Some(id) = id_of(&conflict.key).filter(|_| keyspaces.default_now() != Space::Plain) {
            if id > CATALOG_ID {
                let name = keyspaces.name_of(id);
                conflict.keyspace = name.or_else(|| Some(format!("number {id}, dropped")));
            }
            conflict.key = Space::Named(id).strip(&conflict.key).to_vec();
        }
        Error::Conflict(conflict)
    }
}

//! Lookups in one keyspace.

use trommel_base::{SeqNo, Slice};

use crate::bounds::Bounds;
use crate::engine::Engine;
use crate::error::Result;
use crate::keyspaces::Part;
use crate::latencies::TimedOperation;
use crate::space::{KeyBuffer, Space, is_marked};
use crate::view::ReadAt;

impl Engine {
    /// The value of `key` of this part as of `at`, or now.
    #[inline]
    pub(crate) fn get_in(
        &self,
        part: Part<'_>,
        key: &[u8],
        at: Option<ReadAt<'_>>,
    ) -> Result<Option<Slice>> {
        match part {
            Part::Default if !is_marked(key) => self.get(key, at),
            _ => self.get_mapped(part, key, at),
        }
    }

    #[inline(never)]
    fn get_mapped(
        &self,
        part: Part<'_>,
        key: &[u8],
        at: Option<ReadAt<'_>>,
    ) -> Result<Option<Slice>> {
        let mut buffer = KeyBuffer::default();
        self.mapped(part, at, |space| self.get(space.key_in(key, &mut buffer), at))
    }

    /// Whether `key` of this part has a value as of `at`, or now.
    #[inline]
    pub(crate) fn contains_in(
        &self,
        part: Part<'_>,
        key: &[u8],
        at: Option<ReadAt<'_>>,
    ) -> Result<bool> {
        match part {
            Part::Default if !is_marked(key) => self.contains(key, at),
            _ => self.contains_mapped(part, key, at),
        }
    }

    #[inline(never)]
    fn contains_mapped(&self, part: Part<'_>, key: &[u8], at: Option<ReadAt<'_>>) -> Result<bool> {
        let mut buffer = KeyBuffer::default();
        self.mapped(part, at, |space| self.contains(space.key_in(key, &mut buffer), at))
    }

    /// The values of `keys` of this part, in their order, as of `at`, or now.
    pub(crate) fn multi_get_in<K: AsRef<[u8]>>(
        &self,
        part: Part<'_>,
        keys: &[K],
        at: Option<ReadAt<'_>>,
    ) -> Result<Vec<Option<Slice>>> {
        let latencies = &self.statistics.latencies;
        if latencies.samples() {
            let search = || self.multi_get_in(part, keys, at);
            return latencies.timed(TimedOperation::MultiGet, search);
        }
        let is_plain = matches!(part, Part::Default) && !keys.iter().any(|k| is_marked(k.as_ref()));
        if is_plain {
            return self.multi_get(keys, at);
        }
        self.mapped(part, at, |space| {
            let physical: Vec<_> = keys.iter().map(|key| space.key(key.as_ref())).collect();
            self.multi_get(&physical, at)
        })
    }

    /// Reads as of `at`, or now: `read` gets the way in which the keys of this part are stored.
    pub(super) fn mapped<T>(
        &self,
        part: Part<'_>,
        at: Option<ReadAt<'_>>,
        mut read: impl FnMut(Space) -> Result<T>,
    ) -> Result<T> {
        let keyspaces = &self.options.keyspaces;
        if let Some(at) = at {
            return read(part.space_at(keyspaces, at.seqno)?);
        }
        loop {
            let space = part.space_at(keyspaces, SeqNo::MAX)?;
            let outcome = read(space);
            // The keyspace may have been dropped meanwhile, or the default one mapped, which
            // happens once.
            if part.space_at(keyspaces, SeqNo::MAX)? == space {
                return outcome;
            }
        }
    }

    /// The physical bounds of the keys of this part within `bounds`, now.
    pub(crate) fn bounds_in(&self, part: Part<'_>, bounds: Bounds) -> Result<Bounds> {
        let space = part.space_at(&self.options.keyspaces, SeqNo::MAX)?;
        Ok(space.bounds(bounds))
    }
}

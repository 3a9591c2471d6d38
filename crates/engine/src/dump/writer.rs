//! Writes a dump.

use std::io::{self, Write};

use trommel_base::codec::put_bytes;
use trommel_base::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use super::DumpTotals;
use super::format::{BLOCK_BYTES, FORM, KEYSPACES, KIND_BLOCK, KIND_KEYSPACE, MAX_KEYSPACE_BYTES};
use crate::env;
use crate::framed::{Form, FrameWriter};
use crate::keyspaces::KeyspaceOptions;

/// Writes a dump; see [the module](super). Without [`DumpWriter::finish`] it has no end, and
/// readers report it as truncated.
#[derive(Debug)]
pub struct DumpWriter<W> {
    frames: FrameWriter<W>,
    block: Vec<u8>,
    block_entries: u64,
    last_key: Option<Vec<u8>>,
    /// The last keyspace that was begun: "" before the first; `None` if the dump has none.
    last_keyspace: Option<String>,
    totals: DumpTotals,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a dump. Writes whole blocks; `out` needs no buffer of its own.
    ///
    /// # Errors
    /// The errors of `out`, in this and all other calls.
    pub fn new(out: W) -> io::Result<Self> {
        Self::with_id(out, 0, env::random_u64())
    }

    /// Begins a dump that may have named keyspaces: see [`DumpWriter::begin_keyspace`]. Versions of
    /// Trommel without keyspaces refuse it.
    ///
    /// # Errors
    /// The errors of `out`, in this and all other calls.
    pub fn with_keyspaces(out: W) -> io::Result<Self> {
        Self::with_id(out, KEYSPACES, env::random_u64())
    }

    pub(super) fn with_id(out: W, features: u64, id: u64) -> io::Result<Self> {
        Ok(Self {
            frames: FrameWriter::begin(out, Form { features, ..FORM }, id)?,
            block: Vec::new(),
            block_entries: 0,
            last_key: None,
            last_keyspace: (features == KEYSPACES).then(String::new),
            totals: DumpTotals::default(),
        })
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `InvalidInput` if the key is not larger than the previous one, or if key or value exceed the
    /// limits of a store.
    pub fn append(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if self.last_key.as_deref().is_some_and(|last| last >= key) {
            return wrong("the entries of a dump must come in ascending order of their keys");
        }
        if key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
            return wrong("a key of a dump has at most 65535 bytes, a value at most 1 GiB");
        }
        put_bytes(&mut self.block, key);
        put_bytes(&mut self.block, value);
        self.block_entries += 1;
        let last_key = self.last_key.get_or_insert_default();
        last_key.clear();
        last_key.extend_from_slice(key);
        if self.block.len() >= BLOCK_BYTES { self.write_block() } else { Ok(()) }
    }

    /// Ends the entries of the default keyspace, or of the last one that was begun, and begins
    /// those of the keyspace `name`. Keys ascend within each keyspace. Options that exist only in
    /// code, such as a prefix rule that is a closure, are left out.
    ///
    /// # Errors
    /// `InvalidInput` if the dump was not begun by [`DumpWriter::with_keyspaces`], or if the name
    /// is not larger than the previous one, in byte order, or is empty or too long.
    pub fn begin_keyspace(&mut self, name: &str, options: &KeyspaceOptions) -> io::Result<()> {
        let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let Some(last) = &self.last_keyspace else {
            return wrong("a dump with keyspaces must be begun by DumpWriter::with_keyspaces");
        };
        if **last >= *name {
            return wrong("the keyspaces of a dump must come in ascending order of their names");
        }
        let mut payload = Vec::new();
        put_bytes(&mut payload, name.as_bytes());
        for (option, value) in options.recordable() {
            put_bytes(&mut payload, option.as_bytes());
            put_bytes(&mut payload, value.as_bytes());
        }
        if payload.len() as u64 > MAX_KEYSPACE_BYTES {
            return wrong("the name of a keyspace and its options have at most 64 KiB in a dump");
        }
        if self.block_entries > 0 {
            self.write_block()?;
        }
        self.frames.frame(KIND_KEYSPACE, 0, &payload)?;
        self.totals.bytes += payload.len() as u64;
        (self.last_key, self.last_keyspace) = (None, Some(name.to_owned()));
        Ok(())
    }

    fn write_block(&mut self) -> io::Result<()> {
        self.frames.frame(KIND_BLOCK, self.block_entries, &self.block)?;
        self.totals.entries += self.block_entries;
        self.totals.bytes += self.block.len() as u64;
        self.block.clear();
        // The memory for one huge value is not held until the end.
        self.block.shrink_to(2 * BLOCK_BYTES);
        self.block_entries = 0;
        Ok(())
    }

    /// Writes the end, flushes, and returns `out` with the totals.
    pub fn finish(mut self) -> io::Result<(W, DumpTotals)> {
        if self.block_entries > 0 {
            self.write_block()?;
        }
        let DumpTotals { entries, bytes } = self.totals;
        Ok((self.frames.end(entries, bytes)?, self.totals))
    }
}

//! Writes a dump.

use std::io::{self, Write};

use trommel_base::codec::put_bytes;
use trommel_base::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use super::DumpTotals;
use super::format::{BLOCK_BYTES, FORM, KIND_BLOCK};
use crate::env;
use crate::framed::FrameWriter;

/// Writes a dump; see [the module](super). Without [`DumpWriter::finish`] it has no end, and
/// readers report it as truncated.
#[derive(Debug)]
pub struct DumpWriter<W> {
    frames: FrameWriter<W>,
    block: Vec<u8>,
    block_entries: u64,
    last_key: Option<Vec<u8>>,
    totals: DumpTotals,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a dump. Writes whole blocks; `out` needs no buffer of its own.
    ///
    /// # Errors
    /// Those of `out`, in this and all other calls.
    pub fn new(out: W) -> io::Result<Self> {
        Self::with_id(out, env::random_u64())
    }

    pub(super) fn with_id(out: W, id: u64) -> io::Result<Self> {
        Ok(Self {
            frames: FrameWriter::begin(out, FORM, id)?,
            block: Vec::new(),
            block_entries: 0,
            last_key: None,
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

    fn write_block(&mut self) -> io::Result<()> {
        self.frames.frame(KIND_BLOCK, self.block_entries, &self.block)?;
        self.totals.entries += self.block_entries;
        self.totals.bytes += self.block.len() as u64;
        self.block.clear();
        // One huge value does not hold its memory until the end.
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

//! Writes a dump.

use std::io::{self, Write};

use trommel_base::codec::put_bytes;
use trommel_base::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

use super::DumpTotals;
use super::format::{
    BLOCK_BYTES, CHECKSUM_BYTES, HEAD_BYTES, HEADER_BYTES, Head, Header, KIND_BLOCK, KIND_END,
    VERSION, checksum,
};
use crate::env;

/// Writes a dump; see [the module](super). Without [`DumpWriter::finish`] it has no end, and no
/// reader takes it for whole.
#[derive(Debug)]
pub struct DumpWriter<W> {
    out: W,
    id: u64,
    /// Bytes written so far.
    offset: u64,
    block: Vec<u8>,
    block_entries: u64,
    last_key: Option<Vec<u8>>,
    totals: DumpTotals,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a dump. It writes a block at a time; `out` needs no buffer of its own.
    ///
    /// # Errors
    /// As `out` has them, in this and all other calls.
    pub fn new(out: W) -> io::Result<Self> {
        Self::with_id(out, env::random_u64())
    }

    pub(super) fn with_id(mut out: W, id: u64) -> io::Result<Self> {
        out.write_all(&Header { version: VERSION, features: 0, id }.encode())?;
        Ok(Self {
            out,
            id,
            offset: HEADER_BYTES as u64,
            block: Vec::new(),
            block_entries: 0,
            last_key: None,
            totals: DumpTotals::default(),
        })
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `InvalidInput` if the key is not larger than the one before, or if key or value are longer
    /// than a store takes.
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
        let bytes = self.block.len() as u64;
        let head = Head { kind: KIND_BLOCK, entries: self.block_entries, bytes };
        self.out.write_all(&head.encode(self.id, self.offset))?;
        self.offset += HEAD_BYTES as u64;
        self.out.write_all(&self.block)?;
        self.out.write_all(&checksum(self.id, self.offset, &self.block).to_le_bytes())?;
        self.offset += bytes + CHECKSUM_BYTES as u64;
        self.totals.entries += self.block_entries;
        self.totals.bytes += bytes;
        self.block.clear();
        // One huge value does not hold its memory to the end.
        self.block.shrink_to(2 * BLOCK_BYTES);
        self.block_entries = 0;
        Ok(())
    }

    /// Writes the end, flushes, and gives `out` back, with what the dump holds.
    pub fn finish(mut self) -> io::Result<(W, DumpTotals)> {
        if self.block_entries > 0 {
            self.write_block()?;
        }
        let DumpTotals { entries, bytes } = self.totals;
        let end = Head { kind: KIND_END, entries, bytes };
        self.out.write_all(&end.encode(self.id, self.offset))?;
        self.out.flush()?;
        Ok((self.out, self.totals))
    }
}

//! Reads a dump and verifies every checksum.

use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;

use trommel_base::{Decoder, MAX_KEY_BYTES, MAX_VALUE_BYTES};

use super::DumpTotals;
use super::format::{FORM, KIND_BLOCK, MAX_PAYLOAD_BYTES};
use crate::error::Result;
use crate::framed::{FrameHead, FrameReader, KIND_END};

/// Reads a dump; see [the module](super).
#[derive(Debug)]
pub struct DumpReader<R> {
    frames: FrameReader<R>,
    /// The payload of the current block.
    block: Vec<u8>,
    /// The ranges of keys and values in it.
    entries: Vec<(Range<usize>, Range<usize>)>,
    /// Entries of it returned so far.
    returned: usize,
    /// Totals of the blocks read so far.
    totals: DumpTotals,
    done: bool,
}

impl<R: Read> DumpReader<R> {
    /// Begins to read a dump; `name` is its name in errors. A block takes three reads, so `input`
    /// should be buffered.
    ///
    /// # Errors
    /// [`Error::Corruption`](crate::Error::Corruption) if it is not a dump or its header is
    /// corrupt; [`Error::Unsupported`](crate::Error::Unsupported) if a newer version wrote it;
    /// [`Error::Io`](crate::Error::Io) from `input`.
    pub fn new(input: R, name: impl Into<PathBuf>) -> Result<Self> {
        Ok(Self {
            frames: FrameReader::begin(input, name.into(), FORM)?,
            block: Vec::new(),
            entries: Vec::new(),
            returned: 0,
            totals: DumpTotals::default(),
            done: false,
        })
    }

    /// The next entry, or `None` after the last one of a complete dump.
    ///
    /// # Errors
    /// [`Error::Corruption`](crate::Error::Corruption) with the offset in the dump; entries
    /// returned before are valid. After an error there are no more entries.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.returned == self.entries.len() && !self.done {
            let more = self.read_block();
            self.done = !matches!(more, Ok(true));
            more?;
        }
        if self.done {
            return Ok(None);
        }
        let (key, value) = &self.entries[self.returned];
        self.returned += 1;
        Ok(Some((&self.block[key.clone()], &self.block[value.clone()])))
    }

    /// The totals of the blocks read so far: of everything, after the last entry.
    pub fn totals(&self) -> DumpTotals {
        self.totals
    }

    /// Reads and verifies the next block; false at the end of the dump.
    fn read_block(&mut self) -> Result<bool> {
        let (head, at) = self.frames.head()?;
        match head.kind {
            KIND_BLOCK if head.bytes <= MAX_PAYLOAD_BYTES && head.entries > 0 => {}
            KIND_END => return self.read_end(head, at),
            _ => return Err(self.frames.damage(at, "no writer writes such a block")),
        }
        let last_key = self.entries.last().map(|(key, _)| self.block[key.clone()].to_vec());
        let at = self.frames.payload(head.bytes, &mut self.block)?;
        let Some(entries) = split(&self.block, head.entries, last_key.as_deref()) else {
            let what = "the block does not hold the entries that it should, in order";
            return Err(self.frames.damage(at, what));
        };
        self.entries = entries;
        self.returned = 0;
        self.totals.entries += head.entries;
        self.totals.bytes += head.bytes;
        Ok(true)
    }

    fn read_end(&mut self, end: FrameHead, at: u64) -> Result<bool> {
        if (DumpTotals { entries: end.entries, bytes: end.bytes }) != self.totals {
            return Err(self.frames.damage(at, "the end counts other entries than there are"));
        }
        self.frames.expect_nothing()?;
        Ok(false)
    }
}

/// The ranges of the entries of a payload, which must be exactly `count` entries with keys
/// ascending after `last_key`.
fn split(
    payload: &[u8],
    count: u64,
    last_key: Option<&[u8]>,
) -> Option<Vec<(Range<usize>, Range<usize>)>> {
    let mut rest = Decoder::new(payload);
    let mut last_key = last_key;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let key = rest.bytes(MAX_KEY_BYTES)?;
        let key_end = payload.len() - rest.remaining();
        let value = rest.bytes(MAX_VALUE_BYTES)?;
        let value_end = payload.len() - rest.remaining();
        if last_key.is_some_and(|last| last >= key) {
            return None;
        }
        last_key = Some(key);
        entries.push((key_end - key.len()..key_end, value_end - value.len()..value_end));
    }
    (entries.len() as u64 == count).then_some(entries)
}

//! Reads a trace; nothing is used before its checksum is verified.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use trommel_base::Decoder;
use trommel_vfs::{Access, FileInput, Vfs};

use super::format::{
    ABOUT_BYTES, BlockLookups, FORM, KIND_ABOUT, KIND_LOOKUPS, MAX_PAYLOAD_BYTES, is_whole,
};
use super::{TraceInfo, TraceTotals, TracedLookup};
use crate::error::{Error, Result};
use crate::framed::{FrameHead, FrameReader, KIND_END};

/// Bytes read from a file at once.
const READ_BYTES: usize = 256 << 10;

/// Reads a trace; see [the module](super). Holds one block in memory, less than a MiB.
#[derive(Debug)]
pub struct TraceReader<R> {
    frames: FrameReader<R>,
    info: TraceInfo,
    /// The payload of the current block, and how much of it was yielded.
    block: Vec<u8>,
    given: usize,
    lookups: BlockLookups,
    /// Totals of the blocks read so far.
    totals: TraceTotals,
    done: bool,
}

impl TraceReader<BufReader<FileInput>> {
    /// Opens the trace in the file at `path`.
    ///
    /// # Errors
    /// As [`TraceReader::new`].
    pub fn open(vfs: &dyn Vfs, path: &Path) -> Result<Self> {
        let file = vfs.open(path, Access::Buffered);
        let file = file.map_err(|source| Error::io(path, "opening", source))?;
        Self::new(BufReader::with_capacity(READ_BYTES, FileInput::new(file)), path)
    }
}

impl<R: Read> TraceReader<R> {
    /// Opens a trace, called `name` in errors. A block takes three reads: pass a buffered `input`.
    ///
    /// # Errors
    /// [`Error::Corruption`] if it is not a trace or its beginning is corrupt;
    /// [`Error::Unsupported`] if a newer version wrote it; [`Error::Io`] from `input`.
    pub fn new(input: R, name: impl Into<PathBuf>) -> Result<Self> {
        let mut frames = FrameReader::begin(input, name.into(), FORM)?;
        let (head, at) = frames.head()?;
        let about = FrameHead { kind: KIND_ABOUT, entries: 0, bytes: ABOUT_BYTES as u64 };
        if head != about {
            return Err(frames.damage(at, "it does not say what it is a trace of"));
        }
        let mut block = Vec::new();
        let at = frames.payload(head.bytes, &mut block)?;
        let info = TraceInfo::decode(&block);
        let info = info.ok_or_else(|| frames.damage(at, "no writer takes such a sample"))?;
        block.clear();
        Ok(Self {
            frames,
            info,
            block,
            given: 0,
            lookups: BlockLookups::default(),
            totals: TraceTotals::default(),
            done: false,
        })
    }

    /// The description of the trace.
    pub fn info(&self) -> TraceInfo {
        self.info
    }

    /// The next lookup; `None` after the last one of a complete trace. Within a block they ascend
    /// by key.
    ///
    /// # Errors
    /// [`Error::Corruption`] with the offset in the file; lookups yielded before are valid. After
    /// an error there is nothing more.
    pub fn next_lookup(&mut self) -> Result<Option<TracedLookup<'_>>> {
        if self.given == self.block.len() && !self.done {
            let more = self.read_block();
            self.done = !matches!(more, Ok(true));
            more?;
        }
        if self.done {
            return Ok(None);
        }
        let mut rest = Decoder::new(&self.block[self.given..]);
        let lookup = self.lookups.next(&mut rest);
        self.given = self.block.len() - rest.remaining();
        // The block was validated before.
        lookup.map(Some).ok_or_else(|| Error::internal("a block that was checked has changed"))
    }

    /// Totals of the blocks read so far: of the whole trace, after the last lookup.
    pub fn totals(&self) -> TraceTotals {
        self.totals
    }

    /// Whether the error that ended the trace was a premature end, as after its writer was killed:
    /// then everything that it wrote, except its last block, was yielded.
    pub fn is_cut_off(&self) -> bool {
        self.frames.is_cut_off()
    }

    /// Reads and validates the next block; false at the end of the trace.
    fn read_block(&mut self) -> Result<bool> {
        let (head, at) = self.frames.head()?;
        let bytes = 1..=MAX_PAYLOAD_BYTES;
        match head.kind {
            KIND_LOOKUPS if bytes.contains(&head.bytes) => {}
            KIND_END => return self.read_end(head, at),
            _ => return Err(self.frames.damage(at, "no writer writes such a block")),
        }
        let at = self.frames.payload(head.bytes, &mut self.block)?;
        self.given = 0;
        self.lookups.restart();
        let lookups = self.totals.lookups.checked_add(head.entries);
        match lookups.filter(|_| is_whole(&self.block, head.entries)) {
            Some(lookups) => self.totals.lookups = lookups,
            None => {
                let what = "the block does not hold the lookups that it should, in order";
                return Err(self.frames.damage(at, what));
            }
        }
        self.totals.bytes += head.bytes;
        Ok(true)
    }

    fn read_end(&mut self, end: FrameHead, at: u64) -> Result<bool> {
        if (TraceTotals { lookups: end.entries, bytes: end.bytes }) != self.totals {
            return Err(self.frames.damage(at, "the end counts other lookups than there are"));
        }
        self.frames.expect_nothing()?;
        Ok(false)
    }
}

//! Writes a trace.

use std::io::{self, Write};

use trommel_base::MAX_KEY_BYTES;

use super::format::{
    BLOCK_KEY_BYTES, BLOCK_LOOKUPS, FORM, KIND_ABOUT, KIND_LOOKUPS, MAX_SAMPLE, MAX_TIMES,
    put_lookup,
};
use super::{Outcome, TraceInfo, TraceTotals};
use crate::env;
use crate::framed::FrameWriter;

/// Writes a trace; see [the module](super). Holds a block of lookups in memory, less than a MiB.
/// Without [`TraceWriter::finish`] the last block and the end are missing.
#[derive(Debug)]
pub struct TraceWriter<W> {
    frames: FrameWriter<W>,
    /// The keys collected for the next block.
    keys: Vec<u8>,
    gathered: Vec<KeyLookups>,
    block: Vec<u8>,
    totals: TraceTotals,
}

/// Lookups of one key.
#[derive(Debug, Clone, Copy)]
struct KeyLookups {
    /// Offset of the key in `keys`.
    start: u32,
    bytes: u32,
    outcome: u8,
    times: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace. `out` needs no buffering.
    ///
    /// # Errors
    /// From `out`, in this and all other calls. `InvalidInput` if the sample is not from 1 to 2^32.
    pub fn new(out: W, info: TraceInfo) -> io::Result<Self> {
        Self::with_id(out, info, env::random_u64())
    }

    pub(super) fn with_id(out: W, info: TraceInfo, id: u64) -> io::Result<Self> {
        if !(1..=MAX_SAMPLE).contains(&info.sample) {
            return Err(wrong("a trace has one lookup of 1 to 4294967296"));
        }
        let mut frames = FrameWriter::begin(out, FORM, id)?;
        frames.frame(KIND_ABOUT, 0, &info.encode())?;
        Ok(Self {
            frames,
            keys: Vec::new(),
            gathered: Vec::new(),
            block: Vec::new(),
            totals: TraceTotals::default(),
        })
    }

    /// Adds `times` lookups of `key` with this outcome, in any order; none if `times` is 0.
    ///
    /// # Errors
    /// `InvalidInput`, and nothing is added, if the key is longer than a store takes, if `times`
    /// exceeds [`MAX_TIMES`], if the level does not exist, or if a value was found nowhere.
    pub fn add(&mut self, key: &[u8], outcome: Outcome, times: u64) -> io::Result<()> {
        if key.len() > MAX_KEY_BYTES {
            return Err(wrong("a key of a trace has at most 65535 bytes"));
        }
        if times > MAX_TIMES {
            return Err(wrong("an entry of a trace stands for at most 2^48 lookups"));
        }
        let outcome = outcome.encode().ok_or_else(|| wrong("no lookup ends like this"))?;
        if times == 0 {
            return Ok(());
        }
        let start = self.keys.len() as u32;
        self.keys.extend_from_slice(key);
        self.gathered.push(KeyLookups { start, bytes: key.len() as u32, outcome, times });
        if self.keys.len() >= BLOCK_KEY_BYTES || self.gathered.len() >= BLOCK_LOOKUPS {
            self.write_block()?;
        }
        Ok(())
    }

    /// Writes the collected lookups, sorted, equal ones combined.
    fn write_block(&mut self) -> io::Result<()> {
        let Self { keys, gathered, block, .. } = self;
        let key = |of: &KeyLookups| &keys[of.start as usize..(of.start + of.bytes) as usize];
        gathered.sort_unstable_by(|a, b| key(a).cmp(key(b)).then(a.outcome.cmp(&b.outcome)));
        block.clear();
        let (mut last, mut lookups): (&[u8], u64) = (&[], 0);
        let alike = |a: &KeyLookups, b: &KeyLookups| a.outcome == b.outcome && key(a) == key(b);
        for alike in gathered.chunk_by(alike) {
            // The sums of counts come nowhere near either limit.
            let times = alike.iter().fold(0, |sum: u64, one| sum.saturating_add(one.times));
            let times = times.min(MAX_TIMES);
            put_lookup(block, last, key(&alike[0]), alike[0].outcome, times);
            last = key(&alike[0]);
            lookups = lookups.saturating_add(times);
        }
        self.frames.frame(KIND_LOOKUPS, lookups, block)?;
        self.totals.lookups = self.totals.lookups.saturating_add(lookups);
        self.totals.bytes += block.len() as u64;
        self.keys.clear();
        self.gathered.clear();
        Ok(())
    }

    /// Writes the end, flushes, and returns `out` with the totals.
    pub fn finish(mut self) -> io::Result<(W, TraceTotals)> {
        if !self.gathered.is_empty() {
            self.write_block()?;
        }
        let TraceTotals { lookups, bytes } = self.totals;
        Ok((self.frames.end(lookups, bytes)?, self.totals))
    }
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

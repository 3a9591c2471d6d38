//! Reads a dump, and believes nothing before its checksum.

use std::io::{self, Read};
use std::ops::Range;
use std::path::PathBuf;

use trommel_base::{Corruption, Decoder, MAX_KEY_BYTES, MAX_VALUE_BYTES};

use super::DumpTotals;
use super::format::{
    CHECKSUM_BYTES, HEAD_BYTES, HEADER_BYTES, Head, Header, KIND_BLOCK, KIND_END, KNOWN_FEATURES,
    MAGIC, MAX_PAYLOAD_BYTES, VERSION, checksum,
};
use crate::error::{Error, Result};

/// Reads a dump; see [the module](super).
#[derive(Debug)]
pub struct DumpReader<R> {
    input: R,
    /// What errors call the dump.
    name: PathBuf,
    id: u64,
    /// Bytes read so far.
    offset: u64,
    /// The payload of the block that is being handed out.
    block: Vec<u8>,
    /// Where keys and values lie in it.
    entries: Vec<(Range<usize>, Range<usize>)>,
    /// How many of them were handed out.
    given: usize,
    /// Totals of the blocks read so far.
    totals: DumpTotals,
    done: bool,
}

impl<R: Read> DumpReader<R> {
    /// Begins to read a dump, which errors call `name`. A block takes four reads: give it a
    /// buffered `input`.
    ///
    /// # Errors
    /// [`Error::Corruption`] if it is no dump or its header is damaged; [`Error::Unsupported`] if a
    /// newer version wrote it; [`Error::Io`] as `input` has them.
    pub fn new(input: R, name: impl Into<PathBuf>) -> Result<Self> {
        let mut reader = Self {
            input,
            name: name.into(),
            id: 0,
            offset: 0,
            block: Vec::new(),
            entries: Vec::new(),
            given: 0,
            totals: DumpTotals::default(),
            done: false,
        };
        reader.id = reader.read_header()?.id;
        Ok(reader)
    }

    /// The next entry, or none after the last one of a dump that has its end.
    ///
    /// # Errors
    /// [`Error::Corruption`] with the offset in the dump; what was handed out before is right all
    /// the same. After an error there is nothing more.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.given == self.entries.len() && !self.done {
            let more = self.read_block();
            self.done = !matches!(more, Ok(true));
            more?;
        }
        if self.done {
            return Ok(None);
        }
        let (key, value) = &self.entries[self.given];
        self.given += 1;
        Ok(Some((&self.block[key.clone()], &self.block[value.clone()])))
    }

    /// What the blocks hold that were read so far: everything, once there is no entry more.
    pub fn totals(&self) -> DumpTotals {
        self.totals
    }

    fn read_header(&mut self) -> Result<Header> {
        let bytes: [u8; HEADER_BYTES] = self.read_array()?;
        if !bytes.starts_with(&MAGIC) {
            return Err(self.damage(0, "it does not begin as a dump does"));
        }
        let Some(header) = Header::decode(&bytes) else {
            return Err(self.damage(0, "the header does not have its checksum"));
        };
        if header.version != VERSION || header.features & !KNOWN_FEATURES != 0 {
            let Header { version, features, .. } = header;
            let what = format!("it is a dump of version {version} with features {features:#x}");
            return Err(Error::Unsupported { file: self.name.clone(), what });
        }
        Ok(header)
    }

    /// Reads the next block, all of which is then right; false at the end of the dump.
    fn read_block(&mut self) -> Result<bool> {
        let at = self.offset;
        let bytes: [u8; HEAD_BYTES] = self.read_array()?;
        let Some(head) = Head::decode(&bytes, self.id, at) else {
            return Err(self.damage(at, "the head of a block does not have its checksum"));
        };
        match head.kind {
            KIND_BLOCK if head.bytes <= MAX_PAYLOAD_BYTES && head.entries > 0 => {}
            KIND_END => return self.read_end(head, at),
            _ => return Err(self.damage(at, "no writer writes such a block")),
        }
        let last_key = self.entries.last().map(|(key, _)| self.block[key.clone()].to_vec());
        let at = self.offset;
        self.read_payload(head.bytes)?;
        let check = u32::from_le_bytes(self.read_array::<CHECKSUM_BYTES>()?);
        if check != checksum(self.id, at, &self.block) {
            return Err(self.damage(at, "the block does not have its checksum"));
        }
        let Some(entries) = split(&self.block, head.entries, last_key.as_deref()) else {
            let what = "the block does not hold the entries that it should, in order";
            return Err(self.damage(at, what));
        };
        self.entries = entries;
        self.given = 0;
        self.totals.entries += head.entries;
        self.totals.bytes += head.bytes;
        Ok(true)
    }

    fn read_end(&mut self, end: Head, at: u64) -> Result<bool> {
        if (DumpTotals { entries: end.entries, bytes: end.bytes }) != self.totals {
            return Err(self.damage(at, "the end counts other entries than there are"));
        }
        let behind = self.input.by_ref().take(1).read_to_end(&mut Vec::new());
        match behind.map_err(|source| self.unreadable(source))? {
            0 => Ok(false),
            _ => Err(self.damage(self.offset, "something follows the end")),
        }
    }

    /// Reads a payload into `block`. Memory grows with what is there, not with what is claimed.
    fn read_payload(&mut self, bytes: u64) -> Result<()> {
        self.block.clear();
        let read = self.input.by_ref().take(bytes).read_to_end(&mut self.block);
        let read = read.map_err(|source| self.unreadable(source))? as u64;
        self.offset += read;
        if read == bytes { Ok(()) } else { Err(self.cut_off()) }
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        match self.input.read_exact(&mut bytes) {
            Ok(()) => {
                self.offset += N as u64;
                Ok(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.cut_off()),
            Err(error) => Err(self.unreadable(error)),
        }
    }

    fn cut_off(&self) -> Error {
        self.damage(self.offset, "it is cut off: its end is missing")
    }

    fn damage(&self, offset: u64, what: &'static str) -> Error {
        Corruption::new(&self.name, offset, what).into()
    }

    fn unreadable(&self, source: io::Error) -> Error {
        Error::io(&self.name, "reading", source)
    }
}

/// Where the entries of a payload lie: exactly `count`, their keys ascending from behind `last_key`
/// on, and nothing else.
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

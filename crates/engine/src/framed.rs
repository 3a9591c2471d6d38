//! Streams of checksummed frames, the format of dumps and lookup traces.
//!
//! 1. A header names the kind of stream and its version, and holds a random id.
//! 2. A *frame* is a head with kind and length, a payload, and a checksum. Checksums are bound to
//!    the id and to the offset, so a frame that was omitted, duplicated, moved or taken from
//!    another stream is detected as reliably as a flipped bit.
//! 3. A head of the kind *end* ends the stream, and nothing follows it.
//!
//! Any bytes are safe: a length is bounded before anything is allocated for it, and memory grows
//! with the bytes present, not with the claimed length. The owners of a stream interpret its
//! payloads.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use trommel_base::codec::{put_u32, put_u64};
use trommel_base::{Checksum, Corruption, Decoder};

use crate::error::{Error, Result};

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 36;
/// Bytes of the head of a frame or the end.
pub(crate) const HEAD_BYTES: usize = 24;
/// Bytes of the checksum after a frame's payload.
pub(crate) const CHECKSUM_BYTES: usize = 4;
/// The kind of a head that ends the stream.
pub(crate) const KIND_END: u32 = 2;

/// A kind of stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) magic: [u8; 8],
    /// The version that is written, and the only one that is read.
    pub(crate) version: u32,
    /// Its required features: those that a writer uses, and that a reader knows.
    pub(crate) features: u64,
    /// Its name in errors.
    pub(crate) name: &'static str,
}

/// The header of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) features: u64,
    /// Random; all checksums of the stream are bound to it.
    pub(crate) id: u64,
}

impl Header {
    pub(crate) fn encode(&self, magic: &[u8; 8]) -> Vec<u8> {
        let mut bytes = magic.to_vec();
        put_u32(&mut bytes, self.version);
        put_u32(&mut bytes, 0);
        put_u64(&mut bytes, self.features);
        put_u64(&mut bytes, self.id);
        let check = Checksum::bound_to(&[]).with(&bytes).value();
        put_u32(&mut bytes, check);
        bytes
    }

    /// Decodes the header; `None` if the checksum does not match. The caller compares the magic.
    fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let (content, check) = bytes.split_at(HEADER_BYTES - CHECKSUM_BYTES);
        let mut fields = Decoder::new(&content[8..]);
        let (version, zero) = (fields.u32()?, fields.u32()?);
        let header = Self { version, features: fields.u64()?, id: fields.u64()? };
        let expected = Checksum::bound_to(&[]).with(content).value();
        (Decoder::new(check).u32()? == expected && zero == 0).then_some(header)
    }
}

/// The head before a frame's payload, or the end of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) kind: u32,
    /// Entries in the frame, or in the whole stream.
    pub(crate) entries: u64,
    /// Bytes of the payload, or of all payloads.
    pub(crate) bytes: u64,
}

impl FrameHead {
    pub(crate) fn encode(&self, id: u64, offset: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        put_u32(&mut bytes, self.kind);
        put_u64(&mut bytes, self.entries);
        put_u64(&mut bytes, self.bytes);
        let check = checksum(id, offset, &bytes);
        put_u32(&mut bytes, check);
        bytes
    }

    /// Decodes the head at `offset` of stream `id`; `None` if the checksum does not match.
    pub(crate) fn decode(bytes: &[u8; HEAD_BYTES], id: u64, offset: u64) -> Option<Self> {
        let (content, check) = bytes.split_at(HEAD_BYTES - CHECKSUM_BYTES);
        let mut fields = Decoder::new(content);
        let head = Self { kind: fields.u32()?, entries: fields.u64()?, bytes: fields.u64()? };
        (Decoder::new(check).u32()? == checksum(id, offset, content)).then_some(head)
    }
}

/// The checksum of `content` at `offset` of stream `id`.
pub(crate) fn checksum(id: u64, offset: u64, content: &[u8]) -> u32 {
    Checksum::bound_to(&[id, offset]).with(content).value()
}

/// Writes a stream.
#[derive(Debug)]
pub(crate) struct FrameWriter<W> {
    out: W,
    id: u64,
    /// Bytes written so far.
    offset: u64,
}

impl<W: Write> FrameWriter<W> {
    /// Begins a stream. Makes few writes per frame; `out` needs no buffer of its own.
    pub(crate) fn begin(mut out: W, form: Form, id: u64) -> io::Result<Self> {
        let header = Header { version: form.version, features: form.features, id };
        out.write_all(&header.encode(&form.magic))?;
        Ok(Self { out, id, offset: HEADER_BYTES as u64 })
    }

    /// Writes a frame with `entries` entries.
    pub(crate) fn frame(&mut self, kind: u32, entries: u64, payload: &[u8]) -> io::Result<()> {
        let bytes = payload.len() as u64;
        self.out.write_all(&FrameHead { kind, entries, bytes }.encode(self.id, self.offset))?;
        self.offset += HEAD_BYTES as u64;
        self.out.write_all(payload)?;
        self.out.write_all(&checksum(self.id, self.offset, payload).to_le_bytes())?;
        self.offset += bytes + CHECKSUM_BYTES as u64;
        Ok(())
    }

    /// Writes the end, flushes, and returns `out`.
    pub(crate) fn end(mut self, entries: u64, bytes: u64) -> io::Result<W> {
        let end = FrameHead { kind: KIND_END, entries, bytes };
        self.out.write_all(&end.encode(self.id, self.offset))?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads a stream and verifies every checksum.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    input: R,
    /// The stream's name in errors.
    name: PathBuf,
    features: u64,
    id: u64,
    /// Bytes read so far.
    offset: u64,
    is_cut_off: bool,
}

impl<R: Read> FrameReader<R> {
    /// Begins to read a stream; `name` is its name in errors. A frame takes three reads, so `input`
    /// should be buffered.
    ///
    /// # Errors
    /// [`Error::Corruption`] if it is not such a stream or its header is corrupt;
    /// [`Error::Unsupported`] if a newer version wrote it; [`Error::Io`] from `input`.
    pub(crate) fn begin(input: R, name: PathBuf, form: Form) -> Result<Self> {
        let mut reader = Self { input, name, features: 0, id: 0, offset: 0, is_cut_off: false };
        let bytes: [u8; HEADER_BYTES] = reader.read_array()?;
        if !bytes.starts_with(&form.magic) {
            let what = format!("it does not begin as a {} does", form.name);
            return Err(Corruption::new(&reader.name, 0, what).into());
        }
        let Some(header) = Header::decode(&bytes) else {
            return Err(reader.damage(0, "the header does not have its checksum"));
        };
        if header.version != form.version || header.features & !form.features != 0 {
            let Header { version, features, .. } = header;
            let form = form.name;
            let what = format!("it is a {form} of version {version} with features {features:#x}");
            return Err(Error::Unsupported { file: reader.name, what });
        }
        (reader.features, reader.id) = (header.features, header.id);
        Ok(reader)
    }

    /// The features in the header.
    pub(crate) fn features(&self) -> u64 {
        self.features
    }

    /// The stream's name in errors.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// The next head, and its offset.
    pub(crate) fn head(&mut self) -> Result<(FrameHead, u64)> {
        let at = self.offset;
        let bytes: [u8; HEAD_BYTES] = self.read_array()?;
        let head = FrameHead::decode(&bytes, self.id, at);
        let wrong = || self.damage(at, "the head of a block does not have its checksum");
        Ok((head.ok_or_else(wrong)?, at))
    }

    /// Reads the payload after the last head into `payload`, verifies it and returns its offset.
    /// The caller must have bounded `bytes`.
    pub(crate) fn payload(&mut self, bytes: u64, payload: &mut Vec<u8>) -> Result<u64> {
        let at = self.offset;
        payload.clear();
        let read = self.input.by_ref().take(bytes).read_to_end(payload);
        let read = read.map_err(|source| self.unreadable(source))? as u64;
        self.offset += read;
        if read != bytes {
            return Err(self.cut_off());
        }
        let check = u32::from_le_bytes(self.read_array::<CHECKSUM_BYTES>()?);
        if check != checksum(self.id, at, payload) {
            return Err(self.damage(at, "the block does not have its checksum"));
        }
        Ok(at)
    }

    /// An error if anything follows the end.
    pub(crate) fn expect_nothing(&mut self) -> Result<()> {
        let behind = self.input.by_ref().take(1).read_to_end(&mut Vec::new());
        match behind.map_err(|source| self.unreadable(source))? {
            0 => Ok(()),
            _ => Err(self.damage(self.offset, "something follows the end")),
        }
    }

    /// Whether the last error was a truncated stream.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.is_cut_off
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

    fn cut_off(&mut self) -> Error {
        self.is_cut_off = true;
        self.damage(self.offset, "it is cut off: its end is missing")
    }

    /// The error for corruption at `offset`.
    pub(crate) fn damage(&self, offset: u64, what: &'static str) -> Error {
        Corruption::new(&self.name, offset, what).into()
    }

    fn unreadable(&self, source: io::Error) -> Error {
        Error::io(&self.name, "reading", source)
    }
}

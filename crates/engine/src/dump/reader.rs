//! Reads a dump and verifies every checksum.

use std::io::Read;
use std::ops::Range;
use std::path::PathBuf;

use trommel_base::{Decoder, MAX_KEY_BYTES, MAX_VALUE_BYTES};

use super::DumpTotals;
use super::format::{
    FORM, KEYSPACES, KIND_BLOCK, KIND_KEYSPACE, MAX_KEYSPACE_BYTES, MAX_PAYLOAD_BYTES,
};
use crate::error::{Error, Result};
use crate::framed::{Form, FrameHead, FrameReader, KIND_END};
use crate::keyspaces::KeyspaceOptions;

/// A part of a dump.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum DumpItem<'a> {
    /// An entry of the keyspace that began last; of the default one before any has begun.
    Entry {
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The beginning of a named keyspace.
    Keyspace {
        /// Its name, larger than that of the keyspace before it.
        name: &'a str,
        /// The options in which it differed from its store.
        options: &'a KeyspaceOptions,
    },
}

/// The next item of the dump.
#[derive(Clone, Copy)]
enum Step {
    /// The entry with this number in the block.
    Entry(usize),
    Keyspace,
    End,
}

/// Reads a dump; see [the module](super).
#[derive(Debug)]
pub struct DumpReader<R> {
    frames: FrameReader<R>,
    /// The payload of the current block.
    block: Vec<u8>,
    /// The ranges of keys and values in it.
    entries: Vec<(Range<usize>, Range<usize>)>,
    /// Number of its entries returned so far.
    returned: usize,
    /// Totals of the blocks read so far.
    totals: DumpTotals,
    /// The last keyspace; its name is empty before the first.
    keyspace: (String, KeyspaceOptions),
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
        let known = Form { features: KEYSPACES, ..FORM };
        Ok(Self {
            frames: FrameReader::begin(input, name.into(), known)?,
            block: Vec::new(),
            entries: Vec::new(),
            returned: 0,
            totals: DumpTotals::default(),
            keyspace: <(String, KeyspaceOptions)>::default(),
            done: false,
        })
    }

    /// The next entry of a dump without named keyspaces, or `None` after the last one of a complete
    /// dump.
    ///
    /// # Errors
    /// [`Error::Corruption`](crate::Error::Corruption) with the offset in the dump; entries
    /// returned before are valid. [`Error::InvalidOption`](crate::Error::InvalidOption) at a named
    /// keyspace, which [`DumpReader::next_item`] reads. After an error there are no more entries.
    pub fn next_entry(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match self.step()? {
            Step::Entry(at) => Ok(Some(self.entry(at))),
            Step::End => Ok(None),
            Step::Keyspace => {
                self.done = true;
                Err(Error::option("the dump has named keyspaces: read it by DumpReader::next_item"))
            }
        }
    }

    /// The next entry, or the beginning of a named keyspace; `None` after the last one of a
    /// complete dump.
    ///
    /// # Errors
    /// [`Error::Corruption`](crate::Error::Corruption) with the offset in the dump;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if a keyspace has an option that this
    /// version does not know. Items returned before are valid. After an error there are no more
    /// items.
    ///
    /// ```
    /// use trommel::KeyspaceOptions;
    /// use trommel::dump::{DumpItem, DumpReader, DumpWriter};
    /// let mut writer = DumpWriter::with_keyspaces(Vec::new()).unwrap();
    /// writer.append(b"k", b"of the default keyspace").unwrap();
    /// writer.begin_keyspace("events", &KeyspaceOptions::new()).unwrap();
    /// writer.append(b"k", b"of events").unwrap();
    /// let (stream, _) = writer.finish().unwrap();
    /// let mut reader = DumpReader::new(&*stream, "the dump")?;
    /// assert!(matches!(reader.next_item()?, Some(DumpItem::Entry { key: b"k", .. })));
    /// assert!(matches!(reader.next_item()?, Some(DumpItem::Keyspace { name: "events", .. })));
    /// assert!(matches!(reader.next_item()?, Some(DumpItem::Entry { key: b"k", .. })));
    /// assert!(reader.next_item()?.is_none());
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn next_item(&mut self) -> Result<Option<DumpItem<'_>>> {
        Ok(match self.step()? {
            Step::Entry(at) => {
                let (key, value) = self.entry(at);
                Some(DumpItem::Entry { key, value })
            }
            Step::Keyspace => {
                let (name, options) = &self.keyspace;
                Some(DumpItem::Keyspace { name, options })
            }
            Step::End => None,
        })
    }

    fn step(&mut self) -> Result<Step> {
        if self.returned == self.entries.len() && !self.done {
            let read = self.read_frame();
            self.done = !matches!(read, Ok(Step::Entry(_) | Step::Keyspace));
            if matches!(read?, Step::Keyspace) {
                return Ok(Step::Keyspace);
            }
        }
        if self.done {
            return Ok(Step::End);
        }
        self.returned += 1;
        Ok(Step::Entry(self.returned - 1))
    }

    fn entry(&self, at: usize) -> (&[u8], &[u8]) {
        let (key, value) = &self.entries[at];
        (&self.block[key.clone()], &self.block[value.clone()])
    }

    /// The totals of the blocks read so far: of the whole dump, after the last entry.
    pub fn totals(&self) -> DumpTotals {
        self.totals
    }

    /// Reads and verifies the next block, beginning of a keyspace, or end.
    fn read_frame(&mut self) -> Result<Step> {
        let (head, at) = self.frames.head()?;
        let has_keyspaces = self.frames.features() & KEYSPACES != 0;
        match head.kind {
            KIND_BLOCK if head.bytes <= MAX_PAYLOAD_BYTES && head.entries > 0 => {}
            KIND_KEYSPACE
                if has_keyspaces && head.bytes <= MAX_KEYSPACE_BYTES && head.entries == 0 =>
            {
                return self.read_keyspace(head);
            }
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
        Ok(Step::Entry(0))
    }

    fn read_keyspace(&mut self, head: FrameHead) -> Result<Step> {
        let at = self.frames.payload(head.bytes, &mut self.block)?;
        // The order of keys starts again.
        self.entries = Vec::new();
        self.returned = 0;
        self.totals.bytes += head.bytes;
        let texts = texts(&self.block).filter(|texts| texts.len() % 2 == 1);
        let Some((name, settings)) = texts.as_ref().and_then(|texts| texts.split_first()) else {
            return Err(self.frames.damage(at, "it is not the name and the options of a keyspace"));
        };
        if **name <= *self.keyspace.0 {
            return Err(self.frames.damage(at, "the names of keyspaces do not ascend"));
        }
        let mut options = KeyspaceOptions::new();
        for setting in settings.chunks_exact(2) {
            let (option, value) = (setting[0], setting[1]);
            options = options.with_setting(option, value).map_err(|_| Error::Unsupported {
                file: self.frames.name().to_path_buf(),
                what: format!("the option {option:?} = {value:?} of keyspace {name:?}"),
            })?;
        }
        self.keyspace = ((*name).to_owned(), options);
        Ok(Step::Keyspace)
    }

    fn read_end(&mut self, end: FrameHead, at: u64) -> Result<Step> {
        if (DumpTotals { entries: end.entries, bytes: end.bytes }) != self.totals {
            return Err(self.frames.damage(at, "the end counts other entries than there are"));
        }
        self.frames.expect_nothing()?;
        Ok(Step::End)
    }
}

/// The texts in a payload, each of which follows its length.
fn texts(payload: &[u8]) -> Option<Vec<&str>> {
    let (mut rest, mut texts) = (Decoder::new(payload), Vec::new());
    while !rest.is_empty() {
        texts.push(std::str::from_utf8(rest.bytes(payload.len())?).ok()?);
    }
    Some(texts)
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

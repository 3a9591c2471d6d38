//! Reads blocks from the file into memory and verifies them.
//!
//! A data block comes from one of three sources: the block cache, through the block's slot or a
//! lookup; the map, if the table is mapped (the checksum is verified on each use, as a mapped file
//! can change, unless the caller opted out); or a `pread`. Meta blocks are always read with `pread`
//! into owned memory.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_base::{Checksum, Corruption};
use trommel_filter::prefetch_at;
use trommel_vfs::ReadFile;

use crate::Error;
use crate::block::{Layout, SharedBlock};
use crate::block_slots::BlockLocation;
use crate::cache::BlockCache;
use crate::compression::{decompress, is_raw, zeroed};
use crate::format::{BlockKind, CHECKSUM_BYTES, FRAME_BYTES, Fault, Handle, SHORT, place, unseal};
use crate::index::{At, Index};

/// Size of each read of a block that is streamed into memory.
const CHUNK_BYTES: usize = 256 << 10;

const PACKED: Fault = Fault::Unsupported("a meta block is compressed");

/// Costs of reads, counted per reader, so that readers do not contend for counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadStats {
    /// Data blocks read from the file (or its map).
    pub block_reads: u64,
    /// Bytes of those blocks as stored.
    pub block_bytes: u64,
    /// Data blocks found in the cache.
    pub cache_hits: u64,
    /// Index leaves read from the file.
    pub index_reads: u64,
}

impl ReadStats {
    /// Adds the counts of another reader.
    pub fn add(&mut self, other: &Self) {
        self.block_reads += other.block_reads;
        self.block_bytes += other.block_bytes;
        self.cache_hits += other.cache_hits;
        self.index_reads += other.index_reads;
    }
}

/// An open table file and the cache for its blocks.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) file: Arc<dyn ReadFile>,
    pub(crate) path: PathBuf,
    pub(crate) table_id: u64,
    pub(crate) data_bytes: u64,
    pub(crate) cache: Arc<BlockCache>,
    /// The table's number in the cache.
    pub(crate) number: u64,
    pub(crate) mapped: bool,
}

impl Source {
    /// A file that is read past every cache.
    pub(crate) fn uncached(
        file: Arc<dyn ReadFile>,
        path: &Path,
        table_id: u64,
        data_bytes: u64,
    ) -> Self {
        let (path, cache) = (path.to_path_buf(), BlockCache::new(0));
        Self { file, path, table_id, data_bytes, cache, number: 0, mapped: false }
    }

    /// Fills `buffer` from `offset`.
    pub(crate) fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        self.file.read_at(offset, buffer).map_err(|source| self.failure(offset, source))
    }

    /// The error for a failed read of the block at `offset`.
    fn failure(&self, offset: u64, source: io::Error) -> Error {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return Fault::Damaged("the file ends before this block does").at(&self.path, offset);
        }
        Error::io(&self.path, source)
    }

    /// The payload of an uncompressed meta block.
    pub(crate) fn read_plain(&self, handle: Handle, kind: BlockKind) -> Result<Vec<u8>, Error> {
        let mut stored = vec![0; handle.bytes];
        self.read_into(handle.offset, &mut stored)?;
        let payload_bytes = self.open_plain(&stored, handle.offset, kind)?.len();
        stored.truncate(payload_bytes);
        Ok(stored)
    }

    /// Streams the payload of an uncompressed meta block to `take`, with its length, so that the
    /// block and the result of `take` are never in memory together. Reads each stored byte once.
    /// The result is valid only if no error is returned.
    pub(crate) fn stream_plain<T>(
        &self,
        handle: Handle,
        kind: BlockKind,
        take: impl FnOnce(&mut dyn Read, usize) -> io::Result<T>,
    ) -> Result<T, Error> {
        let fault = |fault: Fault| fault.at(&self.path, handle.offset);
        let payload_bytes = handle.bytes.checked_sub(FRAME_BYTES).ok_or_else(|| fault(SHORT))?;
        let place = place(self.table_id, handle.offset, kind, handle.bytes as u64);
        let stream = BlockStream {
            file: &*self.file,
            at: handle.offset,
            left: handle.bytes,
            checksum: Checksum::bound_to(&[place]),
        };
        let mut stream = BufReader::with_capacity(handle.bytes.min(CHUNK_BYTES), stream);
        let (took, frame) = take_framed(&mut stream, payload_bytes, take)
            .map_err(|source| self.failure(handle.offset, source))?;
        let [compression, sum @ ..] = frame;
        if stream.into_inner().checksum.value() != u32::from_le_bytes(sum) {
            return Err(fault(Fault::Damaged("the block fails its checksum")));
        }
        if !is_raw(compression) {
            return Err(fault(PACKED));
        }
        Ok(took)
    }

    /// Verifies an uncompressed meta block and returns its payload.
    pub(crate) fn open_plain<'a>(
        &self,
        stored: &'a [u8],
        offset: u64,
        kind: BlockKind,
    ) -> Result<&'a [u8], Error> {
        unseal(stored, self.table_id, offset, kind)
            .and_then(|(payload, compression)| match is_raw(compression) {
                true => Ok(payload),
                false => Err(PACKED),
            })
            .map_err(|fault| fault.at(&self.path, offset))
    }

    /// The map, if reads use it.
    #[inline]
    pub(crate) fn map(&self) -> Option<&[u8]> {
        if self.mapped { self.file.mapped() } else { None }
    }

    /// The stored bytes of a block in the map.
    #[inline]
    pub(crate) fn in_map<'a>(&self, map: &'a [u8], handle: Handle) -> Result<&'a [u8], Error> {
        let range = usize::try_from(handle.offset)
            .ok()
            .and_then(|start| map.get(start..start.checked_add(handle.bytes)?));
        range.ok_or_else(|| {
            let what = "the file ends before this block does";
            Error::Corruption(Corruption::new(&self.path, handle.offset, what))
        })
    }

    /// The stored bytes of a block, if reads use the map and its frame marks it uncompressed.
    #[inline]
    pub(crate) fn raw_in_map(&self, handle: Handle) -> Result<Option<&[u8]>, Error> {
        let Some(map) = self.map() else { return Ok(None) };
        let stored = self.in_map(map, handle)?;
        let compression = stored.len().checked_sub(FRAME_BYTES).and_then(|at| stored.get(at));
        Ok(compression.is_some_and(|number| is_raw(*number)).then_some(stored))
    }

    /// Prefetches the frame of the block at `at` in `leaf`, if reads use the map.
    #[inline]
    pub(crate) fn prefetch_frame(&self, leaf: &Index, at: At) {
        if let Some(map) = self.map()
            && let Some(handle) = leaf.handle(at.slot)
            && let Ok(stored) = self.in_map(map, handle)
        {
            prefetch_at(stored.as_ptr_range().end.addr() - 1);
        }
    }

    /// A data block from the cache, or read from the file and, if `fill`, inserted.
    #[inline]
    pub(crate) fn block(
        &self,
        location: BlockLocation<'_>,
        fill: bool,
        stats: &mut ReadStats,
    ) -> Result<SharedBlock, Error> {
        self.block_after(location, fill, stats, || {})
    }

    /// Like [`Source::block`], but calls `before` before it reads the block from the file.
    #[inline]
    pub(crate) fn block_after(
        &self,
        location: BlockLocation<'_>,
        fill: bool,
        stats: &mut ReadStats,
        before: impl FnOnce(),
    ) -> Result<SharedBlock, Error> {
        if let Some(block) = self.cached(location, stats) {
            return Ok(block);
        }
        before();
        let block = self.read_block(location.handle, stats)?;
        if fill {
            self.keep(location, &block);
        }
        Ok(block)
    }

    /// Inserts a data block into the cache.
    pub(crate) fn keep(&self, location: BlockLocation<'_>, block: &SharedBlock) {
        let slot = location.slot(self.cache.slots());
        self.cache.insert(self.number, location.handle.offset, block.clone(), slot);
    }

    /// A data block, if it is cached. Counts as a hit in `stats`.
    #[inline]
    pub(crate) fn cached(
        &self,
        location: BlockLocation<'_>,
        stats: &mut ReadStats,
    ) -> Option<SharedBlock> {
        let block = self.in_cache(location);
        stats.cache_hits += u64::from(block.is_some());
        block
    }

    /// A data block, if it is cached. Counts as a use by the cache, not in `ReadStats`.
    #[inline]
    pub(crate) fn in_cache(&self, location: BlockLocation<'_>) -> Option<SharedBlock> {
        self.in_slot(location).or_else(|| self.search_cache(location))
    }

    /// Like [`Source::in_cache`], but checks only the block's slot. Always inlined, so that
    /// entering a block takes fewer instructions.
    #[inline(always)]
    pub(crate) fn in_slot(&self, location: BlockLocation<'_>) -> Option<SharedBlock> {
        let (block, is_first) = location.block(self.cache.turn())?;
        if is_first {
            self.cache.use_once(self.number, location.handle.offset);
        }
        Some(block)
    }

    /// Like [`Source::in_cache`], for a block that is not in its slot.
    #[cold]
    fn search_cache(&self, location: BlockLocation<'_>) -> Option<SharedBlock> {
        let cached = self.cache.get(self.number, location.handle.offset)?;
        cached.fill_slot(self.cache.turn());
        Some(cached.block().clone())
    }

    /// Prefetches a data block from the file, unless it is cached.
    pub(crate) fn will_need(&self, location: BlockLocation<'_>) {
        if self.in_cache(location).is_none() {
            self.file.will_need(location.handle.offset, location.handle.bytes);
        }
    }

    /// Reads a data block from the file.
    pub(crate) fn read_block(
        &self,
        handle: Handle,
        stats: &mut ReadStats,
    ) -> Result<SharedBlock, Error> {
        let mut buffer = zeroed(handle.bytes);
        if let Some(room) = Arc::get_mut(&mut buffer) {
            self.read_into(handle.offset, room)?;
        }
        stats.block_reads += 1;
        stats.block_bytes += handle.bytes as u64;
        self.open_block(&buffer, 0, handle)
    }

    /// Verifies the data block whose stored bytes start at `start` of `buffer`.
    #[inline]
    pub(crate) fn open_block(
        &self,
        buffer: &Arc<[u8]>,
        start: usize,
        handle: Handle,
    ) -> Result<SharedBlock, Error> {
        self.try_open_block(buffer, start, handle)
            .map_err(|fault| fault.at(&self.path, handle.offset))
    }

    fn try_open_block(
        &self,
        buffer: &Arc<[u8]>,
        start: usize,
        handle: Handle,
    ) -> Result<SharedBlock, Fault> {
        const LARGE: Fault = Fault::Damaged("a data block is larger than any can be");
        let stored = buffer.get(start..start + handle.bytes).unwrap_or_default();
        let (payload, compression) = unseal(stored, self.table_id, handle.offset, BlockKind::Data)?;
        if is_raw(compression) {
            return Ok(SharedBlock {
                layout: Layout::parse(payload)?,
                start: u32::try_from(start).map_err(|_| LARGE)?,
                len: u32::try_from(payload.len()).map_err(|_| LARGE)?,
                buffer: Arc::clone(buffer),
            });
        }
        let raw = decompress(payload, compression)?;
        Ok(SharedBlock {
            layout: Layout::parse(&raw)?,
            start: 0,
            len: u32::try_from(raw.len()).map_err(|_| LARGE)?,
            buffer: raw,
        })
    }
}

/// Passes the payload of a block to `take`, then reads the rest of it and the frame.
fn take_framed<T>(
    block: &mut impl Read,
    payload_bytes: usize,
    take: impl FnOnce(&mut dyn Read, usize) -> io::Result<T>,
) -> io::Result<(T, [u8; FRAME_BYTES])> {
    let mut payload = block.by_ref().take(payload_bytes as u64);
    let took = take(&mut payload, payload_bytes)?;
    io::copy(&mut payload, &mut io::sink())?;
    let mut frame = [0; FRAME_BYTES];
    block.read_exact(&mut frame)?;
    Ok((took, frame))
}

/// A sequential reader of one block of a file.
struct BlockStream<'a> {
    file: &'a dyn ReadFile,
    at: u64,
    left: usize,
    /// The checksum of the bytes read so far, except the checksum at the block's end.
    checksum: Checksum,
}

impl Read for BlockStream<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let bytes = room.len().min(self.left);
        let room = room.get_mut(..bytes).unwrap_or_default();
        self.file.read_at(self.at, room)?;
        let covered = bytes.min(self.left.saturating_sub(CHECKSUM_BYTES));
        let covered = room.get(..covered).unwrap_or_default();
        self.checksum = self.checksum.clone().with(covered);
        self.at += bytes as u64;
        self.left -= bytes;
        Ok(bytes)
    }
}

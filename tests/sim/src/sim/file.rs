//! The durable state of one file.
//!
//! A file is only ever appended to, so its durable state is described relative to its live bytes:
//!
//! 1. `volatile` are the byte ranges that no sync has made durable; all others are durable forever.
//! 2. For each sector that overlaps a volatile range, a power cut decides which version the disk
//!    holds: the sector as last made durable (with zeros after its durable bytes), as it was after
//!    any later append, or as it is now. A sector is never a mixture.
//! 3. It decides the file's length: any from the durable one, through each append's end and each
//!    sector boundary, to the live one. Length and sectors are independent: a file may be long and
//!    zero, or its sectors written and the length not.
//! 4. After a failed sync the system no longer writes those bytes. They stay volatile through later
//!    syncs, except in a sector shared with bytes appended later: that one is written again, whole.
//! 5. An overwritten (recycled) file holds the old file's bytes wherever new ones did not reach the
//!    disk, and the old tail after them, until it is synced.
//! 6. Preallocated zeros follow the appended bytes, up to the length last made durable or the
//!    current one. This length is independent of all of the above.
//!
//! Invariant: volatile ranges are sorted, not adjacent, and no two overlap one sector.

use std::ops::Range;
use std::sync::Arc;

use super::SECTOR_BYTES;
use crate::content::Content;

/// A file's live bytes, and its durable state.
#[derive(Debug, Clone, Default)]
pub(super) struct FileState {
    content: Arc<Content>,
    durable_bytes: u64,
    volatile: Vec<Range<u64>>,
    /// Where appends into volatile ranges ended, in ascending order.
    ends: Vec<u64>,
    /// The file's length at the last failed sync.
    failed_to: u64,
    /// The bytes of the overwritten file, which are visible wherever nothing new reached the disk.
    overwritten: Option<Arc<Content>>,
    /// The end of the preallocated zeros, whatever was appended; and the end that a sync has made
    /// durable.
    zeros_to: u64,
    durable_zeros_to: u64,
}

/// A sector with bytes that are not durable. Its versions hold the live bytes up to some offset,
/// then zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sector<'a> {
    /// Its index in the file, in sectors.
    pub(super) number: u64,
    /// The end of the durable version's bytes, as an offset in the file.
    durable_end: u64,
    /// The ends of the intermediate versions' bytes.
    ends: &'a [u64],
    /// The end of the newest version's bytes.
    live_end: u64,
}

impl Sector<'_> {
    /// The number of versions: at least two.
    pub(super) fn versions(&self) -> usize {
        self.ends.len() + 2
    }

    /// Whether none of its bytes is durable: the file did not have this sector before.
    pub(super) fn is_fresh(&self) -> bool {
        self.durable_end == self.number * SECTOR_BYTES
    }

    /// The end of the bytes of `version` (0 is the durable one), as an offset in the file.
    fn end(&self, version: usize) -> u64 {
        match version.checked_sub(1) {
            None => self.durable_end,
            Some(version) => self.ends.get(version).copied().unwrap_or(self.live_end),
        }
    }
}

impl FileState {
    /// A file that is entirely durable.
    pub(super) fn durable(content: Arc<Content>) -> Self {
        Self { durable_bytes: content.bytes(), content, ..Self::default() }
    }

    /// Starts to overwrite the file: later appends replace the existing bytes from the start.
    pub(super) fn start_over(&mut self) {
        let old = std::mem::take(self);
        // All that readers saw, and the overwritten bytes below that.
        let all = old.image(old.content.bytes(), |sector| sector.versions() - 1);
        self.overwritten = Some(old.with_zeros(all, true));
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        let start = self.content.bytes();
        let end = start + bytes.len() as u64;
        Arc::make_mut(&mut self.content).append(bytes);
        match self.volatile.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => self.volatile.push(start..end),
        }
        self.ends.push(end);
    }

    pub(super) fn sync(&mut self) {
        let bytes = self.content.bytes();
        if bytes == self.failed_to {
            return;
        }
        let kept = self.failed_to / SECTOR_BYTES * SECTOR_BYTES;
        self.volatile.retain_mut(|range| {
            range.end = range.end.min(kept);
            range.start < range.end
        });
        self.ends.retain(|&end| end <= kept);
        self.durable_bytes = bytes;
        self.durable_zeros_to = self.zeros_to;
        self.overwritten = None;
    }

    /// Sets the end of the preallocated zeros after the appended bytes.
    pub(super) fn put_zeros(&mut self, to: u64) {
        self.zeros_to = to;
    }

    /// Whether there are, or may be, zeros after this offset.
    pub(super) fn has_zeros_after(&self, place: u64) -> bool {
        self.zeros_to.max(self.durable_zeros_to) > place
    }

    /// Whether a power cut may leave the preallocated zeros in more than one way.
    pub(super) fn has_volatile_zeros(&self) -> bool {
        self.zeros_to != self.durable_zeros_to
    }

    /// The `image` followed by its zeros: up to the current end, or the last durable one.
    pub(super) fn with_zeros(&self, mut image: Arc<Content>, as_now: bool) -> Arc<Content> {
        let to = if as_now { self.zeros_to } else { self.durable_zeros_to };
        if to > image.bytes() {
            Arc::make_mut(&mut image).lengthen(to);
        }
        image
    }

    pub(super) fn fail_sync(&mut self) {
        self.failed_to = self.content.bytes();
    }

    /// The live bytes.
    pub(super) fn content(&self) -> &Arc<Content> {
        &self.content
    }

    /// The length that a power cut cannot take away.
    pub(super) fn durable_bytes(&self) -> u64 {
        self.durable_bytes
    }

    /// Whether all of it is durable.
    pub(super) fn is_durable(&self) -> bool {
        let is_cut = self.overwritten.is_none();
        is_cut && self.volatile.is_empty() && self.durable_bytes == self.content.bytes()
    }

    /// The lengths after appends that are not durable, in ascending order. The last is the live
    /// one.
    pub(super) fn volatile_lengths(&self) -> &[u64] {
        self.ends.get(self.ends.partition_point(|&end| end <= self.durable_bytes)..).unwrap_or(&[])
    }

    /// The sectors below `bytes` with more than one possible version after a power cut.
    pub(super) fn volatile_sectors(&self, bytes: u64) -> impl Iterator<Item = Sector<'_>> {
        self.volatile.iter().flat_map(move |range| {
            let first = range.start / SECTOR_BYTES;
            let last = range.end.min(bytes).div_ceil(SECTOR_BYTES);
            (first..last).map(move |number| self.sector(number, range))
        })
    }

    fn sector(&self, number: u64, range: &Range<u64>) -> Sector<'_> {
        let durable_end = range.start.max(number * SECTOR_BYTES);
        let live_end = self.content.bytes().min((number + 1) * SECTOR_BYTES);
        let from = self.ends.partition_point(|&end| end <= durable_end);
        let to = self.ends.partition_point(|&end| end < live_end);
        let ends = self.ends.get(from..to).unwrap_or(&[]);
        Sector { number, durable_end, ends, live_end }
    }

    /// The bytes of the overwritten file in this range.
    fn overwritten(&self, range: Range<u64>) -> Vec<u8> {
        let Some(content) = &self.overwritten else { return Vec::new() };
        let end = range.end.min(content.bytes());
        let mut bytes = vec![0; end.saturating_sub(range.start) as usize];
        if !bytes.is_empty() {
            content.read_at(range.start, &mut bytes);
        }
        bytes
    }

    /// The file as a power cut leaves it, `bytes` long, with the chosen version of each sector that
    /// has more than one.
    pub(super) fn image(
        &self,
        bytes: u64,
        mut version: impl FnMut(&Sector<'_>) -> usize,
    ) -> Arc<Content> {
        let mut image = Arc::clone(&self.content);
        for sector in self.volatile_sectors(bytes) {
            let end = sector.end(version(&sector));
            if end < sector.live_end {
                let image = Arc::make_mut(&mut image);
                image.zero(end, sector.live_end);
                image.overwrite(end, &self.overwritten(end..sector.live_end));
            }
        }
        if bytes < image.bytes() {
            Arc::make_mut(&mut image).truncate(bytes);
        }
        let rest = self.overwritten(image.bytes()..u64::MAX);
        if !rest.is_empty() {
            Arc::make_mut(&mut image).append(&rest);
        }
        image
    }
}

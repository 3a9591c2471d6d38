//! What of one file is durable.
//!
//! A file is only ever appended to, so its durable state is described against its live bytes:
//!
//! 1. `volatile` are the byte ranges that no sync has made durable; all others are safe for ever.
//! 2. A power cut decides for each sector that overlaps a volatile range which version of it the
//!    disk holds: the sector as last made durable (behind its durable bytes: zeros), as it was
//!    after any append since, or as it is now. A sector is never a mixture.
//! 3. It decides the file's length: any from the durable one, through each append's end and each
//!    sector boundary, to the live one. Length and sectors do not wait for each other: a file may
//!    be long and zero, or its sectors written and the length not.
//! 4. After a failed sync the system has forgotten that those bytes were to be written. They stay
//!    volatile through later syncs, but for the sector they share with bytes appended later: that
//!    one is written again, whole.
//!
//! 5. A file that is written over holds the old one's bytes wherever new ones did not reach the
//!    disk, and behind them as far as that reached, until it is synced.
//!
//! 6. Zeros that were written ahead lie behind the appended bytes, as far as they reached when they
//!    were last made durable, or as they do now: a length by itself, which waits for none of the
//!    above.
//!
//! Invariant: volatile ranges are sorted, do not touch, and no two overlap one sector.

use std::ops::Range;
use std::sync::Arc;

use super::SECTOR_BYTES;
use crate::content::Content;

/// A file's live bytes, and what is durable of them.
#[derive(Debug, Clone, Default)]
pub(super) struct FileState {
    content: Arc<Content>,
    durable_bytes: u64,
    volatile: Vec<Range<u64>>,
    /// Where appends into volatile ranges ended, in ascending order.
    ends: Vec<u64>,
    /// The file's length at the last failed sync.
    failed_to: u64,
    /// What it holds where nothing of it reached the disk, while it is written over.
    beneath: Option<Arc<Content>>,
    /// Up to where there are zeros, whatever was appended; and up to where a sync has made that
    /// durable.
    zeros_to: u64,
    durable_zeros_to: u64,
}

/// A sector some of whose bytes are not durable. Its versions hold the live bytes up to some
/// offset, then zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sector<'a> {
    /// Its place in the file, counted in sectors.
    pub(super) number: u64,
    /// Where the bytes of the durable version end, as an offset in the file.
    durable_end: u64,
    /// Where those of the versions in between end.
    ends: &'a [u64],
    /// Where those of the newest version end.
    live_end: u64,
}

impl Sector<'_> {
    /// How many versions there are: at least two.
    pub(super) fn versions(&self) -> usize {
        self.ends.len() + 2
    }

    /// Whether none of its bytes is durable: it lies in a place that the file did not have before.
    pub(super) fn is_fresh(&self) -> bool {
        self.durable_end == self.number * SECTOR_BYTES
    }

    /// Where the bytes of `version` end (0 is the durable one), as an offset in the file.
    fn end(&self, version: usize) -> u64 {
        match version.checked_sub(1) {
            None => self.durable_end,
            Some(version) => self.ends.get(version).copied().unwrap_or(self.live_end),
        }
    }
}

impl FileState {
    /// A file all of which is durable.
    pub(super) fn durable(content: Arc<Content>) -> Self {
        Self { durable_bytes: content.bytes(), content, ..Self::default() }
    }

    /// What is appended from now on is written over what is there.
    pub(super) fn start_over(&mut self) {
        let old = std::mem::take(self);
        // All that readers saw, and what lay beneath that.
        let all = old.image(old.content.bytes(), |sector| sector.versions() - 1);
        self.beneath = Some(old.with_zeros(all, true));
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
        self.beneath = None;
    }

    /// Puts zeros behind what was appended, up to there, or cuts them off.
    pub(super) fn put_zeros(&mut self, to: u64) {
        self.zeros_to = to;
    }

    /// Whether there are zeros behind this place, or may be.
    pub(super) fn has_zeros_behind(&self, place: u64) -> bool {
        self.zeros_to.max(self.durable_zeros_to) > place
    }

    /// Whether a power cut may leave zeros written ahead in more than one way.
    pub(super) fn has_volatile_zeros(&self) -> bool {
        self.zeros_to != self.durable_zeros_to
    }

    /// The `image` with its zeros behind it: as they are now, or as they were last made durable.
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
        let is_cut = self.beneath.is_none();
        is_cut && self.volatile.is_empty() && self.durable_bytes == self.content.bytes()
    }

    /// The lengths that appends left and that are not durable, in ascending order. The last is the
    /// live one.
    pub(super) fn volatile_lengths(&self) -> &[u64] {
        self.ends.get(self.ends.partition_point(|&end| end <= self.durable_bytes)..).unwrap_or(&[])
    }

    /// The sectors below `bytes` of which a power cut may leave more than one version.
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

    /// What lies in this range of the file that is written over.
    fn beneath(&self, range: Range<u64>) -> Vec<u8> {
        let Some(content) = &self.beneath else { return Vec::new() };
        let end = range.end.min(content.bytes());
        let mut bytes = vec![0; end.saturating_sub(range.start) as usize];
        if !bytes.is_empty() {
            content.read_at(range.start, &mut bytes);
        }
        bytes
    }

    /// The file as a power cut leaves it, `bytes` long, holding the chosen version of each sector
    /// that has more than one.
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
                image.overwrite(end, &self.beneath(end..sector.live_end));
            }
        }
        if bytes < image.bytes() {
            Arc::make_mut(&mut image).truncate(bytes);
        }
        let rest = self.beneath(image.bytes()..u64::MAX);
        if !rest.is_empty() {
            Arc::make_mut(&mut image).append(&rest);
        }
        image
    }
}

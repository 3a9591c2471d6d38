//! Access hints: the ranges of the file that a scan will read, so that the device reads them in
//! advance.
//!
//! 1. A scan that has continued for some blocks gives hints for the range that it reads and for a
//!    window beyond it; when it is halfway through a window, it gives a hint for the next one,
//!    which is twice as long. The next read is then in memory or under way.
//! 2. Forward reads with `pread` get no hints, as the system detects that they are sequential. The
//!    system takes reads from a map for random ones, like those of point reads, and does not detect
//!    backward reads.
//!
//! Hints affect no result. Called by [`Reading`](super::reading::Reading).

use std::ops::Range;

use super::direction::Direction;
use crate::source::Source;

/// The first window, in bytes.
const FIRST_WINDOW_BYTES: u64 = 64 << 10;
/// The longest window, in bytes: about a millisecond of reading at 1 GB/s.
const LONGEST_WINDOW_BYTES: u64 = 1 << 20;

/// The progress of the hints of one scan.
#[derive(Debug)]
pub(super) struct AccessHints {
    /// `None` before the first read.
    direction: Option<Direction>,
    /// The end of the hinted range for a forward scan, its start for a backward one; `None` before
    /// the first hint.
    until: Option<u64>,
    /// Bytes of the next hint.
    window: u64,
}

impl Default for AccessHints {
    fn default() -> Self {
        Self { direction: None, until: None, window: FIRST_WINDOW_BYTES }
    }
}

impl AccessHints {
    /// Hints that `reads` will be read next, and the range that follows it, unless hinted at
    /// before.
    #[inline]
    pub(super) fn will_read(&mut self, source: &Source, reads: Range<u64>, direction: Direction) {
        let before = self.direction.replace(direction);
        if before.is_some_and(|before| before != direction) {
            // No hints for a scan that alternates directions.
            *self = Self { direction: Some(direction), ..Self::default() };
            return;
        }
        if direction == Direction::Forward && !source.mapped {
            return;
        }
        let Some(range) = self.next(reads, direction, source.data_bytes) else { return };
        source.file.will_need(range.start, (range.end - range.start) as usize);
    }

    /// The next hint, when `reads` is read of a table with `data_bytes` bytes of data blocks.
    #[inline]
    fn next(
        &mut self,
        reads: Range<u64>,
        direction: Direction,
        data_bytes: u64,
    ) -> Option<Range<u64>> {
        let half = self.window / 2;
        let range = match direction {
            Direction::Forward => {
                let from = self.until.unwrap_or(0).max(reads.start);
                let least = reads.end + half;
                if from >= least {
                    return None;
                }
                from..data_bytes.min(least.max(from + self.window))
            }
            Direction::Backward => {
                let to = self.until.unwrap_or(u64::MAX).min(reads.end);
                let least = reads.start.saturating_sub(half);
                if to <= least {
                    return None;
                }
                least.min(to.saturating_sub(self.window))..to
            }
        };
        if range.is_empty() {
            return None;
        }
        let is_forward = direction == Direction::Forward;
        self.until = Some(if is_forward { range.end } else { range.start });
        self.window = (2 * self.window).min(LONGEST_WINDOW_BYTES);
        Some(range)
    }
}

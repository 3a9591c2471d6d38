//! Access hints: what a scan tells the file that it will read, so that the device reads it in
//! advance.
//!
//! 1. A scan that has gone on for some blocks hints at what it reads and a window beyond that, and
//!    at the next window, twice as long, once it is half through the last one: what it reads next
//!    is in memory or on its way.
//! 2. Forward reads by calls are left to the system, which detects that they are sequential. Reads
//!    from a map it takes for random ones, as those of point reads are, and backward reads it does
//!    not detect.
//!
//! No answer depends on any of this. Called by [`Reading`](super::reading::Reading).

use std::ops::Range;

use super::direction::Direction;
use crate::source::Source;

/// The first window, in bytes.
const FIRST_WINDOW_BYTES: u64 = 64 << 10;
/// The longest window, in bytes: what a device reads in a millisecond at 1 GB/s.
const LONGEST_WINDOW_BYTES: u64 = 1 << 20;

/// How far hints were given.
#[derive(Debug)]
pub(super) struct AccessHints {
    /// `None` before the first read.
    direction: Option<Direction>,
    /// The end of what was hinted at, going forward, or its start, going backward; `None` before
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
    /// Hints to the file of this table at `reads`, which is read next, and at what comes after it,
    /// where that was not hinted at before.
    #[inline]
    pub(super) fn will_read(&mut self, source: &Source, reads: Range<u64>, direction: Direction) {
        let before = self.direction.replace(direction);
        if before.is_some_and(|before| before != direction) {
            // No hints for a scan that goes back and forth.
            *self = Self { direction: Some(direction), ..Self::default() };
            return;
        }
        if direction == Direction::Forward && !source.mapped {
            return;
        }
        let Some(range) = self.next(reads, direction, source.data_bytes) else { return };
        source.file.will_need(range.start, (range.end - range.start) as usize);
    }

    /// The next hint when `reads` is read of a table with `data_bytes` bytes of data blocks.
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

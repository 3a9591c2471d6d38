//! What a walk tells the file that it will read, so that the device reads it meanwhile.
//!
//! 1. A walk that has gone on for some blocks tells the file of what it reads and a window behind that, and
//!    of the next one, twice as long, when it is half through: what it comes to is there or under way.
//! 2. Forward reads by calls are left to the system, which sees that they are sequential. What is read out of
//!    a map it takes for reads at random, since point reads are, and of reads backward it makes nothing.
//!
//! No answer depends on any of this. Called by [`Reading`](super::reading::Reading).

use std::ops::Range;

use super::reading::Direction;
use crate::source::Source;

/// The first window, in bytes.
const FIRST_WINDOW_BYTES: u64 = 64 << 10;
/// The longest window, in bytes: at 1 GB/s, what a device brings in a millisecond.
const LONGEST_WINDOW_BYTES: u64 = 1 << 20;

/// How far the file was told.
#[derive(Debug)]
pub(super) struct Told {
    /// `None` before anything was to be told.
    direction: Option<Direction>,
    /// Going forward the end, going backward the start of what it was told; `None` if that is nothing.
    until: Option<u64>,
    /// How much it is told next.
    window: u64,
}

impl Default for Told {
    fn default() -> Self {
        Self { direction: None, until: None, window: FIRST_WINDOW_BYTES }
    }
}

impl Told {
    /// Tells the file of this table what is to be read and what comes behind it, if it is to be told more:
    /// `reads` is read next.
    #[inline]
    pub(super) fn tell(&mut self, source: &Source, reads: Range<u64>, direction: Direction) {
        let before = self.direction.replace(direction);
        if before.is_some_and(|before| before != direction) {
            // A walk to and fro over one border is not told of.
            *self = Self { direction: Some(direction), ..Self::default() };
            return;
        }
        if direction == Direction::Forward && !source.mapped {
            return;
        }
        let Some(range) = self.next(reads, direction, source.data_bytes) else { return };
        source.file.will_need(range.start, (range.end - range.start) as usize);
    }

    /// What the file is to be told when `reads` is read of a table with so many bytes of data.
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

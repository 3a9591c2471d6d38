//! Counting the versions of one key that are stepped over.

use crate::iter::merge::STEPS_BEFORE_RESEEK;

/// Versions of one key that were stepped over in one source without a break.
pub(super) struct VersionRun {
    source: usize,
    steps: u32,
}

impl VersionRun {
    pub(super) const NONE: Self = Self { source: usize::MAX, steps: 0 };

    /// Counts one more version in this source. Returns whether there were enough for the rest to be
    /// skipped by a seek; the count then starts again.
    #[inline]
    pub(super) fn is_long(&mut self, source: usize) -> bool {
        let steps = if source == self.source { self.steps + 1 } else { 1 };
        let is_long = steps > STEPS_BEFORE_RESEEK;
        *self = if is_long { Self::NONE } else { Self { source, steps } };
        is_long
    }
}

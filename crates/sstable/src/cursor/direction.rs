//! The direction of a scan.

use crate::block_slots::BlockLocation;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// The block of the same leaf that a scan in this direction reads next.
    #[inline]
    pub(super) fn after(self, location: BlockLocation<'_>) -> Option<BlockLocation<'_>> {
        match self {
            Self::Forward => location.moved_to(location.at.slot + 1),
            Self::Backward => {
                location.at.slot.checked_sub(1).and_then(|slot| location.moved_to(slot))
            }
        }
    }
}

//! Keys whose newest visible version is a merge operand.
//!
//! The value is looked up separately ([`Engine::merged_value`]), and the merge cursor stays where
//! it is, so a scan continues as from any other key, in either direction.

use trommel_base::{CursorHints, Slice};

use super::{Position, VisibleCursor};
use crate::error::Result;

impl VisibleCursor {
    /// On an operand that is the newest visible version of its key: positions the cursor on the
    /// key, if it has a value. Returns whether it has.
    #[cold]
    #[inline(never)]
    pub(super) fn settle_on_operand(&mut self) -> Result<bool> {
        let Some(here) = self.merge.internal_key() else { return Ok(false) };
        let value = self.merged_value(here.key)?;
        let has_value = value.is_some();
        if !has_value {
            self.exclude_from_gap();
        }
        if let Some(value) = value {
            (self.value, self.position) = (value, Position::OnOperand);
        }
        Ok(has_value)
    }

    /// Excludes a key whose operands make no value from the gap: it may have a value again when the
    /// first of them have expired.
    pub(super) fn exclude_from_gap(&mut self) {
        if self.store.engine.snapshots.expiry.is_on() {
            self.gap.exclude();
        }
    }

    /// The value of the key that a backward scan has passed, whose newest visible version is an
    /// operand; none if the key is before the range.
    #[cold]
    #[inline(never)]
    pub(super) fn value_of_operands(&self) -> Result<Option<Slice>> {
        if *self.key < *self.bounds.from { Ok(None) } else { self.merged_value(&self.key) }
    }

    fn merged_value(&self, key: &[u8]) -> Result<Option<Slice>> {
        let covering = self.deleted.as_ref().map_or(0, |known| known.covering(key, self.seqno));
        self.store.engine.merged_value(&self._view, key, self.seqno, covering)
    }
}

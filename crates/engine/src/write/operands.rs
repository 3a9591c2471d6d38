//! What comes before the first merge operand of a store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::error::Result;
use crate::manifest::edit::VersionEdit;

impl Engine {
    /// Records the name of the merge operator, unless it is recorded: it is durable before the
    /// first operand is logged, so that no open reads operands without knowing that there are any.
    /// Called before operands are written, `key` among their keys.
    ///
    /// # Errors
    /// As a write; [`Error::Merge`](crate::Error::Merge) if there is no operator.
    #[inline]
    pub(crate) fn prepare_for_operands(&self, key: &[u8]) -> Result<()> {
        if self.writes.takes_operands.load(Ordering::Acquire) {
            return Ok(());
        }
        self.prepare_for_first(key)
    }

    #[cold]
    #[inline(never)]
    fn prepare_for_first(&self, key: &[u8]) -> Result<()> {
        self.access.opener().check()?;
        self.access.check_writable()?;
        let operator = self.merge_operator_for(key)?;
        if self.version().merge_operator.is_none() {
            self.record_operator(operator.name())?;
        }
        self.writes.takes_operands.store(true, Ordering::Release);
        Ok(())
    }

    /// Records the name of a merge operator in a store without one.
    #[cold]
    pub(crate) fn record_operator(&self, name: &Arc<str>) -> Result<()> {
        let merge_operator = Some(Arc::clone(name));
        self.install(VersionEdit { merge_operator, ..VersionEdit::default() }, None, None)
    }
}

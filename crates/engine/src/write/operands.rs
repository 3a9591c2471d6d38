//! Prepares a store for its first merge operand.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::batch::WriteBatch;
use crate::engine::Engine;
use crate::error::Result;
use crate::manifest::edit::{OperatorsEdit, VersionEdit};
use crate::space::{CATALOG_ID, id_of, is_marked};

impl Engine {
    /// Checks that there is a merge operator for a physical key, and records the name of the
    /// store's operator, unless it is recorded. The name is durable before the first operand is
    /// logged, so that every open knows that there may be operands. Called before an operand of the
    /// key is written. The operator of a keyspace was recorded with its options.
    ///
    /// # Errors
    /// As a write; [`Error::Merge`](crate::Error::Merge) if there is no operator.
    #[inline]
    pub(crate) fn prepare_for_operand(&self, physical: &[u8]) -> Result<()> {
        let takes_operands = self.writes.takes_operands.load(Ordering::Acquire);
        let may_be_own = is_marked(physical) && self.options.keyspaces.have_operators();
        if takes_operands && !may_be_own {
            return Ok(());
        }
        self.prepare_for(physical)
    }

    /// As [`prepare_for_operand`](Self::prepare_for_operand), for the operands of a batch.
    #[inline]
    pub(crate) fn prepare_for_operands(&self, batch: &WriteBatch) -> Result<()> {
        if !batch.has_operands() {
            return Ok(());
        }
        batch.merged_keys().try_for_each(|key| self.prepare_for_operand(key))
    }

    #[cold]
    #[inline(never)]
    fn prepare_for(&self, physical: &[u8]) -> Result<()> {
        self.access.opener().check()?;
        self.access.check_writable()?;
        let operator = self.merge_operator_for(physical)?;
        let id = id_of(physical).filter(|id| *id > CATALOG_ID);
        if id.is_some() && self.options.keyspaces.own_operator(id).is_some() {
            return Ok(());
        }
        if self.version().merge_operator.is_none() {
            self.record_operator(operator.name())?;
        }
        self.writes.takes_operands.store(true, Ordering::Release);
        Ok(())
    }

    /// Records the name of a merge operator in a store without one.
    #[cold]
    pub(crate) fn record_operator(&self, name: &Arc<str>) -> Result<()> {
        let operators = OperatorsEdit { of_store: Some(Arc::clone(name)), of_keyspaces: false };
        self.install(VersionEdit { operators, ..VersionEdit::default() }, None, None)
    }

    /// Records that keyspaces may have merge operators of their own, before the first has one.
    #[cold]
    pub(crate) fn record_keyspace_operators(&self) -> Result<()> {
        if self.version().has_keyspace_operators {
            return Ok(());
        }
        let operators = OperatorsEdit::of_keyspaces(true);
        self.install(VersionEdit { operators, ..VersionEdit::default() }, None, None)
    }
}

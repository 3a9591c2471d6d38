//! Lending the entries of a scan to a visitor, which moves the cursor at most once per block.

use trommel_base::{EntryKind, KeyHead};

use super::deleted::is_deleted_by;
use super::{Position, VisibleCursor, sees};
use crate::error::Result;
use crate::iter::merge::{Mark, Offered};

impl VisibleCursor {
    /// Lends the entries from the current one on to `visit` until it returns false; the cursor is
    /// then on that entry.
    #[inline]
    pub(crate) fn visit(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        if self.deleted.is_some() {
            return self.visit_among_deleted(&mut visit);
        }
        self.visit_each::<false>(visit)
    }

    /// As `visit`. If `CHECKS`, each entry is checked against the deleted ranges that are known. A
    /// gap that a scan has found must be checked like a range tombstone: skipping it moves the
    /// source of the tombstones past their range, and may leave that of the values in it.
    #[inline(always)]
    fn visit_each<const CHECKS: bool>(
        &mut self,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.check_open()?;
        while let Some((key, value)) = self.entry() {
            let mut goes_on = visit(key, value);
            if goes_on && self.position == Position::On {
                let (seen, opener) = (self.seqno, self.opener);
                let ends = || opener.is_closed();
                let deleted = &mut self.deleted;
                let left = self.merge.visit_forward(ends, |head, key, value| {
                    let is_deleted = CHECKS && is_deleted_by(deleted, key, head.seqno);
                    let is_seen = head.seqno <= seen && !is_deleted;
                    offer(is_seen, head, &mut goes_on, || visit(key, value))
                });
                if let Some(left) = self.known(left)? {
                    self.check_open()?;
                    self.settle_forward(Some(left))?;
                    if !CHECKS && self.deleted.is_some() {
                        return self.visit_among_deleted(&mut visit);
                    }
                    continue;
                }
            }
            if !goes_on || self.position == Position::OffEnd {
                return self.check_open();
            }
            self.next()?;
            if !CHECKS && self.deleted.is_some() {
                return self.visit_among_deleted(&mut visit);
            }
        }
        Ok(())
    }

    /// As `visit`, backward.
    #[inline]
    pub(crate) fn visit_back(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        if self.deleted.is_some() {
            return self.visit_back_among_deleted(&mut visit);
        }
        self.visit_each_back::<false>(visit)
    }

    /// As `visit_each`, backward.
    #[inline(always)]
    fn visit_each_back<const CHECKS: bool>(
        &mut self,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.check_open()?;
        while let Some((key, value)) = self.entry() {
            let mut goes_on = visit(key, value);
            if goes_on && self.position == Position::On {
                let (seen, opener) = (self.seqno, self.opener);
                let ends = || opener.is_closed();
                let hides = |seqno| sees(seen, seqno);
                let deleted = &mut self.deleted;
                let left = self.merge.visit_back(ends, hides, |head, key, value| {
                    let is_deleted = CHECKS && is_deleted_by(deleted, key, head.seqno);
                    let is_seen = sees(seen, head.seqno) && !is_deleted;
                    offer(is_seen, head, &mut goes_on, || visit(key, value))
                });
                if let Some(left) = self.known(left)? {
                    self.check_open()?;
                    self.leave_backward(Some(left))?;
                    if !CHECKS && self.deleted.is_some() {
                        return self.visit_back_among_deleted(&mut visit);
                    }
                    continue;
                }
            }
            if !goes_on || self.position == Position::OffEnd {
                return self.check_open();
            }
            self.prev()?;
            if !CHECKS && self.deleted.is_some() {
                return self.visit_back_among_deleted(&mut visit);
            }
        }
        Ok(())
    }

    /// The outcome of a visit of the merge. If the merge has moved on, or failed, the cursor is off
    /// the end.
    #[inline]
    fn known(&mut self, left: Result<Option<Mark>>) -> Result<Option<Mark>> {
        if !matches!(left, Ok(None)) {
            self.position = Position::OffEnd;
        }
        left
    }

    /// As `visit`, with range tombstones or gaps. Separate from the visits of other cursors, which
    /// need not check each entry.
    #[cold]
    #[inline(never)]
    fn visit_among_deleted(&mut self, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.visit_each::<true>(visit)
    }

    /// As `visit_among_deleted`, backward.
    #[cold]
    #[inline(never)]
    fn visit_back_among_deleted(
        &mut self,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.visit_each_back::<true>(visit)
    }
}

/// Offers an entry that is the only candidate of its key: it is taken if it is visible and a value,
/// and is the last one if `visit` returns false.
#[inline]
fn offer(
    is_seen: bool,
    head: &KeyHead,
    goes_on: &mut bool,
    visit: impl FnOnce() -> bool,
) -> Offered {
    if !is_seen || head.kind != EntryKind::Put {
        return Offered::Left;
    }
    *goes_on = visit();
    if *goes_on { Offered::Taken } else { Offered::Last }
}

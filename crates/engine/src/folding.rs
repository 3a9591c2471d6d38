//! Folding merge operands in flushes and compactions.
//!
//! The entries that the drop rule ([`DropRule`]) does not hide come in order. For the operands of a
//! key that the same readers see, newest first:
//!
//! 1. If it is known what is below them, a full merge turns them into a value or a tombstone. It is
//!    known in three cases: below them is a value or a tombstone that the same readers see, which
//!    the result replaces; everything below has been deleted or has expired; or, for the oldest
//!    readers, nothing older is outside the merge.
//! 2. Otherwise a partial merge turns them into one operand, if the operator can.
//! 3. Operands that cannot be merged are kept as they are, with the entries below them: the
//!    operator failed, the store or the keyspace was opened without one, or they are too large to
//!    be collected.
//!
//! The result has the sequence number of the newest operand. Where entries expire, operands of
//! different time marks are not folded, so that each operand expires by its own time.
//!
//! Operands must not exist twice: if the folded operands of a key were in one table and the
//! operands themselves still in another, they would be applied twice. So in a store with a merge
//! operator each compaction is installed at once ([`slices`](crate::compaction_job::slices)).
//!
//! Called by flushes, and by each thread of a compaction.

use trommel_base::{EntryKind, EntryRef, SeqNo};

use crate::compaction::merge::{DropRule, EntryFate};
use crate::error::Result;
use crate::expiry::TimeMarks;
use crate::keyspaces::{Keyspaces, OwnOperator};
use crate::merge_operator::UserMergeOperator;
use crate::space::{HEADER_BYTES, id_of};

/// Operands of one key are merged when there are this many, or when they have this many bytes.
const PARTIAL_OPERANDS: usize = 1024;
const PARTIAL_BYTES: usize = 1 << 20;
/// Most bytes of one key's operands that are collected for a merge.
const MOST_BYTES: usize = 64 << 20;

/// Takes the entries that are kept, in order.
pub(crate) trait Kept {
    /// Takes an entry. If `is_unseen`, it is the newest of its key, and no snapshot sees it.
    /// `has_older` is whether an older version of its key may be outside the merge, if known.
    fn add(&mut self, entry: EntryRef<'_>, is_unseen: bool, has_older: Option<bool>) -> Result<()>;

    /// Whether an older version of this key may be outside the merge. Called with ascending keys.
    fn has_older(&mut self, key: &[u8]) -> bool;
}

/// The merge operators of a store, for the physical keys of one flush or compaction.
pub(crate) struct FoldingOperators<'a> {
    /// The operator of the store, if it has one.
    pub(crate) of_store: Option<UserMergeOperator>,
    /// The keyspaces, if keys have headers.
    pub(crate) keyspaces: Option<&'a Keyspaces>,
}

/// The operator of a key, and the number of bytes before the key that it is passed.
type KeyOperator = (Option<UserMergeOperator>, usize);

impl FoldingOperators<'_> {
    /// No operators: the operands stay as they are, and nothing is lost.
    pub(crate) const NONE: Self = Self { of_store: None, keyspaces: None };

    fn of(&self, physical: &[u8]) -> KeyOperator {
        let id = self.keyspaces.and_then(|keyspaces| Some((keyspaces, id_of(physical)?)));
        let Some((keyspaces, id)) = id else { return (self.of_store.clone(), 0) };
        let operator = match keyspaces.own_operator(Some(id)) {
            None => self.of_store.clone(),
            Some(OwnOperator::Given(operator)) => Some(operator),
            Some(OwnOperator::Missing { .. } | OwnOperator::Unknown) => None,
        };
        (operator, HEADER_BYTES)
    }
}

/// The operands of one key that the same readers see.
struct Operands {
    key: Vec<u8>,
    /// Bytes of the header of `key`.
    header: usize,
    operator: Option<UserMergeOperator>,
    /// See [`DropRule::stripe`].
    stripe: usize,
    /// The number of the time mark.
    mark: usize,
    is_unseen: bool,
    /// Whether an older version may be outside the merge.
    has_older: bool,
    /// Newest first.
    operands: Vec<(SeqNo, Vec<u8>)>,
    bytes: usize,
    /// A partial merge is tried at this many operands or bytes.
    next_partial: (usize, usize),
    /// Whether the operands are kept one by one instead of being collected.
    are_kept: bool,
}

/// Folds the operands of one flush, or of one thread of a compaction.
pub(crate) struct Folding<'a> {
    operators: FoldingOperators<'a>,
    marks: TimeMarks,
    open: Option<Operands>,
}

impl<'a> Folding<'a> {
    /// Folding by these operators; `marks` are those of all entries.
    pub(crate) fn new(operators: FoldingOperators<'a>, marks: TimeMarks) -> Self {
        Self { operators, marks, open: None }
    }

    /// Whether an entry with this fate must be passed to [`take`](Self::take).
    #[inline]
    pub(crate) fn concerns(&self, fate: EntryFate) -> bool {
        self.open.is_some() || fate == EntryFate::Operand
    }

    /// Takes the next entry, which `rule` has just judged.
    #[cold]
    #[inline(never)]
    pub(crate) fn take(
        &mut self,
        entry: EntryRef<'_>,
        fate: EntryFate,
        rule: &DropRule,
        kept: &mut impl Kept,
    ) -> Result<()> {
        let (stripe, mark) = (rule.stripe(), self.marks.number_for(entry.key, entry.seqno));
        let mut is_unseen = rule.no_snapshot_sees_last();
        if let Some(open) = self.open.take() {
            let is_same = *open.key == *entry.key && open.stripe == stripe;
            // The entry is below operands that are not folded with it.
            is_unseen &= !is_same;
            match fate {
                // The rest is deleted or has expired, whatever the time mark.
                EntryFate::Hidden if is_same => return self.end(&open, None, kept).map(drop),
                EntryFate::Operand if is_same && open.mark == mark => {
                    return self.push(open, entry, kept);
                }
                EntryFate::Keep | EntryFate::Spent if is_same && open.mark == mark => {
                    return self.end_on(&open, entry, fate, kept);
                }
                _ if *open.key == *entry.key => self.end_above(&open, kept)?,
                _ => self.end_of_key(&open, kept)?,
            }
        }
        match fate {
            EntryFate::Operand => self.begin(entry, (stripe, mark), is_unseen, kept),
            EntryFate::Keep => kept.add(entry, is_unseen, None),
            EntryFate::Hidden | EntryFate::Spent => Ok(()),
        }
    }

    /// Folds the operands of the last key.
    pub(crate) fn finish(mut self, kept: &mut impl Kept) -> Result<()> {
        self.open.take().map_or(Ok(()), |open| self.end_of_key(&open, kept))
    }

    fn begin(
        &mut self,
        entry: EntryRef<'_>,
        (stripe, mark): (usize, usize),
        is_unseen: bool,
        kept: &mut impl Kept,
    ) -> Result<()> {
        let (operator, header) = self.operators.of(entry.key);
        let open = Operands {
            key: entry.key.to_vec(),
            header,
            are_kept: operator.is_none(),
            operator,
            stripe,
            mark,
            is_unseen,
            // Queried now, because keys must ascend.
            has_older: stripe > 0 || kept.has_older(entry.key),
            operands: Vec::new(),
            bytes: 0,
            next_partial: (PARTIAL_OPERANDS, PARTIAL_BYTES),
        };
        self.push(open, entry, kept)
    }

    fn push(
        &mut self,
        mut open: Operands,
        entry: EntryRef<'_>,
        kept: &mut impl Kept,
    ) -> Result<()> {
        if open.are_kept {
            kept.add(entry, false, None)?;
        } else {
            open.bytes += entry.value.len();
            open.operands.push((entry.seqno, entry.value.to_vec()));
            if open.operands.len() >= open.next_partial.0 || open.bytes >= open.next_partial.1 {
                self.merge_some(&mut open, kept)?;
            }
        }
        self.open = Some(open);
        Ok(())
    }

    /// Merges the operands that were collected so far, to bound their memory.
    fn merge_some(&self, open: &mut Operands, kept: &mut impl Kept) -> Result<()> {
        if let Some(merged) = partly_merged(open) {
            open.bytes = merged.len();
            let newest = open.operands.first().map_or(0, |(seqno, _)| *seqno);
            open.operands = vec![(newest, merged)];
        }
        if open.bytes > MOST_BYTES {
            add_all(open, kept)?;
            open.operands = Vec::new();
            open.are_kept = true;
        }
        let (operands, bytes) = (open.operands.len(), open.bytes);
        open.next_partial = (PARTIAL_OPERANDS.max(2 * operands), PARTIAL_BYTES.max(2 * bytes));
        Ok(())
    }

    /// Folds operands with the value or the tombstone below them.
    fn end_on(
        &self,
        open: &Operands,
        entry: EntryRef<'_>,
        fate: EntryFate,
        kept: &mut impl Kept,
    ) -> Result<()> {
        let existing = (entry.kind == EntryKind::Put).then_some(entry.value);
        let is_merged = self.end(open, existing, kept)?;
        if is_merged || fate == EntryFate::Spent {
            return Ok(());
        }
        kept.add(entry, false, None)
    }

    /// Folds operands with the value below them, if there is one. Returns whether they were merged.
    fn end(&self, open: &Operands, existing: Option<&[u8]>, kept: &mut impl Kept) -> Result<bool> {
        let (Some(operator), Some(newest)) = (&open.operator, open.operands.first()) else {
            return Ok(false);
        };
        let operands = oldest_first(open);
        let merged = match operator.full_merge(open.user_key(), existing, &operands) {
            Ok(merged) => merged,
            Err(error) => {
                operator.report(&error);
                add_all(open, kept)?;
                return Ok(false);
            }
        };
        let (kind, value) = match &merged {
            Some(value) => (EntryKind::Put, value.as_slice()),
            None if open.stripe == 0 && !open.has_older => return Ok(true),
            None => (EntryKind::Delete, &[][..]),
        };
        let entry = EntryRef { key: &open.key, seqno: newest.0, kind, value };
        kept.add(entry, open.is_unseen, Some(open.has_older))?;
        Ok(true)
    }

    /// Folds operands below which the merge has no versions of their key.
    fn end_of_key(&self, open: &Operands, kept: &mut impl Kept) -> Result<()> {
        match open.has_older {
            true => self.end_above(open, kept),
            false => self.end(open, None, kept).map(drop),
        }
    }

    /// Folds operands above versions that are unknown, or that other readers see.
    fn end_above(&self, open: &Operands, kept: &mut impl Kept) -> Result<()> {
        match (partly_merged(open), open.operands.first()) {
            (Some(value), Some((seqno, _))) => {
                let (key, kind) = (&*open.key, EntryKind::Merge);
                kept.add(EntryRef { key, seqno: *seqno, kind, value: &value }, false, None)
            }
            _ => add_all(open, kept),
        }
    }
}

impl Operands {
    fn user_key(&self) -> &[u8] {
        self.key.get(self.header..).unwrap_or_default()
    }
}

/// One operand in place of all, if there are several and the operator can merge them.
fn partly_merged(open: &Operands) -> Option<Vec<u8>> {
    let operator = open.operator.as_ref().filter(|_| open.operands.len() > 1)?;
    operator.partial_merge(open.user_key(), &oldest_first(open))
}

fn oldest_first(open: &Operands) -> Vec<&[u8]> {
    open.operands.iter().rev().map(|(_, operand)| operand.as_slice()).collect()
}

/// Keeps the operands that were collected.
fn add_all(open: &Operands, kept: &mut impl Kept) -> Result<()> {
    open.operands.iter().try_for_each(|(seqno, operand)| {
        let (key, kind) = (&*open.key, EntryKind::Merge);
        kept.add(EntryRef { key, seqno: *seqno, kind, value: operand }, false, None)
    })
}

//! The newest remaining state of each key: its newest version, or merge operands with the version
//! below them.

use trommel_base::{EntryKind, MAX_SEQNO, SeqNo};

use super::sources::Everything;
use crate::error::Result;
use crate::ranges::RangeSet;

/// The newest remaining state of a key.
#[derive(Debug, Default)]
pub(crate) struct NewestState {
    pub(crate) key: Vec<u8>,
    /// Its value, below the operands if there are any.
    pub(crate) value: Option<Vec<u8>>,
    /// Oldest first.
    pub(crate) operands: Vec<Vec<u8>>,
    /// The sequence number of the oldest version that counts; 0 if all older ones would.
    pub(crate) seqno: SeqNo,
}

impl NewestState {
    /// Whether the key has no value.
    pub(crate) fn is_deleted(&self) -> bool {
        self.value.is_none() && self.operands.is_empty()
    }

    /// Bytes of the key, the value and the operands.
    pub(crate) fn bytes(&self) -> u64 {
        let value = self.value.as_ref().map_or(0, Vec::len);
        (self.key.len() + value + self.operands.iter().map(Vec::len).sum::<usize>()) as u64
    }

    /// The newest state of the next key, without versions that `deleted` deletes.
    pub(crate) fn next(everything: &mut Everything, deleted: &RangeSet) -> Result<Option<Self>> {
        let Some(first) = everything.entry()? else { return Ok(None) };
        let covering = deleted.covering(first.key, MAX_SEQNO);
        let mut state = Self { key: first.key.to_vec(), ..Self::default() };
        let mut operands: Vec<(SeqNo, Vec<u8>)> = Vec::new();
        let mut is_whole = false;
        while let Some(entry) = everything.entry()?.filter(|entry| *entry.key == *state.key) {
            // Without a manifest, obsolete tables may repeat what others hold.
            let is_repeated = operands.last().is_some_and(|(seqno, _)| *seqno == entry.seqno);
            if is_whole || is_repeated && entry.kind == EntryKind::Merge {
                everything.advance()?;
                continue;
            }
            if is_repeated {
                operands.pop();
            }
            state.seqno = entry.seqno;
            is_whole = entry.kind != EntryKind::Merge || entry.seqno < covering;
            match entry.kind {
                _ if entry.seqno < covering => {}
                EntryKind::Delete => {}
                EntryKind::Put => state.value = Some(entry.value.to_vec()),
                EntryKind::Merge => operands.push((entry.seqno, entry.value.to_vec())),
            }
            everything.advance()?;
        }
        if !is_whole {
            state.seqno = 0;
        }
        state.operands = operands.into_iter().rev().map(|(_, operand)| operand).collect();
        Ok(Some(state))
    }
}

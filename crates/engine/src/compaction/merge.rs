//! The drop rule: which versions of a key a flush or compaction keeps.
//!
//! Live snapshots divide the versions of a key into stripes: two versions are in one stripe if
//! every snapshot, and the present, sees both or neither. In steps, newest version first:
//!
//! 1. The newest version of each stripe is kept: some reader may see it. The older versions of the
//!    stripe are hidden from all readers, except below merge operands: all operands are kept, and
//!    the first version below them.
//! 2. Of these, one that a range tombstone deletes for the oldest reader of its stripe, and so for
//!    all of them, is hidden too. So is one that has expired: expiry is a range tombstone over all
//!    keys ([`expiry`](crate::expiry)).
//! 3. A tombstone kept by rules 1 and 2 in the oldest stripe (at or below the oldest snapshot, or
//!    any if there is none) is dropped if nothing older can be outside the merge, which may be one
//!    slice of a compaction: there is nothing left for it to hide.
//!
//! The snapshots must be read after all inputs of the merge were visible, under the lock under
//! which snapshots register: a snapshot that registers later then sees the newest version of every
//! key.
//!
//! Called by flushes, which keep the newest tombstone of each stripe (older versions may be in any
//! table), and by compactions ([`older`](super::older) answers for them), for each entry in the
//! order of [`compare_internal`](trommel_base::compare_internal).

use trommel_base::{EntryKind, MAX_SEQNO, SeqNo, first_words};

use crate::ranges::{RangeCursor, RangeSet};

/// The fate of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryFate {
    /// It goes to the output.
    Keep,
    /// A newer version of its key, a range tombstone or expiry hides it from every reader.
    Hidden,
    /// It is a tombstone with nothing left to hide.
    Spent,
    /// It is a merge operand that readers need, with the next version of its stripe.
    Operand,
}

/// Decides which entries of one merge of sorted runs are kept.
#[derive(Debug)]
pub(crate) struct DropRule {
    /// Ascending.
    snapshots: Vec<SeqNo>,
    /// The first words of the last key judged, its length, and the whole key if it is longer than
    /// they are.
    words: u128,
    len: usize,
    long: Vec<u8>,
    /// The stripe of the last entry judged, if it had this key: the number of snapshots that do not
    /// see it.
    stripe: Option<usize>,
    /// Whether that entry was an operand that is kept: readers need the next one of the stripe too.
    is_open: bool,
    /// Range tombstones as readers above all snapshots see them, and as of each snapshot.
    ranges: Vec<RangeCursor>,
}

impl DropRule {
    /// The rule for these live snapshots, in any order, and these range tombstones, which must be
    /// durable no later than the outcome of the merge.
    pub(crate) fn new(mut snapshots: Vec<SeqNo>, ranges: &RangeSet) -> Self {
        snapshots.sort_unstable();
        snapshots.dedup();
        let moments = snapshots.iter().copied().chain([MAX_SEQNO]);
        let ranges = match ranges.is_empty() {
            true => Vec::new(),
            false => moments.map(|at| RangeCursor::new(ranges.clone(), at)).collect(),
        };
        let (words, len, long) = (0, 0, Vec::new());
        Self { snapshots, words, len, long, stripe: None, is_open: false, ranges }
    }

    /// No range tombstone up to this sequence number deletes any entry that the rule keeps.
    pub(crate) fn ranges_applied(&self) -> SeqNo {
        let newest = self.ranges.last().map_or(0, RangeCursor::newest);
        // Newer tombstones leave the entries that the oldest snapshot sees.
        newest.min(self.snapshots.first().copied().unwrap_or(MAX_SEQNO))
    }

    /// Judges the next entry. `older_exists` is called only for a tombstone that depends on it: may
    /// versions of this key that are older than the entry exist anywhere outside the merge?
    pub(crate) fn judge(
        &mut self,
        key: &[u8],
        seqno: SeqNo,
        kind: EntryKind,
        older_exists: impl FnOnce() -> bool,
    ) -> EntryFate {
        if !self.is_last(key) {
            self.stripe = None;
        }
        let stripe = self.snapshots.partition_point(|snapshot| *snapshot < seqno);
        if self.stripe == Some(stripe) && !self.is_open {
            return EntryFate::Hidden;
        }
        (self.stripe, self.is_open) = (Some(stripe), false);
        // Of the tombstones that are newer than the entry, all readers of the stripe see the same
        // ones, or the stripe ends above all of them.
        if self.ranges.get_mut(stripe).is_some_and(|ranges| ranges.deletes(key, seqno)) {
            return EntryFate::Hidden;
        }
        if kind == EntryKind::Merge {
            self.is_open = true;
            return EntryFate::Operand;
        }
        if kind == EntryKind::Delete && stripe == 0 && !older_exists() {
            return EntryFate::Spent;
        }
        EntryFate::Keep
    }

    /// The stripe of the last entry judged: the number of snapshots that do not see it.
    pub(crate) fn stripe(&self) -> usize {
        self.stripe.unwrap_or_default()
    }

    /// Whether no snapshot sees the last entry judged: it is newer than all of them.
    pub(crate) fn no_snapshot_sees_last(&self) -> bool {
        self.stripe == Some(self.snapshots.len())
    }

    /// Whether there are snapshots.
    pub(crate) fn has_snapshots(&self) -> bool {
        !self.snapshots.is_empty()
    }

    /// Whether `key` equals the last one judged; remembers it as the last.
    #[inline]
    fn is_last(&mut self, key: &[u8]) -> bool {
        let (words, len) = (first_words(key), key.len());
        let begins_alike = (self.words, self.len) == (words, len);
        (self.words, self.len) = (words, len);
        if len <= size_of_val(&words) {
            return begins_alike;
        }
        let is_same = begins_alike && self.long == key;
        if !is_same {
            self.long.clear();
            self.long.extend_from_slice(key);
        }
        is_same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUT: EntryKind = EntryKind::Put;
    const DELETE: EntryKind = EntryKind::Delete;

    /// The sequence numbers that are kept of one key's `versions`, newest first.
    fn kept(snapshots: &[SeqNo], versions: &[(SeqNo, EntryKind)], older: bool) -> Vec<SeqNo> {
        let mut rule = DropRule::new(snapshots.to_vec(), &RangeSet::default());
        let keep = |(seqno, kind): &&(SeqNo, EntryKind)| {
            rule.judge(b"k", *seqno, *kind, || older) == EntryFate::Keep
        };
        versions.iter().filter(keep).map(|(seqno, _)| *seqno).collect()
    }

    #[test]
    fn the_newest_version_at_or_below_each_snapshot_stays() {
        let puts = [(9, PUT), (8, PUT), (5, PUT), (4, PUT), (3, PUT), (1, PUT)];
        assert_eq!(kept(&[], &puts, true), [9]);
        assert_eq!(kept(&[9], &puts, true), [9]);
        assert_eq!(kept(&[8], &puts, true), [9, 8]);
        assert_eq!(kept(&[7], &puts, true), [9, 5]);
        assert_eq!(kept(&[4, 2, 4, 5], &puts, true), [9, 5, 4, 1]);
        assert_eq!(kept(&[0], &puts, true), [9], "no version is that old");
        assert_eq!(kept(&[100], &puts, true), [9]);
    }

    /// lsm-tree's issue 321: whether garbage collection drops the version that the oldest
    /// snapshot needs. Not here, with the snapshot exactly at, just above and just below each
    /// version.
    #[test]
    fn the_version_that_the_oldest_snapshot_needs_stays() {
        let puts = [(30, PUT), (20, PUT), (10, PUT)];
        for snapshot in 0..40 {
            let needed = puts.iter().map(|put| put.0).find(|seqno| *seqno <= snapshot);
            let kept = kept(&[snapshot], &puts, false);
            assert!(kept.contains(&30));
            assert!(needed.is_none_or(|needed| kept.contains(&needed)), "snapshot {snapshot}");
            assert!(kept.len() <= 2);
        }
    }

    #[test]
    fn a_tombstone_goes_only_when_nobody_could_see_what_it_hides() {
        let deleted = [(9, DELETE), (5, PUT)];
        assert_eq!(kept(&[], &deleted, true), [9], "something older lies elsewhere");
        assert_eq!(kept(&[], &deleted, false), [0_u64; 0]);
        assert_eq!(kept(&[9], &deleted, false), [0_u64; 0], "the snapshot sees the deletion");
        assert_eq!(kept(&[8], &deleted, false), [9, 5], "the snapshot sees the value");
        assert_eq!(kept(&[4], &deleted, false), [9], "above the oldest snapshot");
        let again = [(9, PUT), (7, DELETE), (5, PUT)];
        assert_eq!(kept(&[], &again, false), [9]);
        assert_eq!(kept(&[7], &again, false), [9], "the tombstone is spent, what it hid is hidden");
        assert_eq!(kept(&[6], &again, false), [9, 5]);
        assert_eq!(kept(&[8, 6], &again, false), [9, 7, 5]);
    }

    /// Below operands, everything is needed down to the first version that is not an operand, in
    /// each stripe.
    #[test]
    fn operands_need_what_is_below_them() {
        const MERGE: EntryKind = EntryKind::Merge;
        use EntryFate::{Hidden, Keep, Operand, Spent};
        let judged = |snapshots: &[SeqNo], versions: &[(SeqNo, EntryKind)]| -> Vec<EntryFate> {
            let mut rule = DropRule::new(snapshots.to_vec(), &RangeSet::default());
            let versions = versions.iter();
            versions.map(|(seqno, kind)| rule.judge(b"k", *seqno, *kind, || false)).collect()
        };
        let versions = [(9, MERGE), (8, MERGE), (7, PUT), (6, MERGE), (5, DELETE), (4, PUT)];
        assert_eq!(judged(&[], &versions), [Operand, Operand, Keep, Hidden, Hidden, Hidden]);
        assert_eq!(judged(&[8], &versions), [Operand, Operand, Keep, Hidden, Hidden, Hidden]);
        assert_eq!(judged(&[6], &versions), [Operand, Operand, Keep, Operand, Spent, Hidden]);
        assert_eq!(judged(&[6, 4], &versions), [Operand, Operand, Keep, Operand, Keep, Keep]);
        let mut rule = DropRule::new(Vec::new(), &RangeSet::default());
        assert_eq!(rule.judge(b"a", 9, MERGE, || false), Operand);
        assert_eq!(rule.judge(b"b", 8, PUT, || false), Keep);
        assert_eq!(rule.judge(b"b", 7, MERGE, || false), Hidden, "not below the operand of a");
    }

    #[test]
    fn each_key_is_judged_separately() {
        let mut rule = DropRule::new(Vec::new(), &RangeSet::default());
        assert_eq!(rule.judge(b"", 5, PUT, || true), EntryFate::Keep, "the empty key");
        assert_eq!(rule.judge(b"", 4, PUT, || true), EntryFate::Hidden);
        assert_eq!(rule.judge(b"a", 3, DELETE, || false), EntryFate::Spent);
        assert_eq!(rule.judge(b"a", 2, DELETE, || false), EntryFate::Hidden);
        assert_eq!(rule.judge(b"b", 3, PUT, || true), EntryFate::Keep, "of the same stripe");
        // The first sixteen bytes, or zeros after a short key, do not identify a key.
        let long = |last: &str| format!("{}{last}", "k".repeat(40)).into_bytes();
        for key in [&b"b\0"[..], b"b\0\0", &[0; 16], &[0; 17], &[0; 18], &long("a"), &long("b")] {
            assert_eq!(rule.judge(key, 9, PUT, || true), EntryFate::Keep, "{key:?}");
            assert_eq!(rule.judge(key, 8, PUT, || true), EntryFate::Hidden, "{key:?}");
        }
        assert_eq!(rule.judge(&long("c"), 8, PUT, || true), EntryFate::Keep, "another long one");
    }
}

//! The keys and ranges that a transaction has read.
//!
//! Disjoint parts of the key space, in key order: a key that lies in a part is not added again, and
//! ranges that overlap or touch become one. If the parts take more than [`TRACKED_BYTES`], each
//! pair of neighbours is replaced by the range from the start of the first to the end of the
//! second. The parts may then cover keys that were not read, which can cause unnecessary conflicts;
//! they always cover all keys that were read.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::batch::Condition;
use crate::bounds::Bounds;

/// Most bytes of tracked reads of one transaction: some 50,000 keys of 16 bytes.
pub(super) const TRACKED_BYTES: usize = 4 << 20;

/// Approximate bytes of a part, besides its keys.
const PART_BYTES: usize = 64;

/// Where a part that begins at a key ends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PartEnd {
    /// The part is that key only.
    OneKey,
    /// Before this key.
    Before(Vec<u8>),
    /// The part has no end.
    Open,
}

impl PartEnd {
    fn of(to: Option<Vec<u8>>) -> Self {
        to.map_or(Self::Open, Self::Before)
    }

    /// Whether a part from `from` to here reaches `key`, or the position right before it.
    fn reaches(&self, from: &[u8], key: &[u8]) -> bool {
        match self {
            Self::OneKey => from == key,
            Self::Before(to) => **to >= *key,
            Self::Open => true,
        }
    }

    /// The later of two ends: this one, of a part that begins at `from`, and `to`.
    fn later(self, from: &[u8], to: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let own = match self {
            Self::OneKey => Bounds::after(from),
            Self::Before(to) => to,
            Self::Open => return None,
        };
        to.map(|to| to.max(own))
    }

    fn bytes(&self) -> usize {
        if let Self::Before(to) = self { to.len() } else { 0 }
    }
}

/// The keys and ranges that a transaction has read.
#[derive(Debug, Default)]
pub(super) struct TrackedReads {
    /// The end of each part, by its first key.
    parts: BTreeMap<Vec<u8>, PartEnd>,
    bytes: usize,
}

impl TrackedReads {
    /// Records that `key` was read.
    pub(super) fn add_key(&mut self, key: &[u8]) {
        let before = self.last_from(key);
        let is_in_part = before.is_some_and(|(from, end)| match end {
            PartEnd::OneKey => **from == *key,
            PartEnd::Before(to) => *key < **to,
            PartEnd::Open => true,
        });
        if !is_in_part {
            self.insert(key.to_vec(), PartEnd::OneKey);
        }
    }

    /// Records that the range was read, including the gaps between its keys.
    pub(super) fn add_range(&mut self, bounds: Bounds) {
        if bounds.ends_before(&bounds.from) {
            return;
        }
        let Bounds { mut from, mut to } = bounds;
        let before = self.last_from(&from);
        if let Some((first, end)) = before
            && end.reaches(first, &from)
        {
            from = first.clone();
        }
        // All parts that begin in the range, or where it ends.
        while let Some((first, _)) = self.first_from(&from) {
            if to.as_ref().is_some_and(|to| first > to) {
                break;
            }
            let first = first.clone();
            if let Some(end) = self.remove(&first) {
                to = end.later(&first, to);
            }
        }
        self.insert(from, PartEnd::of(to));
    }

    /// The last part that begins at `key` or before it.
    fn last_from(&self, key: &[u8]) -> Option<(&Vec<u8>, &PartEnd)> {
        self.parts.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()
    }

    /// The first part that begins at `key` or after it.
    fn first_from(&self, key: &[u8]) -> Option<(&Vec<u8>, &PartEnd)> {
        self.parts.range::<[u8], _>((Bound::Included(key), Bound::Unbounded)).next()
    }

    fn insert(&mut self, from: Vec<u8>, end: PartEnd) {
        self.bytes += PART_BYTES + from.len() + end.bytes();
        self.parts.insert(from, end);
        while self.bytes > TRACKED_BYTES && self.parts.len() > 1 {
            self.merge_neighbours();
        }
    }

    fn remove(&mut self, from: &[u8]) -> Option<PartEnd> {
        let end = self.parts.remove(from)?;
        self.bytes -= PART_BYTES + from.len() + end.bytes();
        Some(end)
    }

    #[cold]
    fn merge_neighbours(&mut self) {
        let mut parts = std::mem::take(&mut self.parts).into_iter();
        self.bytes = 0;
        while let Some((from, mut end)) = parts.next() {
            if let Some((next, last)) = parts.next() {
                end = PartEnd::of(last.later(&next, Some(Vec::new())));
            }
            self.bytes += PART_BYTES + from.len() + end.bytes();
            self.parts.insert(from, end);
        }
    }

    /// The conditions that nothing that was read has changed.
    pub(super) fn into_conditions(self) -> Vec<Condition> {
        let parts = self.parts.into_iter();
        let condition = |(from, end)| match end {
            PartEnd::OneKey => Condition::Unchanged(from),
            PartEnd::Before(to) => Condition::UnchangedRange(Bounds { from, to: Some(to) }),
            PartEnd::Open => Condition::UnchangedRange(Bounds { from, to: None }),
        };
        parts.map(condition).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(from: u32, to: Option<u32>) -> Bounds {
        Bounds { from: key(from), to: to.map(key) }
    }

    fn key(number: u32) -> Vec<u8> {
        format!("{number:04}").into_bytes()
    }

    fn covers(reads: &TrackedReads, key: &[u8]) -> bool {
        reads.parts.iter().any(|(from, end)| match end {
            PartEnd::OneKey => from == key,
            PartEnd::Before(to) => **from <= *key && *key < **to,
            PartEnd::Open => **from <= *key,
        })
    }

    #[test]
    fn parts_cover_exactly_what_was_read_and_are_disjoint() {
        let mut rng = fastrand::Rng::with_seed(52);
        for _ in 0..2000 {
            let (mut reads, mut model) = (TrackedReads::default(), [false; 40]);
            for _ in 0..rng.u32(1..12) {
                let (from, len) = (rng.u32(..36), rng.u32(..5));
                match rng.u32(..20) {
                    0 => {
                        reads.add_range(bounds(from, None));
                        model[from as usize..].fill(true);
                    }
                    1..10 => {
                        reads.add_range(bounds(from, Some(from + len)));
                        model[from as usize..(from + len) as usize].fill(true);
                    }
                    _ => {
                        reads.add_key(&key(from));
                        model[from as usize] = true;
                    }
                }
            }
            for (number, is_read) in (0..).zip(model) {
                assert_eq!(covers(&reads, &key(number)), is_read, "{number} of {reads:?}");
            }
            for ((_, end), (next, _)) in reads.parts.iter().zip(reads.parts.iter().skip(1)) {
                assert!(!matches!(end, PartEnd::Open), "{reads:?}");
                assert!(!matches!(end, PartEnd::Before(to) if to > next), "{reads:?}");
            }
            let bytes: usize =
                reads.parts.iter().map(|(from, end)| PART_BYTES + from.len() + end.bytes()).sum();
            assert_eq!(bytes, reads.bytes);
        }
    }

    #[test]
    fn many_reads_become_coarser_and_stay_covered() {
        let mut reads = TrackedReads::default();
        for number in 0..200_000_u32 {
            // In an order that splits the key space again and again.
            reads.add_key(format!("{:08}", number.reverse_bits()).as_bytes());
            assert!(reads.bytes <= TRACKED_BYTES);
        }
        for number in (0..200_000_u32).step_by(97) {
            let key = format!("{:08}", number.reverse_bits());
            assert!(covers(&reads, key.as_bytes()), "{key} was read");
        }
        let one = reads.parts.len();
        reads.add_range(Bounds::all());
        assert!(one > 1000 && reads.parts.len() == 1);
    }
}

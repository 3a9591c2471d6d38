//! The written and acknowledged batches, and the states that they permit after a crash.
//!
//! A history is a list of batches in the order in which they were issued, by one writer. After a
//! crash the state must be that after its first `k` batches, for some `k` within [`Bounds`].

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The entries of a store.
pub(crate) type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// One operation of a batch.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    /// Appends to the value, in a store whose operator does: see [`appended`].
    Merge(Vec<u8>, Vec<u8>),
    /// Deletes the keys from the first on, up to before the other one if it has one.
    DeleteRange(Vec<u8>, Option<Vec<u8>>),
}

impl Operation {
    /// Puts a value, or deletes the key if there is none.
    pub(crate) fn set(key: Vec<u8>, value: Option<Vec<u8>>) -> Self {
        match value {
            Some(value) => Self::Put(key, value),
            None => Self::Delete(key),
        }
    }

    /// The key that it sets, and its new value.
    fn new_value(&self, state: &State) -> Option<(&Vec<u8>, Vec<u8>)> {
        match self {
            Self::Put(key, value) => Some((key, value.clone())),
            Self::Merge(key, operand) => {
                let so_far = state.get(key).map_or(&[][..], Vec::as_slice);
                Some((key, appended(so_far, operand)))
            }
            Self::Delete(_) | Self::DeleteRange(..) => None,
        }
    }

    /// The keys of `state` that it deletes or replaces.
    fn hidden(&self, state: &State) -> Vec<Vec<u8>> {
        let (from, to) = match self {
            Self::Put(key, _) | Self::Delete(key) | Self::Merge(key, _) => {
                return state.contains_key(key).then(|| key.clone()).into_iter().collect();
            }
            Self::DeleteRange(from, to) => (from, to),
        };
        let is_inside = |key: &&Vec<u8>| *key >= from && to.as_ref().is_none_or(|to| *key < to);
        state.keys().filter(is_inside).cloned().collect()
    }
}

/// Most bytes of a merged value.
const KEPT: usize = 4000;

/// The last bytes of two values, one after the other: what merges make of them.
pub(crate) fn appended(so_far: &[u8], operand: &[u8]) -> Vec<u8> {
    let mut all = [so_far, operand].concat();
    all.drain(..all.len().saturating_sub(KEPT));
    all
}

/// Batches in the order of their issue, and the state after each.
#[derive(Debug, Clone)]
pub(crate) struct History {
    batches: Vec<Vec<Operation>>,
    state: State,
    /// Digest of the state after the first `k` batches, at index `k`.
    digests: Vec<u64>,
}

impl Default for History {
    fn default() -> Self {
        Self { batches: Vec::new(), state: State::new(), digests: vec![0] }
    }
}

impl History {
    /// Number of batches.
    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }

    /// The value of a key after all batches.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.state.get(key)
    }

    /// Digest of the state after all batches.
    pub(crate) fn digest(&self) -> u64 {
        self.digests[self.len()]
    }

    pub(crate) fn extend(&mut self, batches: impl IntoIterator<Item = Vec<Operation>>) {
        batches.into_iter().for_each(|batch| self.push(batch));
    }

    pub(crate) fn push(&mut self, batch: Vec<Operation>) {
        let mut digest = self.digests[self.len()];
        for operation in &batch {
            let new = operation.new_value(&self.state);
            for key in operation.hidden(&self.state) {
                let old = self.state.remove(&key);
                digest = digest.wrapping_sub(old.map_or(0, |old| digest_entry(&key, &old)));
            }
            if let Some((key, value)) = new {
                digest = digest.wrapping_add(digest_entry(key, &value));
                self.state.insert(key.clone(), value);
            }
        }
        self.batches.push(batch);
        self.digests.push(digest);
    }

    /// Drops all but the first `count` batches, because a crash lost the others.
    pub(crate) fn truncate(&mut self, count: usize) {
        if count == self.len() {
            return;
        }
        let mut shorter = Self::default();
        for batch in self.batches.drain(..count) {
            shorter.push(batch);
        }
        *self = shorter;
    }

    /// The state after the first `count` batches.
    pub(crate) fn state_after(&self, count: usize) -> State {
        let mut history = self.clone();
        history.truncate(count);
        history.state
    }

    /// The batch that turns the state after all batches into `wanted`.
    pub(crate) fn difference(&self, wanted: &State) -> Vec<Operation> {
        let gone = self.state.keys().filter(|key| !wanted.contains_key(*key));
        let gone = gone.map(|key| Operation::Delete(key.clone()));
        let other = wanted.iter().filter(|(key, value)| self.state.get(*key) != Some(value));
        gone.chain(other.map(|(key, value)| Operation::Put(key.clone(), value.clone()))).collect()
    }

    /// The longest prefix within `low..=high` whose state has this digest.
    pub(crate) fn prefix(&self, digest: u64, low: usize, high: usize) -> Option<usize> {
        (low..=high).rev().find(|&count| self.digests.get(count) == Some(&digest))
    }

    /// Describes what is wrong with a state that is not a prefix within `low..=high`.
    pub(crate) fn explain(&self, found: &State, low: usize, high: usize) -> String {
        if let Some(count) = self.prefix(digest(found), 0, self.len()) {
            let verb = if count < low { "acknowledged batches are lost" } else { "never issued" };
            return format!("the state is that after {count} batches, not {low}..={high}: {verb}");
        }
        let differences = |count: &usize| differences(&self.state_after(*count), found);
        let closest = (low..=high).min_by_key(|count| differences(count).len()).unwrap_or(low);
        let mut text = format!(
            "the state is no prefix of the batches; closest within {low}..={high} is {closest}:"
        );
        for difference in differences(&closest).iter().take(8) {
            text.push_str("\n    ");
            text.push_str(difference);
        }
        text
    }
}

fn differences(wanted: &State, found: &State) -> Vec<String> {
    let keys = wanted.keys().chain(found.keys().filter(|key| !wanted.contains_key(*key)));
    let short = |value: Option<&Vec<u8>>| match value {
        None => "nothing".to_owned(),
        Some(value) => format!("{:?}", String::from_utf8_lossy(&value[..value.len().min(24)])),
    };
    keys.filter(|key| wanted.get(*key) != found.get(*key))
        .map(|key| {
            let (wanted, found) = (short(wanted.get(key)), short(found.get(key)));
            format!("{:?}: wanted {wanted}, found {found}", String::from_utf8_lossy(key))
        })
        .collect()
}

/// A digest of a state: equal for equal states, and in practice only for those.
pub(crate) fn digest(state: &State) -> u64 {
    state.iter().fold(0, |sum, (key, value)| sum.wrapping_add(digest_entry(key, value)))
}

fn digest_entry(key: &[u8], value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, value).hash(&mut hasher);
    hasher.finish()
}

/// A remark in the operation log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// This many batches have been issued.
    Issued(usize),
    /// This many batches are acknowledged: they survive the death of the process.
    Written(usize),
    /// This many batches are acknowledged as durable: they survive a power failure.
    Durable(usize),
    /// Checkpoint `.0` was started, with `.1` batches written.
    CheckpointBegun(usize, usize),
    /// Checkpoint `.0` is complete.
    CheckpointDone(usize),
}

const KIND_BITS: u32 = 60;
const COUNT_BITS: u32 = 32;

impl Mark {
    pub(crate) fn encode(self) -> u64 {
        let (kind, number) = match self {
            Self::Issued(count) => (0, count),
            Self::Written(count) => (1, count),
            Self::Durable(count) => (2, count),
            Self::CheckpointBegun(id, count) => (3, id << COUNT_BITS | count),
            Self::CheckpointDone(id) => (4, id),
        };
        kind << KIND_BITS | number as u64
    }

    fn decode(word: u64) -> Self {
        let number = (word & ((1 << KIND_BITS) - 1)) as usize;
        match word >> KIND_BITS {
            0 => Self::Issued(number),
            1 => Self::Written(number),
            2 => Self::Durable(number),
            3 => Self::CheckpointBegun(number >> COUNT_BITS, number & ((1 << COUNT_BITS) - 1)),
            _ => Self::CheckpointDone(number),
        }
    }
}

/// A checkpoint of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checkpoint {
    pub(crate) id: usize,
    /// Number of batches in it.
    pub(crate) count: usize,
    /// Whether it was reported as complete.
    pub(crate) done: bool,
}

/// The legal prefixes of a history at a moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bounds {
    /// Batches that a power failure must not lose.
    pub(crate) durable: usize,
    /// Batches that the death of the process must not lose.
    pub(crate) written: usize,
    /// Batches issued.
    pub(crate) issued: usize,
    pub(crate) checkpoints: Vec<Checkpoint>,
}

impl Bounds {
    /// For a disk that starts with this many batches, all durable.
    pub(crate) fn starting_with(batches: usize) -> Self {
        Self { durable: batches, written: batches, issued: batches, checkpoints: Vec::new() }
    }

    /// Updates the bounds at a mark.
    pub(crate) fn pass(&mut self, mark: u64) {
        match Mark::decode(mark) {
            Mark::Issued(count) => self.issued = count,
            Mark::Written(count) => self.written = count,
            Mark::Durable(count) => {
                self.written = self.written.max(count);
                self.durable = count;
            }
            Mark::CheckpointBegun(id, count) => {
                self.checkpoints.push(Checkpoint { id, count, done: false });
            }
            Mark::CheckpointDone(id) => {
                let same = self.checkpoints.iter_mut().filter(|checkpoint| checkpoint.id == id);
                same.for_each(|checkpoint| checkpoint.done = true);
            }
        }
    }
}

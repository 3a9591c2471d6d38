//! What transactions have read and written.

/// A logical key.
pub(crate) type Key = u32;

/// A write: each has a number of its own.
pub(crate) type Write = u32;

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Its commit was acknowledged.
    Committed,
    /// It was refused, rolled back or dropped; or a crash lost it; or these are writes that a
    /// transaction undid.
    Aborted,
}

/// One transaction.
#[derive(Debug, Clone)]
pub(crate) struct Execution {
    /// What it has read of each key before it wrote it: all writes that made the value of a list,
    /// in order; the last write of a register, or none.
    pub(crate) reads: Vec<(Key, Vec<Write>)>,
    /// Its writes, in order. It has read each of their keys, except of lists.
    pub(crate) writes: Vec<(Key, Write)>,
    /// What it has read of keys that it had written, without these writes.
    pub(crate) without_own: Vec<(Key, Vec<Write>)>,
    pub(crate) outcome: Outcome,
    /// Whether it was acknowledged as durable, before any crash.
    pub(crate) is_durable: bool,
}

impl Execution {
    pub(crate) fn new(outcome: Outcome) -> Self {
        let (reads, writes, without_own) = <(Vec<_>, Vec<_>, Vec<_>)>::default();
        Self { reads, writes, without_own, outcome, is_durable: false }
    }
}

/// Keys from this one on are registers; smaller ones are lists.
pub(crate) const FIRST_REGISTER: Key = 1 << 31;

pub(crate) fn is_register(key: Key) -> bool {
    key >= FIRST_REGISTER
}

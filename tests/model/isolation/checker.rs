//! Finds the anomalies of a history.
//!
//! 1. The versions of a list are ordered by the longest value that was read; every other value must
//!    be a prefix of it. Those of a register follow from what each writer has read before it wrote.
//! 2. A value that contains a write of an aborted transaction is G1a; one that ends within the
//!    writes of a transaction is G1b; a committed write that is in no version is lost; a
//!    transaction that does not see its own writes, committed or not, is internally inconsistent.
//! 3. Dependencies: the writer of a version on that of the one before it (`WriteWrite`), a reader
//!    on the writer of what it read (`WriteRead`), the writer of the next version on each reader of
//!    the one before it (`ReadWrite`).
//! 4. Cycles of these are the remaining anomalies: see [`super::cycles`].

use std::collections::{BTreeSet, HashMap};

use super::cycles::{self, Dependency, Graph};
use super::history::{Execution, Key, Outcome, Write, is_register};

/// The kinds of anomalies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Write cycle: the writes of two transactions are interleaved.
    G0,
    /// Aborted read.
    G1a,
    /// Intermediate read: of a state that only the inside of a transaction has.
    G1b,
    /// Circular information flow: transactions have read from each other.
    G1c,
    /// A cycle with one anti-dependency: read skew, or a lost update.
    GSingle,
    /// A cycle with several anti-dependencies: write skew, or a phantom.
    G2,
    /// Two transactions have replaced the same version, or values are in two orders.
    Order,
    /// A committed write is in no version.
    LostWrite,
    /// A transaction has read a key that it had written, without that write.
    Internal,
}

/// An anomaly, and the transactions in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Anomaly {
    pub(crate) kind: Kind,
    pub(crate) executions: Vec<usize>,
}

impl Anomaly {
    /// For a failure: what these transactions did.
    pub(crate) fn explain(&self, history: &[Execution]) -> String {
        let shown = self.executions.iter().take(6);
        let lines = shown.map(|at| format!("  {at}: {:?}", history[*at])).collect::<Vec<_>>();
        format!("{:?} of {} transactions:\n{}", self.kind, self.executions.len(), lines.join("\n"))
    }
}

/// All anomalies of a history, at most one for each set of transactions that depend on each other.
pub(crate) fn check(history: &[Execution]) -> Vec<Anomaly> {
    let mut checker = Checker::new(history);
    checker.order_versions();
    checker.check_reads();
    checker.check_writes();
    let graph = checker.graph();
    checker.found.extend(cycles::find(&graph));
    checker.found
}

struct Checker<'a> {
    history: &'a [Execution],
    /// The transaction of each write, and whether it is its last of the key.
    writers: HashMap<Write, (usize, bool)>,
    /// The writes that made each key, in order.
    orders: HashMap<Key, Vec<Write>>,
    found: Vec<Anomaly>,
}

impl<'a> Checker<'a> {
    fn new(history: &'a [Execution]) -> Self {
        let mut writers = HashMap::new();
        for (at, one) in history.iter().enumerate() {
            let mut last = HashMap::new();
            for (key, write) in &one.writes {
                if let Some(before) = last.insert(key, *write) {
                    writers.insert(before, (at, false));
                }
                writers.insert(*write, (at, true));
            }
        }
        Self { history, writers, orders: HashMap::new(), found: Vec::new() }
    }

    fn note(&mut self, kind: Kind, executions: impl IntoIterator<Item = usize>) {
        self.found.push(Anomaly { kind, executions: executions.into_iter().collect() });
    }

    /// The transactions that count, with their numbers.
    fn effective(&self) -> impl Iterator<Item = (usize, &'a Execution)> + use<'a> {
        self.history.iter().enumerate().filter(|(_, one)| one.outcome != Outcome::Aborted)
    }

    fn order_versions(&mut self) {
        let mut replaced: HashMap<(Key, Option<Write>), (usize, Write)> = HashMap::new();
        let mut registers = BTreeSet::new();
        for (at, one) in self.effective() {
            for (key, seen) in one.reads.iter().filter(|(key, _)| !is_register(*key)) {
                let longest = self.orders.entry(*key).or_default();
                let same = longest.iter().zip(seen).take_while(|(a, b)| a == b).count();
                if same < longest.len().min(seen.len()) {
                    self.note(Kind::Order, [at]);
                } else if seen.len() > longest.len() {
                    longest.clone_from(seen);
                }
            }
            let mut current: HashMap<Key, Option<Write>> = HashMap::new();
            for (key, write) in one.writes.iter().filter(|(key, _)| is_register(*key)) {
                let before = one.reads.iter().find(|(read, _)| read == key);
                let before = before.and_then(|(_, seen)| seen.first().copied());
                let before = current.insert(*key, Some(*write)).unwrap_or(before);
                registers.insert(*key);
                if let Some((other, _)) = replaced.insert((*key, before), (at, *write)) {
                    self.note(Kind::Order, [other, at]);
                }
            }
        }
        for key in registers {
            let mut order = Vec::new();
            while let Some((_, next)) = replaced.remove(&(key, order.last().copied())) {
                order.push(next);
            }
            self.orders.insert(key, order);
        }
    }

    fn check_reads(&mut self) {
        for (at, one) in self.history.iter().enumerate() {
            if !one.without_own.is_empty() {
                self.note(Kind::Internal, [at]);
            }
        }
        for (at, one) in self.effective() {
            for (_, seen) in &one.reads {
                for write in seen {
                    match self.writers.get(write) {
                        Some((writer, _)) if self.history[*writer].outcome != Outcome::Aborted => {}
                        Some((writer, _)) => self.note(Kind::G1a, [at, *writer]),
                        None => self.note(Kind::G1a, [at]),
                    }
                }
                if let Some((writer, false)) = seen.last().and_then(|last| self.writers.get(last)) {
                    self.note(Kind::G1b, [at, *writer]);
                }
            }
        }
    }

    fn check_writes(&mut self) {
        let all: BTreeSet<Write> = self.orders.values().flatten().copied().collect();
        for (at, one) in self.effective() {
            let is_lost = |(_, write): &(Key, Write)| !all.contains(write);
            if one.outcome == Outcome::Committed && one.writes.iter().any(is_lost) {
                self.note(Kind::LostWrite, [at]);
            }
        }
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::new(self.history.len());
        let writer = |write: &Write| self.writers.get(write).map(|(writer, _)| *writer);
        let mut places = HashMap::new();
        for order in self.orders.values() {
            places.extend(order.iter().enumerate().map(|(at, write)| (*write, at)));
            for pair in order.windows(2) {
                if let (Some(before), Some(after)) = (writer(&pair[0]), writer(&pair[1])) {
                    graph.add(before, after, Dependency::WriteWrite);
                }
            }
        }
        for (at, one) in self.effective() {
            for (key, seen) in &one.reads {
                let last = seen.last();
                if let Some(writer) = last.and_then(writer) {
                    graph.add(writer, at, Dependency::WriteRead);
                }
                let next = match last.map(|last| places.get(last)) {
                    None => 0,
                    Some(Some(place)) => place + 1,
                    Some(None) => continue,
                };
                let next = self.orders.get(key).and_then(|order| order.get(next));
                if let Some(writer) = next.and_then(writer) {
                    graph.add(at, writer, Dependency::ReadWrite);
                }
            }
        }
        graph
    }
}

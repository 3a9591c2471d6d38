//! Cycles of dependencies.
//!
//! 1. The strongly connected components (Tarjan, 1972) of the graph with only some dependencies are
//!    the anomalies of that kind: G0 with those between writers, G1c with those on what was read.
//! 2. What is left has an anti-dependency. If one of them is closed to a cycle by others that are
//!    none, it is G-single; otherwise G2.

use std::collections::{HashMap, HashSet};

use super::checker::{Anomaly, Kind};

/// Why a transaction comes after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dependency {
    /// It replaced what the other wrote.
    WriteWrite,
    /// It read what the other wrote.
    WriteRead,
    /// It replaced what the other read.
    ReadWrite,
}

/// Dependencies between transactions.
#[derive(Debug)]
pub(crate) struct Graph {
    after: Vec<Vec<(usize, Dependency)>>,
}

impl Graph {
    pub(crate) fn new(executions: usize) -> Self {
        Self { after: vec![Vec::new(); executions] }
    }

    /// Notes that `second` comes after `first`.
    pub(crate) fn add(&mut self, first: usize, second: usize, why: Dependency) {
        if first != second {
            self.after[first].push((second, why));
        }
    }

    fn next(&self, at: usize, weakest: Dependency) -> impl Iterator<Item = usize> {
        self.after[at].iter().filter(move |(_, why)| *why <= weakest).map(|(next, _)| *next)
    }

    /// The strongly connected components of several transactions, with dependencies up to this
    /// kind.
    fn components(&self, weakest: Dependency) -> Vec<Vec<usize>> {
        const NEW: usize = usize::MAX;
        let all = self.after.len();
        let (mut number, mut low) = (vec![NEW; all], vec![0; all]);
        let (mut is_open, mut open, mut found) = (vec![false; all], Vec::new(), Vec::new());
        let mut count = 0;
        for root in 0..all {
            if number[root] != NEW {
                continue;
            }
            let mut path = vec![(root, self.next(root, weakest))];
            while let Some((at, rest)) = path.last_mut() {
                let at = *at;
                if number[at] == NEW {
                    (number[at], low[at], is_open[at]) = (count, count, true);
                    count += 1;
                    open.push(at);
                }
                match rest.next() {
                    Some(next) if number[next] == NEW => {
                        path.push((next, self.next(next, weakest)));
                    }
                    Some(next) if is_open[next] => low[at] = low[at].min(number[next]),
                    Some(_) => {}
                    None => {
                        path.pop();
                        if let Some((before, _)) = path.last() {
                            low[*before] = low[*before].min(low[at]);
                        }
                        if low[at] == number[at] {
                            let from = open.iter().rposition(|one| *one == at).expect("it is open");
                            let component = open.split_off(from);
                            component.iter().for_each(|one| is_open[*one] = false);
                            if component.len() > 1 {
                                found.push(component);
                            }
                        }
                    }
                }
            }
        }
        found
    }

    /// Whether an anti-dependency within the component is closed to a cycle without another one.
    fn has_single(&self, component: &[usize]) -> bool {
        let within: HashSet<usize> = component.iter().copied().collect();
        component.iter().any(|reader| {
            let overwriters = self.after[*reader].iter();
            let mut path: Vec<usize> = overwriters
                .filter(|(next, why)| *why == Dependency::ReadWrite && within.contains(next))
                .map(|(next, _)| *next)
                .collect();
            let mut seen: HashSet<usize> = path.iter().copied().collect();
            while let Some(at) = path.pop() {
                if at == *reader {
                    return true;
                }
                let nexts = self.next(at, Dependency::WriteRead);
                path.extend(nexts.filter(|next| within.contains(next) && seen.insert(*next)));
            }
            false
        })
    }
}

/// The anomalies of a graph, each transaction in one of them at most.
pub(crate) fn find(graph: &Graph) -> Vec<Anomaly> {
    let mut known: HashMap<usize, Kind> = HashMap::new();
    let mut found = Vec::new();
    for (weakest, kind) in [
        (Dependency::WriteWrite, Kind::G0),
        (Dependency::WriteRead, Kind::G1c),
        (Dependency::ReadWrite, Kind::G2),
    ] {
        for executions in graph.components(weakest) {
            // It contains one that was found with fewer dependencies.
            if executions.iter().any(|one| known.contains_key(one)) {
                continue;
            }
            let is_single = kind == Kind::G2 && graph.has_single(&executions);
            let kind = if is_single { Kind::GSingle } else { kind };
            known.extend(executions.iter().map(|one| (*one, kind)));
            found.push(Anomaly { kind, executions });
        }
    }
    found
}

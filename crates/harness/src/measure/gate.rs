//! A gate at which threads wait until all have arrived.
//!
//! A barrier would do if every thread were certain to start: if the system cannot create one, the
//! waiting ones must be released.

use std::sync::{Condvar, Mutex, PoisonError};

/// A gate that opens for a known number of threads, or releases them without a run.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    waiting: usize,
    /// Whether the waiting threads may continue, once decided.
    decision: Option<bool>,
}

impl Gate {
    /// Waits for the decision; returns whether to continue.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        self.changed.notify_all();
        let state = self
            .changed
            .wait_while(state, |state| state.decision.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        state.decision == Some(true)
    }

    /// Waits until `count` threads have arrived, and lets them continue.
    pub(super) fn open(&self, count: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self
            .changed
            .wait_while(state, |state| state.waiting < count)
            .unwrap_or_else(PoisonError::into_inner);
        state.decision = Some(true);
        drop(state);
        self.changed.notify_all();
    }

    /// Releases all threads, present and future, without a run.
    pub(super) fn release(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).decision = Some(false);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_go_on_or_none() {
        for goes_on in [true, false] {
            let gate = Gate::default();
            let words: Vec<bool> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| gate.wait())).collect();
                if goes_on {
                    gate.open(3);
                } else {
                    gate.release();
                }
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(words, [goes_on; 3]);
        }
    }
}

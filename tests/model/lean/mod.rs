//! Twenty million operations, each cheap to run and to compare, and each compared.
//!
//! # Algorithm
//! 1. A sequence has a fixed list of keys in order. The model is one stamp for each of them: 0 if
//!    the key has no value, else the number of the write, which determines the value. A copy of the
//!    model, for comparison with a snapshot or an iterator, is some KiB.
//! 2. A step is one call of the store, or a few steps of a held iterator or cursor. Its result is
//!    compared at once, except for `set_options`, `flush`, `sync`, `wait_idle` and compactions,
//!    after which all reads must be as before.
//! 3. *Reopen* closes the store or drops it. *Kill* opens what a killed process leaves (everything
//!    written, synced or not): every acknowledged write is present. *Power cut* opens what a power
//!    failure may leave, of fifteen kinds: the store then has the state after some prefix of the
//!    writes, at or after the last sync. After each of these all keys are compared, in both
//!    directions.
//! 4. Options differ at every open, as in [`crate::sequences`].
//!
//! Every step counts as an operation. Reopening the store and comparing all of it is one.

mod held;
mod lives;
mod store;

use trommel::{ReadMode, Verify};
use trommel_tests::settings::cases;

use crate::config::{Files, Home};
use crate::iterators::Check;
use crate::rng::Rng;
use crate::runner::{self, Play};
use crate::world::Work;
pub(crate) use store::{Kind, Lean};

impl Play for Lean {
    type Kind = Kind;
    const NAME: &'static str = "lean";
    const OPERATIONS: usize = 5000;
    const EVENTFUL: u64 = 3;

    fn weights(rng: &mut Rng) -> Vec<(Kind, usize)> {
        weights(rng)
    }

    fn begin(seed: u64, home: Home) -> Check<Self> {
        Self::new(seed, home)
    }

    fn apply(&mut self, kind: Kind, seed: u64) -> Check {
        self.step(kind, seed)
    }

    fn finish(mut self) -> Check<Work> {
        self.end()?;
        Ok(self.work)
    }
}

pub(crate) fn weights(rng: &mut Rng) -> Vec<(Kind, usize)> {
    let mood = rng.below(5);
    let (write, read, iterate, care) =
        [(6, 6, 6, 4), (12, 3, 3, 4), (3, 10, 5, 3), (5, 5, 8, 8), (3, 3, 20, 6)][mood];
    // In the last mood, runs of tombstones are long.
    let delete = [1, 1, 1, 1, 6][mood];
    use Kind::*;
    vec![
        (Put, 600 * write),
        (Delete, 150 * write),
        (DeleteRange, 12 * write * delete),
        (DeleteRun, 3 * write * delete),
        (Batch, 40 * write),
        (InsertIfAbsent, 40 * write),
        (CompareAndSet, 60 * write),
        (Get, 500 * read),
        (ContainsKey, 100 * read),
        (MultiGet, 50 * read),
        (OpenRange, 30 * iterate),
        (StepRange, 350 * iterate),
        (OpenCursor, 8 * iterate),
        (SeekCursor, 120 * iterate),
        (StepCursor, 300 * iterate),
        (DropHeld, 20 * iterate),
        (TakeSnapshot, 12 * iterate),
        (DropSnapshot, 10 * iterate),
        (Flush, 4 * care),
        (Sync, 3 * care),
        (CompactRange, 2 * care),
        (WaitIdle, care),
        (SetOptions, 2 * care),
        (RebuildFilters, care),
        (CompareAll, 2 * care),
        (Reopen, 2 * care),
        (Kill, 2 * care),
        (PowerCut, 2 * care),
    ]
}

/// The configurations of the tests, with their numbers of sequences.
const SHARES: [(Home, u64); 4] = [
    (Home::memory(ReadMode::Cached, 0), 1_600),
    (Home::memory(ReadMode::Mapped(Verify::EachUse), 0), 1_200),
    (Home::simulated(ReadMode::Direct, 0), 1_000),
    (Home::simulated(ReadMode::Cached, 1), 200),
];

const _: () = {
    let (mut sequences, mut at) = (0, 0);
    while at < SHARES.len() {
        sequences += SHARES[at].1;
        at += 1;
    }
    assert!(
        sequences * Lean::OPERATIONS as u64 >= 20_000_000,
        "twenty million operations are promised"
    );
};

fn play(share: usize) {
    let (home, sequences) = SHARES[share];
    // With a thread few sequences are promised, and each rarely skips a table: enough of them run.
    let fewest = if home.threads > 0 { sequences / 4 } else { 0 };
    let sequences = cases(sequences).max(fewest);
    let all = runner::run_all::<Lean>(&home.name(), share as u64, home, sequences);
    assert!(all.deepest >= 2, "no sequence had two levels below level 0: {all:?}");
    let crashes = home.files == Files::Simulated;
    assert!((all.kills > 0) == crashes && (all.power_cuts > 0) == crashes, "{all:?}");
    assert!(all.passed_over > 0, "filters of prefixes had no say: {all:?}");
    assert!(all.blocks_skipped > 0, "range filters had no say: {all:?}");
}

#[test]
fn in_memory_cached() {
    play(0);
}

#[test]
fn in_memory_mapped() {
    play(1);
}

#[test]
fn on_a_simulated_disk() {
    play(2);
}

#[test]
fn on_a_simulated_disk_with_a_thread() {
    play(3);
}

/// Runs the one sequence that the environment names; otherwise does nothing.
#[test]
fn replay() {
    runner::replay::<Lean>();
}

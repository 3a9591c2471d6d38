//! Random operations of every kind, compared one by one with a `BTreeMap`: at least a million in
//! all, in sequences that flush, compact and reopen many times, in every read mode, with every kind
//! of filter, with and without background threads. Module [`crate::lean`] runs more.

use trommel::{ReadMode, Verify};
use trommel_tests::settings::cases;

use crate::config::Home;
use crate::iterators::Check;
use crate::rng::Rng;
use crate::runner::{self, Play};
use crate::world::{Kind, Work, World};

impl Play for World {
    type Kind = Kind;
    const NAME: &'static str = "sequences";
    const OPERATIONS: usize = 4000;
    const EVENTFUL: u64 = 10;

    fn weights(rng: &mut Rng) -> Vec<(Kind, usize)> {
        let mood = rng.below(5);
        let (write, read, iterate, care) =
            [(8, 4, 4, 1), (12, 2, 1, 1), (4, 9, 4, 1), (6, 4, 3, 4), (6, 3, 8, 2)][mood];
        // In the last mood, runs of tombstones are long.
        let delete = [1, 1, 1, 1, 6][mood];
        use Kind::*;
        vec![
            (Put, 40 * write),
            (Merge, 24 * write),
            (Delete, 14 * write),
            (DeleteRange, write * delete),
            (DeleteRun, delete / 3),
            (Batch, 10 * write),
            (InsertIfAbsent, 6 * write),
            (CompareAndSet, 6 * write),
            (Get, 60 * read),
            (ContainsKey, 10 * read),
            (MultiGet, 12 * read),
            (IterateRange, 14 * iterate),
            (MoveCursor, 10 * iterate),
            (HoldRange, 3 * iterate),
            (HoldCursor, 3 * iterate),
            (AdvanceHeld, 12 * iterate),
            (DropHeld, 3 * iterate),
            (TakeSnapshot, 6 * iterate),
            (DropSnapshot, 5 * iterate),
            (CompareAll, 2 * iterate),
            (Flush, 4 * care),
            (Sync, care),
            (CompactRange, 4 * care),
            (WaitIdle, 4 * care),
            (SetOptions, 2 * care),
            (SetFilters, 2 * care),
            (RebuildFilters, 2 * care),
            (Pause, 2 * care),
            (Resume, 3 * care),
            (Checkpoint, care),
            (Verify, 2 * care),
            (Stats, 4 * care),
            (BadInput, care),
            (ApproximateBytes, 2 * care),
            (Reopen, 4 * care),
        ]
    }

    fn begin(seed: u64, home: Home) -> Check<Self> {
        Self::new(seed, home)
    }

    fn apply(&mut self, kind: Kind, seed: u64) -> Check {
        self.do_one(kind, seed)
    }

    fn finish(mut self) -> Check<Work> {
        self.compare_at_the_end()?;
        Ok(self.work)
    }
}

/// The configurations of the tests, with their numbers of sequences. The disk syncs, so it gets
/// fewer.
const SHARES: [(Home, u64); 7] = [
    (Home::memory(ReadMode::Cached, 0), 78),
    (Home::memory(ReadMode::Direct, 1), 78),
    (Home::memory(ReadMode::Mapped(Verify::EachUse), 2), 78),
    (Home::disk(ReadMode::Cached, 2), 6),
    (Home::disk(ReadMode::Mapped(Verify::EachUse), 1), 8),
    (Home::disk(ReadMode::Direct, 0), 6),
    (Home::memory(ReadMode::Mapped(Verify::Trusted), 2), 20),
];

const _: () = {
    let (mut sequences, mut at) = (0, 0);
    while at < SHARES.len() {
        sequences += SHARES[at].1;
        at += 1;
    }
    assert!(sequences * World::OPERATIONS as u64 >= 1_000_000, "a million operations are promised");
};

/// Runs one of the configurations.
fn play(share: usize) {
    let (home, sequences) = SHARES[share];
    let all = runner::run_all::<World>(&home.name(), share as u64, home, cases(sequences));
    assert!(all.passed_over > 0, "filters of prefixes had no say: {all:?}");
    assert!(all.blocks_skipped > 0, "range filters had no say: {all:?}");
    assert!(all.deepest >= 2, "no sequence had two levels below level 0: {all:?}");
}

#[test]
fn in_memory_without_threads() {
    play(0);
}

#[test]
fn in_memory_with_one_thread() {
    play(1);
}

#[test]
fn in_memory_with_two_threads() {
    play(2);
}

#[test]
fn on_disk_cached() {
    play(3);
}

#[test]
fn on_disk_mapped() {
    play(4);
}

#[test]
fn on_disk_direct() {
    play(5);
}

#[test]
fn in_memory_trusting_what_was_verified() {
    play(6);
}

/// Runs the one sequence that the environment names; otherwise does nothing.
#[test]
fn replay() {
    runner::replay::<World>();
}

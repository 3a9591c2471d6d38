//! Random operations, compared one by one with a `BTreeMap`: at least a million in all, in
//! sequences that flush, compact and reopen many times, in every read mode, with every kind of
//! filter, with and without background threads.

use trommel::ReadMode;

use crate::config::Home;
use crate::runner::{self, OPERATIONS};
use crate::world::Work;

/// What each test plays, with the number of its sequences. The disk syncs, so it gets fewer.
const SHARES: [(Home, u64); 6] = [
    (Home::memory(ReadMode::Cached, 0), 78),
    (Home::memory(ReadMode::Direct, 1), 78),
    (Home::memory(ReadMode::Mapped, 2), 78),
    (Home::disk(ReadMode::Cached, 2), 6),
    (Home::disk(ReadMode::Mapped, 1), 6),
    (Home::disk(ReadMode::Direct, 0), 6),
];

const _: () = {
    let (mut sequences, mut at) = (0, 0);
    while at < SHARES.len() {
        sequences += SHARES[at].1;
        at += 1;
    }
    assert!(sequences * OPERATIONS as u64 >= 1_000_000, "a million operations are promised");
};

/// Plays one of the shares.
fn play(share: usize) {
    let (home, sequences) = SHARES[share];
    let sequences = sequences * crate::scale();
    let mut all = Work::default();
    for number in 0..sequences {
        let seed = (share as u64) << 32 | number;
        let work = runner::run(seed, home);
        assert!(
            work.flushes >= 10 && work.compactions + work.moves >= 5 && work.reopens >= 4,
            "seed {seed}: a sequence should flush, compact and reopen many times: {work:?}"
        );
        all.add(&work);
    }
    println!("{}: {sequences} sequences: {all:?}", home.name());
    assert!(all.passed_over > 0, "filters of prefixes had no say: {all:?}");
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

/// Plays the one sequence that the environment names; nothing otherwise.
#[test]
fn replay() {
    runner::replay();
}

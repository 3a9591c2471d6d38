//! One flipped bit in every byte of every file, and each byte inverted or cleared: right answers or
//! a typed error, and every change is reported by open, by a read or by verify.

use std::ops::Range;

use trommel::{Compression, ReadMode, Verify};
use trommel_tests::settings::{first_seed, rounds, rounds_before, scale, stride};

use crate::cuts::prefix_of_log;
use crate::exam::{Found, How};
use crate::injury::{Injury, kind_of};
use crate::lane::Lane;
use crate::stores::{Ending, Store, build};

/// One case in this many is also opened in another way.
const SAMPLE: usize = 16;

/// The changes to the byte at `at`, one after another: a bit flipped, and all bits flipped or
/// cleared; with `TROMMEL_SCALE` more bits, and both. Each round of a soak uses the next bit, so
/// that eight rounds flip all; after both it uses another value.
fn injuries(at: usize, byte: u8, other: bool) -> impl Iterator<Item = Injury> {
    let bits = turns(8).map(move |turn| Injury::Flip { at, bit: ((at + at / 8 + turn) % 8) as u8 });
    let value = move |turn: usize| match turn {
        0 | 1 if (turn + at + usize::from(other)).is_multiple_of(2) => !byte,
        0 | 1 => 0,
        _ => byte.wrapping_add((turn - 1).wrapping_mul(37) as u8),
    };
    let values = turns(2).map(value).filter(move |to| *to != byte);
    bits.chain(values.map(move |to| Injury::Set { at, to }))
}

/// Indices of the variants of each case, out of `all`: as many as `TROMMEL_SCALE` sets, and others
/// in each round of a soak.
pub(crate) fn turns(all: u64) -> Range<usize> {
    let count = scale().min(all) as usize;
    let first = (rounds_before() % 1024) as usize * count;
    first..first + count
}

fn flip_everything(filters: &str, compression: Compression, ending: Ending) {
    let store = build(filters, compression, ending);
    let mut lane = Lane::new("flips", &store);
    lane.case("LOCK", &Injury::Extend(Vec::new()), How::default(), |found| whole(&store, found));
    let mut case = rounds_before() as usize % SAMPLE;
    for (file, bytes) in &store.image {
        for (at, byte) in bytes.iter().enumerate().step_by(stride()) {
            for injury in injuries(at, *byte, compression == Compression::None) {
                for how in ways(case, kind_of(file)) {
                    lane.case(file, &injury, how, |found| {
                        let verdict = match (&injury, kind_of(file)) {
                            (Injury::Set { .. }, "log") => worse(&store, file, at, found)?,
                            _ => whole(&store, found)?,
                        };
                        if verdict == "unseen" && !in_torn_tail(&store, file, at) {
                            return Err("nobody reports it".to_owned());
                        }
                        Ok(verdict)
                    });
                }
                case += 1;
            }
        }
    }
    let unusable = lane.count("table", "unusable filter");
    // Losses and wrong answers are reported first: they may prevent the report of a filter.
    lane.finish();
    assert_eq!(unusable > 0, store.has_filters, "{unusable} filters were reported as unusable");
}

/// A change of a whole byte can clear the last non-zero bytes in a sector of the log: then it
/// cannot be distinguished from a torn write.
fn worse(store: &Store, file: &str, at: usize, found: &Found) -> Result<&'static str, String> {
    match whole(store, found) {
        Err(_) if store.ending != Ending::Closed => prefix_of_log(store, file, at, found),
        other => other,
    }
}

/// The default way, and sometimes another one too.
fn ways(case: usize, kind: &str) -> Vec<How> {
    let plain = How { go_on: kind == "table" && case.is_multiple_of(4), ..How::default() };
    let mut ways = vec![plain];
    if case.is_multiple_of(SAMPLE) {
        ways.push(match case / SAMPLE % 6 {
            0 => How { read_only: true, ..How::default() },
            1 => How { read_mode: ReadMode::Mapped(Verify::EachUse), ..How::default() },
            2 => How { read_mode: ReadMode::Direct, ..How::default() },
            3 => How {
                on_disk: true,
                read_mode: ReadMode::Mapped(Verify::EachUse),
                ..How::default()
            },
            4 => How { read_mode: ReadMode::Mapped(Verify::Trusted), ..How::default() },
            _ => How { on_disk: true, read_only: true, ..How::default() },
        });
    }
    ways
}

/// Nothing may be lost: the open fails, or the store holds everything, as far as it can be read.
pub(crate) fn whole(store: &Store, found: &Found) -> Result<&'static str, String> {
    if found.refused.is_some() {
        return Ok("refused");
    }
    if !found.states.contains(&store.batches()) {
        return Err(format!("{:?} of {} batches are left", found.states, store.batches()));
    }
    let torn = usize::from(store.ending == Ending::Torn);
    if found.dropped.len() != torn {
        return Err(format!("dropped: {:?}", found.dropped));
    }
    match (found.read_errors.is_empty(), found.verify.is_some(), found.unusable_filter) {
        (false, true, _) => Ok("read error"),
        (false, false, _) => Err(format!("verify misses {}", found.read_errors[0])),
        (true, true, true) => Ok("unusable filter"),
        (true, true, false) => Ok("verify error"),
        (true, false, true) => Err("verify says nothing of an unusable filter".to_owned()),
        (true, false, false) if found.odd_options => Ok("options reported"),
        (true, false, false) => Ok("unseen"),
    }
}

/// Whether the byte belongs to a torn append, and so has no meaning.
fn in_torn_tail(store: &Store, file: &str, at: usize) -> bool {
    let end = store.marks.iter().rev().find(|mark| mark.log == file).map(|mark| mark.end as usize);
    store.ending == Ending::Torn && end.is_some_and(|end| at >= end)
}

macro_rules! flips {
    ($($name:ident: $filters:literal, $compression:ident, $ending:ident;)*) => {
        $(#[test]
        fn $name() {
            flip_everything($filters, Compression::$compression, Ending::$ending);
        })*
    };
}

/// Two changes at once, in different files or in one: the effect of each alone is no longer
/// certain, but no answer is wrong, and no change is undetected.
#[test]
fn two_injuries_at_once() {
    for ending in [Ending::Closed, Ending::Killed] {
        let store = build("paired:16", Compression::Lz4, ending);
        let mut lane = Lane::new("twice", &store);
        let mut rng = fastrand::Rng::with_seed(first_seed());
        let files: Vec<&String> = store.image.keys().filter(|file| *file != "LOCK").collect();
        for _ in 0..rounds(1500) {
            let one = |rng: &mut fastrand::Rng| {
                let file = files[rng.usize(..files.len())];
                (file, rng.usize(..store.image[file].len()), rng.u8(..8))
            };
            let (a, mut b) = (one(&mut rng), one(&mut rng));
            // The same bit twice is no change.
            while a == b {
                b = one(&mut rng);
            }
            let flip = |(_, at, bit): (&String, usize, u8)| Injury::Flip { at, bit };
            let injuries = [(a.0.as_str(), &flip(a)), (b.0.as_str(), &flip(b))];
            lane.injured(&injuries, How::default(), |found| match whole(&store, found)? {
                "unseen" => Err("nobody reports it".to_owned()),
                verdict => Ok(verdict),
            });
        }
        lane.finish();
    }
}

flips! {
    flips_in_a_closed_store_without_filters: "none", Lz4, Closed;
    flips_in_a_closed_store_with_standard_filters: "standard:10", None, Closed;
    flips_in_a_closed_store_with_blocked_filters: "blocked:10", Lz4, Closed;
    flips_in_a_closed_store_with_paired_filters: "paired:16", None, Closed;
    flips_in_a_closed_store_with_partitioned_filters: "partitioned paired:16", Lz4, Closed;
    flips_in_a_closed_store_with_ribbon_filters: "ribbon:12", None, Closed;
    flips_in_a_closed_store_with_filters_for_ranges: "ranges=infix:9,blocked:10", None, Closed;
    flips_in_a_killed_store_without_filters: "none", None, Killed;
    flips_in_a_killed_store_with_standard_filters: "standard:10", Lz4, Killed;
    flips_in_a_killed_store_with_blocked_filters: "blocked:10", None, Killed;
    flips_in_a_killed_store_with_paired_filters: "paired:16", Lz4, Killed;
    flips_in_a_killed_store_with_two_logs: "standard:10", None, TwoLogs;
    flips_in_a_store_killed_inside_an_append: "blocked:10", Lz4, Torn;
}

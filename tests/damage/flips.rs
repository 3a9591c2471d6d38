//! One flipped bit in every byte of every file: right answers or a typed error, and every flip is
//! reported by open, by a read or by verify.

use trommel::{Compression, ReadMode};

use crate::exam::{Found, How};
use crate::injury::{Injury, kind_of};
use crate::lane::Lane;
use crate::stores::{Ending, Store, build};

/// One case in so many is tried in another way as well.
const SAMPLE: usize = 16;

fn bits_a_byte() -> u8 {
    let asked = std::env::var("TROMMEL_DAMAGE_BITS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(1).clamp(1, 8)
}

fn flip_everything(filters: &str, compression: Compression, ending: Ending) {
    let store = build(filters, compression, ending);
    let mut lane = Lane::new("flips", &store);
    lane.case("LOCK", &Injury::Extend(Vec::new()), How::default(), |found| whole(&store, found));
    let mut case = 0;
    for (file, bytes) in &store.image {
        for at in 0..bytes.len() {
            for turn in 0..bits_a_byte() {
                let injury =
                    Injury::Flip { at, bit: ((at + at / 8 + usize::from(turn)) % 8) as u8 };
                for how in ways(case, kind_of(file)) {
                    lane.case(file, &injury, how, |found| {
                        let verdict = whole(&store, found)?;
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
    assert_eq!(unusable > 0, store.has_filters, "{unusable}");
    lane.finish();
}

/// The default way, and now and then another one too.
fn ways(case: usize, kind: &str) -> Vec<How> {
    let plain = How { go_on: kind == "table" && case.is_multiple_of(4), ..How::default() };
    let mut ways = vec![plain];
    if case.is_multiple_of(SAMPLE) {
        ways.push(match case / SAMPLE % 5 {
            0 => How { read_only: true, ..How::default() },
            1 => How { read_mode: ReadMode::Mapped, ..How::default() },
            2 => How { read_mode: ReadMode::Direct, ..How::default() },
            3 => How { on_disk: true, read_mode: ReadMode::Mapped, ..How::default() },
            _ => How { on_disk: true, read_only: true, ..How::default() },
        });
    }
    ways
}

/// Nothing may be lost: the store is refused, or it holds everything, for as far as it can be
/// read.
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
        (true, false, false) => Ok("unseen"),
    }
}

/// Whether the byte belongs to an append that was cut short, and so means nothing.
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

flips! {
    flips_in_a_closed_store_without_filters: "none", Lz4, Closed;
    flips_in_a_closed_store_with_standard_filters: "standard:10", None, Closed;
    flips_in_a_closed_store_with_blocked_filters: "blocked:10", Lz4, Closed;
    flips_in_a_closed_store_with_paired_filters: "paired:16", None, Closed;
    flips_in_a_killed_store_without_filters: "none", None, Killed;
    flips_in_a_killed_store_with_standard_filters: "standard:10", Lz4, Killed;
    flips_in_a_killed_store_with_blocked_filters: "blocked:10", None, Killed;
    flips_in_a_killed_store_with_paired_filters: "paired:16", Lz4, Killed;
    flips_in_a_killed_store_with_two_logs: "standard:10", None, TwoLogs;
    flips_in_a_store_killed_inside_an_append: "blocked:10", Lz4, Torn;
}

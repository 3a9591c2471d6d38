//! Every file truncated at every length: right answers or a typed error. If a log of a killed store
//! ends early, that cannot always be distinguished from a power failure: then exactly the batches
//! before the end remain, and the report says that something was dropped, unless the end is a
//! record boundary.

use trommel::Compression;
use trommel_tests::settings::stride;

use crate::exam::{Found, How};
use crate::flips::{turns, whole};
use crate::injury::{Injury, kind_of};
use crate::lane::Lane;
use crate::stores::{Ending, Store, build};

fn cut_everything(filters: &str, compression: Compression, ending: Ending) {
    let store = build(filters, compression, ending);
    let mut lane = Lane::new("cuts", &store);
    for (file, bytes) in &store.image {
        for left in (0..bytes.len()).step_by(stride()) {
            let injury = Injury::Cut { bytes: left };
            // Each round of a soak opens other lengths in these ways.
            let turn = left + turns(1).start;
            let how = How {
                read_only: turn % 16 == 7,
                on_disk: turn % 64 == 9,
                go_on: turn % 8 == 3,
                ..How::default()
            };
            let how = How { go_on: how.go_on && !how.read_only, ..how };
            lane.case(file, &injury, how, |found| judge(&store, file, left, found));
        }
    }
    if ending == Ending::Closed {
        let opened = lane.count("log", "prefix, reported") + lane.count("log", "prefix, unseen");
        assert_eq!(opened, 0, "a closed store's log was whole");
    }
    lane.finish();
}

/// Checks the result of truncating `file` after `left` bytes.
pub(crate) fn judge(
    store: &Store,
    file: &str,
    left: usize,
    found: &Found,
) -> Result<&'static str, String> {
    match (found.refused.is_some(), kind_of(file)) {
        (true, _) => Ok("refused"),
        (false, "log") => prefix_of_log(store, file, left, found),
        (false, "manifest") => {
            let all = found.states == [store.batches()];
            if !all || found.verify.is_some() {
                return Err(format!("not all batches are left: {found:?}"));
            }
            Ok(if found.dropped.is_empty() { "whole" } else { "whole, reported" })
        }
        (false, _) => match whole(store, found)? {
            "unseen" => Err("nobody reports it".to_owned()),
            verdict => Ok(verdict),
        },
    }
}

/// Checks that the store holds exactly what is before byte `left` of the log `file`.
pub(crate) fn prefix_of_log(
    store: &Store,
    file: &str,
    left: usize,
    found: &Found,
) -> Result<&'static str, String> {
    let want = batches_before(store, file, left);
    if found.states != [want] || found.verify.is_some() {
        return Err(format!("not {want} batches: {found:?}"));
    }
    let is_last =
        store.image.keys().rev().find(|name| name.ends_with(".log")).is_some_and(|l| l == file);
    let at_an_end = left == 64 || store.marks.iter().any(|m| m.log == file && m.end == left as u64);
    match found.dropped.first() {
        Some(dropped) if dropped.file.ends_with(file) && dropped.offset <= left as u64 => {
            Ok("prefix, reported")
        }
        None if is_last && at_an_end => Ok("prefix, unseen"),
        _ => Err(format!("cut at {left}, dropped {:?}", found.dropped)),
    }
}

/// Number of batches in the store without byte `at` of the log `file` and everything after it.
pub(crate) fn batches_before(store: &Store, file: &str, at: usize) -> usize {
    let stands = store
        .marks
        .iter()
        .filter(|mark| *mark.log < *file || (mark.log == file && mark.end <= at as u64));
    stands.map(|mark| mark.batches).max().unwrap_or(store.in_tables)
}

macro_rules! cuts {
    ($($name:ident: $filters:literal, $compression:ident, $ending:ident;)*) => {
        $(#[test]
        fn $name() {
            cut_everything($filters, Compression::$compression, Ending::$ending);
        })*
    };
}

cuts! {
    cuts_in_a_closed_store_without_filters: "none", None, Closed;
    cuts_in_a_closed_store_with_paired_filters: "paired:16", Lz4, Closed;
    cuts_in_a_closed_store_with_partitioned_filters: "partitioned paired:16", None, Closed;
    cuts_in_a_closed_store_with_filters_for_ranges: "ranges=infix:9,blocked:10", None, Closed;
    cuts_in_a_killed_store_with_standard_filters: "standard:10", None, Killed;
    cuts_in_a_killed_store_with_blocked_filters: "blocked:10", Lz4, Killed;
    cuts_in_a_killed_store_with_two_logs: "paired:16", Lz4, TwoLogs;
    cuts_in_a_store_killed_inside_an_append: "none", None, Torn;
}

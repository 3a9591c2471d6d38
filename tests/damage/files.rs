//! Whole files: deleted, emptied, extended, swapped, replaced by an earlier version; and sectors
//! that read as zeros.
//!
//! An invalid options file, `OPTIONS`, is reported, and loses nothing else; if it is missing, or an
//! earlier version, there is nothing to report. The result for other files, at open unless noted
//! otherwise:
//!
//! | | `LOCK` | `CURRENT` | manifest | table | filter sidecar | log |
//! |---|---|---|---|---|---|---|
//! | deleted, emptied | nothing | refused | refused | refused | unusable filter | refused |
//! | longer | nothing | refused | refused; after a kill it may look torn: intact | refused | unusable filter | refused; after a kill it may look torn: intact |
//! | swapped | nothing | | | refused, or an error of reads and verify | unusable filter | refused |
//! | earlier version | nothing | refused | refused, or intact | refused | | refused; after a kill: its contents then |
//! | a sector of zeros | nothing | refused | refused; in a last edit that only names a sidecar: intact, and reported | refused, or an error of reads and verify; an unusable filter | unusable filter | refused; after a kill, in unsynced bytes: everything before it |

use trommel::Compression;

use crate::cuts::{batches_before, judge, prefix_of_log};
use crate::exam::{Found, How};
use crate::flips::whole;
use crate::injury::{Injury, PAGE, SECTOR, kind_of};
use crate::lane::Lane;
use crate::stores::{Ending, Store, build};

/// The open failed.
fn refused(found: &Found) -> Result<&'static str, String> {
    if found.refused.is_some() { Ok("refused") } else { Err(format!("opened: {found:?}")) }
}

/// Nothing is lost, and the fault is reported.
fn reported(store: &Store, found: &Found) -> Result<&'static str, String> {
    match whole(store, found)? {
        "unseen" => Err("nobody reports it".to_owned()),
        verdict => Ok(verdict),
    }
}

/// Nothing is lost; the additional bytes are reported, or the open fails.
fn longer(store: &Store, found: &Found) -> Result<&'static str, String> {
    if found.refused.is_some() {
        return Ok("refused");
    }
    let sound = found.states == [store.batches()] && found.verify.is_none();
    match sound && store.ending != Ending::Closed && !found.dropped.is_empty() {
        true => Ok("whole, reported"),
        false => Err(format!("opened: {found:?}")),
    }
}

fn every_file(test: &'static str, visit: impl Fn(&Store, &mut Lane<'_>, &str, &[u8])) {
    let endings = [Ending::Closed, Ending::Killed, Ending::TwoLogs, Ending::Torn];
    for (ending, filters) in
        endings.into_iter().zip(["paired:16", "blocked:10", "none", "standard:10"])
    {
        for compression in [Compression::None, Compression::Lz4] {
            let store = build(filters, compression, ending);
            let mut lane = Lane::new(test, &store);
            for (file, bytes) in &store.image {
                visit(&store, &mut lane, file, bytes);
            }
            lane.finish();
        }
    }
}

fn both_places(mut visit: impl FnMut(How)) {
    visit(How::default());
    visit(How { read_only: true, ..How::default() });
    visit(How { on_disk: true, ..How::default() });
}

#[test]
fn a_deleted_or_emptied_file_is_missed() {
    every_file("gone", |store, lane, file, _| {
        for injury in [Injury::Delete, Injury::Replace(Vec::new())] {
            both_places(|how| {
                lane.case(file, &injury, how, |found| match file {
                    "LOCK" => whole(store, found),
                    // A store of an older version has no options file.
                    "OPTIONS" if matches!(injury, Injury::Delete) => whole(store, found),
                    "OPTIONS" => reported(store, found),
                    _ if kind_of(file) == "sidecar" => reported(store, found),
                    _ => refused(found),
                });
            });
        }
    });
}

#[test]
fn what_is_added_to_a_file_is_never_believed() {
    every_file("longer", |store, lane, file, bytes| {
        let mut tails = vec![vec![0; 1], vec![0; 700], vec![0xff; 40], bytes.to_vec()];
        tails.push(b"\xd3".to_vec());
        tails.push((0..600_u32).map(|i| (i * i % 251) as u8).collect());
        for tail in tails.into_iter().filter(|tail| !tail.is_empty()) {
            both_places(|how| {
                lane.case(file, &Injury::Extend(tail.clone()), how, |found| match kind_of(file) {
                    "LOCK" => whole(store, found),
                    "log" | "manifest" => longer(store, found),
                    "sidecar" | "options" => reported(store, found),
                    _ => refused(found),
                });
            });
        }
    });
}

#[test]
fn swapped_files_are_distinguished() {
    every_file("swapped", |store, lane, file, _| {
        let kind = kind_of(file);
        for other in
            store.image.keys().filter(|other| kind_of(other) == kind && other.as_str() > file)
        {
            both_places(|how| {
                let injury = Injury::Swap { with: other.clone() };
                lane.case(file, &injury, how, |found| reported(store, found));
            });
        }
    });
}

#[test]
fn an_older_version_of_a_file_is_distinguished_or_was_true() {
    every_file("older", |store, lane, file, _| {
        for older in store.older.get(file).into_iter().flatten() {
            both_places(|how| {
                lane.case(file, &Injury::Replace(older.clone()), how, |found| {
                    match kind_of(file) {
                        // An earlier version of the store's options, on which no data depends.
                        "options" => whole(store, found),
                        _ => judge(store, file, older.len(), found),
                    }
                });
            });
        }
    });
}

/// Another store's file of the same name: intact, with valid checksums, but not this store's.
#[test]
fn files_of_another_store_are_distinguished() {
    for ending in [Ending::Closed, Ending::Killed] {
        let store = build("paired:16", Compression::Lz4, ending);
        let other = build("paired:16", Compression::Lz4, ending);
        let mut lane = Lane::new("foreign", &store);
        for file in store.image.keys().filter(|file| store.image[*file] != other.image[*file]) {
            both_places(|how| {
                let injury = Injury::Replace(other.image[file].clone());
                lane.case(file, &injury, how, |found| reported(&store, found));
            });
        }
        for kind in ["manifest", "log", "table"] {
            let noted = lane.count(kind, "refused") + lane.count(kind, "read error");
            assert!(noted > 0, "no {kind} of another store was distinguished");
        }
        lane.finish();
    }
}

#[test]
fn a_sector_of_zeros_is_a_tear_only_where_nothing_was_synced() {
    every_file("zeroed", |store, lane, file, bytes| {
        for unit in [SECTOR, PAGE] {
            for from in (0..bytes.len()).step_by(unit) {
                let lost = &bytes[from..bytes.len().min(from + unit)];
                if lost.iter().all(|byte| *byte == 0) {
                    continue;
                }
                both_places(|how| {
                    let injury = Injury::Zero { from, bytes: unit };
                    lane.case(file, &injury, how, |found| match kind_of(file) {
                        _ if found.refused.is_some() => Ok("refused"),
                        "log" => zeroed_log(store, file, from, unit, found),
                        // An edit that only names a sidecar cannot be detected once it is lost: it
                        // may never have been synced. Its loss costs a filter, and is reported.
                        "manifest" if !found.dropped.is_empty() => judge(store, file, from, found),
                        _ => reported(store, found),
                    });
                });
            }
        }
    });
}

/// A log with a zeroed sector or page may still open: as far as the rest of the log shows, that
/// sector may never have been synced.
fn zeroed_log(
    store: &Store,
    file: &str,
    from: usize,
    unit: usize,
    found: &Found,
) -> Result<&'static str, String> {
    let is_later =
        |mark: &&crate::stores::Mark| *mark.log > *file || mark.end as usize > from + unit;
    let mut later = store.marks.iter().filter(is_later);
    let first_lost = batches_before(store, file, from) + 1;
    let was_synced = store.marks.iter().any(|mark| mark.batches == first_lost && mark.synced);
    if store.ending == Ending::Closed || was_synced && later.nth(1).is_some() {
        return Err(format!("synced bytes are gone: {found:?}"));
    }
    prefix_of_log(store, file, from, found)
}

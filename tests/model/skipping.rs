//! What scans skip: the number of steps, and that no entry is lost.

use std::collections::BTreeMap;

use trommel::{Db, DbCursor, Options, Range, Snapshot};
use trommel_tests::scratch::scratch;

use crate::rng::Rng;

/// Entries beyond a bound, or versions of a key.
const MANY: u64 = 3_000;
/// Maximum number of entries that a scan may skip for each key and source that it reaches,
/// including seeks.
const FEW: u64 = 20;

/// The location of the entries.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Memtable,
    Tables,
    /// Some in tables, the newest in a memtable.
    Both,
}

const PLACES: [Place; 3] = [Place::Memtable, Place::Tables, Place::Both];

impl Place {
    /// Flushes the entries so far, if those of this round belong in a table.
    fn settle(self, db: &Db, round: u64) {
        let is_flushed = match self {
            Self::Memtable => false,
            Self::Tables => round % 1_000 == 999,
            Self::Both => round == 999,
        };
        if is_flushed {
            db.flush().unwrap();
        }
    }
}

fn open(dir: &std::path::Path) -> Db {
    Db::open(dir, Options::default().compaction(|c| c.auto_compaction(false)).background_threads(0))
        .unwrap()
}

/// The number of entries that `scan` skips, plus its seeks.
fn skipped(db: &Db, scan: impl FnOnce()) -> u64 {
    let count = || {
        let stats = db.stats();
        stats.scans.entries_skipped + stats.scans.reseeks
    };
    let before = count();
    scan();
    count() - before
}

/// The number of entries that the cursor visits.
fn visited(mut cursor: DbCursor, forward: bool) -> usize {
    let mut seen = 0;
    let count = |_: &[u8], _: &[u8]| {
        seen += 1;
        true
    };
    if forward {
        cursor.seek_to_first().unwrap();
        cursor.visit(count).unwrap();
    } else {
        cursor.seek_to_last().unwrap();
        cursor.visit_back(count).unwrap();
    }
    seen
}

/// The scans of `b/`, forward or backward, each of which yields `entries` entries.
fn scans_of_b(db: &Db, at: Option<&Snapshot>, entries: usize) -> Vec<(&'static str, u64)> {
    let range = || at.map_or_else(|| db.prefix("b/"), |at| at.prefix("b/"));
    let cursor = || at.map_or_else(|| db.prefix_cursor("b/"), |at| at.prefix_cursor("b/")).unwrap();
    let onward = |cursor: &mut DbCursor, step: fn(&mut DbCursor) -> trommel::Result<()>| {
        let mut seen = 0;
        while cursor.valid() {
            seen += 1;
            step(cursor).unwrap();
        }
        assert_eq!(seen, entries);
    };
    vec![
        ("range", skipped(db, || assert_eq!(range().count(), entries))),
        ("range back", skipped(db, || assert_eq!(range().rev().count(), entries))),
        ("next_back once", skipped(db, || assert_eq!(range().next_back().is_some(), entries > 0))),
        (
            "seek_to_first",
            skipped(db, || {
                let mut cursor = cursor();
                cursor.seek_to_first().unwrap();
                onward(&mut cursor, DbCursor::next);
            }),
        ),
        (
            "seek_to_last",
            skipped(db, || {
                let mut cursor = cursor();
                cursor.seek_to_last().unwrap();
                onward(&mut cursor, DbCursor::prev);
            }),
        ),
        (
            "seek_for_prev",
            skipped(db, || {
                let mut cursor = cursor();
                cursor.seek_for_prev("b/").unwrap();
                assert!(!cursor.valid());
            }),
        ),
        ("visit", skipped(db, || assert_eq!(visited(cursor(), true), entries))),
        ("visit_back", skipped(db, || assert_eq!(visited(cursor(), false), entries))),
    ]
}

/// A backward scan used to have no lower bound: below `b/` it went through all tombstones of `a/`.
#[test]
fn no_tombstone_beyond_a_bound_is_skipped() {
    for place in PLACES {
        let dir = scratch();
        let db = open(dir.path());
        let beyond = |round: u64| [format!("a/{round:06}"), format!("c/{round:06}")];
        for round in 0..MANY {
            for key in &beyond(round) {
                db.put(key, "v").unwrap();
            }
        }
        for key in ["b/1", "b/2", "b/3"] {
            db.put(key, "v").unwrap();
        }
        db.flush().unwrap();
        for round in 0..MANY {
            for key in &beyond(round) {
                db.delete(key).unwrap();
            }
            place.settle(&db, round);
        }
        for (scan, steps) in scans_of_b(&db, None, 3) {
            assert!(steps <= FEW, "{scan} skips {steps} entries beyond its bound, {place:?}");
        }
    }
}

/// A bound used to be checked on visible tombstones only: a snapshot went through everything
/// written beyond it later.
#[test]
fn nothing_newer_than_the_snapshot_is_skipped_beyond_a_bound() {
    for place in PLACES {
        let dir = scratch();
        let db = open(dir.path());
        for key in ["b/1", "b/2", "b/3"] {
            db.put(key, "v").unwrap();
        }
        let snapshot = db.snapshot();
        for round in 0..MANY {
            db.put(format!("a/{round:06}"), "new").unwrap();
            db.delete(format!("a/{round:06}x")).unwrap();
            db.put(format!("c/{round:06}"), "new").unwrap();
            db.delete(format!("c/{round:06}x")).unwrap();
            place.settle(&db, round);
        }
        for (scan, steps) in scans_of_b(&db, Some(&snapshot), 3) {
            assert!(steps <= FEW, "{scan} skips {steps} entries beyond its bound, {place:?}");
        }
    }
}

/// Keys of a length that a merge compares as numbers, and longer ones with a common prefix.
const OVERWRITTEN: [[&str; 3]; 2] = [
    ["b/1", "b/2", "b/3"],
    ["b/a key of many bytes: 1", "b/a key of many bytes: 2", "b/a key of many bytes: 3"],
];

/// Each version of a key used to be skipped one by one: three keys took millions of steps.
#[test]
fn versions_of_a_key_cost_a_bounded_number_of_steps() {
    for (place, keys) in PLACES.into_iter().flat_map(|place| OVERWRITTEN.map(|keys| (place, keys)))
    {
        let dir = scratch();
        let db = open(dir.path());
        let mut moments = Vec::new();
        // Each version is retained, in tables too, by a snapshot that sees it.
        for round in 0..MANY {
            for key in &keys {
                db.put(key, round.to_le_bytes()).unwrap();
            }
            moments.push(db.snapshot());
            place.settle(&db, round);
        }
        let newest = MANY as usize - 1;
        for at in [0, 1, 500, 999, 1_000, 1_700, newest - 1, newest] {
            let snapshot = &moments[at];
            let is_right = |range: Range| {
                range.for_each(|entry| assert_eq!(*entry.unwrap().1, (at as u64).to_le_bytes()));
            };
            is_right(snapshot.prefix("b/"));
            let back: Vec<_> = snapshot.prefix("b/").rev().map(Result::unwrap).collect();
            back.iter().for_each(|entry| assert_eq!(*entry.1, (at as u64).to_le_bytes()));
            for (scan, steps) in scans_of_b(&db, Some(snapshot), 3) {
                // For three keys, in up to four sources.
                let most = 3 * 4 * FEW;
                assert!(steps <= most, "{scan} at {at} takes {steps} steps, {place:?} {keys:?}");
            }
        }
        for (scan, steps) in scans_of_b(&db, None, 3) {
            assert!(steps <= 3 * 4 * FEW, "{scan} takes {steps} steps, {place:?} {keys:?}");
        }
    }
}

/// Without snapshots, a key that is deleted as often as it is written.
#[test]
fn versions_under_a_tombstone_cost_a_bounded_number_of_steps() {
    let dir = scratch();
    let db = open(dir.path());
    for round in 0..MANY {
        for key in ["b/1", "b/2", "b/3"] {
            db.put(key, round.to_le_bytes()).unwrap();
            db.delete(key).unwrap();
        }
    }
    for (scan, steps) in scans_of_b(&db, None, 0) {
        assert!(steps <= 3 * FEW, "{scan} takes {steps} steps");
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Moves a cursor and its model at random, and compares their positions.
fn walk_beside(model: &Model, mut cursor: DbCursor, keys: &[Vec<u8>], rng: &mut Rng) {
    let mut at: Option<Vec<u8>> = None;
    for _ in 0..60 {
        let key = rng.pick(keys);
        match rng.below(8) {
            0 => {
                cursor.seek(key).unwrap();
                at = model.range(key.clone()..).next().map(|entry| entry.0.clone());
            }
            1 => {
                cursor.seek_for_prev(key).unwrap();
                at = model.range(..=key.clone()).next_back().map(|entry| entry.0.clone());
            }
            2 => {
                let mut left = rng.below(4);
                let steps = left.max(1) - 1;
                let visit = |_: &[u8], _: &[u8]| {
                    left = left.saturating_sub(1);
                    left > 0
                };
                cursor.visit(visit).unwrap();
                at = at.and_then(|at| model.range(at..).nth(steps)).map(|entry| entry.0.clone());
            }
            3 => {
                let mut left = rng.below(4);
                let steps = left.max(1) - 1;
                let visit = |_: &[u8], _: &[u8]| {
                    left = left.saturating_sub(1);
                    left > 0
                };
                cursor.visit_back(visit).unwrap();
                at = at.and_then(|at| model.range(..=at).nth_back(steps)).map(|e| e.0.clone());
            }
            4 | 5 => {
                cursor.next().unwrap();
                at = at.and_then(|at| model.range(at..).nth(1)).map(|entry| entry.0.clone());
            }
            _ => {
                cursor.prev().unwrap();
                at = at.and_then(|at| model.range(..at).next_back()).map(|entry| entry.0.clone());
            }
        }
        let expected = at.as_ref().map(|key| (&**key, &*model[key]));
        assert_eq!(cursor.entry(), expected);
        assert_eq!(cursor.value().as_deref(), expected.map(|entry| entry.1));
    }
}

#[test]
fn few_keys_with_many_versions_are_as_their_model() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let dir = scratch();
        let db = open(dir.path());
        let name = |nth: u64| match nth % 2 {
            0 => format!("k{nth}").into_bytes(),
            _ => format!("a key of more than sixteen bytes {nth}").into_bytes(),
        };
        let keys: Vec<_> = (0..6).map(name).collect();
        let (mut model, mut moments) = (Model::new(), Vec::new());
        for round in 0..1_500_u64 {
            // Long runs of one key, with others in between.
            let often = round as usize / 300;
            let key = &keys[if rng.once_in(10) { rng.below(6) } else { often }];
            if rng.once_in(4) {
                db.delete(key).unwrap();
                model.remove(key);
            } else {
                db.put(key, round.to_le_bytes()).unwrap();
                model.insert(key.clone(), round.to_le_bytes().to_vec());
            }
            if rng.once_in(3) {
                moments.push((db.snapshot(), model.clone()));
            }
            if rng.once_in(500) {
                db.flush().unwrap();
            }
        }
        for (snapshot, model) in moments.iter().step_by(7) {
            walk_beside(model, snapshot.cursor().unwrap(), &keys, &mut rng);
            let forward: Vec<_> = snapshot.iter().map(Result::unwrap).collect();
            let mut back: Vec<_> = snapshot.iter().rev().map(Result::unwrap).collect();
            back.reverse();
            assert_eq!(forward, back);
            let expected = model.iter().map(|(key, value)| (&**key, &**value));
            assert!(forward.iter().map(|(key, value)| (&**key, &**value)).eq(expected));
        }
        walk_beside(&model, db.cursor().unwrap(), &keys, &mut rng);
    }
}

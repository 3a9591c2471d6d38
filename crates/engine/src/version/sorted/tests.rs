//! Sorted views beside the tables that they order.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use trommel_base::{Cursor, CursorHints, MAX_SEQNO};
use trommel_sim::MemoryVfs;
use trommel_sstable::ScanOptions;

use super::*;
use crate::engine::Engine;
use crate::iter::level::{LevelCursor, ScanTables};
use crate::iter::merge::MergeCursor;
use crate::iter::sorted::{NoView, SortedCursor, build};
use crate::memory::MemoryShares;
use crate::version::Version;
use crate::{Db, DbCursor, KeyspaceOptions, Merge, Options, Prefix, Snapshot};

/// A store whose calls do all work, with small tables and blocks, that compacts nothing by itself.
fn store(change: impl FnOnce(Options) -> Options) -> Db {
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(0)
        .reads(|r| r.block_bytes(128))
        .compaction(|c| c.auto_compaction(false).table_bytes(4 << 10));
    Db::open("db", change(options)).unwrap()
}

fn engine(db: &Db) -> &Arc<Engine> {
    &db.handle().engine
}

fn built(db: &Db) -> Result<Arc<SortedView>, NoView> {
    let engine = engine(db);
    let view = build(&engine.version(), &engine.files.tables, &engine.memory.shares, || true);
    view.map(Arc::new)
}

fn sorted(db: &Db, view: &Arc<SortedView>) -> SortedCursor {
    let tables = Arc::clone(&engine(db).files.tables);
    SortedCursor::new(Arc::clone(view), tables, ScanOptions::default())
}

/// The merge in place of which the view stands.
fn merged(db: &Db, version: &Version) -> MergeCursor<LevelCursor> {
    let tables = &engine(db).files.tables;
    let of_newest = version.levels[0].iter().map(|table| vec![Arc::clone(table)]);
    let deeper = version.levels[1..].iter().filter(|run| !run.is_empty()).cloned();
    let cursor =
        |run| LevelCursor::new(ScanTables::List(run), Arc::clone(tables), ScanOptions::default());
    MergeCursor::new(of_newest.chain(deeper).map(cursor).collect())
}

/// What a cursor is on: key, sequence number, kind and value.
type Entry = (Vec<u8>, u64, trommel_base::EntryKind, Vec<u8>);
type Shown = Option<Entry>;

fn shown<C: Cursor>(cursor: &C) -> Shown {
    cursor.entry().map(|e| (e.key.to_vec(), e.seqno, e.kind, e.value.to_vec()))
}

/// Some keys are long and begin alike, and some are prefixes of others or end in zeros.
fn some_key(rng: &mut fastrand::Rng, keys: u32) -> Vec<u8> {
    let number = rng.u32(..keys);
    let tail = match number % 7 {
        0 => "a tail that makes the key a long one".to_owned(),
        1 => "\0".repeat(number as usize / 7 % 4),
        _ => String::new(),
    };
    format!("common/{number:06}{tail}").into_bytes()
}

/// Fills `runs` tables of level 0, each by at least so many writes, after a deeper level if
/// `has_deeper`.
fn fill(
    db: &Db,
    rng: &mut fastrand::Rng,
    (runs, least): (usize, usize),
    keys: u32,
    has_deeper: bool,
) {
    for run in 0..runs + usize::from(has_deeper) {
        for _ in 0..rng.usize(least..400) {
            let key = some_key(rng, keys);
            match rng.u8(..8) {
                0 => _ = db.delete(&key).unwrap(),
                1..=2 => {
                    // Many versions of one key, kept by a snapshot if they are compacted.
                    for version in 0..rng.u8(1..30) {
                        db.put(&key, [version]).unwrap();
                    }
                }
                _ => _ = db.put(&key, vec![run as u8; rng.usize(..40)]).unwrap(),
            }
        }
        db.flush().unwrap();
        if run == 0 && has_deeper {
            db.compact_range(..).unwrap();
        }
    }
}

/// Moves both cursors alike, in all ways, and compares them.
fn compare(
    sorted: &mut SortedCursor,
    merge: &mut MergeCursor<LevelCursor>,
    rng: &mut fastrand::Rng,
    keys: u32,
) {
    let mut before: Shown = None;
    for _ in 0..400 {
        let way = rng.u8(..12);
        match way {
            0 => (sorted.seek_to_first().unwrap(), merge.seek_to_first().unwrap()),
            1 => (sorted.seek_to_last().unwrap(), merge.seek_to_last().unwrap()),
            2..=4 => {
                let (key, seqno) =
                    (some_key(rng, keys), [MAX_SEQNO, 0, rng.u64(..4000)][way as usize - 2]);
                let key = if rng.u8(..20) == 0 { b"zebra"[..rng.usize(..5)].to_vec() } else { key };
                (sorted.seek(&key, seqno).unwrap(), merge.seek(&key, seqno).unwrap())
            }
            5..=6 => {
                let key = some_key(rng, keys);
                (sorted.seek_before(&key).unwrap(), merge.seek_before(&key).unwrap())
            }
            _ => ((), ()),
        };
        assert_eq!(shown(sorted), shown(merge), "after a seek");
        for _ in 0..rng.usize(..80) {
            let is_onward = if rng.u8(..10) == 0 { rng.bool() } else { way.is_multiple_of(2) };
            let is_at_hand = rng.bool();
            before = shown(merge);
            let begins_key = sorted.begins_key();
            let moved = match (is_onward, is_at_hand) {
                (true, true) => sorted.next_at_hand(),
                (false, true) => sorted.prev_at_hand(),
                _ => None,
            };
            match (is_onward, moved) {
                (true, None) => sorted.next().unwrap(),
                (false, None) => sorted.prev().unwrap(),
                _ => {}
            }
            match is_onward {
                true => merge.next().unwrap(),
                false => merge.prev().unwrap(),
            }
            let now = shown(merge);
            assert_eq!(shown(sorted), now, "after {before:?}");
            assert!(moved.is_none() || moved == sorted.head());
            assert_eq!(sorted.head(), merge.internal_key().map(|key| key.head()));
            assert!(sorted.lost().is_none());
            if let Some(entry) = before.as_ref().filter(|_| !is_onward) {
                let is_same = now.as_ref().is_some_and(|now| now.0 == entry.0);
                assert_eq!(begins_key, !is_same, "{entry:?} after {now:?}");
            }
        }
    }
    assert!(before.is_some() || shown(merge).is_none());
}

#[test]
fn a_view_yields_what_the_merge_of_its_tables_does() {
    for seed in 0..21 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let has_deeper = rng.bool();
        let runs = [1, 2, 3, 5, 7, 13, 14][seed as usize % 7];
        let keys = [60, 3000][rng.usize(..2)];
        let db = store(|options| options);
        let kept = db.snapshot();
        fill(&db, &mut rng, (runs, 1), keys, has_deeper);
        let view = built(&db).unwrap();
        assert_eq!(view.runs(), runs + usize::from(has_deeper));
        let mut sorted = sorted(&db, &view);
        let mut merge = merged(&db, &engine(&db).version());
        compare(&mut sorted, &mut merge, &mut rng, keys);
        drop(kept);
    }
}

/// The leaves of an index, and the tables of a level, are numbered one after the other.
#[test]
fn a_view_finds_blocks_in_all_leaves_and_tables() {
    let db = store(|o| o.reads(|r| r.block_bytes(64)).compaction(|c| c.table_bytes(2 << 20)));
    let put = |from: u32, count: u32| {
        for number in from..from + count {
            db.put(format!("{number:08}"), "some value of a few bytes").unwrap();
        }
        db.flush().unwrap();
    };
    put(0, 60_000);
    db.compact_range(..).unwrap();
    put(30_000, 40_000);
    let view = built(&db).unwrap();
    assert!(view.runs.iter().any(|run| run.leaves.iter().any(|leaf| leaf.leaf > 0)));
    assert!(view.runs.iter().any(|run| run.leaves.iter().any(|leaf| leaf.table > 0)));
    let (mut sorted, mut merge) = (sorted(&db, &view), merged(&db, &engine(&db).version()));
    for number in (0..75_000).step_by(37) {
        let key = format!("{number:08}").into_bytes();
        sorted.seek(&key, MAX_SEQNO).unwrap();
        merge.seek(&key, MAX_SEQNO).unwrap();
        assert_eq!(shown(&sorted), shown(&merge));
    }
    assert!(sorted.read_stats().cache_hits + sorted.read_stats().block_reads > 0);
}

#[test]
fn a_view_takes_at_most_two_bytes_an_entry_of_large_stores() {
    let (fixed, entries) = (SortedView::memory_bytes(0, FEWEST_RUNS), 10_000_000);
    for runs in FEWEST_RUNS..=MOST_RUNS {
        let bytes = SortedView::memory_bytes(entries, runs) - fixed;
        assert!(bytes <= 2 * entries as u64, "{runs} runs: {bytes} bytes");
    }
}

#[test]
fn what_a_view_takes_is_what_it_has_reserved() {
    let db = store(|options| options);
    fill(&db, &mut fastrand::Rng::with_seed(5), (4, 200), 2000, true);
    let before = db.stats().scans.sorted_view_bytes;
    let view = built(&db).unwrap();
    let reserved = db.stats().scans.sorted_view_bytes - before;
    let taken = size_of_val(&*view.heads)
        + size_of_val(&*view.places)
        + size_of_val(&*view.selectors)
        + size_of_val(&*view.repeats)
        + size_of::<SortedView>();
    assert_eq!(reserved, taken as u64);
    drop(view);
    assert_eq!(db.stats().scans.sorted_view_bytes, before);
}

#[test]
fn a_view_without_memory_for_it_is_refused() {
    let db = store(|options| options.memory_limit(1 << 20));
    fill(&db, &mut fastrand::Rng::with_seed(5), (4, 200), 2000, true);
    let held = MemoryShares::reserve_view(&engine(&db).memory.shares, (1 << 17) - 1).unwrap();
    assert_eq!(built(&db).unwrap_err(), NoView::Refused);
    drop(held);
    assert!(built(&db).is_ok());
}

/// Enters more blocks than there are entries.
fn seek_often(cursor: &mut DbCursor) {
    let mut rng = fastrand::Rng::with_seed(1);
    (0..10_000).for_each(|_| cursor.seek(some_key(&mut rng, 2000)).unwrap());
}

/// Makes the view of the current version due, and the calls build it.
fn scan_until_built(db: &Db) {
    let slot = &engine(db).view.load_full().fences.sorted;
    let mut cursor = db.cursor().unwrap();
    seek_often(&mut cursor);
    drop(cursor);
    db.wait_idle().unwrap();
    assert!(slot.is_built());
}

#[test]
fn scans_that_lack_a_view_get_one() {
    let db = store(|options| options);
    fill(&db, &mut fastrand::Rng::with_seed(9), (4, 200), 2000, true);
    let slot = || engine(&db).view.load_full().fences.sorted.is_built();
    db.wait_idle().unwrap();
    assert!(!slot(), "nobody has scanned");
    scan_until_built(&db);
    assert_eq!(db.stats().scans.sorted_views, 1);
    // A frozen memtable changes nothing for it; a flush makes another version.
    db.put("a", "b").unwrap();
    assert!(slot());
    db.flush().unwrap();
    assert!(!slot());
    assert_eq!(db.stats().scans.sorted_view_bytes, 0);
    scan_until_built(&db);
    assert_eq!(db.stats().scans.sorted_views, 2);
    db.set_options(|options| options.reads(|r| r.sorted_view(false))).unwrap();
    assert!(!slot());
    let mut cursor = db.cursor().unwrap();
    seek_often(&mut cursor);
    drop(cursor);
    db.wait_idle().unwrap();
    assert!(!slot());
}

#[test]
fn a_lower_memory_limit_drops_the_view() {
    let db = store(|options| options);
    fill(&db, &mut fastrand::Rng::with_seed(9), (4, 200), 2000, true);
    scan_until_built(&db);
    assert!(db.stats().scans.sorted_view_bytes > 0);
    let limit = 8 * db.stats().scans.sorted_view_bytes;
    db.set_options(|options| options.memory_limit(limit.max(64 << 10))).unwrap();
    let fits = db.stats().scans.sorted_view_bytes <= limit.max(64 << 10) / 8;
    assert!(fits, "{} of {limit}", db.stats().scans.sorted_view_bytes);
}

/// Puts the view of the current version, with this change, in the place of a right one.
fn plant_view(db: &Db, change: impl FnOnce(&mut SortedView)) {
    let engine = engine(db);
    let (tables, shares) = (&engine.files.tables, &engine.memory.shares);
    let mut view = build(&engine.version(), tables, shares, || true).unwrap();
    change(&mut view);
    let slot = &engine.view.load_full().fences.sorted;
    assert!(slot.begin());
    slot.end(Some(view));
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn all(db: &Db, is_onward: bool) -> Pairs {
    let (mut cursor, mut all) = (db.cursor().unwrap(), Vec::new());
    match is_onward {
        true => cursor.seek_to_first().unwrap(),
        false => cursor.seek_to_last().unwrap(),
    }
    while let Some((key, value)) = cursor.entry() {
        all.push((key.to_vec(), value.to_vec()));
        match is_onward {
            true => cursor.next().unwrap(),
            false => cursor.prev().unwrap(),
        }
    }
    all
}

fn is_taken(db: &Db) -> bool {
    engine(db).view.load_full().fences.sorted.load().is_some()
}

#[test]
fn a_seek_that_finds_a_view_wrong_takes_the_tables() {
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let db = store(|options| options);
        fill(&db, &mut rng, (3, 200), 2000, true);
        let expected = all(&db, true);
        plant_view(&db, |view| {
            let at = rng.usize(..view.places.len() / 2);
            view.places[at..].fill(NOWHERE);
        });
        let mut cursor = db.cursor().unwrap();
        for (key, value) in &expected {
            cursor.seek(key).unwrap();
            assert_eq!(cursor.entry(), Some((&**key, &**value)), "seed {seed}");
        }
        assert!(!is_taken(&db), "it was found to be wrong");
        assert_eq!(all(&db, true), expected);
    }
}

/// Selectors that name the runs in another order yield entries that are out of order.
#[test]
fn a_step_that_finds_entries_out_of_order_is_noticed() {
    for seed in 0..20 {
        let db = store(|options| options);
        fill(&db, &mut fastrand::Rng::with_seed(seed), (3, 200), 2000, false);
        plant_view(&db, |view| {
            view.selectors.iter_mut().for_each(|word| *word = word.swap_bytes());
        });
        all(&db, seed % 2 == 0);
        assert!(!is_taken(&db), "seed {seed}");
    }
}

#[test]
fn a_step_that_finds_a_view_wrong_goes_on_in_the_tables() {
    for (seed, is_onward) in (0..20).flat_map(|seed| [(seed, true), (seed, false)]) {
        let db = store(|options| options);
        fill(&db, &mut fastrand::Rng::with_seed(seed), (3, 200), 2000, true);
        let expected = all(&db, is_onward);
        // From one segment to the other end nothing can be entered anew, nor stepped to.
        plant_view(&db, |view| {
            let middle = view.entries / 64 * 32;
            let (of_words, of_places) = (middle / WORD_SELECTORS, middle / 32 * view.runs());
            let (words, places) = match is_onward {
                true => (of_words..view.selectors.len(), of_places..view.places.len()),
                false => (0..of_words, 0..of_places),
            };
            view.selectors[words].fill(u64::MAX);
            view.places[places].fill(NOWHERE);
        });
        assert_eq!(all(&db, is_onward), expected, "seed {seed}");
        assert!(!is_taken(&db), "it was found to be wrong");
    }
}

/// A version whose tables cannot be read, or lie about their entries, gets no view.
#[test]
fn a_view_of_entries_out_of_order_is_refused() {
    let db = store(|options| options);
    fill(&db, &mut fastrand::Rng::with_seed(3), (3, 200), 2000, false);
    let engine = engine(&db);
    let mut version = (*engine.version()).clone();
    // Two tables that overlap are no run.
    version.levels[1] = std::mem::take(&mut version.levels[0]);
    let (tables, shares) = (&engine.files.tables, &engine.memory.shares);
    assert_eq!(build(&version, tables, shares, || true).unwrap_err(), NoView::Refused);
    assert_eq!(build(&engine.version(), tables, shares, || false).unwrap_err(), NoView::Stopped);
    assert_eq!(db.stats().scans.sorted_view_bytes, 0);
}

/// A scan within one prefix skips tables by their filters, which a view does not.
#[test]
fn a_scan_within_a_prefix_takes_the_tables() {
    let db = store(|o| o.filtering(|f| f.prefix_extractor(Prefix::fixed(4))));
    for run in 0..3 {
        (0..100).for_each(|n| _ = db.put(format!("{:04}/{n:03}", 2 * n + run % 2), "v").unwrap());
        db.flush().unwrap();
    }
    plant_view(&db, |_| {});
    let useful = || db.stats().prefixes.useful;
    let before = useful();
    assert_eq!(db.prefix("0001").count(), 1);
    assert!(useful() > before);
    assert!(is_taken(&db));
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A cursor that stays open while the store changes, a snapshot, and what both see.
struct Held {
    cursor: DbCursor,
    snapshot: Snapshot,
    model: Model,
}

/// Scans `cursor` to and fro and compares it with `model`.
fn check_cursor(cursor: &mut DbCursor, model: &Model, rng: &mut fastrand::Rng) {
    let shown = |cursor: &DbCursor| cursor.entry().map(|(k, v)| (k.to_vec(), v.to_vec()));
    let of = |entry: Option<(&Vec<u8>, &Vec<u8>)>| entry.map(|(k, v)| (k.clone(), v.clone()));
    for _ in 0..6 {
        let sought = some_key(rng, 500);
        let mut expected = if rng.bool() {
            cursor.seek(&sought).unwrap();
            of(model.range(sought..).next())
        } else {
            cursor.seek_for_prev(&sought).unwrap();
            of(model.range(..=sought).next_back())
        };
        let mut is_onward = rng.bool();
        for _ in 0..rng.usize(..60) {
            assert_eq!(shown(cursor), expected);
            let Some((key, _)) = &expected else { break };
            if rng.u8(..8) == 0 {
                is_onward = !is_onward;
            }
            expected = if is_onward {
                cursor.next().unwrap();
                of(model.range::<Vec<u8>, _>((Bound::Excluded(key), Bound::Unbounded)).next())
            } else {
                cursor.prev().unwrap();
                of(model.range::<Vec<u8>, _>(..key).next_back())
            };
        }
    }
    let mut visited = Pairs::new();
    let mut take = |key: &[u8], value: &[u8]| {
        visited.push((key.to_vec(), value.to_vec()));
        true
    };
    if rng.bool() {
        cursor.seek_to_first().unwrap();
        cursor.visit(&mut take).unwrap();
    } else {
        cursor.seek_to_last().unwrap();
        cursor.visit_back(&mut take).unwrap();
        visited.reverse();
    }
    assert!(visited.iter().map(|(k, v)| (k, v)).eq(model));
}

/// Writes of all kinds, with flushes, compactions and views made in between.
#[test]
fn scans_with_views_match_a_model() {
    let mut taken = 0;
    for seed in 0..4 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let append = Merge::associative("append", |_, so_far, next| Ok([so_far, next].concat()));
        let db = store(|o| o.writes(|w| w.merge_operator(append)));
        let other = db.keyspace("other", KeyspaceOptions::default()).unwrap();
        let (mut model, mut beside) = (Model::new(), Model::new());
        let mut held: Vec<Held> = Vec::new();
        for step in 0..100 {
            for _ in 0..rng.usize(..60) {
                let (key, value) = (some_key(&mut rng, 500), vec![step as u8; rng.usize(..20)]);
                match rng.u8(..40) {
                    0..=6 => {
                        db.delete(&key).unwrap();
                        model.remove(&key);
                    }
                    7..=10 => {
                        db.merge(&key, &value).unwrap();
                        model.entry(key).or_default().extend(&value);
                    }
                    11..=16 => {
                        other.put(&key, &value).unwrap();
                        beside.insert(key, value);
                    }
                    17 if step > 60 && step < 70 => {
                        let to = some_key(&mut rng, 500);
                        db.delete_range(key.clone()..to.clone()).unwrap();
                        model.retain(|other, _| *other < key || *other >= to);
                    }
                    _ => {
                        db.put(&key, &value).unwrap();
                        model.insert(key, value);
                    }
                }
            }
            match rng.u8(..12) {
                0..=3 => db.flush().unwrap(),
                4 if step % 3 == 0 || step > 69 => db.compact_range(..).unwrap(),
                5 if !held.is_empty() => drop(held.swap_remove(rng.usize(..held.len()))),
                6 => {
                    let (cursor, snapshot) = (db.cursor().unwrap(), db.snapshot());
                    held.push(Held { cursor, snapshot, model: model.clone() });
                }
                _ => {
                    engine(&db).view.load_full().fences.sorted.miss(1 << 40);
                    db.wait_idle().unwrap();
                }
            }
            let mut cursor = db.cursor().unwrap();
            check_cursor(&mut cursor, &model, &mut rng);
            check_cursor(&mut other.cursor().unwrap(), &beside, &mut rng);
            for held in &mut held {
                check_cursor(&mut held.cursor, &held.model, &mut rng);
                check_cursor(&mut held.snapshot.cursor().unwrap(), &held.model, &mut rng);
            }
        }
        taken += db.stats().scans.sorted_views;
    }
    assert!(taken > 20, "{taken} views");
}

/// A skip passes nothing but what is deleted, and the cursor goes on from where it ends.
#[test]
fn skips_pass_only_what_is_deleted() {
    let mut skips = 0;
    for seed in 0..6 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let db = store(|options| options);
        fill(&db, &mut rng, (4, 50), 800, seed % 2 == 0);
        let (mut merge, mut entries) = (merged(&db, &engine(&db).version()), Vec::new());
        merge.seek_to_first().unwrap();
        while let Some(entry) = shown(&merge) {
            entries.push(entry);
            merge.next().unwrap();
        }
        let view = built(&db).unwrap();
        let mut cursor = sorted(&db, &view);
        for _ in 0..300 {
            let from = rng.usize(..entries.len());
            let (key, seqno, ..) = &entries[from];
            cursor.seek(key, *seqno).unwrap();
            let (covering, end) = (rng.u64(..3000), some_key(&mut rng, 800));
            let at = |shown: Shown| entries.iter().position(|entry| Some(entry) == shown.as_ref());
            if end > *key {
                let to = (rng.u8(..8) > 0).then_some(end);
                let has_moved = cursor.skip_deleted(covering, to.as_deref()).unwrap();
                let now = at(shown(&cursor)).unwrap_or(entries.len());
                let is_passed =
                    |e: &Entry| e.1 < covering && to.as_ref().is_none_or(|to| e.0 < *to);
                assert!(entries[from..now].iter().all(is_passed), "{covering} {to:?}");
                assert_eq!(has_moved, now > from);
                skips += usize::from(now > from + 1);
                cursor.next().unwrap();
                assert_eq!(shown(&cursor), entries.get(now + 1).cloned());
            } else {
                let has_moved = cursor.skip_deleted_back(covering, &end).unwrap();
                let now = at(shown(&cursor)).map_or(0, |now| now + 1);
                let is_passed = |e: &Entry| e.1 < covering && e.0 >= end;
                assert!(entries[now..=from].iter().all(is_passed), "{covering} {end:?}");
                assert_eq!(has_moved, now <= from);
                skips += usize::from(now < from);
                cursor.prev().unwrap();
                let before = now.checked_sub(2).map(|before| entries[before].clone());
                assert_eq!(shown(&cursor), before);
            }
        }
    }
    assert!(skips > 100, "{skips} skips");
}

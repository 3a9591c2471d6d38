//! Tests of the memtable with a hash index alone, which sorts on demand, and of the pool of memory.

use std::cmp::Reverse;
use std::sync::Arc;

use trommel_base::{Cursor, EntryKind, MAX_SEQNO, SeqNo};

use crate::chains::{Found, hash_of};
use crate::conformance::{Model, Place, Random, awkward_key, move_some, scan_all};
use crate::{AnyIndex, ArenaPool, Memtable, MemtableCursor, MemtableKind};

/// A memtable with a hash index.
fn memtable(pool: &Arc<ArenaPool>) -> Memtable {
    Memtable::new(MemtableKind::Hash, pool)
}

/// The number of its entries that are in no run.
fn unsorted_of(memtable: &Memtable) -> usize {
    let AnyIndex::Hash(index) = &memtable.index else { panic!("another kind") };
    index.written().order.unsorted()
}

#[test]
fn a_run_and_a_tree_are_merged_in_order() {
    let random = &mut Random(7);
    let memtable = Arc::new(memtable(&ArenaPool::new(1 << 20)));
    let mut model = Model::new();
    for seqno in 0..60_000 {
        let key = random.below(50_000).to_le_bytes().to_vec();
        memtable.insert(&key, seqno, EntryKind::Put, &[]);
        model.insert((key, Reverse(seqno)), (EntryKind::Put, Vec::new()));
        // The first scan leaves a run; from then on there is a tree, larger and larger.
        if random.below(3_000) == 0 || seqno > 59_900 {
            let mut cursor = memtable.cursor();
            for _ in 0..20 {
                move_some(random, &model, &mut cursor);
            }
        }
    }
    scan_all(&memtable, &model);
}

/// A memtable sized for as many entries as are inserted, for fewer and for more, with and without a
/// scan during the inserts.
#[test]
fn entries_above_and_below_the_expected_number_are_in_order() {
    let random = &mut Random(11);
    for (expected, inserted) in
        [(20_000, 18_000), (20_000, 22_400), (20_000, 60_000), (11_000, 40_000)]
    {
        for scanned_at in [0, 1, 5_000, inserted] {
            let memtable = Arc::new(memtable(&ArenaPool::new(0)).expecting(expected));
            let mut model = Model::new();
            for seqno in 0..inserted as u64 {
                if seqno == scanned_at as u64 {
                    let mut cursor = memtable.cursor();
                    move_some(random, &model, &mut cursor);
                }
                let key = random.below(50_000).to_le_bytes().to_vec();
                memtable.insert(&key, seqno, EntryKind::Put, &[]);
                model.insert((key, Reverse(seqno)), (EntryKind::Put, Vec::new()));
            }
            scan_all(&memtable, &model);
        }
    }
}

/// More entries may be expected than any memory holds; inserted entries are still in the order.
#[test]
fn an_absurd_expectation_does_no_harm() {
    let memtable = Arc::new(memtable(&ArenaPool::new(0)).expecting(usize::MAX));
    memtable.insert(b"k", 1, EntryKind::Put, b"v");
    let mut cursor = memtable.cursor();
    cursor.seek_to_first().unwrap();
    assert_eq!(cursor.entry().unwrap().key, b"k");
    assert_eq!(memtable.get(b"k", 1).unwrap().value, b"v");
}

/// Without a scan, entries are sorted once, at the first scan. After a scan they are inserted in
/// order, in the following memtable too.
#[test]
fn entries_are_not_sorted_without_a_scan() {
    const ENTRIES: u64 = 70_000;
    let pool = ArenaPool::new(0);
    let filled = |memtable: Memtable, scanned: bool| {
        let memtable = Arc::new(memtable);
        let mut model = Model::new();
        let random = &mut Random(3);
        for seqno in 0..ENTRIES {
            let key = random.below(1 << 40).to_le_bytes().to_vec();
            memtable.insert(&key, seqno, EntryKind::Put, &[]);
            model.insert((key, Reverse(seqno)), (EntryKind::Put, Vec::new()));
            if scanned && seqno == 10 {
                drop(memtable.cursor());
            }
        }
        let unsorted = unsorted_of(&memtable);
        let following = Memtable::following(MemtableKind::Hash, &pool, &memtable);
        scan_all(&memtable, &model);
        assert_eq!(unsorted_of(&memtable), 0);
        (unsorted, following)
    };
    let (unsorted, next) = filled(memtable(&pool), false);
    assert_eq!(unsorted, ENTRIES as usize);
    let (unsorted, next) = filled(next, true);
    assert_eq!(unsorted, 0, "after a scan");
    let (unsorted, next) = filled(next, false);
    assert_eq!(unsorted, 0, "after a memtable with scans");
    let (unsorted, _) = filled(next, false);
    assert_eq!(unsorted, ENTRIES as usize, "after a memtable without scans");
}

#[test]
fn chunks_go_from_one_memtable_to_the_next_up_to_the_limit() {
    let pool = ArenaPool::new(6 << 20);
    let fill = |bytes: u64| {
        let memtable = memtable(&pool);
        for n in 0..bytes >> 10 {
            memtable.insert(&n.to_le_bytes(), n, EntryKind::Put, &[1; 1 << 10]);
        }
    };
    assert_eq!(pool.idle_bytes(), 0);
    fill(4 << 20);
    let kept = pool.idle_bytes();
    assert!((4 << 20..=6 << 20).contains(&kept), "kept {kept}");
    let memtable = memtable(&pool);
    memtable.insert(b"k", 1, EntryKind::Put, b"v");
    assert_eq!(pool.idle_bytes(), kept - (4 << 10), "the smallest chunk is in use again");
    drop(memtable);
    assert_eq!(pool.idle_bytes(), kept);
    fill(40 << 20);
    assert!(pool.idle_bytes() <= 6 << 20);
    pool.set_limit(0);
    assert_eq!(pool.idle_bytes(), 0);
    fill(2 << 20);
    assert_eq!(pool.idle_bytes(), 0, "a pool without a limit to fill keeps nothing");
}

#[test]
fn idle_and_used_chunks_are_within_the_limit_together() {
    let pool = ArenaPool::new(16 << 20);
    let filled = |bytes: u64| {
        let memtable = memtable(&pool);
        for n in 0..bytes >> 10 {
            memtable.insert(&n.to_le_bytes(), n, EntryKind::Put, &[1; 1 << 10]);
        }
        memtable
    };
    let full = filled(12 << 20);
    let next = filled(4 << 20);
    drop(full);
    let kept = pool.idle_bytes();
    assert!((10 << 20..12 << 20).contains(&kept), "kept {kept} beside six MiB in use");
    // A value with a chunk of its own is also in use.
    next.insert(b"large", 1 << 40, EntryKind::Put, &vec![1; 12 << 20]);
    drop(filled(8 << 20));
    let kept = pool.idle_bytes();
    assert_eq!(kept, 0, "kept beside eighteen MiB in use");
    drop(next);
    pool.release();
    assert_eq!(pool.idle_bytes(), 0);
    drop(filled(8 << 20));
    assert!(pool.idle_bytes() > 8 << 20, "nothing is kept once all was released");
}

/// Keys for which a factor of XXH3's first product is zero without a seed, as in `seed.rs` of crate
/// `trommel-filter`.
fn colliding_key(n: u64) -> [u8; 32] {
    let mut key = [7; 32];
    key[..8].copy_from_slice(&0xbe4b_a423_396c_feb8_u64.to_le_bytes());
    key[8..16].copy_from_slice(&n.to_le_bytes());
    key
}

/// Lookups of most of such keys used to pass 64 records of one chain, and then to sort the memtable
/// and search it under the writers' lock.
#[test]
fn chosen_keys_are_in_many_chains() {
    let gave_up = |seed: u64| {
        let memtable = memtable(&ArenaPool::with_hash_seed(0, seed));
        (0..1000).for_each(|n| memtable.insert(&colliding_key(n), n, EntryKind::Put, b""));
        let AnyIndex::Hash(index) = &memtable.index else { panic!("another kind") };
        let chains = index.chains.get().unwrap();
        let gives_up = |n: &u64| {
            let key = colliding_key(*n);
            matches!(chains.find(hash_of(&key, seed), &key, 1000), Found::GaveUp)
        };
        let found = (0..1000).filter(|n| memtable.get(&colliding_key(*n), 1000).is_some()).count();
        assert_eq!(found, 1000);
        (0..1000).filter(gives_up).count()
    };
    assert!(gave_up(0) > 600, "the attack is none");
    for n in 1..20_u64 {
        assert_eq!(gave_up(n.wrapping_mul(0xd134_2543_de82_ef95)), 0);
    }
}

/// The version of each key that a part shows to a reader as of `moment`.
fn shown(part: &Model, moment: SeqNo) -> Model {
    let mut shown = Model::new();
    for (place, payload) in part {
        let last = shown.last_key_value().map(|(last, _): (&Place, _)| last.clone());
        let of_key = last.filter(|last| last.0 == place.0);
        match of_key {
            Some(newer) if newer.1.0 <= moment => continue,
            Some(unseen) => shown.remove(&unseen),
            None => None,
        };
        shown.insert(place.clone(), payload.clone());
    }
    shown
}

fn after<'a>(model: &'a Model, place: &Place) -> Option<&'a Place> {
    model.range(place..).next().map(|(place, _)| place)
}

fn before<'a>(model: &'a Model, place: &Place) -> Option<&'a Place> {
    model.range(..place).next_back().map(|(place, _)| place)
}

fn place(cursor: &MemtableCursor) -> Option<Place> {
    cursor.entry().map(|entry| (entry.key.to_vec(), Reverse(entry.seqno)))
}

/// A skip ends at an entry that is shown, and skips none that is new enough or not before `key`.
fn check_skip(cursor: &mut MemtableCursor, model: &Model, since: SeqNo, key: &[u8]) {
    let Some(start) = place(cursor) else { return };
    cursor.skip_older(since, Some(key));
    let is_wanted = |it: &&Place| it.1.0 >= since || *it.0 >= *key;
    let wanted = model.range(&start..).map(|(it, _)| it).find(is_wanted);
    let end = place(cursor);
    assert!(end.as_ref().is_none_or(|it| model.contains_key(it)));
    assert!(wanted.is_none_or(|it| end.as_ref().is_some_and(|end| end <= it)));
    let Ok(()) = cursor.prev();
    let turned = end.as_ref().and_then(|end| before(model, end));
    assert_eq!(place(cursor).as_ref(), turned, "turned after a skip");
}

/// As `check_skip`, backward.
fn check_skip_back(cursor: &mut MemtableCursor, model: &Model, since: SeqNo, key: &[u8]) {
    let Some(start) = place(cursor) else { return };
    cursor.skip_older_back(since, key);
    let is_wanted = |it: &&Place| it.1.0 >= since || *it.0 < *key;
    let wanted = model.range(..=&start).map(|(it, _)| it).rfind(is_wanted);
    let end = place(cursor);
    assert!(end.as_ref().is_none_or(|it| model.contains_key(it)));
    assert!(end.as_ref() >= wanted);
    let Ok(()) = cursor.next();
    let turned = end.and_then(|end| model.range(end..).nth(1));
    assert_eq!(place(cursor).as_ref(), turned.map(|(place, _)| place), "turned after a skip");
}

/// Few keys with up to some hundred versions, short ones and long ones that share their first
/// bytes, before and after a first scan. Their numbers do not come in order. Later inserts change
/// nothing.
#[test]
fn a_reader_gets_one_version_of_each_key() {
    for seed in 0..60 {
        let random = &mut Random(seed);
        let keys: Vec<Vec<u8>> = (0..1 + random.below(30)).map(|_| awkward_key(random)).collect();
        let memtable = Arc::new(memtable(&ArenaPool::new(1 << 20)));
        let mut parts = [Model::new(), Model::new()];
        let split = random.below(3) * 400;
        let inserts = 400 + random.below(400);
        let insert = |n: u64, random: &mut Random| {
            let key = &keys[(random.below(30) * random.below(30) / 30) as usize % keys.len()];
            // Within each eight numbers in another order.
            let seqno = n ^ (seed % 8);
            memtable.insert(key, seqno, EntryKind::Put, b"");
            (key.clone(), Reverse(seqno))
        };
        for n in 0..inserts {
            if n == split {
                drop(memtable.cursor());
            }
            let entry = insert(n, random);
            parts[usize::from(n >= split)].insert(entry, (EntryKind::Put, Vec::new()));
        }
        let moments = [0, 1, 399, 400, random.below(800), 799, MAX_SEQNO];
        let mut cursors = moments.map(|moment| memtable.cursor_at(moment));
        for n in inserts..inserts + random.below(100) {
            insert(n, random);
        }
        for (moment, cursor) in moments.into_iter().zip(&mut cursors) {
            let mut model = Model::new();
            parts.iter().for_each(|part| model.extend(shown(part, moment)));
            for _ in 0..300 {
                move_some(random, &model, cursor);
                let key = &keys[random.below(keys.len() as u64) as usize];
                let (from, since) = ((key.clone(), Reverse(random.below(800))), random.below(800));
                let first = (key.clone(), Reverse(SeqNo::MAX));
                match random.below(8) {
                    0 | 1 => {
                        cursor.seek(key, from.1.0).unwrap();
                        assert_eq!(place(cursor).as_ref(), after(&model, &from), "seek");
                    }
                    2 | 3 => {
                        cursor.seek_before(key).unwrap();
                        assert_eq!(place(cursor).as_ref(), before(&model, &first), "back");
                    }
                    4 => check_skip(cursor, &model, since, key),
                    5 => check_skip_back(cursor, &model, since, key),
                    _ => {}
                }
            }
        }
    }
}

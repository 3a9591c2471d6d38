//! The suite that every kind of memtable passes: compared with a `BTreeMap`, by one thread and with
//! concurrent writers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use trommel_base::{Cursor, CursorHints, EntryKind, EntryRef, MAX_KEY_BYTES, MAX_SEQNO, SeqNo};

use crate::{ArenaPool, Memtable, MemtableCursor, MemtableKind};

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

pub(crate) type Place = (Vec<u8>, Reverse<SeqNo>);
pub(crate) type Payload = (EntryKind, Vec<u8>);
pub(crate) type Model = BTreeMap<Place, Payload>;

/// Runs `test` with each kind, which the output of a failure names.
fn with_each(test: impl Fn(MemtableKind)) {
    for kind in MemtableKind::ALL {
        println!("kind of memtable: {kind}");
        test(kind);
    }
}

pub(crate) fn memtable(kind: MemtableKind) -> Arc<Memtable> {
    Arc::new(Memtable::new(kind, &ArenaPool::new(1 << 20)))
}

/// Keys that differ by little: shared prefixes around 16 bytes, zero bytes, prefixes of each other,
/// the empty key.
pub(crate) fn awkward_key(random: &mut Random) -> Vec<u8> {
    let mut key = match random.below(4) {
        0 => Vec::new(),
        1 => b"a prefix that is shared by many".to_vec(),
        2 => vec![0; random.below(20) as usize],
        _ => vec![0xff; 14 + random.below(4) as usize],
    };
    let cut = random.below(key.len() as u64 + 1) as usize;
    key.truncate(cut);
    for _ in 0..random.below(5) {
        key.push([0, 1, b'a', 0xff][random.below(4) as usize]);
    }
    if random.below(200) == 0 {
        let long = random.below(MAX_KEY_BYTES as u64 + 1) as usize;
        key.resize(long.max(key.len()), b'z');
    }
    key
}

fn owned(entry: EntryRef<'_>) -> (Place, Payload) {
    ((entry.key.to_vec(), Reverse(entry.seqno)), (entry.kind, entry.value.to_vec()))
}

/// Fails unless the cursor is at the model's entry.
fn assert_at(cursor: &MemtableCursor, expected: Option<(&Place, &Payload)>, what: &str) {
    let found = cursor.entry().map(owned);
    let expected = expected.map(|(key, value)| (key.clone(), value.clone()));
    assert!(found == expected, "{what}: found {found:?}, expected {expected:?}");
}

fn insert_some(random: &mut Random, memtable: &Memtable, model: &mut Model, seqno: &mut SeqNo) {
    *seqno += 1 + random.below(3);
    let key = awkward_key(random);
    let kind = if random.below(4) == 0 { EntryKind::Delete } else { EntryKind::Put };
    let len = match random.below(500) {
        0 => 64 << 10,
        1 => 300_000,
        _ => random.below(40) as usize,
    };
    let value = if kind == EntryKind::Put { vec![*seqno as u8; len] } else { Vec::new() };
    memtable.insert(&key, *seqno, kind, &value);
    assert!(model.insert((key, Reverse(*seqno)), (kind, value)).is_none());
}

/// One random read, compared with the model.
fn read_some(random: &mut Random, memtable: &Memtable, model: &Model) {
    let key = awkward_key(random);
    let at = (key.clone(), Reverse(some_seqno(random, model)));
    let expected = model.range(&at..).next().filter(|(found, _)| found.0 == key);
    let found = memtable.get(&key, at.1.0).map(owned);
    let expected = expected.map(|(key, value)| (key.clone(), value.clone()));
    assert!(found == expected, "get {}: {found:?}", key.escape_ascii());
}

fn some_seqno(random: &mut Random, model: &Model) -> SeqNo {
    let newest = model.len() as u64 * 2 + 2;
    [0, 1, random.below(newest), MAX_SEQNO, SeqNo::MAX][random.below(5) as usize]
}

/// One random move of a cursor that was created when the memtable held the entries of `model`.
pub(crate) fn move_some(random: &mut Random, model: &Model, cursor: &mut MemtableCursor) {
    let key = awkward_key(random);
    let from = cursor.entry().map(|entry| owned(entry).0);
    match random.below(7) {
        0 => {
            let at = (key, Reverse(some_seqno(random, model)));
            cursor.seek(&at.0, at.1.0).unwrap();
            assert_at(cursor, model.range(&at..).next(), "seek");
        }
        1 => {
            cursor.seek_before(&key).unwrap();
            let first = (key, Reverse(SeqNo::MAX));
            assert_at(cursor, model.range(..&first).next_back(), "seek_before");
        }
        2 | 3 => {
            cursor.next().unwrap();
            let expected = from.and_then(|from| model.range(&from..).nth(1));
            assert_at(cursor, expected, "next");
        }
        4 | 5 => {
            cursor.prev().unwrap();
            let expected = from.and_then(|from| model.range(..&from).next_back());
            assert_at(cursor, expected, "prev");
        }
        _ => {
            cursor.seek_to_first().unwrap();
            assert_at(cursor, model.iter().next(), "seek_to_first");
            cursor.seek_to_last().unwrap();
            assert_at(cursor, model.iter().next_back(), "seek_to_last");
        }
    }
}

/// Iterates from end to end, both ways, and compares with the model.
pub(crate) fn scan_all(memtable: &Arc<Memtable>, model: &Model) {
    let mut cursor = memtable.cursor();
    let mut entries = model.iter();
    cursor.seek_to_first().unwrap();
    while cursor.entry().is_some() {
        assert_at(&cursor, entries.next(), "forward");
        cursor.next().unwrap();
    }
    assert!(entries.next().is_none(), "the cursor saw every entry");
    let mut entries = model.iter().rev();
    cursor.seek_to_last().unwrap();
    while cursor.entry().is_some() {
        assert_at(&cursor, entries.next(), "backward");
        cursor.prev().unwrap();
    }
    assert!(entries.next().is_none(), "the cursor saw every entry, backward");
}

#[test]
fn it_agrees_with_a_btreemap() {
    with_each(|kind| {
        for seed in 0..60 {
            let random = &mut Random(seed);
            let pool = ArenaPool::new(1 << 20);
            let common_prefix = if seed % 2 == 0 { Vec::new() } else { awkward_key(random) };
            let memtable = Memtable::with_common_prefix(kind, &pool, &common_prefix);
            let memtable = Arc::new(memtable.expecting(random.below(3_000) as usize));
            let mut model = Model::new();
            let mut seqno = 0;
            // A cursor that was created earlier, and the memtable's contents at that time.
            let mut early = (memtable.cursor(), Model::new());
            assert!(memtable.is_empty());
            for _ in 0..5_000 {
                match random.below(100) {
                    0..33 => insert_some(random, &memtable, &mut model, &mut seqno),
                    33..66 => read_some(random, &memtable, &model),
                    66..99 => move_some(random, &early.1, &mut early.0),
                    _ => early = (memtable.cursor(), model.clone()),
                }
            }
            assert_eq!(memtable.len(), model.len());
            scan_all(&memtable, &model);
        }
    });
}

#[test]
fn an_old_version_of_a_key_that_is_written_again_and_again_is_found() {
    with_each(|kind| {
        let memtable = memtable(kind);
        for seqno in (0..20_000).map(|n| 2 * n) {
            memtable.insert(b"hot", seqno, EntryKind::Put, &seqno.to_le_bytes());
            memtable.insert(b"other", seqno, EntryKind::Delete, b"");
        }
        for seqno in [0, 1, 2, 777, 20_000, 39_997, 39_998, MAX_SEQNO] {
            let expected = (seqno / 2 * 2).min(39_998);
            let found = memtable.get(b"hot", seqno).expect("it was written");
            assert_eq!((found.seqno, found.value), (expected, &expected.to_le_bytes()[..]));
            assert!(memtable.get(b"cold", seqno).is_none());
        }
        memtable.insert(b"late", 9, EntryKind::Put, b"");
        assert!(memtable.get(b"late", 8).is_none());
    });
}

/// Descending numbers, as when threads insert one group: chains are in the order of numbers.
#[test]
fn entries_that_come_out_of_order_are_found_in_order() {
    with_each(|kind| {
        let memtable = memtable(kind);
        for seqno in (1..=2_000).rev() {
            memtable.insert(&[(seqno % 3) as u8], seqno, EntryKind::Put, &seqno.to_le_bytes());
        }
        for seqno in 3..=2_000 {
            for key in 0..3 {
                let newest = (seqno - 2..=seqno).find(|seqno| seqno % 3 == key).unwrap();
                assert_eq!(
                    memtable.get(&[key as u8], seqno).map(|entry| entry.seqno),
                    Some(newest)
                );
            }
        }
    });
}

#[test]
fn keys_of_every_length_are_in_the_order_of_their_bytes() {
    with_each(|kind| {
        let memtable = memtable(kind);
        let mut keys: Vec<Vec<u8>> =
            (0..40).flat_map(|len| [vec![0; len], vec![b'a'; len]]).collect();
        keys.extend([
            b"a\0".to_vec(),
            b"a\0\0".to_vec(),
            b"a\0b".to_vec(),
            vec![b'q'; MAX_KEY_BYTES],
        ]);
        keys.sort();
        keys.dedup();
        for (seqno, key) in keys.iter().rev().enumerate() {
            memtable.insert(key, seqno as u64, EntryKind::Put, key);
        }
        let mut cursor = memtable.cursor();
        cursor.seek_to_first().unwrap();
        for key in &keys {
            let entry = cursor.entry().expect("every key is there");
            assert_eq!((entry.key, entry.value), (&key[..], &key[..]));
            assert_eq!(memtable.get(key, MAX_SEQNO).map(|entry| entry.key), Some(&key[..]));
            cursor.next().unwrap();
        }
        assert!(cursor.entry().is_none());
        let longer_than_any = vec![b'q'; MAX_KEY_BYTES + 1];
        assert!(memtable.get(&longer_than_any, MAX_SEQNO).is_none());
        cursor.seek_before(&longer_than_any).unwrap();
        assert_eq!(cursor.entry().map(|entry| entry.key.len()), Some(MAX_KEY_BYTES));
    });
}

#[test]
fn a_common_prefix_changes_no_order() {
    with_each(|kind| {
        let keys: Vec<Vec<u8>> =
            ["", "a", "ab", "ab\0", "ab\0\0", "abc", "ab behind it are many bytes"]
                .iter()
                .flat_map(|key| [key.as_bytes().to_vec(), [key.as_bytes(), b"\xff"].concat()])
                .chain([
                    b"b".to_vec(),
                    b"aa and more than sixteen bytes".to_vec(),
                    vec![0; 17],
                    vec![0; 16],
                ])
                .collect();
        let sorted: std::collections::BTreeSet<_> = keys.iter().cloned().collect();
        for prefix in &keys {
            let memtable = Arc::new(Memtable::with_common_prefix(kind, &ArenaPool::new(0), prefix));
            assert_eq!(memtable.common_prefix(), b"");
            for key in &keys {
                memtable.insert(key, 1, EntryKind::Put, key);
            }
            let mut cursor = memtable.cursor();
            cursor.seek_to_first().unwrap();
            for key in &sorted {
                assert_eq!(
                    cursor.entry().map(|entry| (entry.key, entry.value)),
                    Some((&key[..], &key[..]))
                );
                assert_eq!(memtable.get(key, 1), cursor.entry());
                cursor.next().unwrap();
            }
            assert!(cursor.entry().is_none());
        }
    });
}

#[test]
fn the_common_prefix_is_that_of_all_keys() {
    with_each(|kind| {
        let memtable = memtable(kind);
        for (key, expected) in
            [("user:17", "user:17"), ("user:1", "user:1"), ("user:2", "user:"), ("t", "")]
        {
            memtable.insert(key.as_bytes(), 1, EntryKind::Put, b"");
            assert_eq!(memtable.common_prefix(), expected.as_bytes());
        }
    });
}

#[test]
fn the_common_prefix_of_many_is_that_of_the_first_and_the_last() {
    with_each(|kind| {
        let random = &mut Random(11);
        for (shared, expected) in [(12, ""), (12, "prefix of tw"), (30, "")] {
            let memtable = Arc::new(Memtable::with_common_prefix(
                kind,
                &ArenaPool::new(0),
                expected.as_bytes(),
            ));
            let shared = &b"prefix of two dozen and some more bytes"[..shared];
            for seqno in 0..40_000 {
                let key = [shared, &random.below(1 << 40).to_le_bytes()].concat();
                memtable.insert(&key, seqno, EntryKind::Put, &[]);
                // Some are in runs, some in full lists, some in the list that is not full.
                if seqno == 19_000 {
                    drop(memtable.cursor());
                }
            }
            assert_eq!(memtable.common_prefix(), shared);
            memtable.insert(b"prefix of you", 1 << 40, EntryKind::Put, &[]);
            assert_eq!(memtable.common_prefix(), b"prefix of ");
            memtable.insert(b"a", 1 << 41, EntryKind::Put, &[]);
            assert_eq!(memtable.common_prefix(), b"");
        }
    });
}

#[test]
fn a_giant_prefix_takes_little_memory() {
    with_each(|kind| {
        let pool = ArenaPool::new(0);
        let giant = vec![7; 60_000];
        let memtable = Arc::new(Memtable::with_common_prefix(kind, &pool, &giant));
        assert!(memtable.memory_bytes() < 1_280, "{} bytes", memtable.memory_bytes());
        memtable.insert(&giant, 1, EntryKind::Put, b"whole");
        memtable.insert(&giant[..256], 2, EntryKind::Put, b"as far as it is used");
        memtable.insert(&giant[..255], 3, EntryKind::Put, b"shorter");
        for (length, seqno) in [(60_000, 1), (256, 2), (255, 3)] {
            assert_eq!(memtable.get(&giant[..length], 9).unwrap().seqno, seqno);
        }
    });
}

#[test]
fn moves_off_the_end_do_nothing() {
    with_each(|kind| {
        let memtable = memtable(kind);
        let mut cursor = memtable.cursor();
        for _ in 0..2 {
            cursor.next().unwrap();
            assert!(cursor.entry().is_none());
            cursor.prev().unwrap();
            assert!(cursor.entry().is_none());
            assert!(cursor.value().is_empty());
            memtable.insert(b"k", memtable.len() as u64, EntryKind::Put, b"v");
        }
        cursor.seek_to_last().unwrap();
        assert!(cursor.entry().is_none(), "it was made before there was an entry");
        let mut cursor = memtable.cursor();
        cursor.seek_to_last().unwrap();
        assert!(cursor.entry().is_some());
        cursor.next().unwrap();
        assert!(cursor.entry().is_none());
    });
}

#[test]
fn seek_before_passes_every_version_of_the_key() {
    with_each(|kind| {
        let memtable = memtable(kind);
        for key in ["a", "b", "c"] {
            for seqno in [0, 1, MAX_SEQNO] {
                memtable.insert(key.as_bytes(), seqno, EntryKind::Put, b"");
            }
        }
        let mut cursor = memtable.cursor();
        cursor.seek_before(b"b").unwrap();
        assert_eq!(cursor.entry().map(|entry| (entry.key, entry.seqno)), Some((&b"a"[..], 0)));
        cursor.next().unwrap();
        assert_eq!(cursor.entry().map(|entry| entry.seqno), Some(MAX_SEQNO));
        cursor.seek_before(b"a").unwrap();
        assert!(cursor.entry().is_none());
    });
}

#[test]
fn a_cursor_outlives_every_other_owner_and_goes_to_another_thread() {
    with_each(|kind| {
        let memtable = memtable(kind);
        memtable.insert(b"a key of more than sixteen bytes", 1, EntryKind::Put, b"value");
        let mut cursor = memtable.cursor();
        cursor.seek_to_first().unwrap();
        drop(memtable);
        let scan = thread::spawn(move || {
            assert_eq!(cursor.entry().unwrap().value, b"value");
            cursor.next().unwrap();
            assert!(cursor.entry().is_none());
        });
        scan.join().unwrap();
    });
}

#[test]
fn a_second_entry_of_one_key_and_sequence_number_panics() {
    with_each(|kind| {
        let memtable = memtable(kind);
        memtable.insert(b"a\0", 7, EntryKind::Put, b"");
        let second = thread::scope(|scope| {
            let insert = || memtable.insert(b"a\0", 7, EntryKind::Delete, b"");
            scope.spawn(insert).join().unwrap_err()
        });
        let text = second.downcast_ref::<String>().unwrap();
        assert_eq!(text, "key a\\x00 was inserted twice with sequence number 7");
        let found = memtable.get(b"a\0", 7).unwrap();
        assert_eq!((memtable.len(), memtable.deletions(), found.kind), (1, 0, EntryKind::Put));
    });
}

#[test]
fn of_two_threads_that_insert_the_same_exactly_one_panics() {
    with_each(|kind| {
        for seqno in 0..200 {
            let memtable = memtable(kind);
            let insert = || {
                let memtable = Arc::clone(&memtable);
                thread::spawn(move || memtable.insert(b"k", seqno, EntryKind::Delete, b""))
            };
            let results = [insert(), insert()].map(|thread| thread.join().is_ok());
            assert!(results[0] != results[1]);
            assert_eq!(memtable.len(), 1);
        }
    });
}

/// The scenario of crossbeam issue 1023, which loses reads when equal keys replace each other: one
/// hot set of keys is overwritten repeatedly, each version with its own sequence number.
#[test]
fn an_inserted_key_is_found_by_every_thread() {
    with_each(|kind| {
        const KEYS: u64 = 8;
        const VERSIONS: u64 = 20_000;
        let memtable = memtable(kind);
        let published: [AtomicU64; KEYS as usize] = Default::default();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (memtable, published, done) = (&memtable, &published, &done);
            let writers: Vec<_> = (0..2)
                .map(|writer| {
                    scope.spawn(move || {
                        for version in 1..=VERSIONS {
                            for key in (0..KEYS).filter(|key| key % 2 == writer) {
                                let seqno = version * KEYS + key;
                                let name = format!("key {key}");
                                memtable.insert(
                                    name.as_bytes(),
                                    seqno,
                                    EntryKind::Put,
                                    &[key as u8],
                                );
                                published[key as usize].store(seqno, Ordering::Release);
                            }
                        }
                    })
                })
                .collect();
            for reader in 0..2 {
                scope.spawn(move || {
                    let random = &mut Random(reader);
                    while !done.load(Ordering::Relaxed) {
                        let key = random.below(KEYS);
                        let newest = published[key as usize].load(Ordering::Acquire);
                        if newest == 0 {
                            continue;
                        }
                        let name = format!("key {key}");
                        let found =
                            memtable.get(name.as_bytes(), MAX_SEQNO).expect("it was inserted");
                        assert!(found.seqno >= newest, "an older version than was published");
                        assert_eq!(found.value, [key as u8]);
                        let exact =
                            memtable.get(name.as_bytes(), newest).expect("nothing is removed");
                        assert_eq!(exact.seqno, newest);
                    }
                });
            }
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(memtable.len() as u64, KEYS * VERSIONS);
    });
}

#[test]
fn a_cursor_sees_in_order_all_that_was_there_while_others_insert() {
    with_each(|kind| {
        const BEFORE: u64 = 2_000;
        const DURING: u64 = 60_000;
        let key = |n: u64| {
            format!("shared prefix of keys {:08}", n.wrapping_mul(0x9e37_79b1) % 100_000_000)
        };
        let memtable = memtable(kind);
        for n in 0..BEFORE {
            memtable.insert(key(n).as_bytes(), n, EntryKind::Put, b"before");
        }
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let (memtable, done) = (&memtable, &done);
            let writers: Vec<_> = (0..2)
                .map(|writer| {
                    scope.spawn(move || {
                        for n in (BEFORE..BEFORE + DURING).filter(|n| n % 2 == writer) {
                            memtable.insert(key(n).as_bytes(), n, EntryKind::Put, b"during");
                        }
                    })
                })
                .collect();
            for forward in [true, false] {
                scope.spawn(move || {
                    let mut rounds = 0;
                    while rounds < 2 || !done.load(Ordering::Relaxed) {
                        scan(&mut memtable.cursor(), forward, BEFORE);
                        rounds += 1;
                    }
                });
            }
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(memtable.len() as u64, BEFORE + DURING);
    });
}

/// Iterates from end to end. Fails if entries are out of order or one of the first `before` is
/// missing.
fn scan(cursor: &mut MemtableCursor, forward: bool, before: u64) {
    if forward { cursor.seek_to_first() } else { cursor.seek_to_last() }.unwrap();
    let mut last: Option<(Vec<u8>, SeqNo)> = None;
    let mut seen = 0;
    while let Some(entry) = cursor.entry() {
        if let Some((key, seqno)) = &last {
            let order = trommel_base::compare_internal(key, *seqno, entry.key, entry.seqno);
            assert_eq!(order.is_lt(), forward, "out of order");
            assert!(order.is_ne(), "the same entry twice");
        }
        let early = entry.seqno < before;
        assert_eq!(entry.value, if early { &b"before"[..] } else { b"during" });
        seen += u64::from(early);
        last = Some((entry.key.to_vec(), entry.seqno));
        if forward { cursor.next() } else { cursor.prev() }.unwrap();
    }
    assert_eq!(seen, before, "entries that were there are missing");
}

#[test]
fn threads_that_fill_chunks_at_once_do_not_share_a_byte() {
    with_each(|kind| {
        let memtable = memtable(kind);
        thread::scope(|scope| {
            for writer in 0..4u64 {
                let memtable = &memtable;
                scope.spawn(move || {
                    let random = &mut Random(writer);
                    for n in 0..4_000 {
                        let value = vec![(writer * 50 + n % 50) as u8; random.below(700) as usize];
                        memtable.insert(
                            &n.to_le_bytes(),
                            writer * 4_000 + n,
                            EntryKind::Put,
                            &value,
                        );
                    }
                });
            }
        });
        let mut cursor = memtable.cursor();
        cursor.seek_to_first().unwrap();
        let mut seen = 0;
        while let Some(entry) = cursor.entry() {
            let expected = (entry.seqno / 4_000 * 50 + entry.seqno % 4_000 % 50) as u8;
            assert!(entry.value.iter().all(|byte| *byte == expected), "another's bytes");
            seen += 1;
            cursor.next().unwrap();
        }
        assert_eq!(seen, 16_000);
    });
}

/// Skipping old entries ends where stepping over them one by one does.
#[test]
#[expect(clippy::big_endian_bytes, reason = "keys in the order of their numbers")]
fn old_entries_are_skipped_as_by_steps() {
    with_each(|kind| {
        let mut random = Random(11);
        for _ in 0..200 {
            let memtable = memtable(kind);
            let count = 1 + random.below(300);
            for seqno in 1..=count {
                let key = random.below(200).to_be_bytes();
                memtable.insert(&key, seqno, EntryKind::Delete, b"");
                if random.below(40) == 0 {
                    // Several runs.
                    memtable.cursor();
                }
            }
            let since = random.below(count + 2);
            let (start, end) = (random.below(200).to_be_bytes(), random.below(220).to_be_bytes());
            let place = |cursor: &MemtableCursor| {
                cursor.entry().map(|entry| (entry.key.to_vec(), entry.seqno))
            };
            let (mut skipping, mut stepping) = (memtable.cursor(), memtable.cursor());
            for cursor in [&mut skipping, &mut stepping] {
                cursor.seek(&start, MAX_SEQNO).unwrap();
            }
            skipping.skip_older(since, Some(&end));
            while stepping.entry().is_some_and(|entry| entry.key < &end[..] && entry.seqno < since)
            {
                stepping.next().unwrap();
            }
            assert_eq!(
                place(&skipping),
                place(&stepping),
                "from {start:?} to {end:?} since {since}"
            );
            for cursor in [&mut skipping, &mut stepping] {
                cursor.prev().unwrap();
            }
            let turned = stepping.entry().is_some().then(|| place(&skipping));
            assert_eq!(turned.unwrap_or_default(), place(&stepping), "turned after a skip");
            for cursor in [&mut skipping, &mut stepping] {
                cursor.seek_before(&start).unwrap();
            }
            skipping.skip_older_back(since, &end);
            while stepping.entry().is_some_and(|entry| entry.key >= &end[..] && entry.seqno < since)
            {
                stepping.prev().unwrap();
            }
            assert_eq!(place(&skipping), place(&stepping), "back from {start:?} to {end:?}");
            for cursor in [&mut skipping, &mut stepping] {
                cursor.next().unwrap();
            }
            assert_eq!(place(&skipping), place(&stepping), "turned after a skip back");
        }
    });
}

//! Entries come back unchanged: through get, get_many and cursors, in every access mode.

use std::sync::Arc;

use trommel_base::{Aim, Cursor, CursorHints, MAX_SEQNO, Stage};
use trommel_sstable::{
    BlockCache, Compression, FilterState, ReadStats, Request, ScanOptions, Table, TableOptions,
    get_many,
};
use trommel_vfs::{Access, DiskVfs, Vfs};

use crate::common::*;

/// As [`check_all`], with scans that trust verification, over a mapped table that verifies each
/// block once: with none, some and all of the blocks verified.
fn check_trusting(table: &Arc<Table>, entries: &[Entry], random: &mut Random) {
    let once = Arc::new(table.without_filters().verifying_once());
    let trusting = ScanOptions { trust_verified: true, ..ScanOptions::default() };
    check_walk(&once, entries, trusting, random, 20);
    check_walk(&once, entries, trusting, random, 300);
    check_scans(&once, entries, trusting);
    check_scans(&once, entries, trusting);
    check_walk(&once, entries, trusting, random, 300);
}

/// Every way of reading must agree with the entries that were added.
fn check_all(table: &Arc<Table>, entries: &[Entry], random: &mut Random) {
    for fill_cache in [true, false] {
        let options = ScanOptions {
            fill_cache,
            read_ahead_bytes: 1000,
            check_order: true,
            ..ScanOptions::default()
        };
        check_scans(table, entries, options);
        check_walk(table, entries, options, random, 300);
    }
    check_gets(table, entries, random);
    let verified = table.verify().unwrap();
    assert_eq!(verified.bytes, table.file_bytes());
    assert_eq!(verified.entries, entries.len() as u64);
}

fn check_scans(table: &Arc<Table>, entries: &[Entry], options: ScanOptions) {
    let mut cursor = table.cursor(options);
    assert_eq!(standing(&cursor), None, "a fresh cursor stands off the end");
    cursor.seek_to_first().unwrap();
    for entry in entries {
        assert_eq!(standing(&cursor).as_ref(), Some(entry));
        cursor.next().unwrap();
    }
    assert_eq!(standing(&cursor), None);
    cursor.seek_to_last().unwrap();
    for entry in entries.iter().rev() {
        assert_eq!(standing(&cursor).as_ref(), Some(entry));
        cursor.prev().unwrap();
    }
    assert_eq!(standing(&cursor), None);
}

/// Random moves, compared with an index into the sorted entries.
fn check_walk(
    table: &Arc<Table>,
    entries: &[Entry],
    options: ScanOptions,
    random: &mut Random,
    steps: usize,
) {
    let mut cursor = table.cursor(options);
    let mut at: Option<usize> = None;
    for _ in 0..steps {
        let near = entries.get(random.below(entries.len().max(1)));
        let key = match near {
            Some(entry) if random.below(3) > 0 => entry.key.clone(),
            _ => random_key(random),
        };
        let seqno = match near {
            Some(entry) if random.below(2) > 0 => entry.seqno,
            _ => random.next() >> (8 + random.below(50)),
        };
        if random.below(2) > 0 {
            let awaited = if random.below(4) > 0 { key.clone() } else { random_key(random) };
            for stage in [Stage::Find, Stage::Prefetch] {
                cursor.prefetch_seek(&awaited, Aim::From, stage);
            }
        }
        match random.below(12) {
            0 => {
                cursor.seek_to_first().unwrap();
                at = (!entries.is_empty()).then_some(0);
            }
            1 => {
                cursor.seek_to_last().unwrap();
                at = entries.len().checked_sub(1);
            }
            2 | 3 => {
                cursor.seek(&key, seqno).unwrap();
                at = entries.iter().position(|e| (&e.key, !e.seqno) >= (&key, !seqno));
            }
            4 => {
                cursor.seek_before(&key).unwrap();
                at = entries.iter().rposition(|entry| entry.key < key);
            }
            forward => {
                for _ in 0..random.below(30) {
                    if forward < 9 {
                        cursor.next().unwrap();
                        at = at.map(|at| at + 1).filter(|at| *at < entries.len());
                    } else {
                        cursor.prev().unwrap();
                        at = at.and_then(|at| at.checked_sub(1));
                    }
                }
            }
        }
        assert_eq!(standing(&cursor), at.map(|at| entries[at].clone()));
    }
}

fn check_gets(table: &Table, entries: &[Entry], random: &mut Random) {
    let mut stats = ReadStats::default();
    let some_seqno = entries.get(random.below(entries.len().max(1))).map_or(0, |e| e.seqno);
    let seqnos = [MAX_SEQNO, some_seqno, some_seqno.saturating_sub(1), some_seqno / 256, 0];
    for seqno in seqnos {
        let model = model_at(entries, seqno);
        let mut keys: Vec<Vec<u8>> = entries.iter().map(|entry| entry.key.clone()).collect();
        keys.extend((0..50).map(|_| random_key(random)));
        keys.sort();
        let requests: Vec<Request<'_>> = keys
            .iter()
            .map(|key| Request { table: 0, key, hash: trommel_filter::hash(key), seqno })
            .collect();
        let mut many = Vec::new();
        let collect = |nth, answer| {
            assert_eq!(nth, many.len(), "answers come in the order of requests");
            many.push(answer);
        };
        get_many(|_| Some(table), &requests, &mut stats, collect).unwrap();
        assert_eq!(many.len(), requests.len());
        for (request, answer) in requests.iter().zip(many) {
            let got = table.get(request.key, request.hash, seqno, &mut stats).unwrap();
            assert_eq!(got, answer, "get and get_many agree");
            let got = got.map(|found| (found.seqno, found.kind, found.value.to_vec()));
            let want = model.get(request.key).map(|e| (e.seqno, e.kind, e.value.clone()));
            assert_eq!(got, want, "key {:?} at {seqno}", request.key);
            let verdict = table.filters().query(request.key, request.hash);
            assert!(verdict.maybe || want.is_none());
        }
    }
}

#[test]
fn random_tables_come_back_unchanged() {
    let mut random = Random(1);
    let filters = ["none", "standard:10", "blocked:12", "paired:16"];
    for round in 0..60 {
        let keys = [0, 1, 2, 17, 300, 1500][random.below(6)];
        let value_limit = [0, 10, 300][random.below(3)];
        let entries = random_entries(&mut random, keys, value_limit);
        let block = [64, 100, 512, 4096, 70_000, 1 << 20][random.below(6)];
        let compression = if round % 2 == 0 { Compression::None } else { Compression::Lz4 };
        let mut options = options(block, compression, filters[round % 4]);
        options.index_leaf_bytes = [64, 300, 4096, 1 << 20][random.below(4)];
        options.block_align = round % 3 == 0;
        let table = InMemory::new(options, &entries);
        let opened = table.open().unwrap();
        assert_eq!(table.summary.contents.entries, entries.len() as u64);
        assert_eq!(opened.properties().engine, b"the engine's own");
        if round % 4 > 0 {
            assert_eq!(*opened.filters().check().unwrap(), FilterState::Loaded);
        } else {
            assert_eq!(*opened.filters().check().unwrap(), FilterState::Absent);
        }
        check_all(&opened, &entries, &mut random);
        let mapped = open(&table.vfs, &table.path, Access::Mapped, &BlockCache::new(1 << 20));
        check_trusting(&mapped.unwrap(), &entries, &mut random);
    }
}

#[test]
fn all_access_modes_read_a_file_identically() {
    let mut random = Random(2);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("7.sst");
    let none = Compression::None;
    for (compression, block_align) in [(none, false), (none, true), (Compression::Lz4, false)] {
        let entries = random_entries(&mut random, 1500, 200);
        let vfs = DiskVfs;
        let options = options(4096, compression, "paired:20");
        build(&vfs, &path, TableOptions { block_align, ..options }, &entries);
        for access in [Access::Buffered, Access::Mapped, Access::Direct] {
            for cache in [0, 20_000, 1 << 22] {
                let table = open(&vfs, &path, access, &BlockCache::new(cache)).unwrap();
                check_all(&table, &entries, &mut random);
                check_trusting(&table, &entries, &mut random);
            }
        }
        vfs.remove(&path).unwrap();
    }
}

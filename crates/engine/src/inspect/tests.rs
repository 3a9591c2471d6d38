//! Inspection of stores with known contents.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_filter::FilterKind;
use trommel_sim::MemoryVfs;
use trommel_sstable::FilterState;
use trommel_vfs::Vfs;

use super::{
    Answer, BlockSums, Ending, EntryKind as Kind, LiveFile, Log, LogSpanKind, Manifest, Role,
    Table, find, live_files, properties,
};
use crate::BatchOp;
use crate::error::Error;
use crate::{Db, Options, Prefix, WriteBatch};

pub(super) const DIR: &str = "/db";

fn options(vfs: &MemoryVfs, filters: &str) -> Options {
    Options::default()
        .vfs(Arc::new(vfs.clone()))
        .filters(filters.parse().unwrap())
        .reads(|r| r.cache_bytes(1 << 20).block_bytes(256))
        .background_threads(1)
}

fn key(i: u32) -> Vec<u8> {
    format!("key {i:04}").into_bytes()
}

/// A store with one table in a deeper level (keys 0 to 99 except every third), one in level 0 (key
/// 30 again, 31 deleted, 200), and key 30 once more and 31 set again in its log.
pub(super) fn store(vfs: &MemoryVfs, filters: &str) -> Db {
    let db = Db::open(DIR, options(vfs, filters)).unwrap();
    for i in (0..100).filter(|i| i % 3 != 0 || *i == 30) {
        db.put(key(i), format!("value {i}")).unwrap();
    }
    db.flush().unwrap();
    db.compact_all().unwrap();
    db.pause_compaction().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(key(30), b"second").delete(key(31)).put(key(200), b"far");
    db.write(batch).unwrap();
    db.flush().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(key(30), b"third one").put(key(31), b"");
    db.write(batch).unwrap();
    db
}

pub(super) fn files(vfs: &dyn Vfs, role: Role) -> Vec<PathBuf> {
    let all = live_files(vfs, Path::new(DIR)).unwrap();
    all.into_iter().filter(|file| file.role == role && file.live).map(|file| file.path).collect()
}

#[test]
fn a_table_reports_its_contents() {
    let vfs = MemoryVfs::new();
    let db = store(&vfs, "paired:12");
    let store = properties(&vfs, Path::new(DIR)).unwrap();
    assert_eq!(store.tables.len(), 2);
    for table in &store.tables {
        let (info, meta) = (table.info.as_ref().unwrap(), &table.listed.meta);
        let expected = match table.listed.level {
            0 => (3, 1, 3, key(30), key(200)),
            _ => (67, 0, 67, key(1), key(98)),
        };
        let said = info.properties.clone();
        assert_eq!(
            (
                said.contents.entries,
                said.contents.deletions,
                said.contents.keys,
                said.contents.smallest,
                said.contents.largest
            ),
            expected
        );
        assert_eq!((info.footer.table_id, info.file_bytes), (meta.table_id, meta.file_bytes));
        assert_eq!((info.filter.kind, info.filter.keys), (FilterKind::Paired.into(), meta.keys));
        assert_eq!(info.filter.state, FilterState::Loaded);
        let opened = Table::open(&vfs, &info.path).unwrap();
        assert_eq!(opened.listed(&vfs).as_ref(), Some(&table.listed));
        let check = opened.check().unwrap();
        assert_eq!((check.entries, check.keys), (meta.entries, meta.keys));
        let sums = BlockSums::of(&opened.layout().unwrap());
        assert_eq!((sums.blocks, sums.damaged), (info.properties.contents.blocks, 0));
        assert_eq!(sums.stored_bytes, info.footer.data_bytes);
        let entries = opened.scan(Bound::Unbounded, Bound::Unbounded).unwrap();
        let entries: Vec<_> = entries.map(|entry| entry.unwrap()).collect();
        assert_eq!(entries.len() as u64, meta.entries);
        let values: usize = entries.iter().map(|entry| entry.value.len()).sum();
        assert_eq!(sums.value_bytes, values as u64);
    }
    db.close().unwrap();
}

#[test]
fn a_scan_of_a_table_keeps_to_its_bounds() {
    let vfs = MemoryVfs::new();
    let db = store(&vfs, "none");
    let deepest = properties(&vfs, Path::new(DIR)).unwrap().tables.pop().unwrap();
    let table = Table::open(&vfs, &deepest.info.unwrap().path).unwrap();
    let scan = |from: Bound<u32>, to: Bound<u32>| {
        let (from, to) = (from.map(key), to.map(key));
        let from = from.as_ref().map(|key| &**key);
        let entries = table.scan(from, to.as_ref().map(|key| &**key)).unwrap();
        entries.map(|entry| entry.unwrap().key.to_vec()).collect::<Vec<_>>()
    };
    let keys = |numbers: &[u32]| numbers.iter().map(|i| key(*i)).collect::<Vec<_>>();
    assert_eq!(scan(Bound::Included(4), Bound::Included(8)), keys(&[4, 5, 7, 8]));
    assert_eq!(scan(Bound::Excluded(4), Bound::Excluded(8)), keys(&[5, 7]));
    assert_eq!(scan(Bound::Included(9), Bound::Excluded(11)), keys(&[10]));
    assert_eq!(scan(Bound::Included(97), Bound::Unbounded), keys(&[97, 98]));
    assert_eq!(scan(Bound::Unbounded, Bound::Excluded(2)), keys(&[1]));
    assert_eq!(scan(Bound::Included(8), Bound::Included(4)), keys(&[]));
    db.close().unwrap();
}

/// The filter that lookups query is reported: the prefix filter, if the table has no other.
#[test]
fn a_prefix_filter_answers_for_a_table_without_another() {
    let trace = |vfs: &MemoryVfs, key: &str| {
        let trace = find(vfs, Path::new(DIR), key.as_bytes()).unwrap();
        let sightings = trace.sightings.iter().map(|s| (s.filter, s.by_prefix, s.is_wasted()));
        sightings.collect::<Vec<_>>()
    };
    let closure = Prefix::custom("first four", |key| (key.len() >= 4).then_some(4));
    for (prefix, whole_keys, expected, reads) in [
        (Prefix::fixed(4), false, [(Answer::No, true), (Answer::Maybe, true)], 1),
        (Prefix::fixed(4), true, [(Answer::No, false), (Answer::No, false)], 0),
        // Only the store's own program has the closure.
        (closure, false, [(Answer::NotQueried, false); 2], 1),
    ] {
        let vfs = MemoryVfs::new();
        let options = options(&vfs, "paired:16").filtering(|f| f.prefix_extractor(prefix));
        let options = options.filtering(|f| f.whole_key_filters(whole_keys));
        let db = Db::open(DIR, options).unwrap();
        for key in ["aaaa 1", "bbbb 1", "cc", "dddd 1"] {
            db.put(key, "value").unwrap();
        }
        db.compact_all().unwrap();
        for (key, (filter, by_prefix)) in ["bbba 2", "bbbb 2"].iter().zip(expected) {
            assert_eq!(db.get(key).unwrap(), None);
            let is_wasted = filter != Answer::No;
            assert_eq!(trace(&vfs, key), [(filter, by_prefix, is_wasted)], "{key}");
        }
        // A key without a prefix queries no prefix filter.
        let of_short = if whole_keys { Answer::Maybe } else { Answer::NotQueried };
        assert_eq!(trace(&vfs, "cc")[0].0, of_short);
        let stats = db.stats();
        assert_eq!(stats.lookups.block_reads + stats.lookups.cache_hits, reads, "{stats}");
        db.close().unwrap();
    }
}

#[test]
fn a_log_reports_its_contents_and_its_end() {
    let vfs = MemoryVfs::new();
    let db = store(&vfs, "none");
    let path = files(&vfs, Role::Log).pop().unwrap();
    let log = Log::open(&vfs, &path).unwrap();
    let info = log.info().unwrap();
    assert_eq!((info.written.batches, info.written.puts, info.written.deletes), (1, 2, 0));
    assert_eq!(info.seqnos, Some((71, 72)));
    assert_eq!((info.ending, info.store_id), (Ending::Open, db.id()));
    assert_eq!(log.check().unwrap().operations, 2);
    let batch = log.scan().next().unwrap();
    let operations: Vec<_> = batch.operations().map(|operation| operation.unwrap()).collect();
    assert_eq!(operations[0].seqno, 71);
    assert!(
        matches!(operations[0].op, BatchOp::Delete { key: it } | BatchOp::Put { key: it, .. } if *it == *key(30))
    );
    assert!(matches!(operations[1].op, BatchOp::Put { value: b"", .. }));
    db.close().unwrap();
    let log = Log::open(&vfs, &path).unwrap();
    assert_eq!(log.ending(), Ending::Marked { next: 0 });
    let spans = log.layout();
    let kinds: Vec<_> = spans.iter().map(|span| span.kind).collect();
    assert_eq!(kinds, [LogSpanKind::Header, LogSpanKind::Record, LogSpanKind::EndMarker]);
    let mut end = 0;
    for span in &spans {
        assert_eq!(span.offset, end);
        end += span.bytes;
    }
    assert_eq!(end, log.info().unwrap().file_bytes);
}

#[test]
fn a_manifest_holds_the_store_s_history() {
    let vfs = MemoryVfs::new();
    let db = store(&vfs, "none");
    let manifest = Manifest::in_force(&vfs, Path::new(DIR)).unwrap();
    let info = manifest.info().unwrap();
    let levels: Vec<_> = info.contents.tables.iter().map(|table| table.level).collect();
    assert_eq!((levels, info.last_seqno), (vec![0, 1], 70));
    let moments: Vec<_> = manifest.history().map(|moment| moment.unwrap()).collect();
    assert_eq!(moments.len() as u64, info.edits);
    let counts: Vec<u64> = moments.iter().map(|moment| moment.tables.iter().sum()).collect();
    assert_eq!((counts[0], counts.last()), (0, Some(&2)));
    let check = manifest.check().unwrap();
    assert_eq!((check.edits, check.tables), (info.edits, 2));
    let (mut added, mut removed) = (0, 0);
    for edit in manifest.scan() {
        let edit = edit.unwrap();
        (added, removed) = (added + edit.added.len(), removed + edit.removed.len());
    }
    assert_eq!(added - removed, 2);
    assert_eq!(manifest.layout().len() as u64, info.edits + 1);
    assert_eq!(info.ending, Ending::Open);
    db.close().unwrap();
    let manifest = Manifest::in_force(&vfs, Path::new(DIR)).unwrap();
    assert_eq!(manifest.info().unwrap().ending, Ending::Marked { next: 0 });
}

#[test]
fn a_key_is_found_in_every_file_that_holds_a_version() {
    let vfs = MemoryVfs::new();
    let db = store(&vfs, "blocked:12");
    let trace = find(&vfs, Path::new(DIR), &key(30)).unwrap();
    assert!(trace.problems.is_empty());
    let seen: Vec<_> = trace
        .sightings
        .iter()
        .map(|s| (s.level, s.filter, s.reached, s.versions[0].value_bytes))
        .collect();
    let expected = [
        (None, Answer::NotQueried, true, 9),
        (Some(0), Answer::Maybe, false, 6),
        (Some(1), Answer::Maybe, false, 8),
    ];
    assert_eq!(seen, expected);
    assert_eq!(trace.newest().unwrap().seqno, 71);
    let trace = find(&vfs, Path::new(DIR), &key(31)).unwrap();
    let kinds: Vec<_> = trace.sightings.iter().map(|s| s.versions[0].kind).collect();
    assert_eq!(kinds, [Kind::Put, Kind::Delete, Kind::Put]);
    assert!(find(&vfs, Path::new(DIR), b"a").unwrap().sightings.is_empty(), "out of every range");
    db.close().unwrap();
}

#[test]
fn a_missing_key_shows_which_reads_its_filters_save() {
    for (filters, filter) in [("blocked:30", Answer::No), ("none", Answer::NotQueried)] {
        let vfs = MemoryVfs::new();
        let db = store(&vfs, filters);
        let trace = find(&vfs, Path::new(DIR), &key(33)).unwrap();
        assert_eq!(trace.sightings.len(), 2, "both tables' ranges cover it");
        for sighting in &trace.sightings {
            assert_eq!((sighting.filter, sighting.reached), (filter, true));
            assert!(sighting.versions.is_empty());
            assert_eq!(sighting.is_wasted(), filter != Answer::No);
        }
        assert_eq!(trace.newest(), None);
        db.close().unwrap();
    }
}

#[test]
fn roles_and_missing_files_are_reported() {
    let vfs = MemoryVfs::new();
    store(&vfs, "none").close().unwrap();
    let tables = files(&vfs, Role::Table);
    for (name, bytes) in [("notes.txt", &b"x"[..]), ("000900.sst", b"unheard of"), ("7.sst", b"")] {
        vfs.create(&Path::new(DIR).join(name)).unwrap().append(bytes).unwrap();
    }
    let cut = vfs.read(&tables[1], 1 << 20).unwrap();
    vfs.remove(&tables[0]).unwrap();
    vfs.remove(&tables[1]).unwrap();
    vfs.create(&tables[1]).unwrap().append(&cut[1..]).unwrap();
    let listed = live_files(&vfs, Path::new(DIR)).unwrap();
    let of = |path: &Path| listed.iter().find(|file| file.path == path).unwrap();
    let named = |name: &str| of(&Path::new(DIR).join(name));
    let judged = |file: &LiveFile| (file.role, file.live, file.problem.is_some());
    assert_eq!(judged(named("notes.txt")), (Role::Foreign, false, false));
    assert_eq!(judged(named("7.sst")), (Role::Foreign, false, false));
    assert_eq!(judged(named("000900.sst")), (Role::Table, false, false));
    assert_eq!(judged(named("CURRENT")), (Role::Current, true, false));
    assert_eq!(judged(of(&tables[0])), (Role::Table, true, true));
    assert_eq!(of(&tables[0]).bytes, None);
    assert_eq!(judged(of(&tables[1])), (Role::Table, true, true));
    let trace = find(&vfs, Path::new(DIR), &key(40)).unwrap();
    assert_eq!(trace.problems.len(), 2, "{trace:?}");
}

#[test]
fn a_file_of_another_kind_is_rejected_by_its_contents() {
    let vfs = MemoryVfs::new();
    store(&vfs, "none").close().unwrap();
    let dir = Path::new(DIR);
    let sound = vfs.read(&files(&vfs, Role::Log)[0], 1 << 20).unwrap();
    for (name, bytes) in [("empty", &b""[..]), ("text", b"a long text"), ("copy", &sound)] {
        vfs.create(&dir.join(name)).unwrap().append(bytes).unwrap();
    }
    let refused = |name: &str, part: &str| match Table::open(&vfs, &dir.join(name)).unwrap_err() {
        error @ Error::WrongFile { .. } => assert!(error.to_string().contains(part), "{error}"),
        other => panic!("{name}: {other}"),
    };
    refused("", " is not a table: it is a directory");
    refused("empty", "is empty");
    refused("text", "neither begins nor ends like one");
    refused("copy", "is not a table: it is a log");
    assert!(Log::open(&vfs, &dir.join("copy")).unwrap().check().is_ok());
    assert!(matches!(Log::open(&vfs, &dir.join("text")), Err(Error::WrongFile { .. })));
    assert!(matches!(Table::open(&vfs, &dir.join("none")), Err(Error::Io { .. })));
    // A file with a table's name is a corrupt table, whatever is left of it.
    let named = dir.join("000901.sst");
    vfs.create(&named).unwrap().append(b"").unwrap();
    assert!(matches!(Table::open(&vfs, &named).unwrap().check(), Err(Error::Corruption(_))));
    let other = dir.join("000902.log");
    vfs.create(&other).unwrap().append(&sound).unwrap();
    let error = Log::open(&vfs, &other).unwrap().check().unwrap_err();
    assert!(error.to_string().contains("named as file 902"), "{error}");
    for missing in ["/nowhere", "/db/copy"] {
        let error = Manifest::in_force(&vfs, Path::new(missing)).unwrap_err();
        assert!(matches!(error, Error::NotAStore { .. }), "{error}");
    }
}

#[test]
fn a_store_that_is_being_written_is_never_reported_corrupt() {
    let vfs = MemoryVfs::new();
    let options = options(&vfs, "blocked:10").compaction(|c| c.l0_trigger(2).table_bytes(2 << 10));
    let db = Db::open(DIR, options.compaction(|c| c.base_level_bytes(4 << 10))).unwrap();
    db.put(key(7), b"first").unwrap();
    let (done, dir) = (std::sync::atomic::AtomicBool::new(false), Path::new(DIR));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..60 {
                for i in 0..40 {
                    db.put(key(i * 7 % 100), format!("round {round}")).unwrap();
                }
                db.flush().unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            let trace = find(&vfs, dir, &key(7)).unwrap();
            assert!(trace.problems.is_empty() && trace.newest().is_some(), "{trace:?}");
            let store = properties(&vfs, dir).unwrap();
            assert!(store.tables.iter().all(|table| table.info.is_ok()), "{store:?}");
            let files = live_files(&vfs, dir).unwrap();
            assert!(files.iter().all(|file| file.problem.is_none()), "{files:?}");
        }
    });
    db.close().unwrap();
}

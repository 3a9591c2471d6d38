//! Partitioned filters deny no key and have the false-positive rate that they state, wherever they
//! are held. Corruption in them costs only extra reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use trommel_base::MAX_SEQNO;
use trommel_sim::{Failure, Fault, OpKind, SimDisk};
use trommel_sstable::format::BlockKind;
use trommel_sstable::{
    Answers, BlockCache, Compression, Expected, FilterHost, FilterPlan, FilterRole, FilterShape,
    FilterState, PrefixExtractor, ReadStats, Table, TableConfig, TableOptions, Verdict, layout,
};
use trommel_vfs::{Access, DiskVfs, Vfs};

use crate::common::*;
use crate::damage::reseal;

pub(crate) const SHAPES: [FilterShape; 2] = [FilterShape::Whole, FilterShape::Partitioned];

/// The first bytes of a key that is long enough.
#[derive(Debug)]
struct First(usize);

impl PrefixExtractor for First {
    fn name(&self) -> &str {
        "first"
    }

    fn prefix_len(&self, key: &[u8]) -> Option<usize> {
        (key.len() >= self.0).then_some(self.0)
    }
}

/// Lets `limit` bytes be pinned, and records its notifications.
#[derive(Debug)]
pub(crate) struct Host {
    limit: u64,
    pinned: AtomicU64,
    most: AtomicU64,
    faults: AtomicU64,
    not_held: AtomicU64,
}

impl Host {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Self { limit, pinned: zero(), most: zero(), faults: zero(), not_held: zero() })
    }
}

impl FilterHost for Host {
    fn pin(&self, bytes: u64) -> bool {
        let fits = |pinned: u64| pinned.checked_add(bytes).filter(|pinned| *pinned <= self.limit);
        let before = self.pinned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        if let Ok(before) = before {
            self.most.fetch_max(before + bytes, Ordering::Relaxed);
        }
        before.is_ok()
    }

    fn unpin(&self, bytes: u64) {
        self.pinned.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn not_held(&self) {
        self.not_held.fetch_add(1, Ordering::Relaxed);
    }

    fn unusable(&self, _: &FilterState) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn plan(keys: &str, prefixes: Option<(&str, usize)>, shape: FilterShape) -> FilterPlan {
    FilterPlan {
        keys: keys.parse().unwrap(),
        prefixes: prefixes.map(|(spec, len)| {
            (spec.parse().unwrap(), Arc::new(First(len)) as Arc<dyn PrefixExtractor>)
        }),
        shape,
        partition_bytes: 256,
        ..FilterPlan::default()
    }
}

pub(crate) fn shaped(plan: FilterPlan, leaf_bytes: usize) -> TableOptions {
    TableOptions {
        filters: plan,
        index_leaf_bytes: leaf_bytes,
        block_align: leaf_bytes < 1000,
        ..options(256, Compression::None, "none")
    }
}

fn open_with(
    vfs: &dyn Vfs,
    table: &InMemory,
    access: Access,
    cache: &Arc<BlockCache>,
    host: Option<Arc<Host>>,
) -> Arc<Table> {
    let file = vfs.open(&table.path, access).unwrap();
    let expected = Expected { file_bytes: file.bytes(), table_id: TABLE_ID };
    let filter_host = host.map(|host| host as Arc<dyn FilterHost>);
    let config = TableConfig { cache: Arc::clone(cache), access, filter_host };
    Arc::new(Table::open(file, &table.path, expected, &config).unwrap())
}

/// Every key and prefix of the table gets a "maybe", from every kind of query.
fn denies_nothing(table: &Table, entries: &[Entry], prefix: Option<usize>, context: &str) {
    let filters = table.filters();
    let mut stats = ReadStats::default();
    let model = model_at(entries, MAX_SEQNO);
    for (key, entry) in &model {
        let hash = trommel_filter::hash(key);
        assert!(filters.query(key, hash).maybe, "{context}: {key:?}");
        let found = table.get(key, hash, MAX_SEQNO, &mut stats).unwrap().unwrap();
        assert_eq!((found.seqno, &*found.value), (entry.seqno, &*entry.value), "{context}");
        if let Some(prefix) = prefix.and_then(|len| key.get(..len)) {
            let hash = trommel_filter::hash(prefix);
            assert!(filters.query_prefix(prefix, hash, "first").maybe, "{context}: {prefix:?}");
        }
    }
    let keys: Vec<&[u8]> = model.keys().copied().collect();
    let hashes: Vec<u64> = keys.iter().map(|key| trommel_filter::hash(key)).collect();
    let together = query_many(table, &keys, &hashes);
    assert!(together.iter().all(|verdict| verdict.maybe), "{context}");
}

/// The verdicts of the table's filter on all keys, queried in one call.
pub(crate) fn query_many(table: &Table, keys: &[&[u8]], hashes: &[u64]) -> Vec<Verdict> {
    let mut answers = Answers::default();
    table.filters().query_many(keys, hashes, &mut answers);
    let of_run = |(_, verdict, maybe): (_, Verdict, &[bool])| -> Vec<Verdict> {
        maybe.iter().map(|maybe| Verdict { maybe: *maybe, ..verdict }).collect()
    };
    answers.runs().flat_map(of_run).collect()
}

#[test]
fn no_key_and_no_prefix_is_denied_in_any_shape_and_place() {
    let mut random = Random(41);
    for round in 0..6 {
        // Many versions of one key straddle blocks and partitions; "aaa..." is a prefix of many
        // keys.
        let entries = random_entries(&mut random, 400, 60);
        for shape in SHAPES {
            let leaf_bytes = if round % 2 == 0 { 64 } else { 1 << 16 };
            let prefix = [None, Some(1), Some(4)][round % 3];
            let keys = if round == 5 { "none" } else { "paired:12" };
            let plan = plan(keys, prefix.map(|len| ("blocked:10", len)), shape);
            let table = InMemory::new(shaped(plan, leaf_bytes), &entries);
            for (pinned, cache) in [(u64::MAX, 0), (0, 1 << 20), (2000, 1 << 20), (0, 4000), (0, 0)]
            {
                let context = format!("{shape:?}, {prefix:?}, {pinned} pinned, cache of {cache}");
                let (host, cache) = (Host::new(pinned), BlockCache::new(cache));
                let opened = open_with(
                    &table.vfs,
                    &table,
                    Access::Buffered,
                    &cache,
                    Some(Arc::clone(&host)),
                );
                let held = || (opened.filters().pinned_bytes(), cache.stats().filter_bytes);
                assert_eq!(held(), (0, 0), "{context}: nothing is read at open");
                denies_nothing(&opened, &entries, prefix, &context);
                assert_eq!(*opened.filters().check().unwrap(), FilterState::Loaded, "{context}");
                opened.verify().unwrap();
                let (own, cached) = held();
                assert_eq!(own, host.pinned.load(Ordering::Relaxed), "{context}");
                assert!(host.most.load(Ordering::Relaxed) <= pinned, "{context}");
                assert!(cached <= cache.stats().capacity_bytes, "{context}");
                if pinned == u64::MAX {
                    assert!(own > 0 && cached == 0, "{context}");
                }
                opened.evict();
                drop(opened);
                let left = (host.pinned.load(Ordering::Relaxed), cache.stats().filter_bytes);
                assert_eq!(left, (0, 0), "{context}: all is given back");
                assert_eq!(host.faults.load(Ordering::Relaxed), 0, "{context}");
            }
        }
    }
}

#[test]
fn shapes_are_identical_on_disk_in_every_read_mode() {
    let dir = tempfile::tempdir().unwrap();
    let entries = random_entries(&mut Random(5), 3000, 30);
    for shape in SHAPES {
        let path = dir.path().join("1.sst");
        let plan = plan("blocked:10", Some(("blocked:10", 4)), shape);
        let summary = build(&DiskVfs, &path, shaped(plan, 1 << 16), &entries);
        let table = InMemory { vfs: trommel_sim::MemoryVfs::new(), path, summary };
        for access in [Access::Buffered, Access::Mapped, Access::Direct] {
            for pinned in [u64::MAX, 0] {
                let (host, cache) = (Host::new(pinned), BlockCache::new(1 << 20));
                let opened = open_with(&DiskVfs, &table, access, &cache, Some(host));
                let context = format!("{shape:?}, {access:?}, {pinned} pinned");
                denies_nothing(&opened, &entries, Some(4), &context);
            }
        }
        DiskVfs.remove(&table.path).unwrap();
    }
}

#[test]
fn false_positives_match_the_stated_rate() {
    let entries: Vec<Entry> =
        (0..40_000).map(|i| put(format!("key{:08}", i * 10), i, vec![b'v'; 20])).collect();
    for shape in SHAPES {
        let plan = FilterPlan { partition_bytes: 4096, ..plan("blocked:10", None, shape) };
        let mut options = shaped(plan, 1 << 16);
        options.block_bytes = 4096;
        let table = InMemory::new(options, &entries).open().unwrap();
        let facts = table.filters().facts();
        let (mut queries, mut passed, mut expected) = (0_u32, 0_u32, 0.0);
        for i in (0..39_999).flat_map(|i| (1..10).map(move |below| i * 10 + below)) {
            let key = format!("key{i:08}");
            let verdict =
                table.filters().query(key.as_bytes(), trommel_filter::hash(key.as_bytes()));
            assert_eq!(verdict.kind, facts.kind);
            queries += 1;
            passed += u32::from(verdict.maybe);
            expected += verdict.expected;
        }
        // About 3,500 are expected: a standard error of 2% within the filters, and of 1% between
        // them.
        let (passed, said) = (f64::from(passed), facts.expected * f64::from(queries));
        assert!((passed / expected - 1.0).abs() < 0.08, "{shape:?}: {passed} for {expected}");
        assert!((said / expected - 1.0).abs() < 0.02, "{shape:?}: {said} for {expected}");
        assert_eq!(facts.keys, 40_000);
        assert!((facts.bits_stored - 10.0).abs() < 1.5, "{shape:?}: {}", facts.bits_stored);
    }
}

#[test]
fn every_flipped_bit_of_partitions_and_tops_is_a_maybe_and_verify_finds_it() {
    let entries: Vec<Entry> =
        (0..120).map(|i| put(format!("key{i:04}"), i, vec![b'v'; 10])).collect();
    for shape in [FilterShape::Partitioned] {
        let plan = plan("blocked:20", Some(("blocked:20", 6)), shape);
        let table = InMemory::new(shaped(plan, 1 << 16), &entries);
        let bytes = table.bytes();
        let file = table.vfs.open(&table.path, Access::Buffered).unwrap();
        let blocks = layout(&file, &table.path).unwrap();
        let region: Vec<_> = blocks
            .iter()
            .filter(|block| matches!(block.kind, BlockKind::Filter | BlockKind::FilterTop))
            .collect();
        let count = |kind| region.iter().filter(|block| block.kind == kind).count();
        assert_eq!(count(BlockKind::FilterTop), 2, "{shape:?}");
        assert!(count(BlockKind::Filter) > 2, "{shape:?}");
        assert!(region.iter().all(|block| block.content.is_ok()));
        for (block, at) in
            region.iter().flat_map(|b| (b.offset..b.offset + b.bytes).map(move |at| (b, at)))
        {
            let mut flipped = bytes.clone();
            flipped[at as usize] ^= 1 << (at % 8);
            let context =
                format!("{shape:?}: byte {at} of the {:?} at {}", block.kind, block.offset);
            let damaged = InMemory::of_bytes(&flipped);
            let host = Host::new(if at % 2 == 0 { u64::MAX } else { 0 });
            let cache = BlockCache::new(1 << 20);
            let opened = open_with(
                &damaged.vfs,
                &damaged,
                Access::Buffered,
                &cache,
                Some(Arc::clone(&host)),
            );
            assert_eq!(*opened.filters().state(), FilterState::Loaded, "{context}");
            denies_nothing(&opened, &entries, Some(6), &context);
            let state = opened.filters().state();
            assert!(matches!(state, FilterState::Damaged(_)), "{context}: {state:?}");
            assert_eq!(host.faults.load(Ordering::Relaxed), 1, "{context}");
            let error = opened.verify().unwrap_err().to_string();
            assert!(error.contains("the filter cannot be used"), "{context}: {error}");
        }
    }
}

/// A corrupt partition affects only its own keys, and a batched query returns the same verdicts as
/// single ones.
#[test]
fn batched_and_single_queries_agree() {
    let entries: Vec<Entry> =
        (0..600).map(|i| put(format!("key{i:04}"), i, vec![b'v'; 10])).collect();
    let absent = entries.iter().map(|entry| [&*entry.key, b"x"].concat());
    let mut keys: Vec<Vec<u8>> =
        entries.iter().map(|entry| entry.key.clone()).chain(absent).collect();
    keys.extend([Vec::new(), vec![0xff; 9]]);
    keys.sort();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
    let hashes: Vec<u64> = keys.iter().map(|key| trommel_filter::hash(key)).collect();
    for shape in SHAPES {
        let table = InMemory::new(shaped(plan("blocked:12", None, shape), 1 << 16), &entries);
        let whole = table.bytes();
        let file = table.vfs.open(&table.path, Access::Buffered).unwrap();
        let blocks = layout(&file, &table.path).unwrap();
        let of_kind = |kind| blocks.iter().filter(move |block| block.kind == kind);
        let damaged: Vec<_> = [None]
            .into_iter()
            .chain(of_kind(BlockKind::Filter).step_by(2).map(Some))
            .chain(of_kind(BlockKind::FilterTop).map(Some))
            .collect();
        for lost in damaged {
            let mut bytes = whole.clone();
            if let Some(block) = lost {
                bytes[(block.offset + block.bytes / 2) as usize] ^= 1;
            }
            let made = InMemory::of_bytes(&bytes);
            for (pinned, cache) in [(u64::MAX, 0), (0, 1 << 20), (700, 0), (0, 0)] {
                let (host, cache) = (Host::new(pinned), BlockCache::new(cache));
                let opened = open_with(&made.vfs, &made, Access::Buffered, &cache, Some(host));
                let together = query_many(&opened, &keys, &hashes);
                let query = |(key, hash): (&&[u8], &u64)| opened.filters().query(key, *hash);
                let alone: Vec<Verdict> = keys.iter().zip(&hashes).map(query).collect();
                assert_eq!(together, alone, "{shape:?}, {pinned} pinned, {lost:?}");
                let unfiltered =
                    together.iter().filter(|verdict| **verdict == Verdict::UNFILTERED).count();
                let is_piece = lost.is_some_and(|block| block.kind == BlockKind::Filter);
                if pinned == u64::MAX && is_piece && shape != FilterShape::Whole {
                    assert!(
                        unfiltered > 0 && unfiltered < keys.len() / 2,
                        "{shape:?}: {unfiltered}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_directory_describes_the_parts() {
    let entries: Vec<Entry> =
        (0..500).map(|i| put(format!("key{i:04}"), i, vec![b'v'; 10])).collect();
    let shape = FilterShape::Partitioned;
    let plan = plan("paired:12", Some(("blocked:10", 6)), shape);
    let table = InMemory::new(shaped(plan, 64), &entries);
    let opened = table.open().unwrap();
    let keys = opened.filters().keys_part().unwrap();
    assert_eq!((keys.role, keys.shape, &*keys.spec), (FilterRole::Keys, shape, "paired:12"));
    assert_eq!(keys.keys, 500);
    assert!(keys.top_bytes > 0 && keys.top_bytes < keys.bytes);
    let prefixes = opened.filters().prefixes_part().unwrap();
    assert_eq!((prefixes.role, &*prefixes.extractor), (FilterRole::Prefixes, "first"));
}

/// A table of 120 keys with a filter of keys and one of prefixes: its entries, its bytes, its
/// blocks, and the offset of the directory field: tag and length, then the number of parts, the
/// role and the shape of the first.
fn with_directory(shape: FilterShape) -> (Vec<Entry>, Vec<u8>, Vec<BlockAt>, usize) {
    let entries: Vec<Entry> =
        (0..120).map(|i| put(format!("key{i:04}"), i, vec![b'v'; 10])).collect();
    let plan = plan("blocked:20", Some(("blocked:20", 6)), shape);
    let table = InMemory::new(shaped(plan, 1 << 16), &entries);
    let whole = table.bytes();
    let file = table.vfs.open(&table.path, Access::Buffered).unwrap();
    let listed = layout(&file, &table.path).unwrap();
    let blocks: Vec<_> = listed
        .iter()
        .filter(|block| block.kind != BlockKind::Footer)
        .map(|block| (block.offset as usize, block.bytes as usize, block.kind))
        .collect();
    let properties = blocks.iter().find(|block| block.2 == BlockKind::Properties).unwrap().0;
    let start = |at: &usize| whole[*at] == 14 && whole[at + 2..at + 5] == [2, 0, shape as u8];
    let directory = (properties..whole.len() - 5).find(start).unwrap();
    (entries, whole, blocks, directory)
}

/// Offset and length of a block.
type BlockAt = (usize, usize, BlockKind);

#[test]
fn a_part_of_another_number_of_keys_is_corruption() {
    for shape in SHAPES {
        let (_, mut bytes, blocks, directory) = with_directory(shape);
        let keys = directory + 5 + size_of::<f64>();
        assert_eq!(bytes[keys], 120);
        bytes[keys] = 119;
        reseal(&mut bytes, &blocks);
        let error = InMemory::of_bytes(&bytes).open().unwrap().verify().unwrap_err();
        assert!(error.to_string().contains("another number of keys"), "{shape:?}: {error}");
    }
}

/// An unknown part of a later version does not affect the known parts.
#[test]
fn an_unknown_part_is_ignored_and_the_others_are_used() {
    for shape in SHAPES {
        let (entries, whole, blocks, directory) = with_directory(shape);
        let second = (directory + 5..whole.len()).find(|at| whole[*at..at + 2] == [1, shape as u8]);
        let later = [(directory + 3, 3), (directory + 4, 9), (second.unwrap(), 3)];
        for (nth, (at, value)) in later.into_iter().enumerate() {
            let mut bytes = whole.clone();
            bytes[at] = value;
            reseal(&mut bytes, &blocks);
            let made = InMemory::of_bytes(&bytes);
            let (host, cache) = (Host::new(u64::MAX), BlockCache::new(0));
            let opened =
                open_with(&made.vfs, &made, Access::Buffered, &cache, Some(Arc::clone(&host)));
            denies_nothing(&opened, &entries, Some(6), "later");
            let filters = opened.filters();
            let by_key = filters.query(b"key0050x", trommel_filter::hash(b"key0050x"));
            let by_prefix =
                filters.query_prefix(b"key00:", trommel_filter::hash(b"key00:"), "first");
            let context = format!("{shape:?}, byte {at}");
            assert_eq!((by_key.maybe, by_prefix.maybe), (nth < 2, nth == 2), "{context}");
            let state = filters.check().unwrap();
            assert!(matches!(state, FilterState::Unknown(_)), "{context}: {state:?}");
            assert_eq!(host.faults.load(Ordering::Relaxed), 1, "{context}: reported once");
            assert!(opened.verify().unwrap().foreign_filter, "{context}");
            let file = made.vfs.open(&made.path, Access::Buffered).unwrap();
            let listed = layout(&file, &made.path).unwrap();
            assert!(listed.iter().all(|block| block.content.is_ok()), "{context}");
        }
        // With the same role twice, the choice between them would be arbitrary.
        let mut bytes = whole.clone();
        bytes[second.unwrap()] = 0;
        reseal(&mut bytes, &blocks);
        let opened = InMemory::of_bytes(&bytes).open().unwrap();
        denies_nothing(&opened, &entries, Some(6), "twice");
        let state = opened.filters().state();
        assert!(matches!(state, FilterState::Damaged(_)), "{shape:?}: {state:?}");
        assert!(opened.verify().is_err());
    }
}

/// A single failed read of a filter says nothing about the filter, which is not marked as unusable.
#[test]
fn a_read_that_fails_once_costs_one_answer() {
    let entries: Vec<Entry> =
        (0..500).map(|i| put(format!("key{i:04}"), i, vec![b'v'; 10])).collect();
    for (shape, pinned) in SHAPES.into_iter().flat_map(|shape| [(shape, u64::MAX), (shape, 0)]) {
        let context = format!("{shape:?}, {pinned} pinned");
        let table = InMemory::new(shaped(plan("blocked:20", None, shape), 1 << 16), &entries);
        let disk = SimDisk::new();
        let mut file = disk.create(&table.path).unwrap();
        file.append(&table.bytes()).unwrap();
        drop(file);
        let (host, cache) = (Host::new(pinned), BlockCache::new(1 << 20));
        let opened = open_with(&disk, &table, Access::Buffered, &cache, Some(Arc::clone(&host)));
        let query = || opened.filters().query(b"key0250x", trommel_filter::hash(b"key0250x"));
        disk.inject(Fault::new(Failure::Io).on(OpKind::Read));
        assert_eq!(query(), Verdict::UNFILTERED, "{context}");
        assert_eq!(*opened.filters().state(), FilterState::Loaded, "{context}");
        assert_eq!(host.faults.load(Ordering::Relaxed), 0, "{context}");
        assert!(!query().maybe, "{context}: it is read again");
        opened.verify().unwrap();
    }
}

#[test]
fn a_filter_that_can_be_held_nowhere_is_reported_once() {
    let entries: Vec<Entry> =
        (0..500).map(|i| put(format!("key{i:04}"), i, vec![b'v'; 10])).collect();
    let table =
        InMemory::new(shaped(plan("paired:12", None, FilterShape::Whole), 1 << 16), &entries);
    for (pinned, cache, is_held) in [(u64::MAX, 0, true), (0, 1 << 20, true), (0, 1000, false)] {
        let (host, cache) = (Host::new(pinned), BlockCache::new(cache));
        let opened =
            open_with(&table.vfs, &table, Access::Buffered, &cache, Some(Arc::clone(&host)));
        denies_nothing(&opened, &entries, None, "whole");
        let facts = opened.filters().facts();
        assert_eq!((facts.keys, facts.is_held), (500, is_held), "{pinned} pinned, {cache:?}");
        assert_eq!(host.not_held.load(Ordering::Relaxed), u64::from(!is_held));
    }
}

//! Tables written by earlier versions stay readable.
//!
//! `tests/golden/NAME.sst` is a table, `NAME.txt` its contents. They are never rewritten: a new
//! version of the format gets additional files. Run the test with `TROMMEL_WRITE_GOLDEN=1` to
//! create a missing one.

use std::fmt::{self, Write};
use std::path::{Path, PathBuf};

use trommel_base::{Cursor, EntryKind, MAX_SEQNO};
use trommel_filter::HashSeed;
use trommel_sstable::{
    BlockCache, Compression, FilterShape, FilterState, Properties, ReadStats, ScanOptions, Table,
    TableOptions,
};
use trommel_vfs::{Access, DiskVfs, Vfs};

use crate::common::*;

/// Name, filter, compression, block limit, leaf limit.
const GOLDEN: [(&str, &str, Compression, usize, usize); 12] = [
    ("v1-plain-one-level", "none", Compression::None, 512, 32 << 10),
    ("v1-standard-two-level", "standard:10", Compression::None, 128, 128),
    ("v1-blocked-lz4-one-level", "blocked:12", Compression::Lz4, 1024, 32 << 10),
    ("v1-paired-lz4-two-level", "paired:16", Compression::Lz4, 256, 128),
    ("v1-partitioned-filter", "blocked:64", Compression::None, 128, 128),
    ("v1-filters-per-block", "standard:12", Compression::None, 128, 32 << 10),
    ("v1-blocked-2-lz4-one-level", "blocked:12", Compression::Lz4, 1024, 32 << 10),
    ("v1-paired-2-lz4-two-level", "paired:16", Compression::Lz4, 256, 128),
    ("v1-partitioned-filter-2", "blocked:64", Compression::None, 128, 128),
    (ALIGNED, "none", Compression::None, 512, 32 << 10),
    (MERGES, "none", Compression::None, 512, 32 << 10),
    (SEEDED, "standard:10", Compression::None, 512, 32 << 10),
];

/// A table with padded blocks and enough entries to have some.
const ALIGNED: &str = "v1-padded";

/// A table with merge operands.
const MERGES: &str = "v1-merges";

/// A table whose keys are hashed with a seed.
const SEEDED: &str = "v1-hash-seed";

/// Tables whose filters have a version or a shape that is no longer read: they answer "maybe".
const WITHOUT_FILTERS: [&str; 4] = [
    "v1-blocked-lz4-one-level",
    "v1-paired-lz4-two-level",
    "v1-partitioned-filter",
    "v1-filters-per-block",
];

/// The shape of each table's filters.
const SHAPES: [FilterShape; GOLDEN.len()] = [
    FilterShape::Whole,
    FilterShape::Whole,
    FilterShape::Whole,
    FilterShape::Whole,
    FilterShape::Partitioned,
    FilterShape::Partitioned,
    FilterShape::Whole,
    FilterShape::Whole,
    FilterShape::Partitioned,
    FilterShape::Whole,
    FilterShape::Whole,
    FilterShape::Whole,
];

fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Every kind of entry that the format distinguishes.
fn golden_entries() -> Vec<Entry> {
    let mut entries = vec![put(b"", 40, b"the empty key"), put(b"", 12, b"")];
    entries
        .extend((0..30).map(|i| put(format!("user:{:04}", i * 7), 100 + i, format!("name {i}"))));
    entries.extend((0..20).map(|i| put(b"versions", 1000 - i, format!("version {i}"))));
    for (i, key) in [&b"\x00"[..], b"\x00\x00", b"\xff", b"\xff\xff\xff"].into_iter().enumerate() {
        let kind = EntryKind::Delete;
        entries.push(Entry { key: key.to_vec(), seqno: i as u64, kind, value: Vec::new() });
    }
    entries.push(put(b"large", 7, b"0123456789".repeat(90)));
    entries.push(put(b"long key ".repeat(30), MAX_SEQNO, b"newest"));
    sorted(entries)
}

fn entries_of(index: usize) -> Vec<Entry> {
    let mut entries = golden_entries();
    if GOLDEN[index].0 == ALIGNED {
        let more = (0..80).map(|i| put(format!("more:{i:03}"), 7, [b'v'; 100]));
        entries.extend(more);
    }
    if GOLDEN[index].0 == MERGES {
        let operand = |key: &[u8], seqno, value: String| Entry {
            kind: EntryKind::Merge,
            ..put(key, seqno, value)
        };
        entries.extend((0..20).map(|i| operand(b"versions", 2000 - i, format!("operand {i}"))));
        entries.extend((0..9).map(|i| operand(b"operands", 50 + i, "o".repeat(i as usize))));
    }
    sorted(entries)
}

/// Properties as the golden files list them: without groups.
struct Ungrouped<'a>(&'a Properties);

impl fmt::Debug for Ungrouped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Properties { contents, block_bytes, compression, filter, engine, filters, hash_seed } =
            self.0;
        let mut listed = f.debug_struct("Properties");
        listed
            .field("entries", &contents.entries)
            .field("deletions", &contents.deletions)
            .field("keys", &contents.keys)
            .field("smallest", &contents.smallest)
            .field("largest", &contents.largest)
            .field("min_seqno", &contents.min_seqno)
            .field("max_seqno", &contents.max_seqno)
            .field("blocks", &contents.blocks)
            .field("raw_bytes", &contents.raw_bytes)
            .field("block_bytes", block_bytes)
            .field("compression", compression)
            .field("filter", filter)
            .field("engine", engine)
            .field("filters", filters);
        if *hash_seed != HashSeed::NONE {
            listed.field("hash_seed", &hash_seed.word());
        }
        listed.finish()
    }
}

/// A table as text: its properties, then its entries.
fn transcript(table: &std::sync::Arc<Table>) -> String {
    let mut text = format!("{:#?}\n", Ungrouped(table.properties()));
    let mut cursor = table.cursor(ScanOptions::default());
    cursor.seek_to_first().unwrap();
    while let Some(entry) = cursor.entry() {
        let (key, value) = (entry.key.escape_ascii(), entry.value.escape_ascii());
        writeln!(text, "\"{key}\" {} {:?} \"{value}\"", entry.seqno, entry.kind).unwrap();
        cursor.next().unwrap();
    }
    text
}

fn golden_options(index: usize) -> TableOptions {
    let (name, filter, compression, block, leaf) = GOLDEN[index];
    let mut options =
        TableOptions { index_leaf_bytes: leaf, ..options(block, compression, filter) };
    // Several partitions of a few keys.
    (options.filters.shape, options.filters.partition_bytes) = (SHAPES[index], 256);
    options.block_align = name == ALIGNED;
    if name == SEEDED {
        options.hash_seed = HashSeed::new(0x0123_4567_89ab_cdef);
    }
    options
}

fn write_missing(index: usize) {
    let name = GOLDEN[index].0;
    let path = golden_path(&format!("{name}.sst"));
    if std::env::var_os("TROMMEL_WRITE_GOLDEN").is_none() || path.exists() {
        return;
    }
    build(&DiskVfs, &path, golden_options(index), &entries_of(index));
    let table = open(&DiskVfs, &path, Access::Buffered, &BlockCache::new(0)).unwrap();
    std::fs::write(path.with_extension("txt"), transcript(&table)).unwrap();
}

#[test]
fn tables_of_earlier_versions_keep_their_contents() {
    for (index, (name, filter, ..)) in GOLDEN.into_iter().enumerate() {
        write_missing(index);
        let path = golden_path(&format!("{name}.sst"));
        let expected = std::fs::read_to_string(path.with_extension("txt")).unwrap();
        for access in [Access::Buffered, Access::Mapped, Access::Direct] {
            let table = open(&DiskVfs, &path, access, &BlockCache::new(0)).unwrap();
            assert_eq!(transcript(&table), expected, "{name}");
            table.verify().unwrap();
            let state = table.filters().check().unwrap();
            if WITHOUT_FILTERS.contains(&name) {
                assert!(matches!(state, FilterState::Unknown(_)), "{name}: {state:?}");
            } else {
                let unfiltered = filter == "none";
                let wanted = if unfiltered { FilterState::Absent } else { FilterState::Loaded };
                assert_eq!(*state, wanted, "{name}");
            }
            let mut stats = ReadStats::default();
            for entry in entries_of(index) {
                let hash = table.hash_seed().hash(&entry.key);
                let found = table.get(&entry.key, hash, entry.seqno, &mut stats).unwrap();
                assert_eq!(found.unwrap().value, entry.value);
                assert!(table.filters().query(&entry.key, hash).maybe);
            }
        }
    }
}

/// Detects an unintended change of the format. (Tables that depend on choices of the filters or the
/// compressor are left out, as those may change.)
#[test]
fn todays_builder_writes_the_same_bytes() {
    for (index, (name, ..)) in GOLDEN.into_iter().enumerate() {
        if !["v1-plain-one-level", ALIGNED, MERGES, SEEDED].contains(&name) {
            continue;
        }
        let golden = DiskVfs.read(&golden_path(&format!("{name}.sst")), 1 << 20).unwrap();
        let today = InMemory::new(golden_options(index), &entries_of(index)).bytes();
        assert!(today == golden, "the format has changed: give it a new version ({name})");
    }
}

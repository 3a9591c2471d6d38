//! Entries to a table and back: every entry, for any keys, options and filters.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use trommel_base::{Cursor, EntryKind, SeqNo};
use trommel_filter::hash;
use trommel_sim::MemoryVfs;
use trommel_sstable::{
    BlockCache, Compression, Expected, FilterPlan, FilterShape, ReadStats, ScanOptions, Table,
    TableBuilder, TableConfig, TableOptions,
};
use trommel_vfs::{Access, Vfs};

/// Maximum number of entries in an input.
const MOST_ENTRIES: usize = 400;

/// Entries in internal order: the newest version of a key first.
type Entries = BTreeMap<(Vec<u8>, u64), (EntryKind, Vec<u8>)>;

fn options(a: u8, b: u8) -> TableOptions {
    let specs = ["none", "paired:16", "standard:8", "ribbon:10", "blocked:12"];
    let shapes = [FilterShape::Whole, FilterShape::Partitioned];
    let filters = FilterPlan {
        keys: specs[usize::from(a) % specs.len()].parse().expect("a spec"),
        shape: shapes[usize::from(b) % 2],
        partition_bytes: 256,
        ..FilterPlan::default()
    };
    TableOptions {
        block_bytes: [64, 100, 512, 4096][usize::from(a >> 6)],
        block_align: b & 0x20 != 0,
        compression: if b & 0x80 == 0 { Compression::None } else { Compression::Lz4 },
        index_leaf_bytes: if b & 0x40 == 0 { 64 } else { 32 << 10 },
        filters,
        ..TableOptions::new(0x00ff_00ff_1234)
    }
}

/// Each entry uses a few bytes of the input for its key, its value and its sequence number.
fn entries(input: &[u8]) -> Entries {
    let mut entries = Entries::new();
    let mut rest = input;
    while let Some(([lengths, seqno, fill], more)) = rest.split_first_chunk::<3>() {
        if entries.len() == MOST_ENTRIES {
            break;
        }
        let (key, more) = more.split_at(usize::from(lengths & 0x0f).min(more.len()));
        let seqno = u64::from(*seqno) << (fill % 48);
        let (kind, value) = if lengths & 0x10 == 0 {
            (EntryKind::Put, vec![*fill; usize::from(lengths >> 5) * 30])
        } else {
            (EntryKind::Delete, Vec::new())
        };
        entries.insert((key.to_vec(), u64::MAX - seqno), (kind, value));
        rest = more;
    }
    entries
}

pub(crate) fn round_trip(input: &[u8]) {
    let Some(([a, b], rest)) = input.split_first_chunk::<2>() else { return };
    let entries = entries(rest);
    if entries.is_empty() {
        return;
    }
    let (vfs, path) = (MemoryVfs::new(), Path::new("/000001.sst"));
    let file = vfs.create(path).expect("a new file");
    let mut builder = TableBuilder::new(file, path, options(*a, *b));
    for ((key, order), (kind, value)) in &entries {
        builder.add(key, u64::MAX - order, *kind, value).expect("in order");
    }
    builder.finish(b"engine").expect("memory takes it");
    for access in [Access::Buffered, Access::Mapped] {
        let file = vfs.open(path, access).expect("it was written");
        let expected = Expected::of_file(&*file, path).expect("a table");
        let config = TableConfig { cache: BlockCache::new(1 << 20), access, filter_host: None };
        let table = Table::open(file, path, expected, &config).expect("a table");
        check(&Arc::new(table), &entries);
    }
}

fn check(table: &Arc<Table>, entries: &Entries) {
    table.verify().expect("what was built verifies");
    let mut cursor = table.cursor(ScanOptions::default());
    cursor.seek_to_first().expect("a table");
    for ((key, order), (kind, value)) in entries {
        let entry = cursor.entry().expect("not the end yet");
        assert_eq!((entry.key, entry.seqno), (&**key, u64::MAX - order));
        assert_eq!((entry.kind, entry.value), (*kind, &**value));
        cursor.next().expect("a table");
    }
    assert!(cursor.entry().is_none(), "more than was added");
    cursor.seek_to_last().expect("a table");
    for ((key, order), _) in entries.iter().rev() {
        let entry = cursor.entry().expect("not the end yet");
        assert_eq!((entry.key, entry.seqno), (&**key, u64::MAX - order));
        cursor.prev().expect("a table");
    }
    let mut stats = ReadStats::default();
    for ((key, order), (kind, value)) in entries {
        assert!(table.filters().query(key, hash(key)).maybe, "a filter denies a key of its table");
        let seqno: SeqNo = u64::MAX - order;
        let found = table.get(key, hash(key), seqno, &mut stats).expect("a table");
        let found = found.expect("it was added");
        assert_eq!((found.seqno, found.kind, &*found.value), (seqno, *kind, &**value));
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (a, b) in [(0, 0), (0x41, 0x81), (0x82, 0x42), (0xc3, 2), (0x04, 0xc1)] {
        let mut seed = vec![a, b];
        for n in 0..40_u8 {
            seed.extend([0x44 | (n % 5) << 4 & 0x10, n, n, b'k', n / 4, n, b'x']);
        }
        seeds.push(seed);
    }
    seeds
}

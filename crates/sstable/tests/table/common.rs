//! Entries, tables and random numbers for all tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trommel_base::{CursorHints, EntryKind, SeqNo};
use trommel_filter::FilterSpec;
use trommel_sim::MemoryVfs;
use trommel_sstable::{
    BlockCache, Compression, Error, Expected, Table, TableBuilder, TableConfig, TableOptions,
    TableSummary,
};
use trommel_vfs::{Access, ReadFile, Vfs};

pub(crate) const TABLE_ID: u64 = 0x1234_5678_9abc_def0;

/// splitmix64.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) seqno: SeqNo,
    pub(crate) kind: EntryKind,
    pub(crate) value: Vec<u8>,
}

pub(crate) fn put(key: impl AsRef<[u8]>, seqno: SeqNo, value: impl AsRef<[u8]>) -> Entry {
    let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
    Entry { key, seqno, kind: EntryKind::Put, value }
}

/// In internal order, without duplicates.
pub(crate) fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by(|a, b| a.key.cmp(&b.key).then(b.seqno.cmp(&a.seqno)));
    entries.dedup_by(|a, b| (&a.key, a.seqno) == (&b.key, b.seqno));
    entries
}

/// Random entries: keys of several shapes, one to many versions, some deleted.
pub(crate) fn random_entries(random: &mut Random, keys: usize, value_limit: usize) -> Vec<Entry> {
    let mut entries = Vec::new();
    for _ in 0..keys {
        let key = random_key(random);
        let versions = if random.below(20) == 0 { 1 + random.below(60) } else { 1 };
        for _ in 0..versions {
            let seqno = random.next() >> (8 + random.below(50));
            let kind = if random.below(8) == 0 { EntryKind::Delete } else { EntryKind::Put };
            let length = if kind == EntryKind::Put { random.below(value_limit + 1) } else { 0 };
            entries.push(Entry { key: key.clone(), seqno, kind, value: random.bytes(length) });
        }
    }
    sorted(entries)
}

pub(crate) fn random_key(random: &mut Random) -> Vec<u8> {
    let length = random.below(6);
    match random.below(6) {
        0 => random.bytes(length),
        1 => vec![b'a'; random.below(40)],
        2 => format!("user:{:06}", random.below(5000)).into_bytes(),
        3 => format!("https://example.org/{}/{}", random.below(9), random.below(99)).into_bytes(),
        4 => (0..length).map(|_| if random.below(2) == 0 { 0 } else { 0xff }).collect(),
        _ => random.below(100_000).to_string().into_bytes(),
    }
}

pub(crate) fn options(block_bytes: usize, compression: Compression, filter: &str) -> TableOptions {
    TableOptions {
        block_bytes,
        compression,
        filters: filter.parse::<FilterSpec>().unwrap().into(),
        ..TableOptions::new(TABLE_ID)
    }
}

pub(crate) fn build(
    vfs: &dyn Vfs,
    path: &Path,
    options: TableOptions,
    entries: &[Entry],
) -> TableSummary {
    let mut builder = TableBuilder::new(vfs.create(path).unwrap(), path, options);
    for entry in entries {
        builder.add(&entry.key, entry.seqno, entry.kind, &entry.value).unwrap();
        assert_eq!(builder.last_key(), Some(&*entry.key));
    }
    assert_eq!(builder.entries(), entries.len() as u64);
    builder.finish(b"the engine's own").unwrap()
}

pub(crate) fn open(
    vfs: &dyn Vfs,
    path: &Path,
    access: Access,
    cache: &Arc<BlockCache>,
) -> Result<Arc<Table>, Error> {
    open_file(vfs.open(path, access).unwrap(), path, access, cache)
}

/// Like `open`, for a file that is open already.
pub(crate) fn open_file(
    file: Arc<dyn ReadFile>,
    path: &Path,
    access: Access,
    cache: &Arc<BlockCache>,
) -> Result<Arc<Table>, Error> {
    let expected = Expected { file_bytes: file.bytes(), table_id: TABLE_ID };
    let config = TableConfig { cache: Arc::clone(cache), access, filter_host: None };
    Table::open(file, path, expected, &config).map(Arc::new)
}

/// A table in memory.
pub(crate) struct InMemory {
    pub(crate) vfs: MemoryVfs,
    pub(crate) path: PathBuf,
    pub(crate) summary: TableSummary,
}

impl InMemory {
    pub(crate) fn new(options: TableOptions, entries: &[Entry]) -> Self {
        let (vfs, path) = (MemoryVfs::new(), PathBuf::from("/1.sst"));
        let summary = build(&vfs, &path, options, entries);
        Self { vfs, path, summary }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.vfs.read(&self.path, u64::MAX).unwrap()
    }

    /// The same file with other bytes.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let (vfs, path) = (MemoryVfs::new(), PathBuf::from("/1.sst"));
        vfs.create(&path).unwrap().append(bytes).unwrap();
        Self { vfs, path, summary: TableSummary::default() }
    }

    pub(crate) fn open(&self) -> Result<Arc<Table>, Error> {
        open(&self.vfs, &self.path, Access::Buffered, &BlockCache::new(1 << 20))
    }
}

/// The newest version of each key at `seqno`, computed naively.
pub(crate) fn model_at(entries: &[Entry], seqno: SeqNo) -> BTreeMap<&[u8], &Entry> {
    let mut model = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.seqno <= seqno) {
        model.entry(&*entry.key).or_insert(entry);
    }
    model
}

/// The cursor's current entry, owned.
pub(crate) fn standing<C: CursorHints>(cursor: &C) -> Option<Entry> {
    let entry = cursor.entry()?;
    assert_eq!(cursor.value(), entry.value);
    Some(Entry {
        key: entry.key.to_vec(),
        seqno: entry.seqno,
        kind: entry.kind,
        value: entry.value.to_vec(),
    })
}

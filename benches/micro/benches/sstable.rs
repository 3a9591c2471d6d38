//! Tables of 200,000 entries of 16 + 256 bytes: building one, gets of present and absent keys,
//! seeks, and scans both ways; from the block cache, with reads of the file, and mapped.
//! `cargo bench -- sstable`
#![allow(missing_docs, clippy::unwrap_used, reason = "criterion makes a public function")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use trommel_base::{Cursor, EntryKind, MAX_SEQNO};
use trommel_filter::FilterSpec;
use trommel_sim::MemoryVfs;
use trommel_sstable::{
    BlockCache, Compression, Expected, ReadStats, ScanOptions, Table, TableBuilder, TableConfig,
    TableCursor, TableOptions,
};
use trommel_vfs::{Access, DiskVfs, Vfs};

const ENTRIES: u64 = 200_000;
const LOOKUPS: u64 = 10_000;
const VALUE_BYTES: usize = 256;

fn key(number: u64) -> [u8; 16] {
    format!("{number:016}").into_bytes().try_into().unwrap()
}

/// The keys of even numbers are in the table.
fn drawn(missing: bool) -> Vec<[u8; 16]> {
    let number = |nth: u64| nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) % ENTRIES * 2;
    (0..LOOKUPS).map(|nth| key(number(nth) + u64::from(missing))).collect()
}

fn build(vfs: &dyn Vfs, path: &Path, compression: Compression) {
    let _ = vfs.remove(path);
    let filters = "paired:16".parse::<FilterSpec>().unwrap().into();
    let options = TableOptions { compression, filters, ..TableOptions::new(7) };
    let mut builder = TableBuilder::new(vfs.create(path).unwrap(), path, options);
    let mut value = [b'v'; VALUE_BYTES];
    for number in 0..ENTRIES {
        let noise = number.wrapping_mul(0xa076_1d64_78bd_642f);
        value[..8].copy_from_slice(&noise.to_le_bytes());
        builder.add(&key(number * 2), noise % 5_000_000, EntryKind::Put, &value).unwrap();
    }
    builder.finish(b"").unwrap();
}

fn open(vfs: &dyn Vfs, path: &Path, access: Access, cache_bytes: u64) -> Arc<Table> {
    let file = vfs.open(path, access).unwrap();
    let expected = Expected { file_bytes: file.bytes(), table_id: 7 };
    let config = TableConfig { cache: BlockCache::new(cache_bytes), access, filter_host: None };
    Arc::new(Table::open(file, path, expected, &config).unwrap())
}

/// How many of `keys` the table has.
fn gets(table: &Table, keys: &[[u8; 16]]) -> usize {
    let mut stats = ReadStats::default();
    let mut has = |key: &&[u8; 16]| {
        let hash = trommel_filter::hash(*key);
        table.get(*key, hash, MAX_SEQNO, &mut stats).unwrap().is_some()
    };
    keys.iter().filter(|key| has(key)).count()
}

fn seeks(table: &Arc<Table>, keys: &[[u8; 16]]) -> usize {
    let mut cursor = table.cursor(ScanOptions::default());
    let mut seek = |key: &[u8; 16]| {
        cursor.seek(key, MAX_SEQNO).unwrap();
        cursor.entry().is_some()
    };
    keys.iter().filter(|key| seek(key)).count()
}

fn scan(table: &Arc<Table>, forward: bool) {
    let mut cursor = table.cursor(ScanOptions::default());
    let start = if forward { TableCursor::seek_to_first } else { TableCursor::seek_to_last };
    start(&mut cursor).unwrap();
    let mut count = 0;
    while let Some(entry) = cursor.entry() {
        count += u64::from(entry.value.len() == VALUE_BYTES);
        let step = if forward { cursor.next() } else { cursor.prev() };
        step.unwrap();
    }
    assert_eq!(count, ENTRIES);
}

fn building(criterion: &mut Criterion) {
    let (vfs, path) = (MemoryVfs::new(), Path::new("/bench.sst"));
    let mut group = criterion.benchmark_group("sstable/build");
    group.throughput(Throughput::Elements(ENTRIES));
    for compression in [Compression::None, Compression::Lz4] {
        group.bench_function(compression.name(), |bencher| {
            bencher.iter(|| build(&vfs, path, compression));
        });
    }
    group.finish();
}

fn reading(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("bench.sst");
    build(&DiskVfs, &path, Compression::None);
    let (present, missing) = (drawn(false), drawn(true));
    for (name, access, cache_bytes) in [
        ("cached", Access::Buffered, 1 << 30),
        ("read", Access::Buffered, 0),
        ("mapped", Access::Mapped, 0),
    ] {
        let table = open(&DiskVfs, &path, access, cache_bytes);
        assert_eq!(gets(&table, &present), present.len());
        let mut group = criterion.benchmark_group("sstable");
        group.throughput(Throughput::Elements(LOOKUPS));
        let mut bench = |what, of: &dyn Fn() -> usize| {
            group.bench_function(BenchmarkId::new(what, name), |bencher| bencher.iter(of));
        };
        bench("get", &|| gets(&table, &present));
        bench("get, missing", &|| gets(&table, &missing));
        bench("seek", &|| seeks(&table, &present));
        group.throughput(Throughput::Elements(ENTRIES));
        for (what, forward) in [("scan", true), ("scan backward", false)] {
            group.bench_function(BenchmarkId::new(what, name), |bencher| {
                bencher.iter(|| scan(&table, forward));
            });
        }
        group.finish();
    }
}

criterion_group! { name = benches; config = trommel_micro::short(1); targets = building, reading }
criterion_main!(benches);

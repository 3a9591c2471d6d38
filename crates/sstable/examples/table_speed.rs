//! Nanoseconds per entry built, per entry scanned and per get, on tables in memory.
//!
//! `cargo run --release -p trommel-sstable --example table_speed [entries]`

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measuring program")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use trommel_base::{Cursor, EntryKind, MAX_SEQNO};
use trommel_filter::FilterSpec;
use trommel_sstable::{
    BlockCache, Compression, Expected, ReadStats, ScanOptions, Table, TableBuilder, TableConfig,
    TableCursor, TableOptions,
};
use trommel_vfs::{Access, DiskVfs, MemoryVfs, Vfs};

const VALUE_BYTES: usize = 256;
const ROUNDS: usize = 5;

fn key_of(number: u64) -> String {
    format!("{number:016}")
}

fn mix(number: u64) -> u64 {
    let product = u128::from(number ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
    (product as u64) ^ ((product >> 64) as u64)
}

/// The minimum of several rounds, in nanoseconds per operation.
fn least(operations: usize, mut round: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_nanos() as f64 / operations as f64
    });
    times.fold(f64::MAX, f64::min)
}

fn build(vfs: &dyn Vfs, path: &Path, keys: &[String], compression: Compression) {
    let _ = vfs.remove(path);
    let options = TableOptions {
        compression,
        filters: "paired:16".parse::<FilterSpec>().unwrap().into(),
        ..TableOptions::new(7)
    };
    let mut builder = TableBuilder::new(vfs.create(path).unwrap(), path, options);
    let mut value = [b'v'; VALUE_BYTES];
    for (i, key) in keys.iter().enumerate() {
        value[..8].copy_from_slice(&mix(i as u64).to_le_bytes());
        let seqno = mix(i as u64) % 5_000_000;
        builder.add(key.as_bytes(), seqno, EntryKind::Put, &value).unwrap();
    }
    builder.finish(b"").unwrap();
}

fn open(vfs: &dyn Vfs, path: &Path, access: Access, cache: u64) -> Arc<Table> {
    let file = vfs.open(path, access).unwrap();
    let expected = Expected { file_bytes: file.bytes(), table_id: 7 };
    let config = TableConfig { cache: BlockCache::new(cache), access, filter_host: None };
    Arc::new(Table::open(file, path, expected, &config).unwrap())
}

fn gets(table: &Table, keys: &[String], step: u64) -> f64 {
    let picks: Vec<&String> =
        (0..200_000).map(|i| &keys[(mix(i + step) % keys.len() as u64) as usize]).collect();
    let mut stats = ReadStats::default();
    least(picks.len(), || {
        for key in &picks {
            let key = key.as_bytes();
            let found = table.get(key, trommel_filter::hash(key), MAX_SEQNO, &mut stats).unwrap();
            assert_eq!(found.unwrap().value.len(), VALUE_BYTES);
        }
    })
}

fn scan(table: &Arc<Table>, entries: usize, fill_cache: bool, forward: bool) -> f64 {
    let options = ScanOptions { fill_cache, ..ScanOptions::default() };
    least(entries, || {
        let mut cursor = table.cursor(options);
        let (mut count, mut bytes) = (0, 0);
        let start = if forward { TableCursor::seek_to_first } else { TableCursor::seek_to_last };
        start(&mut cursor).unwrap();
        while let Some(entry) = cursor.entry() {
            count += 1;
            bytes += entry.key.len() + entry.value.len();
            let step = if forward { cursor.next() } else { cursor.prev() };
            step.unwrap();
        }
        assert_eq!((count, bytes), (entries, entries * (16 + VALUE_BYTES)));
    })
}

fn seeks(table: &Arc<Table>, keys: &[String]) -> f64 {
    let mut cursor = table.cursor(ScanOptions::default());
    least(100_000, || {
        for i in 0..100_000 {
            let key = &keys[(mix(i) % keys.len() as u64) as usize];
            cursor.seek(key.as_bytes(), MAX_SEQNO).unwrap();
            assert!(cursor.entry().is_some());
        }
    })
}

fn main() {
    let entries = std::env::args().nth(1).map_or(240_000, |count| count.parse().unwrap());
    let keys: Vec<String> = (0..entries).map(|i| key_of(i as u64 * 4_000)).collect();
    let vfs = MemoryVfs::new();
    let path = Path::new("/speed.sst");
    for compression in [Compression::None, Compression::Lz4] {
        println!("{entries} entries of 16 + {VALUE_BYTES} bytes, {}", compression.name());
        println!(
            "  build            {:8.1}",
            least(entries, || build(&vfs, path, &keys, compression))
        );
        let table = open(&vfs, path, Access::Buffered, 1 << 30);
        println!("  get, cached      {:8.1}", gets(&table, &keys, 0));
        println!("  seek, cached     {:8.1}", seeks(&table, &keys));
        println!("  scan, pread      {:8.1}", scan(&table, entries, false, true));
        println!("  scan back, pread {:8.1}", scan(&table, entries, false, false));
        println!("  scan, cached     {:8.1}", scan(&table, entries, true, true));
        let uncached = open(&vfs, path, Access::Buffered, 0);
        println!("  get, no cache    {:8.1}", gets(&uncached, &keys, 0));
        println!("  memory           {:?}", table.memory_bytes());
    }
    let folder = std::env::temp_dir().join(format!("table_speed_{}", std::process::id()));
    DiskVfs.create_dir(&folder).unwrap();
    let path = folder.join("speed.sst");
    build(&DiskVfs, &path, &keys, Compression::None);
    let cached = open(&DiskVfs, &path, Access::Buffered, 1 << 30);
    println!("on disk, page cache warm");
    println!("  scan, pread      {:8.1}", scan(&cached, entries, false, true));
    let mapped = open(&DiskVfs, &path, Access::Mapped, 0);
    println!("  get, mapped      {:8.1}", gets(&mapped, &keys, 0));
    let uncached = open(&DiskVfs, &path, Access::Buffered, 0);
    println!("  get, pread       {:8.1}", gets(&uncached, &keys, 0));
    DiskVfs.remove(&path).unwrap();
    std::fs::remove_dir(&folder).unwrap();
}

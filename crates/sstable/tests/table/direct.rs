//! Lookups of many keys in files opened for direct reads, for which the system reads nothing ahead:
//! reads overlap because they are submitted to the system together, or several threads make them.
//! Sequentially, 64 keys took as long as 64 lookups.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use trommel_base::MAX_SEQNO;
use trommel_sstable::{BlockCache, Compression, Error, ReadStats, Request, Table, get_many};
use trommel_vfs::{Access, DiskVfs, ReadFile, Vfs};

use crate::common::*;

/// Reads expected to be in flight together.
const AT_ONCE: usize = 8;

/// A file whose reads, once `gathers` is set, wait until others are in flight too.
#[derive(Debug)]
struct Gathering {
    file: Arc<dyn ReadFile>,
    state: Mutex<State>,
    gathered: Condvar,
    reads: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    gathers: bool,
    under_way: usize,
    most: usize,
    /// Offset from which reads fail.
    damaged_from: u64,
}

impl ReadFile for Gathering {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock().unwrap();
        if offset >= state.damaged_from {
            return Err(io::Error::other("the disk is on fire"));
        }
        state.under_way += 1;
        state.most = state.most.max(state.under_way);
        self.gathered.notify_all();
        if state.gathers {
            let patience = Duration::from_secs(10);
            let alone = |state: &mut State| state.gathers && state.most < AT_ONCE;
            state = self.gathered.wait_timeout_while(state, patience, alone).unwrap().0;
            // A read that waited in vain ends the waiting.
            state.gathers = state.most < AT_ONCE && state.gathers && state.under_way > 1;
        }
        state.under_way -= 1;
        drop(state);
        self.file.read_at(offset, buffer)
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

fn entries() -> Vec<Entry> {
    (0..2000).map(|i| put(format!("key{i:06}"), i + 1, format!("value {i:060}"))).collect()
}

fn opened(table: &InMemory, cache_bytes: u64) -> (Arc<Gathering>, Arc<Table>) {
    let file = Arc::new(Gathering {
        file: table.vfs.open(&table.path, Access::Buffered).unwrap(),
        state: Mutex::new(State { damaged_from: u64::MAX, ..State::default() }),
        gathered: Condvar::new(),
        reads: AtomicU64::new(0),
    });
    let cache = BlockCache::new(cache_bytes);
    let opened = open_file(Arc::clone(&file) as _, &table.path, Access::Direct, &cache);
    (file, opened.unwrap())
}

/// Looks up every thirtieth key, 67 in all, each in a different block.
fn look_up(table: &Table, entries: &[Entry]) -> Result<ReadStats, Error> {
    let wanted: Vec<&Entry> = entries.iter().step_by(30).collect();
    let request = |e: &&Entry| trommel_filter::hash(&e.key);
    let requests: Vec<Request<'_>> = wanted
        .iter()
        .map(|e| Request { table: 0, key: &e.key, hash: request(e), seqno: MAX_SEQNO })
        .collect();
    let (mut stats, mut found) = (ReadStats::default(), Vec::new());
    get_many(|_| Some(table), &requests, &mut stats, |nth, answer| found.push((nth, answer)))?;
    assert!(found.iter().map(|(nth, _)| *nth).eq(0..wanted.len()));
    for ((_, answer), wanted) in found.iter().zip(wanted) {
        assert_eq!(answer.as_ref().unwrap().value, wanted.value);
    }
    Ok(stats)
}

#[test]
fn direct_reads_of_blocks_are_submitted_together() {
    let entries = entries();
    let table = InMemory::new(options(512, Compression::None, "none"), &entries);
    for cache_bytes in [1 << 20, 0] {
        let (file, table) = opened(&table, cache_bytes);
        look_up(&table, &entries[..1]).unwrap();
        *file.state.lock().unwrap() =
            State { gathers: true, damaged_from: u64::MAX, ..State::default() };
        file.reads.store(0, Ordering::Relaxed);
        let cold = look_up(&table, &entries).unwrap();
        let most = file.state.lock().unwrap().most;
        assert!(most >= AT_ONCE, "{most} reads were under way at once");
        let blocks = cold.block_reads + cold.cache_hits;
        assert_eq!(blocks, 67, "{cold:?}");
        let reads = file.reads.swap(0, Ordering::Relaxed);
        assert_eq!(reads, cold.block_reads + cold.index_reads, "each is read once");
        let warm = look_up(&table, &entries).unwrap();
        if cache_bytes > 0 {
            assert_eq!((warm.block_reads, warm.cache_hits), (0, 67));
            assert_eq!(file.reads.load(Ordering::Relaxed), 0);
        } else {
            assert_eq!((warm.block_reads, warm.cache_hits), (67, 0));
        }
    }
}

#[test]
fn a_read_that_fails_among_others_fails_the_lookup() {
    let entries = entries();
    let table = InMemory::new(options(512, Compression::None, "none"), &entries);
    let (file, opened) = opened(&table, 0);
    look_up(&opened, &entries).unwrap();
    file.state.lock().unwrap().damaged_from = table.summary.data_bytes / 2;
    let failed = look_up(&opened, &entries).unwrap_err();
    assert!(failed.to_string().contains("the disk is on fire"), "{failed}");
    file.state.lock().unwrap().damaged_from = u64::MAX;
    look_up(&opened, &entries).unwrap();
}

/// A file on a disk, read by several threads and never in one batch by the system.
#[derive(Debug)]
struct ByThreads(Arc<dyn ReadFile>);

impl ReadFile for ByThreads {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

/// Batched reads of the system and reads by threads give the same answers, counts and errors.
#[test]
fn batched_and_threaded_reads_agree() {
    let entries = entries();
    let dir = tempfile::tempdir().unwrap();
    for (name, compression) in [("1.sst", Compression::None), ("2.sst", Compression::Lz4)] {
        let table = InMemory::new(options(512, compression, "none"), &entries);
        let (whole, path) = (table.bytes(), dir.path().join(name));
        let data_bytes = table.summary.data_bytes as usize;
        for damaged_from in [data_bytes, data_bytes / 2] {
            let mut bytes = whole.clone();
            for at in (damaged_from..data_bytes).step_by(100) {
                bytes[at] ^= 1;
            }
            let _ = DiskVfs.remove(&path);
            DiskVfs.create(&path).unwrap().append(&bytes).unwrap();
            let file = || DiskVfs.open(&path, Access::Direct).unwrap();
            let files = [file(), Arc::new(ByThreads(file())) as Arc<dyn ReadFile>];
            let [came, by_threads] = files.map(|file| {
                let cache = BlockCache::new(1 << 20);
                let table = open_file(file, &path, Access::Direct, &cache).unwrap();
                [(); 2].map(|()| look_up(&table, &entries).map_err(|error| error.to_string()))
            });
            assert_eq!(came, by_threads);
            let [cold, warm] = came;
            if damaged_from < data_bytes {
                assert!(cold.unwrap_err().contains("checksum"));
                continue;
            }
            assert_eq!(cold.unwrap().block_reads, 67);
            assert_eq!(warm.unwrap().cache_hits, 67);
        }
    }
}

//! How the default keyspace is stored, while that changes or is not known yet.

use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trommel_sim::{MemoryVfs, Policy, SimDisk};
use trommel_vfs::{Access, Layer, ReadFile, Vfs};

use crate::keyspaces::Part;
use crate::{Db, KeyspaceOptions, MergeOperator, Options, Transaction};

const MARKED: &[u8] = b"\xff\xff\xff\xffkey";

thread_local! {
    /// Whether reads of this thread wait.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// A file system whose reads wait, in some threads.
#[derive(Debug)]
struct WaitingVfs {
    inner: MemoryVfs,
    /// Notified of a read that waits, and ends the wait.
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct Gate {
    reached: Mutex<Sender<()>>,
    opened: Mutex<Receiver<()>>,
}

#[derive(Debug)]
struct WaitingFile {
    inner: Arc<dyn ReadFile>,
    gate: Arc<Gate>,
}

impl Layer for WaitingVfs {
    fn below(&self) -> &dyn Vfs {
        &self.inner
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let inner = self.inner.open(path, access)?;
        Ok(Arc::new(WaitingFile { inner, gate: Arc::clone(&self.gate) }))
    }
}

impl ReadFile for WaitingFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if WAITS.replace(false) {
            self.gate.reached.lock().unwrap().send(()).unwrap();
            self.gate.opened.lock().unwrap().recv().unwrap();
        }
        self.inner.read_at(offset, buffer)
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }
}

/// A store whose reads can wait, with a transaction that has read from it.
struct Waiting {
    db: Db,
    has_reached: Receiver<()>,
    open: Sender<()>,
}

impl Waiting {
    fn new() -> Self {
        let ((reached, has_reached), (open, opened)) = (channel(), channel());
        let gate = Gate { reached: Mutex::new(reached), opened: Mutex::new(opened) };
        let vfs = WaitingVfs { inner: MemoryVfs::new(), gate: Arc::new(gate) };
        let options = Options::default().vfs(Arc::new(vfs)).background_threads(1);
        let db = Db::open("db", options.reads(|r| r.cache_bytes(0))).unwrap();
        db.put("b", "read").unwrap();
        Self { db, has_reached, open }
    }

    fn begin(&self) -> Transaction {
        let transaction = self.db.begin();
        assert_eq!(transaction.range("a".."c").count(), 1);
        transaction
    }

    /// Commits the transaction, and calls `beside` in another thread while the commit reads a table
    /// before writing; `beside` must not end before the commit.
    fn commit_before(&self, transaction: Transaction, beside: impl FnOnce(&Db) + Send) {
        let Self { db, has_reached, open } = self;
        // Newer than the transaction, and in the table that its commit has to read.
        db.put("d", "not read").unwrap();
        db.flush().unwrap();
        // The table is open: only the commit waits, for a block of it.
        assert!(db.contains_key("d").unwrap());
        std::thread::scope(|scope| {
            let commit = scope.spawn(move || {
                WAITS.set(true);
                transaction.commit()
            });
            has_reached.recv_timeout(Duration::from_secs(60)).expect("the commit reads the table");
            let (ended, has_ended) = channel();
            let other = scope.spawn(move || {
                beside(db);
                ended.send(()).unwrap();
            });
            let early = has_ended.recv_timeout(Duration::from_millis(300));
            open.send(()).unwrap();
            commit.join().unwrap().unwrap();
            other.join().unwrap();
            assert_eq!(early, Err(RecvTimeoutError::Timeout), "it did not wait");
        });
    }
}

/// A transaction that writes a key with the marker is being committed: the first keyspace waits
/// until it is done. Otherwise the key would be written under a physical key that the default
/// keyspace no longer uses for it.
#[test]
fn the_first_keyspace_waits_for_commits_of_keys_with_the_marker() {
    let waiting = Waiting::new();
    let transaction = waiting.begin();
    transaction.put(MARKED, "written").unwrap();
    waiting.commit_before(transaction, |db| {
        db.keyspace("first", KeyspaceOptions::new()).unwrap();
    });
    assert_eq!(waiting.db.get(MARKED).unwrap().as_deref(), Some(&b"written"[..]));
}

/// A transaction that writes to a keyspace is being committed: a drop waits until it is done.
/// Otherwise the key would be written after the drop, and stay forever.
#[test]
fn a_drop_waits_for_commits_in_its_keyspace() {
    let waiting = Waiting::new();
    let doomed = waiting.db.keyspace("doomed", KeyspaceOptions::new()).unwrap();
    let transaction = waiting.begin();
    transaction.keyspace(&doomed).unwrap().put("key", "written").unwrap();
    waiting.commit_before(transaction, |db| assert!(db.drop_keyspace("doomed").unwrap()));
    let left = waiting.db.handle().range(Part::Whole, doomed.state.space().all(), None);
    assert_eq!(left.count(), 0);
}

/// An operator that records the keys that it is called for.
#[derive(Debug, Default)]
struct Noting(Mutex<Vec<Vec<u8>>>);

impl Noting {
    fn note(&self, key: &[u8]) {
        self.0.lock().unwrap().push(key.to_vec());
    }
}

impl MergeOperator for Noting {
    fn name(&self) -> &'static str {
        "noting"
    }

    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Option<Vec<u8>>, String> {
        self.note(key);
        let parts: Vec<&[u8]> = existing.iter().chain(operands).copied().collect();
        Ok(Some(parts.concat()))
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.note(key);
        Some(operands.concat())
    }
}

/// A recovery that flushes does so before the catalog is read. The merge operator must not be
/// called with the header of a key.
#[test]
fn a_recovery_passes_no_header_to_the_merge_operator() {
    let options = |disk: &SimDisk, operator: &Arc<Noting>| {
        let operator: Arc<dyn MergeOperator> = Arc::<Noting>::clone(operator);
        let options = Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
        options.writes(|w| w.merge_operator(operator))
    };
    let (disk, operator) = (SimDisk::new(), Arc::new(Noting::default()));
    let db = Db::open("db", options(&disk, &operator)).unwrap();
    let space = db.keyspace("named", KeyspaceOptions::new()).unwrap();
    for nth in [b"0", b"1", b"2"] {
        space.merge("key", nth).unwrap();
        db.merge(MARKED, nth).unwrap();
    }
    // More than a memtable of the next open.
    for _ in 0..40 {
        space.put("other", [b'o'; 2000]).unwrap();
    }
    let killed = disk.crash(Policy::EVERYTHING, 0).disk();
    let operator = Arc::new(Noting::default());
    let options = options(&killed, &operator);
    let db = Db::open("db", options.writes(|w| w.write_buffer_bytes(64 << 10))).unwrap();
    assert!(db.stats().levels.iter().any(|level| level.tables > 0), "the recovery has not flushed");
    let space = db.keyspace("named", KeyspaceOptions::new()).unwrap();
    assert_eq!(space.get("key").unwrap().as_deref(), Some(&b"012"[..]));
    assert_eq!(db.get(MARKED).unwrap().as_deref(), Some(&b"012"[..]));
    db.compact_all().unwrap();
    let called: Vec<Vec<u8>> = operator.0.lock().unwrap().clone();
    let is_own = |key: &Vec<u8>| **key == *b"key" || **key == *MARKED;
    assert!(!called.is_empty() && called.iter().all(is_own), "{called:?}");
}

/// A transaction that is older than the first keyspace iterates over keys as they were stored then,
/// and its own writes to the keyspace are not among them.
#[test]
fn writes_to_a_younger_keyspace_are_no_default_keys() {
    let options = Options::default().vfs(Arc::new(MemoryVfs::new()));
    let db = Db::open("db", options).unwrap();
    db.put("a", "1").unwrap();
    let older = db.begin();
    let named = db.keyspace("named", KeyspaceOptions::new()).unwrap();
    older.keyspace(&named).unwrap().put("key", "own").unwrap();
    older.put(MARKED, "2").unwrap();
    let keys = |range: crate::TransactionRange<'_>| -> Vec<Vec<u8>> {
        range.map(|entry| entry.unwrap().0.to_vec()).collect()
    };
    assert_eq!(keys(older.iter()), [b"a", MARKED]);
    let backward: Vec<_> = older.iter().rev().map(|entry| entry.unwrap().0.to_vec()).collect();
    assert_eq!(backward, [MARKED, b"a"]);
    assert_eq!(keys(older.keyspace(&named).unwrap().iter()), [b"key"]);
}

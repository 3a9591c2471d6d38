//! A background thread panics: waiting and later callers get an error, reads still work, nobody
//! hangs, and no acknowledged write is lost.
//!
//! The panic is raised in the file system, so it can happen at each step of a flush and of a
//! compaction.

use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use trommel::vfs::{Access, Layer, ReadFile, Vfs, WriteFile};
use trommel::{Db, Error, Options};
use trommel_sim::{OpKind, SimDisk};

use crate::liveness::{comes, ends, noise, scattered};

/// A disk on which the store's threads panic, once, at a call of one kind.
#[derive(Debug, Clone)]
struct Trap {
    disk: SimDisk,
    kind: OpKind,
    /// A part of the file's name.
    named: &'static str,
    /// The trapped thread waits for this, so that writers can stall first.
    open: Arc<AtomicBool>,
    met: Arc<AtomicBool>,
}

impl Trap {
    fn new(kind: OpKind, named: &'static str) -> Self {
        let (open, met) = (Arc::default(), Arc::default());
        Self { disk: SimDisk::new(), kind, named, open, met }
    }

    fn pass(&self, kind: OpKind, path: &Path) {
        let in_background =
            thread::current().name().is_some_and(|name| name.starts_with("trommel-"));
        let is_here = kind == self.kind && path.to_string_lossy().contains(self.named);
        if !in_background || !is_here || self.met.swap(true, Ordering::SeqCst) {
            return;
        }
        while !self.open.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        // Panics without a message.
        resume_unwind(Box::new("planned"));
    }
}

#[derive(Debug)]
struct TrapFile {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    trap: Trap,
}

impl WriteFile for TrapFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.trap.pass(OpKind::Append, &self.path);
        self.file.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.trap.pass(OpKind::Sync, &self.path);
        self.file.sync()
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

impl Layer for Trap {
    fn below(&self) -> &dyn Vfs {
        &self.disk
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.pass(OpKind::Create, path);
        let file = self.disk.create(path)?;
        Ok(Box::new(TrapFile { file, path: path.to_path_buf(), trap: self.clone() }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        self.pass(OpKind::Open, path);
        self.disk.open(path, access)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.pass(OpKind::Remove, path);
        self.disk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.pass(OpKind::SyncDir, dir);
        self.disk.sync_dir(dir)
    }
}

fn small() -> Options {
    Options::default()
        .writes(|w| w.write_buffer_bytes(32 << 10).max_frozen_memtables(2))
        .compaction(|c| c.l0_trigger(2))
        .background_threads(1)
}

fn is_poisoned<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Poisoned { .. }))
}

/// Writes until an error, and counts the acknowledged writes.
fn write_on(db: &Db, written: &AtomicU32) -> Error {
    for i in written.load(Ordering::SeqCst).. {
        if let Err(error) = db.put(scattered(i), noise(i)) {
            return error;
        }
        written.store(i + 1, Ordering::SeqCst);
    }
    unreachable!("there are more writes than any store holds")
}

fn all_is_there(db: &Db, written: u32) {
    for i in 0..written {
        assert!(db.get(scattered(i)).unwrap().as_deref() == Some(&noise(i)[..]), "entry {i}");
    }
    let seen = db.iter().map(Result::unwrap).count() as u32;
    // The rejected write may be present.
    assert!(seen == written || seen == written + 1, "{seen} of {written}");
}

/// A thread panics at a call of this kind, while writers and a flush wait for it.
fn a_thread_panics(kind: OpKind, named: &'static str, close: bool) {
    let trap = Trap::new(kind, named);
    let db = Db::open("/db", small().vfs(Arc::new(trap.clone()))).unwrap();
    let written = AtomicU32::new(0);
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_on(&db, &written));
        comes("the trap", || trap.met.load(Ordering::SeqCst));
        // Without a flush, the writer stalls sooner or later.
        let mut before = u32::MAX;
        while before != written.load(Ordering::SeqCst) {
            before = written.load(Ordering::SeqCst);
            thread::sleep(Duration::from_millis(200));
        }
        assert!(!writer.is_finished(), "it is stopped, not refused");
        let idle = scope.spawn(|| db.wait_idle());
        trap.open.store(true, Ordering::SeqCst);
        let reported = writer.join().unwrap();
        assert!(matches!(reported, Error::Poisoned { .. }), "a stopped writer gets {reported:?}");
        let reported = idle.join().unwrap();
        assert!(is_poisoned(&reported), "a waiter gets {reported:?}");
    });
    let written = written.into_inner();
    for refused in
        [db.put("next", "v").map(drop), db.delete("next").map(drop), db.flush(), db.compact_all()]
    {
        assert!(is_poisoned(&refused), "{refused:?}");
    }
    all_is_there(&db, written);
    if close {
        let reported = db.close();
        assert!(is_poisoned(&reported), "closing returns {reported:?}");
    } else {
        drop(db);
    }
    let db = Db::open("/db", small().vfs(Arc::new(trap.disk))).unwrap();
    all_is_there(&db, written);
    db.verify().unwrap();
    db.close().unwrap();
}

/// At every step of a flush: the table, the manifest, the obsolete log.
#[test]
fn waiters_are_notified_that_a_flush_panicked() {
    let steps = [
        (OpKind::Create, ".sst"),
        (OpKind::Append, ".sst"),
        (OpKind::Sync, ".sst"),
        (OpKind::SyncDir, "db"),
        (OpKind::Append, "MANIFEST"),
        (OpKind::Sync, "MANIFEST"),
        (OpKind::Remove, ".log"),
    ];
    for (kind, named) in steps {
        for close in [true, false] {
            ends(move || a_thread_panics(kind, named, close));
        }
    }
}

/// The same, including where a compaction removes obsolete tables.
#[test]
fn waiters_are_notified_that_a_compaction_panicked() {
    for close in [true, false] {
        ends(move || a_thread_panics(OpKind::Remove, ".sst", close));
    }
}

//! Memtables flushed in the middle of a compaction, because no other worker is free.

use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use trommel_sim::{Failure, Fault, OpKind, SimDisk};
use trommel_vfs::{Layer, Vfs, WriteFile};

use super::Rng;
use super::share::{Content, assert_holds, open, options, write};
use crate::sync::lock;
use crate::{Db, Error, Result, env};

/// Timeout of every wait.
const LONGEST: Duration = Duration::from_secs(60);

/// A disk on which only a given number of tables can be created.
#[derive(Debug, Clone)]
struct Gated {
    disk: SimDisk,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Debug)]
struct Gate {
    open_for: u64,
    waiting: bool,
    /// A thread waiting here panics.
    broken: bool,
}

impl Gated {
    fn new(disk: &SimDisk) -> Self {
        let gate = Gate { open_for: u64::MAX, waiting: false, broken: false };
        Self { disk: disk.clone(), gate: Arc::new((Mutex::new(gate), Condvar::new())) }
    }

    /// Lets `tables` creations pass.
    fn open_for(&self, tables: u64) {
        self.gate.0.lock().unwrap().open_for = tables;
        self.gate.1.notify_all();
    }

    fn break_down(&self) {
        self.gate.0.lock().unwrap().broken = true;
        self.gate.1.notify_all();
    }

    fn is_waited_at(&self) -> bool {
        self.gate.0.lock().unwrap().waiting
    }
}

impl Layer for Gated {
    fn below(&self) -> &dyn Vfs {
        &self.disk
    }

    fn create(&self, path: &Path) -> std::io::Result<Box<dyn WriteFile>> {
        if path.extension().is_some_and(|extension| extension == "sst") {
            let mut gate = self.gate.0.lock().unwrap();
            gate.waiting = gate.open_for == 0;
            let is_shut = |gate: &mut Gate| gate.open_for == 0 && !gate.broken;
            gate = self.gate.1.wait_while(gate, is_shut).unwrap();
            if gate.broken {
                drop(gate);
                // Like a panic, without the message.
                std::panic::resume_unwind(Box::new("planned"));
            }
            gate.open_for -= 1;
            gate.waiting = false;
        }
        self.disk.create(path)
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + LONGEST;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A store whose only worker has written one table of a compaction and waits to create the second,
/// while a memtable is frozen.
struct Busy {
    disk: SimDisk,
    gated: Gated,
    db: Db,
    content: Content,
    compactor: Option<JoinHandle<Result<()>>>,
}

impl Busy {
    fn new() -> Self {
        let (disk, mut content) = (SimDisk::new(), Content::new());
        let gated = Gated::new(&disk);
        let options = options(Arc::new(gated.clone())).background_threads(1);
        let db = Db::open("db", options).unwrap();
        write(&db, &mut Rng(17), &mut content);
        gated.open_for(1);
        let compactor = Some(thread::spawn({
            let db = db.clone();
            move || db.compact_all()
        }));
        wait_until("the merge wants its second table", || gated.is_waited_at());
        db.put("key0007", "newest").unwrap();
        content.insert(b"key0007".to_vec(), b"newest".to_vec());
        let engine = db.engine();
        engine.exclusively(|leader| engine.rotate(leader)).unwrap();
        let busy = Self { disk, gated, db, content, compactor };
        assert_eq!(busy.frozen(), 1);
        busy
    }

    /// Such a store, in which the memtable's table cannot be created.
    fn whose_flush_fails(failure: Failure) -> Self {
        let busy = Self::new();
        busy.disk.inject(Fault::new(failure).on(OpKind::Create).named(".sst").after(1));
        busy
    }

    fn frozen(&self) -> usize {
        self.db.engine().view.load().frozen.len()
    }

    /// Lets the compaction finish.
    fn end_merge(&mut self) -> Result<()> {
        self.gated.open_for(u64::MAX);
        self.compactor.take().unwrap().join().unwrap()
    }

    fn assert_holds(&self) {
        assert_holds(&self.db, &self.content);
    }

    /// Closes the store and checks what is on the disk.
    fn reopen(self) {
        drop(self.db);
        let db = open(&self.disk);
        assert_holds(&db, &self.content);
        db.verify().unwrap();
    }
}

#[test]
fn a_memtable_does_not_wait_for_the_end_of_a_merge() {
    let mut busy = Busy::new();
    // The second table of the compaction, and that of the memtable.
    busy.gated.open_for(2);
    wait_until("the memtable is a table", || busy.frozen() == 0);
    wait_until("the merge wants its third table", || busy.gated.is_waited_at());
    assert_eq!(busy.db.stats().background.compactions.count, 0);
    busy.assert_holds();
    busy.end_merge().unwrap();
    assert!(busy.db.stats().background.compactions.count > 0);
    busy.assert_holds();
    busy.reopen();
}

/// The compaction is not affected, and the flush is retried.
#[test]
fn a_flush_that_fails_there_is_tried_again() {
    let mut busy = Busy::whose_flush_fails(Failure::NoSpace);
    // A waiter gets the error of any work that failed meanwhile.
    let _ = busy.end_merge();
    wait_until("the merge is done", || busy.db.stats().background.compactions.count > 0);
    assert_eq!(busy.disk.faults_fired(), 1);
    busy.db.flush().unwrap();
    assert_eq!(busy.frozen(), 0);
    busy.assert_holds();
    busy.reopen();
}

/// If a write fails permanently, the store refuses writes, and nothing more is compacted.
#[test]
fn a_flush_that_poisons_there_ends_the_merge() {
    let mut busy = Busy::whose_flush_fails(Failure::Io);
    assert!(matches!(busy.end_merge(), Err(Error::Poisoned { .. } | Error::Io { .. })));
    assert_eq!((busy.disk.faults_fired(), busy.frozen()), (1, 1));
    assert!(matches!(busy.db.put("key", "value"), Err(Error::Poisoned { .. })));
    assert_eq!(busy.db.stats().background.compactions.count, 0);
    busy.assert_holds();
    busy.reopen();
}

/// If a log fails permanently meanwhile, the compaction installs nothing more.
#[test]
fn a_log_that_fails_meanwhile_ends_the_merge() {
    let mut busy = Busy::new();
    busy.gated.open_for(2);
    wait_until("the memtable is a table", || busy.frozen() == 0);
    wait_until("the merge wants its third table", || busy.gated.is_waited_at());
    let tables = |db: &Db| -> Vec<_> {
        db.engine().version().tables().map(|(level, table)| (level, table.number)).collect()
    };
    let before = tables(&busy.db);
    busy.disk.inject(Fault::new(Failure::Io).on(OpKind::Append).named(".log"));
    assert!(busy.db.put("key0007", "newest").is_err());
    assert_eq!(busy.disk.faults_fired(), 1);
    assert!(matches!(busy.end_merge(), Err(Error::Poisoned { .. } | Error::Io { .. })));
    wait_until("no job is left", || lock(&busy.db.engine().background.state).running == 0);
    assert_eq!(tables(&busy.db), before);
    busy.assert_holds();
    busy.reopen();
}

/// Regression: the compaction waited for that flush forever, and the closing caller for the
/// compaction.
#[test]
fn a_merge_does_not_wait_for_a_flush_that_panicked() {
    let disk = SimDisk::new();
    let busy = Arc::new(Gated::new(&disk));
    let threads = env::cores().max(2);
    let options = options(Arc::clone(&busy) as Arc<dyn Vfs>).background_threads(threads);
    let db = Db::open("db", options).unwrap();
    db.put("key", "value").unwrap();
    busy.open_for(0);
    let engine = Arc::clone(db.engine());
    engine.exclusively(|leader| engine.rotate(leader)).unwrap();
    wait_until("a worker is at the flush", || busy.is_waited_at());
    let merge = {
        let engine = Arc::clone(db.engine());
        thread::spawn(move || engine.flush_between())
    };
    thread::sleep(Duration::from_millis(20));
    assert!(!merge.is_finished(), "it does not wait for the flush");
    busy.break_down();
    wait_until("the merge goes on", || merge.is_finished());
    assert!(matches!(db.put("key", "later"), Err(Error::Poisoned { .. })));
    wait_until("no job is left", || lock(&db.engine().background.state).running == 0);
}

/// A compaction pauses while another worker flushes a memtable, unless each worker and a writer
/// have a core.
#[test]
fn a_merge_rests_while_a_memtable_is_written_out() {
    for (threads, rests) in [(env::cores() - 1, false), (env::cores(), true)] {
        if threads == 0 {
            continue;
        }
        let options = options(Arc::new(SimDisk::new())).background_threads(threads);
        let db = Db::open("db", options).unwrap();
        db.put("key", "value").unwrap();
        let engine = Arc::clone(db.engine());
        let set_flushing = move |flushing| {
            lock(&engine.background.state).flushing = flushing;
            engine.background.wake();
        };
        // As if a worker were flushing: none begins.
        set_flushing(true);
        let engine = Arc::clone(db.engine());
        engine.exclusively(|leader| engine.rotate(leader)).unwrap();
        let (begins, begun) = channel();
        let merge = thread::spawn(move || {
            begins.send(()).unwrap();
            engine.flush_between()
        });
        // If it came after the flush, there would be nothing to wait for.
        begun.recv().unwrap();
        if rests {
            thread::sleep(Duration::from_millis(100));
            assert!(!merge.is_finished(), "it goes on");
            set_flushing(false);
        }
        assert_eq!(merge.join().unwrap(), rests);
        set_flushing(false);
        wait_until("the memtable is a table", || db.engine().view.load().frozen.is_empty());
    }
}

//! A thread that panics in the middle of a write.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;

use shuttle::thread::{Builder, current, spawn};
use trommel::vfs::{Layer, Vfs, WriteFile};
use trommel::{Error, WriteOptions};
use trommel_sim::SimDisk;

use crate::lane::lane;
use crate::store::{after_power_cut, number, open, options};

/// The name of the panicking thread. It also identifies it to the engine, because the standard
/// library sees all threads here as one.
const PANICS: &str = "panics";

/// A disk on which the thread of that name panics when it appends to a log.
#[derive(Debug)]
struct Trap(SimDisk);

#[derive(Debug)]
struct TrapFile {
    file: Box<dyn WriteFile>,
    is_log: bool,
}

impl WriteFile for TrapFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_log && current().name() == Some(PANICS) {
            // Panics without a message.
            resume_unwind(Box::new("planned"));
        }
        self.file.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

impl Layer for Trap {
    fn below(&self) -> &dyn Vfs {
        &self.0
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        Ok(Box::new(TrapFile { file: self.0.create(path)?, is_log }))
    }
}

/// A thread panics while it leads, with others in its group and in the queue after it: the store is
/// poisoned, no thread is left waiting or acknowledged wrongly, and earlier writes are present
/// after a power failure. If another thread led its batch, nobody panics.
fn panic_while_leading() {
    let disk = SimDisk::new();
    let trap = Arc::new(Trap(disk.clone()));
    let db = open(
        options(&disk).vfs(trap).background_threads(0).writes(|w| w.write_buffer_bytes(1 << 20)),
    );
    db.put("k0", 7u64.to_le_bytes()).unwrap();
    let panicking = Builder::new().name(PANICS.into()).spawn({
        let db = db.clone();
        move || {
            let put = || db.put("k9", 9u64.to_le_bytes());
            catch_unwind(AssertUnwindSafe(put)).is_err()
        }
    });
    let writers: Vec<_> = (1..=2u64)
        .map(|writer| {
            let db = db.clone();
            spawn(move || {
                let key = format!("k{writer}");
                let reported = db.put_with(key, writer.to_le_bytes(), WriteOptions::sync());
                assert_eq!(number(db.get("k0").unwrap()), 7, "reads go on");
                reported.is_ok()
            })
        })
        .collect();
    let panicked = panicking.unwrap().join().unwrap();
    let kept: Vec<bool> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    if panicked {
        let refused = db.put("k3", [0; 8]);
        assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
    }
    assert_eq!(db.close().is_err(), panicked);
    let db = after_power_cut(&disk);
    for (writer, kept) in (1..).zip(kept) {
        let found = number(db.get(format!("k{writer}")).unwrap());
        assert!(found == writer || (!kept && panicked), "{writer} was acknowledged");
    }
    assert!(panicked || number(db.get("k9").unwrap()) == 9);
}

#[test]
fn poisons_when_a_leader_panics() {
    lane("poisons_when_a_leader_panics", 15_000, panic_while_leading);
}

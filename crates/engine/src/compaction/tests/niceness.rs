//! Background threads that give way to others.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::getpriority_process;
use trommel_vfs::{Layer, SimDisk, Vfs, WriteFile};

use super::Rng;
use super::share::{Content, options, write};
use crate::sync::lock;
use crate::{Db, env};

/// How long all threads are waited for.
const LONGEST: Duration = Duration::from_secs(20);

/// A disk that notes how nice the threads are that create files.
#[derive(Debug, Clone, Default)]
struct Asking {
    disk: SimDisk,
    seen: Arc<Mutex<BTreeMap<String, i32>>>,
}

impl Layer for Asking {
    fn below(&self) -> &dyn Vfs {
        &self.disk
    }

    fn create(&self, path: &Path) -> std::io::Result<Box<dyn WriteFile>> {
        let name = thread::current().name().unwrap_or("").to_string();
        if name.starts_with("trommel-") {
            lock(&self.seen).insert(name, getpriority_process(None)?);
        }
        self.disk.create(path)
    }
}

#[test]
fn all_background_threads_but_the_first_give_way() {
    let own = getpriority_process(None).unwrap();
    for niceness in [0, 3] {
        let disk = Asking::default();
        let options = options(Arc::new(disk.clone())).auto_compaction(true);
        let db =
            Db::open("db", options.background_threads(3).background_niceness(niceness)).unwrap();
        let (mut rng, mut content) = (Rng(7), Content::new());
        let began = env::now();
        while lock(&disk.seen).len() < 3 && Instant::now() < began + LONGEST {
            write(&db, &mut rng, &mut content);
            db.wait_idle().unwrap();
        }
        let nicer = (own + i32::from(niceness)).min(19);
        let expected = [("trommel-0", own), ("trommel-1", nicer), ("trommel-2", nicer)];
        let expected: BTreeMap<_, _> =
            expected.into_iter().map(|(name, niceness)| (name.to_string(), niceness)).collect();
        assert_eq!(*lock(&disk.seen), expected);
        // Who opened the store is as nice as before.
        assert_eq!(getpriority_process(None).unwrap(), own);
    }
}

#[test]
fn no_thread_is_nicer_than_the_system_knows() {
    let error = Db::open("db", options(Arc::new(SimDisk::new())).background_niceness(20));
    let text = error.unwrap_err().to_string();
    assert!(text.contains("background_niceness") && text.contains("19"), "{text}");
}

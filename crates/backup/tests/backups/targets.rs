//! The conformance suite of targets.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

use trommel_backup::{Directory, Purpose, Target, target_at};
use trommel_sim::{MemoryVfs, SimDisk};

/// Runs `test` on an empty target of each kind that needs no server.
pub(crate) fn each(test: impl Fn(Arc<dyn Target>)) {
    let scratch = tempfile::tempdir().unwrap();
    test(Arc::new(Directory::new(scratch.path().join("repository"))));
    test(Arc::new(Directory::on(Arc::new(MemoryVfs::new()), "repository")));
    test(Arc::new(Directory::on(Arc::new(SimDisk::new()), "repository")));
    #[cfg(feature = "object-store")]
    test(Arc::new(in_memory("some/prefix")));
    #[cfg(feature = "object-store")]
    test(Arc::new(in_memory("")));
}

#[cfg(feature = "object-store")]
pub(crate) fn in_memory(prefix: &str) -> trommel_backup::Objects {
    let store = Arc::new(object_store::memory::InMemory::new());
    trommel_backup::Objects::new(store, prefix, "memory").unwrap()
}

/// The whole of an object.
pub(crate) fn get(target: &dyn Target, name: &str) -> io::Result<Vec<u8>> {
    let (mut content, length) = target.get(name)?;
    let mut bytes = Vec::new();
    content.read_to_end(&mut bytes)?;
    assert_eq!(bytes.len() as u64, length);
    Ok(bytes)
}

fn put(target: &dyn Target, name: &str, content: &[u8]) {
    target.put(name, content.len() as u64, &mut &content[..]).unwrap();
}

fn list(target: &dyn Target, folder: &str) -> Vec<(String, u64)> {
    let mut found = target.list(folder).unwrap();
    found.sort();
    found
}

/// Checks all guarantees; the target is empty at first.
pub(crate) fn conforms(target: &dyn Target) {
    assert!(target.list("blobs").unwrap().is_empty(), "of a place that does not exist");
    assert_eq!(target.get("REPOSITORY").err().unwrap().kind(), ErrorKind::NotFound);
    assert!(target.found().unwrap());
    assert!(target.found().unwrap(), "an unfinished beginning is gone on with");

    let hold = target.lock(Purpose::Add).unwrap();
    let long: Vec<u8> = (0..20_000_003_u32).map(|n| (n % 251) as u8).collect();
    for (name, content) in
        [("blobs/empty", &b""[..]), ("blobs/short", b"abc"), ("blobs/long", &long)]
    {
        put(target, name, content);
        assert!(get(target, name).unwrap() == content, "{name}");
    }
    put(target, "blobs/short", b"abcd");
    assert_eq!(get(target, "blobs/short").unwrap(), b"abcd", "a second time replaces");

    assert!(target.put_new("backups/one", b"1").unwrap());
    assert!(!target.put_new("backups/one", b"2").unwrap(), "the name is taken");
    assert_eq!(get(target, "backups/one").unwrap(), b"1");
    assert!(target.put_new("REPOSITORY", b"marker").unwrap());
    hold.confirm().unwrap();
    target.settle().unwrap();

    let lengths = [("empty", 0), ("long", 20_000_003), ("short", 4)];
    assert_eq!(list(target, "blobs"), lengths.map(|(name, bytes)| (name.to_owned(), bytes)));
    assert_eq!(list(target, "backups"), [("one".to_owned(), 1)]);
    assert!(target.exists("blobs/long").unwrap() && !target.exists("blobs/lon").unwrap());
    assert!(!target.found().unwrap(), "something lies there now");

    target.delete("blobs/long").unwrap();
    target.delete("blobs/long").unwrap();
    assert!(!target.exists("blobs/long").unwrap());
    a_content_that_cannot_be_read_is_not_stored(target);
    drop(hold);
    collecting_goes_with_nothing_else(target);
}

/// A content whose read fails.
struct Broken(usize);

impl Read for Broken {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.min(buffer.len());
        self.0 -= bytes;
        if bytes == 0 { Err(io::Error::other("broken off")) } else { Ok(bytes) }
    }
}

fn a_content_that_cannot_be_read_is_not_stored(target: &dyn Target) {
    for bytes in [0, 10, 17_000_000] {
        let error = target.put("blobs/broken", 18_000_000, &mut Broken(bytes)).unwrap_err();
        assert_eq!(error.to_string(), "broken off");
        assert!(!target.exists("blobs/broken").unwrap());
    }
    put(target, "blobs/broken", b"mended");
    assert_eq!(get(target, "blobs/broken").unwrap(), b"mended");
}

fn collecting_goes_with_nothing_else(target: &dyn Target) {
    for (first, second) in [
        (Purpose::Collect, Purpose::Collect),
        (Purpose::Collect, Purpose::Add),
        (Purpose::Add, Purpose::Collect),
    ] {
        let hold = target.lock(first).unwrap();
        let refused = target.lock(second).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock, "{refused}");
        hold.confirm().unwrap();
        drop(hold);
        drop(target.lock(second).unwrap());
    }
}

#[test]
fn all_kinds_conform() {
    each(|target| conforms(&*target));
}

#[test]
fn one_of_many_writers_gets_the_name() {
    each(|target| {
        target.found().unwrap();
        let _hold = target.lock(Purpose::Add).unwrap();
        let target = &target;
        let winners: usize = std::thread::scope(|scope| {
            let put = |n: u8| move || usize::from(target.put_new("backups/one", &[n]).unwrap());
            let all: Vec<_> = (0..8).map(|n| scope.spawn(put(n))).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(winners, 1);
    });
}

#[test]
fn a_foreign_directory_is_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let letter = scratch.path().join("letter.txt");
    std::fs::write(&letter, "dear").unwrap();
    let target = target_at(scratch.path().to_str().unwrap()).unwrap();
    assert!(!target.found().unwrap());
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
}

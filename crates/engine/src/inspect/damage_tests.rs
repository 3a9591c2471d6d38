//! Every inspector on files with one flipped byte: an error or a right answer, never a panic.

use std::ops::Bound;
use std::path::Path;

use trommel_sim::MemoryVfs;
use trommel_vfs::Vfs;

use super::tests::{DIR, files, store};
use super::{Ending, Entry, Log, Manifest, Role, Table, find, live_files, properties};
use crate::BatchOp;
use crate::error::Error;

/// The same file with other bytes.
fn write(vfs: &MemoryVfs, path: &Path, bytes: &[u8]) {
    vfs.remove(path).unwrap();
    vfs.create(path).unwrap().append(bytes).unwrap();
}

/// Calls `look` with each byte of the file at `path` flipped in turn.
fn flip_each(vfs: &MemoryVfs, path: &Path, mut look: impl FnMut(usize)) {
    let sound = vfs.read(path, 1 << 20).unwrap();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        write(vfs, path, &bytes);
        look(at);
    }
    write(vfs, path, &sound);
}

fn entries(table: &Table) -> (Vec<Entry>, bool) {
    let Ok(scan) = table.scan(Bound::Unbounded, Bound::Unbounded) else {
        return (Vec::new(), false);
    };
    let mut good = Vec::new();
    for entry in scan {
        match entry {
            Ok(entry) => good.push(entry),
            Err(_) => return (good, false),
        }
    }
    (good, true)
}

#[test]
fn a_flipped_byte_of_a_table_is_found_and_never_used() {
    let vfs = MemoryVfs::new();
    store(&vfs, "paired:12").close().unwrap();
    for path in files(&vfs, Role::Table) {
        let sound = entries(&Table::open(&vfs, &path).unwrap()).0;
        flip_each(&vfs, &path, |at| {
            let table = Table::open(&vfs, &path).unwrap();
            match table.check() {
                Err(Error::Corruption(damage)) => assert_eq!(damage.file, path),
                Err(Error::Unsupported { .. }) => {}
                other => panic!("byte {at}: {other:?}"),
            }
            let (seen, whole) = entries(&table);
            assert!(sound.starts_with(&seen) && (!whole || seen.len() == sound.len()), "byte {at}");
            let _ = table.info();
            if let Ok(layout) = table.layout() {
                assert!(layout.iter().any(|block| block.content.is_err()), "byte {at}");
            }
        });
    }
}

#[test]
fn a_flipped_byte_of_a_log_is_found_and_never_used() {
    let vfs = MemoryVfs::new();
    store(&vfs, "none").close().unwrap();
    let path = files(&vfs, Role::Log).pop().unwrap();
    let keys_of = |log: &Log| {
        let operations = log.scan().flat_map(|batch| batch.operations());
        let key = |op| match op {
            BatchOp::Put { key, .. } | BatchOp::Delete { key } => key.to_vec(),
            other => panic!("{other:?}"),
        };
        operations.map(|operation| key(operation.unwrap().op)).collect::<Vec<_>>()
    };
    let sound = keys_of(&Log::open(&vfs, &path).unwrap());
    flip_each(&vfs, &path, |at| {
        let log = match Log::open(&vfs, &path) {
            Ok(log) => log,
            Err(Error::Unsupported { .. }) => return,
            Err(other) => panic!("byte {at}: {other}"),
        };
        assert!(matches!(log.check(), Err(Error::Corruption(_))), "byte {at}");
        assert!(matches!(log.ending(), Ending::Damaged(_)), "byte {at}");
        assert!(sound.starts_with(&keys_of(&log)), "byte {at}");
        let _ = (log.info(), log.layout());
    });
}

#[test]
fn a_flipped_byte_of_a_manifest_is_found_and_never_used() {
    let vfs = MemoryVfs::new();
    store(&vfs, "none").close().unwrap();
    let path = files(&vfs, Role::Manifest).pop().unwrap();
    let edits_of = |manifest: &Manifest| {
        let edits = manifest.scan();
        edits.map(|edit| edit.unwrap()).collect::<Vec<_>>()
    };
    let sound = edits_of(&Manifest::open(&vfs, &path).unwrap());
    flip_each(&vfs, &path, |at| {
        let manifest = match Manifest::open(&vfs, &path) {
            Ok(manifest) => manifest,
            Err(Error::Unsupported { .. }) => return,
            Err(other) => panic!("byte {at}: {other}"),
        };
        assert!(matches!(manifest.check(), Err(Error::Corruption(_))), "byte {at}");
        assert!(sound.starts_with(&edits_of(&manifest)), "byte {at}");
        let _ = (manifest.info(), manifest.layout());
    });
}

/// The operations on a whole store, with one byte of any of its files flipped.
#[test]
fn a_corrupt_store_is_inspected_without_a_panic() {
    let vfs = MemoryVfs::new();
    store(&vfs, "blocked:12").close().unwrap();
    let dir = Path::new(DIR);
    let sound = find(&vfs, dir, b"key 0030").unwrap().sightings;
    for path in vfs.list(dir).unwrap().into_iter().map(|entry| dir.join(entry.name)) {
        flip_each(&vfs, &path, |at| {
            if at % 3 != 0 {
                return;
            }
            let _ = (live_files(&vfs, dir), properties(&vfs, dir));
            let Ok(trace) = find(&vfs, dir, b"key 0030") else { return };
            let seen = trace.sightings.iter().flat_map(|s| &s.versions);
            let all: Vec<_> = sound.iter().flat_map(|s| &s.versions).collect();
            let seen: Vec<_> = seen.collect();
            assert!(seen.iter().all(|version| all.contains(version)), "byte {at}");
            assert!(seen.len() == all.len() || !trace.problems.is_empty(), "byte {at}");
        });
    }
}

//! Forged contents with valid checksums, as an attacker who knows the format could write them. Each
//! ends in an error that names the file, without a panic, a hang, or a large allocation.

use std::path::Path;
use std::sync::Arc;

use trommel_base::codec::{put_u32, put_varint};
use trommel_base::{Checksum, MAX_SEQNO};
use trommel_sim::MemoryVfs;
use trommel_vfs::Vfs;

use crate::files::log_path;
use crate::log::{FileHeader, FileKind, LogWriter};
use crate::manifest::current;
use crate::manifest::edit::VersionEdit;
use crate::names::{self, CURRENT, MAX_FILE_NUMBER};
use crate::{Db, Degraded, Error, Options, RepairOptions};

const DIR: &str = "db";
const STORE: u64 = 7;
const MANIFEST: u64 = 1;
const LOG: u64 = 2;

fn writer(vfs: &MemoryVfs, kind: FileKind, number: u64) -> LogWriter {
    let path = match kind {
        FileKind::Log => log_path(Path::new(DIR), number),
        FileKind::Manifest => Path::new(DIR).join(names::manifest(number)),
    };
    let header = FileHeader { kind, number, salt: 5, store_id: STORE, previous: 0 };
    LogWriter::create(vfs, &path, &header).unwrap()
}

/// A store whose manifest has these edits and whose log has these batches.
fn store(edits: &[Vec<u8>], batches: &[(u64, Vec<u8>)]) -> Arc<MemoryVfs> {
    let vfs = Arc::new(MemoryVfs::new());
    vfs.create_dir(Path::new(DIR)).unwrap();
    let mut manifest = writer(&vfs, FileKind::Manifest, MANIFEST);
    for (nth, edit) in edits.iter().enumerate() {
        manifest.append(nth as u64 + 1, &[edit]).unwrap();
    }
    let mut log = writer(&vfs, FileKind::Log, LOG);
    for (first_seqno, batch) in batches {
        log.append(*first_seqno, &[batch]).unwrap();
    }
    current::install(&*vfs, Path::new(DIR), MANIFEST).unwrap();
    vfs
}

fn plain_edit() -> Vec<u8> {
    VersionEdit {
        next_file_number: Some(3),
        last_seqno: Some(0),
        log_number: Some(LOG),
        ..VersionEdit::default()
    }
    .encode()
}

/// A batch that claims `count` operations, and has these keys.
fn batch(count: u32, keys: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    put_u32(&mut out, count);
    for key in keys {
        out.push(trommel_base::EntryKind::Put as u8);
        put_varint(&mut out, key.len() as u64);
        put_varint(&mut out, 1);
        out.extend_from_slice(key.as_bytes());
        out.push(b'v');
    }
    out
}

/// Opens and reads the store in every way: each gives an error or an answer.
fn try_all(vfs: &Arc<MemoryVfs>, case: &str) -> Error {
    let options = Options::default().vfs(Arc::<MemoryVfs>::clone(vfs)).background_threads(0);
    let _ = Db::verify_dir(DIR, &options);
    let _ = Db::repair(DIR, "new", options.clone(), RepairOptions::default().beyond_damage(true));
    for how in [Degraded::Certain, Degraded::LastIntact] {
        if let Ok(db) = Db::open_degraded(DIR, options.clone(), how) {
            let _ = db.get("a");
        }
    }
    for salvage in [true, false] {
        let _ = Db::open_read_only(DIR, options.clone().opening(|o| o.salvage(salvage)))
            .map(|db| db.get("a"));
    }
    match Db::open(DIR, options) {
        Ok(_) => panic!("{case}: it opened"),
        Err(error) => error,
    }
}

#[test]
fn a_sound_store_of_this_making_opens() {
    let vfs = store(&[plain_edit()], &[(1, batch(1, &["a"])), (2, batch(2, &["a", "b"]))]);
    let db = Db::open(DIR, Options::default().vfs(vfs).background_threads(0)).unwrap();
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"v"[..]));
}

/// Regression: two records with overlapping sequence numbers wrote one key at one number twice, and
/// the memtable panicked.
#[test]
fn records_of_a_log_whose_numbers_overlap_are_damage() {
    let vfs = store(&[plain_edit()], &[(1, batch(2, &["a", "a"])), (2, batch(1, &["a"]))]);
    let error = try_all(&vfs, "overlap");
    assert!(matches!(&error, Error::Corruption(damage) if damage.offset > 64), "{error:?}");
}

/// Regression: a degraded open failed on a record that is intact but not a batch.
#[test]
fn a_degraded_open_stops_before_a_record_that_is_no_batch() {
    for bad in [(2, batch(1, &["b"])), (3, vec![9; 9])] {
        let vfs = store(&[plain_edit()], &[(1, batch(2, &["a", "a"])), bad]);
        let options = Options::default().vfs(vfs).background_threads(0);
        let db = Db::open_degraded(DIR, options.clone(), Degraded::LastIntact).unwrap();
        assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(db.get("b").unwrap(), None);
        let report = db.recovery_report();
        assert!(report.damage.len() == 1 && report.doubt.is_some(), "{report:?}");
        drop(db);
        let db = Db::open_degraded(DIR, options, Degraded::Certain).unwrap();
        assert!(matches!(db.get("a"), Err(Error::InDoubt { .. })));
    }
}

#[test]
fn batches_that_are_none_are_damage() {
    let mut long_key = batch(1, &[]);
    long_key.push(trommel_base::EntryKind::Put as u8);
    put_varint(&mut long_key, u64::MAX);
    let cases: [(&str, u64, Vec<u8>); 6] = [
        ("more operations than bytes", 1, batch(u32::MAX, &["a"])),
        ("fewer operations than bytes", 1, batch(1, &["a", "b"])),
        ("a key longer than the batch", 1, long_key),
        ("no count", 1, vec![1]),
        ("numbers above the highest", MAX_SEQNO, batch(2, &["a", "b"])),
        ("numbers that overflow", u64::MAX, batch(2, &["a", "b"])),
    ];
    for (case, first_seqno, batch) in cases {
        let error = try_all(&store(&[plain_edit()], &[(first_seqno, batch)]), case);
        assert!(matches!(error, Error::Corruption(_)), "{case}: {error:?}");
    }
}

/// There are 2^56 sequence numbers. When all are used, writes fail before a byte is written, and
/// reads still work.
#[test]
fn at_the_end_of_the_sequence_numbers_writes_are_refused_and_reads_go_on() {
    let edit = VersionEdit {
        next_file_number: Some(3),
        last_seqno: Some(MAX_SEQNO - 2),
        log_number: Some(LOG),
        ..VersionEdit::default()
    };
    let vfs = store(&[edit.encode()], &[]);
    let options = || Options::default().vfs(Arc::<MemoryVfs>::clone(&vfs)).background_threads(0);
    let bytes = || -> usize {
        let files = vfs.list(Path::new(DIR)).unwrap();
        let path = |entry: &trommel_vfs::DirEntry| Path::new(DIR).join(&entry.name);
        files.iter().map(|entry| vfs.read(&path(entry), u64::MAX).unwrap().len()).sum()
    };
    let refused = |outcome: Result<(), Error>| {
        let error = outcome.expect_err("there is no number for it");
        assert!(error.to_string().contains("sequence numbers"), "{error}");
    };
    let db = Db::open(DIR, options()).unwrap();
    let before = bytes();
    let mut three = crate::WriteBatch::new();
    three.put("x", "").put("y", "").put("z", "");
    refused(db.write(three).map(drop));
    assert_eq!(bytes(), before, "a batch without numbers was logged");
    // Writes are accepted up to the very last number.
    db.put("a", "old").unwrap();
    db.put("a", "new").unwrap();
    assert_eq!(db.stats().last_seqno, MAX_SEQNO);
    for _ in 0..2 {
        let before = bytes();
        refused(db.put("a", "newer").map(drop));
        refused(db.delete("a").map(drop));
        refused(db.insert_if_absent("x", "v").map(drop));
        assert_eq!(bytes(), before, "a write without a number was logged");
        assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(db.snapshot().get("x").unwrap(), None);
        assert_eq!(db.iter().count(), 1);
        db.compact_all().unwrap();
    }
    db.verify().unwrap();
    db.close().unwrap();
    let db = Db::open(DIR, options()).unwrap();
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"new"[..]));
    refused(db.put("a", "newer").map(drop));
    db.close().unwrap();
}

#[test]
fn edits_that_are_none_are_errors() {
    let field = |tag: u64, bytes: u64, body: &[u8]| {
        let mut out = Vec::new();
        put_varint(&mut out, tag);
        put_varint(&mut out, bytes);
        out.extend_from_slice(body);
        out
    };
    let edit = |edit: VersionEdit| edit.encode();
    let cases: [(&str, Vec<u8>); 6] = [
        ("a field longer than any file", field(1, u64::MAX, &[])),
        ("a field longer than the edit", field(1, 1 << 40, &[1, 2, 3])),
        ("a field that nobody knows", field(99, 0, &[])),
        (
            "a file number above the highest",
            edit(VersionEdit { next_file_number: Some(u64::MAX), ..VersionEdit::default() }),
        ),
        (
            "no file numbers left",
            edit(VersionEdit { next_file_number: Some(MAX_FILE_NUMBER), ..VersionEdit::default() }),
        ),
        (
            "a table to remove that is not there",
            edit(VersionEdit { removed: vec![(0, 1)], ..VersionEdit::default() }),
        ),
    ];
    for (case, bytes) in cases {
        let vfs = store(&[plain_edit(), bytes], &[]);
        if case == "no file numbers left" {
            // The numbers that an open takes are above any file's number.
            let options = Options::default().vfs(vfs).background_threads(0);
            drop(Db::open(DIR, options));
            continue;
        }
        let error = try_all(&vfs, case);
        assert!(
            matches!(error, Error::Corruption(_) | Error::Unsupported { .. }),
            "{case}: {error:?}"
        );
    }
}

/// `CURRENT` may name a manifest of its own directory and nothing else.
#[test]
fn current_cannot_lead_elsewhere() {
    for name in ["../other/MANIFEST-000001", "/etc/passwd", "MANIFEST-000001/../x", "LOCK"] {
        let vfs = store(&[plain_edit()], &[]);
        let line = format!("{name}\n");
        let checksum = Checksum::bound_to(&[]).with(line.as_bytes()).value();
        let path = Path::new(DIR).join(CURRENT);
        vfs.remove(&path).unwrap();
        let text = format!("{line}crc32 {checksum:08x}\n");
        vfs.create(&path).unwrap().append(text.as_bytes()).unwrap();
        let error = try_all(&vfs, name);
        assert!(matches!(&error, Error::Corruption(damage) if damage.file == path), "{error:?}");
    }
}

/// A huge `CURRENT` is not read completely.
#[test]
fn a_huge_current_is_damage() {
    let vfs = store(&[plain_edit()], &[]);
    let path = Path::new(DIR).join(CURRENT);
    vfs.remove(&path).unwrap();
    vfs.create(&path).unwrap().append(&vec![b'M'; 1 << 20]).unwrap();
    assert!(matches!(try_all(&vfs, "huge"), Error::Corruption(_)));
}

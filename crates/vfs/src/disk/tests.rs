#![expect(clippy::disallowed_methods, reason = "these tests play the stranger")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::error::SHORT_READ;
use crate::os_error;

fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a place for temporary files");
    let path = dir.path().to_path_buf();
    (dir, path)
}

#[test]
fn files_and_folders_are_private() {
    let (_dir, path) = folder();
    DiskVfs.create(&path.join("file")).expect("a new file");
    DiskVfs.create_dir(&path.join("folder")).expect("a new folder");
    let mode =
        |name: &str| fs::metadata(path.join(name)).expect("it is there").permissions().mode();
    assert_eq!(mode("file") & 0o077, 0);
    assert_eq!(mode("folder") & 0o077, 0);
}

#[test]
fn a_fifo_in_place_of_a_file_is_refused_without_waiting() {
    let (_dir, path) = folder();
    let fifo = path.join("CURRENT");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("FIFOs can be made in a temporary folder");
    let start = Instant::now();
    let work = thread::spawn(move || {
        for access in [Access::Buffered, Access::Mapped, Access::Direct] {
            let error = DiskVfs.open(&fifo, access).expect_err("no regular file");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        let error = DiskVfs.lock(&fifo).expect_err("no regular file");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    });
    while !work.is_finished() {
        assert!(start.elapsed() < Duration::from_secs(60), "opening a FIFO hangs");
        thread::sleep(Duration::from_millis(1));
    }
    work.join().expect("refused as it should be");
}

#[test]
fn symbolic_links_are_listed_as_foreign_and_not_followed() {
    let (_dir, path) = folder();
    let (target, link) = (path.join("target"), path.join("link"));
    fs::write(&target, b"bytes").expect("room for it");
    symlink(&target, &link).expect("a free name");
    symlink("nowhere", path.join("dangling")).expect("a free name");
    for result in [DiskVfs.open(&link, Access::Buffered).map(drop), DiskVfs.lock(&link).map(drop)] {
        let error = result.expect_err("not followed");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    let error = DiskVfs.create(&path.join("dangling")).expect_err("not followed");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert!(!path.join("nowhere").exists());
    let entries = DiskVfs.list(&path).expect("it is there");
    let found: Vec<_> = entries.iter().map(|entry| (entry.bytes, entry.is_file)).collect();
    assert_eq!(found, [(0, false), (0, false), (5, true)]);
    DiskVfs.remove(&link).expect("it is there");
    symlink(&path, &link).expect("a free name");
    DiskVfs.create_dir(&path.join("a")).expect("a free name");
    let entries = DiskVfs.list(&path).expect("it is there");
    let found: Vec<_> = entries.iter().map(|entry| entry.is_dir).collect();
    assert_eq!(found, [true, false, false, false], "a folder, two links, a file");
}

#[test]
fn a_linked_store_directory_and_strange_names_are_fine() {
    use std::os::unix::ffi::OsStringExt;
    let (_dir, path) = folder();
    let strange = std::ffi::OsString::from_vec(b"sp ace \xff\xfe".to_vec());
    let store = path.join(&strange);
    DiskVfs.create_dir(&store).expect("a new folder");
    symlink(&store, path.join("link")).expect("a free name");
    let file = path.join("link").join(&strange);
    DiskVfs.create(&file).expect("a new file").append(b"x").expect("room for it");
    DiskVfs.sync_dir(&path.join("link")).expect("a folder behind a link");
    let entries = DiskVfs.list(&path.join("link")).expect("a folder behind a link");
    assert_eq!(entries, [DirEntry { name: strange, bytes: 1, is_file: true, is_dir: false }]);
}

/// The lock file is replaced between its open and its lock: a lock on the old file would leave the
/// new one free for a second owner.
#[test]
fn a_lock_file_replaced_before_it_is_locked_is_opened_again() {
    let (_dir, path) = folder();
    let lock = path.join("LOCK");
    let mut opened = 0;
    let held = lock_opened(
        &lock,
        || {
            let file = open_lock(&lock)?;
            opened += 1;
            match opened {
                1 => {
                    fs::write(path.join("fresh"), b"")?;
                    fs::rename(path.join("fresh"), &lock)?;
                }
                2 => fs::remove_file(&lock)?,
                _ => {}
            }
            Ok(file)
        },
        File::try_lock,
    );
    assert_eq!(opened, 3);
    let held = held.expect("the third was left in peace");
    let error = DiskVfs.lock(&lock).expect_err("held");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    drop(held);
    let held = lock_opened(
        &lock,
        || {
            let file = open_lock(&lock)?;
            fs::remove_file(&lock)?;
            Ok(file)
        },
        File::try_lock,
    );
    assert_eq!(held.expect_err("this never ends").kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_store_that_may_not_be_written_to_can_be_locked() {
    let (_dir, path) = folder();
    let lock = path.join("LOCK");
    fs::write(&lock, b"").expect("room for it");
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o400)).expect("ours");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o500)).expect("ours");
    let held = DiskVfs.lock(&lock).expect("reading is enough");
    assert!(DiskVfs.lock(&lock).is_err());
    drop(held);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("ours");
}

#[test]
fn errors_keep_the_systems_number() {
    let (_dir, path) = folder();
    let error = DiskVfs.open(&path.join("missing"), Access::Buffered).expect_err("missing");
    assert_eq!(os_error(&error), Some(rustix::io::Errno::NOENT.raw_os_error()));
    let text = error.to_string();
    assert!(text.starts_with("cannot open ") && text.contains("missing: No such file"), "{text}");
}

#[test]
fn a_map_outlives_its_file_handle_and_name() {
    let (_dir, path) = folder();
    let file = path.join("1.sst");
    DiskVfs.create(&file).expect("a new file").append(b"mapped").expect("room for it");
    let reader = DiskVfs.open(&file, Access::Mapped).expect("it is there");
    DiskVfs.remove(&file).expect("it is there");
    assert_eq!(reader.mapped(), Some(&b"mapped"[..]));
}

#[test]
fn a_file_that_shrinks_is_an_error_not_a_short_read() {
    let (_dir, path) = folder();
    let file = path.join("1.sst");
    for access in [Access::Buffered, Access::Direct] {
        fs::write(&file, vec![7; 20_000]).expect("room for it");
        let reader = DiskVfs.open(&file, access).expect("it is there");
        fs::write(&file, vec![7; 9_000]).expect("room for it");
        reader.read_at(0, &mut vec![0; 9_000]).expect("still there");
        let error = reader.read_at(8_000, &mut vec![0; 2_000]).expect_err("half of it is gone");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{access:?} {error}");
        let error = reader.read_at(16_000, &mut [0; 10]).expect_err("gone");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{access:?} {error}");
    }
}

/// The kernel's own files are regular ones that cannot be mapped, or read with `O_DIRECT`.
#[cfg(target_os = "linux")]
#[test]
fn where_maps_and_direct_reads_are_refused_reads_are_buffered() {
    let file = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    let Ok(expected) = fs::read(file) else { return };
    for access in [Access::Mapped, Access::Direct] {
        let reader = DiskVfs.open(file, access).expect("the fallback needs no permission");
        assert!(reader.mapped().is_none());
        let mut buffer = vec![0; expected.len()];
        reader.read_at(0, &mut buffer).expect("inside the file");
        assert_eq!(buffer, expected);
    }
}

/// A file that is shorter than it was is corrupt; a short read of an intact file does not make it
/// so.
#[cfg(target_os = "linux")]
#[test]
fn a_read_that_ends_inside_its_file_is_no_end_of_the_file() {
    // The kernel reports a length of a page, and returns a line.
    let file = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    let Ok(line) = fs::read(file) else { return };
    for access in [Access::Buffered, Access::Direct] {
        let reader = DiskVfs.open(file, access).expect("it may be read");
        let mut buffer = vec![0; line.len() + 1];
        assert!(reader.bytes() >= buffer.len() as u64);
        let error = reader.read_at(0, &mut buffer).expect_err("there is no more");
        assert_eq!(error.kind(), ErrorKind::Other, "{access:?} {error}");
        assert!(error.to_string().contains(SHORT_READ), "{access:?} {error}");
    }
}

/// Between fork and exec a child holds copies of all files. Closing only the parent's handle left
/// the store locked that long: the next open failed because the store was open elsewhere.
#[test]
fn a_lock_ends_although_a_process_being_started_has_a_copy_of_its_file() {
    let (_dir, path) = folder();
    let path = path.join("LOCK");
    let lock = lock_opened(&path, || open_lock(&path), File::try_lock).expect("nobody holds it");
    let copy = lock.file.try_clone().expect("a file handle");
    drop(lock);
    drop(DiskVfs.lock(&path).expect("nobody holds it any more"));
    drop(copy);
}

/// The file's inode number, independent of its name.
#[cfg(target_os = "linux")]
fn number(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&fs::symlink_metadata(path).unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_is_not_open_is_recycled() {
    let (_guard, dir) = folder();
    let (old, new) = (dir.join("old"), dir.join("new"));
    let write_over = |expected: bool| {
        let before = number(&old);
        // While there are two files, the second has another number.
        let mut file = DiskVfs.create_over(&old, &new).unwrap();
        assert_eq!(number(&new) == before, expected);
        file.append(b"new").unwrap();
        file
    };
    let write = || {
        let mut file = DiskVfs.create(&old).unwrap();
        file.append(&[7; 10_000]).unwrap();
        file.sync().unwrap();
        file
    };
    let written = write();
    drop(write_over(false));
    fs::remove_file(&new).unwrap();
    drop(written);

    drop(write());
    let over = write_over(true);
    // Its bytes will change, so it is not mapped; but from now on a reader keeps it from being
    // overwritten again.
    let reader = DiskVfs.open(&new, Access::Mapped).unwrap();
    assert!(reader.mapped().is_none());
    // It also no longer ends like the old one, a table with its footer.
    assert_eq!(reader.bytes(), 9_999);
    drop(over);
    assert_eq!(DiskVfs.read(&new, 100).unwrap(), b"new");
    fs::rename(&new, &old).unwrap();
    drop(write_over(false));
    assert!(!old.exists());
    drop(reader);
    assert!(DiskVfs.open(&new, Access::Mapped).unwrap().mapped().is_some());

    fs::rename(&new, &old).unwrap();
    drop(write_over(true));
    // Two overwrites of one file at once: the second gets a file of its own.
    fs::rename(&new, &old).unwrap();
    let first = write_over(true);
    fs::rename(&new, &old).unwrap();
    drop(write_over(false));
    drop(first);
}

/// Another process has its own locks, like a second open of the file in this process.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_another_process_reads_is_not_recycled() {
    let (_guard, dir) = folder();
    let (old, new) = (dir.join("old"), dir.join("new"));
    let write = || DiskVfs.create(&old).unwrap().append(&[7; 10_000]).unwrap();
    write();
    let reading = File::open(&old).unwrap();
    reading.try_lock_shared().unwrap();
    drop(DiskVfs.create_over(&old, &new).unwrap());
    assert!(!old.exists());
    assert_eq!(reading.metadata().unwrap().len(), 10_000, "it changed under a reader");
    assert_eq!(DiskVfs.read(&new, 100).unwrap(), b"");
    fs::remove_file(&new).unwrap();

    write();
    let reader = DiskVfs.open(&old, Access::Buffered).unwrap();
    let other = File::open(&old).unwrap();
    assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)), "nothing tells of readers");
    drop(reader);
    let mut over = DiskVfs.create_over(&old, &new).unwrap();
    over.append(b"new").unwrap();
    assert!(matches!(other.try_lock_shared(), Err(TryLockError::WouldBlock)));
    drop(over);
    other.try_lock_shared().unwrap();

    // A file that another process is overwriting does not exist for this one.
    drop(other);
    let other = File::open(&new).unwrap();
    other.try_lock().unwrap();
    let refused = DiskVfs.open(&new, Access::Buffered).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
    drop(other);
    DiskVfs.open(&new, Access::Buffered).unwrap();
}

//! The conformance suite, run on every [`Vfs`]: a fake that behaves better or worse than a disk
//! invalidates the tests that rely on it.
//!
//! Each function starts in a fresh directory of its own and tests one promise.

use std::io::{self, ErrorKind};
use std::path::Path;

use trommel_vfs::{Access, PathError, Vfs};

const ACCESSES: [Access; 3] = [Access::Buffered, Access::Mapped, Access::Direct];

/// Runs all tests, in new directories below `root`, which must exist and be empty.
pub fn check(vfs: &dyn Vfs, root: &Path) {
    type Promise = fn(&dyn Vfs, &Path);
    let promises: [(&str, Promise); 17] = [
        ("append", appended_bytes_read_back),
        ("long", long_files_read_back_at_any_offset),
        ("bounds", reads_past_the_end_are_refused),
        ("snapshot", an_open_file_keeps_its_length),
        ("create", creating_never_replaces),
        ("over", a_file_is_recycled_for_another),
        ("over open", open_or_linked_files_keep_their_bytes),
        ("missing", missing_things_are_not_found),
        ("kinds", files_and_folders_are_not_confused),
        ("list", listing_is_sorted_and_complete),
        ("rename", renaming_replaces),
        ("remove", removing_leaves_open_files_alone),
        ("folders", only_empty_folders_are_removed),
        ("link", hard_links_share_bytes),
        ("lock", a_lock_has_one_owner),
        ("shared lock", a_shared_lock_keeps_owners_out),
        ("whole", whole_files_are_read_up_to_a_limit),
    ];
    for (name, promise) in promises {
        let dir = root.join(name);
        vfs.create_dir(&dir).expect("a new directory");
        promise(vfs, &dir);
        vfs.sync_dir(&dir).expect("a directory that exists");
    }
    vfs.sync_dir(root).expect("the root exists");
}

/// Asserts the error's kind, and that its text names `path`.
#[track_caller]
fn refused<T>(result: io::Result<T>, kind: ErrorKind, path: &Path) {
    let error = result.err().expect("this must be refused");
    assert_eq!(error.kind(), kind, "{error}");
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()), "{text:?} must name {}", path.display());
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<PathError>());
    assert!(inner.is_some_and(|inner| inner.path() == path), "{error:?}");
}

fn write(vfs: &dyn Vfs, path: &Path, bytes: &[u8]) {
    let mut file = vfs.create(path).expect("a new file");
    file.append(bytes).expect("room for it");
    file.sync().expect("a disk that works");
}

fn read(vfs: &dyn Vfs, path: &Path) -> Vec<u8> {
    vfs.read(path, 1 << 20).expect("a small file that exists")
}

fn names(vfs: &dyn Vfs, dir: &Path) -> Vec<String> {
    let entries = vfs.list(dir).expect("a directory that exists");
    entries.into_iter().map(|entry| entry.name.into_string().expect("plain names")).collect()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 % 251) as u8).collect()
}

fn appended_bytes_read_back(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("a.log");
    let mut file = vfs.create(&path).expect("a new file");
    assert_eq!(file.bytes(), 0);
    file.append(b"one").expect("room for it");
    assert_eq!(read(vfs, &path), b"one", "unsynced bytes are seen by readers");
    file.append(b"").expect("nothing to do");
    file.append(b"two").expect("room for it");
    assert_eq!(file.bytes(), 6);
    file.sync().expect("a disk that works");
    file.sync().expect("nothing to do");
    file.append(b"!").expect("room for it");
    drop(file);
    assert_eq!(read(vfs, &path), b"onetwo!");
}

fn long_files_read_back_at_any_offset(vfs: &dyn Vfs, dir: &Path) {
    let all = pattern(3 * (1 << 20) + 4321);
    for (name, bytes) in [("long", &all[..]), ("aligned", &all[..8192]), ("short", &all[..100])] {
        let path = dir.join(name);
        let mut file = vfs.create(&path).expect("a new file");
        bytes.chunks(100_003).for_each(|part| file.append(part).expect("room for it"));
        drop(file);
        for access in ACCESSES {
            let file = vfs.open(&path, access).expect("a file that exists");
            assert_eq!(file.bytes(), bytes.len() as u64);
            let offsets = [0, 1, 99, 511, 4095, 4096, 4097, 8191, 1 << 20, (2 << 20) + 77];
            for start in offsets.into_iter().filter(|&start| start <= bytes.len()) {
                for length in [0, 1, 512, 4096, 8192, 10_000, 1 << 21, bytes.len() - start] {
                    let Some(expected) = bytes.get(start..start + length) else { continue };
                    let mut buffer = vec![0xee; length];
                    file.will_need(start as u64, length);
                    file.read_at(start as u64, &mut buffer).expect("inside the file");
                    assert!(buffer == expected, "{access:?} {start} {length}");
                }
            }
            match file.mapped() {
                Some(map) => {
                    assert!(map == bytes && access == Access::Mapped);
                    let shared = file.shared_map().expect("a map can be shared");
                    drop(file);
                    assert!(*shared == *bytes, "as long as somebody keeps it");
                }
                None => assert!(access != Access::Mapped, "a file this simple can be mapped"),
            }
        }
    }
}

fn reads_past_the_end_are_refused(vfs: &dyn Vfs, dir: &Path) {
    let (path, empty) = (dir.join("ten"), dir.join("empty"));
    write(vfs, &path, b"0123456789");
    write(vfs, &empty, b"");
    for access in ACCESSES {
        let file = vfs.open(&path, access).expect("a file that exists");
        for (offset, length) in [(0, 11), (9, 2), (10, 1), (11, 0), (1 << 40, 1), (u64::MAX, 2)] {
            let result = file.read_at(offset, &mut vec![0; length]);
            refused(result, ErrorKind::UnexpectedEof, &path);
        }
        file.read_at(10, &mut []).expect("nothing is there");
        let file = vfs.open(&empty, access).expect("a file that exists");
        assert_eq!(file.bytes(), 0);
        file.read_at(0, &mut []).expect("nothing is there");
        refused(file.read_at(0, &mut [0]), ErrorKind::UnexpectedEof, &empty);
        assert!(file.mapped().is_none_or(<[u8]>::is_empty));
    }
}

fn an_open_file_keeps_its_length(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("grows");
    let mut writer = vfs.create(&path).expect("a new file");
    writer.append(b"first").expect("room for it");
    for access in ACCESSES {
        let reader = vfs.open(&path, access).expect("a file that exists");
        let before = reader.bytes();
        writer.append(b"more").expect("room for it");
        assert_eq!(reader.bytes(), before);
        refused(reader.read_at(before, &mut [0]), ErrorKind::UnexpectedEof, &path);
        let mut buffer = vec![0; before as usize];
        reader.read_at(0, &mut buffer).expect("inside the file");
        assert!(buffer.starts_with(b"first"));
    }
}

fn creating_never_replaces(vfs: &dyn Vfs, dir: &Path) {
    let (file, folder) = (dir.join("file"), dir.join("folder"));
    write(vfs, &file, b"kept");
    vfs.create_dir(&folder).expect("a new directory");
    for path in [&file, &folder] {
        refused(vfs.create(path), ErrorKind::AlreadyExists, path);
        refused(vfs.create_dir(path), ErrorKind::AlreadyExists, path);
    }
    assert_eq!(read(vfs, &file), b"kept");
    assert_eq!(names(vfs, dir), ["file", "folder"]);
}

fn a_file_is_recycled_for_another(vfs: &dyn Vfs, dir: &Path) {
    let (old, new) = (dir.join("old"), dir.join("new"));
    for (old_bytes, new_bytes) in [(10_000, 7), (10_000, 5_000), (5_000, 10_000), (7, 0), (0, 7)] {
        for is_synced in [true, false] {
            write(vfs, &old, &vec![9; old_bytes]);
            let mut file = vfs.create_over(&old, &new).expect("a file that nobody else needs");
            assert_eq!((file.bytes(), names(vfs, dir)), (0, vec!["new".to_owned()]));
            let bytes = pattern(new_bytes);
            for piece in bytes.chunks(3_000) {
                file.append(piece).expect("room for it");
            }
            assert_eq!(file.bytes(), new_bytes as u64);
            if is_synced {
                file.sync().expect("a disk that works");
                assert!(read(vfs, &new) == bytes);
            }
            drop(file);
            assert!(read(vfs, &new) == bytes);
            vfs.remove(&new).expect("a file that exists");
        }
    }
    write(vfs, &old, b"old");
    write(vfs, &new, b"new");
    refused(vfs.create_over(&old, &new), ErrorKind::AlreadyExists, &new);
    assert_eq!(read(vfs, &new), b"new");
}

fn open_or_linked_files_keep_their_bytes(vfs: &dyn Vfs, dir: &Path) {
    let (old, new, linked) = (dir.join("old"), dir.join("new"), dir.join("linked"));
    let bytes = pattern(10_000);
    let write_over = || {
        let mut file = vfs.create_over(&old, &new).expect("the file itself is needed no more");
        file.append(&[9; 20_000]).expect("room for it");
        file.sync().expect("a disk that works");
        assert!(read(vfs, &new) == [9; 20_000]);
        vfs.remove(&new).expect("a file that exists");
    };
    for access in ACCESSES {
        write(vfs, &old, &bytes);
        let file = vfs.open(&old, access).expect("a file that exists");
        let map = file.shared_map();
        write_over();
        let mut found = vec![0; bytes.len()];
        file.read_at(0, &mut found).expect("it is open");
        assert!(found == bytes);
        let Some(map) = map else { continue };
        // The map keeps the bytes by itself, too.
        drop(file);
        assert!(map[..] == bytes);
        write(vfs, &old, &bytes);
        let map = vfs.open(&old, access).expect("a file that exists").shared_map();
        write_over();
        assert!(map.expect("mapped before")[..] == bytes);
    }
    write(vfs, &old, &bytes);
    vfs.hard_link(&old, &linked).expect("a second name");
    write_over();
    assert!(read(vfs, &linked) == bytes);
}

fn missing_things_are_not_found(vfs: &dyn Vfs, dir: &Path) {
    let (missing, below) = (dir.join("missing"), dir.join("missing/below"));
    for path in [&missing, &below] {
        for access in ACCESSES {
            refused(vfs.open(path, access), ErrorKind::NotFound, path);
        }
        refused(vfs.list(path), ErrorKind::NotFound, path);
        refused(vfs.remove(path), ErrorKind::NotFound, path);
        refused(vfs.rename(path, &dir.join("to")), ErrorKind::NotFound, path);
        refused(vfs.hard_link(path, &dir.join("to")), ErrorKind::NotFound, path);
        refused(vfs.sync_dir(path), ErrorKind::NotFound, path);
        refused(vfs.sync_file(path), ErrorKind::NotFound, path);
        refused(vfs.read(path, 1), ErrorKind::NotFound, path);
    }
    refused(vfs.create(&below), ErrorKind::NotFound, &below);
    refused(vfs.create_dir(&below), ErrorKind::NotFound, &below);
    refused(vfs.lock(&below), ErrorKind::NotFound, &below);
    assert!(names(vfs, dir).is_empty(), "nothing came into being");
}

fn files_and_folders_are_not_confused(vfs: &dyn Vfs, dir: &Path) {
    let (file, folder) = (dir.join("file"), dir.join("folder"));
    write(vfs, &file, b"bytes");
    vfs.create_dir(&folder).expect("a new directory");
    for access in ACCESSES {
        refused(vfs.open(&folder, access), ErrorKind::InvalidInput, &folder);
    }
    refused(vfs.lock(&folder), ErrorKind::InvalidInput, &folder);
    refused(vfs.remove(&folder), ErrorKind::IsADirectory, &folder);
    refused(vfs.rename(&file, &folder), ErrorKind::IsADirectory, &file);
    refused(vfs.list(&file), ErrorKind::NotADirectory, &file);
    refused(vfs.sync_dir(&file), ErrorKind::NotADirectory, &file);
    vfs.sync_file(&file).expect("a finished file");
    refused(vfs.sync_file(&folder), ErrorKind::InvalidInput, &folder);
    let below = file.join("below");
    refused(vfs.create(&below), ErrorKind::NotADirectory, &below);
    refused(vfs.open(&below, Access::Buffered), ErrorKind::NotADirectory, &below);
    assert_eq!(names(vfs, dir), ["file", "folder"]);
}

fn listing_is_sorted_and_complete(vfs: &dyn Vfs, dir: &Path) {
    assert!(vfs.list(dir).expect("a directory that exists").is_empty());
    for (length, name) in ["b", "000010.log", "a", "000002.log", "B", ".hidden"].iter().enumerate()
    {
        write(vfs, &dir.join(name), &pattern(length));
    }
    vfs.create_dir(&dir.join("ab")).expect("a new directory");
    write(vfs, &dir.join("ab/inside"), b"not listed above");
    let found: Vec<_> = vfs
        .list(dir)
        .expect("a directory that exists")
        .into_iter()
        .map(|entry| (entry.name.into_string().expect("plain names"), entry.bytes, entry.is_file))
        .collect();
    let expected = [
        (".hidden", 5, true),
        ("000002.log", 3, true),
        ("000010.log", 1, true),
        ("B", 4, true),
        ("a", 2, true),
        ("ab", 0, false),
        ("b", 0, true),
    ];
    assert_eq!(found, expected.map(|(name, bytes, file)| (name.to_string(), bytes, file)));
    assert_eq!(names(vfs, &dir.join("ab")), ["inside"]);
}

fn renaming_replaces(vfs: &dyn Vfs, dir: &Path) {
    let (current, temporary) = (dir.join("CURRENT"), dir.join("CURRENT.tmp"));
    write(vfs, &current, b"old");
    let old = vfs.open(&current, Access::Buffered).expect("a file that exists");
    let mut writer = vfs.create(&temporary).expect("a new file");
    writer.append(b"new").expect("room for it");
    vfs.rename(&temporary, &current).expect("a name to replace");
    assert_eq!(names(vfs, dir), ["CURRENT"]);
    assert_eq!(read(vfs, &current), b"new");
    writer.append(b"er").expect("the file lives on under its new name");
    assert_eq!(read(vfs, &current), b"newer");
    let mut buffer = [0; 3];
    old.read_at(0, &mut buffer).expect("the replaced file lives on for its readers");
    assert_eq!(&buffer, b"old");

    vfs.rename(&current, &current).expect("nothing to do");
    vfs.hard_link(&current, &temporary).expect("a free name");
    vfs.rename(&temporary, &current).expect("nothing to do: one file");
    assert_eq!(names(vfs, dir), ["CURRENT", "CURRENT.tmp"]);

    let folder = dir.join("folder");
    vfs.create_dir(&folder).expect("a new directory");
    vfs.rename(&current, &folder.join("moved")).expect("a free name");
    assert_eq!(read(vfs, &folder.join("moved")), b"newer");
    assert_eq!(names(vfs, dir), ["CURRENT.tmp", "folder"]);
}

fn removing_leaves_open_files_alone(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("gone");
    for access in ACCESSES {
        let mut writer = vfs.create(&path).expect("the name is free each time");
        writer.append(b"bytes").expect("room for it");
        let reader = vfs.open(&path, access).expect("a file that exists");
        vfs.remove(&path).expect("a file that exists");
        refused(vfs.open(&path, access), ErrorKind::NotFound, &path);
        writer.append(b"unseen").expect("an unlinked file can be written to");
        writer.sync().expect("and synced");
        assert_eq!(writer.bytes(), 11);
        let mut buffer = [0; 5];
        reader.read_at(0, &mut buffer).expect("and read");
        assert_eq!(&buffer, b"bytes");
        assert!(names(vfs, dir).is_empty());
    }
}

fn only_empty_folders_are_removed(vfs: &dyn Vfs, dir: &Path) {
    let (folder, inside) = (dir.join("folder"), dir.join("folder/inside"));
    vfs.create_dir(&folder).expect("a new directory");
    write(vfs, &inside, b"bytes");
    refused(vfs.remove_dir(&folder), ErrorKind::DirectoryNotEmpty, &folder);
    refused(vfs.remove_dir(&inside), ErrorKind::NotADirectory, &inside);
    vfs.remove(&inside).expect("a file that exists");
    vfs.remove_dir(&folder).expect("an empty directory");
    assert!(names(vfs, dir).is_empty());
    refused(vfs.remove_dir(&folder), ErrorKind::NotFound, &folder);
    vfs.create_dir(&folder).expect("its name is free again");
    assert!(names(vfs, &folder).is_empty());
    vfs.remove_dir(&folder).expect("an empty directory");
}

fn hard_links_share_bytes(vfs: &dyn Vfs, dir: &Path) {
    let (first, second, folder) = (dir.join("1.sst"), dir.join("2.sst"), dir.join("checkpoint"));
    let mut writer = vfs.create(&first).expect("a new file");
    writer.append(b"shared").expect("room for it");
    vfs.hard_link(&first, &second).expect("a free name");
    writer.append(b" bytes").expect("room for it");
    assert_eq!(read(vfs, &second), b"shared bytes");
    refused(vfs.hard_link(&first, &second), ErrorKind::AlreadyExists, &first);
    vfs.create_dir(&folder).expect("a new directory");
    vfs.hard_link(&second, &folder.join("3.sst")).expect("a free name elsewhere");
    vfs.remove(&first).expect("a file that exists");
    vfs.remove(&second).expect("a file that exists");
    assert_eq!(read(vfs, &folder.join("3.sst")), b"shared bytes");
    vfs.create(&first).expect("the name is free again");
    assert_eq!(read(vfs, &first), b"");
}

fn a_lock_has_one_owner(vfs: &dyn Vfs, dir: &Path) {
    let (path, other) = (dir.join("LOCK"), dir.join("OTHER"));
    let lock = vfs.lock(&path).expect("nobody holds it");
    assert_eq!(names(vfs, dir), ["LOCK"], "the file was created");
    refused(vfs.lock(&path), ErrorKind::WouldBlock, &path);
    drop(vfs.open(&path, Access::Buffered).expect("a lock does not keep readers out"));
    refused(vfs.lock(&path), ErrorKind::WouldBlock, &path);
    let another = vfs.lock(&other).expect("another file is another lock");
    drop(lock);
    let again = vfs.lock(&path).expect("it was released");
    drop((again, another));
    assert_eq!(names(vfs, dir), ["LOCK", "OTHER"], "released locks leave their files");
}

fn a_shared_lock_keeps_owners_out(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("LOCK");
    refused(vfs.lock_shared(&path), ErrorKind::NotFound, &path);
    assert_eq!(names(vfs, dir), Vec::<String>::new(), "nothing was created");
    let owner = vfs.lock(&path).expect("nobody holds it");
    refused(vfs.lock_shared(&path), ErrorKind::WouldBlock, &path);
    drop(owner);
    let first = vfs.lock_shared(&path).expect("it was released");
    let second = vfs.lock_shared(&path).expect("it may be shared");
    refused(vfs.lock(&path), ErrorKind::WouldBlock, &path);
    drop(first);
    refused(vfs.lock(&path), ErrorKind::WouldBlock, &path);
    drop(second);
    drop(vfs.lock(&path).expect("nobody shares it any more"));
}

fn whole_files_are_read_up_to_a_limit(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("CURRENT");
    write(vfs, &path, b"12345");
    assert_eq!(vfs.read(&path, 5).expect("at the limit"), b"12345");
    refused(vfs.read(&path, 4), ErrorKind::InvalidData, &path);
}

#[cfg(test)]
mod tests {
    use trommel_vfs::DiskVfs;

    use super::*;

    #[test]
    fn a_disk_conforms() {
        let dir = tempfile::tempdir().expect("a place for temporary files");
        check(&DiskVfs, dir.path());
    }

    #[test]
    fn a_disk_conforms_on_a_file_system_in_memory() {
        // Older kernels refuse O_DIRECT there: reads must fall back.
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
        check(&DiskVfs, dir.path());
    }
}

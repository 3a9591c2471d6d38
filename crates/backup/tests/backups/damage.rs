//! Damage to a repository is always found and named, and never restored.

use std::path::Path;
use std::sync::Arc;

use sha2::Digest as _;
use trommel::RebuildOptions;
use trommel::vfs::Vfs;
use trommel_backup::{Directory, Error, Repository};
use trommel_sim::MemoryVfs;

use crate::stores::{entries, entries_in, names, new_store, open, write};

/// A repository in memory with two backups of one store, and a directory to restore to.
struct Scene {
    vfs: Arc<dyn Vfs>,
    repository: Repository,
}

/// Backup 1 needs one of the tables, backup 2 both.
fn scene() -> Scene {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let target = Arc::new(Directory::on(vfs.clone(), "repository"));
    let repository = Repository::open_or_create(target).unwrap();
    let (_, db) = new_store();
    for round in 0..2 {
        write(&db, round, 300);
        repository.create(&db, &()).unwrap();
    }
    Scene { vfs, repository }
}

impl Scene {
    fn replace(&self, path: &str, bytes: &[u8]) {
        self.vfs.remove(path.as_ref()).unwrap();
        let mut file = self.vfs.create(path.as_ref()).unwrap();
        file.append(bytes).unwrap();
    }

    fn read(&self, path: &str) -> Vec<u8> {
        self.vfs.read(path.as_ref(), u64::MAX).unwrap()
    }

    /// Verifies both backups: those in `hit` must report that `path` is damaged, the others be
    /// intact.
    fn check(&self, path: &str, hit: &[u64], why: &str) {
        let all = self.repository.verify(None, &()).unwrap();
        assert_eq!(all.damages.len(), 1, "{why}: {:?}", all.damages);
        assert_eq!(all.damages[0].file, path, "{why}");
        let whole: Vec<u64> = [1, 2].into_iter().filter(|id| !hit.contains(id)).collect();
        assert_eq!(all.whole, whole, "{why}");
        for id in [1, 2] {
            let one = self.repository.verify(Some(id), &()).unwrap();
            let restored = self.repository.restore_on(self.vfs.clone(), id, "restored", &());
            if hit.contains(&id) {
                assert_eq!(one.damages[0].file, path, "{why}");
                let Err(Error::Damaged(damage)) = restored else { panic!("{why}: {restored:?}") };
                assert_eq!(damage.file, path, "{why}");
                assert!(damage.what.contains(&format!("backup {id}")), "{damage}");
                let left = self.vfs.list(Path::new("restored"));
                assert!(left.is_err(), "{why}: the directory is there: {left:?}");
            } else {
                assert!(one.damages.is_empty() && restored.is_ok(), "{why}: {restored:?}");
                for name in names(&*self.vfs, "restored") {
                    self.vfs.remove(&Path::new("restored").join(name)).unwrap();
                }
                self.vfs.remove_dir(Path::new("restored")).unwrap();
            }
        }
    }

    /// The contents, each with the backups that need it.
    fn blobs(&self) -> Vec<(String, Vec<u64>)> {
        let backups = [1, 2].map(|id| self.repository.backup(id).unwrap());
        let needs = |name: &str| {
            let needs = |backup: &&trommel_backup::Backup| {
                backup.files.iter().any(|file| name.starts_with(&file.sha256))
            };
            backups.iter().filter(needs).map(|backup| backup.id).collect()
        };
        let names = names(&*self.vfs, "repository/blobs").into_iter();
        names.map(|name| (format!("repository/blobs/{name}"), needs(&name))).collect()
    }
}

#[test]
fn flips_and_cuts_of_contents_are_found_and_named() {
    let scene = scene();
    let mut random = fastrand::Rng::with_seed(7);
    let blobs = scene.blobs();
    assert_eq!(blobs.len(), 7);
    for (path, hit) in blobs {
        let bytes = scene.read(&path);
        let ends = [0, bytes.len() - 1];
        let between: Vec<usize> = (0..6).map(|_| random.usize(..bytes.len())).collect();
        for at in ends.into_iter().chain(between) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << random.u8(..8);
            scene.replace(&path, &bytes);
            scene.check(&path, &hit, &format!("{path}, byte {at} flipped"));
        }
        for length in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            scene.replace(&path, &bytes[..length]);
            scene.check(&path, &hit, &format!("{path}, cut to {length}"));
        }
        scene.replace(&path, &[&bytes[..], b"x"].concat());
        scene.check(&path, &hit, &format!("{path}, made longer"));
        scene.vfs.remove(path.as_ref()).unwrap();
        scene.check(&path, &hit, &format!("{path}, removed"));
        drop(scene.vfs.create(path.as_ref()).unwrap()); // For `replace` to remove.
        scene.replace(&path, &bytes);
    }
    assert!(scene.repository.verify(None, &()).unwrap().damages.is_empty());
}

#[test]
fn flips_and_cuts_of_manifests_are_found_and_named() {
    let scene = scene();
    let path = "repository/backups/0000000002.json";
    let bytes = scene.read(path);
    for at in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x20;
        scene.replace(path, &bytes);
        scene.check(path, &[2], &format!("byte {at} flipped"));
    }
    for length in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        scene.replace(path, &bytes[..length]);
        scene.check(path, &[2], &format!("cut to {length}"));
    }
    let other = scene.read("repository/backups/0000000001.json");
    scene.replace(path, &other);
    scene.check(path, &[2], "the manifest of another backup");
}

#[test]
fn an_unreadable_manifest_keeps_all_contents_until_it_is_deleted() {
    let scene = scene();
    let path = "repository/backups/0000000001.json";
    scene.replace(path, b"{}");
    let error = scene.repository.purge(1, &()).unwrap_err();
    assert!(matches!(&error, Error::Damaged(damage) if damage.file == path), "{error}");
    let deleted = scene.repository.delete(2, &()).unwrap();
    assert_eq!((deleted.files, deleted.kept_for.len()), (0, 1));
    assert_eq!(deleted.kept_for[0].file, path);
    let deleted = scene.repository.delete(1, &()).unwrap();
    assert_eq!((deleted.files, deleted.kept_for.len()), (7, 0));
}

#[test]
fn a_content_of_wrong_length_is_stored_again() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let target = Arc::new(Directory::on(vfs.clone(), "repository"));
    let repository = Repository::open_or_create(target).unwrap();
    let (_, db) = new_store();
    write(&db, 1, 300);
    repository.create(&db, &()).unwrap();
    let scene = Scene { vfs, repository };
    for name in names(&*scene.vfs, "repository/blobs") {
        scene.replace(&format!("repository/blobs/{name}"), b"short");
    }
    scene.repository.create(&db, &()).unwrap();
    let table = scene.repository.backup(2).unwrap().files[0].clone();
    assert!(table.path.ends_with(".sst"));
    let verified = scene.repository.verify(Some(2), &()).unwrap();
    assert_eq!(verified.damages, [], "{table:?}");
    scene.repository.restore_on(scene.vfs.clone(), 2, "restored", &()).unwrap();
    assert!(entries_in(&scene.vfs, "restored") == entries(&db));
}

/// A corrupt table fails the backup: it could never be restored, and would replace good ones.
#[test]
fn a_damaged_store_is_not_backed_up() {
    let scene = scene();
    let (vfs, db) = new_store();
    write(&db, 5, 300);
    let table = names(&*vfs, "store").into_iter().find(|name| name.ends_with(".sst")).unwrap();
    drop(db);
    let path = format!("store/{table}");
    let good = vfs.read(path.as_ref(), u64::MAX).unwrap();
    let damaged = Scene { vfs: vfs.clone(), repository: scene.repository.clone() };
    for at in [20, 100, good.len() / 2] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        damaged.replace(&path, &bytes);
        let db = open(&vfs, "store");
        for _ in 0..2 {
            let error = scene.repository.create(&db, &()).unwrap_err();
            assert!(matches!(error, Error::Store(trommel::Error::Corruption(_))), "{error}");
            assert!(error.to_string().starts_with(&path), "{error}");
            assert!(error.to_string().contains("no backup was made"), "{error}");
        }
        assert_eq!(scene.repository.verify(None, &()).unwrap().whole, [1, 2]);
    }
    damaged.replace(&path, &good);
    scene.repository.create(&open(&vfs, "store"), &()).unwrap();
    assert_eq!(scene.repository.verify(None, &()).unwrap().whole, [1, 2, 3]);
}

/// Filter sidecars are backed up with their tables, unless they are corrupt: a rebuild makes new
/// ones.
#[test]
fn filter_sidecars_go_with_their_tables() {
    let scene = scene();
    let (vfs, db) = new_store();
    write(&db, 5, 300);
    let rebuild = |filters: &str| {
        db.set_filters(filters.parse().unwrap()).unwrap();
        assert_eq!(db.rebuild_filters(&RebuildOptions::default()).unwrap().rebuilt, 1);
        db.wait_idle().unwrap();
        let files = names(&*vfs, "store");
        format!("store/{}", files.iter().find(|name| name.ends_with(".flt")).unwrap())
    };
    rebuild("ribbon:12");
    let first = scene.repository.create(&db, &()).unwrap().backup.id;
    let path = rebuild("standard:8");
    let damaged = Scene { vfs: vfs.clone(), repository: scene.repository.clone() };
    let mut bytes = vfs.read(path.as_ref(), u64::MAX).unwrap();
    bytes[50] ^= 1;
    damaged.replace(&path, &bytes);
    let error = scene.repository.create(&db, &()).unwrap_err().to_string();
    assert!(error.starts_with(&path) && error.contains("no backup was made"), "{error}");
    rebuild("ribbon:13");
    let second = scene.repository.create(&db, &()).unwrap().backup.id;
    assert!(scene.repository.verify(None, &()).unwrap().whole.ends_with(&[first, second]));
    for (id, kind) in [(first, "ribbon:12"), (second, "ribbon:13")] {
        let dir = format!("restored-{id}");
        scene.repository.restore_on(scene.vfs.clone(), id, &dir, &()).unwrap();
        let restored = open(&scene.vfs, &dir);
        assert!(entries(&restored) == entries(&db));
        assert_eq!(restored.verify().unwrap().sidecars, 1);
        restored.set_filters(kind.parse().unwrap()).unwrap();
        let plan = restored.filter_rebuild_plan(&RebuildOptions::default()).unwrap();
        assert_eq!(plan.tables, [], "{kind}");
    }
}

/// A checked backup finds a corrupt content and replaces it, which repairs all backups.
#[test]
fn a_checked_backup_repairs_shared_contents() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let target = Arc::new(Directory::on(vfs.clone(), "repository"));
    let scene = Scene { vfs, repository: Repository::open_or_create(target).unwrap() };
    let db = open(&scene.vfs, "store");
    write(&db, 1, 300);
    let table = scene.repository.create(&db, &()).unwrap().backup.files[0].clone();
    let blob = format!("repository/blobs/{}-{}", table.sha256, table.bytes);
    let mut bytes = scene.read(&blob);
    bytes[50] ^= 4;
    scene.replace(&blob, &bytes);
    write(&db, 2, 300);
    let created = scene.repository.create(&db, &()).unwrap();
    assert_eq!((created.checked_files, created.mended_files), (0, 0));
    assert!(scene.repository.verify(None, &()).unwrap().whole.is_empty());
    let created = scene.repository.create_checked(&db, &()).unwrap();
    assert_eq!(
        (created.checked_files, created.mended_files),
        (4, 1),
        "two tables, CURRENT, OPTIONS"
    );
    assert_eq!(scene.repository.verify(None, &()).unwrap().whole, [1, 2, 3]);
    let created = scene.repository.create_checked(&db, &()).unwrap();
    assert_eq!(created.mended_files, 0);

    // A content without an intact copy in the store cannot be repaired, and stays as it is.
    scene.replace(&blob, &bytes);
    drop(db);
    let path = format!("store/{}", table.path);
    let mut damaged = scene.read(&path);
    damaged[100] ^= 1;
    scene.replace(&path, &damaged);
    let error = scene.repository.create_checked(&open(&scene.vfs, "store"), &()).unwrap_err();
    assert!(error.to_string().contains(&table.path), "{error}");
    assert_eq!(scene.read(&blob), bytes);
}

/// A table in the repository is not read again: later damage to the store's own copy does not reach
/// the backup.
#[test]
fn damage_to_a_known_table_stays_in_the_store() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let target = Arc::new(Directory::on(vfs.clone(), "repository"));
    let scene = Scene { vfs, repository: Repository::open_or_create(target).unwrap() };
    let db = open(&scene.vfs, "store");
    write(&db, 1, 300);
    let expected = entries(&db);
    let table = scene.repository.create(&db, &()).unwrap().backup.files[0].clone();
    drop(db);
    let path = format!("store/{}", table.path);
    let mut bytes = scene.read(&path);
    bytes[100] ^= 1;
    scene.replace(&path, &bytes);
    let db = open(&scene.vfs, "store");
    db.verify().unwrap_err();
    let created = scene.repository.create(&db, &()).unwrap();
    assert!(created.backup.files.contains(&table), "{:?}", created.backup.files);
    scene.repository.restore_on(scene.vfs.clone(), 2, "restored", &()).unwrap();
    assert!(entries_in(&scene.vfs, "restored") == expected);
}

#[test]
fn a_marker_says_which_version_it_is() {
    let scene = scene();
    let open = || {
        let target = Arc::new(Directory::on(scene.vfs.clone(), "repository"));
        (Repository::open(target.clone()), Repository::open_or_create(target))
    };
    let path = "repository/REPOSITORY";
    let good = scene.read(path);
    assert_eq!(good, b"{\"format\":\"trommel-backup\",\"version\":1}\n");
    scene.replace(path, b"{\"format\":\"trommel-backup\",\"version\":2}\n");
    for error in [open().0.unwrap_err(), open().1.unwrap_err()] {
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
    for bytes in [&b""[..], b"{}", b"{\"format\":\"tar\",\"version\":1}", &good[1..]] {
        scene.replace(path, bytes);
        for error in [open().0.unwrap_err(), open().1.unwrap_err()] {
            assert!(matches!(error, Error::NotARepository { .. }), "{error}");
        }
    }
}

/// A backup of a corrupt table with valid hashes, which current code does not create.
fn forge(scene: &Scene) -> String {
    let path = "repository/backups/0000000002.json";
    let text = String::from_utf8(scene.read(path)).unwrap();
    let table = scene.repository.backup(2).unwrap().files[0].clone();
    let mut bytes = scene.read(&format!("repository/blobs/{}-{}", table.sha256, table.bytes));
    bytes[100] ^= 1;
    let hash = |bytes: &[u8]| -> String {
        let digest = sha2::Sha256::digest(bytes);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let blob = format!("repository/blobs/{}-{}", hash(&bytes), table.bytes);
    scene.vfs.create(blob.as_ref()).unwrap().append(&bytes).unwrap();
    let (_, body) = text.trim_end().split_once(",\"backup\":").unwrap();
    let body = body.strip_suffix('}').unwrap().replace(&table.sha256, &hash(&bytes));
    let text = format!("{{\"sha256\":\"{}\",\"backup\":{body}}}\n", hash(body.as_bytes()));
    scene.replace(path, text.as_bytes());
    assert_eq!(scene.repository.verify(None, &()).unwrap().damages, []);
    table.path
}

/// The hashes are valid, but the store is corrupt.
#[test]
fn a_corrupt_store_is_restored_only_on_request() {
    let scene = scene();
    let table = forge(&scene);
    let error = scene.repository.restore_on(scene.vfs.clone(), 2, "restored", &()).unwrap_err();
    assert!(matches!(error, Error::Store(trommel::Error::Corruption(_))), "{error}");
    assert!(error.to_string().contains(&table), "{error}");
    assert!(scene.vfs.list("restored".as_ref()).is_err());

    let kept = scene.repository.restore_damaged(scene.vfs.clone(), 2, "restored", &()).unwrap();
    assert!(kept.verified.is_none());
    assert_eq!(kept.damages.len(), 1);
    assert_eq!(kept.damages[0].file, format!("restored/{table}"));
    let db = open(&scene.vfs, "restored");
    db.verify().unwrap_err();
    let whole = scene.repository.restore_damaged(scene.vfs.clone(), 1, "whole", &()).unwrap();
    assert!(whole.verified.is_some() && whole.damages.is_empty());
}

/// A content that is corrupt, or missing.
#[test]
fn the_intact_part_of_a_corrupt_backup_is_restored() {
    let scene = scene();
    let table = scene.repository.backup(2).unwrap().files[0].clone();
    let blob = format!("repository/blobs/{}-{}", table.sha256, table.bytes);
    let mut bytes = scene.read(&blob);
    bytes[100] ^= 1;
    scene.replace(&blob, &bytes);
    let kept = scene.repository.restore_damaged(scene.vfs.clone(), 2, "rotten", &()).unwrap();
    assert!(kept.damages.iter().any(|damage| damage.file == blob), "{:?}", kept.damages);
    assert_eq!(scene.read(&format!("rotten/{}", table.path)), bytes);
    let db = open(&scene.vfs, "rotten");
    let mut keys = (0..10_000_u64).map(u64::to_le_bytes);
    assert!(keys.any(|key| matches!(db.get(key), Ok(Some(_)))), "some can be read");
    drop(db);
    scene.vfs.remove(blob.as_ref()).unwrap();
    let kept = scene.repository.restore_damaged(scene.vfs.clone(), 2, "gone", &()).unwrap();
    assert!(kept.damages.iter().any(|damage| damage.what.contains("missing")));
    assert!(names(&*scene.vfs, "gone").contains(&"CURRENT".to_owned()));
}

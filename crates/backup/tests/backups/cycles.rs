//! Backups are created, listed, verified, restored and deleted.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use trommel::Db;
use trommel::vfs::{DiskVfs, Vfs};
use trommel_backup::{Directory, Error, Hold, Progress, Purpose, Repository, Target};
use trommel_sim::MemoryVfs;

use crate::stores::{entries, entries_in, names, new_store, open, options, write};
use crate::targets::each;

/// A target that counts stored contents, and can be made to fail.
#[derive(Debug)]
struct Counting {
    inner: Arc<dyn Target>,
    stored: AtomicU64,
    read: AtomicU64,
    /// Manifests that another writer creates just before ours.
    overtaken: AtomicU64,
    /// Whether the right to write is lost before the manifest is written.
    loses_right: AtomicBool,
    /// Contents deleted when the manifest is written.
    collected: Mutex<Vec<String>>,
}

impl Counting {
    fn new(inner: Arc<dyn Target>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            stored: AtomicU64::new(0),
            read: AtomicU64::new(0),
            overtaken: AtomicU64::new(0),
            loses_right: AtomicBool::new(false),
            collected: Mutex::default(),
        })
    }

    fn take(counter: &AtomicU64) -> u64 {
        counter.swap(0, Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct LosableHold {
    _inner: Box<dyn Hold>,
    is_lost: bool,
    confirmed: AtomicU64,
}

impl Hold for LosableHold {
    /// A store of one table has four files: the fifth call comes before the manifest, the sixth
    /// after it.
    fn confirm(&self) -> io::Result<()> {
        match self.confirmed.fetch_add(1, Ordering::Relaxed) {
            5.. if self.is_lost => Err(io::Error::other("the lease is gone")),
            _ => Ok(()),
        }
    }
}

impl Target for Counting {
    fn place(&self) -> String {
        self.inner.place()
    }

    fn found(&self) -> io::Result<bool> {
        self.inner.found()
    }

    fn lock(&self, purpose: Purpose) -> io::Result<Box<dyn Hold>> {
        let (inner, is_lost) =
            (self.inner.lock(purpose)?, self.loses_right.load(Ordering::Relaxed));
        Ok(Box::new(LosableHold { _inner: inner, is_lost, confirmed: AtomicU64::new(0) }))
    }

    fn put(&self, name: &str, bytes: u64, content: &mut dyn Read) -> io::Result<()> {
        self.stored.fetch_add(bytes, Ordering::Relaxed);
        self.inner.put(name, bytes, content)
    }

    fn put_new(&self, name: &str, content: &[u8]) -> io::Result<bool> {
        let overtaken = self.overtaken.load(Ordering::Relaxed);
        if overtaken > 0 {
            self.overtaken.store(overtaken - 1, Ordering::Relaxed);
            assert!(self.inner.put_new(name, b"somebody else's")?);
        }
        for name in self.collected.lock().unwrap().drain(..) {
            self.inner.delete(&name)?;
        }
        self.inner.put_new(name, content)
    }

    fn settle(&self) -> io::Result<()> {
        self.inner.settle()
    }

    fn get(&self, name: &str) -> io::Result<(Box<dyn Read + '_>, u64)> {
        let found = self.inner.get(name)?;
        self.read.fetch_add(found.1, Ordering::Relaxed);
        Ok(found)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        self.inner.list(folder)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.inner.delete(name)
    }
}

fn ids(repository: &Repository) -> Vec<u64> {
    repository.list().unwrap().iter().map(|listed| listed.id).collect()
}

/// The life cycle of a repository in a target that is empty at first.
pub(crate) fn life_cycle(target: Arc<dyn Target>) {
    let counting = Counting::new(target);
    assert!(matches!(Repository::open(counting.clone()), Err(Error::NotARepository { .. })));
    let repository = Repository::open_or_create(counting.clone()).unwrap();
    assert!(ids(&repository).is_empty());
    let (vfs, db) = new_store();
    let mut states = Vec::new();

    // Each backup stores only new contents.
    let mut tables = BTreeSet::new();
    for round in 0..3 {
        write(&db, round, 2_000);
        Counting::take(&counting.stored);
        let created = repository.create(&db, &()).unwrap();
        let new: Vec<_> =
            created.backup.files.iter().filter(|file| tables.insert(file.sha256.clone())).collect();
        let new_bytes: u64 = new.iter().map(|file| file.bytes).sum();
        assert_eq!(created.backup.id, round + 1);
        assert_eq!(created.backup.parent, (round > 0).then_some(round));
        // A table, a manifest, CURRENT; and OPTIONS, which does not change.
        assert_eq!(created.new_files, if round == 0 { 4 } else { 3 }, "{new:?}");
        assert_eq!((created.new_files, created.new_bytes), (new.len() as u64, new_bytes));
        assert_eq!(Counting::take(&counting.stored), new_bytes);
        let options = created.backup.files.iter().find(|file| file.path == "OPTIONS").unwrap();
        let hashed = new_bytes + if round == 0 { 0 } else { options.bytes };
        assert_eq!(created.hashed_bytes, hashed, "tables that are known are not read");
        assert!(round == 0 || created.new_bytes < created.backup.bytes() * 2 / 3);
        states.push(entries(&db));
    }
    assert_eq!(names(&*vfs, "store").iter().filter(|name| name.starts_with('.')).count(), 0);

    // All of them are intact, and each content is read once.
    let repository = Repository::open(counting.clone()).unwrap();
    assert_eq!(ids(&repository), [1, 2, 3]);
    let verified = repository.verify(None, &()).unwrap();
    assert_eq!((verified.backups, verified.files, verified.damages), (3, 10, vec![]));
    assert_eq!(verified.whole, [1, 2, 3]);
    for (id, state) in (1..).zip(&states) {
        let dir = format!("restored-{id}");
        let restored = repository.restore_on(vfs.clone(), id, &dir, &()).unwrap();
        assert_eq!(restored.verified.unwrap().tables, id);
        assert!(entries_in(&vfs, &dir) == *state, "backup {id}");
        for file in &restored.backup.files {
            let (source, copy) = (format!("store/{}", file.path), format!("{dir}/{}", file.path));
            let is_table = file.path.ends_with(".sst");
            let bytes = |path: &str| vfs.read(path.as_ref(), u64::MAX).unwrap();
            assert!(!is_table || bytes(&source) == bytes(&copy), "byte by byte: {}", file.path);
        }
    }

    // A restored store is a different store: it is writable, and can be backed up like any other.
    let old = open(&vfs, "restored-1");
    write(&old, 77, 100);
    let created = repository.create(&old, &()).unwrap();
    assert_eq!((created.backup.id, created.backup.parent), (4, None));

    // A deleted backup takes only its own contents with it.
    let deleted = repository.delete(2, &()).unwrap();
    assert_eq!((deleted.backups, deleted.files), (vec![2], 2), "its manifest and CURRENT");
    let deleted = repository.purge(1, &()).unwrap();
    assert_eq!(deleted.backups, [1], "each store keeps its newest");
    repository.delete(3, &()).unwrap();
    assert_eq!(ids(&repository), [4]);
    let verified = repository.verify(Some(4), &()).unwrap();
    assert_eq!((verified.files, verified.damages.len()), (5, 0));
    assert_eq!(repository.target_objects(&*counting), 5);
    repository.restore_on(vfs.clone(), 4, "restored-4", &()).unwrap();
    assert!(entries_in(&vfs, "restored-4") == entries(&old));
}

/// Counts the contents of a target.
trait Objects {
    fn target_objects(&self, target: &dyn Target) -> usize;
}

impl Objects for Repository {
    fn target_objects(&self, target: &dyn Target) -> usize {
        target.list("blobs").unwrap().len()
    }
}

#[test]
fn the_life_cycle_on_every_target() {
    each(life_cycle);
}

fn in_memory() -> Arc<dyn Target> {
    Arc::new(Directory::on(Arc::new(MemoryVfs::new()), "repository"))
}

#[test]
fn wrong_calls_are_explained() {
    let repository = Repository::open_or_create(in_memory()).unwrap();
    let (vfs, db) = new_store();
    write(&db, 1, 100);
    repository.create(&db, &()).unwrap();
    for error in [
        repository.restore_on(vfs.clone(), 2, "new", &()).unwrap_err(),
        repository.verify(Some(2), &()).unwrap_err(),
        repository.delete(2, &()).unwrap_err(),
        repository.backup(2).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(matches!(error, Error::NoSuchBackup { id: 2, .. }), "{text}");
        assert!(text.contains("repository has no backup 2"), "{text}");
    }
    let error = repository.restore_on(vfs.clone(), 1, "store", &()).unwrap_err();
    assert!(matches!(error, Error::NotEmpty { .. }), "{error}");
    assert!(!entries(&db).is_empty(), "the store is as it was");
    let target: Arc<dyn Target> = Arc::new(Directory::on(vfs.clone(), "store"));
    let error = Repository::open_or_create(target).unwrap_err();
    assert!(matches!(error, Error::NotARepository { .. }), "{error}");
    drop(db);
    let db = Db::open_read_only("store", options(&vfs)).unwrap();
    let error = repository.create(&db, &()).unwrap_err();
    assert!(matches!(error, Error::Store(trommel::Error::ReadOnly)), "{error}");
    vfs.create_dir("empty".as_ref()).unwrap();
    repository.restore_on(vfs, 1, "empty", &()).expect("an empty directory will do");
}

#[test]
fn purge_keeps_the_newest_of_each_store() {
    let repository = Repository::open_or_create(in_memory()).unwrap();
    let ((_, first), (_, second)) = (new_store(), new_store());
    assert_ne!(first.id(), second.id());
    for (round, db) in [&first, &second, &first, &first].into_iter().enumerate() {
        write(db, round as u64, 10);
        let created = repository.create(db, &()).unwrap();
        let parents = [None, None, Some(1), Some(3)];
        assert_eq!(created.backup.parent, parents[round], "that of the same store");
    }
    assert_eq!(repository.purge(2, &()).unwrap().backups, [1]);
    assert_eq!(repository.purge(1, &()).unwrap().backups, [3]);
    assert_eq!(ids(&repository), [2, 4]);
    assert!(repository.verify(None, &()).unwrap().damages.is_empty());
}

#[test]
fn an_overtaken_writer_takes_the_next_id() {
    let counting = Counting::new(in_memory());
    let repository = Repository::open_or_create(counting.clone()).unwrap();
    let (vfs, db) = new_store();
    write(&db, 1, 100);
    counting.overtaken.store(2, Ordering::Relaxed);
    let created = repository.create(&db, &()).unwrap();
    assert_eq!(created.backup.id, 3);
    repository.restore_on(vfs, 3, "restored", &()).unwrap();
    let listed = repository.list().unwrap();
    assert!(listed[0].backup.is_err() && listed[1].backup.is_err() && listed[2].backup.is_ok());
}

#[test]
fn a_backup_whose_contents_were_collected_is_removed() {
    let counting = Counting::new(in_memory());
    let repository = Repository::open_or_create(counting.clone()).unwrap();
    let (_, db) = new_store();
    write(&db, 1, 100);
    repository.create(&db, &()).unwrap();
    let known = counting.list("blobs").unwrap();
    counting.loses_right.store(true, Ordering::Relaxed);

    // The right was lost, but no other writer used that.
    assert_eq!(repository.create(&db, &()).unwrap().backup.id, 2);

    let names = known.iter().map(|(name, _)| format!("blobs/{name}"));
    *counting.collected.lock().unwrap() = names.collect();
    let error = repository.create(&db, &()).unwrap_err();
    assert!(error.to_string().contains("the lease is gone"), "{error}");
    assert_eq!(ids(&repository), [1, 2]);
}

/// Cancels after this many bytes.
struct CancelAfter(AtomicU64);

impl Progress for CancelAfter {
    fn advance(&self, bytes: u64) {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(bytes), Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

#[test]
fn a_cancelled_backup_leaves_nothing() {
    let repository = Repository::open_or_create(in_memory()).unwrap();
    let (vfs, db) = new_store();
    write(&db, 1, 2_000);
    write(&db, 2, 2_000);
    let error = repository.create(&db, &CancelAfter(AtomicU64::new(1))).unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    assert!(ids(&repository).is_empty());
    assert!(names(&*vfs, "store").iter().all(|name| !name.starts_with('.')));
    repository.create(&db, &()).unwrap();
    for patience in [0, 1, 100_000] {
        let patience = CancelAfter(AtomicU64::new(patience));
        let error = repository.restore_on(vfs.clone(), 1, "restored", &patience).unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{error}");
        assert!(vfs.list("restored".as_ref()).is_err(), "the directory is gone again");
    }
    let error = repository.verify(None, &CancelAfter(AtomicU64::new(0))).unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
}

#[test]
fn leftovers_of_a_dead_backup_are_removed() {
    let repository = Repository::open_or_create(in_memory()).unwrap();
    let (vfs, db) = new_store();
    write(&db, 1, 100);
    db.checkpoint("store/.backup-0123456789abcdef").unwrap();
    for strange in ["store/.backup-mine", "store/.backup-00000000000000ff"] {
        vfs.create_dir(strange.as_ref()).unwrap();
        drop(vfs.create(format!("{strange}/two words").as_ref()).unwrap());
    }
    let held = "store/.backup-00000000000000aa";
    db.checkpoint(held).unwrap();
    let lock = vfs.lock(format!("{held}/LOCK").as_ref()).unwrap();
    repository.create(&db, &()).unwrap();
    let left = || -> Vec<String> {
        let names = names(&*vfs, "store");
        names.into_iter().filter(|name| name.starts_with('.')).collect()
    };
    let [alive, strange, mine] =
        [".backup-00000000000000aa", ".backup-00000000000000ff", ".backup-mine"];
    assert_eq!(left(), [alive, strange, mine]);
    drop(lock);
    repository.create(&db, &()).unwrap();
    assert_eq!(left(), [strange, mine]);
}

#[test]
fn a_backup_is_of_one_moment_while_the_store_is_written_to() {
    let repository = Repository::open_or_create(in_memory()).unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let options = options(&vfs)
        .background_threads(1)
        .compaction(|c| c.auto_compaction(true))
        .writes(|w| w.write_buffer_bytes(16 << 10));
    let db = Db::open("store", options).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Both keys change in one batch: a backup that sees one change sees both.
            for round in 0_u64.. {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                let mut batch = trommel::WriteBatch::new();
                let value = round.to_le_bytes().repeat(20);
                batch.put("a", &value).put("z", &value).put(round.to_le_bytes(), &value);
                db.write(batch).unwrap();
            }
        });
        for id in 1..=5 {
            repository.create(&db, &()).unwrap();
            let dir = format!("restored-{id}");
            repository.restore_on(vfs.clone(), id, &dir, &()).unwrap();
            let restored = Db::open_read_only(&dir, crate::stores::options(&vfs)).unwrap();
            assert_eq!(restored.get("a").unwrap(), restored.get("z").unwrap());
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

/// A user with write access to a repository or a store cannot make a backup delete files elsewhere.
#[test]
fn symbolic_links_are_never_followed() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let db = Db::open(at("store"), trommel::Options::default()).unwrap();
    db.put("a", "b").unwrap();
    let repository = || Repository::open_or_create(Arc::new(Directory::new(at("repository"))));
    repository().unwrap().create(&db, &()).unwrap();
    for name in ["victim", "victim2"] {
        std::fs::create_dir(at(name)).unwrap();
        for file in ["letter.txt", "000001.sst"] {
            std::fs::write(at(name).join(file), "dear").unwrap();
        }
    }
    let link = |to: &str, from: std::path::PathBuf| std::os::unix::fs::symlink(to, from).unwrap();
    link("../victim2", at("store/.backup-0123456789abcdef"));
    repository().unwrap().create(&db, &()).unwrap();
    assert_eq!(std::fs::read_dir(at("victim2")).unwrap().count(), 2, "nothing added or removed");

    std::fs::remove_dir(at("repository/tmp")).unwrap();
    link("../victim", at("repository/tmp"));
    let error = repository().unwrap().create(&db, &()).unwrap_err();
    assert!(error.to_string().contains("is not a directory"), "{error}");
    assert_eq!(std::fs::read_dir(at("victim")).unwrap().count(), 2, "nothing added or removed");

    only_our_leftovers_go(&at("repository/tmp"), &at("repository"));
    repository().unwrap().create(&db, &()).unwrap();
}

/// Creates a real `tmp`, with a foreign file and a leftover of ours.
fn only_our_leftovers_go(tmp: &std::path::Path, root: &std::path::Path) {
    DiskVfs.remove(tmp).unwrap();
    std::fs::create_dir(tmp).unwrap();
    std::fs::write(tmp.join("letter.txt"), "dear").unwrap();
    std::fs::write(tmp.join("backups-0000000009.json"), "half").unwrap();
    drop(Directory::new(root).lock(Purpose::Add).unwrap());
    assert_eq!(names(&DiskVfs, tmp), ["letter.txt"]);
}

#[test]
fn the_largest_id_is_an_error() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let target = Arc::new(Directory::on(vfs.clone(), "repository"));
    let repository = Repository::open_or_create(target).unwrap();
    let (_, db) = new_store();
    drop(vfs.create("repository/backups/18446744073709551615.json".as_ref()).unwrap());
    let error = repository.create(&db, &()).unwrap_err();
    assert!(
        matches!(&error, Error::Damaged(damage) if damage.file.contains("18446744073709551615"))
    );
    assert!(names(&*vfs, "repository/blobs").is_empty(), "it is said before anything is copied");
    repository.delete(u64::MAX, &()).unwrap();
    repository.create(&db, &()).unwrap();
}

/// Inspects the restored files before they are verified.
struct InspectVerify {
    vfs: Arc<dyn Vfs>,
    repository: Repository,
    has_looked: AtomicBool,
}

impl Progress for InspectVerify {
    fn begin(&self, what: &str, _: u64) {
        if what == "verifying" {
            assert_eq!(names(&*self.vfs, "restored"), [".restoring", "LOCK"], "no store yet");
            let second = self.repository.restore_on(self.vfs.clone(), 1, "restored", &());
            assert!(matches!(second, Err(Error::Busy { .. })), "{second:?}");
            self.has_looked.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_restore_is_in_place_only_when_it_is_verified() {
    let repository = Repository::open_or_create(in_memory()).unwrap();
    let (vfs, db) = new_store();
    write(&db, 1, 100);
    repository.create(&db, &()).unwrap();
    let has_looked = AtomicBool::new(false);
    let onlooker = InspectVerify { vfs: vfs.clone(), repository: repository.clone(), has_looked };
    repository.restore_on(vfs.clone(), 1, "restored", &onlooker).unwrap();
    assert!(onlooker.has_looked.load(Ordering::Relaxed));
    assert!(!names(&*vfs, "restored").iter().any(|name| name.starts_with('.')));
    assert!(entries_in(&vfs, "restored") == entries(&db));
}

#[test]
fn only_leftovers_of_a_restore_are_removed() {
    let repository = Repository::open_or_create(in_memory()).unwrap();
    let (vfs, db) = new_store();
    write(&db, 1, 100);
    repository.create(&db, &()).unwrap();
    let make = |dir: &str, files: &[&str]| {
        vfs.create_dir(dir.as_ref()).unwrap();
        for file in files {
            drop(vfs.create(format!("{dir}/{file}").as_ref()).unwrap());
        }
    };
    for (number, inside, outside) in [
        (1, vec!["000001.sst"], vec!["letter.txt"]),
        (2, vec!["letter.txt"], vec!["000001.sst"]),
        (3, vec!["000001.sst"], vec!["CURRENT"]),
    ] {
        let dir = format!("foreign-{number}");
        make(&dir, &outside);
        make(&format!("{dir}/.restoring"), &inside);
        let error = repository.restore_on(vfs.clone(), 1, &dir, &()).unwrap_err();
        assert!(matches!(error, Error::NotEmpty { .. }), "{error}");
        assert_eq!(names(&*vfs, &dir), [".restoring", outside[0]]);
    }
    make("left", &["000001.sst", "MANIFEST-000002", "LOCK"]);
    make("left/.restoring", &["000003.sst", "CURRENT"]);
    repository.restore_on(vfs.clone(), 1, "left", &()).unwrap();
    assert!(!names(&*vfs, "left").contains(&"000001.sst".to_owned()));
    assert!(entries_in(&vfs, "left") == entries(&db));
}

/// A deleted range stays deleted in a backup, whether its tombstone is in the log or the manifest.
#[test]
fn a_backup_heeds_deleted_ranges() {
    for is_flushed in [false, true] {
        let (vfs, db) = new_store();
        write(&db, 1, 200);
        db.delete_range([64]..[128]).unwrap();
        if is_flushed {
            db.flush().unwrap();
        }
        let expected = entries(&db);
        assert!(expected.iter().all(|(key, _)| key[0] / 64 != 1) && expected.len() < 180);
        let target: Arc<dyn Target> = Arc::new(Directory::on(Arc::clone(&vfs), "repository"));
        let repository = Repository::open_or_create(target).unwrap();
        let id = repository.create(&db, &()).unwrap().backup.id;
        db.delete_range(..).unwrap();
        repository.restore_on(Arc::clone(&vfs), id, "restored", &()).unwrap();
        assert_eq!(entries_in(&vfs, "restored"), expected, "flushed: {is_flushed}");
    }
}

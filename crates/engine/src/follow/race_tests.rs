//! Changes by the owner of a store while a follower reads its files.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trommel_sim::{SimDisk, WallClock};
use trommel_vfs::{Access, Layer, ReadFile, Vfs};

use super::*;
use crate::manifest::edit::VersionEdit;
use crate::{Keyspace, KeyspaceOptions, Merge, Slice};

/// The first four bytes are those of the keys of keyspaces.
const MARKED: &[u8] = b"\xff\xff\xff\xffkey";

/// Stands for the clock among the names of files.
const CLOCK: &str = "the clock";

type Action = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// What happens before a file is opened.
struct Interruption {
    /// The end of the file's name.
    name: &'static str,
    /// Earlier calls that open such a file.
    after: u32,
    action: Action,
}

/// A file system that runs an action before a file is opened, or the clock is read.
struct InterruptedVfs {
    below: Arc<dyn Vfs>,
    next: Mutex<Option<Interruption>>,
}

impl fmt::Debug for InterruptedVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterruptedVfs").finish_non_exhaustive()
    }
}

impl InterruptedVfs {
    /// Runs `action` before a file whose name ends with `name` is opened, after this many earlier
    /// opens.
    fn interrupt(
        &self,
        name: &'static str,
        after: u32,
        action: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) {
        *lock(&self.next) = Some(Interruption { name, after, action: Box::new(action) });
    }

    /// The action of this opening of a file.
    fn due(&self, path: &Path) -> Option<Action> {
        let mut next = lock(&self.next);
        let interruption = next.as_mut().filter(|it| path.to_string_lossy().ends_with(it.name))?;
        if interruption.after > 0 {
            interruption.after -= 1;
            return None;
        }
        next.take().map(|interruption| interruption.action)
    }
}

impl Layer for InterruptedVfs {
    fn below(&self) -> &dyn Vfs {
        &*self.below
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        if let Some(action) = self.due(path) {
            action()?;
        }
        self.below.open(path, access)
    }

    fn unix_millis(&self) -> u64 {
        if let Some(action) = self.due(Path::new(CLOCK)) {
            action().unwrap();
        }
        self.below.unix_millis()
    }
}

/// A file system that is slow to remove files: removed ones still exist.
#[derive(Debug)]
struct UnremovedVfs(Arc<dyn Vfs>);

impl Layer for UnremovedVfs {
    fn below(&self) -> &dyn Vfs {
        &*self.0
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// An owner, and the file system of its followers.
struct Owner {
    db: Db,
    clock: WallClock,
    followed: Arc<InterruptedVfs>,
    options: Options,
}

impl Owner {
    fn new(options: impl FnOnce(Options) -> Options) -> Self {
        let clock = WallClock::default();
        let below = clock.over(Arc::new(SimDisk::default()));
        let options = options(Options::default().background_threads(0));
        let owned = options.clone().vfs(Arc::new(UnremovedVfs(Arc::clone(&below))));
        let db = Db::open("db", owned).unwrap();
        let followed = Arc::new(InterruptedVfs { below, next: Mutex::default() });
        Self { db, clock, followed, options }
    }

    fn follower(&self) -> Follower {
        let vfs: Arc<dyn Vfs> = Arc::<InterruptedVfs>::clone(&self.followed);
        Db::open_follower("db", self.options.clone().vfs(vfs)).unwrap()
    }

    fn pass(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Runs `action` when the next call of `catch_up` reads the manifest for the second time.
    fn before_second_manifest(&self, action: impl FnOnce(&Db) -> io::Result<()> + Send + 'static) {
        let db = self.db.clone();
        self.followed.interrupt("CURRENT", 1, move || action(&db));
    }
}

fn lasting(seconds: u64) -> KeyspaceOptions {
    KeyspaceOptions::new().ttl(Duration::from_secs(seconds))
}

fn install_edit(db: &Db, edit: VersionEdit) {
    db.engine().install(edit, None, None).unwrap();
}

/// Catches up, except for the catalog.
fn catch_up_without_catalog(follower: &Follower) {
    let engine = follower.db().engine();
    lock(&follower.store.state).following.catch_up(engine).unwrap();
}

/// Regression: an edit held the mark of a write that the follower had not read. The mark's sequence
/// number was published, and earlier writes were inserted below it later.
#[test]
fn no_mark_of_unread_writes_is_published() {
    let owner = Owner::new(|o| o.writes(|w| w.ttl(Duration::from_secs(1000))));
    owner.db.put("a", "1").unwrap();
    let follower = owner.follower();
    let written = owner.db.put("b", "1").unwrap();
    let clock = owner.clock.clone();
    owner.before_second_manifest(move |db| {
        db.put("a", "2").unwrap();
        clock.advance(Duration::from_secs(50));
        db.put("b", "2").unwrap();
        install_edit(db, VersionEdit::default());
        Ok(())
    });
    assert_eq!(follower.catch_up().unwrap(), written);
    let snapshot = follower.snapshot();
    assert_eq!(snapshot.get("a").unwrap().unwrap(), b"1");
    follower.catch_up().unwrap();
    assert_eq!(snapshot.get("a").unwrap().unwrap(), b"1");
    assert_eq!(follower.get("a").unwrap().unwrap(), b"2");
}

/// Regression: older snapshots looked up the key where it is stored since the first keyspace was
/// created.
#[test]
fn older_snapshots_find_keys_that_the_first_keyspace_moves() {
    for is_flushed in [false, true] {
        let owner = Owner::new(|o| o);
        owner.db.put(MARKED, "v").unwrap();
        let follower = owner.follower();
        let older = follower.snapshot();
        assert!(older.contains_key(MARKED).unwrap());
        owner.db.keyspace("first", KeyspaceOptions::new()).unwrap();
        if is_flushed {
            owner.db.flush().unwrap();
        }
        for _ in 0..2 {
            follower.catch_up().unwrap();
            for snapshot in [&older, &follower.snapshot()] {
                assert!(snapshot.contains_key(MARKED).unwrap(), "flushed: {is_flushed}");
                let keys: Vec<_> = snapshot.iter().map(|entry| entry.unwrap().0).collect();
                assert_eq!(keys, [MARKED]);
            }
            assert!(follower.contains_key(MARKED).unwrap());
        }
        assert_eq!(follower.list_keyspaces().unwrap(), ["first"]);
    }
}

/// Regression: the manifest had the salt of a catalog that was not written yet. Until the follower
/// noticed that, it did not find keys.
#[test]
fn keys_stay_found_until_the_catalog_is_written() {
    let owner = Owner::new(|o| o);
    owner.db.put(MARKED, "v").unwrap();
    let follower = owner.follower();
    install_edit(&owner.db, VersionEdit { catalog_salt: Some(7), ..VersionEdit::default() });
    catch_up_without_catalog(&follower);
    assert!(follower.contains_key(MARKED).unwrap());
    let older = follower.snapshot();
    owner.db.keyspace("first", KeyspaceOptions::new()).unwrap();
    catch_up_without_catalog(&follower);
    assert!(follower.contains_key(MARKED).unwrap());
    follower.catch_up().unwrap();
    assert!(follower.contains_key(MARKED).unwrap() && older.contains_key(MARKED).unwrap());
}

/// Regression: a scan had loaded the view, and read the clock, when the view was replaced. It then
/// searched the old view for the physical keys of the new one.
#[test]
fn a_scan_finds_keys_that_the_first_keyspace_moves() {
    let owner = Owner::new(|o| o.writes(|w| w.ttl(Duration::from_secs(1000))));
    owner.db.put(MARKED, "v").unwrap();
    let follower = Arc::new(owner.follower());
    owner.db.keyspace("first", KeyspaceOptions::new()).unwrap();
    owner.db.flush().unwrap();
    let other = Arc::clone(&follower);
    owner.followed.interrupt(CLOCK, 0, move || {
        other.catch_up().unwrap();
        Ok(())
    });
    let keys: Vec<_> = follower.iter().map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, [MARKED]);
    assert_eq!(follower.list_keyspaces().unwrap(), ["first"]);
}

/// Regression: the horizon was dropped with the keyspace, though a snapshot needed it.
#[test]
fn a_drop_revives_nothing_in_older_snapshots() {
    let owner = Owner::new(|o| o);
    let short = owner.db.keyspace("short", lasting(10)).unwrap();
    short.put("k", "v").unwrap();
    let follower = owner.follower();
    let open = |name| follower.open_keyspace(name).unwrap().unwrap();
    let snapshot = follower.snapshot().keyspace(&open("short")).unwrap();
    assert!(snapshot.contains_key("k").unwrap());
    owner.pass(20);
    assert!(!snapshot.contains_key("k").unwrap());
    owner.db.drop_keyspace("short").unwrap();
    install_edit(&owner.db, VersionEdit::default());
    for _ in 0..2 {
        follower.catch_up().unwrap();
        assert!(!snapshot.contains_key("k").unwrap());
        assert_eq!(snapshot.iter().count(), 0);
    }
    drop(snapshot);
    // Horizons are not kept forever.
    for name in ["1", "2", "3"] {
        let other = owner.db.keyspace(name, lasting(10)).unwrap();
        other.put("k", "v").unwrap();
        follower.catch_up().unwrap();
        owner.pass(20);
        assert!(!open(name).contains_key("k").unwrap());
        owner.db.drop_keyspace(name).unwrap();
        install_edit(&owner.db, VersionEdit::default());
        follower.catch_up().unwrap();
    }
    let horizons = follower.db().engine().snapshots.horizons();
    assert!(horizons.named().count() <= 1, "{horizons:?}");
}

/// Regression: a new entry of the catalog, read but not visible, made the operators of all
/// keyspaces unknown, permanently if the call then failed.
#[test]
fn merged_keys_stay_readable_while_the_catalog_changes() {
    let owner = Owner::new(|o| o.writes(|w| w.merge_operator(Merge::counter())));
    let largest = KeyspaceOptions::new().merge_operator(Merge::max());
    let highs = owner.db.keyspace("highs", largest).unwrap();
    let sums = owner.db.keyspace("sums", KeyspaceOptions::new()).unwrap();
    for keyspace in [&highs, &sums] {
        keyspace.merge("k", 3_u64.to_le_bytes()).unwrap();
        keyspace.merge("k", 2_u64.to_le_bytes()).unwrap();
    }
    let follower = owner.follower();
    let open = |name| follower.open_keyspace(name).unwrap().unwrap();
    let (highs, sums) = (open("highs"), open("sums"));
    let value = |keyspace: &Keyspace| {
        let value: Option<Slice> = keyspace.get("k").unwrap();
        u64::from_le_bytes((&*value.unwrap()).try_into().unwrap())
    };
    owner.db.keyspace("new", KeyspaceOptions::new()).unwrap();
    owner.before_second_manifest(|_| Err(io::Error::other("a failing disk")));
    follower.catch_up().unwrap_err();
    assert_eq!((value(&highs), value(&sums)), (3, 5));
    catch_up_without_catalog(&follower);
    assert_eq!(value(&highs), 3);
    follower.catch_up().unwrap();
    assert_eq!((value(&highs), value(&sums)), (3, 5));
}

/// The mark of a sorted load is in the manifest alone. Regression: it was ignored if the mark of a
/// later write was read first, and the load expired with older entries.
#[test]
fn a_load_keeps_its_time_if_a_later_mark_is_read_first() {
    let owner = Owner::new(|o| o.writes(|w| w.ttl(Duration::from_secs(100))));
    owner.db.put("old", "v").unwrap();
    let follower = owner.follower();
    owner.pass(90);
    let (db, clock) = (owner.db.clone(), owner.clock.clone());
    owner.followed.interrupt(".log", 0, move || {
        db.load_sorted([Ok(("loaded", "v"))]).unwrap();
        clock.advance(Duration::from_secs(5));
        db.put("new", "v").unwrap();
        Ok(())
    });
    follower.catch_up().unwrap();
    let found = || {
        let keys = ["old", "loaded", "new"];
        let found = follower.multi_get(&keys).unwrap().into_iter().map(|value| value.is_some());
        found.collect::<Vec<_>>()
    };
    assert_eq!(found(), [true, true, true]);
    owner.pass(10);
    assert_eq!(found(), [false, true, true]);
    // 99 seconds after the later write.
    owner.pass(89);
    assert_eq!(found(), [false, false, true]);
}

//! Expiry of keyspaces, by a clock that the tests move.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use trommel_sim::{Policy, SimDisk, WallClock};

use super::marks::MOST_MARKS;
use super::{Horizons, TimeMarks};
use crate::compaction::merge::DropRule;
use crate::manifest::edit::VersionEdit;
use crate::ranges::{RangeSet, RangeTombstone};
use crate::space::Space;
use crate::{
    Compression, Db, Error, Keyspace, KeyspaceOptions, Merge, Options, RepairOptions, WriteBatch,
};

fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn lasting(ttl: u64) -> KeyspaceOptions {
    KeyspaceOptions::new().ttl(secs(ttl))
}

/// A directory, and its clock.
#[derive(Clone, Default)]
struct Place {
    disk: Arc<SimDisk>,
    clock: WallClock,
}

impl Place {
    fn options(&self) -> Options {
        Options::default()
            .vfs(self.clock.over(Arc::<SimDisk>::clone(&self.disk)))
            .background_threads(0)
            .compression(Compression::None)
            .writes(|w| w.write_buffer_bytes(64 << 10))
            .compaction(|c| c.table_bytes(16 << 10).base_level_bytes(64 << 10))
    }

    fn open(&self) -> Db {
        Db::open("db", self.options()).unwrap()
    }

    fn pass(&self, time: u64) {
        self.clock.advance(secs(time));
    }

    /// The process that has opened `db` is killed.
    fn kill(&mut self, db: Db) {
        self.disk = Arc::new(self.disk.crash(Policy::EVERYTHING, 0).disk());
        drop(db);
    }
}

fn named(db: &Db, name: &str) -> Keyspace {
    db.open_keyspace(name).unwrap().unwrap()
}

/// The keys of a keyspace, which must be the same for every way to read.
fn keys(keyspace: &Keyspace) -> Vec<String> {
    let all: Vec<_> = keyspace.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
    let mut back: Vec<_> = keyspace.iter().rev().map(|entry| entry.unwrap().0.to_vec()).collect();
    back.reverse();
    assert_eq!(all, back);
    for key in ["1", "2"].map(str::as_bytes) {
        let is_there = all.iter().any(|one| one == key);
        assert_eq!(keyspace.get(key).unwrap().is_some(), is_there);
        assert_eq!(keyspace.contains_key(key).unwrap(), is_there);
        assert_eq!(keyspace.multi_get(&[key]).unwrap()[0].is_some(), is_there);
    }
    all.into_iter().map(|key| String::from_utf8(key).unwrap()).collect()
}

fn tables(db: &Db) -> usize {
    db.engine().version().tables().count()
}

fn entries(db: &Db) -> u64 {
    db.engine().version().tables().map(|(_, table)| table.entries).sum()
}

#[test]
fn each_keyspace_expires_by_its_own_time() {
    let place = Place::default();
    let db = place.open();
    let short = db.keyspace("short", lasting(100)).unwrap();
    let long = db.keyspace("long", lasting(1000)).unwrap();
    let ever = db.keyspace("ever", KeyspaceOptions::new()).unwrap();
    let write = |key: &str| {
        db.put(key, "v").unwrap();
        [&short, &long, &ever].iter().for_each(|keyspace| _ = keyspace.put(key, "v").unwrap());
    };
    write("1");
    place.pass(60);
    write("2");
    db.flush().unwrap();
    let (snapshot, transaction) = (db.snapshot(), db.begin());
    place.pass(41);
    assert_eq!((keys(&short), keys(&long).len(), keys(&ever).len()), (vec!["2".to_owned()], 2, 2));
    assert_eq!(snapshot.keyspace(&short).unwrap().get("1").unwrap(), None);
    assert_eq!(transaction.keyspace(&short).unwrap().get("1").unwrap(), None);
    assert!(transaction.keyspace(&long).unwrap().contains_key("1").unwrap());
    let mut batch = WriteBatch::new();
    batch.keyspace(&short).expect_absent("1").put("3", "v");
    db.write(&batch).unwrap();
    assert!(short.insert_if_absent("1", "again").unwrap());
    assert!(!long.insert_if_absent("1", "again").unwrap());
    assert!(!short.compare_and_set("2", None, Some(b"x")).unwrap());
    drop((snapshot, transaction));
    place.pass(101);
    assert_eq!((keys(&short).len(), keys(&long).len(), db.iter().count()), (0, 2, 2));
    db.wait_idle().unwrap();
    db.compact_all().unwrap();
    assert_eq!(entries(&db), 4 + 6, "the catalog, and two keys in each of three");
    assert_eq!(db.list_keyspaces().unwrap(), ["ever", "long", "short"]);
    place.pass(2000);
    assert_eq!((keys(&long).len(), keys(&ever).len(), db.iter().count()), (0, 2, 2));
    // Earlier entries count as written now, though times were recorded.
    db.keyspace("ever", lasting(50)).unwrap();
    place.pass(49);
    assert_eq!(keys(&ever).len(), 2);
    place.pass(3);
    assert_eq!(keys(&ever).len(), 0);
}

/// The horizon of the default keyspace does not apply to the catalog and the others, even if it
/// existed before them.
#[test]
fn the_default_keyspace_expires_without_the_others() {
    let place = Place::default();
    let db = place.open();
    db.set_options(|o| o.writes(|w| w.ttl(secs(100)))).unwrap();
    db.put("old", "v").unwrap();
    db.put(b"\xff\xff\xff\xffold", "v").unwrap();
    let ever = db.keyspace("ever", KeyspaceOptions::new()).unwrap();
    ever.put("1", "v").unwrap();
    db.flush().unwrap();
    place.pass(50);
    db.put("new", "v").unwrap();
    place.pass(52);
    assert_eq!(db.iter().map(|entry| entry.unwrap().0).collect::<Vec<_>>(), ["new"]);
    place.pass(1000);
    assert_eq!((db.iter().count(), keys(&ever).len()), (0, 1));
    db.compact_all().unwrap();
    assert_eq!(entries(&db), 3, "the catalog, and one key");
    assert!(db.stats().background.expiry_horizon > 0);
    drop(ever);
    db.close().unwrap();
    let db = place.open();
    assert_eq!((db.list_keyspaces().unwrap().len(), db.iter().count()), (1, 0));
    db.put("later", "v").unwrap();
    place.pass(1000);
    assert_eq!((db.iter().count(), keys(&named(&db, "ever")).len()), (1, 1), "no ttl is set");
    db.set_options(|o| o.writes(|w| w.ttl(secs(100)))).unwrap();
    place.pass(99);
    assert_eq!(db.iter().count(), 1, "counts as written when it was set");
    place.pass(3);
    assert_eq!((db.iter().count(), keys(&named(&db, "ever")).len()), (0, 1));
}

#[test]
fn the_times_of_keyspaces_survive_kills() {
    let mut place = Place::default();
    let mut db = place.open();
    db.keyspace("short", lasting(100)).unwrap().put("1", "v").unwrap();
    let (mut age, mut round) = (0, 0);
    while age < 99 {
        match round % 3 {
            0 => place.kill(db),
            1 => db.close().unwrap(),
            _ => {
                db.flush().unwrap();
                place.kill(db);
            }
        }
        db = place.open();
        assert_eq!(keys(&named(&db, "short")), ["1"], "after {age} s");
        (age, round) = (age + 9, round + 1);
        place.pass(9);
        db.put("other", "v").unwrap();
    }
    place.pass(2);
    assert_eq!(keys(&named(&db, "short")).len(), 0, "after {age} s");
    named(&db, "short").put("2", "v").unwrap();
    // Entries that have expired by then do not come back with a longer ttl, or with none.
    for options in [lasting(1000), KeyspaceOptions::new()] {
        let short = db.keyspace("short", options).unwrap();
        assert_eq!(keys(&short), ["2"]);
        drop(short);
        place.kill(db);
        db = place.open();
        assert_eq!(keys(&named(&db, "short")), ["2"]);
    }
    place.pass(10_000);
    assert_eq!(keys(&named(&db, "short")), ["2"]);
    // The entries count as written now.
    let short = db.keyspace("short", lasting(10)).unwrap();
    assert_eq!(keys(&short), ["2"]);
    place.pass(12);
    assert_eq!(keys(&short).len(), 0);
    drop(short);
    place.kill(db);
    // Without recorded times: they begin at the open, and nothing expires early.
    let db = place.open();
    let late = db.keyspace("late", lasting(10)).unwrap();
    late.put("1", "v").unwrap();
    drop(late);
    place.disk = Arc::new(place.disk.crash(Policy::EVERYTHING, 0).disk());
    drop(db);
    let db = place.open();
    place.pass(12);
    assert_eq!(keys(&named(&db, "late")).len(), 0);
}

#[test]
fn a_dropped_keyspace_leaves_no_horizon() {
    let place = Place::default();
    let db = place.open();
    let horizons = |db: &Db| db.engine().snapshots.horizons().named().count();
    let short = db.keyspace("short", lasting(10)).unwrap();
    short.put("1", "v").unwrap();
    place.pass(12);
    short.put("2", "v").unwrap();
    let snapshot = db.snapshot().keyspace(&short).unwrap();
    assert_eq!((keys(&short), horizons(&db)), (vec!["2".to_owned()], 1));
    db.drop_keyspace("short").unwrap();
    // Nothing more expires, and expired entries do not come back.
    place.pass(100);
    assert_eq!(snapshot.iter().count(), 1);
    db.flush().unwrap();
    db.compact_all().unwrap();
    assert_eq!((snapshot.iter().count(), horizons(&db)), (1, 1));
    drop(snapshot);
    let other = db.keyspace("other", lasting(10)).unwrap();
    other.put("1", "v").unwrap();
    place.pass(12);
    assert_eq!((keys(&other).len(), horizons(&db)), (0, 2));
    db.drop_keyspace("other").unwrap();
    assert_eq!(horizons(&db), 0);
    assert!(!db.engine().snapshots.expiry.is_on());
    db.compact_all().unwrap();
    assert_eq!(entries(&db), 1);
    let again = db.keyspace("short", KeyspaceOptions::new()).unwrap();
    again.put("1", "v").unwrap();
    place.pass(1000);
    assert_eq!(keys(&again), ["1"]);
}

/// Many keyspaces in one table: it is removed unread once all of it has expired, and rewritten
/// before.
#[test]
fn space_comes_back_from_tables_of_many_keyspaces() {
    let place = Place::default();
    let db = place.open();
    let all: Vec<_> =
        (0..100).map(|nth| db.keyspace(format!("{nth}"), lasting(100)).unwrap()).collect();
    let fill = |from: usize| {
        for keyspace in &all[from..] {
            (0..10).for_each(|nth| _ = keyspace.put(format!("{nth}"), [7; 40]).unwrap());
        }
        db.flush().unwrap();
    };
    fill(0);
    db.compact_all().unwrap();
    let full = entries(&db);
    assert!(tables(&db) > 2 && full > 1000, "{full}");
    db.drop_keyspace("50").unwrap();
    // Its range tombstone is used by compactions from then on.
    db.flush().unwrap();
    place.pass(102);
    db.wait_idle().unwrap();
    assert!(entries(&db) <= 102, "{}", entries(&db));
    assert_eq!(db.list_keyspaces().unwrap().len(), 99);
}

/// The horizon of one keyspace does not affect range tombstones in others.
#[test]
fn horizons_do_not_apply_range_tombstones_of_other_keyspaces() {
    let applied = |horizons: Horizons, tombstones: Vec<RangeTombstone>| {
        let mut set = RangeSet::default().with_all(tombstones);
        set.expire(&horizons);
        DropRule::new(Vec::new(), &set).ranges_applied()
    };
    let of_one = || Horizons::of([(0, 5), (3, 100)].into_iter());
    assert_eq!(applied(of_one(), Vec::new()), 0);
    assert_eq!(applied(of_one(), vec![RangeTombstone::new(b"a", None, 7)]), 7);
    assert_eq!(applied(Horizons::everywhere(100), Vec::new()), 100);
}

/// Marks are as fine as the shortest `ttl` needs, and as few as the longest allows.
#[test]
fn marks_that_only_long_times_need_are_joined() {
    let ttls = [10_000, 3_600_000, 86_400_000, 30 * 86_400_000];
    let ids = [2, 3, 4, 5];
    let mut marks = TimeMarks::default();
    marks.separate();
    let horizon = super::KeyspaceHorizon { seqno: 0, since: 1 };
    marks.set_keyspaces(ids.iter().map(|id| (*id, horizon)).collect());
    let (mut now, mut seqno, mut written) = (1_000_000_000_u64, 1, BTreeMap::new());
    let mut most = 0;
    for round in 0..200_000_u64 {
        now += [1_000, 1_000, 5_000, 90_000][(round % 4) as usize];
        seqno += 2;
        marks.add(seqno, now + 1_000);
        written.insert(seqno + 1, now);
        if round % 50 > 0 {
            continue;
        }
        for (id, ttl) in ids.into_iter().zip(ttls) {
            marks.advance_keyspace((id, ttl), now, seqno + 1);
        }
        marks.thin(now, &ttls, MOST_MARKS / 2);
        most = most.max(marks.list().len());
        let horizons = marks.horizons();
        for (id, ttl) in ids.into_iter().zip(ttls) {
            let first = horizons.before_id(id);
            let (young, old) = (written.range(..first).next_back(), written.range(first..).next());
            let age = |written: Option<(&u64, &u64)>| written.map(|(_, at)| now - at);
            assert!(age(young).is_none_or(|age| age >= ttl), "{id} at {now}");
            let late = (ttl / 64).max(2_000);
            assert!(age(old).is_none_or(|age| age < ttl + late), "{id}: {:?} at {now}", age(old));
        }
    }
    assert!(most <= MOST_MARKS, "{most} marks");
}

#[test]
fn others_see_keyspaces_expire() {
    let place = Place::default();
    let db = place.open();
    let short = db.keyspace("short", lasting(100)).unwrap();
    short.put("1", "v").unwrap();
    let follower = Db::open_follower("db", place.options()).unwrap();
    let followed = named(follower.db(), "short");
    assert_eq!(keys(&followed), ["1"]);
    place.pass(102);
    short.put("2", "v").unwrap();
    let late = db.keyspace("late", lasting(100)).unwrap();
    late.put("1", "v").unwrap();
    follower.catch_up().unwrap();
    assert_eq!(keys(&followed), ["2"]);
    let followed = named(follower.db(), "late");
    place.pass(102);
    assert_eq!((keys(&followed).len(), keys(&late).len()), (0, 0));
    late.put("2", "v").unwrap();
    drop((followed, follower, short, late));
    db.close().unwrap();
    let read_only = place.options().opening(|o| o.read_only(true));
    let db = Db::open("db", read_only).unwrap();
    assert_eq!(
        (keys(&named(&db, "late")), keys(&named(&db, "short")).len()),
        (vec!["2".into()], 0)
    );
    drop(db);
    Db::repair("db", "new", place.options(), RepairOptions::default()).unwrap();
    let db = Db::open("new", place.options()).unwrap();
    assert_eq!(keys(&named(&db, "late")), ["2"]);
    place.pass(102);
    assert_eq!(keys(&named(&db, "late")).len(), 0);
    assert_eq!(db.list_keyspaces().unwrap(), ["late", "short"]);
}

#[test]
fn options_of_keyspaces_are_bounded_and_recorded() {
    let place = Place::default();
    let db = place.open();
    for bad in [Duration::ZERO, Duration::from_millis(999), Duration::MAX] {
        let refused = db.keyspace("a", KeyspaceOptions::new().ttl(bad));
        assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
    }
    let half = KeyspaceOptions::new().ttl(Duration::from_millis(1500));
    let a = db.keyspace("a", half.merge_operator(Merge::counter())).unwrap();
    drop(a);
    db.close().unwrap();
    let db = place.open();
    let ttl = ("ttl", "1.5s".to_owned());
    assert_eq!(named(&db, "a").options().settings()[1], ttl);
    // Operands expire one by one.
    let a = named(&db, "a");
    for _ in 0..3 {
        a.merge("k", 1_u64.to_le_bytes()).unwrap();
        place.pass(1);
        db.flush().unwrap();
        db.compact_all().unwrap();
    }
    place.pass(1);
    assert_eq!(a.get("k").unwrap().unwrap(), 1_u64.to_le_bytes());
}

/// Regression: the next time at which a horizon moves was that of the other keyspace, days later.
#[test]
fn what_follows_an_empty_time_expires_in_its_own_time() {
    const HOUR: u64 = 3600;
    let place = Place::default();
    let db = place.open();
    let sessions = db.keyspace("sessions", lasting(HOUR)).unwrap();
    let archive = db.keyspace("archive", lasting(30 * 24 * HOUR)).unwrap();
    sessions.put("1", "v").unwrap();
    archive.put("1", "v").unwrap();
    place.pass(HOUR + 120);
    assert_eq!((keys(&sessions).len(), keys(&archive).len()), (0, 1));
    place.pass(180);
    sessions.put("2", "v").unwrap();
    place.pass(HOUR - 1);
    assert_eq!(keys(&sessions), ["2"]);
    place.pass(20);
    assert_eq!((keys(&sessions).len(), keys(&archive).len()), (0, 1));
}

/// Regression: keys of the default keyspace that begin with the marker look like those of keyspaces
/// until they are moved. They did not count as expired, and were written again.
#[test]
fn the_first_keyspace_revives_nothing() {
    const MARKED: &[u8] = b"\xff\xff\xff\xff\0\0\0\x07old";
    let mut place = Place::default();
    let db = place.open();
    db.set_options(|o| o.writes(|w| w.ttl(secs(100)))).unwrap();
    db.put(MARKED, "v").unwrap();
    place.pass(60);
    db.put("new", "v").unwrap();
    // In one table, which is kept because of the new one.
    db.flush().unwrap();
    place.pass(42);
    let all = |db: &Db| db.iter().map(|entry| entry.unwrap().0.to_vec()).collect::<Vec<_>>();
    assert_eq!(all(&db), [b"new"]);
    // The process is killed between the salt and the catalog.
    let edit = VersionEdit { catalog_salt: Some(7), ..VersionEdit::default() };
    db.engine().install(edit, None, None).unwrap();
    place.kill(db);
    let ttl = place.options().writes(|w| w.ttl(secs(100)));
    let db = Db::open("db", ttl.clone()).unwrap();
    assert_eq!((all(&db), db.get(MARKED).unwrap()), (vec![b"new".to_vec()], None));
    db.flush().unwrap();
    place.kill(db);
    let db = Db::open("db", ttl).unwrap();
    assert_eq!(all(&db), [b"new"]);
    db.keyspace("first", KeyspaceOptions::new()).unwrap();
    assert_eq!((all(&db), db.get(MARKED).unwrap()), (vec![b"new".to_vec()], None));
}

/// Regression: the horizon was removed in a durable version edit, while the drop was not durable.
#[test]
fn a_power_failure_after_a_drop_revives_nothing() {
    for has_log in [true, false] {
        let place = Place::default();
        let db = Db::open("db", place.options().writes(|w| w.log(has_log))).unwrap();
        let short = db.keyspace("short", lasting(10)).unwrap();
        short.put("1", "v").unwrap();
        place.pass(8);
        short.put("2", "v").unwrap();
        // In one table, which is kept because of the newer one.
        db.flush().unwrap();
        place.pass(4);
        assert_eq!(keys(&short), ["2"]);
        db.engine().record_horizon().unwrap();
        db.drop_keyspace("short").unwrap();
        db.engine().install(VersionEdit::default(), None, None).unwrap();
        let after = Place { disk: Arc::new(place.disk.crash(Policy::SYNCED, 0).disk()), ..place };
        let db = after.open();
        let found = db.open_keyspace("short").unwrap();
        assert!(found.is_none_or(|short| keys(&short) == ["2"]), "log: {has_log}");
    }
}

/// Operands on both sides of a horizon within a mark are not folded.
#[test]
fn a_horizon_divides_a_mark() {
    let mut marks = TimeMarks::default();
    marks.separate();
    let horizon = super::KeyspaceHorizon { seqno: 15, since: 1 };
    marks.set_keyspaces(BTreeMap::from([(2, horizon)]));
    marks.add(1, 1000);
    marks.add(20, 2000);
    let number = |seqno| marks.number_for(&Space::Named(2).key(b"k"), seqno);
    assert_eq!(number(10), number(14));
    assert!(number(14) < number(15), "{} and {}", number(14), number(15));
    assert_eq!(number(15), number(19));
    assert!(number(19) < number(20));
    let other = |seqno| marks.number_for(&Space::Named(3).key(b"k"), seqno);
    assert_eq!(other(10), other(30));
}

/// Regression: the next writes counted as written at the end of the step of the longer `ttl`.
#[test]
fn a_shorter_time_begins_a_step_of_its_own() {
    const STEP: u64 = 1000;
    let mut place = Place::default();
    let db = place.open();
    let long = db.keyspace("long", lasting(256 * STEP)).unwrap();
    long.put("1", "v").unwrap();
    let short = db.keyspace("short", lasting(100)).unwrap();
    short.put("1", "v").unwrap();
    drop((long, short));
    place.kill(db);
    let db = place.open();
    let (long, short) = (named(&db, "long"), named(&db, "short"));
    place.pass(99);
    assert_eq!(keys(&short), ["1"]);
    place.pass(3);
    assert_eq!((keys(&short).len(), keys(&long).len()), (0, 1));
    short.put("2", "v").unwrap();
    db.put("1", "v").unwrap();
    db.set_options(|o| o.writes(|w| w.ttl(secs(10)))).unwrap();
    db.put("2", "v").unwrap();
    place.pass(9);
    assert_eq!(db.iter().count(), 2);
    place.pass(3);
    assert_eq!((db.iter().count(), keys(&short).len()), (0, 1));
    place.pass(256 * STEP - 115);
    assert_eq!(keys(&long), ["1"], "not early");
    place.pass(STEP);
    assert_eq!(keys(&long).len(), 0);
}

//! Followers: reading beside a writer, against a model, under threads, and after the writer has
//! removed what they read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use trommel::vfs::{DiskVfs, Vfs};
use trommel::{Db, Error, Follower, Options, Range, ReadMode, Snapshot, WriteBatch, WriteOptions};
use trommel_sim::{MemoryVfs, OpKind, SimDisk, WallClock};
use trommel_tests::scratch::scratch;

use crate::rng::Rng;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store of small tables, of which a few writes already fill several.
fn small(vfs: impl Vfs + 'static) -> Options {
    Options::default()
        .vfs(Arc::new(vfs))
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(8 << 10).spare_file_bytes(1 << 20))
        .compaction(|c| c.table_bytes(8 << 10).base_level_bytes(32 << 10).l0_trigger(2))
}

fn entries(range: Range) -> State {
    range.map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

/// What is held while the follower catches up, with what it must go on to show.
enum Held {
    Snapshot(Snapshot, State),
    Range(Box<Range>, State),
}

impl Held {
    fn check(self) {
        match self {
            Self::Snapshot(snapshot, state) => {
                assert_eq!(entries(snapshot.iter()), state);
                for (key, value) in state.iter().take(20) {
                    assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(&value[..]));
                }
            }
            Self::Range(range, state) => assert_eq!(entries(*range), state),
        }
    }
}

/// A writer, its model, and a follower with the state that it must show.
struct Pair {
    options: Options,
    writer: Option<Db>,
    model: State,
    follower: Follower,
    seen: State,
    held: Vec<Held>,
    rng: Rng,
}

fn owned((key, value): (&Vec<u8>, &Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    (key.clone(), value.clone())
}

fn key(rng: &mut Rng) -> Vec<u8> {
    format!("{:03}", rng.below(400)).into_bytes()
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mode = *rng.pick(&ReadMode::ALL);
        let threads = rng.below(3);
        let ranges = if seed.is_multiple_of(2) { "none" } else { "infix:9" };
        let options = small(MemoryVfs::new()).reads(|r| r.read_mode(mode));
        let options = options.filters(format!("paired:12,ranges={ranges}").parse().unwrap());
        let options = options.background_threads(threads);
        let writer = Db::open("db", options.clone()).unwrap();
        let follower = Db::open_follower("db", options.clone()).unwrap();
        Self {
            options,
            writer: Some(writer),
            model: State::new(),
            follower,
            seen: State::new(),
            held: Vec::new(),
            rng,
        }
    }

    fn writer(&self) -> &Db {
        self.writer.as_ref().unwrap()
    }

    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..self.rng.within(1, 30) {
            let key = key(&mut self.rng);
            match self.rng.below(20) {
                0..4 => {
                    batch.delete(&key);
                    self.model.remove(&key);
                }
                4 => {
                    let end = format!("{:03}", self.rng.below(400)).into_bytes();
                    batch.delete_range(&key[..]..&end[..]);
                    self.model.retain(|other, _| !(key <= *other && *other < end));
                }
                _ => {
                    let length = self.rng.below(200);
                    let value = self.rng.bytes(length);
                    batch.put(&key, &value);
                    self.model.insert(key, value);
                }
            }
        }
        self.writer().write(batch).unwrap();
    }

    fn step(&mut self) {
        match self.rng.below(40) {
            0 => self.writer().flush().unwrap(),
            1 => self.writer().compact_all().unwrap(),
            2 => {
                // The follower does not see the store closed, which is opened elsewhere.
                drop(self.writer.take());
                if self.rng.once_in(2) {
                    self.catch_up();
                }
                self.writer = Some(Db::open("db", self.options.clone()).unwrap());
            }
            3..8 => self.catch_up(),
            16 => {
                let from = self.rng.below(300);
                let keys =
                    (from..from + self.rng.below(100)).map(|n| format!("{n:03}").into_bytes());
                let new: State = keys.map(|key| (key, b"loaded".to_vec())).collect();
                self.writer().load_sorted(new.iter().map(Ok)).unwrap();
                self.model.extend(new);
            }
            8..10 => {
                let held = Held::Snapshot(self.follower.snapshot(), self.seen.clone());
                self.held.push(held);
            }
            10..12 => {
                self.held.push(Held::Range(Box::new(self.follower.iter()), self.seen.clone()));
            }
            12..15 if !self.held.is_empty() => {
                let at = self.rng.below(self.held.len());
                self.held.swap_remove(at).check();
            }
            15 => assert_eq!(entries(self.follower.iter()), self.seen),
            _ => self.write(),
        }
    }

    fn catch_up(&mut self) {
        self.follower.catch_up().unwrap();
        self.seen.clone_from(&self.model);
        assert_eq!(entries(self.follower.iter()), self.seen);
        let mut back: Vec<_> = self.follower.iter().rev().map(|e| e.unwrap().0.to_vec()).collect();
        back.reverse();
        assert!(back.iter().eq(self.seen.keys()));
        for _ in 0..20 {
            let from = self.rng.below(400);
            let [from, to] =
                [from, from + self.rng.below(6)].map(|n| format!("{n:03}!").into_bytes());
            let held: State = self.seen.range(from.clone()..to.clone()).map(owned).collect();
            assert_eq!(entries(self.follower.range(from.clone()..to.clone())), held);
            let back = self.follower.range(from..to).rev();
            assert!(back.map(|entry| entry.unwrap().0.to_vec()).eq(held.into_keys().rev()));
        }
        let keys: Vec<_> = (0..20).map(|_| key(&mut self.rng)).collect();
        let many = self.follower.multi_get(&keys).unwrap();
        for (key, found) in keys.iter().zip(many) {
            let wanted = self.seen.get(key).map(Vec::as_slice);
            assert_eq!(found.as_deref(), wanted);
            assert_eq!(self.follower.get(key).unwrap().as_deref(), wanted);
        }
    }
}

#[test]
fn a_follower_matches_a_model() {
    let mut blocks_skipped = [0; 2];
    for seed in 0..40 {
        let mut pair = Pair::new(seed);
        for _ in 0..400 {
            pair.step();
        }
        pair.catch_up();
        pair.follower.verify().unwrap();
        pair.held.drain(..).for_each(Held::check);
        let stats = pair.follower.follower_stats().unwrap();
        assert!(stats.batches > 0, "seed {seed}: {stats:?}");
        blocks_skipped[seed as usize % 2] += pair.follower.stats().scans.blocks_skipped;
    }
    assert!(blocks_skipped[0] == 0 && blocks_skipped[1] > 100, "{blocks_skipped:?}");
}

/// A directory on disk, where files are recycled.
fn home() -> (tempfile::TempDir, PathBuf) {
    let home = scratch();
    let dir = home.path().join("db");
    (home, dir)
}

fn put_all(db: &Db, round: u64) {
    for number in 0..300 {
        db.put(format!("{number:03}"), format!("{round:>60}")).unwrap();
    }
}

fn is_of(state: &State, round: u64) -> bool {
    state.len() == 300 && state.values().all(|value| *value == format!("{round:>60}").into_bytes())
}

/// The owner has removed or recycled every file that these reads need.
#[test]
fn snapshots_and_scans_outlive_the_files_they_read() {
    for mode in ReadMode::ALL {
        let (_home, dir) = home();
        let options = small(DiskVfs).reads(|r| r.read_mode(mode).cache_bytes(64 << 10));
        let db = Db::open(&dir, options.clone()).unwrap();
        put_all(&db, 0);
        db.flush().unwrap();
        let follower = Db::open_follower(&dir, options).unwrap();
        let before: Vec<String> = follower.table_ids().into_iter().map(|(name, _)| name).collect();
        let (snapshot, mut range) = (follower.snapshot(), follower.iter());
        let first = range.next().unwrap().unwrap();
        assert_eq!(first.0, b"000");
        for round in 1..6 {
            put_all(&db, round);
            db.compact_all().unwrap();
            if round == 3 {
                follower.catch_up().unwrap();
                assert!(is_of(&entries(follower.iter()), 3), "{mode}");
            }
        }
        assert!(before.iter().all(|name| !dir.join(name).exists()), "{mode}");
        assert!(is_of(&entries(snapshot.iter()), 0), "{mode}");
        assert_eq!(entries(range).len(), 299, "{mode}");
        assert!(is_of(&entries(follower.iter()), 3), "what it has caught up with: {mode}");
        follower.catch_up().unwrap();
        assert!(is_of(&entries(follower.iter()), 5), "{mode}");
        assert!(is_of(&entries(snapshot.clone().iter()), 0), "{mode}");
    }
}

/// A writer and its background threads at full speed beside two followers, each with readers of its
/// own.
#[test]
fn a_follower_is_never_older_than_its_call_and_sees_whole_batches() {
    const KEYS: [&str; 4] = ["a", "h", "p", "z"];
    const ROUNDS: u64 = 3_000;
    let (_home, dir) = home();
    let options = small(DiskVfs).background_threads(2);
    let db = Db::open(&dir, options.clone()).unwrap();
    let round_of = |values: Vec<Option<trommel::Slice>>| {
        let rounds = values.into_iter().map(|value| {
            let value = value.map(|value| String::from_utf8(value.to_vec()).unwrap());
            value.map_or(0, |value| value.trim().parse::<u64>().unwrap())
        });
        let rounds: Vec<u64> = rounds.collect();
        assert!(rounds.iter().all(|round| *round == rounds[0]), "part of a batch: {rounds:?}");
        rounds[0]
    };
    let (acknowledged, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (options, dir) = (options.clone(), &dir);
            let (acknowledged, is_over, round_of) = (&acknowledged, &is_over, &round_of);
            scope.spawn(move || {
                let follower = Db::open_follower(dir, options).unwrap();
                let caught_up = AtomicU64::new(0);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let mut last = 0;
                        while !is_over.load(Ordering::Acquire) {
                            let low = caught_up.load(Ordering::Acquire);
                            let round = round_of(follower.multi_get(&KEYS).unwrap());
                            assert!(round >= low.max(last), "{round} after {low} and {last}");
                            let snapshot = follower.snapshot();
                            let held = round_of(snapshot.multi_get(&KEYS).unwrap());
                            assert!(held >= round, "{held} after {round}");
                            std::thread::yield_now();
                            assert_eq!(round_of(snapshot.multi_get(&KEYS).unwrap()), held);
                            last = held;
                        }
                    });
                    while !is_over.load(Ordering::Acquire) {
                        let low = acknowledged.load(Ordering::Acquire);
                        follower.catch_up().unwrap();
                        let round = round_of(follower.multi_get(&KEYS).unwrap());
                        assert!(round >= low, "{round} was read, and {low} acknowledged before");
                        caught_up.store(round, Ordering::Release);
                    }
                });
            });
        }
        for round in 1..=ROUNDS {
            let mut batch = WriteBatch::new();
            KEYS.iter().for_each(|key| _ = batch.put(key, format!("{round:>200}")));
            db.write_with(batch, WriteOptions::default()).unwrap();
            acknowledged.store(round, Ordering::Release);
            if round.is_multiple_of(500) {
                db.compact_all().unwrap();
            }
        }
        is_over.store(true, Ordering::Release);
    });
    let stats = db.stats().background;
    assert!(stats.flushes.count > 50, "hardly anything was flushed: {stats:?}");
}

/// Not even a lock file, and nothing of the writer's is opened for writing.
#[test]
fn a_follower_writes_nothing_and_reads_little_without_news() {
    let disk = SimDisk::new();
    let db = Db::open("db", small(disk.clone())).unwrap();
    put_all(&db, 1);
    let changes = [
        OpKind::Create,
        OpKind::Append,
        OpKind::Sync,
        OpKind::SyncDir,
        OpKind::Rename,
        OpKind::Remove,
    ];
    let count = || changes.map(|kind| disk.calls(kind));
    let before = count();
    let follower = Db::open_follower("db", small(disk.clone())).unwrap();
    assert!(is_of(&entries(follower.iter()), 1));
    let calls = disk.all_calls();
    follower.catch_up().unwrap();
    assert!(disk.all_calls() - calls < 20, "{} calls", disk.all_calls() - calls);
    drop(follower);
    assert_eq!(count(), before);
    db.put("still", "ours").unwrap();
}

#[test]
fn writes_of_a_follower_are_refused() {
    let vfs = MemoryVfs::new();
    let db = Db::open("db", small(vfs.clone())).unwrap();
    db.put("key", "value").unwrap();
    let follower = Db::open_follower("db", small(vfs)).unwrap();
    let is_refused = |outcome: Result<(), Error>| matches!(outcome, Err(Error::ReadOnly));
    assert!(is_refused(follower.put("key", "other").map(drop)));
    assert!(is_refused(follower.delete_range(..).map(drop)));
    assert!(is_refused(follower.insert_if_absent("other", "value").map(drop)));
    assert!(is_refused(follower.transaction(|tx| tx.put("key", "other"))));
    assert!(is_refused(follower.flush()));
    assert!(is_refused(follower.compact_all()));
    assert!(is_refused(follower.checkpoint("copy")));
    assert_eq!(follower.get("key").unwrap().unwrap(), b"value");
    let read = follower.transaction(|tx| tx.get("key")).unwrap();
    assert_eq!(read.unwrap(), b"value", "reads alone are no writes");
    assert!(matches!(
        Db::open_follower("db", db.options().opening(|o| o.salvage(true))),
        Err(Error::InvalidOption { .. })
    ));
}

#[test]
fn a_store_that_was_destroyed_or_replaced_is_reported() {
    let vfs = MemoryVfs::new();
    let options = small(vfs.clone());
    assert!(matches!(Db::open_follower("db", options.clone()), Err(Error::NotAStore { .. })));
    let db = Db::open("db", options.clone()).unwrap();
    put_all(&db, 1);
    let follower = Db::open_follower("db", options.clone()).unwrap();
    db.close().unwrap();
    follower.catch_up().unwrap();
    assert!(follower.follower_stats().unwrap().is_closed);
    Db::destroy("db", &options).unwrap();
    let is_replaced = || matches!(follower.catch_up(), Err(Error::Replaced { .. }));
    assert!(is_replaced());
    assert!(is_of(&entries(follower.iter()), 1), "what it has read stays readable");
    let other = Db::open("db", options.clone()).unwrap();
    other.put("key", "of another store").unwrap();
    assert!(is_replaced());
    assert_eq!(follower.get("key").unwrap(), None);
    let again = Db::open_follower("db", options).unwrap();
    assert_eq!(again.get("key").unwrap().unwrap(), b"of another store");
    let handle = follower.db().clone();
    drop(follower);
    assert!(is_of(&entries(handle.iter()), 1), "a handle keeps it open");
    handle.close().unwrap();
}

#[test]
fn a_follower_heeds_what_expires() {
    let (disk, clock) = (Arc::new(SimDisk::new()), WallClock::default());
    let vfs = clock.over(Arc::<SimDisk>::clone(&disk));
    let ttl = std::time::Duration::from_secs(100);
    let options = Options::default().vfs(vfs).background_threads(0).writes(|w| w.ttl(ttl));
    let db = Db::open("db", options.clone()).unwrap();
    let follower = Db::open_follower("db", options).unwrap();
    let keys = |follower: &Follower| {
        follower.catch_up().unwrap();
        let keys = entries(follower.iter()).into_keys();
        keys.map(|key| String::from_utf8(key).unwrap()).collect::<Vec<_>>().join(" ")
    };
    db.put("a", "1").unwrap();
    clock.advance(std::time::Duration::from_secs(60));
    // The mark of this write is in no log that is read: the table is.
    db.put("b", "1").unwrap();
    db.flush().unwrap();
    assert_eq!(keys(&follower), "a b");
    clock.advance(std::time::Duration::from_secs(50));
    assert_eq!(entries(follower.iter()).len(), 1, "it looks at the clock itself");
    db.put("c", "1").unwrap();
    assert_eq!(keys(&follower), "b c");
    clock.advance(std::time::Duration::from_secs(60));
    db.compact_all().unwrap();
    assert_eq!(keys(&follower), "c");
    clock.advance(std::time::Duration::from_secs(60));
    assert_eq!(keys(&follower), "");
}

#[test]
fn a_timer_catches_up_and_ends_with_the_follower() {
    let vfs = MemoryVfs::new();
    let db = Db::open("db", small(vfs.clone())).unwrap();
    let follower = Db::open_follower("db", small(vfs.clone())).unwrap();
    follower.catch_up_every(std::time::Duration::from_micros(100)).unwrap();
    for number in 0..50_u32 {
        let written = db.put("key", number.to_string()).unwrap();
        while follower.follower_stats().unwrap().seqno < written {
            std::thread::yield_now();
        }
        assert_eq!(follower.get("key").unwrap().unwrap(), number.to_string().into_bytes());
    }
    assert!(follower.last_error().is_none());
    // Errors are kept, and do not end it.
    let current = vfs.read(Path::new("db/CURRENT"), 100).unwrap();
    vfs.remove(Path::new("db/CURRENT")).unwrap();
    while follower.last_error().is_none() {
        std::thread::yield_now();
    }
    vfs.create(Path::new("db/CURRENT")).unwrap().append(&current).unwrap();
    while follower.last_error().is_some() {
        std::thread::yield_now();
    }
    follower.catch_up_every(None).unwrap();
    let catch_ups = follower.follower_stats().unwrap().catch_ups;
    let handle = follower.db().clone();
    follower.catch_up_every(std::time::Duration::from_secs(3600)).unwrap();
    drop(follower);
    assert!(catch_ups >= 50, "{catch_ups}");
    assert_eq!(handle.get("key").unwrap().unwrap(), b"49");
}

/// The directory of a store at some moment, as a killed process leaves it.
fn copy_of(dir: &Path, copy: &Path) {
    std::fs::create_dir_all(copy).unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
}

/// The log of a store directory, which has one.
fn log_of(dir: &Path) -> PathBuf {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut logs: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
    assert_eq!(logs.len(), 1, "{logs:?}");
    logs.remove(0)
}

#[test]
fn an_append_that_is_not_complete_is_the_end_and_corruption_is_an_error() {
    let (home, dir) = home();
    let db = Db::open(&dir, small(DiskVfs)).unwrap();
    db.put("first", "1").unwrap();
    let begins = std::fs::metadata(log_of(&dir)).unwrap().len();
    db.put("second", "2").unwrap();
    let copy = home.path().join("copy");
    copy_of(&dir, &copy);
    let log = log_of(&copy);
    let whole = std::fs::read(&log).unwrap();
    let begins = begins as usize;
    for zeros in [false, true] {
        for cut in begins..whole.len() {
            let mut bytes = whole[..cut].to_vec();
            if zeros {
                // As a log with preallocated zeros ahead.
                bytes.resize(64 << 10, 0);
            }
            std::fs::write(&log, &bytes).unwrap();
            let follower = Db::open_follower(&copy, small(DiskVfs)).unwrap();
            assert_eq!(follower.get("first").unwrap().unwrap(), b"1");
            assert_eq!(follower.get("second").unwrap(), None, "{cut}");
            if cut % 16 == 0 {
                std::fs::write(&log, &whole).unwrap();
                follower.catch_up().unwrap();
                assert_eq!(follower.get("second").unwrap().unwrap(), b"2", "{cut}");
            }
        }
    }
    for at in [whole.len() - 2, begins - 2, begins + 3] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        std::fs::write(&log, &bytes).unwrap();
        match Db::open_follower(&copy, small(DiskVfs)) {
            Err(Error::Corruption(found)) => assert_eq!(found.file, log),
            other => panic!("byte {at}: {other:?}"),
        }
    }
    // What was read before stays, and the error ends with its cause.
    std::fs::write(&log, &whole[..begins]).unwrap();
    let follower = Db::open_follower(&copy, small(DiskVfs)).unwrap();
    let mut bytes = whole.clone();
    bytes[begins + 40] ^= 4;
    std::fs::write(&log, &bytes).unwrap();
    assert!(matches!(follower.catch_up(), Err(Error::Corruption(_))));
    assert_eq!(follower.get("first").unwrap().unwrap(), b"1");
    std::fs::write(&log, &whole).unwrap();
    follower.catch_up().unwrap();
    assert_eq!(follower.get("second").unwrap().unwrap(), b"2");
}

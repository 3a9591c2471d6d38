//! Keyspaces against a model: a map for each.
//!
//! Random operations on the default keyspace and a few named ones, that are created and dropped:
//! single ones, batches with and without conditions, transactions, snapshots; with flushes,
//! compactions, reopening and kills in between. Some keys begin with the bytes that mark keyspaces,
//! from before there is any. Some keyspaces have merge operators of their own, and entries of some
//! expire.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use trommel::{
    Compression, Db, DbCursor, Error, Keyspace, KeyspaceOptions, KeyspaceSnapshot, Merge,
    MergeOperator, Options, Prefix, Range, RepairOptions, Snapshot, WriteBatch,
};
use trommel_sim::{Policy, SimDisk, WallClock};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{cases, first_seed};

/// Sequences of operations: a quarter of them in the project's CI.
const SEQUENCES: u64 = 320;
const STEPS: u32 = 300;
const NAMES: [&str; 5] = ["a", "b", "users", "hours", "\u{e4}\u{f6}"];
/// The clock moves by this much at once. No multiple of it is within a few seconds of a `ttl`, so
/// it is known what has expired.
const TICK: u64 = 40;
/// Bytes of a merged value that are kept.
const KEPT: usize = 40;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The keyspaces of a moment; the default one has the empty name.
type State = BTreeMap<&'static str, Map>;

/// Whether entries of some keyspaces expire.
fn expire(seed: u64) -> bool {
    seed % 2 == 1
}

/// How many seconds entries of a keyspace last.
fn ttl(name: &str, seed: u64) -> Option<u64> {
    let ttl = match name {
        "" if seed % 4 == 1 => 150,
        "hours" => 100,
        "b" => 60,
        _ => return None,
    };
    expire(seed).then_some(ttl)
}

fn options(disk: &Arc<SimDisk>, clock: &WallClock, seed: u64) -> Options {
    let options = Options::default()
        .vfs(clock.over(Arc::<SimDisk>::clone(disk)))
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(4 << 10).merge_operator(operator("")))
        .writes(|w| w.ttl(ttl("", seed).map(Duration::from_secs)))
        .compaction(|c| c.table_bytes(2 << 10).base_level_bytes(8 << 10));
    match seed % 5 {
        0 => options,
        1 => options.filtering(|f| f.prefix_extractor(Prefix::fixed(1))),
        2 => options.filters("budget=10/key".parse().unwrap()),
        _ => options.filters("paired:12,ranges=infix:6".parse().unwrap()),
    }
}

/// The merge operator of a keyspace. That of the default one is the store's, which `b` and `hours`
/// share.
fn operator(name: &str) -> Arc<dyn MergeOperator> {
    match name {
        "users" => Merge::max(),
        "a" => Merge::associative("last", |_, so_far, next| {
            let all = [so_far, next].concat();
            Ok(all[all.len().saturating_sub(KEPT)..].to_vec())
        }),
        _ => Merge::associative("first", |_, so_far, next| {
            let all = [so_far, next].concat();
            Ok(all[..all.len().min(KEPT)].to_vec())
        }),
    }
}

/// What a merge makes of a value.
fn merged(name: &str, existing: Option<&Vec<u8>>, operand: &[u8]) -> Vec<u8> {
    let Some(existing) = existing else { return operand.to_vec() };
    let all = [existing, operand].concat();
    match name {
        "users" => existing.as_slice().max(operand).to_vec(),
        "a" => all[all.len().saturating_sub(KEPT)..].to_vec(),
        _ => all[..all.len().min(KEPT)].to_vec(),
    }
}

fn keyspace_options(name: &str, seed: u64, rng: &mut Rng) -> KeyspaceOptions {
    let mut options = KeyspaceOptions::new().ttl(ttl(name, seed).map(Duration::from_secs));
    if !matches!(name, "b" | "hours") {
        options = options.merge_operator(operator(name));
    }
    if rng.bool() {
        options = options.filters("ribbon:8".parse().unwrap());
    }
    if rng.bool() {
        options = options.prefix_extractor(Prefix::until("/"));
    }
    if rng.bool() {
        options = options.compression(Compression::None);
    }
    options
}

fn key(rng: &mut Rng) -> Vec<u8> {
    let mut key = match rng.u8(..4) {
        0 => vec![0xff; rng.usize(..9)],
        1 => [&[0xff; 4][..], &[0, 0, 0, rng.u8(..4)]].concat(),
        _ => Vec::new(),
    };
    key.extend_from_slice(format!("{}/{}", rng.u8(..3), rng.u8(..20)).as_bytes());
    key
}

fn range(rng: &mut Rng) -> Ends {
    let end = |rng: &mut Rng| match rng.u8(..4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(key(rng)),
        _ => Bound::Included(key(rng)),
    };
    (end(rng), end(rng))
}

fn holds(range: &Ends, key: &[u8]) -> bool {
    let starts = match &range.0 {
        Bound::Unbounded => true,
        Bound::Included(from) => **from <= *key,
        Bound::Excluded(from) => **from < *key,
    };
    starts
        && match &range.1 {
            Bound::Unbounded => true,
            Bound::Included(to) => *key <= **to,
            Bound::Excluded(to) => *key < **to,
        }
}

/// What can be read of a keyspace.
enum View<'a> {
    Default(&'a Db),
    Keyspace(&'a Keyspace),
    Snapshot(&'a Snapshot),
    Moment(KeyspaceSnapshot),
}

impl View<'_> {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let value = match self {
            Self::Default(db) => db.get(key),
            Self::Keyspace(keyspace) => keyspace.get(key),
            Self::Snapshot(snapshot) => snapshot.get(key),
            Self::Moment(moment) => moment.get(key),
        };
        value.unwrap().map(|value| value.to_vec())
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
        let values = match self {
            Self::Default(db) => db.multi_get(keys),
            Self::Keyspace(keyspace) => keyspace.multi_get(keys),
            Self::Snapshot(snapshot) => snapshot.multi_get(keys),
            Self::Moment(moment) => moment.multi_get(keys),
        };
        values.unwrap().into_iter().map(|value| value.map(|value| value.to_vec())).collect()
    }

    fn range(&self, range: Ends) -> Range {
        match self {
            Self::Default(db) => db.range(range),
            Self::Keyspace(keyspace) => keyspace.range(range),
            Self::Snapshot(snapshot) => snapshot.range(range),
            Self::Moment(moment) => moment.range(range),
        }
    }

    fn prefix(&self, prefix: &[u8]) -> Range {
        match self {
            Self::Default(db) => db.prefix(prefix),
            Self::Keyspace(keyspace) => keyspace.prefix(prefix),
            Self::Snapshot(snapshot) => snapshot.prefix(prefix),
            Self::Moment(moment) => moment.prefix(prefix),
        }
    }

    fn cursor_in(&self, range: Ends) -> DbCursor {
        match self {
            Self::Default(db) => db.cursor_in(range),
            Self::Keyspace(keyspace) => keyspace.cursor_in(range),
            Self::Snapshot(snapshot) => snapshot.cursor_in(range),
            Self::Moment(moment) => moment.cursor_in(range),
        }
        .unwrap()
    }
}

fn entries(range: impl Iterator<Item = trommel::Result<(trommel::Slice, trommel::Slice)>>) -> Map {
    range.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

/// Compares a few reads with the model.
fn compare(view: &View<'_>, model: &Map, rng: &mut Rng) {
    assert_eq!(entries(view.range((Bound::Unbounded, Bound::Unbounded))), *model);
    let within = range(rng);
    let expected: Map = model.clone().into_iter().filter(|(key, _)| holds(&within, key)).collect();
    assert_eq!(entries(view.range(within.clone())), expected, "{within:?}");
    assert_eq!(entries(view.range(within.clone()).rev()), expected, "{within:?}");
    let keys: Vec<_> = (0..4).map(|_| key(rng)).collect();
    let values: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
    assert_eq!(view.multi_get(&keys), values, "{keys:?}");
    assert_eq!(view.get(&keys[0]), values[0], "{keys:?}");
    let prefix = &keys[0][..rng.usize(..=keys[0].len())];
    let begins: Map =
        model.clone().into_iter().filter(|(key, _)| key.starts_with(prefix)).collect();
    assert_eq!(entries(view.prefix(prefix)), begins, "{}", prefix.escape_ascii());
    let mut cursor = view.cursor_in(within.clone());
    cursor.seek(&keys[1]).unwrap();
    let next = expected.range(keys[1].clone()..).next();
    assert_eq!(cursor.key(), next.map(|(key, _)| &**key), "{within:?} {:?}", keys[1]);
    cursor.seek_for_prev(&keys[2]).unwrap();
    let last = expected.range(..=keys[2].clone()).next_back();
    let entry = last.map(|(key, value)| (&**key, &**value));
    assert_eq!(cursor.entry(), entry, "{within:?} {:?}", keys[2]);
    cursor.seek_to_last().unwrap();
    let mut visited = Map::new();
    let visit = |visited: &mut Map, key: &[u8], value: &[u8]| {
        visited.insert(key.to_vec(), value.to_vec());
        true
    };
    cursor.visit_back(|key, value| visit(&mut visited, key, value)).unwrap();
    assert_eq!(visited, expected, "{within:?}");
    visited.clear();
    cursor.seek_to_first().unwrap();
    cursor.visit(|key, value| visit(&mut visited, key, value)).unwrap();
    assert_eq!(visited, expected, "{within:?}");
}

/// Removes what has expired, except from the keyspaces that are `dropped`: nothing of these expires
/// any more. The value of an entry begins with the time of its write.
fn expire_in(state: &mut State, dropped: &BTreeSet<&'static str>, seed: u64, now: u64) {
    for (name, map) in state.iter_mut().filter(|(name, _)| !dropped.contains(*name)) {
        let Some(ttl) = ttl(name, seed) else { continue };
        map.retain(|_, value| {
            let time = value.first_chunk().map_or(0, |time| u64::from_le_bytes(*time));
            now - time < ttl * 1000
        });
    }
}

/// What was taken of a store at a moment.
struct Taken {
    snapshot: Snapshot,
    open: BTreeMap<&'static str, Keyspace>,
    model: State,
    /// The keyspaces that were dropped since.
    dropped: BTreeSet<&'static str>,
}

/// A store, its model, and what is open.
struct World {
    disk: Arc<SimDisk>,
    clock: WallClock,
    seed: u64,
    db: Db,
    open: BTreeMap<&'static str, Keyspace>,
    dropped: Vec<Keyspace>,
    model: State,
    snapshots: Vec<Taken>,
}

impl World {
    fn new(seed: u64) -> Self {
        let disk = Arc::new(SimDisk::new());
        let clock = WallClock::default();
        let db = Db::open("db", options(&disk, &clock, seed)).unwrap();
        // Snapshots of before the first keyspace expire keys with the marker as if they were its.
        let first = || db.keyspace("1", KeyspaceOptions::new()).and_then(|_| db.drop_keyspace("1"));
        assert!(!expire(seed) || first().unwrap());
        let model = State::from([("", Map::new())]);
        let (open, dropped, snapshots) = Default::default();
        Self { disk, clock, seed, db, open, dropped, model, snapshots }
    }

    fn view(&self, name: &str) -> View<'_> {
        self.open.get(name).map_or(View::Default(&self.db), View::Keyspace)
    }

    fn any(&self, rng: &mut Rng) -> &'static str {
        let nth = rng.usize(..self.model.len());
        self.model.keys().nth(nth).unwrap()
    }

    fn write_one(&mut self, rng: &mut Rng) {
        let (name, key, value) = (self.any(rng), key(rng), self.value(rng));
        let (action, range) = (self.action(name, rng), range(rng));
        let map = self.model.get_mut(name).unwrap();
        let is_absent = !map.contains_key(&key);
        match action {
            0 => map.retain(|key, _| !holds(&range, key)),
            1 | 2 => _ = map.remove(&key),
            3 if !is_absent => {}
            4 | 5 => _ = map.insert(key.clone(), merged(name, map.get(&key), &value)),
            _ => _ = map.insert(key.clone(), value.clone()),
        }
        let db = &self.db;
        match (self.open.get(name), action) {
            (None, 0) => _ = db.delete_range(range).unwrap(),
            (Some(keyspace), 0) => _ = keyspace.delete_range(range).unwrap(),
            (None, 1 | 2) => _ = db.delete(&key).unwrap(),
            (Some(keyspace), 1 | 2) => _ = keyspace.delete(&key).unwrap(),
            (None, 3) => assert_eq!(db.insert_if_absent(&key, &value).unwrap(), is_absent),
            (Some(keyspace), 3) => {
                assert_eq!(keyspace.insert_if_absent(&key, &value).unwrap(), is_absent);
            }
            (None, 4 | 5) => _ = db.merge(&key, &value).unwrap(),
            (Some(keyspace), 4 | 5) => _ = keyspace.merge(&key, &value).unwrap(),
            (None, _) => _ = db.put(&key, &value).unwrap(),
            (Some(keyspace), _) => _ = keyspace.put(&key, &value).unwrap(),
        }
    }

    /// A batch over several keyspaces. If a condition does not hold, none of it is written.
    fn write_batch(&mut self, rng: &mut Rng) {
        let (mut batch, mut after, mut holds_all) = (WriteBatch::new(), self.model.clone(), true);
        for _ in 0..rng.u8(1..6) {
            let (name, key, value) = (self.any(rng), key(rng), self.value(rng));
            let (action, range) = (self.action(name, rng), range(rng));
            let map = after.get_mut(name).unwrap();
            match action {
                0 => map.retain(|key, _| !holds(&range, key)),
                1 | 2 => _ = map.remove(&key),
                3 => holds_all &= !self.model[name].contains_key(&key),
                4 => _ = map.insert(key.clone(), merged(name, map.get(&key), &value)),
                _ => _ = map.insert(key.clone(), value.clone()),
            }
            match self.open.get(name) {
                None => match action {
                    0 => batch.delete_range(range),
                    1 | 2 => batch.delete(key),
                    3 => batch.expect_absent(key),
                    4 => batch.merge(key, value),
                    _ => batch.put(key, value),
                },
                Some(keyspace) => {
                    let mut part = batch.keyspace(keyspace);
                    match action {
                        0 => part.delete_range(range),
                        1 | 2 => part.delete(key),
                        3 => part.expect_absent(key),
                        4 => part.merge(key, value),
                        _ => part.put(key, value),
                    };
                    continue;
                }
            };
        }
        match self.db.write(&batch) {
            Ok(_) => {
                assert!(holds_all);
                self.model = after;
            }
            Err(Error::Conflict(conflict)) => {
                let name = conflict.keyspace.as_deref().unwrap_or_default();
                assert!(!holds_all && self.model[name].contains_key(&conflict.key), "{conflict}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn transact(&mut self, rng: &mut Rng) {
        let (tx, mut after) = (self.db.begin(), self.model.clone());
        for _ in 0..rng.u8(1..8) {
            let (name, key, value) = (self.any(rng), key(rng), self.value(rng));
            let (action, range) = (self.action(name, rng), range(rng));
            let map = after.get_mut(name).unwrap();
            let part = self.open.get(name).map(|keyspace| tx.keyspace(keyspace).unwrap());
            match (part, action) {
                (None, 0) => tx.delete_range(range.clone()).unwrap(),
                (Some(part), 0) => part.delete_range(range.clone()).unwrap(),
                (None, 1) => tx.delete(&key).unwrap(),
                (Some(part), 1) => part.delete(&key).unwrap(),
                (None, 2) => {
                    assert_eq!(tx.get(&key).unwrap().as_deref(), map.get(&key).map(|v| &**v));
                }
                (Some(part), 2) => {
                    assert_eq!(part.get(&key).unwrap().as_deref(), map.get(&key).map(|v| &**v));
                }
                (None, 3) => assert_eq!(entries(tx.iter()), *map),
                (Some(part), 3) => assert_eq!(entries(part.iter().rev()), *map),
                (None, 4) => tx.merge(&key, &value).unwrap(),
                (Some(part), 4) => part.merge(&key, &value).unwrap(),
                (None, _) => tx.put(&key, &value).unwrap(),
                (Some(part), _) => part.put(&key, &value).unwrap(),
            }
            match action {
                0 => map.retain(|key, _| !holds(&range, key)),
                1 => _ = map.remove(&key),
                2 | 3 => {}
                4 => _ = map.insert(key.clone(), merged(name, map.get(&key), &value)),
                _ => _ = map.insert(key, value),
            }
        }
        if rng.u8(..4) > 0 {
            tx.commit().unwrap();
            self.model = after;
        }
    }

    fn create(&mut self, rng: &mut Rng) {
        let name = NAMES[rng.usize(..NAMES.len())];
        let keyspace = self.db.keyspace(name, keyspace_options(name, self.seed, rng)).unwrap();
        self.model.entry(name).or_default();
        self.open.entry(name).or_insert(keyspace);
    }

    fn drop_one(&mut self, rng: &mut Rng) {
        let name = NAMES[rng.usize(..NAMES.len())];
        assert_eq!(self.db.drop_keyspace(name).unwrap(), self.model.remove(name).is_some());
        if let Some(dropped) = self.open.remove(name) {
            self.dropped.push(dropped);
            let has_it = |taken: &&mut Taken| taken.open.contains_key(name);
            self.snapshots.iter_mut().filter(has_it).for_each(|t| _ = t.dropped.insert(name));
        }
    }

    fn check_dropped(&self) {
        let is_dropped = |error: Error| matches!(error, Error::KeyspaceDropped { .. });
        for keyspace in &self.dropped {
            assert!(is_dropped(keyspace.get("k").unwrap_err()));
            assert!(is_dropped(keyspace.iter().next().unwrap().unwrap_err()));
            assert!(is_dropped(keyspace.put("k", "v").unwrap_err()));
            let mut batch = WriteBatch::new();
            batch.put("k", "v").keyspace(keyspace).delete("k");
            assert!(is_dropped(self.db.write(batch).unwrap_err()));
        }
    }

    fn snapshot(&mut self, rng: &mut Rng) {
        if rng.bool() && !self.snapshots.is_empty() {
            let taken = self.snapshots.remove(rng.usize(..self.snapshots.len()));
            let Taken { snapshot, open, model, .. } = taken;
            compare(&View::Snapshot(&snapshot), &model[""], rng);
            for (name, keyspace) in &open {
                let moment = View::Moment(snapshot.keyspace(keyspace).unwrap());
                compare(&moment, &model[name], rng);
            }
            return;
        }
        let (snapshot, open) = (self.db.snapshot(), self.open.clone());
        let (model, dropped) = (self.model.clone(), BTreeSet::new());
        self.snapshots.push(Taken { snapshot, open, model, dropped });
    }

    /// Closes the store, or kills it, and opens it again; sometimes its repaired copy.
    fn reopen(&mut self, rng: &mut Rng) {
        self.snapshots.clear();
        self.dropped.clear();
        self.open.clear();
        if rng.bool() {
            self.disk = Arc::new(self.disk.crash(Policy::EVERYTHING, 0).disk());
        }
        let closed = std::mem::replace(
            &mut self.db,
            Db::open("other", options(&self.disk, &self.clock, 0)).unwrap(),
        );
        drop(closed);
        // A repaired store counts all that is left as written now.
        if rng.u8(..4) == 0 && !expire(self.seed) {
            let (options, how) =
                (options(&self.disk, &self.clock, self.seed), RepairOptions::default());
            Db::repair("db", "repaired", options.clone(), how).unwrap();
            Db::destroy("db", &options).unwrap();
            Db::open("repaired", options.clone()).unwrap().checkpoint("db").unwrap();
            Db::destroy("repaired", &options).unwrap();
        }
        self.db = Db::open("db", options(&self.disk, &self.clock, self.seed)).unwrap();
        Db::destroy("other", &options(&self.disk, &self.clock, 0)).unwrap();
        let names: Vec<&str> = self.model.keys().copied().filter(|name| !name.is_empty()).collect();
        assert_eq!(self.db.list_keyspaces().unwrap(), names);
        if rng.bool() {
            // Operands of keyspaces that are not opened with their operators stay.
            self.db.flush().unwrap();
            self.db.compact_all().unwrap();
        }
        for name in names {
            let keyspace = match matches!(name, "a" | "\u{e4}\u{f6}") || rng.bool() {
                true => self.db.keyspace(name, keyspace_options(name, self.seed, rng)),
                false => self.db.open_keyspace(name).map(Option::unwrap),
            };
            self.open.insert(name, keyspace.unwrap());
        }
    }

    /// Time passes.
    fn tick(&mut self, rng: &mut Rng) {
        self.clock.advance(Duration::from_secs(TICK * rng.u64(1..3)));
        let now = self.clock.millis();
        expire_in(&mut self.model, &BTreeSet::new(), self.seed, now);
        for taken in &mut self.snapshots {
            expire_in(&mut taken.model, &taken.dropped, self.seed, now);
        }
    }

    /// What to do with a key. Merges would have several times.
    fn action(&self, name: &str, rng: &mut Rng) -> u8 {
        match rng.u8(..8) {
            4 | 5 if ttl(name, self.seed).is_some() => 6,
            action => action,
        }
    }

    fn value(&self, rng: &mut Rng) -> Vec<u8> {
        let random = rng.u32(..).to_le_bytes().repeat(rng.usize(1..12));
        if expire(self.seed) {
            return [&self.clock.millis().to_le_bytes()[..], &random].concat();
        }
        random
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.u8(..64) {
            0..24 => self.write_one(rng),
            24..36 => self.write_batch(rng),
            36..44 => self.transact(rng),
            44..47 => self.create(rng),
            47 | 48 => self.drop_one(rng),
            49..54 => self.snapshot(rng),
            54 => self.db.flush().unwrap(),
            55 => self.db.compact_all().unwrap(),
            56 => {
                let (name, range) = (self.any(rng), range(rng));
                match self.open.get(name) {
                    None => self.db.compact_range(range).unwrap(),
                    Some(keyspace) => keyspace.compact_range(range).unwrap(),
                }
            }
            57 => self.reopen(rng),
            58 => self.check_dropped(),
            59 | 60 => self.tick(rng),
            _ => {
                let name = self.any(rng);
                compare(&self.view(name), &self.model[name], rng);
            }
        }
    }
}

#[test]
fn keyspaces_match_a_model() {
    let mut counters = Counters::new("model/keyspaces");
    let mut blocks_skipped = 0;
    for seed in first_seed()..first_seed() + cases(SEQUENCES) {
        println!("TROMMEL_FIRST_SEED={seed} begins there");
        let (mut world, mut rng) = (World::new(seed), Rng::with_seed(seed));
        for _ in 0..STEPS {
            world.step(&mut rng);
        }
        for name in world.model.keys() {
            compare(&world.view(name), &world.model[name], &mut rng);
        }
        let report = world.db.verify().unwrap();
        blocks_skipped += world.db.stats().scans.blocks_skipped;
        counters.add("operations", u64::from(STEPS));
        counters.add("tables", report.tables);
    }
    assert!(blocks_skipped > 0, "range filters had no say");
    counters.finish();
}

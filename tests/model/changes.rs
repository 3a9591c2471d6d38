//! Change feeds: a consumer applies every batch to a copy, and is killed and resumed at random,
//! while the store is written, flushed, compacted, closed, killed and loses power.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use trommel::{
    BatchOp, ChangedBatch, ChangedKeyspace, Changes, Db, Error, KeyspaceOptions, Options, SeqNo,
    WriteBatch, WriteOptions,
};
use trommel_sim::{MemoryVfs, Policy, SimDisk};
use trommel_tests::settings::{first_seed, rounds};

use crate::rng::Rng;

/// The entries of all keyspaces, by the numbers of these; that of the default one is 0.
type State = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

fn options(disk: &SimDisk, threads: usize) -> Options {
    Options::default()
        .vfs(Arc::new(disk.clone()))
        .background_threads(threads)
        .writes(|w| w.write_buffer_bytes(4 << 10).log_archive_bytes(1 << 30))
        .compaction(|c| c.table_bytes(8 << 10).base_level_bytes(32 << 10).l0_trigger(2))
}

/// Applies a batch of changes, and adds the names of keyspaces to `names`.
fn apply(state: &mut State, names: &mut BTreeMap<String, u32>, batch: &ChangedBatch) {
    for changed in batch.iter() {
        let space = match changed.keyspace {
            ChangedKeyspace::Named { name, id } => {
                let newest = names.entry(name.to_owned()).or_default();
                *newest = id.max(*newest);
                id
            }
            ChangedKeyspace::Dropped { id } => id,
            _ => 0,
        };
        match changed.op {
            BatchOp::Put { key, value } => {
                _ = state.insert((space, key.to_vec()), value.to_vec());
            }
            BatchOp::Delete { key } => _ = state.remove(&(space, key.to_vec())),
            BatchOp::DeleteRange { from, to } => state.retain(|(of, key), _| {
                *of != space || &key[..] < from || to.is_some_and(|to| &key[..] >= to)
            }),
            other => panic!("{other:?}"),
        }
    }
}

/// All entries of the store, whose keyspaces have these numbers.
fn entries(db: &Db, names: &BTreeMap<String, u32>) -> State {
    let mut state = State::new();
    for entry in db.iter() {
        let (key, value) = entry.unwrap();
        state.insert((0, key.to_vec()), value.to_vec());
    }
    for name in db.list_keyspaces().unwrap() {
        for entry in db.open_keyspace(&name).unwrap().unwrap().iter() {
            let (key, value) = entry.unwrap();
            state.insert((names[&name], key.to_vec()), value.to_vec());
        }
    }
    state
}

fn key(rng: &mut Rng) -> Vec<u8> {
    // Some begin like those of other keyspaces.
    let prefix: &[u8] = if rng.once_in(4) { b"\xff\xff\xff\xff\0\0\0\x02" } else { b"" };
    [prefix, format!("{:02}", rng.below(60)).as_bytes()].concat()
}

/// A consumer: what it has stored, and its feed while it is alive.
#[derive(Default)]
struct Consumer {
    state: State,
    names: BTreeMap<String, u32>,
    position: SeqNo,
    changes: Option<Changes>,
    /// Batches applied.
    batches: u64,
}

impl Consumer {
    /// Reads some batches, or all.
    fn consume(&mut self, db: &Db, most: usize) {
        let position = self.position;
        let changes = self.changes.get_or_insert_with(|| db.changes_since(position).unwrap());
        for batch in changes.take(most) {
            let batch = batch.unwrap();
            assert!(batch.seqno() > self.position, "twice, or out of order");
            apply(&mut self.state, &mut self.names, &batch);
            self.position = batch.seqno();
            self.batches += 1;
        }
    }
}

/// A store on a simulated disk, its consumer, and the number of batches written.
struct World {
    disk: SimDisk,
    db: Option<Db>,
    threads: usize,
    consumer: Consumer,
    rng: Rng,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (disk, threads) = (SimDisk::new(), rng.below(3));
        let db = Db::open("db", options(&disk, threads)).unwrap();
        Self { disk, db: Some(db), threads, consumer: Consumer::default(), rng }
    }

    fn write(&mut self) {
        let (rng, db) = (&mut self.rng, self.db.as_ref().unwrap());
        let mut batch = WriteBatch::new();
        let names = db.list_keyspaces().unwrap();
        for _ in 0..rng.within(1, 5) {
            let named = (!names.is_empty() && rng.once_in(2)).then(|| rng.pick(&names).clone());
            let named = named.map(|name| db.open_keyspace(&name).unwrap().unwrap());
            let (key, other, length) = (key(rng), key(rng), rng.below(200));
            let value = rng.bytes(length);
            match (named, rng.below(8)) {
                (None, 0) => _ = batch.delete(&key),
                (None, 1) => _ = batch.delete_range(key..other),
                (None, 2) if rng.once_in(20) => _ = batch.delete_range(key..),
                (None, _) => _ = batch.put(&key, value),
                (Some(space), 0) => _ = batch.keyspace(&space).delete(&key),
                (Some(space), 1) => _ = batch.keyspace(&space).delete_range(key..other),
                (Some(space), _) => _ = batch.keyspace(&space).put(&key, value),
            }
        }
        let how = if rng.once_in(10) { WriteOptions::sync() } else { WriteOptions::os() };
        db.write_with(&batch, how).unwrap();
    }

    /// Opens what is left: all, or what a power failure leaves.
    fn reopen(&mut self) {
        self.consumer.changes = None;
        let db = self.db.take().unwrap();
        match self.rng.below(3) {
            0 => db.clone().close().unwrap(),
            1 => self.disk = self.disk.crash(Policy::EVERYTHING, 1).disk(),
            _ => {
                let policy = *self.rng.pick(&Policy::ALL);
                self.disk = self.disk.crash(policy, self.rng.u64()).disk();
            }
        }
        drop(db);
        let db = Db::open("db", options(&self.disk, self.threads)).unwrap();
        assert!(db.snapshot().seqno() >= self.consumer.position, "what was yielded is lost");
        self.db = Some(db);
    }

    fn step(&mut self) {
        let db = self.db.as_ref().unwrap();
        match self.rng.below(40) {
            0 => db.flush().unwrap(),
            1 => db.compact_all().unwrap(),
            2 => self.reopen(),
            3 => {
                let name = (*self.rng.pick(&["a", "b", "c"])).to_owned();
                db.keyspace(&name, KeyspaceOptions::new()).map(drop).unwrap();
            }
            4 if self.rng.once_in(3) => {
                _ = db.drop_keyspace(self.rng.pick::<&str>(&["a", "b", "c"])).unwrap();
            }
            5 => self.consumer.changes = None,
            6..=12 => {
                let most = self.rng.within(1, 30);
                self.consumer.consume(db, most);
            }
            _ => self.write(),
        }
    }

    /// The consumer has everything, each batch once.
    fn check(&mut self) {
        let db = self.db.as_ref().unwrap();
        self.consumer.consume(db, usize::MAX);
        assert_eq!(self.consumer.state, entries(db, &self.consumer.names));
        // From the start, the feed has the same batches.
        let mut again = Consumer::default();
        again.consume(db, usize::MAX);
        assert_eq!(
            (again.batches, again.position),
            (self.consumer.batches, self.consumer.position)
        );
        assert_eq!(again.state, self.consumer.state);
    }
}

#[test]
fn a_consumer_that_is_killed_sees_each_batch_once() {
    for seed in first_seed()..first_seed() + rounds(60) {
        let mut world = World::new(seed);
        for step in 0..400 {
            world.step();
            if step % 100 == 99 {
                world.check();
            }
        }
    }
}

/// Writers, and consumers that wait for them: each sees all batches in order, those of a thread in
/// the order in which it wrote them.
#[test]
fn consumers_beside_writers_see_every_batch_in_order() {
    const WRITERS: u32 = 3;
    const EACH: u32 = 2_000;
    let options = Options::default()
        .vfs(Arc::new(MemoryVfs::new()))
        .background_threads(2)
        .writes(|w| w.write_buffer_bytes(16 << 10).log_archive_bytes(1 << 30));
    let db = Db::open("db", options).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            let mut changes = db.changes_since(0).unwrap();
            scope.spawn(move || {
                let (mut seen, mut position) = ([0; WRITERS as usize], 0);
                while seen.iter().sum::<u32>() < WRITERS * EACH {
                    assert!(changes.wait(Duration::from_secs(60)).unwrap(), "{seen:?}");
                    for batch in &mut changes {
                        let batch = batch.unwrap();
                        assert!(batch.seqno() > position);
                        position = batch.seqno();
                        let ops: Vec<_> = batch.iter().map(|changed| changed.op).collect();
                        let [BatchOp::Put { key, value }, BatchOp::Put { .. }] = ops[..] else {
                            panic!("{ops:?}");
                        };
                        let number = u32::from_le_bytes(value.try_into().unwrap());
                        assert_eq!(number, seen[usize::from(key[0])]);
                        seen[usize::from(key[0])] += 1;
                    }
                }
            });
        }
        for writer in 0..WRITERS {
            let db = &db;
            scope.spawn(move || {
                for number in 0..EACH {
                    let mut batch = WriteBatch::new();
                    batch.put([writer as u8], number.to_le_bytes()).put("all", [7; 50]);
                    db.write(&batch).unwrap();
                }
            });
        }
    });
}

/// Reads all batches after `position`, each of one operation.
fn drain(db: &Db, position: &mut SeqNo, yielded: &mut u64) -> trommel::Result<()> {
    for batch in db.changes_since(*position)? {
        let batch = batch?;
        assert_eq!(batch.seqno(), *position + 1, "skipped");
        (*position, *yielded) = (batch.seqno(), *yielded + 1);
    }
    Ok(())
}

/// A consumer that is slower than the archive gets an error that names what it has missed.
#[test]
fn a_consumer_that_is_too_slow_gets_an_error() {
    let disk = SimDisk::new();
    let options = options(&disk, 2).writes(|w| w.log_archive_bytes(1));
    let db = Db::open("db", options).unwrap();
    let (mut gaps, mut position, mut yielded) = (0, 0, 0_u64);
    for round in 0..200_u32 {
        for number in 0..20 {
            db.put(format!("{round:03}.{number:02}"), [7; 100]).unwrap();
        }
        // More than may wait to be flushed: the oldest are gone, however late the threads are.
        if round % 14 != 0 {
            continue;
        }
        // After a gap, the feed goes on.
        while let Err(error) = drain(&db, &mut position, &mut yielded) {
            let Error::ChangesMissing { after, oldest } = error else { panic!("{error}") };
            assert!(after == position && oldest > position + 1);
            (position, gaps) = (oldest - 1, gaps + 1);
        }
    }
    assert!(gaps > 3 && yielded > 50, "{gaps} gaps, {yielded} batches");
}

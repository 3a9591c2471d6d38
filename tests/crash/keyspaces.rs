//! Keyspaces after a power failure at every boundary between two operations of the disk.
//!
//! The store has keys of the default keyspace that move when the first keyspace is created. Batches
//! over three keyspaces count up, in one of them by its own merge operator. Another keyspace, whose
//! entries last for an hour, is created, filled and dropped again and again. In each image all of
//! them agree, and the keyspace is there with all of its entries, or before they were written, or
//! not at all.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use trommel::{Db, Error, KeyspaceOptions, Merge, Options, WriteBatch, WriteOptions};
use trommel_sim::{Policy, SimDisk};

/// Rounds of a life: in each the keyspace is created, filled and dropped.
const ROUNDS: u64 = 12;
const MARKED: [&[u8]; 3] =
    [b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\0\0\0\x01", b"\xff\xff\xff\xff\0\0\0\x02key"];
const ENTRIES: u8 = 5;

fn options(disk: Arc<SimDisk>) -> Options {
    Options::default()
        .vfs(disk)
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(4 << 10))
        .compaction(|c| c.table_bytes(1 << 10).base_level_bytes(4 << 10))
}

/// The options of a keyspace: `b` counts by merges, and entries of the others last for an hour.
fn options_of(name: &str) -> KeyspaceOptions {
    match name {
        "b" => KeyspaceOptions::new().merge_operator(Merge::counter()),
        _ => KeyspaceOptions::new().ttl(Duration::from_secs(3600)),
    }
}

/// Counts in three keyspaces at once. A counter is synced in every other round.
fn count(db: &Db, round: u64) {
    let mut batch = WriteBatch::new();
    batch.put("n", round.to_le_bytes());
    for name in ["a", "b"] {
        let keyspace = db.keyspace(name, options_of(name)).unwrap();
        let mut part = batch.keyspace(&keyspace);
        match name {
            "b" => part.merge("n", 1_u64.to_le_bytes()),
            _ => part.put("n", round.to_le_bytes()),
        };
        part.put("filler", [7; 300]);
    }
    let how = if round.is_multiple_of(2) { WriteOptions::sync() } else { WriteOptions::os() };
    db.write_with(batch, how).unwrap();
}

fn live(disk: &Arc<SimDisk>, rng: &mut Rng) {
    let db = Db::open("db", options(Arc::clone(disk))).unwrap();
    for key in MARKED {
        db.put_with(key, key, WriteOptions::sync()).unwrap();
    }
    disk.mark(0);
    for round in 1..=ROUNDS {
        count(&db, round);
        let doomed = db.keyspace("doomed", options_of("doomed")).unwrap();
        let mut batch = WriteBatch::new();
        batch.put("filled", round.to_le_bytes());
        for nth in 0..ENTRIES {
            batch.keyspace(&doomed).put([nth], round.to_le_bytes());
        }
        db.write(batch).unwrap();
        match rng.u8(..4) {
            0 => db.flush().unwrap(),
            1 => db.compact_all().unwrap(),
            _ => {}
        }
        assert!(db.drop_keyspace("doomed").unwrap());
        if round.is_multiple_of(2) {
            disk.mark(round);
        }
    }
}

/// What is left of a life whose steps up to `durable` were durable; returns the round.
fn check(image: Arc<SimDisk>, durable: u64) -> u64 {
    let db = Db::open("db", options(image)).unwrap();
    for key in MARKED {
        assert_eq!(db.get(key).unwrap().unwrap(), key);
    }
    let marked: Vec<_> = db.range(MARKED[0]..).map(|entry| entry.unwrap().0.to_vec()).collect();
    assert_eq!(marked, MARKED);
    let number = |value: Option<trommel::Slice>| {
        value.map_or(0, |value| u64::from_le_bytes(<[u8; 8]>::try_from(&*value).unwrap()))
    };
    let round = number(db.get("n").unwrap());
    assert!(round >= durable, "round {round} is left, and {durable} was durable");
    for name in ["a", "b"] {
        let keyspace = db.open_keyspace(name).unwrap();
        let found = keyspace.map_or(0, |keyspace| number(keyspace.get("n").unwrap()));
        assert_eq!(found, round, "keyspace {name}");
    }
    if let Some(doomed) = db.open_keyspace("doomed").unwrap() {
        let left: Vec<_> = doomed.iter().map(|entry| number(Some(entry.unwrap().1))).collect();
        let is_filled = number(db.get("filled").unwrap()) == round;
        let expected = if is_filled { vec![round; ENTRIES.into()] } else { Vec::new() };
        assert_eq!(left, expected, "round {round}, filled: {is_filled}");
    }
    // It goes on as if nothing had happened.
    let again = db.keyspace("doomed", KeyspaceOptions::new()).unwrap();
    again.put("new", "").unwrap();
    assert!(db.drop_keyspace("doomed").unwrap());
    assert!(matches!(again.get("new"), Err(Error::KeyspaceDropped { .. })));
    assert_eq!(db.keyspace("doomed", KeyspaceOptions::new()).unwrap().iter().count(), 0);
    assert!(db.verify_all().unwrap().is_sound());
    round
}

#[test]
fn batches_over_keyspaces_and_drops_are_atomic() {
    let mut rng = Rng::with_seed(14);
    let disk = Arc::new(SimDisk::new());
    live(&disk, &mut rng);
    let mut replay = disk.replay();
    let (mut images, mut seen) = (0, [0; ROUNDS as usize + 1]);
    loop {
        if let Some(durable) = replay.marks().last().copied() {
            let policies = [Policy::EVERYTHING, Policy::SYNCED, Policy::RANDOM];
            let policy = policies[rng.usize(..policies.len())];
            let image = Arc::new(replay.image(policy, rng.u64(..)).disk());
            seen[check(image, durable) as usize] += 1;
            images += 1;
        }
        if replay.step().is_none() {
            break;
        }
    }
    assert!(images > 200 && seen.iter().all(|count| *count > 0), "{images} images: {seen:?}");
}

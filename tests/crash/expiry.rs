//! Entries that expire, after a power failure at every boundary between two operations.
//!
//! Each key is written once, with its time. Whatever the image holds is a prefix of the writes,
//! less what has expired: nothing is missing before its time, and nothing is there after it.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use trommel::{Compression, Db, Keyspace, KeyspaceOptions, Options, WriteOptions};
use trommel_sim::{Policy, SimDisk, WallClock};

const TTL: Duration = Duration::from_secs(5);
/// The longest time that entries outlast it, in milliseconds.
const STEP: u64 = 1_000;
/// Steps of a life before it is closed.
const STEPS: u64 = 60;

/// How a store is used.
#[derive(Clone, Copy)]
struct Use {
    log: bool,
    /// Whether the entries are in a keyspace with a `ttl` of its own, and not in the default one.
    is_named: bool,
}

fn options(disk: Arc<SimDisk>, clock: &WallClock, Use { log, is_named }: Use) -> Options {
    Options::default()
        .vfs(clock.over(disk))
        .background_threads(0)
        .compression(Compression::None)
        .writes(|w| w.write_buffer_bytes(4 << 10).ttl((!is_named).then_some(TTL)).log(log))
        .compaction(|c| c.table_bytes(1 << 10).base_level_bytes(4 << 10))
}

/// An open store, and the keyspace with the entries, unless that is the default one.
struct Open {
    db: Db,
    named: Option<Keyspace>,
}

impl Open {
    fn new(disk: Arc<SimDisk>, clock: &WallClock, how: Use) -> Self {
        let db = Db::open("db", options(disk, clock, how)).unwrap();
        let lasting = KeyspaceOptions::new().ttl(TTL);
        let named = how.is_named.then(|| db.keyspace("named", lasting).unwrap());
        Self { db, named }
    }

    fn contains_key(&self, key: &str) -> bool {
        match &self.named {
            None => self.db.contains_key(key),
            Some(named) => named.contains_key(key),
        }
        .unwrap()
    }

    fn put_with(&self, key: &str, value: &[u8], options: WriteOptions) {
        match &self.named {
            None => self.db.put_with(key, value, options),
            Some(named) => named.put_with(key, value, options),
        }
        .unwrap();
    }

    fn count(&self) -> usize {
        match &self.named {
            None => self.db.iter().count(),
            Some(named) => named.iter().count(),
        }
    }
}

/// The writes of a life: when each was made. Its steps are marks in the disk's operation log.
struct Life {
    disk: Arc<SimDisk>,
    /// When each key was written, and in which step.
    written: Vec<(u64, u64)>,
    /// The time of each step.
    times: Vec<u64>,
}

fn live(rng: &mut Rng, how: Use) -> Life {
    let (disk, clock) = (Arc::new(SimDisk::new()), WallClock::default());
    let open = Open::new(Arc::clone(&disk), &clock, how);
    let db = &open.db;
    let (mut written, mut times) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        disk.mark(step);
        times.push(clock.millis());
        match rng.u8(..12) {
            0 => db.flush().unwrap(),
            1 => db.compact_range(..).unwrap(),
            2 => db.wait_idle().unwrap(),
            3..=5 => clock.advance(Duration::from_millis(rng.u64(..2_500))),
            put => {
                let sync =
                    if how.log && put == 6 { WriteOptions::sync() } else { WriteOptions::os() };
                let key = format!("k{:03}", written.len());
                written.push((clock.millis(), step));
                open.put_with(&key, &[7; 300], sync);
            }
        }
    }
    // Closing is a step of its own, at the time that the last one has left.
    disk.mark(STEPS);
    times.push(clock.millis());
    drop(open);
    Life { disk, written, times }
}

/// Opens what the power failure left, and checks which keys are there.
fn check(life: &Life, image: Arc<SimDisk>, step: u64, how: Use, loses_nothing: bool) {
    let clock = WallClock::at(life.times[step as usize]);
    let db = Open::new(image, &clock, how);
    let is_there: Vec<bool> =
        (0..life.written.len()).map(|nth| db.contains_key(&format!("k{nth:03}"))).collect();
    let last = is_there.iter().rposition(|there| *there);
    for (nth, (time, written_in)) in life.written.iter().enumerate() {
        let age = clock.millis().saturating_sub(*time);
        let ttl = TTL.as_millis() as u64;
        if is_there[nth] {
            assert!(age < ttl + STEP, "key {nth} is there after {age} ms");
        } else {
            let is_needed = last.is_some_and(|last| nth < last);
            let is_needed = is_needed || loses_nothing && *written_in < step;
            assert!(!is_needed || age >= ttl, "key {nth} is missing after {age} ms");
        }
    }
    assert_eq!(db.count(), is_there.iter().filter(|there| **there).count());
    // What the open has kept goes on to age as it was written.
    for _ in 0..4 {
        clock.advance(Duration::from_millis(1_500));
        for nth in (0..is_there.len()).filter(|nth| is_there[*nth]) {
            let age = clock.millis() - life.written[nth].0;
            let is_left = db.contains_key(&format!("k{nth:03}"));
            let bounds = (TTL.as_millis() as u64, TTL.as_millis() as u64 + STEP);
            assert!(is_left || age >= bounds.0, "key {nth} has expired after {age} ms");
            assert!(!is_left || age < bounds.1, "key {nth} is left after {age} ms");
        }
    }
    db.put_with("new", b"", WriteOptions::os());
    clock.advance(TTL - Duration::from_millis(1));
    assert!(db.contains_key("new"), "it has expired before its time");
    clock.advance(Duration::from_millis(1 + STEP));
    assert_eq!(db.count(), 0);
}

#[test]
fn expiry_survives_power_failures() {
    let seeds = if std::env::var_os("TROMMEL_LANES").is_some() { 14 } else { 6 };
    for seed in 0..seeds {
        let (mut rng, log) = (Rng::with_seed(seed), seed % 4 != 3);
        let how = Use { log, is_named: seed > 3 && seed % 4 < 2 };
        let life = live(&mut rng, how);
        let mut replay = life.disk.replay();
        loop {
            if let Some(step) = replay.marks().last().copied() {
                let policies = [Policy::EVERYTHING, Policy::SYNCED, Policy::RANDOM];
                let nth = rng.usize(..policies.len());
                let image = Arc::new(replay.image(policies[nth], rng.u64(..)).disk());
                check(&life, image, step, how, log && nth == 0);
            }
            if replay.step().is_none() {
                break;
            }
        }
    }
}

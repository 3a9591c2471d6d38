//! A consumer of a change feed, and a power failure at every boundary between two operations.
//!
//! The consumer notes the number of each batch that it was given, as if it had stored it elsewhere:
//! a mark in the operation log of the disk. After the power failure the store must have that batch,
//! and a feed that begins after it continues with the next one: each batch is given once. So it is
//! after a second power failure, in the store that has recovered and was written to again.

use std::sync::Arc;

use fastrand::Rng;
use trommel::{BatchOp, Db, Error, Options, SeqNo, WriteBatch, WriteOptions};
use trommel_sim::{Policy, SimDisk};
use trommel_tests::settings::rounds;

/// Steps of a life before it is closed.
const STEPS: u64 = 70;

fn options(disk: SimDisk, archived: u64) -> Options {
    Options::default()
        .vfs(Arc::new(disk))
        .background_threads(0)
        .writes(|w| w.write_buffer_bytes(4 << 10).log_archive_bytes(archived))
        .compaction(|c| c.table_bytes(1 << 10).base_level_bytes(4 << 10))
}

/// The batches of a life, each with the number of its last operation.
type Written = Vec<(SeqNo, Vec<String>)>;

fn write(db: &Db, written: &mut Written, rng: &mut Rng) {
    let mut batch = WriteBatch::new();
    let keys: Vec<String> = (0..rng.usize(1..4))
        .map(|nth| format!("k{:03}.{nth}.{}", written.len(), rng.u8(..)))
        .collect();
    keys.iter().for_each(|key| _ = batch.put(key, vec![7; rng.usize(..400)]));
    let how = if rng.u8(..6) == 0 { WriteOptions::sync() } else { WriteOptions::os() };
    written.push((db.write_with(&batch, how).unwrap(), keys));
}

/// The batches after this number, and if some are missing, after which and before which number.
fn since(db: &Db, position: SeqNo) -> (Written, Option<(SeqNo, SeqNo)>) {
    let mut found = Written::new();
    let changes = match db.changes_since(position) {
        Err(Error::ChangesMissing { after, oldest }) => return (found, Some((after, oldest))),
        changes => changes.unwrap(),
    };
    for batch in changes {
        let batch = match batch {
            Err(Error::ChangesMissing { after, oldest }) => return (found, Some((after, oldest))),
            batch => batch.unwrap(),
        };
        let key = |op| match op {
            BatchOp::Put { key, .. } => String::from_utf8(key.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        found.push((batch.seqno(), batch.iter().map(|changed| key(changed.op)).collect()));
    }
    (found, None)
}

fn live(rng: &mut Rng, archived: u64) -> (SimDisk, Written) {
    let (disk, mut written) = (SimDisk::new(), Written::new());
    let db = Db::open("db", options(disk.clone(), archived)).unwrap();
    let mut changes = db.changes_since(0).unwrap();
    for _ in 0..STEPS {
        match rng.u8(..10) {
            0 => db.flush().unwrap(),
            1 => db.compact_range(..).unwrap(),
            2..4 => {
                let most = rng.usize(1..20);
                let read: Vec<_> = changes.by_ref().take(most).collect();
                for batch in read {
                    match batch {
                        // It goes on without what it has missed.
                        Err(Error::ChangesMissing { oldest, .. }) if archived < 1 << 30 => {
                            changes = db.changes_since(oldest - 1).unwrap();
                        }
                        batch => disk.mark(batch.unwrap().seqno()),
                    }
                }
            }
            _ => write(&db, &mut written, rng),
        }
    }
    drop((changes, db));
    (disk, written)
}

/// Opens what the power failure left to a consumer that has everything up to `position`.
fn check(image: &SimDisk, archived: u64, written: &Written, position: SeqNo, rng: &mut Rng) {
    let db = Db::open("db", options(image.clone(), archived)).unwrap();
    let newest = db.snapshot().seqno();
    assert!(newest >= position, "it has forgotten what was yielded: {newest}, {position}");
    let mut expected: Written =
        written.iter().filter(|(seqno, _)| *seqno <= newest).cloned().collect();
    let after = |expected: &Written, position: SeqNo| -> Written {
        expected.iter().filter(|(seqno, _)| *seqno > position).cloned().collect()
    };
    let begin = |db: &Db, expected: &Written, position| match since(db, position) {
        (found, None) => assert_eq!(found, after(expected, position), "after {position}"),
        (found, Some((last, oldest))) => {
            // A removed log may be back, and later ones not.
            assert!(archived < 1 << 30, "nothing was to be removed: {last}, {oldest}");
            assert!(oldest > last + 1 && last == found.last().map_or(position, |(last, _)| *last));
            let before: Written = expected.iter().filter(|(at, _)| *at <= last).cloned().collect();
            assert_eq!(found, after(&before, position));
            let (rest, _) = since(db, oldest - 1);
            assert_eq!(rest, after(expected, oldest - 1)[..rest.len()]);
        }
    };
    begin(&db, &expected, position);
    begin(&db, &expected, 0);
    // A second life, which may reuse the numbers of lost writes.
    for _ in 0..rng.usize(1..12) {
        write(&db, &mut expected, rng);
    }
    let (read, gap) = since(&db, newest);
    let yielded = read.last().map_or(newest, |(seqno, _)| *seqno);
    assert!(yielded == expected.last().unwrap().0 || archived < 1 << 30 && gap.is_some());
    let image = image.crash(Policy::SYNCED, 1).disk();
    let db = Db::open("db", options(image, archived)).unwrap();
    begin(&db, &expected, position);
    begin(&db, &expected, yielded);
}

#[test]
fn a_consumer_continues_after_a_power_failure() {
    for seed in 0..rounds(12) {
        let mut rng = Rng::with_seed(seed);
        let archived = if seed % 4 == 3 { 100 << 10 } else { 1 << 30 };
        let (disk, written) = live(&mut rng, archived);
        let mut replay = disk.replay();
        loop {
            if replay.position() > 20 {
                let position = replay.marks().last().copied().unwrap_or_default();
                let policy = *rng.choice(&Policy::ALL).unwrap();
                let image = replay.image(policy, rng.u64(..)).disk();
                check(&image, archived, &written, position, &mut rng);
            }
            if replay.step().is_none() {
                break;
            }
        }
    }
}

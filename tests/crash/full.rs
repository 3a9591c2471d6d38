//! A full disk: no acknowledged write is lost, errors say what is wrong, and once there is space
//! the store continues.
//!
//! 1. A workload runs on disks of every size from nothing to what it needs, in small steps; and a
//!    killed store is opened on disks with every amount of free space up to what the open needs,
//!    byte by byte.
//! 2. If only a table did not fit, the same handle continues.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use trommel::vfs::Vfs;
use trommel::{Db, Error, WriteOptions};
use trommel_sim::{Failure, Fault, OpKind, Policy, SimDisk};
use trommel_tests::counters::Counters;
use trommel_tests::settings::{first_seed, rounds, scale};

use crate::faults::{crashed, profile, run};
use crate::inspect::{Verdict, failed, same, scan};
use crate::oracle::State;
use crate::settings::only;
use crate::trouble::{CutDown, Trouble};
use crate::workload::DIR;
use trommel_tests::watchdog;

/// Number of disk sizes for a workload.
const SIZES: u64 = 300;

/// Peak number of bytes on the disk during the workload.
fn most_bytes(seed: u64) -> u64 {
    let mut counters = Counters::new("healthy");
    let disk = run(seed, 0, Trouble::None, &mut counters).expect("a healthy disk");
    let mut replay = disk.replay();
    let mut most = 0;
    while replay.step().is_some() {
        if replay.position().is_multiple_of(8) {
            most = most.max(replay.image(Policy::EVERYTHING, 0).disk().used_bytes());
        }
    }
    most
}

#[test]
fn a_disk_full_at_every_level() {
    let mut counters = Counters::new("crash/a_disk_full_at_every_level");
    let one = |[seed, capacity]: [u64; 2], counters: &mut Counters| {
        watchdog::note([seed, capacity, 0, 0, 0]);
        let run = run(seed, 0, Trouble::Capacity(capacity), counters);
        run.unwrap_or_else(|CutDown { what, takes }| {
            panic!(
                "{what}\n  run it again: TROMMEL_CRASH_ONLY={seed},{capacity}{takes} cargo test -p \
                 trommel-tests --test crash a_disk_full_at_every_level -- --nocapture"
            )
        })
    };
    if let Some(case) = only() {
        one(case, &mut counters);
        return;
    }
    for seed in first_seed()..first_seed() + 6 {
        let (most, sizes) = (most_bytes(seed), rounds(SIZES));
        for number in 0..sizes {
            one([seed, number * most / sizes], &mut counters);
        }
    }
    assert!(
        counters.get("errors_reported") > counters.get("runs") / 2,
        "most disks were large enough"
    );
    counters.finish();
}

/// Opens the crashed store of a seed with `room` bytes free, and again with enough; returns whether
/// the space was enough.
fn open_full(seed: u64, room: u64, counters: &mut Counters) -> Verdict<bool> {
    watchdog::note([seed, room, 0, 0, 0]);
    let (profile, image, wanted) = crashed(seed)?;
    let disk = image.disk();
    disk.set_capacity(Some(disk.used_bytes() + room));
    let open = |disk: SimDisk| Db::open(DIR, profile.options(Arc::new(disk)));
    counters.add("opens", 1);
    let enough = match open(disk.clone()) {
        Ok(_) => true,
        Err(Error::Io { .. }) => false,
        Err(error) => return Err(format!("a full disk is reported as: {error}")),
    };
    counters.add("refused", u64::from(!enough));
    disk.set_capacity(None);
    let cut = disk.crash(Policy::ALL[room as usize % Policy::ALL.len()], room).disk();
    for disk in [disk, cut] {
        let db = open(disk).map_err(failed("opening with room again"))?;
        same(&db, wanted)?;
    }
    Ok(enough)
}

#[test]
fn a_disk_full_while_the_store_opens() {
    let mut counters = Counters::new("crash/a_disk_full_while_the_store_opens");
    let one = |[seed, room]: [u64; 2], counters: &mut Counters| {
        open_full(seed, room, counters).unwrap_or_else(|what| {
            panic!(
                "{what}\n  run it again: TROMMEL_CRASH_ONLY={seed},{room} cargo test -p \
                 trommel-tests --test crash a_disk_full_while_the_store_opens -- --nocapture"
            )
        })
    };
    if let Some(case) = only() {
        one(case, &mut counters);
        return;
    }
    let (seeds, mut take_room) = (4 * scale(), 0);
    for seed in first_seed()..first_seed() + seeds {
        let enough = (0..).find(|&room| one([seed, room], &mut counters));
        take_room += u64::from(enough > Some(0));
        // More is always enough too, wherever in a table the space ends.
        for more in 1..100 {
            let room = enough.map_or(0, |room| room + more * 41);
            assert!(one([seed, room], &mut counters), "seed {seed}, room {room}");
        }
    }
    // A crash may leave more behind than an opening takes.
    assert!(4 * take_room >= seeds, "only {take_room} of {seeds} openings take room");
    assert!(counters.get("refused") > 500, "openings need more room than that");
    counters.finish();
}

fn files(disk: &SimDisk) -> Vec<String> {
    let listing = disk.list(Path::new(DIR)).expect("the directory is there");
    listing.into_iter().map(|entry| entry.name.to_string_lossy().into_owned()).collect()
}

/// The disk fills up while a new table is written that no version refers to: the table is removed,
/// the flush returns an error, and once there is space the same handle continues.
#[test]
fn a_full_disk_under_a_table_poisons_nothing() {
    for kind in [OpKind::Create, OpKind::Append, OpKind::Sync] {
        for threads in [0, 2] {
            let profile = profile(3, threads);
            let disk = SimDisk::new();
            let options = profile.options(Arc::new(disk.clone()));
            // The memtable is not full, so nothing is written before the flush.
            let db =
                Db::open(DIR, options.writes(|w| w.write_buffer_bytes(1 << 20))).expect("opening");
            db.put("before", "1").expect("writing");
            disk.inject(Fault::new(Failure::NoSpace).on(kind).named(".sst").lasting());
            let error = db.flush().expect_err("the disk is full");
            assert!(matches!(error, Error::Io { .. }), "{error}");
            db.put_with("meanwhile", "2", WriteOptions::sync()).expect("the log has room");
            assert_eq!(db.get("before").expect("reading").as_deref(), Some(&b"1"[..]));
            disk.clear_faults();
            let start = std::time::Instant::now();
            while let Err(error) = db.flush() {
                assert!(matches!(error, Error::Io { .. }), "{error}");
                assert!(start.elapsed().as_secs() < 30, "it never recovers: {error}");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            db.put("after", "3").expect("writing goes on");
            db.wait_idle().expect("idle");
            let tables = files(&disk).iter().filter(|name| name.ends_with(".sst")).count();
            let known: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
            assert_eq!(tables as u64, known, "a half-written table lies about");
            drop(db);
            let db = Db::open(DIR, profile.options(Arc::new(disk))).expect("opening");
            assert_eq!(scan(&db).expect("scan").len(), 3);
        }
    }
}

/// A disk of a fixed size is filled until writes fail, again and again; after every error the store
/// still holds all acknowledged writes. On the full disk it opens with these, or returns an error;
/// with space again it opens.
#[test]
fn a_disk_of_a_fixed_size() {
    for (size, seed) in (first_seed()..first_seed() + 20).enumerate() {
        let profile = profile(seed, 0);
        let disk = SimDisk::new();
        disk.set_capacity(Some(20_000 + 3_000 * size as u64));
        let open =
            || Db::open(DIR, profile.options(Arc::new(disk.clone())).writes(|w| w.log(true)));
        let (mut state, mut refused) = (State::new(), 0);
        let mut rng = Rng::with_seed(seed);
        let mut db = open().expect("opening");
        for number in 0..400 {
            // Incompressible, so that the space needed is known.
            let value: String = (0..200).map(|_| rng.alphanumeric()).collect();
            let key = format!("key{number:04}");
            match db.put(&key, &value) {
                Ok(_) => {
                    state.insert(key.into_bytes(), value.into_bytes());
                }
                Err(error @ (Error::Io { .. } | Error::Poisoned { .. })) => {
                    refused += 1;
                    assert_eq!(scan(&db).expect("reads go on"), state, "{error}");
                    drop(db);
                    let mut with_it = state.clone();
                    with_it.insert(key.into_bytes(), value.into_bytes());
                    let settle = |db: &Db| {
                        let found = scan(db).expect("scan");
                        assert!(found == state || found == with_it, "seed {seed}, {number}");
                        found
                    };
                    match open() {
                        Ok(db) => drop(settle(&db)),
                        Err(Error::Io { .. }) => {}
                        Err(error) => panic!("seed {seed}: still full, reported as: {error}"),
                    }
                    disk.set_capacity(None);
                    db = open().expect("opening with room again");
                    state = settle(&db);
                    disk.set_capacity(Some(disk.used_bytes() + 4_000));
                }
                Err(error) => panic!("a full disk is reported as: {error}"),
            }
        }
        assert!(refused > 0, "seed {seed}: the disk never was full");
    }
}

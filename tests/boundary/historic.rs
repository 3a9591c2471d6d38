//! Bugs of other stores at this boundary, as tests: hostile input, locks and paths, and maps.
//!
//! | bug | effect there | test here |
//! |---|---|---|
//! | redb#1333, PR#888, #642 | repair panics, loops, allocates terabytes | `rescue::repair` (any corruption), `hostile_tests` of the engine |
//! | sled#1166, #1509, #1527, #1533 | cannot be opened after an unclean stop | lane `crash/killed`; `what_a_kill_leaves_opens` |
//! | badger#1049 | opens with a corrupt value log | `a_damaged_log_is_not_opened_over` |
//! | RocksDB 6.0.0 | a corrupt block of deletions makes deleted keys reappear | `a_damaged_deletion_brings_nothing_back` |
//! | RocksDB 11.3.0 | an empty name accepted, data lost | `the_empty_key_is_a_key` |
//! | lsm-tree#201 | a corrupt file makes the reader panic | lane `damage`; `rescue::degraded` |
//! | leveldb#126, rocksdb#1780 | a lock lost when another handle is closed; two owners in one process | `closing_another_handle_releases_nothing` |
//! | fjall 2672632 | wrong permissions of a lock file | `paths::all_that_is_made_is_for_its_owner_only` |
//! | fjall#176 | `._` files break recovery | `paths::what_is_not_the_stores_is_never_read_and_never_removed` |
//! | influxdb#24508, rocksdb-js#481 | a map longer than its file | `a_table_that_is_too_short_is_not_mapped` |
//! | RocksDB 5.15.0, 8.11.0 | corrupt data returned from a map | `what_a_map_yields_is_checked_at_each_read` |
//! | reth#24411, lmdb-go#40, systemd#27635 | truncation under a map ends the process | documented: maps are not the default ([`ReadMode`]) |

use std::fs;

use trommel::{Db, Error, Options, ReadMode, Verify};

use crate::common::{files, fill, home, small};

#[test]
fn what_a_kill_leaves_opens() {
    let (home, dir) = home();
    let db = Db::open(&dir, small()).expect("opening");
    for number in 0..200 {
        db.put(format!("key{number:03}"), "v".repeat(40)).expect("writing");
        if number % 40 == 0 {
            let copy = home.path().join(format!("copy{number}"));
            fs::create_dir(&copy).expect("a directory");
            for file in files(&dir, "") {
                fs::copy(&file, copy.join(file.file_name().expect("a name"))).expect("copying");
            }
            for _ in 0..3 {
                let killed = Db::open(&copy, small()).expect("opening");
                let last = killed.get(format!("key{number:03}")).expect("reading");
                assert!(last.is_some(), "key{number:03}");
                killed.close().expect("closing");
            }
        }
    }
}

#[test]
fn a_damaged_log_is_not_opened_over() {
    let (_home, dir) = home();
    fill(&dir);
    let log = files(&dir, ".log").pop().expect("a log");
    let mut bytes = fs::read(&log).expect("reading");
    let at = 64 + 40;
    bytes[at] ^= 1;
    fs::write(&log, &bytes).expect("writing");
    for _ in 0..2 {
        let refused = Db::open(&dir, small()).map(drop);
        assert!(matches!(refused, Err(Error::Corruption(_))), "{refused:?}");
        assert_eq!(fs::read(&log).expect("reading"), bytes, "it was written");
    }
}

#[test]
fn a_damaged_deletion_brings_nothing_back() {
    let (_home, dir) = home();
    fill(&dir);
    // The newest table holds nothing but deletions.
    let table = files(&dir, ".sst").pop().expect("a table");
    let whole = fs::read(&table).expect("reading");
    let mut errors = 0;
    for at in (0..whole.len()).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&table, &bytes).expect("writing");
        let Ok(db) = Db::open_read_only(&dir, small()) else { continue };
        for key in ["key000", "key030", "key099"] {
            match db.get(key) {
                Ok(got) => assert_eq!(got, None, "byte {at}: {key} is back"),
                Err(_) => errors += 1,
            }
        }
    }
    assert!(errors > 10, "{errors}");
}

#[test]
fn the_empty_key_is_a_key() {
    let (_home, dir) = home();
    let db = Db::open(&dir, small()).expect("opening");
    db.put("", "empty").expect("writing");
    db.close().expect("closing");
    let db = Db::open(&dir, small()).expect("opening");
    assert_eq!(db.get("").expect("reading").as_deref(), Some(&b"empty"[..]));
    assert_eq!(db.iter().count(), 1);
}

#[test]
fn closing_another_handle_releases_nothing() {
    let (_home, dir) = home();
    let db = Db::open(&dir, small()).expect("opening");
    for file in files(&dir, "") {
        drop(fs::read(&file).expect("reading"));
        drop(fs::OpenOptions::new().append(true).open(&file).expect("opening"));
    }
    let second = Db::open(&dir, small()).map(drop);
    assert!(matches!(second, Err(Error::Locked { .. })), "{second:?}");
    drop(db);
    Db::open(&dir, small()).expect("it is free");
}

fn mapped() -> Options {
    small().reads(|r| r.read_mode(ReadMode::Mapped(Verify::EachUse)))
}

#[test]
fn a_table_that_is_too_short_is_not_mapped() {
    let (_home, dir) = home();
    fill(&dir);
    let table = files(&dir, ".sst").pop().expect("a table");
    let whole = fs::read(&table).expect("reading");
    for left in [0, 1, 36, whole.len() / 2, whole.len() - 1] {
        fs::write(&table, &whole[..left]).expect("writing");
        let refused = Db::open(&dir, mapped()).map(drop);
        assert!(matches!(refused, Err(Error::Corruption(_))), "{left}: {refused:?}");
    }
}

#[test]
fn what_a_map_yields_is_checked_at_each_read() {
    let (_home, dir) = home();
    fill(&dir);
    let db = Db::open_read_only(&dir, mapped()).expect("opening");
    assert_eq!(db.get("key001").expect("reading").map(|value| value.len()), Some(60));
    // Another process writes to the file, under the map.
    let table = files(&dir, ".sst").remove(0);
    let mut file = fs::OpenOptions::new().write(true).open(&table).expect("opening");
    std::io::Write::write_all(&mut file, &[0xaa; 200]).expect("writing");
    let got = db.get("key001");
    assert!(matches!(got, Err(Error::Corruption(_))), "{got:?}");
}

//! Tables that become corrupt while they are read through maps, and the reads that detect it.

use std::path::Path;

use trommel::{Compression, Db, ErrorKind, Options, ReadMode, Verify};

const KEYS: usize = 500;

fn key(i: usize) -> String {
    format!("key {i:05}")
}

/// A store of one table, whose file is then corrupted under the map.
fn damaged_while_open(dir: &Path, mode: ReadMode, walked_before: bool) -> Db {
    let options = Options::default()
        .reads(|r| r.read_mode(mode))
        .compression(Compression::None)
        .compaction(|c| c.auto_compaction(false))
        .background_threads(0);
    let db = Db::open(dir, options).expect("a new store");
    for i in 0..KEYS {
        db.put(key(i), format!("value {i:050}")).expect("room");
    }
    db.flush().expect("room");
    if walked_before {
        assert_eq!(visited(&db, true).expect("nothing is damaged"), KEYS);
    }
    let files =
        std::fs::read_dir(dir).expect("a directory").map(|file| file.expect("a file").path());
    let mut tables =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "sst"));
    let path = tables.next().expect("a table");
    let mut bytes = std::fs::read(&path).expect("a table");
    let wanted = format!("value {:050}", 77);
    let found = bytes.windows(wanted.len()).position(|window| *window == *wanted.as_bytes());
    bytes[found.expect("the value is there")] ^= 1;
    // The same file, so that the map shows the change.
    std::fs::write(path, bytes).expect("room");
    db
}

/// Number of entries in a scan.
fn visited(db: &Db, is_forward: bool) -> trommel::Result<usize> {
    let (mut cursor, mut count) = (db.cursor()?, 0);
    let mut note = |_: &[u8], _: &[u8]| {
        count += 1;
        true
    };
    if is_forward {
        cursor.seek_to_first()?;
        cursor.visit(&mut note)?;
    } else {
        cursor.seek_to_last()?;
        cursor.visit_back(&mut note)?;
    }
    Ok(count)
}

/// Iterators detect it unless the mode makes them trust verified blocks; a compaction and a
/// verification of the whole store always detect it, and the failed compaction leaves the other
/// entries in place.
#[test]
fn damage_behind_a_map_is_found_unless_maps_are_trusted() {
    for mode in [
        ReadMode::Mapped(Verify::EachUse),
        ReadMode::Mapped(Verify::Once),
        ReadMode::Mapped(Verify::Trusted),
    ] {
        for walked_before in [false, true] {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let db = damaged_while_open(dir.path(), mode, walked_before);
            for is_forward in [true, false] {
                let found = visited(&db, is_forward);
                if mode == ReadMode::Mapped(Verify::Trusted) && walked_before {
                    assert_eq!(found.expect("verified before"), KEYS, "{mode}");
                } else {
                    let error = found.expect_err("never found intact, or verified each time");
                    assert_eq!(error.kind(), ErrorKind::RestoreData, "{mode}");
                }
            }
            let error = db.verify().expect_err("a block is damaged");
            assert_eq!(error.kind(), ErrorKind::RestoreData, "{mode}");
            let found = db.get(key(77));
            // A verification by an iterator counts for lookups only if iterators trust too.
            match mode == ReadMode::Mapped(Verify::Trusted) && walked_before {
                true => assert!(found.expect("verified before").is_some(), "{mode}"),
                false => assert!(found.is_err(), "{mode}"),
            }
            let error = db.compact_all().expect_err("it would carry the damage on");
            assert_eq!(error.kind(), ErrorKind::RestoreData, "{mode}");
            assert!(db.get(key(0)).expect("another block").is_some(), "{mode}");
        }
    }
}

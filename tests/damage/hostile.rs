//! Forged contents with valid checksums: one byte at every offset of every file is changed, and
//! then every checksum is recomputed. Such a store cannot be distinguished from a genuine one, so
//! its answers may be wrong; but they are answers or typed errors, never a panic or a hang, and if
//! `verify` finds nothing, all kinds of reads agree. Only a manifest is trusted about the levels of
//! tables: one that places older versions above newer ones is not detected. Then gets and scans may
//! differ, and a compaction may drop the tombstone of a key whose older version is above it.
//!
//! `tests/fuzz/` does the same, guided by coverage, with many changes at once; each of its findings
//! has a test here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use trommel::inspect::{ListedTable, Manifest};
use trommel::{Compression, Db, Options, Slice};

use crate::allocator::most_held;
use crate::fix;
use crate::flips::turns;
use crate::injury::kind_of;
use crate::stores::{DIR, Ending, Image, Store, build, vfs_of};
use trommel_tests::counters::Counters;
use trommel_tests::settings::stride;
use trommel_tests::watchdog::note;

/// The end of an error about answers that do not agree.
const DIFFER: &str = "differ";
/// The error if they agree before a compaction and not after it.
const CHANGED: &str = "a compaction changed an answer";

/// Memory that a store of a few KiB may use, beyond its files: less than a block whose length has
/// the highest bit of the largest blocks.
const MOST_BYTES: u64 = 8 << 20;

fn make_right(image: &mut Image) {
    for (file, bytes) in image {
        match kind_of(file) {
            "table" => fix::table(bytes),
            "sidecar" => fix::sidecar(bytes),
            "log" | "manifest" => fix::framed(bytes),
            "CURRENT" => fix::current(bytes),
            _ => {}
        }
    }
}

/// Opens the store, reads and compacts it. Returns a name for the result.
fn open(image: &Image) -> Result<&'static str, String> {
    let attempt = || {
        let options = Options::default()
            .vfs(Arc::new(vfs_of(image)))
            .reads(|r| r.cache_bytes(1 << 20))
            .background_threads(0);
        let db = match Db::open(DIR, options) {
            Ok(db) => db,
            Err(error) if error.to_string().contains(DIR) => return Ok("refused"),
            Err(error) => return Err(format!("an error that names no file: {error}")),
        };
        let answers = answers(&db);
        if db.verify().is_err() {
            let _ = db.compact_all();
            return Ok("reported by verify");
        }
        let before = answers?;
        db.compact_all().map_err(|error| format!("a compaction of what verifies: {error}"))?;
        match db.verify() {
            Ok(_) if self::answers(&db)? == before => Ok("taken"),
            Ok(_) => Err(CHANGED.to_owned()),
            Err(error) => Err(format!("a compaction wrote what does not verify: {error}")),
        }
    };
    let (done, bytes) = most_held(|| catch_unwind(AssertUnwindSafe(attempt)));
    let files: usize = image.values().map(Vec::len).sum();
    if bytes > MOST_BYTES + files as u64 {
        return Err(format!("it held {bytes} bytes for a store of {files}"));
    }
    done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
    })
}

/// All entries, if all kinds of reads agree.
fn answers(db: &Db) -> Result<Vec<(Slice, Slice)>, String> {
    let words = |error: trommel::Error| error.to_string();
    let forward: Vec<_> = db.iter().collect::<Result<_, _>>().map_err(words)?;
    let mut reverse: Vec<_> = db.iter().rev().collect::<Result<_, _>>().map_err(words)?;
    reverse.reverse();
    if forward != reverse {
        return Err("two ways through one store differ".to_owned());
    }
    for (key, value) in &forward {
        if db.get(key).map_err(words)?.as_ref() != Some(value) {
            return Err(format!("a get of {key:?} and a scan {DIFFER}"));
        }
    }
    Ok(forward)
}

/// The level of each table according to the manifest.
fn levels(image: &Image) -> Option<Vec<(usize, u64)>> {
    let vfs = vfs_of(image);
    let manifest = Manifest::in_force(&vfs, DIR.as_ref()).and_then(|manifest| manifest.info());
    let place = |table: &ListedTable| (table.stored_level, table.meta.number);
    manifest.ok().map(|manifest| manifest.contents.tables.iter().map(place).collect())
}

fn change_everything(filters: &str, compression: Compression, ending: Ending) {
    let store = build(filters, compression, ending);
    let mut counters = Counters::new(format!("damage/hostile/{}", store.name));
    let mut failures = Vec::new();
    for (file, bytes) in &store.image {
        for (at, byte) in bytes.iter().enumerate().step_by(stride()) {
            // These in the first four rounds of a soak, and others later.
            let value = |turn: usize| match turn {
                0..4 => [byte ^ 1, byte ^ 0x80, 0xff, 0][(at + turn) % 4],
                _ => byte.wrapping_add((turn - 3).wrapping_mul(37) as u8),
            };
            for value in turns(4).map(value).filter(|value| value != byte) {
                let mut image = store.image.clone();
                image.get_mut(file).expect("it is there")[at] = value;
                make_right(&mut image);
                let (kind, case) = (kind_of(file), format!("{file}, byte {at} is {value}"));
                note(format!("{}: {case}", store.name));
                counters.add(format!("hostile.{kind}"), 1);
                match open(&image) {
                    Ok(verdict) => counters.add(format!("outcomes.{kind}.{verdict}"), 1),
                    Err(what)
                        if (what.ends_with(DIFFER) || what == CHANGED)
                            && levels(&image) != levels(&store.image) =>
                    {
                        counters.add("outcomes.manifest.levels believed", 1);
                    }
                    Err(what) => failures.push(format!("{case}: {what}")),
                }
            }
        }
    }
    failures.truncate(10);
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    counters.finish();
}

#[test]
fn contents_of_a_closed_store_that_nobody_wrote() {
    change_everything("paired:16", Compression::Lz4, Ending::Closed);
}

#[test]
fn contents_of_a_store_with_partitioned_filters_that_nobody_wrote() {
    change_everything("partitioned blocked:10", Compression::None, Ending::Closed);
}

#[test]
fn contents_of_a_killed_store_that_nobody_wrote() {
    change_everything("standard:10", Compression::None, Ending::Killed);
}

/// The killed store, with another sequence number in one record of its log: the second, or the
/// last.
fn renumbered(last: bool, number: impl Fn(u64) -> u64) -> Image {
    let Store { mut image, marks, .. } = build("none", Compression::None, Ending::Killed);
    let nth = if last { marks.len() - 1 } else { 1 };
    let at = marks[nth - 1].end as usize + 8;
    let log = image.get_mut(&marks[nth].log).expect("the log");
    let field: &mut [u8; 8] = log[at..].first_chunk_mut().expect("a record");
    *field = number(u64::from_le_bytes(*field)).to_le_bytes();
    make_right(&mut image);
    image
}

/// A record that starts with a sequence number of the previous batch used to be accepted; if both
/// wrote the same key, opening the store panicked.
#[test]
fn a_batch_with_numbers_of_the_one_before_it_is_refused() {
    assert_eq!(open(&renumbered(false, |seqno| seqno - 1)), Ok("refused"));
}

/// A batch that extends beyond the last valid sequence number used to make opening the store panic.
#[test]
fn a_batch_with_numbers_beyond_the_last_is_refused() {
    for number in [1 << 56, u64::MAX] {
        assert_eq!(open(&renumbered(true, |_| number)), Ok("refused"), "{number}");
    }
}

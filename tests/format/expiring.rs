//! A store whose entries expire: time marks and the expiry horizon in its manifest, a time mark in
//! its log.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trommel::inspect::{Log, Manifest};
use trommel::{BatchOp, Db, Degraded, Options, WriteBatch};
use trommel_sim::{MemoryVfs, WallClock};

use super::{golden, read};
use crate::exam::leave;
use crate::stores::{DIR, Image, image_of, vfs_of};

const NAME: &str = "v1-expiring";
const TTL: Duration = Duration::from_secs(100);
/// Keys of each part.
const KEYS: usize = 20;
/// The parts, oldest first, and when each was written, in seconds after the first. The oldest has
/// expired in the manifest; the newest is in the log alone.
const PARTS: [(&str, u64); 4] = [("old", 0), ("middle", 60), ("young", 105), ("last", 110)];

fn start() -> WallClock {
    WallClock::default()
}

/// The clock when the store was killed.
fn end() -> WallClock {
    let clock = start();
    clock.advance(Duration::from_secs(PARTS[3].1));
    clock
}

fn open(image: &Image, clock: &WallClock, read_only: bool) -> trommel::Result<Db> {
    let options = Options::default().vfs(clock.over(Arc::new(vfs_of(image))));
    let options = options.writes(|w| w.ttl(TTL)).background_threads(0);
    Db::open(DIR, options.opening(|o| o.read_only(read_only)))
}

fn write(db: &Db, part: &str) {
    let mut batch = WriteBatch::new();
    for key in 0..KEYS {
        batch.put(format!("{part}-{key:02}"), part);
    }
    db.write(&batch).expect("memory takes it");
}

/// The parts of which the store has all keys; it may have no other keys.
fn parts(db: &Db) -> trommel::Result<Vec<&'static str>> {
    let keys =
        db.iter().map(|entry| Ok(entry?.0.to_vec())).collect::<trommel::Result<BTreeSet<_>>>()?;
    let of =
        |part: &str| (0..KEYS).map(move |key| format!("{part}-{key:02}").into_bytes()).collect();
    let parts: Vec<_> = PARTS
        .map(|(part, _)| part)
        .into_iter()
        .filter(|part| keys.is_superset(&of(part)))
        .collect();
    assert_eq!(keys.len(), parts.len() * KEYS, "a part of {keys:?}");
    Ok(parts)
}

/// See `write_missing_golden_stores`.
pub(super) fn write_missing() {
    let dir = golden().join(NAME);
    if dir.exists() {
        return;
    }
    let (memory, clock) = (Arc::new(MemoryVfs::new()), start());
    let options = Options::default().vfs(clock.over(Arc::<MemoryVfs>::clone(&memory)));
    let options = options.writes(|w| w.ttl(TTL)).background_threads(0);
    let db = Db::open(DIR, options).expect("a new store");
    for (part, at) in PARTS {
        clock.advance(Duration::from_millis(start().millis() + at * 1000 - clock.millis()));
        write(&db, part);
        if part != "last" {
            db.flush().expect("memory takes it");
        }
    }
    leave(&image_of(&*memory, Path::new(DIR)), &dir);
    let mut lines = Vec::new();
    for (part, _) in PARTS {
        let value = if part == "old" { "nothing".to_owned() } else { format!("\"{part}\"") };
        lines.extend((0..KEYS).map(|key| format!("\"{part}-{key:02}\" = {value}\n")));
    }
    lines.sort();
    std::fs::write(dir.with_extension("txt"), lines.concat()).expect("a writable tree");
}

fn is_mark(op: BatchOp<'_>) -> bool {
    matches!(op, BatchOp::TimeMark { .. })
}

#[test]
fn a_golden_store_has_time_marks_in_manifest_and_log() {
    let image = read(&golden().join(NAME));
    let vfs = vfs_of(&image);
    let manifest = Manifest::in_force(&vfs, Path::new(DIR)).expect("a manifest");
    let contents = manifest.info().expect("a sound manifest").contents;
    assert!(contents.expiry_horizon > KEYS as u64, "{}", contents.expiry_horizon);
    let first = contents.time_marks.first().expect("a mark");
    assert_eq!(first.from, contents.expiry_horizon);
    assert!(contents.time_marks.is_sorted_by_key(|mark| (mark.from, mark.until)));
    let logs = image.keys().filter(|file| file.ends_with(".log"));
    let marks = logs.map(|file| {
        let log = Log::open(&vfs, &Path::new(DIR).join(file)).expect("a log");
        let batches = log.scan();
        let all = batches.flat_map(|batch| batch.operations()).collect::<Vec<_>>();
        all.into_iter().filter(|op| matches!(op, Ok(it) if is_mark(it.op))).count()
    });
    assert_eq!(marks.sum::<usize>(), 1);
}

#[test]
fn a_golden_store_expires_when_its_marks_say() {
    let image = read(&golden().join(NAME));
    for read_only in [true, false] {
        let clock = end();
        let db = open(&image, &clock, read_only).expect("a sound store");
        let mut expected = vec!["middle", "young", "last"];
        for (part, written) in [("middle", 60), ("young", 105), ("last", 110)] {
            // Up to a step of a second late, never early.
            let at = start().millis() + (written + 100) * 1000;
            clock.advance(Duration::from_millis(at - 1 - clock.millis()));
            assert_eq!(parts(&db).expect("sound tables"), expected, "before {part} expires");
            clock.advance(Duration::from_millis(2000));
            expected.remove(0);
            assert_eq!(parts(&db).expect("sound tables"), expected, "after {part} has expired");
        }
    }
}

/// Any changed byte of manifest and log is detected, and a cut log lacks its last batch: nothing
/// that has expired comes back.
#[test]
fn damage_to_time_marks_brings_nothing_back() {
    let image = read(&golden().join(NAME));
    let (mut refused, mut opened) = (0, 0);
    let mut check = |file: &str, changed: Vec<u8>, expected: &[&[&str]]| {
        let mut image = image.clone();
        let what = format!("{file} of {} bytes", changed.len());
        image.insert(file.to_owned(), changed);
        let Ok(db) = open(&image, &end(), true) else {
            refused += 1;
            return;
        };
        opened += 1;
        let found = parts(&db).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(expected.contains(&&*found), "{what}: {found:?}");
    };
    let (all, without_last) = (["middle", "young", "last"], ["middle", "young"]);
    for (file, bytes) in &image {
        let is_log = file.ends_with(".log");
        if !is_log && !file.starts_with("MANIFEST") {
            continue;
        }
        for offset in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[offset] ^= 1 << (offset % 8);
            check(file, changed, &[&all]);
            if is_log {
                check(file, bytes[..offset].to_vec(), &[&all, &without_last]);
            }
        }
    }
    assert!(refused > 0 && opened > 0, "{refused} refused, {opened} opened");
}

#[test]
fn copies_and_degraded_opens_of_an_expiring_store_keep_what_has_expired_hidden() {
    let image = read(&golden().join(NAME));
    let db = open(&image, &end(), false).expect("a sound store");
    db.verify_all().expect("a sound store");
    db.checkpoint("copy").expect("memory takes it");
    // The copy has its own marks: it needs neither `ttl` nor the clock to hide what had expired.
    let vfs = Arc::clone(db.vfs());
    drop(db);
    let options = |ttl: Option<Duration>, clock: &WallClock| {
        Options::default().vfs(clock.over(Arc::clone(&vfs))).writes(|w| w.ttl(ttl))
    };
    let copy = Db::open("copy", options(None, &start())).expect("a copy");
    assert_eq!(parts(&copy).expect("sound tables"), ["middle", "young", "last"]);
    drop(copy);

    let clock = end();
    let opened = Db::open_degraded(DIR, options(Some(TTL), &clock), Degraded::Certain);
    let degraded = opened.expect("a sound store");
    assert_eq!(parts(&degraded).expect("sound tables"), ["middle", "young", "last"]);
    clock.advance(Duration::from_secs(60));
    assert_eq!(parts(&degraded).expect("sound tables"), ["young", "last"]);
}

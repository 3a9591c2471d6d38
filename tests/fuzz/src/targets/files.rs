//! Logs, manifests, dumps, traces and manifests of backups.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use trommel::dump::{DumpReader, DumpWriter};
use trommel::inspect::{Log, LogSpan, Manifest, find, live_files, properties};
use trommel::trace::{Outcome, Place, TraceInfo, TraceReader, TraceWriter};
use trommel::{Db, Options};
use trommel_backup::{Directory, Repository};
use trommel_base::codec::{put_u32, put_u64};
use trommel_sim::MemoryVfs;
use trommel_vfs::Vfs;

use super::store::agree;
use crate::fix;
use crate::image::{DIR, Image, Kind, golden_stores, kind_of, vfs_of};

/// The files of one kind in all golden stores.
fn of_kind(kind: Kind) -> Vec<Vec<u8>> {
    let stores = golden_stores().into_iter();
    stores.flatten().filter(|(name, _)| kind_of(name) == kind).map(|(_, bytes)| bytes).collect()
}

/// Checks that spans are contiguous from the first byte to the last.
fn is_gapless(spans: &[LogSpan], bytes: usize) {
    let end = spans.iter().fold(0, |end, span| {
        assert_eq!(span.offset, end, "a gap between spans");
        end + span.bytes
    });
    assert_eq!(end, bytes as u64, "spans end before the file does");
}

/// The first byte determines whether to fix checksums; the rest is a log.
pub(crate) fn log(input: &[u8]) {
    let Some((how, rest)) = input.split_first() else { return };
    let mut bytes = rest.to_vec();
    if how % 4 != 0 {
        fix::framed(&mut bytes);
    }
    let vfs = vfs_of(&Image::from([("000015.log".to_owned(), bytes)]));
    let Ok(log) = Log::open(&vfs, &Path::new(DIR).join("000015.log")) else { return };
    let (info, check) = (log.info(), log.check());
    let mut batches = 0;
    for batch in log.scan() {
        let whole = batch.operations().all(|operation| operation.is_ok());
        assert!(whole || check.is_err(), "a log that checks holds something that is no batch");
        batches += 1;
    }
    if let (Ok(info), Ok(check)) = (&info, &check) {
        assert_eq!((info.written.batches, check.batches), (batches, batches));
    }
    is_gapless(&log.layout(), rest.len());
}

pub(crate) fn log_seeds() -> Vec<Vec<u8>> {
    of_kind(Kind::Log).iter().map(|bytes| [&[1], &**bytes].concat()).collect()
}

/// Opens the store of `image`, read-only or not; its reads must agree, unless its manifest may be
/// wrong about levels, which is not detected.
fn recover(image: &Image, how: u8, levels_are_true: bool) {
    let options = Options::default()
        .vfs(Arc::new(vfs_of(image)))
        .background_threads(0)
        .reads(|r| r.cache_bytes(1 << 20))
        .opening(|o| o.read_only(how & 4 != 0).salvage(how & 8 != 0));
    let Ok(db) = Db::open(DIR, options) else { return };
    let _ = db.recovery_report();
    if db.verify().is_ok() && levels_are_true {
        let entries = agree(&db);
        if how & 4 == 0 {
            db.put("one more", "value").expect("a store that verifies takes writes");
            assert_eq!(db.get("one more").ok().flatten().as_deref(), Some(&b"value"[..]));
            assert!(agree(&db).len() >= entries.len());
        }
    }
    let _ = db.close();
}

/// A golden store that was not closed, or any of them.
fn base(which: u8) -> Image {
    let mut stores = golden_stores();
    stores.swap_remove(usize::from(which) % stores.len())
}

/// The first two bytes select the store and the way to open it; the rest is its last log.
pub(crate) fn recovery(input: &[u8]) {
    let Some(([which, how], rest)) = input.split_first_chunk::<2>() else { return };
    let mut image = base(*which);
    let mut bytes = rest.to_vec();
    if how % 4 != 0 {
        fix::framed(&mut bytes);
    }
    let last = image.iter_mut().rev().find(|(name, _)| kind_of(name) == Kind::Log);
    let Some((_, log)) = last else { return };
    *log = bytes;
    recover(&image, *how, true);
}

pub(crate) fn recovery_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (which, store) in golden_stores().iter().enumerate() {
        let last = store.iter().rev().find(|(name, _)| kind_of(name) == Kind::Log);
        seeds.extend(last.map(|(_, bytes)| [&[which as u8, 1], &**bytes].concat()));
    }
    seeds
}

const RECORD_HEADER_BYTES: usize = 36;
const FILE_HEADER_BYTES: usize = 64;

/// A manifest with these records.
fn manifest_of(records: &[&[u8]]) -> Vec<u8> {
    let mut out = b"\x89TRMAN\r\n".to_vec();
    put_u32(&mut out, 1);
    put_u32(&mut out, 0);
    for word in [0, 2, 0x5a17, 0x570e, 0] {
        put_u64(&mut out, word);
    }
    out.resize(FILE_HEADER_BYTES, 0);
    for (number, payload) in records.iter().enumerate() {
        let at = out.len();
        out.extend_from_slice(&[0xd3, 1, 0, 0]);
        put_u32(&mut out, payload.len() as u32);
        put_u64(&mut out, number as u64 + 1);
        put_u64(&mut out, if number == 0 { 0 } else { at as u64 });
        out.resize(at + RECORD_HEADER_BYTES, 0);
        out.extend_from_slice(payload);
        out.push(0);
    }
    fix::framed(&mut out);
    out
}

fn examine_manifest(vfs: &dyn Vfs, path: &Path, bytes: usize) {
    let Ok(manifest) = Manifest::open(vfs, path) else { return };
    let (info, check) = (manifest.info(), manifest.check());
    let edits = manifest.scan().take_while(Result::is_ok).count() as u64;
    if let (Ok(info), Ok(check)) = (&info, &check) {
        assert_eq!((info.edits, check.edits), (edits, edits));
        assert_eq!(info.contents.tables.len() as u64, check.tables);
    }
    is_gapless(&manifest.layout(), bytes);
}

/// The input is the second edit of a manifest, or with an odd first byte the first one.
pub(crate) fn manifest_edit(input: &[u8]) {
    let Some((how, payload)) = input.split_first() else { return };
    let first = records_of(&of_kind(Kind::Manifest)[0]).swap_remove(0);
    let bytes =
        if how % 2 == 0 { manifest_of(&[&first, payload]) } else { manifest_of(&[payload]) };
    let length = bytes.len();
    let vfs = vfs_of(&Image::from([("MANIFEST-000002".to_owned(), bytes)]));
    examine_manifest(&vfs, &Path::new(DIR).join("MANIFEST-000002"), length);
}

/// The payloads of the records of a valid manifest.
fn records_of(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut rest = &bytes[FILE_HEADER_BYTES..];
    while let Some(length) = rest.get(4..8).and_then(<[u8]>::first_chunk) {
        let end = RECORD_HEADER_BYTES + u32::from_le_bytes(*length) as usize;
        let Some(payload) = rest.get(RECORD_HEADER_BYTES..end) else { break };
        found.push(payload.to_vec());
        rest = &rest[end + 1..];
    }
    found
}

pub(crate) fn edit_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for manifest in of_kind(Kind::Manifest) {
        for (number, record) in records_of(&manifest).iter().enumerate() {
            seeds.push([&[u8::from(number == 0)], &**record].concat());
        }
    }
    seeds.sort();
    seeds.dedup();
    seeds
}

/// The first three bytes select the store, the way to open it, and the length of `CURRENT` (0:
/// unchanged); the rest is the manifest.
pub(crate) fn manifest(input: &[u8]) {
    let Some(([which, how, split], rest)) = input.split_first_chunk::<3>() else { return };
    let mut image = base(*which);
    let (text, bytes) = rest.split_at(usize::from(*split).min(rest.len()));
    let (mut text, mut bytes) = (text.to_vec(), bytes.to_vec());
    if how % 4 != 0 {
        fix::current(&mut text);
        fix::framed(&mut bytes);
    }
    let length = bytes.len();
    let Some(name) = image.keys().find(|name| kind_of(name) == Kind::Manifest).cloned() else {
        return;
    };
    image.insert(name.clone(), bytes);
    if !text.is_empty() {
        image.insert("CURRENT".to_owned(), text);
    }
    let vfs = vfs_of(&image);
    examine_manifest(&vfs, &Path::new(DIR).join(name), length);
    let _ = live_files(&vfs, Path::new(DIR));
    let _ = properties(&vfs, Path::new(DIR));
    let _ = find(&vfs, Path::new(DIR), b"key 006");
    recover(&image, *how, false);
}

pub(crate) fn manifest_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (which, store) in golden_stores().iter().enumerate() {
        let manifest = store.iter().find(|(name, _)| kind_of(name) == Kind::Manifest);
        let (Some((_, bytes)), Some(text)) = (manifest, store.get("CURRENT")) else { continue };
        seeds.push([&[which as u8, 1, 0], &**bytes].concat());
        seeds.push([&[which as u8, 1, text.len() as u8], &**text, bytes].concat());
    }
    seeds
}

/// The first byte determines whether to fix checksums; the rest is a dump. If it is read to its end
/// it is written and read again, with the same entries.
pub(crate) fn dump(input: &[u8]) {
    let Some((how, rest)) = input.split_first() else { return };
    let mut bytes = rest.to_vec();
    if how % 4 != 0 {
        fix::dump(&mut bytes);
    }
    let Some(entries) = read_dump(&bytes) else { return };
    let mut writer = DumpWriter::new(Vec::new()).expect("memory takes it");
    for (key, value) in &entries {
        writer.append(key, value).expect("what was read can be written");
    }
    let (again, totals) = writer.finish().expect("memory takes it");
    assert_eq!(totals.entries, entries.len() as u64);
    assert_eq!(read_dump(&again), Some(entries));
}

fn read_dump(bytes: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut reader = DumpReader::new(bytes, "dump").ok()?;
    let mut entries = Vec::new();
    while let Some((key, value)) = reader.next_entry().ok()? {
        entries.push((key.to_vec(), value.to_vec()));
    }
    Some(entries)
}

pub(crate) fn dump_seeds() -> Vec<Vec<u8>> {
    let dump = |entries: u32, value: usize| {
        let mut writer = DumpWriter::new(vec![1]).expect("memory takes it");
        for n in 0..entries {
            let value = vec![n as u8; value];
            writer.append(format!("key {n:04}").as_bytes(), &value).expect("memory takes it");
        }
        writer.finish().expect("memory takes it").0
    };
    // The first byte is the target's, so offsets of checksums are fixed when it runs.
    vec![dump(0, 0), dump(3, 5), dump(40, 30), dump(3, 40_000)]
}

/// The first byte determines whether to fix checksums; the rest is a trace. If it is read to its
/// end it is written again, with the same lookups of the same keys.
pub(crate) fn trace(input: &[u8]) {
    let Some((how, rest)) = input.split_first() else { return };
    let mut bytes = rest.to_vec();
    if how % 4 != 0 {
        fix::dump(&mut bytes);
    }
    // Lookups of one key are written as one, so that their number may exceed `most` then.
    let Some((info, lookups)) = read_trace(&bytes, 1 << 32) else { return };
    let mut writer = TraceWriter::new(Vec::new(), info).expect("memory takes it");
    for ((key, outcome), times) in &lookups {
        writer.add(key, *outcome, *times).expect("what was read can be written");
    }
    let (again, totals) = writer.finish().expect("memory takes it");
    assert_eq!(totals.lookups, lookups.values().sum::<u64>());
    assert_eq!(read_trace(&again, u64::MAX), Some((info, lookups)));
}

/// Lookups by key and outcome.
type Lookups = BTreeMap<(Vec<u8>, Outcome), u64>;

/// The contents of a trace, without entries of more than `most` lookups; none if it is too large: a
/// few bytes can repeat a long key many times.
fn read_trace(bytes: &[u8], most: u64) -> Option<(TraceInfo, Lookups)> {
    let mut reader = TraceReader::new(bytes, "trace").ok()?;
    let (mut lookups, mut held) = (Lookups::new(), 0);
    while let Some(lookup) = reader.next_lookup().ok()? {
        held += lookup.key.len() + 100;
        if held < 8 << 20 && lookup.times <= most {
            *lookups.entry((lookup.key.to_vec(), lookup.outcome)).or_default() += lookup.times;
        }
    }
    Some((reader.info(), lookups))
}

pub(crate) fn trace_seeds() -> Vec<Vec<u8>> {
    let trace = |lookups: u32, key: usize| {
        let info = TraceInfo { store_id: 7, sample: 10 };
        let mut writer = TraceWriter::new(vec![1], info).expect("memory takes it");
        for n in 0..lookups {
            let key = [format!("key {:04}", n / 2).as_bytes(), &vec![b'k'; key]].concat();
            let place = [Place::Nowhere, Place::Memory, Place::Level(3)][n as usize % 3];
            let outcome = Outcome { place, found: n % 3 > 0 };
            writer.add(&key, outcome, u64::from(n) + 1).expect("memory takes it");
        }
        writer.finish().expect("memory takes it").0
    };
    // The first byte is the target's, so offsets of checksums are fixed when it runs.
    vec![trace(0, 0), trace(3, 5), trace(40, 30), trace(9, 40_000)]
}

/// A manifest of a backup with this body.
fn under_hash(body: &[u8]) -> Vec<u8> {
    let hash: String = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
    [b"{\"sha256\":\"", hash.as_bytes(), b"\",\"backup\":", body, b"}\n"].concat()
}

/// The input is the body of a backup's manifest, with its valid hash.
pub(crate) fn backup_manifest(input: &[u8]) {
    let vfs = MemoryVfs::new();
    let dir = Path::new("/backups");
    let write = |path: &Path, bytes: &[u8]| {
        let mut file = vfs.create(path).expect("a new file");
        file.append(bytes).expect("memory takes it");
    };
    for folder in [dir, &dir.join("backups"), &dir.join("blobs")] {
        vfs.create_dir(folder).expect("a new directory");
    }
    write(&dir.join("REPOSITORY"), b"{\"format\":\"trommel-backup\",\"version\":1}\n");
    write(&dir.join("backups/0000000001.json"), &under_hash(input));
    let target = Directory::on(Arc::new(vfs.clone()), dir);
    let repository = Repository::open(Arc::new(target)).expect("a repository");
    if let Ok(listed) = repository.list() {
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].backup.is_ok(), repository.backup(1).is_ok());
    }
    let _ = repository.latest(None);
    let _ = repository.verify(None, &());
    if let Ok(backup) = repository.backup(1) {
        let _ = backup.bytes();
        let _ = repository.restore_damaged(Arc::new(vfs.clone()), 1, "/restored", &());
    }
    let outside = vfs.list(Path::new("/")).expect("the root");
    assert!(
        outside.iter().all(|entry| ["backups", "restored"].iter().any(|name| entry.name == *name)),
        "a restore wrote somewhere else: {outside:?}"
    );
}

pub(crate) fn backup_seeds() -> Vec<Vec<u8>> {
    let body = |files: &str| {
        format!(
            "{{\"format\":\"trommel-backup\",\"version\":1,\"id\":1,\
             \"created\":\"2026-11-21T09:30:00Z\",\"store\":\"00000000000012ab\",\
             \"parent\":null,\"files\":[{files}]}}"
        )
    };
    let file = |path: &str, identity: &str| {
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        format!("{{\"path\":\"{path}\",\"bytes\":3,\"sha256\":\"{hash}\"{identity}}}")
    };
    let table = file("000007.sst", ",\"identity\":\"0123456789abcdef\"");
    let both = format!("{table},{}", file("CURRENT", ""));
    let strange = file("../outside", "");
    [body(""), body(&both), body(&strange)].map(String::into_bytes).to_vec()
}

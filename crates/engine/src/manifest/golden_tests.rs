//! The frozen format: a manifest of version 1, and its `CURRENT`, are read and written unchanged.
//! `TROMMEL_REFREEZE=1` rewrites the files, which is allowed only before the first release.

use std::path::Path;

use trommel_sim::MemoryVfs;
use trommel_vfs::Vfs;

use super::current;
use super::edit::{
    FIRST_OPTIONAL_TAG, TABLE_TAG_FILTER_SIDECAR, TABLE_TAG_RANGES_APPLIED, TAG_ADDED,
    TAG_HASH_SEED, TAG_KEYSPACE, TAG_LAST_SEQNO, TAG_LOG_END, TAG_LOG_NUMBER, TAG_MERGE_OPERATOR,
    TAG_NEXT_FILE_NUMBER, TAG_RANGE_TOMBSTONE, TAG_RANGES_REPLACED, TAG_REMOVED, VersionEdit,
};
use super::edit_tests::table;
use super::reader::recover;
use super::state::ManifestState;
use super::writer::ManifestWriter;
use crate::log::format::MANIFEST_MAGIC;
use crate::log::testing::disk;
use crate::names::MAX_FILE_NUMBER;

const PAGE: &str = include_str!("../../../../docs/format/manifest.md");
const MANIFEST: &[u8] = include_bytes!("testdata/MANIFEST-000009");
const CURRENT: &[u8] = include_bytes!("testdata/CURRENT");
const STORE: u64 = 0x7472_6f6d_6d65_6c21;

fn states_and_edit() -> (ManifestState, VersionEdit, ManifestState) {
    let mut with_sidecar = table(4, ("a", "k"), (7, 70));
    with_sidecar.filters.sidecar = Some(5);
    let snapshot = VersionEdit {
        added: vec![(0, with_sidecar), (6, table(3, ("", "zebra"), (1, 6)))],
        next_file_number: Some(10),
        last_seqno: Some(70),
        log_number: Some(8),
        ..VersionEdit::default()
    };
    let edit = VersionEdit {
        added: vec![(1, table(4, ("a", "k"), (7, 70))), (0, table(10, ("b", "c"), (71, 80)))],
        removed: vec![(0, 4)],
        next_file_number: Some(12),
        last_seqno: Some(80),
        log_number: Some(11),
        ..VersionEdit::default()
    };
    let before = ManifestState::default().apply(&snapshot).unwrap();
    let after = before.apply(&edit).unwrap();
    (before, edit, after)
}

fn golden(vfs: &dyn Vfs, name: &str, golden: &[u8]) {
    let written = vfs.read(Path::new(name), 1 << 20).unwrap();
    if std::env::var_os("TROMMEL_REFREEZE").is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manifest/testdata");
        std::fs::write(folder.join(name), &written).unwrap();
        return;
    }
    assert!(written == golden, "{name} is no longer written as it was");
}

#[test]
fn a_manifest_of_version_1_is_read_and_written_unchanged() {
    let (before, edit, after) = states_and_edit();
    let (vfs, dir) = (MemoryVfs::new(), Path::new(""));
    let mut writer = ManifestWriter::create(&vfs, dir, 9, 0xa5a5, STORE, &before).unwrap();
    writer.append(&edit).unwrap();
    writer.finish().unwrap();
    golden(&vfs, "MANIFEST-000009", MANIFEST);
    golden(&vfs, "CURRENT", CURRENT);

    let old = [("CURRENT", CURRENT), ("MANIFEST-000009", MANIFEST), ("000011.log", &[])];
    let vfs = disk(old.map(|(name, bytes)| (Path::new(name), bytes)));
    for (_, table) in after.version.tables() {
        let name = format!("{:06}.sst", table.number);
        let mut file = vfs.create(Path::new(&name)).unwrap();
        file.append(&vec![0; table.file_bytes as usize]).unwrap();
    }
    let found = recover(&vfs, dir, &vfs.list(dir).unwrap(), false).unwrap().unwrap();
    assert_eq!(found.state.snapshot(), after.snapshot());
    assert_eq!((found.store_id, found.number, found.closed), (STORE, 9, true));
}

fn page_says(what: &str) {
    assert!(PAGE.contains(what), "docs/format/manifest.md does not say \"{what}\"");
}

#[test]
fn the_page_states_the_constants_of_the_code() {
    let magic: Vec<String> = MANIFEST_MAGIC.iter().map(|byte| format!("{byte:02x}")).collect();
    page_says(&format!("`{}`", magic.join(" ")));
    page_says(&format!("`FIRST_OPTIONAL_TAG = {FIRST_OPTIONAL_TAG}`"));
    for (tag, name) in [
        (TAG_ADDED, "TAG_ADDED"),
        (TAG_REMOVED, "TAG_REMOVED"),
        (TAG_NEXT_FILE_NUMBER, "TAG_NEXT_FILE_NUMBER"),
        (TAG_LAST_SEQNO, "TAG_LAST_SEQNO"),
        (TAG_LOG_NUMBER, "TAG_LOG_NUMBER"),
        (TAG_LOG_END, "TAG_LOG_END"),
        (TAG_KEYSPACE, "TAG_KEYSPACE"),
        (TAG_RANGE_TOMBSTONE, "TAG_RANGE_TOMBSTONE"),
        (TAG_RANGES_REPLACED, "TAG_RANGES_REPLACED"),
    ] {
        page_says(&format!("| {tag}   | {:22} |", format!("`{name}`")));
    }
    page_says(&format!("| {TAG_HASH_SEED}  | {:22} |", "`TAG_HASH_SEED`"));
    page_says(&format!("| {TAG_MERGE_OPERATOR}  | {:22} |", "`TAG_MERGE_OPERATOR`"));
    page_says(&format!("{TABLE_TAG_FILTER_SIDECAR} (`TABLE_TAG_FILTER_SIDECAR`)"));
    page_says(&format!("{TABLE_TAG_RANGES_APPLIED} (`TABLE_TAG_RANGES_APPLIED`)"));
    page_says(&current::text(7));
    assert!(include_str!("current.rs").contains(&format!(
        "//! MANIFEST-000007\n//! {}",
        current::text(7).lines().nth(1).unwrap()
    )));
    assert_eq!(MAX_FILE_NUMBER, (1 << 62) - 1, "the page says 2^62 - 1");
}

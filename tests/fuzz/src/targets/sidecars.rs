//! Whole filter sidecars with all checksums fixed, for a valid table.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use trommel_base::{Cursor, SeqNo};
use trommel_filter::hash;
use trommel_sstable::{
    Answers, BlockCache, Expected, ReadStats, ScanOptions, Sidecar, Table, TableConfig,
};
use trommel_vfs::{Access, ReadFile};

use crate::fix;
use crate::image::{self, Bytes};

/// The golden sidecars' table, and its keys.
static TABLE: LazyLock<(Vec<u8>, Vec<Vec<u8>>)> = LazyLock::new(|| {
    let mut found = None;
    for bytes in image::golden("crates/sstable/tests/golden", "sst") {
        let Some(table) = open(&bytes).map(Arc::new) else { continue };
        let is_its = |sidecar: &Vec<u8>| table.verify_sidecar(&read(sidecar)?, None).ok();
        if image::golden("crates/sstable/tests/golden", "flt").iter().any(|it| is_its(it).is_some())
        {
            found = Some((bytes, keys(&table)));
        }
    }
    found.expect("a golden table with sidecars")
});

fn open(bytes: &[u8]) -> Option<Table> {
    let file: Arc<dyn ReadFile> = Arc::new(Bytes { bytes: bytes.to_vec(), mapped: false });
    let path = Path::new("000001.sst");
    let expected = Expected::of_file(&*file, path).ok()?;
    let cache = BlockCache::new(1 << 20);
    let config = TableConfig { cache, access: Access::Buffered, filter_host: None };
    Table::open(file, path, expected, &config).ok()
}

fn keys(table: &Arc<Table>) -> Vec<Vec<u8>> {
    let mut cursor = table.cursor(ScanOptions::default());
    cursor.seek_to_first().expect("a golden table");
    let mut keys = Vec::new();
    while let Some(entry) = cursor.entry() {
        keys.push(entry.key.to_vec());
        cursor.next().expect("a golden table");
    }
    keys
}

fn read(bytes: &[u8]) -> Option<Sidecar> {
    let file: Arc<dyn ReadFile> = Arc::new(Bytes { bytes: bytes.to_vec(), mapped: false });
    Sidecar::open(file, Path::new("000002.flt")).ok()
}

/// The input is the sidecar. If it verifies it has no false negative; in any case the table is
/// readable.
pub(crate) fn sidecar(input: &[u8]) {
    let (table, keys) = &*TABLE;
    let mut table = open(table).expect("a golden table");
    let (footer, all) = (*table.footer(), table.properties().contents.keys);
    let mut bytes = input.to_vec();
    fix::sidecar_of(&mut bytes, footer.table_id, all, footer.data_bytes);
    let Some(sidecar) = read(&bytes) else { return };
    let (_, whole) = (sidecar.layout(), sidecar.check().is_ok());
    let is_sound = table.verify_sidecar(&sidecar, None).is_ok();
    assert!(whole || !is_sound, "what verifies is whole");
    table.take_sidecar(sidecar).expect("it was made to be of this table");
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let hashes: Vec<u64> = keys.iter().map(|key| hash(key)).collect();
    let mut answers = Answers::default();
    table.filters().query_many(&keys, &hashes, &mut answers);
    let mut denied = answers.runs().any(|(_, _, maybe)| maybe.iter().any(|maybe| !*maybe));
    let mut stats = ReadStats::default();
    for (key, hash) in keys.iter().zip(hashes) {
        denied |= !table.filters().query(key, hash).maybe;
        let prefix = key.get(..2).unwrap_or(key);
        let _ = table.filters().query_prefix(prefix, trommel_filter::hash(prefix), "fixed:2");
        let found = table.get(key, hash, SeqNo::MAX, &mut stats);
        assert!(found.expect("the table is good").is_some(), "a read does not query filters");
    }
    assert!(!(is_sound && denied), "a filter that verifies denies a key of its table");
    table.evict();
}

pub(crate) fn sidecar_seeds() -> Vec<Vec<u8>> {
    image::golden("crates/sstable/tests/golden", "flt")
}

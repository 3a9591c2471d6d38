//! The stores under test: a few KiB per file, several levels, and everything that has ever confused
//! a reader of logs: long runs of zeros, values that contain log bytes, an empty key.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use trommel::vfs::{DirEntry, Vfs};
use trommel::{Compression, Db, Options, RebuildOptions, WriteBatch, WriteOptions};
use trommel_sim::MemoryVfs;

use crate::gate::GatedVfs;

/// The directory of every store in its file system.
pub(crate) const DIR: &str = "/store";

/// The files of a directory by name.
pub(crate) type Image = BTreeMap<String, Vec<u8>>;

/// The entries of a store.
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The final state of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Closed.
    Closed,
    /// Killed, with writes in one log.
    Killed,
    /// Killed, with writes in two logs, the first with an end marker.
    TwoLogs,
    /// Killed inside an append: the last record is torn.
    Torn,
}

/// The end of a batch's record.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    /// The log.
    pub(crate) log: String,
    /// Offset of the record's end.
    pub(crate) end: u64,
    /// Number of batches in the store up to this one.
    pub(crate) batches: usize,
    /// Whether all bytes up to here were synced at the end.
    pub(crate) synced: bool,
}

/// A store in its final state, with its history.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) name: String,
    pub(crate) ending: Ending,
    pub(crate) has_filters: bool,
    pub(crate) image: Image,
    /// The entries after each number of batches.
    pub(crate) states: Vec<Model>,
    /// Number of batches in tables.
    pub(crate) in_tables: usize,
    /// The records of the logs, in order.
    pub(crate) marks: Vec<Mark>,
    /// All earlier contents of each file.
    pub(crate) older: BTreeMap<String, Vec<Vec<u8>>>,
}

impl Store {
    /// Number of batches in the intact store.
    pub(crate) fn batches(&self) -> usize {
        let torn = usize::from(self.ending == Ending::Torn);
        self.states.len() - 1 - torn
    }

    /// Every key that was ever written, and some that never were.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = self.states.iter().flat_map(|s| s.keys().cloned()).collect();
        keys.extend([b"absent".to_vec(), b"key 005x".to_vec(), b"zzz".to_vec()]);
        keys.sort();
        keys.dedup();
        keys
    }
}

/// The files of `dir`. If a store is active there, a listed file may be removed before it is read:
/// then all are listed again.
pub(crate) fn image_of(vfs: &dyn Vfs, dir: &Path) -> Image {
    let read = |entry: DirEntry| {
        let name = entry.name.to_string_lossy().into_owned();
        match vfs.read(&dir.join(&name), 1 << 20) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            bytes => Some((name, bytes.expect("a small file"))),
        }
    };
    loop {
        let entries = vfs.list(dir).expect("the directory exists");
        if let Some(image) = entries.into_iter().map(read).collect() {
            return image;
        }
    }
}

/// A file system with `image` in `DIR`.
pub(crate) fn vfs_of(image: &Image) -> MemoryVfs {
    let vfs = MemoryVfs::new();
    let dir = Path::new(DIR);
    vfs.create_dir(dir).expect("a new directory");
    for (name, bytes) in image {
        let mut file = vfs.create(&dir.join(name)).expect("a new file");
        file.append(bytes).expect("memory takes it");
    }
    vfs
}

/// A store under construction, with its model.
struct Building {
    db: Db,
    vfs: GatedVfs,
    states: Vec<Model>,
    marks: Vec<Mark>,
    versions: BTreeMap<String, Vec<Vec<u8>>>,
}

type Put<'a> = (&'a str, Option<Vec<u8>>);

impl Building {
    fn new(filters: &str, compression: Compression, ending: Ending) -> Self {
        let vfs = GatedVfs::default();
        let (shape, filters) = filters.split_once(' ').unwrap_or(("whole", filters));
        let options = Options::default()
            .vfs(Arc::new(vfs.clone()))
            .filters(filters.parse().expect("a filter policy"))
            .filtering(|f| {
                f.filter_shape(shape.parse().expect("a shape of filters"))
                    .filter_partition_bytes(256)
            })
            .compression(compression)
            .reads(|r| r.cache_bytes(1 << 20).block_bytes(256))
            .compaction(|c| {
                c.table_bytes(1 << 10).base_level_bytes(1 << 10).level_ratio(2).l0_trigger(2)
            })
            .background_threads(usize::from(ending == Ending::TwoLogs));
        let db = Db::open(DIR, options).expect("a new store");
        let states = vec![Model::new()];
        Self { db, vfs, states, marks: Vec::new(), versions: BTreeMap::new() }
    }

    fn write(&mut self, puts: &[Put<'_>], sync: bool) {
        self.write_after(None, puts, sync);
    }

    /// A batch that deletes a range first.
    fn write_after(&mut self, deleted: Option<Range<&str>>, puts: &[Put<'_>], sync: bool) {
        let mut state = self.states.last().cloned().unwrap_or_default();
        let mut batch = WriteBatch::new();
        if let Some(range) = deleted {
            let bytes = range.start.as_bytes().to_vec()..range.end.as_bytes().to_vec();
            state.retain(|key, _| !bytes.contains(key));
            batch.delete_range(bytes);
        }
        for (key, value) in puts {
            match value {
                Some(value) => {
                    batch.put(key, value);
                    state.insert(key.as_bytes().to_vec(), value.clone());
                }
                None => {
                    batch.delete(key);
                    state.remove(key.as_bytes());
                }
            }
        }
        let how = if sync { WriteOptions::sync() } else { WriteOptions::os() };
        self.db.write_with(batch, how).expect("the disk is well");
        self.states.push(state);
        let image = self.note_versions();
        let (log, bytes) =
            image.iter().rev().find(|(name, _)| name.ends_with(".log")).expect("a log");
        let mark = Mark {
            log: log.clone(),
            end: bytes.len() as u64,
            batches: self.states.len() - 1,
            synced: false,
        };
        self.marks.push(mark);
        if sync {
            self.marks.iter_mut().for_each(|mark| mark.synced = true);
        }
    }

    /// Flushes the memtable, after which no log is needed.
    fn flush(&mut self) {
        self.db.flush().expect("the disk is well");
        self.marks.clear();
        self.note_versions();
    }

    fn note_versions(&mut self) -> Image {
        let image = image_of(&self.vfs, Path::new(DIR));
        for (name, bytes) in &image {
            let versions = self.versions.entry(name.clone()).or_default();
            if versions.last() != Some(bytes) {
                versions.push(bytes.clone());
            }
        }
        image
    }

    /// At least three levels: two tables in level 0 above what was compacted before.
    fn fill_tables(&mut self) {
        let text =
            |i: usize, round: usize| format!("round {round} of key {i} ").repeat(4).into_bytes();
        for i in (0..32).step_by(4) {
            let keys: Vec<String> = (i..i + 4).map(|i| format!("key {:03}", i * 3)).collect();
            let puts: Vec<Put<'_>> =
                keys.iter().enumerate().map(|(j, key)| (&**key, Some(text(i + j, 0)))).collect();
            self.write(&puts, false);
        }
        self.write(&[("zeros", Some(vec![0; 1300]))], false);
        self.flush();
        self.db.compact_all().expect("the disk is well");
        for round in 1..3 {
            self.write(&[("key 006", Some(text(2, round))), ("key 060", None)], false);
            self.write(
                &[("key 011", Some(text(11, round))), ("", Some(b"empty key".to_vec()))],
                true,
            );
            self.flush();
        }
        self.db.wait_idle().expect("the disk is well");
        self.db.pause_compaction().expect("the disk is well");
        for round in 3..5 {
            self.write(&[("key 009", Some(text(3, round))), ("key 093", None)], false);
            self.write(&[("key 061", Some(text(61, round))), ("empty value", Some(vec![]))], false);
            // Compactions are paused, so what these delete stays in tables.
            let deleted = if round == 3 { "key 021".."key 030" } else { "key 027".."key 033" };
            self.write_after(Some(deleted), &[("key 024", Some(text(24, round)))], false);
            self.flush();
        }
    }

    /// Sidecars for the last level, if there are filters.
    fn rebuild_filters(&mut self, filters: &str) {
        if filters == "none" {
            return;
        }
        let filters = filters.split_once(' ').map_or(filters, |(_, filters)| filters);
        let last = self.db.stats().levels.last().map(|level| level.level);
        self.db.set_filters("blocked:12".parse().expect("a filter policy")).expect("an option");
        let options = RebuildOptions::default().levels(last);
        let report = self.db.rebuild_filters(&options).expect("the disk is well");
        assert!(report.rebuilt > 0, "{report:?}");
        self.db.set_filters(filters.parse().expect("a filter policy")).expect("an option");
        self.note_versions();
    }

    /// Batches that are in no table.
    fn fill_log(&mut self, round: usize) {
        let value = |i: usize| format!("logged {round} {i} ").repeat(3).into_bytes();
        self.write(
            &[("log a", Some(value(1))), ("key 003", None), ("log b", Some(value(2)))],
            false,
        );
        let log_bytes =
            self.note_versions().into_iter().rev().find(|(name, _)| name.ends_with(".log"));
        self.write(&[("log bytes", log_bytes.map(|(_, bytes)| bytes))], false);
        self.write(&[("log b", None), ("key 012", Some(value(3)))], true);
        self.write(&[("zeros in the log", Some(vec![0; 1100 + round]))], false);
        self.write(&[("key 015", Some(value(4))), ("", None)], false);
        self.write(&[("log c", Some(value(5)))], true);
        self.write(&[("log d", Some(value(6).repeat(12))), ("log a", None)], false);
        self.write(&[("key 018", Some(value(7)))], false);
        self.write_after(Some("key 036".."key 041"), &[("key 039", Some(value(9)))], false);
        self.write(&[("log e", Some(value(8)))], false);
    }
}

/// Builds a store with these filters ("paired:16", or "partitioned paired:16") and this
/// compression, and ends it as given.
pub(crate) fn build(filters: &str, compression: Compression, ending: Ending) -> Store {
    let mut building = Building::new(filters, compression, ending);
    building.fill_tables();
    building.rebuild_filters(filters);
    let in_tables = building.states.len() - 1;
    let levels = building.db.stats().levels.len();
    assert!(levels >= 3, "only {levels} levels: {}", building.db.stats());
    building.fill_log(0);
    if ending == Ending::TwoLogs {
        building.vfs.shut();
        building.db.flush().expect_err("no table can be created");
        building.fill_log(1);
    }
    let mut image = building.note_versions();
    if ending == Ending::Closed {
        building.db.close().expect("the disk is well");
        image = image_of(&building.vfs, Path::new(DIR));
        building.marks.iter_mut().for_each(|mark| mark.synced = true);
    }
    let mut marks = building.marks;
    if ending == Ending::Torn {
        let last = marks.pop().expect("a record");
        let log = image.get_mut(&last.log).expect("its log");
        log.truncate(last.end as usize - 30);
    }
    let mut older = building.versions;
    older.retain(|name, _| image.contains_key(name));
    for (name, versions) in &mut older {
        versions.retain(|bytes| bytes.len() <= image[name].len() && *bytes != image[name]);
    }
    let (kind, _) = filters.split_once(':').unwrap_or((filters, ""));
    Store {
        name: format!("{ending:?}-{kind}-{compression:?}").to_lowercase().replace(' ', "-"),
        ending,
        has_filters: filters != "none",
        image,
        states: building.states,
        in_tables,
        marks,
        older,
    }
}

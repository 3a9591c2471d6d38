//! Iterating over the intact entries of a corrupt store.
//!
//! 1. All tables of the range are read once, to find the corruption and the keys it may affect.
//! 2. Ranges without corruption are scanned.
//! 3. In a range that corruption may affect, each key with any version left is looked up, because a
//!    get knows which versions are above the corruption.
//!
//! Called by [`Db::healthy`](crate::Db::healthy). [`rescue`](crate::rescue) finds the readable
//! parts of files.

use std::sync::Arc;

use trommel_base::{Cursor as _, MAX_SEQNO, SeqNo, Slice};
use trommel_vfs::Access;

use crate::bounds::Bounds;
use crate::damage::{Damage, KeySpan};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::{list, table_path};
use crate::fork::leak;
use crate::handle::Handle;
use crate::iter::range::Range;
use crate::keyspaces::Part;
use crate::names;
use crate::rescue::doubt::spans;
use crate::rescue::logs::LoggedEntry;
use crate::rescue::sources::{Everything, left};
use crate::rescue::table;
use crate::space::Space;
use crate::version::TableFile;
use crate::view::View;

/// An iterator over the intact entries of a range, in key order, skipping corruption.
///
/// It yields exactly what [`Db::get`](crate::Db::get) returns: a lost table of the deepest level
/// hides no newer entry above it. In ranges that corruption may affect, each key with any version
/// left is looked up individually, so they are slower to iterate than others.
///
/// It keeps the store open, like a [`Range`]. Created by [`Db::healthy`](crate::Db::healthy), which
/// reads all tables of the range once to find the corruption.
#[derive(Debug)]
pub struct Healthy {
    /// In physical keys.
    bounds: Bounds,
    space: Space,
    /// The segments still to come, the next one last.
    segments: Vec<Segment>,
    damage: Vec<Damage>,
    scan: Option<Range>,
    left: Option<KeysLeft>,
    /// Last field: readers must be dropped before the store may close.
    store: Arc<Handle>,
}

#[derive(Debug)]
enum Segment {
    /// Keys not affected by corruption.
    Sound(Bounds),
    /// Keys that corruption may affect; some may be intact.
    Doubtful(KeySpan),
}

impl Healthy {
    /// The corruption found, with the keys that it may affect.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// The keys that corruption may affect: disjoint, in order. A key of these ranges is still
    /// yielded if no newer version of it can be lost; the others are skipped. In a store with
    /// keyspaces the ranges are of stored keys: those of a named keyspace have its header of 8
    /// bytes.
    pub fn in_doubt(&self) -> Vec<KeySpan> {
        spans(self.damage.iter().filter_map(|damage| damage.keys.as_ref()))
    }

    /// In a forked child, leaks what it holds.
    fn leak_if_forked(&mut self) {
        if self.store.engine.access.opener().is_forked() {
            leak(&self.store);
            std::mem::forget(self.left.take());
        }
    }

    /// The next entry, if there is one.
    fn step(&mut self) -> Result<Option<(Slice, Slice)>> {
        let space = self.space;
        let entry = self.step_physical()?;
        Ok(entry.map(|(key, value)| (key.slice(space.skipped(&key)..), value)))
    }

    /// The next entry with its physical key.
    fn step_physical(&mut self) -> Result<Option<(Slice, Slice)>> {
        if self.scan.is_none() && self.left.is_none() && self.segments.is_empty() {
            return Ok(None);
        }
        self.store.engine.access.opener().check()?;
        loop {
            if let Some(entry) = self.scan.as_mut().and_then(Iterator::next) {
                return entry.map(Some);
            }
            self.scan = None;
            if let Some(left) = &mut self.left {
                let Some(key) = left.step()? else {
                    self.left = None;
                    continue;
                };
                match self.store.engine.get(&key, None) {
                    Ok(Some(value)) => return Ok(Some((Slice::from(&*key), value))),
                    // The key is in doubt, as reported: there is no value, or a file of the store
                    // has an error.
                    Ok(None)
                    | Err(Error::Corruption(_) | Error::Io { .. } | Error::Unsupported { .. }) => {}
                    Err(error) => return Err(error),
                }
                continue;
            }
            match self.segments.pop() {
                None => return Ok(None),
                Some(Segment::Sound(bounds)) => {
                    self.scan = Some(self.store.range(Part::Whole, bounds, None));
                }
                Some(Segment::Doubtful(keys)) => {
                    self.left = Some(KeysLeft::new(&self.store.engine, &keys, &self.bounds)?);
                }
            }
        }
    }
}

/// The keys with any version left, in order.
#[derive(Debug)]
struct KeysLeft {
    versions: Everything,
    keys: KeySpan,
    bounds: Bounds,
    /// Keeps the files.
    _view: Arc<View>,
}

impl KeysLeft {
    /// The keys within `keys` and `bounds`: in memory, and in intact blocks of tables.
    fn new(engine: &Engine, keys: &KeySpan, bounds: &Bounds) -> Result<Self> {
        let view = engine.view.load_full();
        let mut logged = Vec::new();
        for memtable in view.memtables() {
            let mut cursor = memtable.memtable.cursor();
            let Ok(()) = cursor.seek(&keys.first, MAX_SEQNO);
            while let Some(entry) = cursor.entry().filter(|entry| *entry.key <= *keys.last) {
                logged.push(LoggedEntry {
                    key: entry.key.to_vec(),
                    seqno: entry.seqno,
                    kind: entry.kind,
                    value: Vec::new(),
                });
                let Ok(()) = cursor.next();
            }
        }
        let of_file = |file: &Arc<TableFile>| {
            if *file.largest < *keys.first || *keys.last < *file.smallest {
                return None;
            }
            let path = table_path(&engine.files.dir, file.number);
            let opened = engine.files.vfs.open(&path, Access::Buffered).ok()?;
            // If its layout is unknown, each key of its span ends in an error.
            let mut blocks = trommel_sstable::layout(&opened, &path).ok()?;
            blocks.retain(|block| match &block.content {
                Ok(content) => content.first_key <= keys.last && keys.first <= content.last_key,
                Err(_) => false,
            });
            left(path, blocks)
        };
        let tables = view.version.tables().filter_map(|(_, file)| of_file(file)).collect();
        let versions = Everything::new(&engine.files.vfs, tables, logged)?;
        Ok(Self { versions, keys: keys.clone(), bounds: bounds.clone(), _view: view })
    }

    fn step(&mut self) -> Result<Option<Vec<u8>>> {
        while let Some(entry) = self.versions.entry()? {
            let key = entry.key.to_vec();
            // Skips its other versions.
            while self.versions.entry()?.is_some_and(|entry| *entry.key == *key) {
                self.versions.advance()?;
            }
            if self.keys.holds(&key) && self.bounds.holds(&key) {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }
}

impl Handle {
    pub(crate) fn healthy(self: &Arc<Self>, part: Part<'_>, bounds: Bounds) -> Result<Healthy> {
        let engine = &*self.engine;
        engine.access.check_open()?;
        let space = part.space_at(&engine.options.keyspaces, SeqNo::MAX)?;
        let bounds = space.bounds(bounds);
        // Loaded before the directory is listed, so that its tables stay.
        let version = engine.version();
        let (vfs, dir) = (&*engine.files.vfs, &engine.files.dir);
        let listing = list(vfs, dir)?;
        let mut damage = Vec::new();
        for (_, file) in version.tables() {
            if *file.largest < *bounds.from || bounds.ends_before(&file.smallest) {
                continue;
            }
            let name = names::table(file.number);
            let entry = listing.iter().find(|entry| entry.name == *name);
            let extractor = engine.options.extractor_for(&file.smallest);
            let extractor = extractor.as_ref();
            let meta = file.meta();
            damage.extend(table::survey(vfs, dir, meta, entry, extractor).0);
            damage.extend(table::survey_sidecar(vfs, dir, meta, extractor).0);
        }
        let segments = segments(&bounds, &damage);
        let store = Arc::clone(self);
        Ok(Healthy { bounds, space, segments, damage, scan: None, left: None, store })
    }
}

/// The range, divided at corruption; the first segment last.
fn segments(bounds: &Bounds, damage: &[Damage]) -> Vec<Segment> {
    let mut from = bounds.from.clone();
    let mut segments = Vec::new();
    for span in spans(damage.iter().filter_map(|damage| damage.keys.as_ref())) {
        segments.push(Segment::Sound(Bounds { from, to: Some(bounds.capped(&span.first)) }));
        from = Bounds::after(&span.last).max(bounds.from.clone());
        segments.push(Segment::Doubtful(span));
    }
    segments.push(Segment::Sound(Bounds { from, to: bounds.to.clone() }));
    segments.reverse();
    segments
}

impl Drop for Healthy {
    fn drop(&mut self) {
        self.leak_if_forked();
    }
}

impl Iterator for Healthy {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.step().transpose();
        if matches!(entry, None | Some(Err(_))) {
            self.leak_if_forked();
            (self.scan, self.left) = (None, None);
            self.segments.clear();
        }
        entry
    }
}

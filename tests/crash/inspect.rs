//! Opens a store and compares it with the oracle.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use trommel::vfs::Vfs;
use trommel::{Db, Error, Options, Result as StoreResult, Slice};
use trommel_sim::{Image, Policy, SimDisk};
use trommel_tests::counters::Counters;

use crate::boundaries::Flaw;
use crate::oracle::{Bounds, Checkpoint, History, State, digest};
use crate::workload::{DIR, checkpoint_dir};

/// The result of an inspection: the digest of the state, or a description of the error.
pub(crate) type Verdict<T> = Result<T, String>;

/// For `map_err`: adds the operation that failed.
pub(crate) fn failed(what: &str) -> impl FnOnce(Error) -> String + '_ {
    move |error| format!("{what} failed: {error}")
}

/// All entries of the store, in order.
pub(crate) fn scan(db: &Db) -> Verdict<State> {
    collect(db.iter()).map(|entries| entries.into_iter().collect())
}

pub(crate) fn collect(
    entries: impl Iterator<Item = StoreResult<(Slice, Slice)>>,
) -> Verdict<Vec<(Vec<u8>, Vec<u8>)>> {
    let entries = entries.map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
    entries.collect::<StoreResult<_>>().map_err(failed("a scan"))
}

/// Compares the results of all other kinds of reads with `state`.
pub(crate) fn compare_reads(db: &Db, state: &State) -> Verdict<()> {
    let mut backwards = collect(db.iter().rev())?;
    backwards.reverse();
    if backwards.into_iter().collect::<State>() != *state {
        return Err("the scan backwards differs from the scan forwards".to_owned());
    }
    let mut keys: Vec<Vec<u8>> = state.keys().cloned().collect();
    let beside = keys.iter().flat_map(|key| [[key, &b"\0"[..]].concat(), before(key)]);
    let beside: Vec<_> = beside.collect();
    keys.extend(beside);
    let many = db.multi_get(&keys).map_err(failed("a multi_get"))?;
    for (key, found_by_many) in keys.iter().zip(many) {
        let found = db.get(key).map_err(failed("a get"))?;
        let wanted = state.get(key).map(Vec::as_slice);
        if found.as_deref() != wanted || found_by_many.as_deref() != wanted {
            return Err(format!("gets of {key:?} differ from the scan"));
        }
    }
    if let Some(key) = keys.first() {
        let range = (Bound::Excluded(key.clone()), Bound::Unbounded);
        let above = collect(db.range(range.clone()))?;
        let wanted: Vec<_> = state.range::<Vec<u8>, _>(range).collect();
        if !above.iter().map(|(key, value)| (key, value)).eq(wanted) {
            return Err(format!("the range above {key:?} differs from the scan"));
        }
    }
    Ok(())
}

/// A short key just before `key`.
fn before(key: &[u8]) -> Vec<u8> {
    match key.split_last() {
        Some((0, rest)) => rest.to_vec(),
        Some((last, rest)) => [rest, &[last - 1]].concat(),
        None => Vec::new(),
    }
}

/// Checks an idle store: its filters fit their budget, if there is one, and no rebuild is queued.
pub(crate) fn budget_fits(db: &Db) -> Verdict<()> {
    let Some(report) = db.filter_report().budget else { return Ok(()) };
    let most = report.space.built_bytes.max(report.space.resident_bytes);
    if most <= report.space.budget_bytes && report.queued_rebuilds == 0 {
        return Ok(());
    }
    Err(format!("filters of a store that rests are beyond their budget: {report}"))
}

/// The checks of a store opened on an image.
#[derive(Debug)]
pub(crate) struct Inspection<'a> {
    pub(crate) history: &'a History,
    pub(crate) low: usize,
    pub(crate) high: usize,
    /// Decides which of the occasional checks to run.
    pub(crate) rng: Rng,
    pub(crate) flaw: Option<Flaw>,
}

impl Inspection<'_> {
    /// Opens the store on `image`, checks that its state is legal, and that it is durable. Returns
    /// its digest.
    pub(crate) fn inspect(
        &mut self,
        image: &Image,
        options: impl Fn(Arc<dyn Vfs>) -> Options,
        counters: &mut Counters,
    ) -> Verdict<u64> {
        let disk = image.disk();
        let open = |disk: &SimDisk| Db::open(DIR, options(Arc::new(disk.clone())));
        let db = open(&disk).map_err(failed("opening"))?;
        let state = scan(&db)?;
        let found = digest(&state);
        let Some(count) = self.history.prefix(found, self.low, self.high) else {
            return Err(self.history.explain(&state, self.low, self.high));
        };
        self.flaw.map_or(Ok(()), |flaw| flaw(&state))?;
        if self.rng.u8(..4) == 0 {
            counters.add("compared_in_all_ways", 1);
            compare_reads(&db, &state)?;
        }
        db.verify().map_err(failed("verifying"))?;
        match self.rng.u8(..16) {
            0..4 => {
                counters.add("then.write_and_crash", 1);
                self.write_on(&disk, &db, &open)?;
            }
            4 => {
                counters.add("then.reopen_often", 1);
                drop(db);
                does_not_grow(&disk, &open, found)?;
            }
            // A second crash right away must not lose recovered entries.
            5..8 => {
                counters.add("then.crash", 1);
                let again = disk.crash(Policy::SYNCED, 0).disk();
                same(&open(&again).map_err(failed("opening after a second crash"))?, found)?;
            }
            8..12 => {
                counters.add("then.reopen", 1);
                db.close().map_err(failed("closing"))?;
                let db = open(&disk).map_err(failed("opening a second time"))?;
                same(&db, found)?;
                db.verify().map_err(failed("verifying a second time"))?;
            }
            _ => {
                counters.add("then.crash", 1);
                let policy = Policy::ALL[self.rng.usize(..Policy::ALL.len())];
                let again = disk.crash(policy, self.rng.u64(..)).disk();
                let db = open(&again).map_err(failed("opening after a second crash"))?;
                same(&db, found).map_err(|what| format!("{what} (second crash: {policy})"))?;
            }
        }
        debug_assert!(count <= self.high);
        Ok(found)
    }

    /// Continues writing: a synced write survives the next crash, whatever else is lost.
    fn write_on(
        &mut self,
        disk: &SimDisk,
        db: &Db,
        open: &impl Fn(&SimDisk) -> StoreResult<Db>,
    ) -> Verdict<()> {
        let mut state = scan(db)?;
        let options = trommel::WriteOptions::sync();
        db.put_with("afterwards", "synced", options).map_err(failed("writing"))?;
        state.insert(b"afterwards".to_vec(), b"synced".to_vec());
        let policy = Policy::ALL[self.rng.usize(..Policy::ALL.len())];
        let again = disk.crash(policy, self.rng.u64(..)).disk();
        let db = open(&again).map_err(failed("opening after a write and a crash"))?;
        same(&db, digest(&state)).map_err(|what| format!("{what} (after a synced write, {policy})"))
    }
}

/// Repeated opens and closes change nothing and accumulate no files.
fn does_not_grow(
    disk: &SimDisk,
    open: &impl Fn(&SimDisk) -> StoreResult<Db>,
    wanted: u64,
) -> Verdict<()> {
    let mut files = Vec::new();
    for _ in 0..4 {
        let db = open(disk).map_err(failed("opening once more"))?;
        same(&db, wanted)?;
        // Otherwise a late compaction could increase the number of tables.
        db.wait_idle().map_err(failed("waiting"))?;
        budget_fits(&db)?;
        db.close().map_err(failed("closing"))?;
        let listing = disk.list(Path::new(DIR)).map_err(|error| error.to_string())?;
        files.push(listing.len());
    }
    // The first open may have kept files that it could not judge.
    if files[1] < files[2] || files[2] < files[3] {
        return Err(format!("files pile up: {files:?}"));
    }
    Ok(())
}

/// A disk that may have stale bytes in place of unsynced ones: the store shows a legal state, or
/// reports corruption and has changed nothing; then a salvage finds all durable entries.
pub(crate) fn inspect_suspect(
    image: &Image,
    inspection: &mut Inspection<'_>,
    options: impl Fn(Arc<dyn Vfs>) -> Options,
    counters: &mut Counters,
) -> Verdict<()> {
    let disk = image.disk();
    // So that the first open does not create it.
    if disk.list(Path::new(DIR)).is_ok() {
        drop(disk.lock(&Path::new(DIR).join("LOCK")).map_err(|error| error.to_string())?);
    }
    let before = disk.hash();
    let open = |options: Options| Db::open(DIR, options);
    match open(options(Arc::new(disk.clone()))) {
        Ok(db) => {
            drop(db);
            inspection.inspect(image, options, counters).map(drop)
        }
        Err(Error::Corruption(_)) => {
            counters.add("found_damaged", 1);
            if disk.hash() != before {
                return Err("an open that found damage has changed something".to_owned());
            }
            let db = open(options(Arc::new(disk)).opening(|o| o.salvage(true)))
                .map_err(failed("salvaging"))?;
            let state = scan(&db)?;
            let (low, high) = (inspection.low, inspection.high);
            match inspection.history.prefix(digest(&state), low, high) {
                Some(_) if db.recovery_report().dropped.is_empty() => {
                    Err("a salvage does not say what it dropped".to_owned())
                }
                Some(_) => Ok(()),
                None => Err(inspection.history.explain(&state, low, high)),
            }
        }
        Err(error) => Err(format!("stale bytes are reported as: {error}")),
    }
}

/// Checks that the store's state has this digest.
pub(crate) fn same(db: &Db, wanted: u64) -> Verdict<()> {
    let state = scan(db)?;
    match digest(&state) == wanted {
        true => Ok(()),
        false => Err(format!("the state is another one now: {} entries", state.len())),
    }
}

/// Checks that each checkpoint holds the store's state from when it was made, or does not exist
/// yet.
pub(crate) fn inspect_checkpoints(
    image: &Image,
    history: &History,
    bounds: &Bounds,
    options: impl Fn(Arc<dyn Vfs>) -> Options,
) -> Verdict<()> {
    for &Checkpoint { id, count, done } in &bounds.checkpoints {
        let disk: Arc<dyn Vfs> = Arc::new(image.disk());
        let dir = checkpoint_dir(id);
        match Db::open(Path::new(&dir), options(disk).opening(|o| o.create_if_missing(false))) {
            Ok(db) => {
                if history.prefix(digest(&scan(&db)?), count, count).is_none() {
                    return Err(format!("checkpoint {id} is not the state after {count} batches"));
                }
                db.verify().map_err(failed("verifying a checkpoint"))?;
            }
            Err(error) if done => return Err(format!("opening checkpoint {id} failed: {error}")),
            Err(_) => {}
        }
    }
    Ok(())
}

//! Opens a corrupt store, reads it in every way, verifies it, and compares it with its earlier
//! states. An answer is right, or it is a typed error that names a file; a failed open has changed
//! nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use trommel::vfs::{DiskVfs, Vfs};
use trommel::{Db, DroppedBytes, Error, ErrorKind, Options, ReadMode, Slice};
use trommel_tests::scratch::scratch;

use crate::stores::{DIR, Image, Model, Store, image_of, vfs_of};

/// The options of the open, and additional checks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct How {
    pub(crate) read_mode: ReadMode,
    pub(crate) read_only: bool,
    pub(crate) salvage: bool,
    /// Whether to compact everything, close, reopen and read again.
    pub(crate) go_on: bool,
    /// Whether the files are on the real disk.
    pub(crate) on_disk: bool,
}

/// The result.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The error of the open.
    pub(crate) refused: Option<Error>,
    /// The bytes that the open dropped.
    pub(crate) dropped: Vec<DroppedBytes>,
    /// The states (as numbers of batches) that all answers agree with, newest first. Only one,
    /// unless reads failed.
    pub(crate) states: Vec<usize>,
    /// Errors of gets and scans.
    pub(crate) read_errors: Vec<Error>,
    /// The error of `verify`.
    pub(crate) verify: Option<Error>,
    /// Whether the open reported that the options file is invalid.
    pub(crate) odd_options: bool,
    /// Whether the stats report an unusable filter.
    pub(crate) unusable_filter: bool,
}

/// Opens and reads a store with these files. The error names the broken promise.
pub(crate) fn examine(store: &Store, image: &Image, how: How) -> Result<Found, String> {
    let place = Place::new(image, how.on_disk);
    let unwound = catch_unwind(AssertUnwindSafe(|| place.examine(store, image, how)));
    unwound.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("?")))
    })
}

/// A directory in memory or on disk.
struct Place {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    _on_disk: Option<TempDir>,
}

impl Place {
    fn new(image: &Image, on_disk: bool) -> Self {
        if !on_disk {
            return Self { vfs: Arc::new(vfs_of(image)), dir: DIR.into(), _on_disk: None };
        }
        let dir = scratch();
        for (name, bytes) in image {
            std::fs::write(dir.path().join(name), bytes).expect("room for a small file");
        }
        Self { vfs: Arc::new(DiskVfs), dir: dir.path().into(), _on_disk: Some(dir) }
    }

    fn open(&self, how: How) -> Result<Db, Error> {
        let options = Options::default()
            .vfs(Arc::clone(&self.vfs))
            .reads(|r| r.cache_bytes(1 << 20).read_mode(how.read_mode))
            .background_threads(0)
            .opening(|o| o.read_only(how.read_only).salvage(how.salvage));
        Db::open(&self.dir, options)
    }

    fn examine(&self, store: &Store, before: &Image, how: How) -> Result<Found, String> {
        let db = match self.open(how) {
            Ok(db) => db,
            Err(error) => {
                self.proper(&error)?;
                self.unchanged(before)?;
                return Ok(Found { refused: Some(error), ..Found::default() });
            }
        };
        let answers = Answers::of(&db, &store.keys())?;
        let mut found = Found {
            states: possible_states(store, &answers)?,
            dropped: db.recovery_report().dropped.clone(),
            odd_options: db.recovery_report().options.is_some(),
            verify: db.verify().err(),
            unusable_filter: !db.stats().filters.unusable.is_empty(),
            read_errors: answers.errors,
            ..Found::default()
        };
        for error in found.read_errors.iter().chain(&found.verify) {
            self.proper(error)?;
        }
        if how.go_on {
            self.go_on(db, store, how, &mut found)?;
        } else {
            db.close().map_err(|error| format!("close: {error}"))?;
        }
        if how.read_only {
            self.unchanged(before)?;
        }
        Ok(found)
    }

    /// Normal operations must not hide corruption: a compaction that reads it fails, and an answer
    /// stays right or an error.
    fn go_on(&self, db: Db, store: &Store, how: How, found: &mut Found) -> Result<(), String> {
        let state = found.states.iter().map(|batches| &store.states[*batches]);
        let agree = |db: &Db, when: &str| {
            let answers = Answers::of(db, &store.keys())?;
            let wrong = state.clone().map(|state| answers.agree_with(state).err());
            let wrong = wrong.reduce(Option::and).flatten();
            wrong.map_or(Ok(()), |what| Err(format!("{when}: {what}")))
        };
        let compacted = db.compact_all();
        agree(&db, "after a compaction")?;
        if compacted.is_ok() && !found.read_errors.is_empty() {
            return Err("a compaction made light of a read error".to_owned());
        }
        let closed = db.close();
        if compacted.is_ok() && closed.is_err() {
            return Err(format!("close: {closed:?}"));
        }
        let db = self.open(How { salvage: false, ..how }).map_err(|e| format!("reopened: {e}"))?;
        agree(&db, "reopened")?;
        db.close().map_err(|error| format!("close: {error}"))
    }

    /// Checks that an error is of a kind that corruption may cause, and names its file.
    fn proper(&self, error: &Error) -> Result<(), String> {
        let is_damage = matches!(error.kind(), ErrorKind::RestoreData | ErrorKind::Upgrade);
        let names_file = error.to_string().contains(&*self.dir.join("").to_string_lossy());
        if is_damage && names_file { Ok(()) } else { Err(format!("an odd error: {error}")) }
    }

    fn unchanged(&self, before: &Image) -> Result<(), String> {
        let mut after = image_of(&*self.vfs, &self.dir);
        if !before.contains_key("LOCK") {
            after.remove("LOCK");
        }
        let changed = before.iter().find(|(name, bytes)| after.get(*name) != Some(bytes));
        let added = after.keys().find(|name| !before.contains_key(*name));
        match changed.map(|(name, _)| name).or(added) {
            Some(name) => Err(format!("a refused or read-only open changed {name}")),
            None => Ok(()),
        }
    }
}

type Entry = (Slice, Slice);

/// All answers of a store.
struct Answers {
    forward: Vec<Entry>,
    forward_is_whole: bool,
    reverse: Vec<Entry>,
    reverse_is_whole: bool,
    gets: Vec<(Vec<u8>, Option<Slice>)>,
    errors: Vec<Error>,
}

impl Answers {
    fn of(db: &Db, keys: &[Vec<u8>]) -> Result<Self, String> {
        let mut errors = Vec::new();
        let (forward, forward_is_whole) = drain(db.iter(), &mut errors)?;
        let (reverse, reverse_is_whole) = drain(db.iter().rev(), &mut errors)?;
        let mut gets = Vec::new();
        for key in keys {
            match db.get(key) {
                Ok(value) => gets.push((key.clone(), value)),
                Err(error) => errors.push(error),
            }
        }
        match db.multi_get(keys) {
            Ok(values) => gets.extend(keys.iter().cloned().zip(values)),
            Err(error) => errors.push(error),
        }
        // Scans of single keys, which query range filters.
        for (nth, key) in keys.iter().enumerate().filter(|(nth, _)| nth % 3 > 0) {
            let mut range = db.range(key..=key);
            match if nth % 3 == 1 { range.next() } else { range.next_back() } {
                Some(Ok((_, value))) => gets.push((key.clone(), Some(value))),
                Some(Err(error)) => errors.push(error),
                None => gets.push((key.clone(), None)),
            }
        }
        Ok(Self { forward, forward_is_whole, reverse, reverse_is_whole, gets, errors })
    }

    fn agree_with(&self, state: &Model) -> Result<(), String> {
        let same = |(entry, (key, value)): (&Entry, (&Vec<u8>, &Vec<u8>))| {
            *entry.0 == **key && *entry.1 == **value
        };
        let enough = |whole, seen| if whole { seen == state.len() } else { seen <= state.len() };
        if !enough(self.forward_is_whole, self.forward.len())
            || !self.forward.iter().zip(state).all(same)
        {
            return Err("a forward scan is wrong".to_owned());
        }
        if !enough(self.reverse_is_whole, self.reverse.len())
            || !self.reverse.iter().zip(state.iter().rev()).all(same)
        {
            return Err("a reverse scan is wrong".to_owned());
        }
        let wrong =
            self.gets.iter().find(|(key, value)| value.as_deref() != state.get(key).map(|v| &**v));
        wrong.map_or(Ok(()), |(key, value)| {
            let key = String::from_utf8_lossy(key);
            Err(format!("get of \"{key}\" gives {:?}", value.as_ref().map(|v| v.len())))
        })
    }
}

/// The entries of a scan before its end or its first error, and whether it reached its end.
fn drain(
    mut scan: impl Iterator<Item = Result<Entry, Error>>,
    errors: &mut Vec<Error>,
) -> Result<(Vec<Entry>, bool), String> {
    let mut entries = Vec::new();
    while let Some(entry) = scan.next() {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(error) => {
                errors.push(error);
                if scan.next().is_some() {
                    return Err("a scan goes on after an error".to_owned());
                }
                return Ok((entries, false));
            }
        }
    }
    Ok((entries, true))
}

/// The states of `store` that `answers` agree with, newest first.
fn possible_states(store: &Store, answers: &Answers) -> Result<Vec<usize>, String> {
    let states = (store.in_tables..store.states.len()).rev();
    let wrong = |batches: &usize| answers.agree_with(&store.states[*batches]).err();
    let possible: Vec<usize> = states.clone().filter(|batches| wrong(batches).is_none()).collect();
    if possible.is_empty() {
        let what = states.clone().find_map(|batches| wrong(&batches)).unwrap_or_default();
        return Err(format!("in no state the store was ever in: {what}"));
    }
    Ok(possible)
}

/// Writes `image` to `dir`, for inspection.
pub(crate) fn leave(image: &Image, dir: &Path) {
    let _ = std::fs::create_dir_all(dir);
    for (name, bytes) in image {
        let _ = std::fs::write(dir.join(name), bytes);
    }
}

//! The expected state of the store, in a file outside it that survives the worker.
//!
//! ```text
//! file   := head (512 bytes: a line of JSON, blanks) record*
//! record := settled (4) pending (4) begun (4) batch (4)      little-endian; one for each key
//! ```
//!
//! 1. Before a write is issued, its generation is written to `pending` and the number of its batch
//!    to `batch`. After its acknowledgement the generation is written to `settled`. Each step is
//!    one `pwrite` of a record, which stays in the page cache however the process dies. `begun`
//!    never decreases: a write that was lost is never issued again, so it is detected if it appears
//!    later.
//! 2. A write that fails stays pending: it may be present or not. Nobody writes the key again until
//!    the store has been reopened and [`Expected::settle`] was called with the write that is
//!    present.
//! 3. A writer holds the lock of the key's block, so a key has a single writer at a time, and the
//!    holder of the lock knows exactly what a read must return. Other readers load the record
//!    before and after their read, and get a [`Window`].
//!
//! The file survives a killed process, but not a power failure: it is never synced.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::records::{BLOCK_KEYS, RecordSpec, Window};
use crate::error::Error;

/// The file's name in its directory.
pub(super) const EXPECTED_FILE: &str = "expected-state";
const HEAD_BYTES: usize = 512;
const RECORD_BYTES: usize = 16;
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct ExpectedHead {
    trommel_expected_state: u32,
    #[serde(flatten)]
    records: RecordSpec,
}

/// The record of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct KeyState {
    /// The last write that was acknowledged, or found to be present.
    pub(super) settled: u32,
    /// The write that may be present; 0 if there is none.
    pub(super) pending: u32,
    /// The last write ever issued.
    pub(super) begun: u32,
    /// The batch of the pending write; 0 if it belongs to none.
    pub(super) batch: u32,
}

impl KeyState {
    fn of(word: u64, other: u64) -> Self {
        let (pending, batch) = ((word >> 32) as u32, (other >> 32) as u32);
        Self { settled: word as u32, pending, begun: other as u32, batch }
    }

    fn words(self) -> [u64; 2] {
        let both = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        [both(self.settled, self.pending), both(self.begun, self.batch)]
    }

    /// The states that a read may return now.
    pub(super) fn window(self) -> Window {
        Window { low: self.settled, high: self.settled.max(self.pending) }
    }

    /// Whether these numbers are consistent.
    fn is_sound(self) -> bool {
        let is_pending_sound = self.pending == 0 || self.pending > self.settled;
        is_pending_sound && self.begun >= self.settled.max(self.pending)
    }
}

/// The file, with a copy in memory.
#[derive(Debug)]
pub(super) struct Expected {
    file: File,
    path: PathBuf,
    pub(super) records: RecordSpec,
    /// `settled` in the lower half, `pending` in the upper.
    words: Vec<AtomicU64>,
    /// `begun` in the lower half, `batch` in the upper.
    others: Vec<AtomicU64>,
    locks: Vec<Mutex<()>>,
    live_bytes: AtomicI64,
}

impl Expected {
    /// Opens the file in `dir`, or creates it.
    ///
    /// # Errors
    /// If the file is corrupt, of another version, or cannot be read and written.
    pub(super) fn open(dir: &Path, wanted: RecordSpec) -> Result<Self, Error> {
        let path = dir.join(EXPECTED_FILE);
        let mut file = match open_file(&path, false) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => create(&path, wanted)?,
            Err(error) => return Err(Error::io(path, "opening", error)),
        };
        let mut bytes = Vec::new();
        let read = file.read_to_end(&mut bytes);
        read.map_err(|error| Error::io(&path, "reading", error))?;
        let records = head(&path, &bytes)?;
        let (words, others) = states(&path, records, &bytes)?;
        let locks = (0..records.blocks()).map(|_| Mutex::new(())).collect();
        let live_bytes = AtomicI64::new(0);
        let expected = Self { file, path, records, words, others, locks, live_bytes };
        let live = (0..records.keys).map(|key| records.bytes(key, expected.state(key).settled));
        expected.live_bytes.store(live.sum::<u64>() as i64, Ordering::Relaxed);
        Ok(expected)
    }

    /// Opens the file in `dir` for one run, or creates it, and locks it for the lifetime of the
    /// handle. Also returns its description of the records.
    ///
    /// # Errors
    /// As [`Expected::open`], or if another run holds the lock.
    pub(super) fn lease(dir: &Path, wanted: RecordSpec) -> Result<(File, RecordSpec), Error> {
        let records = Self::open(dir, wanted)?.records;
        let path = dir.join(EXPECTED_FILE);
        let file = open_file(&path, false).map_err(|error| Error::io(&path, "opening", error))?;
        match file.try_lock() {
            Ok(()) => Ok((file, records)),
            Err(TryLockError::WouldBlock) => Err(Error::Usage(format!(
                "{} is in use by another run: wait until it ends, or name another directory",
                path.display()
            ))),
            Err(TryLockError::Error(error)) => Err(Error::io(path, "locking", error)),
        }
    }

    /// The current record of a key.
    pub(super) fn state(&self, key: u32) -> KeyState {
        let word = self.words[key as usize].load(Ordering::SeqCst);
        let other = self.others[key as usize].load(Ordering::SeqCst);
        KeyState::of(word, other)
    }

    /// Approximate bytes of the keys and values that must be present.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// The lock of a block of keys; its holder is the only writer of these keys.
    pub(super) fn lock(&self, block: u32) -> MutexGuard<'_, ()> {
        self.locks[block as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The locks of these keys' blocks, in an order that cannot deadlock.
    pub(super) fn lock_all(&self, keys: &[u32]) -> Vec<MutexGuard<'_, ()>> {
        let mut blocks: Vec<u32> = keys.iter().map(|key| key / BLOCK_KEYS).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.into_iter().map(|block| self.lock(block)).collect()
    }

    /// Records that a write of the key is about to be issued. The caller holds the lock of its
    /// block.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn begin(&self, key: u32, generation: u32, batch: u32) -> Result<(), Error> {
        let settled = self.state(key).settled;
        self.put(key, KeyState { settled, pending: generation, begun: generation, batch })
    }

    /// Records the key's state: the write was acknowledged, or a read after recovery has found it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn settle(&self, key: u32, generation: u32) -> Result<(), Error> {
        let state = self.state(key);
        let before = self.records.bytes(key, state.settled) as i64;
        let more = self.records.bytes(key, generation) as i64 - before;
        self.live_bytes.fetch_add(more, Ordering::Relaxed);
        self.put(key, KeyState { settled: generation, pending: 0, batch: 0, ..state })
    }

    fn put(&self, key: u32, state: KeyState) -> Result<(), Error> {
        let [word, other] = state.words();
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(&word.to_le_bytes());
        record[8..].copy_from_slice(&other.to_le_bytes());
        let at = HEAD_BYTES as u64 + u64::from(key) * RECORD_BYTES as u64;
        let written = self.file.write_all_at(&record, at);
        written.map_err(|error| Error::io(&self.path, "writing", error))?;
        self.others[key as usize].store(other, Ordering::SeqCst);
        self.words[key as usize].store(word, Ordering::SeqCst);
        Ok(())
    }

    /// The keys with a pending write.
    pub(super) fn pending(&self) -> Vec<u32> {
        (0..self.records.keys).filter(|key| self.state(*key).pending != 0).collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "it is written in place, and no store's file")]
fn open_file(path: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(create).mode(0o600).open(path)
}

/// Creates the complete file under another name and renames it, so that a kill leaves no partial
/// file.
fn create(path: &Path, records: RecordSpec) -> Result<File, Error> {
    let failed = |error| Error::io(path, "creating", error);
    let head = ExpectedHead { trommel_expected_state: VERSION, records };
    let mut text = serde_json::to_vec(&head).map_err(|error| failed(error.into()))?;
    text.resize(HEAD_BYTES - 1, b' ');
    text.push(b'\n');
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = open_file(&new, true).map_err(failed)?;
    let bytes = HEAD_BYTES as u64 + u64::from(records.keys) * RECORD_BYTES as u64;
    file.write_all(&text).and_then(|()| file.set_len(bytes)).map_err(failed)?;
    trommel::vfs::Vfs::rename(&trommel::vfs::DiskVfs, &new, path).map_err(failed)?;
    open_file(path, false).map_err(failed)
}

fn damaged(path: &Path, what: &str) -> Error {
    let source = io::Error::new(ErrorKind::InvalidData, what.to_owned());
    Error::io(path, "reading the expected state in", source)
}

fn head(path: &Path, bytes: &[u8]) -> Result<RecordSpec, Error> {
    let text = bytes.get(..HEAD_BYTES).ok_or_else(|| damaged(path, "its head is truncated"))?;
    let head: ExpectedHead = serde_json::from_slice(text).map_err(|error| {
        damaged(path, &format!("its head was not written by this program: {error}"))
    })?;
    if head.trommel_expected_state != VERSION {
        return Err(damaged(path, "another version of this program wrote it"));
    }
    if head.records.keys == 0 || head.records.min_value > head.records.max_value {
        return Err(damaged(path, "its head is inconsistent"));
    }
    Ok(head.records)
}

type States = (Vec<AtomicU64>, Vec<AtomicU64>);

fn states(path: &Path, records: RecordSpec, bytes: &[u8]) -> Result<States, Error> {
    let body = &bytes[HEAD_BYTES..];
    if body.len() != records.keys as usize * RECORD_BYTES {
        return Err(damaged(path, "it does not have one record for each key"));
    }
    let word =
        |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    let mut found = States::default();
    for (key, record) in body.chunks_exact(RECORD_BYTES).enumerate() {
        let state = KeyState::of(word(&record[..8]), word(&record[8..]));
        if !state.is_sound() {
            return Err(damaged(
                path,
                &format!("the record of key {key} is inconsistent: {state:?}"),
            ));
        }
        let [word, other] = state.words();
        found.0.push(AtomicU64::new(word));
        found.1.push(AtomicU64::new(other));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScratchDir;

    const RECORDS: RecordSpec = RecordSpec { keys: 200, min_value: 16, max_value: 64, seed: 3 };

    #[test]
    fn begun_and_settled_writes_survive_a_reopen() {
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let expected = Expected::open(scratch.path(), RECORDS).unwrap();
        expected.begin(7, 1, 99).unwrap();
        expected.begin(8, 1, 0).unwrap();
        expected.settle(8, 1).unwrap();
        assert_eq!(expected.state(7).window(), Window { low: 0, high: 1 });
        drop(expected);
        let other = RecordSpec { keys: 5, ..RECORDS };
        let again = Expected::open(scratch.path(), other).unwrap();
        assert_eq!(again.records, RECORDS, "what is there decides");
        assert_eq!(again.state(7), KeyState { settled: 0, pending: 1, begun: 1, batch: 99 });
        assert_eq!(again.state(8), KeyState { settled: 1, pending: 0, begun: 1, batch: 0 });
        assert_eq!(again.pending(), [7]);
        assert_eq!(again.live_bytes(), RECORDS.bytes(8, 1));
    }

    #[test]
    fn two_runs_cannot_have_one_file() {
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        let (lease, records) = Expected::lease(scratch.path(), RECORDS).unwrap();
        assert_eq!(records, RECORDS);
        Expected::open(scratch.path(), RECORDS).expect("the worker of the run that has it");
        let refused = Expected::lease(scratch.path(), RECORDS).unwrap_err();
        assert!(matches!(&refused, Error::Usage(what) if what.contains("in use")), "{refused}");
        drop(lease);
        Expected::lease(scratch.path(), RECORDS).unwrap();
    }

    #[test]
    fn a_corrupt_file_is_detected() {
        let scratch = ScratchDir::new(&std::env::temp_dir()).unwrap();
        drop(Expected::open(scratch.path(), RECORDS).unwrap());
        let path = scratch.path().join(EXPECTED_FILE);
        let whole = std::fs::read(&path).unwrap();
        let reported = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Expected::open(scratch.path(), RECORDS).unwrap_err().to_string()
        };
        assert!(reported(&whole[..100]).contains("head is truncated"));
        assert!(reported(&whole[..whole.len() - 1]).contains("not have one record for each key"));
        let mut strange = whole.clone();
        strange[HEAD_BYTES + 4] = 9;
        assert!(reported(&strange).contains("key 0 is inconsistent"));
        strange = whole.clone();
        strange[2] = b'X';
        assert!(reported(&strange).contains("not written by this program"));
    }
}

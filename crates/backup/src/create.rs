//! Creates a backup.
//!
//! 1. Acquire the right to add. Make a checkpoint of the store, which flushes it.
//! 2. For each of its files: if the parent (the newest backup of the same store) has a table of the
//!    same identity, reuse its hash; otherwise hash the file, and verify a table as such: a corrupt
//!    one could be stored but never restored. On request, read the contents that are already
//!    stored; a content that does not match its name counts as missing, and is replaced.
//! 3. Store the missing contents. Each is hashed again as it is sent, so no content is ever stored
//!    under a wrong name.
//! 4. Make all of them durable, including those that were already there.
//! 5. Write the manifest under the next free ID, durably. This commits the backup: a failure before
//!    it leaves only unreferenced contents.
//! 6. If the right to write may have been lost in between, acquire it again and check whether a
//!    collector deleted contents. Delete the manifest if one did, or is still running.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use trommel::Db;
use trommel::vfs::{Access, ReadFile};

use crate::clock;
use crate::content::{FileContent, Stopped, Watched};
use crate::error::{Error, Result};
use crate::format::{Blob, manifest_name};
use crate::location::refuse_nested;
use crate::manifest::{Backup, BackupFile};
use crate::progress::{Progress, Step};
use crate::repository::Repository;
use crate::scratch::{Checkpoint, failed};
use crate::target::{Hold, Purpose};

/// Bytes of one content that are sent without confirming the right to write.
const CONFIRMED_BYTES: u64 = 64 << 20;

/// The result of [`Repository::create`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Created {
    /// The backup.
    pub backup: Backup,
    /// Contents that were missing and have been stored.
    pub new_files: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// Bytes that were read only to compute their hash.
    pub hashed_bytes: u64,
    /// Contents that were already stored and have been read back ([`Repository::create_checked`]).
    pub checked_files: u64,
    /// Of those, the corrupt ones, which have been replaced: older backups that need them are
    /// repaired too.
    pub mended_files: u64,
}

impl Repository {
    /// Backs up the current contents of `db`: flushes it, and copies the files that the repository
    /// does not have. Reads and writes of the store continue meanwhile.
    ///
    /// # Errors
    /// [`Error::Store`] if the store cannot be flushed, for example because it was opened
    /// read-only, or if a table to be stored is corrupt ([`trommel::Error::Corruption`]);
    /// [`Error::Nested`] if the repository is inside the store, or the store inside it;
    /// [`Error::Busy`] if backups are being deleted (or, in a directory, created);
    /// [`Error::Target`] if the repository cannot be read or written. After any error the
    /// repository still holds its previous backups, intact.
    pub fn create(&self, db: &Db, progress: &dyn Progress) -> Result<Created> {
        self.make(db, false, progress)
    }

    /// As [`Repository::create`], which trusts contents that are already stored; this reads those
    /// that the backup needs, and replaces corrupt ones from the store. So it costs a read of the
    /// whole backup, and repairs contents shared with older backups.
    ///
    /// # Errors
    /// As [`Repository::create`].
    pub fn create_checked(&self, db: &Db, progress: &dyn Progress) -> Result<Created> {
        self.make(db, true, progress)
    }

    fn make(&self, db: &Db, is_checking: bool, progress: &dyn Progress) -> Result<Created> {
        // The path at which it was opened, even if the process has changed its directory since.
        let store = db.vfs().real_path(db.dir());
        refuse_nested(&*self.target, store.as_deref().unwrap_or(db.dir()))?;
        let hold = self.lock(Purpose::Add)?;
        self.id_after(self.newest_id()?)?;
        let created = clock::now();
        let checkpoint = Checkpoint::take(db)?;
        let parent = self.newest_of(db.id())?;
        let mut run = RunningBackup {
            repository: self,
            hold: &*hold,
            checkpoint: &checkpoint,
            progress,
            known: parent.as_ref().map(known_tables).unwrap_or_default(),
            stored: self.blobs()?,
            unchecked: HashSet::new(),
            done: Created {
                backup: Backup::new(db.id(), created, parent.map(|parent| parent.id)),
                new_files: 0,
                new_bytes: 0,
                hashed_bytes: 0,
                checked_files: 0,
                mended_files: 0,
            },
        };
        if is_checking {
            run.unchecked = run.stored.clone();
        }
        run.copy_all()?;
        let mut created = run.done;
        drop(checkpoint);
        self.settle()?;
        self.confirm(&*hold)?;
        self.commit(&mut created.backup)?;
        let held = self.confirm(&*hold).and_then(|()| {
            let doubtful = || io::Error::other("its lease may have been lost for a time");
            let failed = |source| Error::target(self.target.place(), "keeping the lock of", source);
            if hold.is_sure() { Ok(()) } else { Err(failed(doubtful())) }
        });
        if let Err(lost) = held {
            drop(hold);
            self.recheck(&created.backup, lost)?;
        }
        Ok(created)
    }

    /// The newest readable backup of the store `id`.
    fn newest_of(&self, id: u64) -> Result<Option<Backup>> {
        let store = format!("{id:016x}");
        for id in self.ids()?.into_iter().rev() {
            match self.backup(id) {
                Ok(backup) if backup.store == store => return Ok(Some(backup)),
                Ok(_) | Err(Error::Damaged(_) | Error::NoSuchBackup { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Writes the manifest under the next free id.
    fn commit(&self, backup: &mut Backup) -> Result<()> {
        let mut id = self.newest_id()?;
        loop {
            id = self.id_after(id)?;
            backup.id = id;
            let (name, bytes) = (manifest_name(id), backup.encode());
            let failed = |source| Error::target(self.file(&name), "writing", source);
            if self.target.put_new(&name, &bytes).map_err(failed)? {
                return Ok(());
            }
            // A request whose response was lost is sent again, and finds its own result.
            if self.backup(id).is_ok_and(|there| there == *backup) {
                return Ok(());
            }
        }
    }

    /// The newest ID, 0 if there is none.
    fn newest_id(&self) -> Result<u64> {
        Ok(self.ids()?.last().copied().unwrap_or_default())
    }

    /// The ID after `id`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is none: no repository has that many backups, so the manifest is
    /// not genuine.
    fn id_after(&self, id: u64) -> Result<u64> {
        id.checked_add(1).ok_or_else(|| {
            let what = "no larger number is left for a new backup: find out what it is, and remove \
                        it";
            Error::damaged(self.file(&manifest_name(id)), what)
        })
    }

    /// Called after the manifest is written if the right to write was lost. Acquires it again: no
    /// collector runs while we hold it, and later collectors see the manifest. So if all contents
    /// exist at that point, they stay.
    fn recheck(&self, backup: &Backup, lost: Error) -> Result<()> {
        if let Ok(_again) = self.lock(Purpose::Add) {
            let stored = self.blobs()?;
            if backup.files.iter().all(|file| stored.contains(&file.blob())) {
                return Ok(());
            }
        }
        self.delete_object(&manifest_name(backup.id))?;
        Err(lost)
    }
}

/// The tables of a backup by identity and length.
fn known_tables(parent: &Backup) -> HashMap<(String, u64), Blob> {
    let files = parent.files.iter();
    files.filter_map(|file| Some(((file.identity.clone()?, file.bytes), file.blob()))).collect()
}

/// A backup in progress.
struct RunningBackup<'a> {
    repository: &'a Repository,
    hold: &'a dyn Hold,
    checkpoint: &'a Checkpoint,
    progress: &'a dyn Progress,
    known: HashMap<(String, u64), Blob>,
    stored: HashSet<Blob>,
    /// Those that must be read before they are trusted.
    unchecked: HashSet<Blob>,
    done: Created,
}

/// A file of the store with a known hash.
struct Found {
    file: Arc<dyn ReadFile>,
    blob: Blob,
}

impl RunningBackup<'_> {
    fn copy_all(&mut self) -> Result<()> {
        let files = self.checkpoint.files()?;
        let total = files.iter().map(|file| file.bytes).sum();
        let _step = Step::begin(self.progress, "backing up", total);
        for entry in files {
            let name = entry.name.into_string().unwrap_or_default();
            self.copy(name)?;
        }
        Ok(())
    }

    fn copy(&mut self, name: String) -> Result<()> {
        self.repository.confirm(self.hold)?;
        let path = self.checkpoint.path(&name);
        let opened = self.checkpoint.vfs().open(&path, Access::Buffered);
        let file = opened.map_err(|source| failed(&path, "opening", source))?;
        let identity = self.checkpoint.table_id(&name).map(|id| format!("{id:016x}"));
        let key = identity.clone().map(|identity| (identity, file.bytes()));
        let known = key.and_then(|key| self.known.get(&key)).copied();
        let blob = match known {
            Some(blob) => blob,
            None => self.hash(&path, &file)?,
        };
        let is_stored = self.stored.contains(&blob) && self.is_sound(blob)?;
        if known.is_none() || !is_stored {
            self.checkpoint.check_file(&name)?;
        }
        if is_stored {
            self.progress.advance(blob.bytes);
        } else {
            self.store(&path, Found { file, blob })?;
        }
        self.done.backup.files.push(BackupFile::new(name, blob, identity));
        Ok(())
    }

    /// Whether a stored content may be trusted.
    fn is_sound(&mut self, blob: Blob) -> Result<bool> {
        if !self.unchecked.remove(&blob) {
            return Ok(true);
        }
        let (mut unconfirmed, repository, hold) = (0, self.repository, self.hold);
        let read = repository.read_blob(blob, &Unheard(self.progress), |bytes| {
            unconfirmed += bytes.len() as u64;
            if unconfirmed < CONFIRMED_BYTES {
                return Ok(());
            }
            unconfirmed = 0;
            repository.confirm(hold)
        });
        self.done.checked_files += 1;
        match read {
            Ok(()) => Ok(true),
            Err(Error::Damaged(_)) => {
                self.done.mended_files += 1;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn hash(&mut self, path: &Path, file: &Arc<dyn ReadFile>) -> Result<Blob> {
        let mut content = FileContent::new(Arc::clone(file));
        let silent = Unheard(self.progress);
        let hashed = Watched::new(&mut content, None, &silent).drain(|_| Ok(()));
        self.done.hashed_bytes += file.bytes();
        hashed.map_err(|source| explain(source, |source| failed(path, "reading", source)))
    }

    fn store(&mut self, path: &Path, found: Found) -> Result<()> {
        let Found { file, blob } = found;
        let mut content = FileContent::new(file);
        let mut content = Held::new(&mut content, self.hold, CONFIRMED_BYTES);
        let mut content = Watched::new(&mut content, Some(blob), self.progress);
        let name = blob.name();
        self.repository.target.put(&name, blob.bytes, &mut content).map_err(|source| {
            explain(source, |source| match Stopped::find(&source) {
                Some(Stopped::Mismatch(what)) => Error::damaged(
                    path.display().to_string(),
                    format!("it has changed since it was first read: {what}"),
                ),
                _ => Error::target(self.repository.file(&name), "writing", source),
            })
        })?;
        self.stored.insert(blob);
        self.done.new_files += 1;
        self.done.new_bytes += blob.bytes;
        Ok(())
    }
}

/// Maps an error of reading a [`Watched`] content, using `otherwise` for other errors.
pub(crate) fn explain(source: io::Error, otherwise: impl FnOnce(io::Error) -> Error) -> Error {
    match Stopped::find(&source) {
        Some(Stopped::Cancelled) => Error::Cancelled,
        _ => otherwise(source),
    }
}

/// A content that confirms the right to write after every `step` bytes, so that a slow transfer
/// does not outlast it.
struct Held<'a> {
    content: &'a mut dyn Read,
    hold: &'a dyn Hold,
    step: u64,
    read: u64,
}

impl<'a> Held<'a> {
    fn new(content: &'a mut dyn Read, hold: &'a dyn Hold, step: u64) -> Self {
        Self { content, hold, step, read: 0 }
    }
}

impl Read for Held<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read >= self.step {
            self.hold.confirm()?;
            self.read = 0;
        }
        let bytes = self.content.read(buffer)?;
        self.read += bytes as u64;
        Ok(bytes)
    }
}

/// Forwards only cancellation: bytes that are only hashed are not reported, as they would be
/// counted twice.
struct Unheard<'a>(&'a dyn Progress);

impl Progress for Unheard<'_> {
    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Confirms this many times.
    #[derive(Debug)]
    struct Patience(AtomicU64);

    impl Hold for Patience {
        fn confirm(&self) -> io::Result<()> {
            match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)) {
                Ok(_) => Ok(()),
                Err(_) => Err(io::Error::other("no more")),
            }
        }
    }

    #[test]
    fn a_long_content_checks_its_hold_on_its_way() {
        let bytes = [7; 100];
        for (patience, expected) in [(3, Ok(100)), (2, Err(90))] {
            let hold = Patience(AtomicU64::new(patience));
            let (mut content, mut read) = (&bytes[..], Vec::new());
            let mut held = Held::new(&mut content, &hold, 30);
            let mut buffer = [0; 10];
            let outcome = loop {
                match held.read(&mut buffer) {
                    Ok(0) => break Ok(read.len()),
                    Ok(bytes) => read.extend_from_slice(&buffer[..bytes]),
                    Err(_) => break Err(read.len()),
                }
            };
            assert_eq!(outcome, expected);
            assert_eq!(hold.0.load(Ordering::Relaxed), 0);
        }
    }
}

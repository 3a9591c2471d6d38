//! Reads every byte back.
//!
//! Takes no lock: backups deleted meanwhile are skipped, and are not damage.

use std::collections::BTreeMap;
use std::io;

use crate::content::{Stopped, Watched};
use crate::error::{Damage, Error, Result};
use crate::format::Blob;
use crate::manifest::Backup;
use crate::progress::{Progress, Step};
use crate::repository::{Repository, is_absent};

/// The result of [`Repository::verify`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Verified {
    /// Backups whose manifests were read.
    pub backups: u64,
    /// Contents read, each once even if several backups need it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// All damage found, in no particular order.
    pub damages: Vec<Damage>,
    /// The IDs of intact backups, ascending.
    pub whole: Vec<u64>,
}

impl Repository {
    /// Reads every content that backup `id` (or any backup) needs, and compares its length and its
    /// hash with the manifest. Damage is not an error: the result lists all of it.
    ///
    /// # Errors
    /// [`Error::NoSuchBackup`]; [`Error::Target`] if the repository cannot be read at all.
    pub fn verify(&self, id: Option<u64>, progress: &dyn Progress) -> Result<Verified> {
        let mut done = Verified::default();
        let mut backups = Vec::new();
        let ids = id.map_or_else(|| self.ids(), |id| Ok(vec![id]))?;
        for listed in ids {
            match self.backup(listed) {
                Ok(backup) => backups.push(backup),
                Err(Error::Damaged(damage)) => done.damages.push(damage),
                Err(Error::NoSuchBackup { .. }) if id.is_none() => {}
                Err(error) => return Err(error),
            }
        }
        done.backups = backups.len() as u64 + done.damages.len() as u64;
        done.whole = backups.iter().map(|backup| backup.id).collect();
        let needed = needed_by(&backups);
        let total = needed.keys().map(|blob| blob.bytes).sum();
        let _step = Step::begin(progress, "verifying", total);
        for (blob, needed_by) in needed {
            self.verify_blob(blob, &needed_by, &mut done, progress)?;
        }
        Ok(done)
    }

    fn verify_blob(
        &self,
        blob: Blob,
        needed_by: &[(u64, &str)],
        done: &mut Verified,
        progress: &dyn Progress,
    ) -> Result<()> {
        match self.read_blob(blob, progress, |_| Ok(())) {
            Ok(()) => {
                done.files += 1;
                done.bytes += blob.bytes;
            }
            Err(Error::Damaged(Damage { file, what })) => {
                let mut users = Vec::new();
                for &(id, path) in needed_by {
                    // A backup that was deleted meanwhile needs no contents.
                    if !matches!(self.backup(id), Err(Error::NoSuchBackup { .. })) {
                        users.push(format!("backup {id} needs it as {path}"));
                        done.whole.retain(|whole| *whole != id);
                    }
                }
                if !users.is_empty() {
                    let what = format!("{what} ({})", users.join(", "));
                    done.damages.push(Damage { file, what });
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads a content to its end and passes the bytes to `sink`.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is missing, or does not match its name; the bytes passed to `sink`
    /// are then invalid.
    pub(crate) fn read_blob(
        &self,
        blob: Blob,
        progress: &dyn Progress,
        mut sink: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let name = blob.name();
        let file = || self.file(&name);
        let (mut content, length) = match self.target.get(&name) {
            Ok(found) => found,
            Err(error) if is_absent(&error) => return Err(Error::damaged(file(), "it is missing")),
            Err(error) => return Err(Error::target(file(), "reading", error)),
        };
        if length != blob.bytes {
            let what = format!("it has {length} bytes instead of {}", blob.bytes);
            return Err(Error::damaged(file(), what));
        }
        let read = Watched::new(&mut *content, Some(blob), progress)
            .drain(|bytes| sink(bytes).map_err(Failed::Sink));
        match read {
            Ok(_) => Ok(()),
            Err(Failed::Sink(error)) => Err(error),
            Err(Failed::Read(error)) => Err(match Stopped::find(&error) {
                Some(Stopped::Cancelled) => Error::Cancelled,
                Some(Stopped::Mismatch(what)) => Error::damaged(file(), what.clone()),
                None if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Error::damaged(file(), "it became shorter while it was read")
                }
                None => Error::target(file(), "reading", error),
            }),
        }
    }
}

/// The side of a copy that failed.
enum Failed {
    Read(io::Error),
    Sink(Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

/// The contents that these backups need, with the backups and file names that need them.
fn needed_by(backups: &[Backup]) -> BTreeMap<Blob, Vec<(u64, &str)>> {
    let mut needed: BTreeMap<Blob, Vec<(u64, &str)>> = BTreeMap::new();
    for backup in backups {
        for file in &backup.files {
            needed.entry(file.blob()).or_default().push((backup.id, &file.path));
        }
    }
    needed
}

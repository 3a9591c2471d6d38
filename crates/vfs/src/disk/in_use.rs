//! The files that this process has open, so that no file is overwritten while it may still be read.
//!
//! A file is identified by its device and inode number. Each reader and writer is counted until the
//! last bytes it handed out are released, maps included. Only a file that nobody has open is
//! overwritten, and meanwhile it is not mapped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::system::id;

/// A file's device and inode number.
type Id = (u64, u64);

/// The users of a file.
#[derive(Debug, Default)]
struct Users {
    count: usize,
    is_written_over: bool,
}

static OPEN: Mutex<BTreeMap<Id, Users>> = Mutex::new(BTreeMap::new());

fn open_files() -> MutexGuard<'static, BTreeMap<Id, Users>> {
    // No code below panics between two changes that belong together.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks a file as open, for as long as it lives.
#[derive(Debug)]
pub(super) struct Claim {
    id: Id,
    is_alone: bool,
}

impl Claim {
    /// A claim for reading `file` or appending to it; and whether it may be mapped.
    pub(super) fn shared(file: &File) -> io::Result<(Self, bool)> {
        let id = id(&file.metadata()?);
        let mut open = open_files();
        let users = open.entry(id).or_default();
        users.count += 1;
        Ok((Self { id, is_alone: false }, !users.is_written_over))
    }

    /// A claim for overwriting `file`; `None` if it is open anywhere in this process.
    pub(super) fn alone(file: &File) -> io::Result<Option<Self>> {
        let id = id(&file.metadata()?);
        let mut open = open_files();
        if open.contains_key(&id) {
            return Ok(None);
        }
        open.insert(id, Users { count: 1, is_written_over: true });
        Ok(Some(Self { id, is_alone: true }))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut open = open_files();
        let Some(users) = open.get_mut(&self.id) else { return };
        users.count -= 1;
        users.is_written_over &= !self.is_alone;
        if users.count == 0 {
            open.remove(&self.id);
        }
    }
}

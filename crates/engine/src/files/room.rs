//! Room on a full disk: what is kept for files to come is removed before anybody is told that there is none.

use std::io::{self, ErrorKind};
use std::sync::{Arc, OnceLock, Weak};

use trommel_vfs::WriteFile;

use super::graveyard::Graveyard;

/// Where room can be made, once the store is open.
#[derive(Debug, Default)]
pub(crate) struct Room(OnceLock<Weak<Graveyard>>);

impl Room {
    /// Says whose files may go.
    pub(crate) fn is_in(&self, graveyard: &Arc<Graveyard>) {
        let _ = self.0.set(Arc::downgrade(graveyard));
    }

    /// Does `work`, and once more where that failed for want of room and some could be made.
    pub(crate) fn or_make<T>(&self, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match work() {
            Err(error) if is_full(&error) && self.make() => work(),
            outcome => outcome,
        }
    }

    /// Removes what is kept; whether there was anything.
    fn make(&self) -> bool {
        self.0.get().and_then(Weak::upgrade).is_some_and(|graveyard| graveyard.clear())
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// A file that has room made for it.
#[derive(Debug)]
pub(crate) struct RoomyFile {
    pub(crate) file: Box<dyn WriteFile>,
    pub(crate) room: Arc<Room>,
}

impl WriteFile for RoomyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (start, file) = (self.file.bytes(), &mut self.file);
        let appended = file.append(bytes);
        // What was appended in part stays so: a log's records rely on being in one piece.
        match appended {
            Err(error) if is_full(&error) && self.room.make() && file.bytes() == start => {
                file.append(bytes)
            }
            outcome => outcome,
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn start_write_back(&mut self) {
        self.file.start_write_back();
    }

    fn set_space_aside(&mut self, bytes: u64) -> io::Result<()> {
        let Self { file, room } = self;
        room.or_make(|| file.set_space_aside(bytes))
    }

    fn give_space_back(&mut self) {
        self.file.give_space_back();
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

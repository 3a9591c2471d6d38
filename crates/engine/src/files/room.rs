//! Frees space on a full disk: recyclable files are removed before an operation fails.

use std::io;
use std::sync::{Arc, OnceLock, Weak};

use trommel_vfs::WriteFile;

use super::deletion_queue::DeletionQueue;
use crate::error::is_full;

/// Frees space, once the store is open.
#[derive(Debug, Default)]
pub(crate) struct Room(OnceLock<Weak<DeletionQueue>>);

impl Room {
    /// Sets the deletion queue whose files may be removed.
    pub(crate) fn is_in(&self, queue: &Arc<DeletionQueue>) {
        let _ = self.0.set(Arc::downgrade(queue));
    }

    /// Runs `work`, and retries once if it failed on a full disk and space could be freed.
    pub(crate) fn or_make<T>(&self, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match work() {
            Err(error) if is_full(&error) && self.make() => work(),
            outcome => outcome,
        }
    }

    /// Removes all kept files. Returns whether there were any.
    fn make(&self) -> bool {
        self.0.get().and_then(Weak::upgrade).is_some_and(|queue| queue.clear_full_disk())
    }
}

/// A file whose appends free space on a full disk.
#[derive(Debug)]
pub(crate) struct RoomyFile {
    pub(crate) file: Box<dyn WriteFile>,
    pub(crate) room: Arc<Room>,
}

impl WriteFile for RoomyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (start, file) = (self.file.bytes(), &mut self.file);
        let appended = file.append(bytes);
        // A partial append is not continued: a log record must be appended in one call.
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

    fn write_zeros_ahead(&mut self, bytes: u64) -> io::Result<()> {
        self.file.write_zeros_ahead(bytes)
    }

    fn give_space_back(&mut self) {
        self.file.give_space_back();
    }

    fn bytes(&self) -> u64 {
        self.file.bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use trommel_sim::{Failure, Fault, OpKind, SimDisk};
    use trommel_vfs::Vfs;

    use super::*;
    use crate::files::held::HeldLock;

    /// A disk with a kept file, its deletion queue, and a file to write to.
    fn full() -> (SimDisk, Arc<DeletionQueue>, RoomyFile) {
        let disk = SimDisk::new();
        let queue = Arc::new(DeletionQueue::new(Arc::new(disk.clone()), 1, HeldLock::of_nothing()));
        queue.set_spare_limit(1 << 20);
        let mut old = disk.create(Path::new("000001.log")).unwrap();
        old.append(&[7; 1_000]).unwrap();
        queue.add_spare("000001.log".into(), 1, 1_000);
        queue.sweep(u64::MAX);
        assert_eq!(queue.spare_bytes(), 1_000);
        let room = Arc::new(Room::default());
        room.is_in(&queue);
        let file = disk.create(Path::new("new")).unwrap();
        (disk, queue, RoomyFile { file, room })
    }

    #[test]
    fn a_failed_append_is_retried_after_freeing_space() {
        let (disk, queue, mut file) = full();
        disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Append));
        file.append(b"whole").unwrap();
        assert_eq!((queue.spare_bytes(), disk.faults_fired()), (0, 1));
        assert_eq!(disk.read(Path::new("new"), 100).unwrap(), b"whole");
        // Nothing more is kept until the store rests.
        let keep = |number: u64| {
            let path = format!("{number:06}.sst");
            disk.create(Path::new(&path)).unwrap().append(b"old").unwrap();
            queue.add_spare(path.into(), number, 3);
            queue.sweep(u64::MAX);
            queue.spare_bytes()
        };
        assert_eq!(keep(2), 0);
        queue.clear();
        assert_eq!(keep(3), 3);
        // No space can be freed if nothing is kept.
        queue.clear();
        disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Append));
        file.append(b"!").unwrap_err();
    }

    /// A record written by two appends could be torn in the middle of a sector.
    #[test]
    fn a_partial_append_is_not_continued() {
        let (disk, queue, mut file) = full();
        disk.inject(Fault::new(Failure::NoSpace).on(OpKind::Append).writing_part(2));
        assert!(is_full(&file.append(b"whole").unwrap_err()));
        assert_eq!((queue.spare_bytes(), file.bytes()), (0, 2));
        assert_eq!(disk.calls(OpKind::Append), 2);
    }
}

//! Opening without room: how many bytes it needs, and how many there are.
//!
//! What the log holds is written anew before the log is let go of
//! (docs/decisions/0003-recovery-flushes.md), so that needs room for both.

use std::io;
use std::path::Path;
use std::sync::Arc;

use trommel_vfs::Vfs;

use crate::error::{Error, is_full};
use crate::names::CURRENT;

/// `error`, which ended the opening of the store in `dir`. Where the disk was full it says how many bytes are needed
/// for the `log_bytes` of the log, and how many are free now.
pub(super) fn with_room(error: Error, vfs: &dyn Vfs, dir: &Path, log_bytes: u64) -> Error {
    let Error::Io { file, doing, source } = error else { return error };
    if !is_full(&source) {
        return Error::Io { file, doing, source };
    }
    let free = vfs.free_bytes(dir).map_or(String::new(), |free| format!(", and {free} are free"));
    let text = format!(
        "{source}: opening writes the {log_bytes} bytes of the log anew before the log is removed{free}"
    );
    let source = Arc::new(io::Error::new(source.kind(), text));
    Error::Io { file, doing, source }
}

/// Whether what was about to be put in force in `dir` may be, in spite of `error`: once `CURRENT` is touched nobody
/// knows.
pub(super) fn may_be_in_force(error: &Error, dir: &Path) -> bool {
    matches!(error, Error::Io { file, .. } if *file == dir.join(CURRENT) || file == dir)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trommel_vfs::{Policy, SimDisk};

    use crate::{Compression, Db, ErrorKind, Options};

    /// Opening to delete failed for want of room, and nobody said how much there was to be.
    #[test]
    fn a_full_disk_is_told_with_the_bytes_that_are_needed() {
        let disk = SimDisk::new();
        let options = |disk: &SimDisk| {
            let options = Options::default().vfs(Arc::new(disk.clone())).background_threads(0);
            options.compression(Compression::None)
        };
        let db = Db::open("db", options(&disk)).unwrap();
        for key in 0..1000_u32 {
            db.put(format!("{key:04}"), [7; 1000]).unwrap();
        }
        let killed = disk.crash(Policy::EVERYTHING, 1).disk();
        killed.set_capacity(Some(killed.used_bytes() + (256 << 10)));
        let error = Db::open("db", options(&killed)).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry);
        let text = error.to_string();
        let numbers = |word: &str| {
            let before = text.split_once(word).map(|(before, _)| before.trim_end());
            let number = before.and_then(|before| before.rsplit(' ').next()?.parse::<u64>().ok());
            number.unwrap_or_else(|| panic!("{text}"))
        };
        assert_eq!(numbers("are free"), 256 << 10, "{text}");
        let needed = numbers("bytes of the log");
        assert!((1_000_000..1_100_000).contains(&needed), "{text}");
        // That much is enough.
        killed.set_capacity(Some(killed.used_bytes() + needed + (64 << 10)));
        let db = Db::open("db", options(&killed)).unwrap();
        assert_eq!(db.recovery_report().replayed_batches, 1000);
        drop(db);
    }
}

//! Temporary directories for tests that need files, but no disk: most syncs of a busy disk take
//! longer than all else that such a test does.

use std::path::Path;

use tempfile::TempDir;

/// Room that all tests at once do not use up.
const ROOM: u64 = 1 << 30;

/// A new directory: in memory (`/dev/shm`) where that has room, unless `TMPDIR` names another
/// place.
///
/// # Panics
///
/// If no directory can be created.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |about| about.f_bavail * about.f_frsize);
    if std::env::var_os("TMPDIR").is_none() && room >= ROOM {
        return tempfile::tempdir_in(memory).expect("room in memory");
    }
    tempfile::tempdir().expect("a place for temporary files")
}

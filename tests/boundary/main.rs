//! The boundary between a store and its system: permissions, links, special files, names, working
//! directories, locks; and bugs of other stores there.
//!
//! * [`paths`]: directories and names of every kind.
//! * [`locks`]: lock files that are removed or replaced under an open store, and stores that move.
//! * [`names`]: extreme paths and names.
//! * [`strange`]: special files in place of the store's.
//! * [`forks`]: handles in a process forked from the owner.
//! * [`historic`]: bugs of other stores at this boundary, by their numbers.

#![allow(clippy::disallowed_methods, reason = "these tests do what strangers do")]

#[cfg(test)]
mod forks;
#[cfg(test)]
mod historic;
#[cfg(test)]
mod locks;
#[cfg(test)]
mod names;
#[cfg(test)]
mod paths;
#[cfg(test)]
mod strange;

#[cfg(test)]
mod common {
    use std::path::{Path, PathBuf};

    use tempfile::TempDir;
    use trommel::{Db, Options};

    pub(crate) fn small() -> Options {
        Options::default()
            .writes(|w| w.write_buffer_bytes(64 << 10))
            .reads(|r| r.block_bytes(256))
            .compaction(|c| c.auto_compaction(false))
            .background_threads(0)
    }

    pub(crate) fn home() -> (TempDir, PathBuf) {
        let home = tempfile::tempdir().expect("a place for temporary files");
        let dir = home.path().join("db");
        (home, dir)
    }

    /// Makes a closed store with tables, a log and deletions.
    pub(crate) fn fill(dir: &Path) {
        let db = Db::open(dir, small()).expect("opening");
        for number in 0..100 {
            db.put(format!("key{number:03}"), "v".repeat(60)).expect("writing");
        }
        db.flush().expect("flushing");
        for number in (0..100).step_by(3) {
            db.delete(format!("key{number:03}")).expect("deleting");
        }
        db.flush().expect("flushing");
        db.put("last", "one").expect("writing");
        db.close().expect("closing");
    }

    /// The store's files by extension or name.
    pub(crate) fn files(dir: &Path, like: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).expect("listing");
        let mut found: Vec<PathBuf> = entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.to_string_lossy().contains(like))
            .collect();
        found.sort();
        found
    }
}

//! Following: reading a store that another owner writes to, without its lock.
//!
//! A follower is a store opened read-only, whose view is replaced whenever it catches up (module
//! [`following`]). It writes nothing, and the owner does not know of it.

mod following;
mod manifest;
#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trommel_base::SeqNo;
use trommel_vfs::Vfs;

use self::following::{Following, read_manifest};
use self::manifest::FollowedManifest;
use crate::db::Db;
use crate::dir_sync::DirSync;
use crate::error::{Error, Result};
use crate::files::room::Room;
use crate::files::{list, unfinished};
use crate::manifest::current::{self, Current};
use crate::manifest::reader::Recovered;
use crate::options::{OpenSettings, Options};
use crate::recovery::{assemble, with_operator};
use crate::recovery_report::RecoveryReport;
use crate::sync::{Mutex, lock};
use crate::timer::Timer;

/// A store that is written by another process, or by another handle of this one, opened for reading
/// without its lock.
///
/// It reads like a [`Db`], to which it dereferences, as of the last [`Follower::catch_up`]; writes
/// fail with [`Error::ReadOnly`]. Any number of followers may read one store. They write nothing,
/// and the owner of the store neither knows of them nor waits for them.
///
/// The contents of the logs are in memory, and every table is open: a follower needs a file handle
/// for each, whatever [`ReadSettings::max_open_files`](crate::settings::ReadSettings) is. So its
/// data stays readable when the owner removes the files, and so does the data of its
/// [`Snapshot`](crate::Snapshot)s, iterators and cursors as long as they are held.
///
/// ```
/// # use trommel::{Db, Error, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Db::open(dir.path(), Options::default())?;
/// db.put("a", "1")?;
///
/// let follower = Db::open_follower(dir.path(), Options::default())?;
/// assert_eq!(follower.get("a")?.unwrap(), b"1");
///
/// db.put("a", "2")?;
/// assert_eq!(follower.get("a")?.unwrap(), b"1"); // as of the last time it caught up
/// follower.catch_up()?;
/// assert_eq!(follower.get("a")?.unwrap(), b"2");
/// assert!(matches!(follower.put("b", "3"), Err(Error::ReadOnly)));
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug)]
pub struct Follower {
    store: Arc<FollowedStore>,
    timer: Mutex<Option<Timer>>,
}

/// The state that a follower shares with its timer.
#[derive(Debug)]
struct FollowedStore {
    db: Db,
    state: Mutex<FollowState>,
}

/// The files that a follower has read, and its counts.
#[derive(Debug)]
struct FollowState {
    following: Following,
    catch_ups: u64,
    /// The error of the last attempt to catch up, if it failed.
    error: Option<Error>,
}

/// The state and the counts of a [`Follower`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FollowerStats {
    /// Calls of [`Follower::catch_up`] that succeeded, including the one at open.
    pub catch_ups: u64,
    /// Attempts that were repeated because the owner of the store changed its files meanwhile.
    pub retries: u64,
    /// Batches read from logs.
    pub batches: u64,
    /// The number of the manifest that was read last.
    pub manifest: u64,
    /// Edits read from it.
    pub edits: u64,
    /// Tables of the store, each of which is held open.
    pub tables: u64,
    /// The newest visible sequence number.
    pub seqno: SeqNo,
    /// Whether the owner has closed the store. False if the owner was killed.
    pub is_closed: bool,
}

impl Db {
    /// Opens the store in `dir` for reading while another owner, in this process or another, writes
    /// to it, or while none does. Takes no lock, and writes nothing. Catches up once.
    ///
    /// Of the `options`, those for writing have no effect. In a store with a
    /// [`ttl`](crate::settings::WriteSettings::ttl), pass the same `ttl` to hide entries that have
    /// expired since the owner last recorded its horizon: [`Options::load_latest`] returns the
    /// recorded options.
    ///
    /// # Errors
    /// As [`Db::open_read_only`], except for [`Error::Locked`]; [`Error::InvalidOption`] if
    /// `options` demand a degraded open or a salvage; [`Error::Io`] if there are fewer file handles
    /// than tables.
    ///
    /// ```
    /// # use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Db::open(dir.path(), Options::default())?;
    /// let follower = Db::open_follower(dir.path(), Options::default())?;
    /// db.put("key", "value")?;
    /// follower.catch_up()?;
    /// assert_eq!(follower.get("key")?.unwrap(), b"value");
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn open_follower(dir: impl AsRef<Path>, options: Options) -> Result<Follower> {
        Follower::open(dir.as_ref(), options)
    }
}

impl Follower {
    fn open(dir: &Path, options: Options) -> Result<Self> {
        options.check()?;
        if options.opening.degraded.is_some() || options.opening.salvage {
            let what = "degraded and salvage: a follower reads a store that is sound; open a \
                        corrupt one without --follow, when nobody writes to it";
            return Err(Error::option(what));
        }
        let opening = OpenSettings { read_only: true, follows: true, ..options.opening };
        let room = Arc::new(Room::default());
        let vfs: Arc<dyn Vfs> = Arc::new(DirSync::new(options.vfs, dir, room));
        let options = Options { vfs: Arc::clone(&vfs), opening, ..options }.in_effect();
        check_dir(&*vfs, dir)?;
        let manifest = read_manifest(&*vfs, dir)?;
        let report = RecoveryReport { was_closed: manifest.is_closed, ..RecoveryReport::default() };
        let recovered = recovered(&manifest);
        let options = with_operator(options, dir, &recovered)?;
        let engine = Arc::new_cyclic(|own| {
            assemble(dir, options, &recovered, report, None, std::sync::Weak::clone(own))
        });
        let following = Following::new(manifest);
        let state = Mutex::new(FollowState { following, catch_ups: 0, error: None });
        let store = Arc::new(FollowedStore { db: Db::of(engine), state });
        let follower = Self { store, timer: Mutex::default() };
        follower.catch_up()?;
        Ok(follower)
    }

    /// Reads the writes of the store's owner since the last call. Reads then see everything that
    /// was durable when the call was made, as [`Durability`](crate::Durability) defines it for each
    /// write, and perhaps later writes, but never a part of a batch. Returns the newest visible
    /// sequence number, which is at least that of each write that returned before the call.
    ///
    /// Without new writes it takes a few system calls; otherwise as long as reading the new writes
    /// takes. A store without a [`log`](crate::settings::WriteSettings::log) is read as of its last
    /// flush.
    ///
    /// # Errors
    /// After any error, reads continue as of the last call that succeeded. [`Error::Replaced`] if
    /// the store was destroyed or replaced: open the follower again. [`Error::Corruption`] if a
    /// file is corrupt, or is missing though the store needs it, and the owner has not changed that
    /// within half a second. [`Error::Unsupported`] if a newer version has written to the store;
    /// [`Error::Io`], also if there are fewer file handles than tables; [`Error::Closed`] after
    /// [`Db::close`].
    ///
    /// ```
    /// # use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Db::open(dir.path(), Options::default())?;
    /// # let follower = Db::open_follower(dir.path(), Options::default())?;
    /// let written = db.put("key", "value")?;
    /// assert!(follower.catch_up()? >= written);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn catch_up(&self) -> Result<SeqNo> {
        self.store.catch_up()
    }

    /// Catches up now, and then at this interval, in a thread of its own; `None` ends the thread.
    /// An earlier interval is replaced. The thread ends with the follower, whose handles and
    /// snapshots then stay as of the last time. After an error it tries again: see
    /// [`Follower::last_error`].
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Io`] if the thread cannot be started.
    ///
    /// ```
    /// # use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Db::open(dir.path(), Options::default())?;
    /// use std::time::Duration;
    /// let follower = Db::open_follower(dir.path(), Options::default())?;
    /// follower.catch_up_every(Duration::from_millis(1))?;
    /// db.put("key", "value")?;
    /// while follower.get("key")?.is_none() {
    ///     assert!(follower.last_error().is_none());
    /// }
    /// follower.catch_up_every(None)?;
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn catch_up_every(&self, period: impl Into<Option<Duration>>) -> Result<()> {
        let engine = self.store.db.engine();
        engine.access.check_open()?;
        let mut timer = lock(&self.timer);
        *timer = None;
        if let Some(period) = period.into() {
            let store = Arc::clone(&self.store);
            // The error is kept in the state.
            let each = move || _ = store.catch_up();
            let started = Timer::start("trommel-follower", period, each);
            let dir = &engine.files.dir;
            *timer = Some(started.map_err(|error| Error::io(dir, "starting a thread for", error))?);
        }
        Ok(())
    }

    /// Why the last attempt to catch up failed, if it did.
    ///
    /// ```
    /// # use trommel::{Db, Error, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("data");
    /// let db = Db::open(&path, Options::default())?;
    /// let follower = Db::open_follower(&path, Options::default())?;
    /// assert!(follower.last_error().is_none());
    /// db.close()?;
    /// Db::destroy(&path, &Options::default())?;
    /// follower.catch_up().unwrap_err();
    /// assert!(matches!(follower.last_error(), Some(Error::Replaced { .. })));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn last_error(&self) -> Option<Error> {
        let is_forked = self.store.db.engine().access.opener().is_forked();
        if is_forked { Some(Error::Forked) } else { lock(&self.store.state).error.clone() }
    }

    /// The handle through which the follower reads. Clones of it keep the store open, as of the
    /// last time that the follower caught up.
    ///
    /// ```
    /// # use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let writer = Db::open(dir.path(), Options::default())?;
    /// # let follower = Db::open_follower(dir.path(), Options::default())?;
    /// let db: &Db = follower.db();
    /// assert_eq!(db.iter().count(), 0);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn db(&self) -> &Db {
        &self.store.db
    }

    /// The state and the counts of the follower. [`Db::stats`] counts its lookups, and shows the
    /// levels.
    ///
    /// # Errors
    /// [`Error::Closed`], and [`Error::Forked`] in a forked child.
    ///
    /// ```
    /// # use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let writer = Db::open(dir.path(), Options::default())?;
    /// # let follower = Db::open_follower(dir.path(), Options::default())?;
    /// writer.put("key", "value")?;
    /// follower.catch_up()?;
    /// let stats = follower.follower_stats()?;
    /// assert_eq!((stats.catch_ups, stats.batches, stats.seqno), (2, 1, 1));
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn follower_stats(&self) -> Result<FollowerStats> {
        let engine = self.store.db.engine();
        engine.access.check_open()?;
        let FollowState { following, catch_ups, .. } = &*lock(&self.store.state);
        let (manifest, edits) = following.position();
        Ok(FollowerStats {
            catch_ups: *catch_ups,
            retries: following.retries,
            batches: following.batches,
            manifest,
            edits,
            tables: following.version().tables().count() as u64,
            seqno: engine.snapshots.visible(),
            is_closed: following.is_closed(),
        })
    }
}

impl Deref for Follower {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.store.db
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.store.db.engine().access.opener().is_forked() {
            // The thread does not exist here.
            self.timer.get_mut().map(Option::take).map(std::mem::forget).ok();
        }
    }
}

impl FollowedStore {
    fn catch_up(&self) -> Result<SeqNo> {
        let engine = self.db.engine();
        // Checked before the lock is taken: in a forked child it may be held forever.
        engine.access.check_open()?;
        let mut state = lock(&self.state);
        engine.access.check_open()?;
        let outcome = state.following.catch_up(engine);
        let outcome = outcome.and_then(|seqno| self.db.handle.follow_catalog().map(|()| seqno));
        state.catch_ups += u64::from(outcome.is_ok());
        state.error = outcome.as_ref().err().cloned();
        outcome
    }
}

/// Checks that `dir` holds a store.
fn check_dir(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let not_a_store = |what: String| Error::NotAStore { dir: dir.to_path_buf(), what };
    let listing = match list(vfs, dir) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Err(not_a_store("there is no such directory".to_owned()));
        }
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotADirectory => {
            let what = "it, or something above it, is a file, not a directory";
            return Err(not_a_store(what.to_owned()));
        }
        listing => listing?,
    };
    if let Some(mark) = unfinished::find(vfs, dir, &listing)? {
        return Err(not_a_store(mark.to_string()));
    }
    match current::find(vfs, dir, &listing)? {
        Current::Manifest(_) => Ok(()),
        Current::Never => Err(not_a_store("it holds no CURRENT file".to_owned())),
    }
}

/// The state of a manifest, as an open finds it.
fn recovered(manifest: &FollowedManifest) -> Recovered {
    Recovered {
        state: manifest.state.clone(),
        store_id: manifest.store_id,
        number: manifest.position().0,
        tail_dropped: None,
        closed: manifest.is_closed,
    }
}

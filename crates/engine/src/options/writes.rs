//! How writes are logged, buffered and held up.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::options::table::settings;

settings! {
    /// How writes are logged, buffered and held up: see
    /// [`Options::writes`](crate::Options::writes).
    WriteSettings {
        /// Whether writes go to a log before they are acknowledged. Without one, writes since
        /// the last [`Db::flush`](crate::Db::flush) or close are lost when the process dies, and a
        /// write with [`Durability::Sync`](crate::Durability::Sync) writes a table.
        log: bool = true;
        /// Bytes a memtable may hold before it is written out.
        write_buffer_bytes: usize = 64 << 20, 4 << 10..=4 << 30;
        /// Full memtables that may wait to be written out.
        max_frozen_memtables: usize = 4, 1..=64;
        /// How long an entry lasts: a key that was written at least this long ago, and not written
        /// again, is deleted. It is never returned later than `ttl` and the larger of a second and
        /// a 256th of `ttl` after its write, and never expires earlier than `ttl` after it, by the
        /// wall clock. From a second to a hundred years; with `None`, entries do not expire.
        /// Writing a key again begins its time anew; reading it does not.
        ///
        /// All handles see an entry expire at the same time, snapshots included; an iterator or
        /// cursor that is open sees what had not expired when it was created. Space comes back as
        /// that of [deleted ranges](crate::Db::delete_range) does: tables of which everything has
        /// expired are removed unread, others are rewritten when half has expired.
        ///
        /// It is a setting of each open, as others are. While entries do not expire, nothing is
        /// recorded of their age: what was written before counts as written when `ttl` is set. What
        /// has expired never comes back. Each read then reads the clock. See the book's page on
        /// deleting.
        ///
        /// ```
        /// use std::time::Duration;
        /// # let dir = tempfile::tempdir().unwrap();
        /// let day = Duration::from_secs(24 * 60 * 60);
        /// let options = trommel::Options::default().writes(|w| w.ttl(day));
        /// let db = trommel::Db::open(dir.path(), options)?;
        /// db.put("session", "is forgotten tomorrow")?;
        /// db.set_options(|o| o.writes(|w| w.ttl(7 * day)))?;
        /// # Ok::<(), trommel::Error>(())
        /// ```
        ttl(impl Into<Option<Duration>> => Into::into): Option<Duration> = None;
        /// Most bytes of obsolete tables and logs that are kept so that new tables can overwrite
        /// them, which spares the system much of what a new file costs, and the removal of the old
        /// one. While a store is being written it may take this much more of the disk. At most 64
        /// files, and a quarter of what its tables take, are kept; 0 keeps none. They are removed
        /// when the store rests ([`Db::wait_idle`](crate::Db::wait_idle), or ten seconds in which
        /// its background threads had nothing to do), when it is closed, and when the disk is full.
        /// Files are recycled on Linux only.
        spare_file_bytes: u64 = 512 << 20;
        /// How long flushes or compactions may keep failing before writers that wait for them get
        /// [`Error::Stalled`](crate::Error::Stalled), counted from the first failure of those in a
        /// row: a writer that comes later is refused at once, until an attempt succeeds. They are
        /// retried all the while, as when the disk is full or there are no file handles left.
        /// `None`: writers wait for as long as it takes. Work that is slow and does not fail is
        /// waited for in any case. Without background threads the write that meets the failure
        /// returns it.
        ///
        /// ```
        /// use std::time::Duration;
        /// # let dir = tempfile::tempdir().unwrap();
        /// let limit = Some(Duration::from_secs(1));
        /// let options = trommel::Options::default().writes(|w| w.stall_timeout(limit));
        /// let db = trommel::Db::open(dir.path(), options)?;
        /// match db.put("key", "value") {
        ///     // Neither logged nor visible: try again later.
        ///     Err(trommel::Error::Stalled { source, .. }) => eprintln!("held up: {source}"),
        ///     outcome => drop(outcome?),
        /// }
        /// # Ok::<(), trommel::Error>(())
        /// ```
        stall_timeout: Option<Duration> = Some(Duration::from_secs(10));
    }
}

/// Bounds of `ttl`: a hundred years of 365 days.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
const LONGEST_TTL: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl WriteSettings {
    /// Checks the bounds that are no numbers.
    pub(super) fn check(&self) -> Result<()> {
        match self.ttl.filter(|ttl| !(SHORTEST_TTL..=LONGEST_TTL).contains(ttl)) {
            None => Ok(()),
            Some(ttl) => Err(Error::option(format!(
                "ttl is {ttl:?}: it must be {SHORTEST_TTL:?} to {LONGEST_TTL:?} (a hundred years), \
                 or none if entries do not expire"
            ))),
        }
    }
}

//! How writes are logged, buffered and stalled.

use std::sync::Arc;
use std::time::Duration;

use trommel_memtable::MemtableKind;

use crate::error::{Error, Result};
use crate::merge_operator::{MergeOperator, UserMergeOperator};
use crate::options::table::settings;

settings! {
    /// How writes are logged, buffered and stalled: see
    /// [`Options::writes`](crate::Options::writes).
    WriteSettings {
        /// Whether writes go to a log before they are acknowledged. Without one, all writes since
        /// the last flush ([`Db::flush`](crate::Db::flush)) or close are lost when the process
        /// dies, and a write with [`Durability::Sync`](crate::Durability::Sync) flushes a table.
        log: bool = true;
        /// Size at which a memtable is flushed, in bytes.
        write_buffer_bytes: usize = 64 << 20, 4 << 10..=4 << 30;
        /// How a memtable finds its entries and keeps them in order, from the next memtable on. It
        /// affects costs only. With [`MemtableKind::SkipList`](crate::MemtableKind::SkipList) no
        /// scan sorts, not even the first, but inserts and lookups take several times as long. See
        /// the book's page on configuration.
        ///
        /// ```
        /// use trommel::{Db, MemtableKind, Options};
        /// # let dir = tempfile::tempdir().unwrap();
        /// let options = Options::default().writes(|w| w.memtable(MemtableKind::SkipList));
        /// let db = Db::open(dir.path(), options)?;
        /// db.put("b", "2")?;
        /// db.put("a", "1")?;
        /// let (first, _) = db.iter().next().expect("there are two")?;
        /// assert_eq!(first, b"a"[..]);
        /// # Ok::<(), trommel::Error>(())
        /// ```
        memtable: MemtableKind = MemtableKind::Hash;
        /// Maximum number of full memtables that are queued for a flush.
        max_frozen_memtables: usize = 4, 1..=64;
        /// How long an entry lasts: a key that was written at least this long ago, and not written
        /// again since, is deleted. By the wall clock, an entry never expires earlier than `ttl`
        /// after its write, and is returned for at most a second or a 256th of `ttl` longer,
        /// whichever is larger. From one second to a hundred years; with `None`, entries do not
        /// expire. If `ttl` is lowered, entries written before may last longer by a 256th of the
        /// former `ttl`; if it is lowered by opening the store with another value, so may those
        /// written during the next 256th of the former `ttl`. Writing a key again restarts its
        /// time; reading it does not.
        ///
        /// All handles see an entry expire at the same time, snapshots included; an open iterator
        /// or cursor sees what had not expired when it was created. Space is reclaimed as for
        /// [deleted ranges](crate::Db::delete_range): tables whose entries have all expired are
        /// removed unread, others are rewritten when half of their entries have expired.
        ///
        /// In a store with keyspaces, this is the `ttl` of the default one; the others have their
        /// own: [`KeyspaceOptions::ttl`](crate::KeyspaceOptions::ttl).
        ///
        /// Like other settings, it is set at each open. Without a `ttl`, the age of entries is not
        /// recorded: once one is set, earlier entries count as written at that moment. Closing the
        /// store and changing `ttl` record what has expired, which then never comes back. Entries
        /// that expire after that record, before a crash or while the store is closed, do come back
        /// if the store is opened with a longer `ttl` or none, or if the clock was set back. A
        /// clock that jumps forward expires entries early and for good; if it then jumps back,
        /// entries written in between, and until the clock has caught up, last that much longer.
        /// While there is a `ttl`, each read reads the clock. See the book's page on deleting.
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
        /// Computes values from merge operands ([`Db::merge`](crate::Db::merge)): one of
        /// [`Merge`](crate::Merge), or a [`MergeOperator`](crate::MergeOperator) of your own. It
        /// cannot change while the store is open. Its name is recorded in the store before the
        /// first operand; from then on the store cannot be opened with an operator of another name.
        /// It can be opened without an operator: it then uses the recorded one if that is one of
        /// `Merge`; otherwise merges, and reads of keys with operands, fail with
        /// [`Error::Merge`](crate::Error::Merge), and compactions keep the operands.
        ///
        /// ```
        /// use trommel::{Db, Merge, Options};
        /// # let dir = tempfile::tempdir().unwrap();
        /// let options = Options::default().writes(|w| w.merge_operator(Merge::counter()));
        /// let db = Db::open(dir.path(), options)?;
        /// db.merge("visits", 1_u64.to_le_bytes())?;
        /// # Ok::<(), trommel::Error>(())
        /// ```
        merge_operator(Arc<dyn MergeOperator> => UserMergeOperator::chosen):
            Option<UserMergeOperator> = None;
        /// Maximum size, in bytes, of all obsolete tables and logs that are kept so that new tables
        /// overwrite (recycle) them, which is cheaper than creating one file and removing another.
        /// The store may take this much more disk space while it is written to. At most 64 files
        /// are kept, and at most a quarter of the size of the store's tables; 0 keeps none. They
        /// are deleted once the store is idle ([`Db::wait_idle`](crate::Db::wait_idle), or ten
        /// seconds in which its background threads had no work), when it is closed, and when the
        /// disk is full. Files are recycled on Linux only.
        spare_file_bytes: u64 = 512 << 20;
        /// Minimum bytes of obsolete logs that are kept for [change
        /// feeds](crate::Db::changes_since). The newest writes whose logs have this size in total
        /// can be read back in order, even after closing and reopening; keys, values and about 40
        /// bytes for each batch count. The oldest log is removed as soon as the others reach this
        /// size, so up to one more log is kept, which is about as large as
        /// [`write_buffer_bytes`](WriteSettings::write_buffer_bytes). A log counts as at least 64
        /// KiB, and those that the store itself still needs do not count.
        /// [`ArchiveStats`](crate::ArchiveStats) counts them. 0 keeps none, and removes those that
        /// were kept; there are no change feeds then. Needs a file system with hard links, and
        /// `log`.
        ///
        /// ```
        /// use trommel::{Db, Options};
        /// # let dir = tempfile::tempdir().unwrap();
        /// let options = Options::default().writes(|w| w.log_archive_bytes(1 << 30));
        /// let db = Db::open(dir.path(), options)?;
        /// db.put("key", "value")?;
        /// assert_eq!(db.changes_since(0)?.count(), 1);
        /// # Ok::<(), trommel::Error>(())
        /// ```
        log_archive_bytes: u64 = 0;
        /// How long flushes or compactions may keep failing, for lack of disk space, file handles
        /// or memory, before writers that wait for them are refused with
        /// [`Error::Stalled`](crate::Error::Stalled). The time counts from the first of consecutive
        /// failures: a writer that arrives later is refused at once. The work is retried meanwhile,
        /// and writes continue once it succeeds. `None`: writers wait until then. Writers always
        /// wait for work that is slow but does not fail. Without background threads, the write that
        /// does the work returns its error.
        ///
        /// ```
        /// use std::time::Duration;
        /// # let dir = tempfile::tempdir().unwrap();
        /// let limit = Some(Duration::from_secs(1));
        /// let options = trommel::Options::default().writes(|w| w.stall_timeout(limit));
        /// let db = trommel::Db::open(dir.path(), options)?;
        /// match db.put("key", "value") {
        ///     // Neither logged nor visible: try again later.
        ///     Err(trommel::Error::Stalled { source, .. }) => eprintln!("stalled: {source}"),
        ///     outcome => drop(outcome?),
        /// }
        /// # Ok::<(), trommel::Error>(())
        /// ```
        stall_timeout: Option<Duration> = Some(Duration::from_secs(10));
    }
}

/// Bounds of `ttl`: a second, and a hundred years of 365 days.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
const LONGEST_TTL: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl WriteSettings {
    /// Checks the bounds of settings that are not numbers.
    pub(super) fn check(&self) -> Result<()> {
        self.merge_operator.as_ref().map_or(Ok(()), UserMergeOperator::check)?;
        check_ttl(self.ttl)
    }
}

/// Checks the bounds of a `ttl`.
pub(crate) fn check_ttl(ttl: Option<Duration>) -> Result<()> {
    match ttl.filter(|ttl| !(SHORTEST_TTL..=LONGEST_TTL).contains(ttl)) {
        None => Ok(()),
        Some(ttl) => Err(Error::option(format!(
            "ttl is {ttl:?}: it must be {SHORTEST_TTL:?} to {LONGEST_TTL:?} (a hundred years), or \
             none if entries do not expire"
        ))),
    }
}

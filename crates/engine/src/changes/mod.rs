//! Change feeds: the committed batches of a store, in order, from its logs.
//!
//! 1. *Which logs.* Those that the store needs, and [archived](crate::log_archive) ones. A feed
//!    begins with the last log whose first batch is a wanted one or an earlier one.
//! 2. *Nothing is skipped.* Each record states its first sequence number, and there is a record for
//!    every number, except for sorted loads and lost logs. So a feed detects missing batches by
//!    counting, whatever the reason, and reports them. Batches that a recovery has copied to its
//!    new log occur twice; the second is skipped.
//! 3. *Nothing is shown too early.* A step reads up to the number that is visible when it begins.
//! 4. *Nothing is taken back.* The batches that a step has read are made durable before any of them
//!    is passed on, with its log and all earlier ones, unless the writer has done so. The feed
//!    syncs the files itself, so that no writer waits. Without this, a power failure could remove a
//!    batch that a consumer has seen, and another write could get its number.
//! 5. *Users' keys.* Headers, the catalog and time marks are hidden: [`batch`].
//!
//! A step reads about a MiB of batches. No file stays open between two steps, and the store does
//! not know of its feeds: a log that a feed has not read may be removed.

mod batch;
mod reader;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use trommel_base::SeqNo;

use self::batch::PassedNames;
use self::reader::{BatchReader, ReadEnd, sync_up_to};
use crate::db::Db;
use crate::engine::Engine;
use crate::env;
use crate::error::{Error, Result};
use crate::handle::Handle;

pub use batch::{ChangedBatch, ChangedKeyspace, ChangedOp};

/// A change feed: the committed batches of a store after a sequence number, in order, each once.
///
/// The iterator ends when it has yielded all batches so far, and continues when there are more:
/// [`Changes::wait`] waits for that. After an error the feed is over; [`Changes::position`] returns
/// where to begin the next one.
///
/// A batch is yielded once readers can see it, and once it is durable: the feed syncs the log
/// itself, whatever the [`Durability`](crate::Durability) of the write. So no crash removes a batch
/// that a feed has yielded, and a consumer that stores the [sequence number](ChangedBatch::seqno)
/// of the last batch atomically with its own results, and begins after that number when it
/// restarts, gets each batch exactly once.
///
/// Entries that expire, or that a [compaction filter](crate::CompactionFilter) removes, are not
/// changes. A merge is yielded with its operand. The creation of a keyspace is not yielded; a drop
/// is yielded as the deletion of all of its keys. What [`Db::load_sorted`] loads is in no log: a
/// feed that reaches it ends with [`Error::ChangesMissing`].
///
/// It keeps the store open like a handle; once the store is closed by [`Db::close`], it ends with
/// [`Error::Closed`]. It can read only the logs that the store keeps, and does not keep any itself:
/// see [`WriteSettings::log_archive_bytes`](crate::settings::WriteSettings::log_archive_bytes).
///
/// ```
/// use std::time::Duration;
/// use trommel::{Db, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// let options = Options::default().writes(|w| w.log_archive_bytes(1 << 30));
/// let db = Db::open(dir.path(), options)?;
/// let mut changes = db.changes_since(0)?;
/// let writer = std::thread::spawn(move || db.put("key", "value"));
///
/// assert!(changes.wait(Duration::from_secs(60))?);
/// let batch = changes.next().expect("one is there")?;
/// assert_eq!(batch.seqno(), writer.join().unwrap()?);
/// assert!(changes.next().is_none());
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it yields the changes"]
pub struct Changes {
    reader: BatchReader,
    /// Batches that have been read, and are visible and durable.
    ready: VecDeque<ChangedBatch>,
    /// The sequence number of the last batch that was yielded.
    position: SeqNo,
    /// The names of keyspaces in the batches that were read.
    passed: PassedNames,
    /// The error after the batches that are ready.
    failure: Option<Error>,
    /// The error after which it is over.
    over: Option<Error>,
    store: Arc<Handle>,
}

impl Db {
    /// The committed batches after the sequence number `seqno`, in order: see [`Changes`]. Each
    /// write returns its sequence number ([`Db::put`], [`Db::write`]), and a batch is yielded if
    /// its last one is larger than `seqno`. 0 begins with the first write; the number of a
    /// [snapshot](crate::Snapshot::seqno) begins after the writes that the snapshot sees.
    ///
    /// The setting [`log_archive_bytes`](crate::settings::WriteSettings::log_archive_bytes)
    /// determines how much of the past is kept. A read-only store and a
    /// [`Follower`](crate::Follower) have feeds of the writes that they see, from the logs that the
    /// owner of the store keeps.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if `log_archive_bytes` is 0, or the store has no log;
    /// [`Error::ChangesMissing`] if the next batch is no longer in the logs, with the oldest
    /// sequence number that is in them; [`Error::ChangesAhead`] if the store does not have `seqno`;
    /// [`Error::Closed`]; [`Error::Io`] and [`Error::Corruption`] of a log.
    ///
    /// ```
    /// use trommel::{BatchOp, Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().writes(|w| w.log_archive_bytes(1 << 30));
    /// let db = Db::open(dir.path(), options)?;
    /// let first = db.put("a", "1")?;
    /// db.delete("a")?;
    /// db.flush()?;
    ///
    /// let mut position = first;
    /// for batch in db.changes_since(position)? {
    ///     let batch = batch?;
    ///     for changed in batch.iter() {
    ///         assert_eq!(changed.op, BatchOp::Delete { key: b"a" });
    ///     }
    ///     position = batch.seqno(); // store it with what was made of the batch
    /// }
    /// assert_eq!(db.changes_since(position)?.count(), 0);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn changes_since(&self, seqno: SeqNo) -> Result<Changes> {
        self.engine().check_feeds()?;
        let newest = self.engine().snapshots.visible();
        if seqno > newest {
            return Err(Error::ChangesAhead { after: seqno, newest });
        }
        // A consumer that has read a snapshot stores this position.
        sync_up_to(self.engine(), seqno, 0..=u64::MAX)?;
        let mut changes = Changes {
            reader: BatchReader::after(seqno),
            ready: VecDeque::new(),
            position: seqno,
            passed: PassedNames::default(),
            failure: None,
            over: None,
            store: Arc::clone(&self.handle),
        };
        changes.advance()?;
        Ok(changes)
    }
}

impl Engine {
    /// Checks that the store has change feeds.
    fn check_feeds(&self) -> Result<()> {
        self.access.check_open()?;
        let options = self.options.load();
        if options.opening.read_only {
            return Ok(());
        }
        if !options.writes.log {
            return Err(Error::option(
                "log is false: without a log there are no change feeds; open the store with one",
            ));
        }
        if options.writes.log_archive_bytes == 0 {
            return Err(Error::option(
                "log_archive_bytes is 0: logs are removed once their contents are in tables; set how \
                 many bytes are to be kept for change feeds, as in \
                 Options::writes(|w| w.log_archive_bytes(1 << 30))",
            ));
        }
        Ok(())
    }
}

impl Changes {
    /// The sequence number after which a feed continues with what this one has not yielded yet.
    ///
    /// ```
    /// # use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().writes(|w| w.log_archive_bytes(1 << 30));
    /// let db = Db::open(dir.path(), options)?;
    /// let written = db.put("key", "value")?;
    /// let mut changes = db.changes_since(0)?;
    /// assert_eq!(changes.position(), 0);
    /// changes.next().expect("there is one")?;
    /// assert_eq!(changes.position(), written);
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn position(&self) -> SeqNo {
        self.position
    }

    /// Waits until there is a batch to yield, for at most `timeout`. Returns whether there is one.
    /// Writers are slowed a little while a feed waits, as each write wakes it.
    ///
    /// # Errors
    /// The one after which the feed is over: [`Error::Closed`] if the store is closed meanwhile;
    /// [`Error::Poisoned`] if it refuses writes, and there is nothing more to yield;
    /// [`Error::ChangesMissing`]; [`Error::Io`] and [`Error::Corruption`] of a log.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use trommel::{Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let options = Options::default().writes(|w| w.log_archive_bytes(1 << 30));
    /// let db = Db::open(dir.path(), options)?;
    /// let mut changes = db.changes_since(0)?;
    /// assert!(!changes.wait(Duration::from_millis(1))?);
    /// db.put("key", "value")?;
    /// while changes.wait(Duration::from_millis(1))? {
    ///     for batch in &mut changes {
    ///         println!("{}", batch?.seqno());
    ///     }
    /// }
    /// # Ok::<(), trommel::Error>(())
    /// ```
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let due = env::now().checked_add(timeout);
        loop {
            if self.advance()? {
                return Ok(true);
            }
            let (engine, seqno) = (&self.store.engine, self.reader.seqno());
            let is_over = engine.writes.publication.wait_until_due(due, || {
                let access = &engine.access;
                engine.snapshots.visible() > seqno || access.is_closed() || access.is_poisoned()
            });
            if !is_over {
                return Ok(false);
            }
            if engine.snapshots.visible() <= seqno && !engine.access.is_closed() {
                let poisoned = engine.access.check_unpoisoned();
                poisoned.map_err(|error| self.end(error))?;
            }
        }
    }

    /// Reads on, unless a batch is ready. Returns whether one is.
    fn advance(&mut self) -> Result<bool> {
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        self.store.engine.access.check_open().map_err(|error| self.end(error))?;
        while self.ready.is_empty() {
            let is_more = self.step().map_err(|error| self.end(error))?;
            if !is_more {
                break;
            }
        }
        Ok(!self.ready.is_empty())
    }

    /// The feed is over.
    fn end(&mut self, error: Error) -> Error {
        self.ready.clear();
        self.over = Some(error.clone());
        error
    }

    /// Reads some batches. Returns whether there were any.
    fn step(&mut self) -> Result<bool> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let engine = &self.store.engine;
        // A follower publishes before it replaces its view.
        let visible = engine.view.hold(|_| engine.snapshots.visible());
        let before = self.reader.seqno();
        if visible <= before {
            return Ok(false);
        }
        // Read after `visible`, so that the catalog is known before keys with headers are read.
        let plain_to = self.store.plain_to(visible)?;
        let mut found = Vec::new();
        // Batches found before an error are yielded first.
        self.failure = match self.reader.read(engine, visible, &mut found) {
            Ok(ReadEnd::CaughtUp | ReadEnd::Enough) => None,
            Ok(ReadEnd::Gap { oldest }) => {
                Some(Error::ChangesMissing { after: self.reader.seqno(), oldest })
            }
            Err(error) => Some(error),
        };
        if !found.is_empty() {
            self.reader.make_durable(engine)?;
        }
        let keyspaces = &engine.options.keyspaces;
        let batches = found
            .into_iter()
            .filter_map(|logged| ChangedBatch::of(logged, plain_to, &mut self.passed, keyspaces));
        self.ready.extend(batches);
        Ok(self.reader.seqno() > before || self.failure.is_some())
    }
}

impl Iterator for Changes {
    type Item = Result<ChangedBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over.is_some() {
            return None;
        }
        match self.advance() {
            Ok(true) => {
                let batch = self.ready.pop_front()?;
                self.position = batch.seqno();
                Some(Ok(batch))
            }
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

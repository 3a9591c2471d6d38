//! The keyspaces of an open store: which ones exist, how the keys of the default one are stored,
//! and the options of each.
//!
//! 1. The *catalog* is a keyspace itself, with id [`CATALOG_ID`](crate::space::CATALOG_ID). Its
//!    entries ([`record`]) are written by ordinary batches, together with the change that they
//!    record: the deletion of a dropped keyspace's keys, or the move of the default keyspace's keys
//!    that are stored differently from then on. So a crash leaves both or neither.
//! 2. The manifest holds a random *salt*, which is recorded before the first catalog is written and
//!    keeps out programs that do not know keyspaces. Only a catalog with the same salt is valid: a
//!    key of the default keyspace in its place has another value.
//! 3. A write to a keyspace holds its *gate* shared, from before it joins the write queue until it
//!    is visible; a drop holds it exclusively. So no write enters the emptied range after the drop.
//! 4. A drop first sets the sequence number up to which the keyspace is whole. A read as of now
//!    checks it after reading; a snapshot compares its own sequence number with it.
//!
//! This module performs no reads and no writes: see [`keyspace`](crate::keyspace).

mod known;
mod options;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trommel_base::SeqNo;

pub(crate) use known::OwnOperator;
pub use options::KeyspaceOptions;
pub(crate) use record::{CatalogHeader, KeyspaceRecord};

use crate::error::{Error, Result};
use crate::space::Space;
use crate::sync::{
    AtomicBool, AtomicU64, Mutex, MutexGuard, RwLock, RwLockReadGuard, lock, quiet, read_lock,
};
use known::KnownKeyspaces;

/// The default keyspace is stored plain, at every sequence number.
const PLAIN: u64 = u64::MAX;
/// The default keyspace is about to be stored as [`Space::Default`].
const CHANGING: u64 = u64::MAX - 1;
/// A keyspace that is whole at every sequence number.
const LIVE: SeqNo = SeqNo::MAX;

/// The keyspaces of an open store.
#[derive(Debug)]
pub(crate) struct Keyspaces {
    /// Distinguishes the open stores of the process; never 0.
    store: u64,
    /// The first sequence number at which the default keyspace is stored as [`Space::Default`];
    /// [`PLAIN`] or [`CHANGING`].
    mapped_from: AtomicU64,
    /// Locked exclusively while `mapped_from` changes; shared by the writes that depend on it.
    mapping: RwLock<()>,
    catalog: Mutex<Catalog>,
    /// Locked after all other locks.
    known: RwLock<KnownKeyspaces>,
    /// Whether tables of a keyspace have had options of their own.
    has_tables_of_own: AtomicBool,
    /// Whether a keyspace has had a merge operator of its own.
    has_operators: AtomicBool,
}

/// The catalog, as far as it has been read.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// Whether it was read since the store was opened.
    pub(crate) is_loaded: bool,
    /// In a follower, all writes up to this sequence number that a feed was about to read were
    /// visible when it was read.
    pub(crate) known_to: SeqNo,
    /// Its first entry; `None` if there is no catalog yet.
    pub(crate) header: Option<CatalogHeader>,
    /// The keyspaces by name.
    pub(crate) live: BTreeMap<String, Arc<KeyspaceState>>,
}

/// A keyspace of an open store.
#[derive(Debug)]
pub(crate) struct KeyspaceState {
    pub(crate) name: String,
    pub(crate) id: u32,
    store: u64,
    /// Shared by writes, and held exclusively by the drop.
    pub(crate) gate: RwLock<()>,
    /// The keyspace is whole up to this sequence number; [`LIVE`] until it is dropped.
    gone_after: AtomicU64,
}

/// The part of the store that an operation is on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    /// The default keyspace.
    Default,
    /// Everything, by physical keys.
    Whole,
    /// A named keyspace.
    Keyspace(&'a KeyspaceState),
}

impl Keyspaces {
    /// Of a store whose catalog was not read yet.
    pub(crate) fn new() -> Self {
        static NEXT: quiet::StaticU64 = quiet::StaticU64::new(1);
        Self {
            store: NEXT.fetch_add(1, Ordering::Relaxed),
            mapped_from: AtomicU64::new(PLAIN),
            mapping: RwLock::new(()),
            catalog: Mutex::default(),
            known: RwLock::new(KnownKeyspaces::default()),
            has_tables_of_own: AtomicBool::new(false),
            has_operators: AtomicBool::new(false),
        }
    }

    /// The catalog, for one thread at a time.
    pub(crate) fn catalog(&self) -> MutexGuard<'_, Catalog> {
        lock(&self.catalog)
    }

    /// How the default keyspace is stored at this sequence number. Waits while that changes.
    pub(crate) fn default_at(&self, seqno: SeqNo) -> Space {
        let mut from = self.mapped_from.load(Ordering::Acquire);
        while from == CHANGING {
            drop(read_lock(&self.mapping));
            from = self.mapped_from.load(Ordering::Acquire);
        }
        // Above every sequence number if it is stored plain.
        if from == PLAIN || seqno < from { Space::Plain } else { Space::Default }
    }

    /// How the default keyspace is stored now.
    pub(crate) fn default_now(&self) -> Space {
        self.default_at(SeqNo::MAX)
    }

    /// As [`default_now`](Self::default_now), and it stays so while the guard lives.
    pub(crate) fn default_for_write(&self) -> (RwLockReadGuard<'_, ()>, Space) {
        let guard = read_lock(&self.mapping);
        let space = self.default_now();
        (guard, space)
    }

    /// How the default keyspace is stored in the tables that exist now. While that changes, no
    /// table holds the change yet. A compaction must not wait for the change, which may wait for
    /// the compaction.
    pub(crate) fn default_of_tables(&self) -> Space {
        self.default_found_at(SeqNo::MAX)
    }

    /// How the keys of the default keyspace that a reader as of `seqno` has found are stored. Does
    /// not wait: while that changes, no reader has found keys that are stored differently.
    pub(crate) fn default_found_at(&self, seqno: SeqNo) -> Space {
        match self.mapped_from.load(Ordering::Acquire) {
            PLAIN | CHANGING => Space::Plain,
            from if seqno < from => Space::Plain,
            _ => Space::Default,
        }
    }

    /// Runs `change`, which returns the sequence number from which the default keyspace is stored
    /// as [`Space::Default`]. Readers and writers that depend on that wait meanwhile.
    pub(crate) fn map_default(&self, change: impl FnOnce() -> Result<SeqNo>) -> Result<()> {
        let _alone = crate::sync::write_lock(&self.mapping);
        self.mapped_from.store(CHANGING, Ordering::Release);
        // Readers do not wait forever if `change` panics.
        let mut ending = MappingEnd { keyspaces: self, from: PLAIN };
        ending.from = change()?;
        Ok(())
    }

    /// Records that the default keyspace of an opened store has always been stored as
    /// [`Space::Default`], unless it is known since when.
    pub(crate) fn set_mapped(&self) {
        let (done, found) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.mapped_from.compare_exchange(PLAIN, 0, done, found);
    }

    /// Records that there is no catalog after all: the default keyspace is stored plain.
    pub(crate) fn set_plain(&self) {
        self.mapped_from.store(PLAIN, Ordering::Release);
    }

    /// The state of a keyspace of this store.
    pub(crate) fn state(&self, name: &str, id: u32) -> Arc<KeyspaceState> {
        Arc::new(KeyspaceState {
            name: name.to_owned(),
            id,
            store: self.store,
            gate: RwLock::new(()),
            gone_after: AtomicU64::new(LIVE),
        })
    }

    /// An error unless `state` is a keyspace of this store.
    pub(crate) fn check_own(&self, state: &KeyspaceState) -> Result<()> {
        if state.store == self.store {
            return Ok(());
        }
        let name = &state.name;
        Err(Error::option(format!(
            "the keyspace \"{name}\" is one of another store, or of a handle that was closed: open \
             it by Db::keyspace of this one"
        )))
    }
}

/// Ends the change of how the default keyspace is stored.
struct MappingEnd<'a> {
    keyspaces: &'a Keyspaces,
    from: u64,
}

impl Drop for MappingEnd<'_> {
    fn drop(&mut self) {
        self.keyspaces.mapped_from.store(self.from, Ordering::Release);
    }
}

impl KeyspaceState {
    /// How its keys are stored.
    #[inline]
    pub(crate) fn space(&self) -> Space {
        Space::Named(self.id)
    }

    /// An error if it is not whole at this sequence number.
    #[inline]
    pub(crate) fn check_at(&self, seqno: SeqNo) -> Result<()> {
        if seqno <= self.gone_after.load(Ordering::Acquire) { Ok(()) } else { Err(self.dropped()) }
    }

    /// An error if it is being dropped, or was.
    #[inline]
    pub(crate) fn check_live(&self) -> Result<()> {
        self.check_at(LIVE)
    }

    #[cold]
    fn dropped(&self) -> Error {
        Error::KeyspaceDropped { name: self.name.clone() }
    }

    /// Admits a write, which holds the result until the write is visible.
    pub(crate) fn enter(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let entered = read_lock(&self.gate);
        self.check_live().map(|()| entered)
    }

    /// Sets the sequence number up to which it is whole; `None`: all.
    pub(crate) fn set_gone_after(&self, seqno: Option<SeqNo>) {
        self.gone_after.store(seqno.unwrap_or(LIVE), Ordering::Release);
    }
}

impl Part<'_> {
    /// How the keys of this part are stored at a sequence number that was read before.
    pub(crate) fn space_at(self, keyspaces: &Keyspaces, seqno: SeqNo) -> Result<Space> {
        match self {
            Self::Default => Ok(keyspaces.default_at(seqno)),
            Self::Whole => Ok(Space::Plain),
            Self::Keyspace(state) => state.check_at(seqno).map(|()| state.space()),
        }
    }
}

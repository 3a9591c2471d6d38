//! The state machine: openraft's `RaftStateMachine`, over an [`Application`].
//!
//! * Entries are applied in transactions, each of which also records what it has applied. So the
//!   state and the record agree after any crash, and entries are never applied twice to one state.
//! * Transactions are not synced. The log is durable, and what of the state is lost in a power
//!   failure is applied again: openraft does so up to the committed log id when it starts.
//! * A snapshot that is installed becomes a keyspace of its own, by ingesting its file. One synced
//!   write then makes it the state, and the previous keyspace is dropped.

use std::sync::{Arc, PoisonError, RwLock};

use openraft::storage::RaftStateMachine;
use openraft::{
    Entry, EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, RaftTypeConfig, Snapshot,
    SnapshotMeta, StorageError, StorageIOError, StoredMembership,
};
use trommel::{
    Db, Keyspace, KeyspaceOptions, KeyspaceSnapshot, KeyspaceTransaction, WriteBatch, WriteOptions,
};

use crate::blocking::blocking;
use crate::error::{Error, Result};
use crate::purges::Purges;
use crate::records::{self, APPLIED, Applied, ENTRY};
use crate::snapshot_file::SnapshotFile;
use crate::snapshots::Snapshots;

/// Entries that are applied in one transaction, whose writes are in memory until it commits.
const ENTRIES_AT_ONCE: usize = 256;

/// Bytes of encoded entries after which a transaction ends.
const BYTES_AT_ONCE: usize = 4 << 20;

/// What an application does with the requests that the cluster has agreed on.
pub trait Application<C: RaftTypeConfig>: Send + Sync + 'static {
    /// Applies one request to `state`, and returns the response to it.
    ///
    /// Each node applies the same requests in the same order, and may apply them again after a
    /// power failure, to the state from before: the outcome may depend on the request and on the
    /// state only, not on time, randomness, or anything else of the node.
    ///
    /// # Errors
    /// Those of `state`. They stop the node, and since all nodes apply the same, the whole cluster:
    /// a request that is refused, as for a key that is too long, is a response instead.
    fn apply(&self, state: &KeyspaceTransaction<'_>, request: C::D) -> trommel::Result<C::R>;

    /// The options of the state's keyspace. They must not have a `ttl`: entries would not expire at
    /// the same moment on all nodes.
    fn keyspace_options(&self) -> KeyspaceOptions {
        KeyspaceOptions::new()
    }
}

/// The state, for reads. Clones share it.
///
/// A read sees what this node has applied. To see all that was acknowledged before, call
/// `Raft::ensure_linearizable` first, on the leader.
#[derive(Debug, Clone)]
pub struct StateReader {
    state: Arc<RwLock<Keyspace>>,
}

impl StateReader {
    /// The keyspace that holds the state. Get it anew for each read: when a snapshot is installed,
    /// another keyspace takes its place, and reads of this one return
    /// [`KeyspaceDropped`](trommel::Error::KeyspaceDropped). Nothing but the state machine may
    /// write to it.
    pub fn keyspace(&self) -> Keyspace {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the keyspace, and returns the previous one.
    fn replace(&self, keyspace: Keyspace) -> Keyspace {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *state, keyspace)
    }
}

/// The state machine of a Raft node.
#[derive(Debug)]
pub struct StateMachine<C: RaftTypeConfig, A> {
    application: Arc<A>,
    name: String,
    meta: Keyspace,
    applied: Applied<C>,
    state: StateReader,
    snapshots: Arc<Snapshots<C>>,
    purges: Arc<Purges<C>>,
    /// Last field: it may close the store.
    db: Db,
}

/// Builds a snapshot of the state as of when it was created.
#[derive(Debug)]
pub struct SnapshotBuilder<C: RaftTypeConfig> {
    /// The state, or why it cannot be read.
    state: trommel::Result<KeyspaceSnapshot>,
    applied: Applied<C>,
    snapshots: Arc<Snapshots<C>>,
}

/// The name of the keyspace of a state.
fn state_name(name: &str, number: u64) -> String {
    format!("{name}.state.{number}")
}

/// Whether a keyspace is one of the states of the node `name`.
fn is_state_name(name: &str, keyspace: &str) -> bool {
    let number = keyspace.strip_prefix(name).and_then(|rest| rest.strip_prefix(".state."));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

impl<C, A> StateMachine<C, A>
where
    C: RaftTypeConfig<SnapshotData = SnapshotFile>,
    A: Application<C>,
{
    pub(crate) fn open(
        db: &Db,
        name: &str,
        purges: Arc<Purges<C>>,
        snapshots: Snapshots<C>,
        application: A,
    ) -> Result<Self> {
        let meta = records::meta_keyspace(db, name)?;
        let applied: Applied<C> = records::read(&meta, APPLIED)?.unwrap_or_default();
        let own = state_name(name, applied.state);
        let state = db.keyspace(&own, application.keyspace_options())?;
        // States that were not installed completely, or not dropped.
        for other in db.list_keyspaces()? {
            if other != own && is_state_name(name, &other) {
                db.drop_keyspace(other)?;
            }
        }
        Ok(Self {
            application: Arc::new(application),
            name: name.to_owned(),
            meta,
            applied,
            state: StateReader { state: Arc::new(RwLock::new(state)) },
            snapshots: Arc::new(snapshots),
            purges,
            db: db.clone(),
        })
    }

    /// The state, for reads; it stays valid when openraft owns the state machine.
    pub fn reader(&self) -> StateReader {
        self.state.clone()
    }
}

impl<C, A> StateMachine<C, A>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = SnapshotFile>,
    C::R: Default,
    A: Application<C>,
{
    /// Applies the first entries in one transaction: as many as are small enough together.
    fn apply_together(
        &mut self,
        entries: impl Iterator<Item = Entry<C>>,
        responses: &mut Vec<C::R>,
    ) -> Result<()> {
        let state = self.state.keyspace();
        let mut applied = self.applied.clone();
        let transaction = self.db.begin();
        let in_state = transaction.keyspace(&state)?;
        let mut bytes = 0;
        for entry in entries {
            bytes += records::encoded_bytes(ENTRY, &entry)?;
            let Entry { log_id, payload } = entry;
            responses.push(match payload {
                EntryPayload::Blank => C::R::default(),
                EntryPayload::Normal(request) => self.application.apply(&in_state, request)?,
                EntryPayload::Membership(members) => {
                    applied.membership = StoredMembership::new(Some(log_id.clone()), members);
                    C::R::default()
                }
            });
            applied.log_id = Some(log_id);
            if bytes >= BYTES_AT_ONCE {
                break;
            }
        }
        transaction.keyspace(&self.meta)?.put(APPLIED, records::encode(APPLIED, &applied)?)?;
        transaction.commit_with(WriteOptions::os())?;
        self.purges.applied(applied.log_id.clone())?;
        self.applied = applied;
        Ok(())
    }

    /// Replaces the state by that of a snapshot that was received.
    async fn install(
        &mut self,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
        snapshot: SnapshotFile,
    ) -> Result<()> {
        let applied = Applied {
            log_id: meta.last_log_id.clone(),
            membership: meta.last_membership.clone(),
            state: self.applied.state + 1,
        };
        let name = state_name(&self.name, applied.state);
        let (db, options) = (self.db.clone(), self.application.keyspace_options());
        let (keyspace, reader) = (self.meta.clone(), self.state.clone());
        let (snapshots, purges) = (Arc::clone(&self.snapshots), Arc::clone(&self.purges));
        let meta = meta.clone();
        self.applied = blocking(move || {
            let mut file = snapshot.received(|| snapshots.receive()).map_err(Error::Snapshot)?;
            let path = file.complete().map_err(Error::Snapshot)?;
            // An installation that failed may have left one.
            db.drop_keyspace(&name)?;
            let state = db.keyspace(name, options)?;
            state.ingest([path])?;
            let mut batch = WriteBatch::new();
            batch.keyspace(&keyspace).put(APPLIED, records::encode(APPLIED, &applied)?);
            snapshots.install(&meta, file, batch)?;
            purges.applied(applied.log_id.clone())?;
            let previous = reader.replace(state);
            db.drop_keyspace(previous.name())?;
            Ok(applied)
        })
        .await?;
        Ok(())
    }
}

impl<C: RaftTypeConfig, A> Drop for StateMachine<C, A> {
    fn drop(&mut self) {
        self.purges.end();
    }
}

impl<C, A> RaftStateMachine<C> for StateMachine<C, A>
where
    C: RaftTypeConfig<Entry = Entry<C>, SnapshotData = SnapshotFile>,
    C::R: Default,
    A: Application<C>,
{
    type SnapshotBuilder = SnapshotBuilder<C>;

    async fn applied_state(
        &mut self,
    ) -> Result<
        (Option<LogId<C::NodeId>>, StoredMembership<C::NodeId, C::Node>),
        StorageError<C::NodeId>,
    > {
        Ok((self.applied.log_id.clone(), self.applied.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<C::R>, StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut entries = entries.into_iter().peekable();
        let mut responses = Vec::new();
        while let Some(Entry { log_id, .. }) = entries.peek() {
            let first = log_id.clone();
            self.apply_together(entries.by_ref().take(ENTRIES_AT_ONCE), &mut responses)
                .map_err(|error| StorageIOError::apply(first, error.any()))?;
        }
        Ok(responses)
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        SnapshotBuilder {
            state: self.db.snapshot().keyspace(&self.state.keyspace()),
            applied: self.applied.clone(),
            snapshots: Arc::clone(&self.snapshots),
        }
    }

    async fn begin_receiving_snapshot(
        &mut self,
    ) -> Result<Box<SnapshotFile>, StorageError<C::NodeId>> {
        let file = self.snapshots.receive().map_err(Error::Snapshot);
        file.map(|file| Box::new(SnapshotFile::new(file)))
            .map_err(|error| StorageIOError::write_snapshot(None, error.any()).into())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
        snapshot: Box<SnapshotFile>,
    ) -> Result<(), StorageError<C::NodeId>> {
        self.install(meta, *snapshot).await.map_err(|error| {
            StorageIOError::write_snapshot(Some(meta.signature()), error.any()).into()
        })
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<Snapshot<C>>, StorageError<C::NodeId>> {
        let snapshots = Arc::clone(&self.snapshots);
        let newest = blocking(move || snapshots.newest()).await;
        newest.map_err(|error| StorageIOError::read_snapshot(None, error.any()).into())
    }
}

impl<C> RaftSnapshotBuilder<C> for SnapshotBuilder<C>
where
    C: RaftTypeConfig<SnapshotData = SnapshotFile>,
{
    async fn build_snapshot(&mut self) -> Result<Snapshot<C>, StorageError<C::NodeId>> {
        let snapshots = Arc::clone(&self.snapshots);
        let (state, applied) = (self.state.clone(), self.applied.clone());
        let built = blocking(move || snapshots.build(&state?, &applied)).await;
        built.map_err(|error| StorageIOError::write_snapshot(None, error.any()).into())
    }
}

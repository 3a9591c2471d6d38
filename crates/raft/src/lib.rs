//! Storage for a Raft node of [openraft] 0.9, in a Trommel store: its log, its vote, its state
//! machine and its snapshots.
//!
//! [`open`] returns openraft's `RaftLogStorage` and `RaftStateMachine`. What the cluster replicates
//! is an [`Application`]; [`KeyValue`] is one that is ready for use. The network, elections and
//! membership are openraft's.
//!
//! ```
//! use openraft::storage::{RaftLogStorage, RaftStateMachine};
//! use trommel::{Db, Options};
//! use trommel_raft::{KeyValue, KeyValueConfig};
//! # let scratch = tempfile::tempdir()?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let db = Db::open(scratch.path().join("store"), Options::default())?;
//! let snapshots = scratch.path().join("snapshots");
//! let (mut log, mut state_machine) =
//!     trommel_raft::open::<KeyValueConfig, _>(&db, "raft", snapshots, KeyValue)?;
//! let reader = state_machine.reader();
//!
//! // Raft::new(id, config, network, log, state_machine) takes both.
//! assert_eq!(log.get_log_state().await?.last_log_id, None);
//! assert_eq!(state_machine.applied_state().await?.0, None);
//! assert!(reader.keyspace().get("key")?.is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//! * openraft is notified that entries are appended once they are durable, and a saved vote is
//!   durable: both survive a power failure, whatever the durability of the store's other writes.
//! * The state and the log id up to which it was applied are written as one. After a power failure
//!   the state may be an earlier one; the log has what is missing, and openraft applies it again
//!   before it serves. Entries are purged only after the state in the store has them.
//! * A snapshot is durable before a record names it, and its checksums are verified before it is
//!   installed. A crash leaves the state from before or that of the snapshot.
//! * Whatever fails is a `StorageError` that says what openraft was doing, and why the store could
//!   not; openraft then stops the node. Nothing is retried.
//!
//! # Costs
//! Syncs are made, and snapshots are built, installed and opened, in Tokio's threads for blocking
//! work. All other calls run in the task that makes them: they wait for the disk if the store does,
//! as for a block that is not in memory, or a stall of its writes. So run openraft on a runtime of
//! Tokio with several threads.
//!
//! While a snapshot is installed that ends after the node's log, an append waits for it, and
//! openraft's main task with it: the entries in between must be durable before later ones are.
//!
//! The leader of openraft 0.9 appends one entry after another, and each waits for its sync: a
//! request that holds many changes costs one.
//!
//! An entry must have at most 1 GiB as MessagePack, which takes two bytes for some bytes of a
//! `Vec<u8>`. A leader that cannot append one stops, so bound requests before
//! `Raft::client_write`.
//!
//! One store can hold several nodes, each of another group, under names of their own, and the
//! keyspaces of the program. They share the log file of the store, and with it its syncs.
//!
//! [openraft]: https://docs.rs/openraft/0.9
#![forbid(unsafe_code)]

mod blocking;
mod error;
mod key_value;
mod lease;
mod log_store;
mod purges;
mod records;
mod snapshot_file;
mod snapshots;
mod state_machine;

use std::path::Path;
use std::sync::Arc;

use openraft::RaftTypeConfig;
use trommel::Db;

use purges::Purges;
use snapshots::Snapshots;

pub use error::{Error, Result};
pub use key_value::{KeyValue, KeyValueConfig, KeyValueRequest, KeyValueResponse};
pub use log_store::LogStore;
pub use snapshot_file::SnapshotFile;
pub use state_machine::{Application, SnapshotBuilder, StateMachine, StateReader};

/// Opens the storage of the Raft node `name` in `db`, or creates it: in keyspaces of which each
/// begins with the name, which has no dot, and a dot, and in the directory `snapshots`, which is
/// its own. It is created if it does not exist; its parent must.
///
/// A node is opened once at a time, which a lock in that directory ensures: its parts keep it, and
/// so do those that openraft made of them. `Raft::shutdown` does not wait for all of them; drop the
/// `Raft`, and try again while this returns [`Error::InUse`]. A node that is opened twice with two
/// directories is not detected.
///
/// # Errors
/// [`Error::InvalidName`]; [`Error::InUse`]; [`Error::Store`]; [`Error::Snapshot`] if the directory
/// cannot be used; [`Error::Decode`] if the node was written with other types.
pub fn open<C, A>(
    db: &Db,
    name: &str,
    snapshots: impl AsRef<Path>,
    application: A,
) -> Result<(LogStore<C>, StateMachine<C, A>)>
where
    C: RaftTypeConfig<SnapshotData = SnapshotFile>,
    A: Application<C>,
{
    if name.is_empty() || name.contains('.') {
        return Err(Error::InvalidName { name: name.to_owned() });
    }
    let snapshots = snapshots.as_ref();
    let lease = lease::take(&**db.vfs(), snapshots)?;
    // What a store that is still open shows of an earlier node need not be durable.
    db.sync()?;
    let purges = Arc::new(Purges::open(db, name)?);
    let log = LogStore::open(db, name, Arc::clone(&lease), Arc::clone(&purges))?;
    let snapshots = Snapshots::open(db, name, lease, snapshots)?;
    Ok((log, StateMachine::open(db, name, purges, snapshots, application)?))
}

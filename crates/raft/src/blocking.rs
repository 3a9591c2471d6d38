//! Work that waits for the disk: in the threads that the runtime has for that, so that no task of
//! the node waits.

use trommel::Db;

use crate::error::{Error, Result};

/// Runs `work`, and waits for its result.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Interrupted)?
}

/// Calls `notify` once everything written so far is durable, or cannot be made so. It does not keep
/// the store open any longer.
pub(crate) fn sync_then(db: &Db, notify: impl FnOnce(trommel::Result<()>) + Send + 'static) {
    let db = db.clone();
    tokio::task::spawn_blocking(move || {
        let synced = db.sync();
        drop(db);
        notify(synced);
    });
}

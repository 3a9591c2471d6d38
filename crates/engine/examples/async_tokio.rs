//! A store in an async program.
//!
//! Every call may block: on the disk, on a lock, on compactions that lag. A thread of an async
//! runtime must not block, because all its other tasks would wait, too. So work on the store goes
//! to tokio's blocking threads, through `spawn_blocking`: a whole request at a time, not call by
//! call, because each hand-over costs a few microseconds, more than most calls. Handles are cheap
//! to clone and can be sent anywhere.
//!
//! `cargo run --example async_tokio` prints:
//!
//! ```text
//! 8 visitors were served
//! page views: 8
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use tokio::task::{JoinSet, spawn_blocking};
use trommel::{Db, Options};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().to_path_buf();
    let db = spawn_blocking(move || Db::open(path, Options::default())).await??;

    let mut requests = JoinSet::new();
    for visitor in 0..8 {
        requests.spawn(serve(db.clone(), visitor));
    }
    let mut served = 0;
    while let Some(request) = requests.join_next().await {
        request??;
        served += 1;
    }
    println!("{served} visitors were served");

    let views = spawn_blocking(move || {
        let views = db.prefix("view/").count();
        db.close().map(|()| views)
    });
    println!("page views: {}", views.await??);
    Ok(())
}

/// A request's reads and writes, run together.
async fn serve(db: Db, visitor: u32) -> Result<()> {
    let work = move || {
        let is_new = db.insert_if_absent(format!("visitor/{visitor}"), "")?;
        db.put(format!("view/{visitor}"), "home page")?;
        Ok::<_, trommel::Error>(is_new)
    };
    assert!(spawn_blocking(work).await??);
    Ok(())
}

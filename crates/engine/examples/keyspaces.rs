//! Keeps users and their sessions in keyspaces of their own, changes both atomically, and drops
//! one.
//!
//! `cargo run --example keyspaces` prints:
//!
//! ```text
//! keyspaces: sessions, users
//! Ada has 2 sessions
//! user 1 is gone, with 0 sessions
//! before that it was Ada, with 2 sessions
//! keyspaces: users
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use trommel::{Compression, Db, Keyspace, KeyspaceOptions, Options, Prefix, WriteBatch};

fn list(db: &Db) -> trommel::Result<()> {
    println!("keyspaces: {}", db.list_keyspaces()?.join(", "));
    Ok(())
}

/// The keys of sessions are `USER/SESSION`.
fn sign_out(db: &Db, users: &Keyspace, sessions: &Keyspace, id: &str) -> trommel::Result<()> {
    let mut batch = WriteBatch::new();
    batch.keyspace(users).delete(id);
    batch.keyspace(sessions).delete_range(format!("{id}/")..format!("{id}0"));
    db.write(batch)?; // all or nothing
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path(), Options::default())?;

    let users = db.keyspace("users", KeyspaceOptions::new())?;
    let by_user = KeyspaceOptions::new()
        .filters("paired:10".parse()?)
        .prefix_extractor(Prefix::until("/"))
        .compression(Compression::None);
    let sessions = db.keyspace("sessions", by_user)?;
    list(&db)?;

    db.transaction(|tx| {
        let (users, sessions) = (tx.keyspace(&users)?, tx.keyspace(&sessions)?);
        users.put("1", "Ada")?;
        sessions.put("1/laptop", "")?;
        sessions.put("1/phone", "")
    })?;
    println!("Ada has {} sessions", sessions.prefix("1/").count());

    let before = db.snapshot();
    sign_out(&db, &users, &sessions, "1")?;
    assert!(!users.contains_key("1")?);
    println!("user 1 is gone, with {} sessions", sessions.prefix("1/").count());
    let name = before.keyspace(&users)?.get("1")?.unwrap_or_default();
    let count = before.keyspace(&sessions)?.prefix("1/").count();
    println!("before that it was {}, with {count} sessions", name.escape_ascii());

    db.drop_keyspace("sessions")?; // one write, whatever it holds
    list(&db)?;
    Ok(db.close()?)
}

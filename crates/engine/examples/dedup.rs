//! Handles each request once, and assigns each name once, by a batch that is written only if two
//! keys are new.
//!
//! `cargo run --example dedup` prints:
//!
//! ```text
//! request 1 registers ada: done
//! request 1 registers ada: key request/1 has a value, and none was expected
//! request 2 registers ada: key name/ada has a value, and none was expected
//! request 3 registers grace: done
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use trommel::{Db, Error, Options, WriteBatch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path(), Options::default())?;
    for (request, name) in [(1, "ada"), (1, "ada"), (2, "ada"), (3, "grace")] {
        let mut batch = WriteBatch::new();
        let (request_key, name_key) = (format!("request/{request}"), format!("name/{name}"));
        batch.expect_absent(&request_key).expect_absent(&name_key);
        batch.put(&request_key, "").put(&name_key, format!("by request {request}"));
        // Checked and written in one step, and in one commit with the writes of other threads.
        match db.write(&batch) {
            Ok(_) => println!("request {request} registers {name}: done"),
            Err(Error::Conflict(met)) => println!("request {request} registers {name}: {met}"),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(db.close()?)
}

//! Finds users by city: an index is a second key, written in the same batch as the first.
//!
//! `cargo run --example secondary_index` prints:
//!
//! ```text
//! in London: Ada, Alan
//! Ada moves
//! in London: Alan
//! in Paris: Ada
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::{Mutex, PoisonError};

use trommel::{Db, Options, WriteBatch};

/// `user/ID` holds the city and the name; `city/CITY/ID` has an empty value: the key is the entry.
struct Users {
    db: Db,
    /// A batch is atomic, but what was read before it may have changed: a read followed by a write
    /// must exclude other writers. Readers need no lock.
    writer: Mutex<()>,
}

impl Users {
    fn set(&self, id: u32, name: &str, city: &str) -> Result<(), Box<dyn Error>> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = WriteBatch::new();
        if let Some((_, old_city)) = self.get(id)? {
            batch.delete(format!("city/{old_city}/{id}"));
        }
        batch.put(format!("user/{id}"), format!("{city}\n{name}"));
        batch.put(format!("city/{city}/{id}"), "");
        self.db.write(batch)?;
        Ok(())
    }

    /// Name and city.
    fn get(&self, id: u32) -> Result<Option<(String, String)>, Box<dyn Error>> {
        let Some(value) = self.db.get(format!("user/{id}"))? else { return Ok(None) };
        let (city, name) = std::str::from_utf8(&value)?.split_once('\n').ok_or("no city")?;
        Ok(Some((name.to_owned(), city.to_owned())))
    }

    /// A snapshot for index and users, so that no user is missed or counted twice.
    fn names_in(&self, city: &str) -> Result<String, Box<dyn Error>> {
        let now = self.db.snapshot();
        let prefix = format!("city/{city}/");
        let mut users = Vec::new();
        for entry in now.prefix(&prefix) {
            let (key, _) = entry?;
            users.push([b"user/", &key[prefix.len()..]].concat());
        }
        let mut names = Vec::new();
        for value in now.multi_get(&users)?.iter().flatten() {
            let (_, name) = std::str::from_utf8(value)?.split_once('\n').ok_or("no name")?;
            names.push(name.to_owned());
        }
        Ok(names.join(", "))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path(), Options::default())?;
    let users = Users { db, writer: Mutex::new(()) };

    users.set(1, "Ada", "London")?;
    users.set(2, "Grace", "New York")?;
    users.set(3, "Alan", "London")?;
    println!("in London: {}", users.names_in("London")?);

    println!("Ada moves");
    users.set(1, "Ada", "Paris")?;
    println!("in London: {}", users.names_in("London")?);
    println!("in Paris: {}", users.names_in("Paris")?);
    Ok(users.db.close()?)
}

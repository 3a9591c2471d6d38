//! Finds users by city: an index is a second key, written in the same transaction as the first.
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

use trommel::{Db, Options};

/// `user/ID` holds the city and the name; `city/CITY/ID` has an empty value: the key is the entry.
struct Users {
    db: Db,
}

impl Users {
    /// Reads the old city to remove its index entry: if another thread moves the user meanwhile,
    /// the closure runs again.
    fn set(&self, id: u32, name: &str, city: &str) -> trommel::Result<()> {
        self.db.transaction(|tx| {
            if let Some(old) = tx.get(format!("user/{id}"))? {
                let old_city = old.split(|byte| *byte == b'\n').next().unwrap_or_default();
                tx.delete([b"city/", old_city, format!("/{id}").as_bytes()].concat())?;
            }
            tx.put(format!("user/{id}"), format!("{city}\n{name}"))?;
            tx.put(format!("city/{city}/{id}"), "")
        })
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
    let users = Users { db };

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

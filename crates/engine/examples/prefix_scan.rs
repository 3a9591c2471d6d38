//! Composite keys: all of a user's events, the newest first, page by page.
//!
//! `cargo run --example prefix_scan` prints:
//!
//! ```text
//! ada has 5 events
//! newest: event 5, event 4
//! then:   event 3, event 2
//! from 2 to 3: event 2, event 3
//! adal has 0 events; tables passed over without a look inside: 1
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]
#![allow(clippy::big_endian_bytes, reason = "big-endian numbers sort as they should")]

use std::error::Error;

use trommel::{Db, Options, Prefix, Range};

/// `event/USER/` and the number in 8 bytes, the most significant first, so that keys sort as
/// numbers do. The `/` separates `ada` from `adam`.
fn key(user: &str, number: u64) -> Vec<u8> {
    let mut key = format!("event/{user}/").into_bytes();
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    // Tables get filters of `event/USER/`, so that scans skip tables without the user.
    let options = Options::default().filtering(|f| f.prefix_extractor(Prefix::until_nth("/", 2)));
    let db = Db::open(dir.path(), options)?;
    for number in 1..=5 {
        db.put(key("ada", number), format!("event {number}"))?;
        db.put(key("adam", number), "somebody else's")?;
    }

    println!("ada has {} events", db.prefix("event/ada/").count());

    // A range is read from either end; only the entries taken are read.
    let newest: Vec<_> = db.prefix("event/ada/").rev().take(2).collect::<Result<_, _>>()?;
    println!("newest: {}", values(newest.iter().map(|(_, value)| &**value)));

    // The next page ends before the last key of this one. Nothing is kept open in between.
    let (last_key, _) = &newest[1];
    let first_key = key("ada", 0);
    let next = db.range(&first_key[..]..&last_key[..]).rev().take(2);
    let next: Vec<_> = next.collect::<Result<_, _>>()?;
    println!("then:   {}", values(next.iter().map(|(_, value)| &**value)));

    let some: Range = db.range(key("ada", 2)..=key("ada", 3));
    let some: Vec<_> = some.collect::<Result<_, _>>()?;
    println!("from 2 to 3: {}", values(some.iter().map(|(_, value)| &**value)));

    // Within the table's key range, but not in its filter.
    db.flush()?;
    let events = db.prefix("event/adal/").count();
    let passed_over = db.stats().prefixes.useful;
    println!("adal has {events} events; tables passed over without a look inside: {passed_over}");
    Ok(db.close()?)
}

fn values<'a>(values: impl Iterator<Item = &'a [u8]>) -> String {
    values.map(|value| value.escape_ascii().to_string()).collect::<Vec<_>>().join(", ")
}

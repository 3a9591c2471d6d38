//! Moves money between accounts: a transaction reads both, and writes both or none.
//!
//! `cargo run --example bank_transfer` prints:
//!
//! ```text
//! moved 30: true
//! moved 1000: false
//! after 400 transfers by 4 threads, all accounts hold 200
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::thread;

use trommel::{Db, Options, Transaction};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path(), Options::default())?;
    db.put("account/ada", "100")?;
    db.put("account/grace", "100")?;

    println!("moved 30: {}", transfer(&db, "ada", "grace", 30)?);
    println!("moved 1000: {}", transfer(&db, "ada", "grace", 1000)?);

    let threads: Vec<_> = [("ada", "grace"), ("grace", "ada"), ("ada", "grace"), ("grace", "ada")]
        .into_iter()
        .map(|(from, to)| {
            let db = db.clone();
            thread::spawn(move || (0..100).try_for_each(|_| transfer(&db, from, to, 1).map(|_| ())))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }

    // All accounts as of one moment, so that no transfer is seen half done.
    let mut total = 0;
    for entry in db.prefix("account/") {
        let (_, value) = entry?;
        total += std::str::from_utf8(&value)?.parse::<u64>()?;
    }
    println!("after 400 transfers by 4 threads, all accounts hold {total}");
    Ok(db.close()?)
}

/// Moves an amount, if the account has it. If another transfer changes one of the accounts
/// meanwhile, the closure runs again.
fn transfer(db: &Db, from: &str, to: &str, amount: u64) -> trommel::Result<bool> {
    db.transaction(|tx| {
        let (balance, other) = (balance(tx, from)?, balance(tx, to)?);
        let Some(rest) = balance.checked_sub(amount) else { return Ok(false) };
        tx.put(format!("account/{from}"), rest.to_string())?;
        tx.put(format!("account/{to}"), (other + amount).to_string())?;
        Ok(true)
    })
}

/// The balance of an account, 0 if there is none.
fn balance(tx: &Transaction, account: &str) -> trommel::Result<u64> {
    let value = tx.get(format!("account/{account}"))?;
    let text = value.as_deref().and_then(|value| std::str::from_utf8(value).ok());
    Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
}

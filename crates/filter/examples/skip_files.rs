//! The purpose of filters: of many files, open only those that may hold a key. Each file's filter
//! is stored as bytes, as a program would store it next to the file, and every key is hashed once.
//!
//! `cargo run -p trommel-filter --example skip_files` prints:
//!
//! ```text
//! 40 filters of 24128 bytes each, for 10000 keys each
//! user:123456 is in file 12: opened [12], skipped 39
//! 100000 absent keys: 460 files opened needlessly, of 4000000
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use trommel_filter::{Filter, FilterSpec, hash};

const FILES: u64 = 40;
const KEYS: u64 = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let spec: FilterSpec = "paired:19.2".parse()?;
    let stored: Vec<Vec<u8>> = (0..FILES)
        .map(|file| {
            let mut builder = spec.builder();
            (file * KEYS..(file + 1) * KEYS)
                .for_each(|n| builder.add(format!("user:{n}").as_bytes()));
            builder.finish()
        })
        .collect();
    println!("{FILES} filters of {} bytes each, for {KEYS} keys each", stored[0].len());

    // A filter that cannot be decoded is ignored: a file without a filter is always searched.
    let filters: Vec<Option<Filter>> =
        stored.iter().map(|bytes| Filter::decode(bytes).ok()).collect();
    let may_hold = |key: &str| -> Vec<usize> {
        let hash = hash(key.as_bytes());
        let queried = filters.iter().enumerate();
        queried
            .filter(|(_, filter)| {
                filter.as_ref().is_none_or(|filter| filter.may_contain_hash(hash))
            })
            .map(|(file, _)| file)
            .collect()
    };

    let found = may_hold("user:123456");
    let skipped = filters.len() - found.len();
    println!("user:123456 is in file 12: opened {found:?}, skipped {skipped}");
    let absent = 100_000;
    let needless: usize = (0..absent).map(|n| may_hold(&format!("guest:{n}")).len()).sum();
    println!("{absent} absent keys: {needless} files opened needlessly, of {}", FILES * absent);
    Ok(())
}

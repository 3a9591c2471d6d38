//! Sets filters for each level, looks up missing keys, and reads the report.
//!
//! `cargo run --release --example filters_per_level` prints:
//!
//! ```text
//! level tables       keys   filter  wanted  stored        KiB      probes   negatives     false       true   measured          95% interval   expected
//!    L0      1        875   paired   20.00   21.87        2.3      299180      299158        22          0   7.353e-5  4.856e-5 - 0.0001113   4.976e-5
//!    L1      1      12625   paired   14.00   14.09       21.7      299985      299558       427          0   0.001423   0.001295 - 0.001565   0.001334
//!    L2      1      60000  blocked   10.00   10.01       73.3      299995      296959      3036          0    0.01012    0.009768 - 0.01048   0.009660
//! filters take 97.4 KiB; a missing key is expected to waste 0.01104 reads
//!
//! L0: of 299180 lookups of missing keys 22 wasted a read: 0.007%, and 0.005% by theory
//! L1: of 299985 lookups of missing keys 427 wasted a read: 0.142%, and 0.133% by theory
//! L2: of 299995 lookups of missing keys 3036 wasted a read: 1.012%, and 0.966% by theory
//! 3485 reads of 900000 were left (944 of them of files)
//! ```
//!
//! A level of the report shows the keys of its tables, their filters, and the outcomes of the
//! lookups that reached them: *negatives* are reads saved, *false* are reads of a block that did
//! not hold the key. The last columns compare the measured rate, and its confidence interval, with
//! what theory predicts for exactly these filters. (Theory gives the average over all sets of keys:
//! a single filter of few keys may deviate a lot.) The sum of the levels' rates is the number of
//! reads that a lookup of a missing key wastes.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;

use trommel::{Db, Options};
use trommel_sim::MemoryVfs;

const KEYS: u32 = 60_000;
const MISSING: u32 = 300_000;

fn main() -> Result<(), Box<dyn Error>> {
    // Level 0 is searched most and has few keys: bits are cheap there. The last level has nearly
    // all keys, and most of the memory goes to its bits. `last` applies to it, because the last
    // rule that matches wins.
    let options = Options::default()
        .filters("L0=paired:20,L1-=paired:14,last=blocked:10".parse()?)
        .writes(|w| w.write_buffer_bytes(256 << 10)) // small, so that little data makes a tree of some levels
        .compaction(|c| c.base_level_bytes(512 << 10))
        .background_threads(0) // so that all runs end in the same tree
        .vfs(Arc::new(MemoryVfs::new())); // which has no secret: hash seeds are the same in all runs
    let db = Db::open("db", options)?;

    // All keys go to the last level; newer values of some of them stay above it.
    for number in 0..KEYS {
        db.put(key(number), "a value of some length, to have something to read")?;
    }
    db.compact_all()?;
    for number in 0..KEYS * 9 / 40 {
        db.put(key(number * 7919 % KEYS), "a newer value")?;
    }
    db.flush()?;

    // Missing keys between the existing ones: every level has to be searched.
    db.reset_stats();
    for number in 0..MISSING {
        let absent = key(number % KEYS) + &format!("+{number}");
        assert!(!db.contains_key(absent)?);
    }

    let report = db.filter_report();
    println!("{report}");
    println!();
    for level in &report.levels {
        let (Some(measured), Some(expected)) = (level.rates.measured, level.rates.expected) else {
            continue;
        };
        println!(
            "L{}: of {} lookups of missing keys {} wasted a read: {:.3}%, and {:.3}% by theory",
            level.level,
            level.counts.probes,
            level.counts.false_positives,
            measured * 100.0,
            expected * 100.0
        );
    }
    let without = MISSING * u32::try_from(report.levels.len())?;
    let stats = db.stats();
    println!(
        "{} reads of {without} were left ({} of them of files)",
        stats.lookups.block_reads + stats.lookups.cache_hits,
        stats.lookups.block_reads
    );
    Ok(db.close()?)
}

/// Keys of one length, in the order of the numbers.
fn key(number: u32) -> String {
    format!("key{number:08}")
}

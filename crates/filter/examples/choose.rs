//! Which filter for a million keys? By exact theory: the rate that a memory budget buys, and the
//! memory that a rate takes.
//!
//! `cargo run -p trommel-filter --example choose`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use trommel_filter::{FilterKind, FilterSpec, ParseSpecError};

const KEYS: u64 = 1_000_000;

fn main() -> Result<(), ParseSpecError> {
    for mebibytes in [1, 2, 3] {
        let bits = f64::from(mebibytes << 23) / KEYS as f64;
        for kind in FilterKind::ALL {
            let spec = FilterSpec::new(kind, bits)?;
            let one_in = 1.0 / spec.expected_fpr(KEYS);
            println!(
                "{mebibytes} MiB as {kind}: one absent key in {one_in:.0} is a false positive"
            );
        }
    }
    for kind in FilterKind::ALL {
        let spec = FilterSpec::with_fpr(kind, 1e-5)?;
        let (bits, bytes) = (spec.bits_per_key(), spec.expected_bytes(KEYS));
        println!("a rate of 1/100,000 as {kind}: {bits} bits a key, {bytes} bytes");
    }
    Ok(())
}

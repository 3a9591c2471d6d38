//! Trommel under libFuzzer: every decoder, and whole stores, with valid checksums.
//!
//! One program holds all targets, since linking one is quicker than linking twenty. The environment
//! selects its action, because libFuzzer uses the arguments:
//!
//! 1. `TROMMEL_FUZZ_TARGET` names the target to run. `list` prints their names.
//! 2. `TROMMEL_FUZZ_SEEDS=DIR` writes the target's initial inputs to `DIR` and exits.
//!
//! Invariants of every target, whatever the input: no panic (overflow and debug assertions are on),
//! no hang (libFuzzer's `-timeout`), and at most [`MEMORY_BYTES`] beyond the input's size; and a
//! file that verifies gives the same answers in every kind of read.
#![no_main]
#![allow(clippy::disallowed_methods, reason = "libFuzzer's macro opens a file, of no store")]

#[path = "../../../crates/filter/tests/bounds/allocator.rs"]
mod allocator;
mod fix;
mod image;
mod targets;

use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

use crate::targets::{ALL, Target};

/// Maximum memory for an input beyond its own size, in bytes.
const MEMORY_BYTES: u64 = 64 << 20;

static TARGET: OnceLock<Target> = OnceLock::new();

fn start() {
    let name = std::env::var("TROMMEL_FUZZ_TARGET").unwrap_or_default();
    if name == "list" {
        for target in ALL {
            println!("{}", target.name);
        }
        std::process::exit(0);
    }
    let target = ALL.iter().find(|target| target.name == name).unwrap_or_else(|| {
        eprintln!("TROMMEL_FUZZ_TARGET must name a target, or be \"list\"");
        std::process::exit(2);
    });
    if let Some(dir) = std::env::var_os("TROMMEL_FUZZ_SEEDS") {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            let file = Path::new(&dir).join(format!("seed-{number:03}"));
            std::fs::write(&file, seed).unwrap_or_else(|error| {
                eprintln!("{}: {error}", file.display());
                std::process::exit(2);
            });
        }
        std::process::exit(0);
    }
    let _ = TARGET.set(*target);
}

fuzz_target!(init: start(), |input: &[u8]| {
    let Some(target) = TARGET.get() else { return };
    let ((), most) = allocator::most_held(|| (target.run)(input));
    let allowed = MEMORY_BYTES + input.len() as u64;
    assert!(most <= allowed, "{} bytes of input took {most} bytes of memory", input.len());
});

//! Settings of all lanes in the environment.

use std::fmt::Display;
use std::str::FromStr;

fn number<T: FromStr>(name: &str) -> Option<T>
where
    T::Err: Display,
{
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// The size of lanes as a multiple of what is promised: `TROMMEL_SCALE`, 1 by default.
pub fn scale() -> u64 {
    number("TROMMEL_SCALE").unwrap_or(1)
}

/// How many of the `full` cases that are promised a large lane goes through: `TROMMEL_SCALE` times
/// as many. Where it is not set, a quarter in the project's CI (`TROMMEL_LANES=ci`), and a
/// 32nd elsewhere, so that `cargo test` stays short; at least eight.
pub fn cases(full: u64) -> u64 {
    match number::<u64>("TROMMEL_SCALE") {
        Some(scale) => full * scale,
        None => full.div_ceil(if is_ci() { 4 } else { 32 }).max(full.min(8)),
    }
}

/// As [`cases`], of a small lane: all of them in the project's CI, and a quarter elsewhere.
pub fn rounds(full: u64) -> u64 {
    match number::<u64>("TROMMEL_SCALE") {
        Some(scale) => full * scale,
        None if is_ci() => full,
        None => full.div_ceil(4),
    }
}

/// A lane that enumerates cases goes through one in this many, evenly: through all with
/// `TROMMEL_SCALE` and in the project's CI, and one in nine elsewhere. It is odd, because the kind
/// of a case often depends on whether its number is a multiple of two, four or sixteen.
pub fn stride() -> usize {
    let is_whole = is_ci() || number::<u64>("TROMMEL_SCALE").is_some();
    if is_whole { 1 } else { 9 }
}

/// Whether this is a run of the project's CI: `TROMMEL_LANES=ci`.
pub fn is_ci() -> bool {
    std::env::var("TROMMEL_LANES").is_ok_and(|size| size == "ci")
}

/// How many rounds of a soak went before, whose first seeds are 2^24 apart: lanes that enumerate
/// take up there where those left off. Seeds that are chosen by hand count as rounds, too.
pub fn rounds_before() -> u64 {
    let seed = first_seed();
    (seed >> 24).wrapping_add(seed.wrapping_sub(1) & 0xff_ffff)
}

/// The first seed of the lanes: `TROMMEL_FIRST_SEED`, 1 by default. A continued soak starts
/// elsewhere each time.
pub fn first_seed() -> u64 {
    number("TROMMEL_FIRST_SEED").unwrap_or(1)
}

/// Whether a test with this requirement must fail instead of being skipped: `TROMMEL_DEMAND` lists
/// requirements, separated by commas.
pub fn demanded(needs: &str) -> bool {
    let list = std::env::var("TROMMEL_DEMAND").unwrap_or_default();
    list.split(',').any(|demand| demand.trim() == needs)
}

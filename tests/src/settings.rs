//! What the environment asks of every lane.

use std::fmt::Display;
use std::str::FromStr;

fn number<T: FromStr>(name: &str) -> Option<T>
where
    T::Err: Display,
{
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

/// How many times as large as they were promised the lanes are: `TROMMEL_SCALE`, 1 if it is not
/// set.
pub fn scale() -> u64 {
    number("TROMMEL_SCALE").unwrap_or(1)
}

/// How many of the `full` cases that are promised a lane goes through: `TROMMEL_SCALE` times as
/// many, or, where it is not set, a quarter, so that `cargo test` stays short. `lanes ci` sets it.
pub fn cases(full: u64) -> u64 {
    match number::<u64>("TROMMEL_SCALE") {
        Some(scale) => full * scale,
        None => full.div_ceil(4).max(full.min(8)),
    }
}

/// How many rounds of a soak went before, whose first seeds are 2^24 apart: lanes that enumerate
/// take up there where those left off. Seeds that are chosen by hand count as rounds, too.
pub fn rounds_before() -> u64 {
    let seed = first_seed();
    (seed >> 24).wrapping_add(seed.wrapping_sub(1) & 0xff_ffff)
}

/// Where the lanes' seeds begin: `TROMMEL_FIRST_SEED`, 1 if it is not set. A soak that goes on
/// begins elsewhere each time.
pub fn first_seed() -> u64 {
    number("TROMMEL_FIRST_SEED").unwrap_or(1)
}

/// Whether what needs this of the system must not be skipped where it is missing: `TROMMEL_DEMAND`
/// lists such needs, with commas between.
pub fn demanded(needs: &str) -> bool {
    let list = std::env::var("TROMMEL_DEMAND").unwrap_or_default();
    list.split(',').any(|demand| demand.trim() == needs)
}

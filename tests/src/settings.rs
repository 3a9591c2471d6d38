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

/// How many times as large as in CI the lanes are: `TROMMEL_SCALE`, 1 if it is not set.
pub fn scale() -> u64 {
    number("TROMMEL_SCALE").unwrap_or(1)
}

/// Where the lanes' seeds begin: `TROMMEL_FIRST_SEED`, 1 if it is not set. A soak that goes on
/// begins elsewhere each time.
pub fn first_seed() -> u64 {
    number("TROMMEL_FIRST_SEED").unwrap_or(1)
}

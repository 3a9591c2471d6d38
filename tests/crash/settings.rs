//! What the environment asks of the lanes.

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

/// How much larger than usual the lanes are: `TROMMEL_CRASH_SCALE`.
pub(crate) fn scale() -> u64 {
    number("TROMMEL_CRASH_SCALE").unwrap_or(1)
}

/// Where the lanes' seeds begin: `TROMMEL_CRASH_SEED`.
pub(crate) fn first_seed() -> u64 {
    number("TROMMEL_CRASH_SEED").unwrap_or(1)
}

/// The one case to be run again, as a failure printed it: `TROMMEL_CRASH_ONLY`.
pub(crate) fn only<const N: usize>() -> Option<[u64; N]> {
    let text = std::env::var("TROMMEL_CRASH_ONLY").ok()?;
    let numbers: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
    let numbers = numbers.ok().and_then(|numbers| numbers.try_into().ok());
    Some(numbers.unwrap_or_else(|| panic!("TROMMEL_CRASH_ONLY={text}: not {N} numbers")))
}

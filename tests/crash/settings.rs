//! The single case that a lane is to reproduce, as a failure printed it.
//!
//! `TROMMEL_CRASH_ONLY=7,0,133,5,99:3.8.12:0.4`: the lane's own numbers; then, if the failure was
//! minimised, the necessary actions of the workload and losses of the crash.

use std::str::FromStr;

fn list<T: FromStr>(text: &str, separator: char) -> Option<Vec<T>> {
    let texts = text.split(separator).filter(|text| !text.is_empty());
    texts.map(str::parse).collect::<Result<_, _>>().ok()
}

fn parts() -> Option<(String, Vec<String>)> {
    let text = std::env::var("TROMMEL_CRASH_ONLY").ok()?;
    let parts = text.split(':').map(str::to_owned).collect();
    Some((text, parts))
}

/// The numbers of the requested case.
pub(crate) fn only<const N: usize>() -> Option<[u64; N]> {
    let (text, parts) = parts()?;
    let numbers = parts.first().and_then(|numbers| list(numbers, ',')?.try_into().ok());
    Some(numbers.unwrap_or_else(|| panic!("TROMMEL_CRASH_ONLY={text}: not {N} numbers")))
}

/// The indices in this part of the case (1: actions, 2: losses), if given.
pub(crate) fn places(part: usize) -> Option<Vec<usize>> {
    let (text, parts) = parts()?;
    let places = parts.get(part)?;
    Some(list(places, '.').unwrap_or_else(|| panic!("TROMMEL_CRASH_ONLY={text}: not places")))
}

/// The items of this part that the case needs; all, unless given.
pub(crate) fn only_these<T: Clone>(part: usize, all: &[T]) -> Vec<T> {
    let Some(places) = places(part) else { return all.to_vec() };
    places.into_iter().filter_map(|place| all.get(place).cloned()).collect()
}

//! The measurements in the order of their importance: when the time is over, the rest is left out.
//!
//! 1. A [`Group`] is a number of keys, and what its contestants are given: bits, a rate, or the
//!    size of a binary fuse filter.
//! 2. [`groups`] orders them: first what the goals need, at the largest number of keys and at small
//!    ones; then every size and rate at a middling number of keys, then the rest.
//! 3. [`Clock`] decides whether a group may start, from the times of groups with as many keys.

use std::fmt;
use std::time::{Duration, Instant};

use trommel_filter::FilterKind;

use crate::contestant::{Contestant, Width};
use crate::theory;

/// Bits per key at which all are compared.
pub const BITS: [f64; 5] = [8.0, 10.0, 12.0, 16.0, 23.4];
/// Rates at which all are compared.
pub const RATES: [f64; 4] = [0.01, 0.001, 0.0001, 1.0 / 58_000.0];
/// Bits per key at which the goals are measured.
pub const GOAL_BITS: [f64; 2] = [23.4, 10.0];

/// What the contestants of a group are given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Given {
    /// This many bits per key.
    Bits(f64),
    /// As many bits per key as they need for a rate.
    Rate(f64),
    /// As many bits per key as this binary fuse filter has.
    Fuse(Width),
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits(bits) => write!(f, "{bits} bits per key"),
            Self::Rate(rate) => write!(f, "a rate of 1/{:.0}", 1.0 / rate),
            Self::Fuse(width) => write!(f, "as large as BinaryFuse{}", width.bits()),
        }
    }
}

/// A set of filters that are measured together, in turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Number of keys in each filter.
    pub keys: u64,
    /// What they are given.
    pub given: Given,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys, {}", trommel_harness::units::grouped(self.keys), self.given)
    }
}

impl Group {
    /// The contestants, each with its requested bits per key; none for those that get the bits of a
    /// fuse filter once they are known.
    pub fn contestants(&self) -> Vec<(Contestant, Option<f64>)> {
        let sized = [FilterKind::Standard, FilterKind::Blocked, FilterKind::Paired]
            .into_iter()
            .chain([FilterKind::Ribbon])
            .map(Contestant::Ours)
            .chain([Contestant::Fastbloom, Contestant::SplitBlock]);
        match self.given {
            Given::Bits(bits) => sized.map(|contestant| (contestant, Some(bits))).collect(),
            Given::Fuse(width) => {
                let fuse = (Contestant::Fuse(width), Some(f64::from(width.bits())));
                [fuse].into_iter().chain(sized.map(|contestant| (contestant, None))).collect()
            }
            Given::Rate(rate) => {
                let widths = [Width::Eight, Width::Sixteen, Width::ThirtyTwo];
                let found =
                    |contestant| Some((contestant, Some(theory::bits_for(contestant, rate)?)));
                let fuse = widths.into_iter().map(Contestant::Fuse).find_map(found);
                sized.filter_map(found).chain(fuse).collect()
            }
        }
    }
}

/// All groups for these numbers of keys: tiny, small, middle, large, huge.
pub fn groups(keys: [u64; 5]) -> Vec<Group> {
    let [tiny, small, middle, large, huge] = keys;
    let mut groups: Vec<Group> = Vec::new();
    let mut add = |keys, given| {
        let group = Group { keys, given };
        if !groups.contains(&group) {
            groups.push(group);
        }
    };
    for bits in GOAL_BITS {
        for keys in [huge, small, middle] {
            add(keys, Given::Bits(bits));
        }
    }
    for bits in BITS {
        add(middle, Given::Bits(bits));
    }
    for rate in RATES {
        add(middle, Given::Rate(rate));
    }
    for width in [Width::Eight, Width::Sixteen, Width::ThirtyTwo] {
        add(middle, Given::Fuse(width));
    }
    for bits in BITS {
        add(tiny, Given::Bits(bits));
        add(small, Given::Bits(bits));
    }
    for bits in [10.0, 23.4, 16.0] {
        add(large, Given::Bits(bits));
    }
    add(large, Given::Fuse(Width::Eight));
    add(large, Given::Fuse(Width::Sixteen));
    add(huge, Given::Bits(16.0));
    add(large, Given::Rate(RATES[3]));
    add(large, Given::Rate(RATES[0]));
    for bits in [12.0, 8.0] {
        add(large, Given::Bits(bits));
        add(huge, Given::Bits(bits));
    }
    groups
}

/// Decides when to stop.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    limit: Option<Duration>,
    taken: Vec<(u64, Duration)>,
}

impl Clock {
    /// Starts now; nothing is started that would end after `limit`.
    pub fn new(limit: Option<Duration>) -> Self {
        Self { start: Instant::now(), limit, taken: Vec::new() }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Records the time of a group with this many keys.
    pub fn note(&mut self, keys: u64, time: Duration) {
        self.taken.push((keys, time));
    }

    /// Whether there is time for a group with this many keys.
    pub fn has_time_for(&self, keys: u64) -> bool {
        self.limit.is_none_or(|limit| self.elapsed() + self.expected(keys) <= limit)
    }

    /// The expected time of a group with this many keys: a tenth more than the longest one of as
    /// many, or a default.
    fn expected(&self, keys: u64) -> Duration {
        let alike = self.taken.iter().filter(|(other, _)| *other == keys);
        match alike.map(|(_, time)| *time).max() {
            Some(longest) => longest.mul_f64(1.1),
            None => Duration::from_secs_f64(3.0 + keys as f64 * 0.9e-6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_measured_at_every_number_of_keys_once() {
        let keys = [1, 2, 3, 4, 5];
        let groups = groups(keys);
        for keys in keys {
            for bits in BITS {
                let group = Group { keys, given: Given::Bits(bits) };
                assert_eq!(groups.iter().filter(|other| **other == group).count(), 1, "{group}");
            }
        }
        for rate in RATES {
            assert!(groups.contains(&Group { keys: 3, given: Given::Rate(rate) }));
        }
        assert_eq!(groups[0].to_string(), "5 keys, 23.4 bits per key");
    }

    #[test]
    fn a_rate_is_met_by_the_narrowest_fuse_filter() {
        let fuse = |rate| {
            let group = Group { keys: 1000, given: Given::Rate(rate) };
            let last = *group.contestants().last().unwrap();
            last.0
        };
        assert_eq!(fuse(RATES[0]), Contestant::Fuse(Width::Eight));
        assert_eq!(fuse(RATES[3]), Contestant::Fuse(Width::Sixteen));
    }

    #[test]
    fn nothing_is_begun_that_ends_too_late() {
        let mut clock = Clock::new(Some(Duration::from_secs(60)));
        assert!(clock.has_time_for(50_000_000));
        clock.note(50_000_000, Duration::from_secs(58));
        assert!(!clock.has_time_for(50_000_000) && clock.has_time_for(1000));
        assert!(Clock::new(None).has_time_for(u64::MAX));
        assert!(!Clock::new(Some(Duration::ZERO)).has_time_for(1));
    }
}

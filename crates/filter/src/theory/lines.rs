//! How many cache lines a query touches.

use super::{best_paired_probes, best_standard_probes};
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::kind::FilterKind;

/// Mean numbers of cache lines that a query touches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TouchedLines {
    /// For a key that the filter denies.
    pub absent: f64,
    /// For a key that passes.
    pub present: f64,
}

impl TouchedLines {
    /// The lines of a filter that is larger than the cache. A standard filter has one for each
    /// probe, made two at a time until one finds a clear bit, as half of them do. A blocked filter
    /// has one. A paired filter has the primary, and the partner with the probability that all of
    /// the primary's bits are set. A ribbon has as many columns as bits per key, and one line for
    /// every two columns, plus one; a denied key touches 3. A fuse filter has 3, at once.
    ///
    /// ```
    /// use trommel_filter::{FilterKind, theory::TouchedLines};
    ///
    /// let blocked = TouchedLines::of(FilterKind::Blocked, 10.0);
    /// assert_eq!((blocked.absent, blocked.present), (1.0, 1.0));
    /// ```
    #[must_use]
    pub fn of(kind: FilterKind, bits_per_key: f64) -> Self {
        let (absent, present) = match kind {
            FilterKind::None => (0.0, 0.0),
            FilterKind::Standard => {
                let probes = best_standard_probes(bits_per_key);
                (probes_until_denied(probes), f64::from(probes))
            }
            FilterKind::Blocked => (1.0, 1.0),
            FilterKind::Paired => {
                let half = f64::from(best_paired_probes(bits_per_key)) / 2.0;
                (1.0 + (-half).exp2(), 2.0)
            }
            FilterKind::Ribbon => {
                // A column is 16 bytes, in each of two adjacent blocks of slots.
                let present = bits_per_key / 2.0 + 1.0;
                (present.min(3.0), present)
            }
            FilterKind::Fuse => (3.0, 3.0),
        };
        Self { absent, present }
    }
}

/// The mean number of probes that a standard filter makes for a denied key: `probes` at most, two
/// at a time, each of which finds a set bit with probability one half. 8/3 if there are many.
fn probes_until_denied(probes: u32) -> f64 {
    let (mut made, mut reached, mut left) = (0.0, 1.0, probes);
    while left > 0 {
        let together = left.min(2);
        made += reached * f64::from(together);
        reached *= (-f64::from(together)).exp2();
        left -= together;
    }
    (made - reached * f64::from(probes)) / (1.0 - reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_kinds() {
        let lines = |kind, bits| {
            let TouchedLines { absent, present } = TouchedLines::of(kind, bits);
            (absent, present)
        };
        assert_eq!(lines(FilterKind::None, 0.0), (0.0, 0.0));
        assert_eq!(lines(FilterKind::Standard, 1.0), (1.0, 1.0));
        assert_eq!(lines(FilterKind::Standard, 3.0), (2.0, 2.0));
        // Denied by the first two probes of 7, the second two, the third two or the last one.
        let denied = (96.0 * 2.0 + 24.0 * 4.0 + 6.0 * 6.0 + 7.0) / 127.0;
        let (absent, present) = lines(FilterKind::Standard, 10.0);
        assert!((absent - denied).abs() < 1e-12 && present == 7.0, "{absent}, {present}");
        let (absent, _) = lines(FilterKind::Standard, 40.0);
        assert!((absent - 8.0 / 3.0).abs() < 1e-6, "{absent}");
        assert_eq!(lines(FilterKind::Ribbon, 12.0), (3.0, 7.0));
        assert_eq!(lines(FilterKind::Ribbon, 2.0), (2.0, 2.0));
        assert_eq!(lines(FilterKind::Blocked, 10.0), (1.0, 1.0));
        let (absent, present) = lines(FilterKind::Paired, 23.4);
        assert!(absent < 1.005 && present == 2.0, "{absent}, {present}");
    }
}

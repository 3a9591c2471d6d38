//! Axes: their range, their ticks, and the position of a value.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// An axis that starts and ends at a tick.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    /// The range.
    pub(super) range: Range<f64>,
    /// Whether the scale is logarithmic.
    is_logarithmic: bool,
    /// The ticks, all within the range.
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// From zero to the first round number not below `max`, with at most about `count` ticks.
    pub(super) fn linear(max: f64, count: usize) -> Self {
        let step = round_up(max.max(1e-12) / count.max(1) as f64);
        let last = (max / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=last as usize).map(|n| n as f64 * step).collect();
        Self { range: 0.0..last * step, is_logarithmic: false, ticks }
    }

    /// As `linear`, for bytes: ticks are round in the unit that suits `max`.
    pub(super) fn bytes(max: f64, count: usize) -> Self {
        let power = (max.max(1.0).log2() / 10.0).floor().min(5.0);
        let unit = 1024_f64.powf(power);
        let mut axis = Self::linear(max / unit, count);
        axis.ticks.iter_mut().for_each(|tick| *tick *= unit);
        axis.range.end *= unit;
        axis
    }

    /// As `logarithmic`, for bytes: between powers of two, with ticks at some of them.
    pub(super) fn logarithmic_bytes(least: f64, most: f64) -> Self {
        let power = |bytes: f64| bytes.max(1.0).log2();
        let (first, last) = ((power(least) + 1e-6).floor(), (power(most) - 1e-6).ceil());
        let last = last.max(first + 2.0);
        let every =
            [1, 2, 4, 5].into_iter().find(|every| (last - first) / f64::from(*every) <= 7.0);
        let every = every.unwrap_or(10);
        let powers = (first as i32..=last as i32).filter(|power| power % every == 0);
        let ticks = powers.map(|power| 2_f64.powi(power)).collect();
        Self { range: first.exp2()..last.exp2(), is_logarithmic: true, ticks }
    }

    /// From the first to the last of these ticks, extended by `margin` on both sides.
    pub(super) fn between(ticks: Vec<f64>, margin: f64) -> Self {
        let (first, last) = (ticks.first().copied(), ticks.last().copied());
        let range = first.unwrap_or(0.0) - margin..last.unwrap_or(1.0) + margin;
        Self { range, is_logarithmic: false, ticks }
    }

    /// From a round number to another, such as of bits per key, with room for dots at both ends.
    pub(super) fn whole(least: f64, most: f64) -> Self {
        let step = match most - least {
            span if span > 40.0 => 8.0,
            span if span > 12.0 => 4.0,
            span if span > 6.0 => 2.0,
            _ => 1.0,
        };
        // A filter rounded up by a little is no reason for another tick.
        let (first, last) = ((least / step + 0.1).floor(), (most / step - 0.1).ceil().min(1e4));
        let last = last.max(first + 1.0);
        let ticks = (0..=(last - first) as u32).map(|nth| (first + f64::from(nth)) * step);
        Self::between(ticks.collect(), step / 4.0)
    }

    /// From zero to exactly `max`, with ticks at round numbers.
    pub(super) fn exact(max: f64, count: usize) -> Self {
        let mut axis = Self::linear(max, count);
        axis.range.end = max.max(1e-12);
        axis.ticks.retain(|tick| *tick <= max * (1.0 + 1e-9));
        axis
    }

    /// A logarithmic axis between the nearest of 1, 2, 5, 10, 20, ... around all values, with ticks
    /// there; only at powers of ten if the axis holds more than two of these. At least a decade.
    pub(super) fn logarithmic(least: f64, most: f64) -> Self {
        let all: Vec<f64> = steps().collect();
        let mut first = all.iter().rposition(|step| *step <= least * 1.000_001).unwrap_or(0);
        let mut last = all.iter().position(|step| *step >= most * 0.999_999);
        let last = last.get_or_insert(all.len() - 1);
        // Three steps are a decade; a shorter axis shows little.
        while *last < first + 3 {
            first = first.saturating_sub(1);
            *last = (*last + 1).min(all.len() - 1);
        }
        let (low, high) = (all[first], all[*last]);
        let decades = (high / low).log10();
        let every = if decades > 8.0 { 2 } else { 1 };
        let is_tick = |step: &f64| {
            let power = step.log10();
            let is_power = (power - power.round()).abs() < 1e-6;
            let is_nth = is_power && power.round() as i64 % every == 0;
            (low * 0.999..=high * 1.001).contains(step) && (decades <= 2.1 || is_nth)
        };
        Self { range: low..high, is_logarithmic: true, ticks: steps().filter(is_tick).collect() }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let Range { start, end } = self.range;
        let share = if self.is_logarithmic {
            (value / start).ln() / (end / start).ln()
        } else {
            (value - start) / (end - start)
        };
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// 1, 2 and 5 times each power of ten within the range of any figure here.
fn steps() -> impl DoubleEndedIterator<Item = f64> {
    (-12..=15).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)))
}

/// The least of 1, 2, 2.5, 5 times a power of ten that is not below `value`.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let fits = |digit: &&f64| **digit * power >= value * (1.0 - 1e-9);
    [1.0, 2.0, 2.5, 5.0, 10.0].iter().find(fits).unwrap_or(&10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Axes of bytes used to have ticks of 200 KB next to tables in KiB.
    #[test]
    fn ticks_of_bytes_are_round_in_their_units() {
        const KIB: f64 = 1024.0;
        let axis = Axis::bytes(410.0 * KIB, 5);
        assert_eq!(axis.ticks, [0.0, 100.0, 200.0, 300.0, 400.0, 500.0].map(|n| n * KIB));
        assert_eq!(Axis::bytes(900.0, 5).ticks.last(), Some(&1000.0));
        let axis = Axis::logarithmic_bytes(1500.0, 10.0 * KIB * KIB);
        assert_eq!((axis.range.start, axis.range.end), (KIB, 16.0 * KIB * KIB));
        assert_eq!(
            axis.ticks,
            [KIB, 4.0 * KIB, 16.0 * KIB, 64.0 * KIB, 256.0 * KIB]
                .into_iter()
                .chain([1.0, 4.0, 16.0].map(|n| n * KIB * KIB))
                .collect::<Vec<_>>()
        );
        for (least, most) in [(0.0, 1.0), (64.0, 64.0), (1.0, 1e15)] {
            let axis = Axis::logarithmic_bytes(least, most);
            assert!(axis.range.start <= least.max(1.0) && axis.range.end >= most, "{axis:?}");
            assert!((2..=8).contains(&axis.ticks.len()), "{axis:?}");
        }
    }

    #[test]
    fn ticks_are_round_and_hold_all_values() {
        let axis = Axis::linear(410_000.0, 5);
        assert_eq!(axis.ticks, [0.0, 100_000.0, 200_000.0, 300_000.0, 400_000.0, 500_000.0]);
        assert_eq!(axis.range, 0.0..500_000.0);
        let axis = Axis::exact(2.531, 5);
        assert_eq!((axis.range.end, axis.ticks.last()), (2.531, Some(&2.0)));
        for max in [0.0, 1e-9, 1.0, 3.0, 1e12] {
            let axis = Axis::linear(max, 5);
            assert!(axis.range.end >= max && (2..=7).contains(&axis.ticks.len()), "{axis:?}");
        }
    }

    #[test]
    fn logarithmic_ticks_are_decades_unless_these_are_few() {
        let axis = Axis::logarithmic(900.0, 254_719.0);
        assert_eq!(axis.range, 500.0..500_000.0);
        let near = |found: &[f64], expected: &[f64]| {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(a, b)| (a / b - 1.0).abs() < 1e-9)
        };
        assert!(near(&axis.ticks, &[1e3, 1e4, 1e5]), "{axis:?}");
        let axis = Axis::logarithmic(1.2, 6.0);
        assert!(near(&axis.ticks, &[1.0, 2.0, 5.0, 10.0]), "{axis:?}");
        let axis = Axis::logarithmic(3.0, 3.0);
        assert!(near(&axis.ticks, &[1.0, 2.0, 5.0, 10.0]), "{axis:?}");
        for (least, most) in [(0.0, 0.0), (1e300, 1e300), (1e-300, 1e300)] {
            let axis = Axis::logarithmic(least, most);
            assert!(axis.range.end > axis.range.start, "{axis:?}");
        }
    }
}

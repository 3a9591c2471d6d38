//! Plots: rates against size with theoretical curves, and the time of a query against the size of
//! the filter, through the caches and beyond.

use trommel_lab::report::{Scale, Series, plot};

use crate::cell::{Cell, Results, median};
use crate::contestant::Contestant;
use crate::loops::{Pattern, Side};
use crate::plan::{BITS, Given};
use crate::theory::rate_at;

/// Bits per key of the filters whose times are drawn.
const TIMED_BITS: f64 = 10.0;

/// All drawings that the results suffice for, each with a name.
pub fn all(results: &Results) -> Vec<(&'static str, String)> {
    let rates = plot(
        "Rate of false positives; lines are theory",
        "rate by bits per key",
        &series(|contestant| rates(results, contestant)),
        Scale::Linear,
        Scale::Rate,
    );
    let times = plot(
        "Absent keys, independent questions, 10 bits per key",
        "ns a question by the filter's size",
        &series(|contestant| times(results, contestant)),
        Scale::Bytes,
        Scale::Nanoseconds,
    );
    let drawn = [("rates", rates), ("times", times)];
    drawn.into_iter().filter_map(|(name, drawing)| Some((name, drawing?))).collect()
}

/// Points of a contestant, and those of its line.
type Points = (Vec<(f64, f64)>, Vec<(f64, f64)>);

/// Of each filter whose size can be chosen.
fn series(points: impl Fn(Contestant) -> Points) -> Vec<Series> {
    let sized = Contestant::ALL.into_iter().filter(|one| !matches!(one, Contestant::Fuse(_)));
    let of = |(colour, contestant): (usize, Contestant)| {
        let (dots, line) = points(contestant);
        Series { name: contestant.to_string(), colour, dots, line }
    };
    sized.enumerate().map(of).collect()
}

fn rates(results: &Results, contestant: Contestant) -> Points {
    let keys = results.machine.keys.get(2).copied().unwrap_or_default();
    let name = contestant.to_string();
    let point = |bits: f64| {
        let group = Given::Bits(bits).to_string();
        let cell = results.of(keys, &group).find(|cell| cell.contestant == name)?;
        Some((cell.bits, cell.rate.measured()?))
    };
    let at = |tenths: u32| {
        let bits = f64::from(tenths) / 10.0;
        Some((bits, rate_at(contestant, bits)?))
    };
    let line = (70..=250).step_by(2).filter_map(at);
    (BITS.into_iter().filter_map(point).collect(), line.collect())
}

fn times(results: &Results, contestant: Contestant) -> Points {
    let mode = (Side::Negative, Pattern::Independent);
    let (name, group) = (contestant.to_string(), Given::Bits(TIMED_BITS).to_string());
    let of_name = |cell: &&Cell| cell.contestant == name && !cell.build_ns.is_empty();
    let plain = results.cells.iter().filter(of_name).filter(|cell| cell.group == group);
    let mut points: Vec<(f64, f64)> = plain
        .filter_map(|cell| Some((cell.bytes(), median(cell.rounds(mode))?.max(0.1))))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    (points.clone(), points)
}

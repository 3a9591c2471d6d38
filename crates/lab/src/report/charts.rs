//! The charts of a page.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use plotters::prelude::{Cartesian2d, Circle, PathElement, SVGBackend};
use plotters::prelude::{ChartBuilder, ChartContext};
use plotters::style::{Color as _, TRANSPARENT};
use trommel_harness::record::{FilterRecord, Record};

use super::axis::Axis;
use super::html::{rate, short, tick_rate, time};
use super::svg::{Area, Failed, Role, SCALE, axis_text, chart};

/// Number of nines at which a percentile curve ends: 99.999%.
const NINES_MAX: f64 = 5.0;
/// Points of a percentile curve.
const CURVE_POINTS: usize = 120;

/// A chart with its axes.
pub(super) type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Axis, Axis>>;

/// Starts a chart: the grid and the labels of both axes at the given ticks.
pub(super) fn frame<'a>(
    area: &Area<'a>,
    (x, show_x): (Axis, &dyn Fn(&f64) -> String),
    (y, show_y): (Axis, &dyn Fn(&f64) -> String),
) -> Result<Chart<'a>, Failed> {
    let mut chart = ChartBuilder::on(area)
        .margin_top(9 * SCALE)
        .margin_right(26 * SCALE)
        .x_label_area_size(24 * SCALE)
        .y_label_area_size(56 * SCALE)
        .build_cartesian_2d(x, y)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(Role::Grid.line(10))
        .light_line_style(TRANSPARENT)
        .axis_style(Role::Grid.line(10))
        .set_all_tick_mark_size(4 * SCALE)
        .label_style(axis_text())
        .x_label_formatter(show_x)
        .y_label_formatter(show_y)
        .draw()?;
    Ok(chart)
}

/// Operations per second over time: for each series, a step curve over the intervals. None without
/// a record of several intervals.
pub(super) fn throughput(id: &str, title: &str, series: &[Vec<&Record>]) -> Option<String> {
    let lines: Vec<(usize, Vec<(f64, f64)>)> = series
        .iter()
        .enumerate()
        .flat_map(|(nth, records)| records.iter().map(move |record| (nth, steps(record))))
        .filter(|(_, points)| points.len() > 2)
        .collect();
    let points = || lines.iter().flat_map(|(_, points)| points);
    let seconds = points().map(|point| point.0).fold(0.0, f64::max);
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    if lines.is_empty() || !(seconds > 0.0 && most > 0.0 && most < 1e15 && seconds < 1e12) {
        return None;
    }
    let (x, y) = (Axis::exact(seconds, 6), Axis::linear(most, 4));
    let description = format!(
        "Operations a second over {seconds:.1} seconds, up to {} a second. The numbers are in the \
         table below.",
        short(most)
    );
    chart(id, title, &description, |area| {
        let seconds = |seconds: &f64| format!("{} s", short(*seconds));
        let mut chart = frame(area, (x, &seconds), (y, &|speed| short(*speed)))?;
        for (nth, points) in lines {
            // Repeats are drawn on top of each other.
            let style = match series[nth].len() {
                1 => Role::Series(nth).line(18),
                _ => Role::Series(nth).faint_line(16),
            };
            chart.draw_series([PathElement::new(points, style)])?;
        }
        Ok(())
    })
}

/// A record's operations per second: two points for each interval. A truncated last interval is
/// merged with the one before it, because its rate says little.
fn steps(record: &Record) -> Vec<(f64, f64)> {
    let mut series = record.results.series.clone();
    if let [.., (start, _), (middle, _), (end, _)] = series[..]
        && end - middle < (middle - start) / 2.0
        && let Some((_, operations)) = series.pop()
        && let Some(last) = series.last_mut()
    {
        *last = (end, last.1.saturating_add(operations));
    }
    let (mut start, mut points) = (0.0, Vec::new());
    for (end, operations) in series {
        if end > start {
            let speed = operations as f64 / (end - start);
            points.extend([(start, speed), (end, speed)]);
            start = end;
        }
    }
    points
}

/// Latencies by percentile, on a scale of nines. None if no series has latencies.
pub(super) fn latency(id: &str, title: &str, series: &[Option<Histogram<u64>>]) -> Option<String> {
    let curves: Vec<(usize, Vec<(f64, f64)>)> = series
        .iter()
        .enumerate()
        .filter_map(|(nth, histogram)| Some((nth, curve(histogram.as_ref()?))))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let points = || curves.iter().flat_map(|(_, points)| points);
    let nines = points().map(|point| point.0).fold(0.0, f64::max);
    let least = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    if curves.is_empty() || nines <= 0.0 {
        return None;
    }
    let y = Axis::logarithmic(least, most);
    let x_ticks = (0..=nines.floor() as usize).map(|nines| nines as f64).collect();
    let description = format!(
        "Time of an operation by the share of operations that took no longer: from {} to {} at \
         the end of the curve. The percentiles are in the table below.",
        time(least),
        time(most)
    );
    chart(id, title, &description, |area| {
        let mut x = Axis::between(x_ticks, 0.0);
        x.range.end = nines;
        let mut chart = frame(area, (x, &|nines| percent(*nines)), (y, &|nanos| time(*nanos)))?;
        for (nth, points) in curves {
            chart.draw_series([PathElement::new(points, Role::Series(nth).line(18))])?;
        }
        Ok(())
    })
}

/// The percentage with this many nines: 0%, 90%, 99%, 99.9%.
fn percent(nines: f64) -> String {
    match nines.round() as usize {
        0 => "0%".into(),
        1 => "90%".into(),
        2 => "99%".into(),
        more => format!("99.{}%", "9".repeat(more - 2)),
    }
}

/// Points of a percentile curve: nines and nanoseconds.
fn curve(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    if histogram.is_empty() {
        return Vec::new();
    }
    // Beyond this the curve would show a single operation.
    let end = (histogram.len() as f64).log10().clamp(1.0, NINES_MAX);
    (0..=CURVE_POINTS)
        .map(|at| {
            let nines = end * at as f64 / CURVE_POINTS as f64;
            let nanos = histogram.value_at_quantile(1.0 - 10_f64.powf(-nines));
            (nines, nanos.max(1) as f64)
        })
        .collect()
}

/// False-positive rates: one column per level, and in it for each series (and each kind of filter,
/// if a level has several) the measured rate with its interval, on a line at the expected rate.
/// None without a rate.
pub(super) fn rates(id: &str, title: &str, series: &[Vec<FilterRecord>]) -> Option<String> {
    let mut columns: BTreeMap<u64, Vec<(usize, &FilterRecord)>> = BTreeMap::new();
    for (nth, filters) in series.iter().enumerate() {
        for filter in filters.iter().filter(|filter| filter.rates.measured.is_some()) {
            columns.entry(filter.level).or_default().push((nth, filter));
        }
    }
    let all = || columns.values().flatten().map(|(_, filter)| *filter);
    let values = |filter: &FilterRecord| {
        let (low, high) = filter.rates.interval.unzip();
        [low, high, filter.rates.expected, filter.rates.measured]
    };
    let positive: Vec<f64> =
        all().flat_map(values).flatten().filter(|rate| (1e-12..=1.0).contains(rate)).collect();
    let least = positive.iter().copied().reduce(f64::min)?;
    let y = Axis::logarithmic(least, positive.iter().copied().fold(0.0, f64::max));
    let description = all().map(described).collect::<Vec<_>>().join(" ");
    let levels: Vec<u64> = columns.keys().copied().collect();
    chart(id, title, &description, |area| {
        let x = Axis::between((0..levels.len()).map(|at| at as f64).collect(), 0.5);
        let name_of = |at: &f64| format!("L{}", levels[at.round() as usize]);
        let lowest = y.range.start;
        let mut chart = frame(area, (x, &name_of), (y, &|value| tick_rate(*value, lowest)))?;
        for (at, column) in columns.values().enumerate() {
            let slot = (0.8 / column.len() as f64).min(0.3);
            let first = at as f64 - slot * (column.len() as f64 - 1.0) / 2.0;
            for (place, (nth, filter)) in column.iter().enumerate() {
                draw_rate(&mut chart, first + place as f64 * slot, slot * 0.4, *nth, filter)?;
            }
        }
        Ok(())
    })
}

/// One rate: a line at the expected rate, the interval, and the dot. Values that are not above zero
/// cannot be drawn, and an interval that starts there is reduced to its end.
fn draw_rate(
    chart: &mut Chart<'_>,
    middle: f64,
    half: f64,
    nth: usize,
    filter: &FilterRecord,
) -> Result<(), Failed> {
    let bottom = chart.y_range().start;
    let role = Role::Series(nth);
    if let Some(expected) = filter.rates.expected.filter(|rate| *rate > 0.0) {
        let ends = vec![(middle - half, expected), (middle + half, expected)];
        chart.draw_series([PathElement::new(ends, Role::Theory.line(15))])?;
    }
    if let Some((low, high)) = filter.rates.interval {
        let ends = vec![(middle, low.max(bottom)), (middle, high.max(bottom))];
        chart.draw_series([PathElement::new(ends, role.line(18))])?;
    }
    if let Some(measured) = filter.rates.measured.filter(|rate| *rate > 0.0) {
        let dot = Circle::new((middle, measured), 7 * SCALE / 2, role.colour().filled());
        chart.draw_series([dot])?;
    }
    Ok(())
}

fn described(filter: &FilterRecord) -> String {
    let show = |value: Option<f64>| value.map_or("unknown".into(), rate);
    format!(
        "Level {}, {}: measured {}, expected {}.",
        filter.level,
        filter.kind,
        show(filter.rates.measured),
        show(filter.rates.expected)
    )
}

#[cfg(test)]
mod tests {
    use trommel_harness::record::Results;

    use super::*;

    fn record(series: &[(f64, u64)]) -> Record {
        let results = Results { series: series.to_vec(), ..Results::default() };
        Record { results, ..Record::default() }
    }

    #[test]
    fn a_last_interval_that_was_cut_short_is_joined() {
        let steps = |series| steps(&record(series));
        let whole = [(0.0, 100.0), (1.0, 100.0), (1.0, 200.0), (2.0, 200.0)];
        assert_eq!(steps(&[(1.0, 100), (2.0, 200)]), whole);
        assert_eq!(
            steps(&[(1.0, 100), (2.0, 200), (2.25, 25)])[2..],
            [(1.0, 180.0), (2.25, 180.0)]
        );
        assert_eq!(steps(&[(1.0, 100), (2.0, 200), (3.0, 300)]).len(), 6);
        assert_eq!(steps(&[(0.0, 7), (-1.0, 8)]), []);
    }

    #[test]
    fn shares_are_named_by_their_nines() {
        let names: Vec<String> = (0..6).map(|nines| percent(f64::from(nines))).collect();
        assert_eq!(names, ["0%", "90%", "99%", "99.9%", "99.99%", "99.999%"]);
    }

    #[test]
    fn without_anything_to_draw_there_is_no_chart() {
        assert_eq!(throughput("a", "", &[vec![&record(&[(1.0, 5)])]]), None);
        assert_eq!(latency("a", "", &[None]), None);
        assert_eq!(rates("a", "", &[vec![FilterRecord::default()]]), None);
    }
}

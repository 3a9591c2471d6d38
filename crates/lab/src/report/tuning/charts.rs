//! The charts of the page about experiments.

use plotters::element::{Circle, PathElement};
use plotters::style::Color as _;
use trommel_harness::units;

use super::groups::{Group, Groups};
use crate::report::axis::Axis;
use crate::report::charts::{Chart as Frame, frame};
use crate::report::html::{digits, tick};
use crate::report::svg::{Failed, Role, SCALE, chart};
use crate::tune::{Estimate, Record};

/// The lowest value of wasted reads on an axis: no run can measure one so rare.
const LEAST_WASTE: f64 = 1e-11;
/// Greater than any axis.
const MOST: f64 = 1e15;
/// Tolerated deviation of a prediction, as a fraction.
const TOLERANCE: f64 = 0.05;
/// Largest deviation that the chart shows, as a fraction.
const FARTHEST: f64 = 0.5;

/// A finished chart.
pub(super) struct TuningChart {
    /// Its name, unique among the charts of these records.
    pub(super) name: String,
    pub(super) title: String,
    /// A description of its axes.
    pub(super) what: String,
    pub(super) svg: String,
}

/// A figure to draw against the filters' bytes.
struct Cost {
    /// The first part of the chart's name.
    name: &'static str,
    what: &'static str,
    of: fn(&Record) -> Estimate,
    is_logarithmic: bool,
}

/// Wasted reads against bytes, for each group of several filters.
pub(super) fn waste(groups: &Groups<'_>) -> Vec<TuningChart> {
    let cost = Cost {
        name: "waste",
        what: "wasted reads a lookup by filter bytes",
        of: |record| record.measured.wasted_reads,
        is_logarithmic: true,
    };
    fronts(groups, &cost)
}

/// Lookup times against bytes, for each group of several filters.
pub(super) fn times(groups: &Groups<'_>) -> Vec<TuningChart> {
    let cost = Cost {
        name: "time",
        what: "µs a lookup by filter bytes",
        of: |record| record.measured.micros,
        is_logarithmic: false,
    };
    fronts(groups, &cost)
}

fn fronts(groups: &Groups<'_>, cost: &Cost) -> Vec<TuningChart> {
    let several = groups.groups.iter().enumerate().filter(|(_, group)| group.records.len() > 1);
    several.filter_map(|(nth, group)| front(groups, group, nth, cost)).collect()
}

/// A size as an axis label.
fn bytes(bytes: &f64) -> String {
    units::bytes(bytes.round() as u64)
}

fn front(groups: &Groups<'_>, group: &Group<'_>, nth: usize, cost: &Cost) -> Option<TuningChart> {
    let of = cost.of;
    let is_shown = |record: &Record| {
        (LEAST_WASTE..MOST).contains(&of(record).mean) && (0.0..MOST).contains(&record.filter_bytes)
    };
    let shown = || group.records.iter().filter(|record| is_shown(record));
    let most_bytes = shown().map(|record| record.filter_bytes).reduce(f64::max)?;
    let least = shown().map(|record| of(record).mean).reduce(f64::min)?;
    let most = shown().map(|record| of(record).interval.1).fold(0.0, f64::max);
    let x = Axis::bytes(most_bytes, 4);
    let y = match cost.is_logarithmic {
        true => Axis::logarithmic(least, most),
        false => Axis::linear(most, 4),
    };
    let described: Vec<String> = shown()
        .map(|record| {
            let (size, mean) = (bytes(&record.filter_bytes), digits(of(record).mean));
            format!("{}: {mean} with {size}.", record.cell.filters)
        })
        .collect();
    let title = group.place.clone();
    let name = format!("{}-{}", cost.name, nth + 1);
    let svg = chart(&name, &title, &described.join(" "), |area| {
        let mut chart = frame(area, (x, &bytes), (y, &|value| tick(*value)))?;
        let best = group.front(|record| of(record).mean);
        let best = best.into_iter().filter(|record| is_shown(record));
        let line: Vec<_> = best.map(|record| (record.filter_bytes, of(record).mean)).collect();
        chart.draw_series([PathElement::new(line, Role::Theory.line(12))])?;
        for (role, records) in groups.by_family(group) {
            let shown: Vec<_> = records.into_iter().filter(|record| is_shown(record)).collect();
            let line: Vec<_> =
                shown.iter().map(|record| (record.filter_bytes, of(record).mean)).collect();
            chart.draw_series([PathElement::new(line, role.faint_line(12))])?;
            for record in shown {
                dot(&mut chart, role, record.filter_bytes, &of(record))?;
            }
        }
        Ok(())
    })?;
    Some(TuningChart { name, title, what: cost.what.into(), svg })
}

/// A mean with its interval, clipped to the axis.
fn dot(chart: &mut Frame<'_>, role: Role, x: f64, estimate: &Estimate) -> Result<(), Failed> {
    let range = chart.y_range();
    let inside = |value: f64| value.clamp(range.start, range.end);
    let ends = vec![(x, inside(estimate.interval.0)), (x, inside(estimate.interval.1))];
    chart.draw_series([PathElement::new(ends, role.line(14))])?;
    if range.start <= estimate.mean && estimate.mean <= range.end {
        let dot = Circle::new((x, estimate.mean), 3 * SCALE, role.colour().filled());
        chart.draw_series([dot])?;
    }
    Ok(())
}

/// Measured against predicted values, and the deviations.
pub(super) fn prediction(groups: &Groups<'_>) -> Vec<TuningChart> {
    let dots: Vec<(Role, &Record)> = groups
        .groups
        .iter()
        .flat_map(|group| groups.by_family(group))
        .flat_map(|(role, records)| records.into_iter().map(move |record| (role, record)))
        .filter(|(_, record)| {
            let (predicted, measured) =
                (record.predicted.wasted_reads, record.measured.wasted_reads.mean);
            [predicted, measured].iter().all(|value| (LEAST_WASTE..MOST).contains(value))
        })
        .collect();
    let values = || {
        dots.iter().flat_map(|(_, record)| {
            [record.predicted.wasted_reads, record.measured.wasted_reads.mean]
        })
    };
    let (Some(least), Some(most)) = (values().reduce(f64::min), values().reduce(f64::max)) else {
        return Vec::new();
    };
    let described: Vec<String> = dots
        .iter()
        .map(|(_, record)| {
            let (predicted, measured) =
                (record.predicted.wasted_reads, record.measured.wasted_reads.mean);
            let (predicted, measured) = (digits(predicted), digits(measured));
            format!("{}: predicted {predicted}, measured {measured}.", record.cell.name())
        })
        .collect();
    let described = described.join(" ");
    let axis = Axis::logarithmic(least, most);
    [equality(&dots, &axis, &described), deviation(&dots, &axis, &described)]
        .into_iter()
        .flatten()
        .collect()
}

fn equality(dots: &[(Role, &Record)], axis: &Axis, described: &str) -> Option<TuningChart> {
    let (title, what) = ("Wasted reads a lookup", "measured by predicted");
    let show = |value: &f64| tick(*value);
    let svg = chart("predicted", title, described, |area| {
        let mut chart = frame(area, (axis.clone(), &show), (axis.clone(), &show))?;
        let (start, end) = (axis.range.start, axis.range.end);
        let line = vec![(start, start), (end, end)];
        chart.draw_series([PathElement::new(line, Role::Theory.line(10))])?;
        for (role, record) in dots {
            dot(&mut chart, *role, record.predicted.wasted_reads, &record.measured.wasted_reads)?;
        }
        Ok(())
    })?;
    Some(TuningChart { name: "predicted".into(), title: title.into(), what: what.into(), svg })
}

fn deviation(dots: &[(Role, &Record)], axis: &Axis, described: &str) -> Option<TuningChart> {
    let (title, what) =
        ("How far off", "measured less predicted, as a share of predicted, by predicted");
    let shares: Vec<(Role, f64, Estimate)> = dots
        .iter()
        .map(|(role, record)| {
            let predicted = record.predicted.wasted_reads;
            let share = |value: f64| record.off_by(value);
            let Estimate { mean, standard_error, interval } = record.measured.wasted_reads;
            let interval = (share(interval.0), share(interval.1));
            (*role, predicted, Estimate { mean: share(mean), standard_error, interval })
        })
        .collect();
    let far = |e: &Estimate| e.mean.abs().max(e.interval.0.abs()).max(e.interval.1.abs());
    let most = shares.iter().map(|(_, _, share)| far(share)).fold(TOLERANCE, f64::max);
    let step = [0.05, 0.1, 0.25].into_iter().find(|step| most <= 2.0 * step).unwrap_or(FARTHEST);
    let ticks = (-2..=2).map(|nth| f64::from(nth) * step).collect();
    let y = Axis::between(ticks, step / 4.0);
    let percent = |share: &f64| format!("{:+.0}%", share * 100.0).replace("+0%", "0%");
    let svg = chart("off", title, described, |area| {
        let mut chart = frame(area, (axis.clone(), &|value| tick(*value)), (y, &percent))?;
        let (start, end) = (axis.range.start, axis.range.end);
        for (share, role) in [
            (-TOLERANCE, Role::Theory.faint_line(7)),
            (0.0, Role::Theory.line(10)),
            (TOLERANCE, Role::Theory.faint_line(7)),
        ] {
            chart.draw_series([PathElement::new(vec![(start, share), (end, share)], role)])?;
        }
        for (role, x, share) in &shares {
            dot(&mut chart, *role, *x, share)?;
        }
        Ok(())
    })?;
    Some(TuningChart { name: "off".into(), title: title.into(), what: what.into(), svg })
}

//! The charts of a page about filters.

use plotters::element::{Circle, PathElement};
use plotters::style::Color as _;
use trommel::filter::{FilterKind, FilterSpec, theory};
use trommel_harness::machine::Cache;
use trommel_harness::units;

use super::role;
use crate::filter_bench::{Access, FilterCell, Mix, Rate};
use crate::report::axis::Axis;
use crate::report::charts::{Chart as Frame, frame};
use crate::report::html::{rate, short, tick_rate, time};
use crate::report::lines::{Lines, Series, Show};
use crate::report::svg::{Failed, SCALE, chart};

/// The lowest rate on an axis: no run can measure one so rare.
const LEAST_RATE: f64 = 1e-11;
/// Points of a theoretical curve.
const CURVE_POINTS: u32 = 160;
/// Bits per key to show if several are equally common.
const USUAL_BITS: f64 = 10.0;

/// A finished chart.
pub(super) struct FilterChart {
    /// Its name, in file names and in the page.
    pub(super) id: &'static str,
    pub(super) title: String,
    /// A description of its axes.
    pub(super) what: String,
    pub(super) svg: String,
}

/// Rates against bits per key. None without rates.
pub(super) fn rates(cells: &[&FilterCell]) -> Option<FilterChart> {
    let rated: Vec<_> = cells.iter().filter_map(|cell| Some((*cell, cell.rate?))).collect();
    let bits =
        || rated.iter().map(|(cell, _)| cell.built.stored_bits).filter(|bits| bits.is_finite());
    let x = Axis::whole(bits().reduce(f64::min)?, bits().reduce(f64::max)?);
    // The expected rate of filters without false positives would only lengthen the axis.
    let values = rated.iter().flat_map(|(_, rate)| match rate.false_positives {
        0 => [rate.interval.1; 3],
        _ => [rate.expected, rate.measured, rate.interval.1],
    });
    let values: Vec<f64> = values.filter(|value| *value > LEAST_RATE && *value <= 1.0).collect();
    let least = values.iter().copied().reduce(f64::min)?;
    let most = values.iter().copied().fold(0.0, f64::max);
    let y = Axis::logarithmic(least, most);
    let described: Vec<String> = rated
        .iter()
        .map(|(cell, found)| {
            let (measured, expected) = (rate(found.measured), rate(found.expected));
            format!("{}: measured {measured}, expected {expected}.", cell.setup.spec)
        })
        .collect();
    let title = "False positives".to_owned();
    let svg = chart("rates", &title, &described.join(" "), |area| {
        let (left, right) = (x.range.start, x.range.end);
        let lowest = y.range.start;
        let show_rate = |value: &f64| tick_rate(*value, lowest);
        let mut chart = frame(area, (x, &|bits| short(*bits)), (y, &show_rate))?;
        let bottom_to_top = chart.y_range();
        for kind in super::KINDS {
            if !rated.iter().any(|(cell, _)| cell.setup.kind == kind) {
                continue;
            }
            let step = (right - left) / f64::from(CURVE_POINTS);
            let points = (0..=CURVE_POINTS).map(|nth| left + f64::from(nth) * step);
            let points = points.filter_map(|bits| Some((bits, expected(kind, bits)?)));
            let points: Vec<_> = points.filter(|point| bottom_to_top.contains(&point.1)).collect();
            chart.draw_series([PathElement::new(points, role(kind).line(12))])?;
        }
        for (cell, rate) in &rated {
            draw_rate(&mut chart, cell, rate)?;
        }
        Ok(())
    })?;
    Some(FilterChart { id: "rates", title, what: "rate against bits per key stored".into(), svg })
}

/// One rate: its interval and the dot; or, without a false positive, a faint line below its upper
/// bound.
fn draw_rate(chart: &mut Frame<'_>, cell: &FilterCell, rate: &Rate) -> Result<(), Failed> {
    let (x, role) = (cell.built.stored_bits, role(&cell.setup.kind));
    let range = chart.y_range();
    let inside = |value: f64| value.clamp(range.start, range.end);
    let ends = vec![(x, inside(rate.interval.0)), (x, inside(rate.interval.1))];
    if rate.measured <= range.start {
        chart.draw_series([PathElement::new(ends, role.faint_line(8))])?;
        let cap = vec![(x - 0.2, inside(rate.interval.1)), (x + 0.2, inside(rate.interval.1))];
        chart.draw_series([PathElement::new(cap, role.line(12))])?;
        return Ok(());
    }
    chart.draw_series([PathElement::new(ends, role.line(18))])?;
    let dot = Circle::new((x, rate.measured), 3 * SCALE, role.colour().filled());
    chart.draw_series([dot])?;
    Ok(())
}

/// The rate that theory expects of a kind with this many bits, for many keys.
fn expected(kind: &str, bits: f64) -> Option<f64> {
    let spec: FilterSpec = format!("{kind}:{bits:.3}").parse().ok()?;
    (spec.kind() != FilterKind::None).then(|| theory::best_fpr(spec.kind(), spec.bits_per_key()))
}

/// For each kind, the cells of one number of bits: the most common one, or the nearest available.
fn at_one_size<'a>(cells: &[&'a FilterCell]) -> (f64, Vec<(&'a str, Vec<&'a FilterCell>)>) {
    let times = |bits: f64| cells.iter().filter(|cell| cell.setup.bits == bits).count();
    let far = |bits: f64, from: f64| (bits - from).abs();
    let better = |a: &f64, b: &f64| {
        let usual = far(*b, USUAL_BITS).total_cmp(&far(*a, USUAL_BITS));
        times(*a).cmp(&times(*b)).then(usual)
    };
    let common = cells.iter().map(|cell| cell.setup.bits).max_by(better).unwrap_or(USUAL_BITS);
    let mut found = Vec::new();
    for kind in super::KINDS {
        let of_kind = || cells.iter().copied().filter(|cell| cell.setup.kind == kind);
        let nearest = of_kind()
            .map(|cell| cell.setup.bits)
            .min_by(|a, b| far(*a, common).total_cmp(&far(*b, common)));
        if let Some(bits) = nearest {
            found.push((kind, of_kind().filter(|cell| cell.setup.bits == bits).collect()));
        }
    }
    (common, found)
}

/// Whether there is more than one number among these.
fn differ(numbers: impl Iterator<Item = u64>) -> bool {
    let mut numbers = numbers.peekable();
    let first = numbers.peek().copied();
    numbers.any(|number| Some(number) != first)
}

/// Query times against the filter's size, for absent and for present keys; against bits if all
/// filters have the same number of keys.
pub(super) fn times(cells: &[&FilterCell], caches: &[Cache]) -> [Option<FilterChart>; 2] {
    let over_keys = differ(cells.iter().map(|cell| cell.setup.average_keys));
    let (bits, at_one) = at_one_size(cells);
    let kinds = if over_keys { at_one } else { by_kind(cells) };
    let timed = |mix| {
        series(&kinds, |cell| {
            let net = cell.net_ns(Access::Single, mix)?;
            let x = if over_keys { cell.built.single_bytes as f64 } else { cell.built.stored_bits };
            Some((x, net.max(0.0)))
        })
    };
    let both = [timed(Mix::Outside), timed(Mix::Inside)];
    let all = || both.iter().flatten().flat_map(|series| &series.points);
    let sizes = || all().map(|point| point.0);
    let (Some(least), Some(largest)) = (sizes().reduce(f64::min), sizes().reduce(f64::max)) else {
        return [None, None];
    };
    let most = all().map(|point| point.1).fold(1.0, f64::max);
    let (x, what, marks) = if over_keys {
        let what = format!("ns by size, {} bits per key", short(bits));
        (Axis::logarithmic_bytes(least, largest), what, caches)
    } else {
        (Axis::whole(least, largest), "ns by bits per key".into(), &[][..])
    };
    let show_x: Show<'_> = match over_keys {
        true => &|bytes| units::bytes(bytes.round() as u64),
        false => &|bits| short(*bits),
    };
    // Marks have their words above the highest line.
    let y = Axis::linear(most * if marks.is_empty() { 1.0 } else { 1.1 }, 5);
    let draw = |id, title: &str, series: &[Series]| {
        let (x, y): (_, (_, Show<'_>)) = ((x.clone(), show_x), (y.clone(), &|nanos| time(*nanos)));
        let lines = Lines { id, title, series, x, y, marks };
        let svg = (!series.is_empty() && most.is_finite()).then(|| lines.draw())??;
        Some(FilterChart { id, title: title.to_owned(), what: what.clone(), svg })
    };
    [draw("absent-keys", "Absent keys", &both[0]), draw("present-keys", "Present keys", &both[1])]
}

/// The static string of a kind's name.
fn series(
    kinds: &[(&str, Vec<&FilterCell>)],
    point: impl Fn(&FilterCell) -> Option<(f64, f64)>,
) -> Vec<Series> {
    let of_kind = |(kind, cells): &(&str, Vec<&FilterCell>)| {
        let mut points: Vec<_> = cells.iter().filter_map(|cell| point(cell)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name: (*kind).to_owned(), role: role(kind), points }
    };
    kinds.iter().map(of_kind).filter(|series| !series.points.is_empty()).collect()
}

/// All cells of each kind.
fn by_kind<'a>(cells: &[&'a FilterCell]) -> Vec<(&'a str, Vec<&'a FilterCell>)> {
    let of = |kind| cells.iter().copied().filter(|cell| cell.setup.kind == kind).collect();
    super::KINDS.into_iter().map(|kind| (kind, of(kind))).collect()
}

/// The cost of construction in time and memory: against keys if these differ, or else against bits.
pub(super) fn build(cells: &[&FilterCell]) -> [Option<FilterChart>; 2] {
    let over_keys = differ(cells.iter().map(|cell| cell.setup.average_keys));
    let (bits, at_one) = at_one_size(cells);
    let groups = if over_keys { at_one } else { by_kind(cells) };
    let x_of =
        |cell: &FilterCell| if over_keys { cell.keys_per_filter() } else { cell.built.stored_bits };
    let draw = |id,
                title: &str,
                unit: &str,
                value: &dyn Fn(&FilterCell) -> Option<f64>,
                show_y: Show<'_>| {
        let series = series(&groups, |cell| Some((x_of(cell), value(cell)?)));
        let all = || series.iter().flat_map(|series| &series.points);
        let xs = || all().map(|point| point.0);
        let (least, most) = (xs().reduce(f64::min)?, xs().reduce(f64::max)?);
        let (x, what) = if over_keys {
            let what = format!("{unit} a key by keys, {} bits per key", short(bits));
            (Axis::logarithmic(least, most), what)
        } else {
            (Axis::whole(least, most), format!("{unit} a key by bits per key"))
        };
        let highest = all().map(|point| point.1).fold(1.0, f64::max);
        let y = Axis::linear(highest.is_finite().then_some(highest)?, 5);
        let (x, y): ((_, Show<'_>), _) = ((x, &|x| short(*x)), (y, show_y));
        let svg = Lines { id, title, series: &series, x, y, marks: &[] }.draw()?;
        Some(FilterChart { id, title: title.to_owned(), what, svg })
    };
    [
        draw("build-time", "Time to build", "ns", &|cell| Some(cell.built.build_ns), &|nanos| {
            time(*nanos)
        }),
        draw(
            "build-memory",
            "Memory to build",
            "bytes",
            &|cell| Some(cell.built.build_bytes),
            &|bytes| format!("{} B", short(*bytes)),
        ),
    ]
}

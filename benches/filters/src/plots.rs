//! Plots: rates against size with theoretical curves, and the time of a query against the size of
//! the filter, through the caches and beyond.

use plotters::prelude::*;

use crate::cell::{Cell, Results, median};
use crate::contestant::Contestant;
use crate::loops::{Pattern, Side};
use crate::plan::{BITS, Given};
use crate::theory::rate_at;

const SIZE: (u32, u32) = (900, 540);
/// Colours that are distinguishable with any colour vision, on white (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
/// Bits per key of the filters whose times are drawn.
const TIMED_BITS: f64 = 10.0;

/// A named series of points.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    /// The theoretical curve.
    line: Vec<(f64, f64)>,
}

/// All plots for which there is enough data, each with a name.
pub fn all(results: &Results) -> Vec<(&'static str, String)> {
    let rates = Chart {
        title: "Rate of false positives by bits per key; lines are theory",
        across: "bits per key",
        up: "rate",
    };
    let times = Chart {
        title: "Absent keys, independent questions, 10 bits per key",
        across: "bytes of the filter",
        up: "ns",
    };
    let drawn = [
        ("rates", rates.draw(&rate_series(results), Across::Linear)),
        ("times", times.draw(&time_series(results), Across::Logarithmic)),
    ];
    drawn.into_iter().filter_map(|(name, drawing)| Some((name, drawing?))).collect()
}

/// The filters whose size can be chosen.
fn sized() -> impl Iterator<Item = Contestant> {
    Contestant::ALL.into_iter().filter(|contestant| !matches!(contestant, Contestant::Fuse(_)))
}

fn rate_series(results: &Results) -> Vec<Series> {
    let keys = results.machine.keys.get(2).copied().unwrap_or_default();
    let of = |contestant: Contestant| {
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
        let points = BITS.into_iter().filter_map(point).collect();
        Series { name: name.clone(), points, line: (70..=250).step_by(2).filter_map(at).collect() }
    };
    sized().map(of).collect()
}

fn time_series(results: &Results) -> Vec<Series> {
    let mode = (Side::Negative, Pattern::Independent);
    let group = Given::Bits(TIMED_BITS).to_string();
    let of = |contestant: Contestant| {
        let name = contestant.to_string();
        let of_name = |cell: &&Cell| cell.contestant == name && !cell.build_ns.is_empty();
        let plain = results.cells.iter().filter(of_name).filter(|cell| cell.group == group);
        let mut points: Vec<(f64, f64)> = plain
            .filter_map(|cell| Some((cell.bytes(), median(cell.rounds(mode))?.max(0.1))))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name, line: points.clone(), points }
    };
    sized().map(of).collect()
}

#[derive(Clone, Copy, PartialEq)]
enum Across {
    Linear,
    Logarithmic,
}

struct Chart {
    title: &'static str,
    across: &'static str,
    up: &'static str,
}

impl Chart {
    /// None without points, or if drawing fails.
    fn draw(&self, series: &[Series], across: Across) -> Option<String> {
        let points = || series.iter().flat_map(|series| &series.points);
        let ends = |value: fn(&(f64, f64)) -> f64| {
            let least = points().map(value).fold(f64::INFINITY, f64::min);
            let most = points().map(value).fold(0.0, f64::max);
            (least.is_finite()).then_some((least, most))
        };
        let ((left, right), (low, high)) = (ends(|point| point.0)?, ends(|point| point.1)?);
        let up = (low / 2.0..high * 2.0).log_scale();
        let mut drawn = String::new();
        {
            let area = SVGBackend::with_string(&mut drawn, SIZE).into_drawing_area();
            area.fill(&WHITE).ok()?;
            let mut builder = ChartBuilder::on(&area);
            builder
                .caption(self.title, ("sans-serif", 18))
                .margin(12)
                .x_label_area_size(40)
                .y_label_area_size(64);
            match across {
                Across::Linear => {
                    let mut chart = builder.build_cartesian_2d(left - 1.0..right + 1.0, up).ok()?;
                    self.fill(&mut chart, series)?;
                }
                Across::Logarithmic => {
                    let across = (left / 2.0..right * 2.0).log_scale();
                    let mut chart = builder.build_cartesian_2d(across, up).ok()?;
                    self.fill(&mut chart, series)?;
                }
            }
            area.present().ok()?;
        }
        Some(drawn)
    }

    fn fill<'a, X>(
        &self,
        chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, LogCoord<f64>>>,
        series: &[Series],
    ) -> Option<()>
    where
        X: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
    {
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.across).y_desc(self.up).light_line_style(WHITE);
        mesh.y_label_formatter(&|value| number(*value)).x_label_formatter(&|value| number(*value));
        mesh.draw().ok()?;
        for (nth, series) in series.iter().filter(|series| !series.points.is_empty()).enumerate() {
            let colour = COLOURS[nth % COLOURS.len()];
            let dots = series.points.iter().map(|point| Circle::new(*point, 4, colour.filled()));
            chart.draw_series(dots).ok()?;
            chart
                .draw_series(LineSeries::new(series.line.iter().copied(), colour.stroke_width(2)))
                .ok()?
                .label(&series.name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
                });
        }
        let mut labels = chart.configure_series_labels();
        labels.background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3));
        labels.position(SeriesLabelPosition::UpperRight).draw().ok()
    }
}

/// A number as an axis label.
fn number(value: f64) -> String {
    match value {
        _ if value >= 1e9 => format!("{}G", value / 1e9),
        _ if value >= 1e6 => format!("{}M", value / 1e6),
        _ if value >= 1e3 => format!("{}K", value / 1e3),
        _ if value >= 0.1 => format!("{value}"),
        _ => format!("{value:.0e}"),
    }
}

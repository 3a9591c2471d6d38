//! Charts of lines with dots, each in a colour of its own.

use plotters::element::{Circle, PathElement, Text};
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use trommel_harness::machine::Cache;
use trommel_harness::units;

use super::axis::Axis;
use super::charts::frame;
use super::html::{short, tick_rate, time};
use super::svg::{Area, Failed, Role, SCALE, axis_text, chart, standalone};

/// Dots of one colour, and the line that belongs to them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// What it is called in the key.
    pub name: String,
    /// Which of the page's colours it has.
    pub colour: usize,
    /// What was measured, in the order of x.
    pub dots: Vec<(f64, f64)>,
    /// What is drawn through or beside the dots, in the order of x.
    pub line: Vec<(f64, f64)>,
}

impl Series {
    pub(super) fn role(&self) -> Role {
        Role::Series(self.colour)
    }
}

/// How a value is written.
pub(super) type Show<'a> = &'a dyn Fn(&f64) -> String;

/// A chart of lines; those of several charts may share axes.
pub(super) struct Lines<'a> {
    pub(super) id: &'a str,
    pub(super) title: &'a str,
    pub(super) series: &'a [Series],
    /// Both axes, each with how its values are written.
    pub(super) x: (Axis, Show<'a>),
    pub(super) y: (Axis, Show<'a>),
    /// Sizes of caches, as upright lines.
    pub(super) marks: &'a [Cache],
}

impl Lines<'_> {
    /// The drawing. None if it cannot be drawn.
    pub(super) fn draw(self) -> Option<String> {
        let (show_x, show_y) = (self.x.1, self.y.1);
        let point = |(x, y): &(f64, f64)| format!("{} at {}", show_y(y), show_x(x));
        let described = self.series.iter().map(|series| {
            let points: Vec<_> = series.dots.iter().map(point).collect();
            format!("{}: {}.", series.name, points.join(", "))
        });
        let described: Vec<_> = described.collect();
        chart(self.id, self.title, &described.join(" "), |area| self.on(area))
    }

    fn on(&self, area: &Area<'_>) -> Result<(), Failed> {
        let (across, up) = (self.x.0.range.clone(), self.y.0.range.clone());
        let mut chart = frame(area, (self.x.0.clone(), self.x.1), (self.y.0.clone(), self.y.1))?;
        for cache in self.marks.iter().filter(|cache| across.contains(&(cache.bytes as f64))) {
            let bytes = cache.bytes as f64;
            let line = vec![(bytes, up.start), (bytes, up.end)];
            chart.draw_series([PathElement::new(line, Role::Muted.faint_line(8))])?;
            let words = format!("L{} {}", cache.level, units::bytes(cache.bytes));
            let style = axis_text().pos(Pos::new(HPos::Left, VPos::Top));
            chart.draw_series([Text::new(words, (bytes * 1.06, up.end), style)])?;
        }
        for series in self.series {
            let inside = |(x, y): &(f64, f64)| {
                (across.start..=across.end).contains(x) && (up.start..=up.end).contains(y)
            };
            let line: Vec<_> = series.line.iter().copied().filter(inside).collect();
            chart.draw_series([PathElement::new(line, series.role().line(18))])?;
            let colour = series.role().colour();
            let dot = |point: &(f64, f64)| Circle::new(*point, 5 * SCALE / 2, colour.filled());
            chart.draw_series(series.dots.iter().map(dot))?;
        }
        Ok(())
    }
}

/// What the values of an axis are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Few numbers of equal weight, such as bits per key.
    Linear,
    /// Sizes in bytes, by powers of two.
    Bytes,
    /// Shares of all, by powers of ten.
    Rate,
    /// Nanoseconds, by powers of ten.
    Nanoseconds,
}

impl Scale {
    fn axis(self, values: impl Iterator<Item = f64> + Clone) -> Option<Axis> {
        let (least, most) = (values.clone().reduce(f64::min)?, values.reduce(f64::max)?);
        Some(match self {
            Self::Linear => Axis::whole(least, most),
            Self::Bytes => Axis::logarithmic_bytes(least, most),
            Self::Rate | Self::Nanoseconds => Axis::logarithmic(least, most),
        })
    }

    fn show(self, value: f64, least: f64) -> String {
        match self {
            Self::Linear => short(value),
            Self::Bytes => units::bytes(value.round() as u64),
            Self::Rate => tick_rate(value, least),
            Self::Nanoseconds => time(value),
        }
    }
}

/// A chart as an SVG file of its own, with its key; `what` says what its axes show. None without
/// dots.
pub fn plot(title: &str, what: &str, series: &[Series], x: Scale, y: Scale) -> Option<String> {
    let series: Vec<Series> =
        series.iter().filter(|series| !series.dots.is_empty()).cloned().collect();
    let dots = || series.iter().flat_map(|series| &series.dots);
    let (across, up) = (x.axis(dots().map(|dot| dot.0))?, y.axis(dots().map(|dot| dot.1))?);
    let (left, low) = (across.range.start, up.range.start);
    let (show_x, show_y) = (|value: &f64| x.show(*value, left), |value: &f64| y.show(*value, low));
    let (x, y): ((_, Show<'_>), (_, Show<'_>)) = ((across, &show_x), (up, &show_y));
    let svg = Lines { id: "plot", title, series: &series, x, y, marks: &[] }.draw()?;
    let key: Vec<_> = series.iter().map(|series| (series.role(), series.name.as_str())).collect();
    Some(standalone(title, what, &key, &svg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_stands_alone() {
        let dots = vec![(8.0, 0.03), (16.0, 0.0005)];
        let series = |name: &str, colour, dots: &[(f64, f64)]| Series {
            name: name.into(),
            colour,
            dots: dots.to_vec(),
            line: vec![(8.0, 0.03), (16.0, 0.0005), (90.0, 1e-9)],
        };
        let all = [series("a & b", 0, &dots), series("none", 1, &[])];
        let svg = plot("Rates", "rate by bits", &all, Scale::Linear, Scale::Rate).unwrap();
        assert!(svg.starts_with("<svg xmlns=") && svg.contains(">a &amp; b</text>"), "{svg}");
        assert!(!svg.contains(">none<"), "what has no dots is not in the key");
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(plot("", "", &all[1..], Scale::Bytes, Scale::Nanoseconds), None);
    }
}

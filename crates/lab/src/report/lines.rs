//! Charts of lines with dots, each in a colour of its own.

use plotters::element::{Circle, PathElement, Text};
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use trommel_harness::machine::Cache;
use trommel_harness::units;

use super::axis::Axis;
use super::charts::frame;
use super::svg::{Area, Failed, Role, SCALE, axis_text, chart};

/// Points of one colour, with a line through them.
pub(super) struct Series {
    /// Its name in the description.
    pub(super) name: String,
    pub(super) role: Role,
    /// In the order of x.
    pub(super) points: Vec<(f64, f64)>,
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
            let points: Vec<_> = series.points.iter().map(point).collect();
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
            let line: Vec<_> = series.points.iter().copied().filter(inside).collect();
            chart.draw_series([PathElement::new(line, series.role.line(18))])?;
            let colour = series.role.colour();
            let dot = |point: &(f64, f64)| Circle::new(*point, 5 * SCALE / 2, colour.filled());
            chart.draw_series(series.points.iter().map(dot))?;
        }
        Ok(())
    }
}

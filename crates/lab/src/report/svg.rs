//! Charts as SVG that takes its colours from the page, so that one drawing serves light and dark.
//!
//! 1. Plotters draws a chart in placeholder colours for roles: text, grid, each series.
//! 2. Each of these colours is replaced by `var(--role)`; the page's style defines the variables.
//! 3. The fixed size is replaced by a view box, and a title and description for screen readers are
//!    added.
//!
//! Plotters rounds all coordinates to integers, so a chart is drawn at [`SCALE`] times the size of
//! its view box.

use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, RGBColor, SVGBackend};
use plotters::style::{Color as _, IntoFont as _, ShapeStyle, TextStyle};

use super::html::escaped;
use super::page::colours;

/// Units of a drawing per unit of the page.
pub(super) const SCALE: i32 = 4;
/// Size of a chart in units of the page, at which text of size [`TEXT`] matches the text around it.
const SIZE: (u32, u32) = (400, 240);
/// Height of the text of a chart in units of the page.
const TEXT: f64 = 12.0;
/// Number of series with a colour of their own; further series reuse them from the first.
pub(super) const COLOURS: usize = 8;

/// The first two components of every placeholder colour.
const MARK: (u8, u8) = (1, 2);

/// The role of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Axis labels.
    Muted,
    /// Grid lines.
    Grid,
    /// Theoretical values.
    Theory,
    /// The nth series.
    Series(usize),
}

impl Role {
    /// The CSS variable of the colour.
    pub(super) fn variable(self) -> String {
        match self {
            Self::Muted => "var(--muted)".into(),
            Self::Grid => "var(--grid)".into(),
            Self::Theory => "var(--ink)".into(),
            Self::Series(nth) => format!("var(--c{})", nth % COLOURS),
        }
    }

    /// The placeholder colour while plotters draws.
    pub(super) fn colour(self) -> RGBColor {
        let number = match self {
            Self::Muted => 0,
            Self::Grid => 1,
            Self::Theory => 2,
            Self::Series(nth) => 3 + (nth % COLOURS) as u8,
        };
        RGBColor(MARK.0, MARK.1, number)
    }

    /// A translucent line in this colour.
    pub(super) fn faint_line(self, tenths: u32) -> ShapeStyle {
        self.colour().mix(0.6).stroke_width(tenths * SCALE as u32 / 10)
    }

    fn all() -> impl Iterator<Item = Self> {
        let series = (0..COLOURS).map(Self::Series);
        [Self::Muted, Self::Grid, Self::Theory].into_iter().chain(series)
    }

    /// A line in this colour, `tenths` tenths of a unit of the page wide.
    pub(super) fn line(self, tenths: u32) -> ShapeStyle {
        self.colour().stroke_width(tenths * SCALE as u32 / 10)
    }
}

/// The style of axis labels.
pub(super) fn axis_text() -> TextStyle<'static> {
    // Plotters reduces SVG text by this factor.
    let size = TEXT * f64::from(SCALE) * 1.24;
    ("sans-serif", size).into_font().color(&Role::Muted.colour())
}

/// An error of plotters.
pub(super) type Failed = DrawingAreaErrorKind<std::io::Error>;

/// A drawing area.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The chart that `draw` draws; none if that fails. `id` is unique in the page; `title` and
/// `description` are for screen readers.
pub(super) fn chart(
    id: &str,
    title: &str,
    description: &str,
    draw: impl FnOnce(&Area<'_>) -> Result<(), Failed>,
) -> Option<String> {
    let (width, height) = (SIZE.0 * SCALE as u32, SIZE.1 * SCALE as u32);
    let mut drawn = String::new();
    {
        let area = SVGBackend::with_string(&mut drawn, (width, height)).into_drawing_area();
        draw(&area).ok()?;
        area.present().ok()?;
    }
    let (_, inside) = drawn.split_once('>')?;
    let mut inside = inside.to_owned();
    for role in Role::all() {
        let RGBColor(red, green, blue) = role.colour();
        inside = inside.replace(&format!("#{red:02X}{green:02X}{blue:02X}"), &role.variable());
    }
    Some(format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"{id}t {id}d\">\n\
         <title id=\"{id}t\">{}</title><desc id=\"{id}d\">{}</desc>{inside}",
        escaped(title),
        escaped(description)
    ))
}

/// Wraps a text into lines of at most `most` characters, unless a word is longer.
fn lines(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A chart as a file of its own: with a heading, a legend, and the colours for light and dark.
/// Legend entries that do not fit on one line wrap.
pub(super) fn standalone(title: &str, what: &str, key: &[(Role, &str)], chart: &str) -> String {
    let (width, height) = (SIZE.0 * SCALE as u32, SIZE.1 * SCALE as u32);
    let text = TEXT * f64::from(SCALE);
    let (margin, line, side) = (text, text * 1.7, text * 0.75);
    let length = |words: &str| text * 0.62 * words.chars().count() as f64;
    let fit = ((f64::from(width) - 2.0 * margin) / length("x")) as usize;
    let (mut words, mut y) = (String::new(), 0.0);
    for (lines, style) in [
        (lines(title, fit), "font-weight=\"600\" fill=\"var(--ink)\""),
        (lines(what, fit), "fill=\"var(--muted)\""),
    ] {
        for line_of in lines {
            y += line;
            words += &format!(
                "<text x=\"{margin}\" y=\"{y}\" font-size=\"{text}\" {style}>{}</text>\n",
                escaped(&line_of)
            );
        }
    }
    let mut x = margin;
    y += line;
    for (role, name) in key {
        let wide = length(name) + text * 2.6;
        if x > margin && x + wide > f64::from(width) {
            (x, y) = (margin, y + line);
        }
        words += &format!(
            "<rect x=\"{x}\" y=\"{}\" width=\"{side}\" height=\"{side}\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{y}\" font-size=\"{text}\" fill=\"var(--ink)\">{}</text>\n",
            y - side,
            role.variable(),
            x + text * 1.2,
            escaped(name)
        );
        x += wide;
    }
    let head = (y + text * 1.2) as u32;
    let inner = chart.replacen(
        "<svg ",
        &format!("<svg y=\"{head}\" width=\"{width}\" height=\"{height}\" "),
        1,
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {}\" width=\"{}\" \
         height=\"{}\" font-family=\"system-ui, sans-serif\">\n<style>\n{}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"var(--card)\"/>\n{words}{}\n</svg>\n",
        head + height,
        2 * SIZE.0,
        2 * (head + height) / SCALE as u32,
        colours(),
        inner.trim_end()
    )
}

#[cfg(test)]
mod tests {
    use plotters::prelude::PathElement;

    use super::*;

    #[test]
    fn a_drawing_takes_its_colours_from_the_page() {
        let svg = chart("x", "a < b", "words", |area| {
            for role in Role::all() {
                area.draw(&PathElement::new([(1, 2), (3, 4)], role.line(15)))?;
            }
            Ok(())
        })
        .unwrap();
        for role in Role::all() {
            assert!(svg.contains(&format!("stroke=\"{}\"", role.variable())), "{role:?}: {svg}");
        }
        assert!(!svg.contains('#') && !svg.contains("http") && !svg.contains("width=\"1600\""));
        assert!(svg.contains("<title id=\"xt\">a &lt; b</title>"), "{svg}");
        assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
    }
}

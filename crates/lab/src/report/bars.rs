//! Bars and colour legends as plain HTML, so that their text keeps its size on any screen.

use super::html::escaped;
use super::svg::Role;

/// One bar: its label, its colour, its length, and the text at its end.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) role: Role,
    pub(super) value: f64,
    pub(super) words: String,
    /// Additional text in small type.
    pub(super) note: String,
}

/// Bars under a heading, with `what` they show; the longest fills the available width.
pub(super) fn bars(heading: &str, what: &str, bars: &[Bar]) -> String {
    let longest = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let mut html = format!(
        "<div class=\"bars\"><h3>{} <small>{}</small></h3>\n",
        escaped(heading),
        escaped(what)
    );
    for Bar { label, role, value, words, note } in bars {
        let note = match note.is_empty() {
            true => String::new(),
            false => format!("<small>{}</small>", escaped(note)),
        };
        html += &format!(
            "<div class=\"bar\"><span class=\"name\">{}</span><span class=\"track\">{}</span>\
             <span class=\"value\">{}{note}</span></div>\n",
            escaped(label),
            piece(*role, share(*value, longest), ""),
            escaped(words)
        );
    }
    html + "</div>\n"
}

/// One bar of several parts: its label, the parts with their texts, and the text at its end.
/// `longest` is the value of the full width.
pub(super) fn stack(label: &str, parts: &[(Role, f64, String)], longest: f64, sum: &str) -> String {
    let pieces: String = parts
        .iter()
        .filter(|(_, value, _)| *value > 0.0)
        .map(|(role, value, words)| piece(*role, share(*value, longest), words))
        .collect();
    format!(
        "<div class=\"bar\"><span class=\"name\">{}</span><span class=\"track\">{pieces}</span>\
         <span class=\"value\">{}</span></div>\n",
        escaped(label),
        escaped(sum)
    )
}

/// A part of a whole in percent, at least large enough to be visible.
fn share(value: f64, whole: f64) -> f64 {
    let share = 100.0 * value / whole;
    if share.is_finite() { share.clamp(0.2, 100.0) } else { 0.2 }
}

fn piece(role: Role, percent: f64, title: &str) -> String {
    let colour = role.variable();
    let title =
        if title.is_empty() { String::new() } else { format!(" title=\"{}\"", escaped(title)) };
    format!("<i style=\"width:{percent:.2}%;background:{colour}\"{title}></i>")
}

/// A legend of the colours. Empty if there is only one.
pub(super) fn key<'a>(names: impl Iterator<Item = (Role, &'a str)>) -> String {
    let names: Vec<(Role, &str)> = names.collect();
    if names.len() < 2 {
        return String::new();
    }
    let entry = |(role, name): &(Role, &str)| {
        format!("<li><i style=\"background:{}\"></i>{}</li>", role.variable(), escaped(name))
    };
    format!("<ul class=\"key\">{}</ul>\n", names.iter().map(entry).collect::<String>())
}

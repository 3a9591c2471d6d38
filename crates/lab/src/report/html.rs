//! HTML fragments, and the display form of numbers.

use trommel_harness::units;

/// Text with all characters that are special in HTML escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // No other control characters are allowed in a document.
            c if c < ' ' && !matches!(c, '\n' | '\t' | '\r') => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// A table cell: HTML, and whether it holds a number.
#[derive(Debug, Clone)]
pub(super) struct HtmlCell {
    html: String,
    is_number: bool,
}

impl HtmlCell {
    pub(super) fn text(text: &str) -> Self {
        Self { html: escaped(text), is_number: false }
    }

    pub(super) fn number(text: &str) -> Self {
        Self { html: escaped(text), is_number: true }
    }

    pub(super) fn html(html: String) -> Self {
        Self { html, is_number: false }
    }

    /// A number, or a dash if there is none.
    pub(super) fn maybe<T>(value: Option<T>, show: impl Fn(T) -> String) -> Self {
        Self::number(&value.map_or("–".into(), show))
    }
}

/// A table whose first column names its rows. Empty without rows.
pub(super) fn table(caption: &str, head: &[&str], rows: &[Vec<HtmlCell>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let is_number =
        |column: usize| rows.iter().any(|row| row.get(column).is_some_and(|cell| cell.is_number));
    let class = |column: usize| if is_number(column) { " class=\"n\"" } else { "" };
    let mut html = String::from("<div class=\"scroll\" tabindex=\"0\"><table>");
    if !caption.is_empty() {
        html += &format!("<caption>{}</caption>", escaped(caption));
    }
    html += "<thead><tr>";
    for (column, name) in head.iter().enumerate() {
        html += &format!("<th scope=\"col\"{}>{}</th>", class(column), escaped(name));
    }
    html += "</tr></thead><tbody>\n";
    for row in rows {
        html += "<tr>";
        for (column, cell) in row.iter().enumerate() {
            html += &match column {
                0 => format!("<th scope=\"row\"{}>{}</th>", class(0), cell.html),
                _ => format!("<td{}>{}</td>", class(column), cell.html),
            };
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n"
}

/// A collapsible part. Empty without content.
pub(super) fn details(summary: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    format!("<details><summary>{}</summary>\n{content}</details>\n", escaped(summary))
}

/// A section with its heading. Empty without content.
pub(super) fn section(id: &str, heading: &str, lead: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    let lead =
        if lead.is_empty() { String::new() } else { format!("<p class=\"lead\">{lead}</p>\n") };
    format!(
        "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{}</h2>\n{lead}{content}</section>\n",
        escaped(heading)
    )
}

/// A saturating sum: the numbers come from a file and may be invalid.
pub(super) fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// An integer with commas between thousands.
pub(super) fn count(number: u64) -> String {
    units::grouped(number)
}

/// A number to three digits, or to all digits of its integer part.
pub(super) fn digits(number: f64) -> String {
    let size = number.abs();
    if size >= 100.0 {
        let whole = units::grouped(size.round() as u64);
        return if number < 0.0 { format!("-{whole}") } else { whole };
    }
    let decimals = if size >= 10.0 { 1 } else { 2 };
    if size > 0.0 && size < 0.01 { exponent(number) } else { format!("{number:.decimals$}") }
}

/// A number to three digits, without a power of ten down to a thousandth.
pub(super) fn small(number: f64) -> String {
    match number.abs() {
        size if (1e-3..1.0).contains(&size) => {
            let decimals = (2.0 - size.log10().floor()) as usize;
            format!("{number:.decimals$}")
        }
        _ => digits(number),
    }
}

/// A rate to three digits, in percent unless that would have many leading zeros.
pub(super) fn rate(number: f64) -> String {
    match number * 100.0 {
        0.0 => "0%".into(),
        percent if (1e-3..1e3).contains(&percent) => {
            let decimals = (2 - percent.log10().floor() as i32).clamp(0, 5) as usize;
            format!("{percent:.decimals$}%")
        }
        _ => exponent(number),
    }
}

/// Scientific notation.
fn exponent(number: f64) -> String {
    let text = format!("{number:.2e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let raised = |c: char| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        c => c.to_digit(10).and_then(|d| char::from_u32('⁰' as u32 + d)).unwrap_or(c),
    };
    format!("{digits} × 10{}", power.chars().map(raised).collect::<String>())
}

/// A rate as a tick label of an axis that starts at `least`: in percent, or, if that would be long,
/// all ticks as powers of ten.
pub(super) fn tick_rate(number: f64, least: f64) -> String {
    if number == 1.0 && least <= 9e-6 {
        return "1".into();
    }
    if least > 9e-6 { format!("{}%", short_decimals(number * 100.0)) } else { tick_power(number) }
}

/// A number as a tick label, as a power of ten if it is small.
pub(super) fn tick(number: f64) -> String {
    if number == 0.0 || number > 9e-4 { short_decimals(number) } else { tick_power(number) }
}

fn short_decimals(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A round number as a power of ten, or a multiple of one.
fn tick_power(number: f64) -> String {
    let text = exponent(number);
    let (digits, power) = text.split_once(" × ").unwrap_or((&text, ""));
    match digits.trim_end_matches('0').trim_end_matches('.') {
        "1" => power.to_owned(),
        digits => format!("{digits}·{power}"),
    }
}

/// Nanoseconds in a suitable unit.
pub(super) fn time(nanos: f64) -> String {
    let (value, unit) = match nanos {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "µs"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    if value.fract() == 0.0 {
        format!("{value:.0} {unit}")
    } else {
        format!("{} {unit}", digits(value))
    }
}

/// A number with K, M or G, short enough for an axis.
pub(super) fn short(number: f64) -> String {
    let (value, unit) = match number.abs() {
        n if n < 1e3 => (number, ""),
        n if n < 1e6 => (number / 1e3, "K"),
        n if n < 1e9 => (number / 1e6, "M"),
        _ => (number / 1e9, "G"),
    };
    // Ticks are round numbers, so two decimals are enough, and often none is needed.
    let text = format!("{value:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(escaped("<a b=\"&\">\u{1}"), "&lt;a b=&quot;&amp;&quot;&gt;\u{fffd}");
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.0, "0.00"),
            (0.001, "1.00 × 10⁻³"),
            (2.345, "2.35"),
            (23.45, "23.4"),
            (234.6, "235"),
            (-1_234_567.8, "-1,234,568"),
        ] {
            assert_eq!(digits(number), text);
        }
        for (number, text) in
            [(0.051_34, "0.0513"), (0.5, "0.500"), (0.001, "0.00100"), (2.345, "2.35")]
        {
            assert_eq!(small(number), text);
        }
        for (nanos, text) in [(900.0, "900 ns"), (1500.0, "1.50 µs"), (2e6, "2 ms"), (61e9, "61 s")]
        {
            assert_eq!(time(nanos), text);
        }
        for (number, text) in [(0.0, "0"), (250_000.0, "250K"), (1.5e6, "1.5M"), (2e9, "2G")] {
            assert_eq!(short(number), text);
        }
        for (number, text) in [(1.0, "100%"), (0.002, "0.2%"), (1e-5, "0.001%")] {
            assert_eq!(tick_rate(number, 1e-5), text);
        }
        // One axis used to have labels from 0.001% to 10⁻⁶.
        for (number, text) in
            [(1.0, "1"), (0.002, "2·10⁻³"), (1e-5, "10⁻⁵"), (1e-6, "10⁻⁶"), (5e-12, "5·10⁻¹²")]
        {
            assert_eq!(tick_rate(number, 1e-6), text);
        }
        for (number, text) in
            [(0.0, "0"), (5.0, "5"), (0.02, "0.02"), (0.001, "0.001"), (2e-4, "2·10⁻⁴")]
        {
            assert_eq!(tick(number), text);
        }
        for (number, text) in
            [(0.0, "0%"), (0.5, "50.0%"), (0.003_68, "0.368%"), (2e-6, "2.00 × 10⁻⁶")]
        {
            assert_eq!(rate(number), text);
        }
    }
}

//! A page about a store at work, which reloads itself.

use std::time::Duration;

use super::html::{HtmlCell, section, table};
use super::page::document_with;

/// A table of the page.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveTable {
    /// Its heading.
    pub title: String,
    /// The names of its columns.
    pub columns: Vec<String>,
    /// Its rows: a cell for each column.
    pub rows: Vec<Vec<LiveCell>>,
}

/// A cell of such a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveCell {
    /// What it shows.
    pub text: String,
    /// Whether that is a number, which is aligned to the right.
    pub is_number: bool,
}

/// The page about the store `name`, as of `moment`. A browser reloads it at this interval, in whole
/// seconds, rounded up. It needs no other file, no network and no script.
///
/// ```
/// use std::time::Duration;
/// let page = trommel_lab::report::live::page("data", "12:00:00 UTC", Duration::from_secs(1), &[]);
/// assert!(page.contains("<meta http-equiv=\"refresh\" content=\"1\">"));
/// ```
pub fn page(name: &str, moment: &str, interval: Duration, tables: &[LiveTable]) -> String {
    let seconds = interval.as_secs() + u64::from(interval.subsec_nanos() > 0);
    let head = format!("<meta http-equiv=\"refresh\" content=\"{seconds}\">\n");
    let body: String = tables.iter().map(of_table).collect();
    document_with(&head, "Trommel top", name, &format!("As of {moment}."), &body)
}

fn of_table(LiveTable { title, columns, rows }: &LiveTable) -> String {
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let cell = |cell: &LiveCell| match cell.is_number {
        true => HtmlCell::number(&cell.text),
        false => HtmlCell::text(&cell.text),
    };
    let rows: Vec<Vec<HtmlCell>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let id = title.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    section(&id, title, "", &table("", &columns, &rows))
}

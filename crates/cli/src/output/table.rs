//! Tables for people: columns aligned with spaces alone, one row per line, so that `grep` and `awk`
//! can read them too.
//!
//! 1. The first rows of a list are buffered; they determine the width of each column, up to a
//!    bound.
//! 2. From then on each row is written as it comes. A value wider than its column shifts the rest
//!    of its line, and nothing is truncated or wrapped.

use std::io;

use unicode_width::UnicodeWidthStr as _;

use super::{Out, Sink, Value};

/// Maximum number of buffered rows.
const PAGE_ROWS: usize = 1000;
/// Maximum number of buffered bytes, without the last row.
const PAGE_BYTES: usize = 1 << 20;
/// Maximum width of a column, so that one long value does not spread all rows.
const WIDEST: usize = 64;

pub(super) struct TableSink {
    styled: bool,
    columns: Vec<&'static str>,
    page: Vec<Vec<Cell>>,
    page_bytes: usize,
    /// The format of each column, once the first page has determined it.
    fixed: Option<Vec<Fixed>>,
    has_begun: bool,
}

/// A value in its display form.
struct Cell {
    text: String,
    is_number: bool,
}

#[derive(Clone, Copy, Default)]
struct Fixed {
    width: usize,
    flush_right: bool,
}

impl TableSink {
    pub(super) fn new(styled: bool) -> Self {
        let (columns, page) = (Vec::new(), Vec::new());
        Self { styled, columns, page, page_bytes: 0, fixed: None, has_begun: false }
    }

    /// Writes an empty line between two lists or records.
    fn set_off(&mut self, out: Out<'_>) -> io::Result<()> {
        if std::mem::replace(&mut self.has_begun, true) {
            writeln!(out)?;
        }
        Ok(())
    }

    /// Determines the columns from the buffered rows, and writes the heading and these rows.
    fn write_page(&mut self, out: Out<'_>) -> io::Result<()> {
        let page = std::mem::take(&mut self.page);
        let names: Vec<String> = self.columns.iter().map(|name| name.replace('_', " ")).collect();
        let mut fixed: Vec<Fixed> = names.iter().map(|name| Fixed::of_name(name)).collect();
        for row in &page {
            for (fixed, cell) in fixed.iter_mut().zip(row) {
                fixed.widen(cell);
            }
        }
        let heading = line(names.iter().map(|name| &**name), &fixed);
        if self.styled {
            writeln!(out, "\x1b[1m{heading}\x1b[0m")?;
        } else {
            writeln!(out, "{heading}")?;
        }
        for row in &page {
            writeln!(out, "{}", line(row.iter().map(|cell| &*cell.text), &fixed))?;
        }
        self.fixed = Some(fixed);
        Ok(())
    }
}

impl Fixed {
    fn of_name(name: &str) -> Self {
        Self { width: name.width(), flush_right: false }
    }

    fn widen(&mut self, cell: &Cell) {
        self.width = self.width.max(cell.text.width().min(WIDEST));
        self.flush_right |= cell.is_number;
    }
}

/// A line of cells, each as wide as its column, two spaces apart.
fn line<'a>(cells: impl Iterator<Item = &'a str>, fixed: &[Fixed]) -> String {
    let mut line = String::new();
    for (at, (cell, fixed)) in cells.zip(fixed).enumerate() {
        let missing = fixed.width.saturating_sub(cell.width());
        let (before, after) = if fixed.flush_right { (missing, 0) } else { (0, missing) };
        let gap = if at > 0 { 2 } else { 0 };
        line.extend(std::iter::repeat_n(' ', gap + before));
        line += cell;
        line.extend(std::iter::repeat_n(' ', after));
    }
    line.truncate(line.trim_end_matches(' ').len());
    line
}

impl Sink for TableSink {
    fn begin_list(&mut self, _: &str, columns: &[&'static str], out: Out<'_>) -> io::Result<()> {
        self.columns = columns.to_vec();
        self.fixed = None;
        self.set_off(out)
    }

    fn row(&mut self, values: Vec<Value>, out: Out<'_>) -> io::Result<()> {
        let cell = |value: &Value| Cell { text: value.shown(), is_number: value.is_number() };
        let cells: Vec<Cell> = values.iter().map(cell).collect();
        if let Some(fixed) = &self.fixed {
            return writeln!(out, "{}", line(cells.iter().map(|cell| &*cell.text), fixed));
        }
        self.page_bytes += cells.iter().map(|cell| cell.text.len()).sum::<usize>();
        self.page.push(cells);
        if self.page.len() == PAGE_ROWS || self.page_bytes >= PAGE_BYTES {
            self.write_page(out)?;
        }
        Ok(())
    }

    fn pass_on(&mut self, out: Out<'_>) -> io::Result<()> {
        if self.fixed.is_some() || self.page.is_empty() { Ok(()) } else { self.write_page(out) }
    }

    fn end_list(&mut self, out: Out<'_>) -> io::Result<()> {
        self.page_bytes = 0;
        if self.fixed.is_none() { self.write_page(out) } else { Ok(()) }
    }

    fn record(
        &mut self,
        _: &str,
        fields: &[(&'static str, Value)],
        out: Out<'_>,
    ) -> io::Result<()> {
        self.set_off(out)?;
        let names: Vec<String> = fields.iter().map(|(name, _)| name.replace('_', " ")).collect();
        let width = names.iter().map(|name| name.width()).max().unwrap_or(0);
        let fixed = [Fixed { width, flush_right: false }, Fixed::default()];
        for (name, (_, value)) in names.iter().zip(fields) {
            writeln!(out, "{}", line([&**name, &*value.shown()].into_iter(), &fixed))?;
        }
        Ok(())
    }

    fn lone(&mut self, _: &'static str, value: Value, out: Out<'_>) -> io::Result<()> {
        self.set_off(out)?;
        // For scripts too: no commas, no units.
        match value {
            Value::Count(_) | Value::Size(_) | Value::Float(_) => {
                writeln!(out, "{}", value.plain())
            }
            _ => writeln!(out, "{}", value.shown()),
        }
    }

    fn stacks_items(&self) -> bool {
        true
    }

    fn finish(&mut self, _: Out<'_>) -> io::Result<()> {
        Ok(())
    }
}

//! Results as a table: on a terminal, in Markdown, and as comma-separated values.

use comfy_table::{CellAlignment, presets};

/// A table with a heading for each column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The names of the columns.
    pub head: Vec<String>,
    /// A text for each column of each row.
    pub rows: Vec<Vec<String>>,
    /// Columns from this one on hold numbers and are aligned to the right.
    pub numbers_from: usize,
}

impl Table {
    /// A table without rows.
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>, numbers_from: usize) -> Self {
        Self { head: head.into_iter().map(Into::into).collect(), rows: Vec::new(), numbers_from }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(&self.head).add_rows(&self.rows);
        for column in table.column_iter_mut().skip(self.numbers_from) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{table}\n")
    }

    /// For a page in Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule = (0..self.head.len())
            .map(|column| if column < self.numbers_from { "---" } else { "---:" }.to_owned());
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&self.head) + &line(&rule.collect::<Vec<_>>()) + &rows
    }
}

/// A line of comma-separated values, as RFC 4180 has them, with its line feed.
pub fn csv_line<S: AsRef<str>>(fields: impl IntoIterator<Item = S>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|field| quoted(field.as_ref())).collect();
    fields.join(",") + "\n"
}

/// A field of comma-separated values, in quotes if it needs them.
pub fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) || field.trim().len() != field.len() {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_to_the_right() {
        let mut table = Table::new(["store", "read"], 1);
        table.row(["a|b", "1.00"]);
        table.row(["trommel", "10.0"]);
        let page = "| store | read |\n| --- | ---: |\n| a\\|b | 1.00 |\n| trommel | 10.0 |\n";
        assert_eq!(table.markdown(), page);
        let text = table.text();
        assert!(text.contains("| a|b     | 1.00 |\n| trommel | 10.0 |\n"), "{text}");
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(csv_line(["a", "b,\"c\"", ""]), "a,\"b,\"\"c\"\"\",\n");
        assert_eq!(csv_line([" x", "y\nz"]), "\" x\",\"y\nz\"\n");
    }
}

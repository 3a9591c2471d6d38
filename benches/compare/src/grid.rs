//! A table of texts, for a terminal and for a page.

use comfy_table::{CellAlignment, Table, presets};

/// A table with a heading for each column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Columns from this one on hold numbers and are right-aligned.
    pub(crate) numbers_from: usize,
}

impl Grid {
    /// Formats it for a terminal.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(&self.head).add_rows(&self.rows);
        for column in table.column_iter_mut().skip(self.numbers_from) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!("{table}\n")
    }

    /// Formats it for a page in Markdown.
    pub(crate) fn markdown(&self) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_right_aligned() {
        let cells = |cells: [&str; 2]| cells.map(String::from).to_vec();
        let grid = Grid {
            head: cells(["store", "read"]),
            rows: vec![cells(["a|b", "1.00"]), cells(["trommel", "10.0"])],
            numbers_from: 1,
        };
        let page = "| store | read |\n| --- | ---: |\n| a\\|b | 1.00 |\n| trommel | 10.0 |\n";
        assert_eq!(grid.markdown(), page);
        let text = grid.text();
        assert!(text.contains("| a|b     | 1.00 |\n| trommel | 10.0 |\n"), "{text}");
    }
}

//! The output of results: one interface for commands, and four formats.
//!
//! A command begins an [`Output`] and writes *lists* (rows under named columns) and *records*
//! (named values) to it, in display order:
//!
//! * `table`: lists with aligned columns, records with one name and value per line; for people.
//! * `json`: one document, an object with a `schema`, in which each list is an array of objects.
//! * `jsonl`: one object per line: the rows of lists, and records.
//! * `csv`: the names of the columns, then one line per row; a record is a list of one row.
//!
//! Rows are written as they come, so a scan may have any number of them; a table buffers the first
//! ones to determine the widths of its columns.
//!
//! Invariants:
//! 1. Names are `snake_case`, and stable once released: scripts rely on them. The `schema` is the
//!    version of a document.
//! 2. There are colour codes only on a terminal, or on request.
//! 3. A reader that closes the output is not a failure of the command (see [`crate::failure`]).

mod csv;
mod json;
mod table;
mod value;

use std::io::{self, BufWriter, IsTerminal as _, Write};

use clap::{Args, ValueEnum};

pub(crate) use value::Value;

/// The shape of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns, for people
    Table,
    /// One document
    Json,
    /// One object per line
    Jsonl,
    /// Comma-separated values, with a header
    Csv,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set; anywhere if CLICOLOR_FORCE is
    Auto,
    /// Anywhere
    Always,
    /// Nowhere
    Never,
}

/// The flags of every command that prints results through [`Output`].
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print results as table, json (one document), jsonl (one object per line) or csv
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "table")]
    #[arg(hide_possible_values = true)]
    pub(crate) format: Format,
    /// Use colours: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    #[arg(hide_possible_values = true)]
    pub(crate) color: ColorChoice,
}

impl OutputArgs {
    /// Begins the results of `command`, whose JSON document has version 1.
    pub(crate) fn begin<'a>(&self, command: &str, out: &'a mut dyn Write) -> Output<'a> {
        Output::new(self.format, is_styled(self.color), command, out)
    }
}

/// Whether standard output gets colour codes.
fn is_styled(color: ColorChoice) -> bool {
    let variable = |name: &str| std::env::var_os(name).unwrap_or_default();
    let forced = !matches!(variable("CLICOLOR_FORCE").to_str(), Some("" | "0"));
    let unwanted = !variable("NO_COLOR").is_empty() || variable("TERM") == "dumb";
    match color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => forced || (io::stdout().is_terminal() && !unwanted),
    }
}

/// A format, which receives the results in order and writes them.
trait Sink {
    /// Begins a list.
    fn begin_list(&mut self, name: &str, columns: &[&'static str], out: Out<'_>) -> io::Result<()>;
    /// Writes the next row of the list, with one value per column.
    fn row(&mut self, values: Vec<Value>, out: Out<'_>) -> io::Result<()>;
    /// Writes the rows that it has buffered.
    fn pass_on(&mut self, _: Out<'_>) -> io::Result<()> {
        Ok(())
    }
    /// Ends the list.
    fn end_list(&mut self, out: Out<'_>) -> io::Result<()>;
    /// Writes named values; with an empty name, those of the document itself.
    fn record(
        &mut self,
        name: &str,
        fields: &[(&'static str, Value)],
        out: Out<'_>,
    ) -> io::Result<()>;
    /// Writes the single result, with the name that it would have among others.
    fn lone(&mut self, name: &'static str, value: Value, out: Out<'_>) -> io::Result<()> {
        self.record("", &[(name, value)], out)
    }
    /// Whether an item of many values is displayed as a record instead of a row.
    fn stacks_items(&self) -> bool {
        false
    }
    /// Ends the document.
    fn finish(&mut self, out: Out<'_>) -> io::Result<()>;
}

/// The destination of a sink.
type Out<'a> = &'a mut dyn Write;

/// A column of a list: its name, and its value for an item.
pub(crate) type Column<T> = (&'static str, fn(&T) -> Value);

/// The results of one command.
pub(crate) struct Output<'a> {
    sink: Box<dyn Sink>,
    out: BufWriter<&'a mut dyn Write>,
    in_list: bool,
}

impl<'a> Output<'a> {
    fn new(format: Format, styled: bool, command: &str, out: &'a mut dyn Write) -> Self {
        let sink: Box<dyn Sink> = match format {
            Format::Table => Box::new(table::TableSink::new(styled)),
            Format::Json => Box::new(json::DocumentSink::new(command)),
            Format::Jsonl => Box::new(json::LinesSink::default()),
            Format::Csv => Box::new(csv::CsvSink::default()),
        };
        Self { sink, out: BufWriter::with_capacity(64 << 10, out), in_list: false }
    }

    /// Begins a list of rows, up to the next list or record, or the end.
    pub(crate) fn list(&mut self, name: &str, columns: &[&'static str]) -> io::Result<()> {
        self.end_list()?;
        self.in_list = true;
        self.sink.begin_list(name, columns, &mut self.out)
    }

    /// A list of items, with a row for each.
    pub(crate) fn rows<T>(
        &mut self,
        name: &str,
        columns: &[Column<T>],
        items: impl IntoIterator<Item: std::borrow::Borrow<T>>,
    ) -> io::Result<()> {
        self.list(name, &columns.iter().map(|(name, _)| *name).collect::<Vec<_>>())?;
        items.into_iter().try_for_each(|item| {
            self.row(
                columns
                    .iter()
                    .map(|(_, value)| value(std::borrow::Borrow::borrow(&item)))
                    .collect(),
            )
        })
    }

    /// Writes a row of the list: a value for each column.
    pub(crate) fn row(&mut self, values: Vec<Value>) -> io::Result<()> {
        debug_assert!(self.in_list, "a row belongs to a list");
        self.sink.row(values, &mut self.out)
    }

    /// Writes a list whose rows are too long for a line: a table displays each as a record. All
    /// have the same names.
    pub(crate) fn items(
        &mut self,
        name: &str,
        items: Vec<Vec<(&'static str, Value)>>,
    ) -> io::Result<()> {
        if self.sink.stacks_items() {
            return items.iter().try_for_each(|fields| self.record("", fields));
        }
        let columns: Vec<&'static str> =
            items.first().into_iter().flatten().map(|(name, _)| *name).collect();
        self.list(name, &columns)?;
        items
            .into_iter()
            .try_for_each(|fields| self.row(fields.into_iter().map(|(_, value)| value).collect()))
    }

    /// Writes named values. With an empty `name` they are those of the document itself.
    pub(crate) fn record(
        &mut self,
        name: &str,
        fields: &[(&'static str, Value)],
    ) -> io::Result<()> {
        self.end_list()?;
        self.sink.record(name, fields, &mut self.out)
    }

    /// Writes the single result of the command. A table consists of only the value.
    pub(crate) fn lone(&mut self, name: &'static str, value: impl Into<Value>) -> io::Result<()> {
        self.end_list()?;
        self.sink.lone(name, value.into(), &mut self.out)
    }

    /// Passes the rows so far to the operating system, before a wait for the next ones.
    pub(crate) fn pass_on(&mut self) -> io::Result<()> {
        self.sink.pass_on(&mut self.out)?;
        self.out.flush()
    }

    /// Flushes the results so far, before an operation that takes long, or may fail.
    pub(crate) fn show(&mut self) -> io::Result<()> {
        self.end_list()?;
        self.out.flush()
    }

    /// Ends the document, and passes everything to the operating system.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.end_list()?;
        self.sink.finish(&mut self.out)?;
        self.out.flush()
    }

    fn end_list(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.in_list) {
            self.sink.end_list(&mut self.out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

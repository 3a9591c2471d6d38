//! How results are printed: one way in which a command yields them, and four formats.
//!
//! A command begins an [`Output`] and gives it *lists* (rows under named columns) and *records*
//! (named values), in the order in which they are to be read:
//!
//! * `table`: lists with aligned columns, records a name and a value a line; for people.
//! * `json`: one document, an object with a `schema`, each list an array of objects in it.
//! * `jsonl`: an object a line: the rows of lists, and records.
//! * `csv`: the names of the columns, then a line a row; a record is a list of one row.
//!
//! Rows are written as they come, so a scan may have any number of them; a table keeps the first
//! ones back to fix the widths of its columns.
//!
//! Invariants:
//! 1. Names are `snake_case`, and are promised once they are released: scripts rely on them. A
//!    `schema` says which promise a document keeps.
//! 2. There are no colour codes but on a terminal, or where they were asked for.
//! 3. A reader that goes away is no failure of the command (see [`crate::failure`]).

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
    /// An object a line
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
    /// Print results as table, json (one document), jsonl (an object a line) or csv
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "table")]
    #[arg(hide_possible_values = true)]
    pub(crate) format: Format,
    /// Use colours: auto (on a terminal, unless NO_COLOR is set), always or never
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    #[arg(hide_possible_values = true)]
    pub(crate) color: ColorChoice,
}

impl OutputArgs {
    /// Begins the results of `command`, whose JSON document is of version 1.
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

/// One format: is told what comes, in order, and writes it.
trait Sink {
    /// A list begins.
    fn begin_list(&mut self, name: &str, columns: &[&'static str], out: Out<'_>) -> io::Result<()>;
    /// The next row of the list, as many values as there are columns.
    fn row(&mut self, values: Vec<Value>, out: Out<'_>) -> io::Result<()>;
    /// The list is over.
    fn end_list(&mut self, out: Out<'_>) -> io::Result<()>;
    /// Named values; with an empty name, those of the document itself.
    fn record(
        &mut self,
        name: &str,
        fields: &[(&'static str, Value)],
        out: Out<'_>,
    ) -> io::Result<()>;
    /// The one value that was asked for, with the name it has beside others.
    fn lone(&mut self, name: &'static str, value: Value, out: Out<'_>) -> io::Result<()> {
        self.record("", &[(name, value)], out)
    }
    /// Whether it shows an item of many values as a record and not as a row.
    fn stacks_items(&self) -> bool {
        false
    }
    /// The document is over.
    fn finish(&mut self, out: Out<'_>) -> io::Result<()>;
}

/// Where sinks write.
type Out<'a> = &'a mut dyn Write;

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

    /// Begins a list of rows, which lasts until the next list or record, or the end.
    pub(crate) fn list(&mut self, name: &str, columns: &[&'static str]) -> io::Result<()> {
        self.end_list()?;
        self.in_list = true;
        self.sink.begin_list(name, columns, &mut self.out)
    }

    /// Writes a row of the list: a value for each column.
    pub(crate) fn row(&mut self, values: Vec<Value>) -> io::Result<()> {
        debug_assert!(self.in_list, "a row belongs to a list");
        self.sink.row(values, &mut self.out)
    }

    /// Writes a list whose rows are too long for a line: a table shows each as a record. All have
    /// the same names.
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

    /// Writes the one value that the command was asked for. A table holds nothing but the value.
    pub(crate) fn lone(&mut self, name: &'static str, value: impl Into<Value>) -> io::Result<()> {
        self.end_list()?;
        self.sink.lone(name, value.into(), &mut self.out)
    }

    /// Shows what there is so far, before something that takes long, or may fail.
    pub(crate) fn show(&mut self) -> io::Result<()> {
        self.end_list()?;
        self.out.flush()
    }

    /// Ends the document. Everything is then with the operating system.
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

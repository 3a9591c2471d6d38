//! Comma-separated values (RFC 4180, with line feeds). Lists are separated by an empty line.

use std::io;

use super::{Out, Sink, Value};

#[derive(Default)]
pub(super) struct CsvSink {
    has_begun: bool,
}

impl CsvSink {
    fn set_off(&mut self, out: Out<'_>) -> io::Result<()> {
        if std::mem::replace(&mut self.has_begun, true) {
            writeln!(out)?;
        }
        Ok(())
    }
}

impl Sink for CsvSink {
    fn begin_list(&mut self, _: &str, columns: &[&'static str], out: Out<'_>) -> io::Result<()> {
        self.set_off(out)?;
        line(columns.iter().map(|name| quoted(name, true)), out)
    }

    fn row(&mut self, values: Vec<Value>, out: Out<'_>) -> io::Result<()> {
        line(values.iter().map(field), out)
    }

    fn end_list(&mut self, _: Out<'_>) -> io::Result<()> {
        Ok(())
    }

    fn record(
        &mut self,
        _: &str,
        fields: &[(&'static str, Value)],
        out: Out<'_>,
    ) -> io::Result<()> {
        self.set_off(out)?;
        line(fields.iter().map(|(name, _)| quoted(name, true)), out)?;
        line(fields.iter().map(|(_, value)| field(value)), out)
    }

    fn finish(&mut self, _: Out<'_>) -> io::Result<()> {
        Ok(())
    }
}

fn line(fields: impl Iterator<Item = String>, out: Out<'_>) -> io::Result<()> {
    for (at, field) in fields.enumerate() {
        let comma = if at > 0 { "," } else { "" };
        write!(out, "{comma}{field}")?;
    }
    writeln!(out)
}

fn field(value: &Value) -> String {
    quoted(&value.plain(), *value == Value::Null)
}

/// The text, quoted if necessary; an empty text is quoted too, unless it means null.
fn quoted(text: &str, is_nothing: bool) -> String {
    let needs = text.contains([',', '"', '\n', '\r'])
        || text.trim().len() != text.len()
        || (text.is_empty() && !is_nothing);
    if needs { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

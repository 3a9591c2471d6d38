//! Comma-separated values (RFC 4180, with line feeds). Lists are separated by an empty line.

use std::io;

use trommel_harness::table::{csv_line, quoted};

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
        out.write_all(csv_line(columns).as_bytes())
    }

    fn row(&mut self, values: Vec<Value>, out: Out<'_>) -> io::Result<()> {
        line(&values, out)
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
        out.write_all(csv_line(fields.iter().map(|(name, _)| name)).as_bytes())?;
        line(fields.iter().map(|(_, value)| value), out)
    }

    fn finish(&mut self, _: Out<'_>) -> io::Result<()> {
        Ok(())
    }
}

fn line<'a>(values: impl IntoIterator<Item = &'a Value>, out: Out<'_>) -> io::Result<()> {
    let fields: Vec<String> = values.into_iter().map(field).collect();
    writeln!(out, "{}", fields.join(","))
}

/// The value, in quotes where it needs them; an empty text too, unlike nothing at all.
fn field(value: &Value) -> String {
    match value.plain() {
        text if text.is_empty() && *value != Value::Null => "\"\"".to_owned(),
        text => quoted(&text),
    }
}

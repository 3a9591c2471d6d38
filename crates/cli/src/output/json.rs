//! JSON: one document, or one object per line.

use std::io;

use serde::Serialize;

use super::value::Object;
use super::{Out, Sink, Value};

/// A single object with everything, one row per line, so that it can be read and compared line by
/// line.
pub(super) struct DocumentSink {
    schema: String,
    columns: Vec<&'static str>,
    has_begun: bool,
    has_rows: bool,
}

impl DocumentSink {
    pub(super) fn new(command: &str) -> Self {
        let schema = format!("trommel.{command}.v1");
        Self { schema, columns: Vec::new(), has_begun: false, has_rows: false }
    }

    /// Writes the start of the document, once.
    fn begin(&mut self, out: Out<'_>) -> io::Result<()> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        out.write_all(b"{\"schema\":")?;
        write_json(&self.schema, out)
    }

    /// Writes the name of the next member of the document.
    fn member(&mut self, name: &str, out: Out<'_>) -> io::Result<()> {
        self.begin(out)?;
        out.write_all(b",\n")?;
        write_json(name, out)?;
        out.write_all(b":")
    }
}

impl Sink for DocumentSink {
    fn begin_list(&mut self, name: &str, columns: &[&'static str], out: Out<'_>) -> io::Result<()> {
        self.columns = columns.to_vec();
        self.has_rows = false;
        self.member(name, out)?;
        out.write_all(b"[")
    }

    fn row(&mut self, values: Vec<Value>, out: Out<'_>) -> io::Result<()> {
        let comma: &[u8] = if std::mem::replace(&mut self.has_rows, true) { b"," } else { b"" };
        out.write_all(comma)?;
        out.write_all(b"\n")?;
        write_json(&Object(self.columns.iter().copied().zip(&values)), out)
    }

    fn end_list(&mut self, out: Out<'_>) -> io::Result<()> {
        out.write_all(b"]")
    }

    fn record(
        &mut self,
        name: &str,
        fields: &[(&'static str, Value)],
        out: Out<'_>,
    ) -> io::Result<()> {
        if name.is_empty() {
            for (name, value) in fields {
                self.member(name, out)?;
                write_json(value, out)?;
            }
            return Ok(());
        }
        self.member(name, out)?;
        write_json(&Object::of(fields), out)
    }

    fn finish(&mut self, out: Out<'_>) -> io::Result<()> {
        self.begin(out)?;
        out.write_all(b"}\n")
    }
}

/// One object per line.
#[derive(Default)]
pub(super) struct LinesSink {
    columns: Vec<&'static str>,
}

impl Sink for LinesSink {
    fn begin_list(&mut self, _: &str, columns: &[&'static str], _: Out<'_>) -> io::Result<()> {
        self.columns = columns.to_vec();
        Ok(())
    }

    fn row(&mut self, values: Vec<Value>, out: Out<'_>) -> io::Result<()> {
        write_json(&Object(self.columns.iter().copied().zip(&values)), out)?;
        out.write_all(b"\n")
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
        write_json(&Object::of(fields), out)?;
        out.write_all(b"\n")
    }

    fn finish(&mut self, _: Out<'_>) -> io::Result<()> {
        Ok(())
    }
}

fn write_json<T: Serialize + ?Sized>(value: &T, out: Out<'_>) -> io::Result<()> {
    serde_json::to_writer(out, value).map_err(io::Error::from)
}

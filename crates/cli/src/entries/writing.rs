//! Writes entries.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::json;
use trommel::KeyspaceOptions;
use trommel::dump::DumpWriter;
use xxhash_rust::xxh3::Xxh3;

use super::{Forms, SCHEMA, SCHEMA_OF_KEYSPACES, StreamForm};

/// Writes entries in one of the forms.
pub(crate) struct EntryWriter<W: Write> {
    sink: EntrySink<W>,
    forms: Forms,
    entries: u64,
}

enum EntrySink<W: Write> {
    Jsonl(Box<Hashed<W>>),
    Text(W),
    Csv(Box<csv::Writer<W>>),
    Binary(DumpWriter<W>),
}

impl<W: Write> EntryWriter<W> {
    /// Begins a stream; with named keyspaces on request, of a form that takes them.
    pub(crate) fn new(
        form: StreamForm,
        forms: Forms,
        has_keyspaces: bool,
        out: W,
    ) -> io::Result<Self> {
        let sink = match form {
            StreamForm::Jsonl => {
                let (key, value) = (forms.key.name(), forms.value.name());
                let schema = if has_keyspaces { SCHEMA_OF_KEYSPACES } else { SCHEMA };
                let head = json!({"schema": schema, "key_format": key, "value_format": value});
                let mut out = Box::new(Hashed { out, hash: Xxh3::new() });
                writeln!(out, "{head}")?;
                EntrySink::Jsonl(out)
            }
            StreamForm::Text => EntrySink::Text(out),
            StreamForm::Csv => {
                let mut writer = Box::new(csv::Writer::from_writer(out));
                writer.write_record(["key", "value"]).map_err(io_error)?;
                EntrySink::Csv(writer)
            }
            StreamForm::Binary if has_keyspaces => {
                EntrySink::Binary(DumpWriter::with_keyspaces(out)?)
            }
            StreamForm::Binary => EntrySink::Binary(DumpWriter::new(out)?),
        };
        Ok(Self { sink, forms, entries: 0 })
    }

    pub(crate) fn write(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.entries += 1;
        let texts = || (self.forms.key.print(key), self.forms.value.print(value));
        match &mut self.sink {
            EntrySink::Jsonl(out) => {
                let (key, value) = texts();
                writeln!(out, "{}", json!({"key": key, "value": value}))
            }
            EntrySink::Text(out) => {
                let (key, value) = texts();
                writeln!(out, "{key}\t{value}")
            }
            EntrySink::Csv(writer) => {
                let (key, value) = texts();
                writer.write_record([key, value]).map_err(io_error)
            }
            EntrySink::Binary(writer) => writer.append(key, value),
        }
    }

    /// Begins the entries of a named keyspace.
    pub(crate) fn begin_keyspace(
        &mut self,
        name: &str,
        options: &KeyspaceOptions,
    ) -> io::Result<()> {
        match &mut self.sink {
            EntrySink::Jsonl(out) => {
                let options: BTreeMap<_, _> = options.settings().into_iter().collect();
                writeln!(out, "{}", json!({"keyspace": name, "options": options}))
            }
            EntrySink::Binary(writer) => writer.begin_keyspace(name, options),
            EntrySink::Text(_) | EntrySink::Csv(_) => {
                Err(io::Error::other("text and csv hold one keyspace"))
            }
        }
    }

    /// Writes the end and flushes; returns the number of entries.
    pub(crate) fn finish(self) -> io::Result<u64> {
        match self.sink {
            EntrySink::Jsonl(mut out) => {
                let hash = format!("{:016x}", out.hash.digest());
                let end = json!({"entries": self.entries, "xxh3": hash});
                writeln!(out, "{}", end)?;
                out.flush()?;
            }
            EntrySink::Text(mut out) => out.flush()?,
            EntrySink::Csv(mut writer) => writer.flush()?,
            EntrySink::Binary(writer) => drop(writer.finish()?),
        }
        Ok(self.entries)
    }
}

/// An output that computes the checksum of its bytes.
struct Hashed<W: Write> {
    out: W,
    hash: Xxh3,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The output's own error, so that a reader that is gone can be recognised.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

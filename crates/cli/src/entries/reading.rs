//! Reads entries from untrusted bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use serde::Deserialize;
use trommel::dump::{DumpItem, DumpReader, MAGIC};
use trommel::vfs::{Access, DiskVfs, FileInput, Vfs as _};
use trommel::{Corruption, KeyspaceOptions, MAX_KEY_BYTES};
use xxhash_rust::xxh3::Xxh3;

use super::{Forms, SCHEMA, SCHEMA_OF_KEYSPACES, StreamForm};
use crate::failure::Failure;
use crate::text::TextForm;

/// The source of entries.
#[derive(Debug)]
pub(crate) enum Source {
    StandardInput(io::Stdin),
    File(PathBuf),
}

impl Source {
    /// Its name in errors.
    fn name(&self) -> &Path {
        match self {
            Self::StandardInput(_) => Path::new("standard input"),
            Self::File(path) => path,
        }
    }

    fn open(&self) -> Result<Box<dyn Read>, Failure> {
        match self {
            Self::StandardInput(input) => Ok(Box::new(input.lock())),
            Self::File(path) => {
                let file = DiskVfs.open(path, Access::Buffered).map_err(|error| {
                    let hint = match error.kind() {
                        io::ErrorKind::InvalidInput => " (for a pipe, write - and redirect it)",
                        _ => "",
                    };
                    Failure::Other(format!("{error}{hint}"))
                })?;
                Ok(Box::new(FileInput::new(file)))
            }
        }
    }
}

/// An input whose first bytes have been read in advance.
type Input = BufReader<Chain<Cursor<Vec<u8>>, Box<dyn Read>>>;

/// A key and a value.
type Entry = (Vec<u8>, Vec<u8>);

/// A part of a stream.
#[derive(Debug)]
pub(crate) enum Item {
    /// An entry of the keyspace that was begun last, or of the first.
    Entry(Vec<u8>, Vec<u8>),
    /// The beginning of a named keyspace.
    Keyspace(String, KeyspaceOptions),
}

impl From<Entry> for Item {
    fn from((key, value): Entry) -> Self {
        Self::Entry(key, value)
    }
}

/// Reads entries in one of the forms.
pub(crate) struct EntryReader {
    name: PathBuf,
    forms: Forms,
    reading: Reading,
}

enum Reading {
    Jsonl { lines: Lines, has_head: bool, entries: u64, keyspaces: BTreeSet<String> },
    Text(Lines),
    Csv { reader: Box<csv::Reader<Input>>, key: usize, value: usize },
    Binary(Box<DumpReader<Input>>),
}

impl EntryReader {
    /// Opens `source`; without a form, detects it from the first bytes.
    pub(crate) fn open(
        source: &Source,
        form: Option<StreamForm>,
        forms: Forms,
    ) -> Result<Self, Failure> {
        let name = source.name().to_path_buf();
        let mut input = source.open()?;
        let mut first = Vec::new();
        let read = input.by_ref().take(MAGIC.len() as u64).read_to_end(&mut first);
        read.map_err(|error| unreadable(&name, &error))?;
        if form.is_none() && first.is_empty() {
            let what = "is empty: a failed dump leaves an empty file, a dump of an empty store \
                        does not. If it is meant to be empty, give --as text";
            return Err(Failure::Other(format!("{} {what}", name.display())));
        }
        let form = form.unwrap_or(match &*first {
            first if MAGIC.starts_with(first) => StreamForm::Binary,
            [b'{', ..] => StreamForm::Jsonl,
            _ => StreamForm::Text,
        });
        let input = BufReader::with_capacity(256 << 10, Cursor::new(first).chain(input));
        let lines = |input| Lines { input, number: 0, offset: 0, line: Vec::new(), before: None };
        let reading = match form {
            StreamForm::Jsonl => {
                let (lines, keyspaces) = (lines(input), BTreeSet::new());
                Reading::Jsonl { lines, has_head: false, entries: 0, keyspaces }
            }
            StreamForm::Text => Reading::Text(lines(input)),
            StreamForm::Csv => open_csv(input, &name)?,
            StreamForm::Binary => Reading::Binary(Box::new(DumpReader::new(input, &name)?)),
        };
        Ok(Self { name, forms, reading })
    }

    /// The next entry or keyspace, or none at the end.
    ///
    /// # Errors
    /// With the number of the line, or the offset, and the reason.
    pub(crate) fn next_item(&mut self) -> Result<Option<Item>, Failure> {
        let Self { name, forms, reading } = self;
        match reading {
            Reading::Binary(reader) => Ok(match reader.next_item()? {
                None => None,
                Some(DumpItem::Entry { key, value }) => {
                    Some(Item::Entry(key.to_vec(), value.to_vec()))
                }
                Some(DumpItem::Keyspace { name, options }) => {
                    Some(Item::Keyspace(name.to_owned(), options.clone()))
                }
                Some(_) => return Err(Failure::Other("an unknown part of a dump".into())),
            }),
            Reading::Text(lines) => {
                let number = lines.number + 1;
                let Some(line) = lines.next(name)? else { return Ok(None) };
                let entry = text_entry(line, forms).map(Item::from);
                entry.map(Some).map_err(|what| bad_line(name, number, &what))
            }
            Reading::Csv { reader, key, value } => {
                let mut record = csv::ByteRecord::new();
                let more = reader.read_byte_record(&mut record);
                let number = record.position().map_or(0, csv::Position::line);
                if !more.map_err(|error| bad_csv(name, &error))? {
                    return Ok(None);
                }
                let field = |at: &usize| record.get(*at).unwrap_or_default();
                let entry = forms.entry(field(key), field(value)).map(Item::from);
                entry.map(Some).map_err(|what| bad_line(name, number, &what))
            }
            Reading::Jsonl { lines, has_head, entries, keyspaces } => {
                let item = next_of_jsonl(name, forms, lines, has_head, entries)?;
                if let Some(Item::Keyspace(keyspace, _)) = &item
                    && !keyspaces.insert(keyspace.clone())
                {
                    let what = format!("the keyspace \"{keyspace}\" begins a second time");
                    return Err(bad_line(name, lines.number, &what));
                }
                Ok(item)
            }
        }
    }
}

impl Forms {
    fn entry(self, key: &[u8], value: &[u8]) -> Result<Entry, String> {
        let wrong = |what: &str, form: TextForm, error: crate::text::TextError| {
            format!("the {what} is not {}: {error}", form.name())
        };
        let key = self.key.read(key).map_err(|error| wrong("key", self.key, error))?;
        let value = self.value.read(value).map_err(|error| wrong("value", self.value, error))?;
        if key.len() > MAX_KEY_BYTES {
            let bytes = key.len();
            return Err(trommel::Error::KeyTooLong { bytes }.to_string());
        }
        Ok((key, value))
    }
}

/// The lines of an input, without their line feeds.
struct Lines {
    input: Input,
    /// Number of lines read so far.
    number: u64,
    /// Offset of the next line.
    offset: u64,
    line: Vec<u8>,
    /// The checksum of all lines before the last one read; none until the caller sets it.
    before: Option<Box<Xxh3>>,
}

impl Lines {
    fn next(&mut self, name: &Path) -> Result<Option<&[u8]>, Failure> {
        if let Some(before) = &mut self.before {
            before.update(&self.line);
        }
        self.line.clear();
        let read = self.input.read_until(b'\n', &mut self.line);
        let bytes = read.map_err(|error| unreadable(name, &error))?;
        if bytes == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.offset += bytes as u64;
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }
}

fn text_entry(line: &[u8], forms: &Forms) -> Result<Entry, String> {
    let mut parts = line.splitn(2, |byte| *byte == b'\t');
    match (parts.next(), parts.next()) {
        (Some(key), Some(value)) => forms.entry(key, value),
        _ => Err("there is no tab between key and value".into()),
    }
}

fn open_csv(input: Input, name: &Path) -> Result<Reading, Failure> {
    let mut reader = Box::new(csv::Reader::from_reader(input));
    let header = reader.byte_headers().map_err(|error| bad_csv(name, &error))?;
    let column = |wanted: &[u8]| header.iter().position(|column| column == wanted);
    let (Some(key), Some(value)) = (column(b"key"), column(b"value")) else {
        return Err(bad_line(name, 1, "the header must have the columns key and value"));
    };
    Ok(Reading::Csv { reader, key, value })
}

/// A line of jsonl: the header, an entry, or the count at the end.
#[derive(Deserialize)]
struct JsonLine {
    schema: Option<String>,
    key_format: Option<String>,
    value_format: Option<String>,
    key: Option<String>,
    value: Option<String>,
    /// In an entry, these two may be anything.
    keyspace: Option<serde_json::Value>,
    options: Option<serde_json::Value>,
    entries: Option<u64>,
    xxh3: Option<String>,
}

fn next_of_jsonl(
    name: &Path,
    forms: &mut Forms,
    lines: &mut Lines,
    has_head: &mut bool,
    entries: &mut u64,
) -> Result<Option<Item>, Failure> {
    let (number, offset) = (lines.number + 1, lines.offset);
    let damage = |what: &str| Failure::Store(Corruption::new(name, offset, what.to_owned()).into());
    let is_dump = *has_head;
    // An invalid line in a dump is corruption, not a mistake of the user.
    let bad = |what: &str| match is_dump {
        true => damage(&format!("line {number}: {what}")),
        false => bad_line(name, number, what),
    };
    let Some(line) = lines.next(name)? else {
        let what = "it is truncated: the last line, with the number of entries, is missing";
        return if is_dump { Err(damage(what)) } else { Ok(None) };
    };
    let line: JsonLine = serde_json::from_slice(line)
        .map_err(|error| bad(&format!("it is not an object with a key and a value: {error}")))?;
    match line {
        JsonLine { schema: Some(schema), key_format, value_format, .. } => {
            if ![SCHEMA, SCHEMA_OF_KEYSPACES].contains(&&*schema) || number > 1 {
                let known = format!("{SCHEMA} and {SCHEMA_OF_KEYSPACES}");
                let what = format!("its schema is \"{schema}\", and this program reads {known}");
                return Err(trommel::Error::Unsupported { file: name.into(), what }.into());
            }
            *has_head = true;
            lines.before = Some(Box::default());
            forms.key = form_of(key_format.as_deref(), forms.key).map_err(|w| bad(&w))?;
            forms.value = form_of(value_format.as_deref(), forms.value).map_err(|w| bad(&w))?;
            next_of_jsonl(name, forms, lines, has_head, entries)
        }
        JsonLine { key: Some(_), keyspace: Some(serde_json::Value::String(keyspace)), .. } => {
            let line = serde_json::json!({"keyspace": keyspace});
            let what = "an entry is of the keyspace that was begun last, not of one that it names";
            Err(bad(&format!(
                "{what}: begin that by a line of its own, {line}, before its entries"
            )))
        }
        JsonLine { key: Some(key), value: Some(value), .. } => {
            *entries += 1;
            let entry = forms.entry(key.as_bytes(), value.as_bytes()).map(Item::from);
            entry.map(Some).map_err(|what| bad(&what))
        }
        JsonLine { keyspace: Some(keyspace), key: None, value: None, options, .. } => {
            begin_keyspace((name, number), keyspace, options, bad).map(Some)
        }
        JsonLine { entries: Some(count), key: None, xxh3, .. } if is_dump => {
            *has_head = false;
            let counted = *entries;
            if count != counted {
                return Err(damage(&format!(
                    "its last line counts {count} entries, and it has \
                                            {counted}"
                )));
            }
            check_sum(lines, xxh3.as_deref()).map_err(damage)?;
            match lines.next(name)? {
                Some(_) => Err(damage("there is more after the line with the number of entries")),
                None => Ok(None),
            }
        }
        JsonLine { key: None, .. } => Err(bad("there is no \"key\"")),
        JsonLine { .. } => Err(bad("there is no \"value\"")),
    }
}

/// The contents of a line that begins a keyspace.
fn begin_keyspace(
    (name, number): (&Path, u64),
    keyspace: serde_json::Value,
    options: Option<serde_json::Value>,
    bad: impl Fn(&str) -> Failure,
) -> Result<Item, Failure> {
    let bad = |why| bad(&format!("it does not begin a keyspace: {why}"));
    let keyspace: String = serde_json::from_value(keyspace).map_err(bad)?;
    let options = options.map(serde_json::from_value).transpose().map_err(bad)?;
    let options = keyspace_options(&options.unwrap_or_default()).map_err(|error| {
        let what = format!("keyspace \"{keyspace}\", line {number}: {error}");
        Failure::Store(trommel::Error::Unsupported { file: name.into(), what })
    })?;
    Ok(Item::Keyspace(keyspace, options))
}

/// The options of a keyspace, from their names and texts.
fn keyspace_options(settings: &BTreeMap<String, String>) -> trommel::Result<KeyspaceOptions> {
    let set =
        |all: KeyspaceOptions, (name, value): (&String, &String)| all.with_setting(name, value);
    settings.iter().try_fold(KeyspaceOptions::new(), set)
}

/// Compares the checksum in a dump's last line with that of the lines before it.
fn check_sum(lines: &Lines, kept: Option<&str>) -> Result<(), &'static str> {
    let found = lines.before.as_ref().map(|before| format!("{:016x}", before.digest()));
    match kept {
        None => Err("its last line has no checksum (to load a dump edited by hand, remove its \
                     first and last lines)"),
        kept if kept == found.as_deref() => Ok(()),
        Some(_) => {
            Err("its checksum does not match its contents (to load a dump edited by hand, remove \
                 its first and last lines)")
        }
    }
}

fn form_of(name: Option<&str>, otherwise: TextForm) -> Result<TextForm, String> {
    name.map_or(Ok(otherwise), |name| TextForm::from_str(name, false))
}

fn bad_line(name: &Path, number: u64, what: &str) -> Failure {
    Failure::Other(format!("{}: line {number}: {what}", name.display()))
}

fn bad_csv(name: &Path, error: &csv::Error) -> Failure {
    Failure::Other(format!("{}: {error}", name.display()))
}

fn unreadable(name: &Path, error: &io::Error) -> Failure {
    Failure::Other(format!("reading {}: {error}", name.display()))
}

//! Files of records: one JSON object per line.

use std::fmt;
use std::io::{self, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Record, SCHEMA};

/// A line without a readable record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    /// The line's number, from 1; 0 means the file as a whole.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for ReadError {}

/// Writes `record` as one line.
///
/// # Errors
/// Any error of `out`.
pub fn write_line<T: Serialize>(record: &T, out: &mut dyn Write) -> io::Result<()> {
    let mut line = serde_json::to_string(record)?;
    line.push('\n');
    out.write_all(line.as_bytes())
}

/// Parses a file of records. Empty lines and unknown fields are ignored.
///
/// # Errors
/// The first line that is not a record, or has a newer schema; a file without any record.
pub fn read_lines(text: &str) -> Result<Vec<Record>, ReadError> {
    let records: Vec<Record> = read_each(text, "a bench", SCHEMA)?;
    for (nth, record) in records.iter().enumerate() {
        if let Some(Err(error)) = record.results.latency_ns.as_ref().map(super::Times::histogram) {
            let what = format!("the histogram in latency_ns.hdr is damaged: {error}");
            let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
            let line = lines.map(|(line, _)| line + 1).nth(nth).unwrap_or_default();
            return Err(ReadError { line, what });
        }
    }
    Ok(records)
}

/// Parses a file of records of `whose`, one per line, with a `schema` of up to `newest`. Empty
/// lines are ignored.
///
/// # Errors
/// As [`read_lines`].
pub fn read_each<T: DeserializeOwned>(
    text: &str,
    whose: &str,
    newest: u32,
) -> Result<Vec<T>, ReadError> {
    let mut records = Vec::new();
    for (nth, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let record = read_line(line, whose, newest);
        records.push(record.map_err(|what| ReadError { line: nth + 1, what })?);
    }
    if records.is_empty() {
        return Err(ReadError { line: 0, what: "it holds no records".into() });
    }
    Ok(records)
}

/// The only field read before the schema is known to be supported.
#[derive(Deserialize)]
struct SchemaHead {
    schema: u32,
}

fn read_line<T: DeserializeOwned>(line: &str, whose: &str, newest: u32) -> Result<T, String> {
    let not_one = |error: serde_json::Error| {
        let at = error.column();
        format!("this is not a record of {whose}: {} (column {at})", without_place(&error))
    };
    let head: SchemaHead = serde_json::from_str(line).map_err(not_one)?;
    if head.schema > newest {
        return Err(format!(
            "the record has schema {}, this program reads schemas up to {newest}: use the program \
             that wrote it, or a newer one",
            head.schema
        ));
    }
    serde_json::from_str(line).map_err(not_one)
}

/// The message of serde_json without its line number, which is always 1 here.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing;

    fn line() -> String {
        let mut bytes = Vec::new();
        write_line(&testing::full(), &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn records_survive_a_file() {
        let (full, bare) = (testing::full(), Record { schema: 1, ..Record::default() });
        let mut bytes = Vec::new();
        write_line(&full, &mut bytes).unwrap();
        bytes.push(b'\n');
        write_line(&bare, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().count(), 3);
        let read = read_lines(&text).unwrap();
        assert_eq!(read, [full.clone(), bare]);
        let names: Vec<_> = read[0].settings.keys().collect();
        assert!(names.iter().eq(&full.settings.keys().collect::<Vec<_>>()), "in order");
    }

    #[test]
    fn unknown_values_of_a_store_are_left_out() {
        let mut bytes = Vec::new();
        write_line(&Record { schema: 1, ..Record::default() }, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        for absent in ["latency", "io", "levels", "memory", "found", "series", "null"] {
            assert!(!text.contains(&format!("{absent}\"")) && !text.contains("null"), "{absent}");
        }
    }

    #[test]
    fn unknown_fields_are_ignored_and_newer_schemas_rejected() {
        let text = line().replacen("{\"schema\":1,", "{\"schema\":1,\"moon\":{\"x\":[1]},", 1);
        assert_eq!(read_lines(&text).unwrap(), [testing::full()]);
        let text = line() + &line().replacen("\"schema\":1,", "\"schema\":2,", 1);
        let error = read_lines(&text).unwrap_err();
        assert_eq!(error.line, 2);
        assert!(error.what.contains("schema 2") && error.what.contains("up to 1"), "{error}");
        let text = "{\"schema\":9,\"everything\":\"else\"}";
        assert!(read_lines(text).unwrap_err().what.contains("schema 9"));
    }

    #[test]
    fn a_bad_line_is_named() {
        let whole = line();
        let cut = &whole[..whole.len() / 2];
        let error = read_lines(&format!("{whole}\n{cut}")).unwrap_err();
        assert_eq!(error.line, 3);
        assert!(error.to_string().starts_with("line 3: this is not a record"), "{error}");
        assert!(!error.to_string().contains("at line"), "{error}");
        for (text, wants) in [
            ("", "it holds no records"),
            ("hello", "line 1: this is not a record"),
            ("[]", "line 1: this is not a record"),
            ("{\"a\":1}", "missing field `schema`"),
            ("{\"schema\":1}", "missing field"),
            ("{\"schema\":-1}", "line 1: this is not a record"),
        ] {
            let error = read_lines(text).unwrap_err().to_string();
            assert!(error.contains(wants), "{text}: {error}");
        }
        let text = whole.replacen("\"hdr\":\"", "\"hdr\":\"!", 1);
        let error = read_lines(&text).unwrap_err();
        assert!(error.what.contains("latency_ns.hdr is damaged"), "{error}");
    }
}

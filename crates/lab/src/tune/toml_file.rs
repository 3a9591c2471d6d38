//! Values of a plan, each with its line.

use std::ops::Range;
use std::path::Path;

use serde::de::DeserializeOwned;
use toml::{Spanned, Value};
use trommel_harness::Error;
use trommel_harness::units::{parse_bytes, parse_count};

/// A plan's text, and its path.
pub(super) struct File<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

/// A value, and its position.
pub(super) type Found = Spanned<Value>;

impl File<'_> {
    /// Parses the file.
    ///
    /// # Errors
    /// With file and line.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        toml::from_str(self.text).map_err(|error| match error.span() {
            Some(span) => self.fault(span, error.message()),
            None => self.fault_of_all(error.message()),
        })
    }

    /// An error at a position.
    pub(super) fn fault(&self, span: Range<usize>, what: &str) -> Error {
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::Usage(format!("{}:{line}: {}", self.path.display(), what.trim_end()))
    }

    /// An error of the whole file.
    pub(super) fn fault_of_all(&self, what: &str) -> Error {
        Error::Usage(format!("{}: {}", self.path.display(), what.trim_end()))
    }

    /// A string.
    pub(super) fn text_of<'a>(&self, name: &str, found: &'a Found) -> Result<&'a str, Error> {
        found.get_ref().as_str().ok_or_else(|| self.wrong(name, found, "a string in quotes"))
    }

    /// A number within bounds.
    pub(super) fn number(
        &self,
        name: &str,
        found: &Found,
        (least, most): (f64, f64),
    ) -> Result<f64, Error> {
        let number = match found.get_ref() {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        };
        let fits = number.filter(|number| (least..=most).contains(number));
        fits.ok_or_else(|| self.wrong(name, found, &format!("a number from {least} to {most}")))
    }

    /// An integer, or a string such as `20K`, within bounds.
    pub(super) fn count(
        &self,
        name: &str,
        found: &Found,
        (least, most): (u64, u64),
    ) -> Result<u64, Error> {
        let what = format!("a count from {least} to {most}, such as 500 or \"20K\"");
        self.whole(name, found, (least, most), &what, |text| parse_count(text).ok())
    }

    /// Bytes, or a string such as `64KiB`, within bounds.
    pub(super) fn bytes(
        &self,
        name: &str,
        found: &Found,
        (least, most): (u64, u64),
    ) -> Result<u64, Error> {
        let [low, high] = [least, most].map(trommel_harness::units::bytes);
        let what = format!("a size from {low} to {high}, such as 65536 or \"64KiB\"");
        self.whole(name, found, (least, most), &what, |text| parse_bytes(text).ok())
    }

    fn whole(
        &self,
        name: &str,
        found: &Found,
        (least, most): (u64, u64),
        what: &str,
        parse: impl Fn(&str) -> Option<u64>,
    ) -> Result<u64, Error> {
        let number = match found.get_ref() {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::String(text) => parse(text),
            _ => None,
        };
        let fits = number.filter(|number| (least..=most).contains(number));
        fits.ok_or_else(|| self.wrong(name, found, what))
    }

    /// The error that a value should be something else.
    pub(super) fn wrong(&self, name: &str, found: &Found, wants: &str) -> Error {
        let shown = self.text.get(found.span()).unwrap_or_default();
        let shown: String = shown.chars().take(40).collect();
        self.fault(found.span(), &format!("`{name}` is {shown}: it must be {wants}"))
    }
}

//! Text forms of keys and values. Every byte string has a text in every form, and parsing that text
//! returns the same bytes.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::{Args, ValueEnum};

use crate::escape::{escape, is_unseen, push_hex};
use crate::failure::Failure;

/// How bytes are written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TextForm {
    /// UTF-8 as it is; other bytes and invisible characters as \xNN (and \n, \r, \t, \\)
    Utf8,
    /// ASCII as it is, everything else as \xNN
    Escape,
    /// Two hexadecimal digits per byte, with an optional 0x
    Hex,
    /// Base64 with padding
    Base64,
}

/// The flag of every command that reads or prints keys.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct KeyForm {
    /// Read and print keys as utf8 (with escapes such as \xNN), escape (ASCII only), hex (with an
    /// optional 0x) or base64
    #[arg(long, value_name = "FORM", value_enum, default_value = "utf8")]
    #[arg(hide_possible_values = true)]
    pub(crate) key_format: TextForm,
}

/// The flag of every command that reads or prints values.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct ValueForm {
    /// Read and print values as utf8 (with escapes), escape (ASCII only), hex (with an optional 0x)
    /// or base64
    #[arg(long, value_name = "FORM", value_enum, default_value = "utf8")]
    #[arg(hide_possible_values = true)]
    pub(crate) value_format: TextForm,
}

impl KeyForm {
    /// A key as text.
    pub(crate) fn print(self, key: &[u8]) -> String {
        self.key_format.print(key)
    }

    /// Parses a key.
    pub(crate) fn read(self, text: &[u8]) -> Result<Vec<u8>, TextError> {
        self.key_format.read(text)
    }

    /// Parses a key from the command line, where bytes that are not UTF-8 are literal.
    pub(crate) fn of_argument(self, text: &OsStr) -> Result<Vec<u8>, Failure> {
        of_argument("key", "--key-format", self.key_format, text)
    }
}

impl ValueForm {
    /// A value as text.
    pub(crate) fn print(self, value: &[u8]) -> String {
        self.value_format.print(value)
    }

    /// Parses a value from the command line.
    pub(crate) fn of_argument(self, text: &OsStr) -> Result<Vec<u8>, Failure> {
        of_argument("value", "--value-format", self.value_format, text)
    }
}

fn of_argument(what: &str, flag: &str, form: TextForm, text: &OsStr) -> Result<Vec<u8>, Failure> {
    form.read(text.as_encoded_bytes()).map_err(|error| {
        let text = text.to_string_lossy();
        let form = form.name();
        Failure::Usage(format!("the {what} '{text}' cannot be read as {form} ({flag}): {error}"))
    })
}

/// A text that is not valid in its form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextError {
    /// The offset in the text, in bytes.
    at: usize,
    what: &'static str,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.at, self.what)
    }
}

const BAD_ESCAPE: &str =
    "after \\ there must be one of \\ n r t 0, or x and two hexadecimal digits";
const BAD_HEX: &str = "it is not hexadecimal: write two digits, 0 to 9 and a to f, for each byte";
const BAD_BASE64: &str = "it is not base64: write A-Z a-z 0-9 + / and the padding =";

impl TextForm {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf8",
            Self::Escape => "escape",
            Self::Hex => "hex",
            Self::Base64 => "base64",
        }
    }

    /// The text for `bytes`.
    pub(crate) fn print(self, bytes: &[u8]) -> String {
        match self {
            Self::Utf8 => print_utf8(bytes),
            Self::Escape => print_ascii(bytes),
            Self::Hex => print_hex(bytes),
            Self::Base64 => BASE64.encode(bytes),
        }
    }

    /// Parses `text`.
    ///
    /// # Errors
    /// With the position in the text, and what would be valid there.
    pub(crate) fn read(self, text: &[u8]) -> Result<Vec<u8>, TextError> {
        match self {
            Self::Utf8 | Self::Escape => read_escapes(text),
            Self::Hex => read_hex(text),
            Self::Base64 => BASE64.decode(text).map_err(|error| TextError {
                at: match error {
                    base64::DecodeError::InvalidByte(at, _)
                    | base64::DecodeError::InvalidLastSymbol { offset: at, .. } => at,
                    _ => text.len(),
                },
                what: BAD_BASE64,
            }),
        }
    }
}

/// A path for display: invisible characters, and those that would move the cursor, are escaped,
/// because a file's name may attack the terminal.
pub(crate) fn print_path(path: &Path) -> String {
    match path.to_str() {
        Some(text) if !text.chars().any(is_unseen) => text.to_owned(),
        _ => print_utf8(path.as_os_str().as_encoded_bytes()),
    }
}

fn print_utf8(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter == '\\' || is_unseen(letter) {
                let mut buffer = [0; 4];
                letter.encode_utf8(&mut buffer).bytes().for_each(|byte| escape(byte, &mut text));
            } else {
                text.push(letter);
            }
        }
        chunk.invalid().iter().for_each(|byte| escape(*byte, &mut text));
    }
    text
}

fn print_ascii(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\\' => escape(*byte, &mut text),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => escape(*byte, &mut text),
        }
    }
    text
}

fn print_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    bytes.iter().for_each(|byte| push_hex(*byte, &mut text));
    text
}

fn read_escapes(text: &[u8]) -> Result<Vec<u8>, TextError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let (meant, length) = match (byte, text.get(at + 1)) {
            (b'\\', Some(b'\\')) => (b'\\', 2),
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', Some(b'r')) => (b'\r', 2),
            (b'\\', Some(b't')) => (b'\t', 2),
            (b'\\', Some(b'0')) => (0, 2),
            (b'\\', Some(b'x')) => match text.get(at + 2..at + 4).and_then(hex_byte) {
                Some(byte) => (byte, 4),
                None => return Err(TextError { at, what: BAD_ESCAPE }),
            },
            (b'\\', _) => return Err(TextError { at, what: BAD_ESCAPE }),
            _ => (*byte, 1),
        };
        bytes.push(meant);
        at += length;
    }
    Ok(bytes)
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let [high, low] = digits else { return None };
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

fn read_hex(text: &[u8]) -> Result<Vec<u8>, TextError> {
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")).unwrap_or(text);
    let skipped = text.len() - digits.len();
    let pairs = digits.chunks(2).enumerate();
    pairs
        .map(|(nth, pair)| hex_byte(pair).ok_or(TextError { at: skipped + 2 * nth, what: BAD_HEX }))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FORMS: [TextForm; 4] =
        [TextForm::Utf8, TextForm::Escape, TextForm::Hex, TextForm::Base64];

    proptest! {
        #[test]
        fn printed_text_is_read_back(
            bytes in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                ".*".prop_map(String::into_bytes),
                r"[\\x0-9a-fn]{0,12}".prop_map(String::into_bytes),
            ]
        ) {
            for form in FORMS {
                let text = form.print(&bytes);
                prop_assert!(!text.contains(|letter: char| letter.is_control()), "{:?}", text);
                prop_assert_eq!(form.read(text.as_bytes()), Ok(bytes.clone()), "{:?}", form);
            }
        }

        #[test]
        fn any_text_is_read_or_rejected(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            for form in FORMS {
                if let Err(error) = form.read(&text) {
                    prop_assert!(error.at <= text.len());
                }
            }
        }
    }

    #[test]
    fn texts_look_as_documented() {
        let bytes = "ä\\\n\u{0}\u{202e}x".as_bytes();
        assert_eq!(TextForm::Utf8.print(bytes), r"ä\\\n\x00\xe2\x80\xaex");
        assert_eq!(TextForm::Utf8.print(b"a\xffb\xc3"), r"a\xffb\xc3");
        assert_eq!(TextForm::Escape.print(bytes), r"\xc3\xa4\\\n\x00\xe2\x80\xaex");
        assert_eq!(TextForm::Hex.print(b"\x00\xfeA"), "00fe41");
        assert_eq!(TextForm::Base64.print(b"ab\xff"), "YWL/");
        assert_eq!(TextForm::Hex.read(b"0x00FE41").unwrap(), b"\x00\xfeA");
        assert_eq!(TextForm::Utf8.read(b"0x41\\0\\t\xff").unwrap(), b"0x41\0\t\xff");
    }

    #[test]
    fn invalid_texts_are_rejected_with_the_position() {
        for (form, text, at) in [
            (TextForm::Utf8, &br"ab\q"[..], 2),
            (TextForm::Utf8, br"ab\", 2),
            (TextForm::Escape, br"\x4", 0),
            (TextForm::Escape, br"\xzz", 0),
            (TextForm::Hex, b"0x414", 4),
            (TextForm::Hex, b"41 42", 2),
            (TextForm::Base64, b"YW*/", 2),
            (TextForm::Base64, b"YWL", 3),
        ] {
            assert_eq!(form.read(text).map_err(|error| error.at), Err(at), "{form:?} {text:?}");
        }
    }
}

//! Prefix extractors: the first part of a key, for filters that hold these prefixes in addition to
//! whole keys, or instead.
//!
//! A [`Prefix`] is identified by its name, which is stored with every table whose filter was built
//! with it. The name of a built-in rule defines it completely, so it can be recreated from a table;
//! a closure cannot, and is trusted only for tables with its name.
//!
//! ```text
//! fixed:8        the first 8 bytes; shorter keys have none
//! until:/        all up to the first "/", itself included; keys without one have none
//! until:\x00,2   all up to the second zero byte (a comma is \x2c, a backslash \\)
//! custom:NAME    what a closure says
//! keyspace:RULE  of the key after the header of its keyspace, with that header; only in tables
//! ```
//!
//! Why the delimiter belongs to the prefix: see the third clause of [`PrefixExtractor`]'s contract.
//! After `ab/`, the prefix stays `ab/` whatever follows; after `ab` it might not be `ab` yet.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use trommel_base::MAX_KEY_BYTES;
use trommel_sstable::{PrefixExtractor, prefix_of};

use crate::error::{Error, Result};
use crate::space::HEADER_BYTES;

/// The start of the stored name of a rule for named keyspaces.
const AFTER_HEADER: &str = "keyspace:";

/// Longest delimiter and longest name of a closure, in bytes.
const MAX_TEXT_BYTES: usize = 255;

/// The rule for the prefix of a key: see
/// [`FilterSettings::prefix_extractor`](crate::settings::FilterSettings::prefix_extractor).
///
/// ```
/// use trommel::Prefix;
/// assert_eq!(Prefix::fixed(2).of(b"abc"), Some(&b"ab"[..]));
/// assert_eq!(Prefix::until("/").of(b"user/7"), Some(&b"user/"[..]));
/// assert_eq!(Prefix::until("/").of(b"user"), None);
/// assert_eq!("until:/,2".parse::<Prefix>()?.of(b"a/b/c"), Some(&b"a/b/"[..]));
/// assert_eq!(Prefix::until_nth("/", 2).name(), "until:/,2");
/// # Ok::<(), trommel::Error>(())
/// ```
#[derive(Clone)]
pub struct Prefix(Arc<Maker>);

struct Maker {
    name: String,
    /// Distinguishes it from others with its name in this process; never 0.
    id: u64,
    rule: PrefixRule,
    /// How it violated its contract, if a violation was detected.
    breach: OnceLock<&'static str>,
}

enum PrefixRule {
    Fixed(usize),
    Until {
        delimiter: Vec<u8>,
        nth: usize,
    },
    Custom(Box<Closure>),
    /// A rule for the keys of a named keyspace, applied after the header.
    AfterHeader(Prefix),
}

type Closure = dyn Fn(&[u8]) -> Option<usize> + Send + Sync;

impl Prefix {
    /// The first `bytes` bytes, 1 to 65,535; a shorter key has no prefix.
    pub fn fixed(bytes: usize) -> Self {
        Self::new(format!("fixed:{bytes}"), PrefixRule::Fixed(bytes))
    }

    /// Everything up to and including the first `delimiter` (1 to 255 bytes); a key without it has
    /// no prefix.
    pub fn until(delimiter: impl AsRef<[u8]>) -> Self {
        Self::until_nth(delimiter, 1)
    }

    /// Everything up to and including the `nth` `delimiter`, counted from 1; occurrences do not
    /// overlap.
    pub fn until_nth(delimiter: impl AsRef<[u8]>, nth: usize) -> Self {
        let delimiter = delimiter.as_ref().to_vec();
        let mut name = format!("until:{}", escape(&delimiter));
        if nth != 1 {
            name.push_str(&format!(",{nth}"));
        }
        Self::new(name, PrefixRule::Until { delimiter, nth })
    }

    /// A custom rule: `prefix_len` returns the number of bytes of a key's prefix, or `None`. Tables
    /// store `name` (1 to 255 bytes).
    ///
    /// # Contract
    /// The same key always has the same prefix, in every process that uses this name; and if the
    /// prefix of some key is `p`, then `p` is the prefix of every key that begins with `p`,
    /// including `p` itself. A different rule must have a different name.
    ///
    /// A closure that breaks the contract makes scans skip entries. If a breach is detected (while
    /// tables are built, in scans, by [`Db::verify`](crate::Db::verify)), or the closure panics, it
    /// is not called any more, [`PrefixStats::breach`](crate::PrefixStats::breach) reports why, and
    /// the table being built gets no prefix filter.
    ///
    /// Before a table's prefix filter is first used, it is probed for the prefixes of the table's
    /// own first and last key: if it denies one, the closure has changed under its name, and is
    /// distrusted as above. A change that those two keys do not reveal, because their prefixes are
    /// unchanged, or missing now, or false positives, is detected only by `verify`, and scans may
    /// skip entries until then.
    pub fn custom(
        name: impl AsRef<str>,
        prefix_len: impl Fn(&[u8]) -> Option<usize> + Send + Sync + 'static,
    ) -> Self {
        Self::new(format!("custom:{}", name.as_ref()), PrefixRule::Custom(Box::new(prefix_len)))
    }

    /// This rule for the keys of named keyspaces, applied after their headers. Each call makes a
    /// different rule: see [`Prefix::id`].
    pub(crate) fn after_header(&self) -> Self {
        let name = format!("{AFTER_HEADER}{}", self.name());
        Self::new(name, PrefixRule::AfterHeader(self.clone()))
    }

    fn new(name: String, rule: PrefixRule) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let id = NEXT_ID.fetch_add(1, Relaxed);
        Self(Arc::new(Maker { name, id, rule, breach: OnceLock::new() }))
    }

    /// Its name, as stored in tables.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The prefix of `key`, if it has one.
    pub fn of<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        prefix_of(&*self.0, key)
    }

    /// Distinguishes it from others with its name, whose closures may differ; never 0.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// Records a breach of the contract: it is not used any more.
    pub(crate) fn distrust(&self, breach: &'static str) {
        self.0.distrust(breach);
    }

    /// How it violated its contract, if a violation was detected.
    pub(crate) fn breach(&self) -> Option<&'static str> {
        let own = self.0.breach.get().copied();
        match &self.0.rule {
            PrefixRule::AfterHeader(rule) => own.or_else(|| rule.breach()),
            _ => own,
        }
    }

    /// Whether it is a closure, which may break its contract.
    fn is_closure(&self) -> bool {
        match &self.0.rule {
            PrefixRule::Fixed(_) | PrefixRule::Until { .. } => false,
            PrefixRule::Custom(_) => true,
            PrefixRule::AfterHeader(rule) => rule.is_closure(),
        }
    }

    /// The prefix of `key` if it can be trusted: no breach was seen, and the prefix's own prefix is
    /// itself.
    pub(crate) fn believed<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let prefix = self.of(key)?;
        if self.is_closure() {
            if self.breach().is_some() {
                return None;
            }
            if self.0.prefix_len(prefix) != Some(prefix.len()) {
                self.0.distrust("a prefix is not the prefix of itself");
                return None;
            }
        }
        Some(prefix)
    }

    /// The extractor for building tables.
    pub(crate) fn extractor(&self) -> Arc<dyn PrefixExtractor> {
        Arc::<Maker>::clone(&self.0)
    }

    /// The rule with a table's stored name; `None` for a closure's.
    pub(crate) fn stored(name: &str) -> Option<Self> {
        if let Some(rule) = name.strip_prefix(AFTER_HEADER) {
            return Self::stored(rule).as_ref().map(Self::after_header);
        }
        name.parse().ok().filter(|prefix: &Self| prefix.name() == name)
    }

    /// The extractor that a filter was built with, whose stored name is `name`: `set` if it has
    /// that name, as it may be a closure; otherwise the built-in rule.
    pub(crate) fn maker(name: &str, set: Option<&Self>) -> Option<Self> {
        let rule = name.strip_prefix(AFTER_HEADER);
        match set {
            Some(set) if set.name() == name => Some(set.clone()),
            Some(set) if rule == Some(set.name()) => Some(set.after_header()),
            _ => Self::stored(name),
        }
    }

    /// Checks the bounds that the constructors state.
    pub(crate) fn check(&self) -> Result<()> {
        let name = self.name();
        let within = |what: &str, value: usize, most: usize| {
            if (1..=most).contains(&value) {
                return Ok(());
            }
            Err(Error::option(format!(
                "the prefix \"{name}\": {what} is {value}, it must be 1 to {most}"
            )))
        };
        match &self.0.rule {
            PrefixRule::Fixed(bytes) => within("its length", *bytes, MAX_KEY_BYTES),
            PrefixRule::Until { delimiter, nth } => {
                within("the length of its delimiter", delimiter.len(), MAX_TEXT_BYTES)?;
                within("the number of the delimiter", *nth, MAX_KEY_BYTES)
            }
            PrefixRule::Custom(_) => {
                within("the length of its name", name.len() - "custom:".len(), MAX_TEXT_BYTES)
            }
            PrefixRule::AfterHeader(rule) => rule.check(),
        }
    }
}

impl PrefixExtractor for Maker {
    fn name(&self) -> &str {
        &self.name
    }

    #[inline]
    fn prefix_len(&self, key: &[u8]) -> Option<usize> {
        match &self.rule {
            PrefixRule::Fixed(bytes) => (key.len() >= *bytes).then_some(*bytes),
            PrefixRule::Until { delimiter, nth } => until(key, delimiter, *nth),
            PrefixRule::Custom(closure) => match catch_unwind(AssertUnwindSafe(|| closure(key))) {
                Ok(len) => len,
                Err(_) => {
                    self.distrust("it panicked");
                    // Longer than any key, which callers treat as a breach.
                    Some(usize::MAX)
                }
            },
            PrefixRule::AfterHeader(rule) => {
                let len = rule.0.prefix_len(key.get(HEADER_BYTES..)?)?;
                Some(len.saturating_add(HEADER_BYTES))
            }
        }
    }

    fn distrust(&self, breach: &'static str) {
        if let PrefixRule::AfterHeader(rule) = &self.rule {
            rule.distrust(breach);
        }
        if self.breach.set(breach).is_ok() {
            crate::events::prefix_distrusted(&self.name, breach);
        }
    }
}

/// The end of the `nth` delimiter.
fn until(key: &[u8], delimiter: &[u8], nth: usize) -> Option<usize> {
    let mut end = 0;
    for _ in 0..nth {
        let rest = key.get(end..)?;
        let at = match delimiter {
            [byte] => rest.iter().position(|other| other == byte)?,
            [] => return None,
            _ => rest.windows(delimiter.len()).position(|window| window == delimiter)?,
        };
        end += at + delimiter.len();
    }
    Some(end)
}

/// Bytes as text without commas: non-printable bytes become `\xNN`, a backslash is doubled.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b',' => text.push_str("\\x2c"),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (kind, behind) = rest.split_first()?;
        rest = behind;
        bytes.push(match kind {
            b'\\' => b'\\',
            b't' => b'\t',
            b'n' => b'\n',
            b'r' => b'\r',
            b'x' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                rest = &rest[2..];
                u8::from_str_radix(digits, 16).ok()?
            }
            _ => return None,
        });
    }
    Some(bytes)
}

const EXAMPLE: &str = "write fixed:8 for the first 8 bytes, until:/ for all up to the first \"/\", \
                       until:\\x00,2 for all up to the second zero byte";

impl FromStr for Prefix {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let fault = |what: &str| Error::option(format!("the prefix \"{text}\" {what}: {EXAMPLE}"));
        let number = |digits: &str| {
            digits.parse().map_err(|_| fault(&format!("has \"{digits}\" where a number belongs")))
        };
        let prefix = match text.split_once(':') {
            Some(("fixed", digits)) => Self::fixed(number(digits)?),
            Some(("until", rest)) => {
                let (delimiter, nth) = rest.split_once(',').unwrap_or((rest, "1"));
                let delimiter =
                    unescape(delimiter).ok_or_else(|| fault("has an unknown backslash escape"))?;
                Self::until_nth(delimiter, number(nth)?)
            }
            Some(("custom", _)) => {
                return Err(fault("is a closure, which only the program that defined it has"));
            }
            _ => return Err(fault("is of an unknown kind")),
        };
        prefix.check()?;
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefix({})", self.name())
    }
}

impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_all_of_the_rules_built_in() {
        for (prefix, name) in [
            (Prefix::fixed(8), "fixed:8"),
            (Prefix::until("/"), "until:/"),
            (Prefix::until_nth("::", 3), "until:::,3"),
            (Prefix::until(b"\x00,\\\xff"), "until:\\x00\\x2c\\\\\\xff"),
        ] {
            assert_eq!(prefix.to_string(), name);
            let again = Prefix::stored(name).unwrap();
            for key in [&b"12345678"[..], b"a/b", b"a::b::c::d", b"x\x00,\\\xffy", b""] {
                assert_eq!(again.of(key), prefix.of(key), "{name} of {key:?}");
            }
        }
        assert!(Prefix::stored("custom:mine").is_none());
        assert!(Prefix::stored("fixed:08").is_none(), "a name has one spelling");
    }

    #[test]
    fn a_prefix_is_that_of_all_that_begin_with_it() {
        let rules = [
            Prefix::fixed(2),
            Prefix::until("/"),
            Prefix::until("aa"),
            Prefix::until("aba"),
            Prefix::until_nth("/", 2),
            Prefix::until_nth("aa", 2),
        ];
        // All words of up to 7 of three letters.
        let mut words = vec![Vec::new()];
        let mut at = 0;
        while let Some(word) = words.get(at).cloned().filter(|word: &Vec<u8>| word.len() < 7) {
            words.extend(b"ab/".map(|letter| [&word[..], &[letter]].concat()));
            at += 1;
        }
        for rule in &rules {
            for word in &words {
                let Some(prefix) = rule.of(word) else { continue };
                for len in prefix.len()..=word.len() {
                    assert_eq!(rule.of(&word[..len]), Some(prefix), "{rule} of {word:?}");
                }
            }
        }
    }

    #[test]
    fn a_rule_for_keyspaces_leaves_their_headers_out() {
        let rule = Prefix::until("/").after_header();
        assert_eq!(rule.of(b"headers/a/b"), Some(&b"headers/a/"[..]));
        assert_eq!((rule.of(b"headers/a"), rule.of(b"a/b")), (None, None));
        assert_eq!(rule.name(), "keyspace:until:/");
        let stored = Prefix::stored(rule.name()).unwrap();
        assert_eq!(stored.of(b"headers/a/b"), rule.of(b"headers/a/b"));
        let closure = Prefix::custom("mine", |key| if key == b"x" { panic!() } else { Some(0) });
        let after = Prefix::maker("keyspace:custom:mine", Some(&closure)).unwrap();
        assert!(Prefix::maker("keyspace:custom:other", Some(&closure)).is_none());
        assert_eq!(after.believed(b"headers/"), Some(&b"headers/"[..]));
        assert_eq!(after.believed(b"headers/x"), None);
        assert!(closure.breach().is_some() && after.breach().is_some());
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, part) in [
            ("", "unknown kind"),
            ("8", "unknown kind"),
            ("fixed:", "a number"),
            ("fixed:0", "1 to 65535"),
            ("fixed:65536", "1 to 65535"),
            ("until:", "1 to 255"),
            ("until:/,0", "1 to 65535"),
            ("until:/,x", "a number"),
            ("until:\\q", "backslash"),
            ("until:\\x4", "backslash"),
            ("custom:mine", "is a closure"),
        ] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Prefix::custom("", |_| None).check().is_err());
        assert!(Prefix::custom("mine", |_| None).check().is_ok());
    }

    #[test]
    fn a_closure_is_believed_until_it_breaks_its_word() {
        let panics = Prefix::custom("panics", |key| if key == b"x" { panic!() } else { Some(0) });
        assert_eq!(panics.believed(b"y"), Some(&b""[..]));
        assert_eq!(panics.believed(b"x"), None);
        assert_eq!(panics.breach(), Some("it panicked"));
        assert_eq!(panics.believed(b"y"), None);
        let open = Prefix::custom("open", |key| key.iter().position(|byte| *byte == b'/'));
        assert_eq!(open.believed(b"a/b"), None);
        assert_eq!(open.breach(), Some("a prefix is not the prefix of itself"));
    }
}

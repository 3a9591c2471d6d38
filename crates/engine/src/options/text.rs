//! The text form of a setting: returned by [`Options::settings`](crate::Options::settings), stored
//! in the options file, and accepted by [`Options::set`](crate::Options::set).

use std::time::Duration;

use trommel_memtable::MemtableKind;
use trommel_sstable::{Compression, FilterShape};

use crate::compaction_filter::UserCompactionFilter;
use crate::filter_policy::FilterPolicy;
use crate::merge_operator::UserMergeOperator;
use crate::options::choices::{Degraded, Durability, FilterResidency};
use crate::options::reads::CacheBytes;
use crate::prefix::Prefix;
use crate::read_mode::ReadMode;
use crate::user_filters::UserPolicy;

/// The text of a setting that has no value.
const NONE: &str = "none";
/// The text of prefix filters that are the same as the whole-key filters.
const AS_FILTERS: &str = "as filters";

/// A value with a text form that can be parsed.
pub(super) trait Text: Sized {
    fn text(&self) -> String;
    /// Parses the value; the error is the reason why the text is not a value.
    fn parse(text: &str) -> Result<Self, String>;
}

/// A value that bounds apply to.
pub(super) trait Number {
    /// The number that is checked; `None` stands for no limit, which is within all bounds.
    fn number(&self) -> Option<u64>;
}

macro_rules! by_display {
    ($($type:ty),*) => {
        $(impl Text for $type {
            fn text(&self) -> String {
                self.to_string()
            }

            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error: <Self as std::str::FromStr>::Err| error.to_string())
            }
        })*
    };
}

by_display!(bool, u32, u64, usize, Compression, Degraded, Durability);
by_display!(FilterPolicy, FilterResidency, FilterShape, MemtableKind, ReadMode);

macro_rules! or_none {
    ($($type:ty),*) => {
        $(impl Text for Option<$type> {
            fn text(&self) -> String {
                self.as_ref().map_or_else(|| NONE.to_owned(), Text::text)
            }

            fn parse(text: &str) -> Result<Self, String> {
                if text == NONE { Ok(None) } else { Text::parse(text).map(Some) }
            }
        })*
    };
}

or_none!(u64, Degraded, Duration, Prefix, UserCompactionFilter, UserMergeOperator, UserPolicy);

/// A decimal number and one unit: `10s`, `1.5s`, `250ms`.
impl Text for Duration {
    fn text(&self) -> String {
        format!("{self:?}")
    }

    fn parse(text: &str) -> Result<Self, String> {
        let fault = || format!("\"{text}\" is no duration: give seconds, as in 10s or 250ms");
        let (digits, unit) = [("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)]
            .into_iter()
            .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))
            .ok_or_else(fault)?;
        let count: f64 = digits.parse().map_err(|_| fault())?;
        Self::try_from_secs_f64(count * unit).map_err(|_| fault())
    }
}

impl Text for Option<FilterPolicy> {
    fn text(&self) -> String {
        self.as_ref().map_or_else(|| AS_FILTERS.to_owned(), Text::text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == AS_FILTERS { Ok(None) } else { Text::parse(text).map(Some) }
    }
}

impl Text for Prefix {
    fn text(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Result<Self, String> {
        Self::stored(text).ok_or_else(|| match text.starts_with("custom:") {
            true => "a closure of the program that wrote the store: give it in code".to_owned(),
            false => "a rule that this program does not know".to_owned(),
        })
    }
}

impl Text for UserPolicy {
    fn text(&self) -> String {
        self.quoted()
    }

    fn parse(_: &str) -> Result<Self, String> {
        Err("a policy of the program that wrote the store: give it in code".to_owned())
    }
}

impl Text for UserCompactionFilter {
    fn text(&self) -> String {
        self.quoted()
    }

    fn parse(_: &str) -> Result<Self, String> {
        Err("a filter of the program that wrote the store: give it in code".to_owned())
    }
}

impl Text for UserMergeOperator {
    fn text(&self) -> String {
        self.quoted()
    }

    /// The name of a built-in operator, quoted or not.
    fn parse(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
        Self::built_in(name).ok_or_else(|| {
            "an operator of the program that wrote the store: give it in code".to_owned()
        })
    }
}

impl Text for CacheBytes {
    fn text(&self) -> String {
        self.get().to_string()
    }

    fn parse(text: &str) -> Result<Self, String> {
        Text::parse(text).map(Self::of)
    }
}

impl Number for u32 {
    fn number(&self) -> Option<u64> {
        Some(u64::from(*self))
    }
}

impl Number for u64 {
    fn number(&self) -> Option<u64> {
        Some(*self)
    }
}

impl Number for usize {
    fn number(&self) -> Option<u64> {
        Some(*self as u64)
    }
}

impl Number for Option<u64> {
    fn number(&self) -> Option<u64> {
        *self
    }
}

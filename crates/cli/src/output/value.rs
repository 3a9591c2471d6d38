//! One value of a result.

use serde::ser::{Serialize, Serializer};
use trommel_harness::units;

/// A value. Tables format it for people; the other formats keep full precision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Unknown, or absent.
    Null,
    Bool(bool),
    /// A number that identifies (a file, a byte offset), displayed as it is typed.
    Integer(u64),
    /// A count; a table displays commas between thousands.
    Count(u64),
    /// A number of bytes; a table displays it in a suitable unit.
    Size(u64),
    /// A measured number; a table displays four digits.
    Float(f64),
    Text(String),
    /// Several values.
    List(Vec<Value>),
    /// Named values.
    #[cfg_attr(not(test), allow(dead_code, reason = "the commands on files use it"))]
    Record(Vec<(&'static str, Value)>),
}

impl Value {
    /// The name of a level.
    pub(crate) fn level(level: usize) -> Self {
        Self::Text(format!("L{level}"))
    }

    /// Whether a column of such values is right-aligned.
    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Integer(_) | Self::Count(_) | Self::Size(_) | Self::Float(_))
    }

    /// The value in a table.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Null => "-".into(),
            Self::Bool(true) => "yes".into(),
            Self::Bool(false) => "no".into(),
            Self::Integer(number) => number.to_string(),
            Self::Count(number) => units::grouped(*number),
            Self::Size(bytes) => units::bytes(*bytes),
            Self::Float(number) => four_digits(*number),
            Self::Text(text) => crate::escape::visible(text),
            Self::List(values) => values.iter().map(Self::shown).collect::<Vec<_>>().join(", "),
            Self::Record(fields) => {
                let field = |(name, value): &(&str, Self)| format!("{name} {}", value.shown());
                fields.iter().map(field).collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// The value as a field of CSV, unquoted; nested values are JSON.
    pub(super) fn plain(&self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Text(text) => text.clone(),
            _ => serde_json::to_string(self).unwrap_or_default(),
        }
    }
}

/// Four significant digits, with an exponent for very small numbers.
fn four_digits(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || !number.is_finite() {
        return number.to_string();
    }
    if !(1e-3..1e15).contains(&size) {
        return format!("{number:.3e}");
    }
    let decimals = (3 - size.log10().floor() as i32).clamp(0, 6) as usize;
    format!("{number:.decimals$}")
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(number) | Self::Count(number) | Self::Size(number) => {
                serializer.serialize_u64(*number)
            }
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(values) => serializer.collect_seq(values),
            Self::Record(fields) => Object::of(fields).serialize(serializer),
        }
    }
}

/// Named values as an object, in their order.
pub(super) struct Object<I>(pub(super) I);

impl<'a> Object<Vec<(&'static str, &'a Value)>> {
    pub(super) fn of(fields: &'a [(&'static str, Value)]) -> Self {
        Self(fields.iter().map(|(name, value)| (*name, value)).collect())
    }
}

impl<'a, I: Clone + IntoIterator<Item = (&'static str, &'a Value)>> Serialize for Object<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.clone())
    }
}

macro_rules! from {
    ($($type:ty => $variant:expr;)*) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Self {
                $variant(value)
            }
        })*
    };
}

from! {
    bool => Self::Bool;
    f64 => Self::Float;
    String => Self::Text;
    Vec<Value> => Self::List;
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

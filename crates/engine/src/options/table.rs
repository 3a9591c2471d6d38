//! The macro that defines each setting in one place.
//!
//! A group is a struct. Each of its settings is one entry: documentation, name, type, default and,
//! if there are any, bounds. From that entry come the field, the default, the setter, the check of
//! the bounds, the line of [`Options::settings`](crate::Options::settings) and the parser of
//! [`Options::set`](crate::Options::set).
//!
//! `name(Argument => wrap): Type` is a setting whose setter takes a different type from its field.
//! `beside` lists fields without a text form; their setters are written by hand.

use std::ops::{Bound, RangeBounds};

use crate::error::{Error, Result};

macro_rules! settings {
    (
        $(#[$doc:meta])*
        $group:ident {
            $(
                $(#[$about:meta])*
                $name:ident $(($argument:ty => $wrap:expr))?:
                    $type:ty = $default:expr $(, $bounds:expr)?;
            )*
        }
        $(beside { $($(#[$note:meta])* $field:ident: $kind:ty = $value:expr;)* })?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $group {
            $(pub(crate) $name: $type,)*
            $($($(#[$note])* pub(crate) $field: $kind,)*)?
        }

        impl Default for $group {
            fn default() -> Self {
                Self { $($name: $default,)* $($($field: $value,)*)? }
            }
        }

        impl $group {
            $(crate::options::table::setter! {
                [
                    $(#[$about])*
                    #[doc = concat!("\n\nDefault: `", stringify!($default), "`.")]
                    $(#[doc = concat!(" Bounds: `", stringify!($bounds), "`.")])?
                ]
                $name: $type $(, $argument => $wrap)?
            })*

            /// Adds the name and the text of each setting of this group.
            pub(super) fn list(&self, all: &mut Vec<(&'static str, String)>) {
                $(all.push((
                    stringify!($name),
                    crate::options::text::Text::text(&self.$name),
                ));)*
            }

            /// Sets the setting of this name from its text, if it is in this group.
            pub(super) fn parse(
                &mut self,
                name: &str,
                text: &str,
            ) -> Option<std::result::Result<(), String>> {
                match name {
                    $(stringify!($name) => {
                        let parsed = crate::options::text::Text::parse(text);
                        Some(parsed.map(|value| self.$name = value))
                    })*
                    _ => None,
                }
            }

            /// Checks the bounds in the table.
            pub(super) fn check_bounds(&self) -> crate::error::Result<()> {
                $($(crate::options::table::within(
                    stringify!($name),
                    crate::options::text::Number::number(&self.$name),
                    $bounds,
                )?;)?)*
                Ok(())
            }
        }
    };
}
pub(super) use settings;

macro_rules! setter {
    ([$($about:tt)*] $name:ident: $type:ty) => {
        $($about)*
        #[must_use]
        pub fn $name(mut self, $name: $type) -> Self {
            self.$name = $name;
            self
        }
    };
    ([$($about:tt)*] $name:ident: $type:ty, $argument:ty => $wrap:expr) => {
        $($about)*
        #[must_use]
        pub fn $name(mut self, $name: $argument) -> Self {
            let wrap: fn(_) -> $type = $wrap;
            self.$name = wrap($name);
            self
        }
    };
}
pub(super) use setter;

/// Checks that a number lies within its bounds; `None` stands for no limit.
pub(super) fn within(name: &str, value: Option<u64>, bounds: impl RangeBounds<u64>) -> Result<()> {
    let Some(value) = value.filter(|value| !bounds.contains(value)) else { return Ok(()) };
    let end = |bound: Bound<&u64>| match bound {
        Bound::Included(end) | Bound::Excluded(end) => Some(*end),
        Bound::Unbounded => None,
    };
    let low = end(bounds.start_bound()).unwrap_or_default();
    let bounds = match end(bounds.end_bound()) {
        None => format!("at least {low}"),
        Some(high) => format!("{low} to {high}"),
    };
    Err(Error::option(format!("{name} is {value}: it must be {bounds}")))
}

//! The errors of this crate.

use std::fmt;

/// Why there is no result. The message says what to pass instead.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TuningError {
    /// A number is out of bounds, or NaN.
    OutOfRange {
        /// The name of the number, as in "the share of lookups that miss".
        what: &'static str,
        /// The number.
        value: f64,
        /// The bounds, as in "0 to 1".
        bounds: &'static str,
    },
    /// The floors of the rules take more bytes than the budget has.
    BelowFloors {
        /// Bytes of the smallest filters that the rules allow.
        needed: u64,
        /// Bytes of the budget.
        budget: u64,
    },
    /// A rule that no filter can meet.
    Rule(String),
    /// A text that is not a budget.
    Budget(String),
    /// The number of filters differs from the number of tables. There must be one for each, in the
    /// tree's order.
    Count {
        /// Tables of the tree.
        tables: usize,
        /// Filters passed.
        given: usize,
    },
}

impl fmt::Display for TuningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { what, value, bounds } => {
                write!(f, "{what} is {value}: give {bounds}")
            }
            Self::BelowFloors { needed, budget } => write!(
                f,
                "the smallest filters that the rules allow take {needed} bytes, and the budget is \
                 {budget}: raise it, or lower the floors"
            ),
            Self::Rule(message) | Self::Budget(message) => f.write_str(message),
            Self::Count { tables, given } => {
                write!(f, "{given} filters for {tables} tables: give one for each, in their order")
            }
        }
    }
}

impl std::error::Error for TuningError {}

/// `value`, if it is a number from `least` to `most`.
pub(crate) fn within(
    what: &'static str,
    value: f64,
    (least, most): (f64, f64),
    bounds: &'static str,
) -> Result<f64, TuningError> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(TuningError::OutOfRange { what, value, bounds })
}

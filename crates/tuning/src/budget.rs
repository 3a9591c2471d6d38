//! The memory budget of filters.

use std::fmt;
use std::str::FromStr;

use crate::error::{TuningError, within};

/// Memory for all filters of a tree: bits per key, or bytes.
///
/// ```
/// use trommel_tuning::Budget;
/// let budget: Budget = "10/key".parse()?;
/// assert_eq!(budget.bytes(1_000_000), 1_250_000);
/// let budget: Budget = "64MiB".parse()?;
/// assert_eq!(budget.bytes(1_000_000), 64 << 20);
/// assert_eq!(budget.to_string(), "64MiB");
/// # Ok::<(), trommel_tuning::TuningError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Budget {
    /// Bits for each key of each table: the budget grows with the tree.
    PerKey(f64),
    /// Bytes, whatever the tree.
    Bytes(u64),
}

/// The most bits per key of a budget: with more, filters do not improve.
const MOST_BITS: f64 = 64.0;

impl Budget {
    /// A budget of `bits` bits for each key.
    ///
    /// # Errors
    /// `bits` is not from 0 to 64.
    pub fn per_key(bits: f64) -> Result<Self, TuningError> {
        within("a budget per key", bits, (0.0, MOST_BITS), "0 to 64 bits").map(Self::PerKey)
    }

    /// Bytes for the filters of tables of `keys` keys altogether.
    #[must_use]
    pub fn bytes(self, keys: u64) -> u64 {
        match self {
            Self::PerKey(bits) => (bits * keys as f64 / 8.0) as u64,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// The most bytes that are taken for a mistake. No filter fits them (one has a block of 64, and its
/// header), and they equal the range of bits per key: the user probably meant bits.
const FEW_BYTES: u64 = 64;

/// Units of bytes, the largest first.
const UNITS: [(&str, u64); 4] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

impl FromStr for Budget {
    type Err = TuningError;

    /// `10/key`, or bytes: `1048576`, `64MiB`, `64MB` and `64M` (the last three are the same), and
    /// likewise with `K`, `G` and `T`. Budgets that no filter fits are rejected, except 0.
    fn from_str(text: &str) -> Result<Self, TuningError> {
        let fault = || {
            TuningError::Budget(format!(
                "`{text}` is not a filter budget: write bits per key, as in 10/key, or bytes, as \
                 in 64MiB"
            ))
        };
        if let Some(bits) = text.strip_suffix("/key") {
            let is_plain = bits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            let bits = bits.parse().ok().filter(|_| is_plain);
            return Self::per_key(bits.ok_or_else(fault)?);
        }
        let digits = text.len() - text.trim_start_matches(|byte: char| byte.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let unit = unit.to_ascii_uppercase();
        let unit = unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit);
        let size = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, size)| *size);
        let size = if unit.is_empty() { Some(1) } else { size };
        let number: Option<u64> = number.parse().ok();
        let bytes = number.zip(size).and_then(|(number, size)| number.checked_mul(size));
        match bytes {
            Some(few @ 1..=FEW_BYTES) => Err(TuningError::Budget(format!(
                "`{text}` is {few} bytes for all filters, too few for a single one: did you mean \
                 {few}/key, bits per key? For no filters write 0"
            ))),
            _ => bytes.map(Self::Bytes).ok_or_else(fault),
        }
    }
}

impl fmt::Display for Budget {
    /// Prints a form that can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PerKey(bits) => write!(f, "{bits}/key"),
            Self::Bytes(bytes) => {
                let whole = |(_, size): &&(_, u64)| bytes > 0 && bytes.is_multiple_of(*size);
                match UNITS.iter().find(whole) {
                    Some((unit, size)) => write!(f, "{}{unit}iB", bytes / size),
                    None => write!(f, "{bytes}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_budget_can_be_parsed() {
        for (text, budget, printed) in [
            ("10/key", Budget::PerKey(10.0), "10/key"),
            ("0.5/key", Budget::PerKey(0.5), "0.5/key"),
            ("0", Budget::Bytes(0), "0"),
            ("1000", Budget::Bytes(1000), "1000"),
            ("64M", Budget::Bytes(64 << 20), "64MiB"),
            ("64mb", Budget::Bytes(64 << 20), "64MiB"),
            ("2048K", Budget::Bytes(2 << 20), "2MiB"),
            ("3TiB", Budget::Bytes(3 << 40), "3TiB"),
        ] {
            assert_eq!(text.parse::<Budget>().unwrap(), budget, "{text}");
            assert_eq!(budget.to_string(), printed);
            assert_eq!(printed.parse::<Budget>().unwrap(), budget);
        }
    }

    /// `budget=10`, meant as 10 bits a key, removed all filters silently.
    #[test]
    fn bytes_that_no_filter_fits_in_are_refused() {
        for text in ["1", "10", "16", "64"] {
            let error = text.parse::<Budget>().unwrap_err().to_string();
            let meant = format!("did you mean {text}/key");
            assert!(error.contains(&meant) && error.contains("bytes"), "{text}: {error}");
        }
        for text in ["0", "65", "1K", "10/key"] {
            assert!(text.parse::<Budget>().is_ok(), "{text}");
        }
    }

    #[test]
    fn an_invalid_budget_is_explained() {
        for text in
            ["", "/key", "ten/key", "nan/key", "inf/key", "-1/key", "1e1/key", "MiB", "1.5M"]
        {
            let error = text.parse::<Budget>().unwrap_err().to_string();
            assert!(error.contains("as in 10/key"), "{text}: {error}");
        }
        assert!(
            "18446744073709551615K".parse::<Budget>().is_err(),
            "more bytes than can be counted"
        );
        assert!("65/key".parse::<Budget>().unwrap_err().to_string().contains("0 to 64 bits"));
    }
}

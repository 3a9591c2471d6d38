//! The specification of a range filter.
//!
//! ```text
//! ranges = "none" | "infix:" bits
//! bits   = a decimal, 3 to 32 bits per key, kept to 1/1000
//! ```

use alloc::format;
use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

use super::{MOST_CELLS, RangeFilterBuilder, elias_fano};
use crate::ParseSpecError;
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::format::HEADER_BYTES;
use crate::theory;

/// Thousandths of a bit per key that a filter may have.
pub(super) const MILLIBITS: RangeInclusive<u32> = 3_000..=32_000;
/// About as many bytes as the code of keys of decimal digits takes.
const CODE_BYTES: u64 = 32;

/// The kind and size of a range filter to build.
///
/// ```
/// use trommel_filter::RangeSpec;
///
/// let spec: RangeSpec = "infix:6".parse()?;
/// assert_eq!(spec.bits_per_key(), 6.0);
/// assert_eq!(spec.to_string(), "infix:6");
/// assert!((0.060..0.061).contains(&spec.expected_fpr()));
/// assert!("infix:2".parse::<RangeSpec>().is_err());
/// # Ok::<(), trommel_filter::ParseSpecError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RangeSpec {
    /// 0 for no filter.
    millibits: u32,
}

impl RangeSpec {
    /// No filter.
    pub const NONE: Self = Self { millibits: 0 };

    /// A filter of `bits_per_key` bits per key, rounded to the nearest 1/1000.
    ///
    /// # Errors
    /// `bits_per_key` is not within 3 to 32.
    pub fn new(bits_per_key: f64) -> Result<Self, ParseSpecError> {
        let millibits = (bits_per_key * 1000.0).round();
        let within = f64::from(*MILLIBITS.start())..=f64::from(*MILLIBITS.end());
        if !within.contains(&millibits) {
            return Err(ParseSpecError::new(format!(
                "{bits_per_key} bits per key is out of range for ranges: give 3 to 32, as in \
                 `infix:6`"
            )));
        }
        Ok(Self { millibits: millibits as u32 })
    }

    /// Bits per key; 0 for no filter.
    pub fn bits_per_key(&self) -> f64 {
        f64::from(self.millibits) / 1000.0
    }

    pub(super) fn millibits(self) -> u32 {
        self.millibits
    }

    /// A builder for one filter, or several of adjacent blocks.
    pub fn builder(&self) -> RangeFilterBuilder {
        RangeFilterBuilder::new(*self)
    }

    /// The expected rate of "maybe" for empty ranges, among many keys that are spread evenly: 1
    /// without a filter.
    pub fn expected_fpr(&self) -> f64 {
        if *self == Self::NONE { 1.0 } else { theory::infix_limit(self.bits_per_key()) }
    }

    /// Cells for each key.
    pub(super) fn cells_per_key(self) -> f64 {
        (self.bits_per_key() - 2.0).exp2()
    }

    /// The bytes that a filter of `keys` keys takes, within some 5% from 3,000 keys on, if they
    /// are spread evenly: keys that crowd share cells, and so their filter takes fewer. 0 without a
    /// filter.
    pub fn expected_bytes(&self, keys: u64) -> u64 {
        if *self == Self::NONE {
            return 0;
        }
        let cells = (keys as f64 * self.cells_per_key()).min(MOST_CELLS as f64);
        let occupied = (cells * self.expected_fpr()) as u64;
        let list = elias_fano::stored_bytes(occupied, cells as u64);
        HEADER_BYTES as u64 + CODE_BYTES + list
    }
}

impl fmt::Debug for RangeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RangeSpec({self})")
    }
}

impl fmt::Display for RangeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NONE => f.pad("none"),
            _ => f.pad(&format!("infix:{}", self.bits_per_key())),
        }
    }
}

impl FromStr for RangeSpec {
    type Err = ParseSpecError;

    fn from_str(text: &str) -> Result<Self, ParseSpecError> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        let bits = text.strip_prefix("infix:").and_then(|bits| bits.parse().ok());
        let wrong = || {
            ParseSpecError::new(format!(
                "`{text}` is no range filter: write `infix:` and bits per key, as in `infix:6`, \
                 or `none`"
            ))
        };
        Self::new(bits.ok_or_else(wrong)?)
    }
}

//! The specification of a filter: one grammar shared by the API, the command line, configuration
//! files and reports.
//!
//! ```text
//! filter = "none" | kind ":" bits | kind ":fpr=" rate
//! kind   = "standard" | "blocked" | "paired" | "ribbon" | "fuse" | "bloom" | "rocksdb.BloomFilter"
//!        | "bloomfilter" | "rocksdb.RibbonFilter" | "ribbonfilter" | "speedb.PairedBloomFilter"
//! bits   = a decimal, 0.5 to 64 bits per key, kept to 1/1000
//! rate   = a decimal below 1, such as 0.001 or 1e-5
//! ```
//! `bloom`, and RocksDB's `bloomfilter` and `rocksdb.BloomFilter`, are `blocked`;
//! `speedb.PairedBloomFilter` is `paired`. RocksDB's `ribbonfilter` and `rocksdb.RibbonFilter` are
//! `ribbon`, and their bits mean what they mean in RocksDB: the bits of a blocked filter with the
//! same rate. RocksDB writes a third part. The values that match this crate's behavior are
//! accepted: `:false` for a Bloom filter (no block-based filter) and `:-1` for a ribbon (on every
//! level). The level of a ribbon is parsed by the engine's policy by level (its `FilterPolicy`).
//!
//! A rate is resolved to bits when the spec is created: the fewest thousandths of a bit for which
//! the exact theory of the kind, in the limit of many keys, gives at most that rate.
//!
//! The upper bound of 64 bits is where a filter of 64-bit hashes stops improving: with a million
//! keys, one absent key in 10^13 has the same hash as a present one.
//!
//! [`FilterSpec`] prints what it parses, so that it can be stored and shown.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::builder::{self, FilterBuilder};
#[cfg(not(feature = "std"))]
use crate::float::Float;
use crate::kind::{FilterKind, MAX_MILLIBITS, MIN_MILLIBITS};
use crate::theory;

/// Words for a kind other than its name.
const ALIASES: [(&str, FilterKind); 6] = [
    ("bloom", FilterKind::Blocked),
    ("rocksdb.BloomFilter", FilterKind::Blocked),
    ("bloomfilter", FilterKind::Blocked),
    ("rocksdb.RibbonFilter", FilterKind::Ribbon),
    ("ribbonfilter", FilterKind::Ribbon),
    ("speedb.PairedBloomFilter", FilterKind::Paired),
];

/// Every word that may precede the colon.
fn words() -> impl Iterator<Item = (&'static str, FilterKind)> {
    let kinds = [FilterKind::None].into_iter().chain(FilterKind::ALL);
    kinds.map(|kind| (kind.name(), kind)).chain(ALIASES)
}

/// The kind and size of a filter to build.
///
/// ```
/// use trommel_filter::{FilterKind, FilterSpec};
///
/// let spec: FilterSpec = "paired:23.4".parse()?;
/// assert_eq!(spec.kind(), FilterKind::Paired);
/// assert_eq!(spec.bits_per_key(), 23.4);
/// assert_eq!(spec.to_string(), "paired:23.4");
///
/// let spec: FilterSpec = "paired:fpr=1e-5".parse()?;
/// assert!((24.5..24.6).contains(&spec.bits_per_key()));
/// assert_eq!(spec.to_string(), "paired:fpr=1e-5");
///
/// let error = "pairde:10".parse::<FilterSpec>().unwrap_err();
/// assert!(error.to_string().contains("did you mean `paired`?"));
/// # Ok::<(), trommel_filter::ParseSpecError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FilterSpec {
    kind: FilterKind,
    millibits: u32,
    /// The requested rate, as the bits of an `f64`; `None` if bits per key were requested.
    target: Option<u64>,
}

impl Default for FilterSpec {
    /// No filter.
    fn default() -> Self {
        Self::NONE
    }
}

impl FilterSpec {
    /// No filter.
    pub const NONE: Self = Self { kind: FilterKind::None, millibits: 0, target: None };

    /// A filter of `bits_per_key` bits per key, rounded to the nearest 1/1000.
    ///
    /// # Errors
    /// `bits_per_key` is not within 0.5 to 64, or `kind` is [`FilterKind::None`], which has no
    /// bits.
    pub fn new(kind: FilterKind, bits_per_key: f64) -> Result<Self, ParseSpecError> {
        check_sized(kind)?;
        let millibits = (bits_per_key * 1000.0).round();
        if !(f64::from(MIN_MILLIBITS)..=f64::from(MAX_MILLIBITS)).contains(&millibits) {
            return Err(ParseSpecError::new(format!(
                "{bits_per_key} bits per key is out of range: give 0.5 to 64, as in `{kind}:10`"
            )));
        }
        Ok(Self { kind, millibits: millibits as u32, target: None })
    }

    /// A filter with the fewest bits per key whose false positive rate is at most `rate`.
    ///
    /// # Errors
    /// `kind` has no bits, `rate` is not between 0 and 1, or no filter of this kind within 64 bits
    /// per key reaches it.
    pub fn with_fpr(kind: FilterKind, rate: f64) -> Result<Self, ParseSpecError> {
        check_sized(kind)?;
        if !(rate > 0.0 && rate < 1.0) {
            return Err(ParseSpecError::new(format!(
                "a rate of {rate} is out of range: give one between 0 and 1, as in \
                 `{kind}:fpr=1e-5`"
            )));
        }
        let millibits = fewest_millibits(kind, rate)?;
        Ok(Self { kind, millibits, target: Some(rate.to_bits()) })
    }

    /// The ribbon filter with the false positive rate of a blocked filter of `bits_per_key` bits
    /// per key, which is how RocksDB specifies the size of a ribbon. It takes about 30% fewer bits.
    ///
    /// ```
    /// let spec = trommel_filter::FilterSpec::ribbon_like_bloom(10.0)?;
    /// assert_eq!(spec, "ribbonfilter:10".parse()?);
    /// assert!((6.8..7.0).contains(&spec.bits_per_key()));
    /// # Ok::<(), trommel_filter::ParseSpecError>(())
    /// ```
    ///
    /// # Errors
    /// `bits_per_key` is not within 0.5 to 64.
    pub fn ribbon_like_bloom(bits_per_key: f64) -> Result<Self, ParseSpecError> {
        let blocked = Self::new(FilterKind::Blocked, bits_per_key)?;
        let rate = theory::best_fpr(FilterKind::Blocked, blocked.bits_per_key());
        // Rounded, so that it prints well: `ribbon:fpr=9.66e-3`.
        let rounded = format!("{rate:.2e}").parse().unwrap_or(rate);
        Self::with_fpr(FilterKind::Ribbon, rounded)
    }

    /// The family.
    pub fn kind(&self) -> FilterKind {
        self.kind
    }

    /// Bits per key, as requested or as resolved from the requested rate; 0 for
    /// [`FilterKind::None`].
    pub fn bits_per_key(&self) -> f64 {
        f64::from(self.millibits) / 1000.0
    }

    /// Bytes of the bits that `keys` keys take, rounded down: about the size of a filter of that
    /// many keys, and cheap enough to compute after every key.
    /// [`expected_bytes`](Self::expected_bytes) is exact.
    pub fn bits_bytes(&self, keys: u64) -> u64 {
        keys.saturating_mul(u64::from(self.millibits)) / (8 * 1000)
    }

    /// The requested false positive rate, if the spec names one.
    pub fn target_fpr(&self) -> Option<f64> {
        self.target.map(f64::from_bits)
    }

    /// A builder for one filter.
    pub fn builder(&self) -> FilterBuilder {
        FilterBuilder::new(*self)
    }

    /// The exact expected false positive rate of a filter of `keys` distinct keys, at the size that
    /// the builder chooses: 1 for [`FilterKind::None`], 0 for a filter without keys.
    pub fn expected_fpr(&self, keys: u64) -> f64 {
        builder::expected_fpr(*self, keys)
    }

    /// Bytes of the finished filter of `keys` distinct keys, including the header; 0 for
    /// [`FilterKind::None`]. Saturates at `u64::MAX`.
    pub fn expected_bytes(&self, keys: u64) -> u64 {
        builder::expected_bytes(*self, keys)
    }

    /// The same bits per key, of another kind.
    pub(crate) fn with_kind(self, kind: FilterKind) -> Self {
        Self { kind, target: None, ..self }
    }

    /// Thousandths of a bit per key.
    pub(crate) fn millibits(&self) -> u32 {
        self.millibits
    }
}

/// The fewest thousandths of a bit per key at which a filter of this kind has a rate of at most
/// `rate`.
///
/// With `std` each is computed once: every table that was built for a rate names it, and is opened
/// many times.
#[cfg(feature = "std")]
fn fewest_millibits(kind: FilterKind, rate: f64) -> Result<u32, ParseSpecError> {
    use std::sync::{Mutex, PoisonError};

    static KNOWN: Mutex<Vec<(FilterKind, u64, u32)>> = Mutex::new(Vec::new());
    /// A store is built for a few rates.
    const MOST_KNOWN: usize = 64;
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_same = |entry: &&(FilterKind, u64, u32)| (entry.0, entry.1) == (kind, rate.to_bits());
    if let Some(&(.., millibits)) = known().iter().find(is_same) {
        return Ok(millibits);
    }
    let millibits = compute_millibits(kind, rate)?;
    let mut known = known();
    if known.len() < MOST_KNOWN {
        known.push((kind, rate.to_bits(), millibits));
    }
    Ok(millibits)
}

#[cfg(not(feature = "std"))]
use compute_millibits as fewest_millibits;

/// [`fewest_millibits`], without a cache.
fn compute_millibits(kind: FilterKind, rate: f64) -> Result<u32, ParseSpecError> {
    let rate_at = |millibits: u32| theory::best_fpr(kind, f64::from(millibits) / 1000.0);
    if rate_at(MAX_MILLIBITS) > rate {
        return Err(ParseSpecError::new(format!(
            "no {kind} filter of up to 64 bits per key has a rate of {rate:e}: the lowest is {:.0e}",
            rate_at(MAX_MILLIBITS)
        )));
    }
    // The optimum of the standard filter, 1.44 log2(1/rate), is a lower bound for every Bloom
    // filter; log2(1/rate) is one for every filter.
    let power = match kind {
        FilterKind::Ribbon | FilterKind::Fuse => 1,
        FilterKind::None | FilterKind::Standard | FilterKind::Blocked | FilterKind::Paired => 2,
    };
    let bound = 1000.0 * -rate.ln() / core::f64::consts::LN_2.powi(power);
    let mut low = (bound as u32).clamp(MIN_MILLIBITS, MAX_MILLIBITS);
    let mut high = low;
    let mut step = 250;
    while rate_at(high) > rate {
        low = high;
        high = (high + step).min(MAX_MILLIBITS);
        step *= 2;
    }
    while low < high {
        let middle = low.midpoint(high);
        if rate_at(middle) > rate {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(high)
}

/// Rejects the kinds that have no size.
fn check_sized(kind: FilterKind) -> Result<(), ParseSpecError> {
    match kind {
        FilterKind::None => {
            Err(ParseSpecError::new("`none` takes no number: write `none` alone".to_owned()))
        }
        _ => Ok(()),
    }
}

impl fmt::Debug for FilterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilterSpec({self})")
    }
}

impl fmt::Display for FilterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match (self.kind, self.target) {
            (FilterKind::None, _) => "none".to_owned(),
            (kind, Some(rate)) => format!("{kind}:fpr={:e}", f64::from_bits(rate)),
            (kind, None) => format!("{kind}:{}", self.bits_per_key()),
        };
        f.pad(&text)
    }
}

impl FromStr for FilterSpec {
    type Err = ParseSpecError;

    fn from_str(text: &str) -> Result<Self, ParseSpecError> {
        let (word, size) = match text.split_once(':') {
            Some((word, size)) => (word, Some(size)),
            None => (text, None),
        };
        let Some((word, kind)) = words().find(|(known, _)| *known == word) else {
            return Err(unknown_word(text, word));
        };
        let Some(size) = size else {
            return match kind {
                FilterKind::None => Ok(Self::NONE),
                _ => check_sized(kind).and(Err(ParseSpecError::new(format!(
                    "`{word}` needs a number of bits per key or a rate, as in `{word}:10` or \
                     `{word}:fpr=1e-3`"
                )))),
            };
        };
        check_sized(kind)?;
        if let Some(rate) = size.strip_prefix("fpr=") {
            let rate = number(rate).ok_or_else(|| {
                ParseSpecError::new(format!(
                    "`{rate}` in `{text}` is not a rate: write one between 0 and 1, as in \
                     `{word}:fpr=1e-5`"
                ))
            })?;
            return Self::with_fpr(kind, rate);
        }
        let size = without_third_part(text, word, size)?;
        let bits = number(size).ok_or_else(|| {
            ParseSpecError::new(format!(
                "`{size}` in `{text}` is neither a number of bits per key nor `fpr=` and a rate: \
                 write `{word}:10` or `{word}:fpr=1e-5`"
            ))
        })?;
        match word {
            "rocksdb.RibbonFilter" | "ribbonfilter" => Self::ribbon_like_bloom(bits),
            _ => Self::new(kind, bits),
        }
    }
}

/// The bits of a size. A third part in RocksDB's syntax is accepted only if it matches this crate's
/// behavior.
fn without_third_part<'a>(
    text: &str,
    word: &str,
    size: &'a str,
) -> Result<&'a str, ParseSpecError> {
    let Some((bits, third)) = size.split_once(':') else { return Ok(size) };
    let says = match word {
        "rocksdb.BloomFilter" | "bloomfilter" if third == "false" => return Ok(bits),
        "rocksdb.RibbonFilter" | "ribbonfilter" if third == "-1" => return Ok(bits),
        "rocksdb.BloomFilter" | "bloomfilter" => {
            "RocksDB's block-based filter is not supported: write `false`, or leave it out"
                .to_owned()
        }
        "rocksdb.RibbonFilter" | "ribbonfilter" => format!(
            "one filter has no levels: write `{word}:{bits}`, or name the filters by level, as in \
             `L0=blocked:{bits},L1-=ribbonfilter:{bits}`"
        ),
        _ => return Ok(size),
    };
    Err(ParseSpecError::new(format!("`{third}` in `{text}` cannot be used: {says}")))
}

/// A plain decimal, with or without an exponent; not the `inf` and `nan` that `f64` would accept.
fn number(text: &str) -> Option<f64> {
    let plain = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+');
    if !text.bytes().all(plain) {
        return None;
    }
    text.parse().ok()
}

fn unknown_word(text: &str, word: &str) -> ParseSpecError {
    if text.is_empty() {
        return ParseSpecError::new(
            "a filter is missing: write `none` or, for instance, `paired:23.4`".to_owned(),
        );
    }
    let lower = word.to_lowercase();
    let near = words()
        .map(|(known, _)| (edits(&lower, &known.to_lowercase()), known))
        .min()
        .filter(|&(distance, known)| distance <= known.len().div_ceil(3).min(4));
    let hint = match near {
        Some((_, known)) => format!("did you mean `{known}`? For instance `{}`", example(known)),
        None => {
            let examples = FilterKind::ALL.map(|kind| format!("`{}`", example(kind.name())));
            format!("write `none` or one of {}", examples.join(", "))
        }
    };
    ParseSpecError::new(format!("`{word}` is not a kind of filter: {hint}"))
}

/// An example of a spec that uses `word`.
fn example(word: &str) -> String {
    match word {
        "none" => "none".to_owned(),
        "paired" | "speedb.PairedBloomFilter" => format!("{word}:23.4"),
        _ => format!("{word}:10"),
    }
}

/// The edit distance from `a` to `b`, counting insertions, deletions, changes and swaps of
/// neighbors.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().collect());
    let mut rows = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

/// Why a text is not a [`FilterSpec`]. The message states what is wrong and shows a correct form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseSpecError {
    message: String,
}

impl ParseSpecError {
    pub(crate) fn new(message: String) -> Self {
        Self { message }
    }

    /// No filter of `keys` keys has that rate.
    pub(crate) fn out_of_reach(kind: FilterKind, keys: u64, rate: f64) -> Self {
        Self::new(format!(
            "no {kind} filter of {keys} keys with up to 64 bits per key has a rate of {rate:e}"
        ))
    }
}

impl fmt::Display for ParseSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for ParseSpecError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> FilterSpec {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> String {
        match text.parse::<FilterSpec>() {
            Ok(spec) => panic!("`{text}` is taken for {spec}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_printed_spec_can_be_parsed() {
        for (text, printed) in [
            ("none", "none"),
            ("standard:10", "standard:10"),
            ("blocked:12.5", "blocked:12.5"),
            ("paired:23.4", "paired:23.4"),
            ("paired:23.4004", "paired:23.4"),
            ("paired:0.5", "paired:0.5"),
            ("paired:64", "paired:64"),
            ("blocked:1e1", "blocked:10"),
            ("bloom:10", "blocked:10"),
            ("rocksdb.BloomFilter:10", "blocked:10"),
            ("bloomfilter:10:false", "blocked:10"),
            ("rocksdb.RibbonFilter:10", "ribbon:fpr=9.66e-3"),
            ("ribbonfilter:10:-1", "ribbon:fpr=9.66e-3"),
            ("rocksdb.RibbonFilter:fpr=0.01", "ribbon:fpr=1e-2"),
            ("speedb.PairedBloomFilter:23.4", "paired:23.4"),
            ("standard:fpr=0.01", "standard:fpr=1e-2"),
            ("paired:fpr=1e-5", "paired:fpr=1e-5"),
            ("speedb.PairedBloomFilter:fpr=0.00015", "paired:fpr=1.5e-4"),
        ] {
            let spec = parsed(text);
            assert_eq!(spec.to_string(), printed);
            assert_eq!(parsed(printed), spec);
        }
        for millibits in (MIN_MILLIBITS..=MAX_MILLIBITS).step_by(7) {
            let spec = FilterSpec::new(FilterKind::Blocked, f64::from(millibits) / 1000.0).unwrap();
            assert_eq!(spec.millibits(), millibits);
            assert_eq!(parsed(&spec.to_string()), spec);
        }
        assert_eq!(format!("[{:>12}]", parsed("paired:10")), "[   paired:10]");
        assert_eq!(format!("{:?}", parsed("paired:10")), "FilterSpec(paired:10)");
    }

    /// The bits that the published table of targets states, to its precision.
    #[test]
    fn rates_are_resolved_to_the_fewest_bits() {
        for (rate, bits) in [
            (1e-2, [9.59, 9.92, 9.77]),
            (1e-3, [14.38, 15.55, 14.64]),
            (1e-4, [19.17, 22.03, 19.58]),
            (1e-5, [23.97, 29.7, 24.52]),
            (1e-6, [28.76, 38.8, 29.52]),
            (1e-7, [33.55, 49.9, 34.62]),
        ] {
            let kinds = [FilterKind::Standard, FilterKind::Blocked, FilterKind::Paired];
            for (kind, bits) in kinds.into_iter().zip(bits) {
                let spec = FilterSpec::with_fpr(kind, rate).unwrap();
                let found = spec.bits_per_key();
                assert!((found - bits).abs() < 0.06, "{spec}: {found} instead of {bits}");
                assert!(theory::best_fpr(kind, found) <= rate);
                assert!(theory::best_fpr(kind, found - 0.001) > rate);
                assert_eq!(spec.target_fpr(), Some(rate));
            }
        }
    }

    #[test]
    fn errors_name_what_is_wrong_and_show_what_is_right() {
        for (text, says) in [
            ("", "a filter is missing: write `none` or, for instance, `paired:23.4`"),
            ("paired", "`paired` needs a number of bits per key or a rate, as in `paired:10`"),
            ("bloom", "as in `bloom:10` or `bloom:fpr=1e-3`"),
            ("paired:", "`` in `paired:` is neither a number of bits per key nor `fpr=`"),
            ("paired:x", "`x` in `paired:x` is neither a number"),
            ("paired:10 ", "is neither a number"),
            ("paired:-10", "-10 bits per key is out of range: give 0.5 to 64, as in `paired:10`"),
            ("paired:0", "out of range"),
            ("paired:0.4994", "out of range"),
            ("paired:64.001", "out of range"),
            ("paired:1e300", "out of range"),
            ("paired:nan", "neither a number"),
            ("paired:inf", "neither a number"),
            ("paired:10:5", "neither a number"),
            ("paired:fpr=", "`` in `paired:fpr=` is not a rate"),
            ("paired:fpr=1%", "`1%` in `paired:fpr=1%` is not a rate: write one between 0 and 1"),
            ("paired:fpr=0", "a rate of 0 is out of range: give one between 0 and 1"),
            ("paired:fpr=1", "out of range"),
            ("paired:fpr=-1e-3", "out of range"),
            ("paired:fpr=1e-30", "no paired filter of up to 64 bits per key has a rate of 1e-30"),
            ("blocked:fpr=1e-10", "the lowest is 9e-9"),
            ("none:10", "`none` takes no number: write `none` alone"),
            ("none:", "takes no number"),
            ("ribbon", "as in `ribbon:10`"),
            ("ribbn:10", "did you mean `ribbon`?"),
            ("pairde:10", "`pairde` is not a kind of filter: did you mean `paired`?"),
            ("Paired:10", "did you mean `paired`? For instance `paired:23.4`"),
            ("block:10", "did you mean `blocked`?"),
            ("blom:10", "did you mean `bloom`?"),
            ("bloomfilter:10:true", "block-based filter is not supported"),
            ("ribbonfilter:10:1", "`L0=blocked:10,L1-=ribbonfilter:10`"),
            ("ribbonfilter:65", "out of range"),
            ("blocked:10:false", "neither a number"),
            ("rocksdb.bloomfilter:10", "did you mean `rocksdb.BloomFilter`?"),
            ("speedb.PairedBloomfilter", "did you mean `speedb.PairedBloomFilter`?"),
            ("non", "did you mean `none`? For instance `none`"),
            ("10", "`10` is not a kind of filter: write `none` or one of `standard:10`,"),
            (
                "cuckoo:10",
                "write `none` or one of `standard:10`, `blocked:10`, `paired:23.4`, `ribbon:10`, \
                 `fuse:10`",
            ),
        ] {
            let error = refused(text);
            assert!(error.contains(says), "`{text}` is answered: {error}");
        }
        let long = "x".repeat(100_000);
        assert!(refused(&long).contains("is not a kind of filter"));
    }

    /// The bits of this many keys overflow 64 bits.
    #[test]
    fn no_number_of_keys_is_too_large() {
        for kind in FilterKind::ALL {
            for bits in [0.5, 4.0, 10.0, 64.0] {
                let spec = FilterSpec::new(kind, bits).unwrap();
                let many = spec.expected_fpr(1 << 38);
                let bits_bytes = (f64::from(1 << 20) * bits / 8.0) as u64;
                assert_eq!(spec.bits_bytes(1 << 20), bits_bytes, "{spec}");
                assert!(spec.expected_bytes(1 << 20) >= bits_bytes / 100 * 99, "{spec}");
                let mut bytes = spec.expected_bytes(1 << 38);
                for keys in [1 << 50, 1 << 57, 1 << 60, 1 << 62, (1 << 63) - 1, 1 << 63, u64::MAX] {
                    let rate = spec.expected_fpr(keys);
                    assert!((rate / many - 1.0).abs() < 1e-3, "{spec}, {keys}: {rate}, {many}");
                    let more = spec.expected_bytes(keys);
                    let ideal = keys as f64 * bits / 8.0;
                    let is_all = more == u64::MAX && ideal > 0.99 * u64::MAX as f64;
                    let off = (more as f64 / ideal - 1.0).abs();
                    assert!(is_all || off < 0.03, "{spec}, {keys} keys: {more} bytes");
                    assert!(more >= bytes, "{spec}, {keys} keys: {more} bytes");
                    bytes = more;
                }
            }
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for bits in [f64::NAN, f64::INFINITY, -f64::INFINITY, 0.0, 0.4, 64.1, 1e300] {
            assert!(FilterSpec::new(FilterKind::Paired, bits).is_err(), "{bits}");
        }
        for rate in [f64::NAN, f64::INFINITY, 0.0, 1.0, -0.1, 1e-300] {
            assert!(FilterSpec::with_fpr(FilterKind::Paired, rate).is_err(), "{rate}");
        }
        assert!(FilterSpec::new(FilterKind::None, 10.0).is_err());
        assert!(FilterSpec::with_fpr(FilterKind::Paired, 0.99).is_ok());
    }
}

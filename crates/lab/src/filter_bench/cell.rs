//! The measurements of one kind of filter.

use serde::{Deserialize, Serialize};

use super::{Access, Mix, Pattern, Rate};

/// The cost of a pattern, in nanoseconds per query.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The pattern.
    #[serde(flatten)]
    pub pattern: Pattern,
    /// The whole loop.
    pub gross_ns: f64,
    /// The loop without the filter query.
    pub dry_ns: f64,
}

impl Timing {
    /// The filter's own cost; none if noise hides it, and the difference is not above 0.
    pub fn net_ns(&self) -> Option<f64> {
        let net = self.gross_ns - self.dry_ns;
        (net > 0.0).then_some(net)
    }
}

/// The filters to build, and how they are queried.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FilterSetup {
    /// The filter, as a spec.
    pub spec: String,
    /// Its kind.
    pub kind: String,
    /// Requested bits per key.
    pub bits: f64,
    /// Requested average number of keys in a filter.
    pub average_keys: u64,
    /// Instruction set that queries used, if the kind has a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Whether huge pages were requested for filters that are large enough. False in records from
    /// before this field.
    #[serde(default)]
    pub huge_pages: bool,
    /// Bytes of a key, on average.
    pub key_bytes: u64,
    /// Keys in each batched query of one filter.
    pub batch: u64,
    /// Queries in each pattern.
    pub queries: u64,
    /// Seed of all keys and of the order of queries.
    pub seed: u64,
}

/// The filters that were built.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BuiltFilters {
    /// Number of filters built.
    pub filters: u64,
    /// Keys of all filters.
    pub keys: u64,
    /// Bytes in memory of all filters.
    pub memory_bytes: u64,
    /// Bytes in memory of the first filter, which is the one queried alone.
    pub single_bytes: u64,
    /// Bits per key as stored, without headers.
    pub stored_bits: f64,
    /// Bits probed for a positive answer, in the first filter.
    pub probes: u32,
    /// Nanoseconds per key to build, including hashing.
    pub build_ns: f64,
    /// Peak bytes per key during construction, beyond the finished filter
    /// ([`peak_bytes`](trommel::filter::FilterBuilder::peak_bytes) less its bytes).
    pub build_bytes: f64,
}

/// The measurements of one kind of filter at one size.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FilterCell {
    /// The filters to build, and how they are queried.
    #[serde(flatten)]
    pub setup: FilterSetup,
    /// The filters that were built.
    #[serde(flatten)]
    pub built: BuiltFilters,
    /// The false-positive rate. None if a stop prevented the measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The cost of queries.
    pub timings: Vec<Timing>,
    /// Whether the measurement was stopped early.
    #[serde(default)]
    pub interrupted: bool,
}

impl FilterCell {
    /// Net nanoseconds per query of a pattern, if it was timed and is above the noise.
    pub fn net_ns(&self, access: Access, mix: Mix) -> Option<f64> {
        let pattern = Pattern { access, mix };
        self.timings.iter().find(|timing| timing.pattern == pattern).and_then(Timing::net_ns)
    }

    /// Average number of keys in a filter.
    pub fn keys_per_filter(&self) -> f64 {
        self.built.keys as f64 / self.built.filters.max(1) as f64
    }
}

//! The measurements of each store, in order.

use std::fmt;
use std::str::FromStr;

use trommel_harness::Workload;

/// A measurement of a trial that reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Row {
    Read,
    Missing,
    MultiGet,
    Read2,
    Missing2,
    Seek,
    LongSeek,
    Scan,
    Reverse,
}

/// Reads per seek, and per seek of a hundred entries.
const READS_PER_SEEK: u64 = 10;
const READS_PER_LONG_SEEK: u64 = 50;
/// Single reads per key of multi-gets.
const READS_PER_MULTI: u64 = 2;

impl Row {
    /// All, in the order of a trial: random reads first, so that scans leave nothing in a cache for
    /// lookups.
    pub(crate) const ALL: [Self; 9] = [
        Self::Read,
        Self::Missing,
        Self::MultiGet,
        Self::Read2,
        Self::Missing2,
        Self::Seek,
        Self::LongSeek,
        Self::Scan,
        Self::Reverse,
    ];

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Missing => "missing",
            Self::MultiGet => "multiget",
            Self::Read2 => "read2",
            Self::Missing2 => "missing2",
            Self::Seek => "seek",
            Self::LongSeek => "seek100",
            Self::Scan => "scan",
            Self::Reverse => "reverse",
        }
    }

    /// The harness's workload.
    pub(crate) fn workload(self) -> Workload {
        match self {
            Self::Read | Self::Read2 => Workload::ReadRandom,
            Self::Missing | Self::Missing2 => Workload::ReadMissing,
            Self::MultiGet => Workload::MultiReadRandom,
            Self::Seek | Self::LongSeek => Workload::SeekRandom,
            Self::Scan => Workload::ReadSeq,
            Self::Reverse => Workload::ReadReverse,
        }
    }

    /// The name in records.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Read2 => "readrandom (2 threads)",
            Self::Missing2 => "readmissing (2 threads)",
            Self::LongSeek => "seekrandom (100 entries)",
            one => one.workload().name(),
        }
    }

    pub(crate) fn threads(self) -> usize {
        if matches!(self, Self::Read2 | Self::Missing2) { 2 } else { 1 }
    }

    /// Entries that a seek reads after the first.
    pub(crate) fn seek_nexts(self) -> u64 {
        if self == Self::LongSeek { 99 } else { 9 }
    }

    /// Operations of each thread, if a single thread makes `reads` reads.
    pub(crate) fn operations(self, reads: u64) -> u64 {
        match self {
            Self::Read | Self::Missing => reads,
            Self::Read2 | Self::Missing2 => reads / 2,
            Self::MultiGet => reads / READS_PER_MULTI,
            Self::Seek => reads / READS_PER_SEEK,
            Self::LongSeek => reads / READS_PER_LONG_SEEK,
            Self::Scan | Self::Reverse => u64::MAX,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|row| row.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no row \"{text}\"; rows are {names}")
        })
    }
}

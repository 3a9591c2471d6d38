//! The workloads by name.

use std::fmt;
use std::str::FromStr;

/// One thing a bench can do with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "`Workload::about` says it for readers of the help and of this")]
pub enum Workload {
    FillSeq,
    FillRandom,
    Overwrite,
    ReadRandom,
    ReadMissing,
    ReadSeq,
    ReadReverse,
    MultiReadRandom,
    SeekRandom,
    DeleteSeq,
    DeleteRandom,
    Flush,
    WaitForCompaction,
    Compact,
    Verify,
    LevelStats,
    FilterStats,
    Stats,
    ResetStats,
}

/// Every workload, with its name and what it does.
const TABLE: [(Workload, &str, &str); 19] = [
    (Workload::FillSeq, "fillseq", "write all keys in key order, to a fresh store"),
    (Workload::FillRandom, "fillrandom", "write keys drawn with replacement, to a fresh store"),
    (Workload::Overwrite, "overwrite", "write keys drawn with replacement, to the store as it is"),
    (Workload::ReadRandom, "readrandom", "get keys drawn with replacement"),
    (Workload::ReadMissing, "readmissing", "get keys that are not there, from inside the range"),
    (Workload::ReadSeq, "readseq", "scan forward"),
    (Workload::ReadReverse, "readreverse", "scan backward"),
    (Workload::MultiReadRandom, "multireadrandom", "get drawn keys, --batch-size in a call"),
    (Workload::SeekRandom, "seekrandom", "seek to drawn keys and read --seek-nexts entries"),
    (Workload::DeleteSeq, "deleteseq", "delete all keys in key order"),
    (Workload::DeleteRandom, "deleterandom", "delete keys drawn with replacement"),
    (Workload::Flush, "flush", "write what is in memory to table files"),
    (Workload::WaitForCompaction, "waitforcompaction", "wait until the background is idle"),
    (Workload::Compact, "compact", "merge everything into the deepest level"),
    (Workload::Verify, "verify", "read and check every byte, and every key against its filter"),
    (Workload::LevelStats, "levelstats", "files and size of each level"),
    (Workload::FilterStats, "filterstats", "what each level's filters did, and should have done"),
    (Workload::Stats, "stats", "everything the store counts"),
    (Workload::ResetStats, "resetstats", "count anew from here"),
];

impl Workload {
    /// All workloads, in the order in which help lists them.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(workload, ..)| *workload)
    }

    fn row(self) -> &'static (Self, &'static str, &'static str) {
        TABLE.iter().find(|(workload, ..)| *workload == self).expect("every workload is listed")
    }

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// What it does, in a few words.
    pub fn about(self) -> &'static str {
        self.row().2
    }

    /// Whether it needs an empty store to start from.
    pub fn wants_fresh_store(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom)
    }

    /// Whether it counts its operations by the number of reads asked for.
    pub fn is_read(self) -> bool {
        matches!(
            self,
            Self::ReadRandom
                | Self::ReadMissing
                | Self::ReadSeq
                | Self::ReadReverse
                | Self::MultiReadRandom
                | Self::SeekRandom
        )
    }

    /// What one operation is called in a histogram's title.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Self::FillSeq | Self::FillRandom | Self::Overwrite => "write",
            Self::ReadRandom | Self::ReadMissing | Self::ReadSeq | Self::ReadReverse => "read",
            Self::MultiReadRandom => "multiread",
            Self::SeekRandom => "seek",
            Self::DeleteSeq | Self::DeleteRandom => "delete",
            _ => "op",
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No workload has this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWorkload(String);

impl fmt::Display for UnknownWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no benchmark \"{}\"; there are", self.0)?;
        for (nth, (_, name, _)) in TABLE.iter().enumerate() {
            write!(f, "{} {name}", if nth == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownWorkload {}

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(text: &str) -> Result<Self, UnknownWorkload> {
        TABLE
            .iter()
            .find(|(_, name, _)| *name == text)
            .map(|(workload, ..)| *workload)
            .ok_or_else(|| UnknownWorkload(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_workloads_round_trip() {
        for workload in Workload::all() {
            assert_eq!(workload.name().parse(), Ok(workload));
            assert!(!workload.about().is_empty());
        }
        let error = "fillrndom".parse::<Workload>().unwrap_err().to_string();
        assert!(error.contains("\"fillrndom\"") && error.contains(" fillrandom,"), "{error}");
    }
}

//! The workloads by name.

use std::fmt;
use std::str::FromStr;

/// An operation of a bench on a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "`Workload::about` says it for readers of the help and of this")]
pub enum Workload {
    FillSeq,
    FillRandom,
    FillUniqueRandom,
    FillBatch,
    FillSync,
    Fill100K,
    Overwrite,
    ReadRandom,
    ReadMissing,
    ReadHot,
    ReadSeq,
    ReadReverse,
    MultiReadRandom,
    SeekRandom,
    NewIterator,
    ReadWhileWriting,
    ReadWhileScanning,
    SeekRandomWhileWriting,
    SeekRandomWhileDeleting,
    ReadRandomWriteRandom,
    UpdateRandom,
    MergeRandom,
    GetThenPut,
    DeleteSeq,
    DeleteRandom,
    DeleteRange,
    Queue,
    YcsbLoad,
    YcsbA,
    YcsbB,
    YcsbC,
    YcsbD,
    YcsbE,
    YcsbF,
    Open,
    Flush,
    WaitForCompaction,
    Compact,
    Checkpoint,
    Verify,
    LevelStats,
    FilterStats,
    MemStats,
    SsTables,
    Stats,
    ResetStats,
}

/// The parameter that determines the number of operations of a workload's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopCount {
    /// The number of writes.
    Writes,
    /// A thousandth of the number of writes.
    ThousandthOfWrites,
    /// The number of reads.
    Reads,
    /// The number of deletes.
    Deletes,
    /// The larger of reads and writes, if either is given; else the number of keys.
    Both,
    /// A ten-thousandth of the number of keys, which LevelDB uses for slow workloads.
    Opens,
    /// None: the workload runs once, or prints something.
    Once,
}

struct Row {
    workload: Workload,
    name: &'static str,
    /// Other names, from db_bench or in common use.
    aliases: &'static [&'static str],
    counts: LoopCount,
    about: &'static str,
}

const fn row(
    workload: Workload,
    name: &'static str,
    aliases: &'static [&'static str],
    counts: LoopCount,
    about: &'static str,
) -> Row {
    Row { workload, name, aliases, counts, about }
}

/// Every workload, in the order of the help.
const TABLE: &[Row] = {
    use LoopCount::{Both, Deletes, Once, Opens, Reads, ThousandthOfWrites, Writes};
    use Workload as W;
    &[
        row(W::FillSeq, "fillseq", &[], Writes, "write all keys in key order, to a fresh store"),
        row(W::FillRandom, "fillrandom", &[], Writes, "write random keys, to a fresh store"),
        row(
            W::FillUniqueRandom,
            "filluniquerandom",
            &[],
            Writes,
            "write every key once in random order, to a fresh store; the threads share the keys",
        ),
        row(W::FillBatch, "fillbatch", &[], Writes, "fillseq, 1000 keys in a write"),
        row(
            W::FillSync,
            "fillsync",
            &[],
            ThousandthOfWrites,
            "write N/1000 random keys, each synced, to a fresh store",
        ),
        row(
            W::Fill100K,
            "fill100K",
            &["fill100k"],
            ThousandthOfWrites,
            "write N/1000 random keys with values of 100,000 bytes, to a fresh store",
        ),
        row(W::Overwrite, "overwrite", &[], Writes, "write random keys, to the store as it is"),
        row(W::ReadRandom, "readrandom", &[], Reads, "get random keys"),
        row(
            W::ReadMissing,
            "readmissing",
            &[],
            Reads,
            "get missing keys within the range of the stored ones",
        ),
        row(W::ReadHot, "readhot", &[], Reads, "get random keys among the first 1% of all"),
        row(W::ReadSeq, "readseq", &[], Reads, "scan forward"),
        row(W::ReadReverse, "readreverse", &[], Reads, "scan backward"),
        row(
            W::MultiReadRandom,
            "multireadrandom",
            &[],
            Reads,
            "get random keys, --batch-size in a call",
        ),
        row(
            W::SeekRandom,
            "seekrandom",
            &[],
            Reads,
            "seek to random keys and read --seek-nexts entries",
        ),
        row(W::NewIterator, "newiterator", &[], Reads, "create iterators and drop them"),
        row(
            W::ReadWhileWriting,
            "readwhilewriting",
            &[],
            Reads,
            "readrandom, while one thread overwrites",
        ),
        row(
            W::ReadWhileScanning,
            "readwhilescanning",
            &[],
            Reads,
            "readrandom, while one thread scans",
        ),
        row(
            W::SeekRandomWhileWriting,
            "seekrandomwhilewriting",
            &[],
            Reads,
            "seekrandom, while one thread overwrites",
        ),
        row(
            W::SeekRandomWhileDeleting,
            "seekrandomwhiledeleting",
            &[],
            Reads,
            "seekrandom, while one thread deletes random keys",
        ),
        row(
            W::ReadRandomWriteRandom,
            "readrandomwriterandom",
            &[],
            Both,
            "get random keys, and write some: --readwritepercent",
        ),
        row(W::UpdateRandom, "updaterandom", &[], Both, "get random keys and write each back"),
        row(
            W::MergeRandom,
            "mergerandom",
            &[],
            Writes,
            "merge values into drawn keys: --merge-operator",
        ),
        row(
            W::GetThenPut,
            "getthenput",
            &[],
            Both,
            "get keys and put the missing ones: --get-then-put-hit-rate",
        ),
        row(W::DeleteSeq, "deleteseq", &[], Deletes, "delete all keys in key order"),
        row(W::DeleteRandom, "deleterandom", &[], Deletes, "delete random keys"),
        row(
            W::DeleteRange,
            "deleterange",
            &[],
            ThousandthOfWrites,
            "delete N/1000 ranges of 100 keys, each from a random key on",
        ),
        row(
            W::Queue,
            "queue",
            &[],
            Writes,
            "append a key, read the first one and delete it, in a fresh store",
        ),
        row(
            W::YcsbLoad,
            "ycsbload",
            &["ycsb-load"],
            Writes,
            "write the records of the ycsb workloads, to a fresh store; the threads share them",
        ),
        row(W::YcsbA, "ycsba", &["ycsb-a"], Both, "YCSB A: 50% reads, 50% updates, zipfian"),
        row(W::YcsbB, "ycsbb", &["ycsb-b"], Both, "YCSB B: 95% reads, 5% updates, zipfian"),
        row(W::YcsbC, "ycsbc", &["ycsb-c"], Both, "YCSB C: reads, zipfian"),
        row(W::YcsbD, "ycsbd", &["ycsb-d"], Both, "YCSB D: 95% reads of the latest, 5% inserts"),
        row(
            W::YcsbE,
            "ycsbe",
            &["ycsb-e"],
            Both,
            "YCSB E: 95% scans of 1 to 100 entries, 5% inserts, zipfian",
        ),
        row(
            W::YcsbF,
            "ycsbf",
            &["ycsb-f"],
            Both,
            "YCSB F: 50% reads, 50% read-modify-writes, zipfian",
        ),
        row(W::Open, "open", &[], Opens, "close the store and open it again, N/10000 times"),
        row(W::Flush, "flush", &[], Once, "flush memtables to tables"),
        row(
            W::WaitForCompaction,
            "waitforcompaction",
            &[],
            Once,
            "wait until background work is done",
        ),
        row(
            W::Compact,
            "compact",
            &["compactall"],
            Once,
            "compact everything into the deepest level",
        ),
        row(
            W::Checkpoint,
            "checkpoint",
            &[],
            Once,
            "create a checkpoint next to the store, and remove it",
        ),
        row(
            W::Verify,
            "verify",
            &["verifychecksum", "verifyfilechecksums"],
            Once,
            "read and check every byte, and every key against its filter",
        ),
        row(W::LevelStats, "levelstats", &[], Once, "files and size of each level"),
        row(
            W::FilterStats,
            "filterstats",
            &[],
            Once,
            "results of each level's filters, measured and expected",
        ),
        row(W::MemStats, "memstats", &["table-readers-mem"], Once, "memory use, part by part"),
        row(W::SsTables, "sstables", &[], Once, "the table files"),
        row(W::Stats, "stats", &[], Once, "all statistics of the store"),
        row(W::ResetStats, "resetstats", &[], Once, "reset the statistics"),
    ]
};

/// Workloads of db_bench that are missing here, with the reason.
const ABSENT: &[(&str, &str)] = &[
    ("compact0", "one level cannot be compacted alone; compact merges all of them"),
    ("compact1", "one level cannot be compacted alone; compact merges all of them"),
    ("mixgraph", "its fitted distributions are not supported; the ycsb workloads are skewed"),
    ("readrandommergerandom", "mergerandom merges, and readrandom reads what was merged"),
    ("readwhilemerging", "mergerandom merges, and readrandom reads what was merged"),
    ("seekrandomwhilemerging", "mergerandom merges, and seekrandom reads what was merged"),
    ("getmergeoperands", "merge operands are not returned, only the value made of them"),
    ("randomtransaction", "transactions have no benchmark; batches are atomic"),
    ("timeseries", "its scans of one key's history are not supported; --ttl makes entries expire"),
    ("backup", "use trommel backup create"),
    ("restore", "use trommel backup restore"),
    ("crc32c", "single functions are measured by cargo bench"),
    ("xxhash", "single functions are measured by cargo bench"),
    ("xxh3", "single functions are measured by cargo bench"),
    ("compress", "single functions are measured by cargo bench"),
    ("uncompress", "single functions are measured by cargo bench"),
];

impl Workload {
    /// All workloads, in the order of the help.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.workload)
    }

    fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.workload == self).expect("every workload is listed")
    }

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Other names accepted on the command line.
    pub fn aliases(self) -> &'static [&'static str] {
        self.row().aliases
    }

    /// A short description.
    pub fn about(self) -> &'static str {
        self.row().about
    }

    /// The reason why a workload of db_bench is missing here, if `name` is one.
    pub fn why_absent(name: &str) -> Option<&'static str> {
        ABSENT.iter().find(|(absent, _)| *absent == name).map(|(_, why)| *why)
    }

    pub(crate) fn counts(self) -> LoopCount {
        self.row().counts
    }

    /// Whether it needs a store that is empty at the start.
    pub fn wants_fresh_store(self) -> bool {
        matches!(
            self,
            Self::FillSeq
                | Self::FillRandom
                | Self::FillUniqueRandom
                | Self::FillBatch
                | Self::FillSync
                | Self::Fill100K
                | Self::Queue
                | Self::YcsbLoad
        )
    }

    /// Whether it deletes entries of other workloads.
    pub(crate) fn deletes(self) -> bool {
        matches!(
            self,
            Self::DeleteSeq
                | Self::DeleteRandom
                | Self::DeleteRange
                | Self::SeekRandomWhileDeleting
        )
    }

    /// Whether it is one of YCSB's, on the records that `ycsbload` writes.
    pub fn is_ycsb(self) -> bool {
        matches!(
            self,
            Self::YcsbA | Self::YcsbB | Self::YcsbC | Self::YcsbD | Self::YcsbE | Self::YcsbF
        )
    }

    /// Whether it reads stored data, so that caching matters.
    pub fn is_read(self) -> bool {
        matches!(self.counts(), LoopCount::Reads | LoopCount::Both)
    }

    /// Whether it looks up keys that exist in a store filled with the keys of the run.
    pub(crate) fn looks_for_what_is_there(self) -> bool {
        matches!(
            self,
            Self::ReadRandom
                | Self::ReadHot
                | Self::MultiReadRandom
                | Self::SeekRandom
                | Self::ReadWhileWriting
                | Self::ReadWhileScanning
                | Self::SeekRandomWhileWriting
                | Self::ReadRandomWriteRandom
                | Self::UpdateRandom
                | Self::YcsbA
                | Self::YcsbB
                | Self::YcsbC
                | Self::YcsbF
        )
    }

    /// Whether it leaves the store unchanged, so that the store may be opened read-only.
    pub fn only_reads(self) -> bool {
        let writes_beside = matches!(
            self,
            Self::ReadWhileWriting | Self::SeekRandomWhileWriting | Self::SeekRandomWhileDeleting
        );
        let shows = matches!(
            self,
            Self::Verify
                | Self::LevelStats
                | Self::FilterStats
                | Self::MemStats
                | Self::SsTables
                | Self::Stats
                | Self::ResetStats
        );
        let is_read = self.counts() == LoopCount::Reads && !writes_beside;
        is_read || shows || matches!(self, Self::YcsbC | Self::Open)
    }

    /// Whether it writes entries, or waits for the results, so that compactions are part of it.
    pub fn needs_compaction(self) -> bool {
        !self.only_reads() && !matches!(self, Self::Flush | Self::Compact | Self::Checkpoint)
    }

    /// Whether it mixes reads and writes, so that a rate limit of either does not apply.
    pub fn is_mixed(self) -> bool {
        self.counts() == LoopCount::Both && self != Self::YcsbC
    }

    /// Whether it uses the requested number of threads.
    pub(crate) fn has_threads(self) -> bool {
        !matches!(self.counts(), LoopCount::Once | LoopCount::Opens)
    }

    /// Whether it does many operations, rather than one.
    pub fn is_counted(self) -> bool {
        self.counts() != LoopCount::Once
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
        if let Some(why) = Workload::why_absent(&self.0) {
            return write!(f, "db_bench's \"{}\" is not supported: {why}", self.0);
        }
        write!(f, "there is no benchmark \"{}\"; there are", self.0)?;
        for (nth, row) in TABLE.iter().enumerate() {
            write!(f, "{} {}", if nth == 0 { "" } else { "," }, row.name)?;
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
            .find(|row| row.name == text || row.aliases.contains(&text))
            .map(|row| row.workload)
            .ok_or_else(|| UnknownWorkload(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_workloads_round_trip() {
        let mut names = BTreeSet::new();
        for workload in Workload::all() {
            assert!(!workload.about().is_empty());
            for name in workload.aliases().iter().chain([&workload.name()]) {
                assert_eq!(name.parse(), Ok(workload));
                assert!(names.insert(*name), "{name} means one thing");
                assert_eq!(Workload::why_absent(name), None);
            }
        }
        let error = "fillrndom".parse::<Workload>().unwrap_err().to_string();
        assert!(error.contains("\"fillrndom\"") && error.contains(" fillrandom,"), "{error}");
        let error = "getmergeoperands".parse::<Workload>().unwrap_err().to_string();
        assert!(error.contains("are not returned"), "{error}");
    }
}

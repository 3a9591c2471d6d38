//! What is measured of a filled store.

use std::str::FromStr;

use trommel_harness::Workload;

/// A measurement of a filled store.
#[derive(Debug)]
pub(crate) struct Row {
    /// For `--rows`.
    pub(crate) name: &'static str,
    /// The workload's name in records.
    pub(crate) title: &'static str,
    pub(crate) workload: Workload,
    pub(crate) threads: usize,
    /// Entries that a seek reads besides the first.
    pub(crate) seek_nexts: u64,
    /// Of how many of the requested reads it makes one, with each thread; none: it reads all.
    per_reads: Option<u64>,
}

/// All rows, in the order in which they are measured.
pub(crate) static ALL: [Row; 9] = [
    row("read", "readrandom", Workload::ReadRandom, Some(1)),
    row("missing", "readmissing", Workload::ReadMissing, Some(1)),
    row("multiget", "multireadrandom", Workload::MultiReadRandom, Some(2)),
    Row { threads: 2, ..row("read2", "readrandom (2 threads)", Workload::ReadRandom, Some(2)) },
    Row {
        threads: 2,
        ..row("missing2", "readmissing (2 threads)", Workload::ReadMissing, Some(2))
    },
    row("seek", "seekrandom", Workload::SeekRandom, Some(10)),
    Row {
        seek_nexts: 99,
        ..row("seek100", "seekrandom (100 entries)", Workload::SeekRandom, Some(50))
    },
    row("scan", "readseq", Workload::ReadSeq, None),
    row("reverse", "readreverse", Workload::ReadReverse, None),
];

const fn row(
    name: &'static str,
    title: &'static str,
    workload: Workload,
    per_reads: Option<u64>,
) -> Row {
    Row { name, title, workload, threads: 1, seek_nexts: 9, per_reads }
}

impl Row {
    /// The operations of each thread, for this number of requested reads.
    pub(crate) fn operations(&self, reads: u64) -> u64 {
        self.per_reads.map_or(u64::MAX, |per| reads / per)
    }

    /// Whether an operation is an entry of a scan over the whole store.
    pub(crate) fn reads_all(&self) -> bool {
        self.per_reads.is_none()
    }
}

impl FromStr for &'static Row {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ALL.iter().find(|row| row.name == text).ok_or_else(|| {
            let names = ALL.each_ref().map(|row| row.name).join(", ");
            format!("there is no row \"{text}\"; rows are {names}")
        })
    }
}

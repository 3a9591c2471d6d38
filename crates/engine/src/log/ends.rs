//! Ends of needed logs without an end marker, as recorded in the manifest.
//!
//! A killed process leaves a log without an end marker, and the part of it that recovery keeps may
//! end before its last byte. Usually the log is replayed into tables and then obsolete. If there is
//! no space for tables, the log stays, and the manifest records what its end marker would have: the
//! number of the next log, and the end of the valid part of this one. Both logs are durable before
//! the manifest records it. Bytes after a recorded end are ignored, and so are logs numbered
//! between a log and its recorded successor.
//!
//! Written by recovery; read by everything that reads logs.

/// The end of one log, and its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogEnd {
    /// The number of the log.
    pub number: u64,
    /// End of its last valid record, in bytes from the start of the file.
    pub end: u64,
    /// The number of the next log, which is larger.
    pub next: u64,
}

/// The log ends recorded in a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LogEnds(Vec<LogEnd>);

impl LogEnds {
    /// No recorded ends.
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds an end. Returns whether the log had none.
    pub(crate) fn add(&mut self, end: LogEnd) -> bool {
        let is_new = self.of(end.number).is_none();
        self.0.push(end);
        is_new
    }

    /// Removes the ends of logs before `oldest`, the oldest needed log (0: none is needed).
    pub(crate) fn forget_before(&mut self, oldest: u64) {
        self.0.retain(|end| oldest != 0 && end.number >= oldest);
    }

    /// The recorded end of log `number`.
    pub(crate) fn of(&self, number: u64) -> Option<LogEnd> {
        self.0.iter().copied().find(|end| end.number == number)
    }

    /// The length of the valid part of log `number`, unless the file is shorter.
    pub(crate) fn counted_bytes(&self, number: u64) -> usize {
        self.of(number).map_or(usize::MAX, |stated| stated.end.try_into().unwrap_or(usize::MAX))
    }

    /// Whether log `number` lies between a log and its recorded successor, and is therefore
    /// ignored.
    pub(crate) fn ignores(&self, number: u64) -> bool {
        self.0.iter().any(|end| end.number < number && number < end.next)
    }

    /// Whether no end is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All recorded ends.
    pub(crate) fn iter(&self) -> impl Iterator<Item = LogEnd> {
        self.0.iter().copied()
    }
}

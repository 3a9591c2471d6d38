//! Where logs end that have no end marker of their own and stay needed: the manifest states it for
//! them.
//!
//! A process that is killed leaves a log without an end marker, and what recovery keeps of that log
//! may end before its last byte. Usually the log is replayed into tables and is needed no more.
//! Where there is no room for tables it stays, and the manifest says what its end marker would have
//! said: which log follows, and how far this one counts. Both logs were durable before it says so.
//! Bytes behind a stated end count for nothing, and neither do logs whose numbers lie between that
//! of the log and that of its successor.
//!
//! Written by recovery; read by everything that reads logs.

/// Where one log ends, and which one follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogEnd {
    /// The number of the log.
    pub number: u64,
    /// Where its last record that counts ends, in bytes from the beginning of the file.
    pub end: u64,
    /// The number of the log that follows, which is larger.
    pub next: u64,
}

/// The ends that a manifest states.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LogEnds(Vec<LogEnd>);

impl LogEnds {
    /// None.
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds one; whether there was none of that log.
    pub(crate) fn add(&mut self, end: LogEnd) -> bool {
        let is_new = self.of(end.number).is_none();
        self.0.push(end);
        is_new
    }

    /// Forgets those of logs before `oldest`, the oldest that is needed (0: none is).
    pub(crate) fn forget_before(&mut self, oldest: u64) {
        self.0.retain(|end| oldest != 0 && end.number >= oldest);
    }

    /// That of log `number`.
    pub(crate) fn of(&self, number: u64) -> Option<LogEnd> {
        self.0.iter().copied().find(|end| end.number == number)
    }

    /// How many bytes of log `number` count, if it has as many.
    pub(crate) fn counted_bytes(&self, number: u64) -> usize {
        self.of(number).map_or(usize::MAX, |stated| stated.end.try_into().unwrap_or(usize::MAX))
    }

    /// Whether log `number` lies between two that follow each other, and so counts for nothing.
    pub(crate) fn pass_over(&self, number: u64) -> bool {
        self.0.iter().any(|end| end.number < number && number < end.next)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = LogEnd> {
        self.0.iter().copied()
    }
}

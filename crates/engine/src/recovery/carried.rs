//! Carrying the contents of short logs over to the log of this open.
//!
//! A program that opens a store for a single write leaves a log of a few bytes. If each were
//! flushed to a table, a number of runs would leave as many tables. Instead, the batches of short
//! logs are appended to the new log, made durable there before anything refers to it, and stay in
//! the memtable. Only verified records are carried over; they keep their sequence numbers.
//!
//! Called while logs are replayed.

use trommel_base::SeqNo;

use crate::error::Result;
use crate::log::LogWriter;
use crate::log::reader::Record;
use crate::options::Options;

/// Most bytes of batches carried over: each open rewrites them.
const MOST_BYTES: u64 = 256 << 10;
/// The carried bytes are at most this fraction of a memtable: 1/4.
const MEMTABLE_PART: u64 = 4;

/// The batches replayed so far, unless they are too large.
#[derive(Debug)]
pub(super) struct Carried {
    /// Each with its first sequence number.
    batches: Vec<(SeqNo, Vec<u8>)>,
    /// Remaining bytes; `None` once the limit was exceeded.
    room: Option<u64>,
}

impl Carried {
    /// No batches yet, with limits from these options; never any unless `is_wanted`.
    pub(super) fn new(options: &Options, is_wanted: bool) -> Self {
        let room = MOST_BYTES.min(options.memtable_limit() / MEMTABLE_PART);
        Self { batches: Vec::new(), room: (options.writes.log && is_wanted).then_some(room) }
    }

    /// Adds a replayed batch.
    pub(super) fn take(&mut self, record: &Record<'_>) {
        let bytes = record.payload.len() as u64;
        match self.room.and_then(|room| room.checked_sub(bytes)) {
            Some(room) => {
                self.room = Some(room);
                self.batches.push((record.first_seqno, record.payload.to_vec()));
            }
            None => self.give_up(),
        }
    }

    /// Discards the batches: they are, or will be, in tables.
    pub(super) fn give_up(&mut self) {
        (self.batches, self.room) = (Vec::new(), None);
    }

    /// Whether there is nothing to carry over.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Appends all batches to `log`, which must be new, and makes them durable.
    pub(super) fn append_to(&self, log: &mut LogWriter) -> Result<()> {
        // No earlier log is needed once anything refers to this one.
        log.set_previous_durable();
        for (first_seqno, payload) in &self.batches {
            log.push(*first_seqno, &[payload])?;
        }
        log.commit()?;
        log.sync()
    }
}

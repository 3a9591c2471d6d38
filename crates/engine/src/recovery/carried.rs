//! What a short log held, on its way into the log of this opening.
//!
//! A program that opens a store for one write leaves a log of a few bytes. Were each of them
//! written out as a table, so many runs would leave as many tables. So the batches of short logs
//! are appended to the new log, made durable there before anything refers to it, and stay in the
//! memtable. Only records that were verified come this far; they get the sequence numbers that they
//! had.
//!
//! Called while logs are replayed.

use trommel_base::SeqNo;

use crate::error::Result;
use crate::log::LogWriter;
use crate::log::reader::Record;
use crate::options::Options;

/// Bytes of batches that are carried over at most: each opening writes them anew.
const MOST_BYTES: u64 = 256 << 10;
/// One in how many of a memtable's bytes they are at most.
const MEMTABLE_PART: u64 = 4;

/// The batches replayed so far, unless they are too many.
#[derive(Debug)]
pub(super) struct Carried {
    /// Each with its first sequence number.
    batches: Vec<(SeqNo, Vec<u8>)>,
    /// Bytes that there is room for; `None` once they were too many.
    room: Option<u64>,
}

impl Carried {
    /// Nothing yet, under these options; and nothing at all unless it `is_wanted`.
    pub(super) fn new(options: &Options, is_wanted: bool) -> Self {
        let room = MOST_BYTES.min(options.memtable_limit() / MEMTABLE_PART);
        Self { batches: Vec::new(), room: (options.log && is_wanted).then_some(room) }
    }

    /// Notes a batch that was replayed.
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

    /// Notes that what was replayed is, or is going to be, in tables.
    pub(super) fn give_up(&mut self) {
        (self.batches, self.room) = (Vec::new(), None);
    }

    /// Whether there is nothing to carry over.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Appends all to `log`, which is new, and makes them durable.
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

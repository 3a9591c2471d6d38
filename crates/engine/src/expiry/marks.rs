//! Time marks: which entries were written until when.

use trommel_base::codec::put_varint;
use trommel_base::{Decoder, MAX_SEQNO, SeqNo};

/// Most marks that are kept. Usually there are some 260; changes of `ttl` may leave more.
pub(crate) const MOST_MARKS: usize = 1024;

/// The entries from a sequence number on, up to the next mark, were written no later than `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeMark {
    /// The first sequence number that it covers.
    pub from: SeqNo,
    /// Milliseconds since 1970.
    pub until: u64,
}

/// The expiry horizon, and the times of what has not expired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TimeMarks {
    /// Every entry with a lower sequence number has expired. It never goes down.
    horizon: SeqNo,
    /// The first from the horizon on, ascending in both fields. Empty if entries do not expire.
    marks: Vec<TimeMark>,
}

impl TimeMarks {
    /// The first sequence number that has not expired.
    pub(crate) fn horizon(&self) -> SeqNo {
        self.horizon
    }

    /// All marks, oldest first.
    pub(crate) fn list(&self) -> &[TimeMark] {
        &self.marks
    }

    /// Whether entries expire.
    pub(crate) fn is_on(&self) -> bool {
        !self.marks.is_empty()
    }

    /// The newest mark.
    pub(crate) fn last(&self) -> Option<TimeMark> {
        self.marks.last().copied()
    }

    /// The number of the mark, counted from the oldest, that covers an entry; entries of one number
    /// expire together.
    pub(crate) fn number_of(&self, seqno: SeqNo) -> usize {
        self.marks.partition_point(|mark| mark.from <= seqno)
    }

    /// Adds a mark, or one of a log that may have been added before. The first one covers all
    /// entries that have not expired.
    pub(crate) fn add(&mut self, from: SeqNo, until: u64) {
        let is_full = self.marks.len() >= MOST_MARKS;
        match self.marks.last_mut() {
            None => self.marks.push(TimeMark { from: self.horizon, until }),
            Some(last) if from < last.from => {}
            // A clock that jumps backward moves no mark: what is written until it has caught up
            // counts as written at the last mark's time.
            Some(last) if from == last.from || is_full => last.until = last.until.max(until),
            Some(last) => {
                let until = last.until.max(until);
                self.marks.push(TimeMark { from, until });
            }
        }
    }

    /// Raises the horizon to that of `recorded`, and adds its marks, if entries expire.
    pub(crate) fn learn(&mut self, recorded: &Self, is_on: bool) {
        self.horizon = self.horizon.max(recorded.horizon);
        // The last mark up to the horizon covers what follows, up to the next one.
        let covering = self.marks.partition_point(|mark| mark.from <= self.horizon);
        self.marks.drain(..covering.saturating_sub(1));
        if let Some(first) = self.marks.first_mut() {
            first.from = first.from.max(self.horizon);
        }
        if is_on {
            recorded.marks.iter().for_each(|mark| self.add(mark.from, mark.until));
        }
    }

    /// Removes all marks: entries no longer expire. What has expired stays so.
    pub(crate) fn clear(&mut self) {
        self.marks.clear();
    }

    /// Moves the horizon past all that was written at least `ttl` before `now`, both in
    /// milliseconds; nothing above `visible`, the newest visible sequence number, was visible
    /// before `now`. Returns the time at which it may move again; `None` if all has expired, or
    /// nothing ever does.
    pub(crate) fn advance(&mut self, now: u64, ttl: u64, visible: SeqNo) -> Option<u64> {
        let over = self.marks.partition_point(|mark| mark.until.saturating_add(ttl) <= now);
        let is_all = over == self.marks.len();
        // The last one stays, for a write that has taken its sequence number and is not visible.
        self.marks.drain(..over - usize::from(is_all && over > 0));
        let first = self.marks.first_mut()?;
        if is_all {
            first.from = first.from.max(visible + 1);
        }
        self.horizon = first.from;
        (!is_all).then_some(first.until.saturating_add(ttl))
    }

    /// When everything before `seqno` will have expired, in milliseconds since 1970, 0 if it has;
    /// `None` if entries do not expire.
    pub(crate) fn expires_at(&self, seqno: SeqNo, ttl: u64) -> Option<u64> {
        // The marks before the horizon, of which a read may have been the first to move it, are
        // gone.
        if seqno <= self.horizon {
            return Some(0);
        }
        let after = self.marks.partition_point(|mark| mark.from < seqno).max(1);
        self.marks.get(after - 1).map(|mark| mark.until.saturating_add(ttl))
    }

    /// Appends the encoded marks to `out`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.horizon);
        let mut before = TimeMark { from: self.horizon, until: 0 };
        for mark in &self.marks {
            put_varint(out, mark.from - before.from);
            put_varint(out, mark.until - before.until);
            before = *mark;
        }
    }

    /// Decodes all of `bytes`; `None` if no writer has written them.
    pub(crate) fn decode(bytes: &mut Decoder<'_>) -> Option<Self> {
        let horizon = bytes.varint().filter(|horizon| *horizon <= MAX_SEQNO)?;
        let mut marks: Vec<TimeMark> = Vec::new();
        while !bytes.is_empty() {
            let before = marks.last().copied().unwrap_or(TimeMark { from: horizon, until: 0 });
            let step = bytes.varint().filter(|step| marks.is_empty() == (*step == 0))?;
            let from = before.from.checked_add(step).filter(|from| *from <= MAX_SEQNO)?;
            let until = before.until.checked_add(bytes.varint()?)?;
            (marks.len() < MOST_MARKS).then(|| marks.push(TimeMark { from, until }))?;
        }
        Some(Self { horizon, marks })
    }
}

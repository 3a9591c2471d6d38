//! Time marks: by when entries were written.

use std::collections::BTreeMap;

use trommel_base::codec::put_varint;
use trommel_base::{Decoder, MAX_SEQNO, SeqNo};

use super::horizons::Horizons;
use crate::space::{DEFAULT_ID, LAST_ID, id_of};

/// Parts of a `ttl` that get a mark each.
pub(super) const STEPS: u32 = 256;
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

/// The expiry horizons, and the times of entries that have not expired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TimeMarks {
    /// Every entry with a lower sequence number has expired, if `keyspaces` is missing; otherwise
    /// no mark covers it. It never goes down.
    horizon: SeqNo,
    /// The first from the horizon on, ascending in both fields. Empty if entries do not expire.
    marks: Vec<TimeMark>,
    /// The horizons of keyspaces, by id, in a store that has, or had, named ones.
    keyspaces: Option<BTreeMap<u32, KeyspaceHorizon>>,
}

/// The expiry horizon of a keyspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KeyspaceHorizon {
    /// Every entry with a lower sequence number has expired. It never goes down.
    pub(crate) seqno: SeqNo,
    /// When entries of the keyspace began to expire, in milliseconds since 1970: older entries
    /// count as written then. 0 if they do not expire.
    pub(crate) since: u64,
}

impl TimeMarks {
    /// The first sequence number of the default keyspace that has not expired.
    pub(crate) fn horizon(&self) -> SeqNo {
        match &self.keyspaces {
            None => self.horizon,
            Some(keyspaces) => keyspaces.get(&DEFAULT_ID).map_or(0, |default| default.seqno),
        }
    }

    pub(crate) fn horizons(&self) -> Horizons {
        match &self.keyspaces {
            None => Horizons::everywhere(self.horizon),
            Some(all) => Horizons::of(all.iter().map(|(id, horizon)| (*id, horizon.seqno))),
        }
    }

    /// The horizons of keyspaces, by id, in a store that has, or had, named ones.
    pub(crate) fn keyspaces(&self) -> Option<&BTreeMap<u32, KeyspaceHorizon>> {
        self.keyspaces.as_ref()
    }

    /// Whether entries of a named keyspace expire.
    pub(crate) fn expires_named(&self) -> bool {
        let mut all = self.keyspaces.iter().flatten();
        all.any(|(id, keyspace)| *id != DEFAULT_ID && keyspace.since > 0)
    }

    /// As [`keyspaces`](Self::keyspaces), to be changed.
    pub(super) fn keyspaces_mut(&mut self) -> Option<&mut BTreeMap<u32, KeyspaceHorizon>> {
        self.keyspaces.as_mut()
    }

    /// Sets the horizons of keyspaces.
    pub(crate) fn set_keyspaces(&mut self, keyspaces: BTreeMap<u32, KeyspaceHorizon>) {
        self.keyspaces = Some(keyspaces);
    }

    /// Gives keyspaces horizons of their own from now on. The default one keeps the common horizon.
    pub(crate) fn separate(&mut self) {
        if self.keyspaces.is_none() {
            let since = u64::from(self.is_on());
            let default = KeyspaceHorizon { seqno: self.horizon, since };
            let has_any = default != KeyspaceHorizon::default();
            self.keyspaces = Some(has_any.then_some((DEFAULT_ID, default)).into_iter().collect());
        }
    }

    /// Undoes [`separate`](Self::separate), in a store that has had no other keyspace.
    pub(super) fn unite(&mut self) {
        let horizon = self.horizon();
        self.keyspaces = None;
        self.forget_before(horizon);
    }

    /// The marks and horizons as the manifest holds them.
    pub(super) fn recorded(&self) -> Self {
        let is_nothing =
            self.horizon == 0 && self.keyspaces.as_ref().is_some_and(BTreeMap::is_empty);
        if is_nothing { Self { keyspaces: None, ..self.clone() } } else { self.clone() }
    }

    /// Whether no horizon is below that of `before`, of a keyspace that both have.
    pub(crate) fn follow(&self, before: &Self) -> bool {
        let (after, all) = (self.horizons(), before.horizons());
        let named = all.named().filter(|(id, _)| self.expiry_of(*id).is_some());
        let mut named = named.map(|(id, seqno)| (after.before_id(id), seqno));
        self.horizon >= before.horizon
            && after.of_default() >= all.of_default()
            && named.all(|(now, before)| now >= before)
    }

    fn expiry_of(&self, id: u32) -> Option<&KeyspaceHorizon> {
        self.keyspaces.as_ref()?.get(&id)
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

    /// The number of the mark, counted from the oldest, that covers an entry; entries with the same
    /// number expire together.
    pub(crate) fn number_of(&self, seqno: SeqNo) -> usize {
        self.marks.partition_point(|mark| mark.from <= seqno)
    }

    /// As [`number_of`](Self::number_of), for an entry with this physical key. A horizon within a
    /// mark, which may have been joined with others since, divides it.
    pub(crate) fn number_for(&self, key: &[u8], seqno: SeqNo) -> usize {
        let Some(keyspaces) = &self.keyspaces else { return self.number_of(seqno) };
        match keyspaces.get(&id_of(key).unwrap_or(DEFAULT_ID)) {
            Some(keyspace) if seqno < keyspace.seqno => 0,
            Some(keyspace) if keyspace.since > 0 => 1 + self.number_of(seqno),
            _ => 1,
        }
    }

    /// Adds a mark, or one of a log that may have been added before. The first one covers all
    /// entries that have not expired.
    pub(crate) fn add(&mut self, from: SeqNo, until: u64) {
        let is_full = self.marks.len() >= MOST_MARKS;
        match self.marks.last_mut() {
            None => self.marks.push(TimeMark { from: self.horizon, until }),
            Some(last) if from < last.from => {}
            // A clock that jumps backward moves no mark: entries written until it has caught up
            // count as written at the last mark's time.
            Some(last) if from == last.from || is_full => last.until = last.until.max(until),
            Some(last) => {
                let until = last.until.max(until);
                self.marks.push(TimeMark { from, until });
            }
        }
    }

    /// Records that everything covered by the newest mark was written by `now`, in milliseconds
    /// since 1970.
    pub(super) fn end_last(&mut self, now: u64) {
        if let Some((last, before)) = self.marks.split_last_mut() {
            // The times of marks ascend.
            let earliest = before.last().map_or(0, |mark| mark.until);
            last.until = last.until.min(now).max(earliest);
        }
    }

    /// Raises the horizons to those of `recorded`, and adds its marks, if entries expire. Horizons
    /// that it lacks are kept: they belong to dropped keyspaces, which readers may still see.
    pub(crate) fn learn(&mut self, recorded: &Self, is_on: bool) {
        if let Some(others) = &recorded.keyspaces {
            self.separate();
            let all = self.keyspaces.get_or_insert_default();
            for (id, other) in others {
                let own = all.entry(*id).or_default();
                own.seqno = own.seqno.max(other.seqno);
                // A follower decides for itself whether the default keyspace expires.
                if *id != DEFAULT_ID {
                    own.since = other.since;
                }
            }
        }
        self.forget_before(self.horizon.max(recorded.horizon));
        if is_on {
            recorded.marks.iter().for_each(|mark| self.insert(*mark));
        }
    }

    /// Inserts a mark in order: the mark of a sorted load is in no log, and may be read after that
    /// of a later write. Entries before the first mark have expired.
    fn insert(&mut self, mark: TimeMark) {
        let at = self.marks.partition_point(|own| own.from < mark.from);
        let is_between = at > 0 && self.marks.get(at).is_some_and(|own| own.from > mark.from);
        if !is_between {
            return self.add(mark.from, mark.until);
        }
        let is_full = self.marks.len() >= MOST_MARKS;
        // If the list is full, the entries before it expire later.
        let from = if is_full { at - 1 } else { at };
        if !is_full {
            self.marks.insert(at, TimeMark { until: self.marks[at - 1].until, ..mark });
        }
        for later in &mut self.marks[from..] {
            later.until = later.until.max(mark.until);
        }
    }

    /// Forgets the marks that cover only entries before `seqno`.
    fn forget_before(&mut self, seqno: SeqNo) {
        self.horizon = self.horizon.max(seqno);
        // The last mark up to the horizon covers the entries after it, up to the next mark.
        let covering = self.marks.partition_point(|mark| mark.from <= self.horizon);
        self.marks.drain(..covering.saturating_sub(1));
        if let Some(first) = self.marks.first_mut() {
            first.from = first.from.max(self.horizon);
        }
    }

    /// Removes all marks: entries no longer expire. Those that have expired stay so.
    pub(crate) fn clear(&mut self) {
        self.marks.clear();
    }

    /// Moves the horizon past all entries written at least `ttl` before `now`, both in
    /// milliseconds; nothing above `visible`, the newest visible sequence number, was visible
    /// before `now`. Returns the time at which the horizon may move again; `None` if everything has
    /// expired, or nothing ever does.
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

    /// As [`advance`](Self::advance), for keyspace `id` with a horizon of its own; the marks stay.
    pub(super) fn advance_keyspace(
        &mut self,
        (id, ttl): (u32, u64),
        now: u64,
        visible: SeqNo,
    ) -> Option<u64> {
        let keyspace = self.keyspaces.as_mut()?.get_mut(&id)?;
        let since = keyspace.since;
        let until = |mark: &TimeMark| mark.until.max(since).saturating_add(ttl);
        let over = self.marks.partition_point(|mark| until(mark) <= now);
        let Some(next) = self.marks.get(over) else {
            keyspace.seqno = keyspace.seqno.max(visible + 1);
            return None;
        };
        let due = until(next);
        if over > 0 {
            keyspace.seqno = keyspace.seqno.max(next.from);
        }
        Some(due)
    }

    /// Forgets the marks that no `ttl` needs any more, and joins marks that are finer than any
    /// `ttl` needs, so that there are at most `most`. `ttls` are those of all keyspaces, ascending;
    /// all times are in milliseconds.
    ///
    /// A `ttl` above the age of a mark allows steps of a fraction of that `ttl`. Of two marks that
    /// are joined, the later time counts: entries do not expire early.
    pub(super) fn thin(&mut self, now: u64, ttls: &[u64], most: usize) {
        // Entries older than this time count as written at it, so their marks are still needed.
        let latest = self.keyspaces.iter().flatten().map(|(_, keyspace)| keyspace.since).max();
        let latest = latest.unwrap_or(0);
        let is_over = |mark: &TimeMark| {
            let until = mark.until.max(latest);
            ttls.last().is_none_or(|ttl| until.saturating_add(*ttl) <= now)
        };
        let over = self.marks.iter().take_while(|mark| is_over(mark)).count();
        if let Some(first) = self.marks.get(over.min(self.marks.len().saturating_sub(1))) {
            self.forget_before(first.from);
        }
        let mut part = STEPS.into();
        while self.marks.len() > most && part > 1 {
            self.join(now, ttls, part);
            part /= 2;
        }
    }

    /// Joins marks into steps of up to one `part`th of the shortest `ttl` above their age.
    fn join(&mut self, now: u64, ttls: &[u64], part: u64) {
        let mut joined: Vec<TimeMark> = Vec::with_capacity(self.marks.len());
        let mut before = 0;
        for mark in std::mem::take(&mut self.marks) {
            let next = ttls.iter().find(|ttl| mark.until.saturating_add(**ttl) > now);
            let step = next.map_or(u64::MAX, |ttl| ttl / part);
            match joined.last_mut() {
                Some(last) if mark.until.saturating_sub(before) <= step => last.until = mark.until,
                last => {
                    before = last.map_or(0, |last| last.until);
                    joined.push(mark);
                }
            }
        }
        self.marks = joined;
    }

    /// When everything before `seqno` of a keyspace with a horizon of its own will have expired;
    /// as [`expires_at`](Self::expires_at).
    pub(super) fn keyspace_expires_at(&self, (id, ttl): (u32, u64), seqno: SeqNo) -> Option<u64> {
        let keyspace = self.expiry_of(id).filter(|keyspace| keyspace.since > 0)?;
        if seqno <= keyspace.seqno {
            return Some(0);
        }
        let after = self.marks.partition_point(|mark| mark.from < seqno).max(1);
        let until = self.marks.get(after - 1)?.until;
        Some(until.max(keyspace.since).saturating_add(ttl))
    }

    /// When everything before `seqno` will have expired, in milliseconds since 1970, 0 if it has;
    /// `None` if entries do not expire.
    pub(crate) fn expires_at(&self, seqno: SeqNo, ttl: u64) -> Option<u64> {
        // A read may have moved the horizon first, and removed the marks before it.
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
        Some(Self { horizon, marks, keyspaces: None })
    }

    /// Appends the encoded horizons of keyspaces to `out`.
    pub(crate) fn encode_keyspaces(keyspaces: &BTreeMap<u32, KeyspaceHorizon>, out: &mut Vec<u8>) {
        for (id, keyspace) in keyspaces {
            put_varint(out, u64::from(*id));
            put_varint(out, keyspace.seqno);
            put_varint(out, keyspace.since);
        }
    }

    /// Decodes horizons of keyspaces; `None` if no writer has written them.
    pub(crate) fn decode_keyspaces(
        bytes: &mut Decoder<'_>,
    ) -> Option<BTreeMap<u32, KeyspaceHorizon>> {
        let mut keyspaces = BTreeMap::new();
        while !bytes.is_empty() {
            let id = u32::try_from(bytes.varint()?).ok().filter(|id| *id <= LAST_ID)?;
            let seqno = bytes.varint().filter(|seqno| *seqno <= MAX_SEQNO + 1)?;
            let since = bytes.varint()?;
            let is_next = keyspaces.last_key_value().is_none_or(|(last, _)| *last < id);
            is_next.then(|| keyspaces.insert(id, KeyspaceHorizon { seqno, since }))?;
        }
        Some(keyspaces)
    }
}

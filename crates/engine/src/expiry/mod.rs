//! Expiry of entries by their sequence numbers: no entry carries a time.
//!
//! 1. Time is divided into steps of [`resolution`]. The first write of a step is preceded by a
//!    *time mark*: entries after it, up to the next mark, were written no later than the end of the
//!    step. The mark has a sequence number of its own. It is in the log before the writes that it
//!    covers, and in the manifest with the next version edit.
//! 2. Everything before a mark has expired once the marks before it are `ttl` old. The first
//!    sequence number that has not expired is the *horizon*. It never goes down, whatever the clock
//!    does, and each version edit records it.
//! 3. The horizon is a range tombstone over all keys ([`RangeSet`](crate::ranges::RangeSet)) that
//!    every reader sees, even an older snapshot. So compactions drop expired entries, and tables
//!    that hold no others are removed unread. In a store with keyspaces, each that has a `ttl` has
//!    a horizon of its own ([`Horizons`]), over its own keys. They share the marks, whose steps are
//!    those of the shortest `ttl`; marks that only longer ones need are joined.
//! 4. A read loads its view, then the horizon, then its sequence number. Loading the horizon reads
//!    the clock, and moves the horizon if it is due ([`Expiry::horizon`]), so no thread has to run
//!    for this.
//! 5. A compaction uses the horizon that the manifest already holds. Otherwise it could drop a
//!    tombstone, and a clock that jumped backward could bring back the entries that the tombstone
//!    hid.
//!
//! The lock of the marks is taken after all others. Called by reads, by the leader of the write
//! queue for each group, and by installs.

mod horizons;
#[cfg(test)]
mod keyspace_tests;
mod marks;
#[cfg(test)]
mod rest_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use trommel_base::SeqNo;
use trommel_vfs::Vfs;

pub(crate) use horizons::{HorizonSpan, Horizons};
pub use marks::TimeMark;
pub(crate) use marks::{KeyspaceHorizon, TimeMarks};
use marks::{MOST_MARKS, STEPS};

use crate::space::DEFAULT_ID;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Swap, lock};

/// Shortest step between two marks.
const SHORTEST_STEP: Duration = Duration::from_secs(1);
/// The horizon does not move.
const NEVER: u64 = u64::MAX;

/// The longest time between two marks: entries expire between `ttl` and this much later.
fn resolution(ttl: Duration) -> Duration {
    (ttl / STEPS).max(SHORTEST_STEP)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The times of entries, and the horizons.
#[derive(Debug)]
pub(crate) struct Expiry {
    clock: Arc<dyn Vfs>,
    /// Whether entries expire.
    is_on: AtomicBool,
    horizons: Swap<Horizons>,
    /// When the horizon may move, in milliseconds since 1970; [`NEVER`] if entries do not expire.
    due: AtomicU64,
    /// The time up to which writes need no new mark.
    marked_until: AtomicU64,
    state: Mutex<ExpiryState>,
}

#[derive(Debug)]
struct ExpiryState {
    /// The `ttl` of the default keyspace.
    ttl: Option<Duration>,
    /// The `ttl`s of named keyspaces, by id. They are unknown until the catalog is read; until then
    /// nothing more expires.
    named: BTreeMap<u32, Duration>,
    /// Keyspaces that were dropped, and when. Earlier snapshots need their horizons.
    dropped: Vec<(u32, SeqNo)>,
    marks: TimeMarks,
}

impl ExpiryState {
    /// Whether entries of any keyspace expire.
    fn is_on(&self) -> bool {
        self.ttl.is_some() || self.marks.expires_named()
    }

    /// All `ttl`s, shortest first, in milliseconds.
    fn ttls(&self) -> Vec<u64> {
        let all = self.named.values().chain(&self.ttl);
        let mut all: Vec<u64> = all.map(|ttl| millis(*ttl)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn shortest_ttl(&self) -> Option<Duration> {
        self.named.values().chain(&self.ttl).min().copied()
    }

    /// Begins to mark times, or stops marking them.
    fn settle(&mut self, now: u64) {
        match self.shortest_ttl() {
            Some(ttl) if !self.marks.is_on() => {
                self.marks.add(0, now.saturating_add(millis(resolution(ttl))));
            }
            None if !self.is_on() => self.marks.clear(),
            _ => {}
        }
    }

    /// Sets whether a keyspace with a horizon of its own expires.
    fn set_since(&mut self, id: u32, is_on: bool, now: u64) {
        let Some(keyspaces) = self.marks.keyspaces_mut() else { return };
        match keyspaces.get_mut(&id) {
            Some(keyspace) if is_on && keyspace.since == 0 => keyspace.since = now.max(1),
            Some(keyspace) if !is_on => {
                keyspace.since = 0;
                if keyspace.seqno == 0 {
                    keyspaces.remove(&id);
                }
            }
            None if is_on => {
                keyspaces.insert(id, KeyspaceHorizon { seqno: 0, since: now.max(1) });
            }
            _ => {}
        }
    }

    /// Moves the horizons; returns when they may move again.
    fn advance(&mut self, now: u64, visible: SeqNo) -> Option<u64> {
        if self.marks.keyspaces().is_none() {
            return self.marks.advance(now, millis(self.ttl?), visible);
        }
        let default = self.ttl.map(|ttl| (DEFAULT_ID, ttl));
        let mut due = None;
        for (id, ttl) in default.into_iter().chain(self.named.iter().map(|(id, ttl)| (*id, *ttl))) {
            let next = self.marks.advance_keyspace((id, millis(ttl)), now, visible);
            // Everything has expired. Entries written from now on do not expire before `next`.
            let next = next.unwrap_or_else(|| now.saturating_add(millis(resolution(ttl))));
            due = due.into_iter().chain([next]).min();
        }
        if self.is_known() {
            let ttls = self.ttls();
            self.marks.thin(now, &ttls, MOST_MARKS / 2);
        }
        due
    }

    fn was_dropped(&self, id: u32) -> bool {
        self.dropped.iter().any(|(dropped, _)| *dropped == id)
    }

    /// Forgets the horizons of dropped keyspaces that no snapshot sees, if `oldest` is the oldest.
    fn forget_dropped(&mut self, oldest: Option<SeqNo>) {
        let is_seen = |seqno: SeqNo| oldest.is_some_and(|oldest| oldest < seqno);
        let Self { dropped, marks, .. } = self;
        dropped.retain(|(id, seqno)| {
            let stays = is_seen(*seqno);
            if let Some(keyspaces) = marks.keyspaces_mut().filter(|_| !stays) {
                keyspaces.remove(id);
            }
            stays
        });
    }

    /// Whether the `ttl` of each keyspace that expires is known.
    fn is_known(&self) -> bool {
        let mut keyspaces = self.marks.keyspaces().into_iter().flatten();
        keyspaces.all(|(id, keyspace)| {
            *id == DEFAULT_ID || keyspace.since == 0 || self.named.contains_key(id)
        })
    }
}

impl Default for Expiry {
    fn default() -> Self {
        Self::new(Arc::new(trommel_vfs::DiskVfs), TimeMarks::default(), None)
    }
}

impl Expiry {
    /// Expiry with the recorded marks, by the clock of a file system.
    pub(crate) fn new(clock: Arc<dyn Vfs>, marks: TimeMarks, ttl: Option<Duration>) -> Self {
        let (named, dropped) = <(BTreeMap<_, _>, Vec<_>)>::default();
        let expiry = Self {
            clock,
            is_on: AtomicBool::new(false),
            horizons: Swap::new(Arc::new(marks.horizons())),
            due: AtomicU64::new(NEVER),
            marked_until: AtomicU64::new(0),
            state: Mutex::new(ExpiryState { ttl, named, dropped, marks }),
        };
        expiry.set_ttl(ttl);
        expiry
    }

    /// Gives keyspaces horizons of their own from now on: there is a catalog.
    pub(crate) fn separate(&self) {
        let mut state = lock(&self.state);
        state.marks.separate();
        self.publish(&state, self.due.load(Ordering::Acquire));
    }

    /// Undoes [`separate`](Self::separate): there is no catalog after all.
    pub(crate) fn unite(&self) {
        let mut state = lock(&self.state);
        state.marks.unite();
        self.publish(&state, self.due.load(Ordering::Acquire));
    }

    /// Sets the `ttl` of the default keyspace. Entries written while they did not expire count as
    /// written now. No write may be in progress.
    pub(crate) fn set_ttl(&self, ttl: Option<Duration>) {
        let mut state = lock(&self.state);
        state.ttl = ttl;
        state.set_since(DEFAULT_ID, ttl.is_some(), self.clock.unix_millis());
        self.changed(&mut state);
    }

    /// Sets the `ttl` of a named keyspace.
    pub(crate) fn set_keyspace_ttl(&self, id: u32, ttl: Option<Duration>) {
        let mut state = lock(&self.state);
        match ttl {
            Some(ttl) => _ = state.named.insert(id, ttl),
            None => _ = state.named.remove(&id),
        }
        state.set_since(id, ttl.is_some(), self.clock.unix_millis());
        self.changed(&mut state);
    }

    /// Whether the known `ttl` of a keyspace differs from this one.
    pub(crate) fn has_other_ttl(&self, id: u32, ttl: Option<Duration>) -> bool {
        lock(&self.state).named.get(&id).copied() != ttl
    }

    /// Whether the keyspace has a horizon of its own, or expires.
    pub(crate) fn has_horizon(&self, id: u32) -> bool {
        lock(&self.state).marks.keyspaces().is_some_and(|all| all.contains_key(&id))
    }

    /// Whether the `ttl`s `named` of named keyspaces differ from the known ones; `live` are all
    /// existing keyspaces.
    pub(crate) fn differs(&self, named: &BTreeMap<u32, Duration>, live: &BTreeSet<u32>) -> bool {
        let state = lock(&self.state);
        let mut known = state.marks.keyspaces().into_iter().flatten();
        let is_known = |(id, horizon): (&u32, &KeyspaceHorizon)| {
            let is_gone = || horizon.since == 0 && state.was_dropped(*id);
            *id == DEFAULT_ID || live.contains(id) || is_gone()
        };
        state.named != *named || !known.all(is_known)
    }

    /// Sets the `ttl`s of named keyspaces after the catalog was read; `live` are all existing
    /// keyspaces. Known ones that are missing there were dropped by `seqno`; `oldest` is as in
    /// [`drop_keyspace`](Self::drop_keyspace).
    pub(crate) fn set_keyspace_ttls(
        &self,
        named: BTreeMap<u32, Duration>,
        live: &BTreeSet<u32>,
        (seqno, oldest): (SeqNo, Option<SeqNo>),
    ) {
        let mut state = lock(&self.state);
        let now = self.clock.unix_millis();
        let gone: Vec<u32> =
            state.marks.keyspaces().into_iter().flatten().map(|(id, _)| *id).collect();
        for id in gone.into_iter().filter(|id| *id != DEFAULT_ID && !named.contains_key(id)) {
            state.set_since(id, false, now);
            if !live.contains(&id) && !state.was_dropped(id) {
                state.dropped.push((id, seqno));
            }
        }
        state.forget_dropped(oldest);
        named.keys().for_each(|id| state.set_since(*id, true, now));
        state.named = named;
        self.changed(&mut state);
    }

    /// Forgets the `ttl` of a keyspace that was dropped at `seqno`, and the horizons of those that
    /// no snapshot sees, if `oldest` is the oldest one.
    pub(crate) fn drop_keyspace(&self, id: u32, seqno: SeqNo, oldest: Option<SeqNo>) {
        self.set_keyspace_ttl(id, None);
        let mut state = lock(&self.state);
        state.dropped.push((id, seqno));
        state.forget_dropped(oldest);
        self.publish(&state, self.due.load(Ordering::Acquire));
    }

    fn changed(&self, state: &mut ExpiryState) {
        state.settle(self.clock.unix_millis());
        let is_on = state.is_on();
        self.publish(state, if is_on { 0 } else { NEVER });
        self.is_on.store(is_on, Ordering::Release);
    }

    /// Whether entries expire.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Whether entries expire, or have expired earlier.
    pub(crate) fn hides_any(&self) -> bool {
        self.is_on() || !self.horizons.load().are_none()
    }

    /// Whether the horizons, as last computed, are these.
    pub(crate) fn are_published(&self, horizons: &Horizons) -> bool {
        self.horizons.load().are(horizons)
    }

    /// The horizons now. `visible` returns the newest visible sequence number.
    pub(crate) fn horizons(&self, visible: impl FnOnce() -> SeqNo) -> Arc<Horizons> {
        self.look(visible);
        self.horizons.load_full()
    }

    /// The horizon of the default keyspace now.
    #[inline]
    pub(crate) fn horizon(&self, visible: impl FnOnce() -> SeqNo) -> SeqNo {
        self.look(visible);
        self.horizons.load().of_default()
    }

    #[inline]
    fn look(&self, visible: impl FnOnce() -> SeqNo) {
        let due = self.due.load(Ordering::Acquire);
        if due != NEVER && self.clock.unix_millis() >= due {
            self.advance(visible);
        }
    }

    #[cold]
    fn advance(&self, visible: impl FnOnce() -> SeqNo) {
        let mut state = lock(&self.state);
        let Some(ttl) = state.shortest_ttl() else { return };
        // Read under the lock, so that the mark of each visible entry has been added.
        let (now, visible) = (self.clock.unix_millis(), visible());
        let due = state.advance(now, visible);
        let due = due.unwrap_or_else(|| now.saturating_add(millis(resolution(ttl))));
        self.publish(&state, due);
    }

    fn publish(&self, state: &ExpiryState, due: u64) {
        self.marked_until.store(state.marks.last().map_or(0, |mark| mark.until), Ordering::Release);
        let horizons = state.marks.horizons();
        if *self.horizons.load_full() != horizons {
            self.horizons.store(Arc::new(horizons));
        }
        // Last: a thread that sees this time finds the horizons moved.
        self.due.store(due, Ordering::Release);
    }

    /// If a write now needs a mark before it, the end of that mark's step. For the leader of the
    /// write queue, which calls [`Expiry::add`] before the write is visible.
    pub(crate) fn next_mark(&self) -> Option<u64> {
        let now = self.clock.unix_millis();
        if now <= self.marked_until.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.state).shortest_ttl().map(|ttl| now.saturating_add(millis(resolution(ttl))))
    }

    /// Ends the current step now if it is that of a longer `ttl` than there is now. If so, returns
    /// the end of the next step, for which a mark must be added. No write may be in progress.
    pub(crate) fn end_long_step(&self) -> Option<u64> {
        let mut state = lock(&self.state);
        let now = self.clock.unix_millis();
        let until = now.saturating_add(millis(resolution(state.shortest_ttl()?)));
        state.marks.last().filter(|last| last.until > until)?;
        state.marks.end_last(now);
        Some(until)
    }

    /// Adds a mark: entries with sequence numbers from `from` on are written no later than `until`.
    pub(crate) fn add(&self, from: SeqNo, until: u64) {
        let mut state = lock(&self.state);
        if state.is_on() {
            state.marks.add(from, until);
            self.publish(&state, self.due.load(Ordering::Acquire));
        }
    }

    /// Adds the marks and the horizons that another owner of the store has recorded.
    pub(crate) fn learn(&self, recorded: &TimeMarks) {
        let mut state = lock(&self.state);
        let is_on = state.is_on() || recorded.expires_named();
        state.marks.learn(recorded, is_on);
        self.changed(&mut state);
    }

    /// The marks and the horizon now, for the manifest.
    pub(crate) fn marks(&self, visible: impl FnOnce() -> SeqNo) -> TimeMarks {
        if self.is_on() {
            self.advance(visible);
        }
        lock(&self.state).marks.recorded()
    }

    /// The time until everything before one of these sequence numbers, by keyspace id, has expired;
    /// `None` if nothing expires.
    pub(crate) fn time_to(&self, all: &BTreeMap<u32, SeqNo>) -> Option<Duration> {
        let state = lock(&self.state);
        let at = |(id, seqno): (&u32, &SeqNo)| {
            let ttl = if *id == DEFAULT_ID { state.ttl } else { state.named.get(id).copied() };
            match state.marks.keyspaces() {
                None => state.marks.expires_at(*seqno, millis(ttl?)),
                Some(_) => state.marks.keyspace_expires_at((*id, millis(ttl?)), *seqno),
            }
        };
        let first = all.iter().filter_map(at).min()?;
        Some(Duration::from_millis(first.saturating_sub(self.clock.unix_millis())))
    }
}

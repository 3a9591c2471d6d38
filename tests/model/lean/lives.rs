//! Restarts of a store: after closing, dropping, a kill, a power failure.

use std::rc::Rc;
use std::sync::Arc;

use trommel::Db;
use trommel_sim::{Image, Policy, SimDisk};

use super::held::{Alphabet, State};
use super::store::Lean;
use crate::iterators::{Check, ok};
use crate::rng::Rng;

impl Lean {
    pub(super) fn open(&mut self, rng: &mut Rng) -> Check {
        let options = (self.choose)(rng, self.home, &self.vfs);
        let shown = format!("{options:?}");
        let settings = options.settings();
        self.log = settings.contains(&("log", "true".into()));
        self.syncs = settings.contains(&("durability", "sync".into()));
        let db =
            Db::open(&self.dir, options).map_err(|error| format!("open: {error} ({shown})"))?;
        self.db = Some(db);
        Ok(())
    }

    /// Records the store's counters, and takes its handle. Snapshots and iterators are dropped.
    fn take(&mut self) -> Db {
        self.ranges.clear();
        self.cursors.clear();
        self.snapshots.clear();
        let db = self.db.take().expect("the store is open between steps");
        self.work.note(&db.stats());
        db
    }

    pub(super) fn reopen(&mut self, rng: &mut Rng) -> Check {
        let db = self.take();
        if rng.once_in(2) {
            drop(db);
        } else {
            ok("close", db.close())?;
        }
        self.all_durable();
        self.open(rng)?;
        self.work.reopens += 1;
        if rng.once_in(4) {
            ok("verify after opening", self.db().verify())?;
        }
        self.compare_all()
    }

    /// The process dies: all acknowledged writes are present, or, without a log, all flushed ones.
    pub(super) fn kill(&mut self, rng: &mut Rng) -> Check {
        if !self.log {
            self.make_durable(false)?;
        }
        let Some(disk) = self.disk.clone() else { return self.reopen(rng) };
        self.go_on_from(&disk.crash(Policy::EVERYTHING, 0));
        self.all_durable();
        self.open(rng)?;
        self.work.reopens += 1;
        self.work.kills += 1;
        self.compare_all().map_err(|fault| format!("after a kill: {fault}"))
    }

    /// The power fails: the state is that after some prefix of the writes, at or after the last
    /// sync.
    pub(super) fn power_cut(&mut self, rng: &mut Rng) -> Check {
        let Some(disk) = self.disk.clone() else { return self.kill(rng) };
        let policy = *rng.pick(&Policy::ALL);
        self.go_on_from(&disk.crash(policy, rng.u64()));
        let after = |fault| format!("after a power cut ({policy}): {fault}");
        self.open(rng).map_err(after)?;
        self.work.reopens += 1;
        self.work.power_cuts += 1;
        let found = read_state(self.db(), &self.alphabet).map_err(after)?;
        let mut state = (*self.durable).clone();
        let mut batches = std::mem::take(&mut self.since).into_iter();
        while state != found {
            let Some(batch) = batches.next() else {
                return Err(after(difference(&self.durable, &self.state, &found)));
            };
            for (at, stamp) in batch {
                state[at] = stamp;
            }
        }
        self.state = Rc::new(state);
        self.all_durable();
        self.compare_all().map_err(after)
    }

    /// The old store's last writes go to a disk that is not read again.
    fn go_on_from(&mut self, image: &Image) {
        drop(self.take());
        let disk: SimDisk = image.disk();
        self.vfs = Arc::new(disk.clone());
        self.disk = Some(disk);
    }

    /// The final comparisons: everything, closed and reopened.
    pub(crate) fn end(&mut self) -> Check {
        self.compare_all()?;
        for (snapshot, state) in &self.snapshots {
            self.alphabet.check_all(snapshot.iter(), state)?;
        }
        ok("verify at the end", self.db().verify())?;
        let db = self.take();
        ok("close", db.close())?;
        self.open(&mut Rng::new(self.work.operations))?;
        self.compare_all().map_err(|fault| format!("after the last opening: {fault}"))?;
        ok("the last close", self.take().close())
    }
}

/// The store's state: each entry names its write.
fn read_state(db: &Db, alphabet: &Alphabet) -> Check<State> {
    let mut state = vec![0; alphabet.keys.len()];
    for entry in db.iter() {
        let (key, value) = ok("a scan", entry)?;
        let at = alphabet.place(&key);
        let known = alphabet.keys.get(at).is_some_and(|known| **known == *key);
        let stamp = value.first_chunk().map_or(0, |stamp| u32::from_le_bytes(*stamp));
        if !known || !alphabet.is_value(Some(&value), stamp) {
            return Err(format!("{key:?} = {value:?} was never written"));
        }
        state[at] = stamp;
    }
    Ok(state)
}

fn difference(durable: &State, last: &State, found: &State) -> String {
    let places =
        (0..found.len()).filter(|at| found[*at] != last[*at] || found[*at] != durable[*at]);
    let texts = places.take(12).map(|at| {
        format!("key {at}: {} synced, {} last, {} found", durable[at], last[at], found[at])
    });
    format!("no prefix of the writes since the last sync: {}", texts.collect::<Vec<_>>().join("; "))
}

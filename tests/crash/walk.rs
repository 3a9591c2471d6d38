//! One life of a store, walked from boundary to boundary; at each, images of what a power cut may
//! leave are opened and compared with the oracle.

use std::collections::HashMap;
use std::sync::Arc;

use fastrand::Rng;
use trommel::vfs::{Data, Entries, Image, Policy, Replay, SimDisk, Vfs};
use trommel_tests::counters::Counters;

use crate::inspect::{Inspection, Verdict, inspect_checkpoints, inspect_suspect};
use crate::minimise::minimise;
use crate::oracle::{Bounds, History, State};
use crate::settings::{only, only_these};
use crate::watchdog;
use crate::workload::Profile;

/// All policies, by the numbers under which failures name them: first those under which nothing
/// durable may be missing, then those under which the store may find that it was damaged.
pub(crate) fn policy(number: usize) -> Policy {
    let last = number.checked_sub(Policy::ALL.len());
    last.map_or_else(|| Policy::ALL[number], |number| Policy::STALE[number])
}

/// Up to so many open decisions, all images at a boundary are made.
const EXHAUSTIVE_DECISIONS: usize = 12;
/// At one boundary in so many, or in so many more if the decisions are many.
const EXHAUSTIVE_EVERY: u64 = 12;
/// How often an image is made again to find out which of its losses a failure takes.
const TRIES: usize = 400;

/// What else may be wrong with a state: for tests of this machinery.
pub(crate) type Flaw = fn(&State) -> Verdict<()>;

/// What was found, and where.
#[derive(Debug, Default)]
pub(crate) struct Failed {
    pub(crate) text: String,
    pub(crate) boundary: usize,
    pub(crate) policy: usize,
    pub(crate) seed: u64,
    /// Of the losses of that image, those that the failure takes.
    pub(crate) losses: Option<Vec<usize>>,
}

impl Failed {
    pub(crate) fn before_any_crash(text: String) -> Box<Self> {
        Box::new(Self { text, ..Self::default() })
    }
}

/// One life of a store, and how it is looked at.
pub(crate) struct Walk<'a> {
    profile: &'a Profile,
    history: &'a History,
    bounds: Bounds,
    /// The digest of the state found on each image, by the image's hash.
    met: HashMap<u64, u64>,
    /// Decides about all that is done only now and then.
    pub(crate) seed: u64,
    /// At one boundary in so many, images are made.
    pub(crate) every: u64,
    /// The one image to be made: boundary, policy, seed.
    pub(crate) only: Option<(u64, usize, u64)>,
    /// What the watchdog is told.
    pub(crate) note: [u64; 2],
    pub(crate) flaw: Option<Flaw>,
}

impl<'a> Walk<'a> {
    /// A walk through the life that made `history` of its first `inherited` batches.
    pub(crate) fn new(profile: &'a Profile, history: &'a History, inherited: usize) -> Self {
        Self {
            profile,
            history,
            bounds: Bounds::starting_with(inherited),
            met: HashMap::new(),
            seed: 0,
            every: 1,
            only: None,
            note: [0; 2],
            flaw: None,
        }
    }

    pub(crate) fn all(
        &mut self,
        disk: &SimDisk,
        counters: &mut Counters,
    ) -> Result<(), Box<Failed>> {
        let mut replay = disk.replay();
        let mut marks = 0;
        loop {
            for &mark in &replay.marks()[marks..] {
                self.bounds.pass(mark);
            }
            marks = replay.marks().len();
            self.boundary(&replay, counters)?;
            if replay.step().is_none() {
                return Ok(());
            }
        }
    }

    fn boundary(&mut self, replay: &Replay, counters: &mut Counters) -> Result<(), Box<Failed>> {
        let at = replay.position() as u64;
        if only::<5>().is_some() {
            return match self.only {
                Some((boundary, policy, seed)) if boundary == at => {
                    self.policy(replay, policy, seed, counters)
                }
                _ => Ok(()),
            };
        }
        let mut rng = Rng::with_seed(self.seed ^ at);
        if rng.u64(..self.every) != 0 {
            return Ok(());
        }
        counters.add("boundaries", 1);
        self.policy(replay, 0, 0, counters)?;
        self.policy(replay, 1, 0, counters)?;
        for _ in 0..2 {
            self.policy(replay, rng.usize(2..Policy::ALL.len()), rng.u64(..), counters)?;
        }
        if rng.u8(..4) == 0 {
            let stale = Policy::ALL.len() + rng.usize(..Policy::STALE.len());
            self.policy(replay, stale, rng.u64(..), counters)?;
        }
        let decisions = replay.undecided();
        let rare = if decisions > 8 { 4 * EXHAUSTIVE_EVERY } else { EXHAUSTIVE_EVERY };
        if rng.u64(..rare) != 0 {
            return Ok(());
        }
        let Some(all) = replay.images_exhaustive(EXHAUSTIVE_DECISIONS) else { return Ok(()) };
        counters.add(format!("exhaustive.boundaries.{decisions:02}"), 1);
        for (number, image) in all.iter().enumerate() {
            counters.add("images.exhaustive", 1);
            self.image(image, Policy::RANDOM, counters).map_err(|what| {
                let text = format!("image {number} of all {}: {what}", all.len());
                Box::new(Failed { text, boundary: replay.position(), ..Failed::default() })
            })?;
        }
        Ok(())
    }

    fn policy(
        &mut self,
        replay: &Replay,
        number: usize,
        seed: u64,
        counters: &mut Counters,
    ) -> Result<(), Box<Failed>> {
        let [workload, life] = self.note;
        watchdog::note([workload, life, replay.position() as u64, number as u64, seed]);
        let policy = policy(number);
        let mut image = replay.image(policy, seed);
        if only::<5>().is_some()
            && let Some(losses) = replay.losses(policy, seed)
        {
            image = replay.image_losing(&only_these(2, &losses));
        }
        counters.add(format!("images.{}", label(policy)), 1);
        let outcome = self.image(&image, policy, counters);
        outcome.map_err(|what| self.failed(replay, number, seed, &what))
    }

    fn image(&mut self, image: &Image, policy: Policy, counters: &mut Counters) -> Verdict<()> {
        counters.add("images", 1);
        let Bounds { durable, written, issued, ref checkpoints } = self.bounds;
        let low = if policy == Policy::EVERYTHING { written } else { durable };
        let done = checkpoints.iter().filter(|checkpoint| checkpoint.done).count() as u64;
        let name = image.hash().wrapping_add(done);
        if let Some(&found) = self.met.get(&name) {
            return match self.history.prefix(found, low, issued) {
                Some(_) => Ok(()),
                None => Err(format!("an image met before is not within {low}..={issued}")),
            };
        }
        counters.add("distinct", 1);
        let rng = Rng::with_seed(name);
        let (history, flaw) = (self.history, self.flaw);
        let mut inspection = Inspection { history, low, high: issued, rng, flaw };
        // Starting threads costs more than all the rest.
        let threads = if name.is_multiple_of(32) { self.profile.threads } else { 0 };
        let options = |vfs: Arc<dyn Vfs>| self.profile.options(vfs).background_threads(threads);
        if policy.data == Data::Stale {
            return inspect_suspect(image, &mut inspection, options, counters);
        }
        let found = inspection.inspect(image, options, counters)?;
        if counters.get("distinct").is_multiple_of(4) {
            inspect_checkpoints(image, self.history, &self.bounds, options)?;
        }
        self.met.insert(name, found);
        Ok(())
    }

    /// Cuts what the power cut took down to what the failure takes, and says all of it in words.
    fn failed(&mut self, replay: &Replay, number: usize, seed: u64, what: &str) -> Box<Failed> {
        let policy = policy(number);
        let at = replay.position();
        let mut text = what.to_owned();
        let first = at.saturating_sub(12);
        for (number, op) in replay.ops()[first..at].iter().enumerate() {
            text.push_str(&format!("\n    {} {op}", first + number));
        }
        text.push_str(&format!("\n  at boundary {at}, {policy}, bounds {:?}", self.bounds));
        let losses = replay.losses(policy, seed).map(|losses| {
            let mut counters = Counters::new("cutting down");
            let kept = minimise(losses.len(), TRIES, |kept| {
                let kept: Vec<_> = kept.iter().map(|&place| losses[place]).collect();
                self.met.clear();
                self.image(&replay.image_losing(&kept), policy, &mut counters).is_err()
            });
            for &place in &kept {
                text.push_str(&format!("\n  lost: {}", losses[place]));
            }
            kept
        });
        Box::new(Failed { text, boundary: at, policy: number, seed, losses })
    }
}

/// The number of a policy in the table of `trommel_vfs::Policy`.
fn label(policy: Policy) -> &'static str {
    match (policy.entries, policy.data) {
        (Entries::Synced, Data::Synced) => "P01",
        (Entries::All, Data::All) => "P02_P03",
        (_, Data::Torn) => "P04",
        (_, Data::Pages) => "P05",
        (_, Data::Random) => "P06",
        (_, Data::Zeroed) => "P07",
        (_, Data::Stale) => "P08",
        (_, Data::Synced | Data::All) => "P09",
    }
}

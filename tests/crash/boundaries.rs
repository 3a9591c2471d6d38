//! One life of a store, replayed from boundary to boundary; at each, images of what a power failure
//! may leave are opened and compared with the oracle.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use fastrand::Rng;
use trommel::vfs::Vfs;
use trommel_sim::{Data, Entries, Image, Loss, Policy, Replay, SimDisk};
use trommel_tests::counters::Counters;

use crate::inspect::{Inspection, Verdict, inspect_checkpoints, inspect_suspect};
use crate::minimise::minimise;
use crate::oracle::{Bounds, History, State};
use crate::workload::Profile;
use trommel_tests::watchdog;

/// All policies, by the numbers with which failures name them: first those that lose nothing
/// durable, then those after which the store may report corruption. The number after the last is
/// [`EXHAUSTIVE`].
pub(crate) fn policy(number: usize) -> Policy {
    let last = number.checked_sub(Policy::ALL.len());
    let stale = |number: usize| Policy::STALE.get(number).copied().unwrap_or(Policy::RANDOM);
    last.map_or_else(|| Policy::ALL[number], stale)
}

/// In place of a policy's number: one of all images of the boundary, whose own number is in place
/// of the seed.
pub(crate) const EXHAUSTIVE: usize = Policy::ALL.len() + Policy::STALE.len();

/// Up to this many open decisions, all images are made, at every boundary covered.
const ALWAYS_DECISIONS: usize = 6;
/// Up to this many, at some boundaries.
const EXHAUSTIVE_DECISIONS: usize = 12;
/// Exhaustive at one in this many of these boundaries, or a multiple if there are many decisions.
const EXHAUSTIVE_EVERY: u64 = 12;
/// Counter of the boundaries with so few open decisions that all images are made.
const FEW: &str = "boundaries_of_few_decisions";
/// Maximum number of reruns of an image to find the losses necessary for a failure.
const TRIES: usize = 400;

/// An additional check of a state, to test the minimiser.
pub(crate) type Flaw = fn(&State) -> Verdict<()>;

/// An image of a life, as a failure names it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) boundary: u64,
    /// See [`policy`].
    pub(crate) policy: usize,
    pub(crate) seed: u64,
}

/// Where to make images.
#[derive(Debug, Clone, Default)]
pub(crate) enum Look {
    /// At all boundaries.
    #[default]
    Everywhere,
    Nowhere,
    /// Only this one, with all checks; with all of its losses, or some of them.
    At(Case, Option<Vec<usize>>),
}

/// Asserts that all possible images were made at every boundary with few open decisions.
///
/// # Panics
/// If it is not so, or there were no such boundaries.
pub(crate) fn assert_exhaustive(counters: &Counters) {
    let made = |decisions: usize| counters.get(&format!("exhaustive.boundaries.{decisions:02}"));
    let all: u64 = (0..=ALWAYS_DECISIONS).map(made).sum();
    let few = counters.get(FEW);
    assert!(few > 0 && all == few, "of {few} boundaries of few decisions, all images of {all}");
    // Not only with none and with all unsynced writes: with several open decisions.
    let numbers = (1..=ALWAYS_DECISIONS).filter(|decisions| made(*decisions) > 0).count();
    assert!(numbers > ALWAYS_DECISIONS / 2, "{counters:?}");
}

/// A failure, and its image.
#[derive(Debug, Default)]
pub(crate) struct Failed {
    pub(crate) text: String,
    pub(crate) case: Case,
    /// The losses of the image that are necessary for the failure.
    pub(crate) losses: Option<Vec<usize>>,
}

impl Failed {
    pub(crate) fn before_any_crash(text: String) -> Box<Self> {
        Box::new(Self { text, ..Self::default() })
    }
}

/// One life of a store, and its checks.
pub(crate) struct Boundaries<'a> {
    profile: &'a Profile,
    history: &'a History,
    bounds: Bounds,
    /// The digest of the state found on each image, by the image's hash.
    met: HashMap<u64, u64>,
    /// Decides which of the occasional checks to run.
    pub(crate) seed: u64,
    /// Images are made at one in this many boundaries.
    pub(crate) every: u64,
    pub(crate) look: Look,
    /// Workload and life: noted for the watchdog, and part of the seed of an image's checks.
    pub(crate) note: [u64; 2],
    pub(crate) flaw: Option<Flaw>,
    /// The images seen in any life of the lane.
    seen: &'a RefCell<HashSet<u64>>,
}

impl<'a> Boundaries<'a> {
    /// Checks the life that made `history`, whose first `inherited` batches are from earlier lives.
    pub(crate) fn new(
        profile: &'a Profile,
        history: &'a History,
        inherited: usize,
        seen: &'a RefCell<HashSet<u64>>,
    ) -> Self {
        Self {
            profile,
            history,
            bounds: Bounds::starting_with(inherited),
            met: HashMap::new(),
            seed: 0,
            every: 1,
            look: Look::Everywhere,
            note: [0; 2],
            flaw: None,
            seen,
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
        let boundary = replay.position() as u64;
        match &self.look {
            Look::Everywhere => {}
            Look::At(case, losses) if case.boundary == boundary => {
                let (case, losses) = (*case, losses.clone());
                return self.one(replay, case, losses.as_deref(), counters);
            }
            Look::At(..) | Look::Nowhere => return Ok(()),
        }
        let mut rng = Rng::with_seed(self.seed ^ boundary);
        if rng.u64(..self.every) != 0 {
            return Ok(());
        }
        counters.add("boundaries", 1);
        let mut cases = vec![(0, 0), (1, 0)];
        // The others alternate, so that a workload of some length uses all of them.
        let others = Policy::ALL.len() - 2;
        for turn in 0..2 {
            let other = (2 * boundary as usize + self.seed as usize + turn) % others;
            cases.push((2 + other, rng.u64(..)));
        }
        if rng.u8(..4) == 0 {
            let stale = Policy::ALL.len() + rng.usize(..Policy::STALE.len());
            cases.push((stale, rng.u64(..)));
        }
        for (policy, seed) in cases {
            self.one(replay, Case { boundary, policy, seed }, None, counters)?;
        }
        let decisions = replay.undecided();
        let rare = match decisions {
            ..=ALWAYS_DECISIONS => 1,
            7..=8 => EXHAUSTIVE_EVERY,
            _ => 4 * EXHAUSTIVE_EVERY,
        };
        if decisions <= ALWAYS_DECISIONS {
            counters.add(FEW, 1);
        }
        if rng.u64(..rare) != 0 {
            return Ok(());
        }
        let Some(all) = replay.images_exhaustive(EXHAUSTIVE_DECISIONS) else { return Ok(()) };
        counters.add(format!("exhaustive.boundaries.{decisions:02}"), 1);
        for (number, image) in (0..).zip(&all) {
            let case = Case { boundary, policy: EXHAUSTIVE, seed: number };
            self.case(replay, image, case, counters)?;
        }
        Ok(())
    }

    /// Makes the image of this case, with only the given `losses`, and checks it.
    fn one(
        &mut self,
        replay: &Replay,
        case: Case,
        losses: Option<&[usize]>,
        counters: &mut Counters,
    ) -> Result<(), Box<Failed>> {
        let image = make(replay, case, losses).ok_or_else(|| {
            Box::new(Failed { text: format!("there is no image {case:?}"), case, losses: None })
        })?;
        self.case(replay, &image, case, counters)
    }

    fn case(
        &mut self,
        replay: &Replay,
        image: &Image,
        case: Case,
        counters: &mut Counters,
    ) -> Result<(), Box<Failed>> {
        let [workload, life] = self.note;
        watchdog::note([workload, life, case.boundary, case.policy as u64, case.seed]);
        let label =
            if case.policy == EXHAUSTIVE { "exhaustive" } else { label(policy(case.policy)) };
        counters.add(format!("images.{label}"), 1);
        let outcome = self.image(image, case, counters);
        outcome.map_err(|what| self.failed(replay, case, &what))
    }

    fn image(&mut self, image: &Image, case: Case, counters: &mut Counters) -> Verdict<()> {
        counters.add("images", 1);
        let policy = policy(case.policy);
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
        if self.seen.borrow_mut().insert(image.hash()) {
            counters.add("distinct", 1);
        }
        let mut rng = self.rng(case);
        // Starting threads costs more than everything else.
        let threads = if rng.u8(..32) == 0 { self.profile.threads } else { 0 };
        let options = |vfs: Arc<dyn Vfs>| self.profile.options(vfs).background_threads(threads);
        let with_checkpoints = rng.u8(..4) == 0 || matches!(self.look, Look::At(..));
        let (history, flaw) = (self.history, self.flaw);
        let mut inspection = Inspection { history, low, high: issued, rng, flaw };
        if policy.data == Data::Stale {
            return inspect_suspect(image, &mut inspection, options, counters);
        }
        let found = inspection.inspect(image, options, counters)?;
        if with_checkpoints {
            inspect_checkpoints(image, self.history, &self.bounds, options)?;
        }
        self.met.insert(name, found);
        Ok(())
    }

    /// Random choices for the checks of an image: they depend on its case alone. (Its bytes contain
    /// salts, which vary.)
    fn rng(&self, case: Case) -> Rng {
        let mut hasher = DefaultHasher::new();
        (self.note, case.boundary, case.policy, case.seed).hash(&mut hasher);
        Rng::with_seed(hasher.finish())
    }

    /// Minimises the losses of the power failure, and describes them.
    fn failed(&mut self, replay: &Replay, case: Case, what: &str) -> Box<Failed> {
        let at = replay.position();
        let mut text = what.to_owned();
        let first = at.saturating_sub(12);
        for (number, op) in replay.ops()[first..at].iter().enumerate() {
            text.push_str(&format!("\n    {} {op}", first + number));
        }
        let kind = match case.policy {
            EXHAUSTIVE => format!("image {} of all", case.seed),
            number => policy(number).to_string(),
        };
        text.push_str(&format!("\n  at boundary {at}, {kind}, bounds {:?}", self.bounds));
        let losses = losses(replay, case).map(|losses| {
            let mut counters = Counters::new("cutting down");
            let kept = minimise(losses.len(), TRIES, |kept| {
                let kept: Vec<_> = kept.iter().map(|&place| losses[place]).collect();
                self.met.clear();
                self.image(&replay.image_losing(&kept), case, &mut counters).is_err()
            });
            for &place in &kept {
                text.push_str(&format!("\n  lost: {}", losses[place]));
            }
            kept
        });
        Box::new(Failed { text, case, losses })
    }
}

/// The losses in the image of this case, if it has any that are distinct.
fn losses(replay: &Replay, case: Case) -> Option<Vec<Loss>> {
    if case.policy == EXHAUSTIVE {
        return None;
    }
    replay.losses(policy(case.policy), case.seed)
}

/// The image of this case; if `kept` is given, with only these losses.
pub(crate) fn make(replay: &Replay, case: Case, kept: Option<&[usize]>) -> Option<Image> {
    if case.policy == EXHAUSTIVE {
        let mut all = replay.images_exhaustive(EXHAUSTIVE_DECISIONS)?;
        let number = usize::try_from(case.seed).ok()?;
        return (number < all.len()).then(|| all.swap_remove(number));
    }
    if let (Some(kept), Some(losses)) = (kept, losses(replay, case)) {
        let kept: Vec<_> = kept.iter().filter_map(|&place| losses.get(place).copied()).collect();
        return Some(replay.image_losing(&kept));
    }
    Some(replay.image(policy(case.policy), case.seed))
}

/// The number of a policy in the table of `trommel_sim::Policy`.
fn label(policy: Policy) -> &'static str {
    match (policy.entries, policy.data) {
        (Entries::Synced, Data::Synced) => "P01",
        (Entries::All, Data::All) => "P02_P03",
        (_, Data::Torn) => "P04",
        (_, Data::Pages) => "P05",
        (_, Data::Random) => "P06",
        (_, Data::Zeroed) => "P07",
        (_, Data::Stale) => "P08",
        _ => "P09",
    }
}

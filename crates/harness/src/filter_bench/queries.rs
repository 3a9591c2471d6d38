//! Asking a fleet of filters: for the rate, and against the clock.

use std::hint::black_box;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::fleet::{Fleet, Keys};
use super::{Access, Pattern, Plan, Rate, Timing, nanoseconds};
use crate::control::Control;
use crate::error::Error;

/// Queries between two looks at the stop.
const STRIDE: u64 = 1 << 16;

/// Asks every filter for its share of keys that are not there.
pub(super) fn rate(fleet: &Fleet, plan: &Plan, control: Control<'_>) -> Result<Rate, Error> {
    let share = plan.queries.div_ceil(fleet.members.len() as u64);
    let mut keys = Keys::new(plan.key_bytes);
    let mut each = Vec::with_capacity(fleet.members.len());
    let mut expected = 0.0;
    control.progress.begin("asking for absent keys", share * fleet.members.len() as u64);
    for (number, member) in fleet.members.iter().enumerate() {
        let (mut hits, mut asked) = (0, 0);
        while asked < share && !control.stop.is_set() {
            let end = share.min(asked + STRIDE);
            for nth in asked..end {
                hits += u64::from(member.filter.may_contain(keys.absent(number, nth)));
            }
            control.progress.advance(end - asked);
            asked = end;
        }
        if control.stop.is_set() {
            control.progress.end();
            return Err(Error::Interrupted);
        }
        each.push((share, hits));
        expected += member.filter.expected_fpr();
    }
    control.progress.end();
    Ok(Rate::new(&each, expected / fleet.members.len() as f64))
}

/// Times `pattern`, with and without the filters.
pub(super) fn time(
    fleet: &Fleet,
    plan: &Plan,
    pattern: Pattern,
    control: Control<'_>,
) -> Result<Timing, Error> {
    control.progress.begin(&pattern.to_string(), 2 * plan.queries);
    let dry = run(fleet, plan, pattern, Asked::Nothing, control);
    let gross = run(fleet, plan, pattern, Asked::Filters, control);
    control.progress.end();
    if control.stop.is_set() {
        return Err(Error::Interrupted);
    }
    let (gross_ns, dry_ns) = (nanoseconds(gross, plan.queries), nanoseconds(dry, plan.queries));
    Ok(Timing { pattern, gross_ns, dry_ns })
}

/// Whether the filters are asked, or all is done but that.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    Filters,
    Nothing,
}

/// One pass over the queries of a pattern. The same keys and filters are drawn in a dry run.
fn run(
    fleet: &Fleet,
    plan: &Plan,
    pattern: Pattern,
    asked: Asked,
    control: Control<'_>,
) -> Duration {
    let mut rng = Rng::with_seed(plan.seed ^ 0x6173_6b65_6420_6b65);
    let mut keys = Keys::new(plan.key_bytes);
    let at_once = match pattern.access {
        Access::BatchedPrepared | Access::BatchedUnprepared => plan.batch,
        _ => 1,
    };
    let hashes_too = asked == Asked::Filters || !plan.net_includes_hashing;
    let inside = pattern.mix.inside_of_256();
    let mut hashes = vec![0_u64; at_once];
    let mut answers = vec![false; at_once];
    let (mut done, mut sum) = (0_u64, 0_u64);
    let start = Instant::now();
    while done < plan.queries {
        let number = choose(&mut rng, pattern.access, fleet.members.len());
        let member = &fleet.members[number];
        for hash in &mut hashes {
            let drawn = rng.u64(..);
            let key = if (drawn as u8) < inside {
                keys.key(number, ((u128::from(drawn) * u128::from(member.keys)) >> 64) as u64)
            } else {
                keys.absent(number, drawn)
            };
            *hash = if hashes_too { trommel::filter::hash(key) } else { u64::from(key[4]) };
        }
        sum = match (asked, pattern.access) {
            (Asked::Nothing, _) => hashes.iter().fold(sum, |sum, hash| sum ^ hash),
            (Asked::Filters, Access::BatchedPrepared) => {
                member.filter.may_contain_many(&hashes, &mut answers);
                answers.iter().fold(sum, |sum, answer| sum + u64::from(*answer))
            }
            (Asked::Filters, _) => {
                let ask = |sum, hash: &u64| sum + u64::from(member.filter.may_contain_hash(*hash));
                hashes.iter().fold(sum, ask)
            }
        };
        let before = done;
        done += at_once as u64;
        if before / STRIDE != done / STRIDE {
            control.progress.advance(STRIDE);
            if control.stop.is_set() {
                break;
            }
        }
    }
    black_box(sum);
    start.elapsed()
}

/// The filter to ask next.
#[inline]
fn choose(rng: &mut Rng, access: Access, filters: usize) -> usize {
    let skewed = |rng: &mut Rng, percent: u8, part: usize| {
        let some = filters.div_ceil(part);
        if rng.u8(..100) < percent { rng.usize(..some) } else { rng.usize(..filters) }
    };
    match access {
        Access::Single => 0,
        Access::BatchedPrepared | Access::BatchedUnprepared | Access::Random => {
            rng.usize(..filters)
        }
        Access::SkewedHalfInOne => skewed(rng, 50, 100),
        Access::SkewedEightyInTwenty => skewed(rng, 80, 5),
    }
}

//! Queries of a fleet of filters: untimed for the rate, and timed.

use std::hint::black_box;
use std::time::Instant;

use fastrand::Rng;
use trommel_harness::{Control, Unit};

use super::fleet::{Fleet, FleetKeys};
use super::{Access, FilterBenchPlan, Pattern, Rate, Timing, nanoseconds};

/// Queries between two checks of the stop.
const STRIDE: u64 = 1 << 16;

/// Queries every filter for its share of absent keys. If stopped, only the filters queried up to
/// then count; none if there are none.
pub(super) fn rate(fleet: &Fleet, plan: &FilterBenchPlan, control: Control<'_>) -> Option<Rate> {
    let share = plan.queries.for_rate.div_ceil(fleet.members.len() as u64);
    let mut keys = FleetKeys::new(plan.key_bytes);
    let mut each = Vec::with_capacity(fleet.members.len());
    let (mut expected, mut held) = (0.0, 0);
    control.progress.begin(
        "absent keys",
        share.saturating_mul(fleet.members.len() as u64),
        Unit::Keys,
    );
    for (number, member) in fleet.members.iter().enumerate() {
        let (mut hits, mut done) = (0, 0);
        while done < share && !control.stop.is_set() {
            let end = share.min(done + STRIDE);
            for nth in done..end {
                hits += u64::from(member.filter.may_contain(keys.absent(number, nth)));
            }
            control.progress.advance(end - done);
            done = end;
        }
        if done < share {
            break;
        }
        each.push((share, hits));
        expected += member.filter.expected_fpr();
        held += member.keys;
    }
    control.progress.end();
    let filters = each.len() as f64;
    Rate::new(&each, expected / filters, plan.spec.bits_per_key(), held as f64 / filters)
}

/// Passes over a pattern's queries, alternating with and without the filters. The least time of
/// each counts, because interference only adds.
const PASSES: u64 = 3;

/// Times `pattern`, with and without the filters; none if stopped.
pub(super) fn time(
    fleet: &Fleet,
    plan: &FilterBenchPlan,
    pattern: Pattern,
    control: Control<'_>,
) -> Option<Timing> {
    control.progress.begin(
        &pattern.to_string(),
        plan.queries.per_pattern.saturating_mul(2 * PASSES),
        Unit::Keys,
    );
    let (mut dry_ns, mut gross_ns) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..PASSES {
        dry_ns = dry_ns.min(run(fleet, plan, pattern, Queried::Nothing, control));
        gross_ns = gross_ns.min(run(fleet, plan, pattern, Queried::Filters, control));
    }
    control.progress.end();
    if control.stop.is_set() {
        return None;
    }
    Some(Timing { pattern, gross_ns, dry_ns })
}

/// Whether the filters are queried, or everything is done except that.
#[derive(Clone, Copy, PartialEq)]
enum Queried {
    Filters,
    Nothing,
}

/// Nanoseconds per query of one pass over a pattern's queries. A dry run draws the same keys and
/// filters.
fn run(
    fleet: &Fleet,
    plan: &FilterBenchPlan,
    pattern: Pattern,
    queried: Queried,
    control: Control<'_>,
) -> f64 {
    let mut rng = Rng::with_seed(plan.seed ^ 0x6173_6b65_6420_6b65);
    let mut keys = FleetKeys::new(plan.key_bytes);
    let at_once = if pattern.access == Access::Batched { plan.queries.batch } else { 1 };
    let inside = pattern.mix.inside_of_256();
    let mut hashes = vec![0_u64; at_once];
    let mut answers = vec![false; at_once];
    let (mut done, mut sum) = (0_u64, 0_u64);
    let start = Instant::now();
    while done < plan.queries.per_pattern {
        let number = choose(&mut rng, pattern.access, fleet.members.len());
        let member = &fleet.members[number];
        for hash in &mut hashes {
            let drawn = rng.u64(..);
            let key = if (drawn as u8) < inside {
                keys.key(number, ((u128::from(drawn) * u128::from(member.keys)) >> 64) as u64)
            } else {
                keys.absent(number, drawn)
            };
            *hash = trommel::filter::hash(key);
        }
        sum = match (queried, pattern.access) {
            (Queried::Nothing, _) => hashes.iter().fold(sum, |sum, hash| sum ^ hash),
            (Queried::Filters, Access::Batched) => {
                member.filter.may_contain_many(&hashes, &mut answers);
                answers.iter().fold(sum, |sum, answer| sum + u64::from(*answer))
            }
            (Queried::Filters, _) => {
                let query =
                    |sum, hash: &u64| sum + u64::from(member.filter.may_contain_hash(*hash));
                hashes.iter().fold(sum, query)
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
    let elapsed = start.elapsed();
    black_box(sum);
    nanoseconds(elapsed, done)
}

/// The next filter to query.
#[inline]
fn choose(rng: &mut Rng, access: Access, filters: usize) -> usize {
    match access {
        Access::Single => 0,
        Access::Batched | Access::Random => rng.usize(..filters),
    }
}

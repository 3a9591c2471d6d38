//! Checks whether a workload found the keys that it should have: a bench whose keys are not in the
//! store only measures how fast nothing is found.
//!
//! The share of its keys that a store holds is unknown: a fill that draws them at random writes 63
//! of 100. So for an existing store a result is suspicious if fewer than half of the keys are
//! found, and the run fails if none is. For a fresh store it is suspicious if none is found.

use super::Plan;
use crate::measured::Measured;
use crate::store::{Direction, Store};
use crate::workload::Workload;

/// Keys probed before a workload that writes to an existing store.
const PROBES: u64 = 64;

/// The assessment of a workload's hits.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing to report.
    Fine,
    /// A suspicious result, worth a warning.
    Odd(String),
    /// A result without any value.
    Worthless(String),
}

/// Compares the keys that `workload` found with those that it looked up.
pub(super) fn judge(plan: &Plan, workload: Workload, measured: &Measured) -> Verdict {
    let Some((found, lookups)) = measured.found.filter(|(_, lookups)| *lookups > 0) else {
        return Verdict::Fine;
    };
    if workload == Workload::ReadMissing {
        return match found {
            0 => Verdict::Fine,
            _ => Verdict::Odd(format!(
                "{workload} found {found} of {lookups} keys that should be missing: the store holds other keys \
                 than those of this run"
            )),
        };
    }
    let seeks = matches!(workload, Workload::SeekRandom | Workload::SeekRandomWhileWriting);
    let seeks_missing = seeks && plan.options.prefixes.is_some_and(|prefixes| prefixes.missing);
    let looks_for_all = workload.looks_for_what_is_there() && !seeks_missing;
    if !looks_for_all || deletes_before(plan, workload) {
        return Verdict::Fine;
    }
    if !plan.existing {
        return match found {
            0 => Verdict::Odd(format!(
                "{workload} found none of {lookups} keys: nothing was written to this fresh store before; begin with a \
                 fill, as in --benchmarks=fillrandom,{workload}, or give --use-existing-db"
            )),
            _ => Verdict::Fine,
        };
    }
    if found.saturating_mul(2) >= lookups {
        return Verdict::Fine;
    }
    let text = format!(
        "{workload} found {} of {lookups} keys: {}",
        if found == 0 { "none".to_owned() } else { format!("only {found}") },
        describe_keys(plan)
    );
    if found == 0 { Verdict::Worthless(text) } else { Verdict::Odd(text) }
}

/// Describes the plan's keys, and the probable mistake in them.
fn describe_keys(plan: &Plan) -> String {
    format!(
        "this run looks up {} keys of {} bytes; --num, --key-size and --keys-file must be those with which the \
         store was filled",
        plan.keys.len(),
        plan.keys.key_bytes()
    )
}

/// Whether a step before `workload` deletes entries.
fn deletes_before(plan: &Plan, workload: Workload) -> bool {
    let before = plan.steps.iter().map(|step| step.workload).take_while(|other| *other != workload);
    before.into_iter().any(Workload::deletes)
}

/// Returns a warning if a workload that is to modify existing entries would not: none of a sample
/// of its keys exists, but other entries do.
pub(super) fn warning(plan: &Plan, workload: Workload, store: &dyn Store) -> Option<String> {
    let changes = workload == Workload::Overwrite || workload.deletes();
    if !plan.existing || !changes || deletes_before(plan, workload) {
        return None;
    }
    let mut maker = plan.keys.maker();
    let step = (plan.keys.len() / PROBES).max(1);
    let mut sample = (0..plan.keys.len()).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    // Scans, because no filter counts them.
    let is_there = |index| {
        let (key, mut found) = (maker.key(index), false);
        let looked = store.scan(Some(key), Direction::Forward, &mut |entry, _| {
            found = entry == key;
            false
        });
        found || looked.is_err()
    };
    if sample.any(is_there) {
        return None;
    }
    let mut is_empty = true;
    let looked = store.scan(None, Direction::Forward, &mut |_, _| {
        is_empty = false;
        false
    });
    let what = if is_empty { "the store is empty" } else { "the store holds other keys" };
    looked
        .ok()
        .map(|()| format!("{workload} finds none of its keys: {what}; {}", describe_keys(plan)))
}

//! Whether a workload found what it should have: a bench of other keys than the store holds
//! measures how fast nothing is found.
//!
//! What share of its keys a store holds is not known: a fill that draws them writes 63 of 100. So a
//! store that was there before is doubted where fewer than half are found, and the run fails where
//! none is. A fresh one is doubted where none is found.

use super::Plan;
use crate::measured::Measured;
use crate::store::{Direction, Store};
use crate::workload::Workload;

/// Keys that are looked up before a workload that writes to a store which was there before.
const PROBES: u64 = 64;

/// What is to be said of a workload's finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Fine,
    /// Something is odd.
    Odd(String),
    /// Nothing of what was measured is worth anything.
    Worthless(String),
}

/// Compares what `workload` found with what it looked for.
pub(super) fn judge(plan: &Plan, workload: Workload, measured: &Measured) -> Verdict {
    let Some((found, asked)) = measured.found.filter(|(_, asked)| *asked > 0) else {
        return Verdict::Fine;
    };
    if workload == Workload::ReadMissing {
        return match found {
            0 => Verdict::Fine,
            _ => Verdict::Odd(format!(
                "{workload} found {found} of {asked} keys that should be missing: the store holds other keys \
                 than those of this run"
            )),
        };
    }
    let seeks = matches!(workload, Workload::SeekRandom | Workload::SeekRandomWhileWriting);
    let seeks_missing = seeks && plan.prefixes.is_some_and(|prefixes| prefixes.missing);
    let looks_for_all = workload.looks_for_what_is_there() && !seeks_missing;
    if !looks_for_all || deletes_before(plan, workload) {
        return Verdict::Fine;
    }
    if !plan.existing {
        return match found {
            0 => Verdict::Odd(format!(
                "{workload} found none of {asked} keys: nothing was written to this fresh store before; begin with a \
                 fill, as in --benchmarks=fillrandom,{workload}, or give --use-existing-db"
            )),
            _ => Verdict::Fine,
        };
    }
    if found.saturating_mul(2) >= asked {
        return Verdict::Fine;
    }
    let text = format!(
        "{workload} found {} of {asked} keys: {}",
        if found == 0 { "none".to_owned() } else { format!("only {found}") },
        asks(plan)
    );
    if found == 0 { Verdict::Worthless(text) } else { Verdict::Odd(text) }
}

/// What the keys are, and what is probably wrong with them.
fn asks(plan: &Plan) -> String {
    format!(
        "this run asks for {} keys of {} bytes; --num, --key-size and --keys-file must be those with which the \
         store was filled",
        plan.keys.len(),
        plan.keys.key_bytes()
    )
}

/// Whether the plan deletes something before it comes to `workload`.
fn deletes_before(plan: &Plan, workload: Workload) -> bool {
    let before = plan.steps.iter().map(|step| step.workload).take_while(|other| *other != workload);
    before.into_iter().any(|other| matches!(other, Workload::DeleteSeq | Workload::DeleteRandom))
}

/// Why a workload that is to change what the store holds would not: none of some of its keys is
/// there, and other entries are.
pub(super) fn doubt(plan: &Plan, workload: Workload, store: &dyn Store) -> Option<String> {
    let changes =
        matches!(workload, Workload::Overwrite | Workload::DeleteSeq | Workload::DeleteRandom);
    if !plan.existing || !changes || deletes_before(plan, workload) {
        return None;
    }
    let mut maker = plan.keys.maker();
    let step = (plan.keys.len() / PROBES).max(1);
    let mut sample = (0..plan.keys.len()).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    // By scans, which no filter counts.
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
    looked.ok().map(|()| format!("{workload} meets none of its keys: {what}; {}", asks(plan)))
}

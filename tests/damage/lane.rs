//! Runs one store through many changes: counts the results, and reports broken promises.

use std::path::Path;

use trommel_tests::counters::Counters;

use crate::exam::{Found, How, examine, leave};
use crate::injury::{Injury, kind_of};
use crate::stores::Store;
use trommel_tests::watchdog::note;

/// Number of failures after which a lane stops.
const ENOUGH: usize = 5;

/// See the module.
pub(crate) struct Lane<'a> {
    name: &'static str,
    store: &'a Store,
    counters: Counters,
    /// The last change: another way of opening it does not count as a new change.
    last: String,
    failures: Vec<String>,
}

impl<'a> Lane<'a> {
    pub(crate) fn new(name: &'static str, store: &'a Store) -> Self {
        let counters = Counters::new(format!("damage/{name}/{}", store.name));
        Self { name, store, counters, last: String::new(), failures: Vec::new() }
    }

    /// Changes `file` and examines the store. Counts the change once, however many ways of opening
    /// follow, and the result of each: `flips.table`, `outcomes.table.refused`. `judge` returns a
    /// name for the result, or the broken promise.
    pub(crate) fn case(
        &mut self,
        file: &str,
        injury: &Injury,
        how: How,
        judge: impl Fn(&Found) -> Result<&'static str, String>,
    ) {
        self.injured(&[(file, injury)], how, judge);
    }

    /// The same with several changes, one after another; counted under the kind of the first file.
    pub(crate) fn injured(
        &mut self,
        injuries: &[(&str, &Injury)],
        how: How,
        judge: impl Fn(&Found) -> Result<&'static str, String>,
    ) {
        let Some((first, first_injury)) = injuries.first() else { return };
        if self.failures.len() >= ENOUGH {
            return;
        }
        let what: Vec<String> =
            injuries.iter().map(|(file, injury)| format!("{file}, {injury}")).collect();
        let (name, store, what) = (self.name, &self.store.name, what.join("; "));
        let case = format!("{name} {store}: {what}; {how:?}");
        note(case.clone());
        let mut image = self.store.image.clone();
        if self.last != what {
            let noun = if injuries.len() == 1 { first_injury.noun() } else { "injured_twice" };
            self.counters.add(format!("{noun}.{}", kind_of(first)), 1);
            self.last = what;
        }
        for (file, injury) in injuries {
            injury.inflict(&mut image, file);
        }
        match examine(self.store, &image, how).and_then(|found| judge(&found)) {
            Ok(verdict) => self.counters.add(format!("outcomes.{}.{verdict}", kind_of(first)), 1),
            Err(what) => {
                let name =
                    format!("damage-{}-{}-{}", self.name, self.store.name, self.failures.len());
                let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
                leave(&image, &dir);
                self.failures.push(format!("{case}\n    {what}\n    left in {}", dir.display()));
            }
        }
    }

    /// Number of results `verdict` for files of this kind.
    pub(crate) fn count(&self, kind: &str, verdict: &str) -> u64 {
        self.counters.get(&format!("outcomes.{kind}.{verdict}"))
    }

    /// Writes the counters. Panics if a promise was broken.
    pub(crate) fn finish(self) {
        assert!(self.failures.is_empty(), "\n{}", self.failures.join("\n"));
        self.counters.finish();
    }
}

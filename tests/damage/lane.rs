//! One store through many injuries: what came of them, counted, and where a promise was broken.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::exam::{Found, How, examine, leave};
use crate::injury::{Injury, kind_of};
use crate::stores::Store;
use crate::watchdog::note;

/// Failures after which a lane stops.
const ENOUGH: usize = 5;

/// See the module.
pub(crate) struct Lane<'a> {
    name: &'static str,
    store: &'a Store,
    counts: BTreeMap<(&'static str, &'static str), u64>,
    failures: Vec<String>,
}

impl<'a> Lane<'a> {
    pub(crate) fn new(name: &'static str, store: &'a Store) -> Self {
        Self { name, store, counts: BTreeMap::new(), failures: Vec::new() }
    }

    /// Injures `file` and examines the store. `judge` names what came of it, or says which promise
    /// was broken.
    pub(crate) fn case(
        &mut self,
        file: &str,
        injury: &Injury,
        how: How,
        judge: impl Fn(&Found) -> Result<&'static str, String>,
    ) {
        if self.failures.len() >= ENOUGH {
            return;
        }
        let case = format!("{} {}: {file}, {injury}, {how:?}", self.name, self.store.name);
        note(case.clone());
        let mut image = self.store.image.clone();
        injury.inflict(&mut image, file);
        match examine(self.store, &image, how).and_then(|found| judge(&found)) {
            Ok(verdict) => *self.counts.entry((kind_of(file), verdict)).or_default() += 1,
            Err(what) => {
                let name =
                    format!("damage-{}-{}-{}", self.name, self.store.name, self.failures.len());
                let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
                leave(&image, &dir);
                self.failures.push(format!("{case}\n    {what}\n    left in {}", dir.display()));
            }
        }
    }

    /// How often `verdict` was given on files of this kind.
    pub(crate) fn count(&self, kind: &str, verdict: &str) -> u64 {
        let counts = self.counts.iter();
        counts.filter(|((k, v), _)| *k == kind && *v == verdict).map(|(_, count)| count).sum()
    }

    /// Prints the counts. Panics if a promise was broken.
    pub(crate) fn finish(self) {
        let counts = self.counts.iter().map(|((kind, verdict), n)| format!("{kind} {verdict} {n}"));
        let counts = counts.collect::<Vec<_>>().join(", ");
        println!("{} {}: {counts}", self.name, self.store.name);
        self.keep_counts();
        assert!(self.failures.is_empty(), "\n{}", self.failures.join("\n"));
    }

    /// Adds the counts to the file that `TROMMEL_DAMAGE_JSON` names, one line of JSON a lane.
    fn keep_counts(&self) {
        let Some(file) = std::env::var_os("TROMMEL_DAMAGE_JSON") else { return };
        let counts =
            self.counts.iter().map(|((kind, verdict), n)| format!("\"{kind} {verdict}\": {n}"));
        let counts = counts.collect::<Vec<_>>().join(", ");
        let (lane, store) = (self.name, &self.store.name);
        let failures = self.failures.len();
        let line = format!(
            "{{\"lane\": \"{lane}\", \"store\": \"{store}\", \"failures\": {failures}, \
             \"counts\": {{{counts}}}}}\n"
        );
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::fs::read_to_string(&file).unwrap_or_default();
        std::fs::write(&file, before + &line).expect("a writable file");
    }
}

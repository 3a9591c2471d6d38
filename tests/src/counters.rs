//! Counters of a lane: printed, and recorded on request of the environment.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Instant;

use crate::settings::demanded;

/// The counters of one run of a lane.
///
/// [`Counters::finish`] prints them and, if `TROMMEL_LANES_JSON` names a file, appends one line of
/// JSON to it: `{"lane": "crash/one_thread", "seconds": 1.5, "counters": {"images": 60000}}`. A
/// lane that fails panics before that, so a line means that nothing was found.
#[derive(Debug)]
pub struct Counters {
    lane: String,
    start: Instant,
    counts: BTreeMap<String, u64>,
}

impl Counters {
    /// The counters of the lane of this name, which starts now. Names are paths: the test binary,
    /// then the test, for example `crash/one_thread`.
    pub fn new(lane: impl Into<String>) -> Self {
        Self { lane: lane.into(), start: Instant::now(), counts: BTreeMap::new() }
    }

    /// Adds to a counter. A name is a noun in the plural, with details after dots, for example
    /// `images` or `faults.append.log.EIO`.
    pub fn add(&mut self, name: impl Into<String>, count: u64) {
        *self.counts.entry(name.into()).or_default() += count;
    }

    /// The value of this counter; 0 if nothing was added.
    pub fn get(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// All counters whose name begins with `prefix`.
    pub fn under(&self, prefix: &str) -> impl Iterator<Item = (&str, u64)> {
        let all = self.counts.iter().map(|(name, count)| (name.as_str(), *count));
        all.filter(move |(name, _)| name.starts_with(prefix))
    }

    /// Prints to stderr, bypassing the test harness, that the lane cannot run here, and counts it
    /// as skipped. `needs` names its requirement: `limits`, `users`, `strace`.
    ///
    /// # Panics
    ///
    /// If `TROMMEL_DEMAND` lists the requirement, and as [`Counters::finish`].
    pub fn skip(mut self, needs: &str, why: &str) {
        let line = format!("SKIPPED: {}: {why}\n", self.lane);
        assert!(!demanded(needs), "{line}which TROMMEL_DEMAND demands");
        // Not `eprintln`, which the test harness shows only for failing tests.
        let _ = std::io::stderr().write_all(line.as_bytes());
        self.add("skipped", 1);
        self.finish();
    }

    /// Prints the counters and records them.
    ///
    /// # Panics
    ///
    /// If the file that `TROMMEL_LANES_JSON` names cannot be written.
    #[allow(clippy::print_stdout, reason = "tests print what they counted")]
    pub fn finish(self) {
        let counts = self.counts.iter().map(|(name, count)| format!("\"{name}\": {count}"));
        let counts = counts.collect::<Vec<_>>().join(", ");
        let line = format!(
            "{{\"lane\": \"{}\", \"seconds\": {:.1}, \"counters\": {{{counts}}}}}\n",
            self.lane,
            self.start.elapsed().as_secs_f64()
        );
        print!("{line}");
        let Some(path) = std::env::var_os("TROMMEL_LANES_JSON") else { return };
        #[allow(clippy::disallowed_methods, reason = "it is no file of a store")]
        let file = OpenOptions::new().create(true).append(true).open(&path);
        // One call, so that lines of lanes that end at the same time do not mix.
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

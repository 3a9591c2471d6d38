//! The sums of the lanes' counters: one line of JSON per lane and run, as
//! `trommel_tests::counters::Counters` writes them.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::record::rounded;

/// The sums of one lane.
#[derive(Debug, Default, Clone)]
pub(crate) struct Lane {
    pub(crate) runs: u64,
    pub(crate) seconds: f64,
    pub(crate) counters: BTreeMap<String, u64>,
}

impl Lane {
    /// The counters without details. If the plain name is counted (`images`), its details
    /// (`images.P01`) count the same things again; if not, it is the sum of its details.
    pub(crate) fn nouns(&self) -> BTreeMap<&str, u64> {
        let mut nouns = BTreeMap::new();
        for (name, count) in &self.counters {
            let noun = name.split('.').next().unwrap_or(name);
            if noun == name || !self.counters.contains_key(noun) {
                *nouns.entry(noun).or_default() += count;
            }
        }
        nouns
    }
}

/// A lower bound for one counter, over all lanes whose names have a prefix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floor {
    pub(crate) lanes: &'static str,
    pub(crate) noun: &'static str,
    pub(crate) least: u64,
}

/// The sums of all lanes, by name.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sums {
    pub(crate) lanes: BTreeMap<String, Lane>,
}

impl Sums {
    /// Adds the lines of a file; a missing file has none. A line truncated by a kill is skipped.
    pub(crate) fn add_file(&mut self, path: &Path) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        for line in text.lines() {
            let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
            self.add_line(&line);
        }
    }

    fn add_line(&mut self, line: &Value) {
        let Some(name) = line.get("lane").and_then(Value::as_str) else { return };
        let lane = self.lanes.entry(name.to_owned()).or_default();
        lane.runs += 1;
        lane.seconds += line.get("seconds").and_then(Value::as_f64).unwrap_or(0.0);
        let counters = line.get("counters").and_then(Value::as_object);
        for (name, count) in counters.into_iter().flatten() {
            *lane.counters.entry(name.clone()).or_default() += count.as_u64().unwrap_or(0);
        }
    }

    /// The totals over all lanes, by noun: see [`Lane::nouns`].
    pub(crate) fn totals(&self) -> BTreeMap<String, u64> {
        let mut totals = BTreeMap::new();
        for (noun, count) in self.lanes.values().flat_map(Lane::nouns) {
            *totals.entry(noun.to_owned()).or_default() += count;
        }
        totals
    }

    /// Describes the totals that are too low.
    pub(crate) fn below(&self, floors: &[Floor]) -> Vec<String> {
        let short = |Floor { lanes, noun, least }: &Floor| {
            let theirs = self.lanes.iter().filter(|(name, _)| name.starts_with(lanes));
            let count: u64 = theirs.filter_map(|(_, lane)| lane.nouns().remove(noun)).sum();
            (count < *least).then(|| format!("{count} {noun} in {lanes}, not {least}"))
        };
        floors.iter().filter_map(short).collect()
    }

    /// The totals over all lanes of counters that begin with `noun` and a dot, by the rest of the
    /// name.
    pub(crate) fn details(&self, noun: &str) -> BTreeMap<String, u64> {
        let mut details = BTreeMap::new();
        for (name, count) in self.lanes.values().flat_map(|lane| &lane.counters) {
            let rest = name.strip_prefix(noun).and_then(|rest| rest.strip_prefix('.'));
            if let Some(rest) = rest {
                *details.entry(rest.to_owned()).or_default() += count;
            }
        }
        details
    }

    pub(crate) fn as_json(&self) -> Value {
        let lane = |(name, lane): (&String, &Lane)| {
            json!({
                "lane": name,
                "runs": lane.runs,
                "seconds": rounded(lane.seconds),
                "counters": lane.counters,
            })
        };
        self.lanes.iter().map(lane).collect()
    }

    /// The sums in a record.
    pub(crate) fn of_record(record: &Value) -> Self {
        let mut sums = Self::default();
        for line in record.get("lanes").and_then(Value::as_array).into_iter().flatten() {
            sums.add_line(line);
            let runs = line.get("runs").and_then(Value::as_u64).unwrap_or(1);
            let name = line.get("lane").and_then(Value::as_str).unwrap_or_default();
            if let Some(lane) = sums.lanes.get_mut(name) {
                lane.runs = runs;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_plainly_and_in_detail_is_summed_once() {
        let mut sums = Sums::default();
        for line in [
            json!({"lane": "a", "seconds": 1, "counters": {
                "images": 30, "images.P01": 10, "images.exhaustive": 20, "skipped": 1}}),
            json!({"lane": "a", "seconds": 2, "counters": {"images": 5, "images.P01": 5}}),
            json!({"lane": "b", "counters": {"faults.sync.EIO": 3, "faults.read.EIO": 4}}),
        ] {
            sums.add_line(&line);
        }
        let named = |pairs: &[(&str, u64)]| -> BTreeMap<String, u64> {
            pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        assert_eq!(sums.totals(), named(&[("faults", 7), ("images", 35), ("skipped", 1)]));
        assert_eq!(sums.details("images"), named(&[("P01", 15), ("exhaustive", 20)]));
        let floor = |lanes, noun, least| Floor { lanes, noun, least };
        let floors = [floor("b", "faults", 7), floor("b", "faults", 8), floor("a", "faults", 1)];
        assert_eq!(sums.below(&floors), ["7 faults in b, not 8", "0 faults in a, not 1"]);
        assert_eq!(sums.lanes["a"].nouns(), BTreeMap::from([("images", 35), ("skipped", 1)]));
    }
}

//! What was measured, as lines of JSON: where, then a cell for each filter, then what was left out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trommel_harness::machine::Environment;

use crate::loops::{Mode, mode_name};

/// Version of these records.
pub const SCHEMA: u32 = 1;

/// A line of results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Line {
    /// Where and when, the first line.
    Machine(Box<Machine>),
    /// A filter's figures.
    Cell(Box<Cell>),
    /// How it ended, the last line.
    End(End),
}

/// Where and when it was measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When it began, in UTC.
    pub start: String,
    /// The machine and the build.
    pub environment: Environment,
    /// The instructions that Trommel's filters were asked with, from the plainest to the best.
    pub kernels: Vec<String>,
    /// What the system does about huge pages, where it says.
    pub huge_pages: Option<String>,
    /// Numbers of keys, from the fewest to the most: tiny, small, middle, large, huge.
    pub keys: Vec<u64>,
    /// Rounds of queries.
    pub rounds: u32,
    /// Questions of a round that are independent.
    pub queries: u64,
    /// Questions of a round that wait for each other.
    pub dependent_queries: u64,
    /// The command line.
    pub command: String,
    /// The other crates with their versions.
    pub rivals: Vec<String>,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct End {
    /// Groups that were left out, and why.
    pub left_out: Vec<String>,
    /// Seconds it took.
    pub seconds: f64,
    /// Processors, on average, that others on the machine kept busy meanwhile, where the system
    /// says.
    pub others: Option<f64>,
}

/// How often a filter erred.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Rate {
    /// Absent keys asked for.
    pub asked: u64,
    /// Answers "maybe" to them.
    pub false_positives: u64,
    /// The rate that theory expects.
    pub expected: f64,
}

impl Rate {
    /// The rate measured; none without a false positive.
    pub fn measured(&self) -> Option<f64> {
        (self.false_positives > 0).then(|| self.false_positives as f64 / self.asked as f64)
    }
}

/// The figures of one filter, asked with one kernel, on one kind of pages.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Cell {
    /// What it was measured beside: a size or a rate.
    pub group: String,
    /// Keys of the filter.
    pub keys: u64,
    /// Its name.
    pub contestant: String,
    /// The instructions it was asked with, if they can be chosen.
    pub kernel: Option<String>,
    /// Whether huge pages were asked for.
    pub huge: bool,
    /// Bytes of the process on huge pages that came with it, where the system says.
    pub huge_bytes: Option<u64>,
    /// Bits per key asked for.
    pub asked_bits: f64,
    /// Bits per key that it takes.
    pub bits: f64,
    /// How often it errs; the same whatever the kernel and the pages, so measured once.
    pub rate: Rate,
    /// Nanoseconds a key to build, by round; of the plain variant only.
    pub build_ns: Vec<f64>,
    /// Nanoseconds a key to make a filter to be asked of the bytes that were built.
    pub decode_ns: Option<f64>,
    /// Bytes a key taken at once, at most, while it was built, the filter among them.
    pub build_bytes: Option<f64>,
    /// Nanoseconds a question, by mode and round, without the loop around it.
    pub query_ns: BTreeMap<String, Vec<f64>>,
}

impl Cell {
    /// Nanoseconds a question by round.
    pub fn rounds(&self, mode: Mode) -> &[f64] {
        self.query_ns.get(&mode_name(mode)).map_or(&[], Vec::as_slice)
    }

    /// Bytes of the filter.
    pub fn bytes(&self) -> f64 {
        self.bits * self.keys as f64 / 8.0
    }
}

/// The middle of some values; of two, the mean.
pub fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values.to_vec()).map(|spread| spread.median)
}

/// A figure over the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Its median.
    pub median: f64,
    /// Its least value.
    pub least: f64,
    /// Its greatest.
    pub greatest: f64,
}

impl Spread {
    /// Of these values, if there are any.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, greatest) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), least, greatest })
    }

    /// Of the ratios of `above` to `below`, round by round.
    pub fn of_ratios(above: &[f64], below: &[f64]) -> Option<Self> {
        // The loop alone may take as long as a filter in the first-level cache.
        let ratio = |(above, below): (&f64, &f64)| above.max(0.01) / below.max(0.01);
        Self::of(above.iter().zip(below).map(ratio).collect())
    }
}

/// All that was measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Results {
    /// Where and when.
    pub machine: Machine,
    /// The figures, in the order in which they were measured.
    pub cells: Vec<Cell>,
    /// How it ended; none if it was cut off.
    pub end: Option<End>,
}

impl Results {
    /// Reads what was written line by line.
    ///
    /// # Errors
    /// The number of the first line that is no record, and why.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut results = Self::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let line = serde_json::from_str(line);
            match line.map_err(|error| format!("line {}: {error}", number + 1))? {
                Line::Machine(machine) => results.machine = *machine,
                Line::Cell(cell) => results.cells.push(*cell),
                Line::End(end) => results.end = Some(end),
            }
        }
        if results.machine.schema != SCHEMA {
            return Err(format!("this is no record of this program with schema {SCHEMA}"));
        }
        Ok(results)
    }

    /// The groups, in the order in which they were measured.
    pub fn groups(&self) -> Vec<(u64, &str)> {
        let mut groups = Vec::new();
        for cell in &self.cells {
            let group = (cell.keys, &*cell.group);
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }

    /// The cells of a group.
    pub fn of(&self, keys: u64, group: &str) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| cell.keys == keys && cell.group == group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round() {
        let spread = Spread::of_ratios(&[2.0, 30.0, 4.0], &[1.0, 10.0, 4.0, 7.0]).unwrap();
        assert_eq!((spread.median, spread.least, spread.greatest), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of_ratios(&[], &[1.0]), None);
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let cell = Cell { group: "10 bits".into(), keys: 5, ..Cell::default() };
        let machine = Machine { schema: SCHEMA, ..Machine::default() };
        let lines = [Line::Machine(machine.into()), Line::Cell(cell.into())];
        let text = lines.map(|line| serde_json::to_string(&line).unwrap() + "\n").concat();
        let results = Results::read(&text).unwrap();
        assert_eq!(results.groups(), [(5, "10 bits")]);
        assert_eq!((results.of(5, "10 bits").count(), results.end), (1, None));
        assert!(Results::read("{}").unwrap_err().contains("line 1"));
        assert!(Results::read("").unwrap_err().contains("no record"));
    }
}

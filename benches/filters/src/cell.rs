//! Measurements as lines of JSON: the machine, then a cell for each filter, then what was left out.

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
    /// The place and time, in the first line.
    Machine(Box<Machine>),
    /// A filter's figures.
    Cell(Box<Cell>),
    /// The end, in the last line.
    End(End),
}

/// The place and time of the measurement.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Start of the measurement, in UTC.
    pub start: String,
    /// The machine and the build.
    pub environment: Environment,
    /// The kernels of Trommel's filters, from the plainest to the best.
    pub kernels: Vec<String>,
    /// The system's setting of huge pages, if known.
    pub huge_pages: Option<String>,
    /// Numbers of keys, in increasing order: tiny, small, middle, large, huge.
    pub keys: Vec<u64>,
    /// Rounds of queries.
    pub rounds: u32,
    /// Independent queries in a round.
    pub queries: u64,
    /// Dependent queries in a round.
    pub dependent_queries: u64,
    /// The command line.
    pub command: String,
    /// The other crates with their versions.
    pub rivals: Vec<String>,
}

/// The end of a measurement.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct End {
    /// Groups that were left out, and the reason.
    pub left_out: Vec<String>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Processors, on average, that other processes kept busy, if known.
    pub others: Option<f64>,
}

/// The false-positive rate of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Rate {
    /// Queries for absent keys.
    pub asked: u64,
    /// False positives among them.
    pub false_positives: u64,
    /// The rate that theory expects.
    pub expected: f64,
}

impl Rate {
    /// The measured rate; none without a false positive.
    pub fn measured(&self) -> Option<f64> {
        (self.false_positives > 0).then(|| self.false_positives as f64 / self.asked as f64)
    }
}

/// The figures of one filter, with one kernel, on one kind of pages.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Cell {
    /// The group it was measured in: a size or a rate.
    pub group: String,
    /// Keys of the filter.
    pub keys: u64,
    /// Its name.
    pub contestant: String,
    /// The kernel of queries, if there is a choice.
    pub kernel: Option<String>,
    /// Whether huge pages were requested.
    pub huge: bool,
    /// Bytes of the filter on huge pages, if known.
    pub huge_bytes: Option<u64>,
    /// Requested bits per key.
    pub asked_bits: f64,
    /// Actual bits per key.
    pub bits: f64,
    /// The false-positive rate; independent of the kernel and the pages, so measured once.
    pub rate: Rate,
    /// Nanoseconds per key to build, by round; of the plain variant only.
    pub build_ns: Vec<f64>,
    /// Nanoseconds per key to decode the built bytes into a filter.
    pub decode_ns: Option<f64>,
    /// Peak bytes per key during the build, including the filter.
    pub build_bytes: Option<f64>,
    /// Nanoseconds per query, by mode and round, without the loop around it.
    pub query_ns: BTreeMap<String, Vec<f64>>,
}

impl Cell {
    /// Nanoseconds per query by round.
    pub fn rounds(&self, mode: Mode) -> &[f64] {
        self.query_ns.get(&mode_name(mode)).map_or(&[], Vec::as_slice)
    }

    /// Bytes of the filter.
    pub fn bytes(&self) -> f64 {
        self.bits * self.keys as f64 / 8.0
    }
}

/// The median.
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
    /// Over these values, if there are any.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, greatest) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), least, greatest })
    }

    /// Over the ratios of `above` to `below`, round by round.
    pub fn of_ratios(above: &[f64], below: &[f64]) -> Option<Self> {
        // In the first-level cache the loop alone may take as long as a filter.
        let ratio = |(above, below): (&f64, &f64)| above.max(0.01) / below.max(0.01);
        Self::of(above.iter().zip(below).map(ratio).collect())
    }
}

/// All measurements.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Results {
    /// The place and time.
    pub machine: Machine,
    /// The figures, in the order of measurement.
    pub cells: Vec<Cell>,
    /// The end; none if the file is truncated.
    pub end: Option<End>,
}

impl Results {
    /// Parses a file line by line.
    ///
    /// # Errors
    /// The number of the first invalid line, and the reason.
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

    /// The groups, in the order of measurement.
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

//! Repeated workloads: their syntax, and the lines that summarise all runs.

use std::fmt;
use std::str::FromStr;

use crate::measured::Measured;
use crate::workload::{UnknownWorkload, Workload};

/// A workload and its number of runs: `readrandom`, `readrandom[X3]`, `readrandom[W1-X3]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The workload.
    pub workload: Workload,
    /// Uncounted runs before the others.
    pub warmups: u32,
    /// Counted runs; at least 1.
    pub repeats: u32,
}

impl From<Workload> for Step {
    fn from(workload: Workload) -> Self {
        Self { workload, warmups: 0, repeats: 1 }
    }
}

/// The text is not a valid step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseStepError {
    /// Unknown workload.
    Workload(UnknownWorkload),
    /// The text in the brackets is invalid.
    Times(String),
}

impl fmt::Display for ParseStepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload(error) => error.fmt(f),
            Self::Times(text) => write!(
                f,
                "\"{text}\" is not a number of runs: write [X3] for three runs, [W1-X3] for an \
                 uncounted one before them"
            ),
        }
    }
}

impl std::error::Error for ParseStepError {}

impl FromStr for Step {
    type Err = ParseStepError;

    fn from_str(text: &str) -> Result<Self, ParseStepError> {
        let (name, times) = Self::split(text);
        let mut step = Self::from(name.parse::<Workload>().map_err(ParseStepError::Workload)?);
        let Some(times) = times else { return Ok(step) };
        let wrong = || ParseStepError::Times(text.into());
        let inner = times.strip_suffix(']').ok_or_else(wrong)?;
        for part in inner.split('-') {
            let number = |digits: &str| digits.parse().ok().filter(|number| *number > 0);
            match (part.get(..1), part.get(1..)) {
                (Some("X" | "x"), Some(digits)) => {
                    step.repeats = number(digits).ok_or_else(wrong)?;
                }
                (Some("W" | "w"), Some(digits)) => {
                    step.warmups = number(digits).ok_or_else(wrong)?;
                }
                _ => return Err(wrong()),
            }
        }
        Ok(step)
    }
}

impl Step {
    /// The name of the workload, and the text after its opening bracket, including the closing one.
    pub fn split(text: &str) -> (&str, Option<&str>) {
        match text.split_once('[') {
            Some((name, times)) => (name, Some(times)),
            None => (text, None),
        }
    }
}

/// The results of all runs of a step.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    operations_per_second: Vec<f64>,
    micros_per_operation: Vec<f64>,
    megabytes_per_second: Vec<f64>,
}

impl Runs {
    pub(crate) fn add(&mut self, measured: &Measured) {
        let seconds = measured.time.wall.as_secs_f64().max(1e-9);
        self.operations_per_second.push(measured.operations_per_second());
        self.micros_per_operation.push(measured.micros_per_operation());
        if measured.bytes > 0 {
            self.megabytes_per_second.push(measured.bytes as f64 / 1_048_576.0 / seconds);
        }
    }

    /// db_bench's lines about several runs, but in microseconds per operation, as in the line of
    /// each run: with db_bench's milliseconds to three decimals everything fast would show 0.001.
    /// `±` is half of the 95% confidence interval of the mean by Student's distribution, which
    /// suits few runs.
    pub(crate) fn lines(&self, name: &str, interval_only: bool) -> String {
        let runs = self.operations_per_second.len();
        let moved = self.megabytes_per_second.len() == runs;
        let (ops, ops_half) = mean_and_half_interval(&self.operations_per_second);
        let (mb, mb_half) = mean_and_half_interval(&self.megabytes_per_second);
        if interval_only {
            let mut line = format!(
                "{name} [CI95 {runs} runs] : ({:.0}, {:.0}) ops/sec",
                ops - ops_half,
                ops + ops_half
            );
            if moved {
                line += &format!("; ({:.1}, {:.1}) MB/sec", mb - mb_half, mb + mb_half);
            }
            return line;
        }
        let (micros, _) = mean_and_half_interval(&self.micros_per_operation);
        let mut average = format!(
            "{name} [AVG    {runs} runs] : {ops:.0} (± {ops_half:.0}) ops/sec; {micros:.3} micros/op"
        );
        let mut middle = format!(
            "{name} [MEDIAN {runs} runs] : {:.0} ops/sec; {:.3} micros/op",
            median(&self.operations_per_second),
            median(&self.micros_per_operation)
        );
        if moved {
            average += &format!("; {mb:6.1} (± {mb_half:.1}) MB/sec");
            middle += &format!("; {:6.1} MB/sec", median(&self.megabytes_per_second));
        }
        format!("{average}\n{middle}")
    }
}

fn mean_and_half_interval(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (count - 1.0)).sqrt();
    (mean, student(values.len() - 1) * deviation / count.sqrt())
}

/// The 97.5% point of Student's distribution with this many degrees of freedom; accurate within a
/// hundredth from 10 on.
fn student(freedom: usize) -> f64 {
    const FIRST: [f64; 10] =
        [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    FIRST.get(freedom.wrapping_sub(1)).copied().unwrap_or(1.960 + 2.6 / freedom as f64)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        even if even % 2 == 0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measured::MeasuredTime;

    #[test]
    fn steps_are_read_as_db_bench_writes_them() {
        let step = |warmups, repeats| Step { workload: Workload::ReadRandom, warmups, repeats };
        for (text, expected) in [
            ("readrandom", step(0, 1)),
            ("readrandom[X3]", step(0, 3)),
            ("readrandom[W1-X3]", step(1, 3)),
            ("readrandom[X12-W2]", step(2, 12)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in
            ["readrandom[", "readrandom[]", "readrandom[X0]", "readrandom[3]", "readrandom[X3"]
        {
            let error = text.parse::<Step>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("[W1-X3]"), "{error}");
        }
        assert!(matches!("x[X3]".parse::<Step>(), Err(ParseStepError::Workload(_))));
    }

    fn runs(bytes: u64) -> Runs {
        let mut runs = Runs::default();
        for millis in [1000, 1250, 2000] {
            runs.add(&Measured {
                operations: 100_000,
                bytes,
                time: MeasuredTime::of_one_thread(Duration::from_millis(millis)),
                ..Measured::default()
            });
        }
        runs
    }

    #[test]
    fn all_runs_have_a_mean_an_interval_and_a_median() {
        // 100,000, 80,000 and 50,000 a second: mean 76,667, deviation 25,166, x 4.303 / sqrt(3).
        assert_eq!(
            runs(0).lines("readmissing", false),
            "readmissing [AVG    3 runs] : 76667 (± 62521) ops/sec; 14.167 micros/op\n\
             readmissing [MEDIAN 3 runs] : 80000 ops/sec; 12.500 micros/op"
        );
        assert_eq!(
            runs(10 << 20).lines("readrandom", false),
            "readrandom [AVG    3 runs] : 76667 (± 62521) ops/sec; 14.167 micros/op;    7.7 (± 6.3) \
             MB/sec\nreadrandom [MEDIAN 3 runs] : 80000 ops/sec; 12.500 micros/op;    8.0 MB/sec"
        );
        assert_eq!(
            runs(10 << 20).lines("readrandom", true),
            "readrandom [CI95 3 runs] : (14146, 139188) ops/sec; (1.4, 13.9) MB/sec"
        );
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!((student(10) - 2.228).abs() < 0.001 && (student(30) - 2.042).abs() < 0.02);
    }
}
